package optimizers_test

import (
	"math"
	"slices"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/optimizers/schedules"
)

// fed is a variable x of two elements whose gradient is (g, -2g), and a table of
// four rows whose gradient is (g, 3g) in the rows r and 1, with g and r fed.
type fed struct {
	*bench
	g, r     tf.Output
	x, table *ops.Variable
	loss     tf.Output
	train    *optimizers.TrainOp
	rule     trainer
}

func newFed(t *testing.T, rule trainer) *fed {
	b := newBench(t)
	f := &fed{bench: b, rule: rule}
	s := b.Root()
	f.g, f.r = s.Placeholder("g", tf.Float, ops.Shape{}), s.Placeholder("r", tf.Float, ops.Shape{})
	f.x, f.table = b.vector("net/x", tf.Float, 1, -1), b.tensor("net/table", tf.Float, ops.Shape{4, 1}, 1, 2, 3, 4)
	rows := raw.Pack(s, []tf.Output{ops.Cast(s, f.r, tf.Int32), ops.Number(s, tf.Int32, 1)})
	of := ops.NewFormula(s, tf.Float)
	f.loss = of.Mul(f.g, of.Add(sum(s, of.Mul(f.x.Value(), ops.Const(s, ops.Shape{2}, []float32{1, -2}))),
		sum(s, of.Mul(f.table.Gather(s, rows), ops.Const(s, ops.Shape{2, 1}, []float32{1, 3})))))
	f.train = b.minimize(rule, f.loss, f.x, f.table)
	return f
}

// step is a step with a gradient.
func (f *fed) step(g, r float32) error {
	f.t.Helper()
	return f.feed(f.train.Op, map[tf.Output]float32{f.g: g, f.r: r})
}

func (f *fed) must(g, r float32) { f.t.Helper(); require.NoError(f.t, f.step(g, r)) }

func (f *fed) everything() map[string][]byte { return f.bits(f.Variables()...) }

var stepped = schedules.ExponentialDecay{Initial: .1, Steps: 1, Rate: .5}

func TestAccumulatedStepsAreOneStep(t *testing.T) {
	for name, make := range rules {
		t.Run(name, func(t *testing.T) {
			scheduled := func() trainer {
				r := make()
				o := optimizers.WeightDecay(r, optimizers.Value(0))
				o.Rate = stepped
				return o
			}
			ema := optimizers.NewEMA(optimizers.Constrained(optimizers.Accumulated(scheduled(), 3, optimizers.Mean),
				optimizers.NonNegative{}), .5)
			parts := newFed(t, ema)
			reference := newFed(t, optimizers.NewEMA(optimizers.Constrained(scheduled(), optimizers.NonNegative{}), .5))
			parts.start()
			reference.start()
			for range 3 { // the mean of 1, 2 and 3 is 2, and rows are those of all
				before := parts.everything()
				for i, g := range []float32{1, 2} {
					parts.must(g, 0)
					after := parts.everything()
					changed := 0
					for name := range before {
						if string(before[name]) != string(after[name]) {
							changed++
							assert.Regexp(t, "Accumulation|accumulated_steps", name, "step %d of 3 moves nothing else", i+1)
						}
					}
					assert.Positive(t, changed)
				}
				parts.must(3, 0)
				reference.must(2, 0)
				// TensorFlow may divide by the number of steps before or after the rate.
				near(t, reference.value(reference.x), parts.value(parts.x), 1e-6)
				near(t, reference.value(reference.table), parts.value(parts.table), 1e-6)
				assert.Equal(t, reference.bits(reference.train.Iteration), parts.bits(parts.train.Iteration))
				a, _ := ema.Average(parts.x)
				near(t, reference.value(average(t, reference, reference.x)), parts.value(a), 1e-6)
			}
		})
	}
}

func average(t *testing.T, f *fed, v *ops.Variable) *ops.Variable {
	kept, ok := f.rule.(*optimizers.EMA).Average(v)
	require.True(t, ok)
	return kept
}

