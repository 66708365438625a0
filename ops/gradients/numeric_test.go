package gradients_test

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// numericCase says how an operation is built from float64 inputs. Its gradient
// must equal central differences of what it computes, its second gradient those
// of its first, with shapes known, partly known and unknown.
type numericCase struct {
	op  string // the operation type under test; what follows a space tells cases of a type apart
	in  []input
	ys  func(s *scope, x []tf.Output) []tf.Output
	opt caseOptions
}

type caseOptions struct {
	first    bool  // second order is not checked: piecewise linear, or without a second gradient in Python
	static   bool  // only with shapes known
	constant bool  // every first derivative is a constant, so the second gradient may be none
	none     []int // inputs that have no gradient
}

type input struct {
	shape    bridge.Shape
	low, top float64
	values   []float64
}

// between is an input drawn evenly from low to top.
func between(low, top float64, dims ...int64) input {
	return input{shape: append(bridge.Shape{}, dims...), low: low, top: top}
}

func normal(dims ...int64) input   { return between(-2, 2, dims...) }
func positive(dims ...int64) input { return between(0.4, 2.5, dims...) }
func inside(dims ...int64) input   { return between(0.1, 0.9, dims...) }
func exactly(values ...float64) input {
	return input{shape: bridge.Shape{int64(len(values))}, values: values}
}

func (in input) reshaped(dims ...int64) input {
	in.shape = dims
	return in
}

func (in input) draw(r *rand.Rand) []float64 {
	if in.values != nil {
		return slices.Clone(in.values)
	}
	n, _ := in.shape.NumElements()
	v := make([]float64, n)
	for i := range v {
		v[i] = in.low + (in.top-in.low)*r.Float64()
	}
	return v
}

var numericCases []numericCase

// cases adds rows to the table.
func cases(rows ...numericCase) bool {
	numericCases = append(numericCases, rows...)
	return true
}

// knowledge is what a graph is told of its inputs' shapes.
type knowledge struct {
	name string
	of   func(bridge.Shape) bridge.Shape
}

var knowledges = []knowledge{
	{"known", func(s bridge.Shape) bridge.Shape { return s }},
	{"rank", func(s bridge.Shape) bridge.Shape {
		out := slices.Clone(s)
		for i := range out {
			out[i] = -1
		}
		return out
	}},
	{"batch", func(s bridge.Shape) bridge.Shape {
		out := slices.Clone(s)
		if len(out) > 0 {
			out[0] = -1
		}
		return out
	}},
	{"nothing", func(bridge.Shape) bridge.Shape { return nil }},
}

func TestGradientEqualsCentralDifferences(t *testing.T) {
	for _, nc := range numericCases {
		t.Run(strings.ReplaceAll(nc.op, " ", "_"), func(t *testing.T) {
			for _, k := range knowledges {
				if k.name != "known" && nc.opt.static {
					continue
				}
				t.Run(k.name, func(t *testing.T) { nc.check(t, k) })
			}
		})
	}
}

