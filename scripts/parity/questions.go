package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/optimizers/schedules"
)

func init() { register("questions", questions) }

// questionCase is a case of questions.py, of either question.
type questionCase struct {
	Question, Name, DType string
	Rate                  float64
	Steps                 int

	// Custom updates.
	Sparse, Phases        bool
	Shape                 []int64
	Variable, Clip        string
	Modulus, Mean, Stddev float64
	Limit                 float64
	RateKind              string `json:"rate_kind"`
	ModulusKind           string `json:"modulus_kind"`
	IDs                   Array  `json:"ids"`
	X, Target, Want       Array
	Start                 Array

	// Freezing.
	Way, Rule             string
	Z, Real, Opens        Array
	Starts, Last, History map[string]Array
}

// questions trains as Python did and compares every step.
func questions(ctx context.Context, h *Harness) (Result, error) {
	rec, err := h.Python(ctx, "questions")
	if err != nil {
		return Result{}, err
	}
	defer rec.Close()
	var cases []questionCase
	if err := rec.Document(&cases); err != nil {
		return Result{}, err
	}
	reports := newTrainReports()
	for i, c := range cases {
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		h.Progress.At("Go", i, len(cases))
		var worst float64
		if c.Question == "freezing" {
			worst, err = freezing(ctx, rec, c)
		} else {
			worst, err = customUpdates(ctx, rec, c)
		}
		reports.add(c.Question, c.Name, worst, tolerance(c.DType, 0), err)
	}
	return reports.finish(), nil
}

// customUpdates is the first question: the floormod rule, 200 steps.
func customUpdates(ctx context.Context, rec *Recording, c questionCase) (float64, error) {
	const seed = 7 // as in questions.py
	dt, err := bridge.ParseDType(c.DType)
	if err != nil {
		return 0, err
	}
	l := newLab(rec, seed)
	defer l.close()
	s := l.Root()
	f := ops.NewFormula(s, dt)
	w := l.variable(c.Variable, c.Start, dt, true)
	target := l.constant(c.Target, dt)
	ids := l.Placeholder("ids", tf.Int32, ops.Shape{-1})
	var y tf.Output
	switch {
	case c.Sparse:
		y = w.Gather(s, ids)
	case c.Phases:
		y = raw.MatMul(s, l.constant(c.X, dt), f.Cos(w.Value()))
	default:
		y = raw.MatMul(s, l.constant(c.X, dt), w.Value())
	}
	loss := f.Mul(mean(s, f.Square(f.Sub(y, target))), f.Constant(4))

	rule := optimizers.NewFloorMod(c.Rate, c.Modulus)
	rule.Mean, rule.Stddev = optimizers.Value(c.Mean), optimizers.Value(c.Stddev)
	rate, modulus := l.placeholder("rate"), l.placeholder("modulus")
	switch c.RateKind {
	case "decay":
		rule.Rate = schedules.ExponentialDecay{Initial: c.Rate, Steps: 100, Rate: 0.5}
	case "fed":
		rule.Rate = ops.Fed(rate)
	}
	if c.ModulusKind == "fed" {
		rule.Modulus = ops.Fed(modulus)
	}
	grads, err := optimizers.ComputeGradients(loss, []*ops.Variable{w})
	if err != nil {
		return 0, err
	}
	if grads[0].IsSparse() != c.Sparse {
		return 0, fmt.Errorf("a sparse gradient: %v, wanted %v", grads[0].IsSparse(), c.Sparse)
	}
	switch c.Clip {
	case "value":
		grads, err = optimizers.ClipByValue(grads, -c.Limit, c.Limit)
	case "norm":
		grads, err = optimizers.ClipByNorm(grads, c.Limit)
	case "global_norm":
		grads, err = optimizers.ClipByGlobalNorm(grads, c.Limit)
	}
	if err != nil {
		return 0, err
	}
	train, err := rule.ApplyGradients(grads)
	if err != nil {
		return 0, err
	}
	if err := l.start(ctx); err != nil {
		return 0, err
	}

	var allIDs []byte
	batch := 0
	if c.Sparse {
		batch = 4 * int(c.IDs.Shape[1])
		if allIDs, err = rec.Bytes(c.IDs); err != nil {
			return 0, err
		}
	}
	want, err := steps(rec, c.Want)
	if err != nil {
		return 0, err
	}
	worst := 0.0
	for step := range c.Steps {
		b := c.Modulus
		var feeds []feed
		if c.Sparse {
			value, err := bridge.FromBytes(tf.Int32, ops.Shape{c.IDs.Shape[1]}, allIDs[step*batch:(step+1)*batch])
			if err != nil {
				return 0, err
			}
			feeds = append(feeds, feed{ids, value})
		}
		if c.RateKind == "fed" {
			value, err := scalar(rate, c.Rate/float64(1+step%3))
			if err != nil {
				return 0, err
			}
			feeds = append(feeds, value)
		}
		if c.ModulusKind == "fed" {
			if step%2 == 1 {
				b *= 1.25
			}
			value, err := scalar(modulus, b)
			if err != nil {
				return 0, err
			}
			feeds = append(feeds, value)
		}
		if err := l.run(ctx, train.Op, feeds...); err != nil {
			return 0, err
		}
		got, err := l.bits(ctx, w)
		if err != nil {
			return 0, err
		}
		now, err := numbers(c.DType, got[w.Name()])
		if err != nil {
			return 0, err
		}
		worst = max(worst, onCircle(now, want[step], b))
		if worst > 1e-3 {
			return worst, fmt.Errorf("relative error %.2g at step %d", worst, step)
		}
		for _, n := range now {
			// Rows that a step leaves out may be of the modulus before.
			if v := real(n); !inRange(v, b) && !(c.Sparse && c.ModulusKind == "fed") {
				return worst, fmt.Errorf("%v is outside of the circle of %v", v, b)
			}
		}
	}
	return worst, nil
}

