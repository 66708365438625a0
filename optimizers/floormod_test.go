package optimizers_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/optimizers"
)

// ulp is the relative distance between neighbours in a dtype.
var ulp = map[tf.DataType]float64{tf.Half: 0x1p-10, tf.Bfloat16: 0x1p-7, tf.Float: 0x1p-23, tf.Double: 0x1p-52}

// laps is where a step may end before it is wrapped: at the edges of the circle
// and next to them, within it, and some laps away.
func laps(dt tf.DataType, b float64, n int) []float64 {
	tiny := math.Abs(b) * ulp[dt] / 8
	ends := []float64{0, math.Copysign(0, -1), b, -b, 2 * b, -3 * b, tiny, -tiny, b - tiny, b + tiny, b / 2, 7.5 * b, -7.25 * b}
	random := rand.New(rand.NewPCG(1, 2))
	for len(ends) < n {
		spread := math.Pow(10, float64(len(ends)%5)-2)
		ends = append(ends, b*spread*(2*random.Float64()-1))
	}
	return ends[:n]
}

// distance is how far two weights are apart on the circle, in parts of it.
func distance(a, b, modulus float64) float64 {
	d := math.Mod(math.Abs(a-b), math.Abs(modulus)) / math.Abs(modulus)
	return min(d, 1-d)
}

// One step from w = 0 with rate 1 and the gradient -x ends at x mod B.
func TestFloorModWraps(t *testing.T) {
	type circle struct {
		name    string
		w       *ops.Variable
		grad, m tf.Output
	}
	for _, dt := range []tf.DataType{tf.Half, tf.Bfloat16, tf.Float, tf.Double} {
		t.Run(bridge.DTypeName(dt), func(t *testing.T) {
			b := newBench(t)
			var circles []circle
			var all []*tf.Operation
			for i, modulus := range []float64{1, 5, 2 * math.Pi, 0.1, -1, -2 * math.Pi} {
				for name, n := range map[string]int{"short": 60, "long": 4000} {
					for _, given := range []string{"constant", "fed"} {
						x := laps(dt, modulus, n)
						ends := make([]float64, n)
						for i := range x {
							ends[i] = -x[i]
						}
						w := b.vector(fmt.Sprintf("%s/%s/w%d", name, given, i), dt, make([]float64, n)...)
						grad := b.dense(w, ends...)
						rule := optimizers.NewFloorMod(1, modulus)
						m := numbers(b.Root(), tf.Double, ops.Shape{}, modulus)
						if given == "fed" {
							rule.Modulus = ops.Fed(m)
						}
						all = append(all, b.apply(rule, grad).Op)
						circles = append(circles, circle{fmt.Sprintf("mod %.3g, %s, %s", modulus, name, given), w, grad.Dense, ops.Cast(b.Root(), m, dt)})
					}
				}
			}
			b.start()
			b.run(all...)
			for _, c := range circles {
				values := b.fetch(c.w.Value(), c.grad, c.m)
				m := values[2][0]
				for i, got := range values[0] {
					at := -values[1][i]
					require.True(t, m > 0 && 0 <= got && got < m || m < 0 && m < got && got <= 0, "%s: %v mod %v gave %v", c.name, at, m, got)
					require.False(t, m > 0 && math.Signbit(got), "%s: %v mod %v gave %v", c.name, at, m, got)
					want := math.Mod(at, m)
					require.LessOrEqual(t, distance(got, want, m), ulp[dt], "%s: %v mod %v gave %v, wanted %v", c.name, at, m, got, want)
				}
			}
		})
	}
}

func TestFloorModOfNaNStaysNaN(t *testing.T) {
	for name, n := range map[string]int{"short": 3, "long": 2000} {
		for _, given := range []string{"constant", "fed"} {
			t.Run(name+" "+given, func(t *testing.T) {
				b := newBench(t)
				w := b.vector("w", tf.Float, make([]float64, n)...)
				grad := make([]float64, n)
				grad[1], grad[2] = math.NaN(), math.Inf(1)
				rule := optimizers.NewFloorMod(1, 3)
				if given == "fed" {
					rule.Modulus = ops.Fed(ops.Number(b.Root(), tf.Float, 3))
				}
				train := b.apply(rule, b.dense(w, grad...))
				b.start()
				b.steps(1, train)
				got := b.value(w)
				assert.Zero(t, got[0])
				assert.True(t, math.IsNaN(got[1]) && math.IsNaN(got[2]), "%v", got[:3])
			})
		}
	}
}

