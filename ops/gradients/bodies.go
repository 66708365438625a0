package gradients

import (
	"fmt"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// An operation that calls functions is differentiated in the functions. The body
// is opened as a graph of its own, the engine adds the gradient there, and what
// it added becomes a function: the backward one, which the gradient calls. What
// that needs of the values within the forward function is returned by it as
// more outputs: the operation is given another function and more outputs, in its
// place, so that whatever happens in the body happens once a step. Python does the
// same (cond_v2.py, while_v2.py).

// flow is what is known, before it is differentiated, of an operation that calls
// functions.
type flow struct {
	bodies  []*bridge.Body // the branches; or a loop's body and its condition
	carried []int          // of a loop: the variables that have a gradient
}

// openFlow looks into the functions of an operation, and tells what stands in the
// way of its gradient.
func (w *walk) openFlow(n *node) []MissingOp {
	fail := func(reason string) []MissingOp {
		return []MissingOp{{Type: n.op.Type(), Name: n.op.Name(), Reason: reason}}
	}
	if bridge.HasRun(n.op) {
		return fail("a session has run the graph since this operation was added: its gradient needs more outputs of it, and must be added before the first run")
	}
	n.flow = new(flow)
	missing, err := n.entry.open(w, n)
	if err != nil {
		return fail(err.Error())
	}
	for i := range missing {
		missing[i].Name = n.op.Name() + "/" + missing[i].Name
	}
	return missing
}

// inside is a computation within a body: of the results ys by the arguments xs.
func (w *walk) inside(b *bridge.Body, ys, xs []int) *walk {
	inner := newWalk(&bodyScope{graph: b.Graph, marked: w.marked}, Options{Override: w.opts.Override, Custom: w.opts.Custom})
	results := pick(b.Results, ys)
	inner.backwards(results)
	inner.mark(results, pick(b.Args, xs))
	return inner
}

// depends tells for each of the arguments xs whether one of the results ys depends
// on it by way of differentiable operations.
func (w *walk) depends(b *bridge.Body, ys, xs []int) []bool {
	inner := w.inside(b, ys, xs)
	found := make([]bool, len(xs))
	for i, x := range pick(b.Args, xs) {
		if k, ok := inner.index[bridge.OpKey(x.Op)]; ok {
			found[i] = at(inner.nodes[k].live, x.Index)
		}
	}
	return found
}

// reaches tells for each of the results ys whether it depends on one of the
// arguments xs by way of differentiable operations.
func (w *walk) reaches(b *bridge.Body, ys, xs []int) []bool {
	inner := w.inside(b, ys, xs)
	found := make([]bool, len(ys))
	for i, y := range pick(b.Results, ys) {
		found[i] = at(inner.nodes[inner.index[bridge.OpKey(y.Op)]].reached, y.Index)
	}
	return found
}

func pick[T any](from []T, places []int) []T {
	picked := make([]T, len(places))
	for i, k := range places {
		picked[i] = from[k]
	}
	return picked
}

func where(flags []bool, and func(int) bool) []int {
	var found []int
	for i, set := range flags {
		if set && and(i) {
			found = append(found, i)
		}
	}
	return found
}

// differentiableResults are the results of a body that a gradient can arrive at.
func differentiableResults(b *bridge.Body) func(int) bool {
	return func(i int) bool {
		if i >= len(b.Results) {
			return false
		}
		dt := bridge.BaseDType(b.Results[i].DataType())
		return Differentiable(dt) && dt != bridge.Resource
	}
}

// bodyArgs says of tensors what is known before a run.
func bodyArgs(tensors []tf.Output) []bridge.BodyArg {
	args := make([]bridge.BodyArg, len(tensors))
	for i, t := range tensors {
		if t.DataType() == bridge.Resource {
			args[i].Variable, args[i].Shape, _ = variable(t)
			continue
		}
		args[i].Shape = bridge.ShapeOf(t)
	}
	return args
}

// openBody opens the function of an attribute, for arguments like the tensors.
func openBody(op *tf.Operation, f bridge.Func, args []bridge.BodyArg) (*bridge.Body, error) {
	b, err := bridge.OpenBody(bridge.GraphOf(op), f, args)
	if err != nil {
		return nil, err
	}
	if len(b.Args) != len(args) {
		return nil, fmt.Errorf("function %s has %d arguments, it is called with %d", f.Name, len(b.Args), len(args))
	}
	return b, nil
}

// bodyScope is a place in the graph of a body.
type bodyScope struct {
	graph          *tf.Graph
	prefix, device string
	state          *bodyState
	marked         func(name string) (Marked, bool) // of the graph that calls the function
}

type bodyState struct {
	err   error
	names map[string]int
}

func (s *bodyScope) unique(name string) string {
	full := s.prefix + name
	for {
		n := s.state.names[full]
		s.state.names[full] = n + 1
		name := full
		if n > 0 {
			name = fmt.Sprintf("%s_%d", full, n)
		}
		if bridge.OperationByName(s.graph, name) == nil && (n == 0 || s.state.names[name] == 0) {
			return name
		}
	}
}

func (s *bodyScope) Add(spec bridge.OpSpec) *tf.Operation {
	if s.state.err != nil {
		return nil
	}
	if spec.Name == "" {
		spec.Name = spec.Type
	}
	spec.Name = s.unique(spec.Name)
	if spec.Device == "" && len(spec.ColocateWith) == 0 {
		spec.Device = s.device
	}
	op, err := bridge.AddOperation(s.graph, spec)
	if err != nil {
		s.Fail(err)
		return nil
	}
	return op
}

func (s *bodyScope) Err() error { return s.state.err }

func (s *bodyScope) Fail(err error) {
	if s.state.err == nil {
		s.state.err = err
	}
}

func (s *bodyScope) TF() *tf.Graph { return s.graph }

func (s *bodyScope) MarkedGradient(name string) (Marked, bool) {
	if s.marked == nil {
		return Marked{}, false
	}
	return s.marked(name)
}

func (s *bodyScope) Sub(name string) Scope {
	sub := *s
	sub.prefix = s.unique(name) + "/"
	return &sub
}

func (s *bodyScope) On(device string) Scope {
	if device == "" {
		return s
	}
	on := *s
	on.device = device
	return &on
}

// derivative is a body, to whose graph the gradient was added.
type derivative struct {
	*Context    // at the root of the body's graph
	body        *bridge.Body
	forward     map[bridge.OutputKey]bool // operations of the forward function
	given       []tf.Output               // the gradients of the results, placeholders
	grads       []Gradient                // of the arguments asked for
	args        map[bridge.OutputKey]int
	backward    []*tf.Operation // what the gradients are made by
	took        map[bridge.OutputKey]bool
	captured    []tf.Output // tensors of the forward function that this takes, each once
	isCaptured  map[bridge.OutputKey]bool
	recomputing bool // the backward function repeats the forward one
}

// derive adds the gradient of the results ys by the arguments xs to a body's graph.
func (w *walk) derive(b *bridge.Body, ys, xs []int) (*derivative, error) {
	scope := &bodyScope{graph: b.Graph, state: &bodyState{names: map[string]int{}}, marked: w.marked}
	d := &derivative{
		Context: contextFor(scope), body: b, forward: map[bridge.OutputKey]bool{}, args: map[bridge.OutputKey]int{},
		took: map[bridge.OutputKey]bool{}, isCaptured: map[bridge.OutputKey]bool{},
	}
	for op := range bridge.Operations(b.Graph) {
		d.forward[bridge.OpKey(op)] = true
	}
	for i, arg := range b.Args {
		d.args[bridge.Key(arg)] = i
	}
	gradYs := make([]Gradient, len(ys))
	for i, y := range ys {
		t := b.Results[y]
		gradYs[i].Dense = d.input("grad", t.DataType(), bridge.ShapeOf(t))
		d.given = append(d.given, gradYs[i].Dense)
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	if len(ys) == 0 {
		d.grads = make([]Gradient, len(xs))
		return d, nil
	}
	grads, err := Compute(scope, pick(b.Results, ys), gradYs, pick(b.Args, xs),
		Options{Override: w.opts.Override, Custom: w.opts.Custom})
	if err != nil {
		return nil, err
	}
	d.grads = grads
	// What was differentiated within may have got inputs: they are forward too.
	for op := range bridge.Operations(b.Graph) {
		if d.forward[bridge.OpKey(op)] {
			d.needs(op)
		}
	}
	return d, nil
}

func (d *derivative) needs(op *tf.Operation) {
	for _, in := range bridge.Inputs(op) {
		if key := bridge.OpKey(in.Op); !d.forward[key] {
			d.forward[key] = true
			d.needs(in.Op)
		}
	}
}

// input is a new argument.
func (d *derivative) input(name string, dt tf.DataType, shape bridge.Shape) tf.Output {
	return raw.Placeholder(d, bridge.BaseDType(dt), raw.WithShape(shape), raw.WithName(name))
}

// collect finds the operations that outs are made by, and the tensors of the
// forward function that those take. available tells which arguments can be had
// without the forward function.
func (d *derivative) collect(outs []tf.Output, available func(arg int) bool) {
	isGiven := map[bridge.OutputKey]bool{}
	for _, t := range d.given {
		isGiven[bridge.Key(t)] = true
	}
	direct := func(t tf.Output) bool {
		i, isArg := d.args[bridge.Key(t)]
		return isArg && available(i)
	}
	// Cheaper to make again than to hand over.
	var again func(op *tf.Operation) bool
	again = func(op *tf.Operation) bool {
		switch op.Type() {
		case "Const", "VarHandleOp":
			return true
		case "Identity":
			in := bridge.Input(op, 0)
			return direct(in) || d.forward[bridge.OpKey(in.Op)] && d.isNoArg(in) && again(in.Op)
		}
		return d.recomputing
	}
	var visit func(t tf.Output)
	take := func(op *tf.Operation) {
		key := bridge.OpKey(op)
		if d.took[key] {
			return
		}
		d.took[key] = true
		d.backward = append(d.backward, op)
		for _, in := range bridge.Inputs(op) {
			visit(in)
		}
	}
	capture := func(t tf.Output) {
		if key := bridge.Key(t); !d.isCaptured[key] {
			d.isCaptured[key] = true
			d.captured = append(d.captured, t)
		}
	}
	visit = func(t tf.Output) {
		_, isArg := d.args[bridge.Key(t)]
		switch {
		case isGiven[bridge.Key(t)]:
		case isArg:
			capture(t)
		case d.forward[bridge.OpKey(t.Op)]:
			if again(t.Op) {
				take(t.Op)
			} else {
				capture(t)
			}
		default:
			// Of a tensor of the forward function only the shape is handed over
			// where only that is needed.
			switch t.Op.Type() {
			case "Shape", "Size", "Rank":
				if of := bridge.Input(t.Op, 0); !d.recomputing && d.forward[bridge.OpKey(of.Op)] && !direct(of) && !isGiven[bridge.Key(of)] {
					d.forward[bridge.OpKey(t.Op)] = true
					capture(t)
					return
				}
			}
			take(t.Op)
		}
	}
	for _, t := range outs {
		visit(t)
	}
}

// forget undoes collect.
func (d *derivative) forget() {
	d.backward, d.captured = nil, nil
	clear(d.took)
	clear(d.isCaptured)
}

func (d *derivative) isNoArg(t tf.Output) bool {
	_, isArg := d.args[bridge.Key(t)]
	return !isArg
}

// result is the place of a tensor among the body's results, -1 where it is none.
func (d *derivative) result(t tf.Output) int {
	return slices.IndexFunc(d.body.Results, func(r tf.Output) bool { return bridge.SameOutput(r, t) })
}

// forwardOps are the operations of the forward function.
func (d *derivative) forwardOps(args ...tf.Output) []*tf.Operation {
	isArg := map[bridge.OutputKey]bool{}
	for _, arg := range append(args, d.body.Args...) {
		isArg[bridge.OpKey(arg.Op)] = true
	}
	ops := []*tf.Operation{}
	for op := range bridge.Operations(d.body.Graph) {
		if key := bridge.OpKey(op); d.forward[key] && !isArg[key] {
			ops = append(ops, op)
		}
	}
	return ops
}

// stateful tells whether operations make a function stateful.
func stateful(ops []*tf.Operation) bool {
	var library map[string]*function.FunctionDef
	return slices.ContainsFunc(ops, func(op *tf.Operation) bool {
		if def, ok := bridge.OpDef(op.Type()); ok {
			return def.IsStateful
		}
		if library == nil {
			library = map[string]*function.FunctionDef{}
			defs, _ := bridge.Functions(bridge.GraphOf(op))
			for _, def := range defs {
				library[def.Signature.Name] = def
			}
		}
		return library[op.Type()].GetSignature().GetIsStateful()
	})
}

// made is a function that was made of a body's graph, to be added to the graph of
// the operation that calls it.
type made struct {
	spec bridge.FunctionSpec
	from *tf.Graph
	keep *function.FunctionDef // the function that it replaces, whose attributes it has
}

// notKept are attributes of functions that hold for their old signature only.
var notKept = []string{"api_implements", "api_preferred_device", "forward_function_name", "backward_function_name"}

// addFunctions puts functions, and those that they call, into the graph's library,
// and returns their names there.
func (c *Context) addFunctions(list ...made) []string {
	names := make([]string, len(list))
	for i, m := range list {
		if slices.ContainsFunc(list[:i], func(other made) bool { return other.from == m.from }) {
			continue // with the others of this body
		}
		defs, err := bridge.Functions(m.from)
		if err != nil {
			c.Fail(err)
			return nil
		}
		taken := map[string]bool{}
		for _, def := range defs {
			taken[def.Signature.Name] = true
		}
		for k := i; k < len(list); k++ {
			m := list[k]
			if m.from != list[i].from {
				continue
			}
			names[k] = m.spec.Name
			for n := 1; taken[names[k]]; n++ {
				names[k] = fmt.Sprintf("%s_%d", m.spec.Name, n)
			}
			taken[names[k]] = true
			m.spec.Name = names[k]
			def, err := bridge.ToFunction(m.from, m.spec)
			if err != nil {
				c.Fail(err)
				return nil
			}
			for name, value := range m.keep.GetAttr() {
				if def.Attr == nil {
					def.Attr = map[string]*attrvalue.AttrValue{}
				}
				if !slices.Contains(notKept, name) && def.Attr[name] == nil {
					def.Attr[name] = value
				}
			}
			defs = append(defs, def)
		}
		renamed, err := bridge.AddFunctions(c.TF(), defs...)
		if err != nil {
			c.Fail(err)
			return nil
		}
		for k := i; k < len(list); k++ {
			if fresh, ok := renamed[names[k]]; ok && list[k].from == m.from {
				names[k] = fresh
			}
		}
	}
	return names
}

// arrivedAt are the outputs that a gradient has arrived at and that the body can
// be differentiated from.
func (c *Context) arrivedAt(b *bridge.Body) []int {
	arrived := make([]bool, len(b.Results))
	for i := range arrived {
		arrived[i] = c.HasGrad(i)
	}
	return where(arrived, differentiableResults(b))
}

// wantedArgs are the arguments of the functions whose gradient is wanted; first is
// the place of the first among the inputs.
func (c *Context) wantedArgs(first int) []int {
	var xs []int
	for i := first; i < len(c.Inputs); i++ {
		if c.Wants(i) {
			xs = append(xs, i-first)
		}
	}
	return xs
}

// carry is the attributes of the forward operation that hold for the backward one.
func (c *Context) carry(names ...string) []raw.Attr {
	var attrs []raw.Attr
	all, err := bridge.Attrs(c.Op)
	if err != nil {
		c.Fail(err)
	}
	for _, a := range all {
		if slices.Contains(names, a.Name) || a.Name == "_lower_using_switch_merge" ||
			strings.HasPrefix(a.Name, "_Xla") || strings.HasPrefix(a.Name, "_xla") {
			attrs = append(attrs, a)
		}
	}
	return attrs
}

// extend gives the operation of c other attributes, and the outputs and inputs
// that follow from them.
func (c *Context) extend(e bridge.Extension) {
	if c.Err() == nil {
		if err := bridge.ExtendOperation(c.Op, e); err != nil {
			c.Fail(err)
		}
	}
}

// free is c's scope without control dependencies: for what forward operations get
// as inputs.
func (c *Context) free() Scope {
	if s, ok := c.Scope.(interface{ Free() Scope }); ok {
		return s.Free()
	}
	return c.Scope
}
