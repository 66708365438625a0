package optimizers

import (
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Adafactor is Adam without momentum that keeps, of a matrix's mean squares,
// only the means of rows and columns (Shazeer and Stern, arXiv:1804.04235), as
// in Keras. With t the number of this update, from 1, q = g² + Epsilon1, and
// rms the root of the mean square of all elements:
//
//	b = 1 - t^Beta2Decay
//	r := b·r + (1-b)·mean(q, last dimension)
//	c := b·c + (1-b)·mean(q, second last dimension)
//	v = r/mean(r) ⊗ c            of variables of rank 0 and 1: v := b·v + (1-b)·q
//	s = g/√v,   s = s/max(1, rms(s)/ClipThreshold)
//	w := w - max(Epsilon2, rms(w))·min(rate, 1/√t)·s
//
// The slots are "r" and "c" of variables of rank 2 and above, of shapes
// [..., rows] and [..., columns], else "velocity" (v). It is composed. A sparse
// gradient is one with zeros in the other rows.
type Adafactor struct {
	Optimizer
	Beta2Decay         ops.Hyperparameter // the exponent, default -0.8
	Epsilon1, Epsilon2 ops.Hyperparameter // defaults 1e-30 and 1e-3
	ClipThreshold      ops.Hyperparameter // default 1
	// RelativeStep, the default, keeps the rate below 1/√t. Without it the rate
	// is what Rate says. (Keras keeps it below also with relative_step=False.)
	RelativeStep bool
}

// NewAdafactor is [Adafactor] with the defaults. Keras' rate is 0.001.
func NewAdafactor(rate float64) *Adafactor {
	a := &Adafactor{
		Beta2Decay: Value(-0.8), Epsilon1: Value(1e-30), Epsilon2: Value(1e-3), ClipThreshold: Value(1), RelativeStep: true,
	}
	a.use(&rule{
		name: "Adafactor", dense: a.update, lazy: new(bool),
		settings: func() settings {
			return settings{"beta2_decay": a.Beta2Decay, "epsilon1": a.Epsilon1, "epsilon2": a.Epsilon2, "clip_threshold": a.ClipThreshold}
		},
	}, rate)
	return a
}

func (a *Adafactor) update(u *Update) {
	param := func(f ops.Formula, name string, h ops.Hyperparameter) tf.Output {
		return u.Apply.Param(name, h, f.DType)
	}
	// moved is b·slot + (1-b)·x, and the slot's new value.
	moved := func(name string, slot *ops.Variable, x tf.Output) tf.Output {
		kept := u.OnceWide("new_part", func(f ops.Formula) tf.Output { return f.Pow(u.number(f), param(f, "beta2_decay", a.Beta2Decay)) })
		old := slot.Value()
		value := u.Add(old, u.Mul(u.Sub(x, old), kept))
		u.SetSlot(name, value)
		return value
	}
	square := u.Add(u.Square(u.Grad), u.Param("epsilon1", a.Epsilon1))
	shape := u.Variable.Shape()
	var step tf.Output
	if rank := len(shape); rank < 2 {
		step = u.Mul(u.Grad, u.Rsqrt(moved("velocity", u.SlotVariable("velocity", ops.Zeros()), square)))
	} else {
		r := moved("r", u.ShapedSlot("r", shape[:rank-1], ops.Zeros()), meanOver(u.Formula, square, -1, false))
		c := moved("c", u.ShapedSlot("c", slices.Concat(shape[:rank-2], shape[rank-1:]), ops.Zeros()), meanOver(u.Formula, square, -2, false))
		rows := u.Rsqrt(u.Div(r, meanOver(u.Formula, r, -1, true)))
		axis := func(i float64) tf.Output { return ops.Number(u.Scope, tf.Int32, i) }
		step = u.Mul(u.Mul(u.Grad, raw.ExpandDims(u.Scope, rows, axis(-1))), raw.ExpandDims(u.Scope, u.Rsqrt(c), axis(-2)))
	}
	rate := u.wide(func(f ops.Formula) tf.Output {
		elements, _ := shape.NumElements()
		count := f.Constant(float64(max(1, elements)))
		rms := func(x tf.Output) tf.Output { return f.Sqrt(f.Div(sumOf(f, f.Square(f.Cast(x))), count)) }
		rate := f.Cast(u.Rate)
		if a.RelativeStep {
			rate = f.Minimum(rate, f.Rsqrt(u.number(f)))
		}
		rate = f.Mul(rate, f.Maximum(param(f, "epsilon2", a.Epsilon2), rms(u.Var)))
		return f.Div(rate, f.Maximum(f.Constant(1), f.Div(rms(step), param(f, "clip_threshold", a.ClipThreshold))))
	})
	u.Assign(u.Sub(u.Var, u.Mul(step, rate)))
}

// wide builds a tensor in float32, for a float64 variable in float64, and casts
// it to the variable's dtype: for sums, which 16 bits can't hold.
func (u *Update) wide(build func(f ops.Formula) tf.Output) tf.Output {
	f := u.Formula
	if f.DType != tf.Double {
		f = f.Of(tf.Float)
	}
	return u.Cast(build(f))
}

// sumOf is the sum of all elements, a scalar.
func sumOf(f ops.Formula, x tf.Output) tf.Output {
	flat := raw.Reshape(f.Scope, x, ops.Const(f.Scope, ops.Shape{1}, []int32{-1}))
	return raw.Sum(f.Scope, flat, ops.Number(f.Scope, tf.Int32, 0))
}

// meanOver is the mean over one dimension, which stays with the size 1 or goes.
func meanOver(f ops.Formula, x tf.Output, axis float64, keep bool) tf.Output {
	return raw.Mean(f.Scope, x, ops.Number(f.Scope, tf.Int32, axis), raw.WithKeepDims(keep))
}
