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
	first bool  // second order is not checked: Python has none, or one by a part of the inputs only
	none  []int // inputs that have no gradient
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
		t.Run(strings.ReplaceAll(nc.op, " ", "_"), nc.check)
	}
}

// check builds a case once for each knowledge of shapes, in one graph that is
// run as one step.
func (nc numericCase) check(t *testing.T) {
	s := newScope()
	h := fnv.New64a()
	h.Write([]byte(nc.op))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	tensors, flat := make([]*bridge.Tensor, len(nc.in)), make([][]float64, len(nc.in))
	for i, in := range nc.in {
		tensors[i] = tensor(t, in.shape, in.draw(r)...)
		var err error
		flat[i], err = bridge.Flat[float64](tensors[i])
		require.NoError(t, err)
	}

	variants := make([]variant, len(knowledges))
	f := &fetcher{}
	var placeholders []tf.Output
	var feeds []*bridge.Tensor
	for v, k := range knowledges {
		variants[v] = nc.build(t, s, k, f)
		placeholders, feeds = append(placeholders, variants[v].xs...), append(feeds, tensors...)
	}
	require.True(t, hasType(s.g, strings.Fields(nc.op)[0]), "the case does not build the operation it is named after")
	require.NoError(t, s.err)
	step := newRunner(t, s, placeholders, f.fetches)
	got := step.run(t, feeds...)

	// With less known of the shapes the gradients are what they were.
	known := variants[0]
	for v, k := range knowledges[1:] {
		for order, grads := range variants[v+1].grads {
			for i, at := range grads {
				want := valueAt(got, known.grads[order][i], len(flat[i]))
				require.InDeltaSlice(t, want, valueAt(got, at, len(flat[i])), 1e-9,
					"gradient %d of input %d, of the shapes %s known", order+1, i, k.name)
			}
		}
	}

	// The differences of ys tell of the first gradient, its of the second.
	for i := range flat {
		for e := range flat[i] {
			was := flat[i][e]
			flat[i][e] = was + differenceStep
			up := step.run(t, feeds...)
			flat[i][e] = was - differenceStep
			down := step.run(t, feeds...)
			flat[i][e] = was
			differentiated := known.ys
			for order, grads := range known.grads {
				if slices.Contains(nc.opt.none, i) {
					break
				}
				want := 0.0
				for _, at := range differentiated {
					for j, w := range weights(len(got[at])) {
						want += w * (up[at][j] - down[at][j]) / (2 * differenceStep)
					}
				}
				value := valueAt(got, grads[i], len(flat[i]))[e]
				if math.IsNaN(value) || math.Abs(value-want) > 1e-5*(1+math.Abs(want)) {
					t.Errorf("gradient %d of input %d, element %d: got %g, differences say %g", order+1, i, e, value, want)
				}
				differentiated = nil
				for _, at := range grads {
					if at >= 0 {
						differentiated = append(differentiated, at)
					}
				}
			}
		}
	}
}

const differenceStep = 1e-5

// variant is a case as built with one knowledge of shapes. Tensors are given by
// their places among what is fetched.
type variant struct {
	xs    []tf.Output
	ys    []int
	grads [][]int // by order and input; -1 for none
}

type fetcher struct{ fetches []tf.Output }

func (f *fetcher) add(t tf.Output) int {
	f.fetches = append(f.fetches, t)
	return len(f.fetches) - 1
}

// valueAt is what was fetched at a place; none is as good as zeros.
func valueAt(got [][]float64, at, n int) []float64 {
	if at < 0 {
		return make([]float64, n)
	}
	return got[at]
}

func (nc numericCase) build(t *testing.T, s *scope, k knowledge, f *fetcher) variant {
	t.Helper()
	var v variant
	for _, in := range nc.in {
		v.xs = append(v.xs, s.placeholder(tf.Double, k.of(in.shape)))
	}
	ys := nc.ys(s, v.xs)
	require.NoError(t, s.err)
	for _, y := range ys {
		v.ys = append(v.ys, f.add(y))
	}
	for order := range 2 {
		if order == 1 && nc.opt.first || len(ys) == 0 {
			break
		}
		gradYs := make([]gradients.Gradient, len(ys))
		for i, y := range ys {
			gradYs[i].Dense = weightsLike(s, y)
		}
		require.NoError(t, s.err)
		grads, err := gradients.Compute(s, ys, gradYs, v.xs, gradients.Options{})
		require.NoError(t, err, "of the shapes %s known", k.name)
		ys = nil
		places := make([]int, len(grads))
		for i, g := range grads {
			places[i] = -1
			if g.IsNone() {
				if order == 0 {
					require.Contains(t, nc.opt.none, i, "input %d must have a gradient", i)
				}
				continue
			}
			require.NotContains(t, nc.opt.none, i, "input %d must have no gradient", i)
			d := gradients.Densify(s, g)
			require.NoError(t, s.err)
			require.True(t, bridge.ShapeOf(d).CompatibleWith(nc.in[i].shape),
				"input %d of shape %s has a gradient of shape %s", i, nc.in[i].shape, bridge.ShapeOf(d))
			places[i] = f.add(d)
			ys = append(ys, d)
		}
		v.grads = append(v.grads, places)
	}
	return v
}

// weights are the gradients that a tensor of n elements is given: 1 + cos(i)/2.
func weights(n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = 1 + math.Cos(float64(i))/2
	}
	return w
}

// weightsLike is weights as a tensor of y's shape.
func weightsLike(s *scope, y tf.Output) tf.Output {
	n := raw.Size(s, y)
	index := raw.Cast(s, raw.Range(s, scalar(s, int32(0)), n, scalar(s, int32(1))), tf.Double)
	w := raw.Add(s, raw.Mul(s, raw.Cos(s, index), scalar(s, 0.5)), scalar(s, 1.0))
	return raw.Reshape(s, w, raw.Shape(s, y))
}

func hasType(g *tf.Graph, opType string) bool {
	for op := range bridge.Operations(g) {
		if op.Type() == opType {
			return true
		}
	}
	return false
}
