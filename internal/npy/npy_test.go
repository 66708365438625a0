package npy_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/npy"
	"github.com/sluice-ml/sluice/internal/python"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if tensors, bytes := bridge.Live(); code == 0 && tensors != 0 {
		fmt.Fprintf(os.Stderr, "%d tensors of %d bytes were not closed\n", tensors, bytes)
		code = 1
	}
	os.Exit(code)
}

// file is a .npy of version 1.
func file(header string, data ...byte) []byte {
	b := append([]byte("\x93NUMPY\x01\x00"), binary.LittleEndian.AppendUint16(nil, uint16(len(header)))...)
	return append(append(b, header...), data...)
}

func written(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.npy")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func TestEveryNumericTypeComesBackAsItWas(t *testing.T) {
	for _, dt := range []tf.DataType{tf.Bool, tf.Int8, tf.Int16, tf.Int32, tf.Int64, tf.Uint8, tf.Uint16, tf.Uint32, tf.Uint64,
		tf.Half, tf.Bfloat16, tf.Float, tf.Double, tf.Complex64, tf.Complex128} {
		for _, shape := range []bridge.Shape{{}, {3}, {2, 3}, {0, 4}, {2, 1, 3}} {
			t.Run(bridge.DTypeName(dt)+shape.String(), func(t *testing.T) {
				in, err := bridge.NewTensor(dt, shape)
				require.NoError(t, err)
				defer in.Close()
				data, err := in.Bytes()
				require.NoError(t, err)
				for i := range data {
					data[i] = byte(i*7) & 1
				}
				path := filepath.Join(t.TempDir(), "a.npy")
				require.NoError(t, npy.WriteFile(path, in))
				out, err := npy.ReadFile(path)
				require.NoError(t, err)
				defer out.Close()
				assert.Equal(t, dt, out.DType())
				assert.Equal(t, shape, out.Shape())
				got, err := out.Bytes()
				require.NoError(t, err)
				assert.Equal(t, data, got)
			})
		}
	}
}

func TestWhatIsNotRowMajorAndLittleEndianIsTurned(t *testing.T) {
	// [[1,2,3],[4,5,6]] by columns, as big-endian int16.
	out, err := npy.ReadFile(written(t, file("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n", 0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6)))
	require.NoError(t, err)
	defer out.Close()
	got, err := bridge.Values[int16](out)
	require.NoError(t, err)
	assert.Equal(t, []int16{1, 2, 3, 4, 5, 6}, got)
}

func TestStrings(t *testing.T) {
	in, err := bridge.FromStrings(bridge.Shape{2, 2}, []string{"", "a\x00b", "über", "x"})
	require.NoError(t, err)
	defer in.Close()
	path := filepath.Join(t.TempDir(), "s.npz")
	require.NoError(t, npy.WriteArchive(path, []npy.Named{{Name: "words", Tensor: in}}))
	a, err := npy.Open(path)
	require.NoError(t, err)
	defer a.Close()
	assert.Equal(t, []string{"words"}, a.Names())
	out, err := a.Tensor("words")
	require.NoError(t, err)
	defer out.Close()
	got, err := out.Strings()
	require.NoError(t, err)
	assert.Equal(t, []string{"", "a\x00b", "über", "x"}, got)
	_, err = a.Tensor("word")
	assert.ErrorContains(t, err, `no array "word"; it has words`)

	lossy, err := bridge.FromStrings(bridge.Shape{1}, []string{"a\x00"})
	require.NoError(t, err)
	defer lossy.Close()
	assert.ErrorContains(t, npy.WriteFile(filepath.Join(t.TempDir(), "l.npy"), lossy), "string 0 ends in NUL")
}

