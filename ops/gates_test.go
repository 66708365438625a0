package ops_test

import (
	"math"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

// gradient is the dense gradient of y by x.
func gradient(t *testing.T, g *ops.Graph, y, x tf.Output) tf.Output {
	t.Helper()
	grads, err := ops.Gradients(g.Root(), []tf.Output{y}, []tf.Output{x})
	require.NoError(t, err)
	require.False(t, grads[0].IsNone())
	return ops.Densify(g.Root(), grads[0])
}

func bits(t *testing.T, v *bridge.Tensor) []uint32 {
	t.Helper()
	flat, err := bridge.Flat[float32](v)
	require.NoError(t, err)
	all := make([]uint32, len(flat))
	for i, x := range flat {
		all[i] = math.Float32bits(x)
	}
	return all
}

func TestGateIsTheTensorBitForBit(t *testing.T) {
	nan, inf, negativeZero := float32(math.NaN()), float32(math.Inf(1)), float32(math.Copysign(0, -1))
	payload := math.Float32frombits(0x7fc12345)
	values := []float32{1.5, nan, inf, -inf, negativeZero, 0, payload, math.SmallestNonzeroFloat32}
	for _, open := range []float32{0, .5, 1, nan, inf} {
		g := ops.NewGraph(ops.GraphOptions{})
		x := g.Placeholder("x", tf.Float, ops.Shape{-1})
		o := g.Placeholder("open", tf.Float, ops.Shape{})
		gated := ops.Gate(g.Root(), o, x)
		assert.Equal(t, "Gate", gated.Op.Name())
		s := session(t, g)
		in := fed(t, x, ops.Shape{8}, values...)
		got := fetch(t, s, []tf.Output{gated}, in, fed(t, o, ops.Shape{}, open))[0]
		assert.Equal(t, bits(t, in.value), bits(t, got), "open %v", open)
	}
}

func TestGateMultipliesTheGradient(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	type row struct {
		open     []float32
		shape    ops.Shape
		upstream []float32 // gradient that arrives, [3, 2]
		want     []float64
	}
	grad := []float32{1, 2, 3, 4, 5, 6}
	for name, c := range map[string]row{
		"closed":                  {[]float32{0}, ops.Shape{}, grad, []float64{0, 0, 0, 0, 0, 0}},
		"closed, minus zero":      {[]float32{float32(math.Copysign(0, -1))}, ops.Shape{}, grad, []float64{0, 0, 0, 0, 0, 0}},
		"open":                    {[]float32{1}, ops.Shape{}, grad, []float64{1, 2, 3, 4, 5, 6}},
		"half open":               {[]float32{.5}, ops.Shape{}, grad, []float64{.5, 1, 1.5, 2, 2.5, 3}},
		"closed to NaN and Inf":   {[]float32{0}, ops.Shape{}, []float32{nan, inf, -inf, 1, nan, 2}, []float64{0, 0, 0, 0, 0, 0}},
		"by row":                  {[]float32{1, 0, .5}, ops.Shape{3}, grad, []float64{1, 2, 0, 0, 2.5, 3}},
		"by row, closed to NaN":   {[]float32{1, 0, 1}, ops.Shape{3}, []float32{1, 2, nan, inf, 5, 6}, []float64{1, 2, 0, 0, 5, 6}},
		"open lets infinite pass": {[]float32{1}, ops.Shape{}, []float32{inf, 0, 0, 0, 0, 0}, []float64{math.Inf(1), 0, 0, 0, 0, 0}},
	} {
		for kind, shapes := range map[string][2]ops.Shape{
			"static shapes":  {{3, 2}, c.shape},
			"unknown rows":   {{-1, 2}, openShape(c.shape)},
			"unknown rank x": {nil, openShape(c.shape)},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				g := ops.NewGraph(ops.GraphOptions{})
				x := g.Placeholder("x", tf.Float, shapes[0])
				o := g.Placeholder("open", tf.Float, shapes[1])
				factor := g.Placeholder("factor", tf.Float, shapes[0])
				gated := ops.Gate(g.Root(), o, x)
				dx := gradient(t, g, ops.NewFormula(g.Root(), tf.Float).Mul(gated, factor), x)
				s := session(t, g)
				full := ops.Shape{3, 2}
				got := floats(t, s, dx, fed(t, x, full, grad...), fed(t, o, c.shape, c.open...), fed(t, factor, full, c.upstream...))
				assert.Equal(t, c.want, got)
				for i, v := range got {
					if v == 0 && c.want[i] == 0 && len(c.open) == 1 && c.open[0] == 0 {
						assert.False(t, math.Signbit(v), "an exact +0")
					}
				}
			})
		}
	}
}

