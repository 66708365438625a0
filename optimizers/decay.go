package optimizers

import (
	"errors"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// WeightDecay is rule with decoupled weight decay (arXiv:1711.05101): before
// the rule updates a variable, the variable loses the part rate·decay of
// itself,
//
//	w := w - rate·decay·w
//
// the whole of it, also where the gradient is sparse. It is what weight_decay
// does in Keras: WeightDecay(NewAdam(rate), Value(0.004)) is its AdamW.
// Variables that the train op does not train do not decay.
func WeightDecay(rule Rule, decay ops.Hyperparameter) *Optimizer {
	return &Optimizer{Rule: &weightDecay{inner: rule, decay: decay}}
}

type weightDecay struct {
	inner Rule
	decay ops.Hyperparameter
}

func (w *weightDecay) Name() string     { return w.inner.Name() }
func (w *weightDecay) Unwrap() Rule     { return w.inner }
func (w *weightDecay) Prepare(a *Apply) { w.inner.Prepare(a) }

func (w *weightDecay) Finish(a *Apply) []*tf.Operation { return w.inner.Finish(a) }

func (w *weightDecay) Check([]*ops.Variable) error {
	if w.decay == nil {
		return errors.New("weight decay: the decay is nil; wanted a value, a schedule or ops.Fed(tensor)")
	}
	return checkHyperparameter("weight decay", w.decay)
}

func (w *weightDecay) Dense(u *Update) {
	lost := u.Mul(u.Var, w.part(u))
	nested := u.Nested(u.Apply)
	nested.Var = u.Sub(u.Var, lost)
	w.inner.Dense(nested)
	if nested.InPlace() {
		w.before(u, nested, lost)
	} else {
		u.Include(nested) // its formula began with the decayed value
	}
}

func (w *weightDecay) Sparse(u *Update) {
	part := w.part(u)
	lost := u.Mul(u.Variable.Value(), part)
	nested := u.Nested(u.Apply)
	nested.Var = u.Sub(u.Var, u.Mul(u.Var, part))
	nested.whole = u.Sub(u.Variable.Value(), lost)
	w.inner.Sparse(nested)
	w.before(u, nested, lost)
}

// part is rate·decay.
func (w *weightDecay) part(u *Update) tf.Output {
	decay := u.Param("weight_decay", w.decay)
	return u.Once("weight_decay_rate", func(f ops.Formula) tf.Output {
		if u.Rate.Op == nil {
			f.Scope.Fail(missingHyperparameter("rate"))
			return tf.Output{}
		}
		return f.Mul(u.Rate, decay)
	})
}

// before takes lost off the variable and then does the nested updates.
func (w *weightDecay) before(u, nested *Update, lost tf.Output) {
	u.Wait(nested.Computed()...)
	u.Do(func(s *ops.Scope) *tf.Operation {
		decayed := u.Variable.AssignSub(s, lost)
		if decayed == nil {
			return nil
		}
		return u.Scope.Group("decayed", nested.Emit(decayed)...)
	}, lost)
}
