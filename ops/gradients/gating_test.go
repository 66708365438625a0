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

// before reports whether an operation runs before another one in every run.
func before(a, b *tf.Operation) bool {
	if bridge.OpKey(a) == bridge.OpKey(b) {
		return true
	}
	for _, in := range bridge.Inputs(b) {
		if before(a, in.Op) {
			return true
		}
	}
	for _, c := range bridge.ControlInputs(b) {
		if before(a, c) {
			return true
		}
	}
	return false
}

func TestGatedGradientsWaitForEachOther(t *testing.T) {
	for _, gate := range []gradients.Gating{gradients.GateNone, gradients.GateOp, gradients.GateGraph} {
		s := newScope()
		a, table := vector(s, 1, 2), constant(s, bridge.Shape{3, 1}, 1.0, 2, 3)
		looked := raw.Gather(s, table, ints(s, 2, 2))
		y := raw.Mul(s, a, raw.Reshape(s, looked, ints(s, 2)))
		grads, err := gradients.Compute(s, outs{y}, nil, outs{a, table}, gradients.Options{Gate: gate})
		require.NoError(t, err)
		require.True(t, grads[1].IsSparse(), "gating keeps a gradient sparse")
		assert.Equal(t, [][]float64{{3, 3}, {0, 0, 3}}, dense(t, s, grads...))

		mulGrads := 0 // that the gradient by a waits for
		for op := range bridge.Operations(s.g) {
			if op.Type() == "Mul" && op.Name() != y.Op.Name() && before(op, grads[0].Dense.Op) {
				mulGrads++
			}
		}
		assert.Equal(t, map[gradients.Gating]int{gradients.GateNone: 1, gradients.GateOp: 2, gradients.GateGraph: 2}[gate], mulGrads)
		waits := before(grads[1].Slices.Values.Op, grads[0].Dense.Op)
		assert.False(t, waits, "a result waits for what was computed, not for a gated result")
		if gate == gradients.GateOp {
			assert.Equal(t, "gradients/Mul_grad/tuple/control_dependency", grads[0].Dense.Op.Name())
		}
	}
}

func TestPairwiseAggregationAddsTwoAtATime(t *testing.T) {
	for how, widths := range map[gradients.Aggregation][]int{gradients.AggregateAddN: {4}, gradients.AggregatePairwise: {2, 2, 2}} {
		s := newScope()
		x := vector(s, 1, 2)
		grads, err := gradients.Compute(s, outs{raw.Square(s, x), raw.Neg(s, x), raw.Exp(s, x), x}, nil, outs{x},
			gradients.Options{Aggregation: how, StopGradients: nil})
		require.NoError(t, err)
		var got []int
		for op := range bridge.Operations(s.g) {
			if op.Type() == "AddN" {
				got = append(got, len(bridge.Inputs(op)))
			}
		}
		assert.Equal(t, widths, got)
		assert.InDeltaSlice(t, []float64{2 - 1 + 2.718281828 + 1, 4 - 1 + 7.389056099 + 1}, dense(t, s, grads...)[0], 1e-8)
	}
}

func TestAGradientOfAnotherShapeIsAnError(t *testing.T) {
	s := newScope()
	x := vector(s, 1, 2)
	_, err := gradients.Compute(s, outs{raw.Square(s, x, raw.WithName("sq"))}, nil, outs{x}, gradients.Options{Override: map[string]gradients.Func{
		"Square": func(c *gradients.Context) []gradients.Gradient {
			return []gradients.Gradient{{Dense: c.Number(tf.Double, 1)}}
		}}})
	require.ErrorContains(t, err, `at node "sq" gave input 0 a gradient of shape [], wanted [2]`)
}
