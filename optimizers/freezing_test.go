package optimizers_test

import (
	"maps"
	"slices"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
)

// rules are the rules that every way of freezing is tried with.
var rules = map[string]func() trainer{
	"descent":  func() trainer { return optimizers.NewGradientDescent(.1) },
	"momentum": func() trainer { return optimizers.NewMomentum(.05, .9) },
	"adam":     func() trainer { return optimizers.NewAdam(.01) },
	"decay": func() trainer {
		return optimizers.WeightDecay(optimizers.NewAdam(.01), optimizers.Value(.1))
	},
	"formula":  func() trainer { return rated(descent(), .1) },
	"floormod": func() trainer { f := optimizers.NewFloorMod(.1, 3); f.Stddev = optimizers.Value(.1); return f },
}

// pair is a small adversarial pair, Z → [G] → fake → [D] → score.
type pair struct {
	*bench
	open               tf.Output // feeds the gate, 1 where it is not fed
	gw, gb, dw, db     *ops.Variable
	fake, lossG, lossD tf.Output
	meanG, meanD       *ops.Variable // moving averages, in UPDATE_OPS
}

func newPair(t *testing.T, trainable bool, boundary func(p *pair, fake tf.Output) tf.Output) *pair {
	p := &pair{bench: newBench(t)}
	one := ops.Number(p.Root(), tf.Float, 1)
	p.open = p.PlaceholderWithDefault("open", one, ops.Shape{})
	z := ops.Const(p.Root(), ops.Shape{4, 3}, []float32{.1, -.4, 1.2, .7, .3, -.9, -1.1, .2, .5, .6, -.8, .4})
	real := ops.Const(p.Root(), ops.Shape{4, 2}, []float32{1, .5, .8, .7, 1.2, .3, .9, .6})
	variable := func(s *ops.Scope, name string, trainable bool, shape ...int64) *ops.Variable {
		return s.Variable(name, shape, ops.Uniform(.1, .9), ops.VariableOptions{NonTrainable: !trainable})
	}
	layer := func(s *ops.Scope, x tf.Output, w, b *ops.Variable) tf.Output {
		return raw.Tanh(s, raw.BiasAdd(s, raw.MatMul(s, x, w.Value()), b.Value()))
	}
	moving := func(s *ops.Scope, x tf.Output) *ops.Variable {
		mean := variable(s.Scope("norm"), "moving_mean", false, 2)
		f := ops.NewFormula(s, tf.Float)
		now := raw.Mean(s, x, ops.Const(s, ops.Shape{1}, []int32{0}))
		p.AddToCollection(ops.UpdateOps, mean.AssignSub(s, f.Mul(f.Sub(mean.Value(), now), f.Constant(.1))))
		return mean
	}
	g, d := p.Scope("gan/G"), p.Scope("gan/D")
	p.gw, p.gb = variable(g, "w", trainable, 3, 2), variable(g, "b", trainable, 2)
	p.dw, p.db = variable(d, "w", true, 2, 2), variable(d, "b", true, 2)
	p.fake = layer(g, z, p.gw, p.gb)
	p.meanG = moving(g, p.fake)
	seen := boundary(p, p.fake)
	scoreFake, scoreReal := layer(d, seen, p.dw, p.db), layer(d, real, p.dw, p.db)
	p.meanD = moving(d, scoreFake)
	p.lossG = sum(p.Root(), raw.Neg(p.Root(), scoreFake))
	p.lossD = sum(p.Root(), raw.Sub(p.Root(), raw.Square(p.Root(), scoreFake), scoreReal))
	return p
}

func open(_ *pair, fake tf.Output) tf.Output { return fake }

