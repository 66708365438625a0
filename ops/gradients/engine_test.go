package gradients_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// gradientsOf is Compute with its defaults, as dense tensors.
func gradientsOf(t *testing.T, s *scope, ys outs, xs ...tf.Output) []gradients.Gradient {
	t.Helper()
	require.NoError(t, s.err)
	grads, err := gradients.Compute(s, ys, nil, xs, gradients.Options{})
	require.NoError(t, err)
	return grads
}

// dense fetches gradients as values.
func dense(t *testing.T, s *scope, grads ...gradients.Gradient) [][]float64 {
	t.Helper()
	var fetch []tf.Output
	for _, g := range grads {
		require.False(t, g.IsNone(), "there is no gradient")
		fetch = append(fetch, gradients.Densify(s, g))
	}
	return s.values(t, fetch...)
}

func vector(s *scope, v ...float64) tf.Output {
	return constant(s, bridge.Shape{int64(len(v))}, v...)
}

func TestWhatComputeDifferentiates(t *testing.T) {
	for name, test := range map[string]struct {
		build func(s *scope) (ys, xs outs)
		opts  func(s *scope, ys, xs outs) gradients.Options
		want  [][]float64 // nil: no gradient
	}{
		"the sum of all ys": {
			build: func(s *scope) (outs, outs) {
				x := vector(s, 1, 2)
				return outs{raw.Square(s, x), raw.Neg(s, x)}, outs{x}
			},
			want: [][]float64{{1, 3}},
		},
		"a y that is an x": {
			build: func(s *scope) (outs, outs) { x := vector(s, 1, 2); return outs{x}, outs{x} },
			want:  [][]float64{{1, 1}},
		},
		"a y given twice": {
			build: func(s *scope) (outs, outs) {
				x := vector(s, 1, 2)
				y := raw.Square(s, x)
				return outs{y, y}, outs{x}
			},
			want: [][]float64{{4, 8}},
		},
		"an x given twice": {
			build: func(s *scope) (outs, outs) {
				x := vector(s, 3)
				return outs{raw.Square(s, x)}, outs{x, x}
			},
			want: [][]float64{{6}, {6}},
		},
		"an x between y and another x": {
			build: func(s *scope) (outs, outs) {
				a := vector(s, 3)
				b := raw.Square(s, a)
				return outs{raw.Mul(s, a, b)}, outs{a, b}
			},
			want: [][]float64{{27}, {3}},
		},
		"an x that is one output of several": {
			build: func(s *scope) (outs, outs) {
				parts := raw.Split(s, scalar(s, int32(0)), vector(s, 3, 4), 2)
				return outs{raw.Mul(s, parts[0], parts[1])}, outs{parts[1]}
			},
			want: [][]float64{{3}},
		},
		"an x the ys do not depend on": {
			build: func(s *scope) (outs, outs) {
				a, b := vector(s, 3), vector(s, 4)
				return outs{raw.Square(s, a)}, outs{b, a}
			},
			want: [][]float64{nil, {6}},
		},
		"an x the ys do not depend on, as zeros": {
			build: func(s *scope) (outs, outs) {
				return outs{raw.Square(s, vector(s, 3))}, outs{vector(s, 4, 5)}
			},
			opts: func(*scope, outs, outs) gradients.Options { return gradients.Options{Zeros: true} },
			want: [][]float64{{0, 0}},
		},
		"nothing through integers": {
			build: func(s *scope) (outs, outs) {
				x := vector(s, 3)
				return outs{raw.Cast(s, raw.Cast(s, x, tf.Int32), tf.Double)}, outs{x}
			},
			want: [][]float64{nil},
		},
		"nothing for an integer x": {
			build: func(s *scope) (outs, outs) {
				x := ints(s, 3)
				return outs{raw.Cast(s, x, tf.Double)}, outs{x}
			},
			want: [][]float64{nil},
		},
		"nothing for an integer y": {
			build: func(s *scope) (outs, outs) {
				x := vector(s, 3)
				return outs{raw.Cast(s, x, tf.Int32)}, outs{x}
			},
			want: [][]float64{nil},
		},
		"nothing through StopGradient, the rest as ever": {
			build: func(s *scope) (outs, outs) {
				x := vector(s, 3)
				return outs{raw.Mul(s, x, raw.StopGradient(s, x))}, outs{x}
			},
			want: [][]float64{{3}},
		},
		"nothing through Floor": {
			build: func(s *scope) (outs, outs) { x := vector(s, 3); return outs{raw.Floor(s, x)}, outs{x} },
			want:  [][]float64{nil},
		},
		"an operation without a gradient behind StopGradient": {
			build: func(s *scope) (outs, outs) {
				x := vector(s, 3)
				unique, _ := raw.Unique(s, x)
				return outs{raw.Mul(s, x, raw.StopGradient(s, unique))}, outs{x}
			},
			want: [][]float64{{3}},
		},
		"an operation without a gradient behind an input that has none": {
			build: func(s *scope) (outs, outs) {
				x := vector(s, 0.5)
				unique, _ := raw.Unique(s, raw.Add(s, x, x))
				return outs{raw.Betainc(s, unique, unique, x)}, outs{x}
			},
			want: [][]float64{{1}}, // I_x(1, 1) = x
		},
		"stop gradients are constants": {
			build: func(s *scope) (outs, outs) {
				a := vector(s, 3)
				b := raw.Mul(s, a, vector(s, 2))
				return outs{raw.Add(s, a, b)}, outs{a, b}
			},
			opts: func(s *scope, ys, xs outs) gradients.Options {
				return gradients.Options{StopGradients: xs}
			},
			want: [][]float64{{1}, {1}},
		},
		"a stop gradient at one output of several": {
			build: func(s *scope) (outs, outs) {
				x := vector(s, 3, 4)
				parts := raw.Split(s, scalar(s, int32(0)), x, 2, raw.WithName("parts"))
				return outs{raw.Mul(s, parts[0], parts[1])}, outs{x, parts[0]}
			},
			opts: func(s *scope, ys, xs outs) gradients.Options { return gradients.Options{StopGradients: xs[1:]} },
			want: [][]float64{{0, 3}, {4}},
		},
		"an override of a type": {
			build: func(s *scope) (outs, outs) { x := vector(s, 3); return outs{raw.Square(s, x)}, outs{x} },
			opts: func(*scope, outs, outs) gradients.Options {
				return gradients.Options{Override: map[string]gradients.Func{
					"Square": func(c *gradients.Context) []gradients.Gradient {
						return []gradients.Gradient{{Dense: c.Times(10, c.Grad(0))}}
					}}}
			},
			want: [][]float64{{10}},
		},
		"an override that makes a type not differentiable": {
			build: func(s *scope) (outs, outs) {
				x := vector(s, 3)
				return outs{raw.Square(s, x), raw.Neg(s, x)}, outs{x}
			},
			opts: func(*scope, outs, outs) gradients.Options {
				return gradients.Options{Override: map[string]gradients.Func{"Square": nil}}
			},
			want: [][]float64{{-1}},
		},
		"a custom gradient of one node": {
			build: func(s *scope) (outs, outs) {
				x := vector(s, 3)
				return outs{raw.Square(s, x, raw.WithName("mine")), raw.Square(s, x)}, outs{x}
			},
			opts: func(*scope, outs, outs) gradients.Options {
				return gradients.Options{Custom: func(op *tf.Operation) gradients.Func {
					if op.Name() != "mine" {
						return nil
					}
					return func(c *gradients.Context) []gradients.Gradient {
						return []gradients.Gradient{{Dense: c.Times(100, c.Grad(0))}}
					}
				}}
			},
			want: [][]float64{{106}},
		},
		"a node marked with a type of its own": {
			build: func(s *scope) (outs, outs) {
				x := vector(s, 3)
				y := raw.Square(s, x, raw.Attr{Name: "_gradient_op_type", Value: "Neg"})
				return outs{y}, outs{x}
			},
			want: [][]float64{{-1}},
		},
		"a node marked with a type that nobody knows": {
			build: func(s *scope) (outs, outs) {
				x := vector(s, 3)
				y := raw.Square(s, x, raw.Attr{Name: "_gradient_op_type", Value: "CustomGradient-17"})
				return outs{y}, outs{x}
			},
			want: [][]float64{{6}},
		},
		"an empty list of xs": {
			build: func(s *scope) (outs, outs) { return outs{vector(s, 3)}, outs{} },
			want:  [][]float64{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			ys, xs := test.build(s)
			require.NoError(t, s.err)
			var opts gradients.Options
			if test.opts != nil {
				opts = test.opts(s, ys, xs)
			}
			grads, err := gradients.Compute(s, ys, nil, xs, opts)
			require.NoError(t, err)
			require.Len(t, grads, len(test.want))
			for i, want := range test.want {
				if want == nil {
					require.True(t, grads[i].IsNone(), "x %d must have no gradient", i)
					continue
				}
				require.InDeltaSlice(t, want, dense(t, s, grads[i])[0], 1e-12, "x %d", i)
			}
		})
	}
}

