package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	graphdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	types "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	protos "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/npy"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// written files of a graph: loss = Σ (x·w + b)², with b = [1, 2] once init has run;
// noise = Σ x·(a random number); count = Σ x, by way of integers.
type graphFiles struct{ dir, binary, text, x, w string }

func writeGraph(t *testing.T) graphFiles {
	t.Helper()
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Placeholder("x", tf.Float, ops.Shape{-1, 2})
	w := g.Placeholder("w", tf.Float, ops.Shape{2, 2})
	b := raw.VarHandleOp(g.Root(), tf.Float, ops.Shape{2}, raw.Attr{Name: "shared_name", Value: "b"})
	root := g.Root()
	assign := raw.AssignVariableOp(root, b, g.Const([]float32{1, 2}))
	root.WithControl(assign).Add(bridge.OpSpec{Type: "NoOp", Name: "init"})
	y := raw.AddV2(root, raw.MatMul(root, x, w), raw.ReadVariableOp(root, b, tf.Float))
	named := func(name string, value tf.Output) {
		root.Add(bridge.OpSpec{Type: "Identity", Name: name, Inputs: []tf.Input{value}})
	}
	all := g.Const([]int32{0, 1})
	named("loss", raw.Sum(root, raw.Square(root, y), all))
	named("noise", raw.Sum(root, raw.Mul(root, x, raw.RandomStandardNormal(root, g.Const([]int32{2}), tf.Float)), all))
	named("count", raw.Cast(root, raw.Cast(root, x, tf.Int32), tf.Float))
	require.NoError(t, g.Err())

	def, err := bridge.GraphDef(g.TF())
	require.NoError(t, err)
	parsed := new(graphdef.GraphDef)
	require.NoError(t, proto.Unmarshal(def, parsed))
	text, err := prototext.Marshal(parsed)
	require.NoError(t, err)
	dir := t.TempDir()
	f := graphFiles{dir, filepath.Join(dir, "g.pb"), filepath.Join(dir, "g.pbtxt"), filepath.Join(dir, "x.npy"), filepath.Join(dir, "w.npz")}
	require.NoError(t, os.WriteFile(f.binary, def, 0o600))
	require.NoError(t, os.WriteFile(f.text, text, 0o600))
	xs, err := bridge.FromFlat(bridge.Shape{1, 2}, []float32{1, 2})
	require.NoError(t, err)
	defer xs.Close()
	require.NoError(t, npy.WriteFile(f.x, xs))
	ws, err := bridge.FromFlat(bridge.Shape{2, 2}, []float32{1, 0, 0, 1})
	require.NoError(t, err)
	defer ws.Close()
	require.NoError(t, npy.WriteArchive(f.w, []npy.Named{{Name: "w", Tensor: ws}}))
	return f
}

