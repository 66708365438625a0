package optimizers

import (
	"errors"
	"reflect"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
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
	if v := reflect.ValueOf(rule); v.Kind() == reflect.Pointer && v.IsNil() {
		return &Optimizer{} // which has no rule, as its first use says
	}
	return &Optimizer{Rule: &gated{inner: rule, open: open}}
}

type gated struct {
	inner Rule
	open  ops.Hyperparameter
}

func (g *gated) Name() string { return g.inner.Name() }
func (g *gated) Unwrap() Rule { return g.inner }

func (g *gated) Check([]*ops.Variable) error {
	if g.open == nil {
		return errors.New("gated: open is nil; wanted a value, a schedule or ops.Fed(tensor)")
	}
	return checkHyperparameter("open", g.open)
}

// gate is the gate of one train op. Everything behind it has a control
// dependency on pivot, which a Switch leaves dead while the gate is closed;
// dead operations don't run. This is how v1's tf.cond works.
type gate struct {
	pivot, closed tf.Output // one of them is alive
	apply         *Apply    // for the rule behind the gate
	updates       []*Update
	done          *tf.Operation
	counter       *ops.Variable
}

func (g *gated) gateOf(a *Apply) *gate {
	return a.Keep(g, func() any {
		s := a.Scope.NameScope("gate")
		f := ops.NewFormula(s, tf.Float)
		open := f.NotEqual(a.Param("open", g.open, tf.Float), f.Constant(0))
		closed, opened := raw.Switch(s, open, open)
		here := &gate{pivot: raw.Identity(s, opened), closed: raw.Identity(s, closed)}
		here.apply = a.Nested(here.pivot.Op)
		here.apply.updates = func() tf.Output {
			if here.counter == nil {
				here.counter = a.State(g, "open_iteration", tf.Int64, ops.Shape{}, ops.Zeros())
			}
			return here.counter.Value()
		}
		return here
	}).(*gate)
}

// merge is an operation that runs after all, and also where they are dead.
func (g *gate) merge(s *ops.Scope, all ...*tf.Operation) *tf.Operation {
	done := raw.Identity(s.WithControl(all...), g.pivot)
	merged, _ := raw.Merge(s, []tf.Output{g.closed, done})
	return merged.Op
}

func (g *gated) Prepare(a *Apply) { g.inner.Prepare(g.gateOf(a).apply) }

func (g *gated) Dense(u *Update)  { g.update(u, g.inner.Dense) }
func (g *gated) Sparse(u *Update) { g.update(u, g.inner.Sparse) }

func (g *gated) update(u *Update, inner func(*Update)) {
	gate := g.gateOf(u.Apply)
	nested := u.Nested(gate.apply, gate.pivot.Op)
	inner(nested)
	gate.updates = append(gate.updates, nested)
	u.Do(func(s *ops.Scope) *tf.Operation { return gate.emit(u.Apply.Scope, s) })
}

// emit adds the updates of all variables, at the first call.
func (g *gate) emit(s, ready *ops.Scope) *tf.Operation {
	if g.done != nil || s.Err() != nil {
		return g.done
	}
	var values operations
	for _, u := range g.updates {
		values.add(u.Computed()...)
	}
	computed := ready.Group("gate", append(values.list, g.pivot.Op)...)
	var all []*tf.Operation
	for _, u := range g.updates {
		all = append(all, u.Emit(computed)...)
	}
	g.done = g.merge(s, all...)
	return g.done
}

func (g *gated) Finish(a *Apply) []*tf.Operation {
	gate := g.gateOf(a)
	last := *gate.apply
	last.Scope = a.Scope.WithControl(gate.pivot.Op)
	all := g.inner.Finish(&last)
	if gate.counter != nil {
		all = append(all, gate.counter.AssignAdd(last.Scope, ops.Number(last.Scope, tf.Int64, 1)))
	}
	if len(all) == 0 || a.Scope.Err() != nil {
		return nil
	}
	return []*tf.Operation{gate.merge(a.Scope, all...)}
}