func (nc numericCase) check(t *testing.T, k knowledge) {
	h := fnv.New64a()
	h.Write([]byte(nc.op))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))

	s := newScope()
	xs := make([]tf.Output, len(nc.in))
	feeds := make([]*bridge.Tensor, len(nc.in))
	flat := make([][]float64, len(nc.in))
	for i, in := range nc.in {
		xs[i] = s.placeholder(tf.Double, k.of(in.shape))
		feeds[i] = tensor(t, in.shape, in.draw(r)...)
		var err error
		flat[i], err = bridge.Flat[float64](feeds[i])
		require.NoError(t, err)
	}
	ys := nc.ys(s, xs)
	require.NoError(t, s.err)
	require.True(t, hasType(s.g, strings.Fields(nc.op)[0]), "the case does not build the operation it is named after")

	// The ys' gradients are random numbers of the ys' shapes.
	forward := newRunner(t, s, xs, ys)
	y0 := forward.run(t, feeds...)
	gradYs := make([]gradients.Gradient, len(ys))
	weights := make([][]float64, len(ys))
	for i := range ys {
		weights[i] = between(0.5, 1.5, int64(len(y0[i]))).draw(r)
		w := constant(s, bridge.Shape{int64(len(weights[i]))}, weights[i]...)
		gradYs[i].Dense = raw.Reshape(s, w, raw.Shape(s, ys[i]))
	}
	require.NoError(t, s.err)
	grads, err := gradients.Compute(s, ys, gradYs, xs, gradients.Options{})
	require.NoError(t, err)
	first := make([]tf.Output, len(xs))
	var has []int
	for i, g := range grads {
		if slices.Contains(nc.opt.none, i) {
			require.True(t, g.IsNone(), "input %d must have no gradient", i)
			continue
		}
		require.False(t, g.IsNone(), "input %d must have a gradient", i)
		first[i] = gradients.Densify(s, g)
		require.NoError(t, s.err)
		require.True(t, bridge.ShapeOf(first[i]).CompatibleWith(nc.in[i].shape),
			"input %d of shape %s has a gradient of shape %s", i, nc.in[i].shape, bridge.ShapeOf(first[i]))
		has = append(has, i)
	}
	compare(t, "first", forward, weights, newRunner(t, s, xs, pick(first, has)), has, feeds, flat)
	if nc.opt.first {
		return
	}

	// Second order: the gradient of Σ gradient·v.
	firstRun := newRunner(t, s, xs, pick(first, has))
	g0 := firstRun.run(t, feeds...)
	seconds := make([]gradients.Gradient, len(has))
	v := make([][]float64, len(has))
	for j, i := range has {
		v[j] = between(0.5, 1.5, int64(len(g0[j]))).draw(r)
		w := constant(s, bridge.Shape{int64(len(v[j]))}, v[j]...)
		seconds[j].Dense = raw.Reshape(s, w, raw.Shape(s, first[i]))
	}
	grads, err = gradients.Compute(s, pick(first, has), seconds, xs, gradients.Options{})
	require.NoError(t, err)
	second := make([]tf.Output, len(xs))
	var has2 []int
	for i, g := range grads {
		if !g.IsNone() {
			second[i], has2 = gradients.Densify(s, g), append(has2, i)
		} else if slices.Contains(has, i) && !nc.opt.constant {
			// No second gradient is right only where differences say zero.
			requireFlat(t, firstRun, v, i, feeds, flat)
		}
	}
	if len(has2) > 0 {
		compare(t, "second", firstRun, v, newRunner(t, s, xs, pick(second, has2)), has2, feeds, flat)
	}
}

func pick(all []tf.Output, which []int) []tf.Output {
	out := make([]tf.Output, len(which))
	for j, i := range which {
		out[j] = all[i]
	}
	return out
}

// slope is the central difference of Σ weights·function by one element.
func slope(t *testing.T, function *runner, weights [][]float64, feeds []*bridge.Tensor, at *float64) float64 {
	const step = 1e-5
	was := *at
	value := func(x float64) (total float64) {
		*at = x
		for i, y := range function.run(t, feeds...) {
			for j, e := range y {
				total += e * weights[i][j]
			}
		}
		return total
	}
	up, down := value(was+step), value(was-step)
	*at = was
	return (up - down) / (2 * step)
}

func compare(t *testing.T, order string, function *runner, weights [][]float64, grads *runner, which []int, feeds []*bridge.Tensor, flat [][]float64) {
	t.Helper()
	got := grads.run(t, feeds...)
	for j, i := range which {
		require.Len(t, got[j], len(flat[i]), "%s gradient of input %d", order, i)
		for e := range flat[i] {
			want := slope(t, function, weights, feeds, &flat[i][e])
			if diff := math.Abs(got[j][e] - want); !(diff <= 1e-6*(1+math.Abs(want))*10) {
				t.Errorf("%s gradient of input %d, element %d: got %g, differences say %g", order, i, e, got[j][e], want)
			}
		}
	}
}

func requireFlat(t *testing.T, function *runner, weights [][]float64, i int, feeds []*bridge.Tensor, flat [][]float64) {
	t.Helper()
	for e := range flat[i] {
		if want := slope(t, function, weights, feeds, &flat[i][e]); math.Abs(want) > 1e-6 {
			t.Errorf("input %d has no second gradient, differences say %g at element %d", i, want, e)
		}
	}
}

func hasType(g *tf.Graph, opType string) bool {
	for op := range bridge.Operations(g) {
		if op.Type() == opType {
			return true
		}
	}
	return false
}
