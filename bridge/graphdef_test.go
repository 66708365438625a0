package bridge_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	graphdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	nodedef "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	opdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/op_def_go_proto"
	tensor "github.com/galeone/tensorflow/tensorflow/go/core/framework/tensor_go_proto"
	tensorshape "github.com/galeone/tensorflow/tensorflow/go/core/framework/tensor_shape_go_proto"
	types "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	versions "github.com/galeone/tensorflow/tensorflow/go/core/framework/versions_go_proto"
	"github.com/sluice-ml/sluice/bridge"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

func attrOfType(dt types.DataType) *attrvalue.AttrValue {
	return &attrvalue.AttrValue{Value: &attrvalue.AttrValue_Type{Type: dt}}
}

// constantNode is a Const of one float, whatever its shape.
func constantNode(dims ...int64) *nodedef.NodeDef {
	value := &tensor.TensorProto{Dtype: types.DataType_DT_FLOAT, TensorShape: &tensorshape.TensorShapeProto{}, FloatVal: []float32{3}}
	for _, d := range dims {
		value.TensorShape.Dim = append(value.TensorShape.Dim, &tensorshape.TensorShapeProto_Dim{Size: d})
	}
	return &nodedef.NodeDef{Name: "c", Op: "Const", Attr: map[string]*attrvalue.AttrValue{
		"dtype": attrOfType(types.DataType_DT_FLOAT),
		"value": {Value: &attrvalue.AttrValue_Tensor{Tensor: value}},
	}}
}

func squareNode(of string) *nodedef.NodeDef {
	return &nodedef.NodeDef{Name: "s", Op: "Square", Input: []string{of}, Attr: map[string]*attrvalue.AttrValue{"T": attrOfType(types.DataType_DT_FLOAT)}}
}

func serialized(t testing.TB, nodes []*nodedef.NodeDef, functions ...*function.FunctionDef) []byte {
	t.Helper()
	def := &graphdef.GraphDef{Node: nodes, Versions: &versions.VersionDef{Producer: 2000}}
	if functions != nil {
		def.Library = &function.FunctionDefLibrary{Function: functions}
	}
	encoded, err := proto.Marshal(def)
	require.NoError(t, err)
	return encoded
}

// chain is n functions, each of which calls the next one a number of times.
func chain(n, times int) []*function.FunctionDef {
	float := types.DataType_DT_FLOAT
	var all []*function.FunctionDef
	for i := range n {
		f := &function.FunctionDef{Signature: &opdef.OpDef{Name: fmt.Sprintf("f%d", i),
			InputArg: []*opdef.OpDef_ArgDef{{Name: "x", Type: float}}, OutputArg: []*opdef.OpDef_ArgDef{{Name: "y", Type: float}}}}
		from := "x"
		for k := range times {
			node := &nodedef.NodeDef{Name: fmt.Sprintf("n%d", k), Op: fmt.Sprintf("f%d", i+1), Input: []string{from}}
			if i == n-1 {
				node.Op, node.Attr = "Square", map[string]*attrvalue.AttrValue{"T": attrOfType(float)}
			}
			f.NodeDef = append(f.NodeDef, node)
			from = node.Name + ":y:0"
		}
		f.Ret = map[string]string{"y": from}
		all = append(all, f)
	}
	return all
}

func TestImportRefusesWhatTensorFlowWouldDieOf(t *testing.T) {
	mixed := constantNode()
	mixed.Attr["value"].GetTensor().Dtype = types.DataType_DT_INT32
	short := constantNode(2, 3)
	short.Attr["value"].GetTensor().FloatVal, short.Attr["value"].GetTensor().TensorContent = nil, []byte{1, 2, 3, 4}
	inFunction := chain(1, 1)
	inFunction[0].NodeDef = append(inFunction[0].NodeDef, constantNode(1<<20, 1<<20))
	deep := chain(5000, 1)
	call := &nodedef.NodeDef{Name: "call", Op: "f0", Input: []string{"c"}}
	good := serialized(t, []*nodedef.NodeDef{constantNode(2), squareNode("c")})
	for name, c := range map[string]struct {
		def  []byte
		want string
	}{
		"terabytes of constant":          {serialized(t, []*nodedef.NodeDef{constantNode(1<<20, 1<<20)}), `node "c": attribute "value": is a tensor of float32 [1048576,1048576], made of`},
		"in a function":                  {serialized(t, nil, inFunction...), `function "f0", node "c": attribute "value": is a tensor of float32`},
		"more elements than 2^63":        {serialized(t, []*nodedef.NodeDef{constantNode(1<<40, 1<<40)}), "larger than 2^63 bytes"},
		"a negative dimension":           {serialized(t, []*nodedef.NodeDef{constantNode(-5)}), "dimension 0"},
		"bytes that are not the shape's": {serialized(t, []*nodedef.NodeDef{short}), `float32 [2,3], which takes 24 bytes, with 4`},
		"a constant of two types":        {serialized(t, []*nodedef.NodeDef{mixed}), `node "c": is a constant of float32, but its value is a tensor of int32`},
		"functions to a great depth":     {serialized(t, nil, deep...), `to a depth of more than 1000, from "f0"`},
		"functions called 2^30 times":    {serialized(t, []*nodedef.NodeDef{constantNode(), call}, chain(30, 2)...), "comes to more than 1048576 nodes"},
		"calls that are many together":   {serialized(t, manyCalls(200), chain(13, 2)...), "calls of functions come to more than 1048576 nodes"},
		"an op that nobody knows":        {serialized(t, []*nodedef.NodeDef{{Name: "odd", Op: "Sqare"}}), `odd (Sqare): there is no op type "Sqare"`},
		"ops that nobody knows":          {serialized(t, []*nodedef.NodeDef{{Name: "a", Op: "TfText"}, {Name: "b", Op: "Forest"}}), `["Forest" "TfText"], neither in libtensorflow ` + bridge.Version() + ` nor`},
		"no text in a name":              {append(good, protowire.AppendBytes([]byte{0x0a}, append([]byte{0x0a, 2}, 0xff, 0xfe))...), "is not UTF-8"},
		"a node that is damaged":         {append(good, 0x0a, 2, 0x0a, 9), "node 3: its bytes are damaged"},
		"cut short":                      {good[:len(good)-7], "are cut short"},
		"no protocol buffer":             {[]byte("<html>"), "are not a serialized GraphDef"},
		"a node that waits for itself":   {serialized(t, []*nodedef.NodeDef{squareNode("s")}), "cycle"},
	} {
		t.Run(name, func(t *testing.T) {
			g := tf.NewGraph()
			begin := time.Now()
			_, err := bridge.Import(g, c.def, bridge.ImportOptions{})
			require.ErrorContains(t, err, c.want)
			assert.Less(t, time.Since(begin), 5*time.Second)
			assert.Empty(t, g.Operations())
		})
	}
}

