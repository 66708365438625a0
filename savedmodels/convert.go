package savedmodels

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	variable "github.com/galeone/tensorflow/tensorflow/go/core/framework/variable_go_proto"
	protos "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

// ConvertOptions are the settings of [Model.Convert].
type ConvertOptions struct {
	// Objects writes the form of TensorFlow 2; see SaveOptions.Objects.
	Objects bool
	// Weights stores the float32 variables as 16-bit numbers, tf.Half or tf.Bfloat16,
	// which are converted where they are read; 0 stores them as they are.
	Weights tf.DataType
	// Overwrite replaces a model that is in the folder, at one moment.
	Overwrite bool
}

// Convert writes a loaded model, with the values that its variables have now, in the
// other form: a MetaGraph as TensorFlow 1 writes it, or objects of TensorFlow 2. It
// keeps what the signatures need, their names and the variables', and in a MetaGraph
// tables and assets; what Python had beside the signatures, such as methods of its own,
// is not kept.
//
// Errors: those of [Save]; ErrUnimplemented for TensorFlow 1's reference variables.
func (m *Model) Convert(ctx context.Context, dir string, o ConvertOptions) error {
	const op = "Convert"
	if err := m.enter(); err != nil {
		return err
	}
	defer m.leave()
	if err := checkTarget(dir, o.Overwrite); err != nil {
		return err
	}
	if o.Weights != 0 && o.Weights != tf.Half && o.Weights != tf.Bfloat16 {
		return bridge.Errorf(bridge.InvalidArgument, op, "Weights is %s; wanted half or bfloat16, or 0 for the variables' own", bridge.DTypeName(o.Weights))
	}
	c, err := m.converter(o)
	if err != nil {
		return err
	}
	values, err := c.read(ctx)
	defer func() {
		for _, t := range values {
			_ = t.Close()
		}
	}()
	if err != nil {
		return err
	}
	meta := &protos.MetaGraphDef{
		MetaInfoDef:  &protos.MetaGraphDef_MetaInfoDef{Tags: m.meta.GetMetaInfoDef().GetTags(), TensorflowVersion: bridge.Version(), TensorflowGitVersion: "unknown"},
		SignatureDef: map[string]*protos.SignatureDef{}, CollectionDef: map[string]*protos.CollectionDef{},
	}
	if o.Objects {
		values, err = c.asObjects(meta, values)
	} else {
		err = c.asMetaGraph(meta)
	}
	if err != nil {
		return err
	}
	w := &modelWriter{rewrite: c.rewrite, assets: c.assets}
	return inFolder(dir, o.Overwrite, func(temporary string) error { return w.write(temporary, meta, values) })
}

// converter is a loaded model on its way into a folder.
type converter struct {
	*rewrite
	m         *Model
	o         ConvertOptions
	variables []*savedVariable
	wide      []tf.Output // what reads the variables
	assets    []asset
	init      string
}

