package bridge_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/sluice-ml/sluice/bridge"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSelfCheck(t *testing.T) {
	require.NoError(t, bridge.SelfCheck())
}

func TestAddOperation(t *testing.T) {
	g := newGraph(t)
	a := g.placeholder("net/a", tf.Float, bridge.Shape{-1, 3})
	b := g.placeholder("net/b", tf.Float, bridge.Shape{2, 3})
	op, err := bridge.AddOperation(g.Graph, bridge.OpSpec{
		Type: "MatMul", Name: "net/c", Inputs: []tf.Input{a, b},
		Attrs:        []bridge.Attr{{Name: "transpose_b", Value: true}, {Name: "_note", Value: "kept"}},
		Device:       "/device:CPU:0",
		Control:      []*tf.Operation{b.Op},
		ColocateWith: []*tf.Operation{a.Op},
	})
	require.NoError(t, err)
	assert.Equal(t, "net/c", op.Name())
	assert.Equal(t, "MatMul", op.Type())
	assert.Equal(t, "/device:CPU:0", op.Device())
	assert.Equal(t, bridge.Shape{-1, 2}, bridge.ShapeOf(op.Output(0)), "[?,3] times the transpose of [2,3]")
	assert.Equal(t, tf.Float, op.Output(0).DataType())
	inputs := bridge.Inputs(op)
	require.Len(t, inputs, 2)
	assert.True(t, bridge.SameOutput(a, inputs[0]) && bridge.SameOutput(b, inputs[1]))
	control := bridge.ControlInputs(op)
	require.Len(t, control, 1)
	assert.Equal(t, "net/b", control[0].Name())
	class, err := bridge.AttrStrings(op, "_class")
	require.NoError(t, err)
	assert.Equal(t, []string{"loc:@net/a"}, class)
	note, err := bridge.AttrString(op, "_note")
	require.NoError(t, err)
	assert.Equal(t, "kept", note)

	unnamed, err := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "NoOp"})
	require.NoError(t, err)
	assert.Equal(t, "NoOp", unnamed.Name(), "the type names it")
}

