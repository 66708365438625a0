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
// They combine: [LinearWarmup] and [ConstantWarmup] stand in front of any other,
// [Sequence] puts them one after another, and [Formula] is one of your own. A
// rate that follows a measurement, [Plateau], is computed by the program and
// fed. What is wrong with the settings is an error where a schedule is used,
// before anything is added to the graph.
//
// Each type implements [ops.Hyperparameter], as does anything of your own with
// its one method.
package schedules

import (
	"errors"
	"fmt"
	"math"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// Formula is a schedule given by its formula. step is the count of steps as a
// scalar of f's dtype, in which the result is too:
//
//	adam.Rate = schedules.Formula(func(f ops.Formula, step tf.Output) tf.Output {
//		return f.Mul(f.Constant(0.1), f.Rsqrt(f.Add(step, f.Constant(1))))
//	})
type Formula func(f ops.Formula, step tf.Output) tf.Output

// At is the value at a step.
func (formula Formula) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	return at(s, dt, formula, func(f ops.Formula) tf.Output { return formula(f, f.Cast(step)) })
}

// Check says whether there is a formula.
func (formula Formula) Check() error {
	if formula == nil {
		return errors.New("formula of the step: it is nil")
	}
	return nil
}

// checker is what all schedules are.
type checker interface{ Check() error }

// at builds a schedule that is all right: in float32, or in float64 for values
// of that dtype.
func at(s *ops.Scope, dt tf.DataType, c checker, build func(f ops.Formula) tf.Output) tf.Output {
	if err := c.Check(); err != nil {
		s.Fail(err)
		return tf.Output{}
	}
	wide := dt
	if dt != tf.Double {
		wide = tf.Float
	}
	f := ops.NewFormula(s, wide)
	value := build(f)
	if value.Op == nil {
		if s.Err() == nil {
			s.Fail(errors.New("a schedule gave no tensor"))
		}
		return tf.Output{}
	}
	return f.Of(dt).Cast(value)
}

// check is the first of the problems that there are.
func check(what string, problems ...error) error {
	for _, p := range problems {
		if p != nil {
			return fmt.Errorf("%s: %w", what, p)
		}
	}
	return nil
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func finite(name string, v float64) error {
	if isFinite(v) {
		return nil
	}
	return fmt.Errorf("%s is %v, wanted a finite number", name, v)
}

func atLeast(bound float64, name string, v float64) error {
	if isFinite(v) && v >= bound {
		return nil
	}
	return fmt.Errorf("%s is %v, wanted a finite number, %v or more", name, v, bound)
}

func above(bound float64, name string, v float64) error {
	if isFinite(v) && v > bound {
		return nil
	}
	return fmt.Errorf("%s is %v, wanted a finite number above %v", name, v, bound)
}

// steps checks a number of steps.
func steps(name string, n int64) error {
	if n > 0 {
		return nil
	}
	return fmt.Errorf("%s is %d, wanted above 0", name, n)
}

// inner checks another schedule, as far as it can be.
func inner(name string, h ops.Hyperparameter) error {
	if h == nil {
		return fmt.Errorf("%s is nil; wanted a schedule, ops.Fixed or ops.Fed(tensor)", name)
	}
	if c, ok := h.(checker); ok {
		if err := c.Check(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func below(bound float64, name string, v float64) error {
	if v < bound {
		return nil
	}
	return fmt.Errorf("%s is %v, wanted below %v", name, v, bound)
}
