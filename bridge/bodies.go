package bridge

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	graph "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	nodedef "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	opdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/op_def_go_proto"
	versions "github.com/galeone/tensorflow/tensorflow/go/core/framework/versions_go_proto"
	"google.golang.org/protobuf/proto"
)

// Body is a function's body opened as a graph of its own, to be read, extended,
// and made into other functions by ToFunction. That graph's library holds the
// functions that the body calls.
type Body struct {
	Def     *function.FunctionDef
	Graph   *tf.Graph
	Args    []tf.Output     // in the order of the function's
	Results []tf.Output     // in the order of the function's
	Control []*tf.Operation // that run whenever the function does
}

// BodyArg is what is known of an argument of a function.
type BodyArg struct {
	Shape Shape // static; nil: any
	// Variable is set for the handle of a variable, of the dtype and shape given.
	// Within the body its argument then looks like such a handle, a VarHandleOp.
	Variable tf.DataType
}

// OpenBody opens the body of a function in g's library. args tells what is known
// of the arguments; missing ones are any tensor of the function's dtype.
//
// Errors: ErrNotFound when g has no such function, ErrInvalidArgument when
// its definition is broken.
func OpenBody(g *tf.Graph, f Func, args []BodyArg) (*Body, error) {
	if cGraph(g) == nil {
		return nil, invalid("OpenBody", "the graph is nil")
	}
	library, err := functionsReached(g, []*function.FunctionDef{{Signature: &opdef.OpDef{Name: f.Name}}})
	if err != nil {
		return nil, err
	}
	label := "function " + f.Name
	def := library[f.Name]
	if def == nil {
		return nil, Errorf(NotFound, label, "the graph's library has no such function")
	}
	values := map[string]*attrvalue.AttrValue{}
	for _, a := range f.Attrs {
		encoded, err := appendAttr(nil, a.Value, "")
		if err != nil {
			return nil, within(label, "attribute "+a.Name+": ", err)
		}
		values[a.Name] = new(attrvalue.AttrValue)
		if err := proto.Unmarshal(encoded, values[a.Name]); err != nil {
			return nil, invalid(label, "attribute %q is not a serialized AttrValue", a.Name)
		}
	}
	for _, a := range def.Signature.Attr {
		if values[a.Name] == nil && a.DefaultValue != nil {
			values[a.Name] = a.DefaultValue
		}
	}
	b := &Body{Def: def, Graph: tf.NewGraph()}
	used := map[string]bool{}
	var callees []*function.FunctionDef
	usedFunctions(library, def, used)
	for name := range used {
		callees = append(callees, library[name])
	}
	if len(callees) > 0 {
		if _, err := AddFunctions(b.Graph, callees...); err != nil {
			return nil, err
		}
	}

	translated := translation{label: label, library: library, values: values, nodes: map[string]*nodedef.NodeDef{}}
	o := ImportOptions{InputMap: map[string]tf.Output{}}
	for i, arg := range def.Signature.InputArg {
		if arg.NumberAttr != "" || arg.TypeListAttr != "" {
			return nil, invalid(label, "argument %s is a list, which functions of today don't have", arg.Name)
		}
		dt := arg.Type
		if arg.TypeAttr != "" {
			dt = values[arg.TypeAttr].GetType()
		}
		var known BodyArg
		if i < len(args) {
			known = args[i]
		}
		spec := OpSpec{Type: "Placeholder", Name: arg.Name, Attrs: []Attr{{"dtype", tf.DataType(dt)}, {"shape", known.Shape}}}
		if tf.DataType(dt) == Resource && known.Variable != 0 {
			spec = OpSpec{Type: "VarHandleOp", Name: arg.Name, Attrs: []Attr{
				{"dtype", known.Variable}, {"shape", known.Shape}, {"shared_name", arg.Name}, {"container", ""}}}
		}
		op, err := AddOperation(b.Graph, spec)
		if err != nil {
			return nil, within(label, "argument "+arg.Name+": ", err)
		}
		out := tf.Output{Op: op}
		b.Args = append(b.Args, out)
		o.InputMap[arg.Name+":0"] = out
		o.InputMap["^"+arg.Name] = out
	}
	for _, node := range def.NodeDef {
		translated.nodes[node.Name] = node
	}
	out := &graph.GraphDef{Versions: producer()}
	for _, node := range def.NodeDef {
		node := proto.CloneOf(node)
		for i, in := range node.Input {
			if node.Input[i], err = translated.tensor(in); err != nil {
				return nil, err
			}
		}
		for name, value := range node.Attr {
			if name := value.GetPlaceholder(); name != "" && values[name] == nil {
				return nil, invalid(label, "attribute %q, which node %q takes, was not given", name, node.GetName())
			}
			translated.substitute(node.Attr, name, value)
		}
		translated.keepColocation(node)
		out.Node = append(out.Node, node)
	}
	byName := map[string]tf.Output{}
	for i, arg := range def.Signature.InputArg {
		byName[arg.Name] = b.Args[i]
	}
	place := make([]int, len(def.Signature.OutputArg)) // in Imported.Outputs; -1: an argument
	for i, arg := range def.Signature.OutputArg {
		from, ok := def.Ret[arg.Name]
		if !ok {
			return nil, invalid(label, "nothing is returned as %q", arg.Name)
		}
		if _, isArg := byName[from]; isArg {
			place[i] = -1
			continue
		}
		name, err := translated.tensor(from)
		if err != nil {
			return nil, err
		}
		place[i] = len(o.ReturnOutputs)
		o.ReturnOutputs = append(o.ReturnOutputs, name)
	}
	for _, name := range def.Signature.ControlOutput {
		o.ReturnOps = append(o.ReturnOps, def.ControlRet[name])
	}
	imported := &Imported{}
	if len(out.Node) > 0 {
		encoded, err := proto.Marshal(out)
		if err != nil {
			return nil, invalid(label, "its body can't be serialized: %w", err)
		}
		if imported, err = Import(b.Graph, encoded, o); err != nil {
			return nil, within(label, "", err)
		}
	}
	for i, arg := range def.Signature.OutputArg {
		if place[i] < 0 {
			b.Results = append(b.Results, byName[def.Ret[arg.Name]])
		} else {
			b.Results = append(b.Results, imported.Outputs[place[i]])
		}
	}
	b.Control = imported.Ops
	return b, nil
}

