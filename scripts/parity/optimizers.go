package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/optimizers/schedules"
)

func init() {
	register("optimizers", func(ctx context.Context, h *Harness) (Result, error) {
		return trainAll(ctx, h, "optimizers", optimizerTable)
	})
}

// A trained is a line of the tables of optimizers and wrappers: what trains a
// small model in Python and here, for 200 steps.
type trained struct {
	of, variant string // the entry of the report, and which of its cases
	kind        string // of Python's: keras, v1, own (a class of optimizers.py)
	python      string // Python's, as text that optimizers.py evaluates
	ours        func(n numbersOf) optimizer
	// rate is at first as large as leaves float32 the digits to compare: what
	// training makes of its last digit in 200 steps. 0 is 2^-8.
	rate float64
	// slots are our names of Python's slots; "" is one that we do without.
	slots map[string]string
	// loose is the bound in 32 bits, if not 1e-5 (fused: 1e-6), and why.
	fused bool
	loose float64
	// loose64 is the bound for float64, if not a millionth of that.
	loose64 float64
	why     string
	// dtypes are the only ones, if not all that Python runs.
	dtypes   []string
	constant bool    // no scheduled rate
	modulus  float64 // of variables that live on a circle
	refused  string  // the dtype that Python refuses, beside those of 16 bits
	// differs says why Python's is known to be another: the two have to differ.
	differs string
}

// numbersOf are the hyperparameters of a dtype: numbers that it can hold
// exactly, since Python keeps some of them in float32 whatever the variable.
type numbersOf struct {
	Rate                                  ops.Hyperparameter `json:"-"`
	Mu, B1, B2, Eps, L1, L2, Decay, Start float64
}

func numbersFor(dtype string, rate float64, scheduled bool) numbersOf {
	n := numbersOf{Mu: .875, B1: .875, B2: 1 - 0x1p-10, Eps: 0x1p-20, L1: 0x1p-9, L2: 0x1p-6, Decay: 0x1p-4, Start: .125}
	if dtype == "half" || dtype == "bfloat16" {
		n.B2, n.Eps = 1-0x1p-5, 0x1p-8
	}
	n.Rate = optimizers.Value(rate)
	if scheduled {
		n.Rate = schedules.ExponentialDecay{Initial: rate, Steps: 128, Rate: .25}
	}
	return n
}

// trainedCase is what Python is asked for.
type trainedCase struct {
	Name, DType, Kind, Python string
	Rate                      float64
	Scheduled                 bool
	Numbers                   numbersOf
	of                        *trained
}

// trainedResult is what Python found: every step of each variable and slot.
type trainedResult struct {
	Error   string
	Start   map[string]Array
	Targets Array
	Want    map[string]Array
}

func trainAll(ctx context.Context, h *Harness, section string, table []trained) (Result, error) {
	var cases []trainedCase
	for i := range table {
		t := &table[i]
		for _, dtype := range []string{"float32", "float64", "half", "bfloat16"} {
			if t.dtypes != nil && !slices.Contains(t.dtypes, dtype) {
				continue
			}
			for _, scheduled := range []bool{false, true} {
				if scheduled && t.constant {
					continue
				}
				rate := t.rate
				if rate == 0 {
					rate = 0x1p-8
				}
				c := trainedCase{DType: dtype, Kind: t.kind, Python: t.python, Rate: rate, Scheduled: scheduled, of: t}
				c.Numbers = numbersFor(dtype, rate, scheduled)
				c.Name = fmt.Sprintf("%s, %s, %s rate", t.variant, dtype, map[bool]string{false: "constant", true: "scheduled"}[scheduled])
				if t.variant == "" {
					c.Name = c.Name[2:]
				}
				if h.Wants(t.of + ", " + c.Name) {
					cases = append(cases, c)
				}
			}
		}
	}
	if err := writeTable(filepath.Join(h.Dir, section), cases); err != nil {
		return Result{}, err
	}
	rec, err := h.Python(ctx, section)
	if err != nil {
		return Result{}, err
	}
	defer rec.Close()
	var found struct {
		IDs   Array
		Cases []trainedResult
	}
	if err := rec.Document(&found); err != nil {
		return Result{}, err
	}
	if len(found.Cases) != len(cases) {
		return Result{}, fmt.Errorf("of %[2]d cases, %[1]d were answered by Python", len(found.Cases), len(cases))
	}
	reports := newTrainReports()
	var notes []string
	for i, c := range cases {
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		h.Progress.At("Go", i, len(cases))
		if found.Cases[i].Error != "" && (c.short() || c.DType == c.of.refused) {
			reports.refused(c.of.of, c.Name, found.Cases[i].Error)
			continue
		}
		dense, sparse, err := c.train(ctx, rec, found.IDs, found.Cases[i])
		bound := c.bound()
		if c.of.differs != "" {
			if err == nil && max(dense.error, sparse.error) < 100*bound {
				err = errors.New("compare with Python's result, which is the same now")
			}
			notes = append(notes, fmt.Sprintf("%s, %s: Python's differs by %.2g: %s", c.of.of, c.Name, max(dense.error, sparse.error), c.of.differs))
			dense.error, sparse.error = 0, 0
		}
		reports.add(c.of.of, c.Name+", dense, "+dense.where, dense.error, bound, err)
		reports.add(c.of.of, c.Name+", sparse, "+sparse.where, sparse.error, bound, nil)
		entry := reports.entries[c.of.of]
		if entry.ByDType == nil {
			entry.ByDType = map[string]float64{}
		}
		if worst := max(dense.error, sparse.error); !math.IsInf(worst, 0) { // which JSON has no word for
			entry.ByDType[c.DType] = max(entry.ByDType[c.DType], worst)
		}
		if c.of.why != "" {
			entry.Loose = c.of.why
		}
	}
	result := reports.finish()
	result.Notes = notes
	return result, nil
}

