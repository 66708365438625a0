package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/python"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
)

// applier is what all optimizers have in common.
type applier interface {
	ApplyGradients(grads []optimizers.Grad, before ...*tf.Operation) (*optimizers.TrainOp, error)
}

// optimizerRows are the optimizers whose step is measured: Python's text for
// peers/optimizers.py, and how many slots the rule reads and writes.
var optimizerRows = []struct {
	name, python string
	slots        int
	make         func() applier
	// lazy updates only the rows of a sparse gradient; nil: there is no such form.
	lazy func() applier
}{
	{"sgd", "keras.SGD(0.01)", 0, func() applier { return optimizers.NewGradientDescent(.01) }, func() applier { return optimizers.NewGradientDescent(.01) }},
	{"momentum", "keras.SGD(0.01, momentum=0.9)", 1, func() applier { return optimizers.NewMomentum(.01, .9) }, func() applier { return optimizers.NewMomentum(.01, .9, optimizers.V1) }},
	{"rmsprop", "keras.RMSprop(0.001)", 1, func() applier { return optimizers.NewRMSprop(.001) }, func() applier { return optimizers.NewRMSprop(.001, optimizers.V1) }},
	{"adam", "keras.Adam(0.001)", 2, func() applier { return optimizers.NewAdam(.001) }, func() applier { a := optimizers.NewAdam(.001); a.Lazy = true; return a }},
	{"amsgrad", "keras.Adam(0.001, amsgrad=True)", 3, func() applier { a := optimizers.NewAdam(.001); a.AMSGrad = true; return a }, nil},
	{"adamw", "keras.AdamW(0.001)", 2, func() applier { return optimizers.NewAdamW(.001, .004) }, nil},
	{"adadelta", "keras.Adadelta(0.001)", 2, func() applier { return optimizers.NewAdadelta(.001) }, func() applier { return optimizers.NewAdadelta(.001, optimizers.V1) }},
	{"adagrad", "keras.Adagrad(0.001)", 1, func() applier { return optimizers.NewAdagrad(.001) }, func() applier { return optimizers.NewAdagrad(.001) }},
	{"adamax", "keras.Adamax(0.001)", 2, func() applier { return optimizers.NewAdamax(.001) }, func() applier { a := optimizers.NewAdamax(.001); a.Lazy = true; return a }},
	{"nadam", "keras.Nadam(0.001)", 2, func() applier { return optimizers.NewNadam(.001) }, func() applier { n := optimizers.NewNadam(.001); n.Lazy = true; return n }},
	{"ftrl", "keras.Ftrl(0.001)", 2, func() applier { return optimizers.NewFtrl(.001) }, func() applier { return optimizers.NewFtrl(.001, optimizers.V1) }},
	{"lion", "keras.Lion(0.001)", 1, func() applier { return optimizers.NewLion(.001) }, func() applier { l := optimizers.NewLion(.001); l.Lazy = true; return l }},
	{"lamb", "keras.Lamb(0.001)", 2, func() applier { return optimizers.NewLamb(.001) }, nil},
	{"adafactor", "keras.Adafactor(0.001)", 0, func() applier { return optimizers.NewAdafactor(.001) }, nil},
	{"muon", "keras.Muon(0.001)", 2, func() applier { return optimizers.NewMuon(.001) }, nil},
	{"schedule_free_adamw", "keras.ScheduleFreeAdamW(0.001)", 2, func() applier { return optimizers.NewScheduleFreeAdamW(.001) }, nil},
	{"adagrad_da", "v1.AdagradDAOptimizer(0.01, step)", 2, func() applier { return optimizers.NewAdagradDA(.01) }, func() applier { return optimizers.NewAdagradDA(.01) }},
	{"proximal_descent", "v1.ProximalGradientDescentOptimizer(0.01)", 0, func() applier { return optimizers.NewProximalGradientDescent(.01, 0, 0) }, func() applier { return optimizers.NewProximalGradientDescent(.01, 0, 0) }},
	{"proximal_adagrad", "v1.ProximalAdagradOptimizer(0.01)", 1, func() applier { return optimizers.NewProximalAdagrad(.01, 0, 0) }, func() applier { return optimizers.NewProximalAdagrad(.01, 0, 0) }},
	{"add_sign", "AddSign(0.01)", 1, func() applier { return optimizers.NewAddSign(.01) }, func() applier { s := optimizers.NewAddSign(.01); s.Lazy = true; return s }},
	{"power_sign", "PowerSign(0.01)", 1, func() applier { return optimizers.NewPowerSign(.01) }, func() applier { s := optimizers.NewPowerSign(.01); s.Lazy = true; return s }},
	{"floormod", "FloorMod(0.01, 5.0)", 0, func() applier { return optimizers.NewFloorMod(.01, modulus) }, func() applier { return optimizers.NewFloorMod(.01, modulus) }},
}

