package bridge_test

import (
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	graphdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	"github.com/sluice-ml/sluice/bridge"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

func makeFunction(t testing.TB, g testGraph, spec bridge.FunctionSpec) *function.FunctionDef {
	t.Helper()
	def, err := bridge.ToFunction(g.Graph, spec)
	require.NoError(t, err)
	return def
}

// scale is a function of one float: x times factor.
func scale(t testing.TB, name string, factor float32) *function.FunctionDef {
	t.Helper()
	g := newGraph(t)
	x := g.placeholder("x", tf.Float, nil)
	y := g.op("Mul", "y", []tf.Output{x, constant(g, "factor", bridge.Shape{}, factor)}).Output(0)
	return makeFunction(t, g, bridge.FunctionSpec{Name: name, Inputs: []tf.Output{x}, Outputs: []tf.Output{y}})
}

// caller is a function that calls another one on its argument.
func caller(t testing.TB, name, callee string) *function.FunctionDef {
	t.Helper()
	g := newGraph(t)
	x := g.placeholder("x", tf.Float, nil)
	return makeFunction(t, g, bridge.FunctionSpec{Name: name, Inputs: []tf.Output{x}, Outputs: []tf.Output{g.call("call", callee, x)}})
}

func (g testGraph) call(name, function string, x tf.Output) tf.Output {
	g.Helper()
	op, err := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "PartitionedCall", Name: name, Inputs: []tf.Input{tf.OutputList{x}}, Attrs: []bridge.Attr{
		{Name: "Tout", Value: []tf.DataType{tf.Float}}, {Name: "f", Value: bridge.Func{Name: function}}}})
	require.NoError(g, err)
	return op.Output(0)
}

func (g testGraph) add(defs ...*function.FunctionDef) map[string]string {
	g.Helper()
	renamed, err := bridge.AddFunctions(g.Graph, defs...)
	require.NoError(g, err)
	return renamed
}

func (g testGraph) functions() []string {
	g.Helper()
	defs, err := bridge.Functions(g.Graph)
	require.NoError(g, err)
	var all []string
	for _, def := range defs {
		all = append(all, def.Signature.Name)
	}
	return all
}

func evaluate(g testGraph, out tf.Output) float32 {
	g.Helper()
	s := g.session(bridge.Config{})
	got, err := s.Call(g.Context(), bridge.Call{Fetches: []tf.Output{out}})
	require.NoError(g, err)
	defer got[0].Close()
	return values[float32](g, got[0])[0]
}

func TestFunctionsAreCalled(t *testing.T) {
	g := newGraph(t)
	assert.Empty(t, g.add(scale(t, "triple", 3), caller(t, "outer", "triple")))
	assert.Equal(t, []string{"outer", "triple"}, g.functions())
	x := constant(g, "x", bridge.Shape{}, float32(7))
	assert.Equal(t, float32(21), evaluate(g, g.call("call", "outer", x)))

	// A function is also an op type.
	direct := g.op("triple", "direct", []tf.Output{x})
	assert.Equal(t, float32(21), evaluate(g, direct.Output(0)))
	_, err := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "triple", Name: "bare"})
	assert.ErrorContains(t, err, "wanted 1 inputs (x), got 0")
	_, err = bridge.AddOperation(newGraph(t).Graph, bridge.OpSpec{Type: "triple"})
	assert.ErrorIs(t, err, bridge.ErrNotFound, "another graph does not have it")
}

