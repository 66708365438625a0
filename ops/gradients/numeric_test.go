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
			known := nc.measure(t)
			for _, k := range knowledges[1:] {
				t.Run(k.name, func(t *testing.T) { nc.compare(t, k, known) })
			}
		})
	}
}

// numericRun is one case's graph, fed the case's inputs.
type numericRun struct {
	*scope
	xs    []tf.Output
	feeds []*bridge.Tensor
	flat  [][]float64 // the feeds' elements
	ys    []tf.Output
}

func (nc numericCase) rand() *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(nc.op))
	return rand.New(rand.NewPCG(h.Sum64(), 1))
}

func (nc numericCase) build(t *testing.T, k knowledge) *numericRun {
	t.Helper()
	n := &numericRun{scope: newScope()}
	r := nc.rand()
	for _, in := range nc.in {
		n.xs = append(n.xs, n.placeholder(tf.Double, k.of(in.shape)))
		feed := tensor(t, in.shape, in.draw(r)...)
		flat, err := bridge.Flat[float64](feed)
		require.NoError(t, err)
		n.feeds, n.flat = append(n.feeds, feed), append(n.flat, flat)
	}
	n.ys = nc.ys(n.scope, n.xs)
	require.NoError(t, n.err)
	require.True(t, hasType(n.g, strings.Fields(nc.op)[0]), "the case does not build the operation it is named after")
	return n
}

// differentiate returns the gradient of Σ weights·ys by each x, the zero
// Output where there is none.
func (n *numericRun) differentiate(t *testing.T, nc numericCase, ys []tf.Output, weights [][]float64) []tf.Output {
	t.Helper()
	gradYs := make([]gradients.Gradient, len(ys))
	for i := range ys {
		w := constant(n.scope, bridge.Shape{int64(len(weights[i]))}, weights[i]...)
		gradYs[i].Dense = raw.Reshape(n, w, raw.Shape(n, ys[i]))
	}
	require.NoError(t, n.err)
	grads, err := gradients.Compute(n, ys, gradYs, n.xs, gradients.Options{})
	require.NoError(t, err)
	out := make([]tf.Output, len(grads))
	for i, g := range grads {
		if g.IsNone() {
			continue
		}
		require.NotContains(t, nc.opt.none, i, "input %d must have no gradient", i)
		out[i] = gradients.Densify(n, g)
		require.NoError(t, n.err)
		require.True(t, bridge.ShapeOf(out[i]).CompatibleWith(nc.in[i].shape),
			"input %d of shape %s has a gradient of shape %s", i, nc.in[i].shape, bridge.ShapeOf(out[i]))
	}
	return out
}

// present drops the zero Outputs and says where the others were.
func present(all []tf.Output) (some []tf.Output, which []int) {
	for i, t := range all {
		if t.Op != nil {
			some, which = append(some, t), append(which, i)
		}
	}
	return some, which
}

// measured is what a graph of known shapes said: by order, the weights that the
// differentiated tensors were summed with and the gradient by each input.
type measured struct{ weights, grads [2][][]float64 }

// measure compares first and second gradients with central differences.
func (nc numericCase) measure(t *testing.T) (m measured) {
	n := nc.build(t, knowledges[0])
	r := nc.rand()
	ys := n.ys
	function := newRunner(t, n.scope, n.xs, ys)
	for order, name := range []string{"first", "second"} {
		if order == 1 && nc.opt.first {
			break
		}
		weights := function.run(t, n.feeds...)
		for i := range weights {
			weights[i] = between(0.5, 1.5, int64(len(weights[i]))).draw(r)
		}
		m.weights[order] = weights
		grads := n.differentiate(t, nc, ys, weights)
		m.grads[order] = make([][]float64, len(grads))
		for i := range grads {
			if grads[i].Op == nil && !slices.Contains(nc.opt.none, i) {
				require.NotZero(t, order, "input %d must have a gradient", i)
				// No second gradient is right only where it is zero.
				for e := range n.flat[i] {
					require.InDelta(t, 0, slope(t, function, weights, n.feeds, &n.flat[i][e]), 1e-6, "input %d has no second gradient", i)
				}
			}
		}
		found, which := present(grads)
		if len(found) == 0 {
			break
		}
		next := newRunner(t, n.scope, n.xs, found)
		got := next.run(t, n.feeds...)
		for j, i := range which {
			m.grads[order][i] = got[j]
			require.Len(t, got[j], len(n.flat[i]), "%s gradient of input %d", name, i)
			for e := range n.flat[i] {
				want := slope(t, function, weights, n.feeds, &n.flat[i][e])
				if math.IsNaN(got[j][e]) || math.Abs(got[j][e]-want) > 1e-5*(1+math.Abs(want)) {
					t.Errorf("%s gradient of input %d, element %d: got %g, differences say %g", name, i, e, got[j][e], want)
				}
			}
		}
		function, ys = next, found
	}
	return m
}

// compare builds the case again with less known of its shapes; the gradients
// must stay what they were.
func (nc numericCase) compare(t *testing.T, k knowledge, known measured) {
	n := nc.build(t, k)
	ys := n.ys
	var fetches []tf.Output
	type place struct{ order, input int }
	var places []place
	for order, weights := range known.weights {
		if weights == nil {
			break
		}
		require.Len(t, ys, len(weights))
		grads := n.differentiate(t, nc, ys, weights)
		found, which := present(grads)
		for j, i := range which {
			fetches, places = append(fetches, found[j]), append(places, place{order, i})
		}
		ys = found
	}
	got := newRunner(t, n.scope, n.xs, fetches).run(t, n.feeds...)
	for j, p := range places {
		want := known.grads[p.order][p.input]
		if want == nil { // none is as good as zero
			want = make([]float64, len(got[j]))
		}
		require.InDeltaSlice(t, want, got[j], 1e-9, "order %d, input %d", p.order+1, p.input)
	}
}

// slope is the central difference of Σ weights·function by one element.
func slope(t *testing.T, function *runner, weights [][]float64, feeds []*bridge.Tensor, at *float64) float64 {
	t.Helper()
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

func hasType(g *tf.Graph, opType string) bool {
	for op := range bridge.Operations(g) {
		if op.Type() == opType {
			return true
		}
	}
	return false
}
