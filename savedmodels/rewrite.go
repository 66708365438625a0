package savedmodels

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	graphdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	nodedef "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	tensorproto "github.com/galeone/tensorflow/tensorflow/go/core/framework/tensor_go_proto"
	tensorshape "github.com/galeone/tensorflow/tensorflow/go/core/framework/tensor_shape_go_proto"
	types "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
)

// rewrite is a copy of a graph that is changed on its way into a file. The graph
// itself never is.
type rewrite struct {
	def   *graphdef.GraphDef
	nodes map[string]*nodedef.NodeDef
	taken map[string]bool // names, in lower case, and the directories above them
	// widened are, by the reads of variables that are stored as 16-bit numbers, the
	// nodes that convert what they read.
	widened map[string]string
}

func newRewrite(g *tf.Graph) (*rewrite, error) {
	encoded, err := bridge.GraphDef(g)
	if err != nil {
		return nil, err
	}
	def := new(graphdef.GraphDef)
	if err := proto.Unmarshal(encoded, def); err != nil {
		return nil, bridge.Errorf(bridge.Internal, "Save", "the graph can't be read back: %w", err)
	}
	w := &rewrite{def: def, nodes: map[string]*nodedef.NodeDef{}, taken: map[string]bool{}, widened: map[string]string{}}
	for _, n := range def.GetNode() {
		w.nodes[n.GetName()] = n
		w.take(n.GetName())
	}
	return w, nil
}

func (w *rewrite) take(name string) {
	name = strings.ToLower(name)
	for i, c := range name {
		if c == '/' {
			w.taken[name[:i]] = true
		}
	}
	w.taken[name] = true
}

// free is the name, or with the first suffix _1, _2 … that nothing has.
func (w *rewrite) free(name string) string {
	free := name
	for i := 1; w.taken[strings.ToLower(free)]; i++ {
		free = name + "_" + strconv.Itoa(i)
	}
	return free
}

// add adds a node.
func (w *rewrite) add(name, op string, attrs map[string]*attrvalue.AttrValue, inputs ...string) string {
	n := &nodedef.NodeDef{Name: name, Op: op, Attr: attrs, Input: inputs}
	w.def.Node = append(w.def.Node, n)
	w.nodes[name] = n
	w.take(name)
	return name
}

func attrType(dt tf.DataType) *attrvalue.AttrValue {
	return &attrvalue.AttrValue{Value: &attrvalue.AttrValue_Type{Type: types.DataType(dt)}}
}

func attrTypes(all []tf.DataType) *attrvalue.AttrValue {
	list := &attrvalue.AttrValue_ListValue{}
	for _, dt := range all {
		list.Type = append(list.Type, types.DataType(dt))
	}
	return &attrvalue.AttrValue{Value: &attrvalue.AttrValue_List{List: list}}
}

func attrShape(shape bridge.Shape) *attrvalue.AttrValue {
	return &attrvalue.AttrValue{Value: &attrvalue.AttrValue_Shape{Shape: shapeProto(shape)}}
}

func shapeProto(shape bridge.Shape) *tensorshape.TensorShapeProto {
	p := &tensorshape.TensorShapeProto{UnknownRank: shape == nil}
	for _, d := range shape {
		p.Dim = append(p.Dim, &tensorshape.TensorShapeProto_Dim{Size: d})
	}
	return p
}

// constant adds a Const of a tensor's value.
func (w *rewrite) constant(name string, t *bridge.Tensor) (string, error) {
	p, err := tensorProto(t)
	if err != nil {
		return "", err
	}
	return w.constantProto(name, p), nil
}

func tensorProto(t *bridge.Tensor) (*tensorproto.TensorProto, error) {
	p := &tensorproto.TensorProto{Dtype: types.DataType(t.DType()), TensorShape: shapeProto(t.Shape())}
	if t.DType() == tf.String {
		values, err := t.Strings()
		if err != nil {
			return nil, err
		}
		for _, s := range values {
			p.StringVal = append(p.StringVal, []byte(s))
		}
		return p, nil
	}
	data, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	p.TensorContent = slices.Clone(data)
	return p, nil
}

func (w *rewrite) constantProto(name string, p *tensorproto.TensorProto) string {
	return w.add(name, "Const", constantAttrs(p))
}

func constantAttrs(p *tensorproto.TensorProto) map[string]*attrvalue.AttrValue {
	return map[string]*attrvalue.AttrValue{
		"dtype": {Value: &attrvalue.AttrValue_Type{Type: p.GetDtype()}},
		"value": {Value: &attrvalue.AttrValue_Tensor{Tensor: p}},
	}
}

// strings adds a Const of a vector of strings, or of one string.
func (w *rewrite) strings(name string, shape bridge.Shape, values ...string) string {
	p := &tensorproto.TensorProto{Dtype: types.DataType_DT_STRING, TensorShape: shapeProto(shape)}
	for _, s := range values {
		p.StringVal = append(p.StringVal, []byte(s))
	}
	return w.constantProto(name, p)
}

