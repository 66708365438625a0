package bridge_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/sluice-ml/sluice/bridge"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVersions(t *testing.T) {
	assert.NoError(t, bridge.CheckVersion())
	assert.Regexp(t, `^2\.\d+\.\d+`, bridge.Version())
	for version, supported := range map[string]bool{
		"2.16.0": true, "2.16.2": true, "2.18.0-rc1": true, "2.21.0": true, "2.21.99": true,
		"2.15.1": false, "2.22.0": false, "1.15.0": false, "3.0.0": false, "": false, "two": false, "2": false,
	} {
		err := bridge.CheckVersionOf(version)
		if supported {
			assert.NoError(t, err, version)
			continue
		}
		assert.ErrorIs(t, err, bridge.ErrUnimplemented, version)
		assert.ErrorContains(t, err, "libtensorflow "+version+",")
		assert.ErrorContains(t, err, "2.16–2.21")
	}
}

// A program that meets a library outside the range says so at the first thing it
// asks of it, and does not crash: this test again, with a TF_Version that is told
// before the library's own.
func TestALibraryOutsideTheRangeIsRefused(t *testing.T) {
	if os.Getenv("SLUICE_TEST_REFUSED") != "" {
		wanted := "this program is linked to libtensorflow 2.15.1, wanted one of 2.16–2.21"
		require.Equal(t, "2.15.1", bridge.Version())
		require.ErrorContains(t, bridge.SelfCheck(), wanted)
		g := tf.NewGraph()
		_, err := bridge.NewSession(g, bridge.Config{})
		require.ErrorIs(t, err, bridge.ErrUnimplemented)
		require.ErrorContains(t, err, wanted)
		_, err = bridge.AddOperation(g, bridge.OpSpec{Type: "NoOp"})
		require.ErrorContains(t, err, wanted)
		_, err = bridge.Scalar(float32(1))
		require.ErrorContains(t, err, wanted)
		return
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "older.c"), filepath.Join(dir, "older.so")
	require.NoError(t, os.WriteFile(source, []byte(`const char* TF_Version(void) { return "2.15.1"; }`), 0o644))
	out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-o", library, source).CombinedOutput()
	require.NoError(t, err, string(out))
	run := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	run.Env = append(os.Environ(), "LD_PRELOAD="+library, "SLUICE_TEST_REFUSED=1")
	out, err = run.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}

// A binding whose handles look otherwise is found before one is reached for.
func TestSelfCheckFindsAnotherLayout(t *testing.T) {
	type ours struct {
		C *int
		G *tf.Graph
	}
	same := reflect.TypeFor[ours]()
	for name, theirs := range map[string]reflect.Type{
		"more fields": reflect.TypeFor[struct{ C, D, G *int }](),
		"another name": reflect.TypeFor[struct {
			Handle *int
			G      *tf.Graph
		}](),
		"another order": reflect.TypeFor[struct {
			G *tf.Graph
			C *int
		}](),
		"another type":   reflect.TypeFor[struct{ C, G *int }](),
		"no struct":      reflect.TypeFor[*int](),
		"another size":   reflect.TypeFor[struct{ C [2]*int }](),
		"another offset": reflect.TypeFor[struct{ C int32 }](),
	} {
		assert.NotEmpty(t, bridge.CompareLayouts(theirs, same), name)
	}
	assert.Empty(t, bridge.CompareLayouts(same, same))
}

func TestLibraryPath(t *testing.T) {
	path := bridge.LibraryPath()
	assert.FileExists(t, path)
	assert.Contains(t, filepath.Base(path), "libtensorflow")

	for name, c := range map[string]struct{ maps, want string }{
		"none":                     {"00400000-00401000 r-xp 00000000 08:01 1 /bin/x\n7ffd-7ffe rw-p 0 00:00 0 [stack]\n", ""},
		"the library is preferred": {"1-2 r--p 0 08:01 1 /lib/libtensorflow_framework.so.2\n3-4 r--p 0 08:01 1 /lib/libtensorflow_cc.so.2\n", "/lib/libtensorflow_cc.so.2"},
		"a path with spaces":       {"1-2 r--p 0 08:01 1 /my lib/libtensorflow.so.2.18.0\n", "/my lib/libtensorflow.so.2.18.0"},
		"replaced meanwhile":       {"1-2 r--p 0 08:01 1 /lib/libtensorflow.so.2 (deleted)\n", "/lib/libtensorflow.so.2"},
	} {
		assert.Equal(t, c.want, bridge.LibraryPathIn(c.maps), name)
	}
}

func TestDevices(t *testing.T) {
	devices, err := bridge.Devices()
	require.NoError(t, err)
	require.NotEmpty(t, devices)
	assert.Equal(t, "CPU", devices[0].Type)
	assert.True(t, strings.HasSuffix(devices[0].Name, "/device:CPU:0"), devices[0].Name)
	assert.Positive(t, devices[0].MemoryBytes)
}

