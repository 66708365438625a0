package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// Adam is the optimizer of Kingma and Ba (arXiv:1412.6980) as Keras computes
// it, with epsilon added to the uncorrected root ("epsilon hat"). With t the
// number of this update, from 1:
//
//	m := m + (1-beta1)·(g - m)
//	v := v + (1-beta2)·(g² - v)
//	w := w - rate·√(1-beta2^t)/(1-beta1^t) · m/(√v + epsilon)
//
// TensorFlow's fused operation, which tf.compat.v1.train.AdamOptimizer runs,
// is slower than these in a graph, and in float32 it loses digits in 1-beta2.
//
// A sparse gradient gives the same as a dense one with zeros in the other
// rows, which therefore move too, at the cost of a pass over the whole table:
// as in tf.compat.v1.train.AdamOptimizer. With Lazy only the rows of the
// gradient and of the slots are touched. (Keras squares duplicate rows before
// it sums them; here they are summed first.)
//
// The slots are "m" and "v" for [Optimizer.Slot]; as variables they are called
// as in tf.compat.v1, "net/w/Adam" and "net/w/Adam_1".
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

func (r adam) Sparse(u *Update) {
	if r.of.Lazy {
		r.Dense(u)
		return
	}
	whole := u.Whole()
	r.Dense(whole)
	u.Include(whole)
}

func (r adam) Dense(u *Update) {
	alpha := u.Once("alpha", func(f ops.Formula) tf.Output {
		// 1-beta2^t has no digits in 16 bits.
		wide := f
		if f.DType != tf.Double {
			wide = f.Of(tf.Float)
		}
		t := wide.Add(wide.Cast(u.Apply.Updates()), wide.Constant(1))
		left := func(name string, beta ops.Hyperparameter) tf.Output {
			return wide.Sub(wide.Constant(1), wide.Pow(u.Apply.Param(name, beta, wide.DType), t))
		}
		rate := wide.Mul(wide.Cast(u.Rate), wide.Sqrt(left("beta2", r.of.Beta2)))
		return f.Cast(wide.Div(rate, left("beta1", r.of.Beta1)))
	})
	m, v := u.Slot("m", ops.Zeros()), u.Slot("v", ops.Zeros())
	m = u.Add(m, u.Mul(u.Sub(u.Grad, m), oneLess(u, "beta1", r.of.Beta1)))
	v = u.Add(v, u.Mul(u.Sub(u.Square(u.Grad), v), oneLess(u, "beta2", r.of.Beta2)))
	u.SetSlot("m", m)
	u.SetSlot("v", v)
	u.Assign(u.Sub(u.Var, u.Div(u.Mul(m, alpha), u.Add(u.Sqrt(v), u.Param("epsilon", r.of.Epsilon)))))
}

// oneLess is 1 - h, for a constant with all its digits.
func oneLess(u *Update, name string, h ops.Hyperparameter) tf.Output {
	if fixed, constant := h.(ops.Fixed); constant {
		return u.Constant(1 - float64(fixed))
	}
	return u.Once("one_less_"+name, func(f ops.Formula) tf.Output {
		return f.Sub(f.Constant(1), u.Param(name, h))
	})
}
