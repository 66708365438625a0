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

func nesterov(o *optimizers.Momentum) *optimizers.Momentum { o.Nesterov = true; return o }
func lazy(o *optimizers.Adam) *optimizers.Adam             { o.Lazy = true; return o }
func rated(o *optimizers.Optimizer, rate float64) *optimizers.Optimizer {
	o.Rate = optimizers.Value(rate)
	return o
}

// halving is a rate of 1, then 1/2, then 1/4.
var halving = schedules.ExponentialDecay{Initial: 1, Steps: 1, Rate: 0.5}

func TestOneRuleOnKnownNumbers(t *testing.T) {
	scheduled := func(o *optimizers.Momentum) *optimizers.Momentum { o.Rate = halving; return o }
	for name, c := range map[string]struct {
		optimizer trainer
		w, grad   []float64
		steps     int
		want      []float64
	}{
		"gradient descent":   {optimizers.NewGradientDescent(.1), []float64{1, 2}, []float64{1, -2}, 3, []float64{.7, 2.6}},
		"momentum":           {optimizers.NewMomentum(.1, .9, optimizers.V1), []float64{1, 2}, []float64{1, 1}, 2, []float64{.71, 1.71}},
		"momentum, nesterov": {nesterov(optimizers.NewMomentum(.1, .9, optimizers.V1)), []float64{1, 2}, []float64{1, 1}, 2, []float64{.539, 1.539}},
		// a: 1, 1.5; w: 1 - 1·1 - ½·1.5
		"momentum, rate halved outside": {scheduled(optimizers.NewMomentum(0, .5, optimizers.V1)), []float64{1}, []float64{1}, 2, []float64{-.75}},
		// m: -1, -½-½; w: 1 - 1 - 1
		"momentum, rate halved inside": {scheduled(optimizers.NewMomentum(0, .5)), []float64{1}, []float64{1}, 2, []float64{-1}},
		// Bias correction makes the first step rate·sign(g), less epsilon's part:
		// .1·.1/(.1 + 1e-7/√.001)
		"adam": {optimizers.NewAdam(.1), []float64{1, 2}, []float64{.1, -.2}, 1,
			[]float64{1 - .1*.1/(.1+1e-7/math.Sqrt(.001)), 2 + .1*.2/(.2+1e-7/math.Sqrt(.001))}},
		"adamw, no gradient": {optimizers.WeightDecay(optimizers.NewAdam(.1), optimizers.Value(.01)), []float64{1}, []float64{0}, 1, []float64{.999}},
		"decay, then descent": {optimizers.WeightDecay(optimizers.NewGradientDescent(.5), optimizers.Value(.1)), []float64{2}, []float64{1}, 2,
			// 2·.95 - .5 = 1.4; 1.4·.95 - .5
			[]float64{.83}},
		"decay of a formula": {optimizers.WeightDecay(rated(descent(), .5), optimizers.Value(.1)), []float64{2}, []float64{1}, 2, []float64{.83}},
		"floormod":           {optimizers.NewFloorMod(.5, 3), []float64{1, 2.75}, []float64{4, -1}, 1, []float64{2, .25}},
		"floormod, negative": {optimizers.NewFloorMod(.5, -3), []float64{-1, -2.75}, []float64{-4, 1}, 1, []float64{-2, -.25}},
		"formula":            {rated(descent(), .1), []float64{1, 2}, []float64{1, -2}, 3, []float64{.7, 2.6}},
		"open gate":          {optimizers.Gated(optimizers.NewMomentum(.1, .9, optimizers.V1), optimizers.Value(1)), []float64{1, 2}, []float64{1, 1}, 2, []float64{.71, 1.71}},
	} {
		for dt, precision := range map[tf.DataType]float64{tf.Float: 3e-6, tf.Double: 1e-12, tf.Half: 5e-3, tf.Bfloat16: 3e-2} {
			t.Run(name+" "+bridge.DTypeName(dt), func(t *testing.T) {
				b := newBench(t)
				v := b.vector("w", dt, c.w...)
				// One optimizer serves several graphs: what it remembers belongs
				// to a variable or to a graph.
				train := b.apply(c.optimizer, b.dense(v, c.grad...))
				b.start()
				b.steps(c.steps, train)
				near(t, c.want, b.value(v), precision)
				assert.Equal(t, []float64{float64(c.steps)}, b.value(train.Iteration))
			})
		}
	}
}

