package ops_test

import (
	"fmt"
	"math"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

func TestVariableNodesHavePythonsNames(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	net := g.Scope("net")
	before := g.Group("before")
	v := net.WithControl(before).Variable("w", ops.Shape{2, 3}, ops.GlorotUniform())
	net.Variable("z", ops.Shape{2}, ops.Zeros())
	net.Variable("c", ops.Shape{}, ops.Value(3))
	require.NoError(t, g.Err())

	assert.Equal(t, "net/w", v.Name())
	assert.Equal(t, "net/w", v.Handle().Op.Name())
	assert.Equal(t, "net/w/Assign", v.Initializer().Name())
	assert.Equal(t, "net/w/Read/ReadVariableOp", v.Value().Op.Name())
	assert.Equal(t, "net/w/Initializer/random_uniform", v.InitialValue().Op.Name())
	for _, name := range []string{"net/z/Initializer/zeros", "net/c/Initializer/Const"} {
		assert.NotNil(t, bridge.OperationByName(g.TF(), name), name)
	}
	shared, err := bridge.AttrString(v.Handle().Op, "shared_name")
	require.NoError(t, err)
	assert.Equal(t, "net/w", shared)
	container, err := bridge.AttrString(v.Handle().Op, "container")
	require.NoError(t, err)
	assert.Empty(t, container)
	assert.Empty(t, bridge.ControlInputs(v.Initializer()), "an initializer waits for nothing")
	assert.Empty(t, bridge.ControlInputs(v.Value().Op))
	assert.Equal(t, "init", g.Init().Name())
	assert.Equal(t, "net/w float32 [2,3]", v.String())
	assert.True(t, bridge.SameOutput(v.Value(), v.Value()))
}

func TestVariablesAreReadAssignedAndScattered(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	v := g.Variable("v", ops.Shape{3, 2}, ops.FromValue([][]float32{{1, 2}, {3, 4}, {5, 6}}))
	rows := g.Const([]int32{0, 2})
	updates := g.Const([][]float32{{10, 20}, {30, 40}})
	whole := g.Const([][]float32{{1, 1}, {1, 1}, {1, 1}})
	gathered := v.Gather(g.Root(), rows)
	isInitialized := v.IsInitialized(g.Root())
	set, add, sub := v.Assign(g.Root(), whole), v.AssignAdd(g.Root(), whole), v.AssignSub(g.Root(), whole)
	after := v.Read(g.WithControl(add))

	cases := []struct {
		kind ops.ScatterKind
		want []float64
	}{
		{ops.ScatterUpdate, []float64{10, 20, 3, 4, 30, 40}},
		{ops.ScatterAdd, []float64{11, 22, 3, 4, 35, 46}},
		{ops.ScatterSub, []float64{-9, -18, 3, 4, -25, -34}},
		{ops.ScatterMul, []float64{10, 40, 3, 4, 150, 240}},
		{ops.ScatterDiv, []float64{.1, .1, 3, 4, 5. / 30, 6. / 40}},
		{ops.ScatterMin, []float64{1, 2, 3, 4, 5, 6}},
		{ops.ScatterMax, []float64{10, 20, 3, 4, 30, 40}},
	}
	scatters := make([]*tf.Operation, len(cases))
	for i, c := range cases {
		scatters[i] = v.Scatter(g.Root(), c.kind, rows, updates)
	}
	init := g.Init()
	s := session(t, g)

	flag, err := bridge.Item[bool](fetch(t, s, []tf.Output{isInitialized})[0])
	require.NoError(t, err)
	assert.False(t, flag)
	run(t, s, init)
	assert.Equal(t, []float64{1, 2, 5, 6}, floats(t, s, gathered))
	assert.Equal(t, []float64{2, 3, 4, 5, 6, 7}, floats(t, s, after), "a read under a control dependency is after it")
	run(t, s, sub)
	assert.Equal(t, []float64{1, 2, 3, 4, 5, 6}, floats(t, s, v.Value()))
	for i, c := range cases {
		run(t, s, init)
		run(t, s, scatters[i])
		assert.InDeltaSlice(t, c.want, floats(t, s, v.Value()), 1e-6, "%s", c.kind)
	}
	run(t, s, set)
	assert.Equal(t, []float64{1, 1, 1, 1, 1, 1}, floats(t, s, v.Value()))
}

func TestReadingBeforeInitNamesTheVariableAndTheRemedy(t *testing.T) { // T30
	g := ops.NewGraph(ops.GraphOptions{})
	v := g.Scope("net").Variable("w", ops.Shape{2}, ops.Ones())
	s := session(t, g)
	_, err := s.Call(deadline(t), bridge.Call{Fetches: []tf.Output{v.Value()}})
	require.ErrorIs(t, err, bridge.ErrUninitialized)
	assert.ErrorContains(t, err, "net/w")
	assert.ErrorContains(t, err, "Init")
	run(t, s, g.InitOf(v))
	assert.Equal(t, []float64{1, 1}, floats(t, s, v.Value()))
}

func TestInitialValuesMadeOfOtherVariables(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{Seed: 3})
	f := ops.NewFormula(g.Root(), tf.Float)
	a := g.Variable("a", ops.Shape{2}, ops.Uniform(0, 1))
	// b = 2·a, c = a[1] + sum of b through a list input, d = c
	b := g.Variable("b", ops.Shape{2}, ops.FromOutput(f.Mul(a.Value(), f.Constant(2))))
	rows := a.Gather(g.Root(), g.Const([]int32{1}))
	sum := g.Add(bridge.OpSpec{Type: "AddN", Inputs: []tf.Input{tf.OutputList{b.Value(), a.Value(), a.Value()}}}).Output(0)
	c := g.Variable("c", ops.Shape{2}, ops.FromOutput(f.Add(sum, rows)))
	d := g.Variable("d", ops.Shape{2}, ops.FromOutput(c.Read(g.Root())))
	plain := g.Const([]float32{7, 8})
	e := g.Variable("e", ops.Shape{2}, ops.FromOutput(plain))
	assert.True(t, bridge.SameOutput(plain, e.InitialValue()), "what depends on no variable is not copied")
	s := initialized(t, g)
	av := floats(t, s, a.Value())
	assert.InDeltaSlice(t, []float64{2 * av[0], 2 * av[1]}, floats(t, s, b.Value()), 1e-6)
	want := []float64{4*av[0] + av[1], 5 * av[1]}
	assert.InDeltaSlice(t, want, floats(t, s, c.Value()), 1e-6)
	assert.InDeltaSlice(t, want, floats(t, s, d.Value()), 1e-6)

	t.Run("through an operation that needs the variable itself it is an error", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		a := g.Variable("a", ops.Shape{2}, ops.Zeros())
		g.Variable("b", ops.Shape{}, ops.FromOutput(a.IsInitialized(g.Root())), ops.VariableOptions{DType: tf.Bool})
		require.ErrorContains(t, g.Err(), "VarIsInitializedOp")
	})
	t.Run("in a loop it is an error", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		def := loopGraph(t)
		require.NoError(t, g.TF().Import(def, ""))
		g.Variable("b", ops.Shape{}, ops.FromOutput(g.TF().Operation("Exit").Output(0)))
		require.ErrorContains(t, g.Err(), "loop")
	})
}

