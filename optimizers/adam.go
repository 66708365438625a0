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
// With AMSGrad (Reddi et al., arXiv:1904.09237) the largest v so far takes v's
// place in the last line.
//
// It is composed: TensorFlow's fused operation, which
// tf.compat.v1.train.AdamOptimizer runs, is slower in a graph, and in float32
// it loses digits in 1-beta2.
//
// A sparse gradient gives the same as a dense one with zeros in the other
// rows, which therefore move too, at the cost of a pass over the whole table:
// as in Keras and in tf.compat.v1.train.AdamOptimizer. With Lazy only the rows
// of the gradient and of the slots are touched. (Keras squares duplicate rows
// before it sums them; here they are summed first.)
//
// The slots are "m" and "v" for [Optimizer.Slot], with AMSGrad "vhat" too; as
// variables they are called as in tf.compat.v1, "net/w/Adam", "net/w/Adam_1",
// "net/w/Adam_2".
type Adam struct {
	Optimizer
	Beta1, Beta2, Epsilon ops.Hyperparameter
	AMSGrad               bool
	// Lazy leaves the rows that a sparse gradient does not touch, and their
	// slots, as they are.
	Lazy bool
}

// NewAdam is [Adam] with beta1 0.9, beta2 0.999 and epsilon 1e-7, as [V1] 1e-8.
// Keras' rate is 0.001.
func NewAdam(rate float64, as ...Convention) *Adam {
	a := &Adam{Beta1: Value(0.9), Beta2: Value(0.999), Epsilon: Value(1e-7)}
	if chosen(as) == V1 {
		a.Epsilon = Value(1e-8)
	}
	a.use(&rule{name: "Adam", dense: a.update, lazy: &a.Lazy, settings: a.settings}, rate)
	return a
}

// NewAdamW is Adam with decoupled weight decay (Loshchilov and Hutter,
// arXiv:1711.05101), w := w - rate·decay·w before each update: Keras' AdamW,
// whose decay is 0.004. It is [WeightDecay] around [NewAdam], which is how to
// have other settings.
func NewAdamW(rate, decay float64) *Optimizer {
	a := NewAdam(rate)
	a.Label = "AdamW"
	return WeightDecay(a, Value(decay))
}

func (a *Adam) settings() settings {
	return settings{"beta1": a.Beta1, "beta2": a.Beta2, "epsilon": a.Epsilon}
}

func (a *Adam) update(u *Update) {
	m := u.average("m", ops.Zeros(), "beta1", a.Beta1, u.Grad)
	v := u.average("v", ops.Zeros(), "beta2", a.Beta2, u.Square(u.Grad))
	if a.AMSGrad {
		v = u.Maximum(u.Slot("vhat", ops.Zeros()), v)
		u.SetSlot("vhat", v)
	}
	u.Assign(u.Sub(u.Var, u.adamStep(m, v, "", a.Beta1, a.Beta2, a.Epsilon)))
}

// adamStep is what Adam takes off a variable. The settings are called by their
// names after a prefix.
func (u *Update) adamStep(m, v tf.Output, prefix string, beta1, beta2, epsilon ops.Hyperparameter) tf.Output {
	alpha := u.OnceWide("alpha", func(f ops.Formula) tf.Output {
		rate := f.Mul(f.Cast(u.Rate), f.Sqrt(u.unbiased(f, prefix+"beta2", beta2)))
		return f.Div(rate, u.unbiased(f, prefix+"beta1", beta1))
	})
	return u.Div(u.Mul(m, alpha), u.Add(u.Sqrt(v), u.epsilon(prefix+"epsilon", epsilon)))
}

// unbiased is 1 - beta^t with t the number of this update, from 1, in f's dtype.
func (u *Update) unbiased(f ops.Formula, name string, beta ops.Hyperparameter) tf.Output {
	return f.Sub(f.Constant(1), f.Pow(u.Apply.Param(name, beta, f.DType), u.number(f)))
}

// number is the number of this update, from 1, in f's dtype.
func (u *Update) number(f ops.Formula) tf.Output {
	return u.Apply.Once("update", f.DType, func(f ops.Formula) tf.Output {
		return f.Add(f.Cast(u.Apply.Updates()), f.Constant(1))
	})
}

// average moves a slot by the part 1-beta towards x, and is its new value.
func (u *Update) average(slot string, init ops.Initializer, name string, beta ops.Hyperparameter, x tf.Output) tf.Output {
	old := u.Slot(slot, init)
	moved := u.Add(old, u.Mul(u.Sub(x, old), oneLess(u, name, beta)))
	u.SetSlot(slot, moved)
	return moved
}

// oneLess is 1 - h, for a constant with all its digits.
func oneLess(u *Update, name string, h ops.Hyperparameter) tf.Output {
	if fixed, constant := h.(ops.Fixed); constant {
		return u.Constant(1 - float64(fixed))
	}
	return u.OnceWide("one_less_"+name, func(f ops.Formula) tf.Output {
		return f.Sub(f.Constant(1), u.Apply.Param(name, h, f.DType))
	})
}

// epsilon is a setting that keeps a quotient finite. A constant that rounds to 0
// in 16 bits, as 1e-8 does, is the smallest number above 0 there; with 0, a
// weight whose gradients are all 0 would become NaN, as it does in Python.
func (u *Update) epsilon(name string, h ops.Hyperparameter) tf.Output {
	const smallestHalf = 0x1p-24
	if fixed, constant := h.(ops.Fixed); constant && fixed > 0 && u.DType == tf.Half {
		return u.Constant(max(float64(fixed), smallestHalf))
	}
	return u.Param(name, h)
}
