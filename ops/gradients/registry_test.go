package gradients_test

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

//go:embed testdata/python.tsv
var pythonRegistry string

// Whatever Python differentiates has a gradient here, what it declares not
// differentiable has none and is no error, and what no graph of today can hold is
// not in the way of the message that says so.
func TestTheRegistryHasWhatPythonsHas(t *testing.T) {
	// Functions of Python's that give None for every input.
	givesNone := []string{"ArgMax", "ArgMin", "Ceil", "Floor", "FloorDiv", "Rint", "Round", "TruncateDiv"}
	// One that calls itself with another number of arguments, an error.
	fails := []string{"QuantizeAndDequantizeV4Grad"}
	rows := 0
	for line := range strings.Lines(pythonRegistry) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		rows++
		fields := strings.Split(strings.TrimRight(line, "\n"), "\t")
		require.Len(t, fields, 3)
		op, python, unwanted := fields[0], fields[1], fields[2]
		grad, known := gradients.Lookup(op)
		switch {
		case slices.Contains(fails, op):
			assert.False(t, known, op)
		case python == "none":
			assert.True(t, known && grad == nil, "%s is not differentiable in Python", op)
		case unwanted == "" || strings.HasPrefix(unwanted, "optional"):
			assert.True(t, known, "%s has a gradient in Python", op)
			assert.Equal(t, slices.Contains(givesNone, op), grad == nil, op)
		case strings.HasPrefix(unwanted, "no: removed"):
			def, registered := bridge.OpDef(op)
			require.True(t, registered, op)
			require.NotNil(t, def.Deprecation, op)
			assert.Equal(t, unwanted, fmt.Sprintf("no: removed from GraphDefs since version %d", def.Deprecation.Version), op)
		}
	}
	assert.Equal(t, 605, rows)
}

// What runs on other devices only: the graphs of their gradients.
func TestGradientsOfOtherDevicesAreBuilt(t *testing.T) {
	type outs = []tf.Output
	float := func(s *scope, dims ...int64) tf.Output { return s.placeholder(tf.Float, bridge.Shape(dims)) }
	attr := func(name string, value any) raw.Attr { return raw.Attr{Name: name, Value: value} }
	cell := func(s *scope) (x, h, c, params tf.Output) {
		return float(s, 3, 2, 4), float(s, 1, 2, 5), float(s, 1, 2, 5), float(s, 220)
	}
	for _, c := range []struct {
		want  string
		build func(s *scope) (y tf.Output, xs outs)
	}{
		{"AllToAll", func(s *scope) (tf.Output, outs) {
			x := float(s, 4, 6)
			return raw.AllToAll(s, x, s.placeholder(tf.Int32, bridge.Shape{1, 2}), 0, 1, 2), outs{x}
		}},
		{"CollectivePermute", func(s *scope) (tf.Output, outs) {
			x := float(s, 4)
			return raw.CollectivePermute(s, x, s.placeholder(tf.Int32, bridge.Shape{2, 2})), outs{x}
		}},
		{"CrossReplicaSum", func(s *scope) (tf.Output, outs) {
			x := float(s, 4)
			return raw.CrossReplicaSum(s, x, s.placeholder(tf.Int32, bridge.Shape{1, 2})), outs{x}
		}},
		{"NcclAllReduce", func(s *scope) (tf.Output, outs) {
			x := float(s, 4)
			return raw.NcclAllReduce(s, x, "sum", 2, "all"), outs{x}
		}},
		{"NcclBroadcast", func(s *scope) (tf.Output, outs) {
			a, b := float(s, 4), float(s, 4)
			return raw.NcclReduce(s, outs{a, b}, "sum"), outs{a, b}
		}},
		{"NcclReduce", func(s *scope) (tf.Output, outs) {
			x := float(s, 4)
			y := raw.NcclBroadcast(s, x, bridge.Shape{4})
			return raw.Add(s, raw.Square(s, y), y), outs{x}
		}},
		{"RelayoutLike", func(s *scope) (tf.Output, outs) {
			x := float(s, 4)
			return raw.Relayout(s, x, ""), outs{x}
		}},
		{"RelayoutLike", func(s *scope) (tf.Output, outs) {
			x := float(s, 4)
			return raw.RelayoutLike(s, x, float(s, 4)), outs{x}
		}},
		{"CopyToMeshGrad", func(s *scope) (tf.Output, outs) {
			x := float(s, 4)
			return raw.CopyToMesh(s, x, ""), outs{x}
		}},
		{"CopyToMeshGrad", func(s *scope) (tf.Output, outs) {
			x := float(s, 4)
			return raw.CopyToMeshGrad(s, x, float(s, 4)), outs{x}
		}},
		{"CudnnRNNBackprop", func(s *scope) (tf.Output, outs) {
			x, h, c, params := cell(s)
			y, _, _, _ := raw.CudnnRNN(s, x, h, c, params, attr("dropout", float32(0.25)))
			return y, outs{x, h, c, params}
		}},
		{"CudnnRNNBackpropV2", func(s *scope) (tf.Output, outs) {
			x, h, c, params := cell(s)
			_, last, _, _, _ := raw.CudnnRNNV2(s, x, h, c, params)
			return last, outs{x, h, c, params}
		}},
		{"CudnnRNNBackpropV3", func(s *scope) (tf.Output, outs) {
			x, h, c, params := cell(s)
			y, _, _, _, _ := raw.CudnnRNNV3(s, x, h, c, params, s.placeholder(tf.Int32, bridge.Shape{2}), attr("time_major", false))
			return y, outs{x, h, c, params}
		}},
		{"SparseMatrixSoftmaxGrad", func(s *scope) (tf.Output, outs) {
			x := float(s, 3, 4)
			m := raw.DenseToCSRSparseMatrix(s, x, s.placeholder(tf.Int64, bridge.Shape{-1, 2}))
			return raw.CSRSparseMatrixToDense(s, raw.SparseMatrixSoftmax(s, m, tf.Float), tf.Float), outs{x}
		}},
		{"LowerBound", func(s *scope) (tf.Output, outs) { // of SparseMatrixAdd: the gradient at each summand's places
			x, y := float(s, 3, 4), float(s, 3, 4)
			matrix := func(t tf.Output) tf.Output {
				return raw.DenseToCSRSparseMatrix(s, t, s.placeholder(tf.Int64, bridge.Shape{-1, 2}))
			}
			sum := raw.SparseMatrixAdd(s, matrix(x), matrix(y), float(s), float(s))
			return raw.CSRSparseMatrixToDense(s, sum, tf.Float), outs{x, y}
		}},
	} {
		s := newScope()
		y, xs := c.build(s)
		require.NoError(t, s.err, c.want)
		before := bridge.NumOperations(s.g)
		grads, err := gradients.Compute(s, outs{y}, nil, xs, gradients.Options{})
		require.NoError(t, err, c.want)
		for i, g := range grads {
			require.False(t, g.IsNone(), "%s, x %d", c.want, i)
			assert.True(t, bridge.ShapeOf(g.Dense).CompatibleWith(bridge.ShapeOf(xs[i])), "%s, x %d", c.want, i)
		}
		var added []string
		n := 0
		for op := range bridge.Operations(s.g) {
			if n++; n > before {
				added = append(added, op.Type())
			}
		}
		assert.Contains(t, added, c.want)
	}
}

