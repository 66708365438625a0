package main

import (
	"strings"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/optimizers"
)

// optimizerTable has every optimizer of package optimizers, as Python has it.
// The entries are Python's names: those of keras.optimizers, those of
// tf.compat.v1.train after "v1.", and what only a raw op has by its name.
//
// What Keras composes of small operations and we leave to a fused one, or the
// other way round, rounds otherwise: 1e-5. So does a sparse gradient that is
// scattered without summing first.
var optimizerTable = []trained{
	{of: "SGD", kind: "keras", python: "keras.SGD(rate)",
		ours: func(n numbersOf) optimizer {
			o := optimizers.NewGradientDescent(0)
			o.Rate = n.Rate
			return o
		}},
	{of: "SGD", variant: "momentum", kind: "keras", python: "keras.SGD(rate, momentum=mu)",
		ours: func(n numbersOf) optimizer { return momentum(n, optimizers.NewMomentum(0, n.Mu)) }},
	{of: "SGD", variant: "nesterov", kind: "keras", python: "keras.SGD(rate, momentum=mu, nesterov=True)",
		ours: func(n numbersOf) optimizer {
			o := momentum(n, optimizers.NewMomentum(0, n.Mu))
			o.Nesterov = true
			return o
		}},
	{of: "RMSprop", kind: "keras", python: "keras.RMSprop(rate, rho=b1, epsilon=eps)", slots: rms,
		ours: func(n numbersOf) optimizer { return rmsprop(n, optimizers.NewRMSprop(0)) }},
	{of: "RMSprop", variant: "momentum", kind: "keras", python: "keras.RMSprop(rate, rho=b1, momentum=mu, epsilon=eps)", slots: rms, rate: 0x1p-12,
		ours: func(n numbersOf) optimizer {
			o := rmsprop(n, optimizers.NewRMSprop(0))
			o.Momentum = value(n.Mu)
			return o
		}},
	{of: "RMSprop", variant: "centered", kind: "keras", python: "keras.RMSprop(rate, rho=b1, epsilon=eps, centered=True)", slots: rms,
		ours: func(n numbersOf) optimizer {
			o := rmsprop(n, optimizers.NewRMSprop(0))
			o.Centered = true
			return o
		}},
	{of: "RMSprop", variant: "centered, momentum", kind: "keras", python: "keras.RMSprop(rate, rho=b1, momentum=mu, epsilon=eps, centered=True)", slots: rms, rate: 0x1p-12,
		dtypes: []string{"float32", "float64"}, loose: 5e-5, why: "ms - mg² cancels, in 16 bits to nothing",
		ours: func(n numbersOf) optimizer {
			o := rmsprop(n, optimizers.NewRMSprop(0))
			o.Momentum, o.Centered = value(n.Mu), true
			return o
		}},
	{of: "Adam", kind: "keras", python: "keras.Adam(rate, beta_1=b1, beta_2=b2, epsilon=eps)", slots: moments,
		ours: func(n numbersOf) optimizer { return adam(n, optimizers.NewAdam(0)) }},
	{of: "Adam", variant: "amsgrad", kind: "keras", python: "keras.Adam(rate, beta_1=b1, beta_2=b2, epsilon=eps, amsgrad=True)", slots: moments,
		ours: func(n numbersOf) optimizer {
			o := adam(n, optimizers.NewAdam(0))
			o.AMSGrad = true
			return o
		}},
	{of: "Adam", variant: "duplicates as they are", kind: "keras", python: "unsummed(keras.Adam(rate, beta_1=b1, beta_2=b2, epsilon=eps))", slots: moments,
		dtypes: []string{"float32"}, constant: true, differs: "Keras squares rows with the same index before it sums them",
		ours: func(n numbersOf) optimizer { return adam(n, optimizers.NewAdam(0)) }},
	{of: "AdamW", kind: "keras", python: "keras.AdamW(rate, weight_decay=decay, beta_1=b1, beta_2=b2, epsilon=eps)", slots: moments,
		ours: func(n numbersOf) optimizer {
			return optimizers.WeightDecay(adam(n, optimizers.NewAdam(0)), value(n.Decay))
		}},
	{of: "Adadelta", kind: "keras", python: "keras.Adadelta(rate, rho=b1, epsilon=eps)", slots: deltas, rate: 1,
		ours: func(n numbersOf) optimizer { return adadelta(n, optimizers.NewAdadelta(0)) }},
	{of: "Adagrad", kind: "keras", python: "keras.Adagrad(rate, initial_accumulator_value=start, epsilon=eps)",
		ours: func(n numbersOf) optimizer {
			o := optimizers.NewAdagrad(0)
			o.Rate, o.Initial, o.Epsilon = n.Rate, n.Start, value(n.Eps)
			return o
		}},
	{of: "Adamax", kind: "keras", python: "keras.Adamax(rate, beta_1=b1, beta_2=b2, epsilon=eps)",
		ours: func(n numbersOf) optimizer {
			o := optimizers.NewAdamax(0)
			o.Rate, o.Beta1, o.Beta2, o.Epsilon = n.Rate, value(n.B1), value(n.B2), value(n.Eps)
			return o
		}},
	{of: "Nadam", kind: "keras", python: "keras.Nadam(rate, beta_1=b1, beta_2=b2, epsilon=eps)",
		loose64: 1e-6, why: "Keras rounds the 0.96 of its formula to float32, whatever the variable's dtype; in float32 its powers of 0.999 lose digits, 1e-4",
		ours: func(n numbersOf) optimizer {
			o := optimizers.NewNadam(0)
			o.Rate, o.Beta1, o.Beta2, o.Epsilon = n.Rate, value(n.B1), value(n.B2), value(n.Eps)
			return o
		}},

	{of: "Ftrl", kind: "keras", slots: map[string]string{"accumulator": "accum"}, rate: 0x1p-4,
		python: "keras.Ftrl(rate, initial_accumulator_value=start, l1_regularization_strength=l1, l2_regularization_strength=l2)",
		ours:   func(n numbersOf) optimizer { return ftrl(n, optimizers.NewFtrl(0)) }},
	{of: "Ftrl", variant: "shrinkage, beta", kind: "keras", slots: map[string]string{"accumulator": "accum"}, rate: 0x1p-4,
		python: "keras.Ftrl(rate, initial_accumulator_value=start, learning_rate_power=-.75, l1_regularization_strength=l1, " +
			"l2_regularization_strength=l2, l2_shrinkage_regularization_strength=l1, beta=start)",
		ours: func(n numbersOf) optimizer {
			o := ftrl(n, optimizers.NewFtrl(0))
			o.Power, o.Shrinkage, o.Beta = value(-.75), value(n.L1), value(n.Start)
			return o
		}},
	{of: "Lion", kind: "keras", python: "keras.Lion(rate, beta_1=b1, beta_2=b2)",
		ours: func(n numbersOf) optimizer {
			o := optimizers.NewLion(0)
			o.Rate, o.Beta1, o.Beta2 = n.Rate, value(n.B1), value(n.B2)
			return o
		}},
	{of: "Lamb", kind: "keras", python: "keras.Lamb(rate, beta_1=b1, beta_2=b2, epsilon=eps)",
		ours: func(n numbersOf) optimizer {
			o := optimizers.NewLamb(0)
			o.Rate, o.Beta1, o.Beta2, o.Epsilon = n.Rate, value(n.B1), value(n.B2), value(n.Eps)
			return o
		}},
	{of: "Adafactor", kind: "keras", python: "keras.Adafactor(rate, beta_2_decay=-.75, epsilon_1=eps, epsilon_2=l1)",
		ours: func(n numbersOf) optimizer {
			o := optimizers.NewAdafactor(0)
			o.Rate, o.Beta2Decay, o.Epsilon1, o.Epsilon2 = n.Rate, value(-.75), value(n.Eps), value(n.L1)
			return o
		}},
	{of: "Muon", kind: "keras", refused: "float64", python: "keras.Muon(rate, adam_beta_1=b1, adam_beta_2=b2, adam_weight_decay=decay, epsilon=eps, " +
		"weight_decay=decay, momentum=mu, adam_lr_ratio=start, rms_rate=start)",
		ours: func(n numbersOf) optimizer {
			o := optimizers.NewMuon(0)
			o.Rate, o.AdamBeta1, o.AdamBeta2, o.AdamEpsilon = n.Rate, value(n.B1), value(n.B2), value(n.Eps)
			o.AdamDecay, o.Decay, o.Momentum, o.AdamRateRatio, o.RMSRate = value(n.Decay), value(n.Decay), value(n.Mu), value(n.Start), value(n.Start)
			return o
		}},
	{of: "ScheduleFreeAdamW", kind: "own", python: "ScheduleFreeAdamW(b1, b2, eps, decay)", slots: averages,
		ours: func(n numbersOf) optimizer {
			o := scheduleFree(n)
			o.Decay = value(n.Decay)
			return o
		}},
	{of: "ScheduleFreeAdamW", variant: "warm-up", kind: "own", python: "ScheduleFreeAdamW(b1, b2, eps, warmup=20)", slots: averages,
		ours: func(n numbersOf) optimizer {
			o := scheduleFree(n)
			o.Warmup = 20
			return o
		}},
	{of: "ScheduleFreeAdamW", variant: "Keras'", kind: "keras", python: "keras.ScheduleFreeAdamW(rate, beta_1=b1, beta_2=b2, epsilon=eps)",
		slots: map[string]string{"momentum": "", "velocity": ""}, dtypes: []string{"float32"}, differs: "Keras reads z after it has changed, where the paper has the z before",
		ours: func(n numbersOf) optimizer { return scheduleFree(n) }},

	{of: "v1.GradientDescent", kind: "v1", python: "v1.GradientDescentOptimizer(rate)", fused: true,
		ours: func(n numbersOf) optimizer {
			o := optimizers.NewGradientDescent(0)
			o.Rate = n.Rate
			return o
		}},
	{of: "v1.Momentum", kind: "v1", python: "v1.MomentumOptimizer(rate, mu)", fused: true,
		ours: func(n numbersOf) optimizer { return momentum(n, optimizers.NewMomentum(0, n.Mu, optimizers.V1)) }},
	{of: "v1.Momentum", variant: "nesterov", kind: "v1", python: "v1.MomentumOptimizer(rate, mu, use_nesterov=True)", fused: true,
		ours: func(n numbersOf) optimizer {
			o := momentum(n, optimizers.NewMomentum(0, n.Mu, optimizers.V1))
			o.Nesterov = true
			return o
		}},
	{of: "v1.Adagrad", kind: "v1", python: "v1.AdagradOptimizer(rate, initial_accumulator_value=start)", fused: true,
		ours: func(n numbersOf) optimizer {
			o := optimizers.NewAdagrad(0, optimizers.V1)
			o.Rate, o.Initial = n.Rate, n.Start
			return o
		}},
	{of: "v1.Adadelta", kind: "v1", python: "v1.AdadeltaOptimizer(rate, rho=b1, epsilon=eps)", rate: 1, fused: true,
		ours: func(n numbersOf) optimizer { return adadelta(n, optimizers.NewAdadelta(0, optimizers.V1)) }},
	{of: "v1.Adam", kind: "v1", python: "v1.AdamOptimizer(rate, beta1=b1, beta2=b2, epsilon=eps)",
		loose: 1e-4, loose64: 1e-4, why: "v1 multiplies its powers of beta up in float32, whatever the variable's dtype",
		ours: func(n numbersOf) optimizer { return adam(n, optimizers.NewAdam(0, optimizers.V1)) }},
	{of: "v1.RMSProp", kind: "v1", python: "v1.RMSPropOptimizer(rate, decay=b1, epsilon=eps)", slots: map[string]string{"momentum": ""},
		ours: func(n numbersOf) optimizer { return rmsprop(n, optimizers.NewRMSprop(0, optimizers.V1)) }},
	{of: "v1.RMSProp", variant: "momentum", kind: "v1", python: "v1.RMSPropOptimizer(rate, decay=b1, momentum=mu, epsilon=eps)", fused: true,
		ours: func(n numbersOf) optimizer {
			o := rmsprop(n, optimizers.NewRMSprop(0, optimizers.V1))
			o.Momentum = value(n.Mu)
			return o
		}},
	{of: "v1.RMSProp", variant: "centered, momentum", kind: "v1", fused: true,
		python: "v1.RMSPropOptimizer(rate, decay=b1, momentum=mu, epsilon=eps, centered=True)",
		ours: func(n numbersOf) optimizer {
			o := rmsprop(n, optimizers.NewRMSprop(0, optimizers.V1))
			o.Momentum, o.Centered = value(n.Mu), true
			return o
		}},

	{of: "v1.AdagradDA", kind: "v1", fused: true, rate: 0x1p-4,
		python: "v1.AdagradDAOptimizer(rate, global_step, start, l1_regularization_strength=l1, l2_regularization_strength=l2)",
		ours: func(n numbersOf) optimizer {
			o := optimizers.NewAdagradDA(0)
			o.Rate, o.Initial, o.L1, o.L2 = n.Rate, n.Start, value(n.L1), value(n.L2)
			return o
		}},
	{of: "v1.Ftrl", kind: "v1", fused: true, rate: 0x1p-4,
		python: "v1.FtrlOptimizer(rate, initial_accumulator_value=start, l1_regularization_strength=l1, l2_regularization_strength=l2)",
		ours:   func(n numbersOf) optimizer { return ftrl(n, optimizers.NewFtrl(0, optimizers.V1)) }},
	{of: "v1.Ftrl", variant: "shrinkage, beta", kind: "v1", fused: true, rate: 0x1p-4,
		python: "v1.FtrlOptimizer(rate, -.75, start, l1_regularization_strength=l1, l2_regularization_strength=l2, " +
			"l2_shrinkage_regularization_strength=l1, beta=start)",
		ours: func(n numbersOf) optimizer {
			o := ftrl(n, optimizers.NewFtrl(0, optimizers.V1))
			o.Power, o.Shrinkage, o.Beta = value(-.75), value(n.L1), value(n.Start)
			return o
		}},
	{of: "v1.ProximalGradientDescent", kind: "v1", fused: true, rate: 0x1p-4,
		python: "v1.ProximalGradientDescentOptimizer(number(rate), l1_regularization_strength=number(l1), l2_regularization_strength=number(l2))",
		ours: func(n numbersOf) optimizer {
			o := optimizers.NewProximalGradientDescent(0, n.L1, n.L2)
			o.Rate = n.Rate
			return o
		}},
	{of: "v1.ProximalAdagrad", kind: "v1", fused: true, rate: 0x1p-4,
		python: "v1.ProximalAdagradOptimizer(number(rate), start, l1_regularization_strength=number(l1), l2_regularization_strength=number(l2))",
		ours: func(n numbersOf) optimizer {
			o := optimizers.NewProximalAdagrad(0, n.L1, n.L2)
			o.Rate, o.Initial = n.Rate, n.Start
			return o
		}},

	{of: "AddSign", kind: "own", python: "AddSign(1.0, 0.5, b1)",
		ours: func(n numbersOf) optimizer { return signs(n, optimizers.NewAddSign(0)) }},
	{of: "PowerSign", kind: "own", python: "PowerSign(1.0, 0.5, b1)",
		ours: func(n numbersOf) optimizer { return signs(n, optimizers.NewPowerSign(0)) }},
	{of: "FloorMod", kind: "own", python: "FloorMod(3.0)", modulus: 3,
		ours: func(n numbersOf) optimizer { return floormod(n, optimizers.NewFloorMod(0, 3)) }},
	{of: "FloorMod", variant: "negative", kind: "own", python: "FloorMod(-3.0)", modulus: -3,
		ours: func(n numbersOf) optimizer { return floormod(n, optimizers.NewFloorMod(0, -3)) }},
	{of: "FloorMod", variant: "noise", kind: "own", python: "FloorMod(3.0, 0.125)", modulus: 3,
		ours: func(n numbersOf) optimizer {
			o := floormod(n, optimizers.NewFloorMod(0, 3))
			o.Stddev = value(.125)
			return o
		}},
}

