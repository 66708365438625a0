package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInstallSetsUpEverythingOnce(t *testing.T) {
	m := newMachine(t, "python3", "gcc")
	m.succeeds(nil, "install")
	assert.Equal(t, []string{"venv", "download", "install"}, m.asked())

	var first installation
	require.NoError(t, json.Unmarshal([]byte(m.succeeds(nil, "install", "--json")), &first))
	assert.Equal(t, m.root, first.Root)
	assert.Equal(t, "2.21.0", first.Version)
	assert.False(t, first.Changed)
	assert.Len(t, m.asked(), 3, "what is complete is left alone")

	assert.FileExists(t, filepath.Join(m.root, "lib", "libtensorflow.so"))
	assert.NoDirExists(t, filepath.Join(m.root, "wheels"), "what pip fetched is not kept twice")

	code, stdout, _ := m.run(nil, "check")
	assert.Equal(t, exitOK, code, stdout)

	moved := m.root + " moved"
	require.NoError(t, os.Rename(m.root, moved))
	assert.Contains(t, m.succeeds(nil, "env", "--dir", moved), moved+"/include", "a moved or copied tree works where it is now")
}

func TestInstallTellsWhatIsWrongAndTheCommandThatMendsIt(t *testing.T) {
	for name, c := range map[string]struct {
		programs string
		settings []string
		args     []string
		says     []string
	}{
		"no Python":                     {"gcc apt-get", nil, nil, []string{"there is no Python", "apt-get install -y python3 python3-venv"}},
		"no Python on Fedora":           {"gcc dnf", nil, nil, []string{"dnf install -y python3"}},
		"Python too new":                {"gcc python3", []string{"FAKE_MINOR=14"}, nil, []string{"is Python 3.14.7", "3.10 to 3.13", "--python"}},
		"Python too old":                {"gcc python3", []string{"FAKE_MINOR=9"}, nil, []string{"is Python 3.9.7", "3.10 to 3.13"}},
		"another implementation":        {"gcc python3", []string{"FAKE_IMPLEMENTATION=pypy"}, nil, []string{"is pypy"}},
		"Python without venv":           {"gcc python3 apt-get", []string{"FAKE_VENV=false"}, nil, []string{"venv or ensurepip is missing", "apt-get install -y python3.11-venv"}},
		"the Python named is missing":   {"gcc python3", nil, []string{"--python", "python9"}, []string{`no executable "python9"`, "leave --python out"}},
		"the Python named is no Python": {"gcc python3 cat", nil, []string{"--python", "cat"}, []string{"does not run"}},
		"no compiler":                   {"python3 apt-get", nil, nil, []string{"no C compiler", "apt-get install -y gcc libc6-dev"}},
		"only clang":                    {"python3 clang", nil, nil, []string{"there is clang", "export CC=clang"}},
		"CC that is missing":            {"python3 gcc", []string{"CC=icc -O1"}, nil, []string{`"icc"`}},
		"compiler without headers":      {"python3 gcc apt-get", []string{"FAKE_COMPILER_SAYS=fatal error: stdio.h: No such file"}, nil, []string{"stdio.h", "apt-get install -y gcc libc6-dev"}},
		"library that does not link":    {"python3 gcc", []string{"FAKE_COMPILER_SAYS=undefined reference to TF_Version"}, nil, []string{"undefined reference"}},
		"library of another version":    {"python3 gcc", []string{"FAKE_LIBRARY=2.15.0"}, nil, []string{"2.15.0", "2.21.0"}},
		"venv fails":                    {"python3 gcc", []string{"FAKE_STEP=venv", "FAKE_DEED=exit 1"}, nil, []string{"could not make a virtual environment"}},
		"pip can't fetch":               {"python3 gcc", []string{"FAKE_STEP=download", "FAKE_DEED=echo 'no route' >&2; exit 1"}, nil, []string{"no route", "pip could not fetch", "check the network"}},
		"pip can't install":             {"python3 gcc", []string{"FAKE_STEP=install", "FAKE_DEED=exit 1"}, nil, []string{"pip could not install", "rm -rf"}},
		"path that no linker takes":     {"python3 gcc", nil, []string{"--dir", "/a:b"}, []string{"colon", "SLUICE_LIBTENSORFLOW"}},
		"no home":                       {"python3 gcc", []string{"HOME=", "SLUICE_LIBTENSORFLOW="}, nil, []string{"no home directory", "SLUICE_LIBTENSORFLOW"}},
		"requirements that are missing": {"python3 gcc", nil, []string{"--with", "nowhere.txt"}, []string{"nowhere.txt"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, strings.Fields(strings.ReplaceAll(c.programs, "cat", ""))...)
			code, stdout, stderr := m.run(c.settings, append([]string{"install"}, c.args...)...)
			assert.Equal(t, exitFailure, code)
			assert.Empty(t, stdout)
			for _, text := range c.says {
				assert.Contains(t, stderr, text)
			}
			assert.NoFileExists(t, filepath.Join(m.root, "complete.json"))

			code, stdout, stderr = m.run(nil, "env")
			assert.Equal(t, exitFailure, code)
			assert.Empty(t, stdout, "half a library must not be built against")
			assert.Contains(t, stderr, "install")
		})
	}
}