// Every kind of attribute, written and read again. Where no op of libtensorflow
// has an attribute of the kind, a note (a name with an underscore) carries it.
func TestAttributesComeBackAsTheyWere(t *testing.T) {
	g := newGraph(t)
	read := map[string]func(op *tf.Operation) (any, error){
		"string":       func(op *tf.Operation) (any, error) { return bridge.AttrString(op, "_x") },
		"int":          func(op *tf.Operation) (any, error) { return bridge.AttrInt(op, "_x") },
		"float":        func(op *tf.Operation) (any, error) { return bridge.AttrFloat(op, "_x") },
		"bool":         func(op *tf.Operation) (any, error) { return bridge.AttrBool(op, "_x") },
		"type":         func(op *tf.Operation) (any, error) { return bridge.AttrType(op, "_x") },
		"shape":        func(op *tf.Operation) (any, error) { return bridge.AttrShape(op, "_x") },
		"func":         func(op *tf.Operation) (any, error) { return bridge.AttrFunc(op, "_x") },
		"list(string)": func(op *tf.Operation) (any, error) { return bridge.AttrStrings(op, "_x") },
		"list(int)":    func(op *tf.Operation) (any, error) { return bridge.AttrInts(op, "_x") },
		"list(float)":  func(op *tf.Operation) (any, error) { return bridge.AttrFloats(op, "_x") },
		"list(bool)":   func(op *tf.Operation) (any, error) { return bridge.AttrBools(op, "_x") },
		"list(type)":   func(op *tf.Operation) (any, error) { return bridge.AttrTypes(op, "_x") },
		"list(shape)":  func(op *tf.Operation) (any, error) { return bridge.AttrShapes(op, "_x") },
		"list(func)":   func(op *tf.Operation) (any, error) { return bridge.AttrFuncs(op, "_x") },
	}
	for i, c := range []struct {
		kind        string
		value, want any
	}{
		{"string", "a\x00b", "a\x00b"},
		{"string", []byte("bytes"), "bytes"},
		{"string", "", ""},
		{"int", 7, int64(7)},
		{"int", int64(math.MinInt64), int64(math.MinInt64)},
		{"float", 0.5, float32(0.5)},
		{"float", float32(math.Inf(-1)), float32(math.Inf(-1))},
		{"bool", true, true},
		{"bool", false, false},
		{"type", tf.Bfloat16, tf.Bfloat16},
		{"shape", bridge.Shape{2, -1, 0}, bridge.Shape{2, -1, 0}},
		{"shape", bridge.Shape{}, bridge.Shape{}},
		{"shape", bridge.Shape(nil), bridge.Shape(nil)},
		{"shape", tf.MakeShape(4, -1), bridge.Shape{4, -1}},
		{"shape", tf.Shape{}, bridge.Shape(nil)},
		{"func", bridge.Func{Name: "f"}, bridge.Func{Name: "f"}},
		{"list(string)", []string{"a", ""}, []string{"a", ""}},
		{"list(string)", [][]byte{[]byte("a")}, []string{"a"}},
		{"list(int)", []int{1, -1}, []int64{1, -1}},
		{"list(int)", []int64{1 << 40}, []int64{1 << 40}},
		{"list(float)", []float32{1.5, 0}, []float32{1.5, 0}},
		{"list(float)", []float64{1.5}, []float32{1.5}},
		{"list(bool)", []bool{true, false}, []bool{true, false}},
		{"list(type)", []tf.DataType{tf.Float, bridge.Resource}, []tf.DataType{tf.Float, bridge.Resource}},
		{"list(shape)", []bridge.Shape{{1}, nil, {}}, []bridge.Shape{{1}, nil, {}}},
		{"list(shape)", []tf.Shape{tf.MakeShape(3)}, []bridge.Shape{{3}}},
		{"list(func)", []bridge.Func{{Name: "f"}, {Name: "g"}}, []bridge.Func{{Name: "f"}, {Name: "g"}}},
	} {
		t.Run(fmt.Sprintf("%s from %T", c.kind, c.value), func(t *testing.T) {
			op := g.op("NoOp", fmt.Sprintf("carrier%d", i), nil, bridge.Attr{Name: "_x", Value: c.value})
			got, err := read[c.kind](op)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)

			raw, err := bridge.RawAttr(op, "_x")
			require.NoError(t, err)
			again := g.op("NoOp", fmt.Sprintf("copy%d", i), nil, bridge.Attr{Name: "_x", Value: raw})
			got, err = read[c.kind](again)
			require.NoError(t, err)
			assert.Equal(t, c.want, got, "an AttrProto carries it over")

			for kind, other := range read {
				if kind != c.kind {
					_, err := other(op)
					assert.ErrorIs(t, err, bridge.ErrInvalidArgument, "it is no %s", kind)
				}
			}
		})
	}
	for kind, value := range map[string]any{
		"list(string)": []string{}, "list(int)": []int64{}, "list(float)": []float32{}, "list(bool)": []bool{},
		"list(type)": []tf.DataType{}, "list(shape)": []bridge.Shape{}, "list(func)": []bridge.Func{},
	} {
		op := g.op("NoOp", g.fresh("empty"), nil, bridge.Attr{Name: "_x", Value: value})
		got, err := read[kind](op)
		require.NoError(t, err, kind)
		assert.Empty(t, got)
	}
}

