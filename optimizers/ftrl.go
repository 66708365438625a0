package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Ftrl follows the regularized leader (McMahan et al., "Ad Click Prediction: a
// View from the Trenches", 2013), which makes weights exactly 0 by L1. As in
// Keras and tf.compat.v1.train.FtrlOptimizer, with q(n) = n^-Power/rate:
//
//	n' = n + g²
//	z := z + g + 2·Shrinkage·w - (q(n') - q(n))·w
//	w := (clip(z, -L1, L1) - z) / (q(n') + 2·L2 + Beta/rate),   n := n'
//
// The weights follow from z and n alone: where they started is forgotten at the
// first step. The slots are "accum" (n) and "linear" (z); Keras calls the first
// accumulator. It is TensorFlow's fused operation. [V1] differs in Lazy alone.
type Ftrl struct {
	Optimizer
	Power     ops.Hyperparameter // of the rate's decay, 0 or below; default -1/2
	L1, L2    ops.Hyperparameter // 0 or above, default 0
	Beta      ops.Hyperparameter // of McMahan et al., default 0
	Shrinkage ops.Hyperparameter // L2 of the gradient rather than of the result, default 0
	// Initial is n before the first step, default 0.1.
	Initial float64
	// Lazy leaves the rows that a sparse gradient does not touch as they are;
	// otherwise they become what z and n say, which is 0 where they were never
	// touched.
	Lazy bool
}

// NewFtrl is [Ftrl] with the defaults. Keras' rate is 0.001.
func NewFtrl(rate float64, as ...Convention) *Ftrl {
	f := &Ftrl{Power: Value(-0.5), L1: Value(0), L2: Value(0), Beta: Value(0), Shrinkage: Value(0), Initial: 0.1}
	f.Lazy = chosen(as) == V1
	f.use(&rule{
		name: "Ftrl", dense: f.update, lazy: &f.Lazy,
		settings: func() settings {
			return settings{"power": f.Power, "l1": f.L1, "l2": f.L2, "beta": f.Beta, "shrinkage": f.Shrinkage}
		},
		check: f.checkSettings,
	}, rate)
	return f
}

func (f *Ftrl) checkSettings([]*ops.Variable) error {
	if power, constant := f.Power.(ops.Fixed); constant {
		if err := atMost(0, "power", float64(power)); err != nil {
			return err
		}
	}
	if err := atLeast(0, "the initial accumulator", f.Initial); err != nil {
		return err
	}
	return fixedAtLeast0(settings{"l1": f.L1, "l2": f.L2, "beta": f.Beta, "shrinkage": f.Shrinkage})
}

func (f *Ftrl) update(u *Update) {
	w, accum, linear := u.Variable.Handle(), u.SlotVariable("accum", ops.Value(f.Initial)).Handle(), u.SlotVariable("linear", ops.Zeros()).Handle()
	power, l1, l2 := u.Param("power", f.Power), u.Param("l1", f.L1), u.Param("l2", f.L2)
	if !isZero(f.Beta) {
		l2 = u.OnceWide("l2_with_beta", func(c ops.Formula) tf.Output {
			beta := u.Apply.Param("beta", f.Beta, c.DType)
			return c.Add(u.Apply.Param("l2", f.L2, c.DType), c.Div(beta, c.Mul(c.Constant(2), c.Cast(u.Rate))))
		})
	}
	shrinkage := u.Param("shrinkage", f.Shrinkage)
	u.Do(func(s *ops.Scope) *tf.Operation {
		switch sparse := u.Indices.Op != nil; {
		case sparse && isZero(f.Shrinkage):
			return raw.ResourceSparseApplyFtrl(s, w, accum, linear, u.Grad, u.Indices, u.Rate, l1, l2, power)
		case sparse:
			return raw.ResourceSparseApplyFtrlV2(s, w, accum, linear, u.Grad, u.Indices, u.Rate, l1, l2, shrinkage, power)
		case isZero(f.Shrinkage):
			return raw.ResourceApplyFtrl(s, w, accum, linear, u.Grad, u.Rate, l1, l2, power)
		}
		return raw.ResourceApplyFtrlV2(s, w, accum, linear, u.Grad, u.Rate, l1, l2, shrinkage, power)
	}, u.Grad, u.Indices)
}
