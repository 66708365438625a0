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
// Variables that the train op does not train do not decay, nor do those below
// the paths except, "net/bias" for one.
func WeightDecay(rule Rule, decay ops.Hyperparameter, except ...string) *Optimizer {
	return around(rule, &weightDecay{wrapper: wrapper{rule}, decay: decay, except: except})
}

type weightDecay struct {
	wrapper
	decay  ops.Hyperparameter
	except []string
}

func (w *weightDecay) Check(vars []*ops.Variable) error {
	const what = "weight decay"
	if err := checkDecay(what, w.decay, w.except, vars); err != nil {
		return err
	}
	if _, ok := inside[*lookahead](w.inner); ok {
		return misplaced(what, "Lookahead", "would make a decayed variable of the slow one")
	}
	return aroundHolder(what, w.inner, "would go on in steps that are left out")
}

func checkDecay(what string, decay ops.Hyperparameter, except []string, vars []*ops.Variable) error {
	if decay == nil {
		return errors.New(what + ": the decay is nil; wanted a value, a schedule or ops.Fed(tensor)")
	}
	if err := checkHyperparameter(what, decay); err != nil {
		return err
	}
	return checkScopes(what, except, vars)
}

func (w *weightDecay) Together(a *Apply, all []*Update) {
	nested := w.nest(a, all)
	lost := make([]tf.Output, len(all))
	for i, u := range all {
		if ops.InScope(u.Variable.Name(), w.except...) {
			continue
		}
		part := w.part(u)
		if u.sparse() {
			lost[i] = u.Mul(u.Variable.Value(), part)
			nested[i].Var = u.Sub(u.Var, u.Mul(u.Var, part))
			nested[i].whole = u.Sub(u.Variable.Value(), lost[i])
		} else {
			lost[i] = u.Mul(u.Var, part)
			nested[i].Var = u.Sub(u.Var, lost[i])
		}
	}
	a.Run(w.inner, nested)
	for i, u := range all {
		if lost[i].Op != nil && (u.sparse() || nested[i].InPlace()) {
			w.before(u, nested[i], lost[i])
		} else {
			u.Include(nested[i]) // its formula began with the decayed value
		}
	}
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

// L2Decay is rule with decay·w added to the gradient of each variable w, which
// is the gradient of ½·decay·‖w‖² (Keras' regularizer L2(l) is a decay of 2l).
// Unlike [WeightDecay] it goes through the rule: Adam divides by its size. A
// sparse gradient becomes a dense one. Variables below the paths except do not
// decay.
func L2Decay(rule Rule, decay ops.Hyperparameter, except ...string) *Optimizer {
	return around(rule, &l2Decay{wrapper: wrapper{rule}, decay: decay, except: except})
}

type l2Decay struct {
	wrapper
	decay  ops.Hyperparameter
	except []string
}

func (l *l2Decay) Check(vars []*ops.Variable) error {
	const what = "L2 decay"
	if err := checkDecay(what, l.decay, l.except, vars); err != nil {
		return err
	}
	return aroundScaled(what, l.inner)
}

func (l *l2Decay) Together(a *Apply, all []*Update) {
	nested := make([]*Update, len(all))
	for i, u := range all {
		if ops.InScope(u.Variable.Name(), l.except...) {
			nested[i] = u.Nested(a)
			continue
		}
		nested[i] = u.Whole()
		nested[i].Apply = a
		nested[i].setGrad(u.Add(nested[i].Grad, u.Mul(nested[i].Var, u.Param("l2_decay", l.decay))))
	}
	a.Run(l.inner, nested)
	include(all, nested)
}
