package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/savedmodels"
)

func init() { register("savedmodels", savedModelSection) }

// savedModelCase is a run of a signature of a model that Python made.
type savedModelCase struct {
	Name, Model, Signature string
	Tags                   []string
	Inputs, Outputs        map[string]Array
	// Gradients are those by inputs and variables, null where there is none, of the
	// outputs times Weights.
	Weights   map[string]Array
	Gradients struct{ Inputs, Variables map[string]*Array }
}

// savedModelSection loads models that Python made and compares what their
// signatures give.
func savedModelSection(ctx context.Context, h *Harness) (Result, error) {
	var result Result
	rec, err := h.Python(ctx, "savedmodels")
	if err != nil {
		return result, err
	}
	defer rec.Close()
	var doc struct{ Cases []savedModelCase }
	if err := rec.Document(&doc); err != nil {
		return result, err
	}
	models := map[string]*opReport{}
	for i, c := range doc.Cases {
		if ctx.Err() != nil {
			return result, ctx.Err()
		}
		h.Progress.At("models", i, len(doc.Cases))
		worst, err := c.check(ctx, rec)
		result.count(models, c.Model, c.Name, worst, err)
	}
	result.Report = models
	return result, nil
}

func (c *savedModelCase) check(ctx context.Context, rec *Recording) (worst float64, err error) {
	var grads differentiatedModel
	m, err := savedmodels.Load(filepath.Join(rec.Dir, c.Model, "1"), savedmodels.Options{Tags: c.Tags, Build: func(m *savedmodels.Model) error {
		return grads.build(m, c, rec)
	}})
	if err != nil {
		return 0, err
	}
	defer m.Close()
	in := savedmodels.Tensors{}
	defer in.Close()
	for name, array := range c.Inputs {
		if in[name], err = rec.Tensor(array); err != nil {
			return 0, fmt.Errorf("input %s: %w", name, err)
		}
	}
	out, err := m.Run(ctx, c.Signature, in)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	if got, want := slices.Sorted(maps.Keys(out)), slices.Sorted(maps.Keys(c.Outputs)); !slices.Equal(got, want) {
		return 0, fmt.Errorf("gives %q, in Python %q", got, want)
	}
	var wrong []string
	for name, want := range c.Outputs {
		if want.DType == "string" {
			if err := sameStrings(rec, out[name], want); err != nil {
				wrong = append(wrong, name+": "+err.Error())
			}
			continue
		}
		rel, err := rec.Compare(out[name], want)
		worst = max(worst, rel)
		switch bound := tolerance(want.DType, 0); {
		case err != nil:
			wrong = append(wrong, name+": "+err.Error())
		case !(rel <= bound):
			wrong = append(wrong, fmt.Sprintf("%s: relative error %.2g, at most %.2g", name, rel, bound))
		}
	}
	if err := frozenAlike(ctx, m, c.Signature, in, out); err != nil {
		wrong = append(wrong, "frozen: "+err.Error())
	}
	for _, o := range []savedmodels.ConvertOptions{{}, {Objects: true}} {
		if err := convertedAlike(ctx, m, c, in, out, o); err != nil {
			wrong = append(wrong, fmt.Sprintf("converted, %+v: %v", o, err))
		}
	}
	different, err := grads.compare(ctx, m, in, rec)
	wrong = append(wrong, different...)
	if wrong != nil || err != nil {
		return worst, errors.Join(err, errors.New(strings.Join(wrong, "; ")))
	}
	return worst, nil
}

