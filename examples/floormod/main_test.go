package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
)

func TestBothRulesFindTheWeightsAndKeepThemInRange(t *testing.T) {
	for name, rule := range map[string]rule{"by optimizer": byOptimizer, "by formula": byFormula} {
		t.Run(name, func(t *testing.T) {
			found, err := fit(t.Context(), rule)
			require.NoError(t, err)
			require.Len(t, found, len(truth))
			for i, w := range found {
				assert.InDelta(t, truth[i], w, 0.05)
				assert.GreaterOrEqual(t, w, float32(0))
				assert.Less(t, w, float32(B))
			}
		})
	}
	tensors, bytes := bridge.Live()
	assert.Zero(t, tensors, "tensors left, %d bytes", bytes)
}

func TestRun(t *testing.T) {
	var told strings.Builder
	require.NoError(t, run(t.Context(), &told))
	assert.Contains(t, told.String(), "by optimizer")
	assert.Contains(t, told.String(), "by formula")
}
