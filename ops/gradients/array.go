package gradients

import (
	"fmt"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

func init() {
	registerShapes()
	registerJoins()
	registerSlices()
	registerGathers()
	registerPads()
	registerQuantization()
}

// Operations that only move or repeat elements: their gradient moves them
// back, and sums those that were repeated.
func registerShapes() {
	toInputShape := func(c *Context) []Gradient { return dense(c.ReshapeLike(c.Grad(0), c.Input(0))) }
	for _, name := range []string{"Reshape", "ExpandDims", "Squeeze"} {
		Register(name, toInputShape)
	}
	Register("Transpose", func(c *Context) []Gradient {
		return dense(raw.Transpose(c, c.Grad(0), c.inversePermutation(c.Input(1))))
	})
	Register("ConjugateTranspose", func(c *Context) []Gradient {
		return dense(raw.ConjugateTranspose(c, c.Grad(0), c.inversePermutation(c.Input(1))))
	})
	Register("ReverseV2", func(c *Context) []Gradient {
		return dense(raw.ReverseV2(c, c.Grad(0), c.Input(1)))
	})
	Register("Reverse", func(c *Context) []Gradient {
		return dense(raw.Reverse(c, c.Grad(0), c.Input(1)))
	})
	Register("ReverseSequence", func(c *Context) []Gradient {
		return dense(raw.ReverseSequence(c, c.Grad(0), c.Input(1), c.AttrInt("seq_dim"),
			raw.WithBatchDim(c.AttrInt("batch_dim"))))
	})
	Register("Roll", func(c *Context) []Gradient {
		return dense(raw.Roll(c, c.Grad(0), c.Neg(c.Input(1)), c.Input(2)))
	})
	Register("BroadcastTo", func(c *Context) []Gradient {
		return dense(c.ReduceTo(c.Grad(0), c.Input(0)))
	})
	Register("Tile", tileGrad)
	Register("Fill", func(c *Context) []Gradient {
		g := c.Grad(0)
		return nth(1, raw.Sum(c, g, c.allAxes(g)))
	}, 0)
	Register("Diag", func(c *Context) []Gradient { return dense(raw.DiagPart(c, c.Grad(0))) })
	Register("DiagPart", func(c *Context) []Gradient { return dense(raw.Diag(c, c.Grad(0))) })

	Register("SpaceToBatch", func(c *Context) []Gradient {
		return dense(raw.BatchToSpace(c, c.Grad(0), c.Input(1), c.AttrInt("block_size")))
	})
	Register("BatchToSpace", func(c *Context) []Gradient {
		return dense(raw.SpaceToBatch(c, c.Grad(0), c.Input(1), c.AttrInt("block_size")))
	})
	Register("SpaceToBatchND", func(c *Context) []Gradient {
		return dense(raw.BatchToSpaceND(c, c.Grad(0), c.Input(1), c.Input(2)))
	})
	Register("BatchToSpaceND", func(c *Context) []Gradient {
		return dense(raw.SpaceToBatchND(c, c.Grad(0), c.Input(1), c.Input(2)))
	})
	Register("SpaceToDepth", func(c *Context) []Gradient {
		return dense(raw.DepthToSpace(c, c.Grad(0), c.AttrInt("block_size"), raw.WithDataFormat(c.AttrString("data_format"))))
	})
	Register("DepthToSpace", func(c *Context) []Gradient {
		return dense(raw.SpaceToDepth(c, c.Grad(0), c.AttrInt("block_size"), raw.WithDataFormat(c.AttrString("data_format"))))
	})
	for _, name := range []string{"SpaceToDepth", "DepthToSpace"} {
		RegisterCheck(name, func(op *tf.Operation) error {
			if format, err := bridge.AttrString(op, "data_format"); err == nil && format == "NCHW_VECT_C" {
				return fmt.Errorf("data format NCHW_VECT_C is for quantized types, which have no gradient")
			}
			return nil
		})
	}
}

func (c *Context) inversePermutation(perm tf.Output) tf.Output {
	if p, ok := c.ConstInts(perm); ok {
		for i := range p {
			if p[i] < 0 {
				p = slices.Clone(p)
				p[i] += int64(len(p))
			}
		}
		return c.Ints(perm.DataType(), invert(p)...)
	}
	return raw.InvertPermutation(c, raw.FloorMod(c, perm, c.Cast(raw.Size(c, perm), perm.DataType())))
}

// tileGrad splits each dimension into copies and size and sums over copies.
func tileGrad(c *Context) []Gradient {
	x, multiples, g := c.Input(0), c.Input(1), c.Grad(0)
	shape := c.ShapeAs(x, multiples.DataType())
	var split, axes tf.Output
	if m, ok := c.ConstInts(multiples); ok && c.Static(x).FullyDefined() && len(m) == len(c.Static(x)) {
		var dims, even []int64
		for i, d := range c.Static(x) {
			even = append(even, int64(len(dims)))
			dims = append(dims, m[i], d)
		}
		split, axes = c.Ints(multiples.DataType(), dims...), c.Ints(tf.Int32, even...)
	} else {
		pairs := raw.Pack(c, []tf.Output{multiples, shape}, raw.WithAxis(1))
		split = c.Flat(pairs)
		axes = raw.Range(c, c.Int(tf.Int32, 0), c.Size(split), c.Int(tf.Int32, 2))
	}
	return dense(raw.Sum(c, c.Reshape(g, split), axes))
}

// Concatenation, splitting, stacking.
func registerJoins() {
	Register("Pack", func(c *Context) []Gradient {
		return dense(raw.Unpack(c, c.Grad(0), int64(len(c.Inputs)), raw.WithAxis(c.AttrInt("axis")))...)
	})
	Register("Unpack", func(c *Context) []Gradient {
		return dense(raw.Pack(c, c.allGrads(), raw.WithAxis(c.AttrInt("axis"))))
	})
	Register("Split", func(c *Context) []Gradient {
		return nth(1, c.joined(c.allGrads(), c.Input(0)))
	}, 0)
	Register("SplitV", func(c *Context) []Gradient {
		return dense(c.joined(c.allGrads(), c.Input(2)))
	})
	Register("Concat", func(c *Context) []Gradient {
		return append([]Gradient{{}}, concatGrad(c, c.Input(0), c.Inputs[1:], c.wantsFrom(1))...)
	}, 0)
	Register("ConcatV2", func(c *Context) []Gradient {
		n := len(c.Inputs) - 1
		return concatGrad(c, c.Input(n), c.Inputs[:n], c.wantsFrom(0))
	})

	Register("DynamicPartition", func(c *Context) []Gradient {
		x, parts := c.Input(0), c.Input(1)
		n := c.Size(parts)
		places := raw.Reshape(c, raw.Range(c, c.Int(tf.Int32, 0), n, c.Int(tf.Int32, 1)), c.Shape(parts))
		where := raw.DynamicPartition(c, places, parts, c.AttrInt("num_partitions"))
		return dense(c.ReshapeLike(raw.ParallelDynamicStitch(c, where, c.allGrads()), x))
	})
	stitch := func(c *Context) []Gradient {
		n := len(c.Inputs) / 2
		g := c.Grad(0)
		out := make([]Gradient, len(c.Inputs))
		for i := range n {
			if c.Wants(n + i) {
				out[n+i].Dense = raw.GatherV2(c, g, c.Input(i), c.Int(tf.Int32, 0))
			}
		}
		return out
	}
	Register("DynamicStitch", stitch)
	Register("ParallelDynamicStitch", stitch)
}

func (c *Context) allGrads() []tf.Output {
	all := make([]tf.Output, len(c.Outputs))
	for i := range all {
		all[i] = c.Grad(i)
	}
	return all
}

// wantsFrom is Wants for a list of inputs that begins at input first.
func (c *Context) wantsFrom(first int) func(i int) bool {
	return func(i int) bool { return c.Wants(first + i) }
}

// concatGrad cuts the gradient of a concatenation into those of its parts.
func concatGrad(c *Context, axis tf.Output, xs []tf.Output, wants func(int) bool) []Gradient {
	if len(xs) == 1 {
		return c.Grads[:1]
	}
	fixed, isConst := c.ConstInts(axis)
	rank := -1
	for _, x := range xs {
		if s := c.Static(x); s != nil {
			rank = len(s)
		}
	}
	a := int64(-1)
	if isConst {
		if a = fixed[0]; a < 0 {
			a += int64(rank)
		}
		if rank < 0 && fixed[0] < 0 {
			a = -1
		}
	}
	if sl := c.Grads[0].Slices; sl != nil && a >= 0 {
		return concatSlicesGrad(c, sl, a, xs)
	}
	g := c.Grad(0)
	out := make([]Gradient, len(xs))
	if offsets, sizes, ok := c.staticParts(xs, a); ok && rank >= 0 {
		for i := range xs {
			if !wants(i) {
				continue
			}
			begin, size := make([]int64, rank), make([]int64, rank)
			for d := range size {
				size[d] = -1
			}
			begin[a], size[a] = offsets[i], sizes[i]
			out[i].Dense = raw.Slice(c, g, c.Ints(tf.Int32, begin...), c.Ints(tf.Int32, size...))
		}
		return out
	}
	shapes := make([]tf.Output, len(xs))
	for i, x := range xs {
		shapes[i] = c.Shape(x)
	}
	at := c.Cast(axis, tf.Int32)
	if a >= 0 {
		at = c.Int(tf.Int32, a)
	} else {
		at = raw.FloorMod(c, at, c.Rank(xs[0]))
	}
	begins := raw.ConcatOffset(c, at, shapes)
	for i := range begins {
		if wants(i) {
			out[i].Dense = raw.Slice(c, g, begins[i], shapes[i])
		}
	}
	return out
}

// staticParts is where each of xs begins in their concatenation along axis a,
// and how long it is there, when that is known.
func (c *Context) staticParts(xs []tf.Output, a int64) (offsets, sizes []int64, ok bool) {
	total := int64(0)
	for _, x := range xs {
		s := c.Static(x)
		if a < 0 || a >= int64(len(s)) || s[a] < 0 {
			return nil, nil, false
		}
		offsets, sizes = append(offsets, total), append(sizes, s[a])
		total += s[a]
	}
	return offsets, sizes, true
}

// concatSlicesGrad keeps a sparse gradient sparse: along the first axis each
// part takes the rows that are its own, along another one its columns of all.
func concatSlicesGrad(c *Context, sl *IndexedSlices, a int64, xs []tf.Output) []Gradient {
	out := make([]Gradient, len(xs))
	dt := sl.Indices.DataType()
	if a > 0 {
		// begin moves along axis a by what the parts before it take.
		begin := raw.ZerosLike(c, c.Shape(xs[0]))
		for i, x := range xs {
			shape := c.Shape(x)
			size := c.Join(c.Ints(tf.Int32, -1), c.Part(shape, 1, 0))
			values := raw.Slice(c, sl.Values, begin, size)
			out[i].Slices = &IndexedSlices{Values: values, Indices: sl.Indices, DenseShape: shape}
			mask := raw.OneHot(c, c.Int(tf.Int32, a), c.Rank(x), c.Int(tf.Int32, 1), c.Int(tf.Int32, 0))
			begin = c.Plus(begin, c.Mul(shape, mask))
		}
		return out
	}
	start := c.Int(dt, 0)
	for i, x := range xs {
		shape := c.Shape(x)
		end := c.Plus(start, c.Cast(c.Dim(shape, 0), dt))
		mine := raw.LogicalAnd(c, raw.GreaterEqual(c, sl.Indices, start), raw.Less(c, sl.Indices, end))
		rows := raw.Squeeze(c, raw.Where(c, mine), raw.WithSqueezeDims([]int64{1}))
		axis := c.Int(tf.Int32, 0)
		out[i].Slices = &IndexedSlices{
			Values:     raw.GatherV2(c, sl.Values, rows, axis),
			Indices:    c.Minus(raw.GatherV2(c, sl.Indices, rows, axis), start),
			DenseShape: shape,
		}
		start = end
	}
	return out
}

// Slicing: the gradient of a part is put back into zeros of the whole.
func registerSlices() {
	Register("Slice", func(c *Context) []Gradient {
		x, begin, g := c.Input(0), c.Input(1), c.Grad(0)
		dt := begin.DataType()
		if b, ok := c.ConstInts(begin); ok && c.Static(x).FullyDefined() && c.Static(g).FullyDefined() {
			var pads []int64
			for i, d := range c.Static(x) {
				pads = append(pads, b[i], d-c.Static(g)[i]-b[i])
			}
			return dense(raw.Pad(c, g, c.IntPairs(dt, pads...)))
		}
		after := c.Minus(c.Minus(c.ShapeAs(x, dt), c.ShapeAs(g, dt)), begin)
		return dense(raw.Pad(c, g, raw.Pack(c, []tf.Output{begin, after}, raw.WithAxis(1))))
	})
	Register("StridedSlice", func(c *Context) []Gradient {
		begin, end, strides := c.Input(1), c.Input(2), c.Input(3)
		return dense(raw.StridedSliceGrad(c, c.ShapeAs(c.Input(0), begin.DataType()), begin, end, strides, c.Grad(0), c.sliceMasks()...))
	})
	Register("StridedSliceGrad", func(c *Context) []Gradient {
		return nth(4, raw.StridedSlice(c, c.Grad(0), c.Input(1), c.Input(2), c.Input(3), c.sliceMasks()...))
	})
	// The updated part takes its gradient from there, the rest of x keeps its
	// own; the value may have been broadcast over the part.
	Register("TensorStridedSliceUpdate", func(c *Context) []Gradient {
		begin, end, strides, value, g := c.Input(1), c.Input(2), c.Input(3), c.Input(4), c.Grad(0)
		part := raw.StridedSlice(c, g, begin, end, strides, c.sliceMasks()...)
		gx := raw.TensorStridedSliceUpdate(c, g, begin, end, strides, c.ZerosLike(part), c.sliceMasks()...)
		return dense(gx, none, none, none, c.ReduceTo(part, value))
	})
}

func (c *Context) sliceMasks() []raw.Attr {
	return []raw.Attr{
		raw.WithBeginMask(c.AttrInt("begin_mask")), raw.WithEndMask(c.AttrInt("end_mask")),
		raw.WithEllipsisMask(c.AttrInt("ellipsis_mask")), raw.WithNewAxisMask(c.AttrInt("new_axis_mask")),
		raw.WithShrinkAxisMask(c.AttrInt("shrink_axis_mask")),
	}
}

// Gathering and scattering.
func registerGathers() {
	Register("Gather", func(c *Context) []Gradient {
		x := c.Input(0)
		return []Gradient{rows(c, c.Grad(0), c.Input(1), c.Shape(x))}
	})
	Register("GatherV2", func(c *Context) []Gradient {
		x, indices, axis := c.Input(0), c.Input(1), c.Input(2)
		batch := c.AttrInt("batch_dims")
		if batch < 0 {
			batch += int64(len(c.Static(indices)))
		}
		if a, ok := c.ConstInts(axis); ok && a[0] == 0 {
			return []Gradient{rows(c, c.Grad(0), indices, c.Shape(x))}
		}
		return dense(gatherGrad(c, c.Grad(0), indices, c.Shape(x), axis, batch))
	})
	RegisterCheck("GatherV2", func(op *tf.Operation) error {
		batch, err := bridge.AttrInt(op, "batch_dims")
		if err == nil && batch < 0 && bridge.ShapeOf(bridge.Input(op, 1)) == nil {
			return fmt.Errorf("batch_dims is %d and the rank of the indices is unknown, give batch_dims as a positive number", batch)
		}
		return nil
	})
	Register("GatherNd", func(c *Context) []Gradient {
		x, indices := c.Input(0), c.Input(1)
		return []Gradient{gatherNdGrad(c, c.Grad(0), indices, c.ShapeAs(x, indices.DataType()))}
	})

	Register("ScatterNd", func(c *Context) []Gradient {
		return nth(1, raw.GatherNd(c, c.Grad(0), c.Input(0)))
	})
	Register("ScatterNdNonAliasingAdd", func(c *Context) []Gradient {
		return dense(c.Grad(0), none, raw.GatherNd(c, c.Grad(0), c.Input(1)))
	})
	Register("TensorScatterUpdate", func(c *Context) []Gradient {
		indices, updates, g := c.Input(1), c.Input(2), c.Grad(0)
		return dense(raw.TensorScatterUpdate(c, g, indices, c.ZerosLike(updates)), none, raw.GatherNd(c, g, indices))
	})
	Register("TensorScatterAdd", func(c *Context) []Gradient {
		return dense(c.Grad(0), none, raw.GatherNd(c, c.Grad(0), c.Input(1)))
	})
	Register("TensorScatterSub", func(c *Context) []Gradient {
		return dense(c.Grad(0), none, c.Neg(raw.GatherNd(c, c.Grad(0), c.Input(1))))
	})
	// All that equal the extreme, of the tensor and of the updates, share its
	// gradient.
	extreme := func(c *Context) []Gradient {
		x, indices, updates, y, g := c.Input(0), c.Input(1), c.Input(2), c.Output(0), c.Grad(0)
		dt := g.DataType()
		fromX := c.Cast(raw.Equal(c, x, y), dt)
		fromUpdates := c.Cast(raw.Equal(c, updates, raw.GatherNd(c, y, indices)), dt)
		count := c.Plus(fromX, raw.ScatterNd(c, indices, fromUpdates, c.ShapeAs(x, indices.DataType())))
		return dense(
			c.Div(c.Mul(g, fromX), count), none,
			c.Mul(raw.GatherNd(c, c.Div(g, count), indices), fromUpdates))
	}
	Register("TensorScatterMax", extreme)
	Register("TensorScatterMin", extreme)

	// The k largest of each row: their gradients go back to where they were.
	Register("TopKV2", topKGrad)
	// Elements equal to the n-th share its gradient.
	Register("NthElement", func(c *Context) []Gradient {
		x := c.Input(0)
		last := c.Int(tf.Int32, -1)
		y, g := raw.ExpandDims(c, c.Output(0), last), raw.ExpandDims(c, c.Grad(0), last)
		selected := c.Cast(raw.Equal(c, y, x), x.DataType())
		return dense(c.Mul(c.Div(selected, raw.Sum(c, selected, c.Ints(tf.Int32, -1), raw.WithKeepDims(true))), g))
	})
}

// rows is the sparse gradient of gathering along the first axis: g holds a row
// for each index.
func rows(c *Context, g, indices, shape tf.Output) Gradient {
	values := g
	if s := c.Static(indices); s == nil || len(s) != 1 {
		size := c.Reshape(c.Size(indices), c.Ints(tf.Int32, 1))
		values = c.Reshape(g, c.Join(size, c.Part(shape, 1, 0)))
	}
	return Gradient{Slices: &IndexedSlices{Values: values, Indices: c.Flat(indices), DenseShape: shape}}
}

// gatherNdGrad scatters g to the places it was gathered from; when the indices
// are those of rows, it stays sparse.
func gatherNdGrad(c *Context, g, indices, shape tf.Output) Gradient {
	if s := c.Static(indices); len(s) == 2 && s[1] == 1 {
		return Gradient{Slices: &IndexedSlices{
			Values: g, Indices: raw.Squeeze(c, indices, raw.WithSqueezeDims([]int64{1})), DenseShape: shape}}
	}
	return Gradient{Dense: raw.ScatterNd(c, indices, g, shape)}
}

// gatherGrad is the dense gradient of gathering along any axis with batch
// dimensions. The gathered dimensions move behind the batch ones, the batch
// dimensions are folded into the indices, and the rows are summed by index.
func gatherGrad(c *Context, g, indices, shape, axis tf.Output, batch int64) tf.Output {
	i32 := func(v int64) tf.Output { return c.Int(tf.Int32, v) }
	v1 := func(t tf.Output) tf.Output { return c.Reshape(t, c.Ints(tf.Int32, 1)) }
	rank := c.Cast(c.vectorSize(shape), tf.Int32)
	ax := c.Cast(axis, tf.Int32)
	if a, ok := c.ConstInts(axis); ok {
		if n, known := c.ConstInts(rank); known && a[0] < 0 {
			a = []int64{a[0] + n[0]}
		}
		ax = i32(a[0])
	}
	if a, ok := c.ConstInts(ax); !ok || a[0] < 0 {
		ax = raw.FloorMod(c, ax, rank)
	}
	// shape = batch + outer + [n] + inner, g = batch + outer + indices + inner
	head := c.Head(shape, ax)
	n := v1(raw.GatherV2(c, shape, ax, i32(0)))
	inner := c.Tail(shape, c.Plus(ax, i32(1)))
	flat := raw.Reshape(c, g, c.Join(head, c.Ints(tf.Int32, -1), inner)) // -1: the gathered dimensions of indices

	span := func(from, to tf.Output) tf.Output { return raw.Range(c, from, to, i32(1)) }
	b := i32(batch)
	axesBatch, axesOuter := span(i32(0), b), span(b, ax)
	axesInner := span(c.Plus(ax, i32(1)), rank)
	front := raw.Transpose(c, flat, raw.ConcatV2(c, []tf.Output{axesBatch, v1(ax), axesOuter, axesInner}, i32(0)))

	// rows of front: batch × gathered; ids = position in the batch × n + index
	outerDims := c.Tail(head, b)
	rowShape := c.Join(outerDims, inner)
	batchDims := c.Head(head, b)
	nBatch := raw.Prod(c, batchDims, c.Ints(tf.Int32, 0))
	idx := c.Cast(indices, tf.Int64)
	n64 := c.Cast(n, tf.Int64)
	ids := c.Flat(idx)
	if batch > 0 {
		perBatch := raw.Reshape(c, idx, c.Join(v1(nBatch), c.Ints(tf.Int32, -1)))
		offset := c.Mul(raw.Range(c, c.Int(tf.Int64, 0), c.Cast(nBatch, tf.Int64), c.Int(tf.Int64, 1)), n64)
		ids = c.Flat(c.Plus(perBatch, raw.ExpandDims(c, offset, i32(1))))
	}
	values := raw.Reshape(c, front, c.Join(c.Ints(tf.Int32, -1), rowShape))
	segments := c.Mul(nBatch, raw.Squeeze(c, n))
	sums := raw.UnsortedSegmentSum(c, values, ids, segments)
	sums = raw.Reshape(c, sums, c.Join(batchDims, n, rowShape))
	// back: batch + [n] + outer + inner to batch + outer + [n] + inner
	back := raw.ConcatV2(c, []tf.Output{axesBatch, c.Plus(axesOuter, i32(1)), v1(b), axesInner}, i32(0))
	return c.Reshape(raw.Transpose(c, sums, back), shape)
}

// vectorSize is the number of elements of a vector, as an int32 scalar.
func (c *Context) vectorSize(v tf.Output) tf.Output {
	if known, ok := c.ConstInts(v); ok {
		return c.Int(tf.Int32, int64(len(known)))
	}
	return c.Size(v)
}

// Head is the first n elements of a vector, n an int32 scalar.
func (c *Context) Head(v, n tf.Output) tf.Output {
	if k, ok := c.ConstInts(n); ok {
		if k[0] == 0 {
			return c.Ints(v.DataType())
		}
		return c.Part(v, 0, k[0])
	}
	return raw.Slice(c, v, c.Ints(tf.Int32, 0), c.Reshape(n, c.Ints(tf.Int32, 1)))
}

// Tail is a vector from element n on, n an int32 scalar.
func (c *Context) Tail(v, n tf.Output) tf.Output {
	if k, ok := c.ConstInts(n); ok {
		return c.Part(v, k[0], 0)
	}
	return raw.Slice(c, v, c.Reshape(n, c.Ints(tf.Int32, 1)), c.Ints(tf.Int32, -1))
}

func topKGrad(c *Context) []Gradient {
	x, indices, g := c.Input(0), c.Output(1), c.Grad(0)
	shape := c.Shape(x)
	width := c.Dim(shape, -1)
	perRow := raw.Reshape(c, indices, c.Join(c.Ints(tf.Int32, -1), c.Part(c.Shape(indices), -1, 0)))
	height := c.Dim(c.Shape(perRow), 0)
	starts := c.Mul(raw.Range(c, c.Int(tf.Int32, 0), height, c.Int(tf.Int32, 1)), width)
	places := c.Flat(c.Plus(perRow, raw.ExpandDims(c, starts, c.Int(tf.Int32, 1))))
	size := c.Reshape(c.Size(x), c.Ints(tf.Int32, 1))
	flat := raw.ScatterNd(c, raw.ExpandDims(c, places, c.Int(tf.Int32, 1)), c.Flat(g), size)
	return dense(c.ReshapeLike(flat, x))
}

// Padding.
func registerPads() {
	cut := func(c *Context) []Gradient {
		x, pads, g := c.Input(0), c.Input(1), c.Grad(0)
		dt := pads.DataType()
		var begin tf.Output
		if p, ok := c.ConstInts(pads); ok {
			var before []int64
			for i := 0; i < len(p); i += 2 {
				before = append(before, p[i])
			}
			begin = c.Ints(dt, before...)
		} else {
			column := raw.Slice(c, pads, c.Ints(tf.Int32, 0, 0), c.Ints(tf.Int32, -1, 1))
			begin = raw.Reshape(c, column, c.Ints(tf.Int32, -1))
		}
		return dense(raw.Slice(c, g, begin, c.ShapeAs(x, dt)))
	}
	Register("Pad", cut)
	Register("PadV2", cut, 2)
	Register("MirrorPad", func(c *Context) []Gradient {
		return dense(raw.MirrorPadGrad(c, c.Grad(0), c.Input(1), c.AttrString("mode")))
	})
	Register("MirrorPadGrad", func(c *Context) []Gradient {
		return dense(raw.MirrorPad(c, c.Grad(0), c.Input(1), c.AttrString("mode")))
	})
}

// Quantization that stays in floating point: the gradient passes straight
// through, where the range is a learned one only inside it.
func registerQuantization() {
	straight := func(c *Context) []Gradient { return dense(c.Grad(0)) }
	Register("QuantizeAndDequantize", straight)
	Register("QuantizeAndDequantizeV2", straight, 1, 2)
	Register("QuantizeAndDequantizeV3", straight, 1, 2)
	Register("QuantizeAndDequantizeV4", func(c *Context) []Gradient {
		gx, gmin, gmax := raw.QuantizeAndDequantizeV4Grad(c, c.Grad(0), c.Input(0), c.Input(1), c.Input(2),
			raw.WithAxis(c.AttrInt("axis")))
		return dense(gx, gmin, gmax)
	})
	Register("FakeQuantWithMinMaxArgs", func(c *Context) []Gradient {
		return dense(raw.FakeQuantWithMinMaxArgsGradient(c, c.Grad(0), c.Input(0),
			raw.WithMin(c.AttrFloat("min")), raw.WithMax(c.AttrFloat("max")),
			raw.WithNumBits(c.AttrInt("num_bits")), raw.WithNarrowRange(c.AttrBool("narrow_range"))))
	})
	Register("FakeQuantWithMinMaxVars", func(c *Context) []Gradient {
		gx, gmin, gmax := raw.FakeQuantWithMinMaxVarsGradient(c, c.Grad(0), c.Input(0), c.Input(1), c.Input(2),
			raw.WithNumBits(c.AttrInt("num_bits")), raw.WithNarrowRange(c.AttrBool("narrow_range")))
		return dense(gx, gmin, gmax)
	})
	Register("FakeQuantWithMinMaxVarsPerChannel", func(c *Context) []Gradient {
		gx, gmin, gmax := raw.FakeQuantWithMinMaxVarsPerChannelGradient(c, c.Grad(0), c.Input(0), c.Input(1), c.Input(2),
			raw.WithNumBits(c.AttrInt("num_bits")), raw.WithNarrowRange(c.AttrBool("narrow_range")))
		return dense(gx, gmin, gmax)
	})
}

// joined concatenates along the axis; a single part, which ConcatV2 refuses, is
// the whole.
func (c *Context) joined(parts []tf.Output, axis tf.Output) tf.Output {
	if len(parts) == 1 {
		return parts[0]
	}
	return raw.ConcatV2(c, parts, axis)
}