func TestGradYs(t *testing.T) {
	s := newScope()
	x := vector(s, 1, 2)
	a, b := raw.Square(s, x), raw.Neg(s, x)
	grads, err := gradients.Compute(s, outs{a, b}, []gradients.Gradient{{Dense: vector(s, 10, 100)}, {}}, outs{x}, gradients.Options{})
	require.NoError(t, err)
	require.Equal(t, []float64{19, 399}, dense(t, s, grads...)[0])

	// Rows 1 and 1 of y: their gradients add up, row 0 has none.
	m := constant(s, bridge.Shape{2, 2}, 1.0, 2, 3, 4)
	rows := &gradients.IndexedSlices{
		Values: constant(s, bridge.Shape{2, 2}, 1.0, 2, 3, 4), Indices: ints(s, 1, 1), DenseShape: ints(s, 2, 2)}
	grads, err = gradients.Compute(s, outs{raw.Square(s, m)}, []gradients.Gradient{{Slices: rows}}, outs{m}, gradients.Options{})
	require.NoError(t, err)
	require.Equal(t, []float64{0, 0, 2 * 3 * 4, 2 * 4 * 6}, dense(t, s, grads...)[0])
}

func TestComputeRefuses(t *testing.T) {
	s, other := newScope(), newScope()
	x := vector(s, 1, 2)
	y := raw.Square(s, x)
	z := raw.Complex(s, x, x, raw.WithTout(tf.Complex128))
	foreign := vector(other, 1)
	one := func(o tf.Output) []gradients.Gradient { return []gradients.Gradient{{Dense: o}} }
	before := bridge.NumOperations(s.g)
	for name, test := range map[string]struct {
		ys    outs
		grads []gradients.Gradient
		xs    outs
		opts  gradients.Options
		want  string
	}{
		"no ys":                          {nil, nil, outs{x}, gradients.Options{}, "no y"},
		"a zero y":                       {outs{{}}, nil, outs{x}, gradients.Options{}, "y 0 is not a tensor"},
		"a zero x":                       {outs{y}, nil, outs{x, {}}, gradients.Options{}, "x 1 is not a tensor"},
		"an output that does not exist":  {outs{y}, nil, outs{{Op: x.Op, Index: 7}}, gradients.Options{}, "x 0 is not a tensor"},
		"a negative output":              {outs{y}, nil, outs{{Op: x.Op, Index: -1}}, gradients.Options{}, "x 0 is not a tensor"},
		"an x of another graph":          {outs{y}, nil, outs{foreign}, gradients.Options{}, "another graph"},
		"a y of another graph":           {outs{foreign}, nil, outs{x}, gradients.Options{}, "another graph"},
		"a stop gradient elsewhere":      {outs{y}, nil, outs{x}, gradients.Options{StopGradients: outs{foreign}}, "another graph"},
		"fewer gradients than ys":        {outs{y, y}, one(x), outs{x}, gradients.Options{}, "1 gradients for 2 ys"},
		"a gradient of another dtype":    {outs{y}, one(ints(s, 1, 2)), outs{x}, gradients.Options{}, "is int32, wanted float64"},
		"a gradient of another shape":    {outs{y}, one(vector(s, 1, 2, 3)), outs{x}, gradients.Options{}, "has shape [3], wanted [2]"},
		"a gradient of another graph":    {outs{y}, one(foreign), outs{x}, gradients.Options{}, "another graph"},
		"slices with parts missing":      {outs{y}, []gradients.Gradient{{Slices: &gradients.IndexedSlices{Values: x}}}, outs{x}, gradients.Options{}, "is not a tensor"},
		"a complex y without a gradient": {outs{z}, nil, outs{x}, gradients.Options{}, "complex128"},
	} {
		t.Run(name, func(t *testing.T) {
			grads, err := gradients.Compute(s, test.ys, test.grads, test.xs, test.opts)
			require.ErrorContains(t, err, test.want)
			require.Nil(t, grads)
			require.NoError(t, s.err, "the scope goes on working")
		})
	}
	_, err := gradients.Compute(nil, outs{y}, nil, outs{x}, gradients.Options{})
	require.Error(t, err)
	require.Equal(t, before+2, bridge.NumOperations(s.g), "only the two gradients of the cases were added")
}

