package optimizers

import (
	"errors"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// Gated is rule, held still in every step in which open is 0: variables and
// slots stay bit-identical, and nothing of the update is computed. In any
// other step it is rule itself. open is a constant, a schedule, or a tensor
// that is fed or drawn.
//
// The count of steps goes on while the gate is closed, so that schedules do;
// bias corrections (Adam's) count only the steps with the gate open.
//
// To close a gate on part of a forward graph instead, see [ops.Gate]: there
// the variables get a zero gradient, and slots and decay go on.
func Gated(rule Rule, open ops.Hyperparameter) *Optimizer {
	return around(rule, &gated{wrapper: wrapper{rule}, open: open})
}

type gated struct {
	wrapper
	open ops.Hyperparameter
}

func (g *gated) Check([]*ops.Variable) error {
	if g.open == nil {
		return errors.New("gated: open is nil; wanted a value, a schedule or ops.Fed(tensor)")
	}
	return checkHyperparameter("open", g.open)
}

// openings counts the steps with the gate open, where a rule asks for it.
type openings struct {
	*gate
	counter *ops.Variable
}

func (g *gated) Together(a *Apply, all []*Update) {
	s := a.Scope.NameScope("gate")
	f := ops.NewFormula(s, tf.Float)
	here := &openings{gate: newGate(a, s, f.NotEqual(a.Param("open", g.open, tf.Float), f.Constant(0)))}
	a.Keep(g, func() any { return here })
	if here.apply == nil {
		return
	}
	here.apply.updates = func() tf.Output {
		if here.counter == nil {
			here.counter = a.State(g, "open_iteration", tf.Int64, ops.Shape{}, ops.Zeros())
		}
		return here.counter.Value()
	}
	here.run(g.inner, all, nil)
}

func (g *gated) Finish(a *Apply) []*tf.Operation {
	here, made := a.Keep(g, func() any { return nil }).(*openings)
	if !made {
		return nil
	}
	return here.finish(g.inner, a, false, func(last *Apply, advance tf.Output) []*tf.Operation {
		if here.counter == nil {
			return nil
		}
		return []*tf.Operation{here.counter.AssignAdd(last.Scope, advance)}
	})
}
