package ops_test

import (
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

func outs(list ...tf.Output) []tf.Output { return list }

// y_ij = x_i w_ij, so that ∂y_ij/∂x_k = w_ij where i = k, and ∂y_ij/∂w_kl = x_i where ij = kl.
func TestAJacobianHasTheShapesOfYAndX(t *testing.T) {
	for _, shape := range []ops.Shape{{2}, {-1}, nil} {
		g := ops.NewGraph(ops.GraphOptions{})
		x := g.Placeholder("x", tf.Double, shape)
		w := g.Variable("w", ops.Shape{2, 3}, ops.FromValue([][]float64{{1, 2, 3}, {4, 5, 6}}), ops.VariableOptions{DType: tf.Double})
		y := raw.Mul(g, raw.ExpandDims(g, x, g.Const(int32(1))), w.Value())
		j, err := ops.Jacobian(g.Root(), y, outs(x, w.Handle()))
		require.NoError(t, err)
		if shape != nil && shape[0] == 2 {
			assert.Equal(t, ops.Shape{2, 3, 2}, bridge.ShapeOf(j[0].Dense))
		}
		s := initialized(t, g)
		in := fed(t, x, ops.Shape{2}, 10.0, 20)
		got := fetch(t, s, outs(j[0].Dense, j[1].Dense), in)
		assert.Equal(t, ops.Shape{2, 3, 2}, got[0].Shape())
		assert.Equal(t, ops.Shape{2, 3, 2, 3}, got[1].Shape())
		assert.Equal(t, []float64{1, 0, 2, 0, 3, 0, 0, 4, 0, 5, 0, 6}, floats(t, s, j[0].Dense, in))
		want := make([]float64, 36)
		for ij := range 6 {
			want[ij*6+ij] = []float64{10, 20}[ij/3]
		}
		assert.Equal(t, want, floats(t, s, j[1].Dense, in))
	}
}

func TestAJacobianOfNothingIsNothing(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x, z := g.Placeholder("x", tf.Float, ops.Shape{-1}), g.Const([]float32{1, 2})
	y := raw.Square(g, x)
	before := bridge.NumOperations(g.TF())
	j, err := ops.Jacobian(g.Root(), y, outs(z, x))
	require.NoError(t, err)
	assert.True(t, j[0].IsNone())
	zeros, err := ops.Jacobian(g.Root(), y, outs(z, x), ops.GradientOptions{Zeros: true})
	require.NoError(t, err)
	empty := fetch(t, session(t, g), outs(j[1].Dense, zeros[0].Dense), fed[float32](t, x, ops.Shape{0}))
	assert.Equal(t, ops.Shape{0, 0}, empty[0].Shape())
	assert.Equal(t, ops.Shape{0, 2}, empty[1].Shape())
	assert.Greater(t, bridge.NumOperations(g.TF()), before)

	unique, _ := raw.Unique(g, x)
	before = bridge.NumOperations(g.TF())
	_, err = ops.Jacobian(g.Root(), unique, outs(x))
	var missing *gradients.MissingGradientError
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, []string{"Unique"}, missing.Types())
	_, err = ops.Jacobian(g.Root(), y, outs(x), ops.GradientOptions{GradYs: []ops.Gradient{{}}})
	assert.ErrorContains(t, err, "GradYs")
	_, err = ops.Jacobian(g.Root(), tf.Output{}, outs(x))
	assert.Error(t, err)
	_, err = ops.Jacobian(nil, y, outs(x))
	assert.Error(t, err)
	assert.Equal(t, before, bridge.NumOperations(g.TF()), "a refusal adds nothing")
	require.NoError(t, g.Err())
}

// y_b = x_b² W: ∂y_bj/∂x_bi = 2 x_bi w_ij.
func TestABatchJacobianIsEachRowsOwn(t *testing.T) {
	for _, rows := range []int64{2, -1} {
		g := ops.NewGraph(ops.GraphOptions{})
		x := g.Placeholder("x", tf.Float, ops.Shape{rows, 2})
		w := g.Const([][]float32{{1, 2, 3}, {4, 5, 6}})
		j, err := ops.BatchJacobian(g.Root(), raw.MatMul(g, raw.Square(g, x), w), x)
		require.NoError(t, err)
		s := session(t, g)
		in := fed[float32](t, x, ops.Shape{2, 2}, 1, 2, 3, 4)
		assert.Equal(t, ops.Shape{2, 3, 2}, fetch(t, s, outs(j.Dense), in)[0].Shape())
		assert.Equal(t, []float64{2, 16, 4, 20, 6, 24, 6, 32, 12, 40, 18, 48}, floats(t, s, j.Dense, in))

		_, err = ops.BatchJacobian(g.Root(), raw.Sum(g, x, g.Const([]int32{0, 1})), x)
		assert.ErrorContains(t, err, "batch")
	}
}

