package savedmodels_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	nodedef "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	opdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/op_def_go_proto"
	types "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	protos "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/savedmodels"
)

// A model goes from one form to the other and back, with what its signatures do:
// training, loops, inputs that are handed on.
func TestAConvertedModelDoesWhatItDid(t *testing.T) {
	r := newRegression(t)
	dir := filepath.Join(t.TempDir(), "1")
	require.NoError(t, savedmodels.Save(t.Context(), r.g, r.sess, dir, savedmodels.SaveOptions{Signatures: r.signatures}))
	models := []*savedmodels.Model{load(t, dir, savedmodels.Options{})}
	x := floats(t, bridge.Shape{2, 2}, 1, 2, 3, 4)
	in := savedmodels.Tensors{"x": x, "target": floats(t, bridge.Shape{2, 1}, 7, -7)}
	run(t, models[0], "train", "y", in) // what is converted are the values of now
	for _, objects := range []bool{true, false, true} {
		dir := filepath.Join(t.TempDir(), "1")
		last := models[len(models)-1]
		require.NoError(t, last.Convert(t.Context(), dir, savedmodels.ConvertOptions{Objects: objects}))
		m := load(t, dir, savedmodels.Options{})
		assert.Equal(t, objects, len(m.MetaGraph().GetObjectGraphDef().GetNodes()) > 0)
		calls := 0
		for op := range bridge.Operations(m.Graph()) {
			if op.Type() == "StatefulPartitionedCall" {
				calls++
			}
		}
		assert.Equal(t, objects, calls > 0, "only objects are called")
		models = append(models, m)
	}
	for _, m := range models[1:] {
		assert.Equal(t, models[0].Signatures(), m.Signatures())
		require.Len(t, m.Variables(), len(models[0].Variables()))
		for i, v := range models[0].Variables() {
			got := m.Variables()[i]
			got.Handle, v.Handle = tf.Output{}, tf.Output{}
			assert.Equal(t, v, got)
		}
	}
	for range 3 {
		want := run(t, models[0], "train", "y", in)
		for i, m := range models[1:] {
			assert.Equal(t, want, run(t, m, "train", "y", in), "model %d", i+1)
			assert.Equal(t, run(t, models[0], "halved", "halved", savedmodels.Tensors{"x": x}), run(t, m, "halved", "halved", savedmodels.Tensors{"x": x}))
		}
	}
}

func TestTablesAndAssetsAreConvertedAndWhatCantBeIsRefused(t *testing.T) {
	c := newClassifier(t)
	want := c.steps(t, 2)
	dir := filepath.Join(t.TempDir(), "1")
	require.NoError(t, savedmodels.Save(t.Context(), c.g, c.sess, dir, savedmodels.SaveOptions{Signatures: c.serving(), Assets: []tf.Output{c.vocabulary}}))
	m := load(t, dir, savedmodels.Options{})
	in := savedmodels.Tensors{"words": c.in(t)["words"]}
	for dt, delta := range map[tf.DataType]float64{0: 0, tf.Half: 0.01} {
		dir := filepath.Join(t.TempDir(), "1")
		require.NoError(t, m.Convert(t.Context(), dir, savedmodels.ConvertOptions{Weights: dt}))
		assert.InDeltaSlice(t, want, run(t, load(t, dir, savedmodels.Options{}), "", "scores", in), delta)
		require.ErrorIs(t, m.Convert(t.Context(), dir, savedmodels.ConvertOptions{}), bridge.ErrAlreadyExists)
	}
	other := filepath.Join(t.TempDir(), "1")
	require.ErrorIs(t, m.Convert(t.Context(), other, savedmodels.ConvertOptions{Objects: true}), bridge.ErrUnimplemented)
	require.ErrorIs(t, m.Convert(t.Context(), other, savedmodels.ConvertOptions{Weights: tf.Int8}), bridge.ErrInvalidArgument)
	_, err := os.Stat(other)
	require.ErrorIs(t, err, os.ErrNotExist)

	d := linear(t, 4)
	old := d.g.Add(bridge.OpSpec{Type: "VariableV2", Name: "old", Attrs: []bridge.Attr{{Name: "shape", Value: bridge.Shape{2}}, {Name: "dtype", Value: tf.Float}}})
	require.NoError(t, d.g.Err())
	d.signature("old", nil, map[string]tf.Output{"old": d.g.Add(bridge.OpSpec{Type: "Identity", Inputs: []tf.Input{old.Output(0)}}).Output(0)})
	err = load(t, d.write(), savedmodels.Options{}).Convert(t.Context(), other, savedmodels.ConvertOptions{})
	require.ErrorIs(t, err, bridge.ErrUnimplemented)
	assert.ErrorContains(t, err, "old")
	closed := load(t, dir, savedmodels.Options{})
	require.NoError(t, closed.Close())
	require.ErrorIs(t, closed.Convert(t.Context(), other, savedmodels.ConvertOptions{}), bridge.ErrClosed)
	require.Error(t, (*savedmodels.Model)(nil).Convert(t.Context(), other, savedmodels.ConvertOptions{}))
}