func TestFunctionAttributesCarryTheirOwn(t *testing.T) {
	g := newGraph(t)
	inner := flat(t, bridge.Shape{2}, float32(1), 2)
	words, err := bridge.FromStrings(bridge.Shape{2}, []string{"a", "b\x00"})
	require.NoError(t, err)
	defer words.Close()
	op := g.op("NoOp", "carrier", nil, bridge.Attr{Name: "_f", Value: bridge.Func{Name: "f", Attrs: []bridge.Attr{
		{Name: "rate", Value: 0.5}, {Name: "T", Value: tf.Float}, {Name: "at", Value: inner}, {Name: "words", Value: words}, {Name: "g", Value: bridge.Func{Name: "g"}},
	}}})
	f, err := bridge.AttrFunc(op, "_f")
	require.NoError(t, err)
	assert.Equal(t, "f", f.Name)
	names := []string{}
	for _, attr := range f.Attrs {
		names = append(names, attr.Name)
	}
	assert.Equal(t, []string{"T", "at", "g", "rate", "words"}, names)
	def, err := bridge.NodeDef(op)
	require.NoError(t, err)
	attrs := def.Attr["_f"].GetFunc().Attr
	assert.Equal(t, float32(0.5), attrs["rate"].GetF())
	assert.Equal(t, "g", attrs["g"].GetFunc().GetName())
	assert.Equal(t, [][]byte{[]byte("a"), []byte("b\x00")}, attrs["words"].GetTensor().StringVal)
	assert.Len(t, attrs["at"].GetTensor().TensorContent, 8)
}

func TestTensorAttributes(t *testing.T) {
	g := newGraph(t)
	value := flat(t, bridge.Shape{2, 2}, int32(1), 2, 3, 4)
	op := g.op("Const", "ours", nil, bridge.Attr{Name: "dtype", Value: tf.Int32}, bridge.Attr{Name: "value", Value: value})
	back, err := bridge.AttrTensor(op, "value")
	require.NoError(t, err)
	defer back.Close()
	assert.Equal(t, []int32{1, 2, 3, 4}, values[int32](t, back))
	assert.Equal(t, bridge.Shape{2, 2}, back.Shape())

	theirs, err := tf.NewTensor([]string{"x", "y\x00z"})
	require.NoError(t, err)
	op = g.op("Const", "theirs", nil, bridge.Attr{Name: "dtype", Value: tf.String}, bridge.Attr{Name: "value", Value: theirs})
	texts, err := bridge.AttrTensor(op, "value")
	require.NoError(t, err)
	defer texts.Close()
	got, err := texts.Strings()
	require.NoError(t, err)
	assert.Equal(t, []string{"x", "y\x00z"}, got)

	numbers, err := tf.NewTensor([]float32{0.5})
	require.NoError(t, err)
	op = g.op("NoOp", "lists", nil, bridge.Attr{Name: "_ours", Value: []*bridge.Tensor{value, value}}, bridge.Attr{Name: "_theirs", Value: []*tf.Tensor{numbers}}, bridge.Attr{Name: "_none", Value: []*bridge.Tensor{}})
	def, err := bridge.NodeDef(op)
	require.NoError(t, err)
	assert.Len(t, def.Attr["_ours"].GetList().Tensor, 2)
	assert.Len(t, def.Attr["_theirs"].GetList().Tensor, 1)
	assert.Empty(t, def.Attr["_none"].GetList().Tensor)

	_, err = bridge.AttrTensor(op, "_missing")
	assert.ErrorIs(t, err, bridge.ErrNotFound)
	_, err = bridge.AttrTensor(op, "_ours")
	assert.ErrorIs(t, err, bridge.ErrInvalidArgument)
}