func TestEveryOperationWithoutAGradientIsNamedBeforeAnythingIsAdded(t *testing.T) {
	s := newScope()
	x := vector(s, 3, 1, 3)
	a, _ := raw.Unique(s, x, raw.WithName("first"))
	b, _ := raw.Unique(s, raw.Square(s, a), raw.WithName("second"))
	c := raw.PreventGradient(s, b, raw.WithMessage("not here"), raw.WithName("third"))
	y := raw.Neg(s, c)
	require.NoError(t, s.err)
	before := bridge.NumOperations(s.g)

	_, err := gradients.Compute(s, outs{y}, nil, outs{x}, gradients.Options{})
	var missing *gradients.MissingGradientError
	require.ErrorAs(t, err, &missing)
	require.Len(t, missing.Ops, 3)
	require.Equal(t, []string{"PreventGradient", "Unique"}, missing.Types())
	for i, want := range []struct{ typ, name string }{{"Unique", "first"}, {"Unique", "second"}, {"PreventGradient", "third"}} {
		require.Equal(t, want.typ, missing.Ops[i].Type)
		require.Equal(t, want.name, missing.Ops[i].Name)
		require.ErrorContains(t, err, fmt.Sprintf("%s at node %q", want.typ, want.name))
	}
	require.Contains(t, missing.Ops[2].Reason, "not here")
	require.NotEmpty(t, missing.Ops[0].Equivalent)
	require.Equal(t, before, bridge.NumOperations(s.g))
	require.NoError(t, s.err)
}

