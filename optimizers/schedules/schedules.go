// Package schedules makes a hyperparameter, such as a learning rate, depend on
// the step of the training:
//
//	adam := optimizers.NewAdam(1e-3)
//	adam.Rate = schedules.ExponentialDecay{Initial: 1e-3, Steps: 10_000, Rate: 0.96}
//
// A schedule is part of the graph and sees the optimizer's count of steps, 0
// during the first. It is computed in float32, in float64 for variables of that
// dtype, by the operations that Python uses, and then cast to the variable's
// dtype. In float32 a step above 2^24 is rounded, as it is in Python, except
// where a schedule says otherwise.
//
// Each type implements [ops.Hyperparameter], as does anything of your own with
// its one method.
package schedules

import (
	"errors"
	"fmt"
	"math"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// ExponentialDecay falls from Initial by the factor Rate every Steps steps:
//
//	Initial · Rate^(step/Steps)
//
// It is tf.keras.optimizers.schedules.ExponentialDecay and
// tf.compat.v1.train.exponential_decay.
type ExponentialDecay struct {
	Initial float64
	Steps   int64   // steps in which it falls once by Rate, above 0
	Rate    float64 // factor, 0 or more
	// Staircase lets it fall in jumps, every Steps steps, and not in between.
	Staircase bool
}

// At is the value at a step.
func (d ExponentialDecay) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	if err := d.Check(); err != nil {
		s.Fail(err)
		return tf.Output{}
	}
	f := formula(s, dt)
	times := f.Div(f.Cast(step), f.Constant(float64(d.Steps)))
	if d.Staircase {
		times = f.Floor(times)
	}
	return f.Of(dt).Cast(f.Mul(f.Constant(d.Initial), f.Pow(f.Constant(d.Rate), times)))
}

// Check says what is wrong with the settings.
func (d ExponentialDecay) Check() error {
	switch {
	case d.Steps <= 0:
		return fmt.Errorf("exponential decay: Steps is %d, wanted above 0", d.Steps)
	case !(d.Rate >= 0) || math.IsInf(d.Rate, 1):
		return fmt.Errorf("exponential decay: Rate is %v, wanted a finite number, 0 or more", d.Rate)
	case math.IsNaN(d.Initial) || math.IsInf(d.Initial, 0):
		return fmt.Errorf("exponential decay: Initial is %v, wanted a finite number", d.Initial)
	}
	return nil
}

// PiecewiseConstant has one value up to and including each boundary:
//
//	Values[0]      step ≤ Boundaries[0]
//	Values[i]      Boundaries[i-1] < step ≤ Boundaries[i]
//	Values[last]   after the last boundary
//
// Steps are compared as integers, however large. It is
// tf.keras.optimizers.schedules.PiecewiseConstantDecay and
// tf.compat.v1.train.piecewise_constant.
type PiecewiseConstant struct {
	Boundaries []int64   // rising
	Values     []float64 // one more than there are boundaries
}

// At is the value at a step.
func (p PiecewiseConstant) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	if err := p.Check(); err != nil {
		s.Fail(err)
		return tf.Output{}
	}
	f := formula(s, dt)
	if len(p.Boundaries) == 0 {
		return f.Of(dt).Constant(p.Values[0])
	}
	values := make([]tf.Output, len(p.Values))
	for i, v := range p.Values {
		values[i] = f.Constant(v)
	}
	boundaries := ops.Const(s, ops.Shape{int64(len(p.Boundaries))}, p.Boundaries)
	passed := raw.Cast(s, f.Greater(step, boundaries), tf.Int32)
	zero := ops.Number(s, tf.Int32, 0)
	index := raw.Sum(s, passed, zero)
	return f.Of(dt).Cast(raw.GatherV2(s, raw.Pack(s, values), index, zero))
}

// Check says what is wrong with the settings.
func (p PiecewiseConstant) Check() error {
	if len(p.Values) != len(p.Boundaries)+1 {
		return fmt.Errorf("piecewise constant: %d values for %d boundaries, wanted one value more than boundaries",
			len(p.Values), len(p.Boundaries))
	}
	for i := 1; i < len(p.Boundaries); i++ {
		if p.Boundaries[i] <= p.Boundaries[i-1] {
			return fmt.Errorf("piecewise constant: boundary %d follows %d, wanted them rising", p.Boundaries[i], p.Boundaries[i-1])
		}
	}
	if slices.ContainsFunc(p.Values, math.IsNaN) {
		return errors.New("piecewise constant: a value is NaN")
	}
	return nil
}

// formula computes in float32, or in float64 for values of that dtype.
func formula(s *ops.Scope, dt tf.DataType) ops.Formula {
	if dt != tf.Double {
		dt = tf.Float
	}
	return ops.NewFormula(s, dt)
}
