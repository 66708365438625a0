package savedmodels

import (
	"cmp"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	variable "github.com/galeone/tensorflow/tensorflow/go/core/framework/variable_go_proto"
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

// Variables are the model's variables, by name. Nodes of the graph that stand
// for the same variable count once.
func (m *Model) Variables() []Variable {
	if m == nil {
		return nil
	}
	return m.variables()
}

func (m *Model) variables() []Variable {
	trainable := m.trainable()
	seen := map[string]bool{}
	var all []Variable
	for op := range bridge.Operations(m.graph) {
		var v Variable
		switch op.Type() {
		case "VarHandleOp":
			name, _ := bridge.AttrString(op, "shared_name")
			container, _ := bridge.AttrString(op, "container")
			// The one that has no shared name shares nothing.
			v.Name = cmp.Or(name, op.Name())
			if seen[container+"/"+v.Name] {
				continue
			}
			seen[container+"/"+v.Name] = true
			v.DType, _ = bridge.AttrType(op, "dtype")
			v.Shape, _ = bridge.AttrShape(op, "shape")
		case "VariableV2", "Variable":
			v.Name = op.Name()
			v.DType, _ = bridge.AttrType(op, "dtype")
			v.Shape, _ = bridge.AttrShape(op, "shape")
		default:
			continue
		}
		v.Handle = op.Output(0)
		known, is := trainable[v.Name]
		v.Trainable = known && is
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// trainable tells what the model says of its variables, by name.
func (m *Model) trainable() map[string]bool {
	says := map[string]bool{}
	for _, node := range m.meta.GetObjectGraphDef().GetNodes() {
		if v := node.GetVariable(); v != nil {
			says[v.GetName()] = says[v.GetName()] || v.GetTrainable()
		}
	}
	for _, encoded := range m.meta.GetCollectionDef()["trainable_variables"].GetBytesList().GetValue() {
		def := new(variable.VariableDef)
		if proto.Unmarshal(encoded, def) == nil {
			name, _, _ := strings.Cut(def.GetVariableName(), ":")
			says[name] = true
		}
	}
	return says
}
