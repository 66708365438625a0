package savedmodels_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	graphdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	tensorshape "github.com/galeone/tensorflow/tensorflow/go/core/framework/tensor_shape_go_proto"
	types "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	protos "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/savedmodels"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(untilKilled); dir != "" {
		saveUntilKilled(dir)
	}
	code := m.Run()
	if tensors, bytes := bridge.Live(); code == 0 && tensors != 0 {
		fmt.Fprintf(os.Stderr, "%d tensors of %d bytes were not closed\n", tensors, bytes)
		code = 1
	}
	if n := bridge.LiveSessions(); code == 0 && n != 0 {
		fmt.Fprintf(os.Stderr, "%d sessions were not closed\n", n)
		code = 1
	}
	os.Exit(code)
}

// must ends the test on an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// draft is a SavedModel that a test is about to write.
type draft struct {
	t      testing.TB
	g      *ops.Graph
	meta   *protos.MetaGraphDef
	values map[string]*bridge.Tensor // of variables
	files  map[string]string         // assets
}

func newDraft(t testing.TB) *draft {
	return &draft{t: t, g: ops.NewGraph(ops.GraphOptions{}), values: map[string]*bridge.Tensor{}, files: map[string]string{}, meta: &protos.MetaGraphDef{
		MetaInfoDef:  &protos.MetaGraphDef_MetaInfoDef{Tags: []string{"serve"}, TensorflowVersion: "2.21.0"},
		SignatureDef: map[string]*protos.SignatureDef{},
	}}
}

// variable adds one that is restored to the values.
func (d *draft) variable(name string, shape bridge.Shape, values ...float32) tf.Output {
	d.values[name] = must(bridge.FromFlat(shape, values))(d.t)
	handle := raw.VarHandleOp(d.g.Root(), tf.Float, shape, raw.Attr{Name: "shared_name", Value: name})
	return handle
}

func tensorInfo(out tf.Output) *protos.TensorInfo {
	info := &protos.TensorInfo{
		Encoding: &protos.TensorInfo_Name{Name: fmt.Sprintf("%s:%d", out.Op.Name(), out.Index)},
		Dtype:    types.DataType(out.DataType()),
	}
	shape := bridge.ShapeOf(out)
	info.TensorShape = &tensorshape.TensorShapeProto{UnknownRank: shape == nil}
	for _, n := range shape {
		info.TensorShape.Dim = append(info.TensorShape.Dim, &tensorshape.TensorShapeProto_Dim{Size: n})
	}
	return info
}

func (d *draft) signature(name string, inputs, outputs map[string]tf.Output) *protos.SignatureDef {
	s := &protos.SignatureDef{Inputs: map[string]*protos.TensorInfo{}, Outputs: map[string]*protos.TensorInfo{}, MethodName: "tensorflow/serving/predict"}
	for key, out := range inputs {
		s.Inputs[key] = tensorInfo(out)
	}
	for key, out := range outputs {
		s.Outputs[key] = tensorInfo(out)
	}
	d.meta.SignatureDef[name] = s
	return s
}

// saver adds what restores the variables.
func (d *draft) saver(handles map[string]tf.Output) {
	s := d.g.Scope("save")
	file := raw.Placeholder(s, tf.String, raw.Attr{Name: "shape", Value: bridge.Shape{}})
	restore := s.Add(bridge.OpSpec{Type: "NoOp", Name: "restore_all", Control: d.restores(s, file, handles)})
	d.meta.SaverDef = &protos.SaverDef{FilenameTensorName: file.Op.Name() + ":0", SaveTensorName: file.Op.Name() + ":0", RestoreOpName: restore.Name(), Version: protos.SaverDef_V2}
}