func TestWhileUpdatesAVariable(t *testing.T) {
	// while i < n { w += i; i++ }
	loop := func(g testGraph) (i, n, w tf.Output) {
		return g.placeholder("i", tf.Int32, bridge.Shape{}), g.placeholder("n", tf.Int32, bridge.Shape{}), g.placeholder("w", bridge.Resource, bridge.Shape{})
	}
	cond := newGraph(t)
	i, n, w := loop(cond)
	less := cond.op("Less", "less", []tf.Output{i, n}).Output(0)
	condition := makeFunction(t, cond, bridge.FunctionSpec{Name: "more", Inputs: []tf.Output{i, n, w}, Outputs: []tf.Output{less}, OutputNames: []string{"more"}})

	body := newGraph(t)
	i, n, w = loop(body)
	value := body.op("Cast", "value", []tf.Output{i}, bridge.Attr{Name: "DstT", Value: tf.Float}).Output(0)
	assign := body.op("AssignAddVariableOp", "assign", []tf.Output{w, value})
	next := body.op("AddV2", "next", []tf.Output{i, constant(body, "one", bridge.Shape{}, int32(1))}).Output(0)
	step := makeFunction(t, body, bridge.FunctionSpec{Name: "step", Inputs: []tf.Output{i, n, w}, Outputs: []tf.Output{next, n, w}, Control: []*tf.Operation{assign}})
	assert.True(t, step.Signature.IsStateful)
	assert.Equal(t, map[string]string{"assign": "assign"}, step.ControlRet)

	g := newGraph(t)
	g.add(condition, step)
	handle, initialize := g.variable("w", constant(g, "zero", bridge.Shape{}, float32(0)))
	while, err := bridge.AddOperation(g.Graph, bridge.OpSpec{
		Type:   "While",
		Inputs: []tf.Input{tf.OutputList{constant(g, "start", bridge.Shape{}, int32(0)), constant(g, "limit", bridge.Shape{}, int32(10)), handle}},
		Attrs:  []bridge.Attr{{Name: "cond", Value: bridge.Func{Name: "more"}}, {Name: "body", Value: bridge.Func{Name: "step"}}},
	})
	require.NoError(t, err)
	read, err := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "ReadVariableOp", Inputs: []tf.Input{handle}, Attrs: []bridge.Attr{{Name: "dtype", Value: tf.Float}}, Control: []*tf.Operation{while}})
	require.NoError(t, err)
	s := g.session(bridge.Config{})
	require.NoError(t, s.Run(t.Context(), initialize))
	out, err := s.Call(t.Context(), bridge.Call{Fetches: []tf.Output{while.Output(0), read.Output(0)}})
	require.NoError(t, err)
	defer out[0].Close()
	defer out[1].Close()
	assert.Equal(t, []int32{10}, values[int32](t, out[0]))
	assert.Equal(t, []float32{45}, values[float32](t, out[1]), "0 + 1 + … + 9")

	body2, err := bridge.AttrFunc(while, "body")
	require.NoError(t, err)
	assert.Equal(t, "step", body2.Name)
}

func TestIfTakesABranch(t *testing.T) {
	g := newGraph(t)
	g.add(scale(t, "double", 2), scale(t, "half", 0.5))
	x := constant(g, "x", bridge.Shape{}, float32(6))
	for _, c := range []struct {
		name string
		cond bool
		want float32
	}{{"yes", true, 12}, {"no", false, 3}} {
		op, err := bridge.AddOperation(g.Graph, bridge.OpSpec{
			Type: "If", Name: c.name, Inputs: []tf.Input{constant(g, c.name+"/cond", bridge.Shape{}, c.cond), tf.OutputList{x}},
			Attrs: []bridge.Attr{
				{Name: "Tout", Value: []tf.DataType{tf.Float}},
				{Name: "then_branch", Value: bridge.Func{Name: "double"}}, {Name: "else_branch", Value: bridge.Func{Name: "half"}},
			},
		})
		require.NoError(t, err)
		assert.Equal(t, c.want, evaluate(g, op.Output(0)), c.name)
	}
}

func TestFunctionsOfTheSameNameAreRenamed(t *testing.T) {
	g := newGraph(t)
	assert.Empty(t, g.add(scale(t, "f", 2), caller(t, "outer", "f")))
	assert.Empty(t, g.add(scale(t, "f", 2)), "the same body stays")
	assert.Empty(t, g.add(scale(t, "f", 2), caller(t, "outer", "f")))
	require.Equal(t, []string{"f", "outer"}, g.functions())

	given := []*function.FunctionDef{scale(t, "f", 5), caller(t, "outer", "f"), caller(t, "alone", "f"), scale(t, "MatMul", 10)}
	renamed := g.add(given...)
	assert.Equal(t, map[string]string{"f": "f_1", "outer": "outer_1", "MatMul": "MatMul_1"}, renamed,
		"f has another body, outer calls it, MatMul is an op; alone is free")
	assert.Equal(t, "f", given[0].Signature.Name, "what was given is as it was")
	assert.Equal(t, []string{"MatMul_1", "alone", "f", "f_1", "outer", "outer_1"}, g.functions())
	x := constant(g, "x", bridge.Shape{}, float32(1))
	for name, want := range map[string]float32{"f": 2, "outer": 2, "f_1": 5, "outer_1": 5, "alone": 5, "MatMul_1": 10} {
		assert.Equal(t, want, evaluate(g, g.call("call_"+name, name, x)), name)
	}

	other := newGraph(t)
	other.add(scale(t, "f", 3))
	renamed, err := bridge.CopyFunctions(other.Graph, g.Graph)
	require.NoError(t, err)
	assert.Equal(t, "f_2", renamed["f"], "f_1 is among those that come")
	x = constant(other, "x", bridge.Shape{}, float32(1))
	assert.Equal(t, float32(2), evaluate(other, other.call("call", "outer", x)))
	assert.Equal(t, float32(5), evaluate(other, other.call("call1", "outer_1", x)))
}