func TestAddOperationRefuses(t *testing.T) {
	g := newGraph(t)
	a := g.placeholder("a", tf.Float, bridge.Shape{2, 3})
	n := g.placeholder("n", tf.Int32, bridge.Shape{})
	other := newGraph(t).placeholder("elsewhere", tf.Float, nil)
	closed, err := bridge.Scalar(float32(1))
	require.NoError(t, err)
	closed.Close()
	attr := func(name string, value any) []bridge.Attr { return []bridge.Attr{{Name: name, Value: value}} }
	placeholder := func(dtype any, more ...bridge.Attr) bridge.OpSpec {
		return bridge.OpSpec{Type: "Placeholder", Attrs: append(attr("dtype", dtype), more...)}
	}
	for _, c := range []struct {
		name string
		spec bridge.OpSpec
		is   error
		says []string
	}{
		{"no type", bridge.OpSpec{}, bridge.ErrInvalidArgument, []string{"no type"}},
		{"an unknown op, with what is near", bridge.OpSpec{Type: "Matmull"}, bridge.ErrNotFound, []string{`"Matmull"`, "MatMul"}},
		{"an op type with a NUL", bridge.OpSpec{Type: "MatMul\x00"}, bridge.ErrNotFound, nil},
		{"a name with a space", bridge.OpSpec{Type: "NoOp", Name: "a b"}, bridge.ErrInvalidArgument, []string{`"a b"`, "byte 1"}},
		{"a name with a NUL", bridge.OpSpec{Type: "NoOp", Name: "a\x00b"}, bridge.ErrInvalidArgument, []string{"byte 1"}},
		{"a name that starts with an underscore", bridge.OpSpec{Type: "NoOp", Name: "_a"}, bridge.ErrInvalidArgument, []string{"byte 0"}},
		{"a name that is taken", bridge.OpSpec{Type: "NoOp", Name: "a"}, bridge.ErrAlreadyExists, []string{`"a"`}},
		{"a device of no grammar", bridge.OpSpec{Type: "NoOp", Device: "GPU zero"}, bridge.ErrInvalidArgument, []string{"GPU zero", "/device:GPU:0"}},
		{"a device with a NUL", bridge.OpSpec{Type: "NoOp", Device: "/cpu:0\x00"}, bridge.ErrInvalidArgument, nil},
		{"too few inputs", bridge.OpSpec{Type: "MatMul", Inputs: []tf.Input{a}}, bridge.ErrInvalidArgument, []string{"wanted 2 inputs (a, b), got 1"}},
		{"too many inputs", bridge.OpSpec{Type: "NoOp", Inputs: []tf.Input{a}}, bridge.ErrInvalidArgument, []string{"wanted 0 inputs (none), got 1"}},
		{"a nil input", bridge.OpSpec{Type: "Neg", Inputs: []tf.Input{nil}}, bridge.ErrInvalidArgument, []string{`input "x" is a <nil>`}},
		{"a pointer as input", bridge.OpSpec{Type: "Neg", Inputs: []tf.Input{(*tf.Output)(nil)}}, bridge.ErrInvalidArgument, []string{"*tensorflow.Output"}},
		{"the zero output", bridge.OpSpec{Type: "Neg", Inputs: []tf.Input{tf.Output{}}}, bridge.ErrInvalidArgument, []string{`input "x" is the zero tf.Output`}},
		{"an output of the zero operation", bridge.OpSpec{Type: "Neg", Inputs: []tf.Input{tf.Output{Op: &tf.Operation{}}}}, bridge.ErrInvalidArgument, []string{"zero tf.Output"}},
		{"an output of another graph", bridge.OpSpec{Type: "Neg", Inputs: []tf.Input{other}}, bridge.ErrInvalidArgument, []string{"elsewhere:0", "another graph"}},
		{"an index beyond the outputs", bridge.OpSpec{Type: "Neg", Inputs: []tf.Input{tf.Output{Op: a.Op, Index: 1}}}, bridge.ErrInvalidArgument, []string{"a:1", "1 outputs"}},
		{"a negative index", bridge.OpSpec{Type: "Neg", Inputs: []tf.Input{tf.Output{Op: a.Op, Index: -1}}}, bridge.ErrInvalidArgument, []string{"a:-1"}},
		{"an index beyond 32 bits", bridge.OpSpec{Type: "Neg", Inputs: []tf.Input{tf.Output{Op: a.Op, Index: 1 << 32}}}, bridge.ErrInvalidArgument, nil},
		{"one where a list is wanted", bridge.OpSpec{Type: "AddN", Inputs: []tf.Input{a}}, bridge.ErrInvalidArgument, []string{`"inputs" takes a list`}},
		{"a list where one is wanted", bridge.OpSpec{Type: "Neg", Inputs: []tf.Input{tf.OutputList{a}}}, bridge.ErrInvalidArgument, []string{`"x" takes one tensor`}},
		{"a zero output in a list", bridge.OpSpec{Type: "AddN", Inputs: []tf.Input{tf.OutputList{a, {}}}}, bridge.ErrInvalidArgument, []string{`"inputs" [1]`}},
		{"an empty list where one is needed", bridge.OpSpec{Type: "AddN", Inputs: []tf.Input{tf.OutputList{}}}, bridge.ErrInvalidArgument, nil},
		{"a nil control input", bridge.OpSpec{Type: "NoOp", Control: []*tf.Operation{nil}}, bridge.ErrInvalidArgument, []string{"control input 0 is nil"}},
		{"a control input of another graph", bridge.OpSpec{Type: "NoOp", Control: []*tf.Operation{other.Op}}, bridge.ErrInvalidArgument, []string{"another graph"}},
		{"colocation with nothing", bridge.OpSpec{Type: "NoOp", ColocateWith: []*tf.Operation{{}}}, bridge.ErrInvalidArgument, []string{"colocated"}},
		{"an unknown attribute, with what exists", bridge.OpSpec{Type: "Neg", Inputs: []tf.Input{a}, Attrs: attr("transpose", true)}, bridge.ErrInvalidArgument, []string{`"transpose"`, "T type"}},
		{"an attribute without a name", bridge.OpSpec{Type: "NoOp", Attrs: attr("", true)}, bridge.ErrInvalidArgument, nil},
		{"an attribute with a NUL", bridge.OpSpec{Type: "NoOp", Attrs: attr("_a\x00", true)}, bridge.ErrInvalidArgument, nil},
		{"an attribute twice", placeholder(tf.Float, attr("dtype", tf.Int32)...), bridge.ErrInvalidArgument, []string{"twice"}},
		{"an attribute of another kind", placeholder(int64(1)), bridge.ErrInvalidArgument, []string{`"dtype"`, "wanted type", "int64"}},
		{"a list for a single one", placeholder([]tf.DataType{tf.Float}), bridge.ErrInvalidArgument, []string{"list(type)"}},
		{"an attribute of no kind", placeholder(struct{}{}), bridge.ErrInvalidArgument, []string{"struct {}"}},
		{"a nil attribute", placeholder(nil), bridge.ErrInvalidArgument, nil},
		{"a required attribute missing", bridge.OpSpec{Type: "Placeholder"}, bridge.ErrInvalidArgument, []string{`"dtype" (type) has no default`}},
		{"a data type that does not exist", placeholder(tf.DataType(99)), bridge.ErrInvalidArgument, []string{"99"}},
		{"a negative dimension", placeholder(tf.Float, attr("shape", bridge.Shape{2, -2})...), bridge.ErrInvalidArgument, []string{"dimension 1", "-2"}},
		{"a shape of too high a rank", placeholder(tf.Float, attr("shape", make(bridge.Shape, 300))...), bridge.ErrInvalidArgument, []string{"rank 300"}},
		{"a shape of too many elements", placeholder(tf.Float, attr("shape", bridge.Shape{1 << 32, 1 << 32})...), bridge.ErrInvalidArgument, nil},
		{"a list of shapes with a bad one", bridge.OpSpec{Type: "NoOp", Attrs: attr("_s", []bridge.Shape{{}, {-3}})}, bridge.ErrInvalidArgument, []string{"[1]", "-3"}},
		{"a value that is not allowed", bridge.OpSpec{Type: "MaxPool", Inputs: []tf.Input{g.placeholder("image", tf.Float, nil)}, Attrs: []bridge.Attr{
			{Name: "ksize", Value: []int{1, 2, 2, 1}}, {Name: "strides", Value: []int{1, 2, 2, 1}}, {Name: "padding", Value: "LOOSE"}}}, bridge.ErrInvalidArgument, []string{"LOOSE", "SAME"}},
		{"bytes that are no AttrValue", placeholder(bridge.AttrProto("\x28")), bridge.ErrInvalidArgument, []string{"AttrValue"}},
		{"an AttrProto of another kind", placeholder(bridge.AttrProto("\x18\x01")), bridge.ErrInvalidArgument, []string{"wanted type", "int"}},
		{"an empty AttrProto", placeholder(bridge.AttrProto(nil)), bridge.ErrInvalidArgument, []string{"nothing"}},
		{"a note that is no AttrValue", bridge.OpSpec{Type: "NoOp", Attrs: attr("_x", bridge.AttrProto("\x52\x7f"))}, bridge.ErrInvalidArgument, nil},
		{"a nil tensor", bridge.OpSpec{Type: "NoOp", Attrs: attr("_x", (*bridge.Tensor)(nil))}, bridge.ErrInvalidArgument, []string{"nil"}},
		{"a nil tensor of the binding's", bridge.OpSpec{Type: "NoOp", Attrs: attr("_x", (*tf.Tensor)(nil))}, bridge.ErrInvalidArgument, []string{"nil"}},
		{"a closed tensor", bridge.OpSpec{Type: "NoOp", Attrs: attr("_x", closed)}, bridge.ErrClosed, nil},
		{"a closed tensor in a list", bridge.OpSpec{Type: "NoOp", Attrs: attr("_x", []*bridge.Tensor{closed})}, bridge.ErrClosed, []string{"[0]"}},
		{"a closed tensor in a function's attributes", bridge.OpSpec{Type: "NoOp", Attrs: attr("_x", bridge.Func{Name: "f", Attrs: attr("t", closed)})}, bridge.ErrClosed, nil},
		{"a function without a name", bridge.OpSpec{Type: "NoOp", Attrs: attr("_x", bridge.Func{})}, bridge.ErrInvalidArgument, nil},
		{"a value whose type is not the declared one", bridge.OpSpec{Type: "Const", Attrs: append(attr("dtype", tf.Double), attr("value", flat(t, bridge.Shape{}, float32(1)))...)}, bridge.ErrInvalidArgument, nil},
		{"types that do not fit", bridge.OpSpec{Type: "AddV2", Inputs: []tf.Input{a, n}}, bridge.ErrInvalidArgument, []string{"DT_FLOAT", "DT_INT32"}},
		{"shapes that do not fit", bridge.OpSpec{Type: "MatMul", Inputs: []tf.Input{a, a}}, bridge.ErrInvalidArgument, []string{"Dimensions must be equal, but are 3 and 2 with input shapes: [2,3], [2,3]."}},
		{"an op that is no longer accepted", bridge.OpSpec{Type: "BatchMatrixInverse", Inputs: []tf.Input{g.placeholder("m", tf.Double, nil)}}, bridge.ErrUnimplemented, []string{"BatchMatrixInverse"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.spec.Name == "" {
				c.spec.Name = "refused"
			}
			before := bridge.NumOperations(g.Graph)
			op, err := bridge.AddOperation(g.Graph, c.spec)
			require.Error(t, err)
			require.Nil(t, op)
			assert.ErrorIs(t, err, c.is, err.Error())
			for _, text := range c.says {
				assert.ErrorContains(t, err, text)
			}
			if c.spec.Type != "" {
				assert.ErrorContains(t, err, c.spec.Type, "names the op's type")
			}
			for _, noise := range []string{"NodeDef", "{{node", "Op<", "(INVALID_ARGUMENT) ("} {
				assert.NotContains(t, err.Error(), noise)
			}
			assert.Equal(t, before, bridge.NumOperations(g.Graph), "nothing was added")
		})
	}
	for _, graph := range []*tf.Graph{nil, {}} {
		_, err := bridge.AddOperation(graph, bridge.OpSpec{Type: "NoOp"})
		assert.ErrorIs(t, err, bridge.ErrInvalidArgument)
	}
}