// Our names of slots, by Keras'.
var (
	averages = map[string]string{"x": "", "z": "", "weights": ""}
	moments  = map[string]string{"momentum": "m", "velocity": "v", "velocity_hat": "vhat"}
	rms      = map[string]string{"velocity": "rms", "average_gradient": "mg"}
	deltas   = map[string]string{"accumulated_grad": "accum", "accumulated_delta_var": "accum_update"}
)

func value(v float64) ops.Hyperparameter { return optimizers.Value(v) }

func momentum(n numbersOf, o *optimizers.Momentum) *optimizers.Momentum {
	o.Rate = n.Rate
	return o
}

func adam(n numbersOf, o *optimizers.Adam) *optimizers.Adam {
	o.Rate, o.Beta1, o.Beta2, o.Epsilon = n.Rate, value(n.B1), value(n.B2), value(n.Eps)
	return o
}

func rmsprop(n numbersOf, o *optimizers.RMSprop) *optimizers.RMSprop {
	o.Rate, o.Rho, o.Epsilon = n.Rate, value(n.B1), value(n.Eps)
	return o
}

func adadelta(n numbersOf, o *optimizers.Adadelta) *optimizers.Adadelta {
	o.Rate, o.Rho, o.Epsilon = n.Rate, value(n.B1), value(n.Eps)
	return o
}

