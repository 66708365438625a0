package optimizers

import (
	"errors"
	"fmt"
	"math"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Constraint is a condition that a variable is brought back to after each update.
type Constraint interface {
	// Constrain is the value nearest to w that the condition holds for.
	Constrain(f ops.Formula, w tf.Output) tf.Output
}

// Constrained is rule with a constraint on each variable below the paths, on all
// of them if none is given, put into force after each update. It is applied to
// all of a variable, also where the gradient is sparse. Steps that a rule inside
// leaves out change nothing. Around an [EMA] the average is of the weights
// before the constraint, as in Keras; inside of one, after it.
func Constrained(rule Rule, c Constraint, scopes ...string) *Optimizer {
	return around(rule, &constrained{wrapper{rule}, c, scopes})
}

type constrained struct {
	wrapper
	constraint Constraint
	scopes     []string
}

func (c *constrained) of(vars []*ops.Variable) []*ops.Variable {
	return Where(vars, func(v *ops.Variable) bool { return len(c.scopes) == 0 || ops.InScope(v.Name(), c.scopes...) })
}

func (c *constrained) Check(vars []*ops.Variable) error {
	if c.constraint == nil {
		return errors.New("constraint: it is nil; wanted MaxNorm, UnitNorm, MinMaxNorm or NonNegative")
	}
	if err := checkScopes("constraint", c.scopes, vars); err != nil {
		return err
	}
	if checked, ok := c.constraint.(Checker); ok {
		return checked.Check(c.of(vars))
	}
	return nil
}

func (c *constrained) Finish(a *Apply) []*tf.Operation {
	return a.whenMoved(c.inner.Finish(a), func(s *ops.Scope) (done []*tf.Operation) {
		s = s.NameScope("constraint")
		for _, v := range c.of(a.Variables) {
			w := c.constraint.Constrain(ops.NewFormula(s, v.DType()), v.Read(s))
			done = append(done, v.Assign(s, w))
		}
		return slices.DeleteFunc(done, func(o *tf.Operation) bool { return o == nil })
	})
}

// NonNegative makes 0 of what is below: Keras' NonNeg.
type NonNegative struct{}

// Constrain is max(w, 0).
func (NonNegative) Constrain(f ops.Formula, w tf.Output) tf.Output {
	return f.Maximum(w, f.Constant(0))
}

// MaxNorm limits the L2 norm of the weights along Axes to Max: Keras' MaxNorm,
// w·clip(n, 0, Max)/(10⁻⁷ + n) with n the norm.
type MaxNorm struct {
	Max  float64 // 0 or more; Keras' default is 2
	Axes []int   // counted from 0; none: {0}, the weights of each unit of a dense layer
}

// Constrain is w with its norms limited.
func (m MaxNorm) Constrain(f ops.Formula, w tf.Output) tf.Output {
	return rescale(f, w, m.Axes, func(n tf.Output) tf.Output { return f.Clip(n, f.Constant(0), f.Constant(m.Max)) })
}

// Check says what is wrong with the settings.
func (m MaxNorm) Check(vars []*ops.Variable) error {
	if err := atLeast(0, "constraint: the maximal norm", m.Max); err != nil {
		return err
	}
	return checkAxes(m.Axes, vars)
}

// UnitNorm makes the L2 norm of the weights along Axes 1: Keras' UnitNorm,
// w/(10⁻⁷ + n) with n the norm.
type UnitNorm struct {
	Axes []int // counted from 0; none: {0}
}

// Constrain is w divided by its norms.
func (m UnitNorm) Constrain(f ops.Formula, w tf.Output) tf.Output {
	return f.Div(w, f.Add(f.Constant(normEpsilon), norms(f, w, m.Axes)))
}

// Check says what is wrong with the settings.
func (m UnitNorm) Check(vars []*ops.Variable) error { return checkAxes(m.Axes, vars) }

// MinMaxNorm brings the L2 norm of the weights along Axes by the part Rate of the
// way into [Min, Max]: Keras' MinMaxNorm.
type MinMaxNorm struct {
	Min, Max float64 // Keras' defaults are 0 and 1
	Rate     float64 // above 0, up to 1, which is all of the way
	Axes     []int   // counted from 0; none: {0}
}

// Constrain is w with its norms moved.
func (m MinMaxNorm) Constrain(f ops.Formula, w tf.Output) tf.Output {
	return rescale(f, w, m.Axes, func(n tf.Output) tf.Output {
		in := f.Clip(n, f.Constant(m.Min), f.Constant(m.Max))
		return f.Add(f.Mul(f.Constant(m.Rate), in), f.Mul(f.Constant(1-m.Rate), n))
	})
}

// Check says what is wrong with the settings.
func (m MinMaxNorm) Check(vars []*ops.Variable) error {
	if !(0 <= m.Min && m.Min <= m.Max && !math.IsInf(m.Max, 1)) {
		return fmt.Errorf("constraint: norms in [%v, %v], wanted 0 ≤ Min ≤ Max", m.Min, m.Max)
	}
	if !(m.Rate > 0 && m.Rate <= 1) {
		return fmt.Errorf("constraint: Rate is %v, wanted a number above 0, up to 1", m.Rate)
	}
	return checkAxes(m.Axes, vars)
}

// normEpsilon is Keras' epsilon.
const normEpsilon = 1e-7

// norms are the L2 norms of w along axes, of w's rank.
func norms(f ops.Formula, w tf.Output, axes []int) tf.Output {
	list := []int32{0}
	if len(axes) > 0 {
		list = list[:0]
		for _, axis := range axes {
			list = append(list, int32(axis))
		}
	}
	along := ops.Const(f.Scope, ops.Shape{int64(len(list))}, list)
	return f.Sqrt(raw.Sum(f.Scope, f.Square(w), along, raw.WithKeepDims(true)))
}

// rescale is w with norms that are made of its own.
func rescale(f ops.Formula, w tf.Output, axes []int, wanted func(n tf.Output) tf.Output) tf.Output {
	n := norms(f, w, axes)
	return f.Mul(w, f.Div(wanted(n), f.Add(f.Constant(normEpsilon), n)))
}

func checkAxes(axes []int, vars []*ops.Variable) error {
	if len(axes) == 0 {
		axes = []int{0}
	}
	for i, axis := range axes {
		if axis < 0 || slices.Contains(axes[:i], axis) {
			return fmt.Errorf("constraint: axes %v, wanted different ones, counted from 0", axes)
		}
		for _, v := range vars {
			if rank := v.Shape().Rank(); axis >= rank {
				return fmt.Errorf("constraint: %q has %d axes, so there is no axis %d; name the scopes that it is for", v.Name(), rank, axis)
			}
		}
	}
	return nil
}
