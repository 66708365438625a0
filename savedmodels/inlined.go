package savedmodels

import (
	"slices"
	"strconv"
	"strings"

	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	nodedef "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	opdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/op_def_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
)

// inlined puts the bodies of called functions in the places of the calls, which Python
// can't differentiate in a graph that it has read. The call's name and outputs stay, as
// an IdentityN of what the body gives. Loops, conditionals and functions that are to be
// compiled stay calls.
func (w *rewrite) inlined() error {
	library := map[string]*function.FunctionDef{}
	for _, f := range w.def.GetLibrary().GetFunction() {
		library[f.GetSignature().GetName()] = f
	}
	const most = 100_000 // nodes: functions that call others twice double what they make
	for i := 0; i < len(w.def.Node); i++ {
		n := w.def.Node[i]
		f := library[n.GetAttr()["f"].GetFunc().GetName()]
		switch n.GetOp() {
		case "PartitionedCall", "StatefulPartitionedCall":
		default:
			continue
		}
		if f == nil || f.GetAttr()["_XlaMustCompile"].GetB() || n.GetAttr()["_XlaMustCompile"].GetB() {
			continue
		}
		if made := len(w.def.Node) + len(f.GetNodeDef()); made > most {
			return bridge.Errorf(bridge.ResourceExhausted, "Convert", "the bodies of all functions in the places of their calls make more than %d nodes; as objects the model keeps its calls", most)
		}
		if err := w.inline(n, f, library); err != nil {
			return err
		}
	}
	return nil
}

// inline puts a function's body in the place of a call; the nodes of the body come
// after all others.
func (w *rewrite) inline(call *nodedef.NodeDef, f *function.FunctionDef, library map[string]*function.FunctionDef) error {
	var data, control []string
	for _, input := range call.GetInput() {
		if strings.HasPrefix(input, "^") {
			control = append(control, input)
		} else {
			data = append(data, input)
		}
	}
	arguments := map[string]string{}
	if len(data) != len(f.GetSignature().GetInputArg()) {
		return bridge.Errorf(bridge.InvalidArgument, "Convert", "%s gives function %q %d arguments, and it takes %d", call.GetName(), f.GetSignature().GetName(), len(data), len(f.GetSignature().GetInputArg()))
	}
	for i, arg := range f.GetSignature().GetInputArg() {
		arguments[arg.GetName()] = data[i]
	}
	body, names := map[string]*nodedef.NodeDef{}, map[string]string{}
	for _, n := range f.GetNodeDef() {
		names[n.GetName()] = w.free(call.GetName() + "/" + n.GetName())
		w.take(names[n.GetName()])
		body[n.GetName()] = n
	}
	tensor := func(name string) (string, error) {
		if to, is := arguments[name]; is {
			return to, nil
		}
		if node, is := strings.CutPrefix(name, "^"); is {
			if to, is := arguments[node]; is {
				node, _, _ := inputNode(to)
				return "^" + node, nil
			}
			return "^" + names[node], nil
		}
		parts := strings.Split(name, ":")
		n := body[parts[0]]
		if n == nil || len(parts) != 3 {
			return "", bridge.Errorf(bridge.DataLoss, "Convert", "function %q has no %q", f.GetSignature().GetName(), name)
		}
		at, err := outputAt(n, parts[1], library)
		if err != nil {
			return "", err
		}
		index, err := strconv.Atoi(parts[2])
		if err != nil {
			return "", bridge.Errorf(bridge.DataLoss, "Convert", "function %q has no %q", f.GetSignature().GetName(), name)
		}
		if at += index; at > 0 {
			return names[parts[0]] + ":" + strconv.Itoa(at), nil
		}
		return names[parts[0]], nil
	}
	for _, old := range f.GetNodeDef() {
		n := proto.CloneOf(old)
		n.Name = names[old.GetName()]
		delete(n.Attr, "_class")
		for i, input := range n.GetInput() {
			to, err := tensor(input)
			if err != nil {
				return err
			}
			n.Input[i] = to
		}
		n.Input = append(n.Input, control...)
		w.def.Node = append(w.def.Node, n)
		w.nodes[n.Name] = n
	}
	types := &attrvalue.AttrValue_ListValue{}
	var inputs []string
	for _, result := range f.GetSignature().GetOutputArg() {
		from, err := tensor(f.GetRet()[result.GetName()])
		if err != nil {
			return err
		}
		inputs, types.Type = append(inputs, from), append(types.Type, result.GetType())
	}
	for _, node := range f.GetControlRet() {
		control = append(control, "^"+names[node])
	}
	slices.Sort(control)
	call.Op, call.Attr = "IdentityN", map[string]*attrvalue.AttrValue{"T": {Value: &attrvalue.AttrValue_List{List: types}}}
	call.Input = append(inputs, slices.Compact(control)...)
	if len(inputs) == 0 {
		call.Op, call.Attr = "NoOp", nil
	}
	return nil
}

// outputAt is the number of the first output of a node that is of the given argument
// of its op.
func outputAt(n *nodedef.NodeDef, arg string, library map[string]*function.FunctionDef) (int, error) {
	var outputs []*opdef.OpDef_ArgDef
	if f := library[n.GetOp()]; f != nil {
		outputs = f.GetSignature().GetOutputArg()
	} else if def, known := bridge.OpDef(n.GetOp()); known {
		outputs = def.GetOutputArg()
	}
	at := 0
	for _, out := range outputs {
		if out.GetName() == arg {
			return at, nil
		}
		switch {
		case out.GetTypeListAttr() != "":
			at += len(n.GetAttr()[out.GetTypeListAttr()].GetList().GetType())
		case out.GetNumberAttr() != "":
			at += int(n.GetAttr()[out.GetNumberAttr()].GetI())
		default:
			at++
		}
	}
	return 0, bridge.Errorf(bridge.DataLoss, "Convert", "%s (%s) has no output %q", n.GetName(), n.GetOp(), arg)
}
