package bridge_test

import (
	"fmt"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/sluice-ml/sluice/bridge"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOpDefs(t *testing.T) {
	def, ok := bridge.OpDef("MatMul")
	require.True(t, ok)
	assert.Equal(t, "a", def.InputArg[0].Name)
	_, ok = bridge.OpDef("NoSuchOp")
	assert.False(t, ok)
	_, ok = bridge.OpDef("")
	assert.False(t, ok)

	all, err := bridge.AllOps()
	require.NoError(t, err)
	assert.Greater(t, len(all), 1500)
	for i, def := range all[1:] {
		require.Less(t, all[i].Name, def.Name, "by name, each once")
	}
}

func names(ops []*tf.Operation) []string {
	var all []string
	for _, op := range ops {
		all = append(all, op.Name())
	}
	return all
}

func TestTheGraphTellsItsEdges(t *testing.T) {
	g := newGraph(t)
	a := constant(g, "a", bridge.Shape{2}, float32(1), 2)
	b := constant(g, "b", bridge.Shape{2}, float32(3), 4)
	axis := constant(g, "axis", bridge.Shape{}, int32(0))
	concat, err := bridge.AddOperation(g.Graph, bridge.OpSpec{
		Type: "ConcatV2", Name: "concat", Inputs: []tf.Input{tf.OutputList{a, b, a}, axis}, Control: []*tf.Operation{axis.Op, b.Op}})
	require.NoError(t, err)
	split, err := bridge.AddOperation(g.Graph, bridge.OpSpec{
		Type: "Split", Name: "split", Inputs: []tf.Input{axis, concat.Output(0)}, Attrs: []bridge.Attr{{Name: "num_split", Value: 3}}})
	require.NoError(t, err)

	inputs := bridge.Inputs(concat)
	require.Len(t, inputs, 4)
	for i, want := range []tf.Output{a, b, a, axis} {
		assert.True(t, bridge.SameOutput(want, inputs[i]))
		assert.True(t, bridge.SameOutput(want, bridge.Input(concat, i)))
	}
	assert.Equal(t, tf.Output{}, bridge.Input(concat, 4))
	assert.Equal(t, tf.Output{}, bridge.Input(concat, -1))
	assert.Nil(t, bridge.Inputs(a.Op))
	assert.Len(t, bridge.OutputsOf(split), 3)
	assert.ElementsMatch(t, []string{"axis", "b"}, names(bridge.ControlInputs(concat)))
	assert.Equal(t, []string{"concat"}, names(bridge.ControlOutputs(axis.Op)))
	assert.Nil(t, bridge.ControlInputs(a.Op))
	assert.Nil(t, bridge.ControlOutputs(a.Op))
	assert.Equal(t, []string{"concat", "concat"}, names(bridge.Consumers(a)), "once for each time")
	assert.ElementsMatch(t, []string{"concat", "split"}, names(bridge.Consumers(axis)))
	assert.Nil(t, bridge.Consumers(split.Output(2)))
	assert.Same(t, g.Graph, bridge.GraphOf(concat))

	for _, c := range []struct {
		length func(*tf.Operation, string) (int, error)
		op     *tf.Operation
		arg    string
		want   int
	}{
		{bridge.InputListLength, concat, "values", 3},
		{bridge.InputListLength, concat, "axis", 1},
		{bridge.OutputListLength, split, "output", 3},
		{bridge.OutputListLength, concat, "output", 1},
	} {
		n, err := c.length(c.op, c.arg)
		require.NoError(t, err)
		assert.Equal(t, c.want, n, c.arg)
		_, err = c.length(c.op, "nothing")
		assert.ErrorIs(t, err, bridge.ErrNotFound)
		_, err = c.length(c.op, c.arg+"\x00")
		assert.ErrorIs(t, err, bridge.ErrNotFound)
	}
}

