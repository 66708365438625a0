package optimizers

import (
	"github.com/sluice-ml/sluice/ops"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// GradientNoise is rule with normal noise added to the gradients (Neelakantan et
// al., arXiv:1511.06807), of mean 0 and of the variance
//
//	variance / (1 + step)^decay
//
// The paper has a variance of 0.01 to 1 and a decay of 0.55. The noise is
// [Update.Noise]: the same again when a training goes on. In a sparse gradient
// only its rows get some.
func GradientNoise(rule Rule, variance, decay ops.Hyperparameter) *Optimizer {
	return around(rule, &gradientNoise{wrapper{rule}, variance, decay})
}

type gradientNoise struct {
	wrapper
	variance, decay ops.Hyperparameter
}

func (n *gradientNoise) Check([]*ops.Variable) error {
	all := settings{"noise_variance": n.variance, "noise_decay": n.decay}
	if err := checkHyperparameters(all); err != nil {
		return err
	}
	if err := fixedAtLeast0(settings{"noise_variance": n.variance}); err != nil {
		return err
	}
	if err := aroundScaled("gradient noise", n.inner); err != nil {
		return err
	}
	return aroundHolder("gradient noise", n.inner, "would draw the same for all steps of one count")
}

func (n *gradientNoise) Together(a *Apply, all []*Update) {
	nested := n.nest(a, all)
	for i, u := range all {
		stddev := u.OnceWide("gradient_noise", func(f ops.Formula) tf.Output {
			step := f.Add(f.Cast(a.Step), f.Constant(1))
			decay := f.Pow(step, a.Param("noise_decay", n.decay, f.DType))
			return f.Sqrt(f.Div(a.Param("noise_variance", n.variance, f.DType), decay))
		})
		nested[i].setGrad(u.Add(u.Grad, u.Mul(nested[i].Noise(), stddev)))
	}
	a.Run(n.inner, nested)
	include(all, nested)
}