func ftrl(n numbersOf, o *optimizers.Ftrl) *optimizers.Ftrl {
	o.Rate, o.Initial, o.L1, o.L2 = n.Rate, n.Start, value(n.L1), value(n.L2)
	return o
}

func scheduleFree(n numbersOf) *optimizers.ScheduleFreeAdamW {
	o := optimizers.NewScheduleFreeAdamW(0)
	o.Rate, o.Beta1, o.Beta2, o.Epsilon = n.Rate, n.B1, value(n.B2), value(n.Eps)
	return o
}

func signs(n numbersOf, o *optimizers.Signs) *optimizers.Signs {
	o.Rate, o.Decay, o.Beta = n.Rate, value(.5), value(n.B1)
	return o
}

func floormod(n numbersOf, o *optimizers.FloorMod) *optimizers.FloorMod {
	o.Rate = n.Rate
	return o
}

// defaults are the optimizers as they come, at a rate: whose defaults are whose.
var defaults = []struct {
	of, python string
	ours       func(rate float64) optimizer
	slots      map[string]string
	loose      float64
}{
	{of: "SGD", python: "keras.SGD(rate)", ours: func(r float64) optimizer { return optimizers.NewGradientDescent(r) }},
	{of: "RMSprop", python: "keras.RMSprop(rate)", slots: rms, ours: func(r float64) optimizer { return optimizers.NewRMSprop(r) }},
	{of: "Adam", python: "keras.Adam(rate)", slots: moments, ours: func(r float64) optimizer { return optimizers.NewAdam(r) }},
	{of: "AdamW", python: "keras.AdamW(rate)", slots: moments, ours: func(r float64) optimizer { return optimizers.NewAdamW(r, 0.004) }},
	{of: "Adadelta", python: "keras.Adadelta(rate)", slots: deltas, ours: func(r float64) optimizer { return optimizers.NewAdadelta(r) }},
	{of: "Adagrad", python: "keras.Adagrad(rate)", ours: func(r float64) optimizer { return optimizers.NewAdagrad(r) }},
	{of: "Adamax", python: "keras.Adamax(rate)", ours: func(r float64) optimizer { return optimizers.NewAdamax(r) }},
	{of: "Nadam", python: "keras.Nadam(rate)", loose: 1e-4, ours: func(r float64) optimizer { return optimizers.NewNadam(r) }},
	{of: "Ftrl", python: "keras.Ftrl(rate)", slots: map[string]string{"accumulator": "accum"}, ours: func(r float64) optimizer { return optimizers.NewFtrl(r) }},
	{of: "Lion", python: "keras.Lion(rate)", ours: func(r float64) optimizer { return optimizers.NewLion(r) }},
	{of: "Lamb", python: "keras.Lamb(rate)", ours: func(r float64) optimizer { return optimizers.NewLamb(r) }},
	{of: "Adafactor", python: "keras.Adafactor(rate)", ours: func(r float64) optimizer { return optimizers.NewAdafactor(r) }},
	{of: "Muon", python: "keras.Muon(rate)", ours: func(r float64) optimizer { return optimizers.NewMuon(r) }},
	{of: "v1.GradientDescent", python: "v1.GradientDescentOptimizer(rate)", ours: func(r float64) optimizer { return optimizers.NewGradientDescent(r) }},
	{of: "v1.Momentum", python: "v1.MomentumOptimizer(rate, 0.9)", ours: func(r float64) optimizer { return optimizers.NewMomentum(r, 0.9, optimizers.V1) }},
	{of: "v1.Adagrad", python: "v1.AdagradOptimizer(rate)", ours: func(r float64) optimizer { return optimizers.NewAdagrad(r, optimizers.V1) }},
	{of: "v1.AdagradDA", python: "v1.AdagradDAOptimizer(rate, global_step)", ours: func(r float64) optimizer { return optimizers.NewAdagradDA(r) }},
	{of: "v1.Adadelta", python: "v1.AdadeltaOptimizer(rate)", ours: func(r float64) optimizer { return optimizers.NewAdadelta(r, optimizers.V1) }},
	{of: "v1.Adam", python: "v1.AdamOptimizer(rate)", loose: 1e-4, ours: func(r float64) optimizer { return optimizers.NewAdam(r, optimizers.V1) }},
	{of: "v1.RMSProp", python: "v1.RMSPropOptimizer(rate)", slots: map[string]string{"momentum": ""}, ours: func(r float64) optimizer { return optimizers.NewRMSprop(r, optimizers.V1) }},
	{of: "v1.Ftrl", python: "v1.FtrlOptimizer(rate)", ours: func(r float64) optimizer { return optimizers.NewFtrl(r, optimizers.V1) }},
	{of: "v1.ProximalGradientDescent", python: "v1.ProximalGradientDescentOptimizer(rate)", ours: func(r float64) optimizer { return optimizers.NewProximalGradientDescent(r, 0, 0) }},
	{of: "v1.ProximalAdagrad", python: "v1.ProximalAdagradOptimizer(rate)", ours: func(r float64) optimizer { return optimizers.NewProximalAdagrad(r, 0, 0) }},
}

func init() {
	const rate = 0x1p-10
	for _, d := range defaults {
		kind, _, _ := strings.Cut(d.python, ".")
		optimizerTable = append(optimizerTable, trained{
			of: d.of, variant: "as it comes", kind: kind, python: d.python, rate: rate, slots: d.slots, loose: d.loose,
			dtypes: []string{"float32"}, constant: true, ours: func(numbersOf) optimizer { return d.ours(rate) },
		})
	}
}
