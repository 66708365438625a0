package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/python"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
)

const (
	rows    = 32
	rate    = 0.01
	modulus = 5
	million = 1_000_000
)

var (
	small = []int64{10, 64, 1}
	deep  = []int64{64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64} // ten layers: twenty variables
)

// A model is an MLP with a train op, in a session of its own for every way to run it.
type model struct {
	graph  *ops.Graph
	x, y   tf.Output
	loss   tf.Output
	train  *tf.Operation
	fixups []*tf.Operation // one floormod assignment per variable
	feeds  []*bridge.Tensor
}

// minimizer is what all optimizers have in common.
type minimizer interface {
	Minimize(loss tf.Output, vars []*ops.Variable, opts ...optimizers.GradientOptions) (*optimizers.TrainOp, error)
}

func newModel(sizes []int64, optimizer minimizer) (*model, error) {
	g := ops.NewGraph(ops.GraphOptions{Seed: 1})
	m := &model{
		graph: g,
		x:     g.Placeholder("x", tf.Float, ops.Shape{-1, sizes[0]}),
		y:     g.Placeholder("y", tf.Float, ops.Shape{-1, sizes[len(sizes)-1]}),
	}
	h := m.x
	for i := range len(sizes) - 1 {
		layer := g.Scope(fmt.Sprintf("layer%d", i))
		w := layer.Variable("w", ops.Shape{sizes[i], sizes[i+1]}, ops.Uniform(0, 0.1))
		b := layer.Variable("b", ops.Shape{sizes[i+1]}, ops.Zeros())
		h = raw.AddV2(layer, raw.MatMul(layer, h, w.Value()), b.Value())
		if i < len(sizes)-2 {
			h = raw.Relu(layer, h)
		}
	}
	m.loss = ops.MeanSquaredError(g.Root(), m.y, h)
	train, err := optimizer.Minimize(m.loss, g.Trainable())
	if err != nil {
		return nil, err
	}
	m.train = train.Op
	f := ops.NewFormula(g.Scope("fixup"), tf.Float)
	for _, v := range g.Trainable() {
		m.fixups = append(m.fixups, v.Assign(f.Scope, f.FloorMod(v.Read(f.Scope), f.Constant(modulus))))
	}
	for _, columns := range []int64{sizes[0], sizes[len(sizes)-1]} {
		data := make([]float32, rows*columns)
		for i := range data {
			data[i] = float32(i*7919%101) / 101
		}
		t, err := bridge.FromFlat(bridge.Shape{rows, columns}, data)
		if err != nil {
			return nil, err
		}
		m.feeds = append(m.feeds, t)
	}
	return m, g.Err()
}

func (m *model) call(targets ...*tf.Operation) bridge.Call {
	return bridge.Call{Feeds: []tf.Output{m.x, m.y}, Fetches: []tf.Output{m.loss}, Targets: targets}
}

// open makes a session in which the variables have their initial values.
func (m *model) open(ctx context.Context, config bridge.Config) (*bridge.Session, error) {
	session, err := bridge.NewSession(m.graph.TF(), config)
	if err != nil {
		return nil, err
	}
	return session, errors.Join(session.Run(ctx, m.graph.Init()))
}

// stepper is a prepared run with its outputs.
type stepper struct {
	step *bridge.Step
	out  *bridge.Outputs
	in   []*bridge.Tensor
}

func prepare(session *bridge.Session, call bridge.Call, in []*bridge.Tensor) (stepper, error) {
	step, err := session.Prepare(call)
	if err != nil {
		return stepper{}, err
	}
	return stepper{step, step.NewOutputs(), in}, nil
}

func (s stepper) run(ctx context.Context) error { return s.step.Run(ctx, s.in, s.out) }

// timed makes a form of something that runs once.
func timed(name string, once func(ctx context.Context) error) form {
	return form{name, func(ctx context.Context, n int) (float64, error) {
		begin := time.Now()
		for range n {
			if err := once(ctx); err != nil {
				return 0, err
			}
		}
		return float64(time.Since(begin).Nanoseconds()) / float64(n), nil
	}}
}

// stories holds what the rows are measured on.
type stories struct {
	table   []bench
	steady  stepper
	closers []func() error
}

func (s *stories) benches() []bench { return s.table }

// Close frees all, the last made first.
func (s *stories) Close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}

