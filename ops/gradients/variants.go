package gradients

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// What holds tensors inside of a variant: matrices in compressed rows (CSR) and
// optional values. Its gradient is a variant of the same kind, and what converts
// into one and out of it are each other's gradients.

func init() {
	Register("DenseToCSRSparseMatrix", func(c *Context) []Gradient {
		return dense(raw.CSRSparseMatrixToDense(c, c.Grad(0), c.AttrType("T")))
	})
	Register("CSRSparseMatrixToDense", func(c *Context) []Gradient {
		g := c.Grad(0)
		places, _, _ := raw.CSRSparseMatrixToSparseTensor(c, c.Input(0), g.DataType())
		return dense(raw.SparseTensorToCSRSparseMatrix(c, places, raw.GatherNd(c, g, places), c.ShapeAs(g, tf.Int64)))
	})
	Register("SparseTensorToCSRSparseMatrix", func(c *Context) []Gradient {
		_, values, _ := raw.CSRSparseMatrixToSparseTensor(c, c.Grad(0), c.AttrType("T"))
		return nth(1, values)
	})
	Register("CSRSparseMatrixToSparseTensor", func(c *Context) []Gradient {
		return dense(raw.SparseTensorToCSRSparseMatrix(c, c.Output(0), c.Grad(1), c.Output(2)))
	})
	Register("SparseMatrixTranspose", func(c *Context) []Gradient {
		return dense(firstOf(c.sibling("SparseMatrixTranspose", []string{"type", "conjugate"}, c.Grad(0))))
	})
	Register("SparseMatrixMatMul", sparseMatrixMatMulGrad)
	Register("OptionalFromValue", func(c *Context) []Gradient {
		types, shapes := make([]tf.DataType, len(c.Inputs)), make([]bridge.Shape, len(c.Inputs))
		for i, in := range c.Inputs {
			types[i], shapes[i] = in.DataType(), c.Static(in)
		}
		return dense(raw.OptionalGetValue(c, c.Grad(0), types, shapes)...)
	})
	Register("OptionalGetValue", func(c *Context) []Gradient {
		return dense(raw.OptionalFromValue(c, c.allGrads()))
	})
	// Inputs: the splits of each ragged dimension, the flat values; the sparse
	// tensor's values are those in their order.
	Register("RaggedTensorToSparse", func(c *Context) []Gradient {
		last := len(c.Inputs) - 1
		return nth(last, c.ReshapeLike(c.Grad(1), c.Input(last)))
	})
}

// sparseMatrixMatMulGrad: the product C = MN of a sparse and a dense matrix, M
// and N being the inputs A and B, their transposes or adjoints, and C returned
// transposed or conjugated on demand. By N it is MᴴG; by the element (i, j) of M
// the product of row i of G and row j of conj(N), for the elements that A has.
func sparseMatrixMatMulGrad(c *Context) []Gradient {
	a, n, g := c.Input(0), c.Input(1), c.Grad(0)
	transA, adjA := c.AttrBool("transpose_a"), c.AttrBool("adjoint_a")
	transB, adjB := c.AttrBool("transpose_b"), c.AttrBool("adjoint_b")
	oriented := func(t tf.Output) tf.Output { // as B is taken, and back again
		switch {
		case transB:
			return c.transposed(t)
		case adjB:
			return c.adjoint(t)
		}
		return t
	}
	if c.AttrBool("conjugate_output") {
		g = c.Conj(g)
	}
	if c.AttrBool("transpose_output") {
		g = c.transposed(g)
	}
	grads := make([]Gradient, 2)
	if c.Wants(0) {
		places, _, shape := raw.CSRSparseMatrixToSparseTensor(c, a, g.DataType())
		// [batch…, i] and [batch…, j]
		i := c.columns(places, 0, -1)
		j := raw.ConcatV2(c, []tf.Output{c.columns(places, 0, -2), c.columns(places, -1, 0)}, c.Int(tf.Int32, -1))
		if transA || adjA {
			i, j = j, i
		}
		values := raw.Sum(c, c.Mul(raw.GatherNd(c, g, i), c.Conj(raw.GatherNd(c, oriented(n), j))), c.Ints(tf.Int32, -1))
		if adjA {
			values = c.Conj(values)
		}
		grads[0].Dense = raw.SparseTensorToCSRSparseMatrix(c, places, values, shape)
	}
	if c.Wants(1) {
		var byN tf.Output
		switch {
		case adjA:
			byN = raw.SparseMatrixMatMul(c, a, g)
		case transA: // conj(A) G
			byN = c.Conj(raw.SparseMatrixMatMul(c, a, c.Conj(g)))
		default:
			byN = raw.SparseMatrixMatMul(c, a, g, raw.WithAdjointA(true))
		}
		grads[1].Dense = oriented(byN)
	}
	return grads
}
