package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/savedmodels"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

// writeLinear writes a model of y = x·w + b, w = [w, 2], b = 0.25.
func writeLinear(t *testing.T, dir string, w float32, o savedmodels.SaveOptions) string {
	t.Helper()
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Placeholder("x", tf.Float, ops.Shape{-1, 2})
	net := g.Scope("net")
	weights := net.Variable("w", ops.Shape{2, 1}, ops.FromValue([][]float32{{w}, {2}}))
	b := net.Variable("b", ops.Shape{1}, ops.FromValue([]float32{0.25}))
	y := raw.AddV2(net, raw.MatMul(net, x, weights.Value()), b.Value())
	init := g.Init()
	require.NoError(t, g.Err())
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	require.NoError(t, err)
	defer sess.Close()
	require.NoError(t, sess.Run(t.Context(), init))
	o.Signatures = map[string]savedmodels.SignatureSpec{"serving_default": {Inputs: map[string]tf.Output{"x": x}, Outputs: map[string]tf.Output{"y": y}}}
	require.NoError(t, savedmodels.Save(t.Context(), g, sess, dir, o))
	return dir
}

// answer runs a model at the shell: y for x = [1, 1].
func answer(t *testing.T, model string) any {
	t.Helper()
	code, stdout, stderr := sluice(t.Context(), "run", model, "--input", "x:=[[1, 1]]", "--json")
	require.Equal(t, exitOK, code, stderr)
	var d struct {
		Outputs map[string]struct{ Values any }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &d))
	return d.Outputs["y"].Values
}

func TestFreeze(t *testing.T) {
	base := t.TempDir()
	for name, o := range map[string]savedmodels.SaveOptions{"metagraph": {}, "objects": {Objects: true}} {
		model := writeLinear(t, filepath.Join(base, name), 3, o)
		for _, ending := range []string{".pb", ".pbtxt"} {
			out := filepath.Join(base, name+ending)
			code, stdout, stderr := sluice(t.Context(), "freeze", model, "--out", out, "--json")
			require.Equal(t, exitOK, code, stderr)
			var d struct {
				Bytes      int64
				Signatures []struct {
					Inputs, Outputs []struct{ Name, Tensor string }
				}
			}
			require.NoError(t, json.Unmarshal([]byte(stdout), &d))
			info, err := os.Stat(out)
			require.NoError(t, err)
			assert.Equal(t, info.Size(), d.Bytes)
			require.Len(t, d.Signatures, 1)

			def, err := bridge.ReadGraphDef(out)
			require.NoError(t, err)
			g := tf.NewGraph()
			imported, err := bridge.Import(g, def, bridge.ImportOptions{ReturnOutputs: []string{d.Signatures[0].Inputs[0].Tensor, d.Signatures[0].Outputs[0].Tensor}})
			require.NoError(t, err)
			sess, err := bridge.NewSession(g, bridge.Config{})
			require.NoError(t, err)
			x, err := bridge.FromFlat(bridge.Shape{1, 2}, []float32{1, 1})
			require.NoError(t, err)
			y, err := sess.Call(t.Context(), bridge.Call{Feeds: imported.Outputs[:1], Fetches: imported.Outputs[1:]}, x)
			require.NoError(t, err)
			values, err := bridge.Values[float32](y[0])
			require.NoError(t, err)
			assert.Equal(t, []float32{5.25}, values, "3 + 2 + 0.25")
			x.Close()
			y[0].Close()
			require.NoError(t, sess.Close())
		}
	}
	model, out := filepath.Join(base, "objects"), filepath.Join(base, "objects.pb")
	for args, want := range map[string]struct {
		code int
		says string
	}{
		model + " --out " + out:             {exitFailure, "--overwrite"},
		model:                               {exitUsage, `"out" not set`},
		model + " --out " + base + "/x.txt": {exitUsage, ".pbtxt"},
		model + " --out " + base + "/nowhere/x.pb":                 {exitUsage, "there is no folder"},
		model + " --out " + base + "/x.pb --weights int8":          {exitUsage, "bfloat16"},
		model + " --out " + base + "/x.pb --signature serving":     {exitFailure, "serving_default"},
		base + "/nothing --out " + base + "/x.pb":                  {exitFailure, "there is no folder"},
		model + " --out " + out + " --overwrite --weights float16": {exitOK, ""},
	} {
		code, _, stderr := sluice(t.Context(), append([]string{"freeze"}, strings.Fields(args)...)...)
		assert.Equal(t, want.code, code, "%s: %s", args, stderr)
		assert.Contains(t, stderr, want.says, args)
	}
	_, err := os.Stat(filepath.Join(base, "x.pb"))
	assert.ErrorIs(t, err, os.ErrNotExist, "what failed leaves nothing")
}

