package ops_test

import (
	"math"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

type lossFunc = func(s *ops.Scope, labels, predictions tf.Output, options ...ops.LossOptions) tf.Output

// Each loss of two samples of three values against its formula in float64. The
// comparison with Keras itself is in scripts/parity.
func TestLossesFollowTheirFormulas(t *testing.T) {
	labels := [][]float64{{0, 1, 0}, {1, 0, 0}}
	probabilities := [][]float64{{.2, .7, .1}, {.5, .3, .2}}
	logits := [][]float64{{-1.5, 2, .25}, {.5, -3, 1}}
	mean := func(f func(y, p float64) float64) func(y, p []float64) float64 {
		return func(y, p []float64) float64 {
			total := 0.
			for i := range y {
				total += f(y[i], p[i])
			}
			return total / float64(len(y))
		}
	}
	sum := func(f func(y, p float64) float64) func(y, p []float64) float64 {
		return func(y, p []float64) float64 { return mean(f)(y, p) * float64(len(y)) }
	}
	softmax := func(x []float64) []float64 {
		p, total := make([]float64, len(x)), 0.
		for i, v := range x {
			p[i] = math.Exp(v)
			total += p[i]
		}
		for i := range p {
			p[i] /= total
		}
		return p
	}
	clip := func(p float64) float64 { return min(max(p, 1e-7), 1-1e-7) }
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	binary := func(y, p float64) float64 { return -y*math.Log(p) - (1-y)*math.Log(1-p) }
	hinge := func(y, p float64) float64 { return max(0, 1-(2*y-1)*p) }
	smooth := func(y []float64, by float64) []float64 {
		z := make([]float64, len(y))
		for i := range y {
			z[i] = y[i]*(1-by) + by/float64(len(y))
		}
		return z
	}
	entropy := sum(func(y, p float64) float64 { return -y * math.Log(clip(p)) })

	for name, c := range map[string]struct {
		loss        lossFunc
		predictions [][]float64
		options     ops.LossOptions
		want        func(y, p []float64) float64
	}{
		"mean squared error":  {ops.MeanSquaredError, logits, ops.LossOptions{}, mean(func(y, p float64) float64 { return (y - p) * (y - p) })},
		"mean absolute error": {ops.MeanAbsoluteError, logits, ops.LossOptions{}, mean(func(y, p float64) float64 { return math.Abs(y - p) })},
		"mean absolute percentage error": {ops.MeanAbsolutePercentageError, logits, ops.LossOptions{},
			mean(func(y, p float64) float64 { return 100 * math.Abs(y-p) / max(math.Abs(y), 1e-7) })},
		"mean squared logarithmic error": {ops.MeanSquaredLogarithmicError, probabilities, ops.LossOptions{}, mean(func(y, p float64) float64 {
			d := math.Log(1+max(y, 1e-7)) - math.Log(1+max(p, 1e-7))
			return d * d
		})},
		"huber": {ops.Huber, logits, ops.LossOptions{}, mean(func(y, p float64) float64 {
			if e := math.Abs(y - p); e > 1 {
				return e - .5
			}
			return (y - p) * (y - p) / 2
		})},
		"huber, delta": {ops.Huber, logits, ops.LossOptions{Delta: .5}, mean(func(y, p float64) float64 {
			if e := math.Abs(y - p); e > .5 {
				return .5*e - .125
			}
			return (y - p) * (y - p) / 2
		})},
		"log cosh":      {ops.LogCosh, logits, ops.LossOptions{}, mean(func(y, p float64) float64 { return math.Log(math.Cosh(p - y)) })},
		"hinge":         {ops.Hinge, logits, ops.LossOptions{}, mean(hinge)},
		"squared hinge": {ops.SquaredHinge, logits, ops.LossOptions{}, mean(func(y, p float64) float64 { return hinge(y, p) * hinge(y, p) })},
		"categorical hinge": {ops.CategoricalHinge, logits, ops.LossOptions{}, func(y, p []float64) float64 {
			pos, neg := 0., math.Inf(-1)
			for i := range y {
				pos, neg = pos+y[i]*p[i], max(neg, (1-y[i])*p[i])
			}
			return max(0, neg-pos+1)
		}},
		"kl divergence": {ops.KLDivergence, probabilities, ops.LossOptions{}, sum(func(y, p float64) float64 {
			y, p = min(max(y, 1e-7), 1), min(max(p, 1e-7), 1)
			return y * math.Log(y/p)
		})},
		"poisson": {ops.Poisson, probabilities, ops.LossOptions{}, mean(func(y, p float64) float64 { return p - y*math.Log(p+1e-7) })},
		"cosine similarity": {ops.CosineSimilarity, logits, ops.LossOptions{}, func(y, p []float64) float64 {
			dot, yy, pp := 0., 0., 0.
			for i := range y {
				dot, yy, pp = dot+y[i]*p[i], yy+y[i]*y[i], pp+p[i]*p[i]
			}
			return -dot / math.Sqrt(yy*pp)
		}},
		"categorical": {ops.CategoricalCrossEntropy, probabilities, ops.LossOptions{}, entropy},
		"categorical, not a distribution": {ops.CategoricalCrossEntropy, [][]float64{{1, 2, 1}, {3, 0, 1}}, ops.LossOptions{},
			func(y, p []float64) float64 { return entropy(y, []float64{p[0] / 4, p[1] / 4, p[2] / 4}) }},
		"categorical, a probability of 0": {ops.CategoricalCrossEntropy, [][]float64{{1, 0, 0}, {0, 1, 0}}, ops.LossOptions{},
			func(_, _ []float64) float64 { return -math.Log(1e-7) }},
		"categorical, logits": {ops.CategoricalCrossEntropy, logits, ops.LossOptions{FromLogits: true},
			func(y, p []float64) float64 { return entropy(y, softmax(p)) }},
		"categorical, smoothed": {ops.CategoricalCrossEntropy, logits, ops.LossOptions{FromLogits: true, LabelSmoothing: .3},
			func(y, p []float64) float64 { return entropy(smooth(y, .3), softmax(p)) }},
		"binary": {ops.BinaryCrossEntropy, probabilities, ops.LossOptions{}, mean(binary)},
		"binary, logits": {ops.BinaryCrossEntropy, logits, ops.LossOptions{FromLogits: true},
			mean(func(y, p float64) float64 { return binary(y, sigmoid(p)) })},
		"binary, large logits": {ops.BinaryCrossEntropy, [][]float64{{800, -800, 0}, {-800, 800, 0}}, ops.LossOptions{FromLogits: true},
			func(_, _ []float64) float64 { return (1600 + math.Ln2) / 3 }},
		"binary, smoothed": {ops.BinaryCrossEntropy, probabilities, ops.LossOptions{LabelSmoothing: .2},
			mean(func(y, p float64) float64 { return binary(y*.8+.1, p) })},
	} {
		for dt, tolerance := range map[tf.DataType]float64{tf.Double: 1e-9, tf.Float: 2e-6, tf.Half: 5e-3, tf.Bfloat16: 4e-2} {
			if dt != tf.Double && dt != tf.Float && (name == "categorical, a probability of 0" || name == "kl divergence" ||
				name == "mean absolute percentage error") {
				continue // 1e-7 is 0 or nearly so in these dtypes, as in Keras
			}
			t.Run(name+" "+bridge.DTypeName(dt), func(t *testing.T) {
				g := ops.NewGraph(ops.GraphOptions{})
				y := ops.Cast(g.Root(), g.Const(labels), tf.Int32)
				p := ops.Cast(g.Root(), g.Const(c.predictions), dt)
				each := c.options
				each.Reduction = ops.NoReduction
				both, one := c.loss(g.Root(), y, p, c.options), c.loss(g.Root(), y, p, each)
				s := session(t, g)
				want := []float64{c.want(labels[0], c.predictions[0]), c.want(labels[1], c.predictions[1])}
				got := floats(t, s, one)
				for i := range want {
					assert.InDelta(t, want[i], got[i], tolerance*max(1, math.Abs(want[i])))
				}
				assert.Equal(t, dt, both.DataType())
				mean := (want[0] + want[1]) / 2
				assert.InDelta(t, mean, floats(t, s, both)[0], tolerance*max(1, math.Abs(mean)))
			})
		}
	}
}

func TestSparseCrossEntropyEqualsCategorical(t *testing.T) {
	predictions := [][][]float32{{{.2, .7, .1}, {.5, .3, .2}}, {{.1, .1, .8}, {.3, .3, .4}}}
	oneHot := [][][]float32{{{0, 1, 0}, {1, 0, 0}}, {{0, 0, 1}, {0, 1, 0}}}
	for name, labels := range map[string]any{
		"int32":                 [][]int32{{1, 0}, {2, 1}},
		"int64":                 [][]int64{{1, 0}, {2, 1}},
		"uint8":                 [][]uint8{{1, 0}, {2, 1}},
		"with a last axis of 1": [][][]int32{{{1}, {0}}, {{2}, {1}}},
	} {
		for _, logits := range []bool{false, true} {
			for _, dynamic := range []bool{false, true} {
				g := ops.NewGraph(ops.GraphOptions{})
				p := g.Const(predictions)
				if dynamic {
					p = g.PlaceholderWithDefault("p", p, ops.Shape{-1, -1, -1})
				}
				o := ops.LossOptions{FromLogits: logits, Reduction: ops.NoReduction}
				sparse := ops.SparseCategoricalCrossEntropy(g.Root(), g.Const(labels), p, o)
				dense := ops.CategoricalCrossEntropy(g.Root(), g.Const(oneHot), p, o)
				mean := ops.SparseSoftmaxCrossEntropy(g.Root(), p, g.Const(labels))
				s := session(t, g)
				each := floats(t, s, sparse)
				require.Len(t, each, 4, name)
				assert.InDeltaSlice(t, floats(t, s, dense), each, 1e-6, name)
				if logits {
					assert.InDelta(t, (each[0]+each[1]+each[2]+each[3])/4, floats(t, s, mean)[0], 1e-6, name)
				}
			}
		}
	}
}

func TestLossReductionsAndWeights(t *testing.T) {
	// Absolute errors of 1, 2, 3, 4 in a batch of two rows of two samples.
	labels := [][][]float32{{{0}, {0}}, {{0}, {0}}}
	predictions := [][][]float32{{{1}, {2}}, {{3}, {4}}}
	for name, c := range map[string]struct {
		weights any
		want    map[ops.Reduction][]float64
	}{
		"none": {nil, map[ops.Reduction][]float64{
			ops.SumOverBatchSize: {2.5}, ops.Sum: {10}, ops.MeanWithSampleWeight: {2.5}, ops.NoReduction: {1, 2, 3, 4}}},
		"a scalar": {float32(2), map[ops.Reduction][]float64{
			ops.SumOverBatchSize: {5}, ops.Sum: {20}, ops.MeanWithSampleWeight: {10}, ops.NoReduction: {2, 4, 6, 8}}},
		"each": {[][]float32{{1, 0}, {.5, 2}}, map[ops.Reduction][]float64{
			ops.SumOverBatchSize: {10.5 / 4}, ops.Sum: {10.5}, ops.MeanWithSampleWeight: {3}, ops.NoReduction: {1, 0, 1.5, 8}}},
		"each, integers": {[][]int32{{1, 0}, {3, 2}}, map[ops.Reduction][]float64{
			ops.Sum: {18}, ops.MeanWithSampleWeight: {3}}},
		"with a last axis of 1": {[][][]float32{{{1}, {0}}, {{.5}, {2}}}, map[ops.Reduction][]float64{
			ops.Sum: {10.5}, ops.NoReduction: {1, 0, 1.5, 8}}},
		"by row": {[][]float32{{2}, {0}}, map[ops.Reduction][]float64{
			ops.SumOverBatchSize: {1.5}, ops.NoReduction: {2, 4, 0, 0}}},
		"all zero": {float32(0), map[ops.Reduction][]float64{
			ops.SumOverBatchSize: {0}, ops.MeanWithSampleWeight: {0}}},
	} {
		for reduction, want := range c.want {
			for _, dynamic := range []bool{false, true} {
				g := ops.NewGraph(ops.GraphOptions{})
				p := g.Const(predictions)
				if dynamic {
					p = g.PlaceholderWithDefault("p", p, ops.Shape{-1, -1, 1})
				}
				o := ops.LossOptions{Reduction: reduction}
				if c.weights != nil {
					o.Weights = g.Const(c.weights)
				}
				loss := ops.MeanAbsoluteError(g.Root(), g.Const(labels), p, o)
				assert.InDeltaSlice(t, want, floats(t, session(t, g), loss), 1e-6, "%s, reduction %d", name, reduction)
			}
		}
	}
	t.Run("weights of rows over vectors", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		o := ops.LossOptions{Weights: g.Const([]float32{1, 3}), Reduction: ops.NoReduction}
		a := ops.MeanAbsoluteError(g.Root(), g.Const([][]float32{{0}, {0}}), g.Const([][]float32{{1}, {2}}), o)
		o.Weights = g.Const([][]float32{{1}, {3}})
		b := ops.MeanAbsoluteError(g.Root(), g.Const([][]float32{{0}, {0}}), g.Const([][]float32{{1}, {2}}), o)
		s := session(t, g)
		assert.Equal(t, []float64{1, 6}, floats(t, s, a))
		assert.Equal(t, []float64{1, 6}, floats(t, s, b))
	})
	t.Run("an empty batch is 0", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		p := g.Placeholder("p", tf.Float, ops.Shape{-1, 2})
		loss := ops.MeanSquaredError(g.Root(), p, p)
		assert.Equal(t, []float64{0}, floats(t, session(t, g), loss, fed[float32](t, p, ops.Shape{0, 2})))
	})
	t.Run("a label without its last axis", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		loss := ops.MeanSquaredError(g.Root(), g.Const([]float32{1, 3}), g.Const([][]float32{{1}, {5}}))
		assert.Equal(t, []float64{2}, floats(t, session(t, g), loss))
	})
	t.Run("ignored classes count nowhere", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		logits := g.Const([][]float32{{1, 2}, {float32(math.NaN()), 0}, {3, -1}})
		entropy := func(a, b float64) float64 { return math.Log(math.Exp(a)+math.Exp(b)) - a }
		o := ops.LossOptions{FromLogits: true, IgnoreClass: new(-1)}
		mean := ops.SparseCategoricalCrossEntropy(g.Root(), g.Const([]int32{0, -1, 1}), logits, o)
		o.Weights, o.Reduction = g.Const([]float32{1, 5, 3}), ops.MeanWithSampleWeight
		weighted := ops.SparseCategoricalCrossEntropy(g.Root(), g.Const([]int32{0, -1, 1}), logits, o)
		s := session(t, g)
		a, b := entropy(1, 2), entropy(-1, 3)
		assert.InDelta(t, (a+b)/2, floats(t, s, mean)[0], 1e-6)
		assert.InDelta(t, (a+3*b)/4, floats(t, s, weighted)[0], 1e-6)
	})
}

