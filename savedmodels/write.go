package savedmodels

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	types "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	variable "github.com/galeone/tensorflow/tensorflow/go/core/framework/variable_go_proto"
	protos "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

// SignatureSpec names the tensors of a graph that become a signature of a model.
type SignatureSpec struct {
	// Inputs are the tensors that are fed, by the names that callers use; as a rule
	// placeholders.
	Inputs map[string]tf.Output
	// Outputs are what is computed, by the names that callers use. One that has to
	// do more than compute, such as a step of training, is an Identity behind
	// control dependencies.
	Outputs map[string]tf.Output
	// Method is what Serving calls the computation; "" is
	// "tensorflow/serving/predict".
	Method string
}

// SaveOptions are the settings of [Save].
type SaveOptions struct {
	// Signatures are the model's computations, by name; "serving_default" is the
	// one that servers and Keras look for. At least one is needed.
	Signatures map[string]SignatureSpec
	// Tags are the MetaGraph's; nil is "serve", which every loader looks for.
	Tags []string
	// Variables are saved beside those that the signatures need, such as the slots
	// of an optimizer. A checkpoint is the better place for them.
	Variables []*ops.Variable
	// Init runs after the variables are restored, beside what the collection
	// "table_initializer" holds: it fills tables.
	Init *tf.Operation
	// Assets are string scalars of the graph, constants that hold the path of a
	// file: the file is copied into the model, and its loaders feed the constant
	// the new path.
	Assets []tf.Output
	// Weights stores the float32 variables as 16-bit numbers, bridge's Half or
	// BFloat16 (tf.Half, tf.Bfloat16), which are converted when they are read: half
	// the size on disk and in memory, and three or two digits. 0 stores them as
	// they are.
	Weights tf.DataType
	// WholeGraph keeps all of the graph, train ops included; otherwise the model
	// has what its signatures, variables and Init need.
	WholeGraph bool
	// ClearDevices drops the devices that nodes were placed on, so that a model
	// made on a GPU is at home elsewhere.
	ClearDevices bool
	// Objects writes the model as tf.saved_model.save does, where Python finds objects:
	// m(x) is serving_default, by position or by name; m.signatures; the variables along
	// their scopes, net/w as m.net.w, and in m.variables and m.trainable_variables, so
	// that it can be trained and saved again there. Tables, assets and initializers are
	// ErrUnimplemented then, and an input that has a default must be given.
	Objects bool
	// Shards is the number of files for the variables; 0 is 1.
	Shards int
	// Overwrite replaces a model that is in the folder, at one moment. Otherwise
	// that is an error; a folder with something else in it always is.
	Overwrite bool
}

// Save writes a SavedModel of a graph and of the values that its variables have in
// the session, taken at one moment between two updates. The graph is not changed.
//
// It is a MetaGraph as TensorFlow 1 writes it, which every loader takes:
// tf.saved_model.load and a further training there (the variables are those of
// tf.Module's .variables, trainable or not), tf.compat.v1.saved_model,
// keras.layers.TFSMLayer, TensorFlow Serving, saved_model_cli, and [Load].
//
// All is written to a folder beside dir and renamed when it is complete and on the
// disk: servers may watch while it happens. A process that is killed meanwhile leaves
// that folder, whose name begins with ".unfinished-". For version numbers see
// [NextVersion].
//
// Errors, before anything is written: ErrAlreadyExists; ErrInvalidArgument for
// signatures that name nothing of the graph or need a placeholder that is not
// among their inputs, with all that is wrong; ErrFailedPrecondition for variables
// that were not made by package ops, whose values nobody would save, and for
// tables that change; ErrUninitialized.
func Save(ctx context.Context, g *ops.Graph, sess *bridge.Session, dir string, o SaveOptions) error {
	if err := checkTarget(dir, o.Overwrite); err != nil {
		return err
	}
	w, err := newModelWriter(g, sess, o)
	if err != nil {
		return err
	}
	values, err := w.values(ctx, sess)
	if err != nil {
		return err
	}
	defer func() {
		for _, t := range values {
			_ = t.Close()
		}
	}()
	meta, err := w.metaGraph()
	if err != nil {
		return err
	}
	if o.Objects {
		if values, err = w.objects(meta, values); err != nil {
			return err
		}
	}
	return inFolder(dir, o.Overwrite, func(temporary string) error {
		return w.write(temporary, meta, values)
	})
}

