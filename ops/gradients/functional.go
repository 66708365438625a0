package gradients

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	opdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/op_def_go_proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Calls of functions, and branches.

func init() {
	for _, name := range []string{"PartitionedCall", "StatefulPartitionedCall"} {
		registerFlow(name, callGrad, openCall)
	}
	for _, name := range []string{"If", "StatelessIf", "Case", "StatelessCase"} {
		registerFlow(name, branchGrad, openBranches, 0)
	}
	RegisterNone("FakeParam")
}

func registerFlow(opType string, f Func, open func(w *walk, n *node) ([]MissingOp, error), opaque ...int) {
	if err := Register(opType, f, opaque...); err != nil {
		panic(err)
	}
	registry.Lock()
	defer registry.Unlock()
	e := registry.entries[opType]
	e.open = open
	registry.entries[opType] = e
}

func openCall(w *walk, n *node) ([]MissingOp, error) {
	f, err := bridge.AttrFunc(n.op, "f")
	if err != nil {
		return nil, err
	}
	missing, err := openBodies(w, n, 0, f)
	if err != nil || !compiled(n.op) || !hasLoops(n.flow.bodies[0].Graph) {
		return missing, err
	}
	return missing, repeatable(n.flow.bodies[0], "it is compiled by XLA, which can't hand over what its loop keeps")
}

// compiled tells whether XLA compiles a call.
func compiled(op *tf.Operation) bool {
	must, err := bridge.AttrBool(op, "_XlaMustCompile")
	return err == nil && must
}

func hasLoops(g *tf.Graph) bool {
	isLoop := func(opType string) bool { return opType == "While" || opType == "StatelessWhile" }
	for op := range bridge.Operations(g) {
		if isLoop(op.Type()) {
			return true
		}
	}
	called, _ := bridge.Functions(g)
	for _, f := range called {
		for _, node := range f.NodeDef {
			if isLoop(node.Op) {
				return true
			}
		}
	}
	return false
}

