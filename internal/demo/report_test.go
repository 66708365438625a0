package demo

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func names(t *testing.T, path string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestFolder(t *testing.T) {
	write := func(text string) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		}
	}
	t.Run("it is made, with those above it", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a", "b")
		f, err := openFolder(path)
		require.NoError(t, err)
		require.NoError(t, f.save("x.png", write("whole")))
		text, err := os.ReadFile(filepath.Join(path, "x.png"))
		require.NoError(t, err)
		assert.Equal(t, "whole", string(text))
		assert.Equal(t, "x.png had been saved in "+path, f.told())
	})
	t.Run("a file that can't be written whole is not there, and an older one stays", func(t *testing.T) {
		path := t.TempDir()
		f, err := openFolder(path)
		require.NoError(t, err)
		require.NoError(t, f.save("x.png", write("older")))
		err = f.save("x.png", func(w io.Writer) error {
			require.NoError(t, write("ha")(w))
			return errors.New("out of ink")
		})
		assert.EqualError(t, err, "x.png can't be written: out of ink")
		assert.Equal(t, []string{"x.png"}, names(t, path))
		text, err := os.ReadFile(filepath.Join(path, "x.png"))
		require.NoError(t, err)
		assert.Equal(t, "older", string(text))
	})
	t.Run("an old summary goes at the start, and nothing else", func(t *testing.T) {
		path := t.TempDir()
		for _, name := range []string{summaryFile, "notes.txt"} {
			require.NoError(t, os.WriteFile(filepath.Join(path, name), nil, 0o600))
		}
		f, err := openFolder(path)
		require.NoError(t, err)
		assert.Equal(t, []string{"notes.txt"}, names(t, path))
		assert.Equal(t, "nothing was saved in "+path, f.told())
	})
	t.Run("a file in its place is an error that names it", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "taken")
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		_, err := openFolder(path)
		assert.ErrorContains(t, err, path)
	})
	t.Run("the files can be read by others", func(t *testing.T) {
		f, err := openFolder(t.TempDir())
		require.NoError(t, err)
		require.NoError(t, f.save("x.png", write("")))
		info, err := os.Stat(filepath.Join(f.path, "x.png"))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o644), info.Mode().Perm())
	})
}

func TestProgress(t *testing.T) {
	note := func(int) (string, error) { return "fine", nil }
	t.Run("where there is no terminal, a line at each fifth of the way", func(t *testing.T) {
		for epochs, lines := range map[int]int{1: 1, 3: 3, 5: 5, 60: 5, 61: 5} {
			var told strings.Builder
			require.NoError(t, newProgress(&told).run(t.Context(), "training", epochs, note))
			assert.Equal(t, lines, strings.Count(told.String(), "\n"), "%d epochs", epochs)
			assert.NotContains(t, told.String(), "\r")
		}
		var told strings.Builder
		require.NoError(t, newProgress(&told).run(t.Context(), "training", 10, note))
		assert.Contains(t, told.String(), "epoch 10 of 10  fine\n")
	})
	t.Run("on a terminal, one bar", func(t *testing.T) {
		var told strings.Builder
		require.NoError(t, (&progress{w: &told, terminal: true}).run(t.Context(), "training", 10, note))
		assert.Contains(t, told.String(), "fine")
		assert.Contains(t, told.String(), "\r")
		assert.Equal(t, 1, strings.Count(told.String(), "\n"))
	})
	t.Run("it ends with the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		epochs := 0
		err := newProgress(io.Discard).run(ctx, "training", 10, func(int) (string, error) {
			epochs++
			cancel()
			return "", nil
		})
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 1, epochs)
	})
	t.Run("it ends with an error", func(t *testing.T) {
		broken := errors.New("broken")
		err := newProgress(io.Discard).run(t.Context(), "training", 10, func(int) (string, error) { return "", broken })
		assert.ErrorIs(t, err, broken)
	})
}