// The oldest library that is supported has a directory of its own and wheels
// for fewer Pythons.
func TestInstallOfTheOldestVersion(t *testing.T) {
	m := newMachine(t, "gcc")
	m.program("python3", strings.Replace(fakePython, ":-11}", ":-13}", 1))
	code, _, stderr := m.run(nil, "install", "--version", "2.16.2")
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stderr, "TensorFlow 2.16.2 has wheels for CPython 3.10 to 3.12")
	assert.Empty(t, m.asked())

	m.program("python3", fakePython)
	wheel(t, filepath.Join(filepath.Dir(m.bin), "payload"), "tensorflow_cpu-2.16.2")
	home := filepath.Join(filepath.Dir(m.bin), ".cache", "sluice")
	inHome := []string{"SLUICE_LIBTENSORFLOW=", "FAKE_LIBRARY=2.16.2"}
	m.succeeds(inHome, "install", "--version", "2.16.2")
	assert.FileExists(t, filepath.Join(home, "tensorflow-cpu-2.16.2", "complete.json"))
	assert.NoDirExists(t, filepath.Join(home, "tensorflow-cpu-2.21.0"))
	assert.Contains(t, m.succeeds(inHome, "env", "--version", "2.16.2"), "tensorflow-cpu-2.16.2/lib")

	code, stdout, stderr := m.run([]string{"SLUICE_LIBTENSORFLOW="}, "env")
	assert.Equal(t, exitFailure, code, "the newest is not there: %s", stdout)
	assert.Contains(t, stderr, "install")
}

func TestInstallTakesTheFirstPythonThatFits(t *testing.T) {
	m := newMachine(t, "python3.12", "gcc")
	m.program("python3", "#!/bin/sh\nexit 127\n")
	m.program("python", strings.Replace(fakePython, ":-cpython", ":-graalpy", 1))
	m.succeeds(nil, "install")
}

func TestInstallKeepsOutOfAForeignDirectory(t *testing.T) {
	m := newMachine(t, "python3", "gcc")
	require.NoError(t, os.MkdirAll(m.root, 0o755))
	diary := filepath.Join(m.root, "diary.txt")
	require.NoError(t, os.WriteFile(diary, []byte("dear"), 0o644))
	code, _, stderr := m.run(nil, "install")
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stderr, "--dir")
	assert.FileExists(t, diary)
	assert.Empty(t, m.asked())
}

func TestInstallGoesOnAfterBeingKilled(t *testing.T) {
	for step, again := range map[string][]string{
		"venv":     {"venv", "venv", "download", "install"},
		"download": {"venv", "download", "download", "install"},
		// Killed in the middle of its files: what was fetched is not fetched again by pip,
		// which finds it in the folder that it fetches into.
		"install": {"venv", "download", "install", "download", "install"},
	} {
		t.Run(step, func(t *testing.T) {
			m := newMachine(t, "python3", "gcc")
			code, _, _ := m.run([]string{"FAKE_STEP=" + step, "FAKE_DEED=kill -9 $PPID; exit 1"}, "install")
			require.Equal(t, -1, code, "it was not killed")
			code, _, _ = m.run(nil, "env")
			assert.Equal(t, exitFailure, code)

			m.succeeds(nil, "install")
			assert.Equal(t, again, m.asked())
			m.succeeds(nil, "env")
		})
	}
}

