package checkpoints_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("SLUICE_TEST_SAVE_UNTIL_KILLED"); dir != "" {
		saveUntilKilled(dir)
	}
	code := m.Run()
	if code == 0 && !allClosed() {
		tensors, bytes := bridge.Live()
		fmt.Fprintf(os.Stderr, "left alive: %d tensors (%d bytes), %d sessions; run with SLUICE_VERIFY=all to see who made them\n",
			tensors, bytes, bridge.LiveSessions())
		for _, leak := range bridge.Leaks() {
			fmt.Fprintln(os.Stderr, leak)
		}
		code = 1
	}
	os.Exit(code)
}

// allClosed gives the net a moment: spare outputs are freed when the collector
// finds their steps.
func allClosed() bool {
	for range 20 {
		if tensors, _ := bridge.Live(); tensors == 0 && bridge.LiveSessions() == 0 {
			return true
		}
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// session is a session on g that is closed with the test.
func session(t testing.TB, g *ops.Graph) *bridge.Session {
	t.Helper()
	require.NoError(t, g.Err())
	s, err := bridge.NewSession(g.TF(), bridge.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// initialized is a session in which g's variables have their initial values.
func initialized(t testing.TB, g *ops.Graph) *bridge.Session {
	t.Helper()
	init := g.Init()
	s := session(t, g)
	require.NoError(t, s.Run(t.Context(), init))
	return s
}

// closed closes a tensor with the test.
func closed(t testing.TB, v *bridge.Tensor, err error) *bridge.Tensor {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { v.Close() })
	return v
}

func floats(t testing.TB, shape bridge.Shape, values ...float32) *bridge.Tensor {
	t.Helper()
	v, err := bridge.FromFlat(shape, values)
	return closed(t, v, err)
}

func texts(t testing.TB, shape bridge.Shape, values ...string) *bridge.Tensor {
	t.Helper()
	v, err := bridge.FromStrings(shape, values)
	return closed(t, v, err)
}

// allTypes is a tensor of random bits of every data type that has elements, and
// of some shapes.
func allTypes(t testing.TB) map[string]*bridge.Tensor {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	all := map[string]*bridge.Tensor{
		"text/scalar": texts(t, bridge.Shape{}, "a\x00b"),
		"text/matrix": texts(t, bridge.Shape{2, 2}, "", strings.Repeat("long ", 20_000), "ä", string(make([]byte, 300))),
		"text/none":   texts(t, bridge.Shape{0, 3}),
		"shape/none":  floats(t, bridge.Shape{2, 0}),
		"shape/five":  floats(t, bridge.Shape{1, 2, 1, 2, 1}, 1, 2, 3, 4),
	}
	for number := tf.DataType(1); number <= bridge.Uint2; number++ {
		if bridge.DTypeSize(number) == 0 || !bridge.HasDType(number) {
			continue
		}
		for _, shape := range []bridge.Shape{{}, {3, 5}} {
			v, err := bridge.NewTensor(number, shape)
			closed(t, v, err)
			data, err := v.Bytes()
			require.NoError(t, err)
			for i := range data {
				data[i] = byte(random.Uint32())
				switch number {
				case tf.Bool:
					data[i] &= 1
				case bridge.Int4, bridge.Uint4:
					data[i] &= 15
				case bridge.Int2, bridge.Uint2:
					data[i] &= 3
				}
			}
			all[fmt.Sprintf("%s/%d", bridge.DTypeName(number), shape.Rank())] = v
		}
	}
	return all
}

// requireSame holds two tensors to the same data type, shape and bits.
func requireSame(t testing.TB, name string, want, got *bridge.Tensor) {
	t.Helper()
	require.Equal(t, want.String(), got.String(), name)
	if want.DType() == tf.String {
		a, err := want.Strings()
		require.NoError(t, err, name)
		b, err := got.Strings()
		require.NoError(t, err, name)
		require.Equal(t, a, b, name)
		return
	}
	a, err := want.Bytes()
	require.NoError(t, err, name)
	b, err := got.Bytes()
	require.NoError(t, err, name)
	require.Equal(t, a, b, name)
}

// tensorflowSaves writes tensors with TensorFlow's own kernel. slices gives, by
// name, "shape slice" of partitioned tensors: the names are then told apart by
// what follows a '#'.
func tensorflowSaves(t testing.TB, prefix string, tensors map[string]*bridge.Tensor, slices map[string]string) {
	t.Helper()
	g := ops.NewGraph(ops.GraphOptions{})
	var names, extents []string
	var inputs []tf.Output
	var fed []*bridge.Tensor
	for name, v := range tensors {
		inputs = append(inputs, g.Placeholder("in", v.DType(), nil))
		fed = append(fed, v)
		extents = append(extents, slices[name])
		name, _, _ = strings.Cut(name, "#")
		names = append(names, name)
	}
	save := raw.SaveV2(g, g.Const(prefix), g.Const(names), g.Const(extents), inputs)
	_, err := session(t, g).Call(t.Context(), bridge.Call{Feeds: inputs, Targets: []*tf.Operation{save}}, fed...)
	require.NoError(t, err)
}

// tensorflowRestores reads a tensor with TensorFlow's own kernel.
func tensorflowRestores(t testing.TB, prefix string, like map[string]*bridge.Tensor) map[string]*bridge.Tensor {
	t.Helper()
	g := ops.NewGraph(ops.GraphOptions{})
	var names []string
	var types []tf.DataType
	for name, v := range like {
		names, types = append(names, name), append(types, v.DType())
	}
	out := raw.RestoreV2(g, g.Const(prefix), g.Const(names), g.Const(make([]string, len(names))), types)
	values, err := session(t, g).Call(t.Context(), bridge.Call{Fetches: out})
	require.NoError(t, err)
	got := map[string]*bridge.Tensor{}
	for i, name := range names {
		got[name] = closed(t, values[i], nil)
	}
	return got
}

// value is a variable's elements.
func value(t testing.TB, sess *bridge.Session, v *ops.Variable) []float64 {
	t.Helper()
	out, err := sess.Call(context.WithoutCancel(t.Context()), bridge.Call{Fetches: []tf.Output{v.Value()}})
	require.NoError(t, err)
	defer out[0].Close()
	values, err := bridge.ToFloat64(out[0])
	require.NoError(t, err)
	return values
}