func TestGrad(t *testing.T) {
	f := writeGraph(t)
	feeds := []string{"--feed", "x=" + f.x, "--feed", f.w, "--init", "init"}
	type document struct {
		Gradients []struct {
			X      string
			None   bool
			Values any
		}
		Check []struct {
			X        string
			OK       bool
			Compared int
			Worst    float64
		}
	}
	grad := func(t *testing.T, args ...string) document {
		t.Helper()
		code, stdout, stderr := sluice(t.Context(), append([]string{"grad", "--json"}, args...)...)
		require.Equal(t, exitOK, code, stderr)
		var d document
		require.NoError(t, json.Unmarshal([]byte(stdout), &d))
		return d
	}
	// y = [1,2]·1 + [1,2] = [2,4]; by y: [4,8].
	list := func(rows ...any) any { return rows }
	for name, path := range map[string]string{"binary": f.binary, "text": f.text} {
		t.Run(name, func(t *testing.T) {
			d := grad(t, append([]string{path, "--y", "loss:0", "--x", "w:0,x", "--x", "b", "--check"}, feeds...)...)
			require.Len(t, d.Gradients, 3)
			assert.Equal(t, list(list(4., 8.), list(8., 16.)), d.Gradients[0].Values)
			assert.Equal(t, list(list(4., 8.)), d.Gradients[1].Values)
			assert.Equal(t, list(4., 8.), d.Gradients[2].Values, "by a variable")
			require.Len(t, d.Check, 3)
			for _, c := range d.Check {
				assert.True(t, c.OK, c.X)
				assert.NotZero(t, c.Compared)
				assert.Less(t, c.Worst, 1e-3)
			}
		})
	}
	t.Run("by a tensor within, and none", func(t *testing.T) {
		d := grad(t, append([]string{f.binary, "--y", "count", "--y", "loss", "--x", "MatMul,w"}, feeds...)...)
		assert.Equal(t, list(list(4., 8.)), d.Gradients[0].Values)
		d = grad(t, f.binary, "--y", "count", "--x", "x,b", "--feed", "x="+f.x)
		assert.True(t, d.Gradients[0].None)
		assert.True(t, d.Gradients[1].None)
	})
	t.Run("feeds that are written at the shell", func(t *testing.T) {
		d := grad(t, f.binary, "--y", "loss", "--x", "x", "--init", "init", "--feed", "x:=[[0, 1]]", "--feed", "w:=[[1, 0], [0, 2]]")
		assert.Equal(t, list(list(2., 16.)), d.Gradients[0].Values)
	})
	t.Run("saved", func(t *testing.T) {
		out := filepath.Join(f.dir, "g.npz")
		code, stdout, stderr := sluice(t.Context(), append([]string{"grad", f.binary, "--y", "loss", "--x", "w:0,b", "--out", out}, feeds...)...)
		require.Equal(t, exitOK, code, stderr)
		assert.Contains(t, stdout, "w:0: float32 [2,2]  4 8 8 16")
		archive, err := npy.Open(out)
		require.NoError(t, err)
		defer archive.Close()
		assert.Equal(t, []string{"b", "w:0"}, archive.Names())
	})
	t.Run("a check that fails", func(t *testing.T) {
		code, stdout, _ := sluice(t.Context(), append([]string{"grad", f.binary, "--y", "loss", "--x", "w", "--check", "--tolerance", "1e-12"}, feeds...)...)
		if code == exitOK { // float32 can't be as exact; were it, all errors would be 0
			assert.Contains(t, stdout, "worst relative error 0 ")
		} else {
			assert.Equal(t, exitFailure, code)
			assert.Contains(t, stdout, "BAD")
		}
	})
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no y":                    {[]string{f.binary, "--x", "w"}, exitUsage, "--y and --x are both needed"},
		"no graph":                {[]string{"--y", "loss", "--x", "w"}, exitUsage, "GRAPH or MODEL is missing"},
		"no such file":            {[]string{f.dir + "/none.pb", "--y", "loss", "--x", "w"}, exitFailure, "no such file"},
		"a folder of other files": {[]string{f.dir, "--y", "loss", "--x", "w"}, exitFailure, "is not a SavedModel"},
		"another file":            {[]string{f.x, "--y", "loss", "--x", "w"}, exitFailure, "not a serialized GraphDef"},
		"a name that is near":     {append([]string{f.binary, "--y", "los", "--x", "w"}, feeds...), exitFailure, `no tensor "los"; did you mean loss`},
		"a name that is not":      {append([]string{f.binary, "--y", "loss", "--x", "embedding"}, feeds...), exitFailure, `no tensor "embedding"; there are`},
		"an output too many":      {append([]string{f.binary, "--y", "loss:1", "--x", "w"}, feeds...), exitFailure, "has 1 outputs"},
		"what is not fed":         {[]string{f.binary, "--y", "loss", "--x", "w", "--feed", "x=" + f.x}, exitFailure, "w:0 (float32 [2,2]) must be fed"},
		"what is fed twice":       {append([]string{f.binary, "--y", "loss", "--x", "w", "--feed", "x:0=" + f.x}, feeds...), exitUsage, "fed twice"},
		"a feed of another shape": {[]string{f.binary, "--y", "loss", "--x", "w", "--init", "init", "--feed", "x:=[[1,2,3]]", "--feed", f.w}, exitFailure, "wanted float32 [?,2], got float32 [1,3]"},
		"a feed that is no file":  {[]string{f.binary, "--y", "loss", "--x", "w", "--feed", "x=1"}, exitUsage, "is not understood; it takes NAME=FILE.npy"},
		"a feed that is missing":  {[]string{f.binary, "--y", "loss", "--x", "w", "--feed", "x=none.npy"}, exitFailure, "none.npy"},
		"no initial values":       {[]string{f.binary, "--y", "loss", "--x", "w", "--feed", "x=" + f.x, "--feed", f.w}, exitFailure, "--init NAME runs an operation"},
		"an init that is not":     {append([]string{f.binary, "--y", "loss", "--x", "w", "--init", "inti"}, feeds...), exitFailure, `no operation "inti"; did you mean init`},
		"a check of noise":        {[]string{f.binary, "--y", "noise", "--x", "x", "--feed", "x=" + f.x, "--check"}, exitFailure, "draws random numbers"},
		"an --out that is none":   {append([]string{f.binary, "--y", "loss", "--x", "w", "--out", "g.txt"}, feeds...), exitUsage, ".npz or .npy"},
		"--out of two as .npy":    {append([]string{f.binary, "--y", "loss", "--x", "w,x", "--out", filepath.Join(f.dir, "g.npy")}, feeds...), exitUsage, "holds one array, and there are 2"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := sluice(t.Context(), append([]string{"grad"}, c.args...)...)
			assert.Equal(t, c.code, code, stderr)
			assert.Contains(t, stderr, c.want)
		})
	}
	t.Run("--help teaches", func(t *testing.T) {
		code, stdout, _ := sluice(t.Context(), "grad", "--help")
		assert.Equal(t, exitOK, code)
		for _, word := range []string{"--y", "--x", "--feed", "--init", "--check", ".pbtxt", "SavedModel", "none", "central difference"} {
			assert.Contains(t, stdout, word)
		}
	})
}

