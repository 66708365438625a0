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
//
// A wrapper has a Together, in which it hands the updates of all variables on by
// [Apply.Run]: the rule inside may be a wrapper that has to see them all.
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
	r := &rule{name: name}
	if formula != nil {
		r.dense = func(u *Update) { u.Assign(formula(u)) }
	}
	return &Optimizer{Rule: r}
}

// Convention is whose defaults an optimizer has where Python has two of them:
// the last argument of its constructor. What they differ in are fields, which
// stay open.
type Convention int

const (
	// Keras has the defaults of keras.optimizers (Keras 3), and moves all rows
	// of a variable with a sparse gradient as a dense one with zeros would. It
	// is what counts where nothing is said.
	Keras Convention = iota
	// V1 has the defaults and the formula of tf.compat.v1.train, and touches
	// only the rows of a sparse gradient where that does.
	V1
)

// chosen is the convention among a constructor's arguments.
func chosen(as []Convention) Convention {
	if len(as) == 0 {
		return Keras
	}
	return as[len(as)-1]
}

// settings are hyperparameters by name.
type settings = map[string]ops.Hyperparameter

// rule is the Rule of all optimizers that treat each variable by itself.
type rule struct {
	PerVariable
	name  string
	dense func(*Update)
	// rows updates the rows of a sparse gradient; nil: as dense does.
	rows func(*Update)
	// lazy says whether a sparse gradient updates only its rows; nil: always.
	lazy *bool
	// settings must be there, check is what else has to be right; both may be nil.
	settings func() settings
	check    func([]*ops.Variable) error
	finish   func(*Apply) []*tf.Operation
	of       *Optimizer // which must have a rate; nil: may do without
}

// use gives an optimizer its rule and rate.
func (o *Optimizer) use(r *rule, rate float64) {
	r.of, o.Rule, o.Rate = o, r, Value(rate)
}

func (r *rule) Name() string { return r.name }

func (r *rule) Check(vars []*ops.Variable) error {
	if r.dense == nil {
		return errNoFormula
	}
	if r.of != nil && r.of.LearningRate() == nil {
		return missingHyperparameter("rate")
	}
	if r.settings != nil {
		if err := checkHyperparameters(r.settings()); err != nil {
			return err
		}
	}
	if r.check != nil {
		return r.check(vars)
	}
	return nil
}

func (r *rule) Dense(u *Update) { r.dense(u) }

func (r *rule) Sparse(u *Update) {
	switch {
	case r.lazy != nil && !*r.lazy:
		whole := u.Whole()
		r.dense(whole)
		u.Include(whole)
	case r.rows != nil:
		r.rows(u)
	default:
		r.dense(u)
	}
}

func (r *rule) Finish(a *Apply) []*tf.Operation {
	if r.finish == nil {
		return nil
	}
	return r.finish(a)
}