// f = x² y + y³ of vectors, summed: ∂²f/∂x² = 2y, ∂²f/∂y² = 6y, ∂²f/∂x∂y = 2x.
func TestHessians(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x, y := g.Const([]float64{1, 2}), g.Const([]float64{3, 4})
	f := raw.AddV2(g, raw.Mul(g, raw.Square(g, x), y), raw.Pow(g, y, g.Const([]float64{3, 3})))
	h, err := ops.Hessians(g.Root(), outs(f), outs(x, y))
	require.NoError(t, err)
	v, u := g.Const([]float64{1, -1}), g.Const([]float64{0.5, 2})
	hv, err := ops.HessianVectorProduct(g.Root(), outs(f), outs(x, y), outs(v, u))
	require.NoError(t, err)
	linear := raw.Mul(g, x, y)
	none, err := ops.Hessians(g.Root(), outs(linear), outs(x))
	require.NoError(t, err)
	assert.True(t, none[0].IsNone())
	zero, err := ops.Hessians(g.Root(), outs(linear), outs(x), ops.GradientOptions{Zeros: true})
	require.NoError(t, err)

	s := session(t, g)
	assert.Equal(t, []float64{6, 0, 0, 8}, floats(t, s, h[0].Dense))
	assert.Equal(t, []float64{18, 0, 0, 24}, floats(t, s, h[1].Dense))
	// 2y v + 2x u; 2x v + 6y u
	assert.Equal(t, []float64{6 + 1, -8 + 8}, floats(t, s, hv[0].Dense))
	assert.Equal(t, []float64{2 + 9, -4 + 48}, floats(t, s, hv[1].Dense))
	assert.Equal(t, []float64{0, 0, 0, 0}, floats(t, s, zero[0].Dense))

	_, err = ops.HessianVectorProduct(g.Root(), outs(f), outs(x, y), outs(v))
	assert.ErrorContains(t, err, "1 parts of the vector for 2 xs")
	_, err = ops.HessianVectorProduct(g.Root(), outs(f), outs(x), outs(tf.Output{}))
	assert.ErrorContains(t, err, "not a tensor")
}

// y = x³ elementwise: J = diag(3x²), and the sum of its squares, 9 Σ x⁴, has the
// gradient 36 x³.
func TestAJacobianCanBeDifferentiated(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Placeholder("x", tf.Double, ops.Shape{-1})
	y := raw.Mul(g, raw.Square(g, x), x)
	j, err := ops.Jacobian(g.Root(), y, outs(x))
	require.NoError(t, err)
	grads, err := ops.Gradients(g.Root(), outs(raw.Square(g, j[0].Dense)), outs(x))
	require.NoError(t, err)
	got := floats(t, session(t, g), grads[0].Dense, fed(t, x, ops.Shape{3}, 1.0, 2, -1))
	assert.InDeltaSlice(t, []float64{36, 288, -36}, got, 1e-9)
}

// f = Σ r³ over the rows read: 6 v for each time that a row is.
func TestHessiansByVariablesThatAreReadByRow(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	v := g.Variable("v", ops.Shape{3, 1}, ops.FromValue([][]float32{{1}, {2}, {3}}))
	rows := raw.ResourceGather(g, v.Handle(), g.Const([]int32{2, 0, 2}), tf.Float)
	f := raw.Mul(g, raw.Square(g, rows), rows)
	h, err := ops.Hessians(g.Root(), outs(f), outs(v.Handle()))
	require.NoError(t, err)
	hv, err := ops.HessianVectorProduct(g.Root(), outs(f), outs(v.Handle()), outs(g.Const([][]float32{{1}, {1}, {10}})))
	require.NoError(t, err)
	s := initialized(t, g)
	assert.Equal(t, ops.Shape{3, 1, 3, 1}, bridge.ShapeOf(h[0].Dense))
	assert.Equal(t, []float64{6, 0, 0, 0, 0, 0, 0, 0, 36}, floats(t, s, h[0].Dense))
	assert.Equal(t, []float64{6, 0, 360}, floats(t, s, ops.Densify(g.Root(), hv[0])))
}

// In a branch, y = x²: the Jacobian is diag(2x), its sum's gradient 2.
func TestAJacobianInABranch(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Placeholder("x", tf.Double, ops.Shape{2})
	y := ops.If(g.Root(), g.Const(true), func(s *ops.Scope) []tf.Output {
		in := s.Capture(x)
		j, err := ops.Jacobian(s, raw.Square(s, in), outs(in))
		require.NoError(t, err)
		return outs(raw.Sum(s, j[0].Dense, s.Const([]int32{0})))
	}, func(s *ops.Scope) []tf.Output { return outs(x) })
	require.NoError(t, g.Err())
	dx := byEach(t, g, y[0], x)[0]
	s := session(t, g)
	in := fed(t, x, ops.Shape{2}, 3.0, 4)
	assert.Equal(t, []float64{6, 8}, floats(t, s, y[0], in))
	assert.Equal(t, []float64{2, 2}, floats(t, s, dx, in))
}
