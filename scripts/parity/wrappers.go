package main

import (
	"context"

	"github.com/sluice-ml/sluice/optimizers"
)

func init() {
	register("wrappers", func(ctx context.Context, h *Harness) (Result, error) {
		return trainAll(ctx, h, "wrappers", wrapperTable)
	})
}

const adamText = "keras.Adam(rate, beta_1=b1, beta_2=b2, epsilon=eps"

// wrapperTable has what wraps an optimizer, beside Keras' settings for the same
// or, where it has none, the arithmetic of wrappers.py.
var wrapperTable = wide([]trained{
	{of: "Clipped", variant: "by value", kind: "keras", python: adamText + ", clipvalue=l1)", slots: moments,
		ours: func(n numbersOf) optimizer { return clipped(plainAdam(n), optimizers.ByValue, n.L1) }},
	{of: "Clipped", variant: "by norm", kind: "keras", python: adamText + ", clipnorm=l2)", slots: moments,
		ours: func(n numbersOf) optimizer { return clipped(plainAdam(n), optimizers.ByNorm, n.L2) }},
	{of: "Clipped", variant: "by global norm", kind: "keras", python: adamText + ", global_clipnorm=l2)", slots: moments,
		ours: func(n numbersOf) optimizer { return clipped(plainAdam(n), optimizers.ByGlobalNorm, n.L2) }},
	{of: "WeightDecay", kind: "keras", python: "keras.SGD(rate, momentum=mu, weight_decay=decay)",
		ours: func(n numbersOf) optimizer { return optimizers.WeightDecay(plainMomentum(n), value(n.Decay)) }},
	{of: "WeightDecay", variant: "of Adam", kind: "keras", python: adamText + ", weight_decay=decay)", slots: moments,
		ours: func(n numbersOf) optimizer { return optimizers.WeightDecay(plainAdam(n), value(n.Decay)) }},
	{of: "L2Decay", kind: "keras", python: "L2(" + adamText + "), decay)", slots: moments,
		ours: func(n numbersOf) optimizer { return optimizers.L2Decay(plainAdam(n), value(n.Decay)) }},
	{of: "EMA", kind: "keras", python: adamText + ", use_ema=True, ema_momentum=mu)", slots: moments,
		ours: func(n numbersOf) optimizer { return optimizers.NewEMA(plainAdam(n), n.Mu) }},
	{of: "EMA", variant: "overwriting", kind: "keras", python: adamText + ", use_ema=True, ema_momentum=mu, ema_overwrite_frequency=7)", slots: moments,
		ours: func(n numbersOf) optimizer {
			e := optimizers.NewEMA(plainAdam(n), n.Mu)
			e.OverwriteEvery = 7
			return e
		}},
	{of: "EMA", variant: "v1", kind: "keras", python: "Averaged(" + adamText + "), mu)", slots: moments,
		ours: func(n numbersOf) optimizer { return optimizers.NewEMA(plainAdam(n), n.Mu, optimizers.V1) }},
	{of: "SWA", kind: "keras", python: "SWA(" + adamText + "), 50, 10)", slots: moments,
		ours: func(n numbersOf) optimizer { return optimizers.NewSWA(plainAdam(n), 50, 10) }},
	{of: "Lookahead", kind: "keras", python: "Lookahead(" + adamText + "), 5, .5)", slots: with(moments, "slow", ""),
		ours: func(n numbersOf) optimizer { return optimizers.Lookahead(plainAdam(n), 5, .5) }},
	// Keras' schedules go on with every micro-step, ours with every step.
	{of: "Accumulated", kind: "keras", python: adamText + ", gradient_accumulation_steps=4)", slots: with(moments, "gradient_accumulator", ""), constant: true,
		ours: func(n numbersOf) optimizer { return optimizers.Accumulated(plainAdam(n), 4, optimizers.Mean) }},
	// In half precision the scale overflows again and again, and steps are left out.
	{of: "LossScaled", kind: "keras", python: "keras.LossScaleOptimizer(" + adamText + "), initial_scale=1024., dynamic_growth_steps=4)", slots: moments,
		dtypes: []string{"float32", "half"},
		ours: func(n numbersOf) optimizer {
			l := optimizers.LossScaled(plainAdam(n))
			l.Initial, l.Growth = 1024, 4
			return l
		}},
	{of: "Constrained", variant: "non-negative", kind: "keras", python: "constrained(" + adamText + "), keras_package.constraints.NonNeg())", slots: moments, rate: 0x1p-6,
		ours: func(n numbersOf) optimizer { return optimizers.Constrained(plainAdam(n), optimizers.NonNegative{}) }},
	{of: "Constrained", variant: "max norm", kind: "keras", slots: moments,
		python: "constrained(" + adamText + "), keras_package.constraints.MaxNorm(1.5), ['table', 'w'])",
		ours: func(n numbersOf) optimizer {
			return optimizers.Constrained(plainAdam(n), optimizers.MaxNorm{Max: 1.5}, "table", "w")
		}},
	{of: "Constrained", variant: "unit norm", kind: "keras", slots: moments,
		python: "constrained(" + adamText + "), keras_package.constraints.UnitNorm(), ['table', 'w'])",
		ours: func(n numbersOf) optimizer {
			return optimizers.Constrained(plainAdam(n), optimizers.UnitNorm{}, "table", "w")
		}},
	{of: "Constrained", variant: "between norms", kind: "keras", slots: moments,
		python: "constrained(" + adamText + "), keras_package.constraints.MinMaxNorm(.5, 1.5, .25), ['table', 'w'])",
		ours: func(n numbersOf) optimizer {
			return optimizers.Constrained(plainAdam(n), optimizers.MinMaxNorm{Min: .5, Max: 1.5, Rate: .25}, "table", "w")
		}},
	{of: "GradientNoise", kind: "keras", python: "Noise(keras.SGD(rate, momentum=mu), 'Momentum', l2, .5)",
		ours: func(n numbersOf) optimizer {
			return optimizers.GradientNoise(plainMomentum(n), value(n.L2), value(.5))
		}},
	{of: "Grouped", kind: "keras", python: "Groups(table_w=" + adamText + "), cube_b_gain=keras.SGD(rate, momentum=mu))",
		ours: func(n numbersOf) optimizer {
			return optimizers.Grouped(
				optimizers.Group{Scopes: []string{"table", "w"}, Rule: plainAdam(n)}, optimizers.Group{Rule: plainMomentum(n)})
		}},
})

// wide are cases of 32 and 64 bits: what 16 bits make of a rule is seen without
// a wrapper.
func wide(table []trained) []trained {
	for i := range table {
		if table[i].dtypes == nil {
			table[i].dtypes = []string{"float32", "float64"}
		}
	}
	return table
}

func plainAdam(n numbersOf) *optimizers.Adam { return adam(n, optimizers.NewAdam(0)) }

func plainMomentum(n numbersOf) *optimizers.Momentum {
	return momentum(n, optimizers.NewMomentum(0, n.Mu))
}

func clipped(rule optimizers.Rule, by optimizers.ClipKind, limit float64) optimizer {
	return optimizers.Clipped(rule, optimizers.Clip{By: by, Limit: value(limit)})
}

// with are names of slots and one more.
func with(slots map[string]string, python, ours string) map[string]string {
	all := map[string]string{python: ours}
	for k, v := range slots {
		all[k] = v
	}
	return all
}
