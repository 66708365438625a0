package optimizers_test

import (
	"fmt"
	"math"
	"os"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if tensors, bytes := bridge.Live(); tensors != 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d tensors (%d bytes) are still alive\n", tensors, bytes)
		code = 1
	}
	os.Exit(code)
}

// bench is a graph and, once started, its session.
type bench struct {
	*ops.Graph
	t    *testing.T
	sess *bridge.Session
}

func newBench(t *testing.T) *bench {
	return &bench{Graph: ops.NewGraph(ops.GraphOptions{Seed: 11}), t: t}
}

// start opens a session and initializes all variables.
func (b *bench) start() {
	b.t.Helper()
	require.NoError(b.t, b.Err())
	sess, err := bridge.NewSession(b.TF(), bridge.Config{})
	require.NoError(b.t, err)
	b.sess = sess
	b.t.Cleanup(func() { require.NoError(b.t, sess.Close()) })
	b.run(b.Init())
}

func (b *bench) run(targets ...*tf.Operation) {
	b.t.Helper()
	require.NoError(b.t, b.sess.Run(b.t.Context(), targets...))
}

// steps runs a train op n times.
func (b *bench) steps(n int, train *optimizers.TrainOp) {
	b.t.Helper()
	for range n {
		b.run(train.Op)
	}
}

// feed runs targets with scalars fed.
func (b *bench) feed(target *tf.Operation, feeds map[tf.Output]float32) error {
	b.t.Helper()
	call := bridge.Call{Targets: []*tf.Operation{target}}
	var values []*bridge.Tensor
	for t, v := range feeds {
		value, err := bridge.Scalar(v)
		require.NoError(b.t, err)
		defer value.Close()
		call.Feeds, values = append(call.Feeds, t), append(values, value)
	}
	results, err := b.sess.Call(b.t.Context(), call, values...)
	require.Empty(b.t, results)
	return err
}

// fetch is what tensors are in one run.
func (b *bench) fetch(outs ...tf.Output) [][]float64 {
	b.t.Helper()
	results, err := b.sess.Call(b.t.Context(), bridge.Call{Fetches: outs})
	require.NoError(b.t, err)
	values := make([][]float64, len(results))
	for i, r := range results {
		values[i], err = bridge.ToFloat64(r)
		require.NoError(b.t, err)
		require.NoError(b.t, r.Close())
	}
	return values
}

func (b *bench) value(v *ops.Variable) []float64 { b.t.Helper(); return b.fetch(v.Value())[0] }

// bits are the bytes of variables, for comparisons bit by bit.
func (b *bench) bits(vars ...*ops.Variable) map[string][]byte {
	b.t.Helper()
	outs := make([]tf.Output, len(vars))
	for i, v := range vars {
		outs[i] = v.Value()
	}
	bits := map[string][]byte{}
	if len(vars) == 0 {
		return bits
	}
	results, err := b.sess.Call(b.t.Context(), bridge.Call{Fetches: outs})
	require.NoError(b.t, err)
	for i, r := range results {
		view, err := r.Bytes()
		require.NoError(b.t, err)
		bits[vars[i].Name()] = append([]byte(nil), view...)
		require.NoError(b.t, r.Close())
	}
	return bits
}

// vector makes a variable of rank 1 with these values.
func (b *bench) vector(name string, dt tf.DataType, values ...float64) *ops.Variable {
	return b.tensor(name, dt, ops.Shape{int64(len(values))}, values...)
}

func (b *bench) tensor(name string, dt tf.DataType, shape ops.Shape, values ...float64) *ops.Variable {
	return b.Variable(name, shape, func(s *ops.Scope, _ string, shape ops.Shape, dt tf.DataType) tf.Output {
		return numbers(s, dt, shape, values...)
	}, ops.VariableOptions{DType: dt})
}

// numbers is a constant of any floating dtype.
func numbers(s *ops.Scope, dt tf.DataType, shape ops.Shape, values ...float64) tf.Output {
	return ops.Cast(s, ops.Const(s, shape, values), dt)
}

// dense and sparse are gradients with given values.
func (b *bench) dense(v *ops.Variable, values ...float64) optimizers.Grad {
	return optimizers.Grad{Variable: v, Gradient: gradients.Gradient{Dense: numbers(b.Root(), v.DType(), v.Shape(), values...)}}
}

func (b *bench) sparse(v *ops.Variable, indices []int64, values ...float64) optimizers.Grad {
	shape := v.Shape()
	denseShape := ops.Const(b.Root(), ops.Shape{int64(len(shape))}, []int64(shape))
	shape[0] = int64(len(indices))
	return optimizers.Grad{Variable: v, Gradient: gradients.Gradient{Slices: &gradients.IndexedSlices{
		Values:     numbers(b.Root(), v.DType(), shape, values...),
		Indices:    ops.Const(b.Root(), ops.Shape{int64(len(indices))}, indices),
		DenseShape: denseShape,
	}}}
}

func (b *bench) apply(o trainer, grads ...optimizers.Grad) *optimizers.TrainOp {
	b.t.Helper()
	train, err := o.ApplyGradients(grads)
	require.NoError(b.t, err)
	return train
}

func (b *bench) minimize(o trainer, loss tf.Output, vars ...*ops.Variable) *optimizers.TrainOp {
	b.t.Helper()
	train, err := o.Minimize(loss, vars)
	require.NoError(b.t, err)
	return train
}

// sum is the sum of all elements.
func sum(s *ops.Scope, t tf.Output) tf.Output {
	return raw.Sum(s, raw.Reshape(s, t, ops.Const(s, ops.Shape{1}, []int32{-1})), ops.Number(s, tf.Int32, 0))
}

// trainer is any optimizer of the package.
type trainer interface {
	optimizers.Rule
	ApplyGradients(grads []optimizers.Grad, before ...*tf.Operation) (*optimizers.TrainOp, error)
	Minimize(loss tf.Output, vars []*ops.Variable, opts ...optimizers.GradientOptions) (*optimizers.TrainOp, error)
	Slot(v *ops.Variable, name string) (*ops.Variable, bool)
	State(g *ops.Graph) []*ops.Variable
}

// near says that numbers agree to a relative error.
func near(t *testing.T, want, got []float64, relative float64, context ...any) {
	t.Helper()
	require.Len(t, got, len(want), context...)
	for i := range want {
		if math.IsNaN(want[i]) {
			require.True(t, math.IsNaN(got[i]), "element %d is %v, wanted NaN %v", i, got[i], context)
			continue
		}
		require.InDelta(t, want[i], got[i], relative*max(math.Abs(want[i]), 1e-3), context...)
	}
}