// modelWriter is one model on its way into a folder.
type modelWriter struct {
	*rewrite
	g         *ops.Graph
	o         SaveOptions
	variables []*ops.Variable // by name
	assets    []asset
	inits     []string // nodes that run after the restoring
}

// asset is a file that the model takes along.
type asset struct {
	node string // a constant with the path
	from string // the file
	name string // in the model's folder of assets
}

func newModelWriter(g *ops.Graph, sess *bridge.Session, o SaveOptions) (*modelWriter, error) {
	const op = "Save"
	if err := g.Err(); err != nil {
		return nil, err
	}
	if sess == nil || sess.Graph() != g.TF() {
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "the session is not one of the graph")
	}
	switch o.Weights {
	case 0, tf.Half, tf.Bfloat16:
	default:
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "Weights is %s; wanted half or bfloat16, or 0 for the variables' own", bridge.DTypeName(o.Weights))
	}
	if problems := checkSpecs(g.TF(), o.Signatures); len(problems) > 0 {
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "%s", strings.Join(problems, "; "))
	}
	r, err := newRewrite(g.TF())
	if err != nil {
		return nil, err
	}
	w := &modelWriter{rewrite: r, g: g, o: o}
	if err := w.collect(); err != nil {
		return nil, err
	}
	return w, w.prune()
}

// checkSpecs says all that is wrong with signatures.
func checkSpecs(g *tf.Graph, specs map[string]SignatureSpec) (problems []string) {
	if len(specs) == 0 {
		return []string{"there is no signature: a model without one can't be called"}
	}
	for _, key := range slices.Sorted(maps.Keys(specs)) {
		problem := func(format string, args ...any) {
			problems = append(problems, fmt.Sprintf("signature %q: %s", key, fmt.Sprintf(format, args...)))
		}
		if key == "" || key == initSignature || key == trainSignature {
			problem("the name is taken or empty")
		}
		spec := specs[key]
		if len(spec.Outputs) == 0 {
			problem("there is no output")
		}
		ports := map[string]map[string]tf.Output{"input": spec.Inputs, "output": spec.Outputs}
		for _, kind := range []string{"input", "output"} {
			for _, name := range slices.Sorted(maps.Keys(ports[kind])) {
				switch out := ports[kind][name]; {
				case name == "":
					problem("an %s has no name", kind)
				case !bridge.Valid(out) || bridge.GraphOf(out.Op) != g:
					problem("%s %q is not a tensor of the graph", kind, name)
				case bridge.BaseDType(out.DataType()) == bridge.Resource, bridge.BaseDType(out.DataType()) == bridge.Variant:
					problem("%s %q is a %s, which nobody can pass", kind, name, bridge.DTypeName(out.DataType()))
				}
			}
		}
	}
	return problems
}

func tensorName(out tf.Output) string { return out.Op.Name() + ":" + strconv.Itoa(out.Index) }

