package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckFindsWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		install  bool
		harm     func(t *testing.T, m *machine)
		settings []string
		bad      []string // the findings that are not ok
	}{
		"all is well":          {install: true},
		"nothing installed":    {bad: []string{"library"}},
		"an include gone":      {install: true, harm: remove("include"), bad: []string{"library"}},
		"the compiler gone":    {install: true, settings: []string{"CC=icc"}, bad: []string{"compiler"}},
		"a library too old":    {install: true, settings: []string{"FAKE_LIBRARY=2.4.1"}, bad: []string{"version"}},
		"a library too new":    {install: true, settings: []string{"FAKE_LIBRARY=3.0.0"}, bad: []string{"version"}},
		"a library unreadable": {install: true, settings: []string{"FAKE_COMPILER_SAYS=bad ELF"}, bad: []string{"version"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "python3", "gcc")
			if c.install {
				m.succeeds(nil, "install")
			}
			if c.harm != nil {
				c.harm(t, m)
			}
			code, stdout, stderr := m.run(c.settings, "check", "--json")
			var r report
			require.NoError(t, json.Unmarshal([]byte(stdout), &r), stderr)
			var bad []string
			for _, f := range r.Findings {
				if !f.OK {
					bad = append(bad, f.Name)
				}
			}
			assert.Equal(t, c.bad, bad)
			assert.Equal(t, c.bad == nil, r.OK)
			assert.Equal(t, c.bad == nil, code == exitOK)
			assert.Empty(t, stderr)

			_, text, _ := m.run(c.settings, "check")
			for _, name := range c.bad {
				assert.Regexp(t, "(?m)^BAD  "+name, text)
			}
		})
	}
}

func remove(name string) func(*testing.T, *machine) {
	return func(t *testing.T, m *machine) { require.NoError(t, os.Remove(filepath.Join(m.root, name))) }
}

func TestCheckTellsOfAPythonThatStoppedRunning(t *testing.T) {
	m := newMachine(t, "python3", "gcc")
	list := filepath.Join(t.TempDir(), "list.txt")
	require.NoError(t, os.WriteFile(list, []byte("numpy==2.4.6"), 0o644))
	m.succeeds(nil, "install", "--with", list)
	require.NoError(t, os.WriteFile(filepath.Join(m.root, "venv", "bin", "python"), []byte("#!/bin/sh\nexit 127\n"), 0o755))
	m.succeeds(nil, "env") // the library does not need it
	code, stdout, _ := m.run(nil, "check")
	assert.Equal(t, exitFailure, code)
	assert.Regexp(t, "(?m)^BAD  python", stdout)
}

func TestPlatform(t *testing.T) {
	assert.NoError(t, checkPlatform("linux", "amd64", false))
	assert.ErrorContains(t, checkPlatform("darwin", "arm64", false), "this is darwin/arm64")
	assert.ErrorContains(t, checkPlatform("linux", "arm64", false), "this is linux/arm64")
	assert.ErrorContains(t, checkPlatform("linux", "amd64", true), "musl")

	root := t.TempDir()
	assert.False(t, hasMusl(root))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "lib"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "lib", "ld-musl-x86_64.so.1"), nil, 0o755))
	assert.True(t, hasMusl(root), "Alpine")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "lib64"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "lib64", "ld-linux-x86-64.so.2"), nil, 0o755))
	assert.False(t, hasMusl(root), "Debian with the package musl")
}

func TestProcessor(t *testing.T) {
	for name, c := range map[string]struct {
		cpuinfo string
		ok      bool
	}{
		"AVX":                          {"processor\t: 0\nflags\t\t: fpu sse4_2 avx avx2\n", true},
		"no AVX":                       {"processor\t: 0\nflags\t\t: fpu sse4_2\n", false},
		"a flag that only begins so":   {"flags\t\t: fpu avx2x\n", false},
		"a machine that tells nothing": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "cpuinfo")
			require.NoError(t, os.WriteFile(file, []byte(c.cpuinfo), 0o644))
			err := checkCPU(file)
			if c.ok {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, "no AVX")
			}
		})
	}
}

func TestSpace(t *testing.T) {
	assert.NoError(t, checkSpace(t.TempDir(), 1))
	assert.ErrorContains(t, checkSpace(t.TempDir(), 1<<60), "SLUICE_LIBTENSORFLOW")
}

func TestSupportedRange(t *testing.T) {
	for version, want := range map[string]bool{
		"2.15.1": false, "2.16.0": true, "2.16.0-rc1": true, "2.18.1": true, "2.21.0": true, "2.22.0": false, "1.20.0": false, "3.17.0": false, "": false, "two": false,
	} {
		assert.Equal(t, want, supported(version), version)
	}
}

// The library that this very test was built beside, when it is the pinned one
// in its default place.
func TestTheRealLibrary(t *testing.T) {
	root := os.Getenv("SLUICE_LIBTENSORFLOW")
	if root == "" {
		root = defaultRoot(cpu)
	}
	have := tree(root).complete(cpu)
	if have == nil {
		return // not set up by this command: there is nothing to look at
	}
	version, err := probe(t.Context(), tree(root))
	require.NoError(t, err)
	assert.Equal(t, have.Version, version)
	stub, err := exportedAPI(tree(root).path("lib", "libtensorflow.so"))
	require.NoError(t, err)
	assert.Contains(t, stub, "TF_SessionRun")
	assert.Contains(t, stub, "TF_DeleteStatus", "which the framework library has")
	site, err := tree(root).sitePackages()
	require.NoError(t, err)
	assert.True(t, installed(site, requirementsCPU))
	records, err := filepath.Glob(filepath.Join(escapeGlob(site), "pip-*.dist-info"))
	require.NoError(t, err)
	require.Len(t, records, 1)
	assert.NoError(t, verifyRecord(site, records[0]), "a record as pip writes it")
}
