package ops_test

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

func byEach(t *testing.T, g *ops.Graph, y tf.Output, xs ...tf.Output) []tf.Output {
	t.Helper()
	grads, err := ops.Gradients(g.Root(), outs(y), xs)
	require.NoError(t, err)
	dense := make([]tf.Output, len(grads))
	for i, grad := range grads {
		require.False(t, grad.IsNone(), "gradient by x %d", i)
		dense[i] = ops.Densify(g.Root(), grad)
	}
	return dense
}

// log(1 + eˣ) is infinite for x = 100, and its gradient by the operations is
// NaN; by hand it is 1 - 1/(1 + eˣ).
func log1pexp(s *ops.Scope, x tf.Output) tf.Output {
	one := ops.Number(s, tf.Float, 1)
	return ops.CustomGradient(s, outs(x), func(s *ops.Scope, in []tf.Output) ([]tf.Output, ops.Backward) {
		e := raw.Exp(s, in[0])
		return outs(raw.Log1p(s, e)), func(s *ops.Scope, g []tf.Output) []tf.Output {
			return outs(raw.Mul(s, g[0], raw.Sub(s, one, raw.Reciprocal(s, raw.AddV2(s, one, e)))))
		}
	})[0]
}

func TestACustomGradientReplacesTheOperations(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Placeholder("x", tf.Float, ops.Shape{2})
	y := log1pexp(g.Scope("net"), x)
	assert.True(t, strings.HasPrefix(y.Op.Name(), "net/CustomGradient/"))
	first := byEach(t, g, raw.Mul(g, y, g.Const([]float32{1, 10})), x)[0]
	second := byEach(t, g, first, x)[0]
	s := session(t, g)
	in := fed[float32](t, x, ops.Shape{2}, 100, 0)
	assert.Equal(t, []float64{1, 5}, floats(t, s, first, in))
	// 10 eˣ/(1+eˣ)²; of the other e/(1+e)² with e infinite, as in Python.
	assert.InDelta(t, 2.5, floats(t, s, second, in)[1], 1e-6)
}

func TestWhatACustomGradientGetsAndGives(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x, n := g.Const([]float32{1, 2}), g.Const([]int32{3})
	unused, none := g.Const([]float32{5}), g.Const([]float32{7})
	y := ops.CustomGradient(g.Root(), outs(x, n, unused, none), func(s *ops.Scope, in []tf.Output) ([]tf.Output, ops.Backward) {
		distinct, _ := raw.Unique(s, in[0]) // has no gradient
		return outs(distinct, raw.Neg(s, in[2]), in[0]), func(s *ops.Scope, g []tf.Output) []tf.Output {
			return outs(raw.AddV2(s, raw.AddN(s, outs(g[0], g[2])), g[1]), tf.Output{}, g[1], tf.Output{})
		}
	})
	grads, err := ops.Gradients(g.Root(), outs(y[0]), outs(x, unused, none))
	require.NoError(t, err)
	s := session(t, g)
	assert.Equal(t, []float64{1, 1}, floats(t, s, grads[0].Dense), "an output that nothing depends on brings zeros")
	assert.Equal(t, []float64{0}, floats(t, s, grads[1].Dense))
	assert.True(t, grads[2].IsNone())
}

func TestMistakesInACustomGradientAreErrors(t *testing.T) {
	for what, c := range map[string]struct {
		forward func(s *ops.Scope, in []tf.Output) ([]tf.Output, ops.Backward)
		built   string // the graph's error
		asked   string // that of asking for a gradient
	}{
		"nil":         {nil, "the function is nil", ""},
		"no outputs":  {func(*ops.Scope, []tf.Output) ([]tf.Output, ops.Backward) { return nil, nil }, "no outputs", ""},
		"no backward": {func(s *ops.Scope, in []tf.Output) ([]tf.Output, ops.Backward) { return in, nil }, "no Backward", ""},
		"zero output": {func(s *ops.Scope, in []tf.Output) ([]tf.Output, ops.Backward) { return make([]tf.Output, 2), nil }, "output 0 of 2 is not a tensor", ""},
		"too few": {func(s *ops.Scope, in []tf.Output) ([]tf.Output, ops.Backward) {
			return in, func(*ops.Scope, []tf.Output) []tf.Output { return nil }
		}, "", "gave 0 gradients, wanted one for each of 1 inputs"},
		"another dtype": {func(s *ops.Scope, in []tf.Output) ([]tf.Output, ops.Backward) {
			return in, func(s *ops.Scope, g []tf.Output) []tf.Output { return outs(raw.Cast(s, g[0], tf.Double)) }
		}, "", "gave input 1 a gradient of float64"},
		"a panic": {func(s *ops.Scope, in []tf.Output) ([]tf.Output, ops.Backward) {
			return in, func(*ops.Scope, []tf.Output) []tf.Output { panic("mine") }
		}, "", "mine"},
	} {
		g := ops.NewGraph(ops.GraphOptions{})
		x := g.Const([]float32{1, 2})
		y := ops.CustomGradient(g.Root(), outs(x), c.forward)
		if c.built != "" {
			assert.ErrorContains(t, g.Err(), c.built, what)
			continue
		}
		require.NoError(t, g.Err(), what)
		_, err := ops.Gradients(g.Root(), y, outs(x))
		assert.ErrorContains(t, err, c.asked, what)
	}
	g := ops.NewGraph(ops.GraphOptions{})
	w := g.Variable("net/w", ops.Shape{2}, ops.Ones())
	ops.CustomGradient(g.Root(), nil, func(s *ops.Scope, in []tf.Output) ([]tf.Output, ops.Backward) {
		return outs(raw.Square(s, w.Value())), func(*ops.Scope, []tf.Output) []tf.Output { return nil }
	})
	assert.ErrorContains(t, g.Err(), `variable "net/w"`)
	assert.Nil(t, ops.CustomGradient(nil, nil, nil))
	assert.Nil(t, ops.Recompute(nil, nil))
}