// loopGraph is while i < 10 { i *= 2 } in the operations of v1, as a GraphDef:
// a cycle can't be built with the C API, only imported.
func loopGraph(t *testing.T) []byte {
	node := func(name, op string, inputs []string, attrs string) string {
		text := fmt.Sprintf("node { name: %q op: %q ", name, op)
		for _, in := range inputs {
			text += fmt.Sprintf("input: %q ", in)
		}
		return text + attrs + " }\n"
	}
	float := ` attr { key: "T" value { type: DT_FLOAT } }`
	return graphDef(t, node("one", "Const", nil, `attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1 } } }`)+
		node("Enter", "Enter", []string{"one"}, float+` attr { key: "frame_name" value { s: "f" } }`)+
		node("Merge", "Merge", []string{"Enter", "Next"}, float+` attr { key: "N" value { i: 2 } }`)+
		node("ten", "Const", []string{"^Merge"}, `attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 10 } } }`)+
		node("Less", "Less", []string{"Merge", "ten"}, float)+
		node("LoopCond", "LoopCond", []string{"Less"}, "")+
		node("Switch", "Switch", []string{"Merge", "LoopCond"}, float)+
		node("Add", "AddV2", []string{"Switch:1", "Switch:1"}, float)+
		node("Next", "NextIteration", []string{"Add"}, float)+
		node("Exit", "Exit", []string{"Switch"}, float))
}