func TestDevicesThatAreTaken(t *testing.T) {
	g := newGraph(t)
	for i, device := range []string{"/cpu:0", "/CPU:0", "/gpu:1", "/device:GPU:0", "/device:XLA_CPU:*", "/device:GPU", "/job:worker", "/job:ps/task:3",
		"/job:worker/replica:0/task:1/device:CPU:0", "/task:0", "/job:*/task:*"} {
		op, err := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "NoOp", Name: fmt.Sprintf("n%d", i), Device: device})
		require.NoError(t, err, device)
		assert.Equal(t, device, op.Device())
	}
}

func TestManyGoroutinesBuildOneGraph(t *testing.T) {
	g := newGraph(t)
	x := g.placeholder("x", tf.Float, nil)
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			at := x
			for i := range 200 {
				op, err := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "Neg", Name: fmt.Sprintf("w%d/n%d", worker, i), Inputs: []tf.Input{at}})
				if !assert.NoError(t, err) {
					return
				}
				at = op.Output(0)
			}
		})
	}
	wait.Wait()
	assert.Equal(t, 1+8*200, bridge.NumOperations(g.Graph))
	assert.Len(t, bridge.Consumers(x), 8)
}

// What the binding and we add to one graph is one graph.
func TestOperationsMixWithTheBindings(t *testing.T) {
	g := newGraph(t)
	a := constant(g, "a", bridge.Shape{}, float32(3))
	theirs, err := g.Graph.AddOperation(tf.OpSpec{Type: "Square", Name: "theirs", Input: []tf.Input{a}})
	require.NoError(t, err)
	ours := g.op("Neg", "ours", []tf.Output{theirs.Output(0)})
	s := g.session(bridge.Config{})
	out, err := s.Call(t.Context(), bridge.Call{Fetches: []tf.Output{ours.Output(0)}})
	require.NoError(t, err)
	defer out[0].Close()
	assert.Equal(t, []float32{-9}, values[float32](t, out[0]))
	_, err = bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "NoOp", Name: "theirs"})
	assert.ErrorIs(t, err, bridge.ErrAlreadyExists)
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"a", "A/b_c-d.e", "0", ".x", "a>b", `a\b`, "a/", "x__"} {
		assert.NoError(t, bridge.CheckName(good), good)
	}
	for _, bad := range []string{"", "_", "/a", "-a", "a b", "a:0", "^a", "a\n", "é", "a\x00", "a\xff"} {
		assert.ErrorIs(t, bridge.CheckName(bad), bridge.ErrInvalidArgument, "%q", bad)
	}
}

