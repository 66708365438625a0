package main

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests run this very binary as the command, on a PATH that has nothing but
// stand-ins for Python and the compiler, so that each can be killed, missing or
// of another version.
const asCommand = "LIBTENSORFLOW_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// fakePython answers as CPython 3.$FAKE_MINOR does to what install asks of it,
// writes each call to $FAKE_LOG, and in the step that $FAKE_STEP names does
// $FAKE_DEED first. A wheel's content is what lies in $FAKE_PAYLOAD.
const fakePython = `#!/bin/sh
step=describe
test "$1" = -m && step=$2
if test "$step" = pip; then
  index=yes
  for word; do
    case "$word" in
    --version) exit 0 ;;
    --no-index) index=no ;;
    download | install) step=$word ;;
    esac
  done
  test $step$index = installyes && step=with
fi
test "$step" = describe || echo "$step" >> "$FAKE_LOG"
deed() { if test "$step" = "$FAKE_STEP"; then eval "$FAKE_DEED"; fi; }
for last; do :; done
case "$step" in
describe)
  printf '{"implementation":"%s","major":3,"minor":%s,"micro":7,"bits":64,"free_threaded":false,"venv":%s}\n' \
    "${FAKE_IMPLEMENTATION:-cpython}" "${FAKE_MINOR:-11}" "${FAKE_VENV:-true}" ;;
venv)
  deed
  rm -rf "$last"
  mkdir -p "$last/bin" "$last/lib/python3.11/site-packages"
  cp "$0" "$last/bin/python" ;;
download)
  deed
  previous=
  for word; do test "$previous" = -d && mkdir -p "$word" && : > "$word/tensorflow.whl"; previous=$word; done ;;
install | with)
  site=$(dirname "$0")/../lib/python3.11/site-packages
  test "$step" = with || cp -R "$FAKE_PAYLOAD/tensorflow" "$site/"
  deed
  test "$step" = with || cp -R "$FAKE_PAYLOAD"/* "$site/" ;;
esac
exit 0
`

const fakeCompiler = `#!/bin/sh
test -z "$FAKE_COMPILER_SAYS" || { echo "$FAKE_COMPILER_SAYS" >&2; exit 1; }
previous=
for word; do
  test "$previous" = -o && printf '#!/bin/sh\necho %s\n' "${FAKE_LIBRARY:-2.21.0}" > "$word" && chmod +x "$word"
  previous=$word
done
exit 0
`

// machine is what the command runs on.
type machine struct {
	t    *testing.T
	bin  string // its PATH
	root string // where the library goes
	log  string // what was asked of Python
	env  []string
}

func newMachine(t *testing.T, programs ...string) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{t: t, bin: filepath.Join(dir, "bin"), root: filepath.Join(dir, "a library"), log: filepath.Join(dir, "log")}
	require.NoError(t, os.Mkdir(m.bin, 0o755))
	for _, tool := range []string{"sh", "cp", "rm", "mkdir", "chmod", "dirname", "sleep", "kill", "cat"} {
		path, err := exec.LookPath(tool)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(m.bin, tool)))
	}
	for _, name := range programs {
		text := fakePython
		if name == "gcc" || name == "clang" {
			text = fakeCompiler
		}
		m.program(name, text)
	}
	payload := filepath.Join(dir, "payload")
	wheel(t, payload, "tensorflow_cpu-2.21.0", "tensorflow/include/tensorflow/c/c_api.h",
		"tensorflow/libtensorflow_cc.so.2", "tensorflow/libtensorflow_framework.so.2")
	m.env = []string{asCommand + "=1", "PATH=" + m.bin, "HOME=" + dir, "TMPDIR=" + dir, "SLUICE_LIBTENSORFLOW=" + m.root,
		"FAKE_LOG=" + m.log, "FAKE_PAYLOAD=" + payload}
	return m
}

func (m *machine) program(name, text string) {
	require.NoError(m.t, os.WriteFile(filepath.Join(m.bin, name), []byte(text), 0o755))
}

// wheel writes the files of a package, and their record.
func wheel(t *testing.T, site, distribution string, files ...string) {
	t.Helper()
	folder := filepath.Join(site, distribution+".dist-info")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	record := distribution + ".dist-info/RECORD,,\n"
	for _, name := range files {
		content := []byte("what is in " + name)
		if strings.HasSuffix(name, ".so.2") {
			content = sharedLibrary(t, "TF_Version", "TF_NewGraph", "_ZN10tensorflow5GraphE", "SSL_new")
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(site, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(site, name), content, 0o644))
		sum := sha256.Sum256(content)
		record += fmt.Sprintf("%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(content))
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "RECORD"), []byte(record), 0o644))
}