func (m *Model) converter(o ConvertOptions) (*converter, error) {
	c := &converter{m: m, o: o}
	known := map[string]Variable{}
	for _, v := range m.Variables() {
		known[sharedName(v.Handle.Op)] = v
	}
	init, err := m.initializer()
	if err != nil {
		return nil, err
	}
	var roots []string
	if init != nil {
		c.init = init.Name()
		roots = append(roots, c.init)
	}
	var wanted []Variable
	reach := map[string]bool{}
	if c.rewrite, err = newRewrite(m.graph); err != nil {
		return nil, err
	}
	for _, s := range m.signatures {
		for _, p := range slices.Concat(s.Inputs, s.Outputs) {
			node, _, _ := inputNode(p.Tensor)
			roots = append(roots, node)
		}
	}
	maps.Copy(reach, c.needed(roots, nil))
	seen := map[string]bool{}
	for _, n := range c.def.GetNode() {
		if !reach[n.GetName()] {
			continue
		}
		switch n.GetOp() {
		case "VariableV2", "Variable":
			return nil, bridge.Errorf(bridge.Unimplemented, "Convert", "%s is a reference variable of TensorFlow 1; Freeze makes a graph of the model", n.GetName())
		case "VarHandleOp":
			handle := bridge.OperationByName(m.graph, n.GetName())
			shared := sharedName(handle)
			if seen[shared] {
				continue // the nodes of one name are one variable
			}
			seen[shared] = true
			v, is := known[shared]
			if !is {
				v = Variable{Name: shared}
				if v.DType, err = bridge.AttrType(handle, "dtype"); err != nil {
					return nil, err
				}
				if v.Shape, err = bridge.AttrShape(handle, "shape"); err != nil {
					return nil, err
				}
			}
			v.Handle = handle.Output(0)
			wanted = append(wanted, v)
		}
	}
	slices.SortFunc(wanted, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	for _, v := range wanted {
		read, err := m.reading(v.Handle.Op)
		if err != nil {
			return nil, err
		}
		c.wide = append(c.wide, read)
		c.variables = append(c.variables, &savedVariable{name: v.Name, node: v.Handle.Op.Name(), dtype: v.DType, shape: v.Shape, trainable: v.Trainable, key: v.Name})
	}
	defs, err := m.assetDefs()
	if err != nil {
		return nil, err
	}
	for _, def := range defs {
		node, _, _ := inputNode(def.GetTensorInfo().GetName())
		if reach[node] {
			c.assets = append(c.assets, asset{node: node, name: def.GetFilename(), from: filepath.Join(m.dir, assetsName, def.GetFilename())})
		}
	}
	c.keep(reach)
	if !o.Objects {
		if err := c.inlined(); err != nil {
			return nil, err
		}
		c.keep(c.needed(roots, nil))
	}
	c.rename()
	if o.Weights == 0 {
		return c, nil
	}
	var narrow []string
	for _, n := range c.def.GetNode() {
		if n.GetOp() == "VarHandleOp" && tf.DataType(n.GetAttr()["dtype"].GetType()) == tf.Float {
			narrow = append(narrow, n.GetName())
		}
	}
	if err := c.narrow(narrow, o.Weights); err != nil {
		return nil, err
	}
	remaining := map[string]bool{}
	for name := range c.nodes {
		remaining[name] = true
	}
	c.keep(remaining)
	for _, v := range c.variables {
		if v.dtype == tf.Float {
			v.dtype = o.Weights
		}
	}
	return c, nil
}

// rename has the nodes of the variables share Python's names of these, and be named so
// where they can be: TensorFlow 2 numbers them apart.
func (c *converter) rename() {
	c.taken = map[string]bool{}
	for name := range c.nodes {
		c.take(name)
	}
	shared := map[string]string{} // Python's name, by what the nodes shared
	renamed := map[string]string{}
	for _, v := range c.variables {
		shared[sharedName(bridge.OperationByName(c.m.graph, v.node))] = v.name
		name := strings.Map(nameRune, v.name)
		if name == v.node || c.taken[strings.ToLower(name)] || bridge.CheckName(name) != nil {
			continue
		}
		renamed[v.node] = name
		c.take(name)
		v.node = name
	}
	for _, n := range c.def.GetNode() {
		if n.GetOp() == "VarHandleOp" {
			old := cmp.Or(string(n.GetAttr()["shared_name"].GetS()), n.GetName())
			if name := shared[old]; name != "" {
				n.Attr["shared_name"] = &attrvalue.AttrValue{Value: &attrvalue.AttrValue_S{S: []byte(name)}}
			}
		}
		if name := renamed[n.GetName()]; name != "" {
			delete(c.nodes, n.GetName())
			n.Name = name
			c.nodes[name] = n
		}
		for i, input := range n.GetInput() {
			node, output, control := inputNode(input)
			if name := renamed[node]; name != "" && output == 0 {
				if control {
					name = "^" + name
				}
				n.Input[i] = name
			}
		}
		for _, wish := range n.GetAttr()["_class"].GetList().GetS() {
			if name := renamed[strings.TrimPrefix(string(wish), "loc:@")]; name != "" {
				delete(n.Attr, "_class")
				break
			}
		}
	}
}

// sharedName is what the nodes of one variable have in common.
func sharedName(handle *tf.Operation) string {
	if shared, err := bridge.AttrString(handle, "shared_name"); err == nil && shared != "" {
		return shared
	}
	return handle.Name()
}

// read gives the variables' values, by name; the caller closes them, also after an
// error.
func (c *converter) read(ctx context.Context) (map[string]*bridge.Tensor, error) {
	values := map[string]*bridge.Tensor{}
	if len(c.variables) == 0 {
		return values, nil
	}
	all, err := c.m.session.Call(ctx, bridge.Call{Fetches: c.wide, Exclusive: true})
	if err != nil {
		return values, err
	}
	for i, v := range c.variables {
		values[v.name] = all[i]
	}
	for _, v := range c.variables {
		t := values[v.name]
		if v.dtype == t.DType() {
			continue
		}
		narrow, err := narrowed("Convert", v.name, t, v.dtype)
		if err != nil {
			return values, err
		}
		_ = t.Close()
		values[v.name] = narrow
	}
	return values, nil
}

// asObjects gives the MetaGraph objects, and returns the values by their keys.
func (c *converter) asObjects(meta *protos.MetaGraphDef, values map[string]*bridge.Tensor) (map[string]*bridge.Tensor, error) {
	if c.init != "" || len(c.assets) > 0 {
		return values, bridge.Errorf(bridge.Unimplemented, "Convert", "tables, initializers and assets are not written as objects of TensorFlow 2")
	}
	f := &objectForm{rewrite: c.rewrite, tensors: map[string]string{}, variables: c.variables}
	for read, wide := range c.widened {
		f.tensors[read+":0"] = wide + ":0"
	}
	for _, name := range c.m.Signatures() {
		f.signatures = append(f.signatures, c.m.signatures[name])
	}
	values, err := f.write(meta, values)
	for name, def := range meta.GetSignatureDef() { // the values of inputs that may be left out
		def.ProtoReflect().SetUnknown(c.m.meta.GetSignatureDef()[name].ProtoReflect().GetUnknown())
	}
	return values, err
}

// asMetaGraph gives the MetaGraph signatures, collections and a saver.
func (c *converter) asMetaGraph(meta *protos.MetaGraphDef) error {
	for _, name := range c.m.Signatures() {
		meta.SignatureDef[name] = proto.CloneOf(c.m.meta.GetSignatureDef()[name])
		for _, info := range meta.SignatureDef[name].GetOutputs() {
			if node, output, _ := inputNode(info.GetName()); c.widened[node] != "" && output == 0 {
				info.Encoding = &protos.TensorInfo_Name{Name: c.widened[node] + ":0"}
			}
		}
	}
	var all, trained [][]byte
	for _, v := range c.variables {
		def, err := c.variableDef(v)
		if err != nil {
			return err
		}
		all = append(all, def)
		if v.trainable {
			trained = append(trained, def)
		}
	}
	for key, list := range map[string][][]byte{ops.GlobalVariables: all, ops.TrainableVariables: trained} {
		if len(list) > 0 {
			meta.CollectionDef[key] = &protos.CollectionDef{Kind: &protos.CollectionDef_BytesList_{BytesList: &protos.CollectionDef_BytesList{Value: list}}}
		}
	}
	if len(c.variables) > 0 {
		meta.SaverDef = c.saver(c.variables, nil)
	}
	if c.init != "" {
		meta.CollectionDef["saved_model_main_op"] = &protos.CollectionDef{Kind: &protos.CollectionDef_NodeList_{NodeList: &protos.CollectionDef_NodeList{Value: []string{c.init}}}}
	}
	for _, a := range c.assets {
		meta.AssetFileDef = append(meta.AssetFileDef, &protos.AssetFileDef{Filename: a.name, TensorInfo: &protos.TensorInfo{
			Encoding: &protos.TensorInfo_Name{Name: a.node + ":0"}, Dtype: attrType(tf.String).GetType(), TensorShape: shapeProto(bridge.Shape{})}})
	}
	c.sorted()
	meta.GraphDef = c.def
	return nil
}

// variableDef adds what TensorFlow 1 wants of a variable, an initializer and a read,
// and lists it.
func (c *converter) variableDef(v *savedVariable) ([]byte, error) {
	dir := strings.Map(nameRune, v.name)
	dims := v.shape.Clone()
	for i, d := range dims {
		dims[i] = max(d, 0) // of unknown size: none
	}
	shape, err := bridge.FromFlat(bridge.Shape{int64(len(dims))}, []int64(dims))
	if err != nil {
		return nil, err
	}
	defer shape.Close()
	zero, err := bridge.NewTensor(v.dtype, bridge.Shape{})
	if err != nil {
		return nil, err
	}
	defer zero.Close()
	dimensions, err := c.constant(c.free(dir+"/Initializer/shape"), shape)
	if err != nil {
		return nil, err
	}
	value, err := c.constant(c.free(dir+"/Initializer/zero"), zero)
	if err != nil {
		return nil, err
	}
	first := c.add(c.free(dir+"/Initializer/zeros"), "Fill", map[string]*attrvalue.AttrValue{"T": attrType(v.dtype), "index_type": attrType(tf.Int64)}, dimensions, value)
	assign := c.add(c.free(dir+"/Assign"), "AssignVariableOp", map[string]*attrvalue.AttrValue{"dtype": attrType(v.dtype)}, v.node, first)
	read := c.add(c.free(dir+"/Read/ReadVariableOp"), "ReadVariableOp", map[string]*attrvalue.AttrValue{"dtype": attrType(v.dtype)}, v.node)
	encoded, err := proto.Marshal(&variable.VariableDef{VariableName: v.node + ":0", InitializerName: assign, SnapshotName: read + ":0",
		InitialValueName: first + ":0", IsResource: true, Trainable: v.trainable})
	if err != nil {
		return nil, bridge.Errorf(bridge.Internal, "Convert", "%w", err)
	}
	return encoded, nil
}
