package savedmodels

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// Options are the settings of [Load]. The zero value is a good one.
type Options struct {
	// Tags choose the MetaGraph that was saved with just these tags. nil: the one
	// with the tag "serve", or the only one there is. An empty list, not nil: the
	// one without tags, as models of TensorFlow Hub have.
	Tags []string
	// Session is how the model's session runs.
	Session bridge.Config
	// Libraries are custom-op libraries (.so) that the model needs; they are loaded
	// before it.
	Libraries []string
	// Build adds to the model's graph before anything has run in it, which is when
	// gradients through loops and conditionals can be added. Its error is Load's.
	Build func(*Model) error
}

// Load reads a SavedModel from its folder, which is not written to: it imports
// the graph, restores the variables, and runs the initializers with the paths of
// the model's assets. Python: tf.saved_model.load, tf.compat.v1.saved_model.load.
//
// Errors: ErrNotFound for a folder, a file, an asset, tags or an op type that is
// not there, ErrDataLoss for damaged files.
func Load(dir string, o Options) (*Model, error) {
	return LoadContext(context.Background(), dir, o)
}

// LoadContext is [Load] within a context, whose deadline stops the restoring of
// variables.
func LoadContext(ctx context.Context, dir string, o Options) (*Model, error) {
	graphs, err := readModel(dir)
	if err != nil {
		return nil, err
	}
	meta, err := choose(graphs, dir, o.Tags)
	if err != nil {
		return nil, err
	}
	for _, library := range o.Libraries {
		if _, err := bridge.LoadLibrary(library); err != nil {
			return nil, err
		}
	}
	m := &Model{dir: dir, meta: meta, graph: tf.NewGraph()}
	m.idle.L, m.steps.known = &m.mu, map[string]*preparedSignature{}
	if err := m.open(); err != nil {
		return nil, err
	}
	if o.Build != nil {
		if err := o.Build(m); err != nil {
			return nil, err
		}
	}
	if m.session, err = bridge.NewSession(m.graph, o.Session); err != nil {
		return nil, err
	}
	if err := m.fill(ctx); err != nil {
		m.session.Close()
		return nil, err
	}
	return m, nil
}

// open reads signatures and graph.
func (m *Model) open() (err error) {
	if m.signatures, err = signaturesOf(m.meta); err != nil {
		return bridge.Errorf(bridge.DataLoss, filepath.Join(m.dir, modelFile), "%w", err)
	}
	if _, err := bridge.Import(m.graph, m.meta.graphDef, bridge.ImportOptions{}); err != nil {
		return m.importError(err)
	}
	m.meta.graphDef = nil // the graph has it now
	m.loaded = len(GraphVariables(m.graph))
	return m.checkSignatures()
}

// importError adds to an error about the graph what made it.
func (m *Model) importError(err error) error {
	made := m.meta.GetMetaInfoDef().GetTensorflowVersion()
	if made == "" {
		made = "an unknown version"
	}
	hint := fmt.Sprintf("the model was saved by TensorFlow %s, and this is %s", made, bridge.Version())
	if errors.Is(err, bridge.ErrNotFound) {
		hint += "; a library of custom ops (TensorFlow Text, Decision Forests …) is named in Options.Libraries, --library at the shell"
	}
	return because(filepath.Join(m.dir, modelFile), hint, err)
}

// checkSignatures holds the signatures against the graph: what they name must
// be there and of the type they say.
func (m *Model) checkSignatures() error {
	wrong := func(s *Signature, p Port, format string, args ...any) error {
		return bridge.Errorf(bridge.DataLoss, filepath.Join(m.dir, modelFile), "signature %q, %s: %s", s.Name, p.Name, fmt.Sprintf(format, args...))
	}
	for _, name := range m.Signatures() {
		s := m.signatures[name]
		for _, p := range slices.Concat(s.Inputs, s.Outputs) {
			out, err := m.tensor(p.Tensor)
			if err != nil {
				return wrong(s, p, "%v", err)
			}
			if dt := bridge.BaseDType(out.DataType()); dt != bridge.BaseDType(p.DType) {
				return wrong(s, p, "the signature has %s, but tensor %s of the graph is %s", bridge.DTypeName(p.DType), p.Tensor, bridge.DTypeName(dt))
			}
		}
		defaults, err := defaultsOf(m.meta.GetSignatureDef()[name])
		if err != nil {
			return bridge.Errorf(bridge.DataLoss, filepath.Join(m.dir, modelFile), "signature %q: %w", name, err)
		}
		for i, p := range s.Inputs {
			if value := defaults[p.Name]; value != nil {
				s.Inputs[i].Optional = true
				if value.DType() != p.DType {
					defer defaults.Close()
					return wrong(s, p, "its default is %s, wanted %s", value, bridge.DTypeName(p.DType))
				}
			}
		}
		defaults.Close()
	}
	return nil
}

