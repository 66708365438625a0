package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Proximal is gradient descent, or [Adagrad], whose every step is followed by
// the proximal operator of L1 and L2 (Duchi and Singer, "Efficient Learning
// using Forward-Backward Splitting", 2009), which makes weights exactly 0. With
// r the rate, for Adagrad r = rate/√a after a := a + g²:
//
//	v = w - r·g
//	w := sign(v)·max(|v| - r·L1, 0) / (1 + r·L2)
//
// It is TensorFlow's fused operation in float32 and float64, and composed in 16
// bits, for which there is none. The slot of Adagrad is "accumulator".
type Proximal struct {
	Optimizer
	L1, L2 ops.Hyperparameter // 0 or above
	// Initial is a before the first step, above 0; for Adagrad.
	Initial float64
	// Lazy leaves the rows that a sparse gradient does not touch as they are, as
	// tf.compat.v1.train does; otherwise they shrink as by a zero gradient.
	Lazy bool

	adagrad bool
}

// NewProximalGradientDescent is [Proximal] gradient descent,
// tf.compat.v1.train.ProximalGradientDescentOptimizer, whose strengths are 0 by
// default. It is Lazy.
func NewProximalGradientDescent(rate, l1, l2 float64) *Proximal {
	return newProximal("ProximalGradientDescent", rate, l1, l2, false)
}

// NewProximalAdagrad is [Proximal] Adagrad,
// tf.compat.v1.train.ProximalAdagradOptimizer, with the initial sum 0.1. It is
// Lazy.
func NewProximalAdagrad(rate, l1, l2 float64) *Proximal {
	return newProximal("ProximalAdagrad", rate, l1, l2, true)
}

func newProximal(name string, rate, l1, l2 float64, adagrad bool) *Proximal {
	p := &Proximal{L1: Value(l1), L2: Value(l2), Initial: 0.1, Lazy: true, adagrad: adagrad}
	p.use(&rule{
		name: name, dense: p.update, lazy: &p.Lazy,
		settings: func() settings { return settings{"l1": p.L1, "l2": p.L2} },
		check: func([]*ops.Variable) error {
			if err := above(0, "the initial accumulator", p.Initial); err != nil {
				return err
			}
			return fixedAtLeast0(settings{"l1": p.L1, "l2": p.L2})
		},
	}, rate)
	return p
}

func (p *Proximal) update(u *Update) {
	l1, l2 := u.Param("l1", p.L1), u.Param("l2", p.L2)
	if hasWideKernelsOnly(u.DType) {
		p.composed(u, l1, l2)
		return
	}
	w, sparse := u.Variable.Handle(), u.Indices.Op != nil
	var slot tf.Output
	if p.adagrad {
		slot = u.SlotVariable("accumulator", ops.Value(p.Initial)).Handle()
	}
	u.Do(func(s *ops.Scope) *tf.Operation {
		switch {
		case sparse && p.adagrad:
			return raw.ResourceSparseApplyProximalAdagrad(s, w, slot, u.Rate, l1, l2, u.Grad, u.Indices)
		case sparse:
			return raw.ResourceSparseApplyProximalGradientDescent(s, w, u.Rate, l1, l2, u.Grad, u.Indices)
		case p.adagrad:
			return raw.ResourceApplyProximalAdagrad(s, w, slot, u.Rate, l1, l2, u.Grad)
		}
		return raw.ResourceApplyProximalGradientDescent(s, w, u.Rate, l1, l2, u.Grad)
	}, u.Grad, u.Indices)
}

func (p *Proximal) composed(u *Update, l1, l2 tf.Output) {
	rate := u.Rate
	if p.adagrad {
		sum := u.Add(u.Slot("accumulator", ops.Value(p.Initial)), u.Square(u.Grad))
		u.SetSlot("accumulator", sum)
		rate = u.Mul(rate, u.Rsqrt(sum))
	}
	v := u.Sub(u.Var, u.Mul(rate, u.Grad))
	v = u.Mul(u.Sign(v), u.Maximum(u.Sub(u.Abs(v), u.Mul(rate, l1)), u.Constant(0)))
	u.Assign(u.Div(v, u.Add(u.Mul(rate, l2), u.Constant(1))))
}

// hasWideKernelsOnly says of a dtype that some of TensorFlow's fused operations
// don't take it.
func hasWideKernelsOnly(dt tf.DataType) bool { return dt != tf.Float && dt != tf.Double }
