package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sluice runs the command as a shell would.
func sluice(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(ctx, verbs(), args, &out, &err)
	return code, out.String(), err.String()
}

func TestDemo(t *testing.T) {
	t.Run("--json prints what is in summary.json, and nothing else", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "digits")
		code, stdout, stderr := sluice(t.Context(), "demo", "--out", out, "--seed", "3", "--epochs", "1", "--json")
		require.Equal(t, exitOK, code, stderr)
		file, err := os.ReadFile(filepath.Join(out, "summary.json"))
		require.NoError(t, err)
		assert.Equal(t, string(file), stdout)
		var summary struct {
			Seed               int64
			FrozenBitIdentical map[string]bool `json:"frozen_bit_identical"`
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &summary))
		assert.EqualValues(t, 3, summary.Seed)
		assert.Equal(t, map[string]bool{"scopes": true, "stop_gradient": true, "gates": true}, summary.FrozenBitIdentical)
		assert.Contains(t, stderr, "epoch 1 of 1", "progress goes to standard error")
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		out := t.TempDir()
		code, stdout, stderr := sluice(ctx, "demo", "--out", out)
		assert.Equal(t, exitInterrupted, code)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "interrupted, nothing was saved in "+out)
	})
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no epochs":      {[]string{"--epochs", "0"}, "--epochs is 0, expected 1 or more"},
		"no folder":      {[]string{"--out", ""}, "--out is empty, expected a folder"},
		"an argument":    {[]string{"digits"}, "takes no arguments"},
		"a seed of text": {[]string{"--seed", "seven"}, `invalid argument "seven"`},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := sluice(t.Context(), append([]string{"demo"}, c.args...)...)
			assert.Equal(t, exitUsage, code)
			assert.Contains(t, stderr, c.want)
		})
	}
	t.Run("--help says what it does and leaves", func(t *testing.T) {
		code, stdout, _ := sluice(t.Context(), "demo", "--help")
		assert.Equal(t, exitOK, code)
		for _, word := range []string{"mod 2π", "stop_gradient", "summary.json", "--seed", "--epochs", "--out", "--json", "Ctrl-C"} {
			assert.Contains(t, stdout, word)
		}
	})
}