const (
	tenMillion = 10_000_000
	touched    = 1000 // rows of a sparse step
)

// optimizerBenches are the steps of all optimizers, without the rest of a
// training: variables of 64×64 elements, or one of ten million; gradients are
// the values of other variables. Everything is made when it is first run and
// freed when its row is done.
func optimizerBenches(py func(ctx context.Context) (*child, error)) []bench {
	var all []bench
	for _, o := range optimizerRows {
		for _, n := range []struct {
			name  string
			count int
			shape ops.Shape
			runs  int
		}{{"1", 1, ops.Shape{64, 64}, 200}, {"20", 20, ops.Shape{64, 64}, 50}, {"200", 200, ops.Shape{64, 64}, 8}, {"10m", 1, ops.Shape{5000, 2000}, 1}} {
			// Muon multiplies matrices, of which ten million elements would take minutes.
			if o.name == "muon" && n.name == "10m" {
				n.shape = ops.Shape{tenMillion}
			}
			step := func(ctx context.Context) (*stepping, error) { return newStepping(ctx, n.count, n.shape, o.make()) }
			kernel := func(ctx context.Context) (*stepping, error) { return newKernels(ctx, n.count, n.shape, o.slots) }
			peer := form{"Python tf.function", func(ctx context.Context, runs int) (float64, error) {
				c, err := py(ctx)
				if err != nil {
					return 0, err
				}
				return c.form("", fmt.Sprintf("%s|%d|%s", o.name, n.count, dims(n.shape))).run(ctx, runs)
			}}
			ours, free := lazily("ours", step)
			all = append(all, bench{name: o.name + "_step_" + n.name, ours: []form{ours}, peers: []form{peer}, runs: n.runs, rounds: 7, done: free})
			ours, free = lazily("ours", step)
			raw, freeRaw := lazily(fmt.Sprintf("fused kernel of %d slots", o.slots), kernel)
			all = append(all, bench{name: o.name + "_step_" + n.name + "_vs_kernel", ours: []form{ours}, peers: []form{raw}, runs: n.runs, rounds: 7,
				oursOverPeer: true, done: func() error { return errors.Join(free(), freeRaw()) }})
		}
		if o.lazy == nil {
			continue
		}
		large, free := lazily("table of ten million rows", func(ctx context.Context) (*stepping, error) { return newSparse(ctx, tenMillion, o.lazy()) })
		small, freeSmall := lazily("table of ten thousand rows", func(ctx context.Context) (*stepping, error) { return newSparse(ctx, 10_000, o.lazy()) })
		all = append(all, bench{name: o.name + "_sparse_10m_rows", ours: []form{large}, peers: []form{small}, runs: 20, rounds: 7, oursOverPeer: true,
			done: func() error { return errors.Join(free(), freeSmall()) }})
	}
	return all
}

func dims(shape ops.Shape) string {
	text := ""
	for i, d := range shape {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprint(d)
	}
	return text
}

// optimizerPeer starts the Python process of the optimizers when it is first
// asked for, and tells it their texts.
func (s *stories) optimizerPeer() func(ctx context.Context) (*child, error) {
	var py *child
	return func(ctx context.Context) (*child, error) {
		if py != nil {
			return py, nil
		}
		interpreter, err := python.Interpreter()
		if err != nil {
			return nil, err
		}
		args := []string{filepath.Join("scripts", "bench", "peers", "optimizers.py")}
		for _, o := range optimizerRows {
			args = append(args, o.name+"="+o.python)
		}
		if py, err = start(ctx, interpreter, args...); err != nil {
			return nil, err
		}
		s.closers = append(s.closers, py.Close)
		return py, nil
	}
}

// lazily is a form that is made when it first runs, and what frees it.
func lazily(name string, build func(ctx context.Context) (*stepping, error)) (form, func() error) {
	var made *stepping
	run := func(ctx context.Context, n int) (float64, error) {
		if made == nil {
			var err error
			if made, err = build(ctx); err != nil {
				return 0, err
			}
		}
		begin := time.Now()
		for range n {
			if err := made.step.Run(ctx, nil, nil); err != nil {
				return 0, err
			}
		}
		return float64(time.Since(begin).Nanoseconds()) / float64(n), nil
	}
	free := func() error {
		if made == nil {
			return nil
		}
		session := made.session
		made = nil
		return session.Close()
	}
	return form{name, run}, free
}