// Tensor finds "node:1", or "node" for its output 0, in the graph; what is not
// there is ErrNotFound.
func (m *Model) Tensor(name string) (tf.Output, error) {
	out, err := m.tensor(name)
	if err != nil {
		err = bridge.Errorf(bridge.NotFound, m.Dir(), "%w", err)
	}
	return out, err
}

func (m *Model) tensor(name string) (tf.Output, error) {
	node, number, given := strings.Cut(name, ":")
	index := 0
	if given {
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil {
			return tf.Output{}, fmt.Errorf("%q is not a tensor's name", name)
		}
		index = int(n)
	}
	op := bridge.OperationByName(m.Graph(), node)
	if op == nil {
		return tf.Output{}, fmt.Errorf("the graph has no node %q", node)
	}
	if index >= op.NumOutputs() {
		return tf.Output{}, fmt.Errorf("node %q has %d outputs, no output %d", node, op.NumOutputs(), index)
	}
	return tf.Output{Op: op, Index: index}, nil
}

// fill gives the variables and tables of the session their values.
func (m *Model) fill(ctx context.Context) error {
	assets, err := m.assets()
	if err != nil {
		return err
	}
	defer assets.close()
	if err := m.restore(ctx, assets); err != nil {
		return err
	}
	init, err := m.initializer()
	if err != nil || init == nil {
		return err
	}
	if err := m.runWith(ctx, init, assets); err != nil {
		return because(m.dir, fmt.Sprintf("the model's initializer %q failed", init.Name()), err)
	}
	return nil
}

// paths are string tensors that are fed to restore and initialize.
type paths struct {
	into   []tf.Output
	values []*bridge.Tensor
}

func (p *paths) add(into tf.Output, path string) error {
	value, err := bridge.FromStrings(bridge.Shape{}, []string{path})
	if err != nil {
		return err
	}
	p.into, p.values = append(p.into, into), append(p.values, value)
	return nil
}

func (p *paths) close() {
	for _, v := range p.values {
		v.Close()
	}
}

// assets are the files beside the graph, and the tensors that take their paths.
func (m *Model) assets() (found *paths, err error) {
	defs, err := m.assetDefs()
	if err != nil {
		return nil, err
	}
	found = new(paths)
	defer func() {
		if err != nil {
			found.close()
		}
	}()
	var missing []string
	for _, def := range defs {
		name := def.GetFilename()
		path := filepath.Join(m.dir, assetsName, name)
		if !filepath.IsLocal(name) {
			return found, bridge.Errorf(bridge.InvalidArgument, m.dir, "asset %q lies outside of the model", name)
		}
		switch info, err := os.Stat(path); {
		case err != nil:
			missing = append(missing, path)
			continue
		case !info.Mode().IsRegular() && !info.IsDir():
			return found, bridge.Errorf(bridge.InvalidArgument, path, "is not a file")
		}
		into, err := m.tensor(def.GetTensorInfo().GetName())
		if err != nil {
			return found, bridge.Errorf(bridge.DataLoss, m.dir, "asset %q: %w", name, err)
		}
		// One tensor may be listed for several uses of a file.
		if slices.ContainsFunc(found.into, func(out tf.Output) bool { return bridge.SameOutput(out, into) }) {
			continue
		}
		if err := found.add(into, path); err != nil {
			return found, err
		}
	}
	if missing != nil {
		return found, bridge.Errorf(bridge.NotFound, m.dir, "the model's assets are missing: %s", strings.Join(missing, ", "))
	}
	return found, nil
}