// A function can also be called as an op of its name; those calls are renamed as
// well, in functions and among a graph's nodes.
func TestCallsByOpTypeAreRenamed(t *testing.T) {
	from := newGraph(t)
	from.add(scale(t, "f", 5))
	x := from.placeholder("x", tf.Float, bridge.Shape{})
	y := from.op("f", "y", []tf.Output{x}).Output(0)
	outer := makeFunction(t, from, bridge.FunctionSpec{Name: "outer", Inputs: []tf.Output{x}, Outputs: []tf.Output{y}})
	require.Equal(t, "f", outer.NodeDef[0].Op)
	def, err := bridge.GraphDef(from.Graph)
	require.NoError(t, err)

	g := newGraph(t)
	g.add(scale(t, "f", 2))
	assert.Equal(t, map[string]string{"f": "f_1"}, g.add(scale(t, "f", 5), outer))
	one := constant(g, "one", bridge.Shape{}, float32(1))
	assert.Equal(t, float32(5), evaluate(g, g.call("call", "outer", one)))
	imported, err := bridge.Import(g.Graph, def, bridge.ImportOptions{Prefix: "model", InputMap: map[string]tf.Output{"x": one}, ReturnOps: []string{"y"}})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"f": "f_2"}, imported.Renamed)
	assert.Equal(t, "f_2", imported.Ops[0].Type())
	assert.Equal(t, float32(5), evaluate(g, imported.Ops[0].Output(0)))
}

func TestImportRenamesFunctions(t *testing.T) {
	from := newGraph(t)
	from.add(scale(t, "f", 5), caller(t, "outer", "f"))
	x := from.placeholder("x", tf.Float, bridge.Shape{})
	from.call("result", "outer", x)
	def, err := bridge.GraphDef(from.Graph)
	require.NoError(t, err)

	g := newGraph(t)
	g.add(scale(t, "f", 2))
	one := constant(g, "one", bridge.Shape{}, float32(1))
	imported, err := bridge.Import(g.Graph, def, bridge.ImportOptions{
		Prefix: "model", InputMap: map[string]tf.Output{"x": one, "unused:3": one}, ReturnOutputs: []string{"result:0"}, ReturnOps: []string{"result"}})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"f": "f_1"}, imported.Renamed)
	assert.Equal(t, []string{"unused:3"}, imported.Unused)
	require.Len(t, imported.Outputs, 1)
	require.Len(t, imported.Ops, 1)
	assert.Equal(t, "model/result", imported.Ops[0].Name())
	assert.Equal(t, float32(5), evaluate(g, imported.Outputs[0]))
	assert.Equal(t, float32(2), evaluate(g, g.call("own", "f", one)))
}

