package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// Rule is what makes one optimizer different from another: how a variable
// changes, given its gradient. GradientDescent, Momentum, Adam and FloorMod of
// this package are rules, and nothing they use is closed to yours.
//
// A rule only says what the new values are ([Update.Assign], [Update.SetSlot],
// [Update.Do]). The operations that store them are added when every variable
// has been asked for, and run when all values have been computed: each update
// of a step sees all variables as they were before the step.
//
// A rule with a single elementwise formula needs no type of its own, see
// [Elementwise].
type Rule interface {
	// Name is the name of the rule's operations and slots where the optimizer
	// has no Label: "Adam".
	Name() string
	// Prepare runs once per train op, before the variables: the place for
	// tensors that all of them share.
	Prepare(a *Apply)
	// Dense updates a variable whose gradient is a tensor of its shape.
	Dense(u *Update)
	// Sparse updates the rows u.Indices of a variable, whose gradient is
	// u.Grad with one row per index, duplicates summed.
	Sparse(u *Update)
	// Finish adds what runs after all variables have changed, in a.Scope,
	// whose nodes wait for that. It may return nil.
	Finish(a *Apply) []*tf.Operation
}

// PerVariable is embedded by rules that have nothing to do before and after
// the variables: it is their Prepare and Finish.
type PerVariable struct{}

// Prepare does nothing.
func (PerVariable) Prepare(*Apply) {}

// Finish does nothing.
func (PerVariable) Finish(*Apply) []*tf.Operation { return nil }

// Checker is implemented by rules that can tell from their settings that they
// won't work. It is asked before anything is added to the graph.
type Checker interface {
	// Check is given the variables that are about to be trained, all of one
	// graph and of floating dtype.
	Check(vars []*ops.Variable) error
}

// Wrapper is implemented by rules that change what another rule does, such as
// [Gated]. The optimizer inside keeps the slots, the count of steps, the name
// and, where the wrapper has none, the rate.
type Wrapper interface {
	Rule
	Unwrap() Rule
}

// Elementwise is an optimizer of one formula, which gives a variable's new
// value from its value and its gradient, element by element. The dense and the
// sparse update both follow from it: in a sparse one u.Var, u.Grad and the
// slots are the rows that the gradient touches, so whatever the formula does
// to one row it does to no other.
//
//	rule := optimizers.Elementwise("descent", func(u *optimizers.Update) tf.Output {
//		return u.Sub(u.Var, u.Mul(u.Rate, u.Grad))
//	})
//	rule.Rate = schedules.ExponentialDecay{Initial: 0.1, Steps: 1000, Rate: 0.96}
//
// What a formula remembers from step to step it keeps in slots:
//
//	rule := optimizers.Elementwise("momentum", func(u *optimizers.Update) tf.Output {
//		m := u.Add(u.Mul(u.Constant(0.9), u.Slot("momentum", ops.Zeros())), u.Grad)
//		u.SetSlot("momentum", m)
//		return u.Sub(u.Var, u.Mul(u.Rate, m))
//	})
//
// Without a Rate, u.Rate is the zero Output and the formula must not use it.
func Elementwise(name string, formula func(u *Update) tf.Output) *Optimizer {
	return &Optimizer{Rule: &elementwise{name: name, formula: formula}}
}

type elementwise struct {
	PerVariable
	name    string
	formula func(*Update) tf.Output
}

func (e *elementwise) Name() string { return e.name }

func (e *elementwise) Check([]*ops.Variable) error {
	if e.formula == nil {
		return errNoFormula
	}
	return nil
}

func (e *elementwise) Dense(u *Update)  { u.Assign(e.formula(u)) }
func (e *elementwise) Sparse(u *Update) { u.Assign(e.formula(u)) }
