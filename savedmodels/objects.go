package savedmodels

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	graphdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	nodedef "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	types "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	versions "github.com/galeone/tensorflow/tensorflow/go/core/framework/versions_go_proto"
	protos "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ml/sluice/bridge"
)

// savedVariable is a variable on its way into a model.
type savedVariable struct {
	name      string // Python's
	node      string // its VarHandleOp
	dtype     tf.DataType
	shape     bridge.Shape
	trainable bool
	key       string // in the checkpoint
}

// objectForm makes of a graph what tf.saved_model.save writes: a function for each
// signature, and the objects that Python has when it loads the model. They are the
// variables, along their scopes (net/w is m.net.w) and in the lists variables and
// trainable_variables; the signatures; and a __call__ that is serving_default.
type objectForm struct {
	*rewrite
	variables  []*savedVariable
	signatures []*Signature
	tensors    map[string]string // what gives an output, where it is another tensor than the signature says

	nodes   []*protos.SavedObject
	tracked []*protos.TrackableObjectGraph_TrackableObject
	graph   *protos.SavedObjectGraph
	places  map[string]int32 // of variables, by node
}

// make gives the MetaGraph's graph, signatures and objects; the checkpoint's objects,
// serialized; and sets the variables' keys.
func (f *objectForm) make(meta *protos.MetaGraphDef) (objects []byte, err error) {
	scratch, err := f.scratch()
	if err != nil {
		return nil, err
	}
	f.graph = &protos.SavedObjectGraph{ConcreteFunctions: map[string]*protos.SavedConcreteFunction{}}
	f.places = map[string]int32{}
	root := f.object("_generic_user_object")
	f.place(root)
	library := f.def.GetLibrary()
	if library == nil {
		library = new(function.FunctionDefLibrary)
	}
	handles := map[string]*nodedef.NodeDef{}
	for _, v := range f.variables {
		handles[v.node] = f.rewrite.nodes[v.node]
	}
	old := f.def
	f.rewrite.def = &graphdef.GraphDef{Versions: old.GetVersions(), Library: library}
	f.rewrite.nodes, f.taken = map[string]*nodedef.NodeDef{}, map[string]bool{}
	for _, v := range f.variables {
		n := handles[v.node]
		f.def.Node = append(f.def.Node, n)
		f.rewrite.nodes[n.GetName()] = n
		f.take(n.GetName())
	}
	signatures := f.object("signature_map")
	for _, s := range f.signatures {
		body, captured, err := f.function(scratch, old, s)
		if err != nil {
			return nil, err
		}
		name := body.GetSignature().GetName()
		library.Function = append(library.Function, body)
		f.concrete(name, s, captured, false)
		bare := &protos.SavedBareConcreteFunction{ConcreteFunctionName: name, ArgumentKeywords: portNames(s.Inputs)}
		if len(s.Inputs) == 1 {
			bare.AllowedPositionalArguments = 1 // as Keras's TFSMLayer calls it
		}
		f.child(signatures, s.Name, f.add(&protos.SavedObject{Kind: &protos.SavedObject_BareConcreteFunction{BareConcreteFunction: bare}}))
		meta.SignatureDef[s.Name] = f.call(name, s, captured)
		if s.Name == "serving_default" {
			same := proto.CloneOf(body)
			same.Signature.Name = freeFunction(library, "__inference_call")
			library.Function = append(library.Function, same)
			f.concrete(same.Signature.Name, s, captured, true)
			f.child(root, "__call__", f.add(&protos.SavedObject{Kind: &protos.SavedObject_Function{Function: &protos.SavedFunction{
				ConcreteFunctions: []string{same.Signature.Name}, FunctionSpec: functionSpec(portNames(s.Inputs))}}}))
		}
	}
	f.child(root, "signatures", signatures)
	f.graph.Nodes = f.nodes
	meta.GraphDef, meta.ObjectGraphDef = f.def, f.graph
	objects, err = proto.MarshalOptions{Deterministic: true}.Marshal(&protos.TrackableObjectGraph{Nodes: f.tracked})
	if err != nil {
		return nil, bridge.Errorf(bridge.Internal, "Save", "%w", err)
	}
	return objects, nil
}

