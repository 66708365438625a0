package gradients_test

import (
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// define puts a function of one float argument into the graph's library.
func define(t *testing.T, g *tf.Graph, name string, build func(s *scope, x tf.Output) tf.Output) {
	t.Helper()
	s := newScope()
	x := s.placeholder(tf.Float, nil)
	y := build(s, x)
	require.NoError(t, s.err)
	f, err := bridge.ToFunction(s.g, bridge.FunctionSpec{Name: name, Inputs: outs{x}, Outputs: outs{y}})
	require.NoError(t, err)
	_, err = bridge.AddFunctions(g, f)
	require.NoError(t, err)
}

// ofType is the operations of a type in the order in which they were added.
func ofType(g *tf.Graph, opType string) []*tf.Operation {
	var found []*tf.Operation
	for op := range bridge.Operations(g) {
		if op.Type() == opType {
			found = append(found, op)
		}
	}
	return found
}

func TestACallStaysACall(t *testing.T) {
	s := newScope()
	define(t, s.g, "sine", func(s *scope, x tf.Output) tf.Output { return raw.Mul(s, raw.Sin(s, x), raw.Exp(s, x)) })
	x := constant(s, bridge.Shape{2}, float32(0), 1)
	y := raw.PartitionedCall(s, outs{x}, []tf.DataType{tf.Float}, bridge.Func{Name: "sine"},
		raw.WithExecutorType("SINGLE_THREADED_EXECUTOR"), raw.Attr{Name: "_XlaNote", Value: true})
	grads, err := gradients.Compute(s, y, nil, outs{x}, gradients.Options{})
	require.NoError(t, err)
	calls := ofType(s.g, "PartitionedCall")
	require.Len(t, calls, 2, "the call and the call of its gradient")
	assert.Equal(t, "PartitionedCall", calls[0].Name())
	assert.Greater(t, calls[0].NumOutputs(), 1, "what the gradient needs is handed over")
	executor, err := bridge.AttrString(calls[1], "executor_type")
	require.NoError(t, err)
	assert.Equal(t, "SINGLE_THREADED_EXECUTOR", executor)
	assert.True(t, bridge.HasAttr(calls[1], "_XlaNote"))
	for _, opType := range []string{"Sin", "Cos", "Exp", "Mul"} {
		assert.Empty(t, ofType(s.g, opType))
	}
	got := s.values(t, y[0], grads[0].Dense)
	assert.InDeltaSlice(t, []float64{0, 2.2873552}, got[0], 1e-6) // eˣ sin x
	assert.InDeltaSlice(t, []float64{1, 3.7560492}, got[1], 1e-6) // eˣ (sin x + cos x)
}

func TestAFunctionCalledByItsNameIsDifferentiated(t *testing.T) {
	s := newScope()
	define(t, s.g, "cube", func(s *scope, x tf.Output) tf.Output { return raw.Mul(s, raw.Square(s, x), x) })
	x := constant(s, bridge.Shape{}, float32(2))
	y := tf.Output{Op: s.Add(bridge.OpSpec{Type: "cube", Inputs: []tf.Input{x}})}
	first, err := gradients.Compute(s, outs{y}, nil, outs{x}, gradients.Options{})
	require.NoError(t, err)
	second, err := gradients.Compute(s, outs{first[0].Dense}, nil, outs{x}, gradients.Options{})
	require.NoError(t, err)
	assert.Equal(t, [][]float64{{8}, {12}, {12}}, s.values(t, y, first[0].Dense, second[0].Dense))

	// Its outputs are fixed, so its gradient repeats it: what has effects is refused.
	define(t, s.g, "noisy", func(s *scope, x tf.Output) tf.Output {
		return raw.Mul(s, x, raw.RandomStandardNormal(s, raw.Shape(s, x), tf.Float))
	})
	noisy := tf.Output{Op: s.Add(bridge.OpSpec{Type: "noisy", Inputs: []tf.Input{x}})}
	before := bridge.NumOperations(s.g)
	_, err = gradients.Compute(s, outs{noisy}, nil, outs{x}, gradients.Options{})
	require.ErrorContains(t, err, `no gradient through noisy at node "noisy" (it is called by its name, and its gradient would run its RandomStandardNormal`)
	assert.ErrorContains(t, err, "StatefulPartitionedCall")
	assert.Equal(t, before, bridge.NumOperations(s.g))
}

// loop repeats a body on one loop variable, four times.
func loop(g *ops.Graph, x tf.Output, body func(s *ops.Scope, x tf.Output) tf.Output) tf.Output {
	return ops.While(g.Root(), func(s *ops.Scope, v outs) tf.Output { return raw.Less(s, v[0], s.Const(int32(4))) },
		func(s *ops.Scope, v outs) outs { return outs{raw.AddV2(s, v[0], s.Const(int32(1))), body(s, v[1])} },
		outs{g.Const(int32(0)), x})[1]
}

func TestMissingGradientsInBodiesAreNamedBeforeAnythingIsAdded(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const([]float32{2, 3})
	distinct := func(s *ops.Scope, x tf.Output) tf.Output {
		values, _ := raw.Unique(s, x)
		return raw.EnsureShape(s, values, ops.Shape{2})
	}
	y := loop(g, x, func(s *ops.Scope, x tf.Output) tf.Output {
		branch := ops.If(s, s.Const(true), func(s *ops.Scope) outs { return outs{distinct(s, x)} },
			func(s *ops.Scope) outs { return outs{raw.Neg(s, x)} })
		return raw.AddV2(s, branch[0], distinct(s, x))
	})
	require.NoError(t, g.Err())
	before := bridge.NumOperations(g.TF())
	_, err := ops.Gradients(g.Root(), outs{y}, outs{x})
	var missing *gradients.MissingGradientError
	require.ErrorAs(t, err, &missing)
	var names []string
	for _, op := range missing.Ops {
		assert.Equal(t, "Unique", op.Type)
		assert.NotEmpty(t, op.Equivalent)
		names = append(names, op.Name)
	}
	assert.ElementsMatch(t, []string{"While/While/body/Unique", "While/While/body/If/While/body/If/true/Unique"}, names)
	assert.Equal(t, before, bridge.NumOperations(g.TF()))
	require.NoError(t, g.Err())
	reached, err := gradients.Reached(ops.GradientScope(g.Root()), outs{y}, outs{x}, gradients.Options{})
	assert.ErrorAs(t, err, &missing)
	assert.Nil(t, reached)
}

func TestAnotherGradientOfALoopKeepsNothingTwice(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const(float32(2))
	y := loop(g, x, func(s *ops.Scope, x tf.Output) tf.Output { return raw.Mul(s, raw.Sin(s, x), raw.Cos(s, x)) })
	var grads outs
	outputs := 0
	for i := range 3 {
		found, err := ops.Gradients(g.Root(), outs{y}, outs{x})
		require.NoError(t, err)
		grads = append(grads, found[0].Dense)
		if i == 0 {
			outputs = y.Op.NumOutputs()
			assert.Greater(t, outputs, 2)
		}
		assert.Equal(t, outputs, y.Op.NumOutputs())
	}
	s := &scope{scopeGraph: &scopeGraph{g: g.TF()}}
	got := s.values(t, grads...)
	assert.Equal(t, got[0], got[1])
	assert.Equal(t, got[0], got[2])
}

func TestTheBackwardLoopIsSetAsTheForwardOne(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const(float32(2))
	y := ops.While(g.Root(), func(s *ops.Scope, v outs) tf.Output { return raw.Less(s, v[0], s.Const(float32(100))) },
		func(s *ops.Scope, v outs) outs { return outs{raw.Square(s, v[0])} }, outs{x}, ops.WhileOptions{ParallelIterations: 3})
	_, err := ops.Gradients(g.Root(), y, outs{x})
	require.NoError(t, err)
	loops := ofType(g.TF(), "StatelessWhile")
	require.Len(t, loops, 2)
	for _, op := range loops {
		parallel, err := bridge.AttrInt(op, "parallel_iterations")
		require.NoError(t, err)
		assert.EqualValues(t, 3, parallel)
		lowered, err := bridge.AttrBool(op, "_lower_using_switch_merge")
		require.NoError(t, err)
		assert.True(t, lowered)
	}
}

func TestOverridesHoldInBodies(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const(float32(2))
	y := loop(g, x, func(s *ops.Scope, x tf.Output) tf.Output { return raw.Square(s, x) })
	grads, err := gradients.Compute(ops.GradientScope(g.Root()), outs{y}, nil, outs{x}, gradients.Options{
		Override: map[string]gradients.Func{"Square": func(c *gradients.Context) []gradients.Gradient {
			return []gradients.Gradient{{Dense: c.Times(10, c.Grad(0))}}
		}}})
	require.NoError(t, err)
	assert.Equal(t, [][]float64{{1e4}}, (&scope{scopeGraph: &scopeGraph{g: g.TF()}}).values(t, grads[0].Dense))
}

// An operation that runs only for the gradient of a loop, and one that the loop
// does not wait for, do not make a circle.
func TestWhatTheGradientWaitsForIsNotWhatTheLoopWaitsFor(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const(float32(2))
	y := loop(g, x, func(s *ops.Scope, x tf.Output) tf.Output { return raw.Square(s, x) })
	after := raw.Neg(g, y)
	grads, err := ops.Gradients(g.Root().WithControl(after.Op), outs{y}, outs{x})
	require.NoError(t, err)
	assert.Equal(t, [][]float64{{16 * 32768}}, (&scope{scopeGraph: &scopeGraph{g: g.TF()}}).values(t, grads[0].Dense)) // x¹⁶
}

func TestLoopsOfTensorFlow1AreRefused(t *testing.T) {
	s := newScope()
	x := constant(s, bridge.Shape{}, float32(2))
	enter := raw.Enter(s, x, "frame")
	head, _ := raw.Merge(s, outs{enter, enter})
	hundred := raw.Enter(s, constant(s, bridge.Shape{}, float32(100)), "frame", raw.WithIsConstant(true))
	exit, body := raw.Switch(s, head, raw.LoopCond(s, raw.Less(s, head, hundred)))
	next := raw.NextIteration(s, raw.Square(s, body))
	require.NoError(t, bridge.RewireInput(head.Op, 1, next))
	y := raw.Exit(s, exit)
	require.NoError(t, s.err)
	before := bridge.NumOperations(s.g)
	_, err := gradients.Compute(s, outs{y}, nil, outs{x}, gradients.Options{})
	require.ErrorContains(t, err, "loops of TensorFlow 1")
	assert.ErrorContains(t, err, `Enter at node "Enter"`)
	assert.ErrorContains(t, err, `Exit at node "Exit"`)
	assert.Equal(t, before, bridge.NumOperations(s.g))
	assert.Equal(t, [][]float64{{256}}, s.values(t, y))
}

// Python's own gradients of these fail to compile in a graph.
func TestGradientsOfCompiledFunctionsAreCompiled(t *testing.T) {
	for name, build := range map[string]func(s *ops.Scope, x tf.Output) tf.Output{
		"branches": func(s *ops.Scope, x tf.Output) tf.Output {
			positive := raw.Greater(s, raw.Sum(s, x, s.Const([]int32{0})), s.Const(float32(0)))
			return ops.If(s, positive, func(s *ops.Scope) outs { return outs{raw.Mul(s, raw.Sin(s, x), x)} },
				func(s *ops.Scope) outs { return outs{raw.Exp(s, x)} })[0]
		},
		"a bounded loop": func(s *ops.Scope, x tf.Output) tf.Output {
			return ops.While(s, func(s *ops.Scope, v outs) tf.Output { return raw.Less(s, v[0], s.Const(int32(3))) },
				func(s *ops.Scope, v outs) outs {
					return outs{raw.AddV2(s, v[0], s.Const(int32(1))), raw.Mul(s, raw.Sin(s, v[1]), x)}
				}, outs{s.Const(int32(0)), x}, ops.WhileOptions{MaximumIterations: 5})[1]
		},
	} {
		t.Run(name, func(t *testing.T) {
			body := ops.NewGraph(ops.GraphOptions{})
			arg := body.Placeholder("x", tf.Float, ops.Shape{2})
			y := build(body.Root(), arg)
			require.NoError(t, body.Err())
			// XLA takes no operations that were lowered before it sees them.
			require.NoError(t, bridge.ExtendOperation(y.Op, bridge.Extension{Attrs: []bridge.Attr{{Name: "_lower_using_switch_merge", Value: false}}}))
			f, err := bridge.ToFunction(body.TF(), bridge.FunctionSpec{Name: "f", Inputs: outs{arg}, Outputs: outs{y}})
			require.NoError(t, err)
			s := newScope()
			_, err = bridge.CopyFunctions(s.g, body.TF())
			require.NoError(t, err)
			_, err = bridge.AddFunctions(s.g, f)
			require.NoError(t, err)
			x := constant(s, bridge.Shape{2}, float32(0.5), 1.5)
			var fetches outs
			for _, compile := range []bool{false, true} {
				call := raw.StatefulPartitionedCall(s, outs{x}, []tf.DataType{tf.Float}, bridge.Func{Name: "f"}, raw.Attr{Name: "_XlaMustCompile", Value: compile})
				grads, err := gradients.Compute(s, call, nil, outs{x}, gradients.Options{})
				require.NoError(t, err)
				fetches = append(fetches, call[0], grads[0].Dense)
			}
			got := s.values(t, fetches...)
			assert.InDeltaSlice(t, got[0], got[2], 1e-6)
			assert.InDeltaSlice(t, got[1], got[3], 1e-6)
		})
	}
}
