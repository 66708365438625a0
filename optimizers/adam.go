package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Adam is the optimizer of Kingma and Ba (arXiv:1412.6980) in the form that
// TensorFlow and Keras compute, with epsilon added to the uncorrected root
// ("epsilon hat"). With t the number of this update, from 1:
//
//	m := m + (1-beta1)·(g - m)
//	v := v + (1-beta2)·(g² - v)
//	w := w - rate·√(1-beta2^t)/(1-beta1^t) · m/(√v + epsilon)
//
// A sparse gradient gives the same as a dense one with zeros in the other
// rows, which therefore move too, at the cost of a pass over the whole table:
// as in tf.compat.v1.train.AdamOptimizer. With Lazy only the rows of the
// gradient and of the slots are touched. (Keras squares duplicate rows before
// it sums them; here they are summed first.)
//
// The slots are "m" and "v".
type Adam struct {
	Optimizer
	Beta1, Beta2, Epsilon ops.Hyperparameter
	// Lazy leaves the rows that a sparse gradient does not touch, and their
	// slots, as they are.
	Lazy bool
}

// NewAdam is [Adam] with beta1 0.9, beta2 0.999 and Keras' epsilon 1e-7
// (tf.compat.v1 has 1e-8).
func NewAdam(rate float64) *Adam {
	a := &Adam{Beta1: Value(0.9), Beta2: Value(0.999), Epsilon: Value(1e-7)}
	a.Rule, a.Rate = adam{of: a}, Value(rate)
	return a
}

type adam struct {
	PerVariable
	of *Adam
}

func (adam) Name() string { return "Adam" }

func (r adam) Check([]*ops.Variable) error {
	return checkHyperparameters(r.of.LearningRate(), map[string]ops.Hyperparameter{
		"beta1": r.of.Beta1, "beta2": r.of.Beta2, "epsilon": r.of.Epsilon})
}

// power is beta^t.
func (adam) power(u *Update, name string, beta tf.Output) tf.Output {
	return u.Once(name, func(f ops.Formula) tf.Output {
		updates := u.Once("updates", func(f ops.Formula) tf.Output {
			return f.Cast(u.Apply.Updates())
		})
		return f.Pow(beta, f.Add(updates, f.Constant(1)))
	})
}

func (r adam) Dense(u *Update) { r.all(u, u.Grad) }

func (r adam) Sparse(u *Update) {
	if r.of.Lazy {
		r.rows(u)
		return
	}
	r.all(u, u.Densify())
}

func (r adam) all(u *Update, grad tf.Output) {
	beta1, beta2 := u.Param("beta1", r.of.Beta1), u.Param("beta2", r.of.Beta2)
	epsilon := u.Param("epsilon", r.of.Epsilon)
	power1, power2 := r.power(u, "beta1_power", beta1), r.power(u, "beta2_power", beta2)
	m, v := u.SlotVariable("m", ops.Zeros()), u.SlotVariable("v", ops.Zeros())
	u.Do(func(s *ops.Scope) *tf.Operation {
		return raw.ResourceApplyAdam(s, u.Variable.Handle(), m.Handle(), v.Handle(),
			power1, power2, u.Rate, beta1, beta2, epsilon, grad)
	}, grad)
}

func (r adam) rows(u *Update) {
	beta1, beta2 := u.Param("beta1", r.of.Beta1), u.Param("beta2", r.of.Beta2)
	epsilon := u.Param("epsilon", r.of.Epsilon)
	power1, power2 := r.power(u, "beta1_power", beta1), r.power(u, "beta2_power", beta2)
	alpha := u.Once("alpha", func(f ops.Formula) tf.Output {
		one := f.Constant(1)
		return f.Div(f.Mul(u.Rate, f.Sqrt(f.Sub(one, power2))), f.Sub(one, power1))
	})
	one := u.Constant(1)
	m, v := u.Slot("m", ops.Zeros()), u.Slot("v", ops.Zeros())
	m = u.Add(m, u.Mul(u.Sub(u.Grad, m), u.Sub(one, beta1)))
	v = u.Add(v, u.Mul(u.Sub(u.Square(u.Grad), v), u.Sub(one, beta2)))
	u.SetSlot("m", m)
	u.SetSlot("v", v)
	u.Assign(u.Sub(u.Var, u.Div(u.Mul(m, alpha), u.Add(u.Sqrt(v), epsilon))))
}
