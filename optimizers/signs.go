package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Signs are AddSign and PowerSign (Bello et al., "Neural Optimizer Search with
// Reinforcement Learning", arXiv:1709.07417), which enlarge the gradient where
// it agrees in sign with its moving average and shrink it elsewhere:
//
//	m := beta·m + (1-beta)·g
//	w := w - rate·(Scale + Decay·sign(g)·sign(m))·g        AddSign
//	w := w - rate·exp(Scale·Decay·sign(g)·sign(m))·g       PowerSign
//
// They were in TensorFlow 1's contrib, of which the fused operations
// ResourceApplyAddSign and ResourceApplyPowerSign remain. The slot is "m".
type Signs struct {
	Optimizer
	Beta ops.Hyperparameter // of the moving average, default 0.9
	// Scale is alpha of AddSign, default 1, and the logarithm of PowerSign's
	// base, default 1 for the base e.
	Scale ops.Hyperparameter
	Decay ops.Hyperparameter // of the signs, a schedule from 1 to 0; default 1
	// Lazy leaves the average of the rows that a sparse gradient does not touch
	// as it is; otherwise it decays. The rows themselves never move.
	Lazy bool

	power bool
}

// NewAddSign is AddSign with the defaults of [Signs]; contrib's rate was 0.1.
func NewAddSign(rate float64) *Signs { return newSigns("AddSign", rate, false) }

// NewPowerSign is PowerSign with the defaults of [Signs]; contrib's rate was 0.1.
func NewPowerSign(rate float64) *Signs { return newSigns("PowerSign", rate, true) }

func newSigns(name string, rate float64, power bool) *Signs {
	o := &Signs{Beta: Value(0.9), Scale: Value(1), Decay: Value(1), power: power}
	o.use(&rule{
		name: name, dense: o.update, rows: o.updateRows, lazy: &o.Lazy,
		settings: func() settings { return settings{"beta": o.Beta, "scale": o.Scale, "decay": o.Decay} },
	}, rate)
	return o
}

func (o *Signs) update(u *Update) {
	w, m := u.Variable.Handle(), u.SlotVariable("m", ops.Zeros()).Handle()
	beta, scale, decay := u.Param("beta", o.Beta), u.Param("scale", o.Scale), u.Param("decay", o.Decay)
	u.Do(func(s *ops.Scope) *tf.Operation {
		if o.power {
			return raw.ResourceApplyPowerSign(s, w, m, u.Rate, scale, decay, beta, u.Grad)
		}
		return raw.ResourceApplyAddSign(s, w, m, u.Rate, scale, decay, beta, u.Grad)
	}, u.Grad)
}

// updateRows composes what there is no sparse operation for.
func (o *Signs) updateRows(u *Update) {
	m := u.average("m", ops.Zeros(), "beta", o.Beta, u.Grad)
	scale := u.Param("scale", o.Scale)
	agree := u.Mul(u.Param("decay", o.Decay), u.Mul(u.Sign(u.Grad), u.Sign(m)))
	if o.power {
		agree = u.Exp(u.Mul(scale, agree))
	} else {
		agree = u.Add(scale, agree)
	}
	u.Assign(u.Sub(u.Var, u.Mul(u.Rate, u.Mul(agree, u.Grad))))
}
