package schedules_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/optimizers/schedules"
)

// root is a schedule of one's own.
var root = schedules.Formula(func(f ops.Formula, step tf.Output) tf.Output {
	return f.Mul(f.Constant(.5), f.Rsqrt(f.Add(step, f.Constant(1))))
})

func TestAScheduleHasItsValueAtEachStep(t *testing.T) {
	type points map[int64]float64
	cycle := schedules.PolynomialDecay{Initial: 1, End: .1, Steps: 10, Power: 1, Cycle: true}
	cosine := schedules.CosineDecay{Initial: 1, Steps: 10, Alpha: .1}
	warm := schedules.CosineDecay{Initial: 0, Steps: 10, Alpha: .1, WarmupSteps: 4, WarmupTarget: 1}
	restarts := schedules.NewCosineDecayRestarts(1, 10)
	restarts.MMul, restarts.Alpha = .5, .1
	even := restarts
	even.TMul = 1
	inverse := schedules.InverseTimeDecay{Initial: 1, Steps: 10, Rate: .5}
	stairs := inverse
	stairs.Staircase = true
	line := schedules.NewLinearCosineDecay(1, 10)
	quiet := schedules.NoisyLinearCosineDecay{LinearCosineDecay: line}
	one := schedules.OneCycle{Start: .1, Peak: 1, End: .01, Steps: 21, Rise: 11. / 21}
	straight := one
	straight.Linear = true
	half := schedules.ExponentialDecay{Initial: 1, Steps: 1, Rate: .5}
	cos := func(part float64) float64 { return .5 * (1 + math.Cos(math.Pi*part)) }
	for name, c := range map[string]struct {
		schedule ops.Hyperparameter
		points   points
	}{
		"natural": {schedules.NaturalExpDecay{Initial: 2, Steps: 10, Rate: .5},
			points{0: 2, 10: 2 * math.Exp(-.5), 15: 2 * math.Exp(-.75)}},
		"natural, stairs": {schedules.NaturalExpDecay{Initial: 2, Steps: 10, Rate: .5, Staircase: true},
			points{9: 2, 10: 2 * math.Exp(-.5), 19: 2 * math.Exp(-.5)}},
		"inverse time":         {inverse, points{0: 1, 10: 1 / 1.5, 15: 1 / 1.75}},
		"inverse time, stairs": {stairs, points{9: 1, 15: 1 / 1.5, 20: .5}},
		"polynomial":           {schedules.NewPolynomialDecay(1.0001, 10), points{0: 1.0001, 5: .5001, 10: 1e-4, 99: 1e-4}},
		"polynomial, squared":  {schedules.PolynomialDecay{Initial: 1, Steps: 10, Power: 2}, points{0: 1, 5: .25, 11: 0}},
		"polynomial, cycle":    {cycle, points{0: 1, 10: .1, 11: 1 - .9*.55, 20: .1, 21: 1 - .9*.7}},
		"cosine":               {cosine, points{0: 1, 5: .55, 3: .9*cos(.3) + .1, 10: .1, 99: .1}},
		"cosine, warm-up":      {warm, points{0: 0, 1: .25, 3: .75, 4: 1, 9: .55, 14: .1, 99: .1}},
		"restarts": {restarts, points{0: 1, 9: .9*cos(.9) + .1, 10: .9*.5 + .1, 20: .9*.25 + .1,
			31: .9*.25*cos(1./40) + .1}},
		"restarts of one length": {even, points{0: 1, 10: .55, 15: .9*.25 + .1, 20: .9*.25 + .1}},
		"linear cosine":          {line, points{0: 1.001, 5: .251, 10: .001, 99: .001}},
		"noisy, without noise":   {quiet, points{0: 1.001, 5: .251, 10: .001, 99: .001}},
		"one cycle":              {one, points{0: .1, 5: .55, 10: 1, 15: .505, 20: .01, 99: .01}},
		"one cycle, straight":    {straight, points{0: .1, 1: .19, 10: 1, 12: .802, 20: .01, 99: .01}},
		"formula":                {root, points{0: .5, 3: .25, 99: .05}},
		"linear warm-up":         {schedules.LinearWarmup{Start: .5, Steps: 4, Then: half}, points{0: .5, 1: .625, 3: .875, 4: 1, 5: .5, 6: .25}},
		"linear warm-up beside":  {schedules.LinearWarmup{Steps: 2, Then: half, Beside: true}, points{0: 0, 1: .125, 2: .25, 3: .125}},
		"constant warm-up":       {schedules.ConstantWarmup{Value: 7, Steps: 2, Then: half}, points{0: 7, 1: 7, 2: 1, 3: .5}},
		"constant warm-up beside": {schedules.ConstantWarmup{Value: 7, Steps: 2, Then: half, Beside: true},
			points{0: 7, 1: 7, 2: .25, 3: .125}},
		"warm-up of a warm-up": {schedules.ConstantWarmup{Value: 7, Steps: 1, Then: schedules.LinearWarmup{Steps: 2, Then: half}},
			points{0: 7, 1: 0, 2: .5, 3: 1, 4: .5}},
		"sequence": {schedules.Sequence{{Steps: 2, Of: ops.Fixed(3)}, {Steps: 3, Of: half}, {Of: inverse}},
			points{0: 3, 1: 3, 2: 1, 3: .5, 4: .25, 5: 1, 15: 1 / 1.5}},
		"sequence, far out": {schedules.Sequence{{Steps: 1<<53 + 1, Of: ops.Fixed(3)}, {Of: ops.Fixed(4)}},
			points{1 << 53: 3, 1<<53 + 1: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			for dt, precision := range map[tf.DataType]float64{tf.Float: 2e-6, tf.Double: 1e-12, tf.Bfloat16: 4e-3} {
				for step, want := range c.points {
					got := values(t, dt, step, c.schedule)[0]
					assert.InDelta(t, want, got, precision*max(math.Abs(want), 1e-2), "step %d, %v", step, dt)
				}
			}
		})
	}
}

