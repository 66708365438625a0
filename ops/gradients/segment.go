package gradients

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops/raw"
)

// Segment reductions. Ids are sorted and not negative in the Segment family; in
// the UnsortedSegment family a negative id drops its row.
func init() {
	Register("SegmentSum", func(c *Context) []Gradient {
		return dense(takeRows(c, c.Grad(0), c.Input(1)))
	})
	// each row is one of as many as its segment has
	Register("SegmentMean", func(c *Context) []Gradient {
		x, ids, g := c.Input(0), c.Input(1), c.Grad(0)
		tail := raw.Fill(c, c.Reshape(c.Minus(c.Rank(x), c.Int(tf.Int32, 1)), c.Ints(tf.Int32, 1)), c.Int(tf.Int32, 1))
		ones := raw.Fill(c, c.Join(c.Shape(ids), tail), c.NumberLike(1, g))
		return dense(takeRows(c, c.Div(g, raw.SegmentSum(c, ones, ids)), ids))
	})
	// Rows equal to the extreme share its gradient.
	extreme := func(c *Context) []Gradient {
		x, ids, y, g := c.Input(0), c.Input(1), c.Output(0), c.Grad(0)
		selected := raw.Equal(c, x, takeRows(c, y, ids))
		count := raw.SegmentSum(c, c.Cast(selected, g.DataType()), ids)
		return dense(c.Where(selected, takeRows(c, c.Div(g, count), ids), c.NumberLike(0, g)))
	}
	Register("SegmentMax", extreme)
	Register("SegmentMin", extreme)
	Register("SegmentProd", func(c *Context) []Gradient {
		ids := c.Input(1)
		return dense(segmentProdGrad(c, segments{
			sum:  func(t tf.Output) tf.Output { return raw.SegmentSum(c, t, ids) },
			prod: func(t tf.Output) tf.Output { return raw.SegmentProd(c, t, ids) },
			take: func(t tf.Output) tf.Output { return takeRows(c, t, ids) },
		}))
	})

	Register("UnsortedSegmentSum", func(c *Context) []Gradient {
		return dense(takeKept(c, c.Grad(0), c.Input(1)))
	})
	unsortedExtreme := func(c *Context) []Gradient {
		x, ids, n, y, g := c.Input(0), c.Input(1), c.Input(2), c.Output(0), c.Grad(0)
		zero := c.NumberLike(0, g)
		selected := raw.LogicalAnd(c, raw.Equal(c, x, takeKept(c, y, ids)), kept(c, ids, x))
		count := raw.UnsortedSegmentSum(c, c.Cast(selected, g.DataType()), ids, n)
		return dense(c.Where(selected, takeKept(c, c.Div(g, count), ids), zero))
	}
	Register("UnsortedSegmentMax", unsortedExtreme)
	Register("UnsortedSegmentMin", unsortedExtreme)
	Register("UnsortedSegmentProd", func(c *Context) []Gradient {
		ids, n := c.Input(1), c.Input(2)
		return dense(segmentProdGrad(c, segments{
			sum:  func(t tf.Output) tf.Output { return raw.UnsortedSegmentSum(c, t, ids, n) },
			prod: func(t tf.Output) tf.Output { return raw.UnsortedSegmentProd(c, t, ids, n) },
			take: func(t tf.Output) tf.Output { return takeKept(c, t, ids) },
		}))
	})

	// Rows gathered by indices and reduced by segment in one op. Its gradient is
	// dense, or on demand the rows that were gathered, each once.
	type backward struct {
		dense func(b raw.Builder, g, indices, segmentIDs, dim0 tf.Output, attrs ...raw.Attr) tf.Output
		rows  func(b raw.Builder, g, indices, segmentIDs, dim0 tf.Output, attrs ...raw.Attr) (rows, indicesOnce tf.Output)
	}
	for name, grad := range map[string]backward{
		"SparseSegmentSum":   {raw.SparseSegmentSumGrad, raw.SparseSegmentSumGradV2},
		"SparseSegmentMean":  {raw.SparseSegmentMeanGrad, raw.SparseSegmentMeanGradV2},
		"SparseSegmentSqrtN": {raw.SparseSegmentSqrtNGrad, raw.SparseSegmentSqrtNGradV2},
	} {
		f := func(c *Context) []Gradient {
			x, indices, ids := c.Input(0), c.Input(1), c.Input(2)
			shape := c.Shape(x)
			if c.AttrBool("sparse_gradient") {
				values, once := grad.rows(c, c.Grad(0), indices, ids, c.Dim(shape, 0))
				return []Gradient{{Slices: &IndexedSlices{Values: values, Indices: once, DenseShape: shape}}}
			}
			return dense(grad.dense(c, c.Grad(0), indices, ids, c.Dim(shape, 0)))
		}
		Register(name, f)
		Register(name+"WithNumSegments", f)
	}
}

// takeRows gathers along the first axis.
func takeRows(c *Context, t, ids tf.Output) tf.Output {
	return raw.GatherV2(c, t, ids, c.Int(tf.Int32, 0))
}

// kept says for each element of like, whose first dimensions are those of ids,
// whether its id is not negative.
func kept(c *Context, ids, like tf.Output) tf.Output {
	ok := raw.GreaterEqual(c, ids, c.NumberLike(0, ids))
	tail := c.Minus(c.Rank(like), c.Rank(ids))
	if n, known := c.ConstInts(c.Rank(like)); known && c.Static(ids) != nil {
		tail = c.Int(tf.Int32, n[0]-int64(len(c.Static(ids))))
	}
	ones := raw.Fill(c, c.Reshape(tail, c.Ints(tf.Int32, 1)), c.Int(tf.Int32, 1))
	return raw.Reshape(c, ok, c.Join(c.Shape(ids), ones))
}

// takeKept gathers rows by ids that may be negative; those get zeros.
func takeKept(c *Context, t, ids tf.Output) tf.Output {
	rows := takeRows(c, t, raw.Maximum(c, ids, c.NumberLike(0, ids)))
	return c.Where(kept(c, ids, rows), rows, c.NumberLike(0, rows))
}

// segments are the sums, products and the gathering of one segmentation.
type segments struct {
	sum, prod, take func(tf.Output) tf.Output
}

// segmentProdGrad: the derivative of a segment's product by an element is the
// product of the others. Without zeros that is product / element; with one zero
// it is the product of the rest, at the zero only; with more it is 0.
func segmentProdGrad(c *Context, s segments) tf.Output {
	x, y, g := c.Input(0), c.Output(0), c.Grad(0)
	isZero := c.Equals(x, 0)
	zeros := s.sum(c.Cast(isZero, tf.Int32))
	g = c.Where(raw.Greater(c, zeros, c.Int(tf.Int32, 1)), c.NumberLike(0, g), g)
	nonZero := c.Where(isZero, c.NumberLike(1, x), x)
	rest := s.take(s.prod(nonZero))
	slope := c.Where(isZero, rest, c.Div(s.take(y), nonZero))
	return c.Mul(s.take(g), slope)
}