func TestInitCoversVariablesAddedSince(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	a := g.Variable("a", ops.Shape{}, ops.Value(1))
	first := g.Init()
	assert.Same(t, first, g.Init(), "the same operation while nothing is added")
	change := a.AssignAdd(g.Root(), g.Const(float32(5)))
	b := g.Variable("b", ops.Shape{}, ops.Value(2))
	only := g.InitOf(b)
	all := g.Init()
	assert.NotEqual(t, first.Name(), all.Name())
	s := session(t, g)
	run(t, s, first)
	run(t, s, change)
	run(t, s, only)
	assert.Equal(t, []float64{6}, floats(t, s, a.Value()), "InitOf leaves the others alone")
	assert.Equal(t, []float64{2}, floats(t, s, b.Value()))
	run(t, s, all)
	assert.Equal(t, []float64{1}, floats(t, s, a.Value()))
}

func TestVariablesOfEveryKind(t *testing.T) {
	for name, c := range map[string]struct {
		dt    tf.DataType
		init  ops.Initializer
		shape ops.Shape
	}{
		"float16":   {tf.Half, ops.GlorotNormal(), ops.Shape{3, 3}},
		"bfloat16":  {tf.Bfloat16, ops.HeUniform(), ops.Shape{3, 3}},
		"float64":   {tf.Double, ops.LecunNormal(), ops.Shape{3, 3}},
		"int64":     {tf.Int64, ops.Value(-3), ops.Shape{2}},
		"bool":      {tf.Bool, ops.Ones(), ops.Shape{2}},
		"complex64": {tf.Complex64, ops.Ones(), ops.Shape{}},
		"uint8":     {tf.Uint8, ops.Zeros(), ops.Shape{2}},
		"empty":     {tf.Float, ops.Uniform(0, 1), ops.Shape{0, 3}},
		"string":    {tf.String, ops.FromValue([]string{"a", "b\x00c"}), ops.Shape{2}},
		"no string": {tf.String, ops.Zeros(), ops.Shape{2}},
	} {
		t.Run(name, func(t *testing.T) {
			g := ops.NewGraph(ops.GraphOptions{})
			v := g.Variable("v", c.shape, c.init, ops.VariableOptions{DType: c.dt})
			s := initialized(t, g)
			value := fetch(t, s, []tf.Output{v.Value()})[0]
			assert.Equal(t, c.dt, value.DType())
			assert.True(t, c.shape.Equal(value.Shape()), "%v", value.Shape())
		})
	}
}

