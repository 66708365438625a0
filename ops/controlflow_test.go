package ops_test

import (
	"fmt"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tfgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// The square root of 2 by Newton's method: as many steps as it takes.
func ExampleWhile() {
	g := ops.NewGraph(ops.GraphOptions{})
	two, tiny := g.Const(float32(2)), g.Const(float32(1e-6))
	root := ops.While(g.Root(), func(s *ops.Scope, v []tf.Output) tf.Output {
		return raw.Greater(s, raw.Abs(s, raw.Sub(s, raw.Square(s, v[0]), two)), tiny)
	}, func(s *ops.Scope, v []tf.Output) []tf.Output {
		return []tf.Output{raw.Mul(s, raw.AddV2(s, v[0], raw.Div(s, two, v[0])), s.Const(float32(0.5)))}
	}, []tf.Output{g.Const(float32(1))})
	fmt.Printf("%.4f\n", evaluate(g, root[0]))
	// Output: [1.4142]
}

// A branch by the sign of a number, and its derivative.
func ExampleIf() {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const(float32(3))
	positive := raw.Greater(g, x, g.Const(float32(0)))
	y := ops.If(g.Root(), positive,
		func(s *ops.Scope) []tf.Output { return []tf.Output{raw.Square(s, x)} },
		func(s *ops.Scope) []tf.Output { return []tf.Output{raw.Neg(s, x)} })
	grads, err := ops.Gradients(g.Root(), y, []tf.Output{x})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(evaluate(g, y[0]), evaluate(g, grads[0].Dense))
	// Output: [9] [6]
}

// One of several functions, by a number.
func ExampleCase() {
	g := ops.NewGraph(ops.GraphOptions{})
	x, which := g.Const(float32(3)), g.Const(int32(1))
	times := func(factor float32) ops.Body {
		return func(s *ops.Scope) []tf.Output { return []tf.Output{raw.Mul(s, x, s.Const(factor))} }
	}
	fmt.Println(evaluate(g, ops.Case(g.Root(), which, times(10), times(20), times(30))[0]))
	// Output: [60]
}

// times is y·wⁿ by a loop whose body reads the variable w, and counts its
// iterations in the variable made.
func times(g *ops.Graph, y, n tf.Output, w, made *ops.Variable) tf.Output {
	return ops.While(g.Root(), func(s *ops.Scope, v []tf.Output) tf.Output {
		return raw.Less(s, v[0], n)
	}, func(s *ops.Scope, v []tf.Output) []tf.Output {
		if made != nil {
			made.AssignAdd(s, s.Const(float32(1)))
		}
		return []tf.Output{raw.AddV2(s, v[0], s.Const(int32(1))), raw.Mul(s, v[1], w.Read(s))}
	}, []tf.Output{g.Const(int32(0)), y})[1]
}

func TestALoopIsDifferentiatedByWhatItReads(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x, n := g.Placeholder("x", tf.Float, ops.Shape{}), g.Placeholder("n", tf.Int32, ops.Shape{})
	w := g.Variable("w", ops.Shape{}, ops.Value(3))
	y := times(g, x, n, w, nil)
	first, err := ops.Gradients(g.Root(), []tf.Output{y}, []tf.Output{x, w.Handle()})
	require.NoError(t, err)
	second, err := ops.Gradients(g.Root(), []tf.Output{first[1].Dense}, []tf.Output{x, w.Handle()})
	require.NoError(t, err)
	s := initialized(t, g)
	for iterations, want := range map[int32][]float64{ // of x wⁿ, for x = 2, w = 3
		0: {2, 1, 0, 0, 0},
		1: {6, 3, 2, 1, 0},
		4: {162, 81, 4 * 2 * 27, 4 * 27, 4 * 3 * 2 * 9},
	} {
		outs := []tf.Output{y, first[0].Dense, first[1].Dense, second[0].Dense, second[1].Dense}
		var got []float64
		for _, v := range fetch(t, s, outs, fed(t, x, ops.Shape{}, float32(2)), fed(t, n, ops.Shape{}, iterations)) {
			values, err := bridge.ToFloat64(v)
			require.NoError(t, err)
			got = append(got, values...)
		}
		assert.Equal(t, want, got, "%d iterations", iterations)
	}
}

// With one gradient and with several, whatever a body does happens once.
func TestWhatABodyDoesHappensOnceAStep(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x, n := g.Const(float32(2)), g.Const(int32(5))
	w, made := g.Variable("w", ops.Shape{}, ops.Value(3)), g.Variable("made", ops.Shape{}, ops.Value(0))
	y := times(g, x, n, w, made)
	outs := []tf.Output{y}
	for range 2 {
		grads, err := ops.Gradients(g.Root(), []tf.Output{y}, []tf.Output{x, w.Handle()})
		require.NoError(t, err)
		outs = append(outs, grads[0].Dense, grads[1].Dense)
	}
	noise := ops.If(g.Root(), g.Const(true), func(s *ops.Scope) []tf.Output {
		made.AssignAdd(s, s.Const(float32(100)))
		draw := raw.RandomStandardNormal(s, s.Const([]int32{3}), tf.Float)
		return []tf.Output{raw.Mul(s, draw, x), draw}
	}, func(s *ops.Scope) []tf.Output {
		return []tf.Output{s.Const([]float32{0, 0, 0}), s.Const([]float32{0, 0, 0})}
	})
	drawn, err := ops.Gradients(g.Root(), noise[:1], []tf.Output{x})
	require.NoError(t, err)
	s := initialized(t, g)
	for step := range 3 {
		got := fetch(t, s, append(outs, noise[1], drawn[0].Dense))
		sum := 0.0
		values, err := bridge.ToFloat64(got[len(got)-2])
		require.NoError(t, err)
		for _, v := range values {
			sum += v
		}
		derivative, err := bridge.ToFloat64(got[len(got)-1])
		require.NoError(t, err)
		assert.InDelta(t, sum, derivative[0], 1e-5, "the derivative of draw·x is the sum of the same draw")
		assert.Equal(t, []float64{float64(105 * (step + 1))}, floats(t, s, made.Value()))
	}
}

func TestAGradientAfterARunIsRefusedBeforeANodeIsAdded(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x, n := g.Const(float32(2)), g.Const(int32(5))
	w := g.Variable("w", ops.Shape{}, ops.Value(3))
	y := times(g, x, n, w, nil)
	s := initialized(t, g)
	late := times(g, x, n, w, nil)
	before := bridge.NumOperations(g.TF())
	_, err := ops.Gradients(g.Root(), []tf.Output{y}, []tf.Output{x})
	var missing *gradients.MissingGradientError
	require.ErrorAs(t, err, &missing)
	assert.ErrorContains(t, err, `no gradient through While at node "While"`)
	assert.ErrorContains(t, err, "before the first run")
	assert.Equal(t, before, bridge.NumOperations(g.TF()))
	require.NoError(t, g.Err())

	// What was added since can be differentiated, and what no session holds.
	grads, err := ops.Gradients(g.Root(), []tf.Output{late}, []tf.Output{x})
	require.NoError(t, err)
	assert.Equal(t, []float64{243}, floats(t, s, grads[0].Dense))
	require.NoError(t, s.Close())
	_, err = ops.Gradients(g.Root(), []tf.Output{y}, []tf.Output{x})
	require.NoError(t, err)
}

func TestBodiesNest(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x, p := g.Placeholder("x", tf.Float, ops.Shape{2}), g.Placeholder("p", tf.Bool, ops.Shape{})
	w := g.Variable("w", ops.Shape{2}, ops.Value(3))
	y := ops.If(g.Root(), p, func(s *ops.Scope) []tf.Output {
		return ops.While(s, func(s *ops.Scope, v []tf.Output) tf.Output {
			return raw.Less(s, raw.Sum(s, v[0], s.Const([]int32{0})), s.Const(float32(50)))
		}, func(s *ops.Scope, v []tf.Output) []tf.Output {
			return ops.Case(s, s.Const(int32(0)), func(s *ops.Scope) []tf.Output {
				return []tf.Output{raw.Mul(s, raw.Mul(s, v[0], x), w.Read(s))}
			})
		}, []tf.Output{x})
	}, func(s *ops.Scope) []tf.Output {
		h := tfgo.NewTensor(s.Op(), s.Capture(x)).Mul(s.Capture(w.Value())).Output
		return []tf.Output{h}
	})
	grads, err := ops.Gradients(g.Root(), y, []tf.Output{x, w.Handle()})
	require.NoError(t, err)
	s := initialized(t, g)
	for _, c := range []struct {
		p         bool
		y, dx, dw []float64
	}{
		{false, []float64{3, 6}, []float64{3, 3}, []float64{1, 2}},
		{true, []float64{9, 72}, []float64{27, 108}, []float64{6, 48}}, // x³w² of x = 1, 2
	} {
		feeds := []feed{fed(t, x, ops.Shape{2}, float32(1), 2), fed(t, p, ops.Shape{}, c.p)}
		assert.Equal(t, c.y, floats(t, s, y[0], feeds...))
		assert.Equal(t, c.dx, floats(t, s, grads[0].Dense, feeds...))
		assert.Equal(t, c.dw, floats(t, s, ops.Densify(g.Root(), grads[1]), feeds...))
	}
}

func TestMaximumIterationsEndALoop(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const(float32(2))
	y := ops.While(g.Root(), func(s *ops.Scope, v []tf.Output) tf.Output { return s.Const(true) },
		func(s *ops.Scope, v []tf.Output) []tf.Output { return []tf.Output{raw.Square(s, v[0])} },
		[]tf.Output{x}, ops.WhileOptions{MaximumIterations: 3, ParallelIterations: 1})
	require.Len(t, y, 1)
	grads, err := ops.Gradients(g.Root(), y, []tf.Output{x})
	require.NoError(t, err)
	s := session(t, g)
	assert.Equal(t, []float64{256}, floats(t, s, y[0]))
	assert.Equal(t, []float64{8 * 128}, floats(t, s, grads[0].Dense)) // x⁸
}

func TestShapesThatChangeNeedAnInvariant(t *testing.T) {
	build := func(o ...ops.WhileOptions) (*ops.Graph, []tf.Output) {
		g := ops.NewGraph(ops.GraphOptions{})
		return g, ops.While(g.Root(), func(s *ops.Scope, v []tf.Output) tf.Output {
			return raw.Less(s, raw.Size(s, v[0]), s.Const(int32(7)))
		}, func(s *ops.Scope, v []tf.Output) []tf.Output {
			return []tf.Output{raw.ConcatV2(s, []tf.Output{v[0], v[0]}, s.Const(int32(0)))}
		}, []tf.Output{g.Const([]float32{1, 2})}, o...)
	}
	g, _ := build()
	assert.ErrorContains(t, g.Err(), "loop variable 0 has shape [2], and [4] after an iteration; WhileOptions.ShapeInvariants")
	g, y := build(ops.WhileOptions{ShapeInvariants: []ops.Shape{{-1}}})
	require.NoError(t, g.Err())
	assert.Equal(t, ops.Shape{-1}, bridge.ShapeOf(y[0]))
	assert.Equal(t, []float64{1, 2, 1, 2, 1, 2, 1, 2}, floats(t, session(t, g), y[0]))
}

func TestAPredOfUnknownRankIsHeldToBeAScalar(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	pred := g.Placeholder("pred", tf.Bool, nil)
	y := ops.If(g.Root(), pred,
		func(s *ops.Scope) []tf.Output { return []tf.Output{s.Const(float32(1))} },
		func(s *ops.Scope) []tf.Output { return []tf.Output{s.Const(float32(2))} })
	require.NoError(t, g.Err())
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	require.NoError(t, err)
	defer sess.Close()
	run := func(shape bridge.Shape, value ...bool) ([]*bridge.Tensor, error) {
		fed, err := bridge.FromFlat(shape, value)
		require.NoError(t, err)
		defer fed.Close()
		return sess.Call(t.Context(), bridge.Call{Feeds: []tf.Output{pred}, Fetches: y}, fed)
	}
	out, err := run(bridge.Shape{}, false)
	require.NoError(t, err)
	got, err := bridge.Values[float32](out[0])
	require.NoError(t, err)
	assert.Equal(t, []float32{2}, got)
	require.NoError(t, out[0].Close())
	_, err = run(bridge.Shape{2}, true, false)
	assert.ErrorIs(t, err, bridge.ErrInvalidArgument)
}

func TestMistakesInBodiesAreErrorsOfTheGraph(t *testing.T) {
	one := func(s *ops.Scope) []tf.Output { return []tf.Output{s.Const(float32(1))} }
	always := func(s *ops.Scope, v []tf.Output) tf.Output { return s.Const(true) }
	same := func(s *ops.Scope, v []tf.Output) []tf.Output { return v }
	foreign := ops.NewGraph(ops.GraphOptions{})
	elsewhere := foreign.Const(float32(1))
	for name, c := range map[string]struct {
		build func(g *ops.Graph)
		want  string
	}{
		"branches of different dtypes": {func(g *ops.Graph) {
			ops.If(g.Root(), g.Const(true), one, func(s *ops.Scope) []tf.Output { return []tf.Output{s.Const(int32(1))} })
		}, "branch false gives [int32], branch true [float32]"},
		"no branches":            {func(g *ops.Graph) { ops.Case(g.Root(), g.Const(int32(0))) }, "no branches"},
		"a nil branch":           {func(g *ops.Graph) { ops.If(g.Root(), g.Const(true), nil, one) }, "branch true: its function is nil"},
		"a pred of no graph":     {func(g *ops.Graph) { ops.If(g.Root(), tf.Output{}, one, one) }, "zero tf.Output"},
		"a pred of two":          {func(g *ops.Graph) { ops.If(g.Root(), g.Const([]bool{true, false}), one, one) }, "what selects the branch is bool [2], wanted a scalar of bool"},
		"a pred of floats":       {func(g *ops.Graph) { ops.If(g.Root(), g.Const(float32(1)), one, one) }, "is float32 [], wanted a scalar of bool"},
		"an index of two":        {func(g *ops.Graph) { ops.Case(g.Root(), g.Const([]int32{0, 1}), one, one) }, "is int32 [2], wanted a scalar of int32"},
		"a loop that never ends": {func(g *ops.Graph) { ops.While(g.Root(), always, same, []tf.Output{g.Const(float32(1))}) }, "constantly true"},
		"a result of no graph": {func(g *ops.Graph) {
			ops.If(g.Root(), g.Const(true), one, func(*ops.Scope) []tf.Output { return []tf.Output{{}} })
		}, "branch false: result 0 is the zero tf.Output"},
		"a tensor of another graph": {func(g *ops.Graph) {
			ops.If(g.Root(), g.Const(true), one, func(s *ops.Scope) []tf.Output { return []tf.Output{raw.Neg(s, elsewhere)} })
		}, "of another graph"},
		"a result of another graph": {func(g *ops.Graph) {
			ops.If(g.Root(), g.Const(true), one, func(s *ops.Scope) []tf.Output { return []tf.Output{elsewhere} })
		}, "in another graph"},
		"a panic": {func(g *ops.Graph) {
			ops.If(g.Root(), g.Const(true), one, func(*ops.Scope) []tf.Output { panic("oh") })
		}, "oh"},
		"a variable in a body": {func(g *ops.Graph) {
			ops.If(g.Root(), g.Const(true), one, func(s *ops.Scope) []tf.Output {
				return []tf.Output{s.Variable("w", ops.Shape{}, ops.Ones()).Value()}
			})
		}, "can't be made in the body"},
		"no loop variables":    {func(g *ops.Graph) { ops.While(g.Root(), always, same, nil) }, "no loop variables"},
		"a zero loop variable": {func(g *ops.Graph) { ops.While(g.Root(), always, same, []tf.Output{{}}) }, "loop variable 0 of 1 is the zero tf.Output"},
		"a nil body":           {func(g *ops.Graph) { ops.While(g.Root(), always, nil, []tf.Output{g.Const(true)}) }, "is nil"},
		"two options": {func(g *ops.Graph) {
			ops.While(g.Root(), always, same, []tf.Output{g.Const(true)}, ops.WhileOptions{}, ops.WhileOptions{})
		}, "at most one"},
		"a negative limit": {func(g *ops.Graph) {
			ops.While(g.Root(), always, same, []tf.Output{g.Const(true)}, ops.WhileOptions{MaximumIterations: -1})
		}, "negative"},
		"a condition of floats": {func(g *ops.Graph) {
			ops.While(g.Root(), func(s *ops.Scope, v []tf.Output) tf.Output { return v[0] }, same, []tf.Output{g.Const(float32(1))})
		}, "the condition is float32 [], wanted a bool scalar"},
		"a body that changes dtypes": {func(g *ops.Graph) {
			ops.While(g.Root(), always, func(s *ops.Scope, v []tf.Output) []tf.Output { return []tf.Output{s.Const(int32(1))} }, []tf.Output{g.Const(float32(1))})
		}, "the body takes [float32] and gives [int32]"},
		"an invariant that does not hold": {func(g *ops.Graph) {
			ops.While(g.Root(), always, same, []tf.Output{g.Const([]float32{1})}, ops.WhileOptions{ShapeInvariants: []ops.Shape{{2}}})
		}, "its invariant [2] does not hold"},
	} {
		t.Run(name, func(t *testing.T) {
			g := ops.NewGraph(ops.GraphOptions{})
			assert.NotPanics(t, func() { c.build(g) })
			require.ErrorContains(t, g.Err(), c.want)
			var build *ops.BuildError
			require.ErrorAs(t, g.Err(), &build)
			assert.Contains(t, build.File, "controlflow_test.go", "the line that the user wrote")
		})
	}
	assert.NotPanics(t, func() {
		ops.If(nil, tf.Output{}, one, one)
		ops.While(nil, always, same, nil)
		assert.Nil(t, ops.Case(nil, tf.Output{}))
	})
}
