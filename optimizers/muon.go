package optimizers

import (
	"fmt"
	"math"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Muon moves a matrix by the orthogonal matrix nearest to its momentum (Jordan
// et al., "Muon: An optimizer for hidden layers in neural networks", 2024; with
// decay and scale of Liu et al., arXiv:2502.16982), and everything else by
// Adam, as in Keras:
//
//	w := w - rate·Decay·w
//	m := momentum·m + g
//	x = g + momentum·m           without Nesterov m
//	w := w - rate · RMSRate·√(larger dimension) · orthogonal(x)
//
// orthogonal starts from x/(‖x‖ + 1e-7), lying, and does Iterations times
// X := A·X + (B·S + C·S²)·X with S = X·Xᵀ (Newton and Schulz).
//
// Adam takes the variables that are not of rank 2, those with "embedding" in
// their names, and those that Exclude picks.
//
// The slots are Keras' "momentum", and of variables of Adam's also "velocity".
// It is composed. A sparse gradient is one with zeros in the other rows.
type Muon struct {
	Optimizer
	Momentum   ops.Hyperparameter // default 0.95
	Nesterov   bool               // default true
	Iterations int                // default 5
	A, B, C    float64            // defaults 3.4445, -4.7750, 2.0315
	// RMSRate makes a step as large as Adam's, default 0.2; nil for the step of
	// the first authors, without RMSRate·√(larger dimension).
	RMSRate ops.Hyperparameter
	Decay   ops.Hyperparameter // default 0.004, nil for none

	// Exclude picks further matrices for Adam; nil picks none.
	Exclude                           func(v *ops.Variable) bool
	AdamBeta1, AdamBeta2, AdamEpsilon ops.Hyperparameter // defaults 0.9, 0.999, 1e-7
	AdamDecay                         ops.Hyperparameter // default 0.004, nil for none
	AdamRateRatio                     ops.Hyperparameter // of Adam's rate to Rate, default 1
}

// NewMuon is [Muon] with the defaults. Keras' rate is 0.001.
func NewMuon(rate float64) *Muon {
	m := &Muon{
		Momentum: Value(0.95), Nesterov: true, Iterations: 5, A: 3.4445, B: -4.7750, C: 2.0315,
		RMSRate: Value(0.2), Decay: Value(0.004),
		AdamBeta1: Value(0.9), AdamBeta2: Value(0.999), AdamEpsilon: Value(1e-7), AdamDecay: Value(0.004), AdamRateRatio: Value(1),
	}
	m.use(&rule{
		name: "Muon", dense: m.update, lazy: new(bool),
		settings: func() settings {
			return settings{
				"momentum": m.Momentum, "rms_rate": orZero(m.RMSRate), "decay": orZero(m.Decay),
				"adam_beta1": m.AdamBeta1, "adam_beta2": m.AdamBeta2, "adam_epsilon": m.AdamEpsilon,
				"adam_decay": orZero(m.AdamDecay), "adam_rate_ratio": m.AdamRateRatio,
			}
		},
		check: func([]*ops.Variable) error {
			if m.Iterations < 0 || m.Iterations > 100 {
				return fmt.Errorf("%d iterations, wanted 0 to 100", m.Iterations)
			}
			return nil
		},
	}, rate)
	return m
}

func (m *Muon) ofAdam(v *ops.Variable) bool {
	return v.Shape().Rank() != 2 || strings.Contains(strings.ToLower(v.Name()), "embedding") || m.Exclude != nil && m.Exclude(v)
}

func (m *Muon) update(u *Update) {
	if m.ofAdam(u.Variable) {
		m.adam(u)
		return
	}
	w := u.decayed("decay", m.Decay)
	mu := u.Param("momentum", m.Momentum)
	old := u.Slot("momentum", ops.Zeros())
	memory := u.Add(u.Grad, u.Mul(old, mu))
	u.SetSlot("momentum", memory)
	x := memory
	if m.Nesterov {
		x = u.Add(u.Grad, u.Mul(memory, mu))
	}
	rate := u.Rate
	if m.RMSRate != nil {
		shape := u.Variable.Shape()
		scale := u.Mul(u.Param("rms_rate", m.RMSRate), u.Constant(math.Sqrt(float64(max(shape[0], shape[1])))))
		rate = u.Mul(rate, scale)
	}
	u.Assign(u.Sub(w, u.Mul(m.orthogonal(u, x), rate)))
}

// orthogonal is nearly U·Vᵀ of x = U·S·Vᵀ.
func (m *Muon) orthogonal(u *Update, x tf.Output) tf.Output {
	shape := u.Variable.Shape()
	standing := shape[0] > shape[1]
	// gram is X·Xᵀ of the lying X, power what a matrix of its size does to X.
	product := func(a, b tf.Output, transposeA, transposeB bool) tf.Output {
		return raw.MatMul(u.Scope, a, b, raw.WithTransposeA(transposeA), raw.WithTransposeB(transposeB))
	}
	norm := u.wide(func(f ops.Formula) tf.Output {
		return f.Add(f.Sqrt(sumOf(f, f.Square(f.Cast(x)))), f.Constant(1e-7))
	})
	x = u.Div(x, norm)
	for range m.Iterations {
		gram := product(x, x, standing, !standing)
		poly := u.Add(u.Mul(gram, u.Constant(m.B)), u.Mul(product(gram, gram, false, false), u.Constant(m.C)))
		next := tf.Output{}
		if standing {
			next = product(x, poly, false, false) // poly is symmetric
		} else {
			next = product(poly, x, false, false)
		}
		x = u.Add(u.Mul(x, u.Constant(m.A)), next)
	}
	return x
}

func (m *Muon) adam(u *Update) {
	w := u.decayed("adam_decay", m.AdamDecay)
	memory := u.average("momentum", ops.Zeros(), "adam_beta1", m.AdamBeta1, u.Grad)
	v := u.average("velocity", ops.Zeros(), "adam_beta2", m.AdamBeta2, u.Square(u.Grad))
	step := u.adamStep(memory, v, "adam_", m.AdamBeta1, m.AdamBeta2, m.AdamEpsilon)
	if fixed, constant := m.AdamRateRatio.(ops.Fixed); !constant || fixed != 1 {
		step = u.Mul(step, u.Param("adam_rate_ratio", m.AdamRateRatio))
	}
	u.Assign(u.Sub(w, step))
}

// decayed is the variable less the part rate·decay of itself; decay may be nil.
func (u *Update) decayed(name string, decay ops.Hyperparameter) tf.Output {
	if isZero(decay) {
		return u.Var
	}
	part := u.OnceWide("rate_"+name, func(f ops.Formula) tf.Output {
		return f.Mul(f.Cast(u.Rate), u.Apply.Param(name, decay, f.DType))
	})
	return u.Sub(u.Var, u.Mul(u.Var, part))
}