// Descent with rate 1 shows the gradient that a rule was given.
func TestAccumulatedSparseGradientsTouchTheRowsOfAll(t *testing.T) {
	f := newFed(t, optimizers.Accumulated(optimizers.NewGradientDescent(1), 2, optimizers.Sum))
	f.start()
	f.must(1, 0)
	require.Equal(t, []float64{1, 2, 3, 4}, f.value(f.table))
	f.must(2, 3)
	require.Equal(t, []float64{0, 2 - 9, 3, 4 - 2}, f.value(f.table))
	require.Equal(t, []float64{1 - 3, -1 + 6}, f.value(f.x))
	f.must(float32(math.NaN()), 0) // what a window leaves behind does not count in the next
	f.must(1, 0)
	require.True(t, math.IsNaN(f.value(f.table)[0]))
	require.Equal(t, 3., f.value(f.table)[2])
	lazy := newFed(t, optimizers.Accumulated(optimizers.NewMomentum(.1, .9, optimizers.V1), 2, optimizers.Mean))
	lazy.start()
	for _, r := range []float32{0, 0, 3, 3} {
		lazy.must(1, r)
	}
	// Row 0 moved once by .1, and has momentum, but no gradient in the second step.
	near(t, []float64{.9, 2 - .3 - .3*1.9, 3, 3.9}, lazy.value(lazy.table), 1e-6)
}

func TestAGradientThatIsNotFinite(t *testing.T) {
	inf := float32(math.Inf(1))
	global := func(p optimizers.NonFinite) trainer {
		return optimizers.Clipped(optimizers.NewAdam(.1), optimizers.Clip{By: optimizers.ByGlobalNorm, Limit: optimizers.Value(5), NonFinite: p})
	}
	for name, c := range map[string]struct {
		rule trainer
		want string
	}{
		"clipped, skip":       {global(optimizers.Skip), "same"},
		"clipped, fail":       {global(optimizers.Fail), "net/"},
		"clipped, propagate":  {global(optimizers.Propagate), "NaN"},
		"by value, skip":      {optimizers.Clipped(optimizers.NewAdam(.1), optimizers.Clip{By: optimizers.ByValue, Limit: optimizers.Value(1), NonFinite: optimizers.Skip}), "same"},
		"finite, skip":        {optimizers.Finite(optimizers.NewMomentum(.1, .9), optimizers.Skip), "same"},
		"finite, fail":        {optimizers.Finite(optimizers.NewMomentum(.1, .9), optimizers.Fail), "net/"},
		"finite, around EMA":  {optimizers.Finite(optimizers.NewEMA(optimizers.NewAdam(.1), .9), optimizers.Skip), "same"},
		"EMA, around skipped": {optimizers.NewEMA(optimizers.Finite(optimizers.NewAdam(.1), optimizers.Skip), .9), "same"},
		"lookahead and SWA": {optimizers.NewSWA(optimizers.Lookahead(optimizers.Finite(optimizers.NewAdam(.1), optimizers.Skip), 1, .5), 1, 1),
			"same"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFed(t, c.rule)
			f.start()
			f.must(1, 0)
			before := f.everything()
			err := f.step(inf, 0)
			switch c.want {
			case "same":
				require.NoError(t, err)
				assert.Equal(t, before, f.everything())
			case "NaN":
				require.NoError(t, err)
				assert.True(t, math.IsNaN(f.value(f.x)[0]))
				return
			default:
				require.ErrorContains(t, err, c.want)
				assert.Equal(t, before, f.everything())
			}
			f.must(1, 2)
			for _, v := range f.value(f.x) {
				assert.False(t, math.IsNaN(v))
			}
			assert.NotEqual(t, before, f.everything(), "the next step is one again")
		})
	}
}