func TestLossAxes(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	logits := [][][]float32{{{1, 2}, {0, -1}, {.5, 3}}} // [1, classes, 2]
	label := [][][]float32{{{1, 0}, {0, 0}, {0, 1}}}
	perm := g.Const([]int32{0, 2, 1})
	turn := func(v any) tf.Output {
		return g.Add(bridge.OpSpec{Type: "Transpose", Inputs: []tf.Input{g.Const(v), perm}}).Output(0)
	}
	last := ops.LossOptions{FromLogits: true, Reduction: ops.NoReduction}
	middle := last
	middle.Axis = 1
	want := ops.CategoricalCrossEntropy(g.Root(), turn(label), turn(logits), last)
	got := ops.CategoricalCrossEntropy(g.Root(), g.Const(label), g.Const(logits), middle)
	middle.Axis = -2
	negative := ops.CategoricalCrossEntropy(g.Root(), g.Const(label), g.Const(logits), middle)
	middle.FromLogits, last.FromLogits = false, false
	cosineWant := ops.CosineSimilarity(g.Root(), turn(label), turn(logits), last)
	cosine := ops.CosineSimilarity(g.Root(), g.Const(label), g.Const(logits), middle)
	s := session(t, g)
	assert.InDeltaSlice(t, floats(t, s, want), floats(t, s, got), 1e-6)
	assert.InDeltaSlice(t, floats(t, s, want), floats(t, s, negative), 1e-6)
	assert.InDeltaSlice(t, floats(t, s, cosineWant), floats(t, s, cosine), 1e-6)
}