// collect finds what the model is made of: what its signatures, variables and
// initializers need.
func (w *modelWriter) collect() error {
	const op = "Save"
	initializers, err := ops.CollectionOf[*tf.Operation](w.g, "table_initializer", "")
	if err != nil {
		return err
	}
	if w.o.Init != nil {
		initializers = append(initializers, w.o.Init)
	}
	for _, init := range initializers {
		if bridge.GraphOf(init) != w.g.TF() {
			return bridge.Errorf(bridge.InvalidArgument, op, "an initializer is not an operation of the graph")
		}
		if name := init.Name(); !slices.Contains(w.inits, name) {
			w.inits = append(w.inits, name)
		}
	}
	for i, out := range w.o.Assets {
		a, err := w.asset(out)
		if err != nil {
			return bridge.Errorf(bridge.InvalidArgument, op, "asset %d: %w", i, err)
		}
		w.assets = append(w.assets, a)
	}
	needed := w.computed()
	var unknown, changing, missing []string
	byNode := map[string]*ops.Variable{}
	for _, v := range w.g.Variables() {
		byNode[v.Handle().Op.Name()] = v
	}
	extra := map[string]bool{}
	for i, v := range w.o.Variables {
		if v == nil || v.Graph() != w.g {
			return bridge.Errorf(bridge.InvalidArgument, op, "variable %d of %d, %v, is not one of the graph", i, len(w.o.Variables), v)
		}
		extra[v.Handle().Op.Name()] = true
	}
	for _, n := range w.def.GetNode() {
		name := n.GetName()
		if !needed[name] && !extra[name] {
			continue
		}
		switch kind := n.GetOp(); {
		case kind == "VarHandleOp" && byNode[name] != nil:
			w.variables = append(w.variables, byNode[name])
		case kind == "VarHandleOp", kind == "VariableV2", kind == "Variable":
			unknown = append(unknown, name)
		case strings.HasPrefix(kind, "MutableHashTable"), strings.HasPrefix(kind, "MutableDenseHashTable"):
			changing = append(changing, name)
		case kind == "Placeholder" && !w.o.WholeGraph:
			missing = append(missing, name)
		}
	}
	slices.SortFunc(w.variables, func(a, b *ops.Variable) int { return cmp.Compare(a.Name(), b.Name()) })
	if len(unknown) > 0 {
		return bridge.Errorf(bridge.FailedPrecondition, op, "the values of %s would be lost: they are not variables that package ops made", strings.Join(unknown, ", "))
	}
	if len(changing) > 0 {
		return bridge.Errorf(bridge.FailedPrecondition, op, "what %s hold would be lost: tables that change are not saved; a table that is filled by an initializer (HashTableV2) is", strings.Join(changing, ", "))
	}
	if missing = w.unfed(missing); len(missing) > 0 {
		return bridge.Errorf(bridge.InvalidArgument, op, "%s", strings.Join(missing, "; "))
	}
	return nil
}

// computed are the nodes that signatures and initializers need: all that is left
// when inputs are fed.
func (w *modelWriter) computed() map[string]bool {
	found := map[string]bool{}
	for _, spec := range w.o.Signatures {
		maps.Copy(found, w.needed(operations(spec.Outputs), fedBy(spec)))
		for _, in := range spec.Inputs {
			maps.Copy(found, w.needed([]string{in.Op.Name()}, nil)) // fed or not, it must be there
		}
	}
	maps.Copy(found, w.needed(w.inits, nil))
	for _, a := range w.assets {
		found[a.node] = true
	}
	if w.o.WholeGraph {
		for name := range w.nodes {
			found[name] = true
		}
	}
	return found
}

func operations(outputs map[string]tf.Output) []string {
	var names []string
	for _, out := range outputs {
		names = append(names, out.Op.Name())
	}
	return names
}

func fedBy(spec SignatureSpec) map[string]bool {
	fed := map[string]bool{}
	for _, in := range spec.Inputs {
		fed[tensorName(in)] = true
	}
	return fed
}

// unfed says which signatures need placeholders that they do not feed.
func (w *modelWriter) unfed(placeholders []string) (problems []string) {
	if len(placeholders) == 0 {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(w.o.Signatures)) {
		spec := w.o.Signatures[key]
		fed := fedBy(spec)
		needed := w.needed(operations(spec.Outputs), fed)
		for _, name := range placeholders {
			if needed[name] && !fed[name+":0"] {
				problems = append(problems, fmt.Sprintf("signature %q needs placeholder %q, which is not among its inputs", key, name))
			}
		}
	}
	if init := w.needed(w.inits, nil); len(w.inits) > 0 {
		for _, name := range placeholders {
			if init[name] {
				problems = append(problems, fmt.Sprintf("an initializer needs placeholder %q, which nobody feeds", name))
			}
		}
	}
	return problems
}