func openShape(s ops.Shape) ops.Shape {
	if len(s) == 0 {
		return s
	}
	return ops.Shape{-1}
}

func TestGateDetails(t *testing.T) {
	t.Run("no gradient flows to open", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		x, o := g.Const([]float32{1, 2}), g.Const(float32(.5))
		y := ops.Gate(g.Root(), o, x)
		grads, err := ops.Gradients(g.Root(), []tf.Output{y}, []tf.Output{x, o})
		require.NoError(t, err)
		assert.False(t, grads[0].IsNone())
		assert.True(t, grads[1].IsNone())
	})
	t.Run("a second derivative goes through the gate once", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		f := ops.NewFormula(g.Root(), tf.Float)
		x, o := g.Const([]float32{3}), g.Const(float32(.5))
		y := f.Square(ops.Gate(g.Root(), o, x)) // dy = open·2x, d²y = open·2·open
		first := gradient(t, g, y, x)
		second := gradient(t, g, first, x)
		s := session(t, g)
		assert.Equal(t, []float64{3}, floats(t, s, first))
		assert.Equal(t, []float64{.5}, floats(t, s, second))
	})
	t.Run("an open made of x is a constant to every derivative", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		f := ops.NewFormula(g.Root(), tf.Float)
		x := g.Const(float32(3))
		first := gradient(t, g, ops.Gate(g.Root(), f.Square(x), x), x) // open = x² = 9
		second, err := ops.Gradients(g.Root(), []tf.Output{first}, []tf.Output{x})
		require.NoError(t, err)
		assert.True(t, second[0].IsNone())
		assert.Equal(t, []float64{9}, floats(t, session(t, g), first))
	})
	t.Run("other dtypes, a bool or an integer open", func(t *testing.T) {
		for _, dt := range []tf.DataType{tf.Half, tf.Bfloat16, tf.Double} {
			g := ops.NewGraph(ops.GraphOptions{})
			x := ops.Number(g.Root(), dt, 3)
			f := ops.NewFormula(g.Root(), dt)
			open := gradient(t, g, f.Square(ops.Gate(g.Root(), g.Const(true), x)), x)
			closed := gradient(t, g, f.Square(ops.Gate(g.Root(), g.Const(int64(0)), x)), x)
			s := session(t, g)
			assert.Equal(t, []float64{6}, floats(t, s, open))
			assert.Equal(t, []float64{0}, floats(t, s, closed))
		}
	})
	t.Run("sparse gradients stay sparse", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		v := g.Variable("v", ops.Shape{3, 2}, ops.Ones())
		o := g.Placeholder("open", tf.Float, ops.Shape{})
		rows := v.Gather(g.Root(), g.Const([]int32{2, 0}))
		y := ops.Gate(g.Root(), o, rows)
		grads, err := ops.VariableGradients(g.Root(), []tf.Output{y}, []*ops.Variable{v})
		require.NoError(t, err)
		require.True(t, grads[0].IsSparse())
		dense := ops.Densify(g.Root(), grads[0])
		s := initialized(t, g)
		assert.Equal(t, []float64{.5, .5, 0, 0, .5, .5}, floats(t, s, dense, fed(t, o, ops.Shape{}, float32(.5))))
	})
	t.Run("a gate that was exported and imported still gates", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		x, o := g.Const([]float32{1, 2}), g.Const(float32(.5))
		ops.Gate(g.Root(), o, x)
		require.NoError(t, g.Err())
		def, err := bridge.GraphDef(g.TF())
		require.NoError(t, err)
		again := tf.NewGraph()
		require.NoError(t, again.Import(def, ""))
		h := ops.FromTF(again, ops.GraphOptions{})
		dx := gradient(t, h, again.Operation("Gate").Output(0), again.Operation("Const").Output(0))
		assert.Equal(t, []float64{.5, .5}, floats(t, session(t, h), dx))
	})
	t.Run("one open for several tensors", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		a, b := g.Const([]float32{1, 2, 3}), g.Const([][]float32{{1}, {2}, {3}})
		open := ops.PerRow(g.Root(), .5, a, ops.Draw{})
		gated := ops.GateAll(g.Root(), open, a, b)
		require.Len(t, gated, 2)
		da, db := gradient(t, g, gated[0], a), gradient(t, g, gated[1], b)
		s := initialized(t, g)
		for range 10 {
			values := fetch(t, s, []tf.Output{da, db})
			assert.Equal(t, bits(t, values[0]), bits(t, values[1]))
		}
	})
	t.Run("stop gradient", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		x := g.Const([]float32{1, 2})
		grads, err := ops.Gradients(g.Root(), []tf.Output{ops.StopGradient(g.Root(), x)}, []tf.Output{x})
		require.NoError(t, err)
		assert.True(t, grads[0].IsNone())
	})
}

func TestWhatCantBeGatedIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		gate func(*ops.Graph)
		want string
	}{
		"integers": {func(g *ops.Graph) { ops.Gate(g.Root(), g.Const(float32(1)), g.Const([]int32{1})) }, "int32"},
		"an open by matrix": {func(g *ops.Graph) {
			ops.Gate(g.Root(), g.Const([][]float32{{1}}), g.Const([][]float32{{1}}))
		}, "wanted a scalar"},
		"an open of unknown rank": {func(g *ops.Graph) {
			ops.Gate(g.Root(), g.Placeholder("o", tf.Float, nil), g.Const([]float32{1}))
		}, "<unknown>"},
		"other rows":    {func(g *ops.Graph) { ops.Gate(g.Root(), g.Const([]float32{1, 2}), g.Const([]float32{1, 2, 3})) }, "3 rows"},
		"rows of none":  {func(g *ops.Graph) { ops.Gate(g.Root(), g.Const([]float32{1}), g.Const(float32(1))) }, "scalar"},
		"a zero tensor": {func(g *ops.Graph) { ops.Gate(g.Root(), g.Const(float32(1)), tf.Output{}) }, "zero"},
		"a zero open":   {func(g *ops.Graph) { ops.Gate(g.Root(), tf.Output{}, g.Const(float32(1))) }, "zero"},
		"p above 1":     {func(g *ops.Graph) { ops.PerRun(g.Root(), 1.5, ops.Draw{}) }, "probability"},
		"p that is NaN": {func(g *ops.Graph) { ops.PerRun(g.Root(), math.NaN(), ops.Draw{}) }, "probability"},
		"rows of zero":  {func(g *ops.Graph) { ops.PerRow(g.Root(), .5, tf.Output{}, ops.Draw{}) }, "zero"},
		"half a scalar": {func(g *ops.Graph) { ops.HalfOfRows(g.Root(), g.Const(float32(1)), ops.Draw{}) }, "without rows"},
	} {
		t.Run(name, func(t *testing.T) {
			g := ops.NewGraph(ops.GraphOptions{})
			c.gate(g)
			require.ErrorContains(t, g.Err(), c.want)
			require.ErrorContains(t, g.Err(), "ops/gates_test.go:")
		})
	}
	assert.Nil(t, ops.Gate(nil, tf.Output{}, tf.Output{}).Op)
	assert.Nil(t, ops.PerRun(nil, 1, ops.Draw{}).Op)
	assert.Nil(t, ops.HalfOfRows(nil, tf.Output{}, ops.Draw{}).Op)
	assert.Nil(t, ops.StopGradient(nil, tf.Output{}).Op)
	assert.Empty(t, ops.GateAll(nil, tf.Output{}))
}

