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

// What XLA makes of a formula computes what the formula says, in place or
// through wrappers that change the variable themselves.
func TestACompiledFormulaComputesTheSame(t *testing.T) {
	type compilable interface {
		trainer
		Self() *optimizers.Optimizer
	}
	for name, make := range map[string]func() compilable{
		"adam":         func() compilable { return optimizers.NewAdam(.1) },
		"adamw":        func() compilable { return optimizers.NewAdamW(.1, .1) },
		"nadam":        func() compilable { return optimizers.NewNadam(.1) },
		"floormod":     func() compilable { return optimizers.NewFloorMod(.1, .7) },
		"gated adam":   func() compilable { return optimizers.Gated(optimizers.NewAdam(.1), optimizers.Value(1)) },
		"schedulefree": func() compilable { return optimizers.NewScheduleFreeAdamW(.1) },
	} {
		t.Run(name, func(t *testing.T) {
			var got [2]map[string][]float64
			for i, from := range []int64{-1, 1} {
				b := newBench(t)
				o := make()
				o.Self().CompileFrom = from
				dense := b.tensor("dense", tf.Float, ops.Shape{3, 2}, .1, .2, .3, .4, .5, .6)
				sparse := b.tensor("sparse", tf.Float, ops.Shape{3, 2}, .1, .2, .3, .4, .5, .6)
				train := b.apply(o, b.dense(dense, 3, 4, .1, -.2, 1.5, 1), b.sparse(sparse, []int64{2, 0, 2}, 1, 2, 3, 4, .5, -1))
				functions, err := bridge.Functions(b.TF())
				require.NoError(t, err)
				assert.Equal(t, from > 0, len(functions) > 0, "compiled functions")
				b.start()
				b.steps(4, train)
				got[i] = map[string][]float64{}
				for _, v := range append(o.State(b.Graph), dense, sparse) {
					got[i][v.Name()] = b.value(v)
				}
			}
			require.Len(t, got[1], len(got[0]))
			for v, plain := range got[0] {
				near(t, plain, got[1][v], 1e-4, v)
			}
		})
	}
}

func TestACompiledFloorModKeepsNaN(t *testing.T) {
	b := newBench(t)
	w := b.vector("w", tf.Float, 0, 0)
	o := optimizers.NewFloorMod(1, 3)
	o.Modulus, o.CompileFrom = ops.Fed(ops.Number(b.Root(), tf.Float, 3)), 1
	train := b.apply(o, b.dense(w, 1, math.NaN()))
	b.start()
	b.steps(1, train)
	got := b.value(w)
	assert.Equal(t, 2.0, got[0])
	assert.True(t, math.IsNaN(got[1]))
}
