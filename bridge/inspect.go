package bridge

// #include <stdlib.h>
// #include "build.h"
import "C"

import (
	"iter"
	"runtime"
	"strings"
	"unsafe"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	nodedef "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	"google.golang.org/protobuf/proto"
)

// OutputKey identifies an output of a graph: two tf.Output of the same tensor
// have the same key, though their Op pointers may differ. It is comparable and
// good as a map's key while the graph lives.
type OutputKey struct {
	op    unsafe.Pointer
	index int
}

// Key is the key of out; the zero OutputKey for the zero tf.Output.
func Key(out tf.Output) OutputKey {
	c := cOp(out.Op)
	if c == nil {
		return OutputKey{}
	}
	return OutputKey{unsafe.Pointer(c), out.Index}
}

// OpKey identifies an operation as OutputKey does an output.
func OpKey(op *tf.Operation) OutputKey {
	c := cOp(op)
	if c == nil {
		return OutputKey{}
	}
	return OutputKey{unsafe.Pointer(c), -1}
}

// SameOutput says whether a and b are one tensor.
func SameOutput(a, b tf.Output) bool { return Key(a) == Key(b) }

// Valid says whether out is an output that its operation has.
func Valid(out tf.Output) bool {
	return cOp(out.Op) != nil && out.Index >= 0 && out.Index < out.Op.NumOutputs()
}

// GraphOf returns the graph that op is in; nil for a nil op.
func GraphOf(op *tf.Operation) *tf.Graph { return graphOf(op) }

// Operations goes through g's operations in the order in which they were added
// (TF_GraphNextOperation). Operations added meanwhile come too.
func Operations(g *tf.Graph) iter.Seq[*tf.Operation] {
	return func(yield func(*tf.Operation) bool) {
		graph := cGraph(g)
		if graph == nil {
			return
		}
		var position C.size_t
		var batch [128]*C.TF_Operation
		for {
			n := int(C.sluice_next_operations(graph, &position, &batch[0], C.int(len(batch))))
			runtime.KeepAlive(g)
			for _, c := range batch[:n] {
				if !yield(wrapOp(c, g)) {
					return
				}
			}
			if n == 0 {
				return
			}
		}
	}
}

// NumOperations counts g's operations.
func NumOperations(g *tf.Graph) int {
	graph := cGraph(g)
	if graph == nil {
		return 0
	}
	var position C.size_t
	var batch [256]*C.TF_Operation
	total := 0
	for {
		n := int(C.sluice_next_operations(graph, &position, &batch[0], C.int(len(batch))))
		total += n
		if n < len(batch) {
			runtime.KeepAlive(g)
			return total
		}
	}
}

// OperationByName returns the operation of g that has the name, nil when none
// has (TF_GraphOperationByName).
func OperationByName(g *tf.Graph, name string) *tf.Operation {
	graph := cGraph(g)
	if graph == nil || strings.IndexByte(name, 0) >= 0 {
		return nil
	}
	var small [128]byte
	cname := append(append(small[:0], name...), 0)
	c := C.TF_GraphOperationByName(graph, (*C.char)(unsafe.Pointer(&cname[0])))
	runtime.KeepAlive(g)
	return wrapOp(c, g)
}

// Input returns the tensor that is op's i-th input, lists counted one by one;
// the zero tf.Output when there is none (TF_OperationInput).
func Input(op *tf.Operation, i int) tf.Output {
	c := cOp(op)
	if c == nil || i < 0 || i >= int(C.TF_OperationNumInputs(c)) {
		return tf.Output{}
	}
	out := wrapOutput(C.TF_OperationInput(C.TF_Input{oper: c, index: C.int(i)}), graphOf(op))
	runtime.KeepAlive(op)
	return out
}

// Inputs returns all of op's inputs, lists counted one by one; nil for none
// (TF_OperationAllInputs).
func Inputs(op *tf.Operation) []tf.Output {
	c := cOp(op)
	if c == nil {
		return nil
	}
	n := int(C.TF_OperationNumInputs(c))
	if n == 0 {
		return nil
	}
	found := make([]C.TF_Output, n)
	C.TF_OperationAllInputs(c, &found[0], C.int(n))
	g := graphOf(op)
	inputs := make([]tf.Output, n)
	for i, out := range found {
		inputs[i] = wrapOutput(out, g)
	}
	runtime.KeepAlive(op)
	return inputs
}

