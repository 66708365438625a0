package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/optimizers"
)

func TestGLearnsTheNumbersAndStandsStillInTurnsOfD(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			g, still, err := train(t.Context(), way.build)
			require.NoError(t, err)
			assert.Equal(t, turns, still, "turns of D in which G was the same, bit for bit")
			assert.InDelta(t, 0.5, max(g[0], -g[0]), 0.1, "standard deviation")
			assert.InDelta(t, 2, g[1], 0.1, "mean")
		})
	}
	tensors, bytes := bridge.Live()
	assert.Zero(t, tensors, "tensors left, %d bytes", bytes)
}

// If nothing held G still, the check above would have to see it.
func TestWithoutFreezingGMovesInTurnsOfD(t *testing.T) {
	everything := func(m *gan) (*optimizers.TrainOp, error) {
		return optimizers.NewGradientDescent(0.1).Minimize(m.lossOfD(m.fake), m.Trainable())
	}
	_, still, err := train(t.Context(), everything)
	require.NoError(t, err)
	assert.Less(t, still, turns/10)
}

func TestRun(t *testing.T) {
	var told strings.Builder
	require.NoError(t, run(t.Context(), &told))
	assert.Equal(t, 3, strings.Count(told.String(), "the same in 2000 of 2000 turns of D"))
}