func writeTable(dir string, cases []trainedCase) error {
	lower := func(n numbersOf) map[string]float64 {
		return map[string]float64{"mu": n.Mu, "b1": n.B1, "b2": n.B2, "eps": n.Eps, "l1": n.L1, "l2": n.L2, "decay": n.Decay, "start": n.Start}
	}
	rows := make([]map[string]any, len(cases))
	for i, c := range cases {
		rows[i] = map[string]any{"name": c.Name, "dtype": c.DType, "kind": c.Kind, "python": c.Python, "rate": c.Rate,
			"scale": c.scale(), "scheduled": c.Scheduled, "numbers": lower(c.Numbers)}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "table.json"), text, 0o644)
}

// bound is how far apart the two sides may be after any step.
func (c trainedCase) bound() float64 {
	loose := 1e-5
	if c.of.fused {
		loose = 1e-6
	}
	if c.of.loose != 0 {
		loose = c.of.loose
	}
	if c.DType == "float64" && c.of.loose64 != 0 {
		return c.of.loose64
	}
	if c.short() && !c.of.fused {
		return 2 * tolerance(c.DType, 0) // a handful of roundings on either side
	}
	return tolerance(c.DType, loose)
}

// scale is what the loss is multiplied by: in 16 bits, as one does there, so
// that squares of gradients have digits.
func (c trainedCase) scale() float64 {
	if c.short() {
		return 32
	}
	return 1
}

func (c trainedCase) short() bool { return c.DType == "half" || c.DType == "bfloat16" }

// farthest is where the two sides are farthest apart.
type farthest struct {
	error float64
	where string
}

func (f *farthest) see(d float64, name string, step int) {
	if d > f.error || f.where == "" {
		*f = farthest{d, fmt.Sprintf("%s after step %d", name, step)}
	}
}