// producer is the version of the graphs that this libtensorflow makes.
var producer = sync.OnceValue(func() *versions.VersionDef {
	def := new(graph.GraphDef)
	encoded, err := GraphDef(tf.NewGraph())
	if err != nil || proto.Unmarshal(encoded, def) != nil {
		return nil
	}
	return def.Versions
})

// usedFunctions collects the names of the functions that def calls, and those call.
func usedFunctions(library map[string]*function.FunctionDef, def *function.FunctionDef, used map[string]bool) {
	add := func(name string) {
		if callee := library[name]; callee != nil && !used[name] {
			used[name] = true
			usedFunctions(library, callee, used)
		}
	}
	for _, node := range def.NodeDef {
		add(node.Op)
		for _, value := range node.Attr {
			for _, name := range functionsIn(value) {
				add(name)
			}
		}
	}
}

// translation is from the names of a FunctionDef to those of a GraphDef.
type translation struct {
	label   string
	library map[string]*function.FunctionDef
	values  map[string]*attrvalue.AttrValue // of the function's own attributes
	nodes   map[string]*nodedef.NodeDef
	offsets map[string]map[string]int // by node and output argument
}

// tensor turns "node:output:2", the third tensor of an output, into "node:4", the
// fifth of all.
func (t *translation) tensor(name string) (string, error) {
	if strings.HasPrefix(name, "^") {
		return name, nil
	}
	node, rest, isNode := strings.Cut(name, ":")
	if !isNode {
		return name + ":0", nil // an argument
	}
	output, index, hasIndex := strings.Cut(rest, ":")
	i := 0
	if hasIndex {
		var err error
		if i, err = strconv.Atoi(index); err != nil {
			return "", invalid(t.label, "%q is not a tensor's name in a function", name)
		}
	}
	offset, err := t.offset(node, output)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s:%d", node, offset+i), nil
}

func (t *translation) offset(name, output string) (int, error) {
	node := t.nodes[name]
	if node == nil {
		return 0, invalid(t.label, "it has no node %q", name)
	}
	if known, ok := t.offsets[name]; ok {
		if at, ok := known[output]; ok {
			return at, nil
		}
		return 0, invalid(t.label, "node %q (%s) has no output %q", name, node.Op, output)
	}
	def, ok := OpDef(node.Op)
	if !ok {
		callee := t.library[node.Op]
		if callee == nil {
			return 0, unknownOp(node.Op, name)
		}
		def = callee.Signature
	}
	known, at := map[string]int{}, 0
	for _, arg := range def.OutputArg {
		known[arg.Name] = at
		switch {
		case arg.NumberAttr != "":
			at += int(t.attr(node, def, arg.NumberAttr).GetI())
		case arg.TypeListAttr != "":
			at += len(t.attr(node, def, arg.TypeListAttr).GetList().GetType())
		default:
			at++
		}
	}
	if t.offsets == nil {
		t.offsets = map[string]map[string]int{}
	}
	t.offsets[name] = known
	return t.offset(name, output)
}

// keepColocation drops the wish to be placed with nodes that are not in the
// function, such as those of the graph that it was made in.
func (t *translation) keepColocation(node *nodedef.NodeDef) {
	const class, prefix = "_class", "loc:@"
	value := node.Attr[class]
	if value == nil {
		return
	}
	var kept [][]byte
	for _, s := range value.GetList().GetS() {
		if name, ok := strings.CutPrefix(string(s), prefix); !ok || t.nodes[name] != nil {
			kept = append(kept, s)
		}
	}
	if kept == nil {
		delete(node.Attr, class)
		return
	}
	node.Attr[class] = &attrvalue.AttrValue{Value: &attrvalue.AttrValue_List{List: &attrvalue.AttrValue_ListValue{S: kept}}}
}

// attr is the value of an attribute that says how many outputs a node has.
func (t *translation) attr(node *nodedef.NodeDef, def *opdef.OpDef, name string) *attrvalue.AttrValue {
	if value := node.Attr[name]; value != nil {
		if of := value.GetPlaceholder(); of != "" {
			return t.values[of]
		}
		return value
	}
	for _, a := range def.Attr {
		if a.Name == name {
			return a.DefaultValue
		}
	}
	return nil
}

// substitute puts the values of the function's attributes where a node refers to
// them.
func (t *translation) substitute(attrs map[string]*attrvalue.AttrValue, name string, value *attrvalue.AttrValue) {
	if of := value.GetPlaceholder(); of != "" {
		if known := t.values[of]; known != nil {
			attrs[name] = known
		}
		return
	}
	inside := func(f *attrvalue.NameAttrList) {
		for name, value := range f.GetAttr() {
			t.substitute(f.Attr, name, value)
		}
	}
	inside(value.GetFunc())
	for _, f := range value.GetList().GetFunc() {
		inside(f)
	}
}