// scratch is the graph as TensorFlow has it, of which functions are made.
func (f *objectForm) scratch() (*tf.Graph, error) {
	for _, n := range f.def.GetNode() {
		switch kind := n.GetOp(); {
		case strings.HasPrefix(kind, "HashTable"), strings.HasPrefix(kind, "InitializeTable"):
			return nil, bridge.Errorf(bridge.Unimplemented, "Save", "%s (%s): tables are not written as objects of TensorFlow 2; without SaveOptions.Objects they are", n.GetName(), kind)
		case kind == "VariableV2", kind == "Variable":
			return nil, bridge.Errorf(bridge.Unimplemented, "Save", "%s is a reference variable of TensorFlow 1, which can't be an object of TensorFlow 2", n.GetName())
		}
	}
	encoded, err := proto.Marshal(f.def)
	if err != nil {
		return nil, bridge.Errorf(bridge.Internal, "Save", "%w", err)
	}
	g := tf.NewGraph()
	_, err = bridge.Import(g, encoded, bridge.ImportOptions{})
	return g, err
}

// object adds one of Python's objects.
func (f *objectForm) object(identifier string) int32 {
	return f.add(&protos.SavedObject{Kind: &protos.SavedObject_UserObject{UserObject: &protos.SavedUserObject{
		Identifier: identifier, Version: &versions.VersionDef{Producer: 1, MinConsumer: 1}}}})
}

// add adds a node to both graphs of objects, that of the model and that of the
// checkpoint, which number them alike.
func (f *objectForm) add(node *protos.SavedObject) int32 {
	f.nodes = append(f.nodes, node)
	f.tracked = append(f.tracked, &protos.TrackableObjectGraph_TrackableObject{HasCheckpointValues: wrapperspb.Bool(node.GetVariable() != nil)})
	return int32(len(f.nodes) - 1)
}

func (f *objectForm) child(of int32, name string, node int32) {
	reference := func() *protos.TrackableObjectGraph_TrackableObject_ObjectReference {
		return &protos.TrackableObjectGraph_TrackableObject_ObjectReference{NodeId: node, LocalName: name}
	}
	f.nodes[of].Children = append(f.nodes[of].Children, reference())
	f.tracked[of].Children = append(f.tracked[of].Children, reference())
}

// attributes of the root that are not for scopes and variables.
var rootAttributes = []string{"signatures", "variables", "trainable_variables", "graph", "tensorflow_version", "tensorflow_git_version"}

// place makes the objects of the variables, and of the scopes that they are in.
func (f *objectForm) place(root int32) {
	isVariable := map[string]bool{}
	for _, v := range f.variables {
		isVariable[v.name] = true
	}
	scopes := map[string]int32{"": root}
	paths := map[int32]string{root: ""}
	names := map[int32]map[string]bool{root: {}}
	for _, name := range rootAttributes {
		names[root][name] = true
	}
	local := func(parent int32, name string) string {
		name = strings.ReplaceAll(name, "/", "_")
		if strings.HasPrefix(name, "__") {
			name = "v" + name // Python's own
		}
		free := name
		for i := 1; names[parent][free]; i++ {
			free = name + "_" + strconv.Itoa(i)
		}
		names[parent][free] = true
		return free
	}
	join := func(path, name string) string {
		return strings.TrimPrefix(path+"/"+strings.ReplaceAll(name, ".", ".."), "/")
	}
	all, trained := f.object("trackable_list_wrapper"), f.object("trackable_list_wrapper")
	counts := map[int32]int{}
	for _, v := range f.variables {
		// What a variable's name continues, such as the slots of an optimizer, can't be an
		// attribute of it: the rest of the name stays in one piece.
		parent, from := root, 0
		for i, c := range v.name {
			if c != '/' {
				continue
			}
			scope := v.name[:i]
			if isVariable[scope] {
				break
			}
			next, known := scopes[scope]
			if !known {
				name := local(parent, v.name[from:i])
				next = f.object("_generic_user_object")
				scopes[scope], paths[next], names[next] = next, join(paths[parent], name), map[string]bool{}
				f.child(parent, name, next)
			}
			parent, from = next, i+1
		}
		name := local(parent, v.name[from:])
		v.key = join(paths[parent], name) + "/.ATTRIBUTES/VARIABLE_VALUE"
		node := f.add(&protos.SavedObject{Kind: &protos.SavedObject_Variable{Variable: &protos.SavedVariable{
			Dtype: types.DataType(v.dtype), Shape: shapeProto(v.shape), Trainable: v.trainable, Name: v.name}}})
		f.tracked[node].Attributes = []*protos.TrackableObjectGraph_TrackableObject_SerializedTensor{{Name: "VARIABLE_VALUE", FullName: v.name, CheckpointKey: v.key}}
		f.places[v.node] = node
		f.child(parent, name, node)
		for _, list := range []int32{all, trained} {
			if list == all || v.trainable {
				f.child(list, strconv.Itoa(counts[list]), node)
				counts[list]++
			}
		}
	}
	f.child(root, "variables", all)
	f.child(root, "trainable_variables", trained)
}