func TestNoiseOfARateIsTheSameWhenTrainingGoesOn(t *testing.T) {
	noisy := schedules.NewNoisyLinearCosineDecay(1, 100)
	other := noisy
	other.Draw = "other"
	quiet := schedules.NoisyLinearCosineDecay{LinearCosineDecay: noisy.LinearCosineDecay}
	var squares float64
	for step := range int64(40) {
		first, again := values(t, tf.Double, step, noisy, other, quiet), values(t, tf.Double, step, noisy)
		require.Equal(t, first[0], again[0])
		require.NotEqual(t, first[0], first[1], "another name draws other numbers")
		z := (first[0] - first[2]) / (.5 * (1 + math.Cos(math.Pi*float64(step)/100))) * math.Pow(1+float64(step), .275)
		squares += z * z
	}
	assert.InDelta(t, 1, squares/40, .6, "the noise has the variance it is said to have") // 40 χ² of 1: σ = .22
}

func TestCombinedSchedulesThatCannotBe(t *testing.T) {
	good, bad := ops.Fixed(1), schedules.ExponentialDecay{Initial: 1, Rate: .5}
	for want, schedule := range map[string]ops.Hyperparameter{
		"inverse time decay: Rate is -1":                     schedules.InverseTimeDecay{Initial: 1, Steps: 1, Rate: -1},
		"natural exponential decay: Steps is 0":              schedules.NaturalExpDecay{Initial: 1},
		"polynomial decay: Power is 0":                       schedules.PolynomialDecay{Initial: 1, Steps: 1},
		"polynomial decay: End is +Inf":                      schedules.PolynomialDecay{Steps: 1, Power: 1, End: math.Inf(1)},
		"cosine decay: Steps is -1":                          schedules.CosineDecay{Steps: -1},
		"cosine decay: WarmupSteps is -2":                    schedules.CosineDecay{Steps: 1, WarmupSteps: -2},
		"restarts: TMul is 0.5":                              schedules.CosineDecayRestarts{FirstSteps: 1, TMul: .5},
		"restarts: FirstSteps is 0":                          schedules.CosineDecayRestarts{TMul: 1},
		"linear cosine decay: Beta is NaN":                   schedules.LinearCosineDecay{Steps: 1, Beta: math.NaN()},
		"noisy linear cosine decay: Steps is 0":              schedules.NoisyLinearCosineDecay{},
		"noisy linear cosine decay: Variance is -1":          schedules.NoisyLinearCosineDecay{LinearCosineDecay: schedules.NewLinearCosineDecay(1, 1), Variance: -1},
		"one cycle: Rise is 0.3 of 3 steps":                  schedules.NewOneCycle(1, 3),
		"one cycle: Rise is 1 of 3 steps":                    schedules.OneCycle{Steps: 3, Rise: 1},
		"linear warm-up: Then is nil":                        schedules.LinearWarmup{Steps: 1},
		"linear warm-up: Then: exponential decay: Steps":     schedules.LinearWarmup{Steps: 1, Then: bad},
		"linear warm-up: Steps is 0":                         schedules.LinearWarmup{Then: good},
		"constant warm-up: Value is NaN":                     schedules.ConstantWarmup{Value: math.NaN(), Steps: 1, Then: good},
		"it has no parts":                                    schedules.Sequence{},
		"part 1 of 2: Steps is 0, wanted above 0":            schedules.Sequence{{Of: good}, {Of: good}},
		"part 2 of 2: Steps is 3, but the last part goes on": schedules.Sequence{{Steps: 1, Of: good}, {Steps: 3, Of: good}},
		"part 1 of 1: Of is nil":                             schedules.Sequence{{}},
		"part 2 of 2: Of: exponential decay":                 schedules.Sequence{{Steps: 1, Of: good}, {Of: bad}},
		"longer than steps can be counted":                   schedules.Sequence{{math.MaxInt64, good}, {1, good}, {0, good}},
		"formula of the step: it is nil":                     schedules.Formula(nil),
		"a schedule gave no tensor":                          schedules.Formula(func(ops.Formula, tf.Output) tf.Output { return tf.Output{} }),
	} {
		t.Run(want, func(t *testing.T) {
			g := ops.NewGraph(ops.GraphOptions{})
			out := schedule.At(g.Root(), ops.Const(g.Root(), ops.Shape{}, []int64{0}), tf.Float)
			require.ErrorContains(t, g.Err(), want)
			assert.Nil(t, out.Op)
		})
	}
}

