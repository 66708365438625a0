package schedules

import (
	"cmp"
	"math"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// CosineDecay falls along half a cosine from Initial to the part Alpha of it in
// Steps steps, and stays there (arXiv:1608.03983 without restarts):
//
//	Initial · ((1-Alpha)·½(1 + cos(π·min(step, Steps)/Steps)) + Alpha)
//
// With WarmupSteps it goes from Initial to WarmupTarget on a straight line
// first, in that many steps, and the decay, which then takes Steps steps more,
// starts at WarmupTarget. It is tf.keras.optimizers.schedules.CosineDecay; without
// a warm-up, tf.compat.v1.train.cosine_decay.
type CosineDecay struct {
	Initial      float64
	Steps        int64   // of the decay, above 0
	Alpha        float64 // what is left at the end, as a part of where the decay starts
	WarmupSteps  int64   // 0: no warm-up
	WarmupTarget float64 // of no meaning without WarmupSteps
}

// At is the value at a step.
func (d CosineDecay) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	return at(s, dt, d, func(f ops.Formula) tf.Output {
		now, all := f.Cast(step), f.Constant(float64(d.Steps))
		from := f.Constant(d.Initial)
		decay := func(now tf.Output) tf.Output {
			fallen := halfCosine(f, f.Mul(f.Constant(math.Pi), f.Div(now, all)))
			return f.Mul(from, f.Add(f.Mul(f.Constant(1-d.Alpha), fallen), f.Constant(d.Alpha)))
		}
		if d.WarmupSteps == 0 {
			return decay(f.Minimum(now, all))
		}
		warm, initial := f.Constant(float64(d.WarmupSteps)), from
		now = f.Minimum(now, f.Add(all, warm))
		from = f.Constant(d.WarmupTarget)
		rising := f.Add(f.Mul(f.Sub(from, initial), f.Div(now, warm)), initial)
		return f.Select(f.Less(now, warm), rising, decay(f.Sub(now, warm)))
	})
}

// Check says what is wrong with the settings.
func (d CosineDecay) Check() error {
	return check("cosine decay", steps("Steps", d.Steps), finite("Initial", d.Initial), finite("Alpha", d.Alpha),
		atLeast(0, "WarmupSteps", float64(d.WarmupSteps)), finite("WarmupTarget", d.WarmupTarget))
}

// halfCosine is ½(1 + cos x).
func halfCosine(f ops.Formula, x tf.Output) tf.Output {
	return f.Mul(f.Constant(0.5), f.Add(f.Constant(1), f.Cos(x)))
}

// CosineDecayRestarts falls along half a cosine from Initial to the part Alpha
// of it in FirstSteps steps, jumps up and falls again, each time in TMul times
// as many steps and from MMul times as high (SGDR, arXiv:1608.03983).
// [NewCosineDecayRestarts] fills in Python's defaults.
//
// It is tf.keras.optimizers.schedules.CosineDecayRestarts and
// tf.compat.v1.train.cosine_decay_restarts. The number of the restart is found
// by a logarithm, as there, so a restart can come a step late by rounding.
type CosineDecayRestarts struct {
	Initial    float64
	FirstSteps int64   // above 0
	TMul       float64 // 1 or more
	MMul       float64 // 0 or more
	Alpha      float64 // part of Initial that it falls to
}

// NewCosineDecayRestarts is a [CosineDecayRestarts] with TMul 2, MMul 1 and
// Alpha 0.
func NewCosineDecayRestarts(initial float64, firstSteps int64) CosineDecayRestarts {
	return CosineDecayRestarts{Initial: initial, FirstSteps: firstSteps, TMul: 2, MMul: 1}
}

// At is the value at a step.
func (d CosineDecayRestarts) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	return at(s, dt, d, func(f ops.Formula) tf.Output {
		one, longer := f.Constant(1), f.Constant(d.TMul)
		part := f.Div(f.Cast(step), f.Constant(float64(d.FirstSteps)))
		var restart tf.Output
		if d.TMul == 1 {
			restart = f.Floor(part)
			part = f.Sub(part, restart)
		} else {
			grown := f.Sub(one, longer)
			restart = f.Floor(f.Div(f.Log(f.Sub(one, f.Mul(part, grown))), f.Log(longer)))
			times := f.Pow(longer, restart)
			part = f.Div(f.Sub(part, f.Div(f.Sub(one, times), grown)), times)
		}
		height := f.Mul(f.Constant(0.5), f.Pow(f.Constant(d.MMul), restart))
		fallen := f.Mul(height, f.Add(one, f.Cos(f.Mul(f.Constant(math.Pi), part))))
		return f.Mul(f.Constant(d.Initial), f.Add(f.Mul(f.Constant(1-d.Alpha), fallen), f.Constant(d.Alpha)))
	})
}

