package bridge_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/sluice-ml/sluice/bridge"
	"github.com/stretchr/testify/require"
)

// TestMain fails the run of tests when a tensor or a session is still alive
// after it.
func TestMain(m *testing.M) {
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

// testGraph builds graphs in tests; whatever fails ends the test.
type testGraph struct {
	testing.TB
	*tf.Graph
}

func newGraph(t testing.TB) testGraph { return testGraph{t, tf.NewGraph()} }

func (g testGraph) op(opType, name string, inputs []tf.Output, attrs ...bridge.Attr) *tf.Operation {
	g.Helper()
	spec := bridge.OpSpec{Type: opType, Name: name, Attrs: attrs}
	for _, in := range inputs {
		spec.Inputs = append(spec.Inputs, in)
	}
	op, err := bridge.AddOperation(g.Graph, spec)
	require.NoError(g, err)
	return op
}

func (g testGraph) placeholder(name string, dt tf.DataType, shape bridge.Shape) tf.Output {
	g.Helper()
	return g.op("Placeholder", name, nil, bridge.Attr{Name: "dtype", Value: dt}, bridge.Attr{Name: "shape", Value: shape}).Output(0)
}

func constant[T bridge.Element](g testGraph, name string, shape bridge.Shape, data ...T) tf.Output {
	g.Helper()
	v := flat(g, shape, data...)
	defer v.Close()
	return g.op("Const", name, nil, bridge.Attr{Name: "dtype", Value: v.DType()}, bridge.Attr{Name: "value", Value: v}).Output(0)
}

// variable is a resource variable: its handle and the op that gives it the value.
func (g testGraph) variable(name string, value tf.Output) (handle tf.Output, initialize *tf.Operation) {
	g.Helper()
	handle = g.op("VarHandleOp", name, nil,
		bridge.Attr{Name: "dtype", Value: value.DataType()},
		bridge.Attr{Name: "shape", Value: bridge.ShapeOf(value)},
		bridge.Attr{Name: "shared_name", Value: name}).Output(0)
	return handle, g.op("AssignVariableOp", name+"/Assign", []tf.Output{handle, value})
}

func (g testGraph) read(name string, handle tf.Output, dt tf.DataType) tf.Output {
	g.Helper()
	return g.op("ReadVariableOp", name, []tf.Output{handle}, bridge.Attr{Name: "dtype", Value: dt}).Output(0)
}

func (g testGraph) session(c bridge.Config) *bridge.Session {
	g.Helper()
	s, err := bridge.NewSession(g.Graph, c)
	require.NoError(g, err)
	g.Cleanup(func() { require.NoError(g, s.Close()) })
	return s
}

func prepare(t testing.TB, s *bridge.Session, call bridge.Call) (*bridge.Step, *bridge.Outputs) {
	t.Helper()
	step, err := s.Prepare(call)
	require.NoError(t, err)
	out := step.NewOutputs()
	t.Cleanup(func() { require.NoError(t, out.Close()) })
	return step, out
}

// flat is a tensor that the test closes at its end.
func flat[T bridge.Element](t testing.TB, shape bridge.Shape, data ...T) *bridge.Tensor {
	t.Helper()
	v, err := bridge.FromFlat(shape, data)
	require.NoError(t, err)
	t.Cleanup(func() { v.Close() })
	return v
}

func values[T bridge.Element](t testing.TB, v *bridge.Tensor) []T {
	t.Helper()
	all, err := bridge.Values[T](v)
	require.NoError(t, err)
	return all
}

// fresh is a name that the graph does not have yet.
func (g testGraph) fresh(name string) string {
	for i := 0; ; i++ {
		if n := fmt.Sprintf("%s_%d", name, i); g.Operation(n) == nil {
			return n
		}
	}
}