// asset finds the file of an asset.
func (w *modelWriter) asset(out tf.Output) (a asset, err error) {
	if !bridge.Valid(out) || bridge.GraphOf(out.Op) != w.g.TF() {
		return a, fmt.Errorf("it is not a tensor of the graph")
	}
	value, constant, err := bridge.ConstantValue(out)
	if err != nil {
		return a, err
	}
	if !constant || out.Op.Type() != "Const" {
		return a, fmt.Errorf("%s is a %s, wanted a constant that holds a path", tensorName(out), out.Op.Type())
	}
	defer value.Close()
	if value.DType() != tf.String || value.Rank() != 0 {
		return a, fmt.Errorf("%s is %v, wanted a string scalar", tensorName(out), value)
	}
	paths, err := value.Strings()
	if err != nil {
		return a, err
	}
	if info, err := os.Stat(paths[0]); err != nil {
		return a, err
	} else if !info.Mode().IsRegular() {
		return a, fmt.Errorf("%s is not a file", paths[0])
	}
	a = asset{node: out.Op.Name(), from: paths[0], name: filepath.Base(paths[0])}
	for n := 1; slices.ContainsFunc(w.assets, func(b asset) bool { return b.name == a.name && b.from != a.from }); n++ {
		a.name = fmt.Sprintf("%s_%d", filepath.Base(paths[0]), n)
	}
	return a, nil
}

// prune drops what the model does not need, once its nodes are known.
func (w *modelWriter) prune() error {
	const large = 1 << 16 // bytes of a constant that is only a first value
	found := w.computed()
	for _, v := range w.variables {
		initial := w.needed([]string{v.InitialValue().Op.Name()}, nil)
		heavy := false
		for name := range initial {
			n := w.nodes[name]
			heavy = heavy || n.GetOp() == "Const" && proto.Size(n) > large || n.GetOp() == "Placeholder"
		}
		if heavy && !w.o.WholeGraph {
			// The values come from the files; what they began as is not needed again.
			zeros, err := w.zeros(v)
			if err != nil {
				return err
			}
			w.nodes[v.Initializer().Name()].Input[1] = zeros
			initial = w.needed([]string{w.initialValue(v)}, nil)
		}
		maps.Copy(found, initial)
		for _, name := range []string{v.Handle().Op.Name(), v.Initializer().Name(), v.Value().Op.Name()} {
			found[name] = true
		}
	}
	w.keep(found)
	for _, a := range w.assets {
		// The path on this machine is nobody's business, and would not help.
		w.nodes[a.node].Attr["value"].GetTensor().StringVal = [][]byte{[]byte(a.name)}
	}
	if w.o.ClearDevices {
		for _, n := range w.def.GetNode() {
			n.Device = ""
		}
	}
	if w.o.Weights == 0 {
		return nil
	}
	var wide []string
	for _, v := range w.variables {
		if v.DType() == tf.Float {
			wide = append(wide, v.Handle().Op.Name())
		}
	}
	if err := w.narrow(wide, w.o.Weights); err != nil {
		return err
	}
	remaining := map[string]bool{}
	for name := range w.nodes {
		remaining[name] = true
	}
	w.keep(remaining) // without the functions that read wider numbers
	return nil
}

// zeros adds a first value of zeros (empty strings).
func (w *modelWriter) zeros(v *ops.Variable) (string, error) {
	dir := v.Name() + "/Initializer/zeros/"
	shape, err := bridge.FromFlat(bridge.Shape{int64(v.Shape().Rank())}, []int64(v.Shape()))
	if err != nil {
		return "", err
	}
	defer shape.Close()
	zero, err := bridge.NewTensor(v.DType(), bridge.Shape{})
	if err != nil {
		return "", err
	}
	defer zero.Close()
	dimensions, err := w.constant(w.free(dir+"shape_as_tensor"), shape)
	if err != nil {
		return "", err
	}
	value, err := w.constant(w.free(dir+"Const"), zero)
	if err != nil {
		return "", err
	}
	return w.add(w.free(dir+"Fill"), "Fill", map[string]*attrvalue.AttrValue{
		"T": attrType(v.DType()), "index_type": attrType(tf.Int64)}, dimensions, value), nil
}

// initialValue is the node of a variable's first value, as it now is.
func (w *modelWriter) initialValue(v *ops.Variable) string {
	node, _, _ := inputNode(w.nodes[v.Initializer().Name()].GetInput()[1])
	return node
}