// OutputsOf returns all of op's outputs; nil for none.
func OutputsOf(op *tf.Operation) []tf.Output {
	if cOp(op) == nil {
		return nil
	}
	n := op.NumOutputs()
	if n == 0 {
		return nil
	}
	outputs := make([]tf.Output, n)
	for i := range outputs {
		outputs[i] = tf.Output{Op: op, Index: i}
	}
	return outputs
}

// ControlInputs returns the operations that run before op because a control
// edge says so (TF_OperationGetControlInputs).
func ControlInputs(op *tf.Operation) []*tf.Operation {
	c := cOp(op)
	if c == nil {
		return nil
	}
	n := int(C.TF_OperationNumControlInputs(c))
	if n == 0 {
		return nil
	}
	found := make([]*C.TF_Operation, n)
	n = int(C.TF_OperationGetControlInputs(c, &found[0], C.int(n)))
	return wrapOps(found[:n], graphOf(op))
}

// ControlOutputs returns the operations that run after op because a control
// edge says so (TF_OperationGetControlOutputs).
func ControlOutputs(op *tf.Operation) []*tf.Operation {
	c := cOp(op)
	if c == nil {
		return nil
	}
	n := int(C.TF_OperationNumControlOutputs(c))
	if n == 0 {
		return nil
	}
	found := make([]*C.TF_Operation, n)
	n = int(C.TF_OperationGetControlOutputs(c, &found[0], C.int(n)))
	return wrapOps(found[:n], graphOf(op))
}

func wrapOps(found []*C.TF_Operation, g *tf.Graph) []*tf.Operation {
	ops := make([]*tf.Operation, len(found))
	for i, c := range found {
		ops[i] = wrapOp(c, g)
	}
	return ops
}

// Consumers returns the operations that take out as an input, once for each
// time they do (TF_OperationOutputConsumers).
func Consumers(out tf.Output) []*tf.Operation {
	if !Valid(out) {
		return nil
	}
	n := int(C.TF_OperationOutputNumConsumers(cOutput(out)))
	if n == 0 {
		return nil
	}
	found := make([]C.TF_Input, n)
	n = int(C.TF_OperationOutputConsumers(cOutput(out), &found[0], C.int(n)))
	g := graphOf(out.Op)
	ops := make([]*tf.Operation, n)
	for i := range ops {
		ops[i] = wrapOp(found[i].oper, g)
	}
	runtime.KeepAlive(out.Op)
	return ops
}

// InputListLength is the number of tensors that op's input named arg takes: 1
// where it is no list (TF_OperationInputListLength).
func InputListLength(op *tf.Operation, arg string) (int, error) {
	return listLength(op, arg, "input", func(c *C.TF_Operation, name *C.char, status *C.TF_Status) C.int {
		return C.TF_OperationInputListLength(c, name, status)
	})
}

// OutputListLength is the number of tensors that op's output named arg gives: 1
// where it is no list (TF_OperationOutputListLength).
func OutputListLength(op *tf.Operation, arg string) (int, error) {
	return listLength(op, arg, "output", func(c *C.TF_Operation, name *C.char, status *C.TF_Status) C.int {
		return C.TF_OperationOutputListLength(c, name, status)
	})
}

func listLength(op *tf.Operation, arg, what string, query func(*C.TF_Operation, *C.char, *C.TF_Status) C.int) (int, error) {
	c := cOp(op)
	if c == nil {
		return 0, nilOp("the length of " + what + " " + arg)
	}
	if strings.IndexByte(arg, 0) >= 0 {
		return 0, Errorf(NotFound, opLabel(op), "no %s named %q", what, arg)
	}
	name := C.CString(arg)
	defer C.free(unsafe.Pointer(name))
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	n := query(c, name, status)
	if C.TF_GetCode(status) != C.TF_OK {
		return 0, Errorf(NotFound, opLabel(op), "no %s named %q", what, arg)
	}
	runtime.KeepAlive(op)
	return int(n), nil
}

func nilOp(wanted string) error {
	return invalid("", "%s was asked of a nil operation", wanted)
}

func opLabel(op *tf.Operation) string { return nodeLabel(op.Type(), op.Name()) }