// Check says what is wrong with the settings.
func (d CosineDecayRestarts) Check() error {
	return check("cosine decay with restarts", steps("FirstSteps", d.FirstSteps), atLeast(1, "TMul", d.TMul),
		atLeast(0, "MMul", d.MMul), finite("Initial", d.Initial), finite("Alpha", d.Alpha))
}

// LinearCosineDecay falls on a straight line times a cosine (arXiv:1709.07417).
// With t = min(step, Steps)/Steps:
//
//	Initial · ((Alpha + 1 - t)·½(1 + cos(2π·Periods·t)) + Beta)
//
// [NewLinearCosineDecay] fills in Python's defaults. It is
// tf.compat.v1.train.linear_cosine_decay.
type LinearCosineDecay struct {
	Initial float64
	Steps   int64   // above 0
	Periods float64 // of the cosine, during Steps
	Alpha   float64
	Beta    float64
}

// NewLinearCosineDecay is a [LinearCosineDecay] of half a period, with Alpha 0
// and Beta 0.001.
func NewLinearCosineDecay(initial float64, steps int64) LinearCosineDecay {
	return LinearCosineDecay{Initial: initial, Steps: steps, Periods: 0.5, Beta: 0.001}
}

// At is the value at a step.
func (d LinearCosineDecay) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	return at(s, dt, d, func(f ops.Formula) tf.Output { return d.formula(f, step, nil) })
}

// Check says what is wrong with the settings.
func (d LinearCosineDecay) Check() error { return d.check("linear cosine decay") }

func (d LinearCosineDecay) check(what string) error {
	return check(what, steps("Steps", d.Steps), finite("Initial", d.Initial), finite("Periods", d.Periods),
		finite("Alpha", d.Alpha), finite("Beta", d.Beta))
}

// formula is the value, with noise for the straight line, which is told the step.
func (d LinearCosineDecay) formula(f ops.Formula, step tf.Output, noise func(now tf.Output) tf.Output) tf.Output {
	all := f.Constant(float64(d.Steps))
	now := f.Minimum(f.Cast(step), all)
	line := f.Div(f.Sub(all, now), all)
	if noise != nil {
		line = f.Add(line, noise(now))
	}
	part := f.Mul(f.Mul(f.Constant(2), f.Constant(d.Periods)), f.Div(now, all))
	fallen := halfCosine(f, f.Mul(f.Constant(math.Pi), part))
	value := f.Add(f.Mul(f.Add(f.Constant(d.Alpha), line), fallen), f.Constant(d.Beta))
	return f.Mul(f.Constant(d.Initial), value)
}

// NoisyLinearCosineDecay is a [LinearCosineDecay] with normal noise added to the
// straight line, of mean 0 and of the variance
//
//	Variance / (1 + min(step, Steps))^VarianceDecay
//
// The noise is the stateless draw [ops.Draw] of the name Draw at the step, so a
// training that goes on from a checkpoint sees the rates of the uninterrupted
// one; tf.compat.v1.train.noisy_linear_cosine_decay, which it otherwise is, draws
// anew in each run. [NewNoisyLinearCosineDecay] fills in Python's defaults.
type NoisyLinearCosineDecay struct {
	LinearCosineDecay
	Variance      float64 // of the first step's noise, 0 or more
	VarianceDecay float64
	Draw          string // name of the draw; "" stands for "noisy_linear_cosine_decay"
}

// NewNoisyLinearCosineDecay is a [NoisyLinearCosineDecay] with variance 1, which
// decays by 0.55, and otherwise a [NewLinearCosineDecay].
func NewNoisyLinearCosineDecay(initial float64, steps int64) NoisyLinearCosineDecay {
	return NoisyLinearCosineDecay{LinearCosineDecay: NewLinearCosineDecay(initial, steps), Variance: 1, VarianceDecay: 0.55}
}

// At is the value at a step.
func (d NoisyLinearCosineDecay) At(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
	return at(s, dt, d, func(f ops.Formula) tf.Output {
		return d.formula(f, step, func(now tf.Output) tf.Output {
			variance := f.Div(f.Constant(d.Variance), f.Pow(f.Add(f.Constant(1), now), f.Constant(d.VarianceDecay)))
			draw := ops.Draw{Name: cmp.Or(d.Draw, "noisy_linear_cosine_decay"), Step: step}
			return f.Mul(ops.StatelessNormal(s, ops.Shape{}, f.DType, draw), f.Sqrt(variance))
		})
	})
}

// Check says what is wrong with the settings.
func (d NoisyLinearCosineDecay) Check() error {
	const what = "noisy linear cosine decay"
	if err := d.check(what); err != nil {
		return err
	}
	return check(what, atLeast(0, "Variance", d.Variance), finite("VarianceDecay", d.VarianceDecay))
}