func TestInstallMendsWhatIsBroken(t *testing.T) {
	site := filepath.Join("venv", "lib", "python3.11", "site-packages")
	for name, c := range map[string]struct {
		harm  func(t *testing.T, root string)
		again []string
	}{
		"a link that is gone": {func(t *testing.T, root string) {
			require.NoError(t, os.Remove(filepath.Join(root, "include")))
		}, nil},
		"a receipt that can't be read": {func(t *testing.T, root string) {
			require.NoError(t, os.WriteFile(filepath.Join(root, "complete.json"), []byte("{"), 0o644))
		}, nil},
		"a tree that an older command made": {func(t *testing.T, root string) {
			r := tree(root).receipt()
			r.Layout--
			require.NoError(t, tree(root).write(*r))
		}, nil},
		"a library that is gone": {func(t *testing.T, root string) {
			require.NoError(t, os.Remove(filepath.Join(root, site, "tensorflow", "libtensorflow_cc.so.2")))
		}, []string{"download", "install"}},
		"a library cut short before the receipt": {func(t *testing.T, root string) {
			require.NoError(t, os.WriteFile(filepath.Join(root, site, "tensorflow", "libtensorflow_cc.so.2"), nil, 0o644))
			require.NoError(t, os.Remove(filepath.Join(root, "complete.json")))
		}, []string{"download", "install"}},
		"a record cut short before the receipt": {func(t *testing.T, root string) {
			require.NoError(t, os.WriteFile(filepath.Join(root, site, "tensorflow_cpu-2.21.0.dist-info", "RECORD"), nil, 0o644))
			require.NoError(t, os.Remove(filepath.Join(root, "complete.json")))
		}, []string{"download", "install"}},
		"an environment that is gone": {func(t *testing.T, root string) {
			require.NoError(t, os.RemoveAll(filepath.Join(root, "venv")))
		}, []string{"venv", "download", "install"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "python3", "gcc")
			m.succeeds(nil, "install")
			before := len(m.asked())
			c.harm(t, m.root)
			code, _, _ := m.run(nil, "env")
			assert.Equal(t, exitFailure, code)
			m.succeeds(nil, "install")
			assert.ElementsMatch(t, c.again, m.asked()[before:])
			m.succeeds(nil, "env")
			content, err := os.ReadFile(filepath.Join(m.root, "lib", "libtensorflow_cc.so.2"))
			require.NoError(t, err)
			assert.NotEmpty(t, content)
		})
	}
}

func TestInstallStopsWhenInterrupted(t *testing.T) {
	m := newMachine(t, "python3", "gcc")
	cmd := m.command([]string{"FAKE_STEP=download", "FAKE_DEED=trap 'exit 1' INT; while :; do sleep 0.05; done"}, "install")
	var log strings.Builder
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return len(m.asked()) == 2 }, 10*time.Second, 10*time.Millisecond)
	interrupted := time.Now()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	assert.Less(t, time.Since(interrupted), 5*time.Second, "pip is interrupted too, not waited for")
	assert.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode())
	assert.Contains(t, log.String(), "goes on from here")
	m.succeeds(nil, "install")
}

func TestInstallsAtOnceDoTheWorkOnce(t *testing.T) {
	m := newMachine(t, "python3", "gcc")
	settings := []string{"FAKE_STEP=download", "FAKE_DEED=sleep 0.3"}
	codes := make(chan int)
	for range 4 {
		go func() {
			cmd := m.command(settings, "install")
			_ = cmd.Run()
			codes <- cmd.ProcessState.ExitCode()
		}()
	}
	for range 4 {
		assert.Equal(t, exitOK, <-codes)
	}
	assert.Equal(t, []string{"venv", "download", "install"}, m.asked())
}

// A killed install leaves its pip behind: the next one must not work beside it.
func TestInstallWaitsForAPipThatWasLeftBehind(t *testing.T) {
	m := newMachine(t, "python3", "gcc")
	first := m.command([]string{"FAKE_STEP=download", `FAKE_DEED=kill -9 $PPID; sleep 0.5; echo pip-ended >> "$FAKE_LOG"`}, "install")
	require.Error(t, first.Run())
	require.Equal(t, -1, first.ProcessState.ExitCode())
	_, _, stderr := m.run(nil, "install")
	assert.Contains(t, stderr, "waiting")
	assert.Equal(t, []string{"venv", "download", "pip-ended", "download", "install"}, m.asked())
}

