package schedules

import (
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// LinearWarmup goes on a straight line from Start to where the schedule Then
// begins, in Steps steps, and is Then from that step on:
//
//	Start + (Then(0) - Start)·step/Steps    step < Steps
//	Then(step - Steps)                      otherwise
type LinearWarmup struct {
	Start float64
	Steps int64 // above 0
	Then  ops.Hyperparameter
	// Beside counts Then's steps from the beginning of the training, so that
	// it is Steps steps on when the warm-up ends, which goes to Then(Steps).
	Beside bool
}

// At is the value at a step.
func (w LinearWarmup) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	return at(s, dt, w, func(f ops.Formula) tf.Output {
		at := after(s, step, w.Steps, w.Beside)
		then := w.Then.At(s, at, f.DType) // what the line goes to, while it lasts
		start := f.Constant(w.Start)
		done := f.Div(f.Cast(step), f.Constant(float64(w.Steps)))
		rising := f.Add(f.Mul(f.Sub(then, start), done), start)
		return f.Select(before(s, step, w.Steps), rising, then)
	})
}

// Check says what is wrong with the settings.
func (w LinearWarmup) Check() error {
	return check("linear warm-up", steps("Steps", w.Steps), finite("Start", w.Start), inner("Then", w.Then))
}

// ConstantWarmup is Value for Steps steps and then the schedule Then, which
// counts its own steps from there.
type ConstantWarmup struct {
	Value float64
	Steps int64 // above 0
	Then  ops.Hyperparameter
	// Beside counts Then's steps from the beginning of the training.
	Beside bool
}

// At is the value at a step.
func (w ConstantWarmup) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	return at(s, dt, w, func(f ops.Formula) tf.Output {
		then := w.Then.At(s, after(s, step, w.Steps, w.Beside), f.DType)
		return f.Select(before(s, step, w.Steps), f.Constant(w.Value), then)
	})
}

// Check says what is wrong with the settings.
func (w ConstantWarmup) Check() error {
	return check("constant warm-up", steps("Steps", w.Steps), finite("Value", w.Value), inner("Then", w.Then))
}

// before is whether a step lies before n, compared as integers.
func before(s *ops.Scope, step tf.Output, n int64) tf.Output {
	f := ops.NewFormula(s, tf.Int64)
	return f.Less(f.Cast(step), ops.Const(s, ops.Shape{}, []int64{n}))
}

// after is the count of steps since n, 0 before. For a schedule that counts
// beside the warm-up it is the step, n before.
func after(s *ops.Scope, step tf.Output, n int64, beside bool) tf.Output {
	f := ops.NewFormula(s, tf.Int64)
	from := ops.Const(s, ops.Shape{}, []int64{n})
	at := f.Maximum(f.Cast(step), from)
	if beside {
		return at
	}
	return f.Sub(at, from)
}

// Sequence is one schedule after another, each with a count of steps of its
// own, which is 0 at its first step:
//
//	schedules.Sequence{
//		{Steps: 1000, Of: ops.Fixed(0.1)},
//		{Steps: 4000, Of: schedules.CosineDecay{Initial: 0.1, Steps: 4000, Alpha: 0.1}},
//		{Of: schedules.InverseTimeDecay{Initial: 0.01, Steps: 1000, Rate: 1}},
//	}
type Sequence []Part

// Part is a schedule in a [Sequence].
type Part struct {
	Steps int64 // how long it lasts; of the last part 0, it goes on
	Of    ops.Hyperparameter
}

// At is the value at a step.
func (q Sequence) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	return at(s, dt, q, func(f ops.Formula) tf.Output {
		value := q[0].Of.At(s, step, f.DType)
		var from int64
		for i, part := range q[1:] {
			from += q[i].Steps
			value = f.Select(before(s, step, from), value, part.Of.At(s, after(s, step, from, false), f.DType))
		}
		return value
	})
}

// Check says what is wrong with the settings.
func (q Sequence) Check() error {
	if len(q) == 0 {
		return fmt.Errorf("sequence of schedules: it has no parts")
	}
	var all int64
	for i, part := range q {
		what := fmt.Sprintf("sequence of schedules: part %d of %d", i+1, len(q))
		last := i == len(q)-1
		switch {
		case last && part.Steps != 0:
			return fmt.Errorf("%s: Steps is %d, but the last part goes on; wanted 0", what, part.Steps)
		case !last && part.Steps <= 0:
			return fmt.Errorf("%s: Steps is %d, wanted above 0", what, part.Steps)
		case all+part.Steps < all:
			return fmt.Errorf("%s: the parts before it last longer than steps can be counted", what)
		}
		all += part.Steps
		if err := check(what, inner("Of", part.Of)); err != nil {
			return err
		}
	}
	return nil
}