func TestFloorModWithoutACircle(t *testing.T) {
	for name, bad := range map[string]float32{
		"zero": 0, "NaN": float32(math.NaN()), "infinite": float32(math.Inf(1)),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			modulus := b.Placeholder("modulus", tf.Float, ops.Shape{})
			x, y := b.vector("x", tf.Float, 1, 2), b.vector("y", tf.Float, 3)
			rule := optimizers.NewFloorMod(.1, 1)
			rule.Modulus = ops.Fed(modulus)
			train := b.apply(rule, b.dense(x, 1, 1), b.dense(y, 1))
			b.start()
			before := b.bits(x, y, train.Iteration)
			err := b.feed(train.Op, map[tf.Output]float32{modulus: bad})
			require.ErrorIs(t, err, bridge.ErrInvalidArgument)
			require.ErrorContains(t, err, "wanted a modulus that is finite and not 0")
			assert.Equal(t, before, b.bits(x, y, train.Iteration), "nothing changed")
			require.NoError(t, b.feed(train.Op, map[tf.Output]float32{modulus: 5}))
			near(t, []float64{.9, 1.9}, b.value(x), 1e-6)
		})
	}
}

// Rate, noise and modulus fed, scheduled and constant are the same rule.
func TestFloorModHyperparameters(t *testing.T) {
	const rate, mean, stddev, modulus = .5, .25, .125, 3
	run := func(t *testing.T, kind func(b *bench, name string, v float32) ops.Hyperparameter) []float64 {
		b := newBench(t)
		w := b.vector("w", tf.Float, 1, 2, 2.5)
		rule := optimizers.NewFloorMod(0, 1)
		feeds := map[tf.Output]float32{}
		for _, p := range []struct {
			name string
			v    float32
			into *ops.Hyperparameter
		}{{"rate", rate, &rule.Rate}, {"mean", mean, &rule.Mean}, {"stddev", stddev, &rule.Stddev}, {"modulus", modulus, &rule.Modulus}} {
			if kind != nil {
				*p.into = kind(b, p.name, p.v)
				continue
			}
			fed := b.Placeholder(p.name, tf.Float, ops.Shape{})
			feeds[fed], *p.into = p.v, ops.Fed(fed)
		}
		train := b.apply(rule, b.dense(w, 1, -1, -2))
		b.start()
		for range 3 {
			require.NoError(t, b.feed(train.Op, feeds))
		}
		return b.value(w)
	}
	constant := run(t, func(_ *bench, _ string, v float32) ops.Hyperparameter { return optimizers.Value(float64(v)) })
	scheduled := run(t, func(_ *bench, _ string, v float32) ops.Hyperparameter {
		return ops.HyperparameterFunc(func(s *ops.Scope, step tf.Output, dt tf.DataType) tf.Output {
			f := ops.NewFormula(s, dt)
			return f.Add(f.Constant(float64(v)), f.Mul(f.Cast(step), f.Constant(0)))
		})
	})
	assert.Equal(t, constant, scheduled)
	assert.Equal(t, constant, run(t, nil))
	assert.NotEqual(t, run(t, func(_ *bench, name string, v float32) ops.Hyperparameter {
		if name == "stddev" {
			v = 0
		}
		return optimizers.Value(float64(v))
	}), constant, "there was noise")
}

func TestNoise(t *testing.T) {
	b := newBench(t)
	const n = 20_000
	noisy := optimizers.Elementwise("noisy", func(u *optimizers.Update) tf.Output { return u.Normal(3, 2) })
	twice := optimizers.Elementwise("twice", func(u *optimizers.Update) tf.Output { return u.Sub(u.Noise(), u.Noise()) })
	x, y, z := b.vector("x", tf.Float, make([]float64, n)...), b.vector("y", tf.Float, make([]float64, n)...), b.vector("z", tf.Float, make([]float64, n)...)
	zeros := make([]float64, n)
	train := b.apply(noisy, b.dense(x, zeros...), b.dense(y, zeros...))
	second := b.apply(twice, b.dense(z, zeros...))
	b.start()
	b.steps(1, train)
	b.steps(1, second)
	first := b.fetch(x.Value(), y.Value(), z.Value())
	mean, variance := moments(first[0])
	// Five standard errors: σ/√n and σ²·√(2/n).
	assert.InDelta(t, 3, mean, 5*2/math.Sqrt(n))
	assert.InDelta(t, 4, variance, 5*4*math.Sqrt(2./n))
	assert.NotEqual(t, first[0], first[1], "two variables")
	_, variance = moments(first[2])
	assert.InDelta(t, 2, variance, 5*2*math.Sqrt(2./n), "two calls of Noise are independent")
	b.steps(1, train)
	assert.NotEqual(t, first[0], b.value(x), "two steps")

	again := newBench(t)
	v := again.vector("x", tf.Float, zeros...)
	same := again.apply(noisy, again.dense(v, zeros...))
	again.start()
	again.steps(1, same)
	assert.Equal(t, first[0], again.value(v), "the same seed, name and step")
}

func moments(x []float64) (mean, variance float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x)-1)
	}
	return mean, variance
}
