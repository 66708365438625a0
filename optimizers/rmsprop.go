package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// RMSprop divides the gradient by the root of its mean square (Tieleman and
// Hinton, lecture 6 of "Neural Networks for Machine Learning", 2012), as in
// Keras and tf.compat.v1.train.RMSPropOptimizer:
//
//	ms  := ms + (1-rho)·(g² - ms)
//	mom := momentum·mom + rate·g/√(ms + epsilon)
//	w   := w - mom
//
// Centered (Graves, arXiv:1308.0850) it divides by the standard deviation:
// mg := mg + (1-rho)·(g - mg), and ms - mg² takes the place of ms.
//
// The slots are "rms", with Centered "mg", and with a momentum that is not
// constantly 0 "momentum"; Keras calls them velocity, average_gradient and
// momentum. With a momentum the update is TensorFlow's fused operation, but for
// rows in bfloat16, else it is composed.
//
// [V1] has the epsilon 1e-10 instead of 1e-7, Initial 1 instead of 0, and Lazy.
type RMSprop struct {
	Optimizer
	Rho, Momentum, Epsilon ops.Hyperparameter
	Centered               bool
	// Initial is the mean square before the first step.
	Initial float64
	// Lazy leaves the rows that a sparse gradient does not touch, and their
	// slots, as they are; otherwise they go on by what they remember.
	Lazy bool
}

// NewRMSprop is [RMSprop] with rho 0.9, no momentum and epsilon 1e-7, not
// centered. Keras' rate is 0.001.
func NewRMSprop(rate float64, as ...Convention) *RMSprop {
	r := &RMSprop{Rho: Value(0.9), Momentum: Value(0), Epsilon: Value(1e-7)}
	if chosen(as) == V1 {
		r.Epsilon, r.Initial, r.Lazy = Value(1e-10), 1, true
	}
	r.use(&rule{
		name: "RMSProp", dense: r.update, lazy: &r.Lazy,
		settings: func() settings { return settings{"rho": r.Rho, "momentum": r.Momentum, "epsilon": r.Epsilon} },
		check:    func([]*ops.Variable) error { return atLeast(0, "the initial mean square", r.Initial) },
	}, rate)
	return r
}

func (r *RMSprop) update(u *Update) {
	sparse := u.Indices.Op != nil
	if isZero(r.Momentum) || sparse && u.DType == tf.Bfloat16 { // for which there is no kernel
		r.composed(u)
		return
	}
	w, rms := u.Variable.Handle(), u.SlotVariable("rms", ops.Value(r.Initial)).Handle()
	var mg tf.Output
	if r.Centered {
		mg = u.SlotVariable("mg", ops.Zeros()).Handle()
	}
	mom := u.SlotVariable("momentum", ops.Zeros()).Handle()
	rho, momentum, epsilon := u.Param("rho", r.Rho), u.Param("momentum", r.Momentum), u.epsilon("epsilon", r.Epsilon)
	u.Do(func(s *ops.Scope) *tf.Operation {
		switch {
		case sparse && r.Centered:
			return raw.ResourceSparseApplyCenteredRMSProp(s, w, mg, rms, mom, u.Rate, rho, momentum, epsilon, u.Grad, u.Indices)
		case sparse:
			return raw.ResourceSparseApplyRMSProp(s, w, rms, mom, u.Rate, rho, momentum, epsilon, u.Grad, u.Indices)
		case r.Centered:
			return raw.ResourceApplyCenteredRMSProp(s, w, mg, rms, mom, u.Rate, rho, momentum, epsilon, u.Grad)
		}
		return raw.ResourceApplyRMSProp(s, w, rms, mom, u.Rate, rho, momentum, epsilon, u.Grad)
	}, u.Grad, u.Indices)
}

func (r *RMSprop) composed(u *Update) {
	square := u.average("rms", ops.Value(r.Initial), "rho", r.Rho, u.Square(u.Grad))
	if r.Centered {
		square = u.Sub(square, u.Square(u.average("mg", ops.Zeros(), "rho", r.Rho, u.Grad)))
	}
	step := u.Div(u.Mul(u.Rate, u.Grad), u.Sqrt(u.Add(square, u.epsilon("epsilon", r.Epsilon))))
	if !isZero(r.Momentum) {
		step = u.Add(u.Mul(u.Slot("momentum", ops.Zeros()), u.Param("momentum", r.Momentum)), step)
		u.SetSlot("momentum", step)
	}
	u.Assign(u.Sub(u.Var, step))
}