// HasAttr says whether op has the attribute.
func HasAttr(op *tf.Operation, name string) bool {
	_, found := attrProto(op, name)
	return found
}

// RawAttr returns an attribute of op as it is, ready to be given to another
// operation (TF_OperationGetAttrValueProto).
func RawAttr(op *tf.Operation, name string) (AttrProto, error) {
	if cOp(op) == nil {
		return nil, nilOp("attribute " + name)
	}
	if value, found := attrProto(op, name); found {
		return value, nil
	}
	all, _ := Attrs(op)
	names := make([]string, len(all))
	for i, attr := range all {
		names[i] = attr.Name
	}
	return nil, Errorf(NotFound, opLabel(op), "no attribute %q; it has %s", name, strings.Join(names, ", "))
}

func attrProto(op *tf.Operation, name string) (value AttrProto, found bool) {
	c := cOp(op)
	if c == nil || strings.IndexByte(name, 0) >= 0 {
		return nil, false
	}
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	buffer := C.TF_NewBuffer()
	defer C.TF_DeleteBuffer(buffer)
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	C.TF_OperationGetAttrValueProto(c, cname, buffer, status)
	runtime.KeepAlive(op)
	if C.TF_GetCode(status) != C.TF_OK {
		return nil, false
	}
	return append(AttrProto{}, bufferBytes(buffer)...), true
}

// Attrs returns all attributes of op, each Value an AttrProto, by name.
func Attrs(op *tf.Operation) ([]Attr, error) {
	def, err := NodeDef(op)
	if err != nil {
		return nil, err
	}
	attrs := make([]Attr, 0, len(def.Attr))
	for name, value := range def.Attr {
		encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(value)
		if err != nil {
			return nil, Errorf(Internal, opLabel(op), "attribute %q: %w", name, err)
		}
		attrs = append(attrs, Attr{Name: name, Value: AttrProto(encoded)})
	}
	sortAttrs(attrs)
	return attrs, nil
}

// NodeDef returns op as the GraphDef of its graph has it
// (TF_OperationToNodeDef).
func NodeDef(op *tf.Operation) (*nodedef.NodeDef, error) {
	c := cOp(op)
	if c == nil {
		return nil, nilOp("its NodeDef")
	}
	def := new(nodedef.NodeDef)
	err := protoFrom(opLabel(op), def, func(buffer *C.TF_Buffer, status *C.TF_Status) {
		C.TF_OperationToNodeDef(c, buffer, status)
	})
	runtime.KeepAlive(op)
	return def, err
}

// protoFrom reads the proto that fill writes.
func protoFrom(op string, into proto.Message, fill func(*C.TF_Buffer, *C.TF_Status)) error {
	buffer := C.TF_NewBuffer()
	defer C.TF_DeleteBuffer(buffer)
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	fill(buffer, status)
	if err := statusError(status, op); err != nil {
		return err
	}
	if err := proto.Unmarshal(bufferBytes(buffer), into); err != nil {
		return Errorf(Internal, op, "libtensorflow's answer can't be read: %w", err)
	}
	return nil
}

func attrValue(op *tf.Operation, name string) (*attrvalue.AttrValue, error) {
	encoded, err := RawAttr(op, name)
	if err != nil {
		return nil, err
	}
	value := new(attrvalue.AttrValue)
	if err := proto.Unmarshal(encoded, value); err != nil {
		return nil, Errorf(Internal, opLabel(op), "attribute %q can't be read: %w", name, err)
	}
	return value, nil
}

// attrOf returns what pick finds in an attribute's value.
func attrOf[T any](op *tf.Operation, name, wanted string, pick func(*attrvalue.AttrValue) (T, bool)) (T, error) {
	var zero T
	value, err := attrValue(op, name)
	if err != nil {
		return zero, err
	}
	if found, ok := pick(value); ok {
		return found, nil
	}
	encoded, _ := proto.Marshal(value)
	kind, _ := kindOfProto(encoded)
	return zero, invalid(opLabel(op), "attribute %q: wanted %s, it holds %s", name, wanted, kind)
}

// AttrInt returns op's attribute of type int.
func AttrInt(op *tf.Operation, name string) (int64, error) {
	return attrOf(op, name, "int", func(v *attrvalue.AttrValue) (int64, bool) {
		x, ok := v.Value.(*attrvalue.AttrValue_I)
		return v.GetI(), ok && x != nil
	})
}