// writeModel writes the graph as a SavedModel without variables: y = 2·x.
func writeModel(t *testing.T) string {
	t.Helper()
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Placeholder("x", tf.Float, ops.Shape{-1})
	y := raw.Mul(g.Root(), x, g.Const(float32(2)))
	require.NoError(t, g.Err())
	encoded, err := bridge.GraphDef(g.TF())
	require.NoError(t, err)
	def := new(graphdef.GraphDef)
	require.NoError(t, proto.Unmarshal(encoded, def))
	info := func(out tf.Output) *protos.TensorInfo {
		return &protos.TensorInfo{Encoding: &protos.TensorInfo_Name{Name: nameOf(out)}, Dtype: types.DataType_DT_FLOAT}
	}
	model, err := proto.Marshal(&protos.SavedModel{SavedModelSchemaVersion: 1, MetaGraphs: []*protos.MetaGraphDef{{
		MetaInfoDef: &protos.MetaGraphDef_MetaInfoDef{Tags: []string{"serve"}, TensorflowVersion: "2.21.0"},
		GraphDef:    def,
		SignatureDef: map[string]*protos.SignatureDef{"double": {
			Inputs: map[string]*protos.TensorInfo{"x": info(x)}, Outputs: map[string]*protos.TensorInfo{"y": info(y)}}},
	}}})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "saved_model.pb"), model, 0o600))
	return dir
}

func TestRun(t *testing.T) {
	dir := writeModel(t)
	t.Run("--json prints all elements", func(t *testing.T) {
		code, stdout, stderr := sluice(t.Context(), "run", dir, "--input", "x:=[1, 2.5, -3]", "--json")
		require.Equal(t, exitOK, code, stderr)
		var d struct {
			Signature string
			Outputs   map[string]struct {
				DType  string
				Shape  []int
				Values []float64
			}
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &d))
		assert.Equal(t, "double", d.Signature)
		assert.Equal(t, []float64{2, 5, -6}, d.Outputs["y"].Values)
	})
	t.Run("in and out as files", func(t *testing.T) {
		in, out := filepath.Join(dir, "in.npy"), filepath.Join(dir, "out.npy")
		x, err := bridge.FromFlat(bridge.Shape{2}, []float32{1, 2})
		require.NoError(t, err)
		defer x.Close()
		require.NoError(t, npy.WriteFile(in, x))
		code, stdout, stderr := sluice(t.Context(), "run", dir, "--input", "x="+in, "--out", out)
		require.Equal(t, exitOK, code, stderr)
		assert.Equal(t, "y: float32 [2]  2 4\n", stdout)
		y, err := npy.ReadFile(out)
		require.NoError(t, err)
		defer y.Close()
		values, err := bridge.Values[float32](y)
		require.NoError(t, err)
		assert.Equal(t, []float32{2, 4}, values)
	})
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no model":             {nil, exitUsage, "MODEL is missing"},
		"an input missing":     {[]string{dir}, exitFailure, `input "x" is missing; it takes x: float32`},
		"an input of text":     {[]string{dir, "--input", `x:="a"`}, exitUsage, `wanted float32, got "a"`},
		"lists of two lengths": {[]string{dir, "--input", "x:=[[1], [2, 3]]"}, exitUsage, "not all as long"},
		"another signature":    {[]string{dir, "--signature", "triple"}, exitFailure, `no signature "triple"; it has double`},
		"other tags":           {[]string{dir, "--tags", "train"}, exitFailure, "no MetaGraph with the tags {train}; it has {serve}"},
		"no tags":              {[]string{dir, "--tags="}, exitFailure, "with the tags {}"},
		"a library missing":    {[]string{dir, "--library", "none.so"}, exitFailure, "none.so"},
		"no folder for --out":  {[]string{dir, "--out", "/none/y.npy"}, exitUsage, "no folder /none"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := sluice(t.Context(), append([]string{"run"}, c.args...)...)
			assert.Equal(t, c.code, code, stderr)
			assert.Contains(t, stderr, c.want)
		})
	}
}

