package bridge

// #include <stdlib.h>
// #include "run.h"
import "C"

import (
	"runtime"
	"sync"
	"unsafe"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// A graph may be changed until a session has run it: a session copies all
// operations that there are at its first run, and later runs add the new ones.
// A change to one that was copied is silently without effect, so it is refused.

// openSessions are the sessions that were not closed, by graph.
var openSessions = struct {
	sync.Mutex
	of map[*tf.Graph]map[*session]struct{}
}{of: map[*tf.Graph]map[*session]struct{}{}}

func (s *session) register() {
	openSessions.Lock()
	defer openSessions.Unlock()
	if openSessions.of[s.g] == nil {
		openSessions.of[s.g] = map[*session]struct{}{}
	}
	openSessions.of[s.g][s] = struct{}{}
}

func (s *session) unregister() {
	openSessions.Lock()
	defer openSessions.Unlock()
	delete(openSessions.of[s.g], s)
	if len(openSessions.of[s.g]) == 0 {
		delete(openSessions.of, s.g)
	}
}

// HasRun says whether an open session of this package has made a run since op
// was added to its graph, whether op took part or not: from then on the session
// goes by its own copy of op, and op can't be changed any more. Sessions of the
// binding (tf.NewSession) are not known here.
func HasRun(op *tf.Operation) bool {
	c := cOp(op)
	if c == nil {
		return false
	}
	g := graphOf(op)
	openSessions.Lock()
	seen := C.size_t(0)
	for s := range openSessions.of[g] {
		seen = max(seen, C.sluice_seen(s.seen))
	}
	openSessions.Unlock()
	if seen == 0 {
		return false
	}
	found := C.sluice_is_seen(cGraph(g), c, seen) != 0
	runtime.KeepAlive(g)
	return found
}

// Extension is what ExtendOperation gives to an operation.
type Extension struct {
	// Attrs are set, such as the functions that the operation calls and the
	// types of its outputs. Where they say that it has more outputs, it gets
	// them.
	Attrs []Attr
	// Inputs are appended to the inputs of a While, whose attribute T must count
	// them.
	Inputs []tf.Output
	// Shapes are the static shapes of the new outputs, in order; nil: unknown.
	Shapes []Shape
}

// ExtendOperation changes the attributes of an operation that calls functions (If,
// Case, While, PartitionedCall and their variants), and gives it the outputs and
// inputs that follow from them. Everything that refers to it goes on to. It is how
// the gradient of such an operation gets at what was computed within.
//
// Errors: ErrFailedPrecondition when a session has run the graph since op was
// added (HasRun), else ErrInvalidArgument. It has changed nothing then.
func ExtendOperation(op *tf.Operation, e Extension) error {
	if cOp(op) == nil {
		return nilOp("an extension")
	}
	g, label := graphOf(op), opLabel(op)
	sig := registered(op.Type())
	if sig == nil {
		return invalid(label, "it is a function called by name, whose outputs are fixed")
	}
	isWhile := op.Type() == "While" || op.Type() == "StatelessWhile"
	if len(e.Inputs) > 0 && !isWhile {
		return invalid(label, "only While takes more inputs")
	}
	for i, in := range e.Inputs {
		if problem := checkOutput(g, in); problem != "" {
			return invalid(label, "new input %d %s", i, problem)
		}
	}
	encoded := make([][]byte, len(e.Attrs))
	for i, a := range e.Attrs {
		kind, known := sig.attrs[a.Name]
		if !known && (a.Name == "" || a.Name[0] != '_') {
			return invalid(label, "op %s has no attribute %q; it has %s", op.Type(), a.Name, sig.describeAttrs())
		}
		var err error
		if encoded[i], err = appendAttr(nil, a.Value, kind); err != nil {
			return within(label, "attribute "+a.Name+": ", err)
		}
	}
	if HasRun(op) {
		return Errorf(FailedPrecondition, label, "a session has already run it: extend it before the first run")
	}
	before := op.NumOutputs()
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	for i, a := range e.Attrs {
		if err := setAttr(g, op, a.Name, encoded[i], status); err != nil {
			return err
		}
	}
	for _, in := range e.Inputs {
		C.TF_AddWhileInputHack(cGraph(g), cOutput(in), cOp(op), status)
		if err := statusError(status, label); err != nil {
			return err
		}
	}
	for i := before; i < op.NumOutputs(); i++ {
		var shape Shape
		if i-before < len(e.Shapes) {
			shape = e.Shapes[i-before]
		}
		if err := setShape(tf.Output{Op: op, Index: i}, shape, status); err != nil {
			return err
		}
	}
	runtime.KeepAlive(g)
	return nil
}

func setAttr(g *tf.Graph, op *tf.Operation, name string, encoded []byte, status *C.TF_Status) error {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	value := append(encoded, 0) // an address, also for an empty value
	buffer := C.TF_NewBufferFromString(unsafe.Pointer(&value[0]), C.size_t(len(encoded)))
	defer C.TF_DeleteBuffer(buffer)
	C.TF_SetAttr(cGraph(g), cOp(op), cname, buffer, status)
	return statusError(status, opLabel(op))
}

func setShape(out tf.Output, shape Shape, status *C.TF_Status) error {
	dims := append(make([]C.int64_t, 0, len(shape)+1), 0)[:0]
	for _, d := range shape {
		dims = append(dims, C.int64_t(d))
	}
	C.TF_GraphSetTensorShape(cGraph(graphOf(out.Op)), cOutput(out), unsafe.SliceData(dims), C.int(shape.Rank()), status)
	return statusError(status, opLabel(out.Op))
}

// RewireInput makes an operation take another tensor as its i-th input, lists
// counted one by one (TF_UpdateEdge). The errors are those of ExtendOperation.
func RewireInput(op *tf.Operation, i int, to tf.Output) error {
	if cOp(op) == nil {
		return nilOp("another input")
	}
	g, label := graphOf(op), opLabel(op)
	if i < 0 || i >= op.NumInputs() {
		return invalid(label, "there is no input %d; it has %d", i, op.NumInputs())
	}
	if problem := checkOutput(g, to); problem != "" {
		return invalid(label, "the tensor for input %d %s", i, problem)
	}
	if have, want := to.DataType(), Input(op, i).DataType(); BaseDType(have) != BaseDType(want) {
		return invalid(label, "the tensor for input %d is %s, wanted %s", i, DTypeName(have), DTypeName(want))
	}
	if HasRun(op) {
		return Errorf(FailedPrecondition, label, "a session has already run it: rewire it before the first run")
	}
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	C.TF_UpdateEdge(cGraph(g), cOutput(to), C.TF_Input{oper: cOp(op), index: C.int(i)}, status)
	runtime.KeepAlive(g)
	return statusError(status, label)
}