// AttrFloat returns op's attribute of type float.
func AttrFloat(op *tf.Operation, name string) (float32, error) {
	return attrOf(op, name, "float", func(v *attrvalue.AttrValue) (float32, bool) {
		_, ok := v.Value.(*attrvalue.AttrValue_F)
		return v.GetF(), ok
	})
}

// AttrBool returns op's attribute of type bool.
func AttrBool(op *tf.Operation, name string) (bool, error) {
	return attrOf(op, name, "bool", func(v *attrvalue.AttrValue) (bool, bool) {
		_, ok := v.Value.(*attrvalue.AttrValue_B)
		return v.GetB(), ok
	})
}

// AttrString returns op's attribute of type string, which may hold any bytes.
func AttrString(op *tf.Operation, name string) (string, error) {
	return attrOf(op, name, "string", func(v *attrvalue.AttrValue) (string, bool) {
		_, ok := v.Value.(*attrvalue.AttrValue_S)
		return string(v.GetS()), ok
	})
}

// AttrType returns op's attribute of type type.
func AttrType(op *tf.Operation, name string) (tf.DataType, error) {
	return attrOf(op, name, "type", func(v *attrvalue.AttrValue) (tf.DataType, bool) {
		_, ok := v.Value.(*attrvalue.AttrValue_Type)
		return tf.DataType(v.GetType()), ok
	})
}

// AttrShape returns op's attribute of type shape; nil for an unknown rank.
func AttrShape(op *tf.Operation, name string) (Shape, error) {
	return attrOf(op, name, "shape", func(v *attrvalue.AttrValue) (Shape, bool) {
		_, ok := v.Value.(*attrvalue.AttrValue_Shape)
		return shapeFromProto(v.GetShape()), ok
	})
}

// AttrFunc returns op's attribute of type func. The function's own attributes
// come as AttrProto.
func AttrFunc(op *tf.Operation, name string) (Func, error) {
	return attrOf(op, name, "func", func(v *attrvalue.AttrValue) (Func, bool) {
		_, ok := v.Value.(*attrvalue.AttrValue_Func)
		return funcFromProto(v.GetFunc()), ok
	})
}

// AttrInts returns op's attribute of type list(int).
func AttrInts(op *tf.Operation, name string) ([]int64, error) {
	return attrOf(op, name, "list(int)", func(v *attrvalue.AttrValue) ([]int64, bool) {
		return v.GetList().GetI(), holdsList(v, len(v.GetList().GetI()))
	})
}

// AttrFloats returns op's attribute of type list(float).
func AttrFloats(op *tf.Operation, name string) ([]float32, error) {
	return attrOf(op, name, "list(float)", func(v *attrvalue.AttrValue) ([]float32, bool) {
		return v.GetList().GetF(), holdsList(v, len(v.GetList().GetF()))
	})
}

// AttrBools returns op's attribute of type list(bool).
func AttrBools(op *tf.Operation, name string) ([]bool, error) {
	return attrOf(op, name, "list(bool)", func(v *attrvalue.AttrValue) ([]bool, bool) {
		return v.GetList().GetB(), holdsList(v, len(v.GetList().GetB()))
	})
}

// AttrStrings returns op's attribute of type list(string).
func AttrStrings(op *tf.Operation, name string) ([]string, error) {
	return attrOf(op, name, "list(string)", func(v *attrvalue.AttrValue) ([]string, bool) {
		return mapEach(v.GetList().GetS(), func(s []byte) string { return string(s) }), holdsList(v, len(v.GetList().GetS()))
	})
}

// AttrTypes returns op's attribute of type list(type).
func AttrTypes(op *tf.Operation, name string) ([]tf.DataType, error) {
	return attrOf(op, name, "list(type)", func(v *attrvalue.AttrValue) ([]tf.DataType, bool) {
		types := v.GetList().GetType()
		found := make([]tf.DataType, len(types))
		for i, t := range types {
			found[i] = tf.DataType(t)
		}
		return found, holdsList(v, len(types))
	})
}

// AttrShapes returns op's attribute of type list(shape).
func AttrShapes(op *tf.Operation, name string) ([]Shape, error) {
	return attrOf(op, name, "list(shape)", func(v *attrvalue.AttrValue) ([]Shape, bool) {
		return mapEach(v.GetList().GetShape(), shapeFromProto), holdsList(v, len(v.GetList().GetShape()))
	})
}