func TestInspect(t *testing.T) {
	f, model := writeGraph(t), writeModel(t)
	t.Run("a model", func(t *testing.T) {
		for _, path := range []string{model, filepath.Join(model, "saved_model.pb")} {
			code, stdout, stderr := sluice(t.Context(), "inspect", path)
			require.Equal(t, exitOK, code, stderr)
			assert.Contains(t, strings.Join(strings.Fields(stdout), " "), "tags {serve}, saved by TensorFlow 2.21.0 signature double in x float32 <unknown> x:0 out y float32 <unknown> Mul:0 0 variables")
		}
		_, stdout, _ := sluice(t.Context(), "inspect", model, "--json")
		var d inspected
		require.NoError(t, json.Unmarshal([]byte(stdout), &d))
		assert.Equal(t, "model", d.Kind)
		assert.Equal(t, map[string]int{"Placeholder": 1, "Mul": 1, "Const": 1}, d.MetaGraphs[0].Graph.Ops)
	})
	t.Run("a graph", func(t *testing.T) {
		code, stdout, stderr := sluice(t.Context(), "inspect", f.text, "--nodes")
		require.Equal(t, exitOK, code, stderr)
		words := strings.Join(strings.Fields(stdout), " ")
		assert.Contains(t, words, "must be fed x:0 float32 [?,2] w:0 float32 [2,2] outputs loss:0 float32 []")
		assert.Contains(t, words, "1 variables, 8 B")
		assert.Contains(t, words, "MatMul MatMul float32 [?,2]", "its nodes")
	})
	t.Run("a picture", func(t *testing.T) {
		for path, names := range map[string][]string{model: {"x", "Mul"}, f.binary: {"x", "w", "MatMul", "Square"}} {
			out := filepath.Join(t.TempDir(), "g.svg")
			code, _, stderr := sluice(t.Context(), "inspect", path, "--graph", out)
			require.Equal(t, exitOK, code, stderr)
			picture, err := os.ReadFile(out)
			require.NoError(t, err)
			require.NoError(t, xml.Unmarshal(picture, new(struct{ XMLName xml.Name })))
			for _, name := range names {
				assert.Contains(t, string(picture), ">"+name+"</text>")
			}
		}
		code, _, stderr := sluice(t.Context(), "inspect", model, "--graph", "g.png")
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, stderr, "wanted a name that ends in .svg")
	})
	code, _, stderr := sluice(t.Context(), "inspect", f.dir)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stderr, "is not a SavedModel")
}

func TestBlocksAreTheScopesAndLieBelowWhatTheyTakeFrom(t *testing.T) {
	cells := []cell{
		{"image", "Placeholder", nil},
		{"model/net/conv/kernel", "VarHandleOp", nil},
		{"model/net/conv/Conv2D", "Conv2D", []string{"image", "model/net/conv/kernel"}},
		{"model/net/conv/Relu", "Relu", []string{"model/net/conv/Conv2D"}},
		{"passed", "Identity", []string{"model/net/conv/Relu"}},
		{"model/net/dense/MatMul", "MatMul", []string{"passed"}},
		{"model/net/add", "AddV2", []string{"model/net/dense/MatMul", "model/net/conv/Relu"}},
	}
	got := map[string]int{}
	for _, b := range blocksOf(cells) {
		got[b.name] = b.layer
		if b.name == "add" {
			assert.Len(t, b.from, 2)
		}
	}
	assert.Equal(t, map[string]int{"image": 0, "conv": 1, "dense": 2, "add": 3}, got)
	// Scopes that take from each other have an end all the same.
	assert.Len(t, blocksOf([]cell{{"a/x", "Neg", []string{"b/x"}}, {"b/x", "Neg", []string{"a/y"}}, {"a/y", "Neg", nil}}), 2)
}