// Whoever is frozen stays as it is to the bit, slots and statistics included,
// while the other trains. 100 steps each.
func TestFrozenStaysBitIdentical(t *testing.T) {
	type ways struct {
		boundary     func(p *pair, fake tf.Output) tf.Output
		notTrainable bool
		// vars are what the step trains.
		vars func(p *pair) []*ops.Variable
		// loss is the loss it minimizes.
		loss func(p *pair) tf.Output
	}
	g := func(p *pair) []*ops.Variable { return []*ops.Variable{p.gw, p.gb, p.meanG} }
	d := func(p *pair) []*ops.Variable { return []*ops.Variable{p.dw, p.db, p.meanD} }
	lossD := func(p *pair) tf.Output { return p.lossD }
	lossG := func(p *pair) tf.Output { return p.lossG }
	for name, c := range map[string]struct {
		ways
		trained, frozen func(p *pair) []*ops.Variable
	}{
		"scope, D trains":          {ways{open, false, func(p *pair) []*ops.Variable { return p.Trainable("gan/D/") }, lossD}, d, g},
		"scope, G trains":          {ways{open, false, func(p *pair) []*ops.Variable { return p.Trainable("gan/G") }, lossG}, g, d},
		"variables named directly": {ways{open, false, func(p *pair) []*ops.Variable { return []*ops.Variable{p.db, p.dw} }, lossD}, d, g},
		"by predicate": {ways{open, false, func(p *pair) []*ops.Variable {
			return optimizers.Where(p.Trainable(), func(v *ops.Variable) bool { return ops.InScope(v.Name(), "gan/D") })
		}, lossD}, d, g},
		"trainable=false": {ways{open, true, func(p *pair) []*ops.Variable { return p.Trainable() }, lossD}, d, g},
		"stop_gradient": {ways{func(p *pair, fake tf.Output) tf.Output { return ops.StopGradient(p.Root(), fake) }, false,
			func(p *pair) []*ops.Variable { return p.Trainable() }, lossD}, d, g},
	} {
		for rule, optimizer := range rules {
			t.Run(name+", "+rule, func(t *testing.T) {
				p := newPair(t, !c.notTrainable, c.boundary)
				// A first train op of the same optimizer moves everything, so
				// that there are slots of what is frozen afterwards.
				o := optimizer()
				everything := append(slices.Clone(g(p)[:2]), d(p)[:2]...)
				warm, err := o.Minimize(raw.AddV2(p.Root(), p.lossD, p.lossG), everything, optimizers.GradientOptions{AllowMissing: true})
				require.NoError(t, err)
				train, err := o.Minimize(c.loss(p), c.vars(p), optimizers.GradientOptions{AllowMissing: true})
				require.NoError(t, err)
				p.start()
				p.steps(3, warm)

				trained, frozen := p.withSlots(o, c.trained(p)), p.withSlots(o, c.frozen(p))
				before, after := p.bits(frozen...), p.bits(trained...)
				for range 100 {
					p.run(train.Op)
				}
				assert.Equal(t, before, p.bits(frozen...), "frozen")
				for name, bits := range p.bits(trained...) {
					assert.NotEqual(t, after[name], bits, "%s was trained", name)
				}
			})
		}
	}
}

// withSlots are variables and what the optimizer remembers of them.
func (p *pair) withSlots(o trainer, vars []*ops.Variable) []*ops.Variable {
	all := slices.Clone(vars)
	for _, v := range vars {
		for _, name := range []string{"momentum", "m", "v"} {
			if slot, ok := o.Slot(v, name); ok {
				all = append(all, slot)
			}
		}
	}
	return all
}

// A closed gate on a tensor gives the variables behind it a zero gradient:
// plain descent leaves them bit-identical, slots and decay go on as they do
// with a zero gradient. A closed Gated holds all still.
func TestGates(t *testing.T) {
	gate := func(p *pair, fake tf.Output) tf.Output { return ops.Gate(p.Root(), p.open, fake) }
	for rule, optimizer := range rules {
		t.Run(rule, func(t *testing.T) {
			p := newPair(t, true, gate)
			o, zero := optimizer(), newPair(t, true, gate)
			train := p.minimize(o, p.lossD, p.Trainable()...)
			p.start()
			require.NoError(t, p.feed(train.Op, map[tf.Output]float32{p.open: 1}))

			// The same with an explicit zero gradient for G.
			oz := optimizer()
			grads, err := optimizers.ComputeGradients(zero.lossD, zero.Trainable())
			require.NoError(t, err)
			first := zero.apply(oz, grads...)
			for i, grad := range grads[:2] {
				grads[i].Dense = raw.ZerosLike(zero.Root(), grad.Dense)
			}
			second := zero.apply(oz, grads...)
			zero.start()
			zero.run(first.Op)

			before := p.bits(p.gw, p.gb)
			for range 100 {
				require.NoError(t, p.feed(train.Op, map[tf.Output]float32{p.open: 0}))
				zero.run(second.Op)
			}
			still := maps.EqualFunc(before, p.bits(p.gw, p.gb), slices.Equal[[]byte])
			assert.Equal(t, rule == "descent" || rule == "formula", still, "G stood still")
			assert.Equal(t, zero.bits(zero.gw, zero.gb, zero.dw, zero.db), p.bits(p.gw, p.gb, p.dw, p.db), "as with a zero gradient")
		})
	}
}

