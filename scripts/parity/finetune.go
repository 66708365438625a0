package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/savedmodels"
)

func init() { register("finetune", tuningSection) }

// tuningCase is a model that Python made, and what it has after some steps there.
type tuningCase struct {
	Name, Signature, Output string
	Steps                   int
	Rate, Momentum          float64
	Inputs, Weights         map[string]Array
	Target, Losses          Array
}

// tuningBound is how far weights and outputs may be from Python's, relatively. Weights
// below weightFloor count as that: the bias of an attention's keys has a gradient of zero,
// of which both sides have nothing but rounding.
const (
	tuningBound = 1e-5
	weightFloor = 1e-2
)

// tuningSection trains models from Python further here and there, saves them back, and
// has Python's loaders run what was saved.
func tuningSection(ctx context.Context, h *Harness) (Result, error) {
	var result Result
	models := map[string]*opReport{}
	result.Report = models
	saved, err := os.MkdirTemp(h.Dir, "tuned")
	if err != nil {
		return result, err
	}
	outputs := map[string]savedmodels.Tensors{}
	defer func() {
		for _, out := range outputs {
			out.Close()
		}
	}()
	if err := tuneAll(ctx, h, &result, models, saved, outputs); err != nil {
		return result, err
	}
	rec, err := h.Python(ctx, "finetune", "--read", saved)
	if err != nil {
		return result, err
	}
	defer rec.Close()
	var doc struct {
		Cases []struct {
			Name, Signature string
			By              map[string]map[string]Array
		}
	}
	if err := rec.Document(&doc); err != nil {
		return result, err
	}
	if len(doc.Cases) != len(outputs) {
		return result, fmt.Errorf("Python has read %d models of %d", len(doc.Cases), len(outputs))
	}
	for _, c := range doc.Cases {
		if len(c.By) < 2 {
			return result, fmt.Errorf("Python has run %s in %d ways", c.Name, len(c.By))
		}
		for _, how := range slices.Sorted(maps.Keys(c.By)) {
			worst, err := comparedAll(rec, 0, outputs[c.Name], c.By[how])
			result.count(models, c.Name, c.Name+"/"+how, worst, err)
		}
	}
	return result, nil
}

func comparedAll(rec *Recording, floor float64, got savedmodels.Tensors, want map[string]Array) (worst float64, err error) {
	if a, b := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(a, b) {
		return 0, fmt.Errorf("gives %q, in Python %q", a, b)
	}
	var wrong []error
	for name, array := range want {
		rel, err := rec.CompareAbove(floor, got[name], array)
		worst = max(worst, rel)
		if err == nil && !(rel <= tuningBound) {
			err = fmt.Errorf("relative error %.2g, at most %.2g", rel, tuningBound)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
	}
	return worst, errors.Join(wrong...)
}

func tuneAll(ctx context.Context, h *Harness, result *Result, models map[string]*opReport, saved string, outputs map[string]savedmodels.Tensors) error {
	rec, err := h.Python(ctx, "finetune")
	if err != nil {
		return err
	}
	defer rec.Close()
	var doc struct{ Cases []tuningCase }
	if err := rec.Document(&doc); err != nil {
		return err
	}
	for i, c := range doc.Cases {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		h.Progress.At("models", i, len(doc.Cases))
		worst, out, err := c.tune(ctx, rec, filepath.Join(saved, c.Name))
		if out != nil {
			outputs[c.Name] = out
		}
		result.count(models, c.Name, c.Name+"/weights", worst, err)
	}
	return nil
}

// tune trains the model as Python did, compares losses and weights, saves it back, and
// returns what it then gives.
func (c *tuningCase) tune(ctx context.Context, rec *Recording, into string) (worst float64, _ savedmodels.Tensors, err error) {
	in := savedmodels.Tensors{}
	defer in.Close()
	for name, array := range c.Inputs {
		if in[name], err = rec.Tensor(array); err != nil {
			return 0, nil, err
		}
	}
	target, err := rec.Tensor(c.Target)
	if err != nil {
		return 0, nil, err
	}
	defer target.Close()
	feeds := []*bridge.Tensor{target}
	var call bridge.Call
	weights := bridge.Call{Exclusive: true}
	names := slices.Sorted(maps.Keys(c.Weights))
	m, err := savedmodels.FineTune(ctx, filepath.Join(rec.Dir, c.Name, "1"), savedmodels.TuneOptions{Build: func(m *savedmodels.Tuned) error {
		g := m.Ops()
		goal := g.Placeholder("goal", tf.Float, ops.Shape(c.Target.Shape))
		call.Feeds = append(call.Feeds, goal)
		for name, value := range in {
			x, err := m.Input(c.Signature, name)
			if err != nil {
				return err
			}
			call.Feeds, feeds = append(call.Feeds, x), append(feeds, value)
		}
		y, err := m.Output(c.Signature, c.Output)
		if err != nil {
			return err
		}
		var vars []*ops.Variable
		for _, name := range names {
			v, err := g.VariableByName(name)
			if err != nil {
				return err
			}
			if !v.Trainable() {
				return fmt.Errorf("variable %s is not trainable here", name)
			}
			vars = append(vars, v)
			weights.Fetches = append(weights.Fetches, v.Value())
		}
		axes := make([]int32, len(c.Target.Shape))
		for i := range axes {
			axes[i] = int32(i)
		}
		loss := raw.Mean(g, raw.Square(g, raw.Sub(g, y, goal)), g.Const(axes))
		call.Fetches = []tf.Output{loss}
		train, err := optimizers.NewMomentum(c.Rate, c.Momentum).Minimize(loss, vars)
		if err != nil {
			return err
		}
		call.Targets = []*tf.Operation{train.Op}
		return nil
	}})
	if err != nil {
		return 0, nil, err
	}
	defer m.Close()
	losses := make([]float32, c.Steps)
	for i := range losses {
		out, err := m.Session().Call(ctx, call, feeds...)
		if err != nil {
			return 0, nil, err
		}
		losses[i], err = bridge.Item[float32](out[0])
		out[0].Close()
		if err != nil {
			return 0, nil, err
		}
	}
	got := savedmodels.Tensors{}
	defer got.Close()
	if got["losses"], err = bridge.FromFlat(bridge.Shape{int64(c.Steps)}, losses); err != nil {
		return 0, nil, err
	}
	values, err := m.Session().Call(ctx, weights)
	if err != nil {
		return 0, nil, err
	}
	want := map[string]Array{"losses": c.Losses}
	for i, name := range names {
		got[name], want[name] = values[i], c.Weights[name]
	}
	worst, different := comparedAll(rec, weightFloor, got, want)
	if err := m.SaveBack(ctx, into, savedmodels.SaveBackOptions{}); errors.Is(err, bridge.ErrUnimplemented) {
		return worst, nil, different // several nodes for a variable, as the documentation says
	} else if err != nil {
		return worst, nil, errors.Join(different, err)
	}
	out, err := m.Run(ctx, c.Signature, in)
	return worst, out, errors.Join(different, err)
}