func TestDiff(t *testing.T) {
	base := t.TempDir()
	three := writeLinear(t, filepath.Join(base, "three"), 3, savedmodels.SaveOptions{})
	objects := writeLinear(t, filepath.Join(base, "objects"), 3, savedmodels.SaveOptions{Objects: true})
	four := writeLinear(t, filepath.Join(base, "four"), 4, savedmodels.SaveOptions{})
	half := writeLinear(t, filepath.Join(base, "half"), 4, savedmodels.SaveOptions{Weights: tf.Half})
	other := filepath.Join(base, "checkpoint", "model-1")
	w, err := bridge.FromFlat(bridge.Shape{2}, []float32{3, 2})
	require.NoError(t, err)
	defer w.Close()
	n, err := bridge.FromFlat(bridge.Shape{}, []int64{1})
	require.NoError(t, err)
	defer n.Close()
	require.NoError(t, checkpoints.Write(other, map[string]*bridge.Tensor{"net/w": w, "step": n}, checkpoints.WriteOptions{}))

	diff := func(code int, args ...string) (d struct {
		Same       bool
		OnlyA      []struct{ Name string } `json:"only_a"`
		OnlyB      []struct{ Name string } `json:"only_b"`
		Tensors    []map[string]any
		Signatures []any
		Equal      int
	}) {
		t.Helper()
		got, stdout, stderr := sluice(t.Context(), append([]string{"diff", "--json"}, args...)...)
		require.Equal(t, code, got, stderr)
		require.NoError(t, json.Unmarshal([]byte(stdout), &d))
		return d
	}
	d := diff(exitOK, three, objects)
	assert.True(t, d.Same)
	assert.Equal(t, 2, d.Equal)

	d = diff(exitFailure, three, four)
	require.Len(t, d.Tensors, 1)
	assert.Equal(t, map[string]any{"name": "net/w", "dtype_a": "float32", "dtype_b": "float32", "shape_a": []any{2., 1.}, "shape_b": []any{2., 1.},
		"elements": 2., "differing": 1., "max_abs": 1., "max_rel": 0.25, "at": []any{0., 0.}, "value_a": 3., "value_b": 4.}, d.Tensors[0])
	diff(exitOK, three, four, "--rtol", "0.26")
	diff(exitOK, three, four, "--atol", "1")
	diff(exitFailure, three, four, "--atol", "0.9")

	d = diff(exitFailure, four, half)
	assert.Len(t, d.Tensors, 2, "of another type, with the same numbers")
	assert.Equal(t, 0., d.Tensors[0]["differing"])
	assert.Equal(t, "float16", d.Tensors[0]["dtype_b"])

	d = diff(exitFailure, three, other)
	assert.Equal(t, "net/b", d.OnlyA[0].Name)
	assert.Equal(t, "step", d.OnlyB[0].Name)
	require.Len(t, d.Tensors, 1)
	assert.Equal(t, []any{2.}, d.Tensors[0]["shape_b"])
	assert.Nil(t, d.Tensors[0]["max_abs"])

	code, stdout, _ := sluice(t.Context(), "diff", three, four)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stdout, "1 of 2")
	code, stdout, _ = sluice(t.Context(), "diff", three, three)
	assert.Equal(t, exitOK, code)
	assert.Contains(t, stdout, "no difference")
	code, _, stderr := sluice(t.Context(), "diff", three, filepath.Join(base, "nothing"))
	assert.Equal(t, exitUsage, code, "trouble is not a difference")
	assert.Contains(t, stderr, "nothing")
}

