package savedmodels

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	protos "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"

	"github.com/sluice-ml/sluice/bridge"
)

// Tensors are what a signature is given or gives, by name.
type Tensors map[string]*bridge.Tensor

// Close closes them all. The error is always nil; it is there for io.Closer.
func (t Tensors) Close() error {
	for _, tensor := range t {
		tensor.Close()
	}
	return nil
}

// Model is a loaded SavedModel. It is safe from many goroutines.
type Model struct {
	dir        string
	meta       *metaGraph
	graph      *tf.Graph
	session    *bridge.Session
	signatures map[string]*Signature
	loaded     int // nodes of variables, before anything was added

	mu      sync.Mutex
	idle    sync.Cond // when running falls to 0
	running int
	closed  bool

	preparing sync.Mutex // held while a signature is prepared, which others need not wait for
	steps     struct {
		sync.RWMutex
		known map[string]*preparedSignature
	}
}

// Dir is the folder that the model was loaded from.
func (m *Model) Dir() string {
	if m == nil {
		return ""
	}
	return m.dir
}

// Tags are those of the MetaGraph, sorted.
func (m *Model) Tags() []string {
	if m == nil || m.meta == nil {
		return nil
	}
	return m.meta.tags()
}

// Graph is the model's graph, for those who add to it.
func (m *Model) Graph() *tf.Graph {
	if m == nil {
		return nil
	}
	return m.graph
}

// Session is what the model runs in; nil within Options.Build. Its Close is the
// model's business.
func (m *Model) Session() *bridge.Session {
	if m == nil {
		return nil
	}
	return m.session
}

// MetaGraph is the MetaGraphDef that the model was saved with, without its graph.
// It may be read, not written.
func (m *Model) MetaGraph() *protos.MetaGraphDef {
	if m == nil || m.meta == nil {
		return nil
	}
	return m.meta.MetaGraphDef
}

// Signatures are the names of the model's signatures, sorted.
func (m *Model) Signatures() []string {
	if m == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(m.signatures))
}

// Signature is the signature of a name. "" is serving_default, or the only one.
func (m *Model) Signature(name string) (*Signature, error) {
	if m == nil {
		return nil, bridge.Errorf(bridge.InvalidArgument, "Signature", "the model is nil")
	}
	if s := m.signatures[name]; s != nil {
		return s, nil
	}
	if name == "" {
		if s := m.signatures["serving_default"]; s != nil {
			return s, nil
		}
		if len(m.signatures) == 1 {
			for _, s := range m.signatures {
				return s, nil
			}
		}
	}
	have := "it has none"
	if len(m.signatures) > 0 {
		have = "it has " + strings.Join(m.Signatures(), ", ")
	}
	if name == "" && len(m.signatures) > 0 {
		return nil, bridge.Errorf(bridge.NotFound, m.dir, "no signature is named, and the model has no serving_default; %s", have)
	}
	return nil, bridge.Errorf(bridge.NotFound, m.dir, "there is no signature %q; %s", name, have)
}

// preparedSignature is a signature resolved in the graph: feeds in the order of
// its inputs, and for each output the fetch or the input that gives it.
type preparedSignature struct {
	*Signature
	step     *bridge.Step
	defaults Tensors
	fetches  []int // by output: which fetch, or -1-i for input i itself
	spare    sync.Pool
}

// prepare resolves a signature, once.
func (m *Model) prepare(name string) (*preparedSignature, error) {
	s, err := m.Signature(name)
	if err != nil {
		return nil, err
	}
	if p := m.prepared(s.Name); p != nil {
		return p, nil
	}
	m.preparing.Lock()
	defer m.preparing.Unlock()
	if p := m.prepared(s.Name); p != nil {
		return p, nil
	}
	p := &preparedSignature{Signature: s}
	var call bridge.Call
	inputs := map[bridge.OutputKey]int{}
	for i, port := range s.Inputs {
		in, err := m.Tensor(port.Tensor)
		if err != nil {
			return nil, err
		}
		if other, twice := inputs[bridge.Key(in)]; twice {
			return nil, bridge.Errorf(bridge.InvalidArgument, m.dir, "signature %q: the inputs %q and %q are one tensor, %s", s.Name, s.Inputs[other].Name, port.Name, port.Tensor)
		}
		inputs[bridge.Key(in)] = i
		call.Feeds = append(call.Feeds, in)
	}
	fetched := map[bridge.OutputKey]int{}
	for _, port := range s.Outputs {
		out, err := m.Tensor(port.Tensor)
		if err != nil {
			return nil, err
		}
		if i, fed := inputs[bridge.Key(out)]; fed {
			p.fetches = append(p.fetches, -1-i)
			continue
		}
		i, known := fetched[bridge.Key(out)]
		if !known {
			i = len(call.Fetches)
			fetched[bridge.Key(out)] = i
			call.Fetches = append(call.Fetches, out)
		}
		p.fetches = append(p.fetches, i)
	}
	if len(call.Fetches) > 0 {
		if p.step, err = m.session.Prepare(call); err != nil {
			return nil, err
		}
	}
	if p.defaults, err = defaultsOf(m.meta.GetSignatureDef()[s.Name]); err != nil {
		return nil, err
	}
	m.steps.Lock()
	defer m.steps.Unlock()
	m.steps.known[s.Name] = p
	return p, nil
}