// The gradient is 1, -2 and, of the rows 0 and 1, 1 and 3.
func TestClippedLimitsWhatTheRuleSees(t *testing.T) {
	limit := func(by optimizers.ClipKind, l ops.Hyperparameter) trainer {
		return optimizers.Clipped(optimizers.NewGradientDescent(1), optimizers.Clip{By: by, Limit: l})
	}
	r10 := math.Sqrt(5. / 10) // two steps of √5/2 along (1, 3), whose norm is √10
	falling := schedules.PiecewiseConstant{Boundaries: []int64{0}, Values: []float64{100, 1}}
	for name, c := range map[string]struct {
		rule     trainer
		x, table []float64 // after two steps
	}{
		"value":       {limit(optimizers.ByValue, optimizers.Value(1.5)), []float64{-1, 2}, []float64{-1, -1, 3, 4}},
		"norm":        {limit(optimizers.ByNorm, optimizers.Value(math.Sqrt(5)/2)), []float64{0, 1}, []float64{1 - r10, 2 - 3*r10, 3, 4}},
		"global norm": {limit(optimizers.ByGlobalNorm, optimizers.Value(math.Sqrt(15)/2)), []float64{0, 1}, []float64{0, -1, 3, 4}},
		"scheduled":   {limit(optimizers.ByValue, falling), []float64{-1, 2}, []float64{-1, -2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFed(t, c.rule)
			f.start()
			f.must(1, 0)
			f.must(1, 0)
			near(t, c.x, f.value(f.x), 1e-6)
			near(t, c.table, f.value(f.table), 1e-6)
		})
	}
}

func TestLossScaleFollowsTheGradients(t *testing.T) {
	l := optimizers.LossScaled(optimizers.Clipped(optimizers.NewGradientDescent(1), optimizers.Clip{By: optimizers.ByValue, Limit: optimizers.Value(2)}))
	l.Initial, l.Growth = 8, 2
	f := newFed(t, l)
	f.start()
	scale, err := l.Scale(f.Graph)
	require.NoError(t, err)
	nan := float32(math.NaN())
	for i, c := range []struct {
		g        float32
		scale, x float64
		steps    float64
	}{
		{1, 8, 0, 1}, {1, 16, -1, 2}, {nan, 8, -1, 2}, {1, 8, -2, 3}, {nan, 4, -2, 3}, {9, 4, -4, 4}, {1, 8, -5, 5},
	} {
		f.must(c.g, 0)
		assert.Equal(t, c.scale, f.value(scale)[0], "step %d", i)
		assert.Equal(t, c.x, f.value(f.x)[0], "step %d", i)
		assert.Equal(t, c.steps, f.value(f.train.Iteration)[0], "step %d", i)
	}
	_, err = l.ScaleLoss(f.Graph, tf.Output{})
	require.ErrorContains(t, err, "not a tensor")
	around := optimizers.NewEMA(optimizers.LossScaled(optimizers.NewGradientDescent(1)), .5)
	other := newFed(t, around)
	other.start()
	other.must(1, 0)
	assert.Equal(t, []float64{0, 1}, other.value(other.x), "an optimizer around it scales the loss as well")
}