func newStories(ctx context.Context, dir string) (_ *stories, err error) {
	s := &stories{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	c, py, err := s.children(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := s.smallStep(ctx, dir, c, py); err != nil {
		return nil, err
	}
	if err := s.copies(ctx); err != nil {
		return nil, err
	}
	if err := s.floormod(ctx, py); err != nil {
		return nil, err
	}
	if err := s.models(ctx, dir, c, py); err != nil {
		return nil, err
	}
	return s, s.gradients(ctx, dir, py)
}

// children compiles the C peer and starts the Python one.
func (s *stories) children(ctx context.Context, dir string) (c string, py *child, err error) {
	source := filepath.Join("scripts", "bench", "peers")
	c = filepath.Join(dir, "bench-peer")
	if err := compile(ctx, filepath.Join(source, "peer.c"), c); err != nil {
		return "", nil, err
	}
	interpreter, err := python.Interpreter()
	if err != nil {
		return "", nil, err
	}
	py, err = start(ctx, interpreter, filepath.Join(source, "peer.py"), dir)
	if err != nil {
		return "", nil, err
	}
	s.closers = append(s.closers, py.Close)
	return c, py, nil
}

// add opens a session on the model and prepares the call in it.
func (s *stories) add(ctx context.Context, m *model, config bridge.Config, call bridge.Call) (stepper, *bridge.Session, error) {
	session, err := m.open(ctx, config)
	if err != nil {
		return stepper{}, nil, err
	}
	s.closers = append(s.closers, session.Close)
	step, err := prepare(session, call, m.feeds)
	if err == nil {
		s.closers = append(s.closers, step.out.Close)
	}
	return step, session, err
}

// steps are the ways to run the model's training step: as it comes, and at the setting that is best for small steps.
func (s *stories) steps(ctx context.Context, m *model) ([]form, error) {
	var forms []form
	for _, config := range []struct {
		name string
		bridge.Config
	}{
		{"defaults", bridge.Config{}},
		{"single-threaded executor", bridge.Config{Threading: bridge.SingleThreaded}},
	} {
		step, _, err := s.add(ctx, m, config.Config, m.call(m.train))
		if err != nil {
			return nil, err
		}
		forms = append(forms, timed(config.name, step.run))
		if s.steady.step == nil {
			s.steady = step // the first: the small training step, as it comes
		}
	}
	return forms, nil
}

func (s *stories) model(sizes []int64, optimizer minimizer) (*model, error) {
	m, err := newModel(sizes, optimizer)
	if err != nil {
		return nil, err
	}
	for _, t := range m.feeds {
		s.closers = append(s.closers, t.Close)
	}
	return m, nil
}

// smallStep is a training step of an MLP 10-64-1, batch 32, loss fetched.
func (s *stories) smallStep(ctx context.Context, dir, c string, py *child) error {
	m, err := s.model(small, optimizers.NewGradientDescent(rate))
	if err != nil {
		return err
	}
	ours, err := s.steps(ctx, m)
	if err != nil {
		return err
	}
	peer, err := startC(ctx, c, filepath.Join(dir, "bench-small"), m)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, peer.Close)
	var settings []form
	for _, name := range []string{"default", "caller", "one_thread", "one_thread_caller", "single_threaded_executor", "single_threaded_executor_caller"} {
		settings = append(settings, peer.form("C", name))
	}

	binding, err := s.binding(ctx, m)
	if err != nil {
		return err
	}
	const runs = 500
	s.table = append(s.table,
		bench{name: "small_step_c", ours: ours, peers: settings, runs: runs, oursOverPeer: true},
		bench{name: "small_step_tf_function", ours: ours, peers: []form{py.form("Python", "small/tf_function")}, runs: runs},
		bench{name: "small_step_v1", ours: ours, peers: []form{py.form("Python", "small/session_run"), py.form("Python", "small/make_callable")}, runs: runs},
		bench{name: "small_step_binding", ours: ours, peers: []form{timed("binding Session.Run", binding.step(m))}, runs: runs},
	)
	return nil
}

// startC writes the model's graph and what to run of it for the C peer.
func startC(ctx context.Context, binary, prefix string, m *model) (*child, error) {
	def, err := bridge.GraphDef(m.graph.TF())
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(prefix+".pb", def, 0o644); err != nil {
		return nil, err
	}
	var spec strings.Builder
	fmt.Fprintf(&spec, "graph %s.pb\ninit %s\ntarget %s\nfetch %s %d\n", prefix, m.graph.Init().Name(), m.train.Name(), m.loss.Op.Name(), m.loss.Index)
	for i, feed := range []tf.Output{m.x, m.y} {
		shape := m.feeds[i].Shape()
		fmt.Fprintf(&spec, "feed %s 0 2 %d %d\n", feed.Op.Name(), shape[0], shape[1])
	}
	if err := os.WriteFile(prefix+".spec", []byte(spec.String()), 0o644); err != nil {
		return nil, err
	}
	return start(ctx, binary, prefix+".spec")
}

// A bindingSession runs a model as the binding alone can, at its defaults.
type bindingSession struct {
	session *tf.Session
	feeds   map[tf.Output]*tf.Tensor
}

func (s *stories) binding(ctx context.Context, m *model) (*bindingSession, error) {
	session, err := tf.NewSession(m.graph.TF(), nil)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, session.Close)
	if _, err := session.Run(nil, nil, []*tf.Operation{m.graph.Init()}); err != nil {
		return nil, err
	}
	feeds := map[tf.Output]*tf.Tensor{}
	for i, feed := range []tf.Output{m.x, m.y} {
		if feeds[feed], err = m.feeds[i].TF(); err != nil {
			return nil, err
		}
	}
	return &bindingSession{session, feeds}, nil
}