func TestWhatCantBeAVariableIsAnError(t *testing.T) {
	other := ops.NewGraph(ops.GraphOptions{})
	foreign := other.Variable("v", ops.Shape{2}, ops.Zeros())
	good := ops.Shape{2}
	for name, c := range map[string]struct {
		make func(g *ops.Graph)
		want string
	}{
		"an unknown dimension": {func(g *ops.Graph) { g.Variable("v", ops.Shape{-1, 2}, ops.Zeros()) }, "not fully defined"},
		"an unknown rank":      {func(g *ops.Graph) { g.Variable("v", nil, ops.Zeros()) }, "not fully defined"},
		"a huge shape":         {func(g *ops.Graph) { g.Variable("v", ops.Shape{1 << 40, 1 << 40}, ops.Zeros()) }, "more elements"},
		"no initializer":       {func(g *ops.Graph) { g.Variable("v", good, nil) }, "initializer is nil"},
		"an empty initializer": {func(g *ops.Graph) { g.Variable("v", good, ops.FromOutput(tf.Output{})) }, "gave no tensor"},
		"a nil tensor":         {func(g *ops.Graph) { g.Variable("v", good, ops.FromTensor(nil)) }, "nil"},
		"a foreign tensor":     {func(g *ops.Graph) { g.Variable("v", good, ops.FromOutput(foreign.Value())) }, "another graph"},
		"another shape":        {func(g *ops.Graph) { g.Variable("v", good, ops.FromValue([]float32{1})) }, "wanted shape [2], got [1]"},
		"another dtype":        {func(g *ops.Graph) { g.Variable("v", good, ops.FromValue([]float64{1, 2})) }, "wanted dtype float32, got float64"},
		"a resource dtype":     {func(g *ops.Graph) { g.Variable("v", good, ops.Zeros(), ops.VariableOptions{DType: bridge.Resource}) }, "dtype resource"},
		"no dtype":             {func(g *ops.Graph) { g.Variable("v", good, ops.Zeros(), ops.VariableOptions{DType: 99}) }, "dtype"},
		"random integers":      {func(g *ops.Graph) { g.Variable("v", good, ops.GlorotUniform(), ops.VariableOptions{DType: tf.Int32}) }, "floating dtype"},
		"half an integer":      {func(g *ops.Graph) { g.Variable("v", good, ops.Value(.5), ops.VariableOptions{DType: tf.Int32}) }, "0.5"},
		"two options":          {func(g *ops.Graph) { g.Variable("v", good, ops.Zeros(), ops.VariableOptions{}, ops.VariableOptions{}) }, "at most one"},
		"an empty name":        {func(g *ops.Graph) { g.Variable("", good, ops.Zeros()) }, "name"},
		"a trailing slash":     {func(g *ops.Graph) { g.Variable("v/", good, ops.Zeros()) }, "empty part"},
		"a bad mode":           {func(g *ops.Graph) { g.Variable("v", good, ops.VarianceScaling(1, "fan", ops.UniformNumbers)) }, "fan_in"},
		"a bad distribution":   {func(g *ops.Graph) { g.Variable("v", good, ops.VarianceScaling(1, ops.FanIn, "x")) }, "truncated_normal"},
		"a bad scale": {func(g *ops.Graph) {
			g.Variable("v", good, ops.VarianceScaling(math.NaN(), ops.FanIn, ops.UniformNumbers))
		}, "NaN"},
		"a second of the name": {func(g *ops.Graph) {
			g.Scope("net").Variable("v", good, ops.Zeros())
			g.Variable("net/v", good, ops.Zeros())
		}, `made at ops/variables_test.go`},
		"a node of the name": {func(g *ops.Graph) { noOp(g.Root(), "v"); g.Variable("v", good, ops.Zeros()) }, "of type NoOp"},
		"assigning another shape": {func(g *ops.Graph) {
			v := g.Variable("v", good, ops.Zeros())
			v.Assign(g.Root(), g.Const([]float32{1, 2, 3}))
		}, "wanted shape [2], got [3]"},
		"assigning another dtype": {func(g *ops.Graph) {
			v := g.Variable("v", good, ops.Zeros())
			v.AssignAdd(g.Root(), g.Const([]int32{1, 2}))
		}, "wanted dtype float32, got int32"},
		"assigning nothing": {func(g *ops.Graph) { g.Variable("v", good, ops.Zeros()).Assign(g.Root(), tf.Output{}) }, "zero"},
		"a scatter that is none": {func(g *ops.Graph) {
			g.Variable("v", good, ops.Zeros()).Scatter(g.Root(), "X", tf.Output{}, tf.Output{})
		}, "ResourceScatterAdd"},
		"reading a foreign one":      {func(g *ops.Graph) { foreign.Read(g.Root()) }, "another graph"},
		"reading a nil one":          {func(g *ops.Graph) { (*ops.Variable)(nil).Read(g.Root()) }, "nil"},
		"initializing a foreign one": {func(g *ops.Graph) { g.InitOf(foreign) }, "another graph"},
		"initializing a nil one":     {func(g *ops.Graph) { g.InitOf(nil) }, "nil"},
	} {
		t.Run(name, func(t *testing.T) {
			g := ops.NewGraph(ops.GraphOptions{})
			c.make(g)
			err := g.Err()
			require.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, "ops/variables_test.go:")
		})
	}
}