// sharedLibrary is an ELF file that exports names, and has nothing else.
func sharedLibrary(t *testing.T, names ...string) []byte {
	t.Helper()
	strs := []byte{0}
	symbols := []elf.Sym64{{}}
	for _, name := range names {
		symbols = append(symbols, elf.Sym64{Name: uint32(len(strs)), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1})
		strs = append(append(strs, name...), 0)
	}
	symbols = append(symbols, elf.Sym64{Name: 1, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)}) // one that it only uses
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 2, Shoff: 64,
	}
	at := uint64(64 + 3*64)
	sections := []elf.Section64{{},
		{Type: uint32(elf.SHT_DYNSYM), Off: at, Size: uint64(24 * len(symbols)), Link: 2, Entsize: 24},
		{Type: uint32(elf.SHT_STRTAB), Off: at + uint64(24*len(symbols)), Size: uint64(len(strs))},
	}
	var file bytes.Buffer
	for _, part := range []any{header, sections, symbols, strs} {
		require.NoError(t, binary.Write(&file, binary.LittleEndian, part))
	}
	return file.Bytes()
}

func (m *machine) command(settings []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.t.Context(), os.Args[0], args...)
	cmd.Env = append(append([]string{}, m.env...), settings...)
	return cmd
}

// run is the command's exit code and what it printed.
func (m *machine) run(settings []string, args ...string) (code int, stdout, stderr string) {
	m.t.Helper()
	cmd := m.command(settings, args...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	if cmd.ProcessState == nil {
		require.NoError(m.t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), log.String()
}

// asked lists the steps that Python was run for.
func (m *machine) asked() []string {
	data, _ := os.ReadFile(m.log)
	return strings.Fields(string(data))
}

func (m *machine) succeeds(settings []string, args ...string) string {
	m.t.Helper()
	code, stdout, stderr := m.run(settings, args...)
	require.Equal(m.t, exitOK, code, stderr)
	return stdout
}

func TestUsage(t *testing.T) {
	m := newMachine(t)
	for name, c := range map[string]struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		"nothing asked":         {"", exitUsage, "", "Usage:"},
		"unknown verb":          {"instal", exitUsage, "", `no verb "instal"`},
		"unknown flag":          {"check --jsn", exitUsage, "", "-jsn"},
		"an argument":           {"install cpu", exitUsage, "", `"cpu"`},
		"a flag of install":     {"env --with x", exitUsage, "", "-with"},
		"a version not pinned":  {"check --version 2.17.0", exitUsage, "", "2.21.0 and 2.16.2"},
		"an old one for GPUs":   {"env --gpu --version 2.16.2", exitUsage, "", `no "2.16.2" is pinned for GPUs; there is 2.21.0`},
		"help":                  {"--help", exitOK, "Usage:", ""},
		"help of install":       {"install --help", exitOK, "hash", ""},
		"help of env":           {"env --help", exitOK, "go env -w", ""},
		"help of check":         {"check -h", exitOK, "mends", ""},
		"help tells the folder": {"env --help", exitOK, "tensorflow-cpu-2.21.0", ""},
		"help tells the oldest": {"install --help", exitOK, "2.16.2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := m.run(nil, strings.Fields(c.args)...)
			assert.Equal(t, c.code, code)
			assert.Contains(t, stdout, c.stdout)
			assert.Contains(t, stderr, c.stderr)
			if c.code != exitOK {
				assert.Empty(t, stdout)
			}
		})
	}
}

// What is pinned must serve each Python that install accepts, from whatever
// index pip is set to.
func TestRequirements(t *testing.T) {
	for name, v := range map[string]variant{"cpu": cpu, "gpu": gpuVariant, "oldest": oldestCPU} {
		t.Run(name, func(t *testing.T) {
			assert.NotContains(t, v.requirements, "://", "a host is named")
			_, own, found := strings.Cut(v.requirements, v.wheel+"=="+v.version)
			require.True(t, found)
			assert.True(t, supported(v.version))
			assert.Equal(t, v.lastMinor-firstMinor+1, strings.Count(own, "--hash=sha256:"), "one wheel for each Python")
			for line := range strings.Lines(v.requirements) {
				if _, _, pin := strings.Cut(line, "=="); pin {
					assert.True(t, strings.HasSuffix(line, "\\\n"), "no hash follows %s", line)
				}
			}
		})
	}
}