// Python refuses these too, but only while it builds.
func TestWhatCanNotBeDifferentiatedIsRefusedBefore(t *testing.T) {
	x := func(s *scope) tf.Output { return s.placeholder(tf.Float, bridge.Shape{2, 2}) }
	for want, build := range map[string]func(s *scope) tf.Output{
		`reduction is "max"`: func(s *scope) tf.Output { return raw.NcclAllReduce(s, x(s), "max", 2, "") },
		"is_training": func(s *scope) tf.Output {
			v := s.placeholder(tf.Float, bridge.Shape{1, 2, 2})
			y, _, _, _ := raw.CudnnRNN(s, v, v, v, s.placeholder(tf.Float, bridge.Shape{-1}), raw.WithIsTraining(false))
			return y
		},
		"compiled cluster": func(s *scope) tf.Output { return raw.XlaClusterOutput(s, x(s)) },
		"TPU":              func(s *scope) tf.Output { return raw.TPUEmbeddingActivations(s, x(s), x(s), 0, 0) },
		"Python function": func(s *scope) tf.Output {
			return raw.EagerPyFunc(s, []tf.Output{x(s)}, "t", []tf.DataType{tf.Float})[0]
		},
		"TensorArrayConcatV3": func(s *scope) tf.Output {
			y, _ := raw.TensorArrayConcatV2(s, s.placeholder(tf.String, bridge.Shape{2}), s.placeholder(tf.Float, bridge.Shape{}), tf.Float)
			return y
		},
		"multiply the matrix's values": func(s *scope) tf.Output {
			m := raw.DenseToCSRSparseMatrix(s, x(s), s.placeholder(tf.Int64, bridge.Shape{-1, 2}))
			return raw.CSRSparseMatrixToDense(s, raw.SparseMatrixMul(s, m, s.placeholder(tf.Float, bridge.Shape{})), tf.Float)
		},
		"only one operand": func(s *scope) tf.Output { return raw.XlaEinsum(s, x(s), x(s), "ab,cd->bd") },
	} {
		s := newScope()
		y := build(s)
		require.NoError(t, s.err, want)
		var xs []tf.Output
		for op := range bridge.Operations(s.g) {
			if op.Type() == "Placeholder" && gradients.Differentiable(op.Output(0).DataType()) {
				xs = append(xs, op.Output(0))
			}
		}
		before := bridge.NumOperations(s.g)
		_, err := gradients.Compute(s, []tf.Output{y}, nil, xs, gradients.Options{})
		assert.ErrorContains(t, err, want)
		assert.Equal(t, before, bridge.NumOperations(s.g), want)
	}
}

// TensorFlow refuses the one removed operation with a gradient that models of
// today could still ask for, and says what to use.
func TestBatchNormWithGlobalNormalizationCanNotBeBuilt(t *testing.T) {
	s := newScope()
	x, m := s.placeholder(tf.Float, bridge.Shape{1, 2, 2, 3}), s.placeholder(tf.Float, bridge.Shape{3})
	s.Add(bridge.OpSpec{Type: "BatchNormWithGlobalNormalization", Inputs: []tf.Input{x, m, m, m, m}, Attrs: []bridge.Attr{
		{Name: "variance_epsilon", Value: float32(0.1)}, {Name: "scale_after_normalization", Value: true}}})
	require.ErrorContains(t, s.err, "removed in version 9")
}