func TestGatedHoldsEverythingStill(t *testing.T) {
	for rule, optimizer := range rules {
		t.Run(rule, func(t *testing.T) {
			p, free := newPair(t, true, open), newPair(t, true, open)
			gate := p.Placeholder("gate", tf.Float, ops.Shape{})
			o := optimizers.Gated(optimizer(), ops.Fed(gate))
			train, err := o.ApplyGradients(mustGradients(t, p.lossD, p.Trainable()))
			require.NoError(t, err)
			reference, err := optimizer().ApplyGradients(mustGradients(t, free.lossD, free.Trainable()))
			require.NoError(t, err)
			p.start()
			free.start()
			all := slices.DeleteFunc(p.Variables(), func(v *ops.Variable) bool { return v == train.Iteration })
			updates := 0
			for i := range 100 {
				open := float32(i * 7 % 3) // 0, 1, 2: open where it is not 0
				before := p.bits(all...)
				require.NoError(t, p.feed(train.Op, map[tf.Output]float32{gate: open}))
				if open == 0 {
					require.Equal(t, before, p.bits(all...), "step %d", i)
				} else {
					require.NotEqual(t, before, p.bits(all...), "step %d", i)
					updates++
				}
			}
			assert.Equal(t, []float64{100}, p.value(train.Iteration), "the count goes on")
			if rule == "floormod" {
				return // its noise is that of the step, which a free run counts otherwise
			}
			free.steps(updates, reference)
			assert.Equal(t, free.bits(free.Trainable()...), p.bits(p.Trainable()...), "as if the closed steps had not been")
		})
	}
}

func mustGradients(t *testing.T, loss tf.Output, vars []*ops.Variable) []optimizers.Grad {
	t.Helper()
	grads, err := optimizers.ComputeGradients(loss, vars)
	require.NoError(t, err)
	return grads
}

// A gate that a schedule opens, around a rule that does something at the end.
func TestGatedFinishAndSchedules(t *testing.T) {
	b := newBench(t)
	rule := &sign{}
	inner := &optimizers.Optimizer{Rule: rule, Rate: halving}
	fromStep2 := ops.HyperparameterFunc(func(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
		return ops.Cast(s, raw.GreaterEqual(s, step, ops.Number(s, tf.Int64, 2)), dt)
	})
	x := b.vector("x", tf.Float, 0, 0)
	train := b.apply(optimizers.Gated(inner, fromStep2), b.dense(x, 1, -3))
	b.start()
	b.steps(2, train)
	assert.Equal(t, []float64{0, 0}, b.value(x))
	assert.Equal(t, []float64{0}, b.value(rule.moved), "Finish did not run")
	b.steps(1, train) // the rate of step 2 is ¼
	assert.Equal(t, []float64{-.25, .25}, b.value(x))
	assert.Equal(t, []float64{2}, b.value(rule.moved))
	slot, ok := inner.Slot(x, "average")
	require.True(t, ok, "the slots are the inner optimizer's")
	assert.Equal(t, "x/Sign", slot.Name())
}

