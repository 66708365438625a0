package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/savedmodels"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

func init() { register("checkpoints", checkpointSection) }

// fileCase is a case of checkpoints.py: tensors by name, in a file of Python's or
// as Python read them from one of ours.
type fileCase struct {
	Name, Path, Error string
	Tensors           []struct {
		Name  string
		Value Array
	}
}

// checkpointSection writes checkpoints and models for Python, and reads Python's.
func checkpointSection(ctx context.Context, h *Harness) (Result, error) {
	reports := newTrainReports()
	add := func(entry, name string, worst, bound float64, err error) {
		if h.Wants(entry + ", " + name) {
			reports.add(entry, name, worst, bound, err)
		}
	}
	theirs, err := h.Python(ctx, "checkpoints")
	if err != nil {
		return Result{}, err
	}
	defer theirs.Close()
	var cases []fileCase
	if err := theirs.Document(&cases); err != nil {
		return Result{}, err
	}
	dir := filepath.Join(h.Dir, "ours")
	want, err := written(ctx, dir)
	if err != nil {
		return Result{}, err
	}
	for i, c := range cases {
		h.Progress.At("Go", i, len(cases))
		if c.Name == "training" {
			err := secondLeg(ctx, c.Path, filepath.Join(dir, "training"))
			add("resumed from Python", "Adam's slots and the step", 0, 0, err)
			continue
		}
		add("read", c.Name, 0, 0, readTheirs(theirs, c))
	}

	// The second call leaves the first one's files alone, but not its document.
	ours, err := h.Python(ctx, "checkpoints", "--read", dir)
	if err != nil {
		return Result{}, err
	}
	defer ours.Close()
	var found []fileCase
	if err := ours.Document(&found); err != nil {
		return Result{}, err
	}
	legs := map[string]fileCase{}
	for _, c := range found {
		switch {
		case strings.HasPrefix(c.Name, "training"):
			legs[c.Name] = c
		default:
			worst, bound, err := want.compare(ours, c)
			entry := "written checkpoints"
			if _, model := want.models[c.Name]; model {
				entry = "written models"
			}
			add(entry, c.Name, worst, bound, err)
			want.seen[c.Name] = true
		}
	}
	for _, name := range want.unseen() {
		add("written checkpoints", name, 0, 0, fmt.Errorf("Python did not read it"))
	}
	worst, err := legsDiffer(ours, legs["training in three legs"], legs["training in one"])
	add("resumed by Python", "Adam's slots and the step", worst, 1e-5, err) // our Adam is a formula, Python's one kernel
	return reports.finish(), nil
}

