package optimizers

import (
	"errors"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// ScheduleFreeAdamW is AdamW that averages its way instead of lowering its rate
// (Defazio et al., "The Road Less Scheduled", arXiv:2405.15682). The gradient is
// taken at w, between the sequence z that gradients move and its average x.
// With t the number of this update, from 1:
//
//	r = rate·min(1, t/Warmup)
//	v := v + (1-beta2)·(g² - v)
//	z := z - r·(g/(√(v/(1-beta2^t)) + epsilon) + Decay·w)
//	c = r²/(sum of all r² so far)
//	x := (1-c)·x + c·z
//	w := (1-beta1)·z + beta1·x
//
// x is what to evaluate and to save: see Average and Swap.
//
// It follows the paper. Keras' ScheduleFreeAdamW reads z after it has changed
// where the formula has the z before, so that its w is another; and its c is
// 1/t, the same as here only where r never changes.
//
// The slots are "offset", which is z - w, so that a variable may start anywhere,
// and "velocity" (v); the sum of squares is one variable for all,
// "ScheduleFreeAdamW/weight_sum". It is composed. A sparse gradient is one with
// zeros in the other rows.
type ScheduleFreeAdamW struct {
	Optimizer
	// Beta1 is the share of x in w, above 0 and up to 1. It can't change from
	// step to step: x is found from w by it.
	Beta1          float64
	Beta2, Epsilon ops.Hyperparameter
	Decay          ops.Hyperparameter // default nil: none
	Warmup         int64              // steps in which the rate rises, default 0
}

// NewScheduleFreeAdamW is [ScheduleFreeAdamW] with beta1 0.9, beta2 0.999 and
// epsilon 1e-8. Keras' rate is 0.0025.
func NewScheduleFreeAdamW(rate float64) *ScheduleFreeAdamW {
	o := &ScheduleFreeAdamW{Beta1: 0.9, Beta2: Value(0.999), Epsilon: Value(1e-8)}
	o.use(&rule{
		name: "ScheduleFreeAdamW", dense: o.update, lazy: new(bool),
		settings: func() settings {
			return settings{"beta2": o.Beta2, "epsilon": o.Epsilon, "decay": orZero(o.Decay)}
		},
		check: func([]*ops.Variable) error {
			if !(o.Beta1 > 0 && o.Beta1 <= 1) {
				return fmt.Errorf("beta1 is %v, wanted a number above 0, up to 1", o.Beta1)
			}
			if o.Warmup < 0 {
				return fmt.Errorf("the warm-up has %d steps, wanted 0 or more", o.Warmup)
			}
			return nil
		},
		finish: func(a *Apply) []*tf.Operation {
			_, sum := o.weights(a)
			return []*tf.Operation{o.weightSum(a).Assign(a.Scope, sum)}
		},
	}, rate)
	return o
}

func (o *ScheduleFreeAdamW) weightSum(a *Apply) *ops.Variable {
	return a.State(nil, "weight_sum", tf.Double, ops.Shape{}, ops.Zeros())
}

// weights are r and the sum of its squares with this step's, in float64.
func (o *ScheduleFreeAdamW) weights(a *Apply) (rate, sum tf.Output) {
	rate = a.Once("warmed_rate", tf.Double, func(f ops.Formula) tf.Output {
		rate := a.rateOf(tf.Double)
		if o.Warmup == 0 {
			return rate
		}
		t := f.Add(f.Cast(a.Updates()), f.Constant(1))
		return f.Mul(rate, f.Minimum(f.Constant(1), f.Div(t, f.Constant(float64(o.Warmup)))))
	})
	sum = a.Once("weight_sum", tf.Double, func(f ops.Formula) tf.Output {
		return f.Add(o.weightSum(a).Value(), f.Square(rate))
	})
	return rate, sum
}

// update is the formula in terms of d = z - w, in which x is w - d·(1-beta1)/beta1:
// with s what is taken off z,
//
//	w := w + c·d - (1 - beta1·(1-c))·s
//	d := (1-c)·(d - beta1·s)
func (o *ScheduleFreeAdamW) update(u *Update) {
	rate, sum := o.weights(u.Apply)
	shared := func(name string, build func(f ops.Formula) tf.Output) tf.Output {
		return u.Once(name, func(f ops.Formula) tf.Output { return f.Cast(build(f.Of(tf.Double))) })
	}
	r := shared("warmed", func(ops.Formula) tf.Output { return rate })
	c := shared("weight", func(f ops.Formula) tf.Output { return f.DivNoNaN(f.Square(rate), sum) })
	left := shared("left", func(f ops.Formula) tf.Output {
		return f.Sub(f.Constant(1), f.DivNoNaN(f.Square(rate), sum))
	})
	ofStep := shared("of_step", func(f ops.Formula) tf.Output {
		rest := f.Sub(f.Constant(1), f.DivNoNaN(f.Square(rate), sum))
		return f.Sub(f.Constant(1), f.Mul(f.Constant(o.Beta1), rest))
	})
	unbias := shared("unbias_beta2", func(f ops.Formula) tf.Output { return f.Reciprocal(u.unbiased(f, "beta2", o.Beta2)) })

	v := u.average("velocity", ops.Zeros(), "beta2", o.Beta2, u.Square(u.Grad))
	step := u.Div(u.Mul(u.Grad, r), u.Add(u.Sqrt(u.Mul(v, unbias)), u.epsilon("epsilon", o.Epsilon)))
	if !isZero(o.Decay) {
		part := u.Once("rate_decay", func(f ops.Formula) tf.Output { return f.Mul(r, u.Param("decay", o.Decay)) })
		step = u.Add(step, u.Mul(u.Var, part))
	}
	d := u.Slot("offset", ops.Zeros())
	u.SetSlot("offset", u.Mul(u.Sub(d, u.Mul(step, u.Constant(o.Beta1))), left))
	u.Assign(u.Add(u.Var, u.Sub(u.Mul(d, c), u.Mul(step, ofStep))))
}

// Average is x of a variable that this optimizer trains, as a tensor in s: what
// to evaluate and to save in the variable's place.
func (o *ScheduleFreeAdamW) Average(s *ops.Scope, v *ops.Variable) (tf.Output, error) {
	shift, err := o.shift(s, v)
	if err != nil {
		return tf.Output{}, err
	}
	x := ops.NewFormula(s, v.DType()).Sub(v.Read(s), shift)
	return x, s.Err()
}

// Swap are two operations: one puts the averages into the variables, to
// evaluate or to save the model as it stands, the other puts back what is to be
// trained on, up to rounding. Between the two there must be no step.
func (o *ScheduleFreeAdamW) Swap(vars []*ops.Variable) (averages, training *tf.Operation, err error) {
	if len(vars) == 0 {
		return nil, nil, errors.New("ScheduleFreeAdamW: no variables to swap")
	}
	for _, v := range vars {
		if _, ok := o.Slot(v, "offset"); !ok {
			return nil, nil, notTrained(v)
		}
	}
	g := vars[0].Graph()
	err = g.Build(func() error {
		s := g.Root().NameScope("swap")
		var in, out []*tf.Operation
		for _, v := range vars {
			shift, err := o.shift(s, v)
			if err != nil {
				return err
			}
			in, out = append(in, v.AssignSub(s, shift)), append(out, v.AssignAdd(s, shift))
		}
		averages, training = s.Group("averages", in...), s.Group("training", out...)
		return nil
	})
	return averages, training, err
}

// shift is w - x.
func (o *ScheduleFreeAdamW) shift(s *ops.Scope, v *ops.Variable) (tf.Output, error) {
	slot, ok := o.Slot(v, "offset")
	if !ok {
		return tf.Output{}, notTrained(v)
	}
	f := ops.NewFormula(s, v.DType())
	return f.Mul(slot.Read(s), f.Constant((1-o.Beta1)/o.Beta1)), nil
}

func notTrained(v *ops.Variable) error {
	return fmt.Errorf("ScheduleFreeAdamW: %q has no average, since this optimizer does not train it", v.Name())
}
