package optimizers

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// AdagradDA is Adagrad by dual averaging (Duchi et al., JMLR 12, 2011), for
// sparse linear models: tf.compat.v1.train.AdagradDAOptimizer. With t the
// number of this update, from 1:
//
//	G := G + g,   A := A + g²
//	w := -rate·sign(G)·max(|G| - t·L1, 0) / (t·rate·L2 + √A)
//
// The weights follow from G and A alone: where they started is forgotten at the
// first step, so start from zeros. The slots are "gradient_accumulator" (G) and
// "gradient_squared_accumulator" (A). It is TensorFlow's fused operation in
// float32 and float64, and composed in 16 bits.
type AdagradDA struct {
	Optimizer
	L1, L2 ops.Hyperparameter // 0 or above
	// Initial is A before the first step, above 0.
	Initial float64
	// Lazy leaves the rows that a sparse gradient does not touch as they are, as
	// Python does; otherwise they become what G and A say, which is 0 where they
	// were never touched.
	Lazy bool
}

// NewAdagradDA is [AdagradDA] with strengths of 0 and the initial sum 0.1. It is
// Lazy.
func NewAdagradDA(rate float64) *AdagradDA {
	a := &AdagradDA{L1: Value(0), L2: Value(0), Initial: 0.1, Lazy: true}
	a.use(&rule{
		name: "AdagradDA", dense: a.update, lazy: &a.Lazy,
		settings: func() settings { return settings{"l1": a.L1, "l2": a.L2} },
		check: func([]*ops.Variable) error {
			if err := above(0, "the initial accumulator of squares", a.Initial); err != nil {
				return err
			}
			return fixedAtLeast0(settings{"l1": a.L1, "l2": a.L2})
		},
	}, rate)
	return a
}

func (a *AdagradDA) update(u *Update) {
	const sums, squares = "gradient_accumulator", "gradient_squared_accumulator"
	l1, l2 := u.Param("l1", a.L1), u.Param("l2", a.L2)
	if hasWideKernelsOnly(u.DType) {
		// t·l1 and t·l2 are made in float32: 16 bits count no further than 256.
		t := func(name string, h ops.Hyperparameter) tf.Output {
			return u.OnceWide("t_"+name, func(f ops.Formula) tf.Output { return f.Mul(u.number(f), u.Apply.Param(name, h, f.DType)) })
		}
		sum := u.Add(u.Slot(sums, ops.Zeros()), u.Grad)
		square := u.Add(u.Slot(squares, ops.Value(a.Initial)), u.Square(u.Grad))
		u.SetSlot(sums, sum)
		u.SetSlot(squares, square)
		left := u.Maximum(u.Sub(u.Abs(sum), t("l1", a.L1)), u.Constant(0))
		u.Assign(u.Div(u.Mul(u.Neg(u.Rate), u.Mul(u.Sign(sum), left)), u.Add(u.Mul(u.Rate, t("l2", a.L2)), u.Sqrt(square))))
		return
	}
	w, sum, square := u.Variable.Handle(), u.SlotVariable(sums, ops.Zeros()).Handle(), u.SlotVariable(squares, ops.Value(a.Initial)).Handle()
	t := u.Apply.Once("update", tf.Int64, func(f ops.Formula) tf.Output { return f.Add(u.Apply.Updates(), f.Constant(1)) })
	u.Do(func(s *ops.Scope) *tf.Operation {
		if u.Indices.Op != nil {
			return raw.ResourceSparseApplyAdagradDA(s, w, sum, square, u.Grad, u.Indices, u.Rate, l1, l2, t)
		}
		return raw.ResourceApplyAdagradDA(s, w, sum, square, u.Grad, u.Rate, l1, l2, t)
	}, u.Grad, u.Indices)
}
