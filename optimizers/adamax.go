package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Adamax is Adam with the largest gradient in place of the mean square (Kingma
// and Ba, arXiv:1412.6980, section 7.1), as in Keras. With t the number of this
// update, from 1:
//
//	m := m + (1-beta1)·(g - m)
//	n := max(beta2·n, |g|)
//	w := w - rate/(1-beta1^t) · m/(n + epsilon)
//
// The slots are Keras' "momentum" (m) and "norm" (n). A dense update is
// TensorFlow's fused operation, which there is for all dtypes but bfloat16;
// else it is composed.
type Adamax struct {
	Optimizer
	Beta1, Beta2, Epsilon ops.Hyperparameter
	// Lazy leaves the rows that a sparse gradient does not touch, and their
	// slots, as they are; otherwise they go on by what they remember.
	Lazy bool
}

// NewAdamax is [Adamax] with beta1 0.9, beta2 0.999 and epsilon 1e-7. Keras'
// rate is 0.001.
func NewAdamax(rate float64) *Adamax {
	a := &Adamax{Beta1: Value(0.9), Beta2: Value(0.999), Epsilon: Value(1e-7)}
	a.use(&rule{
		name: "Adamax", dense: a.update, lazy: &a.Lazy,
		settings: func() settings { return settings{"beta1": a.Beta1, "beta2": a.Beta2, "epsilon": a.Epsilon} },
	}, rate)
	return a
}

// rate is the rate without the bias of m.
func (a *Adamax) rate(u *Update) tf.Output {
	return u.OnceWide("unbiased_rate", func(f ops.Formula) tf.Output {
		return f.Div(f.Cast(u.Rate), u.unbiased(f, "beta1", a.Beta1))
	})
}

func (a *Adamax) update(u *Update) {
	rate, beta2, epsilon := a.rate(u), u.Param("beta2", a.Beta2), u.epsilon("epsilon", a.Epsilon)
	if u.Indices.Op == nil && u.DType != tf.Bfloat16 {
		w, m, n := u.Variable.Handle(), u.SlotVariable("momentum", ops.Zeros()).Handle(), u.SlotVariable("norm", ops.Zeros()).Handle()
		beta1, power := u.Param("beta1", a.Beta1), u.Constant(0) // the bias is in the rate
		u.Do(func(s *ops.Scope) *tf.Operation {
			return raw.ResourceApplyAdaMax(s, w, m, n, power, rate, beta1, beta2, epsilon, u.Grad)
		}, u.Grad)
		return
	}
	m := u.average("momentum", ops.Zeros(), "beta1", a.Beta1, u.Grad)
	n := u.Maximum(u.Mul(u.Slot("norm", ops.Zeros()), beta2), u.Abs(u.Grad))
	u.SetSlot("norm", n)
	u.Assign(u.Sub(u.Var, u.Div(u.Mul(m, rate), u.Add(n, epsilon))))
}
