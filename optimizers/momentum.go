package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Momentum is gradient descent with a memory of past steps, as in Keras' SGD:
//
//	m := mu·m - rate·g
//	w := w + m                   or, with Nesterov, w + mu·m - rate·g
//
// Without RateInside it is tf.compat.v1.train.MomentumOptimizer, in which the
// memory holds gradients rather than steps; the two differ when the rate
// changes:
//
//	a := mu·a + g
//	w := w - rate·a              or, with Nesterov, w - rate·(g + mu·a)
//
// The slot is "momentum". The updates are TensorFlow's fused operations. [V1]
// has RateInside false and Lazy true.
type Momentum struct {
	Optimizer
	Mu         ops.Hyperparameter // the part of the memory that is kept
	Nesterov   bool
	RateInside bool
	// Lazy leaves the rows that a sparse gradient does not touch, and their
	// slots, as they are; otherwise they go on by what they remember.
	Lazy bool
}

// NewMomentum is a [Momentum] with the given rate and mu.
func NewMomentum(rate, mu float64, as ...Convention) *Momentum {
	v1 := chosen(as) == V1
	m := &Momentum{Mu: Value(mu), RateInside: !v1, Lazy: v1}
	m.use(&rule{
		name: "Momentum", dense: m.update, rows: m.updateRows, lazy: &m.Lazy,
		settings: func() settings { return settings{"mu": m.Mu} },
	}, rate)
	return m
}

func (m *Momentum) update(u *Update) {
	handle, slot, mu := m.parts(u)
	apply := raw.ResourceApplyMomentum
	if m.RateInside {
		apply = raw.ResourceApplyKerasMomentum
	}
	nesterov := raw.WithUseNesterov(m.Nesterov)
	u.Do(func(s *ops.Scope) *tf.Operation {
		return apply(s, handle, slot, u.Rate, u.Grad, mu, nesterov)
	}, u.Grad)
}

func (m *Momentum) updateRows(u *Update) {
	handle, slot, mu := m.parts(u)
	apply := raw.ResourceSparseApplyMomentum
	if m.RateInside {
		apply = raw.ResourceSparseApplyKerasMomentum
	}
	nesterov := raw.WithUseNesterov(m.Nesterov)
	u.Do(func(s *ops.Scope) *tf.Operation {
		return apply(s, handle, slot, u.Rate, u.Grad, u.Indices, mu, nesterov)
	}, u.Grad, u.Indices)
}

func (m *Momentum) parts(u *Update) (handle, slot, mu tf.Output) {
	return u.Variable.Handle(), u.SlotVariable("momentum", ops.Zeros()).Handle(), u.Param("mu", m.Mu)
}
