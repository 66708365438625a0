package gradients

import (
	"fmt"
	"math"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Scope is where gradient nodes are added: a place in a graph with a name
// prefix and a device. An error sticks to it: once Err is not nil, Add adds
// nothing and returns nil.
type Scope interface {
	raw.Builder
	// Err is the first error of Add or Fail.
	Err() error
	// Fail makes err the scope's error unless it has one.
	Fail(err error)
	// TF is the graph.
	TF() *tf.Graph
	// Sub opens a new sub-scope; name may contain slashes and is made unique.
	Sub(name string) Scope
	// On is the same scope with its nodes on a device; "" is no wish.
	On(device string) Scope
}

// Context is what a gradient function works with: the operation, the gradients
// of its outputs, and the scope that new nodes go to. Its helpers take and
// return the zero Output freely once the scope has failed.
type Context struct {
	Scope
	Op      *tf.Operation
	Inputs  []tf.Output
	Outputs []tf.Output
	// Grads holds the gradient of each output; none for an output the ys do
	// not depend on.
	Grads []Gradient

	wanted []bool // by input; nil: all
	shared *shared
	walk   *walk // the computation and its node, for operations that call functions
	node   *node
}

// shared is what all contexts of one computation have in common: nodes that
// would otherwise be added again for every operation.
type shared struct {
	root   Scope
	consts map[string]tf.Output
	shapes map[shapeKey]tf.Output
	static map[bridge.OutputKey]bridge.Shape
	ints   map[bridge.OutputKey][]int64
	sizes  map[bridge.OutputKey][]size
	source string // names this computation to TensorArrays
}

type shapeKey struct {
	of    bridge.OutputKey
	dtype tf.DataType
}

func newShared(root Scope) *shared {
	return &shared{
		root:   root,
		consts: map[string]tf.Output{},
		shapes: map[shapeKey]tf.Output{},
		static: map[bridge.OutputKey]bridge.Shape{},
		ints:   map[bridge.OutputKey][]int64{},
		sizes:  map[bridge.OutputKey][]size{},
	}
}

// contextFor is a Context without an operation, for code that only needs the
// helpers.
func contextFor(s Scope) *Context {
	if c, ok := s.(*Context); ok {
		return c
	}
	return &Context{Scope: s, shared: newShared(s)}
}

// MarkedGradient makes a Context a [Marker] where its scope is one.
func (c *Context) MarkedGradient(name string) (Marked, bool) {
	if m, ok := c.Scope.(Marker); ok {
		return m.MarkedGradient(name)
	}
	return Marked{}, false
}

// Input is input i, the zero Output when the operation has fewer.
func (c *Context) Input(i int) tf.Output { return at(c.Inputs, i) }

// Output is output i, the zero Output when the operation has fewer.
func (c *Context) Output(i int) tf.Output { return at(c.Outputs, i) }

func at[T any](list []T, i int) T {
	if i < 0 || i >= len(list) {
		var zero T
		return zero
	}
	return list[i]
}

// Grad is the dense gradient of output i, of that output's shape: zeros when
// the ys do not depend on it.
func (c *Context) Grad(i int) tf.Output {
	g := at(c.Grads, i)
	if g.IsNone() {
		return c.ZerosLike(c.Output(i))
	}
	return Densify(c, g)
}

// HasGrad reports whether the ys depend on output i.
func (c *Context) HasGrad(i int) bool { return !at(c.Grads, i).IsNone() }

// Wants reports whether anything depends on the gradient of input i; a
// function may leave out what nobody wants.
func (c *Context) Wants(i int) bool {
	return c.wanted == nil || i < len(c.wanted) && c.wanted[i]
}

// Attributes of c.Op. An attribute that does not exist, or is of another kind,
// is an error of the scope.

func (c *Context) AttrBool(name string) bool          { return attr(c, name, bridge.AttrBool) }
func (c *Context) AttrInt(name string) int64          { return attr(c, name, bridge.AttrInt) }
func (c *Context) AttrInts(name string) []int64       { return attr(c, name, bridge.AttrInts) }
func (c *Context) AttrFloat(name string) float32      { return attr(c, name, bridge.AttrFloat) }
func (c *Context) AttrString(name string) string      { return attr(c, name, bridge.AttrString) }
func (c *Context) AttrType(name string) tf.DataType   { return attr(c, name, bridge.AttrType) }
func (c *Context) AttrShape(name string) bridge.Shape { return attr(c, name, bridge.AttrShape) }

func attr[T any](c *Context, name string, get func(*tf.Operation, string) (T, error)) T {
	v, err := get(c.Op, name)
	if err != nil {
		c.Fail(err)
	}
	return v
}

// dense makes the result of a gradient function from dense gradients, one per
// input; a zero Output is no gradient.
func dense(grads ...tf.Output) []Gradient {
	out := make([]Gradient, len(grads))
	for i, g := range grads {
		out[i].Dense = g
	}
	return out
}

// nth is a result in which only input i has a gradient.
func nth(i int, g tf.Output) []Gradient {
	out := make([]Gradient, i+1)
	out[i].Dense = g
	return out
}

// none is an input without a gradient.
var none tf.Output

// Arithmetic. Broadcasting is TensorFlow's.

func (c *Context) Plus(a, b tf.Output) tf.Output  { return raw.AddV2(c, a, b) }
func (c *Context) Minus(a, b tf.Output) tf.Output { return raw.Sub(c, a, b) }
func (c *Context) Mul(a, b tf.Output) tf.Output   { return raw.Mul(c, a, b) }
func (c *Context) Div(a, b tf.Output) tf.Output   { return raw.RealDiv(c, a, b) }
func (c *Context) Pow(a, b tf.Output) tf.Output   { return raw.Pow(c, a, b) }
func (c *Context) Neg(a tf.Output) tf.Output      { return raw.Neg(c, a) }
func (c *Context) Square(a tf.Output) tf.Output   { return raw.Square(c, a) }
func (c *Context) Exp(a tf.Output) tf.Output      { return raw.Exp(c, a) }
func (c *Context) Log(a tf.Output) tf.Output      { return raw.Log(c, a) }

// Product multiplies several tensors from left to right.
func (c *Context) Product(first tf.Output, rest ...tf.Output) tf.Output {
	for _, t := range rest {
		first = c.Mul(first, t)
	}
	return first
}

// Times multiplies by a number, in t's dtype.
func (c *Context) Times(factor float64, t tf.Output) tf.Output {
	return c.Mul(t, c.NumberLike(factor, t))
}

// Shift adds a number, in t's dtype.
func (c *Context) Shift(t tf.Output, number float64) tf.Output {
	return c.Plus(t, c.NumberLike(number, t))
}

// Conj is the complex conjugate; a real tensor is returned as it is.
func (c *Context) Conj(t tf.Output) tf.Output {
	if t.Op == nil || !bridge.IsComplex(t.DataType()) {
		return t
	}
	return raw.Conj(c, t)
}

// Cast converts to a dtype; a tensor that has it is returned as it is.
func (c *Context) Cast(t tf.Output, dt tf.DataType) tf.Output {
	if t.Op == nil || t.DataType() == dt {
		return t
	}
	return raw.Cast(c, t, dt)
}

// Where is a where cond holds, else b; all three broadcast.
func (c *Context) Where(cond, a, b tf.Output) tf.Output { return raw.SelectV2(c, cond, a, b) }

// Constants. Equal ones are one node within a computation.

// Number is a scalar constant of a numeric dtype.
func (c *Context) Number(dt tf.DataType, v float64) tf.Output {
	return c.constant(fmt.Sprintf("%d %x", dt, math.Float64bits(v)), func() (*bridge.Tensor, error) {
		return scalar(dt, v)
	})
}

// NumberLike is a scalar constant of t's dtype.
func (c *Context) NumberLike(v float64, t tf.Output) tf.Output {
	if t.Op == nil {
		return t
	}
	return c.Number(bridge.BaseDType(t.DataType()), v)
}

// Int is an int32 or int64 scalar constant.
func (c *Context) Int(dt tf.DataType, v int64) tf.Output {
	return c.constant(fmt.Sprintf("%d i%d", dt, v), func() (*bridge.Tensor, error) {
		return intTensor(dt, bridge.Shape{}, []int64{v})
	})
}

// Ints is an int32 or int64 vector constant, as axes and shapes are given.
func (c *Context) Ints(dt tf.DataType, v ...int64) tf.Output {
	return c.constant(fmt.Sprintf("%d v%d", dt, v), func() (*bridge.Tensor, error) {
		return intTensor(dt, bridge.Shape{int64(len(v))}, v)
	})
}

// IntPairs is an int32 or int64 constant of shape [n, 2] given row by row, as
// paddings are.
func (c *Context) IntPairs(dt tf.DataType, v ...int64) tf.Output {
	return c.constant(fmt.Sprintf("%d p%d", dt, v), func() (*bridge.Tensor, error) {
		return intTensor(dt, bridge.Shape{int64(len(v)) / 2, 2}, v)
	})
}

// constant adds a Const node once for each key.
func (c *Context) constant(key string, value func() (*bridge.Tensor, error)) tf.Output {
	if t, ok := c.shared.consts[key]; ok {
		return t
	}
	v, err := value()
	if err != nil {
		c.Fail(err)
		return tf.Output{}
	}
	defer v.Close()
	t := raw.Const(c.shared.root, v, v.DType())
	if t.Op != nil {
		c.shared.consts[key] = t
	}
	return t
}

func intTensor(dt tf.DataType, shape bridge.Shape, v []int64) (*bridge.Tensor, error) {
	if dt == tf.Int64 {
		return bridge.FromFlat(shape, v)
	}
	small := make([]int32, len(v))
	for i, n := range v {
		if n != int64(int32(n)) {
			return nil, fmt.Errorf("gradients: %d does not fit the int32 of a shape", n)
		}
		small[i] = int32(n)
	}
	return bridge.FromFlat(shape, small)
}

// Shapes. Everything that is known before a run becomes a constant.

// Static is what is known of t's shape before a run; nil for an unknown rank.
func (c *Context) Static(t tf.Output) bridge.Shape {
	if t.Op == nil {
		return nil
	}
	key := bridge.Key(t)
	if s, ok := c.shared.static[key]; ok {
		return s
	}
	s := bridge.ShapeOf(t)
	c.shared.static[key] = s
	return s
}

// ConstInts is the value of an int32 or int64 tensor that is known before a
// run, flattened: a constant, or the shape of a tensor of fully known shape.
func (c *Context) ConstInts(t tf.Output) ([]int64, bool) {
	if t.Op == nil {
		return nil, false
	}
	key := bridge.Key(t)
	if v, ok := c.shared.ints[key]; ok {
		return v, v != nil
	}
	v := c.constInts(t)
	c.shared.ints[key] = v
	return v, v != nil
}

func (c *Context) constInts(t tf.Output) []int64 {
	switch t.Op.Type() {
	case "Shape", "ShapeN":
		if s := c.Static(bridge.Input(t.Op, t.Index)); s.FullyDefined() {
			return append([]int64{}, s...)
		}
		return nil
	case "Const", "Identity", "ReadVariableOp":
	default:
		return nil
	}
	v, ok, err := bridge.ConstantValue(t)
	if err != nil || !ok {
		return nil
	}
	defer v.Close()
	out := []int64{}
	switch v.DType() {
	case tf.Int64:
		flat, err := bridge.Flat[int64](v)
		if err != nil {
			return nil
		}
		out = append(out, flat...)
	case tf.Int32:
		flat, err := bridge.Flat[int32](v)
		if err != nil {
			return nil
		}
		for _, n := range flat {
			out = append(out, int64(n))
		}
	default:
		return nil
	}
	return out
}

// Shape is t's shape as an int32 vector, a constant when it is known.
func (c *Context) Shape(t tf.Output) tf.Output { return c.ShapeAs(t, tf.Int32) }

// ShapeAs is t's shape as a vector of int32 or int64.
func (c *Context) ShapeAs(t tf.Output, dt tf.DataType) tf.Output {
	if t.Op == nil {
		return t
	}
	if s := c.Static(t); s.FullyDefined() {
		return c.Ints(dt, s...)
	}
	key := shapeKey{bridge.Key(t), dt}
	if s, ok := c.shared.shapes[key]; ok {
		return s
	}
	s := raw.Shape(c.shared.root, t, raw.WithOutType(dt))
	c.shared.shapes[key] = s
	return s
}

// Rank is t's rank as an int32 scalar, a constant when it is known.
func (c *Context) Rank(t tf.Output) tf.Output {
	if s := c.Static(t); s != nil {
		return c.Int(tf.Int32, int64(len(s)))
	}
	return raw.Rank(c, t)
}

// Size is t's number of elements as an int32 scalar, a constant when it is
// known.
func (c *Context) Size(t tf.Output) tf.Output {
	if n, ok := c.Static(t).NumElements(); ok {
		return c.Int(tf.Int32, n)
	}
	return raw.Size(c, t)
}

// Dim is element i of a vector (of a shape: the size of dimension i); a
// negative i counts from the end.
func (c *Context) Dim(vector tf.Output, i int64) tf.Output {
	if v, ok := c.ConstInts(vector); ok {
		if i < 0 {
			i += int64(len(v))
		}
		if i >= 0 && i < int64(len(v)) {
			return c.Int(vector.DataType(), v[i])
		}
	}
	return raw.StridedSlice(c, vector, c.Ints(tf.Int32, i), c.Ints(tf.Int32, i+1), c.Ints(tf.Int32, 1),
		raw.WithShrinkAxisMask(1), raw.WithEndMask(endMask(i)))
}

// endMask is 1 where the slice [i, i+1) of a negative i reaches the end.
func endMask(i int64) int64 {
	if i == -1 {
		return 1
	}
	return 0
}

// Part is vector[from:to]; a negative bound counts from the end, and a to of
// 0 means up to the end.
func (c *Context) Part(vector tf.Output, from, to int64) tf.Output {
	if v, ok := c.ConstInts(vector); ok {
		n := int64(len(v))
		lo, hi := from, to
		if lo < 0 {
			lo = max(lo+n, 0)
		}
		if hi <= 0 {
			hi += n
		}
		lo, hi = min(lo, n), min(max(hi, 0), n)
		return c.Ints(vector.DataType(), v[lo:max(lo, hi)]...)
	}
	mask := int64(0)
	if to == 0 {
		mask = 1
	}
	return raw.StridedSlice(c, vector, c.Ints(tf.Int32, from), c.Ints(tf.Int32, to), c.Ints(tf.Int32, 1),
		raw.WithEndMask(mask))
}

// Join concatenates vectors of one integer dtype; a constant when all are.
func (c *Context) Join(vectors ...tf.Output) tf.Output {
	var all []int64
	known := true
	for _, v := range vectors {
		part, ok := c.ConstInts(v)
		if known = known && ok; !known {
			break
		}
		all = append(all, part...)
	}
	if known && len(vectors) > 0 && vectors[0].Op != nil {
		return c.Ints(vectors[0].DataType(), all...)
	}
	if len(vectors) == 1 {
		return vectors[0]
	}
	return raw.ConcatV2(c, vectors, c.Int(tf.Int32, 0))
}

// Reshape gives t the shape, an int32 or int64 vector; t itself when it has it.
func (c *Context) Reshape(t, shape tf.Output) tf.Output {
	if want, ok := c.ConstInts(shape); ok {
		if have := c.Static(t); have.FullyDefined() && slices.Equal(have, bridge.Shape(want)) {
			return t
		}
	}
	return raw.Reshape(c, t, shape)
}

// Flat is t as a vector.
func (c *Context) Flat(t tf.Output) tf.Output {
	if s := c.Static(t); len(s) == 1 {
		return t
	}
	return raw.Reshape(c, t, c.Ints(tf.Int32, -1))
}

// ReshapeLike gives t the shape of like.
func (c *Context) ReshapeLike(t, like tf.Output) tf.Output {
	s := c.Static(like)
	if s.FullyDefined() {
		return c.Reshape(t, c.Ints(tf.Int32, s...))
	}
	// One unknown dimension can be left to Reshape, unless a zero makes it
	// ambiguous.
	unknown, zero := 0, false
	for _, d := range s {
		if d < 0 {
			unknown++
		}
		zero = zero || d == 0
	}
	if s != nil && unknown == 1 && !zero {
		return raw.Reshape(c, t, c.Ints(tf.Int32, s...))
	}
	return raw.Reshape(c, t, c.Shape(like))
}

// Full is a tensor of like's shape and dtype filled with a number. Where the
// shape is known it is a Fill of constants, which TensorFlow folds.
func (c *Context) Full(v float64, like tf.Output) tf.Output {
	if like.Op == nil {
		return like
	}
	if s := c.Static(like); s != nil && len(s) == 0 {
		return c.NumberLike(v, like)
	}
	return raw.Fill(c, c.Shape(like), c.NumberLike(v, like))
}

// ZerosLike is zeros of like's shape and dtype.
func (c *Context) ZerosLike(like tf.Output) tf.Output {
	if like.Op == nil {
		return like
	}
	if s := c.Static(like); s.FullyDefined() && isNumber(like.DataType()) {
		return c.Full(0, like)
	}
	return raw.ZerosLike(c, like)
}

// OnesLike is ones of like's shape and dtype.
func (c *Context) OnesLike(like tf.Output) tf.Output {
	if like.Op == nil {
		return like
	}
	if s := c.Static(like); s.FullyDefined() && isNumber(like.DataType()) {
		return c.Full(1, like)
	}
	return raw.OnesLike(c, like)
}

// SameShape reports whether two tensors are known to have equal shapes, be
// their sizes known or not.
func (c *Context) SameShape(a, b tf.Output) bool {
	if a.Op == nil || b.Op == nil {
		return false
	}
	if bridge.SameOutput(a, b) {
		return true
	}
	sa, sb := c.sizes(a), c.sizes(b)
	return sa != nil && sb != nil && slices.Equal(sa, sb)
}

// ReduceTo undoes a broadcast: it sums grad over the dimensions in which x was
// stretched and gives it x's shape. others are the tensors that x was
// broadcast against; with them, or when grad's shape is known, most cases are
// decided here and need no BroadcastGradientArgs in the graph.
func (c *Context) ReduceTo(grad, x tf.Output, others ...tf.Output) tf.Output {
	if grad.Op == nil || x.Op == nil {
		return tf.Output{}
	}
	same := len(others) > 0
	for _, o := range others {
		same = same && c.SameShape(o, x)
	}
	if same {
		return grad
	}
	shapes := make([][]size, len(others))
	for i, o := range others {
		shapes[i] = c.sizes(o)
	}
	return c.reduceTo(grad, x, shapes)
}

// reduceTo is [Context.ReduceTo] with the other operands given as what is
// known of their shapes.
func (c *Context) reduceTo(grad, x tf.Output, others [][]size) tf.Output {
	if grad.Op == nil || x.Op == nil {
		return tf.Output{}
	}
	if c.SameShape(grad, x) {
		return grad
	}
	if axes, ok := c.broadcastAxes(grad, x, others); ok {
		if len(axes) == 0 {
			return grad
		}
		return c.sumAxes(grad, x, axes)
	}
	shape := c.Shape(x)
	axes, _ := raw.BroadcastGradientArgs(c, shape, c.Shape(grad))
	return raw.Reshape(c, raw.Sum(c, grad, axes, raw.WithKeepDims(true)), shape)
}

// broadcastAxes lists the axes of grad along which x was stretched; ok is
// false when that can't be told before a run.
func (c *Context) broadcastAxes(grad, x tf.Output, others [][]size) (axes []int64, ok bool) {
	xs, gs := c.sizes(x), c.sizes(grad)
	if xs == nil {
		return nil, false
	}
	known := len(others) > 0 // what x was broadcast against
	rank := len(xs)
	for _, s := range others {
		known = known && s != nil
		rank = max(rank, len(s))
	}
	switch {
	case gs != nil:
		rank = len(gs)
	case !known:
		return nil, false
	}
	if rank < len(xs) {
		return nil, false
	}
	// Aligned from the last dimension; a missing one is 1.
	for axis := range rank {
		if axis < rank-len(xs) {
			axes = append(axes, int64(axis))
			continue
		}
		xd := alignedSize(xs, axis, rank)
		stretched := !known // could another operand have another size than 1 or x's here?
		for _, s := range others {
			d := alignedSize(s, axis, rank)
			stretched = stretched || s == nil || d != one && d != xd
		}
		if gs != nil && (gs[axis] == one || gs[axis] == xd) {
			stretched = false
		}
		switch {
		case !stretched || xd.n > 1 || xd.n == 0:
		case xd == one:
			// Summing over a dimension that turns out to be 1 changes nothing.
			axes = append(axes, int64(axis))
		default:
			return nil, false
		}
	}
	return axes, true
}

// sumAxes sums grad over axes and gives the result x's shape, with as few
// nodes as that takes.
func (c *Context) sumAxes(grad, x tf.Output, axes []int64) tf.Output {
	xs := c.Static(x)
	leading := true
	for i, a := range axes {
		leading = leading && a == int64(i)
	}
	idx := c.Ints(tf.Int32, axes...)
	gs := c.Static(grad)
	switch {
	case gs != nil && leading && len(gs)-len(axes) == len(xs):
		return raw.Sum(c, grad, idx)
	case gs != nil && len(gs) == len(xs):
		return raw.Sum(c, grad, idx, raw.WithKeepDims(true))
	}
	return c.ReshapeLike(raw.Sum(c, grad, idx, raw.WithKeepDims(true)), x)
}

// isNumber reports whether [Context.Number] can make a constant of dt.
func isNumber(dt tf.DataType) bool {
	switch dt {
	case tf.Half, tf.Bfloat16, tf.Float, tf.Double, tf.Complex64, tf.Complex128,
		tf.Int8, tf.Int16, tf.Int32, tf.Int64, tf.Uint8, tf.Uint16, tf.Uint32, tf.Uint64, tf.Bool:
		return true
	}
	return false
}

// scalar is a rank 0 tensor of dtype dt, rounded as a cast would.
func scalar(dt tf.DataType, v float64) (*bridge.Tensor, error) {
	switch dt {
	case tf.Half:
		return bridge.Scalar(bridge.HalfFromFloat32(float32(v)))
	case tf.Bfloat16:
		return bridge.Scalar(bridge.BFloat16FromFloat32(float32(v)))
	case tf.Float:
		return bridge.Scalar(float32(v))
	case tf.Double:
		return bridge.Scalar(v)
	case tf.Complex64:
		return bridge.Scalar(complex(float32(v), 0))
	case tf.Complex128:
		return bridge.Scalar(complex(v, 0))
	case tf.Int8:
		return bridge.Scalar(int8(v))
	case tf.Int16:
		return bridge.Scalar(int16(v))
	case tf.Int32:
		return bridge.Scalar(int32(v))
	case tf.Int64:
		return bridge.Scalar(int64(v))
	case tf.Uint8:
		return bridge.Scalar(uint8(v))
	case tf.Uint16:
		return bridge.Scalar(uint16(v))
	case tf.Uint32:
		return bridge.Scalar(uint32(v))
	case tf.Uint64:
		return bridge.Scalar(uint64(v))
	case tf.Bool:
		return bridge.Scalar(v != 0)
	}
	return nil, fmt.Errorf("gradients: no constant %g of dtype %s", v, bridge.DTypeName(dt))
}