func TestInstallStopsWaitingWhenInterrupted(t *testing.T) {
	m := newMachine(t, "python3", "gcc")
	require.NoError(t, os.MkdirAll(m.root, 0o755))
	lock, err := os.Create(filepath.Join(m.root, "lock"))
	require.NoError(t, err)
	defer lock.Close()
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	cmd := m.command(nil, "install")
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = said.Read(make([]byte, 100))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	assert.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode())
}

func TestInstallWithRequirements(t *testing.T) {
	m := newMachine(t, "python3", "gcc")
	list := filepath.Join(t.TempDir(), "parity.txt")
	require.NoError(t, os.WriteFile(list, []byte("numpy==2.4.6"), 0o644))
	m.succeeds(nil, "install", "--with", list)
	assert.Equal(t, []string{"venv", "download", "install", "with"}, m.asked())

	m.succeeds(nil, "install", "--with", list)
	m.succeeds(nil, "install")
	assert.Len(t, m.asked(), 4, "the same file is not installed again")

	require.NoError(t, os.WriteFile(list, []byte("numpy==2.4.7"), 0o644))
	m.succeeds(nil, "install", "--with", list)
	assert.Equal(t, "with", m.asked()[4], "a changed file is")

	require.NoError(t, os.WriteFile(list, []byte("numpy==0"), 0o644))
	code, _, stderr := m.run([]string{"FAKE_STEP=with", "FAKE_DEED=exit 1"}, "install", "--with", list)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stderr, "parity.txt")
	m.succeeds(nil, "env")
	m.succeeds(nil, "install", "--with", list)
	assert.Len(t, m.asked(), 7, "one that failed is tried again")

	require.NoError(t, os.WriteFile(list, []byte("tensorflow-cpu==1"), 0o644))
	code, _, stderr = m.run([]string{"FAKE_STEP=with", `FAKE_DEED=rm -r "$site"/tensorflow_cpu*`}, "install", "--with", list)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stderr, "replaced the library")
}

func TestTheStubHasTheCAPIAndNoMore(t *testing.T) {
	dir := t.TempDir()
	library := filepath.Join(dir, "library.so")
	require.NoError(t, os.WriteFile(library, sharedLibrary(t, "TF_Version", "TFE_Execute", "TSL_SetStatus", "TFLite", "SSL_new", "_ZN2TF_1aE"), 0o644))
	names, err := exportedAPI(library)
	require.NoError(t, err)
	assert.Equal(t, []string{"TF_Version", "TFE_Execute", "TSL_SetStatus"}, names)

	none := filepath.Join(dir, "none.so")
	require.NoError(t, os.WriteFile(none, sharedLibrary(t, "SSL_new"), 0o644))
	assert.ErrorContains(t, writeStub(t.Context(), filepath.Join(dir, "stub.so"), none), "do not export TensorFlow's C API")
	require.NoError(t, os.WriteFile(none, []byte("no library"), 0o644))
	assert.ErrorContains(t, writeStub(t.Context(), filepath.Join(dir, "stub.so"), none), none)
}

func TestInstallForGPUs(t *testing.T) {
	m := newMachine(t, "python3", "gcc")
	payload := filepath.Join(filepath.Dir(m.root), "payload")
	require.NoError(t, os.MkdirAll(filepath.Join(payload, "nvidia", "cuda_nvcc"), 0o755))
	var have []string
	for line := range strings.Lines(requirementsGPU) {
		if name, version, pin := strings.Cut(line, "=="); pin {
			have = append(have, strings.ReplaceAll(name, "-", "_")+"-"+strings.Fields(version)[0])
			wheel(t, payload, have[len(have)-1])
		}
	}
	require.Contains(t, have, "tensorflow-2.21.0")
	m.succeeds(nil, "install", "--gpu")
	assert.DirExists(t, filepath.Join(m.root, "nvidia", "cuda_nvcc"), "the library looks for CUDA in $ORIGIN/../nvidia")
	assert.Contains(t, m.succeeds(nil, "env", "--gpu"), "XLA_FLAGS")
	code, _, _ := m.run(nil, "env")
	assert.Equal(t, exitFailure, code, "the one is not taken for the other")
	m.succeeds(nil, "install", "--gpu")
	assert.Len(t, m.asked(), 3)
}
