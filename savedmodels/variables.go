package savedmodels

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	variable "github.com/galeone/tensorflow/tensorflow/go/core/framework/variable_go_proto"
	protos "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
)

// Variable is a variable of a model.
type Variable struct {
	Name      string // Python's, without ":0"
	DType     tf.DataType
	Shape     bridge.Shape
	Trainable bool
	// Handle is the resource that the variable is read and assigned through, or
	// the variable itself where it is one of TensorFlow 1's reference variables.
	Handle tf.Output
}

// Bytes is how much memory the variable's values take; 0 where the shape is not
// known, or for strings.
func (v Variable) Bytes() int64 {
	n, known := v.Shape.NumElements()
	if !known {
		return 0
	}
	return n * int64(bridge.DTypeSize(v.DType))
}

// Variables are the model's variables, each once and by Python's name. A model of
// TensorFlow 2 has more nodes that stand for variables than it has variables:
// those count that its signatures use.
func (m *Model) Variables() []Variable {
	if m == nil || m.meta == nil {
		return nil
	}
	all := m.handles()
	if objects := m.meta.GetObjectGraphDef(); len(objects.GetNodes()) > 0 {
		all = m.objects(objects, all)
	}
	slices.SortFunc(all, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// handles are the graph's own variables, and whether TensorFlow 1 trains them.
func (m *Model) handles() []Variable {
	trainable := map[string]bool{}
	for _, encoded := range m.meta.GetCollectionDef()["trainable_variables"].GetBytesList().GetValue() {
		def := new(variable.VariableDef)
		if proto.Unmarshal(encoded, def) == nil {
			name, _, _ := strings.Cut(def.GetVariableName(), ":")
			trainable[name] = true
		}
	}
	all := GraphVariables(m.graph)
	for i, v := range all {
		all[i].Trainable = trainable[v.Name] || trainable[v.Handle.Op.Name()]
	}
	return all
}

// GraphVariables are the variables of a graph, in the order of their nodes, by the
// names that they share. A graph does not tell which of them are trained.
func GraphVariables(g *tf.Graph) []Variable {
	seen := map[string]bool{}
	var all []Variable
	for op := range bridge.Operations(g) {
		v := Variable{Name: op.Name()}
		switch op.Type() {
		case "VarHandleOp":
			// Nodes of one shared name are one variable.
			if shared, _ := bridge.AttrString(op, "shared_name"); shared != "" {
				container, _ := bridge.AttrString(op, "container")
				if seen[container+"/"+shared] {
					continue
				}
				seen[container+"/"+shared] = true
				v.Name = shared
			}
		case "VariableV2", "Variable":
		default:
			continue
		}
		v.DType, _ = bridge.AttrType(op, "dtype")
		v.Shape, _ = bridge.AttrShape(op, "shape")
		v.Handle = op.Output(0)
		all = append(all, v)
	}
	return all
}

// objects are the variables of a TensorFlow 2 model: its objects, each with the
// handle that stands for it.
func (m *Model) objects(objects *protos.SavedObjectGraph, handles []Variable) []Variable {
	used := m.captured(objects)
	claimed := map[bridge.OutputKey]bool{}
	for _, handle := range used {
		claimed[bridge.Key(handle)] = true
	}
	var all []Variable
	names := map[string]bool{}
	add := func(name string, saved *protos.SavedVariable, handle tf.Output) {
		names[name] = true
		all = append(all, Variable{Name: name, DType: tf.DataType(saved.GetDtype()), Shape: shapeOf(saved.GetShape()), Trainable: saved.GetTrainable(), Handle: handle})
	}
	for id, node := range objects.GetNodes() {
		saved := node.GetVariable()
		handle, is := used[int32(id)]
		if saved == nil || !is {
			continue
		}
		name := saved.GetName()
		for n := 1; names[name]; n++ {
			name = saved.GetName() + "_" + strconv.Itoa(n)
		}
		add(name, saved, handle)
	}
	// What no signature uses has a handle of its name, perhaps with a number.
	for id, node := range objects.GetNodes() {
		saved := node.GetVariable()
		if _, is := used[int32(id)]; saved == nil || is || names[saved.GetName()] {
			continue
		}
		for i := len(handles) - 1; i >= 0; i-- { // the last is the one that is restored
			v := handles[i]
			rest, of := strings.CutPrefix(v.Name, saved.GetName())
			_, err := strconv.Atoi(strings.TrimPrefix(rest, "_"))
			if of && (rest == "" || err == nil) && v.DType == tf.DataType(saved.GetDtype()) && !claimed[bridge.Key(v.Handle)] {
				claimed[bridge.Key(v.Handle)] = true
				add(saved.GetName(), saved, v.Handle)
				break
			}
		}
	}
	return all
}

// captured tells, for the variables that the signatures use, the handles by the
// variables' places in the object graph: the last arguments of a call are what
// its function has captured.
func (m *Model) captured(objects *protos.SavedObjectGraph) map[int32]tf.Output {
	handles := map[int32]tf.Output{}
	for op := range bridge.Operations(m.graph) {
		switch op.Type() {
		case "PartitionedCall", "StatefulPartitionedCall":
		default:
			continue
		}
		f, err := bridge.AttrFunc(op, "f")
		if err != nil {
			continue
		}
		bound := objects.GetConcreteFunctions()[f.Name].GetBoundInputs()
		inputs := bridge.Inputs(op)
		if len(bound) > len(inputs) {
			continue
		}
		for i, id := range bound {
			if in := inputs[len(inputs)-len(bound)+i]; in.Op.Type() == "VarHandleOp" {
				handles[id] = in
			}
		}
	}
	return handles
}
