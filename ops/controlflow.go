package ops

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Body builds one branch of [If] or [Case]: it adds nodes to s, which is a scope of a
// graph of the branch's own, and returns the branch's results.
//
// Tensors and variables of the graph around it can be used as they are by
// everything that adds nodes through s (the functions of ops and ops/raw): they
// become inputs of the operation. What tfgo and the binding add can take them by
// [Scope.Capture]. Variables can't be made in a body.
//
// Operations without a result, such as assignments, run whenever the branch does.
// As everywhere in a graph, an assignment and a read have no order but the one
// that WithControl gives them.
type Body func(s *Scope) []tf.Output

// If is the results of one of two branches: of then where pred, a bool scalar,
// holds, else of otherwise. Only that branch runs. Both give as many tensors, of the
// same dtypes; shapes may differ, and are then known as far as they agree. It is
// Python's tf.cond, and has a gradient.
//
// It is a node If, or StatelessIf where the branches have no effects.
func If(s *Scope, pred tf.Output, then, otherwise Body) []tf.Output {
	return branch(s, "If", pred, []Body{then, otherwise})
}

// Case is the results of the branch that index, an int32 scalar, numbers; of the
// last one where index is out of range. Otherwise it is as [If]: Python's
// tf.switch_case.
func Case(s *Scope, index tf.Output, branches ...Body) []tf.Output {
	return branch(s, "Case", index, branches)
}

func branch(s *Scope, op string, selector tf.Output, branches []Body) []tf.Output {
	if !s.ok() {
		return nil
	}
	results, err := buildBranches(s, op, selector, branches)
	if err != nil {
		s.fail(op, err)
		return nil
	}
	return results
}

func buildBranches(s *Scope, op string, selector tf.Output, branches []Body) ([]tf.Output, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	if len(branches) == 0 {
		return nil, errors.New("there are no branches")
	}
	want := map[string]tf.DataType{"If": tf.Bool, "Case": tf.Int32}[op]
	if shape := bridge.ShapeOf(selector); bridge.Valid(selector) && (selector.DataType() != want || shape.Rank() > 0) {
		// TensorFlow's own check of a vector aborts the process.
		return nil, fmt.Errorf("what selects the branch is %s %v, wanted a scalar of %s", bridge.DTypeName(selector.DataType()), shape, bridge.DTypeName(want))
	}
	names := []string{"true", "false"}
	if op == "Case" {
		names = nil
		for i := range branches {
			names = append(names, fmt.Sprintf("branch%d", i))
		}
	}
	in := s.NameScope(op)
	opened := make([]*bodyGraph, len(branches))
	for i, build := range branches {
		b := openGraph(in, names[i])
		if err := b.build(build); err != nil {
			return nil, fmt.Errorf("branch %s: %w", names[i], err)
		}
		opened[i] = b
		if have, want := types(b.results), types(opened[0].results); !slices.Equal(have, want) {
			return nil, fmt.Errorf("branch %s gives %s, branch %s %s; all have to give the same", names[i], dtypeNames(have), names[0], dtypeNames(want))
		}
	}
	captured := shareCaptures(opened)
	functions, err := addBodies(in, opened)
	if err != nil {
		return nil, err
	}
	shapes := make([]Shape, len(opened[0].results))
	for i := range shapes {
		shapes[i] = bridge.ShapeOf(opened[0].results[i])
		for _, b := range opened[1:] {
			shapes[i] = commonShape(shapes[i], bridge.ShapeOf(b.results[i]))
		}
	}
	if bridge.Valid(selector) && bridge.ShapeOf(selector).Rank() < 0 {
		selector = raw.EnsureShape(in, selector, Shape{})
	}
	options := []raw.Attr{raw.WithOutputShapes(shapes), raw.WithName(in.path + "/"), lowered}
	dts, effects := types(opened[0].results), slices.ContainsFunc(opened, (*bodyGraph).hasEffects)
	switch {
	case op == "If" && effects:
		return raw.If(s, selector, captured, dts, functions[0], functions[1], options...), s.Err()
	case op == "If":
		return raw.StatelessIf(s, selector, captured, dts, functions[0], functions[1], options...), s.Err()
	case effects:
		return raw.Case(s, selector, captured, dts, functions, options...), s.Err()
	}
	return raw.StatelessCase(s, selector, captured, dts, functions, options...), s.Err()
}