// descent is plain descent as a formula.
func descent() *optimizers.Optimizer {
	return optimizers.Elementwise("descent", func(u *optimizers.Update) tf.Output {
		return u.Sub(u.Var, u.Mul(u.Rate, u.Grad))
	})
}

// The reference case, with Keras' epsilon: Adam's first step on [1,2] by the
// gradients [.1,-.2] at rate .1.
func TestAdamFirstStep(t *testing.T) {
	b := newBench(t)
	v := b.vector("w", tf.Float, 1, 2)
	train := b.apply(optimizers.NewAdam(.1), b.dense(v, .1, -.2))
	b.start()
	b.steps(1, train)
	assert.InDeltaSlice(t, []float64{.900004, 2.099998}, b.value(v), 1e-6)
}

func TestSparseUpdates(t *testing.T) {
	// Rows 2 and 0, row 2 twice: the same as a dense gradient whose row 2 is the sum.
	indices := []int64{2, 0, 2}
	rows := []float64{1, 2, 3, 4, .5, -1}
	full := []float64{3, 4, 0, 0, 1.5, 1}
	start := []float64{.1, .2, .3, .4, .5, .6}
	for name, c := range map[string]struct {
		dense, sparse trainer
		// rowsOnly: rows without a gradient stand still, also where a dense
		// zero would move them.
		rowsOnly bool
	}{
		"gradient descent":   {optimizers.NewGradientDescent(.1), optimizers.NewGradientDescent(.1), true},
		"formula":            {rated(descent(), .1), rated(descent(), .1), true},
		"momentum":           {optimizers.NewMomentum(.1, .9, optimizers.V1), optimizers.NewMomentum(.1, .9, optimizers.V1), true},
		"nesterov":           {nesterov(optimizers.NewMomentum(.1, .9, optimizers.V1)), nesterov(optimizers.NewMomentum(.1, .9, optimizers.V1)), true},
		"keras momentum":     {optimizers.NewMomentum(.1, .9), optimizers.NewMomentum(.1, .9), false},
		"adam":               {optimizers.NewAdam(.1), optimizers.NewAdam(.1), false},
		"lazy adam":          {optimizers.NewAdam(.1), lazy(optimizers.NewAdam(.1)), true},
		"floormod":           {optimizers.NewFloorMod(.1, .7), optimizers.NewFloorMod(.1, .7), true},
		"decayed momentum":   {optimizers.WeightDecay(optimizers.NewMomentum(.1, .9, optimizers.V1), optimizers.Value(.1)), optimizers.WeightDecay(optimizers.NewMomentum(.1, .9, optimizers.V1), optimizers.Value(.1)), false},
		"decayed formula":    {optimizers.WeightDecay(rated(descent(), .1), optimizers.Value(.1)), optimizers.WeightDecay(rated(descent(), .1), optimizers.Value(.1)), false},
		"gated floormod":     {optimizers.NewFloorMod(.1, .7), optimizers.Gated(optimizers.NewFloorMod(.1, .7), optimizers.Value(1)), true},
		"gated, lazy adam":   {optimizers.NewAdam(.1), optimizers.Gated(lazy(optimizers.NewAdam(.1)), optimizers.Value(1)), true},
		"decayed adam":       {optimizers.WeightDecay(optimizers.NewAdam(.1), optimizers.Value(.1)), optimizers.WeightDecay(optimizers.NewAdam(.1), optimizers.Value(.1)), false},
		"gated decayed adam": {optimizers.WeightDecay(optimizers.NewAdam(.1), optimizers.Value(.1)), optimizers.Gated(optimizers.WeightDecay(optimizers.NewAdam(.1), optimizers.Value(.1)), optimizers.Value(1)), false},
		"decayed lazy adam":  {optimizers.WeightDecay(optimizers.NewAdam(.1), optimizers.Value(.1)), optimizers.WeightDecay(lazy(optimizers.NewAdam(.1)), optimizers.Value(.1)), false},
	} {
		for _, dt := range []tf.DataType{tf.Float, tf.Double} {
			t.Run(name+" "+bridge.DTypeName(dt), func(t *testing.T) {
				b := newBench(t)
				d := b.tensor("dense", dt, ops.Shape{3, 2}, start...)
				s := b.tensor("sparse", dt, ops.Shape{3, 2}, start...)
				none := b.tensor("none", dt, ops.Shape{3, 2}, start...)
				trainDense := b.apply(c.dense, b.dense(d, full...))
				trainSparse := b.apply(c.sparse, b.sparse(s, indices, rows...))
				trainNone := b.apply(c.sparse, b.sparse(none, nil))
				b.start()
				before := b.value(s)
				for range 5 {
					b.run(trainDense.Op)
					b.run(trainSparse.Op)
				}
				near(t, b.value(d), b.value(s), 1e-5)
				if c.rowsOnly {
					assert.Equal(t, before[2:4], b.value(s)[2:4], "the row that has no gradient")
					bits := b.bits(none)
					b.steps(2, trainNone)
					assert.Equal(t, bits, b.bits(none), "an empty batch of indices")
				} else {
					b.steps(2, trainNone)
				}
			})
		}
	}
}

