package bridge_test

import (
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
)

func placeholder(t *testing.T, g *tf.Graph, name string, shape bridge.Shape) tf.Output {
	t.Helper()
	return node(t, g, bridge.OpSpec{Type: "Placeholder", Name: name, Attrs: []bridge.Attr{{Name: "dtype", Value: tf.Float}, {Name: "shape", Value: shape}}})
}

func node(t *testing.T, g *tf.Graph, spec bridge.OpSpec) tf.Output {
	t.Helper()
	op, err := bridge.AddOperation(g, spec)
	require.NoError(t, err)
	return op.Output(0)
}

// callOf is a graph that calls a function of the name f: its argument squared, and that of the
// name f2, which returns the argument and its square.
func callOf(t *testing.T) (g *tf.Graph, x, y tf.Output) {
	t.Helper()
	body := tf.NewGraph()
	arg := placeholder(t, body, "arg", nil)
	square := node(t, body, bridge.OpSpec{Type: "Square", Inputs: []tf.Input{arg}})
	f, err := bridge.ToFunction(body, bridge.FunctionSpec{Name: "f", Inputs: []tf.Output{arg}, Outputs: []tf.Output{square}})
	require.NoError(t, err)
	f2, err := bridge.ToFunction(body, bridge.FunctionSpec{Name: "f2", Inputs: []tf.Output{arg}, Outputs: []tf.Output{square, arg}})
	require.NoError(t, err)
	g = tf.NewGraph()
	_, err = bridge.AddFunctions(g, f, f2)
	require.NoError(t, err)
	x = placeholder(t, g, "x", bridge.Shape{2})
	y = node(t, g, bridge.OpSpec{Type: "PartitionedCall", Inputs: []tf.Input{tf.OutputList{x}}, Attrs: []bridge.Attr{
		{Name: "Tout", Value: []tf.DataType{tf.Float}}, {Name: "f", Value: bridge.Func{Name: "f"}}}})
	return g, x, y
}

var twoOutputs = bridge.Extension{
	Attrs:  []bridge.Attr{{Name: "Tout", Value: []tf.DataType{tf.Float, tf.Float}}, {Name: "f", Value: bridge.Func{Name: "f2"}}},
	Shapes: []bridge.Shape{{2}},
}

func runs(t *testing.T, s *bridge.Session, x tf.Output, fetches ...tf.Output) [][]float64 {
	t.Helper()
	in, err := bridge.FromFlat(bridge.Shape{2}, []float32{3, 4})
	require.NoError(t, err)
	defer in.Close()
	results, err := s.Call(t.Context(), bridge.Call{Feeds: []tf.Output{x}, Fetches: fetches}, in)
	require.NoError(t, err)
	all := make([][]float64, len(results))
	for i, r := range results {
		all[i], err = bridge.ToFloat64(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
	}
	return all
}

func TestAnExtendedOperationHasMoreOutputsInItsPlace(t *testing.T) {
	g, x, y := callOf(t)
	after := node(t, g, bridge.OpSpec{Type: "Neg", Inputs: []tf.Input{y}})
	require.NoError(t, bridge.ExtendOperation(y.Op, twoOutputs))
	assert.Equal(t, 2, y.Op.NumOutputs())
	more := y.Op.Output(1)
	assert.Equal(t, bridge.Shape{2}, bridge.ShapeOf(more))
	user := node(t, g, bridge.OpSpec{Type: "Neg", Name: "more", Inputs: []tf.Input{more}})
	s, err := bridge.NewSession(g, bridge.Config{})
	require.NoError(t, err)
	defer s.Close()
	assert.Equal(t, [][]float64{{9, 16}, {-9, -16}, {-3, -4}}, runs(t, s, x, y, after, user))

	// The graph can be exported and imported as it is now.
	def, err := bridge.GraphDef(g)
	require.NoError(t, err)
	again := tf.NewGraph()
	_, err = bridge.Import(again, def, bridge.ImportOptions{})
	require.NoError(t, err)
	assert.Equal(t, 2, bridge.OperationByName(again, y.Op.Name()).NumOutputs())
}

func TestAnOperationThatASessionHasRunIsNotChanged(t *testing.T) {
	g, x, y := callOf(t)
	s, err := bridge.NewSession(g, bridge.Config{})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Prepare(bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{y}})
	require.NoError(t, err)
	assert.False(t, bridge.HasRun(y.Op), "only prepared")
	runs(t, s, x, y)
	assert.True(t, bridge.HasRun(y.Op))
	assert.True(t, bridge.HasRun(x.Op))
	later := node(t, g, bridge.OpSpec{Type: "Neg", Inputs: []tf.Input{y}})
	assert.False(t, bridge.HasRun(later.Op))

	err = bridge.ExtendOperation(y.Op, twoOutputs)
	require.ErrorIs(t, err, bridge.ErrFailedPrecondition)
	assert.ErrorContains(t, err, "before the first run")
	assert.Equal(t, 1, y.Op.NumOutputs())
	require.ErrorIs(t, bridge.RewireInput(y.Op, 0, later), bridge.ErrFailedPrecondition)
	require.NoError(t, bridge.RewireInput(later.Op, 0, x))
	assert.Equal(t, [][]float64{{-3, -4}}, runs(t, s, x, later))
	assert.True(t, bridge.HasRun(later.Op))

	require.NoError(t, s.Close())
	assert.False(t, bridge.HasRun(y.Op), "no session holds it any more")
	assert.False(t, bridge.HasRun(nil))
}