func TestKeysTellWhetherTensorsAreTheSame(t *testing.T) {
	g := newGraph(t)
	a := constant(g, "a", bridge.Shape{}, float32(1))
	again := bridge.OperationByName(g.Graph, "a")
	assert.NotSame(t, a.Op, again)
	assert.Equal(t, bridge.Key(a), bridge.Key(again.Output(0)))
	assert.NotEqual(t, bridge.Key(a), bridge.Key(again.Output(1)))
	assert.NotEqual(t, bridge.Key(a), bridge.OpKey(a.Op))
	assert.Equal(t, bridge.OpKey(a.Op), bridge.OpKey(again))
	assert.Equal(t, bridge.OutputKey{}, bridge.Key(tf.Output{}))
	assert.True(t, bridge.Valid(a))
	assert.False(t, bridge.Valid(again.Output(1)))
	assert.False(t, bridge.Valid(tf.Output{Op: a.Op, Index: -1}))
}

func TestOperationsComeInTheOrderTheyWereAdded(t *testing.T) {
	g := newGraph(t)
	for i := range 300 {
		g.op("NoOp", fmt.Sprintf("n%d", i), nil)
	}
	assert.Equal(t, 300, bridge.NumOperations(g.Graph))
	i := 0
	for op := range bridge.Operations(g.Graph) {
		require.Equal(t, fmt.Sprintf("n%d", i), op.Name())
		if i < 10 {
			g.op("NoOp", fmt.Sprintf("n%d", 300+i), nil) // comes too
		}
		i++
	}
	assert.Equal(t, 310, i)
	for op := range bridge.Operations(g.Graph) {
		assert.Equal(t, "n0", op.Name())
		break
	}
	assert.Nil(t, bridge.OperationByName(g.Graph, "n"))
	assert.Nil(t, bridge.OperationByName(g.Graph, "n0\x00"))
}

func TestAttributesOfANode(t *testing.T) {
	g := newGraph(t)
	op := g.placeholder("x", tf.Float, bridge.Shape{-1}).Op
	assert.True(t, bridge.HasAttr(op, "shape"))
	assert.False(t, bridge.HasAttr(op, "shapes"))
	_, err := bridge.AttrShape(op, "shapes")
	assert.ErrorIs(t, err, bridge.ErrNotFound)
	assert.ErrorContains(t, err, "dtype, shape", "lists what there is")
	_, err = bridge.RawAttr(op, "a\x00b")
	assert.ErrorIs(t, err, bridge.ErrNotFound)
	attrs, err := bridge.Attrs(op)
	require.NoError(t, err)
	require.Len(t, attrs, 2)
	copied := g.op("Placeholder", "copy", nil, attrs...)
	shape, err := bridge.AttrShape(copied, "shape")
	require.NoError(t, err)
	assert.Equal(t, bridge.Shape{-1}, shape)
}

func TestConstantValue(t *testing.T) {
	g := newGraph(t)
	axes := constant(g, "axes", bridge.Shape{2}, int32(0), 2)
	through := g.op("Identity", "through", []tf.Output{axes}).Output(0)
	stopped := g.op("StopGradient", "stopped", []tf.Output{through}).Output(0)
	both, err := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "IdentityN", Inputs: []tf.Input{tf.OutputList{g.placeholder("other", tf.Float, nil), stopped}}})
	require.NoError(t, err)
	for _, out := range []tf.Output{axes, through, stopped, both.Output(1)} {
		value, ok, err := bridge.ConstantValue(out)
		require.NoError(t, err)
		require.True(t, ok)
		assert.Equal(t, []int32{0, 2}, values[int32](t, value))
		value.Close()
	}

	image := g.placeholder("image", tf.Float, bridge.Shape{5, 7})
	shape := g.op("Shape", "shape", []tf.Output{image}).Output(0)
	sum := g.op("AddV2", "sum", []tf.Output{shape, shape}).Output(0)
	for _, out := range []tf.Output{image, shape, both.Output(0)} {
		value, ok, err := bridge.ConstantValue(out)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Nil(t, value)
	}
	value, ok, err := bridge.EvaluateConstant(sum)
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, []int32{10, 14}, values[int32](t, value))
	value.Close()
	_, ok, err = bridge.EvaluateConstant(image)
	require.NoError(t, err)
	assert.False(t, ok)
	_, _, err = bridge.ConstantValue(tf.Output{})
	assert.ErrorIs(t, err, bridge.ErrInvalidArgument)
	_, _, err = bridge.EvaluateConstant(tf.Output{Op: image.Op, Index: 4})
	assert.ErrorIs(t, err, bridge.ErrInvalidArgument)
}

