package optimizers

import (
	"fmt"
	"maps"
	"math"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Adagrad divides the gradient by the root of the sum of all its squares (Duchi
// et al., JMLR 12, 2011), so that rare features keep a large rate:
//
//	a := a + g²
//	w := w - rate·g/√(a + epsilon)
//
// It is Keras' Adagrad, composed; with epsilon 0, as in [V1], it is
// tf.compat.v1.train.AdagradOptimizer and TensorFlow's fused operation.
//
// The slot is "accumulator". A sparse gradient updates only its rows: a zero
// gradient changes nothing anyway.
type Adagrad struct {
	Optimizer
	Epsilon ops.Hyperparameter
	// Initial is the sum of squares before the first step; above 0 where
	// epsilon is 0.
	Initial float64
}

// NewAdagrad is [Adagrad] with the initial sum 0.1 and epsilon 1e-7. Keras'
// rate is 0.001.
func NewAdagrad(rate float64, as ...Convention) *Adagrad {
	a := &Adagrad{Initial: 0.1, Epsilon: Value(1e-7)}
	if chosen(as) == V1 {
		a.Epsilon = Value(0)
	}
	a.use(&rule{
		name: "Adagrad", dense: a.update,
		settings: func() settings { return settings{"epsilon": a.Epsilon} },
		check: func([]*ops.Variable) error {
			if isZero(a.Epsilon) {
				return above(0, "the initial accumulator of an epsilon of 0", a.Initial)
			}
			return atLeast(0, "the initial accumulator", a.Initial)
		},
	}, rate)
	return a
}

func (a *Adagrad) update(u *Update) {
	if !isZero(a.Epsilon) {
		sum := u.Add(u.Slot("accumulator", ops.Value(a.Initial)), u.Square(u.Grad))
		u.SetSlot("accumulator", sum)
		u.Assign(u.Sub(u.Var, u.Div(u.Mul(u.Rate, u.Grad), u.Sqrt(u.Add(sum, u.epsilon("epsilon", a.Epsilon))))))
		return
	}
	w, slot := u.Variable.Handle(), u.SlotVariable("accumulator", ops.Value(a.Initial)).Handle()
	u.Do(func(s *ops.Scope) *tf.Operation {
		if u.Indices.Op != nil {
			return raw.ResourceSparseApplyAdagrad(s, w, slot, u.Rate, u.Grad, u.Indices)
		}
		return raw.ResourceApplyAdagrad(s, w, slot, u.Rate, u.Grad)
	}, u.Grad, u.Indices)
}

// atLeast is an error for a number below a bound, or none at all.
func atLeast(bound float64, what string, v float64) error {
	if v >= bound && !math.IsInf(v, 0) {
		return nil
	}
	return fmt.Errorf("%s is %v, wanted a number of at least %v", what, v, bound)
}

// above is an error for a number that is not above a bound.
func above(bound float64, what string, v float64) error {
	if v > bound && !math.IsInf(v, 0) {
		return nil
	}
	return fmt.Errorf("%s is %v, wanted a number above %v", what, v, bound)
}

// atMost is an error for a number above a bound, or none at all.
func atMost(bound float64, what string, v float64) error {
	if v <= bound && !math.IsInf(v, 0) {
		return nil
	}
	return fmt.Errorf("%s is %v, wanted a number of at most %v", what, v, bound)
}

// fixedAtLeast0 is an error for constants among settings that are below 0.
func fixedAtLeast0(all settings) error {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if v, constant := all[name].(ops.Fixed); constant {
			if err := atLeast(0, name, float64(v)); err != nil {
				return err
			}
		}
	}
	return nil
}