func TestLossesAreCollectedWhenAsked(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const([][]float32{{1}})
	ops.MeanSquaredError(g.Root(), x, x)
	loss := ops.MeanSquaredError(g.Scope("net"), x, x, ops.LossOptions{Collect: true, Name: "fit"})
	found, err := ops.CollectionOf[tf.Output](g, ops.Losses, "")
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.True(t, bridge.SameOutput(loss, found[0]))
	assert.Contains(t, loss.Op.Name(), "net/fit/")
}

func TestLossGradients(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	logits := g.Const([][]float32{{1, 2, .5}})
	loss := ops.SparseSoftmaxCrossEntropy(g.Root(), logits, g.Const([]int32{1}))
	d := gradient(t, g, loss, logits)
	e := []float64{math.Exp(1), math.Exp(2), math.Exp(.5)}
	n := e[0] + e[1] + e[2]
	assert.InDeltaSlice(t, []float64{e[0] / n, e[1]/n - 1, e[2] / n}, floats(t, session(t, g), d), 1e-6)

	for name, loss := range map[string]lossFunc{
		"mse": ops.MeanSquaredError, "mae": ops.MeanAbsoluteError, "mape": ops.MeanAbsolutePercentageError,
		"msle": ops.MeanSquaredLogarithmicError, "huber": ops.Huber, "log cosh": ops.LogCosh, "hinge": ops.Hinge,
		"squared hinge": ops.SquaredHinge, "categorical hinge": ops.CategoricalHinge, "kl": ops.KLDivergence,
		"poisson": ops.Poisson, "cosine": ops.CosineSimilarity, "categorical": ops.CategoricalCrossEntropy,
		"binary": ops.BinaryCrossEntropy,
	} {
		t.Run(name, func(t *testing.T) { // against central differences
			g := ops.NewGraph(ops.GraphOptions{})
			p := g.Placeholder("p", tf.Double, ops.Shape{-1, 3})
			y := g.Const([][]float64{{.9, .05, .05}, {.2, .1, .7}})
			value := loss(g.Root(), y, p, ops.LossOptions{Weights: g.Const([]float64{1, .5})})
			d := gradient(t, g, value, p)
			s := session(t, g)
			at := []float64{.3, .45, .25, .15, .6, .2}
			in := func(x []float64) feed { return fed(t, p, ops.Shape{2, 3}, x...) }
			got := floats(t, s, d, in(at))
			for i := range at {
				const h = 1e-6
				up, down := append([]float64{}, at...), append([]float64{}, at...)
				up[i], down[i] = at[i]+h, at[i]-h
				slope := (floats(t, s, value, in(up))[0] - floats(t, s, value, in(down))[0]) / (2 * h)
				assert.InDelta(t, slope, got[i], 1e-5*max(1, math.Abs(slope)))
			}
		})
	}
}

func TestWhatIsNoLossIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		build func(g *ops.Graph, x tf.Output)
		want  string
	}{
		"no labels":           {func(g *ops.Graph, x tf.Output) { ops.MeanSquaredError(g.Root(), tf.Output{}, x) }, "labels are the zero"},
		"no predictions":      {func(g *ops.Graph, x tf.Output) { ops.MeanSquaredError(g.Root(), x, tf.Output{}) }, "predictions are the zero"},
		"integer predictions": {func(g *ops.Graph, x tf.Output) { ops.MeanSquaredError(g.Root(), x, g.Const([][]int32{{1, 2}})) }, "floating"},
		"other shapes":        {func(g *ops.Graph, x tf.Output) { ops.MeanSquaredError(g.Root(), g.Const([][]float32{{1, 2, 3}}), x) }, "[1,3]"},
		"scalars": {func(g *ops.Graph, x tf.Output) {
			ops.MeanSquaredError(g.Root(), g.Const(float32(1)), g.Const(float32(1)))
		}, "scalar"},
		"two options":    {func(g *ops.Graph, x tf.Output) { ops.Huber(g.Root(), x, x, ops.LossOptions{}, ops.LossOptions{}) }, "at most one"},
		"smoothing of 2": {func(g *ops.Graph, x tf.Output) { ops.Huber(g.Root(), x, x, ops.LossOptions{LabelSmoothing: 2}) }, "smoothing"},
		"no reduction":   {func(g *ops.Graph, x tf.Output) { ops.Huber(g.Root(), x, x, ops.LossOptions{Reduction: 9}) }, "reduction 9"},
		"negative delta": {func(g *ops.Graph, x tf.Output) { ops.Huber(g.Root(), x, x, ops.LossOptions{Delta: -1}) }, "delta"},
		"axis 5":         {func(g *ops.Graph, x tf.Output) { ops.BinaryCrossEntropy(g.Root(), x, x, ops.LossOptions{Axis: 5}) }, "axis 5"},
		"string labels":  {func(g *ops.Graph, x tf.Output) { ops.SparseSoftmaxCrossEntropy(g.Root(), x, g.Const([]string{"a"})) }, "class numbers"},
		"labels per class": {func(g *ops.Graph, x tf.Output) {
			ops.SparseSoftmaxCrossEntropy(g.Root(), x, g.Const([][]int32{{1, 2}}))
		}, "wanted labels of shape [1]"},
		"a scalar of classes": {func(g *ops.Graph, x tf.Output) {
			ops.SparseSoftmaxCrossEntropy(g.Root(), g.Const(float32(1)), g.Const(int32(1)))
		}, "scalar"},
		"a bad name": {func(g *ops.Graph, x tf.Output) { ops.Huber(g.Root(), x, x, ops.LossOptions{Name: "a b"}) }, "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			g := ops.NewGraph(ops.GraphOptions{})
			c.build(g, g.Const([][]float32{{1, 2}}))
			require.ErrorContains(t, g.Err(), c.want)
			require.ErrorContains(t, g.Err(), "ops/losses_test.go:")
		})
	}
	assert.Nil(t, ops.MeanSquaredError(nil, tf.Output{}, tf.Output{}).Op)
}
