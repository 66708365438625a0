package ops

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tensorflow/tensorflow/go/op"

	"github.com/sluice-ml/sluice/bridge"
)

// Scope is a place in a graph to add nodes at: a directory that their names
// begin with, a device, and operations that run before them. A Scope is a
// value that never changes; WithDevice and the like make another one.
//
// It implements raw.Builder: every function of ops/raw takes one.
type Scope struct {
	graph   *Graph
	path    string
	device  string
	control []*tf.Operation
	// gradients are the names that mark nodes of some types (WithGradients).
	gradients map[string]string
}

// errNoGraph is what a nil or zero scope answers.
var errNoGraph = errors.New("the scope has no graph; scopes come from ops.NewGraph, Graph.Root and Scope.Scope")

func (s *Scope) ok() bool { return s != nil && s.graph != nil }

// Graph is the graph that the scope is in; nil for a nil scope.
func (s *Scope) Graph() *Graph {
	if s == nil {
		return nil
	}
	return s.graph
}

// TF is the binding's graph; nil for a nil scope.
func (s *Scope) TF() *tf.Graph { return s.Graph().TF() }

// Path is the scope's directory, such as "net/layer"; "" for the root.
func (s *Scope) Path() string {
	if s == nil {
		return ""
	}
	return s.path
}

// Device is the device that the scope's nodes are placed on, "" where
// TensorFlow chooses.
func (s *Scope) Device() string {
	if s == nil {
		return ""
	}
	return s.device
}

// Err is the graph's first error, [Graph.Err].
func (s *Scope) Err() error {
	if !s.ok() {
		return errNoGraph
	}
	return s.graph.Err()
}

// Fail makes err the graph's error, with the caller's file and line, unless
// there is one already. A nil err does nothing.
func (s *Scope) Fail(err error) { s.fail("", err) }

// fail is Fail with the operation or call that failed.
func (s *Scope) fail(what string, err error) {
	if !s.ok() || err == nil {
		return
	}
	s.graph.mu.Lock()
	defer s.graph.mu.Unlock()
	s.failLocked(what, err)
}

func (s *Scope) failLocked(what string, err error) {
	// An error in a scope of the binding's comes first: it is what made the
	// empty output that was then passed to us.
	if s.graph.errLocked() != nil {
		return
	}
	var build *BuildError
	if errors.As(err, &build) {
		s.graph.err = err
		return
	}
	file, line := caller()
	s.graph.err = &BuildError{Op: what, Scope: s.path, File: file, Line: line, Err: err}
}

// with is a copy of s to change.
func (s *Scope) with(change func(*Scope)) *Scope {
	if !s.ok() {
		return s
	}
	c := *s
	change(&c)
	return &c
}

// Scope opens the directory name below s, which may be a path like "a/b". The
// same name gives the same directory again, so that
// g.Scope("net").Variable("w", …) is net/w wherever it is written; nodes in it
// get unique names all the same. It is the variable half of Python's
// variable_scope.
func (s *Scope) Scope(name string) *Scope {
	if !s.ok() {
		return s
	}
	path := join(s.path, strings.TrimSuffix(name, "/"))
	s.graph.mu.Lock()
	defer s.graph.mu.Unlock()
	if err := errors.Join(checkPath(path), s.graph.names.checkOpen(path)); err != nil {
		s.failLocked(fmt.Sprintf("Scope(%q)", name), err)
		return s
	}
	s.graph.names.sync()
	s.graph.names.reserve(path)
	return s.with(func(c *Scope) { c.path = path })
}

// NameScope opens a directory that nobody else has: name, or name_1, name_2 …
// It is Python's name_scope. A name that ends in a slash is a full path,
// opened again as it is.
func (s *Scope) NameScope(name string) *Scope {
	if !s.ok() {
		return s
	}
	s.graph.mu.Lock()
	defer s.graph.mu.Unlock()
	path, err := s.uniqueLocked(name)
	if err != nil {
		s.failLocked(fmt.Sprintf("NameScope(%q)", name), err)
		return s
	}
	return s.with(func(c *Scope) { c.path = path })
}

// uniqueLocked is the full name for a node or name scope called name in s.
func (s *Scope) uniqueLocked(name string) (string, error) {
	path, absolute := strings.CutSuffix(name, "/")
	if !absolute {
		path = join(s.path, name)
	}
	if err := errors.Join(checkPath(path), s.graph.names.checkOpen(path)); err != nil {
		return "", err
	}
	if absolute {
		s.graph.names.sync()
		s.graph.names.reserve(path)
		return path, nil
	}
	return s.graph.names.unique(path), nil
}