func TestUpdateOpsBelongToWhatIsTrained(t *testing.T) {
	b := newBench(t)
	s := b.Root()
	stat := func(name string) {
		v := b.Variable(name, ops.Shape{}, ops.Zeros(), ops.VariableOptions{NonTrainable: true})
		b.AddToCollection(ops.UpdateOps, v.AssignAdd(s, ops.Number(s, tf.Float, 1)))
	}
	for _, name := range []string{"net/a/norm/mean", "net/a/bare/mean", "net/b/norm/mean", "mean"} {
		stat(name)
	}
	grouped := b.Variable("net/b/grouped", ops.Shape{}, ops.Zeros(), ops.VariableOptions{NonTrainable: true})
	b.AddToCollection(ops.UpdateOps, b.Group("group", grouped.AssignAdd(s, ops.Number(s, tf.Float, 1))))
	b.AddToCollection(ops.UpdateOps, b.Group("log"))
	aNorm, aW, bW := b.vector("net/a/norm/gamma", tf.Float, 1), b.vector("net/a/w", tf.Float, 1), b.vector("net/b/w", tf.Float, 1)
	b.vector("net/b/norm/gamma", tf.Float, 1)
	require.NoError(t, b.Err())

	for name, c := range map[string]struct {
		vars []*ops.Variable
		want []string // updated variables; "" for an operation that updates none
	}{
		"a layer's own scale":       {[]*ops.Variable{aNorm}, []string{"mean", "net/a/bare/mean", "net/a/norm/mean"}},
		"weights beside a norm":     {[]*ops.Variable{aW}, []string{"mean", "net/a/bare/mean"}},
		"another part of the model": {[]*ops.Variable{bW}, []string{"mean", "net/b/grouped"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			free := 0
			for _, op := range optimizers.UpdateOps(b.Graph, c.vars) {
				if op.Name() == "group" {
					got = append(got, "net/b/grouped")
				} else if op.Name() == "log" {
					free++
				} else {
					got = append(got, bridge.Input(op, 0).Op.Name())
				}
			}
			slices.Sort(got)
			assert.Equal(t, c.want, got)
			assert.Equal(t, 1, free, "an operation that updates nothing always runs")
		})
	}
}

// A training that is saved and gone on with in another session is the
// uninterrupted one, to the bit.
func TestResumeEqualsUninterrupted(t *testing.T) {
	for rule, optimizer := range rules {
		t.Run(rule, func(t *testing.T) {
			p := newPair(t, true, open)
			o := optimizer()
			train := p.minimize(o, p.lossD, p.Trainable()...)
			all := append(p.Trainable(), o.State(p.Graph)...)
			all = append(all, p.meanG, p.meanD)
			fed := make([]tf.Output, len(all))
			restores := make([]*tf.Operation, len(all))
			for i, v := range all {
				fed[i] = p.Placeholder("saved", v.DType(), v.Shape())
				restores[i] = v.Assign(p.Root(), fed[i])
			}
			restore := p.Group("restore", restores...)
			p.start()
			p.steps(20, train)
			want := p.bits(all...)

			p.start()
			p.steps(9, train)
			outs := make([]tf.Output, len(all))
			for i, v := range all {
				outs[i] = v.Value()
			}
			saved, err := p.sess.Call(t.Context(), bridge.Call{Fetches: outs})
			require.NoError(t, err)
			p.start()
			p.steps(2, train) // somewhere else
			_, err = p.sess.Call(t.Context(), bridge.Call{Feeds: fed, Targets: []*tf.Operation{restore}}, saved...)
			require.NoError(t, err)
			for _, s := range saved {
				require.NoError(t, s.Close())
			}
			p.steps(11, train)
			assert.Equal(t, want, p.bits(all...))
		})
	}
}

// Behind a closed gate nothing runs, so nothing can fail either.
func TestClosedGateComputesNothing(t *testing.T) {
	b := newBench(t)
	gate := b.Placeholder("gate", tf.Float, ops.Shape{})
	x := b.vector("x", tf.Float, 0, 1)
	strict := optimizers.Elementwise("strict", func(u *optimizers.Update) tf.Output {
		return raw.CheckNumerics(u.Scope, u.Div(u.Grad, u.Var), "division by a weight")
	})
	train := b.apply(optimizers.Gated(strict, ops.Fed(gate)), b.dense(x, 1, 1))
	b.start()
	require.NoError(t, b.feed(train.Op, map[tf.Output]float32{gate: 0}))
	require.ErrorContains(t, b.feed(train.Op, map[tf.Output]float32{gate: 1}), "division by a weight")
	assert.Equal(t, []float64{0, 1}, b.value(x))
}
