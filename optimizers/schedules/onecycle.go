package schedules

import (
	"fmt"
	"math"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// OneCycle goes from Start up to Peak and then down to End, in Steps steps, and
// stays there (arXiv:1708.07120). A Peak below Start goes down first, as the
// momentum does while the rate goes up.
//
// It is computed as PyTorch's OneCycleLR is, whose defaults [NewOneCycle] has:
// Peak is reached at the step Rise·Steps - 1, which need not be whole, End at the
// step Steps - 1, and each way is half a cosine.
type OneCycle struct {
	Start, Peak, End float64
	Steps            int64
	Rise             float64 // part of the steps until the peak, between 0 and 1
	Linear           bool    // straight lines
}

// NewOneCycle is a [OneCycle] that starts at peak/25, rises for 0.3 of the steps
// and ends at peak/250,000.
func NewOneCycle(peak float64, steps int64) OneCycle {
	return OneCycle{Start: peak / 25, Peak: peak, End: peak / 25e4, Steps: steps, Rise: 0.3}
}

// At is the value at a step.
func (c OneCycle) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	return at(s, dt, c, func(f ops.Formula) tf.Output {
		last := float64(c.Steps - 1)
		peak := c.Rise*float64(c.Steps) - 1
		now := f.Minimum(f.Cast(step), f.Constant(last))
		up := c.way(f, f.Div(now, f.Constant(peak)), c.Start, c.Peak)
		down := c.way(f, f.Div(f.Sub(now, f.Constant(peak)), f.Constant(last-peak)), c.Peak, c.End)
		return f.Select(f.LessEqual(now, f.Constant(peak)), up, down)
	})
}

// way is the value when the part done of the way is behind.
func (c OneCycle) way(f ops.Formula, done tf.Output, from, to float64) tf.Output {
	left := f.Sub(f.Constant(1), done)
	if !c.Linear {
		left = halfCosine(f, f.Mul(f.Constant(math.Pi), done))
	}
	return f.Add(f.Mul(f.Sub(f.Constant(from), f.Constant(to)), left), f.Constant(to))
}

// Check says what is wrong with the settings.
func (c OneCycle) Check() error {
	err := check("one cycle", steps("Steps", c.Steps), finite("Start", c.Start), finite("Peak", c.Peak), finite("End", c.End))
	if err != nil {
		return err
	}
	if rising := c.Rise * float64(c.Steps); !(rising > 1 && rising < float64(c.Steps)) {
		return fmt.Errorf("one cycle: Rise is %v of %d steps, wanted more than one step and fewer than all", c.Rise, c.Steps)
	}
	return nil
}