// WithDevice is s with another device, such as "/device:GPU:0"; "" leaves the
// choice to TensorFlow. It is Python's tf.device.
func (s *Scope) WithDevice(device string) *Scope {
	return s.with(func(c *Scope) { c.device = device })
}

// WithControl is s with more operations that run before each of its nodes
// (constants excepted, which have nothing to wait for). It is Python's
// tf.control_dependencies.
func (s *Scope) WithControl(before ...*tf.Operation) *Scope {
	if !s.ok() {
		return s
	}
	for i, o := range before {
		if o == nil {
			s.fail("WithControl", fmt.Errorf("operation %d of %d is nil", i, len(before)))
			return s
		}
	}
	return s.with(func(c *Scope) { c.control = slices.Concat(s.control, before) })
}

// WithoutControl is s with nothing that runs before its nodes, Python's
// tf.control_dependencies(None).
func (s *Scope) WithoutControl() *Scope {
	return s.with(func(c *Scope) { c.control = nil })
}

// Add adds a node and returns it, nil after an error, which sticks to the
// graph. Its name is the scope's path and spec.Name (or the operation type),
// made unique as Python does; a spec.Name that ends in a slash is a full name
// taken as it is. The scope's device holds unless the spec has one or is
// colocated; its control dependencies are added to the spec's.
func (s *Scope) Add(spec bridge.OpSpec) *tf.Operation {
	if !s.ok() {
		return nil
	}
	g := s.graph
	spec.Inputs = g.captureInputs(spec.Inputs)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return nil
	}
	name := spec.Name
	if name == "" {
		name = spec.Type
	}
	var err error
	if spec.Name, err = s.uniqueLocked(name); err != nil {
		s.failLocked(spec.Type, err)
		return nil
	}
	if spec.Device == "" && len(spec.ColocateWith) == 0 {
		spec.Device = s.device
	}
	if mark := s.gradients[spec.Type]; mark != "" {
		spec.Attrs = marked(spec.Attrs, mark)
	}
	if len(s.control) > 0 && spec.Type != "Const" {
		spec.Control = slices.Concat(spec.Control, s.control)
	}
	added, err := bridge.AddOperation(g.tf, spec)
	if err != nil {
		s.failLocked(spec.Type, err)
		return nil
	}
	return added
}

// Op is a scope of the binding's for tfgo and for the functions of its op
// package, with s's device and control dependencies. Each call gives one with
// a directory of its own (net/op, net/op_1 …), so that whatever is added in it
// can't collide with anything else. Two functions of the same name in one
// op.Scope still collide, as always in the binding: call Op again or use its
// SubScope. Errors in it are found by Err and by all that builds on.
func (s *Scope) Op() *op.Scope {
	if !s.ok() {
		orphan := op.NewScope()
		orphan.UpdateErr("Op", errNoGraph)
		return orphan
	}
	g := s.graph
	g.mu.Lock()
	defer g.mu.Unlock()
	path := g.names.close(join(s.path, "op"))
	scope := op.NewScopeWithGraph(g.tf).SubScope(path)
	if s.device != "" {
		scope = scope.WithDevice(s.device)
	}
	if len(s.control) > 0 {
		scope = scope.WithControlDependencies(s.control...)
	}
	if g.err != nil {
		scope.UpdateErr("Op", g.err) // nothing more is added
		return scope
	}
	g.handed = append(g.handed, handedScope{path, scope})
	return scope
}

// Placeholder is a tensor that every run must feed, of the given dtype and
// static shape (nil: any). An empty name stands for "Placeholder".
func (s *Scope) Placeholder(name string, dt tf.DataType, shape Shape) tf.Output {
	return first(s.WithoutControl().Add(bridge.OpSpec{Type: "Placeholder", Name: name, Attrs: []bridge.Attr{
		{Name: "dtype", Value: dt}, {Name: "shape", Value: shape}}}))
}

// PlaceholderWithDefault is a tensor that a run may feed and that is the given
// one where it does not.
func (s *Scope) PlaceholderWithDefault(name string, value tf.Output, shape Shape) tf.Output {
	return first(s.Add(bridge.OpSpec{Type: "PlaceholderWithDefault", Name: name, Inputs: []tf.Input{value},
		Attrs: []bridge.Attr{{Name: "shape", Value: shape}}}))
}

// Group is an operation that runs the given ones and does nothing itself,
// Python's tf.group. An empty name stands for "NoOp".
func (s *Scope) Group(name string, all ...*tf.Operation) *tf.Operation {
	return s.WithControl(all...).Add(bridge.OpSpec{Type: "NoOp", Name: name})
}

// first is an operation's first output, the zero output for no operation.
func first(o *tf.Operation) tf.Output {
	if o == nil {
		return tf.Output{}
	}
	return o.Output(0)
}
