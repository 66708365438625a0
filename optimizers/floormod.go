package optimizers

import (
	"errors"
	"fmt"
	"math"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// FloorMod trains weights that live on a circle, such as phases modulo 2π, by
// a noisy step that is wrapped around:
//
//	w := (w - rate·g + noise) mod Modulus,   noise ~ N(Mean, Stddev)
//
// mod is Python's floormod, which has the sign of the modulus B: after a step
// the weights are in [0, B), for a negative B in (B, 0]. Floormod of a tiny
// negative number rounds to B itself; such a weight becomes the largest number
// below B (for negative B the smallest above it). NaN stays NaN.
//
// A modulus of zero, NaN or infinity is an error: at build where it is a
// constant, else of the run, which then changes nothing.
//
// A sparse gradient updates only its rows, and only they get noise. The noise
// is [Update.Noise].
type FloorMod struct {
	Optimizer
	Modulus      ops.Hyperparameter
	Mean, Stddev ops.Hyperparameter // of the noise; nil counts as 0
}

// NewFloorMod is a [FloorMod] without noise.
func NewFloorMod(rate, modulus float64) *FloorMod {
	f := &FloorMod{Modulus: Value(modulus)}
	f.use(&rule{name: "FloorMod", dense: f.update, check: f.checkModulus, settings: func() settings {
		return settings{"modulus": f.Modulus, "mean": orZero(f.Mean), "stddev": orZero(f.Stddev)}
	}}, rate)
	return f
}

func (r *FloorMod) checkModulus(vars []*ops.Variable) error {
	modulus, constant := r.Modulus.(ops.Fixed)
	if !constant {
		return nil
	}
	for _, v := range vars {
		if _, _, err := circle(float64(modulus), v.DType()); err != nil {
			return fmt.Errorf("variable %q: %w", v.Name(), err)
		}
	}
	return nil
}

func (r *FloorMod) update(u *Update) {
	w := u.Sub(u.Var, u.Mul(u.Rate, u.Grad))
	if !isZero(r.Stddev) {
		w = u.Add(w, u.Mul(u.Noise(), u.Param("stddev", r.Stddev)))
	}
	if !isZero(r.Mean) {
		w = u.Add(w, u.Param("mean", r.Mean))
	}
	if modulus, constant := r.Modulus.(ops.Fixed); constant {
		u.Assign(wrap(u, w, float64(modulus)))
		return
	}
	b, low, high := r.bounds(u)
	w = raw.ClipByValue(u.Scope, u.FloorMod(w, b), low, high)
	positive := u.Once("positive", func(f ops.Formula) tf.Output { return f.Greater(b, f.Constant(0)) })
	u.Assign(u.Select(positive, u.Abs(w), w)) // no -0
}

// long is the number of elements from which wrap does without FloorMod.
const long = 1024

// wrap is w mod modulus, in [0, modulus) or for a negative one in (modulus, 0].
//
// The kernel of FloorMod calls fmod for each element and takes as long as the
// rest of a training step together. What replaces it in long variables runs in
// vector instructions: with k = floor(w/b) the result is w - k·b, where b is
// split into two numbers of half its digits (a b as short as 5 is the first of
// them alone), so that both products are exact as long as |k| has no more digits
// than they lack: 2^12 laps in float32, 2^26 in float64. It then is what FloorMod gives, or its neighbour. Beyond, it is as
// good as w, whose own digits no longer resolve the circle.
func wrap(u *Update, w tf.Output, modulus float64) tf.Output {
	b, edge, _ := circle(modulus, u.DType)
	low, high := min(edge, 0), max(edge, 0)
	elements, _ := bridge.ShapeOf(w).NumElements()
	if elements < long || u.DType != tf.Float && u.DType != tf.Double {
		w = u.FloorMod(w, u.Constant(b))
		if b > 0 {
			return u.Minimum(u.Abs(w), u.Constant(high)) // Abs: FloorMod(-b, b) is -0
		}
		return u.Maximum(w, u.Constant(low))
	}
	upper := math.Float64frombits(math.Float64bits(b) &^ (1<<26 - 1))
	if u.DType == tf.Float {
		upper = float64(math.Float32frombits(math.Float32bits(float32(b)) &^ (1<<12 - 1)))
	}
	k := u.Floor(u.Div(w, u.Constant(b)))
	w = u.Sub(w, u.Mul(k, u.Constant(upper)))
	if lower := b - upper; lower != 0 {
		w = u.Sub(w, u.Mul(k, u.Constant(lower)))
	}
	return raw.ClipByValue(u.Scope, w, u.Constant(low), u.Constant(high))
}

// bounds are the modulus of the step, checked, and the least and the largest
// weight that it allows.
func (r *FloorMod) bounds(u *Update) (modulus, low, high tf.Output) {
	modulus = u.Once("checked_modulus", func(f ops.Formula) tf.Output {
		b := u.Param("modulus", r.Modulus)
		good := f.And(f.IsFinite(b), f.NotEqual(b, f.Constant(0)))
		what := f.Scope.Const("floormod: wanted a modulus that is finite and not 0, got")
		checked := raw.Assert(f.Scope, good, []tf.Output{what, b})
		if checked == nil {
			return tf.Output{}
		}
		return raw.Identity(f.Scope.WithControl(checked), b)
	})
	edge := u.Once("edge", func(f ops.Formula) tf.Output {
		switch f.DType {
		case tf.Float, tf.Double:
			return raw.NextAfter(f.Scope, modulus, f.Constant(0))
		}
		// The number next to b, towards 0: b less a bit more than half of the
		// distance between two numbers of b's size.
		wide := f.Of(tf.Float)
		b := wide.Cast(modulus)
		return f.Cast(wide.Mul(b, wide.Constant(1-0.6*spacing(f.DType))))
	})
	low = u.Once("low", func(f ops.Formula) tf.Output { return f.Minimum(edge, f.Constant(0)) })
	high = u.Once("high", func(f ops.Formula) tf.Output { return f.Maximum(edge, f.Constant(0)) })
	return modulus, low, high
}

// spacing is the distance of 1 to the next larger number.
func spacing(dt tf.DataType) float64 {
	switch dt {
	case tf.Half:
		return 0x1p-10
	case tf.Bfloat16:
		return 0x1p-7
	case tf.Float:
		return 0x1p-23
	}
	return 0x1p-52
}

// circle is a modulus as a number of dtype dt, and the number next to it
// towards 0.
func circle(modulus float64, dt tf.DataType) (b, edge float64, err error) {
	switch dt {
	case tf.Float:
		b = float64(float32(modulus))
		edge = float64(math.Nextafter32(float32(modulus), 0))
	case tf.Half:
		h := bridge.HalfFromFloat32(float32(modulus))
		b, edge = float64(h.Float32()), float64((h - 1).Float32())
	case tf.Bfloat16:
		h := bridge.BFloat16FromFloat32(float32(modulus))
		b, edge = float64(h.Float32()), float64((h - 1).Float32())
	default:
		b, edge = modulus, math.Nextafter(modulus, 0)
	}
	switch {
	case math.IsNaN(modulus):
		err = errors.New("the modulus is NaN, wanted a finite number that is not 0")
	case math.IsInf(b, 0):
		err = fmt.Errorf("the modulus %v is infinite in %s", modulus, bridge.DTypeName(dt))
	case b == 0:
		err = fmt.Errorf("the modulus %v is 0 in %s, and nothing is modulo 0", modulus, bridge.DTypeName(dt))
	}
	return b, edge, err
}

// orZero is a hyperparameter that may be missing.
func orZero(h ops.Hyperparameter) ops.Hyperparameter {
	if h == nil {
		return Value(0)
	}
	return h
}

// isZero says that a hyperparameter is missing or constantly 0.
func isZero(h ops.Hyperparameter) bool {
	fixed, constant := h.(ops.Fixed)
	return h == nil || constant && fixed == 0
}