func TestRandomOpens(t *testing.T) {
	build := func(seed int64) (*ops.Graph, map[string]tf.Output, tf.Output) {
		g := ops.NewGraph(ops.GraphOptions{Seed: seed})
		x := g.Placeholder("x", tf.Float, ops.Shape{-1, 2})
		return g, map[string]tf.Output{
			"per run":    ops.PerRun(g.Root(), .25, ops.Draw{}),
			"per row":    ops.PerRow(g.Root(), .25, x, ops.Draw{}),
			"half":       ops.HalfOfRows(g.Root(), x, ops.Draw{}),
			"never":      ops.PerRun(g.Root(), 0, ops.Draw{}),
			"always":     ops.PerRun(g.Root(), 1, ops.Draw{}),
			"second run": ops.PerRun(g.Root(), .25, ops.Draw{}),
		}, x
	}
	sequence := func(seed int64, name string, rows, runs int) [][]float64 {
		g, opens, x := build(seed)
		s := initialized(t, g)
		in := fed(t, x, ops.Shape{int64(rows), 2}, make([]float32, 2*rows)...)
		all := make([][]float64, runs)
		for i := range all {
			all[i] = floats(t, s, opens[name], in)
		}
		return all
	}
	count := func(values [][]float64) (open, n float64) {
		for _, row := range values {
			for _, v := range row {
				assert.Contains(t, []float64{0, 1}, v)
				open, n = open+v, n+1
			}
		}
		return open, n
	}

	runs := sequence(1, "per run", 3, 400)
	open, n := count(runs)
	assert.Equal(t, 400., n, "a scalar")
	assert.InDelta(t, 100, open, 45, "binomial with standard deviation 8.7")
	assert.Equal(t, runs, sequence(1, "per run", 3, 400), "the same seed draws the same")
	assert.NotEqual(t, runs, sequence(2, "per run", 3, 400))
	assert.NotEqual(t, runs, sequence(1, "second run", 3, 400), "two draws are independent")

	rows := sequence(1, "per row", 40, 10)
	open, n = count(rows)
	assert.Equal(t, 400., n)
	assert.InDelta(t, 100, open, 45)
	assert.NotEqual(t, rows[0], rows[1], "another run draws anew")

	for rows, want := range map[int]float64{0: 0, 1: 0, 2: 1, 7: 3, 8: 4} {
		seen := make([]float64, rows)
		for _, row := range sequence(1, "half", rows, 60) {
			open, _ := count([][]float64{row})
			assert.Equal(t, want, open, "%d rows", rows)
			for i, v := range row {
				seen[i] += v
			}
		}
		for i, times := range seen {
			if want > 0 {
				assert.InDelta(t, 60*want/float64(rows), times, 25, "row %d of %d", i, rows)
			}
		}
	}

	open, _ = count(sequence(1, "never", 1, 20))
	assert.Zero(t, open)
	open, _ = count(sequence(1, "always", 1, 20))
	assert.Equal(t, 20., open)

	t.Run("by a step of one's own", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		step := g.Placeholder("step", tf.Int64, ops.Shape{})
		open := ops.PerRow(g.Root(), .5, g.Const(make([]float32, 64)), ops.Draw{Step: step})
		assert.Empty(t, g.Variables(), "no counter")
		s := session(t, g)
		at := func(n int64) []float64 { return floats(t, s, open, fed(t, step, ops.Shape{}, n)) }
		assert.Equal(t, at(3), at(3))
		assert.NotEqual(t, at(3), at(4))
	})
	t.Run("the counter counts the runs that draw", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		open := ops.PerRun(g.Scope("net"), .5, ops.Draw{})
		other := g.Const(float32(1))
		counter, err := g.VariableByName("net/PerRun/runs")
		require.NoError(t, err)
		assert.False(t, counter.Trainable())
		s := initialized(t, g)
		for range 3 {
			floats(t, s, open)
			floats(t, s, other)
		}
		assert.Equal(t, []float64{3}, floats(t, s, counter.Value()))
	})
}