func TestAverages(t *testing.T) {
	descent := func() trainer { return optimizers.NewGradientDescent(1) } // x goes 1, 0, -1, -2, -3
	ramp := optimizers.NewEMA(descent(), .5, optimizers.V1)
	ramp.Ramp = true
	over := optimizers.NewEMA(descent(), .5)
	over.OverwriteEvery = 2
	type averaged interface {
		trainer
		Average(*ops.Variable) (*ops.Variable, bool)
		Swap(*ops.Graph) (*tf.Operation, error)
	}
	for name, c := range map[string]struct {
		rule averaged
		want []float64 // averages of x[0]
		x    float64
	}{
		"Keras": {optimizers.NewEMA(descent(), .75), []float64{0, -.25, -.6875, -1.265625}, -3},
		"v1":    {optimizers.NewEMA(descent(), .75, optimizers.V1), []float64{.75, .3125, -.265625, -.94921875}, -3},
		// decays 2/11, 3/12, 4/13, 5/14
		"ramp": {ramp, []float64{2. / 11, 2./44 - .75, (2./44-.75)*4/13 - 2*9./13, ((2./44-.75)*4/13-2*9./13)*5/14 - 3*9./14}, -3},
		"mean": {optimizers.NewSWA(descent(), 2, 2), []float64{1, -1, -1, -2}, -3},
		// Average and x: 0 and 0; -.5 of -1, and so is x; -1 of -1.5; -1.75 of -2.5.
		"overwriting": {over, []float64{0, -.5, -1, -1.75}, -1.75},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.rule.Swap(ops.NewGraph(ops.GraphOptions{}))
			require.ErrorContains(t, err, "no variable")
			f := newFed(t, c.rule)
			kept, ok := c.rule.Average(f.x)
			require.True(t, ok)
			swap, err := c.rule.Swap(f.Graph)
			require.NoError(t, err)
			f.start()
			require.Equal(t, f.value(f.x), f.value(kept), "before the first step it is the variable")
			for _, want := range c.want {
				f.must(1, 0)
				near(t, []float64{want}, f.value(kept)[:1], 1e-6)
			}
			require.InDelta(t, c.x, f.value(f.x)[0], 1e-6)
			before := f.everything()
			f.run(swap)
			require.InDelta(t, c.want[3], f.value(f.x)[0], 1e-6)
			f.run(swap)
			require.Equal(t, before, f.everything())
		})
	}
}

// x goes by -1 a step: slow 1, after two steps 1 + .5·(-1-1) = 0, then -1.
func TestLookahead(t *testing.T) {
	f := newFed(t, optimizers.Lookahead(optimizers.NewGradientDescent(1), 2, .5))
	f.start()
	set := f.x.Assign(nil, ops.Const(f.Root(), ops.Shape{2}, []float32{1, -1}))
	require.NoError(t, f.Err())
	f.run(set)
	for _, want := range []float64{0, 0, -1, -1, -2} {
		f.must(1, 0)
		require.InDelta(t, want, f.value(f.x)[0], 1e-6)
	}
	slow, ok := f.rule.Slot(f.x, "slow")
	require.True(t, ok)
	assert.Equal(t, "net/x/Lookahead", slow.Name())
	assert.InDelta(t, -1, f.value(slow)[0], 1e-6)

	late := newFed(t, optimizers.Lookahead(optimizers.NewGradientDescent(1), 1, .5))
	late.start()
	// Weights from elsewhere: the slow copy is of them, not of the initial value.
	late.run(late.x.Assign(nil, ops.Const(late.Root(), ops.Shape{2}, []float32{101, 0})))
	late.must(2, 0)
	assert.InDelta(t, 100, late.value(late.x)[0], 1e-5)
}

func TestConstraintsHoldAfterTheStep(t *testing.T) {
	for name, c := range map[string]struct {
		constraint optimizers.Constraint
		x          []float64 // of 3, -4 after the step
	}{
		"max norm":          {optimizers.MaxNorm{Max: 2.5}, []float64{1.5, -2}},
		"max norm, inside":  {optimizers.MaxNorm{Max: 6}, []float64{3, -4}},
		"unit norm":         {optimizers.UnitNorm{}, []float64{.6, -.8}},
		"min max, half way": {optimizers.MinMaxNorm{Min: 7, Max: 9, Rate: .5}, []float64{3.6, -4.8}},
		"non-negative":      {optimizers.NonNegative{}, []float64{3, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFed(t, optimizers.Constrained(optimizers.NewGradientDescent(1), c.constraint, "net/x"))
			f.start()
			f.run(f.x.Assign(nil, ops.Const(f.Root(), ops.Shape{2}, []float32{4, -6})))
			f.must(1, 0)
			near(t, c.x, f.value(f.x), 1e-6)
			assert.Equal(t, []float64{0, -1, 3, 4}, f.value(f.table), "outside of the scope nothing is constrained")
		})
	}
	// As in Keras, the average sees the weights before the constraint: 2 of 1.
	ema := optimizers.NewEMA(optimizers.NewGradientDescent(1), .5)
	f := newFed(t, optimizers.Constrained(ema, optimizers.NonNegative{}))
	f.start()
	f.must(3, 0)
	kept, _ := ema.Average(f.x)
	assert.Equal(t, []float64{-2, 5}, f.value(kept))
	assert.Equal(t, []float64{0, 5}, f.value(f.x))
}

