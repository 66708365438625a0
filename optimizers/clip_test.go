package optimizers_test

import (
	"math"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/optimizers"
)

func TestClip(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	byValue := func(g []optimizers.Grad) ([]optimizers.Grad, error) { return optimizers.ClipByValue(g, -1, 2) }
	byNorm := func(g []optimizers.Grad) ([]optimizers.Grad, error) { return optimizers.ClipByNorm(g, 5) }
	byGlobal := func(g []optimizers.Grad) ([]optimizers.Grad, error) { return optimizers.ClipByGlobalNorm(g, 5) }
	for name, c := range map[string]struct {
		clip         func([]optimizers.Grad) ([]optimizers.Grad, error)
		x, y         []float64 // dense gradients
		rows         []float64 // of a sparse one: rows 1, 0, 1
		wantX, wantY []float64
		wantRows     []float64 // rows 1, 0
	}{
		"value": {byValue, []float64{-3, .5}, []float64{3, nan}, []float64{1.5, -4, 1.5},
			[]float64{-1, .5}, []float64{2, nan}, []float64{2, -1}},
		"norm, below the limit": {byNorm, []float64{3, -4}, []float64{0, 0}, []float64{2, 0, -1},
			[]float64{3, -4}, []float64{0, 0}, []float64{1, 0}},
		// 6,8 has norm 10; rows 1 and 0 sum to 12,9 with norm 15.
		"norm, above it": {byNorm, []float64{6, 8}, []float64{.3, .4}, []float64{5, 9, 7},
			[]float64{3, 4}, []float64{.3, .4}, []float64{4, 3}},
		"norm, infinite: never zeros": {byNorm, []float64{inf, 1}, []float64{nan, 1}, []float64{0, 0, 0},
			[]float64{nan, nan}, []float64{nan, nan}, []float64{0, 0}},
		// 2² + 4² + 4² + 8² = 100
		"global norm": {byGlobal, []float64{2, 4}, []float64{0, -4}, []float64{5, 0, 3},
			[]float64{1, 2}, []float64{0, -2}, []float64{4, 0}},
		"global norm, below the limit": {byGlobal, []float64{1, 2}, []float64{0, -2}, []float64{2, 0, 2},
			[]float64{1, 2}, []float64{0, -2}, []float64{4, 0}},
		"global norm of zeros": {byGlobal, []float64{0, 0}, []float64{0, 0}, []float64{0, 0, 0},
			[]float64{0, 0}, []float64{0, 0}, []float64{0, 0}},
		"global norm, infinite: never zeros": {byGlobal, []float64{1, 2}, []float64{inf, 1}, []float64{1, 1, 1},
			[]float64{nan, nan}, []float64{nan, nan}, []float64{nan, nan}},
	} {
		for _, dt := range []tf.DataType{tf.Float, tf.Double, tf.Half} {
			t.Run(name+" "+bridge.DTypeName(dt), func(t *testing.T) {
				b := newBench(t)
				x, y, z := b.vector("x", dt, 0, 0), b.vector("y", dt, 0, 0), b.tensor("z", dt, ops.Shape{3, 1}, 0, 0, 0)
				none := optimizers.Grad{Variable: b.vector("none", dt, 0)}
				grads, err := c.clip([]optimizers.Grad{b.dense(x, c.x...), none, b.dense(y, c.y...), b.sparse(z, []int64{1, 0, 1}, c.rows...)})
				require.NoError(t, err)
				require.Len(t, grads, 4)
				assert.True(t, grads[1].IsNone(), "a missing gradient stays missing")
				assert.True(t, grads[3].IsSparse(), "a sparse gradient stays sparse")
				b.start()
				got := b.fetch(grads[0].Dense, grads[2].Dense, grads[3].Slices.Values, grads[3].Slices.Indices)
				precision := map[tf.DataType]float64{tf.Half: 2e-3}[dt] + 1e-6
				near(t, c.wantX, got[0], precision)
				near(t, c.wantY, got[1], precision)
				near(t, c.wantRows, got[2], precision)
				assert.Equal(t, []float64{1, 0}, got[3])
			})
		}
	}
}

func TestGlobalNormOfMixedDTypes(t *testing.T) {
	b := newBench(t)
	x, y := b.vector("x", tf.Half, 0, 0), b.vector("y", tf.Double, 0)
	norm, err := optimizers.GlobalNorm([]optimizers.Grad{b.dense(x, 2, 3), b.dense(y, 6)})
	require.NoError(t, err)
	assert.Equal(t, tf.Double, norm.DataType())
	grads, err := optimizers.ClipByGlobalNorm([]optimizers.Grad{b.dense(x, 2, 3), b.dense(y, 6)}, 3.5)
	require.NoError(t, err)
	b.start()
	got := b.fetch(norm, grads[0].Dense, grads[1].Dense)
	near(t, []float64{7}, got[0], 1e-12)
	near(t, []float64{1, 1.5}, got[1], 1e-3)
	near(t, []float64{3}, got[2], 1e-12)
}

// Clipped gradients are applied like any others.
func TestComputeProcessApply(t *testing.T) {
	b := newBench(t)
	table := b.tensor("table", tf.Float, ops.Shape{3, 1}, 1, 2, 3)
	rows := table.Gather(b.Root(), ops.Const(b.Root(), ops.Shape{3}, []int32{2, 0, 2}))
	grads, err := optimizers.ComputeGradients(sum(b.Root(), rows), []*ops.Variable{table})
	require.NoError(t, err)
	require.True(t, grads[0].IsSparse(), "the gradient of a gather is sparse")
	grads, err = optimizers.ClipByValue(grads, 0, 1.5)
	require.NoError(t, err)
	train := b.apply(optimizers.NewGradientDescent(1), grads...)
	b.start()
	b.steps(1, train)
	assert.Equal(t, []float64{0, 2, 1.5}, b.value(table))
}

func TestGradOfTheLossAndStopGradients(t *testing.T) {
	b := newBench(t)
	s := b.Root()
	x := b.vector("x", tf.Float, 1, 2)
	f := ops.NewFormula(s, tf.Float)
	twice := f.Mul(x.Value(), f.Constant(2))
	loss := f.Mul(twice, x.Value()) // 2x², by element
	given, err := optimizers.ComputeGradients(loss, []*ops.Variable{x}, optimizers.GradientOptions{
		GradLoss: ops.Const(s, ops.Shape{2}, []float32{1, 10}), StopGradients: []tf.Output{twice}})
	require.NoError(t, err)
	b.start()
	assert.Equal(t, []float64{2, 40}, b.fetch(given[0].Dense)[0], "2x, once with weight 10")
}