func TestAGradientFunctionThatMisbehavesIsAnError(t *testing.T) {
	for name, test := range map[string]struct {
		f    gradients.Func
		want string
	}{
		"panics":         {func(*gradients.Context) []gradients.Gradient { panic("no") }, "panicked: no"},
		"gives too many": {func(*gradients.Context) []gradients.Gradient { return make([]gradients.Gradient, 2) }, "2 gradients for 1 inputs"},
		"gives another dtype": {func(c *gradients.Context) []gradients.Gradient {
			return []gradients.Gradient{{Dense: c.Int(tf.Int32, 1)}}
		}, "int32, wanted float64"},
		"fails": {func(c *gradients.Context) []gradients.Gradient { c.Fail(errors.New("mine")); return nil }, "mine"},
		"uses what is missing": {func(c *gradients.Context) []gradients.Gradient {
			return []gradients.Gradient{{Dense: c.Mul(c.Input(9), c.Grad(0))}}
		}, "Mul"},
		"asks for an attribute that does not exist": {func(c *gradients.Context) []gradients.Gradient {
			c.AttrInt("nonsense")
			return nil
		}, "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			x := vector(s, 1)
			y := raw.Square(s, x)
			_, err := gradients.Compute(s, outs{y}, nil, outs{x}, gradients.Options{Override: map[string]gradients.Func{"Square": test.f}})
			require.ErrorContains(t, err, test.want)
		})
	}
}