// alwaysTrue tells a condition that is a constant, and holds.
func alwaysTrue(holds tf.Output) (bool, error) {
	value, constant, err := bridge.ConstantValue(holds)
	if err != nil || !constant {
		return false, err
	}
	defer value.Close()
	is, err := bridge.Flat[bool](value)
	return err == nil && len(is) == 1 && is[0], err
}

// lowered asks TensorFlow to run a body in place rather than as a call, as Python
// does: its nodes then run in parallel with what is around.
var lowered = raw.Attr{Name: "_lower_using_switch_merge", Value: true}

// WhileOptions are the settings of a [While].
type WhileOptions struct {
	// MaximumIterations ends the loop after so many iterations; 0: no limit.
	MaximumIterations int
	// ParallelIterations is how many iterations TensorFlow may work on at a time;
	// 0: 10.
	ParallelIterations int
	// ShapeInvariants are what holds of the loop variables' shapes in every
	// iteration, for variables whose shape changes; nil: the shapes they start
	// with. Python's shape_invariants.
	ShapeInvariants []Shape
}

// While repeats body on the loop variables as long as condition, a bool scalar,
// holds of them, and is their last values. condition and body are given the loop
// variables as tensors of their own graph; for what else they can use see [Body].
// It is Python's tf.while_loop, and has a gradient, which keeps what it needs of
// each iteration in memory.
//
//	i, y := …
//	last := ops.While(s, func(s *ops.Scope, v []tf.Output) tf.Output {
//		return raw.Less(s, v[0], n)
//	}, func(s *ops.Scope, v []tf.Output) []tf.Output {
//		return []tf.Output{raw.AddV2(s, v[0], one), raw.MatMul(s, v[1], w.Value())}
//	}, []tf.Output{i, y})
//
// It is a node While, or StatelessWhile where nothing in it has effects.
func While(s *Scope, condition func(s *Scope, vars []tf.Output) tf.Output, body func(s *Scope, vars []tf.Output) []tf.Output, vars []tf.Output, options ...WhileOptions) []tf.Output {
	if !s.ok() {
		return nil
	}
	results, err := buildWhile(s, condition, body, vars, options)
	if err != nil {
		s.fail("While", err)
		return nil
	}
	return results
}