// steps cuts a recorded history into the numbers of each step.
func steps(rec *Recording, a Array) ([][]complex128, error) {
	data, err := rec.Bytes(a)
	if err != nil {
		return nil, err
	}
	all, err := numbers(a.DType, data)
	if err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(all, len(all)/int(a.Shape[0]))), nil
}

// inRange says that a weight is in [0, b), or in (b, 0] for a negative b. b
// itself is rounded for the variable, which may round it up.
func inRange(w, b float64) bool {
	b32 := float64(float32(b))
	return b > 0 && 0 <= w && w < max(b, b32) || b < 0 && min(b, b32) < w && w <= 0
}

// onCircle is the largest distance of numbers on the circle of b, where b and 0
// are one place, in parts of its length.
func onCircle(got, want []complex128, b float64) float64 {
	b = math.Abs(b)
	worst := 0.0
	for i := range want {
		d := (real(got[i]) - real(want[i])) / b
		worst = max(worst, math.Abs(d-math.Round(d)))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
	}
	return worst
}

// freezing is the second question: who is frozen stays bit-identical in every
// turn, slots included, and the trained side is Python's.
func freezing(ctx context.Context, rec *Recording, c questionCase) (float64, error) {
	dt, err := bridge.ParseDType(c.DType)
	if err != nil {
		return 0, err
	}
	p, err := newAdversaries(rec, c, dt)
	if err != nil {
		return 0, err
	}
	defer p.close()
	turns, err := p.turns(c)
	if err != nil {
		return 0, err
	}
	if err := p.start(ctx); err != nil {
		return 0, err
	}
	opens, err := steps(rec, c.Opens)
	if err != nil {
		return 0, err
	}
	want := map[string][][]complex128{}
	for name, history := range c.History {
		if want[name], err = steps(rec, history); err != nil {
			return 0, err
		}
	}
	worst := 0.0
	for turn := range c.Steps {
		open := real(opens[turn][0])
		train, frozen := turns(turn, open)
		frozen = p.withSlots(frozen)
		before, err := p.bits(ctx, frozen...)
		if err != nil {
			return 0, err
		}
		for _, t := range train {
			value, err := scalar(p.open, open)
			if err != nil {
				return 0, err
			}
			if err := p.run(ctx, t.Op, value); err != nil {
				return 0, err
			}
		}
		after, err := p.bits(ctx, frozen...)
		if err != nil {
			return 0, err
		}
		for name, bits := range before {
			if !slices.Equal(bits, after[name]) {
				return worst, fmt.Errorf("%s is not bit-identical after turn %d", name, turn)
			}
		}
		now, err := p.bits(ctx, p.vars...)
		if err != nil {
			return 0, err
		}
		for name, bits := range now {
			got, err := numbers(c.DType, bits)
			if err != nil {
				return 0, err
			}
			worst = max(worst, difference(got, want[name][turn]))
		}
	}
	slots := 0
	for name, array := range c.Last {
		variable, slot, isSlot := strings.Cut(name, " ")
		if !isSlot {
			continue
		}
		slots++
		v := p.slot(variable, slot)
		if v == nil {
			return worst, fmt.Errorf("no slot %s of %s", slot, variable)
		}
		results, err := p.session.Call(ctx, bridge.Call{Fetches: []tf.Output{v.Value()}})
		if err != nil {
			return worst, err
		}
		d, err := rec.Compare(results[0], array)
		_ = results[0].Close()
		if err != nil {
			return worst, fmt.Errorf("slot %s of %s: %w", slot, variable, err)
		}
		worst = max(worst, d)
	}
	if c.Rule != "descent" && slots == 0 {
		return worst, errors.New("Python has recorded no slots")
	}
	return worst, nil
}

// adversaries are the nets of the second question, Z → [G] → [D].
type adversaries struct {
	*lab
	open         tf.Output
	vars         []*ops.Variable // G's weights and bias, D's weights and bias
	lossD, lossG tf.Output
	optimizers   []optimizer
}