func init() {
	gradients.Register("TestStraightThrough", func(c *gradients.Context) []gradients.Gradient { return c.Grads })
}

func TestGradientsByTypeHoldInTheirScope(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const([]float32{0.4, 1.7})
	through := g.Scope("q").WithGradients(map[string]string{"Round": "TestStraightThrough"})
	y := raw.Square(through, raw.Round(through.Scope("deeper"), x))
	plain := raw.AddV2(g, raw.Round(g, x), y)
	back := raw.Round(through.WithGradients(map[string]string{"Round": ""}), x)
	assert.Equal(t, []float64{0, 4}, floats(t, session(t, g), byEach(t, g, plain, x)[0]))
	grads, err := ops.Gradients(g.Root(), outs(back), outs(x))
	require.NoError(t, err)
	assert.True(t, grads[0].IsNone(), "an empty name is the type's own gradient again")

	one, two := g.Const(int32(1)), g.Const(int32(2))
	looped := ops.While(through, func(s *ops.Scope, v []tf.Output) tf.Output { return raw.Less(s, v[0], two) },
		func(s *ops.Scope, v []tf.Output) []tf.Output {
			return outs(raw.AddV2(s, v[0], one), raw.Round(s, v[1]))
		}, outs(g.Const(int32(0)), x))
	assert.Equal(t, []float64{1, 1}, floats(t, session(t, g), byEach(t, g, looped[1], x)[0]), "in the bodies of loops too")

	through.WithGradients(map[string]string{"Round": "NobodyRegisteredThis"})
	assert.ErrorContains(t, g.Err(), `no gradient is registered as "NobodyRegisteredThis"`)
	g = ops.NewGraph(ops.GraphOptions{})
	g.WithGradients(map[string]string{"Rnd": "TestStraightThrough"})
	assert.ErrorContains(t, g.Err(), `no operation type "Rnd"`)
}

func TestRecomputeChangesNoNumber(t *testing.T) {
	build := func(wrap func(*ops.Scope, func(*ops.Scope) []tf.Output) []tf.Output) (*ops.Graph, []tf.Output) {
		g := ops.NewGraph(ops.GraphOptions{Seed: 3})
		x := g.Const([][]float32{{0.1, 0.2}, {0.3, 0.4}, {0.5, 0.6}})
		ids := g.Const([]int32{2, 0, 2})
		w := g.Variable("w", ops.Shape{2, 2}, ops.FromValue([][]float32{{1, 2}, {3, 4}}))
		table := g.Variable("table", ops.Shape{3, 2}, ops.FromValue([][]float32{{1, 2}, {3, 4}, {5, 6}}))
		out := wrap(g.Scope("net"), func(s *ops.Scope) []tf.Output {
			h := raw.Tanh(s, raw.MatMul(s, x, w.Value()))
			rows := raw.ResourceGather(s, table.Handle(), ids, tf.Float)
			inner := wrap(s, func(s *ops.Scope) []tf.Output { return outs(raw.Sin(s, raw.Mul(s, h, rows))) })
			parts := raw.Split(s, s.Const(int32(1)), inner[0], 2)
			return outs(raw.ConcatV2(s, outs(parts[1], parts[0]), s.Const(int32(1))), h, raw.Shape(s, h))
		})
		y := raw.AddV2(g, raw.Mul(g, out[0], out[0]), out[1])
		grads := byEach(t, g, y, x, w.Handle(), table.Handle())
		return g, append(append(grads, y), byEach(t, g, grads[0], x, w.Handle())...)
	}
	g, plain := build(func(s *ops.Scope, f func(*ops.Scope) []tf.Output) []tf.Output { return f(s) })
	h, again := build(ops.Recompute)
	require.Len(t, again, len(plain))
	a, b := initialized(t, g), initialized(t, h)
	for i := range plain {
		want, got := floats(t, a, plain[i]), floats(t, b, again[i])
		for j := range want {
			assert.InDelta(t, want[j], got[j], 1e-5*max(1, math.Abs(want[j])), "tensor %d", i)
		}
	}
	table, err := h.VariableByName("table")
	require.NoError(t, err)
	grads, err := ops.Gradients(h.Root(), again[3:4], outs(table.Handle()))
	require.NoError(t, err)
	assert.True(t, grads[0].IsSparse())
}

