package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Momentum is gradient descent with a memory of past gradients, as in
// tf.compat.v1.train.MomentumOptimizer:
//
//	a := mu·a + g
//	w := w - rate·a              or, with Nesterov, w - rate·(g + mu·a)
//
// With RateInside it is Keras' SGD, in which the memory holds steps rather
// than gradients; the two differ when the rate changes:
//
//	m := mu·m - rate·g
//	w := w + m                   or, with Nesterov, w + mu·m - rate·g
//
// A sparse gradient updates only its rows, of the variable and of the slot
// "momentum", as in Python; the other rows stand still.
type Momentum struct {
	Optimizer
	Mu         ops.Hyperparameter // the part of the memory that is kept
	Nesterov   bool
	RateInside bool
}

// NewMomentum is a [Momentum] with the given rate and mu.
func NewMomentum(rate, mu float64) *Momentum {
	m := &Momentum{Mu: Value(mu)}
	m.Rule, m.Rate = momentum{of: m}, Value(rate)
	return m
}

type momentum struct {
	PerVariable
	of *Momentum
}

func (momentum) Name() string { return "Momentum" }

func (m momentum) Check([]*ops.Variable) error {
	return checkHyperparameters(m.of.LearningRate(), map[string]ops.Hyperparameter{"mu": m.of.Mu})
}

func (m momentum) Dense(u *Update) {
	handle, slot, mu := m.parts(u)
	apply := raw.ResourceApplyMomentum
	if m.of.RateInside {
		apply = raw.ResourceApplyKerasMomentum
	}
	u.Do(func(s *ops.Scope) *tf.Operation {
		return apply(s, handle, slot, u.Rate, u.Grad, mu, raw.WithUseNesterov(m.of.Nesterov))
	})
}

func (m momentum) Sparse(u *Update) {
	handle, slot, mu := m.parts(u)
	apply := raw.ResourceSparseApplyMomentum
	if m.of.RateInside {
		apply = raw.ResourceSparseApplyKerasMomentum
	}
	u.Do(func(s *ops.Scope) *tf.Operation {
		return apply(s, handle, slot, u.Rate, u.Grad, u.Indices, mu, raw.WithUseNesterov(m.of.Nesterov))
	}, u.Grad, u.Indices)
}

func (m momentum) parts(u *Update) (handle, slot, mu tf.Output) {
	return u.Variable.Handle(), u.SlotVariable("momentum", ops.Zeros()).Handle(), u.Param("mu", m.of.Mu)
}