// Whatever the name: it is refused, or the operation is found by it.
func FuzzNames(f *testing.F) {
	for _, seed := range []string{"", "a", "a/b", "_a", "a b", "a:0", "^a", "a\x00b", "é", "x\xff", strings.Repeat("n", 5000), "a//b", "..", `\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		g := tf.NewGraph()
		op, err := bridge.AddOperation(g, bridge.OpSpec{Type: "NoOp", Name: name})
		if err != nil {
			require.Error(t, bridge.CheckName(name))
			require.Zero(t, bridge.NumOperations(g))
			require.Nil(t, bridge.OperationByName(g, name))
			return
		}
		if name != "" {
			require.Equal(t, name, op.Name())
			require.Equal(t, bridge.OpKey(op), bridge.OpKey(bridge.OperationByName(g, name)))
		}
		_, err = bridge.AddOperation(g, bridge.OpSpec{Type: "NoOp", Name: name})
		require.ErrorIs(t, err, bridge.ErrAlreadyExists)
	})
}

// Whatever the shape: it is refused, or it comes back as it was.
func FuzzShapes(f *testing.F) {
	f.Add([]byte{}, true)
	f.Add([]byte{}, false)
	f.Add([]byte{3, 0, 255, 254}, true)
	f.Add([]byte{128, 129, 127, 127, 127, 127, 127, 127, 127, 127}, true)
	f.Add(make([]byte, 300), true)
	f.Fuzz(func(t *testing.T, dims []byte, known bool) {
		var shape bridge.Shape
		if known {
			shape = make(bridge.Shape, len(dims))
			for i, d := range dims {
				shape[i] = int64(int8(d))
				if d >= 120 && d < 128 { // beyond 32 bits
					shape[i] = int64(1) << (2 * (d - 96))
				}
			}
		}
		g := tf.NewGraph()
		op, err := bridge.AddOperation(g, bridge.OpSpec{Type: "Placeholder", Attrs: []bridge.Attr{{Name: "dtype", Value: tf.Float}, {Name: "shape", Value: shape}}})
		if err != nil {
			require.ErrorIs(t, err, bridge.ErrInvalidArgument)
			require.Zero(t, bridge.NumOperations(g))
			return
		}
		require.False(t, slices.ContainsFunc(shape, func(d int64) bool { return d < -1 }))
		back, err := bridge.AttrShape(op, "shape")
		require.NoError(t, err)
		require.Equal(t, shape, back)
		require.Equal(t, shape, bridge.ShapeOf(op.Output(0)))
	})
}

// Whatever the bytes of an attribute: it is refused, or the operation holds
// what can be asked for.
func FuzzAttributes(f *testing.F) {
	types := []string{"NoOp", "Placeholder", "Const", "VarHandleOp", "RandomDataset", "NoSuchOp"}
	f.Add(1, "dtype", []byte("\x30\x01"))
	f.Add(1, "shape", []byte("\x3a\x04\x12\x02\x08\x02"))
	f.Add(2, "value", []byte("\x42\x04\x08\x01\x12\x00"))
	f.Add(0, "_x", []byte("\x52\x03\x0a\x01f"))
	f.Add(0, "_class", []byte("\x0a\x07\x12\x05loc:@"))
	f.Add(0, "_class", []byte("\x18\x01"))
	f.Add(3, "allowed_devices", []byte("\x0a\x00"))
	f.Add(5, "\x00", []byte("\xff"))
	f.Add(0, "_\xdb", []byte("\x18\x01"))
	f.Fuzz(func(t *testing.T, which int, name string, value []byte) {
		opType := types[uint(which)%uint(len(types))]
		g := tf.NewGraph()
		attrs := []bridge.Attr{{Name: name, Value: bridge.AttrProto(value)}}
		for _, given := range []bridge.Attr{{Name: "dtype", Value: tf.Float}, {Name: "shape", Value: bridge.Shape{}}} {
			if def, ok := bridge.OpDef(opType); ok && given.Name != name {
				for _, attr := range def.Attr {
					if attr.Name == given.Name {
						attrs = append(attrs, given)
					}
				}
			}
		}
		op, err := bridge.AddOperation(g, bridge.OpSpec{Type: opType, Name: "fuzzed", Attrs: attrs})
		if err != nil {
			require.Zero(t, bridge.NumOperations(g))
			return
		}
		raw, err := bridge.Attrs(op)
		require.NoError(t, err)
		for _, attr := range raw {
			bridge.AttrInt(op, attr.Name)
			bridge.AttrFunc(op, attr.Name)
			bridge.AttrShapes(op, attr.Name)
			if tensor, err := bridge.AttrTensor(op, attr.Name); err == nil {
				tensor.Close()
			}
		}
	})
}

func BenchmarkAddOperation(b *testing.B) {
	g := tf.NewGraph()
	x, err := bridge.AddOperation(g, bridge.OpSpec{Type: "Placeholder", Attrs: []bridge.Attr{{Name: "dtype", Value: tf.Float}, {Name: "shape", Value: bridge.Shape{3, 3}}}})
	require.NoError(b, err)
	at := x.Output(0)
	names := make([]string, 0, 1<<16)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i == len(names) {
			names = append(names, fmt.Sprintf("net/MatMul_%d", i))
		}
		_, err := bridge.AddOperation(g, bridge.OpSpec{
			Type: "MatMul", Name: names[i], Inputs: []tf.Input{at, at},
			Attrs: []bridge.Attr{{Name: "transpose_b", Value: true}},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