// A row that was touched once stands still afterwards in the rules whose
// sparse form updates rows only, and moves on in Adam's.
func TestRowsOfAnEarlierStep(t *testing.T) {
	for name, c := range map[string]struct {
		optimizer trainer
		moves     bool
	}{
		"momentum":       {optimizers.NewMomentum(.1, .9, optimizers.V1), false},
		"keras momentum": {optimizers.NewMomentum(.1, .9), true},
		"adam":           {optimizers.NewAdam(.1), true},
		"lazy adam":      {lazy(optimizers.NewAdam(.1)), false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			v := b.tensor("w", tf.Float, ops.Shape{2, 1}, 1, 1)
			first := b.apply(c.optimizer, b.sparse(v, []int64{0}, 1))
			second := b.apply(c.optimizer, b.sparse(v, []int64{1}, 1))
			b.start()
			b.run(first.Op)
			before := b.value(v)[0]
			b.run(second.Op)
			assert.Equal(t, c.moves, before != b.value(v)[0])
		})
	}
}

// Every update sees all variables as they were before the step, whatever its
// formula reads and however it reads it.
func TestUpdatesSeeTheStepBefore(t *testing.T) {
	for name, read := range map[string]func(u *optimizers.Update, v *ops.Variable) tf.Output{
		"shared read":  func(u *optimizers.Update, v *ops.Variable) tf.Output { return v.Value() },
		"its own read": func(u *optimizers.Update, v *ops.Variable) tf.Output { return v.Read(u.Scope) },
		"a read that comes late": func(u *optimizers.Update, v *ops.Variable) tf.Output {
			wait := u.Grad // zeros
			for range 100 {
				wait = u.Tanh(wait)
			}
			rows := u.Add(wait, ops.Const(u.Scope, ops.Shape{2}, []float32{0, 1}))
			return v.Gather(u.Scope, ops.Cast(u.Scope, rows, tf.Int32))
		},
		"gathered rows": func(u *optimizers.Update, v *ops.Variable) tf.Output {
			return v.Gather(u.Scope, ops.Const(u.Scope, ops.Shape{2}, []int32{0, 1}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			x, y, z := b.vector("x", tf.Float, 1, 2), b.vector("y", tf.Float, 3, 4), b.vector("z", tf.Float, 5, 6)
			next := map[*ops.Variable]*ops.Variable{x: y, y: z, z: x}
			rotate := optimizers.Elementwise("rotate", func(u *optimizers.Update) tf.Output {
				if u.Variable == x {
					return next[x].Value() // x could change at once
				}
				return read(u, next[u.Variable])
			})
			zeros := b.Placeholder("zeros", tf.Float, ops.Shape{2}) // nothing can be computed before the run
			var grads []optimizers.Grad
			for _, v := range []*ops.Variable{x, y, z} {
				grads = append(grads, optimizers.Grad{Variable: v, Gradient: gradients.Gradient{Dense: zeros}})
			}
			train := b.apply(rotate, grads...)
			b.start()
			for i := range 50 {
				fed, err := bridge.FromFlat(ops.Shape{2}, []float32{0, 0})
				require.NoError(t, err)
				_, err = b.sess.Call(t.Context(), bridge.Call{Feeds: []tf.Output{zeros}, Targets: []*tf.Operation{train.Op}}, fed)
				require.NoError(t, err)
				require.NoError(t, fed.Close())
				got := b.fetch(x.Value(), y.Value(), z.Value())
				want := [][]float64{{1, 2}, {3, 4}, {5, 6}}
				require.Equal(t, slices.Concat(want[(i+1)%3:], want[:(i+1)%3]), got, "step %d", i)
			}
		})
	}
}

// A loss of several variables: d/dx = y, d/dy = x. With plain descent the step
// is x-r·y, y-r·x of the old values; an update that saw a new one differs in
// the first step already.
func TestGradientsAreOfTheStepBefore(t *testing.T) {
	for name, optimizer := range map[string]trainer{
		"fused":   optimizers.NewGradientDescent(.5),
		"formula": rated(descent(), .5),
		"gated":   optimizers.Gated(optimizers.NewGradientDescent(.5), optimizers.Value(1)),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			x, y := b.vector("x", tf.Double, 1, 2), b.vector("y", tf.Double, 3, -1)
			loss := sum(b.Root(), raw.Mul(b.Root(), x.Value(), y.Read(b.Root())))
			train := b.minimize(optimizer, loss, x, y)
			b.start()
			want := [2][]float64{{1, 2}, {3, -1}}
			for range 20 {
				results, err := b.sess.Call(t.Context(), bridge.Call{
					Fetches: []tf.Output{x.Value(), y.Value()}, Targets: []*tf.Operation{train.Op}})
				require.NoError(t, err)
				for i, r := range results {
					got, err := bridge.ToFloat64(r)
					require.NoError(t, err)
					require.Equal(t, want[i], got, "a fetch beside the step sees the values before it")
					require.NoError(t, r.Close())
				}
				for i := range 2 {
					want[0][i], want[1][i] = want[0][i]-.5*want[1][i], want[1][i]-.5*want[0][i]
				}
				require.Equal(t, [][]float64{want[0], want[1]}, b.fetch(x.Value(), y.Value()))
			}
		})
	}
}