func TestARefusedVariableLeavesNothingBehind(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	v := g.Variable("v", ops.Shape{-1}, ops.Zeros())
	assert.Zero(t, bridge.NumOperations(g.TF()))
	assert.Empty(t, g.Variables())
	assert.Nil(t, v.Value().Op)
	assert.Nil(t, v.Handle().Op)
	assert.Nil(t, v.Gather(nil, tf.Output{}).Op)
	assert.Nil(t, v.Assign(nil, tf.Output{}))
}

func TestNilVariables(t *testing.T) {
	var v *ops.Variable
	assert.Empty(t, v.Name())
	assert.Nil(t, v.Shape())
	assert.Zero(t, v.DType())
	assert.False(t, v.Trainable())
	assert.Nil(t, v.Graph())
	assert.Nil(t, v.Scope())
	assert.Nil(t, v.Handle().Op)
	assert.Nil(t, v.Value().Op)
	assert.Nil(t, v.InitialValue().Op)
	assert.Nil(t, v.Initializer())
	assert.Equal(t, "<nil variable>", v.String())
	assert.Nil(t, v.Read(nil).Op)
	assert.Nil(t, v.Assign(nil, tf.Output{}))
}

func TestVariableByName(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	for i := range 8 {
		g.Scope("net").Variable(fmt.Sprintf("w%d", i), ops.Shape{}, ops.Zeros())
	}
	v, err := g.VariableByName("net/w3")
	require.NoError(t, err)
	assert.Equal(t, "net/w3", v.Name())
	_, err = g.VariableByName("Net/w5x")
	require.ErrorIs(t, err, bridge.ErrNotFound)
	assert.ErrorContains(t, err, "have net/w5,")
	assert.ErrorContains(t, err, "and 3 more")
	_, err = ops.NewGraph(ops.GraphOptions{}).VariableByName("x")
	require.ErrorContains(t, err, "there is none")
}