func TestImport(t *testing.T) {
	from := newGraph(t)
	x := from.placeholder("x", tf.Float, bridge.Shape{})
	from.op("Neg", "y", []tf.Output{x})
	after, err := bridge.AddOperation(from.Graph, bridge.OpSpec{Type: "NoOp", Name: "after", Control: []*tf.Operation{x.Op}})
	require.NoError(t, err)
	require.Equal(t, "after", after.Name())
	def, err := bridge.GraphDef(from.Graph)
	require.NoError(t, err)

	g := newGraph(t)
	first := constant(g, "first", bridge.Shape{}, float32(1))
	t.Run("control inputs, device, remapped edges", func(t *testing.T) {
		imported, err := bridge.Import(g.Graph, def, bridge.ImportOptions{
			Prefix: "a", Control: []*tf.Operation{first.Op}, Device: "/cpu:0",
			InputMap: map[string]tf.Output{"^x": first, "x:0": first}, ReturnOps: []string{"y", "after"}})
		require.NoError(t, err)
		assert.Equal(t, []string{"a/y", "a/after"}, names(imported.Ops))
		assert.Equal(t, "/cpu:0", imported.Ops[0].Device())
		assert.True(t, bridge.SameOutput(first, bridge.Input(imported.Ops[0], 0)))
		assert.Contains(t, names(bridge.ControlInputs(imported.Ops[1])), "first")
	})
	t.Run("a name that is taken is an error", func(t *testing.T) {
		before := bridge.NumOperations(g.Graph)
		for _, prefix := range []string{"a", "a/"} {
			_, err := bridge.Import(g.Graph, def, bridge.ImportOptions{Prefix: prefix})
			assert.ErrorIs(t, err, bridge.ErrAlreadyExists)
			assert.ErrorContains(t, err, `"a/x"`)
		}
		_, err := bridge.Import(from.Graph, def, bridge.ImportOptions{})
		assert.ErrorIs(t, err, bridge.ErrAlreadyExists)
		assert.Equal(t, before, bridge.NumOperations(g.Graph))
	})
	t.Run("or gets a fresh one", func(t *testing.T) {
		imported, err := bridge.Import(g.Graph, def, bridge.ImportOptions{Prefix: "a", UniquifyPrefix: true, ReturnOps: []string{"y"}})
		require.NoError(t, err)
		assert.Equal(t, "a_1/y", imported.Ops[0].Name())
		imported, err = bridge.Import(g.Graph, def, bridge.ImportOptions{Prefix: "a", UniquifyNames: true, ReturnOps: []string{"y"}})
		require.NoError(t, err)
		assert.Equal(t, "a/y_1", imported.Ops[0].Name())
	})
	other := newGraph(t).placeholder("x", tf.Float, nil)
	for name, c := range map[string]struct {
		def     []byte
		options bridge.ImportOptions
		says    string
	}{
		"an empty GraphDef":                {nil, bridge.ImportOptions{}, "empty"},
		"bytes that are none":              {[]byte("no graph"), bridge.ImportOptions{}, "GraphDef"},
		"a prefix that names can't have":   {def, bridge.ImportOptions{Prefix: "a b"}, "a b"},
		"a prefix with a NUL":              {def, bridge.ImportOptions{Prefix: "a\x00"}, "NUL"},
		"a device of no grammar":           {def, bridge.ImportOptions{Device: "cpu"}, "cpu"},
		"a key that names no tensor":       {def, bridge.ImportOptions{InputMap: map[string]tf.Output{"x:y": first}}, "x:y"},
		"a key with a negative index":      {def, bridge.ImportOptions{InputMap: map[string]tf.Output{"x:-1": first}}, "x:-1"},
		"an empty control key":             {def, bridge.ImportOptions{InputMap: map[string]tf.Output{"^": first}}, "node's name"},
		"a zero tensor for an input":       {def, bridge.ImportOptions{InputMap: map[string]tf.Output{"x": {}}}, "zero tf.Output"},
		"another graph's tensor":           {def, bridge.ImportOptions{InputMap: map[string]tf.Output{"x": other}}, "another graph"},
		"a tensor of another type":         {def, bridge.ImportOptions{Prefix: "t", InputMap: map[string]tf.Output{"x": constant(g, "int", bridge.Shape{}, int32(1))}}, "int32"},
		"a nil control input":              {def, bridge.ImportOptions{Control: []*tf.Operation{nil}}, "nil"},
		"a result that is not there":       {def, bridge.ImportOptions{Prefix: "r", ReturnOutputs: []string{"z:0"}}, "z"},
		"a result beyond the outputs":      {def, bridge.ImportOptions{Prefix: "r", ReturnOutputs: []string{"y:1"}}, "y"},
		"an operation that is not there":   {def, bridge.ImportOptions{Prefix: "r", ReturnOps: []string{"z"}}, "z"},
		"an operation whose name is empty": {def, bridge.ImportOptions{ReturnOps: []string{""}}, "node's name"},
	} {
		t.Run(name, func(t *testing.T) {
			before := bridge.NumOperations(g.Graph)
			imported, err := bridge.Import(g.Graph, c.def, c.options)
			require.Error(t, err)
			require.Nil(t, imported)
			assert.ErrorContains(t, err, c.says)
			assert.Equal(t, before, bridge.NumOperations(g.Graph), "nothing was added")
		})
	}
}