// sign is a rule as a user writes one: a step of fixed length along the sign
// of an average of gradients, with a tensor shared by all variables, a slot,
// and a count of the elements that have been moved.
type sign struct {
	moved *ops.Variable
}

func (*sign) Name() string { return "Sign" }

func (r *sign) Prepare(a *optimizers.Apply) {
	if r.moved == nil {
		r.moved = a.Scope.Variable("moved", ops.Shape{}, ops.Zeros(), ops.VariableOptions{DType: tf.Int64, NonTrainable: true})
	}
}

func (r *sign) Dense(u *optimizers.Update)  { r.step(u) }
func (r *sign) Sparse(u *optimizers.Update) { r.step(u) }

func (r *sign) step(u *optimizers.Update) {
	half := u.Once("half", func(f ops.Formula) tf.Output { return f.Div(f.Constant(1), f.Constant(2)) })
	average := u.Mul(u.Add(u.Slot("average", ops.Ones()), u.Grad), half)
	u.SetSlot("average", average)
	u.Assign(u.Sub(u.Var, u.Mul(u.Rate, u.Sign(average))))
}

func (r *sign) Finish(a *optimizers.Apply) []*tf.Operation {
	n := int64(0)
	for _, v := range a.Variables {
		elements, _ := v.Shape().NumElements()
		n += elements
	}
	return []*tf.Operation{r.moved.AssignAdd(a.Scope, ops.Number(a.Scope, tf.Int64, float64(n)))}
}

func TestRuleOfAUser(t *testing.T) {
	b := newBench(t)
	rule := &sign{}
	optimizer := &optimizers.Optimizer{Rule: rule, Rate: halving}
	x, y := b.vector("net/x", tf.Float, 0, 0), b.tensor("net/y", tf.Float, ops.Shape{3, 1}, 0, 0, 0)
	train := b.apply(optimizer, b.dense(x, 1, -3), b.sparse(y, []int64{1, 1}, -3, -2))
	b.start()
	b.run(train.Op) // averages: (1+1)/2, (1-3)/2; rows 1: (1-5)/2
	assert.Equal(t, [][]float64{{-1, 1}, {0, 1, 0}}, b.fetch(x.Value(), y.Value()))
	slot, ok := optimizer.Slot(y, "average")
	require.True(t, ok)
	assert.Equal(t, "net/y/Sign", slot.Name())
	assert.False(t, slot.Trainable())
	assert.Equal(t, []float64{1, -2, 1}, b.value(slot), "rows without a gradient keep their slot")
	b.run(train.Op)
	assert.Equal(t, [][]float64{{-1.5, 1.5}, {0, 1.5, 0}}, b.fetch(x.Value(), y.Value()))
	assert.Equal(t, []float64{10}, b.value(rule.moved), "Finish ran once a step")
}