func (m *Model) prepared(name string) *preparedSignature {
	m.steps.RLock()
	defer m.steps.RUnlock()
	return m.steps.known[name]
}

// arrange checks what a run is given and puts it in order: all that is wrong is in
// one error.
func (p *preparedSignature) arrange(in Tensors) ([]*bridge.Tensor, error) {
	feeds := make([]*bridge.Tensor, len(p.Inputs))
	var problems []string
	var cause error
	given := 0
	for i, port := range p.Inputs {
		t, named := in[port.Name]
		if named {
			given++
		} else if t = p.defaults[port.Name]; t == nil {
			problems = append(problems, fmt.Sprintf("input %q is missing", port.Name))
			continue
		}
		shape := t.Shape()
		switch {
		case t == nil:
			problems = append(problems, fmt.Sprintf("input %q is nil", port.Name))
		case shape == nil:
			problems, cause = append(problems, fmt.Sprintf("input %q is a closed tensor", port.Name)), bridge.ErrClosed
		case t.DType() != bridge.BaseDType(port.DType):
			problems = append(problems, fmt.Sprintf("input %q: wanted %s, got %s", port.Name, bridge.DTypeName(port.DType), bridge.DTypeName(t.DType())))
		case port.Shape != nil && len(port.Shape) != len(shape):
			problems = append(problems, fmt.Sprintf("input %q: wanted %d dimensions, %s, got %d, %s", port.Name, len(port.Shape), port.Shape, len(shape), shape))
		case !port.Shape.CompatibleWith(shape):
			problems = append(problems, fmt.Sprintf("input %q: wanted shape %s, got %s", port.Name, port.Shape, shape))
		}
		feeds[i] = t
	}
	if given < len(in) {
		for _, name := range slices.Sorted(maps.Keys(in)) {
			if !slices.ContainsFunc(p.Inputs, func(port Port) bool { return port.Name == name }) {
				problems = append(problems, fmt.Sprintf("there is no input %q", name))
			}
		}
	}
	if problems == nil {
		return feeds, nil
	}
	return nil, &bridge.Error{Code: bridge.InvalidArgument, Op: "signature " + p.Name,
		Message: strings.Join(problems, "; ") + "; it takes " + p.inputList(), Err: cause}
}

func (p *preparedSignature) inputList() string {
	if len(p.Inputs) == 0 {
		return "nothing"
	}
	all := make([]string, len(p.Inputs))
	for i, port := range p.Inputs {
		all[i] = port.String()
	}
	return strings.Join(all, ", ")
}

// Run computes a signature. in has a tensor for each of its inputs, which stay
// the caller's; the caller closes what comes back. "" is serving_default, or the
// only signature.
//
// Names, data types and shapes are checked before anything runs; one error tells
// all that is wrong and what there is. For what the context does see
// bridge.Step.Run.
func (m *Model) Run(ctx context.Context, signature string, in Tensors) (Tensors, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.leave()
	return m.call(ctx, signature, in)
}

// call is Run of a model that has been entered.
func (m *Model) call(ctx context.Context, signature string, in Tensors) (Tensors, error) {
	p, err := m.prepare(signature)
	if err != nil {
		return nil, err
	}
	feeds, err := p.arrange(in)
	if err != nil {
		return nil, err
	}
	return p.run(ctx, feeds)
}

