package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Adadelta takes steps of the size of its past steps (Zeiler, arXiv:1212.5701),
// as in Keras and tf.compat.v1.train.AdadeltaOptimizer:
//
//	a := rho·a + (1-rho)·g²
//	d := g·√(b + epsilon)/√(a + epsilon)
//	b := rho·b + (1-rho)·d²
//	w := w - rate·d
//
// The paper's rate is 1. The slots are "accum" (a) and "accum_update" (b);
// Keras calls them accumulated_grad and accumulated_delta_var. It is
// TensorFlow's fused operation.
//
// [V1] has the epsilon 1e-8, and Lazy.
type Adadelta struct {
	Optimizer
	Rho, Epsilon ops.Hyperparameter
	// Lazy leaves the slots of the rows that a sparse gradient does not touch
	// as they are; otherwise they decay. The rows themselves never move.
	Lazy bool
}

// NewAdadelta is [Adadelta] with rho 0.95 and epsilon 1e-7. Keras' rate is
// 0.001.
func NewAdadelta(rate float64, as ...Convention) *Adadelta {
	a := &Adadelta{Rho: Value(0.95), Epsilon: Value(1e-7)}
	if chosen(as) == V1 {
		a.Epsilon, a.Lazy = Value(1e-8), true
	}
	a.use(&rule{
		name: "Adadelta", dense: a.update, lazy: &a.Lazy,
		settings: func() settings { return settings{"rho": a.Rho, "epsilon": a.Epsilon} },
	}, rate)
	return a
}

func (a *Adadelta) update(u *Update) {
	w, sum, step := u.Variable.Handle(), u.SlotVariable("accum", ops.Zeros()).Handle(), u.SlotVariable("accum_update", ops.Zeros()).Handle()
	rho, epsilon := u.Param("rho", a.Rho), u.epsilon("epsilon", a.Epsilon)
	u.Do(func(s *ops.Scope) *tf.Operation {
		if u.Indices.Op != nil {
			return raw.ResourceSparseApplyAdadelta(s, w, sum, step, u.Rate, rho, epsilon, u.Grad, u.Indices)
		}
		return raw.ResourceApplyAdadelta(s, w, sum, step, u.Rate, rho, epsilon, u.Grad)
	}, u.Grad, u.Indices)
}