// frozenAlike freezes a signature, and holds what the frozen graph gives against what
// the model gave. It can't hold what changes, nor tables that somebody has to fill.
func frozenAlike(ctx context.Context, m *savedmodels.Model, signature string, in, want savedmodels.Tensors) error {
	frozen, err := m.Freeze(ctx, []string{signature}, savedmodels.FreezeOptions{})
	changes := errors.Is(err, bridge.ErrFailedPrecondition) && strings.Contains(err.Error(), "what changes can't be a constant")
	if err != nil && !changes {
		return err
	}
	s, err := m.Signature(signature)
	if err != nil {
		return err
	}
	var call bridge.Call
	for _, p := range s.Outputs {
		out, err := m.Tensor(p.Tensor)
		if err != nil {
			return err
		}
		call.Fetches = append(call.Fetches, out)
	}
	step, err := m.Session().Prepare(call)
	if err != nil {
		return err
	}
	if changes != step.Updates() {
		return fmt.Errorf("refused as changing: %v; it updates variables: %v", changes, step.Updates())
	}
	if changes {
		return nil
	}
	g := tf.NewGraph()
	if _, err := bridge.Import(g, frozen, bridge.ImportOptions{}); err != nil {
		return err
	}
	for op := range bridge.Operations(g) {
		switch op.Type() {
		case "VarHandleOp", "VariableV2", "Variable":
			return fmt.Errorf("it has variable %s", op.Name())
		case "HashTableV2", "MutableHashTableV2":
			return nil
		}
	}
	var feeds []*bridge.Tensor
	call = bridge.Call{}
	tensor := func(name string) (tf.Output, error) {
		node, number, _ := strings.Cut(name, ":")
		op := bridge.OperationByName(g, node)
		index, err := strconv.Atoi(number)
		if op == nil || err != nil {
			return tf.Output{}, fmt.Errorf("there is no %s", name)
		}
		return op.Output(index), nil
	}
	for _, p := range s.Inputs {
		if t := in[p.Name]; t != nil {
			into, err := tensor(p.Tensor)
			if err != nil {
				continue // no output needs it
			}
			call.Feeds, feeds = append(call.Feeds, into), append(feeds, t)
		}
	}
	var computed []savedmodels.Port // what is not an input that is handed on
	for _, p := range s.Outputs {
		out, err := tensor(p.Tensor)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(call.Feeds, func(in tf.Output) bool { return bridge.SameOutput(in, out) }) {
			call.Fetches, computed = append(call.Fetches, out), append(computed, p)
		}
	}
	sess, err := bridge.NewSession(g, bridge.Config{})
	if err != nil {
		return err
	}
	defer sess.Close()
	got, err := sess.Call(ctx, call, feeds...)
	if err != nil {
		return err
	}
	defer func() {
		for _, t := range got {
			t.Close()
		}
	}()
	for i, p := range computed {
		if err := alike(got[i], want[p.Name]); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

// alike holds two tensors against each other that were computed by the same kernels.
func alike(got, want *bridge.Tensor) error {
	if got.DType() != want.DType() || !slices.Equal(got.Shape(), want.Shape()) {
		return fmt.Errorf("%s, wanted %s", got, want)
	}
	switch {
	case got.DType() == tf.String:
		a, _ := got.Strings()
		if b, _ := want.Strings(); !slices.Equal(a, b) {
			return fmt.Errorf("%q, wanted %q", a, b)
		}
		return nil
	case bridge.IsComplex(got.DType()):
		a, _ := got.Bytes()
		if b, _ := want.Bytes(); !bytes.Equal(a, b) {
			return fmt.Errorf("%s, wanted %s", got, want)
		}
		return nil
	}
	a, err := bridge.ToFloat64(got)
	if err != nil {
		return err
	}
	b, err := bridge.ToFloat64(want)
	if err != nil {
		return err
	}
	for k := range a {
		if difference := math.Abs(a[k] - b[k]); !(difference <= 1e-6+1e-5*math.Abs(b[k])) && !(a[k] != a[k] && b[k] != b[k]) {
			return fmt.Errorf("element %d is %v, wanted %v", k, a[k], b[k])
		}
	}
	return nil
}

// convertedAlike writes a model in another form, and holds what that gives against
// what the model gave. Signatures that count go on from where the model is.
func convertedAlike(ctx context.Context, m *savedmodels.Model, c *savedModelCase, in, want savedmodels.Tensors, o savedmodels.ConvertOptions) error {
	dir, err := os.MkdirTemp("", "converted")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	dir = filepath.Join(dir, "1")
	err = m.Convert(ctx, dir, o)
	if errors.Is(err, bridge.ErrUnimplemented) && (strings.Contains(err.Error(), "reference variable") || o.Objects && strings.Contains(err.Error(), "tables")) {
		return nil // as the documentation says
	}
	if err != nil {
		return err
	}
	converted, err := savedmodels.LoadContext(ctx, dir, savedmodels.Options{Tags: m.Tags()})
	if err != nil {
		return err
	}
	defer converted.Close()
	out, err := converted.Run(ctx, c.Signature, in)
	if err != nil {
		return err
	}
	defer out.Close()
	if c.Model == "module_that_counts" {
		again, err := m.Run(ctx, c.Signature, in)
		if err != nil {
			return err
		}
		defer again.Close()
		want = again
	}
	for name, got := range out {
		if want[name] == nil {
			return fmt.Errorf("gives %q", name)
		}
		if err := alike(got, want[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(out) != len(want) {
		return fmt.Errorf("gives %d outputs, wanted %d", len(out), len(want))
	}
	return nil
}

// differentiatedModel is a model with the gradients that Python has computed too.
type differentiatedModel struct {
	call   bridge.Call
	inputs []string // of the call's feeds
	wanted []namedGradient
}

type namedGradient struct {
	name string
	want *Array
}

// build adds the gradients to the model's graph before anything runs in it.
func (d *differentiatedModel) build(m *savedmodels.Model, c *savedModelCase, rec *Recording) error {
	if len(c.Weights) == 0 {
		return nil
	}
	s, err := m.Signature(c.Signature)
	if err != nil {
		return err
	}
	g := ops.FromTF(m.Graph(), ops.GraphOptions{})
	find := func(ports []savedmodels.Port, name string) (tf.Output, error) {
		for _, p := range ports {
			if p.Name == name {
				return m.Tensor(p.Tensor)
			}
		}
		return tf.Output{}, fmt.Errorf("the signature has no %q", name)
	}
	var ys, xs []tf.Output
	var gradYs []ops.Gradient
	for _, name := range slices.Sorted(maps.Keys(c.Weights)) {
		y, err := find(s.Outputs, name)
		if err != nil {
			return err
		}
		weight, err := rec.Tensor(c.Weights[name])
		if err != nil {
			return err
		}
		defer weight.Close()
		ys = append(ys, y)
		gradYs = append(gradYs, ops.Gradient{Dense: g.Const(weight)})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Gradients.Inputs)) {
		x, err := find(s.Inputs, name)
		if err != nil {
			return err
		}
		xs = append(xs, x)
		d.wanted = append(d.wanted, namedGradient{"input " + name, c.Gradients.Inputs[name]})
	}
	handles := map[string]tf.Output{}
	for _, v := range m.Variables() {
		handles[v.Name] = v.Handle
	}
	for _, name := range slices.Sorted(maps.Keys(c.Gradients.Variables)) {
		handle, ok := handles[name]
		if !ok {
			return fmt.Errorf("the model lists no variable %q", name)
		}
		xs = append(xs, handle)
		d.wanted = append(d.wanted, namedGradient{"variable " + name, c.Gradients.Variables[name]})
	}
	grads, err := ops.Gradients(g.Root(), ys, xs, ops.GradientOptions{GradYs: gradYs})
	if err != nil {
		return err
	}
	all := d.wanted
	d.wanted = nil
	for i, grad := range grads {
		switch {
		case !grad.IsNone():
			d.wanted = append(d.wanted, all[i])
			d.call.Fetches = append(d.call.Fetches, raw.Identity(g.Root(), ops.Densify(g.Root(), grad)))
		case all[i].want != nil:
			return fmt.Errorf("the gradient by %s is none, in Python it is a value", all[i].name)
		}
	}
	for name := range c.Inputs {
		in, err := find(s.Inputs, name)
		if err != nil {
			return err
		}
		d.inputs = append(d.inputs, name)
		d.call.Feeds = append(d.call.Feeds, in)
	}
	return g.Err()
}

// compare runs the gradients and says what differs.
func (d *differentiatedModel) compare(ctx context.Context, m *savedmodels.Model, in savedmodels.Tensors, rec *Recording) ([]string, error) {
	if len(d.wanted) == 0 {
		return nil, nil
	}
	var feeds []*bridge.Tensor
	for _, name := range d.inputs {
		feeds = append(feeds, in[name])
	}
	results, err := m.Session().Call(ctx, d.call, feeds...)
	if err != nil {
		return nil, fmt.Errorf("gradients: %w", err)
	}
	var wrong []string
	largest := 0.0
	got := make([][]complex128, len(results))
	for i, t := range results {
		defer t.Close()
		data, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		if got[i], err = numbers(bridge.DTypeName(t.DType()), data); err != nil {
			return nil, err
		}
		for _, v := range got[i] {
			largest = max(largest, magnitude(v))
		}
	}
	for i, w := range d.wanted {
		// Through a call within a call, zeros may stand for Python's none; and what is
		// zero in exact arithmetic, as the gradient by the bias of attention's keys, is
		// held to zero beside the model's other gradients.
		negligible := !slices.ContainsFunc(got[i], func(v complex128) bool { return magnitude(v) > 1e-6*largest })
		if w.want == nil {
			if !negligible {
				wrong = append(wrong, fmt.Sprintf("gradient by %s: a value, in Python none", w.name))
			}
			continue
		}
		rel, err := rec.Compare(results[i], *w.want)
		bound := tolerance(w.want.DType, 1e-5)
		if bridge.DTypeSize(results[i].DType()) == 2 {
			bound *= 3 // sums of 16-bit numbers, in another order
		}
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("gradient by %s: %v", w.name, err))
		case !(rel <= bound) && !(negligible && rec.negligible(*w.want, 1e-6*largest)):
			wrong = append(wrong, fmt.Sprintf("gradient by %s: relative error %.2g, at most %.2g", w.name, rel, bound))
		}
	}
	return wrong, nil
}

func sameStrings(rec *Recording, got *bridge.Tensor, want Array) error {
	expected, err := rec.Tensor(want)
	if err != nil {
		return err
	}
	defer expected.Close()
	a, err := got.Strings()
	if err != nil {
		return err
	}
	b, err := expected.Strings()
	if err != nil {
		return err
	}
	if !got.Shape().Equal(expected.Shape()) || !slices.Equal(a, b) {
		return fmt.Errorf("%s %q, in Python %s %q", got.Shape(), a, expected.Shape(), b)
	}
	return nil
}

// negligible tells whether no element of an array is larger than a number.
func (r *Recording) negligible(a Array, than float64) bool {
	data, err := r.Bytes(a)
	if err != nil {
		return false
	}
	values, err := numbers(a.DType, data)
	return err == nil && !slices.ContainsFunc(values, func(v complex128) bool { return magnitude(v) > than })
}
