package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// A tower is a forward graph of many nodes, as a GraphDef that both sides import, and what is differentiated
// in it. In its layers, products, broadcasts, activations, reductions over an unknown batch, slices and
// joins take turns.
type tower struct {
	def   []byte
	nodes int
	Y     string   `json:"y"`
	Xs    []string `json:"xs"`
}

func newTower(nodes int) (*tower, error) {
	const width = 8
	g := ops.NewGraph(ops.GraphOptions{})
	s := g.Root()
	last, one, both, columns := s.Const([]int32{-1}), s.Const(float32(1)), s.Const([]int32{0, 1}), s.Const(int32(1))
	t := &tower{}
	x := g.Placeholder("x", tf.Float, ops.Shape{-1, width})
	h := x
	var w, b tf.Output
	for i := 0; bridge.NumOperations(g.TF()) < nodes-25; i++ {
		layer := g.Scope(fmt.Sprintf("layer%d", i))
		if i%10 == 0 { // ten layers share their weights, and their gradients are summed
			w = layer.Placeholder("w", tf.Float, ops.Shape{width, width})
			b = layer.Placeholder("b", tf.Float, ops.Shape{width})
			t.Xs = append(t.Xs, w.Op.Name()+":0", b.Op.Name()+":0")
		}
		z := raw.AddV2(layer, raw.MatMul(layer, h, w), b)
		gate := raw.Sigmoid(layer, z)
		z = raw.Mul(layer, gate, raw.Tanh(layer, z))
		mean := raw.Mean(layer, z, last, raw.WithKeepDims(true))
		z = raw.Sub(layer, z, mean)
		scale := raw.Rsqrt(layer, raw.AddV2(layer, raw.Mean(layer, raw.Square(layer, z), last, raw.WithKeepDims(true)), one))
		parts := raw.Split(layer, columns, raw.Mul(layer, z, scale), 2)
		h = raw.AddV2(layer, h, raw.ConcatV2(layer, []tf.Output{parts[1], raw.Relu(layer, parts[0])}, columns))
	}
	y := raw.Mean(s, raw.SquaredDifference(s, h, x), both)
	t.Y = y.Op.Name() + ":0"
	if err := g.Err(); err != nil {
		return nil, err
	}
	t.nodes = bridge.NumOperations(g.TF())
	var err error
	t.def, err = bridge.GraphDef(g.TF())
	return t, err
}

// differentiate imports the graph and returns how many nanoseconds its gradients took to build, the import not counted.
func (t *tower) differentiate() (float64, error) {
	graph := tf.NewGraph()
	if err := graph.Import(t.def, ""); err != nil {
		return 0, err
	}
	tensor := func(name string) tf.Output { return graph.Operation(name[:len(name)-len(":0")]).Output(0) }
	xs := make([]tf.Output, len(t.Xs))
	for i, name := range t.Xs {
		xs[i] = tensor(name)
	}
	y := tensor(t.Y)
	g := ops.FromTF(graph, ops.GraphOptions{})
	begin := time.Now()
	_, err := ops.Gradients(g.Root(), []tf.Output{y}, xs)
	return float64(time.Since(begin).Nanoseconds()), err
}

// gradients builds the gradients of a forward graph of 10,000 nodes, beside Python on the same graph.
func (s *stories) gradients(_ context.Context, dir string, py *child) error {
	t, err := newTower(10_000)
	if err != nil {
		return err
	}
	prefix := filepath.Join(dir, "bench-gradients")
	names, err := json.Marshal(t)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{prefix + ".pb": t.def, prefix + ".json": names} {
		if err := os.WriteFile(name, data, 0o644); err != nil {
			return err
		}
	}
	ours := form{"ops.Gradients", func(ctx context.Context, n int) (float64, error) {
		sum := 0.0
		for range n {
			ns, err := t.differentiate()
			if err != nil {
				return 0, err
			}
			sum += ns
		}
		return sum / float64(n), nil
	}}
	s.table = append(s.table, bench{name: "gradients_10k_python", ours: []form{ours}, peers: []form{py.form("Python", "gradients/tf_gradients")}, runs: 1, rounds: 3})
	return nil
}
