package optimizers_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
)

// suite is every optimizer of the package, and two rules as users write them.
var suite = map[string]struct {
	make func() trainer
	// rows says that a sparse gradient moves its rows alone; else it moves all
	// rows as a dense one with zeros does.
	rows bool
}{
	"gradient descent":   {func() trainer { return optimizers.NewGradientDescent(.1) }, true},
	"momentum":           {func() trainer { return optimizers.NewMomentum(.05, .9) }, false},
	"momentum, v1":       {func() trainer { return optimizers.NewMomentum(.05, .9, optimizers.V1) }, true},
	"nesterov":           {func() trainer { return nesterov(optimizers.NewMomentum(.05, .9)) }, false},
	"rmsprop":            {func() trainer { return optimizers.NewRMSprop(.01) }, false},
	"rmsprop, v1":        {func() trainer { return optimizers.NewRMSprop(.01, optimizers.V1) }, true},
	"rmsprop, all of it": {func() trainer { return allOf(optimizers.NewRMSprop(.01)) }, false},
	"adam":               {func() trainer { return optimizers.NewAdam(.01) }, false},
	"lazy adam":          {func() trainer { return lazy(optimizers.NewAdam(.01)) }, true},
	"amsgrad":            {func() trainer { a := optimizers.NewAdam(.01); a.AMSGrad = true; return a }, false},
	"adamw":              {func() trainer { return optimizers.NewAdamW(.01, .1) }, false},
	"adadelta":           {func() trainer { return optimizers.NewAdadelta(1) }, false},
	"adadelta, v1":       {func() trainer { return optimizers.NewAdadelta(1, optimizers.V1) }, true},
	"adagrad":            {func() trainer { return optimizers.NewAdagrad(.1) }, true},
	"adagrad, v1":        {func() trainer { return optimizers.NewAdagrad(.1, optimizers.V1) }, true},
	"adagrad da":         {func() trainer { return optimizers.NewAdagradDA(.1) }, true},
	"adamax":             {func() trainer { return optimizers.NewAdamax(.01) }, false},
	"nadam":              {func() trainer { return optimizers.NewNadam(.01) }, false},
	"ftrl":               {func() trainer { return optimizers.NewFtrl(.1) }, false},
	"ftrl, v1":           {func() trainer { return optimizers.NewFtrl(.1, optimizers.V1) }, true},
	"lion":               {func() trainer { return optimizers.NewLion(.01) }, false},
	"lamb":               {func() trainer { return optimizers.NewLamb(.01) }, false},
	"adafactor":          {func() trainer { return optimizers.NewAdafactor(.1) }, false},
	"muon":               {func() trainer { return optimizers.NewMuon(.01) }, false},
	"schedule-free":      {func() trainer { return optimizers.NewScheduleFreeAdamW(.01) }, false},
	"proximal descent":   {func() trainer { return optimizers.NewProximalGradientDescent(.1, .01, .01) }, true},
	"proximal adagrad":   {func() trainer { return optimizers.NewProximalAdagrad(.1, .01, .01) }, true},
	"add sign":           {func() trainer { return optimizers.NewAddSign(.05) }, false},
	"power sign":         {func() trainer { return optimizers.NewPowerSign(.05) }, false},
	"floormod":           {func() trainer { return optimizers.NewFloorMod(.1, 3) }, true},

	"clipped adam":      {func() trainer { return clippedAdam() }, false},
	"decayed momentum":  {func() trainer { return optimizers.WeightDecay(optimizers.NewMomentum(.05, .9), optimizers.Value(.1)) }, false},
	"adam with l2":      {func() trainer { return optimizers.L2Decay(optimizers.NewAdam(.01), optimizers.Value(.1)) }, false},
	"averaged adam":     {func() trainer { return optimizers.NewEMA(optimizers.NewAdam(.01), .9) }, false},
	"swa of momentum":   {func() trainer { return optimizers.NewSWA(optimizers.NewMomentum(.05, .9), 1, 2) }, false},
	"lookahead of adam": {func() trainer { return optimizers.Lookahead(optimizers.NewAdam(.01), 2, .5) }, false},
	"constrained adam":  {func() trainer { return optimizers.Constrained(optimizers.NewAdam(.01), optimizers.NonNegative{}) }, false},
	"grouped": {func() trainer {
		return optimizers.Grouped(optimizers.Group{Rule: optimizers.NewAdam(.01)})
	}, false},

	"a user's rule":    {func() trainer { return &optimizers.Optimizer{Rule: &sign{}, Rate: halving} }, true},
	"a user's formula": {func() trainer { return rated(heavyBall(), .05) }, true},
}