// stored is the data type that a variable has in the model.
func (w *modelWriter) stored(v *ops.Variable) tf.DataType {
	if w.o.Weights != 0 && v.DType() == tf.Float {
		return w.o.Weights
	}
	return v.DType()
}

// values are the variables' values, as they are stored; the caller closes them.
func (w *modelWriter) values(ctx context.Context, sess *bridge.Session) (map[string]*bridge.Tensor, error) {
	if len(w.variables) == 0 {
		return nil, nil
	}
	values, err := checkpoints.Snapshot(ctx, w.g, sess, w.variables)
	if err != nil {
		return nil, err
	}
	for _, v := range w.variables {
		if stored := w.stored(v); stored != v.DType() {
			narrow, err := narrowed("Save", v.Name(), values[v.Name()], stored)
			_ = values[v.Name()].Close()
			if err != nil {
				delete(values, v.Name())
				for _, t := range values {
					_ = t.Close()
				}
				return nil, err
			}
			values[v.Name()] = narrow
		}
	}
	return values, nil
}

// Narrow rounds a float32 tensor to 16-bit numbers, tf.Half or tf.Bfloat16, as the
// weights of a model are stored; the caller closes the result. ErrOutOfRange for numbers
// that half has not.
func Narrow(t *bridge.Tensor, dt tf.DataType) (*bridge.Tensor, error) {
	if t == nil || t.DType() != tf.Float || dt != tf.Half && dt != tf.Bfloat16 {
		return nil, bridge.Errorf(bridge.InvalidArgument, "Narrow", "wanted a float32 tensor for half or bfloat16, got %v for %s", t, bridge.DTypeName(dt))
	}
	return narrowed("Narrow", "tensor", t, dt)
}

// narrowed rounds float32 numbers to 16 bits.
func narrowed(operation, name string, t *bridge.Tensor, dt tf.DataType) (*bridge.Tensor, error) {
	wide, err := bridge.Flat[float32](t)
	if err != nil {
		return nil, err
	}
	n, err := bridge.NewTensor(dt, t.Shape())
	if err != nil {
		return nil, err
	}
	if dt == tf.Bfloat16 {
		into, err := bridge.Flat[bridge.BFloat16](n)
		for i, x := range wide {
			into[i] = bridge.BFloat16FromFloat32(x)
		}
		return n, err
	}
	into, err := bridge.Flat[bridge.Half](n)
	for i, x := range wide {
		into[i] = bridge.HalfFromFloat32(x)
		if x == x && x-x == 0 && into[i]&0x7c00 == 0x7c00 { // finite, and no longer
			_ = n.Close()
			return nil, bridge.Errorf(bridge.OutOfRange, operation, "variable %q holds %v, which is too large for half; bfloat16 has float32's range", name, x)
		}
	}
	return n, err
}

