package gradients

import (
	"fmt"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Loops. The gradient of a While is a While that goes through the iterations from
// the last to the first. What it needs of the values within an iteration, the
// forward loop pushes onto lists, which are more loop variables of it; the backward
// loop pops them. As many iterations as the forward loop made are counted by those
// lists or, where nothing is needed, by a loop variable more.

func init() {
	for _, name := range []string{"While", "StatelessWhile"} {
		registerFlow(name, whileGrad, openWhile)
	}
}

func openWhile(w *walk, n *node) ([]MissingOp, error) {
	f, err := bridge.AttrFunc(n.op, "body")
	if err != nil {
		return nil, err
	}
	condition, err := bridge.AttrFunc(n.op, "cond")
	if err != nil {
		return nil, err
	}
	b, args, err := openLoop(n, f)
	if err != nil {
		return nil, err
	}
	if len(b.Results) != len(b.Args) {
		return nil, fmt.Errorf("its body %s takes %d loop variables and returns %d", f.Name, len(b.Args), len(b.Results))
	}
	test, err := openBody(n.op, condition, args)
	if err != nil {
		return nil, err
	}
	n.flow.bodies = []*bridge.Body{b, test}

	// A loop variable has a gradient when a wanted input reaches it and a result
	// that a gradient arrives at depends on it, in any number of iterations.
	isResult := differentiableResults(b)
	all := make([]bool, len(b.Args))
	for i := range all {
		all[i] = true
	}
	results := where(all, isResult)
	reached := slices.Clone(n.wanted)
	for changed := true; changed; {
		changed = false
		for k, is := range w.reaches(b, results, where(reached, func(int) bool { return true })) {
			if i := results[k]; is && !reached[i] {
				reached[i], changed = true, true
			}
		}
	}
	live := make([]bool, len(b.Args))
	copy(live, n.live)
	from := where(reached, func(int) bool { return true })
	for changed := true; changed; {
		changed = false
		for k, is := range w.depends(b, where(live, isResult), from) {
			if i := from[k]; is && !live[i] {
				live[i], changed = true, true
			}
		}
	}
	n.flow.carried = where(live, func(i int) bool {
		return reached[i] && (isResult(i) || b.Args[i].DataType() == bridge.Resource)
	})
	return missingIn(w.inside(b, slices.DeleteFunc(slices.Clone(n.flow.carried), func(i int) bool { return !isResult(i) }), n.flow.carried)), nil
}

// openLoop opens the body with what is known of the loop variables in every
// iteration: their declared shapes, or those that the body keeps.
func openLoop(n *node, f bridge.Func) (*bridge.Body, []bridge.BodyArg, error) {
	args := bodyArgs(n.tensor)
	if declared, err := bridge.AttrShapes(n.op, "output_shapes"); err == nil && len(declared) == len(args) {
		for i := range args {
			if args[i].Variable == 0 {
				args[i].Shape = declared[i]
			}
		}
	}
	for {
		b, err := openBody(n.op, f, args)
		if err != nil || len(b.Results) != len(args) {
			return b, args, err
		}
		kept := true
		for i := range args {
			if args[i].Variable != 0 {
				continue
			}
			if common := weaker(args[i].Shape, bridge.ShapeOf(b.Results[i])); !common.Equal(args[i].Shape) && b.Results[i].DataType() != bridge.Variant {
				args[i].Shape, kept = common, false
			}
		}
		if kept {
			return b, args, nil
		}
	}
}

// source follows a tensor through Identity.
func source(t tf.Output) tf.Output {
	for t.Op != nil && t.Op.Type() == "Identity" {
		t = bridge.Input(t.Op, 0)
	}
	return t
}

func whileGrad(c *Context) []Gradient {
	b, test := c.node.flow.bodies[0], c.node.flow.bodies[1]
	xs := c.node.flow.carried
	ys := slices.DeleteFunc(slices.Clone(xs), func(i int) bool { return b.Results[i].DataType() == bridge.Resource })
	d, err := c.walk.derive(b, ys, xs)
	if err != nil {
		c.Fail(err)
		return nil
	}

	// The gradient loop's variables: how many iterations are left, the gradients,
	// the lists, and what stays the same.
	var (
		arguments, results, inputs []tf.Output // of the backward body; of the backward loop
		shapes                     []bridge.Shape
		grads                      []int // the forward loop's variables that the gradients are of
	)
	variable := func(arg, result, input tf.Output, shape bridge.Shape) {
		arguments, results = append(arguments, arg), append(results, result)
		inputs, shapes = append(inputs, input), append(shapes, shape)
	}
	left := d.input("left", tf.Int32, bridge.Shape{})
	one := d.Int(tf.Int32, 1)
	variable(left, raw.Sub(d, left, one), none, bridge.Shape{})
	for i, x := range xs {
		g, arg, shape := d.grads[i], b.Args[x], bridge.ShapeOf(b.Args[x])
		switch {
		case arg.DataType() != bridge.Resource:
			t := Densify(d, g)
			if g.IsNone() {
				t = d.ZerosLike(arg)
			}
			if arg.DataType() == bridge.Variant {
				shape = bridge.Shape{}
			}
			grads = append(grads, x)
			variable(d.given[slices.Index(ys, x)], t, c.Grad(x), shape)
		case g.IsNone():
			continue
		default:
			part := Densify(d, g)
			sum := d.input("sum", g.DType(), bridge.ShapeOf(part))
			grads = append(grads, x)
			start := raw.Fill(c, c.VariableShape(c.Input(x), tf.Int32), c.Number(g.DType(), 0))
			variable(sum, d.Plus(sum, part), start, bridge.ShapeOf(part))
		}
	}
	for _, t := range arguments { // all are inputs of the backward function
		if !slices.ContainsFunc(d.given, func(other tf.Output) bool { return bridge.SameOutput(other, t) }) {
			d.given = append(d.given, t)
		}
	}
	invariant := func(i int) bool { return bridge.SameOutput(source(b.Results[i]), b.Args[i]) }
	d.collect(results, invariant)
	if err := d.Err(); err != nil {
		c.Fail(err)
		return nil
	}

	lists, count := c.accumulate(d, test, invariant)
	if c.Err() != nil {
		return nil
	}
	if count.Op == nil {
		count = raw.TensorListLength(c, lists[bridge.Key(d.captured[firstList(d, lists)])])
	}
	inputs[0] = count
	places := d.uses(results)
	for _, t := range d.captured {
		list, isList := lists[bridge.Key(t)]
		if !isList {
			i := d.args[bridge.Key(t)]
			variable(t, t, c.Input(i), bridge.ShapeOf(t))
			continue
		}
		arg := d.input("list", bridge.Variant, bridge.Shape{})
		rest, item := raw.TensorListPopBack(d, arg, d.listedShape(d.Static(t), t.DataType()), bridge.BaseDType(t.DataType()))
		if err := d.Err(); err != nil {
			c.Fail(err)
			return nil
		}
		if err := places.replace(t, item, results); err != nil {
			c.Fail(err)
			return nil
		}
		for _, made := range []tf.Output{rest, bridge.Input(rest.Op, 1)} {
			if !d.took[bridge.OpKey(made.Op)] {
				d.took[bridge.OpKey(made.Op)] = true
				d.backward = append(d.backward, made.Op)
			}
		}
		variable(arg, rest, list, bridge.Shape{})
	}

	greater := condition(arguments)
	if err := greater.Err(); err != nil {
		c.Fail(err)
		return nil
	}
	names := c.addFunctions(
		made{from: b.Graph, keep: b.Def, spec: bridge.FunctionSpec{
			Name: derivedName(b.Def.Signature.Name, "_grad"), Ops: d.ops(), Inputs: arguments, Outputs: results}},
		made{from: greater.TF(), keep: test.Def, spec: bridge.FunctionSpec{
			Name: derivedName(test.Def.Signature.Name, "_grad"), Inputs: greater.Inputs, Outputs: greater.Outputs}})
	if names == nil {
		return nil
	}
	loop := raw.StatelessWhile
	if stateful(d.backward) {
		loop = raw.While
	}
	outs := loop(c, inputs, bridge.Func{Name: names[1]}, bridge.Func{Name: names[0]},
		append(c.carry("parallel_iterations"), raw.WithOutputShapes(shapes))...)
	if c.Err() != nil {
		return nil
	}

	result := make([]Gradient, len(c.Inputs))
	for k, x := range grads {
		result[x].Dense = outs[1+k]
	}
	// As in Python, what is connected to the loop has a gradient.
	for i := range result {
		if result[i].IsNone() && c.Wants(i) && c.Input(i).DataType() != bridge.Resource {
			result[i].Dense = c.ZerosLike(c.Input(i))
		}
	}
	return result
}

// condition is the graph of the backward loop's condition: some iterations are left.
func condition(like []tf.Output) *Context {
	scope := &bodyScope{graph: tf.NewGraph(), state: &bodyState{names: map[string]int{}}}
	c := contextFor(scope)
	for _, t := range like {
		c.Inputs = append(c.Inputs, raw.Placeholder(c, bridge.BaseDType(t.DataType()), raw.WithName("arg")))
	}
	c.Outputs = []tf.Output{raw.Greater(c, c.Inputs[0], c.Int(tf.Int32, 0))}
	return c
}

// listedShape is what is known of the shape of tensors, as lists are told: a vector,
// or -1 for an unknown rank.
func (c *Context) listedShape(s bridge.Shape, dt tf.DataType) tf.Output {
	if dt == bridge.Variant {
		s = bridge.Shape{}
	}
	if s == nil {
		return c.Int(tf.Int32, -1)
	}
	return c.Ints(tf.Int32, s...)
}

// uses are the places at which the backward function takes a tensor: inputs of its
// operations, and its results.
type uses struct {
	inputs  map[bridge.OutputKey][]use
	results map[bridge.OutputKey][]int
}

type use struct {
	op    *tf.Operation
	input int
}

func (d *derivative) uses(results []tf.Output) uses {
	u := uses{inputs: map[bridge.OutputKey][]use{}, results: map[bridge.OutputKey][]int{}}
	for _, op := range d.backward {
		for i, in := range bridge.Inputs(op) {
			u.inputs[bridge.Key(in)] = append(u.inputs[bridge.Key(in)], use{op, i})
		}
	}
	for i, t := range results {
		u.results[bridge.Key(t)] = append(u.results[bridge.Key(t)], i)
	}
	return u
}

// replace makes the backward function take another tensor than one of the forward
// function.
func (u uses) replace(t, by tf.Output, results []tf.Output) error {
	for _, use := range u.inputs[bridge.Key(t)] {
		if err := bridge.RewireInput(use.op, use.input, by); err != nil {
			return err
		}
	}
	for _, i := range u.results[bridge.Key(t)] {
		results[i] = by
	}
	return nil
}

func firstList(d *derivative, lists map[bridge.OutputKey]tf.Output) int {
	return slices.IndexFunc(d.captured, func(t tf.Output) bool { _, ok := lists[bridge.Key(t)]; return ok })
}

// accumulate makes the loop return lists of the values that a tensor of its body
// had, for those that the backward function takes and that change from iteration to
// iteration. Where there is none it returns the number of iterations instead.
func (c *Context) accumulate(d *derivative, test *bridge.Body, invariant func(int) bool) (lists map[bridge.OutputKey]tf.Output, count tf.Output) {
	b := d.body
	lists = map[bridge.OutputKey]tf.Output{}
	before := len(b.Results)
	var (
		extraArgs, extraResults, starts []tf.Output
		extraShapes                     []bridge.Shape
		tested                          = contextFor(&bodyScope{graph: test.Graph, state: &bodyState{names: map[string]int{}}})
		testArgs                        = slices.Clone(test.Args)
		outside                         = &Context{Scope: c.free(), shared: newShared(c.free())}
	)
	add := func(arg, result, start tf.Output) int {
		extraArgs, extraResults, starts = append(extraArgs, arg), append(extraResults, result), append(starts, start)
		extraShapes = append(extraShapes, bridge.Shape{})
		testArgs = append(testArgs, raw.Placeholder(tested, bridge.BaseDType(arg.DataType()), raw.WithName("unused")))
		if result.Op != nil {
			d.forward[bridge.OpKey(result.Op)] = true
			d.needs(result.Op)
		}
		return before + len(extraArgs) - 1
	}
	places := map[bridge.OutputKey]int{}
	most := maximumIterations(c.Op)
	for _, t := range d.captured {
		if i, isArg := d.args[bridge.Key(t)]; isArg && invariant(i) {
			continue
		}
		if i := c.accumulated(b, t); i >= 0 {
			places[bridge.Key(t)] = i
			continue
		}
		if bridge.BaseDType(t.DataType()) == bridge.Resource {
			c.Fail(fmt.Errorf("gradients: the body of %s at node %q makes a resource (%s), which can't be kept for the gradient", c.Op.Type(), c.Op.Name(), t.Op.Name()))
			return nil, none
		}
		list := d.input("accumulator", bridge.Variant, bridge.Shape{})
		start := raw.EmptyTensorList(outside, outside.listedShape(d.Static(t), t.DataType()), outside.Int(tf.Int32, most), bridge.BaseDType(t.DataType()))
		places[bridge.Key(t)] = add(list, raw.TensorListPushBack(d, list, t), start)
	}
	counter := c.counter(b)
	if counter < 0 && len(places) == 0 {
		arg := d.input("iterations", tf.Int32, bridge.Shape{})
		counter = add(arg, d.Plus(arg, d.Int(tf.Int32, 1)), outside.Int(tf.Int32, 0))
	}
	for _, err := range []error{d.Err(), tested.Err(), c.Err()} {
		if err != nil {
			c.Fail(err)
			return nil, none
		}
	}
	if len(extraArgs) > 0 {
		names := c.addFunctions(
			made{from: b.Graph, keep: b.Def, spec: bridge.FunctionSpec{
				Name: derivedName(b.Def.Signature.Name, "_rewritten"), Ops: d.forwardOps(extraArgs...),
				Inputs: slices.Concat(b.Args, extraArgs), Outputs: slices.Concat(b.Results, extraResults), Control: b.Control}},
			made{from: test.Graph, keep: test.Def, spec: bridge.FunctionSpec{
				Name: derivedName(test.Def.Signature.Name, "_rewritten"), Inputs: testArgs, Outputs: test.Results, Control: test.Control}})
		if names == nil {
			return nil, none
		}
		t, err := bridge.AttrTypes(c.Op, "T")
		if err != nil {
			c.Fail(err)
			return nil, none
		}
		attrs := []bridge.Attr{
			{Name: "body", Value: bridge.Func{Name: names[0]}}, {Name: "cond", Value: bridge.Func{Name: names[1]}},
			{Name: "T", Value: append(t, types(extraArgs)...)},
		}
		if declared, err := bridge.AttrShapes(c.Op, "output_shapes"); err == nil && len(declared) > 0 {
			attrs = append(attrs, bridge.Attr{Name: "output_shapes", Value: append(declared, extraShapes...)})
		}
		c.extend(bridge.Extension{Attrs: attrs, Inputs: starts, Shapes: extraShapes})
		if c.Err() != nil {
			return nil, none
		}
	}
	for key, i := range places {
		lists[key] = c.Op.Output(i)
	}
	if counter >= 0 {
		count = c.Op.Output(counter)
	}
	return lists, count
}

// MaximumIterations is the attribute by which ops.While notes the largest number of
// iterations that a loop makes. XLA, which needs to know the size of what is kept,
// differentiates only loops that have one.
const MaximumIterations = "_maximum_iterations"

// maximumIterations is the largest number of iterations that is known of a loop, -1
// for none. Python's loops have it as their second loop variable.
func maximumIterations(op *tf.Operation) int64 {
	if n, err := bridge.AttrInt(op, MaximumIterations); err == nil && n > 0 {
		return n
	}
	if from := source(bridge.Input(op, 1)); from.Op != nil && strings.HasSuffix(from.Op.Name(), "maximum_iterations") {
		if n, ok := constantInt(from); ok && n >= 0 {
			return n
		}
	}
	return -1
}

func constantInt(t tf.Output) (int64, bool) {
	if t.Op == nil || t.Op.Type() != "Const" || t.DataType() != tf.Int32 || bridge.ShapeOf(t).Rank() != 0 {
		return 0, false
	}
	v, ok, err := bridge.ConstantValue(t)
	if err != nil || !ok {
		return 0, false
	}
	defer v.Close()
	n, err := bridge.Flat[int32](v)
	return int64(n[0]), err == nil
}

// counter is the place of a loop variable that counts the iterations, which most
// loops have: it starts at 0, and 1 is added. -1 for none.
func (c *Context) counter(b *bridge.Body) int {
	for i, r := range b.Results {
		if r = source(r); r.Op.Type() != "AddV2" && r.Op.Type() != "Add" || !bridge.SameOutput(bridge.Input(r.Op, 0), b.Args[i]) {
			continue
		}
		one, ok := constantInt(source(bridge.Input(r.Op, 1)))
		start, known := constantInt(source(bridge.Input(c.Op, i)))
		if ok && known && one == 1 && start == 0 {
			return i
		}
	}
	return -1
}

// accumulated is the place among the loop variables of a list of the values of t,
// -1 where there is none: another gradient may have made one.
func (c *Context) accumulated(b *bridge.Body, t tf.Output) int {
	for i, r := range b.Results {
		r = source(r)
		if r.Op.Type() == "TensorListPushBack" && bridge.SameOutput(bridge.Input(r.Op, 0), b.Args[i]) &&
			bridge.SameOutput(bridge.Input(r.Op, 1), t) && source(bridge.Input(c.Op, i)).Op.Type() == "EmptyTensorList" {
			return i
		}
	}
	return -1
}
