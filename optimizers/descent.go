package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// NewGradientDescent is plain gradient descent, w := w - rate·g. It has no
// slots, and a sparse gradient touches only its rows. It is
// tf.compat.v1.train.GradientDescentOptimizer, and Keras' SGD without momentum.
// A dense update is TensorFlow's fused operation.
func NewGradientDescent(rate float64) *Optimizer {
	o := &Optimizer{}
	o.use(&rule{name: "GradientDescent", dense: descend, rows: descendRows}, rate)
	return o
}

func descend(u *Update) {
	u.Do(func(s *ops.Scope) *tf.Operation {
		return raw.ResourceApplyGradientDescent(s, u.Variable.Handle(), u.Rate, u.Grad)
	})
}

// descendRows subtracts every row as it came: the sum of duplicates is what remains.
func descendRows(u *Update) {
	change := u.Mul(u.Rate, u.Slices.Values)
	u.Do(func(s *ops.Scope) *tf.Operation {
		return u.Variable.Scatter(s, ops.ScatterSub, u.Slices.Indices, change)
	}, change)
}