// variable is a resource variable with a value, and the operation that gives it.
func variable(s *scope, name string, shape bridge.Shape, values ...float64) (handle tf.Output, init *tf.Operation) {
	handle = raw.VarHandleOp(s, tf.Double, shape, raw.WithSharedName(name), raw.WithName(name))
	return handle, raw.AssignVariableOp(s, handle, constant(s, shape, values...))
}

func TestGradientsOfVariables(t *testing.T) {
	s := newScope()
	w, init := variable(s, "w", bridge.Shape{3, 2}, 1, 2, 3, 4, 5, 6)
	unused, _ := variable(s, "u", bridge.Shape{2}, 1, 2)
	read := func() tf.Output { return raw.ReadVariableOp(s, w, tf.Double) }
	gathered := func(i ...int32) tf.Output { return raw.ResourceGather(s, w, ints(s, i...), tf.Double) }
	second := raw.ResourceGatherNd(s, w, constant[int32](s, bridge.Shape{2, 1}, 2, 0), tf.Double)
	require.NoError(t, s.err)

	for name, test := range map[string]struct {
		ys     outs
		sparse bool
		want   []float64
	}{
		"a read":                           {outs{raw.Square(s, read())}, false, []float64{2, 4, 6, 8, 10, 12}},
		"several reads add up":             {outs{raw.Square(s, read()), read()}, false, []float64{3, 5, 7, 9, 11, 13}},
		"a gather, duplicates included":    {outs{raw.Square(s, gathered(2, 0, 2))}, true, []float64{2, 4, 0, 0, 20, 24}},
		"two gathers are concatenated":     {outs{gathered(2, 0), gathered(2)}, true, []float64{1, 1, 0, 0, 2, 2}},
		"a gather and a read become dense": {outs{gathered(2, 0), read()}, false, []float64{2, 2, 1, 1, 2, 2}},
		"a gather by a matrix": {outs{raw.ResourceGather(s, w, pairs(s, 2, 0, 2, 1), tf.Double)}, true,
			[]float64{1, 1, 1, 1, 2, 2}},
		"a gather of elements": {outs{raw.ResourceGatherNd(s, w, pairs(s, 2, 0, 2, 0, 1, 1), tf.Double)}, false,
			[]float64{0, 0, 0, 1, 2, 0}},
		"a gather of rows by GatherNd": {outs{second}, true, []float64{1, 1, 0, 0, 1, 1}},
		"a gather within a batch": {outs{raw.ResourceGather(s, w, pairs(s, 1, 1, 0, 1, 0, 0), tf.Double, raw.WithBatchDims(1))}, false,
			[]float64{0, 2, 1, 1, 2, 0}},
		"a gather of what was read":     {outs{raw.GatherV2(s, read(), ints(s, 2, 2), scalar(s, int32(0)))}, true, []float64{0, 0, 0, 0, 2, 2}},
		"a gather of what was identity": {outs{raw.GatherV2(s, raw.Identity(s, read()), ints(s, 1), scalar(s, int32(0)))}, true, []float64{0, 0, 1, 1, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			grads := gradientsOf(t, s, test.ys, w, unused)
			require.True(t, grads[1].IsNone())
			require.Equal(t, test.sparse, grads[0].IsSparse())
			require.Equal(t, test.want, runAfter(t, s, init, gradients.Densify(s, grads[0])))
		})
	}

	t.Run("a scaled sparse gradient stays sparse", func(t *testing.T) {
		g := gradientsOf(t, s, outs{gathered(1, 1)}, w)[0]
		scaled := gradients.Scale(s, g, scalar(s, 0.5))
		require.True(t, scaled.IsSparse())
		require.Equal(t, []float64{0, 0, 1, 1, 0, 0}, runAfter(t, s, init, gradients.Densify(s, scaled)))
	})
	t.Run("zeros for a handle are the variable's", func(t *testing.T) {
		grads, err := gradients.Compute(s, outs{raw.Square(s, read())}, nil, outs{unused}, gradients.Options{Zeros: true})
		require.NoError(t, err)
		require.Equal(t, []float64{0, 0}, runAfter(t, s, init, grads[0].Dense))
	})
}

