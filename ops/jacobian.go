package ops

import (
	"fmt"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Jacobian adds the derivative of every element of y by every element of each
// x: a tensor of shape [y's shape, x's shape] for each x, Python's
// GradientTape.jacobian. An x may be a variable's handle. Shapes need not be
// known before a run. An x that y does not depend on has no gradient, or zeros
// on demand.
//
// The gradient is built once and runs in a loop over the elements of y; what it
// has in common for all of them is computed once, before. A Jacobian can be
// differentiated again.
//
// Of the options, GradYs make no sense and are an error. What can't be
// differentiated is a *gradients.MissingGradientError, and nothing has been
// added then.
func Jacobian(s *Scope, y tf.Output, xs []tf.Output, options ...GradientOptions) ([]Gradient, error) {
	o, err := jacobianOptions(s, "Jacobian", options)
	if err != nil {
		return nil, err
	}
	rows, in, err := gradientRows(s, "jacobian", y, xs, o, func(in *Scope) (tf.Output, seed) {
		n := in.size(in.shapeOf(y))
		return n, func(at *Scope, i tf.Output) tf.Output {
			return raw.Reshape(at, at.oneHot(i, n, y.DataType()), in.shapeOf(y))
		}
	})
	if err != nil {
		return nil, err
	}
	for i, x := range xs {
		if stacked := rows[i].Dense; stacked.Op != nil {
			rows[i].Dense = raw.Reshape(in, stacked, in.join(in.shapeOf(y), in.shapeOf(x)))
		}
	}
	return rows, in.Err()
}

// BatchJacobian is the [Jacobian] of a y by an x that are computed row by row,
// y [batch, y…] and x [batch, x…]: the derivatives of each row of y by the same
// row of x, [batch, y…, x…], Python's GradientTape.batch_jacobian. It costs as
// many gradients as a row of y has elements. Where a row of y depends on other
// rows of x, as in batch normalization, the derivatives by all rows are added up.
func BatchJacobian(s *Scope, y, x tf.Output, options ...GradientOptions) (Gradient, error) {
	o, err := jacobianOptions(s, "BatchJacobian", options)
	if err != nil {
		return Gradient{}, err
	}
	if bridge.Valid(y) && bridge.Valid(x) {
		ys, xs := bridge.ShapeOf(y), bridge.ShapeOf(x)
		if ys != nil && len(ys) == 0 || xs != nil && len(xs) == 0 {
			return Gradient{}, fmt.Errorf("BatchJacobian: y has shape %v and x %v, both need a first dimension, the batch", ys, xs)
		}
		if len(ys) > 0 && len(xs) > 0 && !ys[:1].CompatibleWith(xs[:1]) {
			return Gradient{}, fmt.Errorf("BatchJacobian: y has shape %v and x %v, the batches differ", ys, xs)
		}
	}
	var batch, inner, n tf.Output
	rows, in, err := gradientRows(s, "batch_jacobian", y, []tf.Output{x}, o, func(in *Scope) (tf.Output, seed) {
		batch, inner = in.part(in.shapeOf(y), 0, 1), in.part(in.shapeOf(y), 1, 0)
		n = in.size(inner)
		return n, func(at *Scope, i tf.Output) tf.Output {
			row := at.oneHot(i, n, y.DataType())
			all := raw.BroadcastTo(at, row, in.join(batch, in.vector(n)))
			return raw.Reshape(at, all, in.shapeOf(y))
		}
	})
	if err != nil || rows[0].IsNone() {
		return Gradient{}, err
	}
	// [y…, batch, x…] → [batch, y…, x…]
	rest := in.part(in.shapeOf(x), 1, 0)
	flat := raw.Reshape(in, rows[0].Dense, in.join(in.vector(n), batch, in.vector(in.size(rest))))
	byRow := raw.Transpose(in, flat, in.ints("perm", 1, 0, 2))
	return Gradient{Dense: raw.Reshape(in, byRow, in.join(batch, inner, rest))}, in.Err()
}

// Hessians adds the second derivatives of the sum of the ys by the elements of
// each x with themselves: [x's shape, x's shape] for each x, Python's
// tf.hessians; derivatives by two different xs are not among them. An x without
// second derivatives, such as one that the ys are linear in, has no gradient, or
// zeros on demand.
//
// The first gradient is built before it is known whether it can be
// differentiated in turn, and stays in the graph if not.
func Hessians(s *Scope, ys, xs []tf.Output, options ...GradientOptions) ([]Gradient, error) {
	o, err := jacobianOptions(s, "Hessians", options)
	if err != nil {
		return nil, err
	}
	in := s.NameScope("hessians")
	firsts, err := Gradients(in, ys, xs, GradientOptions{StopGradients: o.StopGradients, Zeros: o.Zeros})
	if err != nil {
		return nil, err
	}
	result := make([]Gradient, len(xs))
	for i, g := range firsts {
		if g.IsNone() {
			continue
		}
		byX, err := Jacobian(in, Densify(in, g), xs[i:i+1], GradientOptions{StopGradients: o.StopGradients, Zeros: o.Zeros})
		if err != nil {
			return nil, err
		}
		result[i] = byX[0]
	}
	return result, in.Err()
}

// HessianVectorProduct adds the product of the Hessian of the sum of the ys by
// all xs together with a vector that is given in parts, vs, of the shapes and
// dtypes of the xs: one tensor of x's shape for each x. It is the gradient of
// the gradient's product with the vector, which never forms the Hessian. An x
// without second derivatives has no gradient, or zeros on demand.
//
// The first gradient is built before it is known whether it can be
// differentiated in turn, and stays in the graph if not.
func HessianVectorProduct(s *Scope, ys, xs, vs []tf.Output, options ...GradientOptions) ([]Gradient, error) {
	o, err := jacobianOptions(s, "HessianVectorProduct", options)
	if err != nil {
		return nil, err
	}
	if len(vs) != len(xs) {
		return nil, fmt.Errorf("HessianVectorProduct: %d parts of the vector for %d xs", len(vs), len(xs))
	}
	if err := checkTensors(s.graph.tf, "part", vs); err != nil {
		return nil, fmt.Errorf("HessianVectorProduct: %w", err)
	}
	in := s.NameScope("hessian_vector_product")
	firsts, err := Gradients(in, ys, xs, GradientOptions{StopGradients: o.StopGradients})
	if err != nil {
		return nil, err
	}
	var grads []tf.Output
	second := GradientOptions{StopGradients: o.StopGradients, Zeros: o.Zeros}
	for i, g := range firsts {
		if !g.IsNone() {
			grads = append(grads, Densify(in, g))
			second.GradYs = append(second.GradYs, Gradient{Dense: vs[i]})
		}
	}
	if len(grads) == 0 {
		return Gradients(in, ys, xs, GradientOptions{Zeros: o.Zeros}) // none, or zeros
	}
	return Gradients(in, grads, xs, second)
}

func jacobianOptions(s *Scope, what string, options []GradientOptions) (GradientOptions, error) {
	var o GradientOptions
	switch {
	case !s.ok():
		return o, errNoGraph
	case len(options) > 1:
		return o, fmt.Errorf("%s: %d GradientOptions given, wanted at most one", what, len(options))
	case len(options) == 1:
		o = options[0]
	}
	if o.GradYs != nil {
		return o, fmt.Errorf("%s: GradYs are given, but the derivatives of every element are asked for", what)
	}
	return o, s.Err()
}

// seed makes the gradient of y that stands for its i-th element, an int32 scalar.
type seed func(at *Scope, i tf.Output) tf.Output

// gradientRows adds a loop over n seeds and returns for each x the gradients
// stacked, [n, x's shape], and the scope that it has made for itself.
//
// The gradient for seed 0 is built in the graph as any other. The operations of
// it that depend on the number of the seed are made into the body of a loop;
// nobody uses them afterwards where they stand.
func gradientRows(s *Scope, name string, y tf.Output, xs []tf.Output, o GradientOptions, seeds func(in *Scope) (n tf.Output, f seed)) ([]Gradient, *Scope, error) {
	settings := gradients.Options{StopGradients: o.StopGradients}
	reached, err := gradients.Reached(GradientScope(s), []tf.Output{y}, xs, settings)
	if err != nil {
		return nil, nil, err
	}
	var active, others []tf.Output
	for i, x := range xs {
		if reached[i] {
			active = append(active, x)
		} else {
			others = append(others, x)
		}
	}
	if o.Name != "" {
		name = o.Name
	}
	in := s.NameScope(name)
	n, seedAt := seeds(in)
	var found []tf.Output // [n, x's shape], of the active ones
	if len(active) > 0 {
		if found, err = in.loopOverSeeds(y, active, n, seedAt, settings); err != nil {
			return nil, nil, err
		}
	}
	var zeros []Gradient
	if o.Zeros && len(others) > 0 {
		if zeros, err = Gradients(in, []tf.Output{y}, others, GradientOptions{Zeros: true, StopGradients: o.StopGradients,
			GradYs: []Gradient{{Dense: raw.ZerosLike(in, y)}}}); err != nil {
			return nil, nil, err
		}
	}
	rows := make([]Gradient, len(xs))
	for i, x := range xs {
		switch {
		case reached[i]:
			rows[i].Dense, found = found[0], found[1:]
		case o.Zeros:
			rows[i].Dense = raw.BroadcastTo(in, zeros[0].Dense, in.join(in.vector(n), in.shapeOf(x)))
			zeros = zeros[1:]
		}
	}
	return rows, in, in.Err()
}

// loopOverSeeds is the loop of gradientRows, over xs that y depends on.
func (s *Scope) loopOverSeeds(y tf.Output, xs []tf.Output, n tf.Output, seedAt seed, o gradients.Options) ([]tf.Output, error) {
	lists := make([]tf.Output, len(xs))
	shapes := make([]tf.Output, len(xs))
	dtypes := make([]tf.DataType, len(xs))
	for i, x := range xs {
		if dtypes[i] = x.DataType(); dtypes[i] == bridge.Resource {
			v := s.graph.variableOf(x)
			if v == nil {
				return nil, fmt.Errorf("x %d (%s) is not the handle of a variable of this graph", i, x.Op.Name())
			}
			dtypes[i] = v.dtype
		}
		shapes[i] = s.shapeOf(x)
		lists[i] = raw.TensorListReserve(s, shapes[i], n, dtypes[i])
	}

	at := s.WithoutControl().NameScope("body")
	index := at.number("i", tf.Int32, 0)
	body := beginSegment(s.graph)
	inside := []tf.Output{at.add1(index), n} // what the loop carries on
	grads, err := gradients.Compute(GradientScope(at), []tf.Output{y}, []gradients.Gradient{{Dense: seedAt(at, index)}}, xs, o)
	if err != nil {
		return nil, err
	}
	for i, g := range grads {
		if g.IsNone() {
			return nil, fmt.Errorf("the gradient by x %d (%s:%d) came to nothing", i, xs[i].Op.Name(), xs[i].Index)
		}
		inside = append(inside, raw.TensorListSetItem(at, lists[i], index, Densify(at, g)))
	}
	more := raw.Less(at, index, n)
	if err := s.Err(); err != nil {
		return nil, err
	}

	carried := append([]tf.Output{index, n}, lists...)
	inner, taken := body.dependentOn(index, carried)
	carried, inside = append(carried, taken...), append(inside, taken...)
	base := strings.ReplaceAll(s.path, "/", "_")
	bodyDef, err := bridge.ToFunction(s.graph.tf, bridge.FunctionSpec{Name: base + "_body", Inputs: carried, Outputs: inside, Ops: inner})
	if err != nil {
		return nil, err
	}
	condDef, err := bridge.ToFunction(s.graph.tf, bridge.FunctionSpec{Name: base + "_cond", Inputs: carried, Outputs: []tf.Output{more}, Ops: []*tf.Operation{more.Op}})
	if err != nil {
		return nil, err
	}
	renamed, err := bridge.AddFunctions(s.graph.tf, bodyDef, condDef)
	if err != nil {
		return nil, err
	}
	call := func(name string) bridge.Func {
		if other, ok := renamed[name]; ok {
			name = other
		}
		return bridge.Func{Name: name}
	}
	while := raw.StatelessWhile
	for _, op := range inner {
		if hasState(op) {
			while = raw.While
		}
	}
	static := make([]Shape, len(carried))
	for i, t := range carried {
		static[i] = bridge.ShapeOf(t)
	}
	out := while(s, carried, call(condDef.Signature.Name), call(bodyDef.Signature.Name), raw.WithOutputShapes(static))
	if err := s.Err(); err != nil {
		return nil, err
	}
	count := int64(-1)
	if v, ok, err := bridge.ConstantValue(n); err == nil && ok {
		if flat, err := bridge.Flat[int32](v); err == nil {
			count = int64(flat[0])
		}
		v.Close()
	}
	stacked := make([]tf.Output, len(xs))
	for i := range xs {
		stacked[i] = raw.TensorListStack(s, out[2+i], shapes[i], dtypes[i], raw.WithNumElements(count))
	}
	return stacked, s.Err()
}

// dependentOn is what of a segment depends on a tensor, with the constants that
// it needs, and what that takes from elsewhere beside the tensors given.
func (s *segment) dependentOn(t tf.Output, given []tf.Output) (ops []*tf.Operation, taken []tf.Output) {
	depends := map[bridge.OutputKey]bool{bridge.OpKey(t.Op): true}
	have := map[bridge.OutputKey]bool{}
	for _, t := range given {
		have[bridge.Key(t)] = true
	}
	constants := map[bridge.OutputKey]bool{}
	for op := range s.added() {
		inputs := bridge.Inputs(op)
		inside := false
		for _, in := range inputs {
			inside = inside || depends[bridge.OpKey(in.Op)]
		}
		if !inside {
			continue
		}
		depends[bridge.OpKey(op)] = true
		for _, in := range inputs {
			switch key := bridge.Key(in); {
			case have[key] || depends[bridge.OpKey(in.Op)]:
			case in.Op.Type() == "Const":
				if !constants[key] {
					constants[key] = true
					ops = append(ops, in.Op)
				}
			default:
				have[key] = true
				taken = append(taken, in)
			}
		}
		ops = append(ops, op)
	}
	return ops, taken
}

// variableOf is the variable behind a handle, nil for none of the graph's.
func (g *Graph) variableOf(handle tf.Output) *Variable {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byHandle[bridge.Key(handle)]
}

// shapeOf is a tensor's shape, or that of the variable behind a handle, as an
// int32 vector; a constant where it is known.
func (s *Scope) shapeOf(t tf.Output) tf.Output {
	static := bridge.ShapeOf(t)
	if t.DataType() == bridge.Resource {
		if v := s.graph.variableOf(t); v != nil {
			static = v.shape
		}
	}
	if static.FullyDefined() {
		return s.ints("shape", static...)
	}
	return raw.Shape(s, t)
}

// part is shape[from:to], to the end for a to of 0.
func (s *Scope) part(shape tf.Output, from, to int64) tf.Output {
	if dims, ok := constantInts(shape); ok {
		if to == 0 {
			to = int64(len(dims))
		}
		return s.ints("shape", dims[from:to]...)
	}
	end := int64(0)
	if to == 0 {
		end = 1
	}
	return raw.StridedSlice(s, shape, s.ints("from", from), s.ints("to", to), s.ints("by", 1), raw.WithEndMask(end))
}

// size is the number of elements of a shape, an int32 scalar.
func (s *Scope) size(shape tf.Output) tf.Output {
	if dims, ok := constantInts(shape); ok {
		if n, ok := Shape(dims).NumElements(); ok {
			return s.number("size", tf.Int32, float64(n))
		}
	}
	return raw.Prod(s, shape, s.ints("axis", 0))
}

// vector is a scalar as a vector of one element.
func (s *Scope) vector(scalar tf.Output) tf.Output {
	return raw.ExpandDims(s, scalar, s.number("axis", tf.Int32, 0))
}

func (s *Scope) join(vectors ...tf.Output) tf.Output {
	var all []int64
	known := true
	for _, v := range vectors {
		dims, ok := constantInts(v)
		all, known = append(all, dims...), known && ok
	}
	if known {
		return s.ints("shape", all...)
	}
	return raw.ConcatV2(s, vectors, s.number("axis", tf.Int32, 0))
}

func (s *Scope) oneHot(i, n tf.Output, dt tf.DataType) tf.Output {
	return raw.OneHot(s, i, n, s.number("on", dt, 1), s.number("off", dt, 0))
}

func (s *Scope) add1(i tf.Output) tf.Output { return raw.AddV2(s, i, s.number("one", tf.Int32, 1)) }

// constantInts is the value of an int32 vector that is known before a run.
func constantInts(t tf.Output) ([]int64, bool) {
	v, ok, err := bridge.ConstantValue(t)
	if err != nil || !ok {
		return nil, false
	}
	defer v.Close()
	flat, err := bridge.Flat[int32](v)
	if err != nil || len(v.Shape()) != 1 {
		return nil, false
	}
	dims := make([]int64, len(flat))
	for i, d := range flat {
		dims[i] = int64(d)
	}
	return dims, true
}