func TestDecayByL2GoesThroughTheRule(t *testing.T) {
	f := newFed(t, optimizers.L2Decay(optimizers.NewMomentum(1, .5), optimizers.Value(.5), "net/x"))
	f.start()
	f.must(1, 0)
	assert.Equal(t, []float64{0, 1}, f.value(f.x), "x is excepted")
	assert.Equal(t, []float64{0 - .5, 2 - 3 - 1, 3 - 1.5, 4 - 2}, f.value(f.table))
	d := newFed(t, optimizers.WeightDecay(optimizers.NewGradientDescent(.5), optimizers.Value(.5), "net/x"))
	d.start()
	d.must(1, 0)
	assert.Equal(t, []float64{.5, 0}, d.value(d.x))
	assert.Equal(t, []float64{.75 - .5, 0, 2.25, 3}, d.value(d.table))
}

func TestGradientNoiseHasItsVariance(t *testing.T) {
	b := newBench(t)
	x := b.Variable("x", ops.Shape{4000}, ops.Zeros(), ops.VariableOptions{DType: tf.Double})
	o := optimizers.GradientNoise(optimizers.NewGradientDescent(1), optimizers.Value(4), optimizers.Value(1))
	zero := ops.Cast(b.Root(), raw.ZerosLike(b.Root(), x.Value()), tf.Double)
	train := b.apply(o, optimizers.Grad{Variable: x, Gradient: gradients.Gradient{Dense: zero}})
	b.start()
	before := make([]float64, 4000)
	for step := range 3 {
		b.run(train.Op)
		now, squares := b.value(x), 0.
		for i := range now {
			squares += (now[i] - before[i]) * (now[i] - before[i])
		}
		assert.InEpsilon(t, 4/float64(1+step), squares/4000, .1, "step %d", step) // σ of the mean: 2.2 %
		before = now
	}
}

func TestGroupsTrainEachByItsOwn(t *testing.T) {
	groups := func(outer ops.Hyperparameter) *optimizers.Optimizer {
		o := optimizers.Grouped(
			optimizers.Group{Scopes: []string{"net/x"}, Rule: optimizers.NewAdam(.1)},
			optimizers.Group{Rule: optimizers.WeightDecay(descent(), optimizers.Value(.5))})
		o.Rate = outer
		return o
	}
	f := newFed(t, optimizers.NewEMA(groups(stepped), .5))
	alone, rest := newFed(t, optimizers.NewAdam(.1)), newFed(t, optimizers.WeightDecay(optimizers.NewGradientDescent(.1), optimizers.Value(.5)))
	f.start()
	alone.start()
	rest.start()
	f.must(1, 0)
	alone.must(1, 0)
	rest.must(1, 0)
	assert.Equal(t, alone.bits(alone.x)["net/x"], f.bits(f.x)["net/x"])
	assert.Equal(t, rest.value(rest.table), f.value(f.table))
	_, ok := f.rule.Slot(f.x, "m")
	assert.True(t, ok)
	var names []string
	for _, v := range f.rule.State(f.Graph) {
		names = append(names, v.Name())
	}
	assert.Subset(t, names, []string{"Groups/iteration", "net/x/Adam", "net/x/Adam_1", "net/table/ExponentialMovingAverage"})
}