func allOf(r *optimizers.RMSprop) *optimizers.RMSprop {
	r.Momentum, r.Centered = optimizers.Value(.9), true
	return r
}

func clippedAdam() *optimizers.Optimizer {
	return optimizers.Clipped(optimizers.NewAdam(.01), optimizers.Clip{By: optimizers.ByNorm, Limit: optimizers.Value(.3)})
}

// heavyBall is momentum as a user writes it.
func heavyBall() *optimizers.Optimizer {
	return optimizers.Elementwise("heavyball", func(u *optimizers.Update) tf.Output {
		speed := u.Sub(u.Mul(u.Constant(.9), u.Slot("speed", ops.Zeros())), u.Mul(u.Rate, u.Grad))
		u.SetSlot("speed", speed)
		return u.Add(u.Var, speed)
	})
}

// TestEveryOptimizer holds each optimizer to what holds for all of them.
func TestEveryOptimizer(t *testing.T) {
	for name, c := range suite {
		t.Run(name, func(t *testing.T) {
			t.Run("dense equals sparse where every row is touched", func(t *testing.T) { denseEqualsSparse(t, c.make) })
			t.Run("an empty batch of indices is a gradient of zeros", func(t *testing.T) { emptyBatch(t, c.make, c.rows) })
			t.Run("what is frozen stands still to the bit", func(t *testing.T) { frozenStands(t, c.make) })
			t.Run("a resumed training is the uninterrupted one", func(t *testing.T) { resumes(t, c.make) })
			t.Run("the order of variables does not matter", func(t *testing.T) { anyOrder(t, c.make) })
			t.Run("no gradient at all is an error", func(t *testing.T) { noGradient(t, c.make) })
			t.Run("NaN and infinity stay in their variable", func(t *testing.T) { nonFinite(t, c.make) })
			t.Run("a scalar is trained as a vector of one", func(t *testing.T) { rank0(t, c.make) })
			t.Run("two of it over disjoint scopes don't meet", func(t *testing.T) { disjoint(t, c.make) })
			t.Run("one of it makes two train ops of one training", func(t *testing.T) { twice(t, c.make) })
		})
	}
}

func denseEqualsSparse(t *testing.T, optimizer func() trainer) {
	// Row 2 twice: the dense gradient has the sum.
	indices, rows := []int64{2, 0, 1, 2}, []float64{1, 2, .3, -.4, -.6, .7, .5, -1}
	full := []float64{.3, -.4, -.6, .7, 1.5, 1}
	start := []float64{.1, .2, .3, .4, .5, .6}
	b := newBench(t)
	d, s := b.tensor("dense", tf.Float, ops.Shape{3, 2}, start...), b.tensor("sparse", tf.Float, ops.Shape{3, 2}, start...)
	trainDense, trainSparse := b.apply(optimizer(), b.dense(d, full...)), b.apply(optimizer(), b.sparse(s, indices, rows...))
	b.start()
	for range 5 {
		b.run(trainDense.Op)
		b.run(trainSparse.Op)
	}
	assert.NotEqual(t, start, b.value(d))
	near(t, b.value(d), b.value(s), 1e-5)
}

