package gradients_test

import (
	"runtime"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// layers is a deep forward graph over a batch of unknown size.
func layers(t *testing.T, depth int) (s *scope, y, x, w tf.Output) {
	s = newScope()
	x = s.placeholder(tf.Float, bridge.Shape{-1, 4})
	w = s.placeholder(tf.Float, bridge.Shape{4, 4})
	b := s.placeholder(tf.Float, bridge.Shape{4})
	h := x
	for range depth {
		z := raw.AddV2(s, raw.MatMul(s, h, w), b)
		h = raw.Sub(s, raw.Mul(s, raw.Sigmoid(s, z), raw.Tanh(s, z)), h)
	}
	require.NoError(t, s.err)
	return s, h, x, w
}

func TestGradientsOfADeepGraphTakeLinearNodesAndMemory(t *testing.T) {
	measure := func(depth int) (nodes int, bytes uint64) {
		s, y, x, w := layers(t, depth)
		forward := bridge.NumOperations(s.g)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := gradients.Compute(s, []tf.Output{y}, nil, []tf.Output{x, w}, gradients.Options{})
		require.NoError(t, err)
		runtime.ReadMemStats(&after)
		return bridge.NumOperations(s.g) - forward, after.TotalAlloc - before.TotalAlloc
	}
	_, _ = measure(10) // what is made once
	nodes, bytes := measure(200)
	more, muchMore := measure(800)
	require.Less(t, more, 4*nodes+1)
	require.Less(t, float64(muchMore), 4.6*float64(bytes), "hash tables double at some sizes")
}

func TestEqualSizesThatAreUnknownNeedNoBroadcastGradient(t *testing.T) {
	s, y, x, w := layers(t, 3)
	_, err := gradients.Compute(s, []tf.Output{y}, nil, []tf.Output{x, w}, gradients.Options{})
	require.NoError(t, err)
	require.Zero(t, count(s, "BroadcastGradientArgs"))
	require.LessOrEqual(t, count(s, "Shape"), 1)

	// Two batches, either of which could be 1, do.
	s = newScope()
	a, b := s.placeholder(tf.Float, bridge.Shape{-1, 4}), s.placeholder(tf.Float, bridge.Shape{-1, 4})
	_, err = gradients.Compute(s, []tf.Output{raw.Mul(s, a, b)}, nil, []tf.Output{a}, gradients.Options{})
	require.NoError(t, err)
	require.Equal(t, 1, count(s, "BroadcastGradientArgs"))
}

func count(s *scope, opType string) int {
	n := 0
	for _, op := range s.g.Operations() {
		if op.Type() == opType {
			n++
		}
	}
	return n
}