// inputNode takes an input apart: the node, its output, and whether it is a
// control input.
func inputNode(input string) (node string, output int, control bool) {
	if node, control = strings.CutPrefix(input, "^"); control {
		return node, 0, true
	}
	node, number, found := strings.Cut(input, ":")
	if found {
		output, _ = strconv.Atoi(number)
	}
	return node, output, false
}

// needed are the nodes that the named ones depend on, themselves included, by
// data and control, but for what lies before the tensors in fed ("node:0").
func (w *rewrite) needed(names []string, fed map[string]bool) map[string]bool {
	found := map[string]bool{}
	todo := slices.Clone(names)
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		n := w.nodes[name]
		if n == nil || found[name] {
			continue
		}
		found[name] = true
		for _, input := range n.GetInput() {
			before, output, control := inputNode(input)
			if control || !fed[fmt.Sprintf("%s:%d", before, output)] {
				todo = append(todo, before)
			}
		}
	}
	return found
}

// keep drops all nodes but the given ones, and the functions that none of them
// calls.
func (w *rewrite) keep(found map[string]bool) {
	w.def.Node = slices.DeleteFunc(w.def.Node, func(n *nodedef.NodeDef) bool {
		if !found[n.GetName()] {
			delete(w.nodes, n.GetName())
			return true
		}
		return false
	})
	for _, n := range w.def.GetNode() {
		w.unplace(n)
	}
	library := map[string]*function.FunctionDef{}
	for _, f := range w.def.GetLibrary().GetFunction() {
		library[f.GetSignature().GetName()] = f
	}
	if len(library) == 0 {
		return
	}
	gradients := map[string][]string{}
	for _, g := range w.def.GetLibrary().GetGradient() {
		gradients[g.GetFunctionName()] = append(gradients[g.GetFunctionName()], g.GetGradientFunc())
	}
	called := map[string]bool{}
	var visit func(name string)
	calls := func(n *nodedef.NodeDef) {
		visit(n.GetOp())
		for _, value := range n.GetAttr() {
			visit(value.GetFunc().GetName())
			for _, f := range value.GetList().GetFunc() {
				visit(f.GetName())
			}
			// Some attributes name a function as a string.
			visit(string(value.GetS()))
		}
	}
	visit = func(name string) {
		f := library[name]
		if f == nil || called[name] {
			return
		}
		called[name] = true
		for _, n := range f.GetNodeDef() {
			calls(n)
		}
		for _, g := range gradients[name] {
			visit(g)
		}
	}
	for _, n := range w.def.GetNode() {
		calls(n)
	}
	w.def.Library.Function = slices.DeleteFunc(w.def.Library.Function, func(f *function.FunctionDef) bool { return !called[f.GetSignature().GetName()] })
	w.def.Library.Gradient = slices.DeleteFunc(w.def.Library.Gradient, func(g *function.GradientDef) bool { return !called[g.GetFunctionName()] })
}

// unplace drops a node's wish to be beside nodes that are no longer there.
func (w *rewrite) unplace(n *nodedef.NodeDef) {
	wishes := n.GetAttr()["_class"].GetList()
	if wishes == nil {
		return
	}
	wishes.S = slices.DeleteFunc(wishes.S, func(wish []byte) bool {
		name, colocated := strings.CutPrefix(string(wish), "loc:@")
		return colocated && w.nodes[name] == nil
	})
	if len(wishes.S) == 0 {
		delete(n.Attr, "_class")
	}
}

// sorted puts each node after its inputs, as those who read a graph line by line
// expect. Loops of TensorFlow 1 (a Merge that takes what comes later) stay.
func (w *rewrite) sorted() {
	var order []*nodedef.NodeDef
	state := map[string]bool{} // true: placed, false: in work
	type frame struct {
		node *nodedef.NodeDef
		next int
	}
	for _, root := range w.def.GetNode() {
		if _, seen := state[root.GetName()]; seen {
			continue
		}
		state[root.GetName()] = false
		for stack := []frame{{node: root}}; len(stack) > 0; {
			top := &stack[len(stack)-1]
			if top.next == len(top.node.GetInput()) {
				state[top.node.GetName()] = true
				order = append(order, top.node)
				stack = stack[:len(stack)-1]
				continue
			}
			before, _, _ := inputNode(top.node.GetInput()[top.next])
			top.next++
			n := w.nodes[before]
			if n == nil {
				continue
			}
			if _, seen := state[before]; !seen {
				state[before] = false
				stack = append(stack, frame{node: n})
			}
		}
	}
	w.def.Node = order
}

// rewire has all but the given node take another tensor instead of one.
func (w *rewrite) rewire(from, to, but string) {
	for _, n := range w.def.GetNode() {
		if n.GetName() == but {
			continue
		}
		for i, input := range n.GetInput() {
			if node, output, control := inputNode(input); !control && output == 0 && node == from {
				n.Input[i] = to
			}
		}
	}
}

// users are the nodes that take a node's output.
func (w *rewrite) users(name string) []*nodedef.NodeDef {
	var users []*nodedef.NodeDef
	for _, n := range w.def.GetNode() {
		for _, input := range n.GetInput() {
			if node, _, control := inputNode(input); !control && node == name {
				users = append(users, n)
				break
			}
		}
	}
	return users
}
