package gradients_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if tensors, bytes := bridge.Live(); code == 0 && tensors != 0 {
		fmt.Fprintf(os.Stderr, "%d tensors of %d bytes were not closed\n", tensors, bytes)
		code = 1
	}
	os.Exit(code)
}

// scope is the least that a gradients.Scope can be: a name prefix on a graph.
type scope struct {
	*scopeGraph
	prefix, device string
}

type scopeGraph struct {
	g     *tf.Graph
	names map[string]int
	err   error
}

func newScope() *scope {
	return &scope{scopeGraph: &scopeGraph{g: tf.NewGraph(), names: map[string]int{}}}
}

func (s *scope) unique(name string) string {
	key := strings.ToLower(name)
	n := s.names[key]
	s.names[key] = n + 1
	if n == 0 {
		return name
	}
	return s.unique(fmt.Sprintf("%s_%d", name, n))
}

func (s *scope) Add(spec bridge.OpSpec) *tf.Operation {
	if s.err != nil {
		return nil
	}
	if spec.Name == "" {
		spec.Name = spec.Type
	}
	spec.Name = s.unique(s.prefix + spec.Name)
	if spec.Device == "" {
		spec.Device = s.device
	}
	op, err := bridge.AddOperation(s.g, spec)
	if err != nil {
		s.err = err
		return nil
	}
	return op
}

func (s *scope) Err() error    { return s.err }
func (s *scope) TF() *tf.Graph { return s.g }

func (s *scope) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

func (s *scope) Sub(name string) gradients.Scope {
	return &scope{scopeGraph: s.scopeGraph, prefix: s.unique(s.prefix+name) + "/", device: s.device}
}

func (s *scope) On(device string) gradients.Scope {
	return &scope{scopeGraph: s.scopeGraph, prefix: s.prefix, device: device}
}

// placeholder is fed; a nil shape is of unknown rank.
func (s *scope) placeholder(dt tf.DataType, shape bridge.Shape) tf.Output {
	return tf.Output{Op: s.Add(bridge.OpSpec{Type: "Placeholder", Attrs: []bridge.Attr{
		{Name: "dtype", Value: dt}, {Name: "shape", Value: shape}}})}
}

// constant is a Const node of Go values.
func constant[T bridge.Element](s *scope, shape bridge.Shape, values ...T) tf.Output {
	t, err := bridge.FromFlat(shape, values)
	if err != nil {
		s.Fail(err)
		return tf.Output{}
	}
	defer t.Close()
	return tf.Output{Op: s.Add(bridge.OpSpec{Type: "Const", Attrs: []bridge.Attr{
		{Name: "value", Value: t}, {Name: "dtype", Value: t.DType()}}})}
}

func ints(s *scope, values ...int32) tf.Output {
	return constant(s, bridge.Shape{int64(len(values))}, values...)
}

func scalar[T bridge.Element](s *scope, v T) tf.Output { return constant(s, bridge.Shape{}, v) }

// values runs a graph that is fed nothing and returns the tensors as float64.
func (s *scope) values(t *testing.T, fetches ...tf.Output) [][]float64 {
	t.Helper()
	require.NoError(t, s.err)
	return newRunner(t, s, nil, fetches).run(t)
}

// runner runs one signature of a graph repeatedly.
type runner struct {
	step *bridge.Step
	out  *bridge.Outputs
	n    int
}

func newRunner(t *testing.T, s *scope, feeds, fetches []tf.Output) *runner {
	t.Helper()
	sess, err := bridge.NewSession(s.g, bridge.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { sess.Close() })
	step, err := sess.Prepare(bridge.Call{Feeds: feeds, Fetches: fetches})
	require.NoError(t, err)
	out := step.NewOutputs()
	t.Cleanup(func() { out.Close() })
	return &runner{step: step, out: out, n: len(fetches)}
}

func (r *runner) run(t *testing.T, feeds ...*bridge.Tensor) [][]float64 {
	t.Helper()
	require.NoError(t, r.step.Run(t.Context(), feeds, r.out))
	result := make([][]float64, r.n)
	for i := range result {
		v, err := bridge.ToFloat64(r.out.Tensor(i))
		require.NoError(t, err)
		result[i] = v
	}
	return result
}

func tensor[T bridge.Element](t *testing.T, shape bridge.Shape, values ...T) *bridge.Tensor {
	t.Helper()
	x, err := bridge.FromFlat(shape, values)
	require.NoError(t, err)
	t.Cleanup(func() { x.Close() })
	return x
}
