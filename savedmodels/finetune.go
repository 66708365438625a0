package savedmodels

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

// TuneOptions are the settings of [FineTune].
type TuneOptions struct {
	// Options are how the model is loaded; its Build runs before this one's.
	Options
	// Seed is what the random numbers of what is added are made from.
	Seed int64
	// Build adds a loss and a train op to the model, and perhaps a new head on any of
	// its tensors. It runs before anything else has: gradients go through the
	// model's functions, conditionals and loops.
	Build func(*Tuned) error
}

// Tuned is a model that is trained further: a [Model] whose variables are also
// those of a graph of package ops, by Python's names, trainable or not as the model
// says.
//
// What an export computes is what is trained. One that was made for inference
// normalizes batches by its stored statistics, which do not move, and drops nothing
// out. Where the training mode matters, export it from Python as a signature of its
// own; a signature that is a whole training step is run by [Model.Run], and
// [Model.SaveBack] keeps what it has learned.
type Tuned struct {
	*Model
	ops *ops.Graph
}

// FineTune loads a model to train it further. Steps run in its Session:
//
//	var loss tf.Output
//	var train *optimizers.TrainOp
//	m, err := savedmodels.FineTune(ctx, dir, savedmodels.TuneOptions{Build: func(t *savedmodels.Tuned) error {
//		scores, err := t.Output("serving_default", "scores")
//		if err != nil {
//			return err
//		}
//		loss = ops.SparseSoftmaxCrossEntropy(t.Ops().Root(), scores, labels)
//		train, err = optimizers.NewAdam(1e-3).Minimize(loss, t.Ops().Trainable("head/"))
//		return err
//	}})
//
// The variables begin with the values in the folder, and those that Build adds, slots
// among them, with their initial ones. [Model.SaveBack] writes the model as it was,
// with the new weights; [Save] of t.Ops() what was added as well.
//
// Variables that are of no use here, because their shape is not fixed or because they are
// TensorFlow 1's reference variables, are not in the graph of package ops; the model has
// them all the same. Errors: those of [Load], and Build's.
func FineTune(ctx context.Context, dir string, o TuneOptions) (*Tuned, error) {
	t := new(Tuned)
	var init *tf.Operation
	load := o.Options
	load.Build = func(m *Model) error {
		if o.Options.Build != nil {
			if err := o.Options.Build(m); err != nil {
				return err
			}
		}
		t.Model, t.ops = m, ops.FromTF(m.graph, ops.GraphOptions{Seed: o.Seed})
		for _, v := range m.Variables() {
			if v.Handle.Op.Type() != "VarHandleOp" || !v.Shape.FullyDefined() {
				continue
			}
			if shape, err := bridge.AttrShape(v.Handle.Op, "shape"); err != nil || !shape.FullyDefined() {
				continue
			}
			if _, err := t.ops.ExistingVariable(v.Handle, v.Name, ops.VariableOptions{NonTrainable: !v.Trainable}); err != nil {
				return err
			}
		}
		if o.Build != nil {
			if err := t.ops.Build(func() error { return o.Build(t) }); err != nil {
				return err
			}
		}
		added := slices.DeleteFunc(t.ops.Variables(), (*ops.Variable).Existing)
		if len(added) > 0 {
			init = t.ops.InitOf(added...)
		}
		return t.ops.Err()
	}
	m, err := LoadContext(ctx, dir, load)
	if err != nil {
		return nil, err
	}
	if init != nil {
		if err := m.session.Run(ctx, init); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	return t, nil
}

// Ops is the model's graph, to build on; its Variables and Trainable are the model's.
func (t *Tuned) Ops() *ops.Graph {
	if t == nil {
		return nil
	}
	return t.ops
}

// Input is the tensor that an input of a signature is fed to.
func (m *Model) Input(signature, name string) (tf.Output, error) {
	return m.port(signature, "input", name)
}

// Output is the tensor that gives an output of a signature.
func (m *Model) Output(signature, name string) (tf.Output, error) {
	return m.port(signature, "output", name)
}

func (m *Model) port(signature, kind, name string) (tf.Output, error) {
	s, err := m.Signature(signature)
	if err != nil {
		return tf.Output{}, err
	}
	ports := s.Inputs
	if kind == "output" {
		ports = s.Outputs
	}
	for _, p := range ports {
		if p.Name == name {
			return m.Tensor(p.Tensor)
		}
	}
	return tf.Output{}, bridge.Errorf(bridge.NotFound, m.dir, "signature %q has no %s %q; it has %q", s.Name, kind, name, portNames(ports))
}

// SaveBackOptions are the settings of [Model.SaveBack].
type SaveBackOptions struct {
	// Overwrite replaces a model that is in the folder, at one moment; the folder may be
	// the one that the model was loaded from.
	Overwrite bool
}

// SaveBack writes the model as it was loaded, with the values that its variables have
// now: the same graph, objects, signatures, functions and assets, byte for byte, beside
// a checkpoint that the model's own saver writes, with the keys that it had. Python
// sees what it saw before. What was added to the graph, such as a head or slots, is not
// in it; see [Save].
//
// fingerprint.pb, which says what the old weights were, is left out. The folder is
// written beside its place and renamed, as in Save.
//
// Errors: ErrAlreadyExists; ErrUnimplemented for a model that has a variable in several
// nodes, as Keras 3 exports it ([Model.Convert] writes that one); ErrFailedPrecondition for a model whose variables nothing
// saves; those of the file system.
func (m *Model) SaveBack(ctx context.Context, dir string, o SaveBackOptions) error {
	const op = "SaveBack"
	if err := m.enter(); err != nil {
		return err
	}
	defer m.leave()
	if err := checkTarget(dir, o.Overwrite); err != nil {
		return err
	}
	if have, all := len(m.Variables()), m.loaded; len(m.meta.GetObjectGraphDef().GetNodes()) > 0 && all > have {
		return bridge.Errorf(bridge.Unimplemented, op, "the graph has %d nodes for %d variables, as Keras 3 exports them, and Python's loader would find the old weights in the others; Convert with Objects writes the model with the new ones", all, have)
	}
	var call bridge.Call
	saver := m.meta.GetSaverDef()
	if name := saver.GetSaveTensorName(); name != "" {
		save, err := m.tensor(name)
		if err == nil {
			var filename tf.Output
			if filename, err = m.tensor(saver.GetFilenameTensorName()); err == nil {
				call = bridge.Call{Feeds: []tf.Output{filename}, Fetches: []tf.Output{save}, Exclusive: true}
			}
		}
		if err != nil {
			return bridge.Errorf(bridge.FailedPrecondition, op, "the model's saver_def names what its graph does not have: %w", err)
		}
		if bridge.SameOutput(call.Feeds[0], save) {
			return bridge.Errorf(bridge.FailedPrecondition, op, "the model's saver_def restores variables, and saves none")
		}
	}
	prefix := filepath.Join(m.dir, variablesName, variablesName)
	_, err := os.Stat(prefix + ".index")
	there := err == nil
	if there && call.Fetches == nil {
		return bridge.Errorf(bridge.FailedPrecondition, op, "the model has variables, and no saver_def that says how to save them")
	}
	return inFolder(dir, o.Overwrite, func(temporary string) error {
		if err := m.copyRest(temporary); err != nil {
			return err
		}
		if !there {
			return nil
		}
		path, err := bridge.FromStrings(bridge.Shape{}, []string{filepath.Join(temporary, variablesName, variablesName)})
		if err != nil {
			return err
		}
		defer path.Close()
		out, err := m.session.Call(ctx, call, path)
		if err != nil {
			return because(op, "the variables can't be saved", err)
		}
		for _, t := range out {
			_ = t.Close()
		}
		if _, err := os.Stat(filepath.Join(temporary, variablesName, variablesName+".index")); err != nil {
			return bridge.Errorf(bridge.FailedPrecondition, op, "the model's saver has run and written no %s.index", variablesName)
		}
		return nil
	})
}

// copyRest copies a model but for its variables.
func (m *Model) copyRest(into string) error {
	if err := os.Mkdir(filepath.Join(into, variablesName), 0o755); err != nil {
		return err
	}
	for _, name := range modelFiles {
		if name == variablesName || name == "fingerprint.pb" {
			continue
		}
		from := filepath.Join(m.dir, name)
		info, err := os.Stat(from)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return err
		case info.IsDir():
			err = copyTree(from, filepath.Join(into, name))
		default:
			err = copyFile(from, filepath.Join(into, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyTree copies a folder of regular files, links followed.
func copyTree(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		a, b := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if e.IsDir() {
			err = copyTree(a, b)
		} else {
			err = copyFile(a, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