// A rule that panics or gives nothing is an error, not a crash.
func TestRulesThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		formula func(u *optimizers.Update) tf.Output
		want    string
	}{
		"panic":            {func(*optimizers.Update) tf.Output { panic("as tfgo does") }, "as tfgo does"},
		"no tensor":        {func(*optimizers.Update) tf.Output { return tf.Output{} }, `the new value of "w" is no tensor`},
		"rate that is not": {func(u *optimizers.Update) tf.Output { return u.Mul(u.Rate, u.Grad) }, "the optimizer has no Rate"},
		"another shape":    {func(u *optimizers.Update) tf.Output { return u.Constant(1) }, "wanted shape [2]"},
		"another dtype":    {func(u *optimizers.Update) tf.Output { return ops.Cast(u.Scope, u.Var, tf.Double) }, "wanted dtype float"},
		"slot not made": {func(u *optimizers.Update) tf.Output {
			u.SetSlot("m", u.Var)
			return u.Var
		}, `no such slot`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			v := b.vector("w", tf.Float, 1, 2)
			_, err := optimizers.Elementwise("mine", c.formula).ApplyGradients([]optimizers.Grad{b.dense(v, 1, 1)})
			require.ErrorContains(t, err, c.want)
		})
	}
}

// rude panics when it is asked for its name or to check.
type rude struct {
	optimizers.Rule
	name func() string
}

func (r rude) Name() string                { return r.name() }
func (r rude) Check([]*ops.Variable) error { panic("checked") }

func TestRulesThatPanicWhenAskedAreErrors(t *testing.T) {
	inner := optimizers.NewGradientDescent(.1)
	for want, name := range map[string]func() string{"named": func() string { panic("named") }, "checked": func() string { return "rude" }} {
		b := newBench(t)
		v := b.vector("w", tf.Float, 1, 2)
		o := &optimizers.Optimizer{Rule: rude{inner.Rule, name}}
		grads := []optimizers.Grad{b.dense(v, 1, 1)}
		nodes := bridge.NumOperations(b.TF())
		_, err := o.ApplyGradients(grads)
		require.ErrorContains(t, err, want)
		_, err = o.Minimize(v.Value(), []*ops.Variable{v})
		require.ErrorContains(t, err, want)
		require.Equal(t, nodes, bridge.NumOperations(b.TF()), "nothing is added")
	}
}

func TestOptimizersThatWrapThemselvesAreErrors(t *testing.T) {
	b := newBench(t)
	v := b.vector("w", tf.Float, 1, 2)
	loop := &optimizers.Optimizer{Rate: optimizers.Value(1)}
	loop.Rule = loop
	_, err := loop.Minimize(v.Value(), []*ops.Variable{v})
	require.ErrorContains(t, err, "wraps itself")
	_, err = optimizers.Gated((*optimizers.Adam)(nil), optimizers.Value(1)).Minimize(v.Value(), []*ops.Variable{v})
	require.ErrorContains(t, err, "no rule")
}

