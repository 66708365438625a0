package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// Nadam is Adam with Nesterov's momentum (Dozat, "Incorporating Nesterov
// Momentum into Adam", 2016), as in Keras. With t the number of this update,
// from 1:
//
//	mu(t) = beta1·(1 - 0.96^t/2),   p := p·mu(t)
//	m := m + (1-beta1)·(g - m)
//	v := v + (1-beta2)·(g² - v)
//	w := w - rate · (mu(t+1)·m/(1 - p·mu(t+1)) + (1-mu(t))·g/(1 - p)) / (√(v/(1-beta2^t)) + epsilon)
//
// The slots are Keras' "momentum" (m) and "velocity" (v); p is one variable for
// all, "Nadam/u_product". It is composed.
type Nadam struct {
	Optimizer
	Beta1, Beta2, Epsilon ops.Hyperparameter
	// Lazy leaves the rows that a sparse gradient does not touch, and their
	// slots, as they are; otherwise they go on by what they remember.
	Lazy bool
}

// NewNadam is [Nadam] with beta1 0.9, beta2 0.999 and epsilon 1e-7. Keras' rate
// is 0.001.
func NewNadam(rate float64) *Nadam {
	n := &Nadam{Beta1: Value(0.9), Beta2: Value(0.999), Epsilon: Value(1e-7)}
	n.use(&rule{
		name: "Nadam", dense: n.update, lazy: &n.Lazy,
		settings: func() settings { return settings{"beta1": n.Beta1, "beta2": n.Beta2, "epsilon": n.Epsilon} },
		finish: func(a *Apply) []*tf.Operation {
			return []*tf.Operation{n.productVariable(a).Assign(a.Scope, n.product(a))}
		},
	}, rate)
	return n
}

func (n *Nadam) productVariable(a *Apply) *ops.Variable {
	return a.State(nil, "u_product", tf.Double, ops.Shape{}, ops.Ones())
}

// product is p of this step, in float64.
func (n *Nadam) product(a *Apply) tf.Output {
	return a.Once("u_product", tf.Double, func(f ops.Formula) tf.Output {
		return f.Mul(n.productVariable(a).Value(), n.mu(a, 1))
	})
}

// mu is beta1 with its warm-up, of the update that is ahead of the count of
// updates by ahead; in float64.
func (n *Nadam) mu(a *Apply, ahead float64) tf.Output {
	name := "u"
	if ahead > 1 {
		name = "next_u"
	}
	return a.Once(name, tf.Double, func(f ops.Formula) tf.Output {
		t := f.Add(f.Cast(a.Updates()), f.Constant(ahead))
		warm := f.Sub(f.Constant(1), f.Mul(f.Constant(0.5), f.Pow(f.Constant(0.96), t)))
		return f.Mul(a.Param("beta1", n.Beta1, tf.Double), warm)
	})
}

func (n *Nadam) update(u *Update) {
	// shared is a scalar made in float64, times the rate.
	shared := func(name string, part func(f ops.Formula, mu, next, p, one tf.Output) tf.Output) tf.Output {
		return u.Once(name, func(f ops.Formula) tf.Output {
			wide := f.Of(tf.Double)
			a := u.Apply
			return f.Cast(part(wide, n.mu(a, 1), n.mu(a, 2), n.product(a), wide.Constant(1)))
		})
	}
	ofMomentum := shared("of_momentum", func(f ops.Formula, _, next, p, one tf.Output) tf.Output {
		return f.Div(f.Mul(f.Cast(u.Rate), next), f.Sub(one, f.Mul(p, next)))
	})
	ofGradient := shared("of_gradient", func(f ops.Formula, mu, _, p, one tf.Output) tf.Output {
		return f.Div(f.Mul(f.Cast(u.Rate), f.Sub(one, mu)), f.Sub(one, p))
	})
	ofVelocity := u.OnceWide("of_velocity", func(f ops.Formula) tf.Output {
		return f.Reciprocal(u.unbiased(f, "beta2", n.Beta2))
	})
	m := u.average("momentum", ops.Zeros(), "beta1", n.Beta1, u.Grad)
	v := u.average("velocity", ops.Zeros(), "beta2", n.Beta2, u.Square(u.Grad))
	step := u.Add(u.Mul(m, ofMomentum), u.Mul(u.Grad, ofGradient))
	u.Assign(u.Sub(u.Var, u.Div(step, u.Add(u.Sqrt(u.Mul(v, ofVelocity)), u.epsilon("epsilon", n.Epsilon)))))
}
