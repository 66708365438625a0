package bridge

// #cgo LDFLAGS: -ltensorflow
// #include "tensorflow/c/c_api.h"
import "C"

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"unsafe"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// The binding keeps the C pointers of its graphs, operations and tensors in
// unexported fields. This file is the only one that reaches them, by structs
// of the same layout; layoutError is what the comparison of both layouts at
// program start found, or that libtensorflow is of a wrong version.

type graphLayout struct {
	c *C.TF_Graph
}

type operationLayout struct {
	c *C.TF_Operation
	g *tf.Graph
}

type tensorLayout struct {
	c     *C.TF_Tensor
	shape []int64
}

var layoutError = selfCheck()

// SelfCheck says whether this program's libtensorflow is a supported one and
// its version of the TensorFlow binding one whose graphs, operations and tensors
// this package can reach. Everything that makes a session, an operation or a
// tensor returns the same error.
func SelfCheck() error { return layoutError }

func selfCheck() error {
	if err := CheckVersion(); err != nil {
		return err
	}
	return checkLayouts()
}

func checkLayouts() error {
	for _, pair := range []struct{ theirs, ours reflect.Type }{
		{reflect.TypeFor[tf.Graph](), reflect.TypeFor[graphLayout]()},
		{reflect.TypeFor[tf.Operation](), reflect.TypeFor[operationLayout]()},
		{reflect.TypeFor[tf.Tensor](), reflect.TypeFor[tensorLayout]()},
	} {
		if difference := compareLayouts(pair.theirs, pair.ours); difference != "" {
			return &Error{Code: Unimplemented, Op: "self-check", Message: fmt.Sprintf(
				"the binding's %v is not laid out as this package knows it (%s); build with the version of github.com/galeone/tensorflow/tensorflow/go that sluice's go.mod requires",
				pair.theirs, difference)}
		}
	}
	return nil
}

func compareLayouts(theirs, ours reflect.Type) string {
	if theirs.Kind() != reflect.Struct || theirs.NumField() != ours.NumField() || theirs.Size() != ours.Size() {
		return fmt.Sprintf("wanted %d fields of %d bytes together, got %v of %d bytes", ours.NumField(), ours.Size(), theirs.Kind(), theirs.Size())
	}
	for i := range ours.NumField() {
		a, b := theirs.Field(i), ours.Field(i)
		if a.Name != b.Name || a.Offset != b.Offset || typeName(a.Type) != typeName(b.Type) {
			return fmt.Sprintf("field %d: wanted %s %s at byte %d, got %s %s at byte %d",
				i, b.Name, typeName(b.Type), b.Offset, a.Name, typeName(a.Type), a.Offset)
		}
	}
	return ""
}

// typeName drops the package: cgo gives each package its own name for the
// same C type.
func typeName(t reflect.Type) string {
	name := t.String()
	if t.Kind() == reflect.Pointer {
		return "*" + name[strings.LastIndexByte(name, '.')+1:]
	}
	return name
}

// cGraph returns the TF_Graph of g, nil when there is none.
func cGraph(g *tf.Graph) *C.TF_Graph {
	if g == nil || layoutError != nil {
		return nil
	}
	return (*graphLayout)(unsafe.Pointer(g)).c
}

// cOp returns the TF_Operation of op, nil when there is none. Whoever uses it
// keeps op (or its graph) alive until the C call has returned.
func cOp(op *tf.Operation) *C.TF_Operation {
	if op == nil || layoutError != nil {
		return nil
	}
	return (*operationLayout)(unsafe.Pointer(op)).c
}

// graphOf returns the graph that op is in, nil when there is none.
func graphOf(op *tf.Operation) *tf.Graph {
	if op == nil || layoutError != nil {
		return nil
	}
	return (*operationLayout)(unsafe.Pointer(op)).g
}

// wrapOp makes the binding's operation for a TF_Operation of g; nil for nil.
func wrapOp(c *C.TF_Operation, g *tf.Graph) *tf.Operation {
	if c == nil || layoutError != nil {
		return nil
	}
	op := new(tf.Operation)
	layout := (*operationLayout)(unsafe.Pointer(op))
	layout.c, layout.g = c, g
	return op
}

// cOutput returns the TF_Output of out; Valid(out) must hold.
func cOutput(out tf.Output) C.TF_Output {
	return C.TF_Output{oper: cOp(out.Op), index: C.int(out.Index)}
}

// wrapOutput makes the binding's output for a TF_Output of g; the zero
// tf.Output when it names no operation.
func wrapOutput(c C.TF_Output, g *tf.Graph) tf.Output {
	if c.oper == nil || c.index < 0 {
		return tf.Output{}
	}
	return tf.Output{Op: wrapOp(c.oper, g), Index: int(c.index)}
}

// cTensor returns the TF_Tensor of t, nil when there is none.
func cTensor(t *tf.Tensor) *C.TF_Tensor {
	if t == nil || layoutError != nil {
		return nil
	}
	return (*tensorLayout)(unsafe.Pointer(t)).c
}

// wrapTensor makes a tensor of the binding's that owns c and deletes it when
// it is collected, as the binding's own do.
func wrapTensor(c *C.TF_Tensor, shape []int64) *tf.Tensor {
	if c == nil || layoutError != nil {
		return nil
	}
	t := new(tf.Tensor)
	layout := (*tensorLayout)(unsafe.Pointer(t))
	layout.c, layout.shape = c, shape
	runtime.SetFinalizer(t, func(t *tf.Tensor) { C.TF_DeleteTensor(cTensor(t)) })
	return t
}
