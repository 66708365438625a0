package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
)

func TestExitStatus(t *testing.T) {
	verb := func(answer error) []*cobra.Command {
		c := &cobra.Command{Use: "work", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), "worked")
			return answer
		}}
		c.Flags().Int("steps", 1, "how many")
		return []*cobra.Command{c}
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx    context.Context
		answer error
		args   string
		code   int
		stderr string // what it must hold; "": nothing at all
	}{
		"done":                          {t.Context(), nil, "work", 0, ""},
		"help is done":                  {t.Context(), nil, "work --help", 0, ""},
		"failed":                        {t.Context(), errors.New("no such model"), "work", 1, "sluice work: no such model\n"},
		"reported failures say no more": {t.Context(), errReported, "work", 1, ""},
		"nothing asked":                 {t.Context(), nil, "", 2, ""},
		"unknown verb":                  {t.Context(), nil, "wrok", 2, `unknown command "wrok"`},
		"unknown flag":                  {t.Context(), nil, "work --stpes 2", 2, "unknown flag: --stpes"},
		"a flag that is no number":      {t.Context(), nil, "work --steps many", 2, "--steps"},
		"an argument too many":          {t.Context(), nil, "work hard", 2, `"hard"`},
		"usage found wrong by the verb": {t.Context(), fmt.Errorf("%w: --steps must be positive", errUsage), "work", 2, "sluice work: wrong usage: --steps must be positive\n"},
		"interrupted":                   {stopped, context.Canceled, "work", 130, "sluice work: interrupted\n"},
		"interrupted, telling more":     {stopped, errors.New("stopped half way, 2 pictures saved"), "work", 130, "2 pictures saved"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			code := run(c.ctx, verb(c.answer), strings.Fields(c.args), &stdout, &stderr)
			assert.Equal(t, c.code, code)
			if c.stderr == "" {
				assert.Empty(t, stderr.String())
			} else {
				assert.Contains(t, stderr.String(), c.stderr)
			}
		})
	}
}

func TestAnInterruptedVerbEndsWhateverItDoes(t *testing.T) {
	for name, c := range map[string]struct {
		interrupted bool
		work        func(ctx context.Context, released <-chan struct{}) int
		code        int
		says        string
	}{
		"done":                      {false, func(context.Context, <-chan struct{}) int { return exitOK }, exitOK, ""},
		"failed":                    {false, func(context.Context, <-chan struct{}) int { return exitFailure }, exitFailure, ""},
		"interrupted, and it heeds": {true, func(ctx context.Context, _ <-chan struct{}) int { <-ctx.Done(); return exitInterrupted }, exitInterrupted, ""},
		"interrupted in the middle of what does not stop": {true, func(_ context.Context, released <-chan struct{}) int { <-released; return exitOK }, exitInterrupted, "did not stop"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			if c.interrupted {
				interrupt()
			}
			released := make(chan struct{})
			defer close(released)
			var stderr strings.Builder
			handled := true
			grace := time.Minute
			if c.says != "" {
				grace = time.Millisecond
			}
			code := supervise(ctx, func() { handled = false }, grace, &stderr, func() int { return c.work(ctx, released) })
			assert.Equal(t, c.code, code)
			assert.Contains(t, stderr.String(), c.says)
			if c.says != "" {
				assert.False(t, handled, "a second signal kills")
			}
		})
	}
}

func TestGradRefusesAToleranceThatNothingIsBeyond(t *testing.T) {
	for _, tolerance := range []string{"NaN", "-1"} {
		var stdout, stderr strings.Builder
		code := run(t.Context(), verbs(), []string{"grad", "none.pb", "--y", "a", "--x", "b", "--check", "--tolerance", tolerance}, &stdout, &stderr)
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, stderr.String(), "--tolerance is "+tolerance)
	}
}