// repeatable is an error where a body, or what it calls, has effects, so that its
// gradient can't compute it again; why tells why it would.
func repeatable(b *bridge.Body, why string) error {
	refused := func(opType, name string) error {
		def, known := bridge.OpDef(opType)
		if !known || !def.IsStateful || reads(opType) || slices.ContainsFunc(def.Attr, func(a *opdef.OpDef_AttrDef) bool {
			return a.Type == "func" || a.Type == "list(func)" // the functions that it calls are looked at
		}) {
			return nil
		}
		return fmt.Errorf("%s, and its gradient would run its %s %q twice", why, opType, name)
	}
	for op := range bridge.Operations(b.Graph) {
		if err := refused(op.Type(), op.Name()); err != nil {
			return err
		}
	}
	called, err := bridge.Functions(b.Graph)
	if err != nil {
		return err
	}
	for _, f := range called {
		for _, node := range f.NodeDef {
			if err := refused(node.Op, f.Signature.Name+"/"+node.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// openBodies opens functions that all take the inputs from the first on.
func openBodies(w *walk, n *node, first int, functions ...bridge.Func) ([]MissingOp, error) {
	var missing []MissingOp
	xs := where(n.wanted, func(i int) bool { return i >= first })
	for i := range xs {
		xs[i] -= first
	}
	for _, f := range functions {
		b, err := openBody(n.op, f, bodyArgs(n.tensor[first:]))
		if err != nil {
			return nil, err
		}
		n.flow.bodies = append(n.flow.bodies, b)
		missing = append(missing, missingIn(w.inside(b, where(n.live, differentiableResults(b)), xs))...)
	}
	return missing, nil
}

func missingIn(inner *walk) []MissingOp {
	var missing *MissingGradientError
	if errors.As(inner.missing(), &missing) {
		return missing.Ops
	}
	return nil
}

// callGrad: the function returns, besides its results, what the gradient needs of
// the values within it; the gradient is a call of another function.
func callGrad(c *Context) []Gradient {
	b := c.node.flow.bodies[0]
	ys, xs := c.arrivedAt(b), c.wantedArgs(0)
	d, err := c.walk.derive(b, ys, xs)
	if err != nil {
		c.Fail(err)
		return nil
	}
	f := bridge.Func{}
	if f, err = bridge.AttrFunc(c.Op, "f"); err != nil {
		c.Fail(err)
		return nil
	}
	outs, pack := d.flatten()
	everything := func(int) bool { return true }
	d.collect(outs, everything)
	if compiled(c.Op) && slices.ContainsFunc(d.captured, func(t tf.Output) bool { return t.DataType() == bridge.Variant && d.isNoArg(t) }) {
		d.forget()
		d.recomputing = true // openCall has found that it can be
		d.collect(outs, everything)
	}
	extended := c.extended(b, f, "f", []*derivative{d})
	if c.Err() != nil {
		return nil
	}
	inputs := c.denseGrads(ys)
	for _, t := range d.captured {
		if i, isArg := d.args[bridge.Key(t)]; isArg {
			inputs = append(inputs, c.Input(i))
		} else {
			inputs = append(inputs, extended[bridge.Key(t)])
		}
	}
	return c.placed(0, xs, c.zerosWhereConnected(0, xs, pack(c.callBackward(d, f, outs, inputs))))
}

// callBackward adds the call of the backward function.
func (c *Context) callBackward(d *derivative, f bridge.Func, outs, inputs []tf.Output) []tf.Output {
	if len(outs) == 0 {
		return nil
	}
	names := c.addFunctions(made{from: d.body.Graph, keep: d.body.Def, spec: bridge.FunctionSpec{
		Name: derivedName(f.Name, "_grad"), Ops: d.ops(), Inputs: slices.Concat(d.given, d.captured), Outputs: outs}})
	if names == nil {
		return nil
	}
	call := raw.PartitionedCall
	if stateful(d.backward) {
		call = raw.StatefulPartitionedCall
	}
	return call(c, inputs, types(outs), bridge.Func{Name: names[0]}, c.carry("config", "config_proto", "executor_type")...)
}

// ops are the operations of the backward function; not nil, which would be all.
func (d *derivative) ops() []*tf.Operation { return append([]*tf.Operation{}, d.backward...) }

func types(outs []tf.Output) []tf.DataType {
	dts := make([]tf.DataType, len(outs))
	for i, t := range outs {
		dts[i] = bridge.BaseDType(t.DataType())
	}
	return dts
}

func shapes(outs []tf.Output) []bridge.Shape {
	all := make([]bridge.Shape, len(outs))
	for i, t := range outs {
		all[i] = bridge.ShapeOf(t)
	}
	return all
}

// derivedName names a function after the one that it comes from.
func derivedName(name, suffix string) string {
	base, _, _ := strings.Cut(name, suffix)
	base = strings.TrimLeft(strings.Map(func(r rune) rune {
		if bridge.CheckName("f"+string(r)) != nil { // such as the <lambda> of Python
			return '_'
		}
		return r
	}, base), "_")
	if base == "" {
		base = "function"
	}
	return base + suffix
}

// flatten is the tensors that the gradients consist of; pack makes gradients of as
// many others.
func (d *derivative) flatten() (outs []tf.Output, pack func([]tf.Output) []Gradient) {
	for _, g := range d.grads {
		switch {
		case g.Slices != nil:
			outs = append(outs, g.Slices.Values, g.Slices.Indices, g.Slices.DenseShape)
		case !g.IsNone():
			outs = append(outs, g.Dense)
		}
	}
	return outs, func(from []tf.Output) []Gradient {
		packed := make([]Gradient, len(d.grads))
		if len(from) != len(outs) {
			return packed // the scope has failed
		}
		for i, g := range d.grads {
			switch {
			case g.Slices != nil:
				packed[i].Slices = &IndexedSlices{Values: from[0], Indices: from[1], DenseShape: from[2]}
				from = from[3:]
			case !g.IsNone():
				packed[i].Dense = from[0]
				from = from[1:]
			}
		}
		return packed
	}
}

func (c *Context) denseGrads(ys []int) []tf.Output {
	grads := make([]tf.Output, len(ys))
	for i, y := range ys {
		grads[i] = c.Grad(y)
	}
	return grads
}

// placed gives each gradient its place among the inputs.
func (c *Context) placed(first int, xs []int, grads []Gradient) []Gradient {
	result := make([]Gradient, len(c.Inputs))
	for i, x := range xs {
		result[first+x] = grads[i]
	}
	return result
}

// zerosWhereConnected makes zeros of no gradient where an argument is connected to
// a result that no gradient has arrived at, as Python does.
func (c *Context) zerosWhereConnected(first int, xs []int, grads []Gradient) []Gradient {
	for _, b := range c.node.flow.bodies {
		var missing []int // in xs
		for i := range xs {
			if grads[i].IsNone() {
				missing = append(missing, i)
			}
		}
		if missing == nil {
			break
		}
		all := make([]bool, len(b.Results))
		for i := range all {
			all[i] = true
		}
		for k, connected := range c.walk.depends(b, where(all, differentiableResults(b)), pick(xs, missing)) {
			if i := missing[k]; connected {
				grads[i].Dense = c.zerosFor(c.Input(first + xs[i]))
			}
		}
	}
	return grads
}

// extended makes the operation return what the backward functions of its branches
// take of the values within them, and tells under which key of a captured tensor
// which output that is.
func (c *Context) extended(b *bridge.Body, f bridge.Func, attr string, branches []*derivative) map[bridge.OutputKey]tf.Output {
	found := map[bridge.OutputKey]tf.Output{}
	type extra struct {
		branch int
		tensor tf.Output
	}
	var extras []extra
	for k, d := range branches {
		for _, t := range d.captured {
			if !d.isNoArg(t) {
				continue
			}
			if i := d.result(t); i >= 0 {
				found[bridge.Key(t)] = c.Op.Output(i)
			} else {
				extras = append(extras, extra{k, t})
			}
		}
	}
	if len(extras) == 0 || c.Err() != nil {
		return found
	}
	var tensors []tf.Output
	for _, e := range extras {
		tensors = append(tensors, e.tensor)
	}
	var list []made
	for k, d := range branches {
		outputs := slices.Clone(d.body.Results)
		for _, e := range extras {
			if e.branch == k {
				outputs = append(outputs, e.tensor)
			} else {
				outputs = append(outputs, d.standIn(e.tensor))
			}
		}
		if err := d.Err(); err != nil {
			c.Fail(err)
			return nil
		}
		list = append(list, made{from: d.body.Graph, keep: d.body.Def, spec: bridge.FunctionSpec{
			Name: derivedName(d.body.Def.Signature.Name, "_rewritten"), Ops: d.forwardOps(),
			Inputs: d.body.Args, Outputs: outputs, Control: d.body.Control}})
	}
	names := c.addFunctions(list...)
	if names == nil {
		return nil
	}
	functions := make([]bridge.Func, len(names))
	for i, name := range names {
		functions[i] = bridge.Func{Name: name}
	}
	before := c.Op.NumOutputs()
	tout, err := bridge.AttrTypes(c.Op, "Tout")
	if err != nil {
		c.Fail(err)
		return nil
	}
	attrs := []bridge.Attr{{Name: "Tout", Value: append(tout, types(tensors)...)}}
	switch attr {
	case "then_branch":
		attrs = append(attrs, bridge.Attr{Name: attr, Value: functions[0]}, bridge.Attr{Name: "else_branch", Value: functions[1]})
	case "branches":
		attrs = append(attrs, bridge.Attr{Name: attr, Value: functions})
	default:
		attrs = append(attrs, bridge.Attr{Name: attr, Value: functions[0]})
	}
	if have, err := bridge.AttrShapes(c.Op, "output_shapes"); err == nil && len(have) > 0 {
		attrs = append(attrs, bridge.Attr{Name: "output_shapes", Value: append(have, shapes(tensors)...)})
	}
	c.extend(bridge.Extension{Attrs: attrs, Shapes: shapes(tensors)})
	for i, t := range tensors {
		found[bridge.Key(t)] = c.Op.Output(before + i)
	}
	return found
}

// standIn is what a branch returns in the place of a tensor of another branch:
// nobody will look at it.
func (d *derivative) standIn(of tf.Output) tf.Output {
	dt := bridge.BaseDType(of.DataType())
	var t tf.Output
	if dt == bridge.Variant { // a list, so that zeros like it can be made
		t = raw.EmptyTensorList(d, d.Int(tf.Int32, -1), d.Int(tf.Int32, -1), tf.Float)
	} else {
		t = raw.FakeParam(d, dt, bridge.ShapeOf(of))
	}
	if t.Op != nil {
		d.forward[bridge.OpKey(t.Op)] = true
		d.needs(t.Op)
	}
	return t
}

func openBranches(w *walk, n *node) ([]MissingOp, error) {
	functions, err := branchFunctions(n.op)
	if err != nil {
		return nil, err
	}
	return openBodies(w, n, 1, functions...)
}

func branchFunctions(op *tf.Operation) ([]bridge.Func, error) {
	if strings.HasSuffix(op.Type(), "Case") {
		return bridge.AttrFuncs(op, "branches")
	}
	then, err := bridge.AttrFunc(op, "then_branch")
	if err != nil {
		return nil, err
	}
	otherwise, err := bridge.AttrFunc(op, "else_branch")
	return []bridge.Func{then, otherwise}, err
}

// branchGrad: the gradient is an If (or Case) of the gradients of the branches, on
// the same condition. Each branch also returns, by the value that a stand-in has
// in the other branches, what its gradient needs.
func branchGrad(c *Context) []Gradient {
	bodies, xs := c.node.flow.bodies, c.wantedArgs(1)
	ys := c.arrivedAt(bodies[0])
	branches := make([]*derivative, len(bodies))
	for k, b := range bodies {
		d, err := c.walk.derive(b, ys, xs)
		if err != nil {
			c.Fail(err)
			return nil
		}
		branches[k] = d
	}
	alike(branches, xs)
	outs := make([][]tf.Output, len(branches))
	var pack func([]tf.Output) []Gradient
	used := map[int]bool{} // arguments
	for k, d := range branches {
		outs[k], pack = d.flatten()
		d.collect(outs[k], func(int) bool { return true })
		for _, t := range d.captured {
			if i, isArg := d.args[bridge.Key(t)]; isArg {
				used[i] = true
			}
		}
		if err := d.Err(); err != nil {
			c.Fail(err)
			return nil
		}
	}
	if len(outs[0]) == 0 {
		return c.placed(1, xs, c.zerosWhereConnected(1, xs, pack(nil)))
	}
	attr := "then_branch"
	isCase := strings.HasSuffix(c.Op.Type(), "Case")
	if isCase {
		attr = "branches"
	}
	extended := c.extended(nil, bridge.Func{}, attr, branches)
	if c.Err() != nil {
		return nil
	}

	// All branches take the same inputs: gradients, arguments, captured values.
	inputs := c.denseGrads(ys)
	arguments := make([][]tf.Output, len(branches))
	for k, d := range branches {
		arguments[k] = slices.Clone(d.given)
	}
	for i := range c.Inputs[1:] {
		if !used[i] {
			continue
		}
		inputs = append(inputs, c.Input(1+i))
		for k, d := range branches {
			arguments[k] = append(arguments[k], d.body.Args[i])
		}
	}
	for owner, d := range branches {
		for _, t := range d.captured {
			if !d.isNoArg(t) {
				continue
			}
			inputs = append(inputs, extended[bridge.Key(t)])
			for k, other := range branches {
				if k == owner {
					arguments[k] = append(arguments[k], t)
				} else {
					arguments[k] = append(arguments[k], other.input("unused", t.DataType(), nil))
				}
			}
		}
	}
	var list []made
	isStateful := false
	for k, d := range branches {
		if err := d.Err(); err != nil {
			c.Fail(err)
			return nil
		}
		isStateful = isStateful || stateful(d.backward)
		list = append(list, made{from: d.body.Graph, keep: d.body.Def, spec: bridge.FunctionSpec{
			Name: derivedName(d.body.Def.Signature.Name, "_grad"), Ops: d.ops(), Inputs: arguments[k], Outputs: outs[k]}})
	}
	names := c.addFunctions(list...)
	if names == nil {
		return nil
	}
	functions := make([]bridge.Func, len(names))
	for i, name := range names {
		functions[i] = bridge.Func{Name: name}
	}
	common := make([]bridge.Shape, len(outs[0]))
	for i := range common {
		common[i] = bridge.ShapeOf(outs[0][i])
		for _, other := range outs[1:] {
			common[i] = weaker(common[i], bridge.ShapeOf(other[i]))
		}
	}
	attrs := append(c.carry(), raw.WithOutputShapes(common))
	var results []tf.Output
	switch dts := types(outs[0]); {
	case isCase && isStateful:
		results = raw.Case(c, c.Input(0), inputs, dts, functions, attrs...)
	case isCase:
		results = raw.StatelessCase(c, c.Input(0), inputs, dts, functions, attrs...)
	case isStateful:
		results = raw.If(c, c.Input(0), inputs, dts, functions[0], functions[1], attrs...)
	default:
		results = raw.StatelessIf(c, c.Input(0), inputs, dts, functions[0], functions[1], attrs...)
	}
	return c.placed(1, xs, c.zerosWhereConnected(1, xs, pack(results)))
}

// weaker is what two shapes have in common.
func weaker(a, b bridge.Shape) bridge.Shape {
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

// alike makes the gradients of all branches of one kind: none only where all have
// none, sparse where one is.
func alike(branches []*derivative, xs []int) {
	for i, x := range xs {
		var dt tf.DataType
		sparse := false
		for _, d := range branches {
			if g := d.grads[i]; !g.IsNone() {
				dt = g.DType()
				sparse = sparse || g.IsSparse()
			}
		}
		if dt == 0 {
			continue
		}
		for _, d := range branches {
			g := &d.grads[i]
			if g.IsNone() {
				g.Dense = d.zeros(d.body.Args[x], dt)
			}
			if sparse {
				*g = d.asSlices(*g)
			}
		}
	}
}

// openNamedCall opens the function that an operation's type names. It can't be
// given more outputs, so that its gradient computes it again: its body may have no
// effects.
func openNamedCall(w *walk, n *node) ([]MissingOp, error) {
	attrs, err := bridge.Attrs(n.op)
	if err != nil {
		return nil, err
	}
	attrs = slices.DeleteFunc(attrs, func(a bridge.Attr) bool { return strings.HasPrefix(a.Name, "_") })
	missing, err := openBodies(w, n, 0, bridge.Func{Name: n.op.Type(), Attrs: attrs})
	if err != nil {
		return nil, err
	}
	if err := repeatable(n.flow.bodies[0], "it is called by its name"); err != nil {
		return nil, fmt.Errorf("%w; call it by StatefulPartitionedCall", err)
	}
	return missing, nil
}

// reads are stateful operations that may be repeated.
func reads(opType string) bool {
	switch opType {
	case "VarHandleOp", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp":
		return true
	}
	return false
}

func namedCallGrad(c *Context) []Gradient {
	xs := c.wantedArgs(0)
	b := c.node.flow.bodies[0]
	ys := c.arrivedAt(b)
	d, err := c.walk.derive(b, ys, xs)
	if err != nil {
		c.Fail(err)
		return nil
	}
	d.recomputing = true
	outs, pack := d.flatten()
	d.collect(outs, func(int) bool { return true })
	inputs := c.denseGrads(ys)
	for _, t := range d.captured {
		inputs = append(inputs, c.Input(d.args[bridge.Key(t)]))
	}
	return c.placed(0, xs, c.zerosWhereConnected(0, xs, pack(c.callBackward(d, bridge.Func{Name: c.Op.Type()}, outs, inputs))))
}