// Functions that call the next one twice make a hundred thousand calls: an error,
// and no endless work.
func TestCallsThatDoubleAreNotAllPutInPlace(t *testing.T) {
	dir := linear(t, 4).write()
	file := filepath.Join(dir, "saved_model.pb")
	model := new(protos.SavedModel)
	require.NoError(t, proto.Unmarshal(must(os.ReadFile(file))(t), model))
	graph := model.MetaGraphs[0].GraphDef
	node := func(text string, args ...any) *nodedef.NodeDef {
		n := new(nodedef.NodeDef)
		require.NoError(t, prototext.Unmarshal(fmt.Appendf(nil, text, args...), n))
		return n
	}
	call := func(name, input string, i int) *nodedef.NodeDef {
		return node(`name: %q op: "StatefulPartitionedCall" input: %q
			attr { key: "Tin" value { list { type: DT_RESOURCE } } } attr { key: "Tout" value { list { type: DT_FLOAT } } }
			attr { key: "f" value { func { name: "double%d" } } }`, name, input, i)
	}
	graph.Library = new(function.FunctionDefLibrary)
	const deep = 16
	for i := range deep + 1 {
		f := &function.FunctionDef{Signature: &opdef.OpDef{Name: fmt.Sprint("double", i),
			InputArg:  []*opdef.OpDef_ArgDef{{Name: "v", Type: types.DataType_DT_RESOURCE}},
			OutputArg: []*opdef.OpDef_ArgDef{{Name: "y", Type: types.DataType_DT_FLOAT}}},
			NodeDef: []*nodedef.NodeDef{call("a", "v", i+1), call("b", "v", i+1)}, Ret: map[string]string{"y": "a:output:0"}}
		if i == deep {
			f.NodeDef = []*nodedef.NodeDef{node(`name: "a" op: "ReadVariableOp" input: "v" attr { key: "dtype" value { type: DT_FLOAT } }`)}
			f.Ret["y"] = "a:value:0"
		}
		graph.Library.Function = append(graph.Library.Function, f)
	}
	for _, n := range graph.Node {
		if n.Op == "VarHandleOp" {
			graph.Node = append(graph.Node, call("call", n.Name, 0))
			break
		}
	}
	model.MetaGraphs[0].SignatureDef["doubles"] = &protos.SignatureDef{Outputs: map[string]*protos.TensorInfo{
		"y": {Encoding: &protos.TensorInfo_Name{Name: "call:0"}, Dtype: types.DataType_DT_FLOAT}}}
	require.NoError(t, os.WriteFile(file, must(proto.Marshal(model))(t), 0o644))
	m := load(t, dir, savedmodels.Options{})
	err := m.Convert(t.Context(), filepath.Join(t.TempDir(), "1"), savedmodels.ConvertOptions{})
	require.ErrorIs(t, err, bridge.ErrResourceExhausted)
	// Where calls stay, each function is looked at once.
	frozen, err := m.Freeze(t.Context(), nil, savedmodels.FreezeOptions{})
	require.NoError(t, err)
	assert.Less(t, len(frozen), 100_000)
	require.NoError(t, m.Convert(t.Context(), filepath.Join(t.TempDir(), "1"), savedmodels.ConvertOptions{Objects: true, Weights: tf.Half}))
}