func (p *preparedSignature) run(ctx context.Context, feeds []*bridge.Tensor) (_ Tensors, err error) {
	var out *bridge.Outputs
	if p.step != nil {
		if out, _ = p.spare.Get().(*bridge.Outputs); out == nil {
			out = p.step.NewOutputs()
		}
		defer p.spare.Put(out)
		if err := p.step.Run(ctx, feeds, out); err != nil {
			return nil, err
		}
	}
	results := make(Tensors, len(p.Outputs))
	defer func() {
		if err != nil {
			results.Close()
		}
	}()
	taken := map[int]*bridge.Tensor{}
	for i, port := range p.Outputs {
		fetch := p.fetches[i]
		from := taken[fetch]
		switch {
		case from == nil && fetch >= 0:
			taken[fetch] = out.Take(fetch)
			results[port.Name] = taken[fetch]
			continue
		case from == nil: // an input that is handed on
			from = feeds[-1-fetch]
		}
		copied, err := from.Clone()
		if err != nil {
			return nil, err
		}
		results[port.Name] = copied
	}
	return results, nil
}

// ErrWarmup marks the signatures that a warm-up could not run.
var ErrWarmup = errors.New("could not be warmed up")

// Warmup runs the signatures, all when none is named, once each on zeros of their
// shapes, dimensions of unknown size taken as 1, so that the first request is as
// fast as the others. Signatures that update variables, such as a training step,
// are left out unless they are named.
//
// A model may well refuse zeros, or an empty string for a picture: the error
// lists such signatures and matches ErrWarmup, and the model is as good as
// before.
func (m *Model) Warmup(ctx context.Context, signatures ...string) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.leave()
	all := len(signatures) == 0
	if all {
		signatures = m.Signatures()
	}
	var failed []error
	for _, name := range signatures {
		p, err := m.prepare(name)
		if err != nil {
			return err
		}
		if all && p.step.Updates() {
			continue
		}
		if err := p.warm(ctx); err != nil {
			if ctx.Err() != nil {
				return err
			}
			failed = append(failed, fmt.Errorf("signature %q %w: %w", p.Name, ErrWarmup, err))
		}
	}
	return errors.Join(failed...)
}

func (p *preparedSignature) warm(ctx context.Context) error {
	in := Tensors{}
	defer in.Close()
	for _, port := range p.Inputs {
		if p.defaults[port.Name] != nil {
			continue
		}
		shape := port.Shape.Clone()
		for i, d := range shape {
			if d < 0 {
				shape[i] = 1
			}
		}
		if shape == nil {
			shape = bridge.Shape{}
		}
		zeros, err := bridge.NewTensor(bridge.BaseDType(port.DType), shape)
		if err != nil {
			return err
		}
		in[port.Name] = zeros
	}
	feeds, err := p.arrange(in)
	if err != nil {
		return err
	}
	out, err := p.run(ctx, feeds)
	if err != nil {
		return err
	}
	return out.Close()
}

// enter counts a call, unless the model is closed.
func (m *Model) enter() error {
	if m == nil {
		return bridge.Errorf(bridge.InvalidArgument, "Run", "the model is nil")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return &bridge.Error{Code: bridge.FailedPrecondition, Op: m.dir, Message: "the model was used after Close", Err: bridge.ErrClosed}
	}
	m.running++
	return nil
}

func (m *Model) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running--; m.running == 0 {
		m.idle.Broadcast()
	}
}

// Busy is how many calls are in progress.
func (m *Model) Busy() int {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

// Close waits for the calls in progress, and frees the model and its variables.
// Calls that come later give an error that matches bridge.ErrClosed. It may be
// called again.
func (m *Model) Close() error { return m.Shutdown(context.Background()) }

// Shutdown is Close, but does not wait longer than the context allows: what is
// still running then is stopped, and its error matches bridge.ErrClosed.
func (m *Model) Shutdown(ctx context.Context) error {
	if m == nil {
		return nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	stop := context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.idle.Broadcast()
	})
	defer stop()
	m.mu.Lock()
	m.closed = true
	for m.running > 0 && ctx.Err() == nil {
		m.idle.Wait()
	}
	m.mu.Unlock()
	err := m.session.Close()
	m.steps.Lock()
	defer m.steps.Unlock()
	for _, p := range m.steps.known {
		p.defaults.Close()
	}
	clear(m.steps.known)
	return err
}