func emptyBatch(t *testing.T, optimizer func() trainer, rowsOnly bool) {
	b := newBench(t)
	start := []float64{.1, .2, .3, .4}
	s, d := b.tensor("sparse", tf.Float, ops.Shape{2, 2}, start...), b.tensor("dense", tf.Float, ops.Shape{2, 2}, start...)
	ofSparse, ofDense := optimizer(), optimizer()
	both := []int64{0, 1}
	first, firstDense := b.apply(ofSparse, b.sparse(s, both, .1, -.2, .3, .4)), b.apply(ofDense, b.dense(d, .1, -.2, .3, .4))
	empty, zeros := b.apply(ofSparse, b.sparse(s, nil)), b.apply(ofDense, b.dense(d, 0, 0, 0, 0))
	b.start()
	b.run(first.Op)
	b.run(firstDense.Op)
	before := b.bits(s)
	for range 3 {
		b.run(empty.Op)
		b.run(zeros.Op)
	}
	assert.Equal(t, []float64{4}, b.value(empty.Iteration))
	if rowsOnly {
		assert.Equal(t, before, b.bits(s))
	} else {
		near(t, b.value(d), b.value(s), 1e-5)
	}
}

// coupled is a loss of two matrices that couples them: not convex, and each
// gradient depends on both.
func coupled(b *bench, x, y *ops.Variable) tf.Output {
	f := ops.NewFormula(b.Root(), tf.Float)
	apart := f.Sub(f.Tanh(f.Mul(x.Value(), y.Value())), f.Constant(.25))
	return sum(b.Root(), f.Add(f.Square(apart), f.Mul(f.Constant(.1), f.Cos(f.Add(x.Value(), y.Value())))))
}

func two(b *bench) (x, y *ops.Variable) {
	return b.tensor("a/x", tf.Float, ops.Shape{2, 3}, .9, .2, .3, .8, .5, .6), b.tensor("b/y", tf.Float, ops.Shape{2, 3}, .4, .7, .1, .6, .9, .2)
}

// stateOf is what an optimizer remembers of a variable, and the variable.
func stateOf(b *bench, o trainer, v *ops.Variable) []*ops.Variable {
	all := []*ops.Variable{v}
	for _, s := range o.State(b.Graph) {
		if strings.HasPrefix(s.Name(), v.Name()+"/") {
			all = append(all, s)
		}
	}
	return all
}

func frozenStands(t *testing.T, optimizer func() trainer) {
	b := newBench(t)
	x, y := two(b)
	o := optimizer()
	both, one := b.minimize(o, coupled(b, x, y), x, y), b.minimize(o, coupled(b, x, y), x)
	b.start()
	b.steps(2, both)
	before, moving := b.bits(stateOf(b, o, y)...), b.bits(x)
	b.steps(5, one)
	assert.Equal(t, before, b.bits(stateOf(b, o, y)...))
	assert.NotEqual(t, moving, b.bits(x))
}

func resumes(t *testing.T, optimizer func() trainer) {
	b := newBench(t)
	x, y := two(b)
	o := optimizer()
	train := b.minimize(o, coupled(b, x, y), x, y)
	all := append([]*ops.Variable{x, y}, o.State(b.Graph)...)
	var restores []*tf.Operation
	call := bridge.Call{}
	for _, v := range all {
		fed := b.Placeholder("saved", v.DType(), v.Shape())
		call.Feeds = append(call.Feeds, fed)
		restores = append(restores, v.Assign(b.Root(), fed))
	}
	call.Targets = []*tf.Operation{b.Group("restore", restores...)}
	read := bridge.Call{}
	for _, v := range all {
		read.Fetches = append(read.Fetches, v.Value())
	}
	b.start()
	b.steps(3, train)
	saved, err := b.sess.Call(t.Context(), read)
	require.NoError(t, err)
	defer func() {
		for _, s := range saved {
			require.NoError(t, s.Close())
		}
	}()
	b.steps(6, train)
	want := b.bits(all...)
	_, err = b.sess.Call(t.Context(), call, saved...)
	require.NoError(t, err)
	require.NotEqual(t, want, b.bits(all...))
	b.steps(6, train)
	assert.Equal(t, want, b.bits(all...))
}