func manyCalls(n int) []*nodedef.NodeDef {
	nodes := []*nodedef.NodeDef{constantNode()}
	for i := range n {
		nodes = append(nodes, &nodedef.NodeDef{Name: fmt.Sprintf("call%d", i), Op: "f0", Input: []string{"c"}})
	}
	return nodes
}

func TestAConstantMayRepeatItsLastValue(t *testing.T) {
	g := newGraph(t)
	_, err := bridge.Import(g.Graph, serialized(t, []*nodedef.NodeDef{constantNode(4, 5), squareNode("c")}), bridge.ImportOptions{})
	require.NoError(t, err)
	assert.Equal(t, float32(9), evaluate(g, g.Operation("s").Output(0)))
}

func TestReadGraphDef(t *testing.T) {
	want := &graphdef.GraphDef{Node: []*nodedef.NodeDef{constantNode(2), squareNode("c")}, Versions: &versions.VersionDef{Producer: 2000}}
	binary, err := proto.Marshal(want)
	require.NoError(t, err)
	text, err := prototext.MarshalOptions{Multiline: true}.Marshal(want)
	require.NoError(t, err)
	newer := append(append([]byte{}, binary...), protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("new"))...)
	dir := t.TempDir()
	file := func(content []byte) string {
		path := filepath.Join(dir, "graph")
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	for name, content := range map[string][]byte{
		"binary": binary, "text": text, "text after a comment": append([]byte("# made by hand\n"), text...), "binary of a newer TensorFlow": newer,
	} {
		t.Run(name, func(t *testing.T) {
			encoded, err := bridge.ReadGraphDef(file(content))
			require.NoError(t, err)
			got := new(graphdef.GraphDef)
			require.NoError(t, proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(encoded, got))
			assert.True(t, proto.Equal(want, got))
			_, err = bridge.Import(tf.NewGraph(), encoded, bridge.ImportOptions{})
			assert.NoError(t, err)
		})
	}
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"empty":                        {nil, "is empty"},
		"cut short":                    {binary[:len(binary)-9], "cut short"},
		"text that is cut short":       {text[:len(text)/2], "is not a GraphDef in text"},
		"text of a newer TensorFlow":   {append(text, "\nfrobnication { level: 3 }\n"...), "unknown field: frobnication: the graph comes from a newer TensorFlow"},
		"a picture":                    {[]byte("\x89PNG\r\n\x1a\n"), "are not a serialized GraphDef"},
		"an error page of a webserver": {[]byte("<!DOCTYPE html><html><body>node: none</body></html>"), "are not a serialized GraphDef"},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(c.content)
			_, err := bridge.ReadGraphDef(path)
			require.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, path)
		})
	}
	_, err = bridge.ReadGraphDef(filepath.Join(dir, "none"))
	assert.ErrorIs(t, err, bridge.ErrNotFound)
	_, err = bridge.ReadGraphDef(dir)
	assert.ErrorContains(t, err, "is not a file")
}

// FuzzImport looks for graphs that stop or kill the process: whatever the bytes
// are, Import gives an error or a graph, soon, and an error leaves no node.
func FuzzImport(f *testing.F) {
	f.Add(serialized(f, []*nodedef.NodeDef{constantNode(2), squareNode("c")}))
	f.Add(serialized(f, []*nodedef.NodeDef{constantNode(), {Name: "call", Op: "f0", Input: []string{"c"}}}, chain(2, 2)...))
	placeholder := &nodedef.NodeDef{Name: "p", Op: "Placeholder", Attr: map[string]*attrvalue.AttrValue{"dtype": attrOfType(types.DataType_DT_FLOAT)}}
	f.Add(serialized(f, []*nodedef.NodeDef{placeholder, squareNode("p:0")}))
	f.Fuzz(func(t *testing.T, def []byte) {
		g := tf.NewGraph()
		begin := time.Now()
		_, err := bridge.Import(g, def, bridge.ImportOptions{Prefix: "p"})
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("took %v", took)
		}
		if err != nil && len(g.Operations()) > 0 {
			t.Errorf("failed (%v) and left %d nodes", err, len(g.Operations()))
		}
	})
}
