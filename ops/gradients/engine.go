// Package gradients differentiates TensorFlow graphs: a reverse-mode engine,
// [Compute], and the gradient function of each operation type, one file a
// family. The functions are Python TensorFlow's in value and in what they
// leave without a gradient; they are held against Python by the parity run.
//
// Programs use it through ops.Gradients and the optimizers. It is used
// directly to add the gradient of an operation type:
//
//	gradients.Register("MyOp", func(c *gradients.Context) []gradients.Gradient {
//		g := c.Grad(0)                                     // of output 0, dense
//		return []gradients.Gradient{{Dense: c.Mul(g, c.Input(1))}} // of input 0
//	})
package gradients

import (
	"errors"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Options of [Compute]. The zero value is tf.gradients' defaults.
type Options struct {
	// Name is the name scope of the new nodes; "gradients" when empty. It is
	// made unique.
	Name string
	// StopGradients are tensors taken as constants: a gradient reaches them
	// but does not go further.
	StopGradients []tf.Output
	// Zeros asks for zeros where an x has no gradient
	// (UnconnectedGradients.ZERO); by default such a Gradient is none.
	Zeros bool
	// Gate says which gradients wait for each other: none by default.
	Gate Gating
	// Aggregation is how several gradients of a tensor are added: by one AddN by
	// default.
	Aggregation Aggregation
	// Override replaces the gradient function of operation types for this
	// computation, as tf.Graph.gradient_override_map does for nodes made
	// under it. A nil Func makes a type not differentiable.
	Override map[string]Func
	// Custom returns the gradient function of a single node, or nil for the
	// type's own. It comes before Override.
	Custom func(*tf.Operation) Func
}

// Compute adds the gradient of the sum of all ys by each x to the graph and
// returns it, in the order of xs. It is tf.gradients.
//
// gradYs are the gradients of the ys, of their dtypes and shapes; nil, or a
// zero Gradient for some y, means ones (a complex y needs one). An x may be
// any tensor on the way, or the handle of a resource variable; its gradient is
// then that of all its reads, as [IndexedSlices] where it was read by
// ResourceGather only. An x the ys do not depend on, or only through integers
// or operations that are not differentiable, has the zero Gradient.
//
// New nodes are named gradients/<operation>_grad/… and sit on the device of
// the operation they belong to.
//
// Everything that can be checked is checked before the first node is added:
// [*MissingGradientError] names all operations on the way that can't be
// differentiated. Tensors of another graph, zero Outputs, and gradYs of
// another dtype or shape are errors too.
func Compute(s Scope, ys []tf.Output, gradYs []Gradient, xs []tf.Output, opts Options) ([]Gradient, error) {
	if s == nil {
		return nil, errors.New("gradients: the scope is nil")
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if err := checkArguments(s.TF(), ys, gradYs, xs, opts.StopGradients); err != nil {
		return nil, err
	}
	w := newWalk(s, opts)
	w.backwards(ys)
	w.mark(ys, xs)
	if err := w.missing(); err != nil {
		return nil, err
	}
	if err := w.onesOf(ys, gradYs); err != nil {
		return nil, err
	}
	name := opts.Name
	if name == "" {
		name = "gradients"
	}
	root := s.Sub(name)
	w.root, w.shared = root, newShared(root)
	w.differentiate(ys, gradYs)
	result := w.results(xs)
	if err := root.Err(); err != nil {
		return nil, err
	}
	return result, nil
}

func checkArguments(g *tf.Graph, ys []tf.Output, gradYs []Gradient, xs, stop []tf.Output) error {
	if len(ys) == 0 {
		return errors.New("gradients: there is no y to differentiate")
	}
	for _, list := range []struct {
		name string
		ts   []tf.Output
	}{{"y", ys}, {"x", xs}, {"stop gradient", stop}} {
		for i, t := range list.ts {
			if err := checkTensor(g, fmt.Sprintf("%s %d", list.name, i), t); err != nil {
				return err
			}
		}
	}
	if gradYs != nil && len(gradYs) != len(ys) {
		return fmt.Errorf("gradients: %d gradients for %d ys", len(gradYs), len(ys))
	}
	for i, y := range ys {
		grad := at(gradYs, i)
		name := fmt.Sprintf("gradient of y %d (%s:%d)", i, y.Op.Name(), y.Index)
		switch {
		case grad.IsNone():
			if bridge.IsComplex(y.DataType()) {
				return fmt.Errorf("gradients: y %d (%s:%d) is %s, a complex y needs its gradient given",
					i, y.Op.Name(), y.Index, bridge.DTypeName(y.DataType()))
			}
			continue
		case grad.Slices != nil:
			sl := grad.Slices
			for part, t := range map[string]tf.Output{"Values": sl.Values, "Indices": sl.Indices, "DenseShape": sl.DenseShape} {
				if err := checkTensor(g, name+", "+part, t); err != nil {
					return err
				}
			}
		default:
			if err := checkTensor(g, name, grad.Dense); err != nil {
				return err
			}
			if have, want := bridge.ShapeOf(grad.Dense), bridge.ShapeOf(y); !have.CompatibleWith(want) {
				return fmt.Errorf("gradients: the %s has shape %s, wanted %s", name, have, want)
			}
		}
		if have, want := grad.DType(), bridge.BaseDType(y.DataType()); have != want {
			return fmt.Errorf("gradients: the %s is %s, wanted %s", name, bridge.DTypeName(have), bridge.DTypeName(want))
		}
	}
	return nil
}

// onesOf says of a y that takes part, and whose gradient is to be ones, that
// there are no ones of its dtype.
func (w *walk) onesOf(ys []tf.Output, gradYs []Gradient) error {
	for i, y := range ys {
		n := w.nodes[w.index[bridge.OpKey(y.Op)]]
		dt := bridge.BaseDType(y.DataType())
		if (dt == bridge.Resource || dt == bridge.Variant) && at(n.live, y.Index) && at(gradYs, i).IsNone() {
			return fmt.Errorf("gradients: y %d (%s:%d) is %s, which stands for tensors: differentiate what is read of it, or give its gradient",
				i, y.Op.Name(), y.Index, bridge.DTypeName(dt))
		}
	}
	return nil
}

func checkTensor(g *tf.Graph, what string, t tf.Output) error {
	switch {
	case !bridge.Valid(t):
		return fmt.Errorf("gradients: the %s is not a tensor (a zero Output, or an index its operation lacks)", what)
	case bridge.GraphOf(t.Op) != g:
		return fmt.Errorf("gradients: the %s, %s:%d, is in another graph", what, t.Op.Name(), t.Index)
	}
	return nil
}

// Differentiable reports whether a tensor of this dtype can carry a gradient:
// floating, complex, or a resource or variant that stands for such tensors.
func Differentiable(dt tf.DataType) bool {
	switch bridge.BaseDType(dt) {
	case tf.Half, tf.Bfloat16, tf.Float, tf.Double, tf.Complex64, tf.Complex128, bridge.Resource, bridge.Variant:
		return true
	}
	return false
}

// walk is one computation: the operations that the ys are made from, each
// after its inputs, and what is known of them.
type walk struct {
	opts   Options
	marked func(name string) (Marked, bool)
	index  map[bridge.OutputKey]int
	nodes  []*node
	root   Scope
	shared *shared
}

func newWalk(s Scope, opts Options) *walk {
	w := &walk{opts: opts, index: map[bridge.OutputKey]int{}}
	if marker, ok := s.(Marker); ok {
		w.marked = marker.MarkedGradient
	}
	return w
}

type node struct {
	op     *tf.Operation
	inputs []edge
	tensor []tf.Output // of the inputs

	// By output. reached: depends on an x in a differentiable way (or is one).
	// stop: named in StopGradients. live: reached, and a y depends on it.
	reached, stop, live []bool
	wanted              []bool // by input: reached and live
	active              bool   // its gradient function is to be called
	entry               entry
	known               bool
	grads               [][]Gradient // by output, what has arrived
	flow                *flow        // of an operation that calls functions
}

type edge struct{ node, output int }

// backwards collects everything the ys are made from, inputs first.
func (w *walk) backwards(ys []tf.Output) {
	// What lies behind a stop gradient alone is not looked at.
	stop := make(map[bridge.OutputKey]bool, len(w.opts.StopGradients))
	for _, t := range w.opts.StopGradients {
		stop[bridge.Key(t)] = true
	}
	type use struct {
		by    *node
		input int
	}
	var stopped []use
	type frame struct{ node, next int }
	var stack []frame
	var order []*node
	discovered := []*node{}
	visit := func(op *tf.Operation) int {
		id := bridge.OpKey(op)
		if i, ok := w.index[id]; ok {
			return i
		}
		i := len(discovered)
		w.index[id] = i
		n := &node{op: op, tensor: bridge.Inputs(op)}
		n.inputs = make([]edge, len(n.tensor))
		discovered = append(discovered, n)
		stack = append(stack, frame{node: i})
		return i
	}
	for _, y := range ys {
		visit(y.Op)
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			n := discovered[top.node]
			if top.next == len(n.tensor) {
				order = append(order, n)
				stack = stack[:len(stack)-1]
				continue
			}
			i := top.next
			top.next++
			in := n.tensor[i]
			if len(stop) > 0 && stop[bridge.Key(in)] {
				stopped = append(stopped, use{n, i})
				continue
			}
			n.inputs[i] = edge{node: visit(in.Op), output: in.Index}
		}
	}
	var leaves []*node
	for _, u := range stopped {
		in := u.by.tensor[u.input]
		id := bridge.OpKey(in.Op)
		i, found := w.index[id]
		if !found {
			i = len(discovered)
			w.index[id] = i
			leaf := &node{op: in.Op}
			discovered, leaves = append(discovered, leaf), append(leaves, leaf)
		}
		u.by.inputs[u.input] = edge{node: i, output: in.Index}
	}
	order = append(leaves, order...)
	// Number the nodes by their place in the order.
	place := make(map[*node]int, len(order))
	for i, n := range order {
		place[n] = i
	}
	moved := make([]int, len(discovered))
	for i, n := range discovered {
		moved[i] = place[n]
	}
	for id, i := range w.index {
		w.index[id] = moved[i]
	}
	for _, n := range order {
		for i := range n.inputs {
			n.inputs[i].node = moved[n.inputs[i].node]
		}
	}
	w.nodes = order
}

// mark finds the operations between xs and ys that a gradient passes through.
func (w *walk) mark(ys, xs []tf.Output) {
	flag := func(outs []tf.Output, set func(n *node, output int)) {
		for _, t := range outs {
			if i, ok := w.index[bridge.OpKey(t.Op)]; ok {
				set(w.nodes[i], t.Index)
			}
		}
	}
	flag(xs, func(n *node, o int) {
		if Differentiable(n.op.Output(o).DataType()) {
			setFlag(&n.reached, o)
		}
	})
	flag(w.opts.StopGradients, func(n *node, o int) { setFlag(&n.stop, o) })

	for _, n := range w.nodes {
		reaches := false
		for _, in := range n.inputs {
			if at(w.nodes[in.node].reached, in.output) {
				reaches = true
				break
			}
		}
		if !reaches {
			continue
		}
		n.entry, n.known = w.lookup(n.op)
		if n.known && n.entry.grad == nil {
			continue
		}
		through := false
		for i, in := range n.inputs {
			through = through || !isOpaque(n.entry, i) && at(w.nodes[in.node].reached, in.output)
		}
		if !through {
			continue
		}
		n.active = true // so far: a gradient that arrives can go on
		for o := range n.op.NumOutputs() {
			if !at(n.stop, o) && Differentiable(n.op.Output(o).DataType()) {
				setFlag(&n.reached, o)
			}
		}
	}

	flag(ys, func(n *node, o int) {
		if at(n.reached, o) {
			setFlag(&n.live, o)
		}
	})
	for k := len(w.nodes) - 1; k >= 0; k-- {
		n := w.nodes[k]
		arrives := false
		for o, live := range n.live {
			arrives = arrives || live && !at(n.stop, o)
		}
		if n.active = n.active && arrives; !n.active {
			continue
		}
		n.wanted = make([]bool, len(n.inputs))
		for i, in := range n.inputs {
			if from := w.nodes[in.node]; !isOpaque(n.entry, i) && at(from.reached, in.output) {
				setFlag(&from.live, in.output)
				n.wanted[i] = true
			}
		}
	}
}

func isOpaque(e entry, input int) bool {
	for _, i := range e.opaque {
		if i == input {
			return true
		}
	}
	return false
}

func setFlag(flags *[]bool, i int) {
	for len(*flags) <= i {
		*flags = append(*flags, false)
	}
	(*flags)[i] = true
}

// gradientAttr is the attribute by which Python's gradient_override_map and
// custom gradients mark a node.
const gradientAttr = "_gradient_op_type"

// SegmentAttr marks an IdentityN whose gradient a [Marker] knows, where the
// type's own gradient is as right: who does not know the mark, such as Python,
// uses that.
const SegmentAttr = "_sluice_segment"

// lookup finds the gradient of a node: its own, the one it is marked with, the
// one its type has in this computation, or the registered one.
func (w *walk) lookup(op *tf.Operation) (entry, bool) {
	if w.opts.Custom != nil {
		if f := w.opts.Custom(op); f != nil {
			return entry{grad: f}, true
		}
	}
	// A name that nobody registered here is that of a Python function which
	// did not come along with the graph; the type's own gradient stands in.
	if bridge.HasAttr(op, gradientAttr) {
		if name, err := bridge.AttrString(op, gradientAttr); err == nil {
			if f, ok := w.opts.Override[name]; ok {
				return entry{grad: f}, true
			}
			if w.marked != nil {
				if m, ok := w.marked(name); ok {
					return entry{grad: m.Grad, check: m.Check, opaque: m.Opaque}, true
				}
			}
			if e, ok := lookup(name); ok {
				return e, true
			}
		}
	}
	t := op.Type()
	if t == "IdentityN" && w.marked != nil {
		if name, err := bridge.AttrString(op, SegmentAttr); err == nil {
			if m, ok := w.marked(name); ok {
				return entry{grad: m.Grad, check: m.Check, opaque: m.Opaque}, true
			}
		}
	}
	if f, ok := w.opts.Override[t]; ok {
		return entry{grad: f}, true
	}
	if e, ok := lookup(t); ok {
		return e, true
	}
	if _, isOp := bridge.OpDef(t); !isOp {
		return entry{grad: namedCallGrad, open: openNamedCall}, true
	}
	return entry{}, false
}

// missing reports every active operation that has no usable gradient function.
func (w *walk) missing() error {
	var missing []MissingOp
	for _, n := range w.nodes {
		if !n.active {
			continue
		}
		reason := ""
		if n.known {
			if n.entry.open != nil {
				missing = append(missing, w.openFlow(n)...)
				continue
			}
			if n.entry.check == nil {
				continue
			}
			err := n.entry.check(n.op)
			if err == nil {
				continue
			}
			if inner := new(MissingGradientError); errors.As(err, &inner) {
				missing = append(missing, inner.Ops...)
				continue
			}
			reason = err.Error()
		}
		t := n.op.Type()
		missing = append(missing, MissingOp{Type: t, Name: n.op.Name(), Reason: reason, Equivalent: equivalents[t]})
	}
	if missing != nil {
		return &MissingGradientError{Ops: missing}
	}
	return nil
}

// differentiate calls the gradient functions, last operation first.
func (w *walk) differentiate(ys []tf.Output, gradYs []Gradient) {
	root := &Context{Scope: w.root, shared: w.shared}
	for _, n := range w.nodes { // inputs first, so that sizes never looks far back
		if n.active {
			for o := range n.op.NumOutputs() {
				root.sizes(n.op.Output(o))
			}
		}
	}
	for i, y := range ys {
		n := w.nodes[w.index[bridge.OpKey(y.Op)]]
		if !at(n.live, y.Index) {
			continue
		}
		g := at(gradYs, i)
		if g.IsNone() {
			g.Dense = raw.Fill(root, root.Shape(y), root.NumberLike(1, y), raw.WithName(fmt.Sprintf("grad_ys_%d", i)))
		}
		n.arrive(y.Index, g)
	}
	for k := len(w.nodes) - 1; k >= 0 && w.root.Err() == nil; k-- {
		n := w.nodes[k]
		if !n.active {
			continue
		}
		grads := make([]Gradient, n.op.NumOutputs())
		arrived := false
		for o := range n.grads {
			if n.grads[o] == nil {
				continue
			}
			g := w.total(n, o)
			if !at(n.stop, o) && !g.IsNone() {
				grads[o], arrived = g, true
			}
		}
		if !arrived {
			continue
		}
		for i, g := range w.call(n, grads) {
			if i < len(n.wanted) && n.wanted[i] && !g.IsNone() {
				in := n.inputs[i]
				w.nodes[in.node].arrive(in.output, g)
			}
		}
	}
}

func (n *node) arrive(output int, g Gradient) {
	for len(n.grads) <= output {
		n.grads = append(n.grads, nil)
	}
	n.grads[output] = append(n.grads[output], g)
}

// total sums what has arrived at an output, once.
func (w *walk) total(n *node, output int) Gradient {
	parts := at(n.grads, output)
	switch len(parts) {
	case 0:
		return Gradient{}
	case 1:
		return parts[0]
	}
	c := &Context{Scope: w.root.On(n.op.Device()), shared: w.shared}
	g := sum(c, parts, w.opts.Aggregation)
	n.grads[output] = []Gradient{g}
	return g
}

// call runs a node's gradient function and checks what it returns.
func (w *walk) call(n *node, grads []Gradient) (result []Gradient) {
	name := n.op.Name()
	scope := w.root.Sub(name + "_grad")
	if device := n.op.Device(); device != "" {
		scope = scope.On(device)
	}
	outputs := make([]tf.Output, len(grads))
	for i := range outputs {
		outputs[i] = n.op.Output(i)
	}
	c := &Context{
		Scope: scope, Op: n.op, Inputs: n.tensor, Outputs: outputs, Grads: grads,
		wanted: n.wanted, shared: w.shared, walk: w, node: n,
	}
	defer func() {
		if p := recover(); p != nil {
			w.root.Fail(fmt.Errorf("gradients: the gradient function of %s at node %q panicked: %v", n.op.Type(), name, p))
			result = nil
		}
	}()
	result = n.entry.grad(c)
	if err := scope.Err(); err != nil {
		w.root.Fail(err)
		return nil
	}
	if len(result) > len(n.inputs) {
		w.root.Fail(fmt.Errorf("gradients: the gradient function of %s at node %q returned %d gradients for %d inputs",
			n.op.Type(), name, len(result), len(n.inputs)))
		return nil
	}
	for i, g := range result {
		if g.IsNone() || !n.wanted[i] {
			continue
		}
		want := bridge.BaseDType(n.tensor[i].DataType())
		if have := g.DType(); have != want && want != bridge.Resource && want != bridge.Variant {
			w.root.Fail(fmt.Errorf("gradients: the gradient function of %s at node %q gave input %d a gradient of %s, wanted %s",
				n.op.Type(), name, i, bridge.DTypeName(have), bridge.DTypeName(want)))
			return nil
		}
		if g.Slices == nil && want != bridge.Resource && want != bridge.Variant {
			if have, want := c.Static(g.Dense), c.Static(n.tensor[i]); !have.CompatibleWith(want) {
				w.root.Fail(fmt.Errorf("gradients: the gradient function of %s at node %q gave input %d a gradient of shape %s, wanted %s",
					n.op.Type(), name, i, have, want))
				return nil
			}
		}
	}
	if w.opts.Gate == GateOp {
		result = together(c, result)
	}
	return result
}

func (w *walk) results(xs []tf.Output) []Gradient {
	result := make([]Gradient, len(xs))
	root := &Context{Scope: w.root, shared: w.shared}
	for i, x := range xs {
		if k, ok := w.index[bridge.OpKey(x.Op)]; ok {
			result[i] = w.total(w.nodes[k], x.Index)
		}
		if w.opts.Zeros && result[i].IsNone() {
			result[i].Dense = root.zerosFor(x)
		}
	}
	if w.opts.Gate == GateGraph {
		result = together(root, result)
	}
	return result
}

// zerosFor is a zero gradient of a tensor, or of the variable behind a handle.
func (c *Context) zerosFor(x tf.Output) tf.Output {
	if x.DataType() != bridge.Resource {
		return c.ZerosLike(x)
	}
	dt, _, ok := variable(x)
	if !ok {
		c.Fail(fmt.Errorf("gradients: no zeros for %s:%d: it is not the handle of a variable", x.Op.Name(), x.Index))
		return tf.Output{}
	}
	return raw.Fill(c, c.VariableShape(x, tf.Int32), c.Number(dt, 0))
}