func TestDamagedFilesSayWhatIsWrong(t *testing.T) {
	good := "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n"
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"empty":                   {nil, "is not a .npy file"},
		"another file":            {[]byte("PK\x03\x04 something else"), "is not a .npy file"},
		"cut in the header":       {file(good)[:20], "cut short"},
		"cut in the elements":     {file(good, 1, 2, 3, 4), "takes 8 bytes, and 4 are there"},
		"promises terabytes":      {file("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000), }\n", 1), "takes 4000000000000 bytes, and 1 are there"},
		"promises more than 2^63": {file("{'descr': '<f4', 'fortran_order': False, 'shape': (9000000000, 9000000000), }\n"), "larger than 2^63 bytes"},
		"a negative dimension":    {file("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n"), "shape is damaged"},
		"no shape":                {file("{'descr': '<f4', 'fortran_order': False}\n"), "header is damaged"},
		"objects":                 {file("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }\n"), "Python objects"},
		"a structured array":      {file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }\n"), "structured array"},
		"dates":                   {file("{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2,), }\n"), `"<M8[ns]"`},
		"a future version":        {append([]byte("\x93NUMPY\x09\x00"), 0, 0), "version 9"},
		"no code point":           {file("{'descr': '<U1', 'fortran_order': False, 'shape': (1,), }\n", 0xff, 0xff, 0xff, 0x7f), "no Unicode code point"},
		"many empty strings":      {file("{'descr': '|S0', 'fortran_order': False, 'shape': (100000000000,), }\n"), "cut short"},
	} {
		t.Run(name, func(t *testing.T) {
			path := written(t, c.content)
			_, err := npy.ReadFile(path)
			require.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, path)
		})
	}
	_, err := npy.Open(written(t, []byte("no zip")))
	assert.ErrorContains(t, err, "is not a .npz file")
	_, err = npy.ReadFile(t.TempDir())
	assert.ErrorContains(t, err, "is not a file")
}

func TestNumPyReadsWhatIsWrittenAndWritesWhatIsRead(t *testing.T) {
	interpreter, err := python.Interpreter()
	require.NoError(t, err)
	dir := t.TempDir()
	x, err := bridge.FromFlat(bridge.Shape{2, 2}, []float32{1, 2, 3, 4})
	require.NoError(t, err)
	defer x.Close()
	s, err := bridge.FromStrings(bridge.Shape{2}, []string{"a", "bcd"})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, npy.WriteArchive(filepath.Join(dir, "in.npz"), []npy.Named{{Name: "a/b:0", Tensor: x}, {Name: "s", Tensor: s}}))
	out, err := exec.Command(interpreter, "-c", `
import numpy as np, sys
z = np.load(sys.argv[1] + "/in.npz")
assert z["a/b:0"].tolist() == [[1, 2], [3, 4]] and z["a/b:0"].dtype == np.float32
assert z["s"].tolist() == [b"a", b"bcd"]
np.savez_compressed(sys.argv[1] + "/out.npz", u=np.array(["ü", "xyz"]), f=np.asfortranarray(np.arange(6.).reshape(2, 3)), h=np.float16(1.5), z=np.zeros((300, 300)))
`, dir).CombinedOutput()
	require.NoError(t, err, string(out))
	a, err := npy.Open(filepath.Join(dir, "out.npz"))
	require.NoError(t, err)
	defer a.Close()
	assert.Equal(t, []string{"f", "h", "u", "z"}, a.Names())
	f, err := a.Tensor("f")
	require.NoError(t, err)
	defer f.Close()
	values, err := bridge.Values[float64](f)
	require.NoError(t, err)
	assert.Equal(t, []float64{0, 1, 2, 3, 4, 5}, values)
	u, err := a.Tensor("u")
	require.NoError(t, err)
	defer u.Close()
	words, err := u.Strings()
	require.NoError(t, err)
	assert.Equal(t, []string{"ü", "xyz"}, words)
	h, err := a.Tensor("h")
	require.NoError(t, err)
	defer h.Close()
	half, err := bridge.Item[bridge.Half](h)
	require.NoError(t, err)
	assert.Equal(t, float32(1.5), half.Float32())
	z, err := a.Tensor("z")
	require.NoError(t, err)
	defer z.Close()
	assert.Equal(t, bridge.Shape{300, 300}, z.Shape())
}

func FuzzReadFile(f *testing.F) {
	f.Add(file("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }\n", 1, 2, 3, 4, 5, 6, 7, 8))
	f.Add(file("{'descr': '<U2', 'fortran_order': False, 'shape': (1,), }\n", 65, 0, 0, 0, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := written(t, content)
		x, err := npy.ReadFile(path)
		if err != nil {
			return
		}
		defer x.Close()
		var again bytes.Buffer
		require.NoError(t, npy.Write(&again, x))
	})
}

func TestAPipeIsNoFileOfArrays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	opened := make(chan error, 2)
	go func() {
		_, err := npy.ReadFile(path)
		opened <- err
		_, err = npy.Open(path)
		opened <- err
	}()
	for range 2 {
		select {
		case err := <-opened:
			assert.ErrorContains(t, err, "is not a file")
		case <-time.After(10 * time.Second):
			require.Fail(t, "the reader waits")
		}
	}
}