func TestKernels(t *testing.T) {
	kernels, err := bridge.Kernels("MatMul")
	require.NoError(t, err)
	types := map[tf.DataType]bool{}
	for _, kernel := range kernels {
		if kernel.Device == "CPU" {
			for _, t := range kernel.Types["T"] {
				types[t] = true
			}
		}
	}
	assert.True(t, types[tf.Float] && types[tf.Double] && types[tf.Bfloat16])
	assert.False(t, types[tf.String])
	none, err := bridge.Kernels("_MklMatMulThatIsNot")
	assert.ErrorIs(t, err, bridge.ErrNotFound)
	assert.Nil(t, none)
}

func TestCPUFeatures(t *testing.T) {
	assert.Contains(t, bridge.CPUFeatures(), "AVX", "libtensorflow would not have started")
	assert.Equal(t, []string{"SSE3", "AVX", "FMA", "AVX2"}, bridge.CPUFeaturesOf(strings.Fields("fpu pni avx2 fma avx xsave")))
	assert.Empty(t, bridge.CPUFeaturesOf(nil))
}

func TestLoadLibraryRefuses(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.so")
	require.NoError(t, os.WriteFile(text, []byte("not a library"), 0o644))
	header := filepath.Join(dir, "header.so")
	require.NoError(t, os.WriteFile(header, []byte("\x7fELF\x02\x01\x01"), 0o644))
	build := func(name, source string, flags ...string) string {
		path := filepath.Join(dir, name+".so")
		command := exec.Command("gcc", append([]string{"-shared", "-fPIC", "-xc", "-", "-o", path}, flags...)...)
		command.Stdin = strings.NewReader(source)
		out, err := command.CombinedOutput()
		require.NoError(t, err, string(out))
		return path
	}
	lost := build("liblost", "int lost(void) { return 1; }", "-Wl,-soname,liblost.so")
	needy := build("needy", "int lost(void); int f(void) { return lost(); }", "-L"+dir, "-llost")
	require.NoError(t, os.Remove(lost))
	for name, c := range map[string]struct {
		path string
		is   error
		says string
	}{
		"a missing file":           {filepath.Join(dir, "none.so"), bridge.ErrNotFound, "no such file"},
		"no path":                  {"", bridge.ErrInvalidArgument, ""},
		"a folder":                 {dir, bridge.ErrInvalidArgument, "not a file"},
		"a text file":              {text, bridge.ErrInvalidArgument, "ELF"},
		"half a header":            {header, bridge.ErrInvalidArgument, "ELF"},
		"a NUL":                    {"a\x00b", bridge.ErrInvalidArgument, "NUL"},
		"a symbol that is missing": {build("symbol", "extern int sluice_no_such_symbol; int *f = &sluice_no_such_symbol;"), bridge.ErrFailedPrecondition, "sluice_no_such_symbol"},
		"a library that it needs":  {needy, bridge.ErrFailedPrecondition, "liblost.so"},
	} {
		t.Run(name, func(t *testing.T) {
			ops, err := bridge.LoadLibrary(c.path)
			require.ErrorIs(t, err, c.is)
			assert.ErrorContains(t, err, c.says)
			assert.Nil(t, ops)
		})
	}
}

// The wheel has a library of one custom op beside the Python that wraps it.
func TestLoadLibrary(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(bridge.LibraryPath()), "lite/experimental/microfrontend/python/ops/*.so"))
	require.NoError(t, err)
	require.Len(t, found, 1, "the wheel's custom op")
	_, err = bridge.AddOperation(newGraph(t).Graph, bridge.OpSpec{Type: "AudioMicrofrontend"})
	require.ErrorIs(t, err, bridge.ErrNotFound)
	require.ErrorContains(t, err, "LoadLibrary")

	link := filepath.Join(t.TempDir(), "op.so")
	require.NoError(t, os.Symlink(found[0], link))
	for _, path := range []string{found[0], found[0], link} {
		ops, err := bridge.LoadLibrary(path)
		require.NoError(t, err)
		assert.Equal(t, []string{"AudioMicrofrontend"}, ops)
	}
	_, known := bridge.OpDef("AudioMicrofrontend")
	assert.True(t, known)

	g := newGraph(t)
	samples := constant(g, "samples", bridge.Shape{1000}, make([]int16, 1000)...)
	op := g.op("AudioMicrofrontend", "features", []tf.Output{samples})
	s := g.session(bridge.Config{})
	out, err := s.Call(t.Context(), bridge.Call{Fetches: []tf.Output{op.Output(0)}})
	require.NoError(t, err)
	defer out[0].Close()
	assert.Equal(t, bridge.Shape{4, 32}, out[0].Shape(), "25 ms windows every 10 ms of 62.5 ms: at 0, 10, 20 and 30 ms; 32 channels")
}