func TestInitializersDrawWhatKerasDoes(t *testing.T) {
	conv, matrix, vector, scalar := ops.Shape{3, 3, 16, 32}, ops.Shape{300, 500}, ops.Shape{4000}, ops.Shape{}
	// A uniform distribution in ±limit has variance limit²/3, a normal one
	// truncated at two standard deviations 0.87962566103423978² of its own.
	for name, c := range map[string]struct {
		init     ops.Initializer
		shape    ops.Shape
		variance float64
		limit    float64 // no number lies beyond it
	}{
		"glorot uniform, matrix": {ops.GlorotUniform(), matrix, 1. / 400, math.Sqrt(3. / 400)},
		"glorot normal, matrix":  {ops.GlorotNormal(), matrix, 1. / 400, 2 * math.Sqrt(1./400) / .87962566103423978},
		"he uniform, conv":       {ops.HeUniform(), conv, 2. / (9 * 16), math.Sqrt(6. / (9 * 16))},
		"he normal, conv":        {ops.HeNormal(), conv, 2. / (9 * 16), 2 * math.Sqrt(2./(9*16)) / .87962566103423978},
		"lecun uniform, vector":  {ops.LecunUniform(), vector, 1. / 4000, math.Sqrt(3. / 4000)},
		"lecun normal, conv":     {ops.LecunNormal(), conv, 1. / (9 * 16), 2 * math.Sqrt(1./(9*16)) / .87962566103423978},
		"fan out, untruncated":   {ops.VarianceScaling(1, ops.FanOut, ops.UntruncatedNormalNumbers), conv, 1. / (9 * 32), math.Inf(1)},
		"a scalar":               {ops.GlorotUniform(), scalar, 0, math.Sqrt(3)},
		"uniform":                {ops.Uniform(-2, 2), matrix, 4. / 3, 2},
		"normal":                 {ops.Normal(0, 3), matrix, 9, math.Inf(1)},
		"truncated normal":       {ops.TruncatedNormal(0, 3), matrix, 9 * .87962566103423978 * .87962566103423978, 6},
	} {
		t.Run(name, func(t *testing.T) {
			g := ops.NewGraph(ops.GraphOptions{Seed: 11})
			v := g.Variable("v", c.shape, c.init)
			values := floats(t, initialized(t, g), v.Value())
			var sum, squares, largest float64
			for _, x := range values {
				sum, squares, largest = sum+x, squares+x*x, max(largest, math.Abs(x))
			}
			n := float64(len(values))
			assert.LessOrEqual(t, largest, c.limit*(1+1e-6))
			if c.variance == 0 {
				return
			}
			assert.InDelta(t, 0, sum/n, 5*math.Sqrt(c.variance/n), "mean")
			assert.InEpsilon(t, c.variance, squares/n, 10/math.Sqrt(n), "variance")
		})
	}
	t.Run("mean and bounds are shifted", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		u, n := g.Variable("u", matrix, ops.Uniform(5, 6)), g.Variable("n", matrix, ops.Normal(7, .1))
		s := initialized(t, g)
		for _, x := range floats(t, s, u.Value()) {
			if x < 5 || x > 6 {
				t.Fatalf("%v is not in [5, 6)", x)
			}
		}
		var sum float64
		for _, x := range floats(t, s, n.Value()) {
			sum += x
		}
		assert.InDelta(t, 7, sum/(300*500), .01)
	})
}

func TestRandomNumbersFollowSeedAndName(t *testing.T) {
	draw := func(seed int64, name string) []float64 {
		g := ops.NewGraph(ops.GraphOptions{Seed: seed})
		g.Scope("other").Variable("first", ops.Shape{2}, ops.GlorotUniform())
		v := g.Variable(name, ops.Shape{4}, ops.GlorotUniform())
		return floats(t, initialized(t, g), v.Value())
	}
	assert.Equal(t, draw(1, "a"), draw(1, "a"), "the same seed gives the same numbers")
	assert.NotEqual(t, draw(1, "a"), draw(2, "a"))
	assert.NotEqual(t, draw(1, "a"), draw(1, "b"))
}

func TestDrawsFollowNameAndStep(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{Seed: 5})
	step := g.Placeholder("step", tf.Int64, ops.Shape{})
	dims := g.Placeholder("dims", tf.Int32, ops.Shape{1})
	a := ops.StatelessNormal(g.Root(), ops.Shape{4}, tf.Float, ops.Draw{Name: "a", Step: step})
	again := ops.StatelessNormal(g.Root(), dims, tf.Float, ops.Draw{Name: "a", Step: step})
	b := ops.StatelessNormal(g.Root(), ops.Shape{4}, tf.Float, ops.Draw{Name: "b", Step: step})
	fixed := ops.StatelessNormal(g.Root(), ops.Shape{4}, tf.Float, ops.Draw{Name: "a"})
	unnamed := ops.StatelessUniform(g.Root(), ops.Shape{4}, tf.Double, ops.Draw{})
	other := ops.StatelessUniform(g.Root(), ops.Shape{4}, tf.Double, ops.Draw{})
	truncated := ops.StatelessTruncatedNormal(g.Root(), ops.Shape{1000}, tf.Half, ops.Draw{})
	s := session(t, g)
	at := func(n int64) feed { return fed(t, step, ops.Shape{}, n) }
	four := fed(t, dims, ops.Shape{1}, int32(4))
	assert.Equal(t, floats(t, s, a, at(3)), floats(t, s, again, at(3), four))
	assert.Equal(t, floats(t, s, a, at(0)), floats(t, s, fixed))
	assert.NotEqual(t, floats(t, s, a, at(3)), floats(t, s, a, at(4)))
	assert.NotEqual(t, floats(t, s, a, at(3)), floats(t, s, b, at(3)))
	assert.NotEqual(t, floats(t, s, unnamed), floats(t, s, other))
	for _, x := range floats(t, s, truncated) {
		assert.LessOrEqual(t, math.Abs(x), 2.0)
	}

	for name, draw := range map[string]func(*ops.Graph){
		"integers":      func(g *ops.Graph) { ops.StatelessNormal(g.Root(), ops.Shape{1}, tf.Int32, ops.Draw{}) },
		"an open shape": func(g *ops.Graph) { ops.StatelessNormal(g.Root(), ops.Shape{-1}, tf.Float, ops.Draw{}) },
		"a zero shape":  func(g *ops.Graph) { ops.StatelessNormal(g.Root(), tf.Output{}, tf.Float, ops.Draw{}) },
		"a vector of step": func(g *ops.Graph) {
			ops.StatelessNormal(g.Root(), ops.Shape{1}, tf.Float, ops.Draw{Step: g.Const([]int64{1, 2})})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := ops.NewGraph(ops.GraphOptions{})
			draw(g)
			require.Error(t, g.Err())
		})
	}
}