// runAfter runs an operation and then fetches a tensor.
func runAfter(t *testing.T, s *scope, init *tf.Operation, fetch tf.Output) []float64 {
	t.Helper()
	require.NoError(t, s.err)
	sess, err := bridge.NewSession(s.g, bridge.Config{})
	require.NoError(t, err)
	defer sess.Close()
	require.NoError(t, sess.Run(t.Context(), init))
	got, err := sess.Call(t.Context(), bridge.Call{Fetches: outs{fetch}})
	require.NoError(t, err)
	defer got[0].Close()
	v, err := bridge.ToFloat64(got[0])
	require.NoError(t, err)
	return v
}

func TestSparseGradientsOfBothIndexTypesAddUp(t *testing.T) {
	s := newScope()
	x := constant(s, bridge.Shape{3, 1}, 1.0, 2, 3)
	axis := scalar(s, int32(0))
	short := func() tf.Output { return raw.GatherV2(s, x, ints(s, 2, 0), axis) }
	long := func() tf.Output { return raw.GatherV2(s, x, constant[int64](s, bridge.Shape{2}, 2, 1), axis) }
	for _, order := range []outs{{short(), long()}, {long(), short()}} {
		g := gradientsOf(t, s, order, x)[0]
		require.True(t, g.IsSparse())
		require.Equal(t, tf.Int64, g.Slices.Indices.DataType())
		require.Equal(t, []float64{1, 1, 2}, dense(t, s, g)[0])
	}
}

func TestASparseGradientStaysSparseThroughConcat(t *testing.T) {
	for name, axis := range map[string]int32{"rows": 0, "columns": 1, "columns from the end": -1} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			a := constant(s, bridge.Shape{2, 2}, 1.0, 2, 3, 4)
			b := constant(s, bridge.Shape{2, 2}, 5.0, 6, 7, 8)
			both := raw.ConcatV2(s, outs{a, b}, scalar(s, axis))
			y := raw.Square(s, raw.GatherV2(s, both, ints(s, 1, 1, 0), scalar(s, int32(0))))
			grads := gradientsOf(t, s, outs{y}, a, b)
			require.True(t, grads[0].IsSparse())
			require.True(t, grads[1].IsSparse())
			want := [][]float64{{2, 4, 12, 16}, {10, 12, 28, 32}}
			if axis == 0 {
				want[1] = []float64{0, 0, 0, 0}
			}
			require.Equal(t, want, dense(t, s, grads...))
		})
	}
}

