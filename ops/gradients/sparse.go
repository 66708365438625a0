package gradients

import (
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops/raw"
)

// A sparse tensor is three tensors: indices [n, rank], values [n] and the
// dense shape [rank]. Only values carry gradients.

func init() {
	Register("SparseTensorDenseMatMul", sparseDenseMatMulGrad)
	Register("SparseMatMul", sparseMatMulGrad)
	Register("SparseReorder", func(c *Context) []Gradient {
		// Reordering the entries' numbers tells where each entry went.
		indices := c.Input(0)
		n := c.Dim(c.Shape(indices), 0)
		_, order := raw.SparseReorder(c, indices, raw.Range(c, c.Int(tf.Int32, 0), n, c.Int(tf.Int32, 1)), c.Input(2))
		return nth(1, raw.GatherV2(c, c.Grad(1), raw.InvertPermutation(c, order), c.Int(tf.Int32, 0)))
	})
	Register("SparseAdd", func(c *Context) []Gradient {
		byA, byB := raw.SparseAddGrad(c, c.Grad(1), c.Input(0), c.Input(3), c.Output(0))
		return dense(none, byA, none, none, byB)
	}, 6)
	Register("SparseSlice", func(c *Context) []Gradient {
		return nth(1, raw.SparseSliceGrad(c, c.Grad(1), c.Input(0), c.Input(3), c.Output(0)))
	})
	Register("SparseTensorDenseAdd", func(c *Context) []Gradient {
		return dense(none, raw.GatherNd(c, c.Grad(0), c.Input(0)), none, c.Grad(0))
	})
	Register("SparseFillEmptyRows", func(c *Context) []Gradient {
		values, fill := raw.SparseFillEmptyRowsGrad(c, c.Output(3), c.Grad(1))
		return dense(none, values, none, fill)
	})
	Register("SparseToDense", sparseToDenseGrad)
	Register("SparseReduceSum", sparseReduceSumGrad)
	Register("SparseSoftmax", sparseSoftmaxGrad)
	Register("SparseDenseCwiseMul", func(c *Context) []Gradient {
		return sparseDenseGrad(c, func(x, y, g tf.Output) (tf.Output, tf.Output) {
			return c.Mul(g, y), c.Mul(g, x)
		})
	})
	Register("SparseDenseCwiseDiv", func(c *Context) []Gradient {
		return sparseDenseGrad(c, func(x, y, g tf.Output) (tf.Output, tf.Output) {
			return c.Div(g, y), c.Mul(g, c.Div(c.Neg(x), c.Square(y)))
		})
	})
	// Python registers these too, as errors.
	for name, instead := range map[string]string{
		"SparseDenseCwiseAdd": "SparseTensorDenseAdd, where a dense sum will do",
		"SparseSparseMaximum": "Maximum of dense tensors",
		"SparseSparseMinimum": "Minimum of dense tensors",
	} {
		Register(name, func(c *Context) []Gradient { return nil })
		RegisterCheck(name, func(*tf.Operation) error {
			return fmt.Errorf("its gradient is not defined, in TensorFlow neither; use %s", instead)
		})
	}
}

// sparseDenseMatMulGrad: Y = AB, where either factor may be taken as its
// adjoint. By B it is AᴴG. By an entry of A at (i, j) it is the product of row i
// of G and row j of B; the adjoint of A exchanges i and j.
func sparseDenseMatMulGrad(c *Context) []Gradient {
	indices, values, shape, b, g := c.Input(0), c.Input(1), c.Input(2), c.Input(3), c.Grad(0)
	adjA, adjB := c.AttrBool("adjoint_a"), c.AttrBool("adjoint_b")
	grads := make([]Gradient, 4)
	if c.Wants(3) {
		byB := raw.SparseTensorDenseMatMul(c, indices, values, shape, g, raw.WithAdjointA(!adjA))
		if adjB {
			byB = c.adjoint(byB)
		}
		grads[3].Dense = byB
	}
	if c.Wants(1) {
		zero := c.Int(tf.Int32, 0)
		column := func(i int64) tf.Output { return c.Flat(c.columns(indices, i, i+1)) }
		i, j := column(0), column(1)
		if adjA {
			i, j = j, i
		}
		rowsB := b
		if adjB {
			rowsB = raw.Transpose(c, b, c.Ints(tf.Int32, 1, 0))
		}
		left, right := raw.GatherV2(c, g, i, zero), raw.GatherV2(c, rowsB, j, zero)
		if adjA {
			left = c.Conj(left)
		}
		if adjA == adjB {
			right = c.Conj(right)
		}
		grads[1].Dense = raw.Sum(c, c.Mul(left, right), c.Ints(tf.Int32, -1))
	}
	return grads
}