func newAdversaries(rec *Recording, c questionCase, dt tf.DataType) (*adversaries, error) {
	p := &adversaries{lab: newLab(rec, 0)}
	s := p.Root()
	p.open = p.placeholder("open")
	for _, name := range []string{"gan/G/w", "gan/G/b", "gan/D/w", "gan/D/b"} {
		trainable := c.Way != "trainable" || ops.InScope(name, "gan/D")
		p.vars = append(p.vars, p.variable(name, c.Starts[name], dt, trainable))
	}
	layer := func(x tf.Output, w, b *ops.Variable) tf.Output {
		return raw.Tanh(s, raw.BiasAdd(s, raw.MatMul(s, x, w.Value()), b.Value()))
	}
	fake := layer(p.constant(c.Z, dt), p.vars[0], p.vars[1])
	switch c.Way {
	case "gate":
		fake = ops.Gate(s, p.open, fake)
	case "stop_gradient":
		fake = ops.StopGradient(s, fake)
	}
	scoreFake := layer(fake, p.vars[2], p.vars[3])
	scoreReal := layer(p.constant(c.Real, dt), p.vars[2], p.vars[3])
	f := ops.NewFormula(s, dt)
	p.lossD = f.Sub(sum(s, f.Square(scoreFake)), sum(s, scoreReal))
	p.lossG = f.Neg(sum(s, scoreFake))
	return p, p.Err()
}

// turns builds the train ops of a way of freezing, and says which of them run
// in a turn and what they have to leave alone.
func (p *adversaries) turns(c questionCase) (func(turn int, open float64) ([]*optimizers.TrainOp, []*ops.Variable), error) {
	for range 2 {
		o, err := makeOptimizer(c.Rule, optimizers.Value(c.Rate), p.vars[0].DType())
		if err != nil {
			return nil, err
		}
		p.optimizers = append(p.optimizers, o)
	}
	g, d := p.vars[:2], p.vars[2:]
	var trains []*optimizers.TrainOp
	var failed error
	minimize := func(o optimizer, loss tf.Output, vars []*ops.Variable) {
		train, err := o.Minimize(loss, vars, optimizers.GradientOptions{AllowMissing: c.Way == "stop_gradient"})
		failed = errors.Join(failed, err)
		trains = append(trains, train)
	}
	always := func(frozen []*ops.Variable) func(int, float64) ([]*optimizers.TrainOp, []*ops.Variable) {
		return func(int, float64) ([]*optimizers.TrainOp, []*ops.Variable) { return trains, frozen }
	}
	var turns func(int, float64) ([]*optimizers.TrainOp, []*ops.Variable)
	switch c.Way {
	case "scope":
		minimize(p.optimizers[0], p.lossD, p.Trainable("gan/D/"))
		minimize(p.optimizers[1], p.lossG, p.Trainable("gan/G/"))
		turns = func(turn int, _ float64) ([]*optimizers.TrainOp, []*ops.Variable) {
			return trains[turn%2 : turn%2+1], [][]*ops.Variable{g, d}[turn%2]
		}
	case "variables":
		minimize(p.optimizers[0], p.lossD, d[:1])
		turns = always([]*ops.Variable{g[0], g[1], d[1]})
	case "trainable", "stop_gradient":
		minimize(p.optimizers[0], p.lossD, p.Trainable())
		turns = always(g)
	case "gate":
		minimize(p.optimizers[0], p.lossD, p.Trainable())
		turns = func(_ int, open float64) ([]*optimizers.TrainOp, []*ops.Variable) {
			if open == 0 && c.Rule == "descent" {
				return trains, g
			}
			return trains, nil // the others move on, as Python's do
		}
	case "gated":
		// One step: D is trained freely, G by an optimizer behind a gate. Both
		// gradients are of the values before the step.
		grads, err := optimizers.ComputeGradients(p.lossD, p.vars)
		if err != nil {
			return nil, err
		}
		gated, err := optimizers.Gated(p.optimizers[1], ops.Fed(p.open)).ApplyGradients(grads[:2], grads[2].Dense.Op, grads[3].Dense.Op)
		if err != nil {
			return nil, err
		}
		first := []*tf.Operation{grads[0].Dense.Op, grads[1].Dense.Op}
		free, err := p.optimizers[0].ApplyGradients(grads[2:], first...)
		if err != nil {
			return nil, err
		}
		both := &optimizers.TrainOp{Op: p.Group("both", gated.Op, free.Op)}
		turns = func(_ int, open float64) ([]*optimizers.TrainOp, []*ops.Variable) {
			if open == 0 {
				return []*optimizers.TrainOp{both}, g
			}
			return []*optimizers.TrainOp{both}, nil
		}
	default:
		return nil, fmt.Errorf("no way of freezing %q", c.Way)
	}
	return turns, failed
}

func (p *adversaries) slot(variable, name string) *ops.Variable {
	for _, v := range p.vars {
		for _, o := range p.optimizers {
			if slot, ok := o.Slot(v, name); ok && v.Name() == variable {
				return slot
			}
		}
	}
	return nil
}

// withSlots are variables and their slots.
func (p *adversaries) withSlots(vars []*ops.Variable) []*ops.Variable {
	all := slices.Clone(vars)
	for _, v := range vars {
		for _, name := range []string{"momentum", "m", "v"} {
			if slot := p.slot(v.Name(), name); slot != nil {
				all = append(all, slot)
			}
		}
	}
	return all
}
