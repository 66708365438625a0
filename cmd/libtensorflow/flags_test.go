package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMergeFlags(t *testing.T) {
	for name, c := range map[string]struct{ set, unset, want string }{
		"nothing set":                     {"", "-O2 -g", "-O2 -g -I/x"},
		"nothing set, no default":         {" ", "", "-I/x"},
		"ours set already":                {"-O2 -g -I/x", "-O2 -g", "-O2 -g -I/x"},
		"somebody else's are kept":        {"-O3 -DFOO", "-O2 -g", "-O3 -DFOO -I/x"},
		"ours come before other folders":  {"-O2 -I/other -g", "-O2 -g", "-O2 -I/x -I/other -g"},
		"and are moved there":             {"-I/other -I/x", "-O2 -g", "-I/x -I/other"},
		"spaces in somebody else's flags": {`-O2 '-DNAME="a b"'`, "", `-O2 '-DNAME="a b"' -I/x`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := mergeFlags(c.set, c.unset, "-I/x")
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			again, err := mergeFlags(got, c.unset, "-I/x")
			require.NoError(t, err)
			assert.Equal(t, got, again, "eval'ing it twice changes nothing")
		})
	}
	_, err := mergeFlags(`-O2 "-I/open`, "", "-I/x")
	assert.ErrorContains(t, err, "unterminated")
}

func TestFlagsAreReadBackAsTheyWere(t *testing.T) {
	for _, path := range []string{"-I/plain", "-I/a b", "-I/it's", `-I/say "hi"`, "-I/tab\there", ""} {
		quoted, err := quoteFlag(path)
		require.NoError(t, err)
		fields, err := splitFlags("-O2 " + quoted + " -g")
		require.NoError(t, err)
		assert.Equal(t, []string{"-O2", path, "-g"}, fields)
	}
	_, err := quoteFlag(`-I/it's "both"`)
	assert.Error(t, err)
}

func TestShellQuoteSurvivesAShell(t *testing.T) {
	for _, s := range []string{"/plain/path-1.0", "a b", "it's", `"$HOME" \ *`, "a\nb", ""} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+shellQuote(s)).Output()
		require.NoError(t, err)
		assert.Equal(t, s, string(out))
	}
}

// What env prints is evaluated by a shell and read by the go command: both must
// give the paths back, whatever is in them.
func TestEnvForAPathWithSpacesAndQuotes(t *testing.T) {
	m := newMachine(t, "python3", "gcc")
	root := m.root + " it's"
	m.succeeds(nil, "install", "--dir", root)
	assert.NotContains(t, m.succeeds(nil, "env", "--dir", root), "SLUICE_PYTHON", "a Python without numpy, which can't import the wheel")
	list := filepath.Join(t.TempDir(), "list.txt")
	require.NoError(t, os.WriteFile(list, []byte("numpy==1"), 0o644))
	m.succeeds(nil, "install", "--dir", root, "--with", list)
	stdout := m.succeeds(nil, "env", "--dir", root)

	out, err := exec.CommandContext(t.Context(), "sh", "-c", "unset CGO_CFLAGS CGO_LDFLAGS CGO_ENABLED; "+stdout+
		`printf '%s\n%s\n%s\n%s' "$CGO_ENABLED" "$CGO_CFLAGS" "$CGO_LDFLAGS" "$SLUICE_PYTHON"`).Output()
	require.NoError(t, err)
	lines := strings.Split(string(out), "\n")
	require.Len(t, lines, 4)
	assert.Equal(t, "1", lines[0])
	cflags, err := splitFlags(lines[1])
	require.NoError(t, err)
	assert.Equal(t, []string{"-O2", "-g", "-I" + root + "/include"}, cflags)
	ldflags, err := splitFlags(lines[2])
	require.NoError(t, err)
	assert.Equal(t, []string{"-L" + root + "/lib", "-Wl,-rpath," + root + "/lib"}, ldflags)
	assert.Equal(t, root+"/venv/bin/python", lines[3])

	var e buildEnv
	require.NoError(t, json.Unmarshal([]byte(m.succeeds(nil, "env", "--json", "--dir", root)), &e))
	assert.Equal(t, lines[1:], []string{e.CFlags, e.LDFlags, e.Python})
}

func TestEnvOfALibraryThatSomebodyElsePutThere(t *testing.T) {
	m := newMachine(t, "gcc")
	wheel(t, m.root, "none", "include/tensorflow/c/c_api.h", "lib/libtensorflow.so")
	assert.Contains(t, m.succeeds(nil, "env"), "/lib")
	code, stdout, _ := m.run([]string{"FAKE_LIBRARY=2.16.1"}, "check")
	assert.Equal(t, exitOK, code, stdout)
	code, stdout, _ = m.run([]string{"FAKE_LIBRARY=2.15.0"}, "check")
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stdout, "TensorFlow 2.15.0 is outside 2.16 to 2.21")
}