func (d *draft) restores(s *ops.Scope, file tf.Output, handles map[string]tf.Output) []*tf.Operation {
	var assigns []*tf.Operation
	for name, handle := range handles {
		names := s.Const([]string{name})
		slices := s.Const([]string{""})
		value := s.Add(bridge.OpSpec{Type: "RestoreV2", Inputs: []tf.Input{file, names, slices}, Attrs: []bridge.Attr{{Name: "dtypes", Value: []tf.DataType{tf.Float}}}})
		require.NoError(d.t, s.Err())
		assigns = append(assigns, raw.AssignVariableOp(s, handle, value.Output(0)))
	}
	return assigns
}

// asset adds a file and the tensor that its path comes in.
func (d *draft) asset(name, content string) tf.Output {
	path := d.g.Const("/where/it/was/" + name)
	d.files[name] = content
	d.meta.AssetFileDef = append(d.meta.AssetFileDef, &protos.AssetFileDef{TensorInfo: tensorInfo(path), Filename: name})
	return path
}

// encoded is the saved_model.pb.
func (d *draft) encoded() []byte {
	require.NoError(d.t, d.g.Err())
	d.meta.GraphDef = new(graphdef.GraphDef)
	require.NoError(d.t, proto.Unmarshal(must(bridge.GraphDef(d.g.TF()))(d.t), d.meta.GraphDef))
	return must(proto.Marshal(&protos.SavedModel{SavedModelSchemaVersion: 1, MetaGraphs: []*protos.MetaGraphDef{d.meta}}))(d.t)
}

// write writes the model into a new folder.
func (d *draft) write() string {
	dir := filepath.Join(d.t.TempDir(), "1")
	require.NoError(d.t, os.MkdirAll(filepath.Join(dir, "assets"), 0o755))
	require.NoError(d.t, os.WriteFile(filepath.Join(dir, "saved_model.pb"), d.encoded(), 0o644))
	for name, content := range d.files {
		require.NoError(d.t, os.WriteFile(filepath.Join(dir, "assets", name), []byte(content), 0o644))
	}
	if len(d.values) > 0 {
		require.NoError(d.t, os.MkdirAll(filepath.Join(dir, "variables"), 0o755))
		require.NoError(d.t, checkpoints.Write(filepath.Join(dir, "variables", "variables"), d.values, checkpoints.WriteOptions{}))
	}
	for _, v := range d.values {
		v.Close()
	}
	clear(d.values)
	return dir
}

// linear is a model of y = x·w + b, and its version, [?,2] to [?,1].
func linear(t testing.TB, version float32) *draft {
	d := newDraft(t)
	x := d.g.Placeholder("x", tf.Float, bridge.Shape{-1, 2})
	w := d.variable("net/w", bridge.Shape{2, 1}, 10, version)
	y := raw.MatMul(d.g.Root(), x, raw.ReadVariableOp(d.g.Root(), w, tf.Float))
	d.signature("serving_default", map[string]tf.Output{"x": x}, map[string]tf.Output{"y": y})
	d.saver(map[string]tf.Output{"net/w": w})
	return d
}

func load(t testing.TB, dir string, o savedmodels.Options) *savedmodels.Model {
	t.Helper()
	m, err := savedmodels.Load(dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func floats(t testing.TB, shape bridge.Shape, values ...float32) *bridge.Tensor {
	t.Helper()
	x := must(bridge.FromFlat(shape, values))(t)
	t.Cleanup(func() { x.Close() })
	return x
}

// run runs a signature and returns one of its outputs.
func run(t testing.TB, m *savedmodels.Model, signature, output string, in savedmodels.Tensors) []float32 {
	t.Helper()
	out, err := m.Run(t.Context(), signature, in)
	require.NoError(t, err)
	defer out.Close()
	return must(bridge.Values[float32](out[output]))(t)
}

// exampleTB is what a draft needs of a test, for examples.
type exampleTB struct {
	testing.TB
	dir string
}

func (e exampleTB) TempDir() string                 { return e.dir }
func (exampleTB) Helper()                           {}
func (exampleTB) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (exampleTB) FailNow()                          { panic("failed") }

// exampleModel writes a model of y = x·[10, 1].
func exampleModel() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	return linear(exampleTB{dir: dir}, 1).write(), func() { os.RemoveAll(dir) }
}
