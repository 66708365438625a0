package gradients

import (
	"errors"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// What holds tensors inside of a variant: matrices in compressed rows (CSR),
// optional values and composite tensors. Its gradient is a variant of the same kind, and what converts
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
	Register("CompositeTensorVariantFromComponents", func(c *Context) []Gradient {
		types := make([]tf.DataType, len(c.Inputs))
		for i, in := range c.Inputs {
			types[i] = in.DataType()
		}
		return dense(raw.CompositeTensorVariantToComponents(c, c.Grad(0), c.AttrString("metadata"), types)...)
	})
	// A component without a gradient, such as the splits of a ragged tensor,
	// stays what it is: the gradient is a value of the same kind.
	Register("CompositeTensorVariantToComponents", func(c *Context) []Gradient {
		parts := make([]tf.Output, len(c.Outputs))
		for i := range parts {
			if parts[i] = c.Output(i); c.HasGrad(i) {
				parts[i] = c.Grad(i)
			}
		}
		return dense(raw.CompositeTensorVariantFromComponents(c, parts, c.AttrString("metadata")))
	})
	Register("SparseMatrixSparseMatMul", sparseMatrixSparseMatMulGrad)
	Register("SparseMatrixAdd", func(c *Context) []Gradient { // inputs: A, B, α, β; output: αA + βB
		part := func(matrix, factor tf.Output) tf.Output {
			places, values, shape := c.pruned(c.Grad(0), matrix, factor.DataType())
			return raw.SparseTensorToCSRSparseMatrix(c, places, c.Mul(values, c.Conj(factor)), shape)
		}
		return dense(part(c.Input(0), c.Input(2)), part(c.Input(1), c.Input(3)))
	}, 2, 3)
	Register("SparseMatrixSoftmax", func(c *Context) []Gradient {
		return dense(raw.SparseMatrixSoftmaxGrad(c, c.Output(0), c.Grad(0), c.AttrType("type")))
	})
	Register("SparseMatrixMul", func(*Context) []Gradient { return nil })
	RegisterCheck("SparseMatrixMul", func(*tf.Operation) error {
		return errors.New("its gradient is not defined, in TensorFlow neither; multiply the matrix's values")
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

// sparseMatrixSparseMatMulGrad: the product C = MN of two sparse matrices, M and
// N being the inputs, their transposes or adjoints. By M it is GNᴴ, by N it is
// MᴴG, for the elements that the inputs have.
func sparseMatrixSparseMatMulGrad(c *Context) []Gradient {
	g, dt := c.Grad(0), c.AttrType("type")
	type operand struct {
		matrix              tf.Output
		transposed, adjoint bool
	}
	a := operand{c.Input(0), c.AttrBool("transpose_a"), c.AttrBool("adjoint_a")}
	b := operand{c.Input(1), c.AttrBool("transpose_b"), c.AttrBool("adjoint_b")}
	flip := func(m tf.Output, conjugate bool) tf.Output {
		return raw.SparseMatrixTranspose(c, m, dt, raw.WithConjugate(conjugate))
	}
	// The adjoint of what was multiplied, as a matrix to be multiplied as it is.
	adjoint := func(o operand) tf.Output {
		switch {
		case o.adjoint, o.transposed && !bridge.IsComplex(dt):
			return o.matrix
		case o.transposed:
			return flip(flip(o.matrix, true), false)
		}
		return flip(o.matrix, true)
	}
	// The gradient of what was multiplied, as that of the input.
	back := func(byProduct tf.Output, o operand) tf.Output {
		if o.transposed || o.adjoint {
			byProduct = flip(byProduct, o.adjoint)
		}
		places, values, shape := c.pruned(byProduct, o.matrix, dt)
		return raw.SparseTensorToCSRSparseMatrix(c, places, values, shape)
	}
	var byA, byB tf.Output
	if c.Wants(0) {
		byA = back(raw.SparseMatrixSparseMatMul(c, g, adjoint(b), dt), a)
	}
	if c.Wants(1) {
		byB = back(raw.SparseMatrixSparseMatMul(c, adjoint(a), g, dt), b)
	}
	return dense(byA, byB)
}

// pruned is a sparse matrix at the places that another one of the same shape
// has, 0 where it has none there.
func (c *Context) pruned(matrix, pattern tf.Output, dt tf.DataType) (places, values, shape tf.Output) {
	from, have, _ := raw.CSRSparseMatrixToSparseTensor(c, matrix, dt)
	places, _, shape = raw.CSRSparseMatrixToSparseTensor(c, pattern, dt)
	// The number of each place, in the order of rows.
	zero, one := c.Int(tf.Int32, 0), c.Int(tf.Int64, 1)
	strides := raw.Cumprod(c, shape, zero, raw.WithExclusive(true), raw.WithReverse(true))
	number := func(at tf.Output) tf.Output { return raw.Sum(c, c.Mul(at, strides), c.Ints(tf.Int32, 1)) }
	row := func(t tf.Output) tf.Output { return raw.ExpandDims(c, t, zero) }
	// One more place behind all others, so that there is always one to find.
	end := raw.Prod(c, shape, c.Ints(tf.Int32, 0), raw.WithKeepDims(true))
	sorted := c.Join(number(from), end)
	wanted := number(places)
	found := c.Flat(raw.LowerBound(c, row(sorted), row(wanted)))
	none := raw.Fill(c, c.Reshape(one, c.Ints(tf.Int32, 1)), c.Number(dt, 0))
	all := raw.ConcatV2(c, []tf.Output{have, none}, zero)
	hit := raw.Equal(c, takeRows(c, sorted, found), wanted)
	return places, c.Where(hit, takeRows(c, all, found), c.Number(dt, 0)), shape
}