func TestToFunctionRefuses(t *testing.T) {
	g := newGraph(t)
	x := g.placeholder("x", tf.Float, nil)
	y := g.op("Neg", "y", []tf.Output{x}).Output(0)
	other := newGraph(t).placeholder("other", tf.Float, nil)
	for name, c := range map[string]struct {
		spec bridge.FunctionSpec
		says string
	}{
		"no name":                        {bridge.FunctionSpec{}, `""`},
		"a name with a space":            {bridge.FunctionSpec{Name: "a b"}, "a b"},
		"a zero input":                   {bridge.FunctionSpec{Name: "f", Inputs: []tf.Output{{}}}, "input 0 is the zero"},
		"an output of another graph":     {bridge.FunctionSpec{Name: "f", Outputs: []tf.Output{other}}, "another graph"},
		"a nil operation":                {bridge.FunctionSpec{Name: "f", Ops: []*tf.Operation{nil}}, "operation 0 is nil"},
		"a nil control output":           {bridge.FunctionSpec{Name: "f", Control: []*tf.Operation{nil}}, "control output 0 is nil"},
		"an input twice":                 {bridge.FunctionSpec{Name: "f", Inputs: []tf.Output{x, x}}, "x"},
		"names that are not as many":     {bridge.FunctionSpec{Name: "f", Inputs: []tf.Output{x}, Outputs: []tf.Output{y}, OutputNames: []string{"a", "b"}}, "2 names for 1"},
		"a name that no output can have": {bridge.FunctionSpec{Name: "f", Inputs: []tf.Output{x}, Outputs: []tf.Output{y}, OutputNames: []string{"A-b"}}, "A-b"},
		"a body that needs more":         {bridge.FunctionSpec{Name: "f", Ops: []*tf.Operation{y.Op}, Outputs: []tf.Output{y}}, "y"},
		"an attribute of no kind":        {bridge.FunctionSpec{Name: "f", Inputs: []tf.Output{x}, Attrs: []bridge.Attr{{Name: "_a", Value: struct{}{}}}}, "_a"},
	} {
		t.Run(name, func(t *testing.T) {
			def, err := bridge.ToFunction(g.Graph, c.spec)
			require.Error(t, err)
			require.Nil(t, def)
			assert.ErrorIs(t, err, bridge.ErrInvalidArgument)
			assert.ErrorContains(t, err, c.says)
		})
	}

	def := makeFunction(t, g, bridge.FunctionSpec{Name: "kept", Inputs: []tf.Output{x}, Outputs: []tf.Output{y, y}, Attrs: []bridge.Attr{{Name: "_noinline", Value: true}}})
	assert.True(t, def.Attr["_noinline"].GetB())
	assert.Len(t, def.Signature.OutputArg, 2, "one output may come twice")
	empty := makeFunction(t, g, bridge.FunctionSpec{Name: "same", Inputs: []tf.Output{x}, Outputs: []tf.Output{x}, Ops: []*tf.Operation{}})
	assert.Empty(t, empty.NodeDef)

	for _, defs := range [][]*function.FunctionDef{{nil}, {{}}, {def, def}} {
		_, err := bridge.AddFunctions(g.Graph, defs...)
		assert.ErrorIs(t, err, bridge.ErrInvalidArgument)
	}
	assert.Empty(t, g.functions())
}

func TestCallsInACircleAreRefused(t *testing.T) {
	for name, defs := range map[string][]*function.FunctionDef{
		"itself":  {caller(t, "self", "self")},
		"another": {caller(t, "there", "back"), caller(t, "back", "there")},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGraph(t)
			_, err := bridge.AddFunctions(g.Graph, defs...)
			require.ErrorIs(t, err, bridge.ErrInvalidArgument)
			require.ErrorContains(t, err, "in a circle")

			def, err := proto.Marshal(&graphdef.GraphDef{Library: &function.FunctionDefLibrary{Function: defs}})
			require.NoError(t, err)
			_, err = bridge.Import(g.Graph, def, bridge.ImportOptions{})
			require.ErrorContains(t, err, "in a circle")
			left, err := bridge.Functions(g.Graph)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}