func TestNamesAsInPython(t *testing.T) {
	b := newBench(t)
	w, other := b.vector("net/w", tf.Float, 1), b.vector("net/b", tf.Float, 1)
	adam, momentum, second := optimizers.NewAdam(.1), optimizers.NewMomentum(.1, .9, optimizers.V1), optimizers.NewAdam(.1)
	assert.Equal(t, "Adam", b.apply(adam, b.dense(w, 1)).Op.Name())
	again := b.apply(adam, b.dense(w, 1), b.dense(other, 1))
	assert.Equal(t, "Adam_1", again.Op.Name())
	assert.Equal(t, "NoOp", again.Op.Type())
	assert.Equal(t, "Momentum", b.apply(momentum, b.dense(w, 1)).Op.Name())
	assert.Equal(t, "Adam_2", b.apply(second, b.dense(w, 1)).Op.Name())
	labelled := optimizers.NewGradientDescent(.1)
	labelled.Label = "fine"
	assert.Equal(t, "fine", b.apply(labelled, b.dense(w, 1)).Op.Name())
	require.NoError(t, b.Err())

	names := func(o trainer) (all []string) {
		for _, v := range o.State(b.Graph) {
			all = append(all, v.Name())
			assert.False(t, v.Trainable(), v.Name())
		}
		return all
	}
	assert.Equal(t, []string{"Adam/iteration", "net/b/Adam", "net/b/Adam_1", "net/w/Adam", "net/w/Adam_1"}, names(adam))
	assert.Equal(t, []string{"Momentum/iteration", "net/w/Momentum"}, names(momentum))
	assert.Equal(t, []string{"Adam_2/iteration", "net/w/Adam_2", "net/w/Adam_3"}, names(second))
	trainOps, err := ops.CollectionOf[*tf.Operation](b.Graph, ops.TrainOp, "")
	require.NoError(t, err)
	assert.Len(t, trainOps, 5)
}

func TestTrainOpsShareSlotsAndSteps(t *testing.T) {
	b := newBench(t)
	x, y := b.vector("x", tf.Float, 1), b.vector("y", tf.Float, 1)
	momentum := optimizers.NewMomentum(.1, .9, optimizers.V1)
	momentum.Rate = halving
	first := b.apply(momentum, b.dense(x, 1))
	b.start()
	b.run(first.Op) // a=1, x=1-1
	slot, _ := momentum.Slot(x, "momentum")
	bits := b.bits(slot, x)

	// A train op over more variables, made after the first has run: it keeps
	// the slot of x and makes one for y.
	second := b.apply(momentum, b.dense(x, 1), b.dense(y, 1))
	fresh, ok := momentum.Slot(y, "momentum")
	require.True(t, ok)
	b.run(b.InitOf(fresh))
	assert.Equal(t, bits, b.bits(slot, x))
	b.run(second.Op) // rate ½; x: a=1.9; y: a=1
	near(t, []float64{-.95}, b.value(x), 1e-6)
	near(t, []float64{.5}, b.value(y), 1e-6)
	assert.Same(t, first.Iteration, second.Iteration)
	assert.Equal(t, []float64{2}, b.value(first.Iteration))
	assert.Equal(t, []float64{.25}, b.fetch(first.Rate)[0], "the rate of the step to come")
}

func TestStepOfTheUsers(t *testing.T) {
	b := newBench(t)
	x := b.vector("x", tf.Float, 1)
	o := optimizers.NewGradientDescent(0)
	o.Rate, o.Step = halving, b.GlobalStep()
	train := b.apply(o, b.dense(x, 1))
	b.start()
	b.steps(3, train)
	assert.Equal(t, []float64{3}, b.value(b.GlobalStep()))
	near(t, []float64{1 - 1.75}, b.value(x), 1e-6)
	assert.Empty(t, o.State(b.Graph), "the step is not the optimizer's own")
}

func TestNonTrainableNamedIsTrained(t *testing.T) {
	b := newBench(t)
	v := b.Variable("w", ops.Shape{1}, ops.Ones(), ops.VariableOptions{NonTrainable: true})
	require.Empty(t, b.Trainable())
	train := b.minimize(optimizers.NewGradientDescent(.5), sum(b.Root(), v.Value()), v)
	b.start()
	b.steps(1, train)
	assert.Equal(t, []float64{.5}, b.value(v))
}

