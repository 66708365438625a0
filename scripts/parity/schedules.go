package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/optimizers/schedules"
)

func init() { register("schedules", scheduleSection) }

// A scheduled is a line of the table of schedules: a schedule here, and
// Python's as text that schedules.py evaluates. Text that is not one of Keras'
// classes is an expression of the step s.
type scheduled struct {
	of, python string
	ours       ops.Hyperparameter
	// refused says that Python has it in float32 only.
	refused bool
	// floor is the magnitude to which differences are relative at least, where
	// a schedule comes down to 0 by taking two numbers off each other.
	floor float64
}

var scheduleTable = []scheduled{
	{of: "ExponentialDecay", python: "keras.ExponentialDecay(n(.1), 100, n(.96))", ours: schedules.ExponentialDecay{Initial: .1, Steps: 100, Rate: .96}},
	{of: "ExponentialDecay", python: "keras.ExponentialDecay(n(2.), 1000, n(1.))", ours: schedules.ExponentialDecay{Initial: 2, Steps: 1000, Rate: 1}},
	{of: "ExponentialDecay", python: "keras.ExponentialDecay(n(3e-4), 333, n(.9), staircase=True)", ours: schedules.ExponentialDecay{Initial: 3e-4, Steps: 333, Rate: .9, Staircase: true}},
	{of: "ExponentialDecay", python: "v1.exponential_decay(n(1.), s, 10, n(.5))", ours: schedules.ExponentialDecay{Initial: 1, Steps: 10, Rate: .5}},
	{of: "ExponentialDecay", python: "v1.exponential_decay(n(1.), s, 10, n(.5), staircase=True)", ours: schedules.ExponentialDecay{Initial: 1, Steps: 10, Rate: .5, Staircase: true}},
	{of: "NaturalExpDecay", python: "v1.natural_exp_decay(n(.1), s, 100, n(.5))", ours: schedules.NaturalExpDecay{Initial: .1, Steps: 100, Rate: .5}},
	{of: "NaturalExpDecay", python: "v1.natural_exp_decay(n(.1), s, 70, n(.25), staircase=True)", ours: schedules.NaturalExpDecay{Initial: .1, Steps: 70, Rate: .25, Staircase: true}},
	{of: "InverseTimeDecay", python: "keras.InverseTimeDecay(n(.1), 100, n(.5))", ours: schedules.InverseTimeDecay{Initial: .1, Steps: 100, Rate: .5}},
	{of: "InverseTimeDecay", python: "v1.inverse_time_decay(n(.1), s, 70, n(.25))", ours: schedules.InverseTimeDecay{Initial: .1, Steps: 70, Rate: .25}},
	{of: "InverseTimeDecay", python: "v1.inverse_time_decay(n(.1), s, 70, n(.25), staircase=True)", ours: schedules.InverseTimeDecay{Initial: .1, Steps: 70, Rate: .25, Staircase: true}},
	{of: "PiecewiseConstant", python: "keras.PiecewiseConstantDecay([100, 500], [n(1.), n(.5), n(.1)])", ours: schedules.PiecewiseConstant{Boundaries: []int64{100, 500}, Values: []float64{1, .5, .1}}},
	{of: "PiecewiseConstant", python: "keras.PiecewiseConstantDecay([0, 1, 2, 999], [n(5.), n(4.), n(3.), n(2.), n(1.)])", ours: schedules.PiecewiseConstant{Boundaries: []int64{0, 1, 2, 999}, Values: []float64{5, 4, 3, 2, 1}}},
	{of: "PiecewiseConstant", python: "v1.piecewise_constant(s, [np.int64(10), np.int64(10**6)], [n(1.), n(.25), n(.1)])", ours: schedules.PiecewiseConstant{Boundaries: []int64{10, 1e6}, Values: []float64{1, .25, .1}}},
	{of: "PolynomialDecay", python: "keras.PolynomialDecay(n(.1), 800, n(1e-4))", ours: schedules.NewPolynomialDecay(.1, 800)},
	{of: "PolynomialDecay", python: "keras.PolynomialDecay(n(.1), 300, n(.01), power=n(.5), cycle=True)", ours: schedules.PolynomialDecay{Initial: .1, End: .01, Steps: 300, Power: .5, Cycle: true}},
	{of: "PolynomialDecay", python: "v1.polynomial_decay(n(.1), s, 300, n(.01), power=n(2.))", ours: schedules.PolynomialDecay{Initial: .1, End: .01, Steps: 300, Power: 2}},
	{of: "PolynomialDecay", refused: true, python: "v1.polynomial_decay(n(.1), s, 10, n(.01), power=n(1.), cycle=True)", ours: schedules.PolynomialDecay{Initial: .1, End: .01, Steps: 10, Power: 1, Cycle: true}},
	{of: "CosineDecay", python: "keras.CosineDecay(n(.1), 800)", ours: schedules.CosineDecay{Initial: .1, Steps: 800}},
	{of: "CosineDecay", python: "keras.CosineDecay(n(.1), 800, n(.1))", ours: schedules.CosineDecay{Initial: .1, Steps: 800, Alpha: .1}},
	{of: "CosineDecay", python: "keras.CosineDecay(n(.01), 500, n(.25), warmup_target=n(.1), warmup_steps=100)", ours: schedules.CosineDecay{Initial: .01, Steps: 500, Alpha: .25, WarmupSteps: 100, WarmupTarget: .1}},
	{of: "CosineDecay", refused: true, python: "v1.cosine_decay(n(.1), s, 1000, n(.05))", ours: schedules.CosineDecay{Initial: .1, Steps: 1000, Alpha: .05}},
	{of: "CosineDecayRestarts", python: "keras.CosineDecayRestarts(n(.1), 100, alpha=n(.1))", ours: restarts(.1, 100, 2, 1, .1)},
	{of: "CosineDecayRestarts", python: "keras.CosineDecayRestarts(n(.1), 128, t_mul=n(1.5), m_mul=n(.5), alpha=n(.25))", ours: restarts(.1, 128, 1.5, .5, .25)},
	{of: "CosineDecayRestarts", refused: true, python: "v1.cosine_decay_restarts(n(.1), s, 128, t_mul=n(1.), m_mul=n(.75), alpha=n(.25))", ours: restarts(.1, 128, 1, .75, .25)},
	{of: "LinearCosineDecay", refused: true, python: "v1.linear_cosine_decay(n(.1), s, 800)", ours: schedules.NewLinearCosineDecay(.1, 800)},
	{of: "LinearCosineDecay", refused: true, python: "v1.linear_cosine_decay(n(.1), s, 800, num_periods=n(2.5), alpha=n(.5), beta=n(.25))", ours: schedules.LinearCosineDecay{Initial: .1, Steps: 800, Periods: 2.5, Alpha: .5, Beta: .25}},
	{of: "LinearCosineDecay", floor: .01, ours: schedules.LinearCosineDecay{Initial: .1, Steps: 800, Periods: 2.5, Alpha: .5, Beta: .25},
		python: "n(.1) * (n(.25) + (n(1.5) - cast(tf.minimum(s, 800)) / n(800)) * n(.5) * (n(1.) + tf.cos(n(5 * math.pi) * cast(tf.minimum(s, 800)) / n(800))))"},
	{of: "NoisyLinearCosineDecay", refused: true, python: "v1.noisy_linear_cosine_decay(n(.1), s, 800, initial_variance=n(0.), alpha=n(.5), beta=n(.25))", ours: schedules.NoisyLinearCosineDecay{
		LinearCosineDecay: schedules.LinearCosineDecay{Initial: .1, Steps: 800, Periods: .5, Alpha: .5, Beta: .25}, VarianceDecay: .55}},
	{of: "NoisyLinearCosineDecay", floor: .1, ours: schedules.NewNoisyLinearCosineDecay(.1, 800),
		// v1's own draw is anew in each run; with ours in its place.
		python: "n(.1) * (n(.001) + (n(1.) - cast(tf.minimum(s, 800)) / n(800) + " +
			"drawn('noisy_linear_cosine_decay', s) * tf.sqrt(n(1.) / tf.pow(n(1.) + cast(tf.minimum(s, 800)), n(.55)))) * " +
			"n(.5) * (n(1.) + tf.cos(n(math.pi) * cast(tf.minimum(s, 800)) / n(800))))"},
	{of: "OneCycle", floor: .01, ours: schedules.OneCycle{Start: .01, Peak: .1, End: .001, Steps: 900, Rise: .25},
		python: "tf.where(cast(s) <= n(224), n(.055) - n(.045) * tf.cos(n(math.pi) * cast(s) / n(224)), " +
			"n(.0505) + n(.0495) * tf.cos(n(math.pi) * (tf.minimum(cast(s), n(899)) - n(224)) / n(675)))"},
	{of: "OneCycle", floor: .01, ours: schedules.OneCycle{Start: .95, Peak: .85, End: .95, Steps: 800, Rise: .5, Linear: true},
		python: "n(.85) + n(.1) * tf.abs(tf.minimum(cast(s), n(799)) - n(399)) / n(400) * tf.where(s <= 399, n(400 / 399), n(1))"},
	{of: "LinearWarmup", ours: schedules.LinearWarmup{Start: .001, Steps: 100, Then: schedules.CosineDecay{Initial: .1, Steps: 500, Alpha: .25}},
		python: "keras.CosineDecay(n(.001), 500, n(.25), warmup_target=n(.1), warmup_steps=100)"},
	{of: "LinearWarmup", ours: schedules.LinearWarmup{Start: 0, Steps: 100, Then: schedules.ExponentialDecay{Initial: .1, Steps: 100, Rate: .5}, Beside: true},
		python: "tf.where(s < 100, n(.05) * cast(s) / n(100), v1.exponential_decay(n(.1), s, 100, n(.5)))"},
	{of: "ConstantWarmup", ours: schedules.ConstantWarmup{Value: .01, Steps: 100, Then: schedules.InverseTimeDecay{Initial: .1, Steps: 50, Rate: .5}},
		python: "tf.where(s < 100, n(.01), v1.inverse_time_decay(n(.1), s - 100, 50, n(.5)))"},
	{of: "Sequence", python: "tf.where(s < 100, n(.1), tf.where(s < 400, v1.polynomial_decay(n(.1), s - 100, 300, n(.01)), v1.exponential_decay(n(.01), s - 400, 100, n(.5))))",
		ours: schedules.Sequence{
			{Steps: 100, Of: ops.Fixed(.1)},
			{Steps: 300, Of: schedules.PolynomialDecay{Initial: .1, End: .01, Steps: 300, Power: 1}},
			{Of: schedules.ExponentialDecay{Initial: .01, Steps: 100, Rate: .5}}}},
	{of: "Formula", python: "n(.1) * tf.math.rsqrt(n(1) + cast(s))", ours: schedules.Formula(func(f ops.Formula, step tf.Output) tf.Output {
		return f.Mul(f.Constant(.1), f.Rsqrt(f.Add(f.Constant(1), step)))
	})},
}

