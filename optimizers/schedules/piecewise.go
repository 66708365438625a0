package schedules

import (
	"errors"
	"fmt"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

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
	return at(s, dt, p, func(f ops.Formula) tf.Output {
		values := make([]tf.Output, len(p.Values))
		for i, v := range p.Values {
			values[i] = f.Constant(v)
		}
		if len(values) == 1 {
			return values[0]
		}
		boundaries := ops.Const(s, ops.Shape{int64(len(p.Boundaries))}, p.Boundaries)
		passed := raw.Cast(s, f.Greater(step, boundaries), tf.Int32)
		zero := ops.Number(s, tf.Int32, 0)
		index := raw.Sum(s, passed, zero)
		return raw.GatherV2(s, raw.Pack(s, values), index, zero)
	})
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
	if slices.ContainsFunc(p.Values, func(v float64) bool { return !isFinite(v) }) {
		return errors.New("piecewise constant: a value is NaN or infinite")
	}
	return nil
}
