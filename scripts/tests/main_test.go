package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTally(t *testing.T) {
	for name, c := range map[string]struct {
		events                  string
		passed, failed, skipped int
		says, silent            []string
	}{
		"a passing package takes its own line alone": {
			events: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`,
			passed: 1, says: []string{"ok  \tp"}, silent: []string{"chatter", "PASS"},
		},
		"a failing test is printed whole and counted once": {
			events: `{"Action":"output","Package":"p","Test":"TestA","Output":"want 1\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
`,
			failed: 1, skipped: 1, says: []string{"want 1"},
		},
		"a package that does not build is a failure": {
			events: `{"ImportPath":"p","Action":"build-output","Output":"p.go:1: syntax error\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"fail","Package":"p"}
`,
			failed: 1, says: []string{"syntax error"},
		},
		"a crash shows what the test that was running printed": {
			events: `{"Action":"output","Package":"p","Test":"TestA","Output":"SIGSEGV\n"}
{"Action":"fail","Package":"p"}
`,
			failed: 1, says: []string{"SIGSEGV"},
		},
		"what is no event is passed on": {
			events: "go: cannot find main module\n",
			says:   []string{"cannot find main module"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			count := tally{out: &out}
			require.NoError(t, count.read(strings.NewReader(c.events)))
			assert.Equal(t, [3]int{c.passed, c.failed, c.skipped}, [3]int{count.passed, count.failed, count.skipped})
			for _, text := range c.says {
				assert.Contains(t, out.String(), text)
			}
			for _, text := range c.silent {
				assert.NotContains(t, out.String(), text)
			}
		})
	}
}
