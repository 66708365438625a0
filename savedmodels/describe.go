package savedmodels

import (
	"maps"
	"path/filepath"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	nodedef "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	opdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/op_def_go_proto"
	protos "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
)

// Description is what a MetaGraph of a SavedModel has, as far as its
// saved_model.pb tells. Nothing of it has run.
type Description struct {
	Tags        []string // sorted
	TensorFlow  string   // the version that saved it
	Signatures  []*Signature
	Variables   []Variable
	Assets      []string // file names
	Initializer string   // the operation that runs after the variables are restored; may be empty
	Graph       GraphDescription
	TF          *tf.Graph // the graph itself
}

// GraphDescription is what a graph is made of.
type GraphDescription struct {
	Nodes     int
	Functions int
	Ops       map[string]int // how often each op type comes, in functions too
	// NoGradient are the op types that the described tensors depend on, that carry
	// floating-point numbers, and that no gradient can go through. Sorted.
	NoGradient []string
}

// Describe reads the saved_model.pb of a folder, without its variables. There is
// a description for each MetaGraph.
func Describe(dir string) ([]Description, error) {
	graphs, err := readModel(dir)
	if err != nil {
		return nil, err
	}
	var all []Description
	for _, meta := range graphs {
		m := &Model{dir: dir, meta: meta, graph: tf.NewGraph()}
		if err := m.open(); err != nil {
			return nil, err
		}
		d, err := m.describe()
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

func (m *Model) describe() (Description, error) {
	d := Description{
		Tags:       m.Tags(),
		TensorFlow: m.meta.GetMetaInfoDef().GetTensorflowVersion(),
		Variables:  m.Variables(),
		TF:         m.graph,
	}
	var outputs []*tf.Operation
	for _, name := range m.Signatures() {
		s := m.signatures[name]
		d.Signatures = append(d.Signatures, s)
		for _, p := range s.Outputs {
			out, err := m.Tensor(p.Tensor)
			if err != nil {
				return d, err
			}
			outputs = append(outputs, out.Op)
		}
	}
	defs, err := m.assetDefs()
	if err != nil {
		return d, err
	}
	for _, def := range defs {
		d.Assets = append(d.Assets, def.GetFilename())
	}
	slices.Sort(d.Assets)
	d.Assets = slices.Compact(d.Assets)
	init, err := m.initializer()
	if err != nil {
		return d, err
	}
	if init != nil {
		d.Initializer = init.Name()
	}
	d.Graph, err = DescribeGraph(m.graph, outputs)
	return d, err
}

// DescribeGraph describes a graph, and of its op types tells which have no
// gradient among those that the outputs depend on.
func DescribeGraph(g *tf.Graph, outputs []*tf.Operation) (GraphDescription, error) {
	d := GraphDescription{Ops: map[string]int{}}
	for op := range bridge.Operations(g) {
		d.Nodes++
		d.Ops[op.Type()]++
	}
	functions, err := bridge.Functions(g)
	if err != nil {
		return d, err
	}
	d.Functions = len(functions)
	w := gradientWalk{functions: map[string]*function.FunctionDef{}, missing: map[string]bool{}, done: map[string]bool{}}
	for _, f := range functions {
		w.functions[f.GetSignature().GetName()] = f
		for _, node := range f.GetNodeDef() {
			d.Ops[node.GetOp()]++
		}
	}
	seen := map[bridge.OutputKey]bool{}
	todo := slices.Clone(outputs)
	for len(todo) > 0 {
		op := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[bridge.OpKey(op)] {
			continue
		}
		seen[bridge.OpKey(op)] = true
		def, err := bridge.NodeDef(op)
		if err != nil {
			return d, err
		}
		w.node(def)
		for _, in := range bridge.Inputs(op) {
			todo = append(todo, in.Op)
		}
	}
	d.NoGradient = slices.Sorted(maps.Keys(w.missing))
	return d, nil
}

// gradientWalk finds op types without a gradient, in functions too.
type gradientWalk struct {
	functions map[string]*function.FunctionDef
	missing   map[string]bool
	done      map[string]bool // functions
}

func (w *gradientWalk) node(def *nodedef.NodeDef) {
	w.function(def.GetOp())
	for _, attr := range def.GetAttr() {
		w.function(attr.GetFunc().GetName())
		for _, f := range attr.GetList().GetFunc() {
			w.function(f.GetName())
		}
	}
	if w.functions[def.GetOp()] != nil {
		return
	}
	if _, known := gradients.Lookup(def.GetOp()); known {
		return
	}
	if op, ok := bridge.OpDef(def.GetOp()); ok && carries(op.GetInputArg(), def) && carries(op.GetOutputArg(), def) {
		w.missing[def.GetOp()] = true
	}
}

func (w *gradientWalk) function(name string) {
	f := w.functions[name]
	if f == nil || w.done[name] {
		return
	}
	w.done[name] = true
	for _, node := range f.GetNodeDef() {
		w.node(node)
	}
}

// carries tells whether one of the arguments has a type that gradients have.
func carries(args []*opdef.OpDef_ArgDef, node *nodedef.NodeDef) bool {
	for _, arg := range args {
		types := []tf.DataType{tf.DataType(arg.GetType())}
		if arg.GetTypeAttr() != "" {
			types = typesOf(node.GetAttr()[arg.GetTypeAttr()])
		}
		if arg.GetTypeListAttr() != "" {
			types = typesOf(node.GetAttr()[arg.GetTypeListAttr()])
		}
		if slices.ContainsFunc(types, gradients.Differentiable) {
			return true
		}
	}
	return false
}

func typesOf(attr *attrvalue.AttrValue) []tf.DataType {
	types := []tf.DataType{tf.DataType(attr.GetType())}
	for _, t := range attr.GetList().GetType() {
		types = append(types, tf.DataType(t))
	}
	return types
}

// assetDefs are the model's assets, where TensorFlow 2 or TensorFlow 1 has them.
func (m *Model) assetDefs() ([]*protos.AssetFileDef, error) {
	defs := slices.Clone(m.meta.GetAssetFileDef())
	if len(defs) > 0 {
		return defs, nil
	}
	for _, any := range m.meta.GetCollectionDef()["saved_model_assets"].GetAnyList().GetValue() {
		def := new(protos.AssetFileDef)
		if err := any.UnmarshalTo(def); err != nil {
			return nil, bridge.Errorf(bridge.DataLoss, filepath.Join(m.dir, modelFile), "its list of assets is damaged: %w", err)
		}
		defs = append(defs, def)
	}
	return defs, nil
}