func TestFixedRangesPassTheGradientInside(t *testing.T) {
	s := newScope()
	x := constant(s, bridge.Shape{4}, float32(-9), -1, 2, 9)
	low, high := scalar(s, float32(-6)), scalar(s, float32(6))
	perChannel := constant(s, bridge.Shape{4}, float32(-6), -6, -6, -6)
	for name, test := range map[string]struct {
		y    tf.Output
		xs   outs
		want [][]float64 // nil: none
	}{
		"FakeQuantWithMinMaxArgs": {raw.FakeQuantWithMinMaxArgs(s, x), outs{x}, [][]float64{{0, 1, 1, 0}}},
		"FakeQuantWithMinMaxVars": {raw.FakeQuantWithMinMaxVars(s, x, low, high), outs{x, low, high}, [][]float64{{0, 1, 1, 0}, {1}, {1}}},
		"FakeQuantWithMinMaxVarsPerChannel": {raw.FakeQuantWithMinMaxVarsPerChannel(s, x, perChannel, raw.Neg(s, perChannel)),
			outs{x, perChannel}, [][]float64{{0, 1, 1, 0}, {1, 0, 0, -1}}},
		"QuantizeAndDequantizeV2": {raw.QuantizeAndDequantizeV2(s, x, low, high), outs{x, low}, [][]float64{{1, 1, 1, 1}, nil}},
		"QuantizeAndDequantizeV3": {raw.QuantizeAndDequantizeV3(s, x, low, high, scalar(s, int32(8))), outs{x, high}, [][]float64{{1, 1, 1, 1}, nil}},
		"QuantizeAndDequantizeV4": {raw.QuantizeAndDequantizeV4(s, x, low, high, raw.WithRangeGiven(true)), outs{x}, [][]float64{{0, 1, 1, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, g := range gradientsOf(t, s, outs{test.y}, test.xs...) {
				if test.want[i] == nil {
					require.True(t, g.IsNone())
				} else {
					require.Equal(t, test.want[i], dense(t, s, g)[0])
				}
			}
		})
	}
}

// A sample moves with its distribution: shifting and stretching a truncated
// normal moves the sample alike, and the mean of gamma samples has slope 1.
func TestGradientsOfSamples(t *testing.T) {
	s := newScope()
	seed := constant[int64](s, bridge.Shape{2}, 7, 11)
	mean, stddev, low, high := scalar(s, 0.5), scalar(s, 1.5), scalar(s, -1.0), scalar(s, 2.0)
	z := raw.StatelessParameterizedTruncatedNormal(s, ints(s, 1), seed, mean, stddev, low, high)
	grads := gradientsOf(t, s, outs{z}, mean, stddev, low, high)
	g := dense(t, s, grads...)
	at := s.values(t, z)[0][0]
	assert.InDelta(t, 1, g[0][0], 1e-9, "Python's slope by the mean is that of an untruncated normal")
	assert.InDelta(t, (at-0.5)/1.5, g[1][0], 1e-9)
	// Towards an end of the range the sample moves with that end.
	assert.True(t, g[2][0] > 0 && g[2][0] < 1 && g[3][0] > 0 && g[3][0] < 1, "%v", g)

	const n = 20000
	for name, sample := range map[string]func(alpha tf.Output) tf.Output{
		"StatelessRandomGammaV2": func(a tf.Output) tf.Output { return raw.StatelessRandomGammaV2(s, ints(s, n), seed, a) },
		"StatelessRandomGammaV3": func(a tf.Output) tf.Output {
			key, counter := raw.StatelessRandomGetKeyCounter(s, seed)
			return raw.StatelessRandomGammaV3(s, ints(s, n), key, counter, scalar(s, int32(1)), a)
		},
		"RandomGamma": func(a tf.Output) tf.Output { return raw.RandomGamma(s, ints(s, n), a, raw.WithSeed(5)) },
	} {
		t.Run(name, func(t *testing.T) {
			alpha := scalar(s, 2.5)
			g := dense(t, s, gradientsOf(t, s, outs{sample(alpha)}, alpha)...)
			// E[z] = alpha; the slope of one sample has a variance below 1.
			assert.InDelta(t, 1, g[0][0]/n, 0.03)
		})
	}
}

func TestNamesAndDevices(t *testing.T) {
	s := newScope()
	x := vector(s, 1, 2)
	y := raw.Exp(s, raw.Square(s, x, raw.WithName("net/square"), raw.WithDevice("/device:CPU:0")))
	before := map[string]bool{}
	for op := range bridge.Operations(s.g) {
		before[op.Name()] = true
	}
	gradientsOf(t, s, outs{y}, x)
	found := 0
	for op := range bridge.Operations(s.g) {
		if before[op.Name()] {
			continue
		}
		require.True(t, strings.HasPrefix(op.Name(), "gradients/"), op.Name())
		if strings.HasPrefix(op.Name(), "gradients/net/square_grad/") {
			found++
			require.Contains(t, op.Device(), "CPU:0", op.Name())
		}
	}
	require.NotZero(t, found)

	grads, err := gradients.Compute(s, outs{y}, nil, outs{x}, gradients.Options{Name: "mine"})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(grads[0].Dense.Op.Name(), "mine/"))
	require.True(t, strings.HasPrefix(gradientsOf(t, s, outs{y}, x)[0].Dense.Op.Name(), "gradients_1/"))
}