func TestWrappersThatMakeNoSense(t *testing.T) {
	adam := func() optimizers.Rule { return optimizers.NewAdam(.1) }
	same, bad, noScale := optimizers.NewAdam(.1), optimizers.NewAdam(.1), optimizers.LossScaled(adam())
	bad.Beta1, noScale.Initial = nil, 0
	value, one := optimizers.Value(1), ops.Fixed(1)
	clip := optimizers.Clip{By: optimizers.ByNorm, Limit: one}
	x, table := []string{"net/x"}, []string{"net/table"}
	type group = optimizers.Group
	for want, rule := range map[string]trainer{
		"clipping around loss scaling":                     optimizers.Clipped(optimizers.LossScaled(adam()), clip),
		"L2 decay around loss scaling":                     optimizers.L2Decay(optimizers.LossScaled(adam()), value),
		"gradient noise around gradient accumulation":      optimizers.GradientNoise(optimizers.Accumulated(adam(), 2, optimizers.Mean), value, value),
		"gradient noise around loss scaling":               optimizers.GradientNoise(optimizers.LossScaled(adam()), value, value),
		"weight decay around gradient accumulation":        optimizers.WeightDecay(optimizers.Accumulated(adam(), 2, optimizers.Mean), value),
		"weight decay around Lookahead":                    optimizers.WeightDecay(optimizers.Lookahead(adam(), 2, .5), value),
		"loss scaling around loss scaling":                 optimizers.LossScaled(optimizers.LossScaled(adam())),
		"gradient accumulation around":                     optimizers.Accumulated(optimizers.Accumulated(adam(), 2, optimizers.Mean), 2, optimizers.Mean),
		"Lookahead around Lookahead":                       optimizers.Lookahead(optimizers.Lookahead(adam(), 2, .5), 2, .5),
		"skipping of gradients that are not finite around": optimizers.Finite(optimizers.LossScaled(adam()), optimizers.Skip),
		"k is 0":                                 optimizers.Lookahead(adam(), 0, .5),
		"alpha is 2":                             optimizers.Lookahead(adam(), 2, 2),
		"n is 0":                                 optimizers.Accumulated(adam(), 0, optimizers.Mean),
		"neither Mean nor Sum":                   optimizers.Accumulated(adam(), 1, 7),
		"By is 0":                                optimizers.Clipped(adam(), optimizers.Clip{Limit: one}),
		"the Limit is nil":                       optimizers.Clipped(adam(), optimizers.Clip{By: optimizers.ByNorm}),
		"the limit is -1":                        optimizers.Clipped(adam(), optimizers.Clip{By: optimizers.ByNorm, Limit: ops.Fixed(-1)}),
		"none of Propagate, Fail and Skip":       optimizers.Finite(adam(), 9),
		"the decay is 2":                         optimizers.NewEMA(adam(), 2),
		"Start 0 and Every 1":                    optimizers.NewSWA(adam(), 0, 1),
		"no variable is in the scope \"net/y\"":  optimizers.WeightDecay(adam(), value, "net/y"),
		"so there is no axis 1; name the scopes": optimizers.Constrained(adam(), optimizers.UnitNorm{Axes: []int{1}}),
		"constraint: it is nil":                  optimizers.Constrained(adam(), nil),
		"the optimizer has no rule":              optimizers.Accumulated(nil, 2, optimizers.Mean),
		"there are no groups":                    optimizers.Grouped(),
		"variable \"net/table\" is in no group; there are 0":   optimizers.Grouped(group{x, adam()}),
		"variable \"net/x\" is in two groups":                  optimizers.Grouped(group{x, adam()}, group{[]string{"net"}, adam()}),
		"both have no Scopes":                                  optimizers.Grouped(group{nil, adam()}, group{nil, adam()}),
		"group 1 [\"nett\"]: no variable":                      optimizers.Grouped(group{nil, adam()}, group{[]string{"nett"}, adam()}),
		"leaves out steps of the group alone":                  optimizers.Grouped(group{x, optimizers.LossScaled(adam())}, group{table, adam()}),
		"have the same optimizer":                              optimizers.Grouped(group{x, same}, group{table, same}),
		"group 0 [\"net/x\"]: the optimizer has no rule":       optimizers.Grouped(group{x, nil}, group{table, adam()}),
		"group 1 [\"net/table\"]: Adam: the hyperparameter":    optimizers.Grouped(group{x, adam()}, group{table, bad}),
		"has groups again":                                     itselfInGroups(),
		"the optimizer wraps itself, or is wrapped":            itself(),
		"the hyperparameter noise_variance is nil":             optimizers.GradientNoise(adam(), nil, value),
		"noise_variance is -1":                                 optimizers.GradientNoise(adam(), ops.Fixed(-1), value),
		"loss scaling: the initial scale is 0":                 noScale,
		"axes [-1], wanted different ones, counted from 0":     optimizers.Constrained(adam(), optimizers.UnitNorm{Axes: []int{-1}}),
		"norms in [2, 1]":                                      optimizers.Constrained(adam(), optimizers.MinMaxNorm{Min: 2, Max: 1, Rate: 1}),
		"weight decay around skipping of gradients that are n": optimizers.WeightDecay(optimizers.Finite(adam(), optimizers.Skip), value),
	} {
		t.Run(want, func(t *testing.T) {
			b := newBench(t)
			v, w := b.vector("net/x", tf.Float, 1, 2), b.tensor("net/table", tf.Float, ops.Shape{1, 1}, 1)
			grads := []optimizers.Grad{b.dense(v, 1, 1), b.dense(w, 1)}
			nodes := len(b.TF().Operations())
			_, err := rule.ApplyGradients(grads)
			require.ErrorContains(t, err, want)
			require.Len(t, b.TF().Operations(), nodes, "nothing is added to the graph")
			require.NoError(t, b.Err())
		})
	}
}

