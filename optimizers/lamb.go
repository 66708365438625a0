package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// Lamb is Adam with a rate for each variable that is proportional to the
// variable's norm, for large batches (You et al., arXiv:1904.00962), as in
// Keras. With t the number of this update, from 1:
//
//	m := m + (1-beta1)·(g - m)
//	v := v + (1-beta2)·(g² - v)
//	s = m/(1-beta1^t) / (√(v/(1-beta2^t)) + epsilon)
//	w := w - rate · ‖w‖/‖s‖ · s
//
// The quotient of the norms is 1 where one of them is 0. (Weight decay is not
// part of s, as it is in the paper: put [WeightDecay] around it, as Keras does.)
//
// The slots are Keras' "momentum" (m) and "velocity" (v). It is composed. A
// sparse gradient is one with zeros in the other rows: the norms are those of
// the whole variable.
type Lamb struct {
	Optimizer
	Beta1, Beta2, Epsilon ops.Hyperparameter
}

// NewLamb is [Lamb] with beta1 0.9, beta2 0.999 and epsilon 1e-7. Keras' rate is
// 0.001.
func NewLamb(rate float64) *Lamb {
	l := &Lamb{Beta1: Value(0.9), Beta2: Value(0.999), Epsilon: Value(1e-7)}
	l.use(&rule{
		name: "Lamb", dense: l.update, lazy: new(bool),
		settings: func() settings { return settings{"beta1": l.Beta1, "beta2": l.Beta2, "epsilon": l.Epsilon} },
	}, rate)
	return l
}

func (l *Lamb) update(u *Update) {
	m := u.average("momentum", ops.Zeros(), "beta1", l.Beta1, u.Grad)
	v := u.average("velocity", ops.Zeros(), "beta2", l.Beta2, u.Square(u.Grad))
	unbias := func(x tf.Output, name string, beta ops.Hyperparameter) tf.Output {
		return u.Mul(x, u.OnceWide("unbias_"+name, func(f ops.Formula) tf.Output { return f.Reciprocal(u.unbiased(f, name, beta)) }))
	}
	step := u.Div(unbias(m, "beta1", l.Beta1), u.Add(u.Sqrt(unbias(v, "beta2", l.Beta2)), u.epsilon("epsilon", l.Epsilon)))
	ratio := u.wide(func(f ops.Formula) tf.Output {
		of, by := f.Sqrt(sumOf(f, f.Square(f.Cast(u.Var)))), f.Sqrt(sumOf(f, f.Square(f.Cast(step))))
		both := f.And(f.Greater(of, f.Constant(0)), f.Greater(by, f.Constant(0)))
		return f.Mul(f.Cast(u.Rate), f.Select(both, f.Div(of, by), f.Constant(1)))
	})
	u.Assign(u.Sub(u.Var, u.Mul(step, ratio)))
}