func TestPlateauLowersTheRate(t *testing.T) {
	p := schedules.NewPlateau(1)
	p.Factor, p.Patience, p.MinDelta, p.Cooldown, p.MinRate = .5, 2, .1, 2, .2
	for i, c := range []struct {
		measured, rate float64
	}{
		{math.NaN(), 1}, {5, 1}, {4, 1}, // 5 is the first, 4 is progress
		{3.95, 1}, {4.2, .5}, // two in a row are not
		{9, .5}, {9, .5}, // cooling down: 9 counts again when it is over
		{9, .25}, {3, .25}, // and lowers; 3 is progress
		{3, .25}, {3, .2}, {3, .2}, // never below MinRate
		{3, .2}, {3, .2}, {3, .2},
	} {
		before := p.Rate
		saved, err := json.Marshal(p)
		require.NoError(t, err)
		p = &schedules.Plateau{}
		require.NoError(t, json.Unmarshal(saved, p), "a plateau goes on from what was saved")
		changed, err := p.Observe(c.measured)
		require.NoError(t, err)
		assert.Equal(t, c.rate, p.Rate, "measurement %d", i)
		assert.Equal(t, before != p.Rate, changed, "measurement %d", i)
	}
	rising := schedules.NewPlateau(1)
	rising.Rising, rising.Patience = true, 1
	for _, accuracy := range []float64{.1, .2, .3} {
		changed, err := rising.Observe(accuracy)
		require.NoError(t, err)
		require.False(t, changed)
	}
	changed, err := rising.Observe(.3)
	require.NoError(t, err)
	assert.True(t, changed)
	rising.Factor = 1
	_, err = rising.Observe(0)
	require.ErrorContains(t, err, "Factor is 1, wanted below 1")
}

func ExampleLinearWarmup() {
	rate := schedules.LinearWarmup{Steps: 1000, Then: schedules.CosineDecay{Initial: 0.1, Steps: 9000}}
	fmt.Println(rate.Check())
	rate.Then = schedules.CosineDecay{Initial: 0.1}
	fmt.Println(rate.Check())
	// Output:
	// <nil>
	// linear warm-up: Then: cosine decay: Steps is 0, wanted above 0
}

func ExamplePlateau() {
	plateau := schedules.NewPlateau(0.1)
	plateau.Patience = 2
	for _, loss := range []float64{3, 2, 2, 2, 1.9} {
		if _, err := plateau.Observe(loss); err != nil {
			fmt.Println(err)
		}
		fmt.Printf("%.2f ", plateau.Rate)
	}
	// Output: 0.10 0.10 0.10 0.01 0.01
}