// What is random inside runs once: the gradient belongs to the values drawn.
func TestRecomputeKeepsRandomNumbers(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const([]float32{1, 1, 1, 1})
	y := ops.Recompute(g.Root(), func(s *ops.Scope) []tf.Output {
		return outs(raw.Square(s, raw.Mul(s, x, raw.RandomUniform(s, s.Const([]int32{4}), tf.Float))))
	})
	dx := byEach(t, g, y[0], x)[0]
	got := fetch(t, session(t, g), outs(y[0], dx))
	a, err := bridge.ToFloat64(got[0])
	require.NoError(t, err)
	b, err := bridge.ToFloat64(got[1])
	require.NoError(t, err)
	for i := range a {
		assert.InDelta(t, 2*a[i], b[i], 1e-6) // y = (x r)², dy/dx = 2 x r² = 2y
	}
}

func TestWhatHasNoGradientInsideOfRecomputeIsNamedBefore(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const([]float32{1, 1, 2})
	y := ops.Recompute(g.Scope("a"), func(s *ops.Scope) []tf.Output {
		distinct, _ := raw.Unique(s, x)
		return outs(raw.Square(s, distinct))
	})
	before := bridge.NumOperations(g.TF())
	_, err := ops.Gradients(g.Root(), y, outs(x))
	var missing *gradients.MissingGradientError
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, "a/Recompute/Unique", missing.Ops[0].Name)
	assert.Equal(t, before, bridge.NumOperations(g.TF()))
	require.NoError(t, g.Err())
	ops.Recompute(g.Root(), func(s *ops.Scope) []tf.Output { return nil })
	assert.ErrorContains(t, g.Err(), "no outputs")
}

// resident is a line of the process's status, VmRSS or the highest it has been,
// VmHWM, in MiB.
func resident(t *testing.T, field string) float64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			require.NoError(t, err)
			return kb / 1024
		}
	}
	t.Fatalf("no %s", field)
	return 0
}

// 32 layers of 4 MiB: all are kept for the gradient, or with parts of 4 layers the
// 8 values between the parts and the layers of one part.
func TestRecomputeSavesMemory(t *testing.T) {
	const layers, per, mib = 32, 4, 4
	data := make([]float32, mib<<18)
	for i := range data {
		data[i] = float32(i%7) / 3
	}
	require.NoError(t, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)) // the highest begins anew
	before := resident(t, "VmRSS")
	measure := func(wrap func(*ops.Scope, func(*ops.Scope) []tf.Output) []tf.Output) (float64, []float64) {
		g := ops.NewGraph(ops.GraphOptions{})
		x := g.Placeholder("x", tf.Float, ops.Shape{mib << 18})
		y := x
		for range layers / per {
			y = wrap(g.Root(), func(s *ops.Scope) []tf.Output {
				h := y
				for range per {
					h = raw.Sin(s, h)
				}
				return outs(h)
			})[0]
		}
		dx := byEach(t, g, y, x)[0]
		first := raw.Slice(g, dx, g.Const([]int32{0}), g.Const([]int32{2}))
		got := floats(t, session(t, g), first, fed(t, x, ops.Shape{mib << 18}, data...))
		return resident(t, "VmHWM") - before, got
	}
	// What is freed stays with the process, so the smaller one goes first.
	again, a := measure(ops.Recompute)
	plain, b := measure(func(s *ops.Scope, f func(*ops.Scope) []tf.Output) []tf.Output { return f(s) })
	t.Logf("peak of %d layers of %d MiB: %.0f MiB, recomputed in parts of %d: %.0f MiB", layers, mib, plain, per, again)
	assert.InDeltaSlice(t, a, b, 1e-6)
	assert.Greater(t, plain, 0.9*layers*mib)
	assert.Less(t, again, 0.7*plain)
}

