package optimizers

import (
	"errors"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// EMA keeps an exponential moving average of each trained variable, for
// evaluation and saving:
//
//	average := average + (1-Decay)·(w - average)
//
// after each update, the first of which copies w. It is Keras' use_ema. As [V1]
// it is tf.train.ExponentialMovingAverage: the average starts at the initial
// value of the variable and moves from the first update on.
//
// The averages are the slots "average", called "net/w/ExponentialMovingAverage"
// as in Python. [EMA.Swap] puts them in the place of the variables and back.
// Steps that a rule inside leaves out don't count, and a variable that is
// trained later starts then.
type EMA struct {
	Optimizer
	Decay ops.Hyperparameter // from 0 to 1
	// FromInitial lets the average start at the variable's initial value
	// rather than at what the first update made of it.
	FromInitial bool
	// Ramp lowers Decay in the first updates, to (1+n)/(10+n) for the n-th, as
	// num_updates does in Python.
	Ramp bool
	// OverwriteEvery is the number of updates after which the variables are set
	// to their averages, Keras' ema_overwrite_frequency. 0: never.
	OverwriteEvery int64
}

// NewEMA is rule with an [EMA] around it. Keras' decay is 0.99.
func NewEMA(rule Rule, decay float64, as ...Convention) *EMA {
	e := &EMA{Decay: Value(decay), FromInitial: chosen(as) == V1}
	if !missing(rule) {
		e.Rule = &averaging{wrapper: wrapper{rule}, by: e, updates: byVariables{name: "average_updates"}}
	}
	return e
}

// SWA keeps the mean of each trained variable's values, one of every Every
// updates from the update Start on (stochastic weight averaging, Izmailov et
// al., arXiv:1803.05407). The means are the slots "average", called "net/w/SWA",
// and equal to the initial values until there is one. [SWA.Swap] puts them in
// the place of the variables and back.
type SWA struct {
	Optimizer
	Start int64 // number of the first update whose weights count, from 1
	Every int64 // above 0
}

// NewSWA is rule with an [SWA] around it.
func NewSWA(rule Rule, start, every int64) *SWA {
	a := &SWA{Start: start, Every: every}
	if !missing(rule) {
		a.Rule = &averaging{wrapper: wrapper{rule}, by: a, updates: byVariables{name: "average_updates"}}
	}
	return a
}

// average says how weights are averaged.
type average interface {
	name() string
	check() error
	// part is how far the average moves towards the weights after the update
	// number n, from 1, an int64 scalar; and whether it moves at all, the zero
	// Output for always.
	part(s *ops.Scope, step, n tf.Output, dt tf.DataType) (part, due tf.Output)
	overwriteEvery() int64
}

func (e *EMA) average() average { return emaAverage{e} }
func (a *SWA) average() average { return swaAverage{a} }

type (
	emaAverage struct{ *EMA }
	swaAverage struct{ *SWA }
)

func (e emaAverage) name() string          { return "ExponentialMovingAverage" }
func (e emaAverage) overwriteEvery() int64 { return e.OverwriteEvery }

func (e emaAverage) check() error {
	if e.Decay == nil {
		return missingHyperparameter("decay")
	}
	if d, constant := e.Decay.(ops.Fixed); constant && !(d >= 0 && d <= 1) {
		return fmt.Errorf("the decay is %v, wanted a number from 0 to 1", float64(d))
	}
	if e.OverwriteEvery < 0 {
		return fmt.Errorf("the number OverwriteEvery is %d, wanted 0 or more", e.OverwriteEvery)
	}
	return checkHyperparameter("decay", e.Decay)
}

func (e emaAverage) part(s *ops.Scope, step, n tf.Output, dt tf.DataType) (part, due tf.Output) {
	f := ops.NewFormula(s, tf.Float)
	if dt == tf.Double {
		f = f.Of(tf.Double)
	}
	one := f.Constant(1)
	var kept tf.Output
	if d, constant := e.Decay.(ops.Fixed); constant && !e.Ramp {
		part = f.Constant(1 - float64(d))
	} else {
		kept = e.Decay.At(s, step, f.DType)
		if e.Ramp {
			n := f.Cast(n)
			kept = f.Minimum(kept, f.Div(f.Add(one, n), f.Add(f.Constant(10), n)))
		}
		part = f.Sub(one, kept)
	}
	if !e.FromInitial {
		i := ops.NewFormula(s, tf.Int64)
		part = f.Select(i.Equal(n, i.Constant(1)), one, part)
	}
	return f.Of(dt).Cast(part), tf.Output{}
}

func (a swaAverage) name() string          { return "SWA" }
func (a swaAverage) overwriteEvery() int64 { return 0 }

func (a swaAverage) check() error {
	if a.Start <= 0 || a.Every <= 0 {
		return fmt.Errorf("the settings Start %d and Every %d, wanted both above 0", a.Start, a.Every)
	}
	return nil
}

func (a swaAverage) part(s *ops.Scope, _, n tf.Output, dt tf.DataType) (part, due tf.Output) {
	i := ops.NewFormula(s, tf.Int64)
	start, every := ops.Const(s, ops.Shape{}, []int64{a.Start}), ops.Const(s, ops.Shape{}, []int64{a.Every})
	since := i.Sub(n, start)
	due = i.And(i.GreaterEqual(since, i.Constant(0)), i.Equal(i.FloorMod(since, every), i.Constant(0)))
	f := ops.NewFormula(s, dt)
	wide := f.Of(tf.Double)
	return f.Cast(wide.Reciprocal(wide.Cast(i.Add(i.FloorDiv(since, every), i.Constant(1))))), due
}

type averaging struct {
	wrapper
	by      interface{ average() average }
	updates byVariables
	made    []*ops.Variable // what has an average, in this order
	kept    map[*ops.Variable]*ops.Variable
}

func (r *averaging) Check([]*ops.Variable) error {
	if err := r.by.average().check(); err != nil {
		return fmt.Errorf("%s: %w", r.by.average().name(), err)
	}
	return nil
}

// of is the average of a variable, made at the first call.
func (r *averaging) of(a *Apply, v *ops.Variable) *ops.Variable {
	if kept := r.kept[v]; kept != nil {
		return kept
	}
	kept := a.optimizer.slotOf(slotKey{v, r, "average"}, r.by.average().name(), v.Shape(), initialValue(v))
	if r.kept == nil {
		r.kept = map[*ops.Variable]*ops.Variable{}
	}
	r.made, r.kept[v] = append(r.made, v), kept
	return kept
}

func (r *averaging) Finish(a *Apply) []*tf.Operation {
	by := r.by.average()
	for _, v := range a.Variables {
		r.of(a, v)
	}
	return a.whenMoved(r.inner.Finish(a), func(s *ops.Scope) (done []*tf.Operation) {
		s = s.NameScope(by.name())
		counts, vars := r.updates.of(a)
		for _, count := range counts {
			i := ops.NewFormula(s, tf.Int64)
			counted := count.AssignAdd(s, i.Constant(1))
			if counted == nil {
				return nil
			}
			s := s.WithControl(counted)
			n := count.Read(s)
			averaged := r.move(s, a, by, n, vars[count])
			done = append(done, averaged...)
			every := by.overwriteEvery()
			if every == 0 || s.Err() != nil {
				continue
			}
			i = i.In(s)
			due := i.Equal(i.FloorMod(n, ops.Const(s, ops.Shape{}, []int64{every})), i.Constant(0))
			done = append(done, when(s.WithControl(averaged...), due, func(s *ops.Scope) (all []*tf.Operation) {
				for _, v := range vars[count] {
					all = append(all, v.Assign(s, r.kept[v].Read(s)))
				}
				return all
			}))
		}
		return done
	})
}

// move moves the averages of variables towards them.
func (r *averaging) move(s *ops.Scope, a *Apply, by average, n tf.Output, vars []*ops.Variable) []*tf.Operation {
	var due tf.Output
	parts := map[tf.DataType]tf.Output{}
	for _, v := range vars {
		if parts[v.DType()].Op == nil {
			parts[v.DType()], due = by.part(s, a.Step, n, v.DType())
		}
	}
	if s.Err() != nil {
		return nil
	}
	body := func(s *ops.Scope) (all []*tf.Operation) {
		for _, v := range vars {
			f, kept := ops.NewFormula(s, v.DType()), r.kept[v]
			old := kept.Read(s)
			all = append(all, kept.Assign(s, f.Add(old, f.Mul(f.Sub(v.Read(s), old), parts[v.DType()]))))
		}
		return all
	}
	if due.Op == nil {
		return body(s)
	}
	return []*tf.Operation{when(s, due, body)}
}

// Average is the variable that holds the average of v, and whether there is one.
func (e *EMA) Average(v *ops.Variable) (*ops.Variable, bool) { return averageIn(e.Rule, v) }

// Average is the variable that holds the mean of v, and whether there is one.
func (a *SWA) Average(v *ops.Variable) (*ops.Variable, bool) { return averageIn(a.Rule, v) }

func averageIn(rule Rule, v *ops.Variable) (*ops.Variable, bool) {
	r, ok := rule.(*averaging)
	if !ok {
		return nil, false
	}
	kept, ok := r.kept[v]
	return kept, ok
}

// Swap adds an operation to g that exchanges all variables that have an average
// with it. Run it before evaluating or saving, and again before training goes on.
func (e *EMA) Swap(g *ops.Graph) (*tf.Operation, error) { return swapIn(e.Rule, g) }

// Swap adds an operation to g that exchanges all variables that have a mean with
// it. Run it before evaluating or saving, and again before training goes on.
func (a *SWA) Swap(g *ops.Graph) (*tf.Operation, error) { return swapIn(a.Rule, g) }

func swapIn(rule Rule, g *ops.Graph) (*tf.Operation, error) {
	r, ok := rule.(*averaging)
	if !ok {
		return nil, errNoRule
	}
	mine := Where(r.made, func(v *ops.Variable) bool { return v.Graph() == g })
	if len(mine) == 0 {
		return nil, errors.New("swap: no variable of the graph has an average; call Minimize or ApplyGradients first")
	}
	var swapped *tf.Operation
	err := g.Build(func() error {
		s := g.Root().NameScope("swap")
		now, kept := make([]tf.Output, len(mine)), make([]tf.Output, len(mine))
		var read operations
		for i, v := range mine {
			now[i], kept[i] = v.Read(s), r.kept[v].Read(s)
			read.addOutputs(now[i], kept[i])
		}
		after := s.WithControl(read.list...)
		var done []*tf.Operation
		for i, v := range mine {
			done = append(done, v.Assign(after, kept[i]), r.kept[v].Assign(after, now[i]))
		}
		if g.Err() == nil {
			swapped = s.Group("done", done...)
		}
		return nil
	})
	return swapped, err
}
