package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// NewGradientDescent is plain gradient descent, w := w - rate·g. It has no
// slots, and a sparse gradient touches only its rows. It is
// tf.compat.v1.train.GradientDescentOptimizer, and Keras' SGD without momentum.
func NewGradientDescent(rate float64) *Optimizer {
	o := &Optimizer{Rate: Value(rate)}
	o.Rule = gradientDescent{of: o}
	return o
}

type gradientDescent struct {
	PerVariable
	of *Optimizer
}

func (gradientDescent) Name() string { return "GradientDescent" }

func (r gradientDescent) Check([]*ops.Variable) error {
	return checkHyperparameters(r.of.LearningRate(), nil)
}

func (gradientDescent) Dense(u *Update) {
	u.Do(func(s *ops.Scope) *tf.Operation {
		return raw.ResourceApplyGradientDescent(s, u.Variable.Handle(), u.Rate, u.Grad)
	})
}

// Sparse subtracts every row as it came: the sum of duplicates is what remains.
func (gradientDescent) Sparse(u *Update) {
	change := u.Mul(u.Rate, u.Slices.Values)
	u.Do(func(s *ops.Scope) *tf.Operation {
		return u.Variable.Scatter(s, ops.ScatterSub, u.Slices.Indices, change)
	}, change)
}