func TestGlobalStep(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	step := g.Scope("deep").WithDevice("/device:CPU:0").Graph().GlobalStep()
	assert.Equal(t, "global_step", step.Name())
	assert.Equal(t, tf.Int64, step.DType())
	assert.False(t, step.Trainable())
	assert.Same(t, step, g.GlobalStep())
	found, err := ops.CollectionOf[*ops.Variable](g, ops.GlobalStepKey, "")
	require.NoError(t, err)
	assert.Equal(t, []*ops.Variable{step}, found)
	s := initialized(t, g)
	assert.Equal(t, []float64{0}, floats(t, s, step.Value()))

	g = ops.NewGraph(ops.GraphOptions{})
	own := g.Variable("global_step", ops.Shape{}, ops.Value(9), ops.VariableOptions{DType: tf.Int64, NonTrainable: true})
	assert.Same(t, own, g.GlobalStep(), "one of the user's own")
	g = ops.NewGraph(ops.GraphOptions{})
	g.Variable("global_step", ops.Shape{}, ops.Zeros())
	g.GlobalStep()
	require.ErrorContains(t, g.Err(), "there is one already, float32", "but not of another dtype")
}

func TestHyperparameters(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	fedRate := g.Placeholder("rate", tf.Double, ops.Shape{})
	f := ops.HyperparameterFunc(func(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
		form := ops.NewFormula(s, dt)
		return form.Mul(form.Cast(step), form.Constant(.5))
	})
	step := g.Const(int64(6))
	fixed := ops.Fixed(.25).At(g.Root(), step, tf.Half)
	fed64 := ops.Fed(fedRate).At(g.Root(), step, tf.Float)
	formula := f.At(g.Root(), step, tf.Double)
	atStep := ops.At(g.Root(), f, tf.Float)
	s := initialized(t, g)
	assert.Equal(t, tf.Half, fixed.DataType())
	assert.Equal(t, []float64{.25}, floats(t, s, fixed))
	assert.Equal(t, []float64{.125}, floats(t, s, fed64, fed(t, fedRate, ops.Shape{}, .125)))
	assert.Equal(t, []float64{3}, floats(t, s, formula))
	assert.Equal(t, []float64{0}, floats(t, s, atStep))

	g = ops.NewGraph(ops.GraphOptions{})
	ops.Fed(g.Const([]float32{1, 2})).At(g.Root(), tf.Output{}, tf.Float)
	require.ErrorContains(t, g.Err(), "scalar")
	g = ops.NewGraph(ops.GraphOptions{})
	ops.HyperparameterFunc(nil).At(g.Root(), tf.Output{}, tf.Float)
	require.ErrorContains(t, g.Err(), "nil")
}