func TestErrorsComeBeforeAnythingIsAdded(t *testing.T) {
	b := newBench(t)
	s := b.Root()
	w, u := b.vector("net/w", tf.Float, 1, 2), b.vector("net/u", tf.Float, 1, 2)
	scalar := b.tensor("scalar", tf.Float, ops.Shape{}, 1)
	whole := b.Variable("whole", ops.Shape{2}, ops.Zeros(), ops.VariableOptions{DType: tf.Int32})
	elsewhere := newBench(t)
	foreign := elsewhere.vector("foreign", tf.Float, 1, 2)
	loss := sum(s, w.Value())
	stopped := sum(s, raw.StopGradient(s, w.Value()))
	blocked := sum(s, raw.Mul(s, w.Value(), raw.Floor(s, u.Value())))
	wholeLoss := raw.Cast(s, loss, tf.Int32)
	unique, _ := raw.Unique(s, w.Value())
	unknown := sum(s, unique)
	good, goodSparse := b.dense(w, 1, 1), b.sparse(w, []int64{0}, 1)
	longer := b.dense(w, 1, 1)
	longer.Dense = numbers(s, tf.Float, ops.Shape{3}, 1, 1, 1)
	other := b.dense(w, 1, 1)
	other.Dense = numbers(s, tf.Double, ops.Shape{2}, 1, 1)
	foreignGrad := elsewhere.dense(foreign, 1, 1)
	foreignGrad.Variable = w
	badIndices := goodSparse
	badIndices.Slices = &gradients.IndexedSlices{Values: goodSparse.Slices.Values, Indices: numbers(s, tf.Float, ops.Shape{1}, 0)}
	incomplete := optimizers.Grad{Variable: w, Gradient: gradients.Gradient{Slices: &gradients.IndexedSlices{}}}
	sparseScalar := goodSparse
	sparseScalar.Variable = scalar
	none := optimizers.Grad{Variable: w}
	require.NoError(t, b.Err())

	gd := optimizers.NewGradientDescent(.1)
	minimize := func(o trainer, loss tf.Output, vars ...*ops.Variable) func() error {
		return func() error { _, err := o.Minimize(loss, vars); return err }
	}
	apply := func(o trainer, grads ...optimizers.Grad) func() error {
		return func() error { _, err := o.ApplyGradients(grads); return err }
	}
	modulus := func(h ops.Hyperparameter) trainer {
		f := optimizers.NewFloorMod(.1, 1)
		f.Modulus = h
		return f
	}
	clipNorm := func(limit float64) func() error {
		return func() error { _, err := optimizers.ClipByGlobalNorm([]optimizers.Grad{good}, limit); return err }
	}
	noBeta := optimizers.NewAdam(.1)
	noBeta.Beta1 = nil
	noRate := optimizers.NewAdam(.1)
	noRate.Rate = nil
	noRateDescent := optimizers.NewGradientDescent(.1)
	noRateDescent.Rate = nil
	badRate, badNoise := optimizers.NewGradientDescent(.1), optimizers.NewFloorMod(.1, 1)
	badRate.Rate, badNoise.Stddev = schedules.ExponentialDecay{}, schedules.ExponentialDecay{}
	foreignStep := optimizers.NewGradientDescent(.1)
	foreignStep.Step = elsewhere.GlobalStep()
	floatStep := optimizers.NewGradientDescent(.1)
	floatStep.Step = scalar

	for name, c := range map[string]struct {
		do   func() error
		want []string
	}{
		"no variables":                    {minimize(gd, loss), []string{"no variables to optimize"}},
		"a nil variable":                  {minimize(gd, loss, w, nil), []string{"variable 1 of 2 is nil"}},
		"a variable twice":                {minimize(gd, loss, w, w), []string{`"net/w" is listed twice`}},
		"a variable of another graph":     {minimize(gd, loss, w, foreign), []string{`"net/w" and "foreign"`, "different graphs"}},
		"the loss in another graph":       {minimize(gd, loss, foreign), []string{"another graph"}},
		"an integer variable":             {minimize(gd, loss, whole), []string{`"whole" is int32`, "floating dtype is wanted"}},
		"an integer loss":                 {minimize(gd, wholeLoss, w), []string{"is int32", "wanted a floating dtype"}},
		"no loss":                         {minimize(gd, tf.Output{}, w), []string{"loss is not a tensor"}},
		"unrelated variables":             {minimize(gd, loss, u), []string{"no gradients", "net/u", loss.Op.Name()}},
		"only through stop_gradient":      {minimize(gd, stopped, w), []string{"no gradients", "net/w", stopped.Op.Name()}},
		"an operation without a gradient": {minimize(gd, unknown, w), []string{"Unique", unique.Op.Name()}},
		"some without a gradient":         {minimize(gd, blocked, w, u), []string{"no gradient", "net/u", "AllowMissing"}},
		"no gradients":                    {apply(gd), []string{"no variables to optimize"}},
		"none that has one":               {apply(gd, none), []string{"no gradients", "net/w"}},
		"gradients for one twice":         {apply(gd, good, good), []string{`"net/w" is listed twice`}},
		"gradient without a variable":     {apply(gd, optimizers.Grad{}), []string{"variable 0 of 1 is nil"}},
		"gradient of another shape":       {apply(gd, longer), []string{`gradient of "net/w"`, "[3]", "wanted [2]"}},
		"gradient of another dtype":       {apply(gd, other), []string{`gradient of "net/w"`, "float64", "wanted float32"}},
		"gradient of another graph":       {apply(gd, foreignGrad), []string{`gradient of "net/w"`, "another graph"}},
		"float indices":                   {apply(gd, badIndices), []string{"indices are float32"}},
		"slices without values":           {apply(gd, incomplete), []string{"not a tensor"}},
		"sparse gradient of a scalar":     {apply(gd, sparseScalar), []string{"the variable is a scalar"}},
		"clip limit of zero":              {clipNorm(0), []string{"limit is 0", "above 0"}},
		"clip limit of NaN":               {clipNorm(math.NaN()), []string{"limit is NaN"}},
		"modulus 0":                       {apply(optimizers.NewFloorMod(.1, 0), good), []string{"modulus 0 is 0"}},
		"modulus NaN":                     {apply(optimizers.NewFloorMod(.1, math.NaN()), good), []string{"modulus is NaN"}},
		"modulus infinite":                {minimize(optimizers.NewFloorMod(.1, math.Inf(-1)), loss, w), []string{"infinite"}},
		"modulus 0 in float32":            {apply(optimizers.NewFloorMod(.1, 1e-60), good), []string{"is 0 in float32", "net/w"}},
		"modulus nil":                     {apply(modulus(nil), good), []string{"modulus is nil"}},
		"beta nil":                        {apply(noBeta, good), []string{"beta1 is nil"}},
		"rate nil":                        {apply(noRate, good), []string{"rate is nil"}},
		"rate nil in descent":             {apply(noRateDescent, good), []string{"rate is nil"}},
		"a schedule that cannot be":       {apply(badRate, good), []string{"rate", "Steps is 0"}},
		"a stddev that cannot be":         {apply(badNoise, good), []string{"stddev", "Steps is 0"}},
		"not by its constructor":          {apply(&optimizers.Adam{}, good), []string{"no rule"}},
		"no rule":                         {apply(&optimizers.Optimizer{}, good), []string{"no rule"}},
		"no formula":                      {apply(optimizers.Elementwise("x", nil), good), []string{"x: the formula is nil"}},
		"gate around nothing":             {apply(optimizers.Gated(nil, optimizers.Value(1)), good), []string{"no rule"}},
		"gate without open":               {apply(optimizers.Gated(gd, nil), good), []string{"open is nil"}},
		"gate around a bad rule":          {apply(optimizers.Gated(optimizers.NewFloorMod(.1, 0), optimizers.Value(1)), good), []string{"modulus 0 is 0"}},
		"decay without a value":           {apply(optimizers.WeightDecay(gd, nil), good), []string{"decay is nil"}},
		"step in another graph":           {apply(foreignStep, good), []string{"another graph", "global_step"}},
		"step that is not an int64":       {apply(floatStep, good), []string{"scalar float32 []", "wanted an int64 scalar"}},
		"operation before it is nil":      {func() error { _, err := gd.ApplyGradients([]optimizers.Grad{good}, nil); return err }, []string{"is nil"}},
		"operation of another graph": {func() error {
			_, err := gd.ApplyGradients([]optimizers.Grad{good}, foreign.Initializer())
			return err
		}, []string{"another graph"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := bridge.NumOperations(b.TF())
			err := c.do()
			require.Error(t, err)
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
			}
			assert.Equal(t, before, bridge.NumOperations(b.TF()), "nodes in the graph")
			assert.NoError(t, b.Err(), "the error does not stick")
		})
	}

	t.Run("all of it works after all", func(t *testing.T) {
		train, err := gd.Minimize(blocked, []*ops.Variable{w, u}, optimizers.GradientOptions{AllowMissing: true})
		require.NoError(t, err)
		assert.Equal(t, []*ops.Variable{w}, train.Variables)
		b.start()
		bits := b.bits(u)
		b.steps(1, train)
		near(t, []float64{.9, 1.8}, b.value(w), 1e-6)
		assert.Equal(t, bits, b.bits(u))
	})
}
