package main

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
)

func TestRowsThatAreShownAreLearnedAndNoOthersMove(t *testing.T) {
	table, err := train(t.Context())
	require.NoError(t, err)
	wrapped := 0
	for clock := range clocks {
		before, after := table.before[clock], table.after[clock]
		if clock >= shown {
			require.Equal(t, math.Float32bits(before), math.Float32bits(after), "clock %d was not shown", clock)
			continue
		}
		require.GreaterOrEqual(t, after, float32(0))
		require.Less(t, after, float32(hours))
		require.Less(t, apart(after, table.truth[clock]), 0.1, "clock %d", clock)
		if math.Abs(float64(after-before)) > hours/2 {
			wrapped++
		}
	}
	assert.Greater(t, wrapped, 10, "some rows take the short way, through midnight")

	tensors, bytes := bridge.Live()
	assert.Zero(t, tensors, "tensors left, %d bytes", bytes)
}

func TestRun(t *testing.T) {
	var told strings.Builder
	require.NoError(t, run(t.Context(), &told))
	assert.Contains(t, told.String(), "clocks that were not: 500 of 500 unchanged, bit for bit")
}