// metaGraph makes the MetaGraph, the saver's nodes included.
func (w *modelWriter) metaGraph() (*protos.MetaGraphDef, error) {
	meta := &protos.MetaGraphDef{
		MetaInfoDef: &protos.MetaGraphDef_MetaInfoDef{
			Tags: w.o.Tags, TensorflowVersion: bridge.Version(), TensorflowGitVersion: "unknown"},
		SignatureDef:  map[string]*protos.SignatureDef{},
		CollectionDef: map[string]*protos.CollectionDef{},
	}
	if w.o.Tags == nil {
		meta.MetaInfoDef.Tags = []string{"serve"}
	}
	for key, spec := range w.o.Signatures {
		meta.SignatureDef[key] = &protos.SignatureDef{
			Inputs: w.infos(spec.Inputs, false), Outputs: w.infos(spec.Outputs, true),
			MethodName: cmp.Or(spec.Method, "tensorflow/serving/predict"),
		}
	}
	if w.o.Objects {
		return meta, nil
	}
	if err := w.variableCollections(meta); err != nil {
		return nil, err
	}
	if len(w.variables) > 0 {
		var saved []*savedVariable
		for _, v := range w.variables {
			saved = append(saved, &savedVariable{node: v.Handle().Op.Name(), dtype: w.stored(v), key: v.Name()})
		}
		meta.SaverDef = w.saver(saved, nil)
	}
	if len(w.inits) > 0 {
		init := w.group(w.free("init_all_tables"), w.inits)
		// As a signature, which TensorFlow 2 writes, it would be in the way of those who
		// load the model in Python and save its signatures again.
		nodes := func(names ...string) *protos.CollectionDef {
			return &protos.CollectionDef{Kind: &protos.CollectionDef_NodeList_{NodeList: &protos.CollectionDef_NodeList{Value: names}}}
		}
		meta.CollectionDef["saved_model_main_op"] = nodes(init)
		meta.CollectionDef["table_initializer"] = nodes(w.inits...)
	}
	for _, a := range w.assets {
		meta.AssetFileDef = append(meta.AssetFileDef, &protos.AssetFileDef{Filename: a.name, TensorInfo: &protos.TensorInfo{
			Encoding: &protos.TensorInfo_Name{Name: a.node + ":0"}, Dtype: types.DataType_DT_STRING, TensorShape: shapeProto(bridge.Shape{})}})
	}
	w.sorted()
	meta.GraphDef = w.def
	return meta, nil
}

// infos are the tensors of a signature.
func (w *modelWriter) infos(ports map[string]tf.Output, computed bool) map[string]*protos.TensorInfo {
	infos := map[string]*protos.TensorInfo{}
	for name, out := range ports {
		tensor := tensorName(out)
		if wide := w.widened[out.Op.Name()]; computed && wide != "" {
			tensor = wide + ":0"
		}
		infos[name] = &protos.TensorInfo{Encoding: &protos.TensorInfo_Name{Name: tensor},
			Dtype: types.DataType(bridge.BaseDType(out.DataType())), TensorShape: shapeProto(bridge.ShapeOf(out))}
	}
	return infos
}

// variableCollections lists the variables for Python.
func (w *modelWriter) variableCollections(meta *protos.MetaGraphDef) error {
	trainable := w.g.Trainable()
	var all, trained [][]byte
	for _, v := range w.variables {
		def := &variable.VariableDef{
			VariableName:     v.Handle().Op.Name() + ":0",
			InitializerName:  v.Initializer().Name(),
			SnapshotName:     v.Value().Op.Name() + ":0",
			InitialValueName: w.initialValue(v) + ":0",
			IsResource:       true,
			Trainable:        slices.Contains(trainable, v),
		}
		if from := v.InitialValue(); w.initialValue(v) == from.Op.Name() {
			def.InitialValueName = tensorName(from)
		}
		encoded, err := proto.Marshal(def)
		if err != nil {
			return bridge.Errorf(bridge.Internal, "Save", "variable %q: %w", v.Name(), err)
		}
		all = append(all, encoded)
		if def.Trainable {
			trained = append(trained, encoded)
		}
	}
	for key, list := range map[string][][]byte{ops.GlobalVariables: all, ops.TrainableVariables: trained} {
		if len(list) > 0 {
			meta.CollectionDef[key] = &protos.CollectionDef{Kind: &protos.CollectionDef_BytesList_{
				BytesList: &protos.CollectionDef_BytesList{Value: list}}}
		}
	}
	return nil
}

// group adds a node that runs the given ones.
func (w *rewrite) group(name string, nodes []string) string {
	inputs := make([]string, len(nodes))
	for i, n := range nodes {
		inputs[i] = "^" + n
	}
	return w.add(name, "NoOp", nil, inputs...)
}