// readTheirs reads a checkpoint of Python's, bit for bit.
func readTheirs(rec *Recording, c fileCase) error {
	r, err := checkpoints.Open(c.Path)
	if c.Error != "" {
		if err == nil {
			_ = r.Close()
			return fmt.Errorf("it was read; wanted an error")
		}
		if !strings.Contains(err.Error(), c.Error) {
			return fmt.Errorf("the error %q does not speak of %q", err, c.Error)
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.Verify(context.Background()); err != nil {
		return err
	}
	if len(c.Tensors) == 0 {
		return fmt.Errorf("nothing to compare")
	}
	for _, t := range c.Tensors {
		got, err := r.Read(t.Name)
		if err != nil {
			return err
		}
		err = sameBits(rec, got, t.Value)
		_ = got.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	return nil
}

// sameBits holds a tensor to what Python recorded.
func sameBits(rec *Recording, got *bridge.Tensor, want Array) error {
	expected, err := rec.Tensor(want)
	if err != nil {
		return err
	}
	defer expected.Close()
	if got.String() != expected.String() {
		return fmt.Errorf("%v, Python has %v", got, expected)
	}
	if got.DType() == tf.String {
		a, err := got.Strings()
		if err != nil {
			return err
		}
		b, err := expected.Strings()
		if err == nil && !slices.Equal(a, b) {
			err = fmt.Errorf("%.200q, Python has %.200q", a, b)
		}
		return err
	}
	a, err := got.Bytes()
	if err != nil {
		return err
	}
	b, err := expected.Bytes()
	if err == nil && !bytes.Equal(a, b) {
		err = fmt.Errorf("the bits of %v differ", got)
	}
	return err
}

// expectations are what Python must find in our files.
type expectations struct {
	tensors map[string]map[string]*bridge.Tensor // by case and name
	models  map[string]float64                   // cases of models, with their bound
	seen    map[string]bool
}

func (e *expectations) unseen() []string {
	var names []string
	for name := range e.tensors {
		if !e.seen[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// compare holds what Python read to what was written: bits of checkpoints, outputs
// of models within a bound.
func (e *expectations) compare(rec *Recording, c fileCase) (worst, bound float64, err error) {
	want, known := e.tensors[c.Name]
	if !known {
		return math.Inf(1), 0, fmt.Errorf("Python has a case that nobody wrote")
	}
	bound = e.models[c.Name]
	var names []string
	for _, t := range c.Tensors {
		names = append(names, t.Name)
		ours := want[t.Name]
		if ours == nil {
			return math.Inf(1), bound, fmt.Errorf("Python found %q; have %q", t.Name, slices.Sorted(maps.Keys(want)))
		}
		if bound == 0 || ours.DType() != tf.Float {
			err = sameBits(rec, ours, t.Value)
		} else {
			var d float64
			d, err = rec.Compare(ours, t.Value)
			worst = max(worst, d)
		}
		if err != nil {
			return math.Inf(1), bound, fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	if len(names) != len(want) {
		return math.Inf(1), bound, fmt.Errorf("Python found %q; written were %q", names, slices.Sorted(maps.Keys(want)))
	}
	return worst, bound, nil
}

// written writes everything that Python reads.
func written(ctx context.Context, dir string) (*expectations, error) {
	e := &expectations{tensors: map[string]map[string]*bridge.Tensor{}, models: map[string]float64{}, seen: map[string]bool{}}
	all, err := everyType()
	if err != nil {
		return nil, err
	}
	for name, shards := range map[string]int{"one": 1, "three": 3} {
		if err := checkpoints.Write(filepath.Join(dir, name), all, checkpoints.WriteOptions{Shards: shards}); err != nil {
			return nil, err
		}
		e.tensors["load_checkpoint, "+name] = all
	}
	if err := e.folder(ctx, filepath.Join(dir, "run")); err != nil {
		return nil, err
	}
	return e, e.writeModels(ctx, dir)
}

// everyType is random bits of every data type that Python's reader takes.
func everyType() (map[string]*bridge.Tensor, error) {
	random := rand.New(rand.NewPCG(9, 9))
	all := map[string]*bridge.Tensor{}
	for _, dt := range []tf.DataType{tf.Float, tf.Double, tf.Half, tf.Bfloat16, tf.Int8, tf.Int16, tf.Int32, tf.Int64,
		tf.Uint8, tf.Uint16, tf.Uint32, tf.Uint64, tf.Bool, tf.Complex64, tf.Complex128} {
		for _, shape := range []bridge.Shape{{}, {5, 3}, {0}} {
			t, err := bridge.NewTensor(dt, shape)
			if err != nil {
				return nil, err
			}
			data, err := t.Bytes()
			if err != nil {
				return nil, err
			}
			for i := range data {
				data[i] = byte(random.Uint32())
				if dt == tf.Bool {
					data[i] &= 1
				}
			}
			all[fmt.Sprintf("net/%s/%v", bridge.DTypeName(dt), shape)] = t
		}
	}
	text, err := bridge.FromStrings(bridge.Shape{2, 2}, []string{"", "a\x00b", strings.Repeat("long", 9999), "é"})
	all["text"] = text
	return all, err
}

func stringTensor(shape bridge.Shape, values ...string) *bridge.Tensor {
	t, err := bridge.FromStrings(shape, values)
	if err != nil {
		return nil // compare says that it is missing
	}
	return t
}

// folder writes a run of five checkpoints, of which three stay.
func (e *expectations) folder(ctx context.Context, dir string) error {
	l := newLab(nil, 0)
	defer l.close()
	w := l.Variable("net/w", ops.Shape{4, 2}, ops.GlorotUniform())
	if err := l.start(ctx); err != nil {
		return err
	}
	saver, err := checkpoints.NewSaver(l.Graph, dir, checkpoints.SaverOptions{Keep: 3})
	if err != nil {
		return err
	}
	for step := range int64(5) {
		if _, err := saver.Save(ctx, l.session, step, checkpoints.SaveOptions{}); err != nil {
			return err
		}
	}
	values, err := checkpoints.Snapshot(ctx, l.Graph, l.session, []*ops.Variable{w})
	if err != nil {
		return err
	}
	for _, name := range []string{"Saver.restore", "init_from_checkpoint", "tf.train.Checkpoint, by names"} {
		e.tensors[name] = values
	}
	latest, err := saver.Latest()
	if err != nil {
		return err
	}
	in := func(steps ...int) *bridge.Tensor {
		var paths []string
		for _, step := range steps {
			paths = append(paths, filepath.Join(dir, fmt.Sprintf("model-%d", step)))
		}
		return stringTensor(bridge.Shape{int64(len(paths))}, paths...)
	}
	e.tensors["the list of a folder"] = map[string]*bridge.Tensor{
		"latest_checkpoint": stringTensor(bridge.Shape{}, latest), "all": in(2, 3, 4), "CheckpointManager": in(2, 3, 4)}
	return nil
}

// legs is checkpoints.py's training_graph in Go.
func legs() (g *ops.Graph, train *tf.Operation, err error) {
	g = ops.NewGraph(ops.GraphOptions{})
	net := g.Scope("net")
	w := net.Variable("w", ops.Shape{4, 2}, ops.Zeros())
	table := net.Variable("table", ops.Shape{6, 4}, ops.Zeros())
	rows := table.Gather(net, g.Const([]int32{0, 2, 2, 5}))
	loss := ops.SparseSoftmaxCrossEntropy(net, raw.MatMul(net, rows, w.Value()), g.Const([]int32{0, 1, 1, 0}))
	adam := optimizers.NewAdam(0.05)
	adam.Epsilon = optimizers.Value(1e-8)
	adam.Step = g.GlobalStep()
	step, err := adam.Minimize(loss, []*ops.Variable{w, table})
	if err != nil {
		return nil, nil, err
	}
	return g, step.Op, nil
}

// secondLeg goes on for five steps from Python's checkpoint, slots and step
// included, and saves.
func secondLeg(ctx context.Context, from, dir string) error {
	g, train, err := legs()
	if err != nil {
		return err
	}
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		return err
	}
	defer sess.Close()
	report, err := checkpoints.Restore(ctx, g, sess, from, checkpoints.RestoreOptions{})
	if err != nil {
		return err
	}
	if want := []string{"beta1_power", "beta2_power"}; !slices.Equal(report.Unused, want) {
		return fmt.Errorf("unused %q, wanted %q", report.Unused, want)
	}
	for range 5 {
		if err := sess.Run(ctx, train); err != nil {
			return err
		}
	}
	saver, err := checkpoints.NewSaver(g, dir, checkpoints.SaverOptions{})
	if err != nil {
		return err
	}
	_, err = saver.Save(ctx, sess, 10, checkpoints.SaveOptions{})
	return err
}

// legsDiffer is how far two trainings of Python's lie apart.
func legsDiffer(rec *Recording, three, one fileCase) (float64, error) {
	if len(one.Tensors) == 0 || len(three.Tensors) != len(one.Tensors) {
		return math.Inf(1), fmt.Errorf("Python recorded %d and %d variables", len(three.Tensors), len(one.Tensors))
	}
	worst := 0.0
	for i, t := range three.Tensors {
		if t.Name != one.Tensors[i].Name {
			return math.Inf(1), fmt.Errorf("Python recorded %q beside %q", t.Name, one.Tensors[i].Name)
		}
		got, err := rec.Tensor(t.Value)
		if err != nil {
			return math.Inf(1), err
		}
		d, err := rec.Compare(got, one.Tensors[i].Value)
		_ = got.Close()
		if err != nil {
			return math.Inf(1), fmt.Errorf("%s: %w", t.Name, err)
		}
		worst = max(worst, d)
	}
	return worst, nil
}

// loads expects of a model what its loaders give.
func (e *expectations) loads(name string, bound float64, y *bridge.Tensor) {
	for _, loader := range []string{"tf.saved_model.load", "v1 loader", "saved_model_cli run"} {
		e.models[name+": "+loader], e.tensors[name+": "+loader] = bound, map[string]*bridge.Tensor{"y": y}
	}
}

func convert(ctx context.Context, from, to string, o savedmodels.ConvertOptions) error {
	m, err := savedmodels.LoadContext(ctx, from, savedmodels.Options{})
	if err != nil {
		return err
	}
	return errors.Join(m.Convert(ctx, to, o), m.Close())
}

// writeModels saves one graph as it is and in 16 bits, and a part of it frozen. It
// has what a model can have: a table that an asset fills, an embedding, trainable
// variables and one that is not.
func (e *expectations) writeModels(ctx context.Context, dir string) error {
	l := newLab(nil, 5)
	defer l.close()
	vocabulary := filepath.Join(dir, "vocabulary.txt")
	if err := os.WriteFile(vocabulary, []byte("go\npython\nrust\n"), 0o644); err != nil {
		return err
	}
	x := l.Placeholder("x", tf.Float, ops.Shape{-1, 2})
	words := l.Placeholder("words", tf.String, ops.Shape{-1, 2})
	net := l.Scope("net")
	w := net.Variable("w", ops.Shape{2, 4}, ops.GlorotUniform())
	b := net.Variable("b", ops.Shape{4}, ops.Ones(), ops.VariableOptions{NonTrainable: true})
	embedding := net.Variable("embedding", ops.Shape{3, 4}, ops.GlorotUniform())
	scores := net.Add(bridge.OpSpec{Type: "AddV2", Name: "scores", Inputs: []tf.Input{raw.MatMul(net, x, w.Value()), b.Value()}})
	path := l.Const(vocabulary)
	table := raw.HashTableV2(l, tf.String, tf.Int64, raw.Attr{Name: "shared_name", Value: "vocabulary"})
	fill := raw.InitializeTableFromTextFileV2(l, table, path, -2, -1)
	ids := raw.LookupTableFindV2(l, table, words, l.Const(int64(0)))
	rows := raw.Sum(net, embedding.Gather(net, ids), l.Const([]int32{0, 1}))
	if err := l.Err(); err != nil {
		return err
	}
	y := raw.Mul(net, scores.Output(0), raw.Tanh(net, rows))
	train, err := optimizers.NewAdam(0.1).Minimize(raw.Mean(l, raw.Square(l, y), l.Const([]int32{0, 1})), l.Trainable())
	if err != nil {
		return err
	}
	if err := l.start(ctx); err != nil {
		return err
	}
	if err := l.session.Run(ctx, fill); err != nil {
		return err
	}
	points, err := bridge.FromFlat(bridge.Shape{3, 2}, []float32{-1, -0.6, -0.2, 0.2, 0.6, 1})
	if err != nil {
		return err
	}
	defer points.Close()
	pairs, err := bridge.FromStrings(bridge.Shape{2, 2}, []string{"go", "rust", "python", "go"})
	if err != nil {
		return err
	}
	defer pairs.Close()
	for range 3 {
		trained, err := l.session.Call(ctx, bridge.Call{Feeds: []tf.Output{x, words}, Targets: []*tf.Operation{train.Op}}, points, pairs)
		if err != nil {
			return err
		}
		_ = trained
	}
	out, err := l.session.Call(ctx, bridge.Call{Feeds: []tf.Output{x, words}, Fetches: []tf.Output{y, scores.Output(0)}}, points, pairs)
	if err != nil {
		return err
	}
	for name, weights := range map[string]tf.DataType{"plain": 0, "half": tf.Half, "bfloat16": tf.Bfloat16} {
		err := savedmodels.Save(ctx, l.Graph, l.session, filepath.Join(dir, "models", name), savedmodels.SaveOptions{
			Signatures: map[string]savedmodels.SignatureSpec{
				"serving_default": {Inputs: map[string]tf.Output{"x": x, "words": words}, Outputs: map[string]tf.Output{"y": y}},
				"scores":          {Inputs: map[string]tf.Output{"x": x}, Outputs: map[string]tf.Output{"scores": scores.Output(0)}}},
			Init: fill, Assets: []tf.Output{path}, Weights: weights})
		if err != nil {
			return err
		}
		bound := tolerance("float32", 0)
		if weights != 0 {
			bound = 2 * tolerance(bridge.DTypeName(weights), 0)
		}
		e.loads(name, bound, out[0])
	}
	models := func(name string) string { return filepath.Join(dir, "models", name) }
	if err := convert(ctx, models("plain"), models("converted"), savedmodels.ConvertOptions{}); err != nil {
		return err
	}
	e.loads("converted", tolerance("float32", 0), out[0])
	yes, err := bridge.Scalar(true)
	if err != nil {
		return err
	}
	two, err := bridge.Scalar(int64(2))
	if err != nil {
		return err
	}
	e.models["plain: variables"], e.tensors["plain: variables"] = 0, map[string]*bridge.Tensor{
		"names":     stringTensor(bridge.Shape{3}, "net/b:0", "net/embedding:0", "net/w:0"),
		"trainable": stringTensor(bridge.Shape{2}, "net/embedding:0", "net/w:0")}
	e.models["plain: tuned and saved again"], e.tensors["plain: tuned and saved again"] = 0, map[string]*bridge.Tensor{"same": yes}
	e.models["plain: TFSMLayer"], e.tensors["plain: TFSMLayer"] = tolerance("float32", 0), map[string]*bridge.Tensor{"scores": out[1], "variables": two}
	one, err := bridge.Scalar(int64(1))
	if err != nil {
		return err
	}
	for name, weights := range map[string]tf.DataType{"objects": 0, "objects in half": tf.Half, "objects by way of a MetaGraph": 0} {
		err := savedmodels.Save(ctx, l.Graph, l.session, filepath.Join(dir, "models", name), savedmodels.SaveOptions{Objects: true, Weights: weights,
			Signatures: map[string]savedmodels.SignatureSpec{"serving_default": {Inputs: map[string]tf.Output{"x": x}, Outputs: map[string]tf.Output{"scores": scores.Output(0)}}}})
		if err != nil {
			return err
		}
		bound := tolerance("float32", 0)
		if weights != 0 {
			bound = 2 * tolerance(bridge.DTypeName(weights), 0)
		}
		for loader, tensors := range map[string]map[string]*bridge.Tensor{
			"called":                {"scores": out[1], "by name": out[1], "signature": out[1], "net": out[1]},
			"its checkpoint":        {"scores": out[1]},
			"v1 loader":             {"scores": out[1]},
			"saved_model_cli run":   {"scores": out[1]},
			"TFSMLayer":             {"scores": out[1], "trainable": one, "other": one},
			"variables":             {"names": stringTensor(bridge.Shape{2}, "net/b:0", "net/w:0"), "trainable": stringTensor(bridge.Shape{1}, "net/w:0")},
			"tuned and saved again": {"same": yes},
		} {
			e.models[name+": "+loader], e.tensors[name+": "+loader] = bound, tensors
		}
	}
	if err := convert(ctx, models("objects"), models("a MetaGraph"), savedmodels.ConvertOptions{}); err != nil {
		return err
	}
	if err := convert(ctx, models("a MetaGraph"), models("objects by way of a MetaGraph"), savedmodels.ConvertOptions{Objects: true, Overwrite: true}); err != nil {
		return err
	}
	frozen, err := savedmodels.Freeze(ctx, l.Graph, l.session, []tf.Output{scores.Output(0)}, savedmodels.FreezeOptions{})
	if err != nil {
		return err
	}
	e.models["a frozen graph"], e.tensors["a frozen graph"] = tolerance("float32", 0), map[string]*bridge.Tensor{"y": out[1]}
	return os.WriteFile(filepath.Join(dir, "frozen.pb"), frozen, 0o644)
}