func restarts(initial float64, first int64, t, m, alpha float64) ops.Hyperparameter {
	return schedules.CosineDecayRestarts{Initial: initial, FirstSteps: first, TMul: t, MMul: m, Alpha: alpha}
}

// plateaus are rates that follow measurements, by Keras' callback.
var plateaus = []struct {
	python string
	ours   schedules.Plateau
}{
	{"plateau(measured, .5)", *schedules.NewPlateau(.5)},
	{"plateau(measured, .5, factor=.25, patience=3, min_delta=.05, cooldown=4, min_lr=.001)",
		schedules.Plateau{Rate: .5, Factor: .25, Patience: 3, MinDelta: .05, Cooldown: 4, MinRate: .001}},
	{"plateau(measured, .5, factor=.5, patience=2, mode='max', min_delta=.01)",
		schedules.Plateau{Rate: .5, Factor: .5, Patience: 2, MinDelta: .01, Rising: true}},
}

// measurements are losses that fall, stand and fall again.
func measurements() []float64 {
	all := make([]float64, 120)
	for i := range all {
		all[i] = math.Exp(-float64(i/25)) + .03*math.Sin(float64(i*i))
	}
	return all
}

func scheduleSection(ctx context.Context, h *Harness) (Result, error) {
	type asked struct {
		Python   string    `json:"python"`
		DType    string    `json:"dtype"`
		Measured []float64 `json:"measured,omitempty"`
		compare  func(rec *Recording, steps, want Array) error
	}
	reports := newTrainReports()
	var cases []asked
	for _, c := range scheduleTable {
		for _, dtype := range []string{"float32", "float64"} {
			if !h.Wants(c.of+", "+c.python+", "+dtype) || c.refused && dtype != "float32" {
				continue
			}
			cases = append(cases, asked{Python: c.python, DType: dtype, compare: func(rec *Recording, steps, want Array) error {
				worst, err := c.compare(ctx, rec, dtype, steps, want)
				reports.add(c.of, c.python+", "+dtype, worst, tolerance(dtype, 0), err)
				return ctx.Err()
			}})
		}
	}
	for _, c := range plateaus {
		if !h.Wants("Plateau, " + c.python) {
			continue
		}
		cases = append(cases, asked{Python: c.python, DType: "float64", Measured: measurements(), compare: func(rec *Recording, _, want Array) error {
			worst, err := lowered(rec, c.ours, want)
			reports.add("Plateau", c.python, worst, 1e-6, err)
			reports.entries["Plateau"].Loose = "Keras keeps the rate in float32"
			return nil
		}})
	}
	dir := filepath.Join(h.Dir, "schedules")
	text, err := json.Marshal(cases)
	if err != nil {
		return Result{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Result{}, err
	}
	if err := os.WriteFile(filepath.Join(dir, "table.json"), text, 0o644); err != nil {
		return Result{}, err
	}
	rec, err := h.Python(ctx, "schedules")
	if err != nil {
		return Result{}, err
	}
	defer rec.Close()
	var found struct {
		Steps Array
		Cases []struct {
			Error string
			Want  Array
		}
	}
	if err := rec.Document(&found); err != nil {
		return Result{}, err
	}
	if len(found.Cases) != len(cases) {
		return Result{}, fmt.Errorf("of %[2]d cases, %[1]d were answered by Python", len(found.Cases), len(cases))
	}
	for i, c := range cases {
		h.Progress.At("Go", i, len(cases))
		if text := found.Cases[i].Error; text != "" {
			reports.add("Python", c.Python+", "+c.DType, 0, 0, errors.New(text))
			continue
		}
		if err := c.compare(rec, found.Steps, found.Cases[i].Want); err != nil {
			return Result{}, err
		}
	}
	return reports.finish(), nil
}

// compare computes a schedule at every recorded step.
func (c scheduled) compare(ctx context.Context, rec *Recording, dtype string, steps, want Array) (float64, error) {
	dt, err := bridge.ParseDType(dtype)
	if err != nil {
		return 0, err
	}
	l := newLab(rec, 0)
	defer l.close()
	step := l.Placeholder("step", tf.Int64, ops.Shape{})
	value := c.ours.At(l.Root(), step, dt)
	if err := l.start(ctx); err != nil {
		return 0, err
	}
	prepared, err := l.session.Prepare(bridge.Call{Feeds: []tf.Output{step}, Fetches: []tf.Output{value}})
	if err != nil {
		return 0, err
	}
	out := prepared.NewOutputs()
	defer out.Close()
	stepBytes, err := rec.Bytes(steps)
	if err != nil {
		return 0, err
	}
	var got []byte
	for at := 0; at < len(stepBytes); at += 8 {
		fed, err := bridge.Scalar(int64(binary.LittleEndian.Uint64(stepBytes[at:])))
		if err != nil {
			return 0, err
		}
		err = prepared.Run(ctx, []*bridge.Tensor{fed}, out)
		_ = fed.Close()
		if err != nil {
			return 0, err
		}
		view, err := out.Tensor(0).Bytes()
		if err != nil {
			return 0, err
		}
		got = append(got, view...)
	}
	ours, err := numbers(dtype, got)
	if err != nil {
		return 0, err
	}
	expected, err := rec.Bytes(want)
	if err != nil {
		return 0, err
	}
	theirs, err := numbers(want.DType, expected)
	if err != nil {
		return 0, err
	}
	if len(ours) != len(theirs) {
		return 0, fmt.Errorf("%d values, Python has %d", len(ours), len(theirs))
	}
	// By element: far along, a schedule has fallen by orders of magnitude.
	worst, at := 0.0, 0
	for i := range ours {
		if d := relative(ours[i], theirs[i], max(c.floor, 1e-30)); d > worst {
			worst, at = d, i
		}
	}
	if worst > 1e-3 {
		step := binary.LittleEndian.Uint64(stepBytes[8*at:])
		return worst, fmt.Errorf("at step %d it is %v, Python has %v", step, real(ours[at]), real(theirs[at]))
	}
	return worst, nil
}

// lowered are the rates of a plateau after each measurement.
func lowered(rec *Recording, p schedules.Plateau, want Array) (float64, error) {
	data, err := rec.Bytes(want)
	if err != nil {
		return 0, err
	}
	theirs, err := numbers(want.DType, data)
	if err != nil {
		return 0, err
	}
	worst, times := 0.0, 0
	for i, measured := range measurements() {
		changed, err := p.Observe(measured)
		if err != nil {
			return 0, err
		}
		if changed {
			times++
		}
		worst = max(worst, relative(complex(p.Rate, 0), theirs[i], 1e-30))
	}
	if times == 0 {
		return worst, fmt.Errorf("the rate was never lowered, so that nothing is shown")
	}
	return worst, nil
}