func TestKnownShapesNeedNoShapeOperations(t *testing.T) {
	dynamic := []string{"Shape", "BroadcastGradientArgs", "Rank", "Size"}
	for name, build := range map[string]func(s *scope) (y tf.Output, xs outs){
		"a dense layer of any batch": func(s *scope) (tf.Output, outs) {
			x := s.placeholder(tf.Double, bridge.Shape{-1, 3})
			w, b := constant(s, bridge.Shape{3, 2}, make([]float64, 6)...), vector(s, 1, 2)
			return raw.Tanh(s, raw.Add(s, raw.MatMul(s, x, w), b)), outs{w, b}
		},
		"a reduction of known shape": func(s *scope) (tf.Output, outs) {
			x := constant(s, bridge.Shape{3, 2}, make([]float64, 6)...)
			return raw.Mean(s, raw.Sum(s, x, ints(s, 1)), ints(s, 0)), outs{x}
		},
		"a product with itself of any shape": func(s *scope) (tf.Output, outs) {
			x := s.placeholder(tf.Double, bridge.Shape{-1, -1})
			sq := raw.Mul(s, x, x)
			return raw.MatMul(s, sq, raw.Reshape(s, vector(s, 1, 2), ints(s, 2, 1))), outs{x}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			y, xs := build(s)
			require.NoError(t, s.err)
			before := bridge.NumOperations(s.g)
			_, err := gradients.Compute(s, outs{y}, []gradients.Gradient{{Dense: raw.Identity(s, y)}}, xs, gradients.Options{})
			require.NoError(t, err)
			i := 0
			for op := range bridge.Operations(s.g) {
				if i++; i > before {
					require.NotContains(t, dynamic, op.Type(), op.Name())
				}
			}
		})
	}
}

func TestALongChainTakesLinearTime(t *testing.T) {
	took := func(n int) time.Duration {
		s := newScope()
		x := vector(s, 0.5)
		y := x
		for range n {
			y = raw.Sin(s, y)
		}
		require.NoError(t, s.err)
		start := time.Now()
		gradientsOf(t, s, outs{y}, x)
		return time.Since(start)
	}
	took(100)
	small, large := took(1000), took(10000)
	t.Logf("1,000 nodes %v, 10,000 nodes %v", small, large)
	require.Less(t, large, 40*small+time.Second, "ten times the nodes must not take a hundred times the time")
	require.Less(t, large, 20*time.Second)
}

func TestAWideSumTakesLinearTime(t *testing.T) {
	s := newScope()
	x := vector(s, 0.5)
	var parts outs
	for range 3000 {
		parts = append(parts, raw.Neg(s, x))
	}
	y := raw.AddN(s, parts)
	require.NoError(t, s.err)
	require.Equal(t, []float64{-3000}, dense(t, s, gradientsOf(t, s, outs{y}, x)...)[0])
}

func TestRegistry(t *testing.T) {
	for _, op := range gradients.Registered() {
		if strings.HasPrefix(op, "Sluice") { // a mark of package ops, not an operation
			continue
		}
		_, ok := bridge.OpDef(op)
		require.True(t, ok, "%s is registered but libtensorflow has no such operation", op)
	}
	f, known := gradients.Lookup("Sin")
	require.True(t, known)
	require.NotNil(t, f)
	f, known = gradients.Lookup("Shape")
	require.True(t, known)
	require.Nil(t, f)
	_, known = gradients.Lookup("Unique")
	require.False(t, known)
	require.Contains(t, gradients.NotDifferentiable(), "StopGradient")
	require.ErrorContains(t, gradients.Register("", nil), "both needed")
}