// AttrFuncs returns op's attribute of type list(func).
func AttrFuncs(op *tf.Operation, name string) ([]Func, error) {
	return attrOf(op, name, "list(func)", func(v *attrvalue.AttrValue) ([]Func, bool) {
		return mapEach(v.GetList().GetFunc(), funcFromProto), holdsList(v, len(v.GetList().GetFunc()))
	})
}

func mapEach[A, B any](from []A, f func(A) B) []B {
	to := make([]B, len(from))
	for i, v := range from {
		to[i] = f(v)
	}
	return to
}

// holdsList says whether v is a list whose n elements of one kind are all that
// it has: an empty list is one of every kind.
func holdsList(v *attrvalue.AttrValue, n int) bool {
	if _, ok := v.Value.(*attrvalue.AttrValue_List); !ok {
		return false
	}
	l := v.GetList()
	return n == len(l.GetI())+len(l.GetF())+len(l.GetB())+len(l.GetS())+len(l.GetType())+
		len(l.GetShape())+len(l.GetTensor())+len(l.GetFunc())
}

// AttrTensor returns a copy of op's attribute of type tensor; the caller closes
// it (TF_OperationGetAttrTensor).
func AttrTensor(op *tf.Operation, name string) (*Tensor, error) {
	c := cOp(op)
	if c == nil {
		return nil, nilOp("attribute " + name)
	}
	if strings.IndexByte(name, 0) >= 0 {
		return nil, Errorf(NotFound, opLabel(op), "no attribute %q", name)
	}
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	var tensor *C.TF_Tensor
	C.TF_OperationGetAttrTensor(c, cname, &tensor, status)
	runtime.KeepAlive(op)
	if C.TF_GetCode(status) != C.TF_OK {
		if _, err := RawAttr(op, name); err != nil {
			return nil, err
		}
		return nil, within(opLabel(op), "attribute "+name+": ", statusError(status, ""))
	}
	return ownTensor(tensor), nil
}

// ConstantValue returns the value of out where it is a constant of the graph,
// by itself or through Identity and StopGradient; false where it is none. The caller
// closes the tensor.
func ConstantValue(out tf.Output) (*Tensor, bool, error) {
	for Valid(out) {
		switch out.Op.Type() {
		case "Const":
			t, err := AttrTensor(out.Op, "value")
			return t, err == nil, err
		case "Identity", "StopGradient", "PreventGradient", "Snapshot":
			out = Input(out.Op, 0)
		case "IdentityN":
			out = Input(out.Op, out.Index)
		default:
			return nil, false, nil
		}
	}
	return nil, false, invalid("ConstantValue", "the output is %s", checkOutput(graphOf(out.Op), out))
}

// EvaluateConstant computes out where it depends on constants and static shapes
// only (TF_TryEvaluateConstant); false where it depends on more. It may take as
// long as the computation does. The caller closes the tensor.
func EvaluateConstant(out tf.Output) (*Tensor, bool, error) {
	if t, ok, err := ConstantValue(out); ok || err != nil {
		return t, ok, err
	}
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	var tensor *C.TF_Tensor
	found := C.TF_TryEvaluateConstant(cGraph(graphOf(out.Op)), cOutput(out), &tensor, status)
	runtime.KeepAlive(out.Op)
	if err := statusError(status, opLabel(out.Op)); err != nil {
		return nil, false, err
	}
	if found == 0 || tensor == nil {
		return nil, false, nil
	}
	return ownTensor(tensor), true, nil
}

// GraphDef returns g as a serialized GraphDef, functions included
// (TF_GraphToGraphDef). A graph of 2 GiB or more can't be serialized.
func GraphDef(g *tf.Graph) ([]byte, error) {
	graph := cGraph(g)
	if graph == nil {
		return nil, invalid("GraphDef", "the graph is nil")
	}
	buffer := C.TF_NewBuffer()
	defer C.TF_DeleteBuffer(buffer)
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	C.TF_GraphToGraphDef(graph, buffer, status)
	runtime.KeepAlive(g)
	if err := statusError(status, "GraphDef"); err != nil {
		return nil, err
	}
	return append([]byte{}, bufferBytes(buffer)...), nil
}