// saver adds the nodes that save and restore variables by their keys, named as Python's
// Saver names them; objects are saved with them, where there are any.
func (w *rewrite) saver(variables []*savedVariable, objects []byte) *protos.SaverDef {
	dir := w.free("save")
	var keys, reads []string
	var dtypes []tf.DataType
	for i, v := range variables {
		keys, dtypes = append(keys, v.key), append(dtypes, v.dtype)
		reads = append(reads, w.add(fmt.Sprintf("%s/Read_%d/ReadVariableOp", dir, i), "ReadVariableOp",
			map[string]*attrvalue.AttrValue{"dtype": attrType(v.dtype)}, v.node))
	}
	asString := func() map[string]*attrvalue.AttrValue {
		return map[string]*attrvalue.AttrValue{"dtype": attrType(tf.String), "shape": attrShape(bridge.Shape{})}
	}
	given := w.strings(dir+"/filename/input", bridge.Shape{}, "model")
	filename := w.add(dir+"/filename", "PlaceholderWithDefault", asString(), given)
	prefix := w.add(dir+"/Const", "PlaceholderWithDefault", asString(), filename)
	// bundle are the inputs of an operation on files.
	bundle := func(op string, keys []string) []string {
		count := bridge.Shape{int64(len(keys))}
		whole := make([]string, len(keys)) // none is a slice
		return []string{prefix, w.strings(dir+"/"+op+"/tensor_names", count, keys...), w.strings(dir+"/"+op+"/shape_and_slices", count, whole...)}
	}
	savedKeys, saved, savedTypes := keys, reads, dtypes
	if objects != nil {
		savedKeys, savedTypes = append(slices.Clone(keys), objectGraphKey), append(slices.Clone(dtypes), tf.String)
		saved = append(slices.Clone(reads), w.strings(dir+"/objects", bridge.Shape{}, string(objects)))
	}
	save := w.add(dir+"/SaveV2", "SaveV2", map[string]*attrvalue.AttrValue{"dtypes": attrTypes(savedTypes)}, append(bundle("SaveV2", savedKeys), saved...)...)
	path := w.add(dir+"/control_dependency", "Identity", map[string]*attrvalue.AttrValue{"T": attrType(tf.String)}, prefix, "^"+save)
	restore := w.add(dir+"/RestoreV2", "RestoreV2", map[string]*attrvalue.AttrValue{"dtypes": attrTypes(dtypes)}, bundle("RestoreV2", keys)...)
	assigns := make([]string, len(variables))
	for i, v := range variables {
		from := restore
		if i > 0 {
			from = restore + ":" + strconv.Itoa(i)
		}
		assigns[i] = w.add(fmt.Sprintf("%s/AssignVariableOp_%d", dir, i), "AssignVariableOp",
			map[string]*attrvalue.AttrValue{"dtype": attrType(v.dtype)}, v.node, from)
	}
	return &protos.SaverDef{
		FilenameTensorName: prefix + ":0", SaveTensorName: path + ":0", RestoreOpName: w.group(dir+"/restore_all", assigns),
		MaxToKeep: 5, Version: protos.SaverDef_V2,
	}
}

// write fills the model's folder, saved_model.pb last.
func (w *modelWriter) write(dir string, meta *protos.MetaGraphDef, values map[string]*bridge.Tensor) error {
	if err := os.Mkdir(filepath.Join(dir, variablesName), 0o755); err != nil {
		return err
	}
	if len(values) > 0 {
		if err := checkpoints.Write(filepath.Join(dir, variablesName, variablesName), values, checkpoints.WriteOptions{Shards: w.o.Shards}); err != nil {
			return err
		}
	}
	if len(w.assets) > 0 {
		if err := os.Mkdir(filepath.Join(dir, assetsName), 0o755); err != nil {
			return err
		}
	}
	copied := map[string]bool{}
	for _, a := range w.assets {
		if copied[a.name] {
			continue
		}
		copied[a.name] = true
		if err := copyFile(a.from, filepath.Join(dir, assetsName, a.name)); err != nil {
			return err
		}
	}
	model := &protos.SavedModel{SavedModelSchemaVersion: 1, MetaGraphs: []*protos.MetaGraphDef{meta}}
	if size := proto.Size(model); size > maxModelBytes {
		return bridge.Errorf(bridge.ResourceExhausted, "Save", "the graph takes %d bytes, and a saved_model.pb ends at 2 GiB: keep large tensors in variables, not in constants", size)
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(model)
	if err != nil {
		return bridge.Errorf(bridge.Internal, "Save", "%w", err)
	}
	return os.WriteFile(filepath.Join(dir, modelFile), encoded, 0o644)
}
