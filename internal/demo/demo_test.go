package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if tensors, size := bridge.Live(); tensors != 0 {
		println("tensors left:", tensors, "bytes:", size)
		code = 1
	}
	os.Exit(code)
}

func TestTheDemoDoesWhatItSays(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	var log bytes.Buffer
	s, err := Run(t.Context(), Options{Out: out, Seed: 7, Epochs: 30, Log: &log})
	require.NoError(t, err)

	t.Run("phases modulo 2π recognize digits, all of them in range", func(t *testing.T) {
		assert.GreaterOrEqual(t, s.Accuracy, 0.95)
		assert.GreaterOrEqual(t, s.AccuracyGradientDescent, 0.95)
		assert.Equal(t, 640, s.Weights)
		assert.True(t, s.WeightsInRange)
		assert.Zero(t, s.WeightsOutside)
		assert.Greater(t, s.WeightsOutsideGradientDescent, 50, "plain descent leaves the circle, so the range is floormod's doing")
	})
	t.Run("each way of freezing holds every bit still", func(t *testing.T) {
		for _, way := range ways {
			assert.True(t, s.FrozenBitIdentical[way.name], way.name)
			assert.Equal(t, 2*30*(1438/32), s.FrozenSteps[way.name], way.name)
			assert.Contains(t, log.String(), "G and D by "+way.name)
		}
		assert.Len(t, s.FrozenBitIdentical, 3)
	})
	t.Run("the three ways are the same computation: they end with the same bits", func(t *testing.T) {
		assert.Equal(t, map[string]bool{"scopes": true, "stop_gradient": true, "gates": true}, s.SameBitsAsScopes)
	})
	t.Run("G's digits become ones that are recognized", func(t *testing.T) {
		assert.GreaterOrEqual(t, s.AccuracyJudge, 0.95)
		assert.Less(t, s.GeneratedBefore.Recognized, 0.3)
		for _, way := range ways {
			q := s.Generated[way.name]
			assert.Greater(t, q.Recognized, 0.85, way.name)
			assert.Greater(t, q.Confidence, 0.8, way.name)
			assert.Greater(t, q.Variety, 0.3, way.name)
		}
	})
	t.Run("the files are there, and the summary says so", func(t *testing.T) {
		assert.Equal(t, []string{"accuracy.png", "phases.png", "generated.png", "recognized.png", "losses.png"}, s.Files)
		assert.ElementsMatch(t, append([]string{summaryFile}, s.Files...), names(t, out))
		for _, name := range s.Files {
			file, err := os.Open(filepath.Join(out, name))
			require.NoError(t, err)
			_, err = png.Decode(file)
			assert.NoError(t, err, name)
			require.NoError(t, file.Close())
		}
		text, err := os.ReadFile(filepath.Join(out, summaryFile))
		require.NoError(t, err)
		var read Summary
		require.NoError(t, json.Unmarshal(text, &read))
		assert.Equal(t, *s, read)
		var keys map[string]any
		require.NoError(t, json.Unmarshal(text, &keys))
		for _, key := range []string{"accuracy", "accuracy_gradient_descent", "weights_in_range", "frozen_bit_identical", "seconds"} {
			assert.Contains(t, keys, key)
		}
	})
	t.Run("the tables tell it", func(t *testing.T) {
		var told strings.Builder
		require.NoError(t, s.Print(&told, out))
		assert.Contains(t, told.String(), "640 of 640")
		assert.Equal(t, 3, strings.Count(told.String(), "in all 2640 turns"))
		assert.Contains(t, told.String(), summaryFile)
	})
}

func TestTheSameSeedGivesTheSameNumbersAndPictures(t *testing.T) {
	run := func(seed int64) (Summary, []byte) {
		out := t.TempDir()
		s, err := Run(t.Context(), Options{Out: out, Seed: seed, Epochs: 2, Log: io.Discard})
		require.NoError(t, err)
		s.Seconds = 0
		var pictures []byte
		for _, name := range s.Files {
			picture, err := os.ReadFile(filepath.Join(out, name))
			require.NoError(t, err)
			pictures = append(pictures, picture...)
		}
		return *s, pictures
	}
	first, firstPictures := run(3)
	second, secondPictures := run(3)
	assert.Equal(t, first, second)
	assert.True(t, bytes.Equal(firstPictures, secondPictures))
	other, _ := run(4)
	assert.NotEqual(t, first.Generated, other.Generated)
}

func TestAnInterruptedRunEndsWithinASecondAndSaysWhatWasSaved(t *testing.T) {
	for name, c := range map[string]struct {
		after string // what is on the log when the interrupt comes
		want  string
		saved []string
	}{
		"in part one": {"phases by floormod", "interrupted, nothing was saved in ", nil},
		"in part two": {"judge", "interrupted, accuracy.png, phases.png had been saved in ", []string{"accuracy.png", "phases.png"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			log := &trigger{word: c.after, pull: cancel}
			_, err := Run(ctx, Options{Out: out, Seed: 7, Epochs: 5, Log: log})
			require.ErrorIs(t, err, context.Canceled)
			assert.ErrorContains(t, err, c.want+out)
			assert.Less(t, time.Since(log.pulled), time.Second)
			assert.Equal(t, c.saved, names(t, out))
		})
	}
}

// trigger calls pull when a word is written to it.
type trigger struct {
	word   string
	pull   func()
	pulled time.Time
}

func (t *trigger) Write(p []byte) (int, error) {
	if t.pulled.IsZero() && strings.Contains(string(p), t.word) {
		t.pulled = time.Now()
		t.pull()
	}
	return len(p), nil
}

func TestOptionsThatCanNotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"no epochs":           {Options{Out: t.TempDir(), Epochs: 0}, "0 epochs, expected 1 or more"},
		"a file for a folder": {Options{Out: file, Epochs: 1}, "the output folder can't be made"},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Log = io.Discard
			_, err := Run(t.Context(), c.options)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

// The proof would be worth nothing if it did not see that something moves.
func TestAPairThatIsNotFrozenIsFoundOut(t *testing.T) {
	j := testJob(t)
	judge, err := newJudge(t.Context(), j)
	require.NoError(t, err)
	defer func() { judge.run.close(&err); require.NoError(t, err) }()

	for name, train := range map[string]func(p *pair) error{
		"both train ops over both nets": func(p *pair) error {
			return p.trainOver(p.graph.Trainable("gan/"), p.graph.Trainable("gan/"))
		},
		"gates without gated optimizers: Adam moves what has a gradient of zero": func(p *pair) error {
			return p.trainGated(func(tf.Output) optimizer { return newAdam() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := newPair(7, train)
			require.NoError(t, err)
			result, err := p.play(t.Context(), j, "pair", judge)
			require.NoError(t, err)
			assert.False(t, result.bitIdentical())
			assert.Less(t, result.g.stood, result.steps)
		})
	}
}

func testJob(t *testing.T) *job {
	t.Helper()
	j, err := newJob(Options{Out: t.TempDir(), Seed: 7, Epochs: 1, Log: io.Discard})
	require.NoError(t, err)
	return j
}