func itself() trainer {
	o := &optimizers.Optimizer{}
	o.Rule = o
	return o
}

func itselfInGroups() trainer {
	o := &optimizers.Optimizer{}
	o.Rule = optimizers.Grouped(optimizers.Group{Rule: o})
	return o
}

// stack is about every wrapper there is.
func stack() trainer {
	rule := optimizers.WeightDecay(optimizers.NewAdam(.05), optimizers.Value(.01), "net/x")
	rule = optimizers.Clipped(optimizers.GradientNoise(rule, optimizers.Value(.1), optimizers.Value(.55)),
		optimizers.Clip{By: optimizers.ByGlobalNorm, Limit: optimizers.Value(2)})
	rule = optimizers.Constrained(optimizers.Lookahead(rule, 2, .5), optimizers.MaxNorm{Max: 3})
	scaled := optimizers.LossScaled(optimizers.NewSWA(optimizers.Gated(rule, schedules.PiecewiseConstant{
		Boundaries: []int64{1, 2}, Values: []float64{1, 0, 1}}), 1, 2))
	scaled.Growth = 3
	return optimizers.NewEMA(optimizers.Accumulated(scaled, 2, optimizers.Mean), .9)
}

func TestResumingIsTheUninterruptedTraining(t *testing.T) {
	g, r := []float32{1, 2, -1, .5, float32(math.NaN()), 3, 1, 1, -2, 4, .1, .2, 5, 6}, []float32{0, 3, 2, 0, 1, 2, 3, 0, 0, 1, 2, 3, 1, 2}
	whole := newFed(t, stack())
	first, second := newFed(t, stack()), newFed(t, stack())
	memory := func(f *fed) *optimizers.Memory {
		m, err := optimizers.NewMemory(append(f.rule.State(f.Graph), f.x, f.table)...)
		require.NoError(t, err)
		return m
	}
	ms := []*optimizers.Memory{memory(whole), memory(first), memory(second)}
	for _, f := range []*fed{whole, first, second} {
		f.start()
		require.Len(t, f.Variables(), len(f.rule.State(f.Graph))+2, "State and the trained variables are all there is")
	}
	const cut = 5
	for i := range g {
		whole.must(g[i], r[i])
		if i < cut {
			first.must(g[i], r[i])
		}
	}
	saved, err := ms[1].Save(t.Context(), first.sess)
	require.NoError(t, err)
	defer saved.Close()
	require.NoError(t, ms[2].Restore(t.Context(), second.sess, saved))
	for i := range g[cut:] {
		second.must(g[cut+i], r[cut+i])
	}
	require.Equal(t, whole.everything(), second.everything())
	require.NotEqual(t, first.everything(), second.everything())

	// And back to the beginning.
	require.NoError(t, ms[2].Reset(t.Context(), second.sess))
	for i := range cut {
		second.must(g[i], r[i])
	}
	require.Equal(t, first.everything(), second.everything())
}