// function makes the function of a signature, whose last arguments are the variables
// that it uses.
func (f *objectForm) function(g *tf.Graph, def *graphdef.GraphDef, s *Signature) (body *function.FunctionDef, captured []*savedVariable, err error) {
	whole := &rewrite{def: def, nodes: map[string]*nodedef.NodeDef{}}
	for _, n := range def.GetNode() {
		whole.nodes[n.GetName()] = n
	}
	find := func(name string) tf.Output {
		node, output, _ := inputNode(name)
		return tf.Output{Op: bridge.OperationByName(g, node), Index: output}
	}
	spec := bridge.FunctionSpec{Name: "signature", Ops: []*tf.Operation{}}
	fed, inputs := map[string]bool{}, map[string]bool{}
	for _, p := range s.Inputs {
		fed[canonical(p.Tensor)] = true
		in := find(p.Tensor)
		spec.Inputs = append(spec.Inputs, in)
		inputs[in.Op.Name()] = in.Op.NumOutputs() == 1
	}
	var outputs []string
	for _, p := range s.Outputs {
		tensor := p.Tensor
		if other := f.tensors[canonical(tensor)]; other != "" {
			tensor = other
		}
		out := find(tensor)
		spec.Outputs = append(spec.Outputs, out)
		if !fed[canonical(tensor)] {
			outputs = append(outputs, out.Op.Name())
		}
	}
	needed := whole.needed(outputs, fed)
	for _, v := range f.variables {
		if needed[v.node] {
			captured = append(captured, v)
			spec.Inputs = append(spec.Inputs, bridge.OperationByName(g, v.node).Output(0))
			inputs[v.node] = true
		}
	}
	for _, n := range def.GetNode() {
		if name := n.GetName(); needed[name] && !inputs[name] {
			spec.Ops = append(spec.Ops, bridge.OperationByName(g, name))
		}
	}
	if body, err = bridge.ToFunction(g, spec); err != nil {
		return nil, nil, err
	}
	// Python's loader knows its own functions by such names.
	body.Signature.Name = freeFunction(f.def.GetLibrary(), "__inference_signature_wrapper_"+strings.Map(nameRune, s.Name))
	return body, captured, nil
}