func buildWhile(s *Scope, condition func(*Scope, []tf.Output) tf.Output, body func(*Scope, []tf.Output) []tf.Output, vars []tf.Output, options []WhileOptions) ([]tf.Output, error) {
	var o WhileOptions
	switch {
	case len(options) > 1:
		return nil, fmt.Errorf("%d WhileOptions given, wanted at most one", len(options))
	case len(options) == 1:
		o = options[0]
	}
	switch {
	case s.Err() != nil:
		return nil, s.Err()
	case condition == nil || body == nil:
		return nil, errors.New("the condition or the body is nil")
	case len(vars) == 0:
		return nil, errors.New("there are no loop variables")
	case o.ShapeInvariants != nil && len(o.ShapeInvariants) != len(vars):
		return nil, fmt.Errorf("%d ShapeInvariants for %d loop variables", len(o.ShapeInvariants), len(vars))
	case o.MaximumIterations < 0 || o.ParallelIterations < 0:
		return nil, fmt.Errorf("MaximumIterations is %d and ParallelIterations %d; they can't be negative", o.MaximumIterations, o.ParallelIterations)
	}
	vars = slices.Clone(vars)
	shapes := make([]Shape, len(vars))
	for i, v := range vars {
		if !bridge.Valid(v) {
			return nil, fmt.Errorf("loop variable %d of %d is the zero tf.Output", i, len(vars))
		}
		vars[i] = s.Capture(v)
		shapes[i] = bridge.ShapeOf(v)
		if o.ShapeInvariants != nil {
			if have := shapes[i]; !have.CompatibleWith(o.ShapeInvariants[i]) {
				return nil, fmt.Errorf("loop variable %d starts with shape %v, which its invariant %v does not hold of", i, have, o.ShapeInvariants[i])
			}
			shapes[i] = o.ShapeInvariants[i]
		}
	}
	in := s.NameScope("While")
	test, loop := openGraph(in, "cond"), openGraph(in, "body")
	if err := test.build(func(in *Scope) []tf.Output {
		holds := condition(in, test.arguments(vars, shapes))
		if o.MaximumIterations > 0 {
			done := test.argument(tf.Int32, Shape{})
			holds = raw.LogicalAnd(in, holds, raw.Less(in, done, Number(in, tf.Int32, float64(o.MaximumIterations))))
		}
		return []tf.Output{holds}
	}); err != nil {
		return nil, fmt.Errorf("condition: %w", err)
	}
	if holds := test.results[0]; holds.DataType() != tf.Bool || bridge.ShapeOf(holds).Rank() > 0 {
		return nil, fmt.Errorf("the condition is %s %v, wanted a bool scalar", bridge.DTypeName(holds.DataType()), bridge.ShapeOf(holds))
	}
	if err := loop.build(func(in *Scope) []tf.Output {
		results := body(in, loop.arguments(vars, shapes))
		if o.MaximumIterations > 0 {
			done := loop.argument(tf.Int32, Shape{})
			results = append(slices.Clone(results), raw.AddV2(in, done, Number(in, tf.Int32, 1)))
		}
		return results
	}); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if o.MaximumIterations > 0 {
		vars, shapes = append(vars, Number(in.WithoutControl(), tf.Int32, 0)), append(shapes, Shape{})
	}
	if have, want := types(loop.results), types(vars); !slices.Equal(have, want) {
		return nil, fmt.Errorf("the body takes %s and gives %s; wanted the same", dtypeNames(want), dtypeNames(have))
	}
	for i, r := range loop.results {
		if have := bridge.ShapeOf(r); r.DataType() != bridge.Variant && !commonShape(have, shapes[i]).Equal(shapes[i]) {
			return nil, fmt.Errorf("loop variable %d has shape %v, and %v after an iteration; WhileOptions.ShapeInvariants may tell what stays the same", i, shapes[i], have)
		}
	}
	if endless, err := alwaysTrue(test.results[0]); err != nil {
		return nil, err
	} else if endless {
		// TensorFlow takes such a loop's exits away: no deadline and no Close ends it.
		return nil, errors.New("the condition is constantly true; give MaximumIterations, or a condition that depends on something")
	}
	opened := []*bodyGraph{test, loop}
	captured := shareCaptures(opened)
	loop.results = append(loop.results, loop.args[len(vars):]...) // what is captured stays the same
	for _, t := range captured {
		shape := bridge.ShapeOf(t)
		if dt := t.DataType(); dt == bridge.Resource || dt == bridge.Variant {
			shape = Shape{}
		}
		shapes = append(shapes, shape)
	}
	functions, err := addBodies(in, opened)
	if err != nil {
		return nil, err
	}
	parallel := int64(10)
	if o.ParallelIterations > 0 {
		parallel = int64(o.ParallelIterations)
	}
	attrs := []raw.Attr{raw.WithOutputShapes(shapes), raw.WithParallelIterations(parallel), raw.WithName(in.path + "/"), lowered}
	if o.MaximumIterations > 0 {
		attrs = append(attrs, raw.Attr{Name: gradients.MaximumIterations, Value: o.MaximumIterations})
	}
	add := raw.StatelessWhile
	if test.hasEffects() || loop.hasEffects() {
		add = raw.While
	}
	results := add(s, slices.Concat(vars, captured), functions[0], functions[1], attrs...)
	if err := s.Err(); err != nil {
		return nil, err
	}
	if o.MaximumIterations > 0 {
		return results[:len(vars)-1], nil
	}
	return results[:len(vars)], nil
}