// A stepping is a step that is run again and again.
type stepping struct {
	session *bridge.Session
	step    *bridge.Step
}

// trainable makes variables and as many gradients, which are variables too.
func trainable(g *ops.Graph, count int, shape ops.Shape) (vars, grads []*ops.Variable) {
	for i := range count {
		vars = append(vars, g.Variable(fmt.Sprintf("w%d", i), shape, ops.Value(.5)))
		grads = append(grads, g.Variable(fmt.Sprintf("g%d", i), shape, ops.Value(.001)))
	}
	return vars, grads
}

func newStepping(ctx context.Context, count int, shape ops.Shape, o applier) (*stepping, error) {
	g := ops.NewGraph(ops.GraphOptions{Seed: 1})
	vars, values := trainable(g, count, shape)
	grads := make([]optimizers.Grad, count)
	for i, v := range vars {
		grads[i] = optimizers.Grad{Variable: v, Gradient: gradients.Gradient{Dense: values[i].Value()}}
	}
	train, err := o.ApplyGradients(grads)
	if err != nil {
		return nil, err
	}
	return prepareStepping(ctx, g, train.Op)
}

// newKernels is the fused operation of as many slots for each variable, and
// nothing else: the least that such a step can cost.
func newKernels(ctx context.Context, count int, shape ops.Shape, slots int) (*stepping, error) {
	g := ops.NewGraph(ops.GraphOptions{Seed: 1})
	vars, values := trainable(g, count, shape)
	s := g.Root()
	number := func(v float64) tf.Output { return ops.Number(s, tf.Float, v) }
	rate, beta1, beta2, epsilon := number(.001), number(.9), number(.999), number(1e-7)
	var all []*tf.Operation
	for i, v := range vars {
		handles := make([]tf.Output, slots)
		for k := range handles {
			handles[k] = g.Variable(fmt.Sprintf("s%d_%d", i, k), shape, ops.Zeros()).Handle()
		}
		w, grad := v.Handle(), values[i].Value()
		var op *tf.Operation
		switch slots {
		case 0:
			op = raw.ResourceApplyGradientDescent(s, w, rate, grad)
		case 1:
			op = raw.ResourceApplyMomentum(s, w, handles[0], rate, grad, beta1)
		case 2:
			op = raw.ResourceApplyAdam(s, w, handles[0], handles[1], beta1, beta2, rate, beta1, beta2, epsilon, grad)
		case 3:
			op = raw.ResourceApplyAdamWithAmsgrad(s, w, handles[0], handles[1], handles[2], beta1, beta2, rate, beta1, beta2, epsilon, grad)
		}
		all = append(all, op)
	}
	return prepareStepping(ctx, g, g.Group("step", all...))
}

// newSparse is a step on 1,000 rows of a table of one column.
func newSparse(ctx context.Context, rows int64, o applier) (*stepping, error) {
	g := ops.NewGraph(ops.GraphOptions{Seed: 1})
	table := g.Variable("table", ops.Shape{rows, 1}, ops.Value(.5))
	values := g.Variable("values", ops.Shape{touched, 1}, ops.Value(.001))
	ids := make([]int32, touched)
	for i := range ids {
		ids[i] = int32(int64(i) * (rows / touched))
	}
	train, err := o.ApplyGradients([]optimizers.Grad{{Variable: table, Gradient: gradients.Gradient{Slices: &gradients.IndexedSlices{
		Values: values.Value(), Indices: ops.Const(g.Root(), ops.Shape{touched}, ids),
		DenseShape: ops.Const(g.Root(), ops.Shape{2}, []int64{rows, 1})}}}})
	if err != nil {
		return nil, err
	}
	return prepareStepping(ctx, g, train.Op)
}

func prepareStepping(ctx context.Context, g *ops.Graph, target *tf.Operation) (*stepping, error) {
	if err := g.Err(); err != nil {
		return nil, err
	}
	session, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		return nil, err
	}
	err = session.Run(ctx, g.Init())
	if err == nil {
		var step *bridge.Step
		if step, err = session.Prepare(bridge.Call{Targets: []*tf.Operation{target}}); err == nil {
			return &stepping{session, step}, nil
		}
	}
	return nil, errors.Join(err, session.Close())
}
