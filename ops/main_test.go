package ops_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	graphpb "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if tensors, bytes := bridge.Live(); tensors != 0 && code == 0 {
		fmt.Printf("%d tensors of %d bytes were not closed\n", tensors, bytes)
		code = 1
	}
	os.Exit(code)
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
	run(t, s, init)
	return s
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func run(t testing.TB, s *bridge.Session, targets ...*tf.Operation) {
	t.Helper()
	require.NoError(t, s.Run(deadline(t), targets...))
}

// feed is a tensor fed in a run.
type feed struct {
	to    tf.Output
	value *bridge.Tensor
}

// fed makes a feed; the tensor is closed with the test.
func fed[T bridge.Element](t testing.TB, to tf.Output, shape ops.Shape, data ...T) feed {
	t.Helper()
	v, err := bridge.FromFlat(shape, data)
	require.NoError(t, err)
	t.Cleanup(func() { v.Close() })
	return feed{to, v}
}

// fetch runs and returns the tensors, which are closed with the test.
func fetch(t testing.TB, s *bridge.Session, outputs []tf.Output, feeds ...feed) []*bridge.Tensor {
	t.Helper()
	call := bridge.Call{Fetches: outputs}
	var values []*bridge.Tensor
	for _, f := range feeds {
		call.Feeds = append(call.Feeds, f.to)
		values = append(values, f.value)
	}
	results, err := s.Call(deadline(t), call, values...)
	require.NoError(t, err)
	for _, r := range results {
		t.Cleanup(func() { r.Close() })
	}
	return results
}

// floats is one tensor's elements as float64.
func floats(t testing.TB, s *bridge.Session, out tf.Output, feeds ...feed) []float64 {
	t.Helper()
	values, err := bridge.ToFloat64(fetch(t, s, []tf.Output{out}, feeds...)[0])
	require.NoError(t, err)
	return values
}

// graphDef is a GraphDef given as protobuf text.
func graphDef(t testing.TB, text string) []byte {
	t.Helper()
	var def graphpb.GraphDef
	require.NoError(t, prototext.Unmarshal([]byte(text), &def))
	bytes, err := proto.Marshal(&def)
	require.NoError(t, err)
	return bytes
}
