package optimizers

import (
	"github.com/sluice-ml/sluice/ops"
)

// Lion moves every weight by the same amount, in the direction of the sign of
// an interpolated gradient (Chen et al., "Symbolic Discovery of Optimization
// Algorithms", arXiv:2302.06675), as in Keras:
//
//	w := w - rate·sign(beta1·m + (1-beta1)·g)
//	m := beta2·m + (1-beta2)·g
//
// Its rates are a third to a tenth of Adam's, its decays larger by as much. The
// slot is Keras' "momentum" (m). It is composed.
type Lion struct {
	Optimizer
	Beta1, Beta2 ops.Hyperparameter
	// Lazy leaves the rows that a sparse gradient does not touch, and their
	// slots, as they are; otherwise they go on by what they remember.
	Lazy bool
}

// NewLion is [Lion] with beta1 0.9 and beta2 0.99. Keras' rate is 0.001.
func NewLion(rate float64) *Lion {
	l := &Lion{Beta1: Value(0.9), Beta2: Value(0.99)}
	l.use(&rule{
		name: "Lion", dense: l.update, lazy: &l.Lazy,
		settings: func() settings { return settings{"beta1": l.Beta1, "beta2": l.Beta2} },
	}, rate)
	return l
}

func (l *Lion) update(u *Update) {
	m := u.Slot("momentum", ops.Zeros())
	direction := u.Add(u.Mul(m, u.Param("beta1", l.Beta1)), u.Mul(u.Grad, oneLess(u, "beta1", l.Beta1)))
	u.SetSlot("momentum", u.Add(u.Mul(m, u.Param("beta2", l.Beta2)), u.Mul(u.Grad, oneLess(u, "beta2", l.Beta2))))
	u.Assign(u.Sub(u.Var, u.Mul(u.Rate, u.Sign(direction))))
}