func TestConvert(t *testing.T) {
	base := t.TempDir()
	path := func(name string) string { return filepath.Join(base, name) }
	convert := func(args ...string) {
		t.Helper()
		code, _, stderr := sluice(t.Context(), append([]string{"convert"}, args...)...)
		require.Equal(t, exitOK, code, stderr)
	}
	same := func(a, b string) {
		t.Helper()
		code, stdout, stderr := sluice(t.Context(), "diff", a, b)
		require.Equal(t, exitOK, code, stdout+stderr)
	}
	first := writeLinear(t, path("first"), 3, savedmodels.SaveOptions{})
	want := answer(t, first)
	require.Equal(t, []any{[]any{5.25}}, want)
	convert(first, path("objects"), "--to", "objects")
	convert(path("objects"), path("back"), "--to", "metagraph")
	convert(path("back"), path("half"), "--to", "objects", "--weights", "float16")
	for _, name := range []string{"objects", "back", "half"} {
		assert.Equal(t, want, answer(t, path(name)), name)
	}
	same(first, path("objects"))
	same(first, path("back"))
	convert(path("objects"), path("names-1"), "--to", "checkpoint")
	same(first, path("names-1"))
	r, err := checkpoints.Open(path("names-1"))
	require.NoError(t, err)
	assert.False(t, r.ObjectBased())
	require.NoError(t, r.Close())
	convert(path("names-1"), path("narrow-1"), "--weights", "bfloat16")
	r, err = checkpoints.Open(path("narrow-1"))
	require.NoError(t, err)
	assert.Equal(t, tf.Bfloat16, r.Entries()[0].DType)
	require.NoError(t, r.Close())

	convert(first, path("frozen.pb"))
	convert(path("frozen.pb"), path("text.pbtxt"))
	convert(path("text.pbtxt"), path("again.pb"))
	a, err := bridge.ReadGraphDef(path("frozen.pb"))
	require.NoError(t, err)
	b, err := bridge.ReadGraphDef(path("again.pb"))
	require.NoError(t, err)
	assert.Len(t, b, len(a))

	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no form":                   {[]string{first, path("x")}, exitUsage, "--to is missing"},
		"a graph that would be one": {[]string{path("frozen.pb"), path("x"), "--to", "objects"}, exitUsage, "is a graph"},
		"a checkpoint as a model":   {[]string{path("names-1"), path("x"), "--to", "metagraph"}, exitUsage, "is a checkpoint"},
		"what is there":             {[]string{first, path("objects"), "--to", "objects"}, exitFailure, "there is a model"},
		"a graph that is there":     {[]string{first, path("frozen.pb")}, exitFailure, "--overwrite"},
		"a checkpoint that is":      {[]string{first, path("names-1"), "--to", "checkpoint"}, exitFailure, "there is a checkpoint"},
		"weights of a graph":        {[]string{path("frozen.pb"), path("x.pbtxt"), "--weights", "float16"}, exitUsage, "is a graph"},
		"nothing":                   {[]string{path("nothing"), path("x"), "--to", "objects"}, exitFailure, "there is no folder"},
		"one argument":              {[]string{first}, exitUsage, "takes FROM and TO"},
	} {
		code, _, stderr := sluice(t.Context(), append([]string{"convert"}, c.args...)...)
		assert.Equal(t, c.code, code, "%s: %s", name, stderr)
		assert.Contains(t, stderr, c.says, name)
	}
	_, err = os.Stat(path("x"))
	assert.ErrorIs(t, err, os.ErrNotExist, "what failed leaves nothing")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	code, _, _ := sluice(ctx, "convert", first, path("x"), "--to", "objects")
	assert.Equal(t, exitInterrupted, code)
}