func TestASnapshotThatDoesNotFitChangesNothing(t *testing.T) {
	f := newFed(t, optimizers.NewAdam(.1))
	small, err := optimizers.NewMemory(f.x)
	require.NoError(t, err)
	all, err := optimizers.NewMemory(f.Variables()...)
	require.NoError(t, err)
	f.start()
	before := f.everything()
	saved, err := small.Save(t.Context(), f.sess)
	require.NoError(t, err)
	f.must(1, 0)
	require.ErrorContains(t, all.Restore(t.Context(), f.sess, saved), `"net/table" is not in it`)
	require.NotEqual(t, before, f.everything())
	require.NoError(t, small.Restore(t.Context(), f.sess, saved))
	require.Equal(t, before["net/x"], f.bits(f.x)["net/x"])
	value, ok := saved.Tensor("net/x")
	require.True(t, ok)
	require.Equal(t, bridge.Shape{2}, value.Shape())
	require.NoError(t, saved.Close())
	require.NoError(t, saved.Close())
	require.ErrorContains(t, small.Restore(t.Context(), f.sess, saved), "is not in it")
	require.ErrorContains(t, small.Restore(t.Context(), f.sess, nil), "nil")
	_, err = optimizers.NewMemory(f.x, f.x)
	require.ErrorContains(t, err, "listed twice")
	_, err = optimizers.NewMemory()
	require.ErrorContains(t, err, "no variables")
}

func TestUnfreezingKeepsOldSlotsAndStartsNewOnes(t *testing.T) {
	ema := optimizers.NewEMA(optimizers.Lookahead(optimizers.NewMomentum(.1, .9), 2, .5), .5)
	f := newFed(t, &onlyX{ema})
	f.start()
	for range 3 {
		f.must(1, 0)
	}
	frozen := f.bits(f.table)
	old := f.rule.State(f.Graph)
	kept := f.bits(old...)
	both := f.minimize(ema, f.loss, f.x, f.table)
	fresh := slices.DeleteFunc(f.rule.State(f.Graph), func(v *ops.Variable) bool { return slices.Contains(old, v) })
	require.NotEmpty(t, fresh)
	f.run(f.InitOf(fresh...))
	require.Equal(t, kept, f.bits(old...))
	require.Equal(t, frozen, f.bits(f.table))
	require.NoError(t, f.feed(both.Op, map[tf.Output]float32{f.g: 1, f.r: 0}))
	average, _ := ema.Average(f.table)
	assert.Equal(t, f.value(f.table), f.value(average), "the average of a new variable starts with its first update")
	assert.Equal(t, 4., f.value(both.Iteration)[0])
}

// onlyX trains the first variable alone.
type onlyX struct{ *optimizers.EMA }

func (o *onlyX) Minimize(loss tf.Output, vars []*ops.Variable, opts ...optimizers.GradientOptions) (*optimizers.TrainOp, error) {
	return o.EMA.Minimize(loss, vars[:1], opts...)
}