// Whoever asks of nothing gets nothing, or an error.
func TestNothingTellsNothing(t *testing.T) {
	for _, op := range []*tf.Operation{nil, {}} {
		out := tf.Output{Op: op}
		assert.Nil(t, bridge.Inputs(op))
		assert.Equal(t, tf.Output{}, bridge.Input(op, 0))
		assert.Nil(t, bridge.OutputsOf(op))
		assert.Nil(t, bridge.ControlInputs(op))
		assert.Nil(t, bridge.ControlOutputs(op))
		assert.Nil(t, bridge.Consumers(out))
		assert.Nil(t, bridge.GraphOf(op))
		assert.False(t, bridge.Valid(out))
		assert.False(t, bridge.HasAttr(op, "T"))
		assert.Equal(t, bridge.OutputKey{}, bridge.Key(out))
		assert.Equal(t, bridge.OutputKey{}, bridge.OpKey(op))
		for _, err := range []error{
			second(bridge.InputListLength(op, "x")), second(bridge.OutputListLength(op, "x")),
			second(bridge.RawAttr(op, "T")), second(bridge.Attrs(op)), second(bridge.NodeDef(op)), second(bridge.AttrTensor(op, "T")),
			second(bridge.AttrInt(op, "T")), second(bridge.AttrInts(op, "T")), second(bridge.AttrFloat(op, "T")), second(bridge.AttrFloats(op, "T")),
			second(bridge.AttrBool(op, "T")), second(bridge.AttrBools(op, "T")), second(bridge.AttrString(op, "T")), second(bridge.AttrStrings(op, "T")),
			second(bridge.AttrType(op, "T")), second(bridge.AttrTypes(op, "T")), second(bridge.AttrShape(op, "T")), second(bridge.AttrShapes(op, "T")),
			second(bridge.AttrFunc(op, "T")), second(bridge.AttrFuncs(op, "T")),
		} {
			assert.ErrorIs(t, err, bridge.ErrInvalidArgument)
		}
	}
	for _, g := range []*tf.Graph{nil, {}} {
		assert.Nil(t, bridge.OperationByName(g, "x"))
		assert.Zero(t, bridge.NumOperations(g))
		for range bridge.Operations(g) {
			t.Error("an operation of no graph")
		}
		assert.ErrorIs(t, second(bridge.GraphDef(g)), bridge.ErrInvalidArgument)
		assert.ErrorIs(t, second(bridge.Functions(g)), bridge.ErrInvalidArgument)
		assert.ErrorIs(t, second(bridge.AddFunctions(g)), bridge.ErrInvalidArgument)
		assert.ErrorIs(t, second(bridge.CopyFunctions(g, tf.NewGraph())), bridge.ErrInvalidArgument)
		assert.ErrorIs(t, second(bridge.CopyFunctions(tf.NewGraph(), g)), bridge.ErrInvalidArgument)
		assert.ErrorIs(t, second(bridge.ToFunction(g, bridge.FunctionSpec{Name: "f"})), bridge.ErrInvalidArgument)
		assert.ErrorIs(t, second(bridge.Import(g, []byte("x"), bridge.ImportOptions{})), bridge.ErrInvalidArgument)
	}
}

func second[T any](_ T, err error) error { return err }

func BenchmarkInputs(b *testing.B) {
	g := newGraph(b)
	x := g.placeholder("x", tf.Float, nil)
	op := g.op("AddV2", "sum", []tf.Output{x, x})
	b.ReportAllocs()
	for b.Loop() {
		bridge.Inputs(op)
	}
}