func (b *bindingSession) step(m *model) func(context.Context) error {
	fetches, targets := []tf.Output{m.loss}, []*tf.Operation{m.train}
	return func(context.Context) error {
		_, err := b.session.Run(b.feeds, fetches, targets)
		return err
	}
}

// copies brings a million floats from a Go slice into a run and out into one, beside one memcpy of them.
func (s *stories) copies(ctx context.Context) error {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Placeholder("x", tf.Float, ops.Shape{million})
	size := raw.Size(g.Root(), x)
	zeros := g.Variable("v", ops.Shape{million}, ops.Zeros())
	if err := g.Err(); err != nil {
		return err
	}
	session, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, session.Close)
	if err := session.Run(ctx, g.Init()); err != nil {
		return err
	}
	from, to := make([]float32, million), make([]float32, million)
	for i := range from { // memory never written to is all one page, and quick to read
		from[i] = float32(i)
	}
	memcpy := timed("memcpy", func(context.Context) error { copy(to, from); return nil })

	fed, err := bridge.NewTensor(tf.Float, bridge.Shape{million})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, fed.Close)
	view, err := bridge.Flat[float32](fed)
	if err != nil {
		return err
	}
	in, err := prepare(session, bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{size}}, []*bridge.Tensor{fed})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, in.out.Close)
	out, err := prepare(session, bridge.Call{Fetches: []tf.Output{zeros.Value()}}, nil)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, out.out.Close)
	if err := bridge.Bind(out.out, 0, to); err != nil {
		return err
	}
	feed := timed("copied into a reused tensor", func(ctx context.Context) error {
		copy(view, from)
		return in.run(ctx)
	})
	fetch := timed("copied into the caller's buffer", out.run)
	s.table = append(s.table,
		bench{name: "feed_memcpy", ours: []form{feed}, peers: []form{memcpy}, runs: 200},
		bench{name: "fetch_memcpy", ours: []form{fetch}, peers: []form{memcpy}, runs: 200},
	)
	return nil
}

// floormod is the founding question: the rule fused into the step, beside a step and one fix-up run per variable.
func (s *stories) floormod(ctx context.Context, py *child) error {
	fused, err := s.model(deep, optimizers.NewFloorMod(rate, modulus))
	if err != nil {
		return err
	}
	plain, err := s.model(deep, optimizers.NewGradientDescent(rate))
	if err != nil {
		return err
	}
	ours, err := s.steps(ctx, fused)
	if err != nil {
		return err
	}
	descent, err := s.steps(ctx, plain)
	if err != nil {
		return err
	}
	binding, err := s.binding(ctx, plain)
	if err != nil {
		return err
	}
	step := binding.step(plain)
	fixup := func(ctx context.Context) error {
		if err := step(ctx); err != nil {
			return err
		}
		for _, fixup := range plain.fixups {
			if _, err := binding.session.Run(nil, nil, []*tf.Operation{fixup}); err != nil {
				return err
			}
		}
		return nil
	}
	var forms []form
	for _, name := range []string{"session_run", "make_callable", "eager", "tf_function"} {
		forms = append(forms, py.form("Python", "fixup/"+name))
	}
	const runs = 200
	s.table = append(s.table,
		bench{name: "floormod_vs_python_fixup", ours: ours, peers: forms, runs: runs / 4},
		bench{name: "floormod_vs_go_fixup", ours: ours, peers: []form{timed("binding Session.Run, a run per variable", fixup)}, runs: runs},
		bench{name: "floormod_vs_gd", ours: ours, peers: descent, runs: runs, oursOverPeer: true},
	)
	return nil
}

// stepAllocs counts Go allocations in a steady training step.
func (s *stories) stepAllocs(ctx context.Context) (row, error) {
	var failed error
	runtime.GC()
	allocs := testing.AllocsPerRun(1000, func() {
		if err := s.steady.run(ctx); err != nil {
			failed = err
		}
	})
	return row{Name: "step_allocs", Ours: allocs, PeerName: "none: a count", Ratio: allocs}, failed
}