// Capture is a tensor of the graph around a body ([If], [While]) as a tensor of the
// body's own graph, for tfgo and the binding; all that adds nodes through s does it
// by itself. A tensor of s's graph is returned as it is.
func (s *Scope) Capture(t tf.Output) tf.Output {
	if !s.ok() {
		return t
	}
	return s.graph.capture(t)
}

// bodyGraph is the graph of a function under construction.
type bodyGraph struct {
	*Graph
	scope   *Scope      // for the body
	around  *Scope      // where the operation stands
	args    []tf.Output // the loop variables, then what was captured
	results []tf.Output

	mu       sync.Mutex
	captured []tf.Output // in the graph around
	place    map[bridge.OutputKey]tf.Output
}

func openGraph(around *Scope, name string) *bodyGraph {
	b := &bodyGraph{Graph: NewGraph(GraphOptions{Seed: around.graph.seed}), around: around, place: map[bridge.OutputKey]tf.Output{}}
	b.Graph.body, b.Graph.marks = b, around.graph.marks
	b.scope = b.Graph.Root().NameScope(join(around.path, name)).WithDevice(around.device).with(func(c *Scope) { c.gradients = around.gradients })
	return b
}

func (b *bodyGraph) build(f Body) error {
	if f == nil {
		return errors.New("its function is nil")
	}
	err := b.Graph.Build(func() error {
		for i, t := range f(b.scope) {
			if !bridge.Valid(t) {
				return errors.Join(b.Graph.Err(), fmt.Errorf("result %d is the zero tf.Output", i))
			}
			b.results = append(b.results, b.capture(t))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, t := range b.results {
		if bridge.GraphOf(t.Op) != b.tf {
			return fmt.Errorf("result %d, %s:%d, is in another graph", i, t.Op.Name(), t.Index)
		}
	}
	return nil
}

// argument is a new input, for a tensor of that dtype and shape.
func (b *bodyGraph) argument(dt tf.DataType, shape Shape) tf.Output {
	t := b.Root().Placeholder("arg", bridge.BaseDType(dt), shape)
	b.args = append(b.args, t)
	return t
}

func (b *bodyGraph) arguments(like []tf.Output, shapes []Shape) []tf.Output {
	args := make([]tf.Output, len(like))
	for i, t := range like {
		args[i] = b.argument(t.DataType(), shapes[i])
	}
	return args
}

// input is what stands for t, of the graph around: the handle of a variable looks
// like one, so that its reads have shapes.
func (b *bodyGraph) input(t tf.Output) tf.Output {
	if t.Op.Type() != "VarHandleOp" {
		return b.Root().Placeholder("captured", bridge.BaseDType(t.DataType()), bridge.ShapeOf(t))
	}
	dt, err := bridge.AttrType(t.Op, "dtype")
	shape, err2 := bridge.AttrShape(t.Op, "shape")
	if err := errors.Join(err, err2); err != nil {
		b.Root().fail("Capture", err)
		return tf.Output{}
	}
	return first(b.Root().Add(bridge.OpSpec{Type: "VarHandleOp", Name: "captured", Attrs: []bridge.Attr{
		{Name: "dtype", Value: dt}, {Name: "shape", Value: shape}, {Name: "shared_name", Value: t.Op.Name()}, {Name: "container", Value: ""}}}))
}

// capture is t as a tensor of g, where g is a body and t is of a graph around it.
func (g *Graph) capture(t tf.Output) tf.Output {
	b := g.body
	if b == nil || !bridge.Valid(t) || bridge.GraphOf(t.Op) == g.tf {
		return t
	}
	outside := b.around.graph.capture(t)
	if bridge.GraphOf(outside.Op) != b.around.graph.tf {
		return t // of no graph around: AddOperation says so
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := bridge.Key(outside)
	if inside, ok := b.place[key]; ok {
		return inside
	}
	inside := b.input(outside)
	if inside.Op != nil {
		b.place[key] = inside
		b.captured = append(b.captured, outside)
	}
	return inside
}

// captureInputs is inputs with what they have of the graphs around a body captured.
func (g *Graph) captureInputs(inputs []tf.Input) []tf.Input {
	if g.body == nil {
		return inputs
	}
	inputs = slices.Clone(inputs)
	for i, in := range inputs {
		switch in := in.(type) {
		case tf.Output:
			inputs[i] = g.capture(in)
		case tf.OutputList:
			list := slices.Clone(in)
			for k, t := range list {
				list[k] = g.capture(t)
			}
			inputs[i] = list
		}
	}
	return inputs
}

// outermost is the graph around all bodies.
func (g *Graph) outermost() *Graph {
	for g.body != nil {
		g = g.body.around.graph
	}
	return g
}

// isInside says whether g is a body, at some depth, of an operation of another graph.
func (g *Graph) isInside(other *Graph) bool {
	for g.body != nil {
		if g = g.body.around.graph; g == other {
			return true
		}
	}
	return false
}

// shareCaptures makes all bodies take what one of them captured, in one order, and
// returns it.
func shareCaptures(bodies []*bodyGraph) []tf.Output {
	var all []tf.Output
	for _, b := range bodies {
		for _, t := range b.captured {
			if !slices.ContainsFunc(all, func(other tf.Output) bool { return bridge.SameOutput(other, t) }) {
				all = append(all, t)
			}
		}
	}
	for _, b := range bodies {
		for _, t := range all {
			inside, ok := b.place[bridge.Key(t)]
			if !ok {
				inside = b.input(t)
			}
			b.args = append(b.args, inside)
		}
	}
	return all
}

// effects are the operations of a body that run whenever it does.
func (b *bodyGraph) effects() []*tf.Operation {
	var found []*tf.Operation
	for op := range bridge.Operations(b.tf) {
		if def, known := bridge.OpDef(op.Type()); known && def.IsStateful && op.NumOutputs() == 0 {
			found = append(found, op)
		}
	}
	return found
}

func (b *bodyGraph) hasEffects() bool {
	isArg := map[bridge.OutputKey]bool{}
	for _, t := range b.args {
		isArg[bridge.OpKey(t.Op)] = true
	}
	for op := range bridge.Operations(b.tf) {
		def, known := bridge.OpDef(op.Type())
		if (!known || def.IsStateful) && !isArg[bridge.OpKey(op)] {
			return true
		}
	}
	return false
}

// addBodies puts the bodies as functions into the library of the graph around.
func addBodies(in *Scope, bodies []*bodyGraph) ([]bridge.Func, error) {
	functions := make([]bridge.Func, len(bodies))
	for i, b := range bodies {
		if err := b.Graph.Err(); err != nil {
			return nil, err
		}
		name := strings.ReplaceAll(b.scope.path, "/", "_")
		def, err := bridge.ToFunction(b.tf, bridge.FunctionSpec{Name: name, Inputs: b.args, Outputs: b.results, Control: b.effects()})
		if err != nil {
			return nil, err
		}
		called, err := bridge.Functions(b.tf)
		if err != nil {
			return nil, err
		}
		called = slices.DeleteFunc(called, func(d *function.FunctionDef) bool { return d.Signature.Name == name })
		renamed, err := bridge.AddFunctions(in.graph.tf, append(called, def)...)
		if err != nil {
			return nil, err
		}
		if fresh, ok := renamed[name]; ok {
			name = fresh
		}
		functions[i] = bridge.Func{Name: name}
	}
	return functions, nil
}

// commonShape is what two shapes have in common.
func commonShape(a, b Shape) Shape {
	if a == nil || b == nil || len(a) != len(b) {
		return nil
	}
	common := a.Clone()
	for i := range common {
		if common[i] != b[i] {
			common[i] = -1
		}
	}
	return common
}

func types(tensors []tf.Output) []tf.DataType {
	dts := make([]tf.DataType, len(tensors))
	for i, t := range tensors {
		dts[i] = bridge.BaseDType(t.DataType())
	}
	return dts
}

func dtypeNames(dts []tf.DataType) string {
	names := make([]string, len(dts))
	for i, dt := range dts {
		names[i] = bridge.DTypeName(dt)
	}
	return "[" + strings.Join(names, " ") + "]"
}
