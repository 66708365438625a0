package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/digits"
	"github.com/sluice-ml/sluice/savedmodels"
)

func TestATrainingInTwoPartsEndsAsOneInOne(t *testing.T) {
	var whole, parts bytes.Buffer
	one, two := t.TempDir(), t.TempDir()
	require.NoError(t, resume(t.Context(), one, 450, &whole))
	require.NoError(t, resume(t.Context(), two, 250, &parts))
	require.NoError(t, resume(t.Context(), two, 450, &parts))
	assert.Contains(t, whole.String(), "from step 0\n")
	assert.Contains(t, parts.String(), "from step 250\n")
	for _, file := range []string{"model-450.data-00000-of-00001", "model-450.index", "model-400.data-00000-of-00001"} {
		a, err := os.ReadFile(filepath.Join(one, file))
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(two, file))
		require.NoError(t, err)
		assert.Equal(t, a, b, file)
	}

	// The model that was exported recognizes what the net did.
	m, err := savedmodels.Load(filepath.Join(two, "model", "2"), savedmodels.Options{})
	require.NoError(t, err)
	defer m.Close()
	assert.Len(t, m.Variables(), 4)
	_, held, err := digits.Load()
	require.NoError(t, err)
	images, err := bridge.FromFlat(bridge.Shape{int64(held.Len()), 64}, held.Images)
	require.NoError(t, err)
	defer images.Close()
	out, err := m.Run(t.Context(), "serving_default", savedmodels.Tensors{"image": images})
	require.NoError(t, err)
	defer out.Close()
	scores, err := bridge.Flat[float32](out["scores"])
	require.NoError(t, err)
	right := 0
	for i, label := range held.Labels {
		best := 0
		for c := range 10 {
			if scores[i*10+c] > scores[i*10+best] {
				best = c
			}
		}
		if best == int(label) {
			right++
		}
	}
	assert.Greater(t, right, 320, "of %d", held.Len())
}