// train is optimizers.py's train, and the largest relative error after any step
// of the variables with dense gradients and of the one with a sparse gradient,
// slots included.
//
// Both sides go their own way for all steps. In 16 bits, where one rounding
// grows to other weights altogether within some steps, each step begins with
// what Python had after the one before.
func (c trainedCase) train(ctx context.Context, rec *Recording, idArray Array, want trainedResult) (dense, sparse farthest, err error) {
	if want.Error != "" {
		return dense, sparse, errors.New("Python: " + want.Error)
	}
	dt, err := bridge.ParseDType(c.DType)
	if err != nil {
		return dense, sparse, err
	}
	l := newLab(rec, 7) // optimizers.py's SEED
	defer l.close()
	s := l.Root()
	vars := map[string]*ops.Variable{}
	var list []*ops.Variable
	for _, name := range []string{"table", "cube", "w", "b", "gain"} {
		vars[name] = l.variable(name, want.Start[name], dt, true)
		list = append(list, vars[name])
	}
	ids := l.Placeholder("ids", tf.Int32, ops.Shape{idArray.Shape[1]})
	f := ops.NewFormula(s, dt)
	shape := ops.Const(s, ops.Shape{2}, []int32{4, 4})
	hidden := f.Tanh(raw.MatMul(s, vars["table"].Gather(s, ids), raw.Reshape(s, vars["cube"].Value(), shape)))
	out := f.Mul(vars["gain"].Value(), f.Add(f.Tanh(raw.MatMul(s, hidden, vars["w"].Value())), vars["b"].Value()))
	targets := raw.GatherV2(s, l.constant(want.Targets, dt), ids, ops.Number(s, tf.Int32, 0))
	loss := f.Mul(f.Constant(c.scale()), mean(s, raw.SquaredDifference(s, out, targets)))

	o := c.of.ours(c.Numbers)
	train, err := o.Minimize(loss, list)
	if err != nil {
		return dense, sparse, err
	}

	type tracked struct {
		name    string
		of      *ops.Variable
		want    [][]byte
		largest float64 // magnitude that an element has had
	}
	var all []tracked
	steps := 0
	for _, name := range slices.Sorted(maps.Keys(want.Want)) {
		array := want.Want[name]
		v := vars[name]
		if of, slot, isSlot := strings.Cut(name, "/"); isSlot {
			if ours, known := c.of.slots[slot]; known {
				slot = ours
			}
			if slot == "" {
				continue
			}
			var ok bool
			if averages, keeps := o.(interface {
				Average(*ops.Variable) (*ops.Variable, bool)
			}); keeps && slot == "average" {
				v, ok = averages.Average(vars[of])
			} else {
				v, ok = o.Slot(vars[of], slot)
			}
			if !ok {
				return dense, sparse, fmt.Errorf("Python has a slot %s, we have no %q", name, slot)
			}
		}
		data, err := rec.Bytes(array)
		if err != nil {
			return dense, sparse, err
		}
		steps = int(array.Shape[0])
		if got := v.Shape(); !slices.Equal([]int64(got), array.Shape[1:]) {
			return dense, sparse, fmt.Errorf("%s is %v, Python's is %v", name, got, array.Shape[1:])
		}
		all = append(all, tracked{name: name, of: v, want: slices.Collect(slices.Chunk(data, len(data)/steps))})
	}

	var call bridge.Call
	var restores []*tf.Operation
	for _, t := range all {
		call.Fetches = append(call.Fetches, t.of.Value())
		fed := l.Placeholder("restored", dt, t.of.Shape())
		call.Feeds = append(call.Feeds, fed)
		restores = append(restores, t.of.Assign(s, fed))
	}
	restore := l.Group("restore", restores...)
	if err := l.start(ctx); err != nil {
		return dense, sparse, err
	}
	step, err := l.session.Prepare(bridge.Call{Feeds: []tf.Output{ids}, Targets: []*tf.Operation{train.Op}})
	if err != nil {
		return dense, sparse, err
	}
	read, err := l.session.Prepare(bridge.Call{Fetches: call.Fetches})
	if err != nil {
		return dense, sparse, err
	}
	now := read.NewOutputs()
	defer now.Close()
	put, err := l.session.Prepare(bridge.Call{Feeds: call.Feeds, Targets: []*tf.Operation{restore}})
	if err != nil {
		return dense, sparse, err
	}
	idBytes, err := rec.Bytes(idArray)
	if err != nil {
		return dense, sparse, err
	}
	idRows := slices.Collect(slices.Chunk(idBytes, len(idBytes)/int(idArray.Shape[0])))
	for i := range steps {
		if i > 0 && c.short() {
			before := make([]*bridge.Tensor, len(all))
			for k, t := range all {
				if before[k], err = bridge.FromBytes(dt, t.of.Shape(), t.want[i-1]); err != nil {
					return dense, sparse, err
				}
				defer before[k].Close()
			}
			if err := put.Run(ctx, before, nil); err != nil {
				return dense, sparse, err
			}
		}
		fed, err := bridge.FromBytes(tf.Int32, ops.Shape{idArray.Shape[1]}, idRows[i])
		if err != nil {
			return dense, sparse, err
		}
		err = step.Run(ctx, []*bridge.Tensor{fed}, nil)
		_ = fed.Close()
		if err != nil {
			return dense, sparse, err
		}
		if err := read.Run(ctx, nil, now); err != nil {
			return dense, sparse, err
		}
		for k, t := range all {
			view, err := now.Tensor(k).Bytes()
			if err != nil {
				return dense, sparse, err
			}
			ours, err := numbers(c.DType, view)
			if err != nil {
				return dense, sparse, err
			}
			theirs, err := numbers(c.DType, t.want[i])
			if err != nil {
				return dense, sparse, err
			}
			// As in difference, but an element that comes close to 0 on its
			// way is held to the precision of where it has been.
			d := 0.0
			for _, e := range theirs {
				if m := magnitude(e); !math.IsInf(m, 0) && !math.IsNaN(m) {
					all[k].largest = max(all[k].largest, m)
				}
			}
			for e := range theirs {
				d = max(d, relative(ours[e], theirs[e], all[k].largest/10))
			}
			if c.of.modulus != 0 && vars[t.name] != nil {
				d = onCircle(ours, theirs, c.of.modulus)
			}
			of := &dense
			if strings.HasPrefix(t.name, "table") {
				of = &sparse
			}
			of.see(d, t.name, i)
		}
	}
	return dense, sparse, nil
}
