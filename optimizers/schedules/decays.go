package schedules

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
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
	return at(s, dt, d, func(f ops.Formula) tf.Output {
		return f.Mul(f.Constant(d.Initial), f.Pow(f.Constant(d.Rate), periods(f, step, d.Steps, d.Staircase)))
	})
}

// Check says what is wrong with the settings.
func (d ExponentialDecay) Check() error {
	return check("exponential decay", steps("Steps", d.Steps), atLeast(0, "Rate", d.Rate), finite("Initial", d.Initial))
}

// periods is step/n, rounded down for a staircase.
func periods(f ops.Formula, step tf.Output, n int64, staircase bool) tf.Output {
	p := f.Div(f.Cast(step), f.Constant(float64(n)))
	if staircase {
		return f.Floor(p)
	}
	return p
}

// NaturalExpDecay falls from Initial exponentially:
//
//	Initial · exp(-Rate)^(step/Steps)
//
// It is tf.compat.v1.train.natural_exp_decay.
type NaturalExpDecay struct {
	Initial   float64
	Steps     int64   // steps in which it falls once by exp(-Rate), above 0
	Rate      float64 // 0 or more
	Staircase bool    // it falls in jumps, every Steps steps
}

// At is the value at a step.
func (d NaturalExpDecay) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	return at(s, dt, d, func(f ops.Formula) tf.Output {
		rate := f.Exp(f.Neg(f.Constant(d.Rate)))
		return f.Mul(f.Constant(d.Initial), f.Pow(rate, periods(f, step, d.Steps, d.Staircase)))
	})
}

// Check says what is wrong with the settings.
func (d NaturalExpDecay) Check() error {
	return check("natural exponential decay", steps("Steps", d.Steps), atLeast(0, "Rate", d.Rate), finite("Initial", d.Initial))
}

// InverseTimeDecay falls from Initial as one over the time:
//
//	Initial / (1 + Rate·step/Steps)
//
// It is tf.keras.optimizers.schedules.InverseTimeDecay and
// tf.compat.v1.train.inverse_time_decay.
type InverseTimeDecay struct {
	Initial   float64
	Steps     int64   // how many steps count as one unit of time, above 0
	Rate      float64 // 0 or more
	Staircase bool    // it falls in jumps, every Steps steps
}

// At is the value at a step.
func (d InverseTimeDecay) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	return at(s, dt, d, func(f ops.Formula) tf.Output {
		part := f.Mul(f.Constant(d.Rate), periods(f, step, d.Steps, d.Staircase))
		return f.Div(f.Constant(d.Initial), f.Add(f.Constant(1), part))
	})
}

// Check says what is wrong with the settings.
func (d InverseTimeDecay) Check() error {
	return check("inverse time decay", steps("Steps", d.Steps), atLeast(0, "Rate", d.Rate), finite("Initial", d.Initial))
}

// PolynomialDecay goes from Initial to End in Steps steps, and stays there:
//
//	(Initial - End)·(1 - min(step, Steps)/Steps)^Power + End
//
// [NewPolynomialDecay] fills in Python's defaults. It is
// tf.keras.optimizers.schedules.PolynomialDecay and
// tf.compat.v1.train.polynomial_decay.
type PolynomialDecay struct {
	Initial, End float64
	Steps        int64   // above 0
	Power        float64 // above 0; 1 is a straight line
	// Cycle goes on instead: after Steps steps it jumps up and falls to End in
	// a time that is the next multiple of Steps.
	Cycle bool
}

// NewPolynomialDecay is a [PolynomialDecay] that ends at 0.0001 with power 1.
func NewPolynomialDecay(initial float64, steps int64) PolynomialDecay {
	return PolynomialDecay{Initial: initial, End: 1e-4, Steps: steps, Power: 1}
}

// At is the value at a step.
func (d PolynomialDecay) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	return at(s, dt, d, func(f ops.Formula) tf.Output {
		one, initial, end := f.Constant(1), f.Constant(d.Initial), f.Constant(d.End)
		now, all := f.Cast(step), f.Constant(float64(d.Steps))
		if d.Cycle {
			times := f.Select(f.Equal(now, f.Constant(0)), one, f.Ceil(f.Div(now, all)))
			all = f.Mul(all, times)
		} else {
			now = f.Minimum(now, all)
		}
		left := f.Pow(f.Sub(one, f.Div(now, all)), f.Constant(d.Power))
		return f.Add(f.Mul(f.Sub(initial, end), left), end)
	})
}

// Check says what is wrong with the settings.
func (d PolynomialDecay) Check() error {
	return check("polynomial decay", steps("Steps", d.Steps), above(0, "Power", d.Power),
		finite("Initial", d.Initial), finite("End", d.End))
}