func TestExtensionsThatCanNotBeAreErrors(t *testing.T) {
	g, x, y := callOf(t)
	other := placeholder(t, tf.NewGraph(), "x", nil)
	named := node(t, g, bridge.OpSpec{Type: "f", Inputs: []tf.Input{x}})
	for want, err := range map[string]error{
		"nil operation":                   bridge.ExtendOperation(nil, twoOutputs),
		"called by name":                  bridge.ExtendOperation(named.Op, twoOutputs),
		"only While takes more inputs":    bridge.ExtendOperation(y.Op, bridge.Extension{Inputs: []tf.Output{x}}),
		"no attribute \"g\"":              bridge.ExtendOperation(y.Op, bridge.Extension{Attrs: []bridge.Attr{{Name: "g", Value: 1}}}),
		"wanted list(type)":               bridge.ExtendOperation(y.Op, bridge.Extension{Attrs: []bridge.Attr{{Name: "Tout", Value: 1}}}),
		"there is no input 1":             bridge.RewireInput(y.Op, 1, x),
		"of another graph":                bridge.RewireInput(y.Op, 0, other),
		"was asked of a nil operation":    bridge.RewireInput(nil, 0, x),
		"the graph's library has no such": openError(g, "nobody"),
	} {
		assert.ErrorContains(t, err, want)
	}
	assert.Equal(t, 1, y.Op.NumOutputs())
}

func openError(g *tf.Graph, name string) error {
	_, err := bridge.OpenBody(g, bridge.Func{Name: name}, nil)
	return err
}

func TestABodyOpensAsItIsCalled(t *testing.T) {
	g, _, _ := callOf(t)
	b, err := bridge.OpenBody(g, bridge.Func{Name: "f2"}, []bridge.BodyArg{{Shape: bridge.Shape{5}}})
	require.NoError(t, err)
	require.Len(t, b.Args, 1)
	require.Len(t, b.Results, 2)
	assert.Equal(t, "Square", b.Results[0].Op.Type())
	assert.True(t, bridge.SameOutput(b.Args[0], b.Results[1]), "an argument returned as it is")
	assert.Equal(t, bridge.Shape{5}, bridge.ShapeOf(b.Results[0]))
}

func TestACursorGoesOnWhereItStopped(t *testing.T) {
	g := tf.NewGraph()
	var c bridge.Cursor
	for _, name := range []string{"a", "b", "c"} {
		assert.Nil(t, c.Next(g))
		assert.Nil(t, c.Next(g))
		placeholder(t, g, name, nil)
		op := c.Next(g)
		require.NotNil(t, op)
		assert.Equal(t, name, op.Name())
	}
}