// sparseMatMulGrad is MatMul's, for operands of which bfloat16 is one and which
// are known to hold many zeros.
func sparseMatMulGrad(c *Context) []Gradient {
	a, b, g := c.Input(0), c.Input(1), c.Grad(0)
	ta, tb := c.AttrBool("transpose_a"), c.AttrBool("transpose_b")
	sparseA, sparseB := c.AttrBool("a_is_sparse"), c.AttrBool("b_is_sparse")
	product := func(x, y tf.Output, tx, ty, sx, sy bool, dt tf.DataType) tf.Output {
		return c.Cast(raw.SparseMatMul(c, x, y, raw.WithTransposeA(tx), raw.WithTransposeB(ty),
			raw.WithAIsSparse(sx), raw.WithBIsSparse(sy)), dt)
	}
	// A' = G Bᵀ and B' = Aᵀ G; a transposed operand has the transposed gradient.
	var byA, byB tf.Output
	if ta {
		byA = product(b, g, tb, true, sparseB, false, a.DataType())
	} else {
		byA = product(g, b, false, !tb, false, sparseB, a.DataType())
	}
	if tb {
		byB = product(g, a, true, ta, false, sparseA, b.DataType())
	} else {
		byB = product(a, g, !ta, false, sparseA, false, b.DataType())
	}
	return dense(byA, byB)
}

// sparseToDenseGrad: a value gets the gradient at its place, the default value
// that of all other places.
func sparseToDenseGrad(c *Context) []Gradient {
	indices, values, g := c.Input(0), c.Input(2), c.Grad(0)
	if s := c.Static(indices); s != nil && len(s) < 2 {
		indices = raw.Reshape(c, indices, c.Ints(tf.Int32, -1, 1)) // a vector's indices are numbers
	}
	places := raw.GatherNd(c, g, indices)
	all := c.allAxes(g)
	byDefault := c.Minus(raw.Sum(c, g, all), raw.Sum(c, places, c.allAxes(places)))
	byValues := places
	if s := c.Static(values); s != nil && len(s) == 0 {
		byValues = raw.Sum(c, places, c.allAxes(places)) // one value for all places
	}
	return dense(none, none, byValues, byDefault)
}

// sparseReduceSumGrad gives each value the gradient of the sum it went into.
func sparseReduceSumGrad(c *Context) []Gradient {
	indices, axes := c.Input(0), c.Input(3)
	shape := c.Cast(c.Input(2), tf.Int32)
	rank := c.Dim(c.Shape(shape), 0)
	axes = c.Flat(raw.FloorMod(c, axes, rank))
	// The shape with the summed dimensions kept as 1.
	kept := raw.TensorScatterUpdate(c, shape, c.column(axes), raw.OnesLike(c, axes))
	scale := c.Cast(raw.FloorDiv(c, shape, kept), tf.Int64)
	g := raw.Reshape(c, c.Grad(0), kept)
	return nth(1, raw.GatherNd(c, g, raw.FloorDiv(c, indices, scale)))
}

// sparseSoftmaxGrad is Softmax's, y (g - Σ g y), over the entries of each row.
func sparseSoftmaxGrad(c *Context) []Gradient {
	indices, shape, y, g := c.Input(0), c.Input(2), c.Output(0), c.Grad(0)
	sums := raw.SparseReduceSum(c, indices, c.Mul(g, y), shape, c.Ints(tf.Int32, -1))
	mine := raw.GatherNd(c, sums, c.columns(indices, 0, -1))
	return nth(1, c.Mul(c.Minus(g, mine), y))
}

// sparseDenseGrad is the gradient of an elementwise operation of a sparse and a
// dense tensor that is broadcast to it: f gives the gradients by the values and
// by the dense elements that met them, which are added up where they came from.
func sparseDenseGrad(c *Context, f func(x, y, g tf.Output) (tf.Output, tf.Output)) []Gradient {
	indices, values, shape, y := c.Input(0), c.Input(1), c.Input(2), c.Input(3)
	yShape := c.ShapeAs(y, tf.Int64)
	extra := c.Minus(c.Dim(c.Shape(shape), 0), c.Dim(c.Shape(yShape), 0))
	first := raw.ExpandDims(c, extra, c.Int(tf.Int32, 0))
	padded := c.Join(raw.Fill(c, first, c.Int(tf.Int64, 1)), yShape)
	// A stretched dimension's indices all become 0.
	places := raw.FloorDiv(c, indices, raw.FloorDiv(c, shape, padded))
	places = raw.Slice(c, places, c.Join(c.Ints(tf.Int32, 0), first), c.Ints(tf.Int32, -1, -1))
	byValues, byY := f(values, raw.GatherNd(c, y, places), c.Grad(0))
	return dense(none, byValues, none, raw.ScatterNd(c, places, byY, yShape))
}