// call adds the nodes of a signature, and returns what it names.
func (f *objectForm) call(name string, s *Signature, captured []*savedVariable) *protos.SignatureDef {
	def := &protos.SignatureDef{Inputs: map[string]*protos.TensorInfo{}, Outputs: map[string]*protos.TensorInfo{}, MethodName: s.Method}
	info := func(tensor string, p Port) *protos.TensorInfo {
		return &protos.TensorInfo{Encoding: &protos.TensorInfo_Name{Name: tensor}, Dtype: types.DataType(bridge.BaseDType(p.DType)), TensorShape: shapeProto(p.Shape)}
	}
	var inputs []string
	var given, results []tf.DataType
	for _, p := range s.Inputs {
		node := f.rewrite.add(f.free(strings.Map(nameRune, s.Name+"_"+p.Name)), "Placeholder", map[string]*attrvalue.AttrValue{
			"dtype": attrType(p.DType), "shape": attrShape(p.Shape)})
		inputs, given = append(inputs, node), append(given, p.DType)
		def.Inputs[p.Name] = info(node+":0", p)
	}
	for _, v := range captured {
		inputs, given = append(inputs, v.node), append(given, bridge.Resource)
	}
	node := f.free("StatefulPartitionedCall")
	for i, p := range s.Outputs {
		results = append(results, bridge.BaseDType(p.DType))
		def.Outputs[p.Name] = info(node+":"+strconv.Itoa(i), p)
	}
	f.rewrite.add(node, "StatefulPartitionedCall", map[string]*attrvalue.AttrValue{
		"Tin": attrTypes(given), "Tout": attrTypes(results),
		"f": {Value: &attrvalue.AttrValue_Func{Func: &attrvalue.NameAttrList{Name: name}}},
	}, inputs...)
	return def
}

// concrete describes a function for Python: called with keywords it gives a dict, as a
// signature; called with positions it gives what it gives.
func (f *objectForm) concrete(name string, s *Signature, captured []*savedVariable, positions bool) {
	spec := func(p Port, named string) *protos.StructuredValue {
		return &protos.StructuredValue{Kind: &protos.StructuredValue_TensorSpecValue{TensorSpecValue: &protos.TensorSpecProto{
			Name: named, Shape: shapeProto(p.Shape), Dtype: types.DataType(bridge.BaseDType(p.DType))}}}
	}
	keywords, arguments, results := map[string]*protos.StructuredValue{}, []*protos.StructuredValue{}, map[string]*protos.StructuredValue{}
	for _, p := range s.Inputs {
		if positions {
			arguments = append(arguments, spec(p, p.Name))
		} else {
			keywords[p.Name] = spec(p, p.Name)
		}
	}
	for _, p := range s.Outputs {
		results[p.Name] = spec(p, p.Name)
	}
	c := &protos.SavedConcreteFunction{CanonicalizedInputSignature: tuple(tuple(arguments...), dict(keywords)), OutputSignature: dict(results)}
	if positions && len(s.Outputs) == 1 {
		c.OutputSignature = results[s.Outputs[0].Name]
	}
	for _, v := range captured {
		c.BoundInputs = append(c.BoundInputs, f.places[v.node])
	}
	f.graph.ConcreteFunctions[name] = c
}

func tuple(values ...*protos.StructuredValue) *protos.StructuredValue {
	return &protos.StructuredValue{Kind: &protos.StructuredValue_TupleValue{TupleValue: &protos.TupleValue{Values: values}}}
}

func list(values ...*protos.StructuredValue) *protos.StructuredValue {
	return &protos.StructuredValue{Kind: &protos.StructuredValue_ListValue{ListValue: &protos.ListValue{Values: values}}}
}

func dict(fields map[string]*protos.StructuredValue) *protos.StructuredValue {
	return &protos.StructuredValue{Kind: &protos.StructuredValue_DictValue{DictValue: &protos.DictValue{Fields: fields}}}
}

func none() *protos.StructuredValue {
	return &protos.StructuredValue{Kind: &protos.StructuredValue_NoneValue{NoneValue: &protos.NoneValue{}}}
}

