package ops

import (
	"fmt"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// ExistingVariable takes in a variable that the graph has already, such as one of an
// imported model: a handle, under the name that Python has for it. It is then a variable
// like those that [Scope.Variable] makes, for optimizers and collections, but for its
// first value: whoever restored it gave it one, and [Graph.Init] leaves it alone.
// Its Initializer sets zeros.
//
// Errors, before anything is added: a handle of another graph or of no VarHandleOp, a
// name that is taken, a shape that is not fully defined.
func (g *Graph) ExistingVariable(handle tf.Output, name string, options ...VariableOptions) (*Variable, error) {
	const op = "ExistingVariable"
	if g == nil {
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "the graph is nil")
	}
	if err := g.Err(); err != nil {
		return nil, err
	}
	if !bridge.Valid(handle) || bridge.GraphOf(handle.Op) != g.tf || handle.Op.Type() != "VarHandleOp" {
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "variable %q: wanted the output of a VarHandleOp of the graph", name)
	}
	if len(options) > 1 {
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "%d VariableOptions given, wanted at most one", len(options))
	}
	v := &Variable{scope: g.rootScope.WithoutControl(), name: name, trainable: true, handle: handle, existing: true, madeAt: "the graph that was taken in"}
	var err error
	if v.dtype, err = bridge.AttrType(handle.Op, "dtype"); err != nil {
		return nil, err
	}
	if v.shape, err = bridge.AttrShape(handle.Op, "shape"); err != nil {
		return nil, err
	}
	collections := []string{GlobalVariables}
	for _, o := range options {
		v.trainable = !o.NonTrainable
		if o.Collections != nil {
			collections = slices.Clone(o.Collections)
		}
		if o.DType != 0 && o.DType != v.dtype {
			return nil, bridge.Errorf(bridge.InvalidArgument, op, "variable %q is %s, not %s", name, bridge.DTypeName(v.dtype), bridge.DTypeName(o.DType))
		}
	}
	if v.trainable && !slices.Contains(collections, TrainableVariables) {
		collections = append(collections, TrainableVariables)
	}
	if !v.shape.FullyDefined() {
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "variable %q: shape %v is not fully defined", name, v.shape)
	}
	if err := checkPath(name); err != nil {
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "variable %q: %w", name, err)
	}
	g.mu.Lock()
	old, known := g.byName[name], g.byHandle[bridge.Key(handle)]
	if old == nil && known == nil {
		g.names.sync()
		// An optimizer that the model came with keeps its name: "Adam/iteration" makes the
		// next one Adam_1.
		for i, c := range name + "/" {
			if c == '/' {
				g.names.reserve(name[:i])
			}
		}
		g.byName[name] = v
	}
	g.mu.Unlock()
	switch {
	case old != nil:
		return nil, bridge.Errorf(bridge.AlreadyExists, op, "there is a variable %q already", name)
	case known != nil:
		return nil, bridge.Errorf(bridge.AlreadyExists, op, "the handle of %q is that of variable %q", name, known.name)
	}
	here := v.scope.with(func(c *Scope) { c.path = name })
	v.initial = Zeros()(v.scope.with(func(c *Scope) { c.path = name + "/Initializer" }), name, slices.Clone(v.shape), v.dtype)
	v.initializer = here.Add(bridge.OpSpec{Type: "AssignVariableOp", Name: "Assign", Inputs: []tf.Input{v.handle, v.initial}})
	v.value = v.Read(here.with(func(c *Scope) { c.path += "/Read" }))
	if err := g.Err(); err != nil {
		return nil, fmt.Errorf("variable %q: %w", name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.variables = append(g.variables, v)
	g.byHandle[bridge.Key(handle)] = v
	for _, key := range collections {
		g.collections[key] = append(g.collections[key], v)
	}
	return v, nil
}

// Existing reports whether the variable was taken in by [Graph.ExistingVariable].
func (v *Variable) Existing() bool { return v != nil && v.existing }