func anyOrder(t *testing.T, optimizer func() trainer) {
	var ends []map[string][]byte
	for _, swapped := range []bool{false, true} {
		b := newBench(t)
		x, y := two(b)
		vars := []*ops.Variable{x, y}
		if swapped {
			slices.Reverse(vars)
		}
		train := b.minimize(optimizer(), coupled(b, x, y), vars...)
		b.start()
		b.steps(5, train)
		ends = append(ends, b.bits(x, y))
	}
	assert.Equal(t, ends[0], ends[1])
}

func noGradient(t *testing.T, optimizer func() trainer) {
	b := newBench(t)
	x, y := two(b)
	nodes := bridge.NumOperations(b.TF())
	_, err := optimizer().ApplyGradients([]optimizers.Grad{{Variable: x}, {Variable: y}})
	assert.ErrorContains(t, err, "no gradients")
	assert.ErrorContains(t, err, "a/x")
	assert.Equal(t, nodes, bridge.NumOperations(b.TF()), "nothing is added")
}

func nonFinite(t *testing.T, optimizer func() trainer) {
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		var ends []map[string][]byte
		for _, first := range []float64{bad, .5} {
			b := newBench(t)
			x, y := two(b)
			o := optimizer()
			train := b.apply(o, b.dense(x, first, .1, .2, .3, .4, .5), b.dense(y, .6, .5, .4, .3, .2, .1))
			b.start()
			b.steps(3, train)
			assert.Equal(t, []float64{3}, b.value(train.Iteration), "the step is done, as in Python")
			ends = append(ends, b.bits(y))
			for _, v := range b.value(y) {
				assert.False(t, math.IsNaN(v) || math.IsInf(v, 0))
			}
		}
		assert.Equal(t, ends[1], ends[0], "the other variable goes its way")
	}
}

func rank0(t *testing.T, optimizer func() trainer) {
	b := newBench(t)
	scalar, vector := b.tensor("scalar", tf.Float, ops.Shape{}, .75), b.tensor("vector", tf.Float, ops.Shape{1}, .75)
	ofScalar, ofVector := optimizer(), optimizer()
	train := b.minimize(ofScalar, raw.Square(b.Root(), scalar.Value()), scalar)
	other := b.minimize(ofVector, sum(b.Root(), raw.Square(b.Root(), vector.Value())), vector)
	b.start()
	b.steps(5, train)
	b.steps(5, other)
	assert.NotEqual(t, []float64{.75}, b.value(scalar))
	near(t, b.value(vector), b.value(scalar), 1e-6)
}

func disjoint(t *testing.T, optimizer func() trainer) {
	run := func(withX, withY bool) map[string][]byte {
		b := newBench(t)
		x, y := two(b)
		ofX, ofY := raw.Square(b.Root(), x.Value()), raw.Square(b.Root(), y.Value())
		trainX, trainY := b.minimize(optimizer(), sum(b.Root(), ofX), x), b.minimize(optimizer(), sum(b.Root(), ofY), y)
		b.start()
		for range 4 {
			if withX {
				b.run(trainX.Op)
			}
			if withY {
				b.run(trainY.Op)
			}
		}
		return b.bits(x, y)
	}
	both, alone, other := run(true, true), run(true, false), run(false, true)
	assert.Equal(t, alone["a/x"], both["a/x"])
	assert.Equal(t, other["b/y"], both["b/y"])
	assert.NotEqual(t, alone["b/y"], both["b/y"])
}

func twice(t *testing.T, optimizer func() trainer) {
	b := newBench(t)
	x, y := two(b)
	o := optimizer()
	first := b.minimize(o, coupled(b, x, y), x, y)
	state := len(o.State(b.Graph))
	second := b.minimize(o, coupled(b, x, y), x, y)
	assert.Len(t, o.State(b.Graph), state, "slots and count are shared")
	b.start()
	b.steps(4, first)
	want := b.bits(x, y)
	b.run(b.Init())
	for range 2 {
		b.run(first.Op)
		b.run(second.Op)
	}
	assert.Equal(t, want, b.bits(x, y))
	assert.Equal(t, []float64{4}, b.value(second.Iteration))
}
