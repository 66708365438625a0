package main

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if tensors, bytes := bridge.Live(); code == 0 && tensors != 0 {
		fmt.Fprintf(os.Stderr, "%d tensors of %d bytes were not closed\n", tensors, bytes)
		code = 1
	}
	os.Exit(code)
}

func TestDifferenceIsRelativeToTheElementAndToATenthOfTheLargest(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, c := range map[string]struct {
		got, want []complex128
		error     float64
	}{
		"equal":                        {[]complex128{1, -2}, []complex128{1, -2}, 0},
		"relative to the element":      {[]complex128{2.2}, []complex128{2}, 0.2 / 2.2},
		"small beside the largest":     {[]complex128{100, 0.001}, []complex128{100, 0}, 0.001 / 10},
		"another sign":                 {[]complex128{-1}, []complex128{1}, 2},
		"something for zero":           {[]complex128{1e-9}, []complex128{0}, 1},
		"NaN for NaN":                  {[]complex128{complex(nan, 0)}, []complex128{complex(nan, 0)}, 0},
		"NaN for a number":             {[]complex128{complex(nan, 0)}, []complex128{1}, inf},
		"infinity for itself":          {[]complex128{complex(inf, 0)}, []complex128{complex(inf, 0)}, 0},
		"infinity of the other sign":   {[]complex128{complex(-inf, 0)}, []complex128{complex(inf, 0)}, inf},
		"the imaginary part counts":    {[]complex128{3 + 4i}, []complex128{3 - 4i}, 8.0 / 5},
		"an empty array equals itself": {nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) { assert.InDelta(t, c.error, difference(c.got, c.want), 1e-12) })
	}
}

// builder adds nodes under their types' names.
type builder struct {
	t     *testing.T
	graph *tf.Graph
}

func (b builder) Add(spec bridge.OpSpec) *tf.Operation {
	if spec.Name == "" {
		spec.Name = spec.Type
	}
	op, err := bridge.AddOperation(b.graph, spec)
	require.NoError(b.t, err)
	return op
}

// writeArrays makes arrays.npz of one float32 each.
func writeArrays(t *testing.T, dir string, arrays map[string]float32) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "arrays.npz"))
	require.NoError(t, err)
	defer f.Close()
	z := zip.NewWriter(f)
	for key, value := range arrays {
		w, err := z.Create(key + ".npy")
		require.NoError(t, err)
		header := "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n"
		data := append([]byte("\x93NUMPY\x01\x00"), binary.LittleEndian.AppendUint16(nil, uint16(len(header)))...)
		data = append(data, header...)
		_, err = w.Write(binary.LittleEndian.AppendUint32(data, math.Float32bits(value)))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
}

// What a comparison is for: y = x² + z at x = 3 has the gradients 6·v and v, and
// 2·v·w once more by x. Everything else must fail, and say why.
func TestAGradientCaseFailsOnWhatDiffersFromPython(t *testing.T) {
	dir := t.TempDir()
	b := builder{t, tf.NewGraph()}
	placeholder := func(name string) tf.Output {
		return raw.Placeholder(b, tf.Float, raw.WithName(name), raw.WithShape(bridge.Shape{1}))
	}
	x, z := placeholder("x"), placeholder("z")
	placeholder("v")
	placeholder("w")
	raw.AddV2(b, raw.Square(b, x), z, raw.WithName("y"))
	def, err := bridge.GraphDef(b.graph)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "graph.pb"), def, 0o644))
	writeArrays(t, dir, map[string]float32{
		"x": 3, "z": 1, "v": 2, "w": 5, "y": 10, "gx": 12, "gz": 2, "g2x": 20, "wrong": 12.0001})
	rec, err := openRecording(dir)
	require.NoError(t, err)
	defer rec.Close()

	array := func(key string) Array { return Array{Key: key, DType: "float32", Shape: []int64{1}} }
	gradient := func(key string) *expectedGradient { return &expectedGradient{Array: array(key)} }
	right := gradientCase{
		Name: "right", Op: "Square", Graph: "graph.pb",
		Feeds: []namedArray{{"x:0", array("x")}, {"z:0", array("z")}, {"v:0", array("v")}},
		Ws:    []namedArray{{"w:0", array("w")}},
		Xs:    []string{"x:0", "z:0"}, Vs: []string{"v:0"},
		Ys: []namedArray{{"y:0", array("y")}},
		G:  []*expectedGradient{gradient("gx"), gradient("gz")},
	}
	for name, c := range map[string]struct {
		change func(c *gradientCase)
		says   string
	}{
		"nothing":             {func(c *gradientCase) {}, ""},
		"the value":           {func(c *gradientCase) { c.Ys[0].Array = array("gx") }, "y0: relative error"},
		"a first gradient":    {func(c *gradientCase) { c.G[0] = gradient("wrong") }, "first gradient by x:0: relative error"},
		"None for a gradient": {func(c *gradientCase) { c.G[1] = nil }, "Python gives None"},
		"sparse for dense":    {func(c *gradientCase) { c.G[0].Sparse = true }, "IndexedSlices"},
		"another shape":       {func(c *gradientCase) { c.G[0].Array.Shape = []int64{1, 1} }, "shape"},
		"another dtype":       {func(c *gradientCase) { c.G[0].Array.DType = "float64" }, "dtype"},
		"refused by Python":   {func(c *gradientCase) { c.Refused = "LookupError" }, "where Python refuses"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := right
			changed.Ys = []namedArray{right.Ys[0]}
			changed.G = []*expectedGradient{gradient("gx"), gradient("gz")}
			c.change(&changed)
			_, _, err := changed.check(t.Context(), rec)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
	t.Run("a second gradient", func(t *testing.T) {
		changed := right
		changed.Xs, changed.G = right.Xs[:1], right.G[:1]
		changed.G2 = []*expectedGradient{gradient("g2x")}
		_, second, err := changed.check(t.Context(), rec)
		require.NoError(t, err)
		require.True(t, second)
		changed.G2 = []*expectedGradient{gradient("gx")}
		_, _, err = changed.check(t.Context(), rec)
		require.ErrorContains(t, err, "second gradient by x:0: relative error")
	})
}
