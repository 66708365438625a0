package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/savedmodels"
)

// served is a SavedModel of an MLP of ten layers, which all sides load or have the graph of.
type served struct {
	dir   string
	graph *ops.Graph
	x, y  tf.Output
}

func newServed(ctx context.Context, dir string) (*served, error) {
	g := ops.NewGraph(ops.GraphOptions{Seed: 1})
	m := &served{dir: filepath.Join(dir, "bench-model"), graph: g, x: g.Placeholder("x", tf.Float, ops.Shape{-1, deep[0]})}
	m.y = m.x
	for i := range len(deep) - 1 {
		layer := g.Scope(fmt.Sprintf("layer%d", i))
		w := layer.Variable("w", ops.Shape{deep[i], deep[i+1]}, ops.Uniform(0, 0.1))
		b := layer.Variable("b", ops.Shape{deep[i+1]}, ops.Zeros())
		m.y = raw.Relu(layer, raw.AddV2(layer, raw.MatMul(layer, m.y, w.Value()), b.Value()))
	}
	session, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		return nil, err
	}
	defer session.Close()
	if err := session.Run(ctx, g.Init()); err != nil {
		return nil, err
	}
	return m, savedmodels.Save(ctx, g, session, m.dir, savedmodels.SaveOptions{Overwrite: true, Signatures: map[string]savedmodels.SignatureSpec{
		"serving_default": {Inputs: map[string]tf.Output{"x": m.x}, Outputs: map[string]tf.Output{"y": m.y}}}})
}

// spec writes the model's graph for the C peer, fed a batch.
func (m *served) spec(prefix string, batch int64) (string, error) {
	def, err := bridge.GraphDef(m.graph.TF())
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("graph %s.pb\ninit %s\nfetch %s %d\nfeed %s 0 2 %d %d\n", prefix, m.graph.Init().Name(), m.y.Op.Name(), m.y.Index, m.x.Op.Name(), batch, deep[0])
	return prefix + ".spec", errors.Join(os.WriteFile(prefix+".pb", def, 0o644), os.WriteFile(prefix+".spec", []byte(text), 0o644))
}

// models loads and runs a SavedModel beside Python and C.
func (s *stories) models(ctx context.Context, dir, c string, py *child) error {
	m, err := newServed(ctx, dir)
	if err != nil {
		return err
	}
	s.table = append(s.table, bench{
		name: "model_load_and_first_run_python",
		ours: []form{timed("Load and Run", func(ctx context.Context) error {
			loaded, err := savedmodels.Load(m.dir, savedmodels.Options{})
			if err != nil {
				return err
			}
			defer loaded.Close()
			return loaded.Warmup(ctx)
		})},
		peers: []form{py.form("Python", "model_load/saved_model")}, runs: 3, rounds: 5})

	loaded, err := savedmodels.Load(m.dir, savedmodels.Options{})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, loaded.Close)
	for _, batch := range []int64{1, 32} {
		x, err := bridge.NewTensor(tf.Float, bridge.Shape{batch, deep[0]})
		if err != nil {
			return err
		}
		s.closers = append(s.closers, x.Close)
		in := savedmodels.Tensors{"x": x}
		once := func(ctx context.Context) error {
			out, err := loaded.Run(ctx, "serving_default", in)
			if err != nil {
				return err
			}
			return out.Close()
		}
		spec, err := m.spec(filepath.Join(dir, fmt.Sprintf("bench-model-%d", batch)), batch)
		if err != nil {
			return err
		}
		peer, err := start(ctx, c, spec)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, peer.Close)
		for _, callers := range []int{1, 8, 64} {
			ours := []form{shared("Model.Run", callers, once)}
			var settings []form
			for _, name := range []string{"default", "caller", "one_thread_caller"} {
				settings = append(settings, peer.form("C", fmt.Sprintf("%s@%d", name, callers)))
			}
			name := fmt.Sprintf("model_run_batch%d_callers%d", batch, callers)
			s.table = append(s.table,
				bench{name: name + "_c", ours: ours, peers: settings, runs: 1600, oursOverPeer: true},
				bench{name: name + "_python", ours: ours, peers: []form{py.form("Python", fmt.Sprintf("model_run_%d_%d/signature", batch, callers))}, runs: 640, rounds: 7})
		}
	}
	return nil
}

// shared does n runs by a number of goroutines at once.
func shared(name string, callers int, once func(ctx context.Context) error) form {
	return form{name, func(ctx context.Context, n int) (float64, error) {
		var (
			wg     sync.WaitGroup
			mu     sync.Mutex
			failed error
		)
		each := max(1, n/callers)
		begin := time.Now()
		for range callers {
			wg.Go(func() {
				for range each {
					if err := once(ctx); err != nil {
						mu.Lock()
						failed = err
						mu.Unlock()
						return
					}
				}
			})
		}
		wg.Wait()
		return float64(time.Since(begin).Nanoseconds()) / float64(each*callers), failed
	}}
}
