package optimizers

import (
	"fmt"
	"math"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// ClipByValue limits every element of the gradients to [low, high]. NaN stays
// NaN. It is Python's tf.clip_by_value.
//
// In a sparse gradient, rows with the same index are summed first, here and in
// the other Clip functions, so that clipping gives the same as for a dense one.
// (Python clips the rows as they come.) Gradients that are missing stay so.
func ClipByValue(grads []Grad, low, high float64) ([]Grad, error) {
	if !(low <= high) {
		return nil, fmt.Errorf("clip by value: low %v and high %v, wanted low ≤ high", low, high)
	}
	return clip("clip_by_value", grads, func(s *ops.Scope, list []Grad) {
		clipValues(s, list,
			func(f ops.Formula) tf.Output { return f.Constant(low) },
			func(f ops.Formula) tf.Output { return f.Constant(high) })
	})
}

// ClipByNorm scales each gradient whose L2 norm is above limit down to it, one
// by one. A norm that is not finite makes that gradient NaN. It is Python's
// tf.clip_by_norm, which differs only in what it makes of an infinite norm.
func ClipByNorm(grads []Grad, limit float64) ([]Grad, error) {
	if err := checkLimit("clip by norm", limit); err != nil {
		return nil, err
	}
	return clip("clip_by_norm", grads, func(s *ops.Scope, list []Grad) {
		clipNorms(s, list, func(f ops.Formula) tf.Output { return f.Constant(limit) })
	})
}

// ClipByGlobalNorm scales all gradients by one factor, so that the L2 norm of
// all of them together is at most limit. A norm that is not finite makes all
// gradients NaN. It is Python's tf.clip_by_global_norm.
func ClipByGlobalNorm(grads []Grad, limit float64) ([]Grad, error) {
	if err := checkLimit("clip by global norm", limit); err != nil {
		return nil, err
	}
	return clip("clip_by_global_norm", grads, func(s *ops.Scope, list []Grad) {
		clipGlobalNorm(s, list, func(f ops.Formula) tf.Output { return f.Constant(limit) })
	})
}

// GlobalNorm is the L2 norm of all gradients together, a scalar: float64 if
// one of them is, float32 otherwise. Missing gradients count as zero. It is
// Python's tf.linalg.global_norm.
func GlobalNorm(grads []Grad) (tf.Output, error) {
	var norm tf.Output
	_, err := clip("global_norm", grads, func(s *ops.Scope, list []Grad) { norm = globalNorm(s, list) })
	return norm, err
}

// bound is a limit as a scalar of f's dtype.
type bound func(f ops.Formula) tf.Output

func clipValues(s *ops.Scope, list []Grad, low, high bound) {
	for i, grad := range list {
		f := ops.NewFormula(s, grad.DType())
		list[i].Gradient = grad.Map(func(t tf.Output) tf.Output { return f.Clip(t, low(f), high(f)) })
	}
}

func clipNorms(s *ops.Scope, list []Grad, limit bound) {
	for i, grad := range list {
		f := ops.NewFormula(s, grad.DType())
		norm := f.Sqrt(sumAll(s, f.Square(grad.outputs()[0])))
		most := limit(f)
		scale := f.Div(most, f.Maximum(norm, most))
		scale = f.Add(scale, f.Sub(norm, norm)) // 0, or NaN
		list[i].Gradient = scaled(f, grad, scale)
	}
}

func clipGlobalNorm(s *ops.Scope, list []Grad, limit bound) {
	norm := globalNorm(s, list)
	f := ops.NewFormula(s, norm.DataType())
	most := limit(f)
	scale := f.Mul(most, f.Minimum(f.Div(f.Constant(1), norm), f.Div(f.Constant(1), most)))
	scale = f.Add(scale, f.Sub(norm, norm)) // 0, or NaN
	for i, grad := range list {
		list[i].Gradient = scaled(f.Of(grad.DType()), grad, scale)
	}
}

// globalNorm is √(2·Σ ½‖g‖²).
func globalNorm(s *ops.Scope, list []Grad) tf.Output {
	dt := tf.Float
	if slices.ContainsFunc(list, func(g Grad) bool { return g.DType() == tf.Double }) {
		dt = tf.Double
	}
	f := ops.NewFormula(s, dt)
	halves := make([]tf.Output, len(list))
	for i, grad := range list {
		halves[i] = raw.L2Loss(s, f.Cast(grad.outputs()[0]))
	}
	return f.Sqrt(f.Mul(sumAll(s, raw.Pack(s, halves)), f.Constant(2)))
}

// scaled is a gradient times a scalar.
func scaled(f ops.Formula, grad Grad, scale tf.Output) gradients.Gradient {
	scale = f.Cast(scale)
	return grad.Map(func(t tf.Output) tf.Output { return f.Mul(t, scale) })
}

// sumAll is the sum of all elements.
func sumAll(s *ops.Scope, t tf.Output) tf.Output {
	return raw.Sum(s, t, allAxes(s, t))
}

// allAxes are the axes of a tensor.
func allAxes(s *ops.Scope, t tf.Output) tf.Output {
	return raw.Range(s, ops.Const(s, ops.Shape{}, []int32{0}), raw.Rank(s, t), ops.Const(s, ops.Shape{}, []int32{1}))
}

func checkLimit(what string, limit float64) error {
	if !(limit > 0) || math.IsInf(limit, 1) {
		return fmt.Errorf("%s: the limit is %v, wanted a finite number above 0", what, limit)
	}
	return nil
}

// clip runs change on the gradients that are there, sparse ones with each
// index once, in a name scope of its own.
func clip(name string, grads []Grad, change func(s *ops.Scope, list []Grad)) ([]Grad, error) {
	if _, err := checkGrads(grads); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	g := grads[0].Variable.Graph()
	result := slices.Clone(grads)
	err := g.Build(func() error {
		s := g.Root().NameScope(name)
		var list []Grad
		var place []int
		for i, grad := range grads {
			if grad.IsNone() {
				continue
			}
			if grad.IsSparse() && !grad.Summed {
				values, indices := sumDuplicates(s, grad.Slices)
				grad.Slices = &gradients.IndexedSlices{Values: values, Indices: indices, DenseShape: grad.Slices.DenseShape}
				grad.Summed = true
			}
			list, place = append(list, grad), append(place, i)
		}
		change(s, list)
		for k, i := range place {
			result[i] = list[k]
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}