// restore runs the model's own restoring with the path of its variables.
func (m *Model) restore(ctx context.Context, assets *paths) error {
	prefix := filepath.Join(m.dir, variablesName, variablesName)
	_, err := os.Stat(prefix + ".index")
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return bridge.Errorf(bridge.InvalidArgument, m.dir, "%w", err)
	}
	saver := m.meta.GetSaverDef()
	if saver.GetRestoreOpName() == "" {
		if !there || len(m.handles()) == 0 {
			return nil
		}
		return bridge.Errorf(bridge.FailedPrecondition, m.dir, "the model has variables and their values, but no saver_def, which says how to restore them: save it again by tf.saved_model.save or tf.compat.v1.saved_model")
	}
	op := bridge.OperationByName(m.graph, saver.GetRestoreOpName())
	filename, err := m.tensor(saver.GetFilenameTensorName())
	switch {
	case op == nil || err != nil:
		return bridge.Errorf(bridge.DataLoss, filepath.Join(m.dir, modelFile), "its saver_def names %q and %q, and the graph does not have them", saver.GetRestoreOpName(), saver.GetFilenameTensorName())
	case !there && restores(op):
		return bridge.Errorf(bridge.NotFound, m.dir, "the model has variables, but there is no %s.index with their values", prefix)
	case !there:
		return nil
	}
	if err := m.checkVariables(); err != nil {
		return err
	}
	with := &paths{into: slices.Clone(assets.into), values: slices.Clone(assets.values)}
	if err := with.add(filename, prefix); err != nil {
		return err
	}
	defer with.values[len(with.values)-1].Close()
	if err := m.runWith(ctx, op, with); err != nil {
		why := because(prefix, "the variables can't be restored", err)
		if errors.Is(err, &bridge.Error{Code: bridge.OutOfRange}) {
			why.Code = bridge.DataLoss // which is how TensorFlow says that a file is too short
		}
		return why
	}
	return nil
}

// checkVariables finds what is no file among those of the variables: to open a
// pipe is to wait, and TensorFlow does not stop waiting.
func (m *Model) checkVariables() error {
	folder := filepath.Join(m.dir, variablesName)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return bridge.Errorf(bridge.InvalidArgument, m.dir, "%w", err)
	}
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if !strings.HasPrefix(e.Name(), variablesName+".") {
			continue
		}
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return bridge.Errorf(bridge.InvalidArgument, path, "is not a file")
		}
	}
	return nil
}

// restores tells whether a saver's restore op does anything: that of a TensorFlow
// 1 model without variables does not.
func restores(op *tf.Operation) bool {
	seen := map[bridge.OutputKey]bool{}
	todo := []*tf.Operation{op}
	for len(todo) > 0 {
		op := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch op.Type() {
		case "RestoreV2", "Restore", "RestoreSlice", "PartitionedCall", "StatefulPartitionedCall":
			return true
		}
		before := bridge.ControlInputs(op)
		for _, in := range bridge.Inputs(op) {
			before = append(before, in.Op)
		}
		for _, op := range before {
			if key := bridge.OpKey(op); !seen[key] {
				seen[key] = true
				todo = append(todo, op)
			}
		}
	}
	return false
}

// because is an error whose cause is err, with its code, once.
func because(op, what string, err error) *bridge.Error {
	var e *bridge.Error
	if !errors.As(err, &e) {
		return &bridge.Error{Code: bridge.Unknown, Op: op, Message: what + ": " + err.Error(), Err: err}
	}
	return &bridge.Error{Code: e.Code, Op: op, Message: what + ": " + strings.TrimPrefix(e.Op+": "+e.Message, ": "), Err: err}
}

func (m *Model) runWith(ctx context.Context, op *tf.Operation, with *paths) error {
	_, err := m.session.Call(ctx, bridge.Call{Feeds: with.into, Targets: []*tf.Operation{op}}, with.values...)
	return err
}

// initializer is what runs after the variables are restored, for tables above
// all; nil where there is nothing to run.
func (m *Model) initializer() (*tf.Operation, error) {
	name := m.meta.GetSignatureDef()[initSignature].GetOutputs()[initSignature].GetName()
	for _, collection := range []string{"saved_model_main_op", "legacy_init_op"} {
		if nodes := m.meta.GetCollectionDef()[collection].GetNodeList().GetValue(); name == "" && len(nodes) > 0 {
			name = nodes[0]
		}
	}
	if name == "" {
		return nil, nil
	}
	node, _, _ := strings.Cut(name, ":")
	op := bridge.OperationByName(m.graph, node)
	switch {
	case op == nil:
		return nil, bridge.Errorf(bridge.DataLoss, filepath.Join(m.dir, modelFile), "its initializer %q is not in the graph", node)
	case op.Type() == "NoOp" && len(bridge.ControlInputs(op)) == 0:
		return nil, nil // as TensorFlow 2 writes it for a model without tables; a run costs as much as any
	}
	return op, nil
}