// Saved and read again, the graph has the gradient of what is inside.
func TestRecomputeIsForgottenWhenAGraphIsSaved(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Placeholder("x", tf.Double, ops.Shape{2})
	ops.Recompute(g.Root(), func(s *ops.Scope) []tf.Output {
		return outs(raw.Square(s, raw.Sin(s, x)), raw.Mul(s, x, x))
	})
	def, err := bridge.GraphDef(g.TF())
	require.NoError(t, err)
	read := tf.NewGraph()
	require.NoError(t, read.Import(def, ""))
	h := ops.FromTF(read, ops.GraphOptions{})
	y := read.Operation("Recompute/IdentityN")
	dx := byEach(t, h, raw.AddV2(h, y.Output(0), y.Output(1)), read.Operation("x").Output(0))[0]
	got := floats(t, session(t, h), dx, fed(t, read.Operation("x").Output(0), ops.Shape{2}, 0.5, 2))
	for i, x := range []float64{0.5, 2} {
		assert.InDelta(t, math.Sin(2*x)+2*x, got[i], 1e-12)
	}
}

// x becomes sin(w x)² three times, in a loop: dy/dw and dy/dx by the chain rule.
func TestRecomputeAndCustomGradientsInLoops(t *testing.T) {
	build := func(step func(s *ops.Scope, x, w tf.Output) tf.Output) (*ops.Graph, []tf.Output) {
		g := ops.NewGraph(ops.GraphOptions{})
		x := g.Const([]float64{0.5, 2})
		w := g.Variable("w", ops.Shape{2}, ops.FromValue([]float64{1.5, -1}), ops.VariableOptions{DType: tf.Double})
		three, one := g.Const(int32(3)), g.Const(int32(1))
		last := ops.While(g.Root(), func(s *ops.Scope, v []tf.Output) tf.Output { return raw.Less(s, v[0], three) },
			func(s *ops.Scope, v []tf.Output) []tf.Output {
				return outs(raw.AddV2(s, v[0], one), step(s, v[1], w.Value()))
			}, outs(g.Const(int32(0)), x))
		require.NoError(t, g.Err())
		return g, append(byEach(t, g, last[1], x, w.Handle()), last[1])
	}
	plain := func(s *ops.Scope, x, w tf.Output) tf.Output { return raw.Square(s, raw.Sin(s, raw.Mul(s, x, w))) }
	g, want := build(plain)
	h, got := build(func(s *ops.Scope, x, w tf.Output) tf.Output {
		return ops.Recompute(s, func(s *ops.Scope) []tf.Output { return outs(plain(s, x, w)) })[0]
	})
	a, b := initialized(t, g), initialized(t, h)
	for i := range want {
		assert.InDeltaSlice(t, floats(t, a, want[i]), floats(t, b, got[i]), 1e-12)
	}

	// A Backward is made for the graph of the body, not for that of its gradient.
	k := ops.NewGraph(ops.GraphOptions{})
	x := k.Const([]float64{0.5, 2})
	y := ops.If(k.Root(), k.Const(true), func(s *ops.Scope) []tf.Output {
		return ops.CustomGradient(s, outs(x), func(s *ops.Scope, in []tf.Output) ([]tf.Output, ops.Backward) {
			return outs(raw.Square(s, in[0])), func(s *ops.Scope, g []tf.Output) []tf.Output { return g }
		})
	}, func(s *ops.Scope) []tf.Output { return outs(x) })
	require.NoError(t, k.Err())
	before := len(k.TF().Operations())
	_, err := ops.Gradients(k.Root(), y, outs(x))
	assert.ErrorContains(t, err, "its Backward belongs to the body in which it was made")
	assert.NoError(t, k.Err(), "the graph stays usable")
	assert.Len(t, k.TF().Operations(), before)
}

func TestAHandleIsNotAYWithoutItsGradient(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	w := g.Variable("w", ops.Shape{}, ops.Ones())
	before := len(g.TF().Operations())
	_, err := ops.Gradients(g.Root(), outs(w.Handle()), outs(w.Handle()))
	assert.ErrorContains(t, err, "is resource, which stands for tensors")
	assert.NoError(t, g.Err())
	assert.Len(t, g.TF().Operations(), before)
}

func TestRecomputeTakesLinearTime(t *testing.T) {
	build := func(parts int) time.Duration {
		g := ops.NewGraph(ops.GraphOptions{})
		x := g.Placeholder("x", tf.Float, ops.Shape{4})
		y := x
		start := time.Now()
		for range parts {
			y = ops.Recompute(g.Root(), func(s *ops.Scope) []tf.Output {
				return outs(raw.Sin(s, raw.Tanh(s, raw.Mul(s, y, y))))
			})[0]
		}
		byEach(t, g, y, x)
		return time.Since(start)
	}
	build(10)
	small, large := build(100), build(800)
	for range 2 {
		small, large = min(small, build(100)), min(large, build(800))
	}
	t.Logf("100 parts in %v, 800 in %v", small, large)
	assert.Less(t, large.Seconds(), 24*small.Seconds(), "64 times if each part looked at all before it")
}
