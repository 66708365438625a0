package gradients_test

import (
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Two computations on one graph keep their gradients apart: each sums its own.
func TestTensorArraysOfTwoGradientsDoNotMix(t *testing.T) {
	s := newScope()
	x := vector(s, 1, 2)
	handle, flow := raw.TensorArrayV3(s, scalar(s, int32(1)), tf.Double, raw.WithClearAfterRead(false))
	zero := scalar(s, int32(0))
	flow = raw.TensorArrayWriteV3(s, handle, zero, raw.Square(s, x), flow)
	y := raw.TensorArrayReadV3(s, handle, zero, flow, tf.Double)
	first, err := gradients.Compute(s, outs{y}, nil, outs{x}, gradients.Options{})
	require.NoError(t, err)
	second, err := gradients.Compute(s, outs{raw.Neg(s, y)}, nil, outs{x}, gradients.Options{})
	require.NoError(t, err)
	assert.Equal(t, [][]float64{{2, 4}, {-2, -4}}, dense(t, s, first[0], second[0]))

	before := bridge.NumOperations(s.g)
	_, err = gradients.Compute(s, outs{first[0].Dense}, nil, outs{x}, gradients.Options{})
	var missing *gradients.MissingGradientError
	require.ErrorAs(t, err, &missing)
	assert.Contains(t, missing.Error(), "no second gradient")
	assert.Equal(t, before, bridge.NumOperations(s.g))
}

// A matrix product that lacks the last of a factor's elements, where Python's
// gradient looks beyond the end: ∂ΣAB/∂a_ij = Σ_k b_jk for the elements of A.
func TestSparseProductsKeepTheFactorsElements(t *testing.T) {
	s := newScope()
	matrix := func(rows, columns int64, places []int64, values ...float64) (csr, v tf.Output) {
		n := int64(len(values))
		v = constant(s, bridge.Shape{n}, values...)
		return raw.SparseTensorToCSRSparseMatrix(s, constant(s, bridge.Shape{n, 2}, places...), v,
			constant(s, bridge.Shape{2}, rows, columns)), v
	}
	a, av := matrix(3, 4, []int64{0, 1, 1, 2, 2, 3}, 2, 3, 5)
	b, bv := matrix(4, 2, []int64{1, 0, 1, 1}, 7, 11)
	y := raw.CSRSparseMatrixToDense(s, raw.SparseMatrixSparseMatMul(s, a, b, tf.Double), tf.Double)
	grads, err := gradients.Compute(s, outs{y}, nil, outs{av, bv}, gradients.Options{})
	require.NoError(t, err)
	// Row 1 of B is all it has; A's other elements meet nothing.
	assert.Equal(t, [][]float64{{7 + 11, 0, 0}, {2, 2}}, dense(t, s, grads...))
}