// functionSpec is Python's signature of a function with these arguments.
func functionSpec(arguments []string) *protos.FunctionSpec {
	names := make([]*protos.StructuredValue, len(arguments))
	for i, a := range arguments {
		names[i] = &protos.StructuredValue{Kind: &protos.StructuredValue_StringValue{StringValue: a}}
	}
	spec := &protos.NamedTupleValue{Name: "FullArgSpec"}
	for _, field := range []struct {
		name  string
		value *protos.StructuredValue
	}{{"args", list(names...)}, {"varargs", none()}, {"varkw", none()}, {"defaults", none()}, {"kwonlyargs", list()}, {"kwonlydefaults", none()}, {"annotations", dict(nil)}} {
		spec.Values = append(spec.Values, &protos.PairValue{Key: field.name, Value: field.value})
	}
	return &protos.FunctionSpec{Fullargspec: &protos.StructuredValue{Kind: &protos.StructuredValue_NamedTupleValue{NamedTupleValue: spec}}, InputSignature: none()}
}

// freeFunction is a name that no function of the library has, numbered as Python
// numbers them.
func freeFunction(library *function.FunctionDefLibrary, name string) string {
	for i := len(library.GetFunction()); ; i++ {
		free := fmt.Sprintf("%s_%d", name, i)
		if !slices.ContainsFunc(library.GetFunction(), func(f *function.FunctionDef) bool { return f.GetSignature().GetName() == free }) {
			return free
		}
	}
}

// nameRune makes runes that no node's name may have underscores.
func nameRune(r rune) rune {
	if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("_.-/", r) {
		return r
	}
	return '_'
}

// canonical is a tensor's name with its output's number.
func canonical(tensor string) string {
	if strings.Contains(tensor, ":") {
		return tensor
	}
	return tensor + ":0"
}

func portNames(ports []Port) []string {
	names := make([]string, len(ports))
	for i, p := range ports {
		names[i] = p.Name
	}
	return names
}

// objects gives the MetaGraph objects, and returns the values by their keys.
func (w *modelWriter) objects(meta *protos.MetaGraphDef, values map[string]*bridge.Tensor) (map[string]*bridge.Tensor, error) {
	if len(w.inits) > 0 || len(w.assets) > 0 {
		return values, bridge.Errorf(bridge.Unimplemented, "Save", "tables, initializers and assets are not written as objects of TensorFlow 2; without SaveOptions.Objects they are")
	}
	f := &objectForm{rewrite: w.rewrite, tensors: map[string]string{}}
	for read, wide := range w.widened {
		f.tensors[read+":0"] = wide + ":0"
	}
	for _, v := range w.variables {
		f.variables = append(f.variables, &savedVariable{name: v.Name(), node: v.Handle().Op.Name(), dtype: w.stored(v), shape: v.Shape(), trainable: v.Trainable()})
	}
	for _, key := range slices.Sorted(maps.Keys(meta.GetSignatureDef())) {
		def := meta.GetSignatureDef()[key]
		s := &Signature{Name: key, Method: def.GetMethodName()}
		var err error
		if s.Inputs, err = ports(def.GetInputs()); err != nil {
			return values, bridge.Errorf(bridge.Internal, "Save", "%w", err)
		}
		if s.Outputs, err = ports(def.GetOutputs()); err != nil {
			return values, bridge.Errorf(bridge.Internal, "Save", "%w", err)
		}
		f.signatures = append(f.signatures, s)
	}
	return f.write(meta, values)
}

// write makes the MetaGraph whole, and returns the values by their keys.
func (f *objectForm) write(meta *protos.MetaGraphDef, values map[string]*bridge.Tensor) (map[string]*bridge.Tensor, error) {
	encoded, err := f.make(meta)
	if err != nil {
		return values, err
	}
	graph, err := bridge.FromStrings(bridge.Shape{}, []string{string(encoded)})
	if err != nil {
		return values, err
	}
	keyed := map[string]*bridge.Tensor{objectGraphKey: graph}
	for _, v := range f.variables {
		keyed[v.key] = values[v.name]
	}
	if len(f.variables) > 0 {
		meta.SaverDef = f.saver(f.variables, encoded)
	}
	f.sorted()
	return keyed, nil
}

// objectGraphKey is where a checkpoint keeps its objects.
const objectGraphKey = "_CHECKPOINTABLE_OBJECT_GRAPH"
