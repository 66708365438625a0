package bridge

// #include "build.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// Attr is one attribute of an operation.
//
// Value is one of
//
//	string []byte []string [][]byte   string, list(string)
//	int int64 []int []int64           int, list(int)
//	float32 float64 []float32 []float64
//	bool []bool
//	tf.DataType []tf.DataType         type, list(type)
//	Shape []Shape tf.Shape []tf.Shape shape, list(shape)
//	*Tensor []*Tensor *tf.Tensor []*tf.Tensor
//	Func []Func                       func, list(func)
//	AttrProto                         any of them
//
// Attributes that follow from the inputs (T of MatMul) need not be given, nor
// those that keep their default.
type Attr struct {
	Name  string
	Value any
}

// Func is a function attribute: the name of a function in the graph's library
// (or of a registered op) and the attributes it is called with.
type Func struct {
	Name  string
	Attrs []Attr
}

// AttrProto is an attribute's value as a serialized AttrValue proto, for
// copying an attribute without looking into it.
type AttrProto []byte

// OpSpec tells AddOperation of an operation.
type OpSpec struct {
	Type         string          // such as "MatMul", or a function in the graph's library
	Name         string          // in the graph; Type when empty
	Inputs       []tf.Input      // one per input of the op: a tf.Output, or a tf.OutputList for a list
	Attrs        []Attr          // in any order
	Control      []*tf.Operation // run before this one
	Device       string          // such as "/device:GPU:0"; empty: TensorFlow places it
	ColocateWith []*tf.Operation // placed on the device of these
}

// AddOperation adds an operation to g (TF_NewOperation, TF_FinishOperation).
//
// Everything is checked against the op's definition before TensorFlow sees it,
// and what TensorFlow refuses itself (dtypes, shapes, a name that is taken)
// leaves the graph as it was. Several goroutines may add to one graph.
//
// Errors: ErrNotFound for an op type that does not exist, ErrAlreadyExists for
// a name that does, ErrClosed for a closed tensor, else ErrInvalidArgument.
func AddOperation(g *tf.Graph, spec OpSpec) (*tf.Operation, error) {
	if spec.Name == "" {
		spec.Name = spec.Type
	}
	d := descriptions.Get().(*description)
	defer d.release()
	if err := d.write(g, &spec); err != nil {
		return nil, err
	}
	added := C.sluice_add_operation(cGraph(g), (*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(d.bytes))))
	runtime.KeepAlive(g)
	if added.status != nil {
		defer C.TF_DeleteStatus(added.status)
		return nil, buildError(&spec, Code(C.TF_GetCode(added.status)), C.GoString(C.TF_Message(added.status)))
	}
	return wrapOp(added.op, g), nil
}

// description is what sluice_add_operation reads: words of 8 bytes, in the
// machine's order.
type description struct {
	bytes []byte
	value []byte // scratch for one attribute
	held  []*buffer
	keep  []*tf.Tensor
}

var descriptions = sync.Pool{New: func() any { return &description{bytes: make([]byte, 0, 1024)} }}

func (d *description) release() {
	for _, b := range d.held {
		b.release()
	}
	for _, t := range d.keep {
		runtime.KeepAlive(t)
	}
	clear(d.held)
	clear(d.keep)
	d.held, d.keep = d.held[:0], d.keep[:0]
	if cap(d.bytes) > 1<<20 {
		d.bytes = nil
	}
	if cap(d.value) > 1<<20 {
		d.value = nil
	}
	descriptions.Put(d)
}

func (d *description) word(v uint64) {
	d.bytes = binary.NativeEndian.AppendUint64(d.bytes, v)
}

func (d *description) pointer(p unsafe.Pointer) { d.word(uint64(uintptr(p))) }

var padding [8]byte

func (d *description) string(s string) {
	d.word(uint64(len(s)))
	d.bytes = append(d.bytes, s...)
	d.bytes = append(d.bytes, padding[:8-len(s)%8]...)
}

func (d *description) output(out tf.Output) {
	d.pointer(unsafe.Pointer(cOp(out.Op)))
	d.word(uint64(out.Index))
}

func (d *description) write(g *tf.Graph, spec *OpSpec) error {
	d.bytes = d.bytes[:0]
	if layoutError != nil {
		return layoutError
	}
	label := func() string { return nodeLabel(spec.Type, spec.Name) }
	if cGraph(g) == nil {
		return invalid(label(), "no graph to add the operation to: wanted a *tf.Graph made by tf.NewGraph, got nil or a zero one")
	}
	if spec.Type == "" {
		return invalid("AddOperation", "the operation has no type")
	}
	sig := signatureIn(g, spec.Type)
	if sig == nil {
		return unknownOp(spec.Type, spec.Name)
	}
	if err := CheckName(spec.Name); err != nil {
		return within(spec.Type, "", err)
	}
	if spec.Device != "" && !validDevice.MatchString(spec.Device) {
		return invalid(label(), "device %q is not written as TensorFlow reads devices: wanted such as \"/device:GPU:0\", \"/cpu:0\" or \"/job:worker/replica:0/task:1/device:CPU:0\"", spec.Device)
	}
	d.string(spec.Type)
	d.string(spec.Name)
	d.string(spec.Device)

	if len(spec.Inputs) != len(sig.lists) {
		return invalid(label(), "wanted %d inputs (%s), got %d", len(sig.lists), sig.describeInputs(), len(spec.Inputs))
	}
	d.word(uint64(len(spec.Inputs)))
	for i, input := range spec.Inputs {
		arg := sig.def.InputArg[i].Name
		switch input := input.(type) {
		case tf.Output:
			if sig.lists[i] {
				return invalid(label(), "input %q takes a list: wanted a tf.OutputList, got one tf.Output", arg)
			}
			if problem := checkOutput(g, input); problem != "" {
				return invalid(label(), "input %q %s", arg, problem)
			}
			d.word(^uint64(0))
			d.output(input)
		case tf.OutputList:
			if !sig.lists[i] {
				return invalid(label(), "input %q takes one tensor: wanted a tf.Output, got a tf.OutputList of %d", arg, len(input))
			}
			d.word(uint64(len(input)))
			for j, out := range input {
				if problem := checkOutput(g, out); problem != "" {
					return invalid(label(), "input %q [%d] %s", arg, j, problem)
				}
				d.output(out)
			}
		default:
			return invalid(label(), "input %q is a %T: wanted a tf.Output or a tf.OutputList", arg, input)
		}
	}
	for _, ops := range []struct {
		what string
		list []*tf.Operation
	}{{"control input", spec.Control}, {"operation to be colocated with", spec.ColocateWith}} {
		d.word(uint64(len(ops.list)))
		for i, op := range ops.list {
			if problem := checkOp(g, op); problem != "" {
				return invalid(label(), "%s %d %s", ops.what, i, problem)
			}
			d.pointer(unsafe.Pointer(cOp(op)))
		}
	}
	return d.attributes(sig, spec, label)
}

func (d *description) attributes(sig *signature, spec *OpSpec, label func() string) error {
	for i := range spec.Attrs {
		name := spec.Attrs[i].Name
		for j := range i {
			if spec.Attrs[j].Name == name {
				return invalid(label(), "attribute %q is given twice", name)
			}
		}
		if name == "" || strings.IndexByte(name, 0) >= 0 || !utf8.ValidString(name) {
			return invalid(label(), "%q is not an attribute name: wanted UTF-8 without NUL", name)
		}
	}
	for _, name := range sig.required {
		if !slices.ContainsFunc(spec.Attrs, func(a Attr) bool { return a.Name == name }) {
			return invalid(label(), "attribute %q (%s) has no default and must be given", name, sig.attrs[name])
		}
	}
	if spec.Type == "Const" {
		if err := checkConst(spec.Attrs); err != nil {
			return within(label(), "", err)
		}
	}
	d.word(uint64(len(spec.Attrs)))
	for _, attr := range spec.Attrs {
		kind, known := sig.attrs[attr.Name]
		if !known && attr.Name[0] != '_' { // names with an underscore are notes that any op may carry
			return invalid(label(), "op %s has no attribute %q; it has %s", spec.Type, attr.Name, sig.describeAttrs())
		}
		d.string(attr.Name)
		if err := d.attribute(attr.Value, kind); err != nil {
			return within(label(), fmt.Sprintf("attribute %q: ", attr.Name), err)
		}
	}
	return nil
}

// checkConst finds the mistake that TensorFlow finds only when the constant is
// run.
func checkConst(attrs []Attr) error {
	var declared, held tf.DataType
	for _, attr := range attrs {
		switch value := attr.Value.(type) {
		case tf.DataType:
			declared = value
		case *Tensor:
			held = value.DType()
		case *tf.Tensor:
			if c := cTensor(value); c != nil {
				held = tf.DataType(C.TF_TensorType(c))
			}
		}
	}
	if declared != 0 && held != 0 && declared != held {
		return invalid("", "attribute \"value\" is a tensor of %s, but \"dtype\" is %s", DTypeName(held), DTypeName(declared))
	}
	return nil
}

// attribute writes one value: of kind, where the op's definition names it.
func (d *description) attribute(value any, kind attrKind) error {
	switch value := value.(type) {
	case *Tensor:
		if err := wantKind(value, "tensor", kind); err != nil {
			return err
		}
		d.word(1)
		return d.tensor(value)
	case []*Tensor:
		if err := wantKind(value, "list(tensor)", kind); err != nil {
			return err
		}
		d.word(2)
		d.word(uint64(len(value)))
		for i, t := range value {
			if err := d.tensor(t); err != nil {
				return within("", fmt.Sprintf("[%d]: ", i), err)
			}
		}
		return nil
	case *tf.Tensor:
		if err := wantKind(value, "tensor", kind); err != nil {
			return err
		}
		d.word(1)
		return d.bindingTensor(value)
	case []*tf.Tensor:
		if err := wantKind(value, "list(tensor)", kind); err != nil {
			return err
		}
		d.word(2)
		d.word(uint64(len(value)))
		for i, t := range value {
			if err := d.bindingTensor(t); err != nil {
				return within("", fmt.Sprintf("[%d]: ", i), err)
			}
		}
		return nil
	}
	encoded, err := appendAttr(d.value[:0], value, kind)
	if err != nil {
		return err
	}
	d.value = encoded
	d.word(0)
	d.word(uint64(len(encoded)))
	d.bytes = append(d.bytes, encoded...)
	d.bytes = append(d.bytes, padding[:8-len(encoded)%8]...)
	return nil
}

// maxAttrBytes keeps graphs serializable: protobuf stops at 2 GiB.
const maxAttrBytes = 1<<31 - 1<<20

func (d *description) tensor(t *Tensor) error {
	b, err := t.acquire("")
	if err != nil {
		return err
	}
	d.held = append(d.held, b)
	if err := checkTensorAttr(b.c); err != nil {
		return err
	}
	d.pointer(unsafe.Pointer(b.c))
	return nil
}

func (d *description) bindingTensor(t *tf.Tensor) error {
	c := cTensor(t)
	if c == nil {
		return invalid("", "the tensor is nil")
	}
	d.keep = append(d.keep, t)
	if err := checkTensorAttr(c); err != nil {
		return err
	}
	d.pointer(unsafe.Pointer(c))
	return nil
}

func checkTensorAttr(c *C.TF_Tensor) error {
	dt := tf.DataType(C.TF_TensorType(c))
	if dt == Resource || dt == Variant {
		return invalid("", "a tensor of %s can't be part of a graph", DTypeName(dt))
	}
	if err := lackingDType("", dt); err != nil {
		return err
	}
	if size := int64(C.TF_TensorByteSize(c)); size > maxAttrBytes {
		return invalid("", "a tensor of %d bytes can't be part of a graph, which must stay below 2 GiB; feed it or initialize a variable by parts", size)
	}
	return nil
}

func wantKind(value any, got, want attrKind) error {
	if want != "" && want != got {
		return invalid("", "wanted %s, got a value of Go type %T, which is for %s", want, value, got)
	}
	return nil
}

// CheckName says whether TensorFlow takes name for an operation: it starts with
// a letter, a digit or '.', and goes on with those and '_', '-', '/', '\', '>'.
func CheckName(name string) error {
	if name == "" {
		return invalid("", "an operation's name is empty")
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.':
			continue
		case i > 0 && (c == '_' || c == '-' || c == '/' || c == '\\' || c == '>'):
			continue
		}
		return invalid("", "%q is not a name for an operation: byte %d, %q, may not stand there (wanted letters, digits and '.', then also '_', '-', '/', '\\', '>')", name, i, c)
	}
	return nil
}

var validDevice = regexp.MustCompile(`^(?:/(?:job:(?:[A-Za-z][A-Za-z0-9_]*|\*)|(?:replica|task):(?:\d{1,9}|\*)|device:(?:[A-Za-z][A-Za-z0-9_]*|\*)(?::(?:\d{1,9}|\*))?|(?:cpu|CPU|gpu|GPU):(?:\d{1,9}|\*)))+$`)

// checkOp says what is wrong with op as a part of g; "" when nothing is.
func checkOp(g *tf.Graph, op *tf.Operation) string {
	if cOp(op) == nil {
		return "is nil"
	}
	if cGraph(graphOf(op)) != cGraph(g) {
		return fmt.Sprintf("is %q of another graph", op.Name())
	}
	return ""
}

// checkOutput says what is wrong with out as a tensor of g; "" when nothing is.
func checkOutput(g *tf.Graph, out tf.Output) string {
	if cOp(out.Op) == nil {
		return "is the zero tf.Output, which no operation makes"
	}
	if cGraph(graphOf(out.Op)) != cGraph(g) {
		return fmt.Sprintf("is \"%s:%d\" of another graph", out.Op.Name(), out.Index)
	}
	if n := out.Op.NumOutputs(); out.Index < 0 || out.Index >= n {
		return fmt.Sprintf("is \"%s:%d\", but %s has %d outputs", out.Op.Name(), out.Index, out.Op.Type(), n)
	}
	return ""
}

// within is err as a part of op, its message after prefix.
func within(op, prefix string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return Errorf(Unknown, op, "%s%w", prefix, err)
	}
	return &Error{Code: e.Code, Op: op, Message: prefix + e.Message, Err: e.Err}
}

var (
	nodeText  = regexp.MustCompile(`(?s)\s*'?\{\{node [^}]*\}\}(?: = \w+\[.*?\]\(.*?\))?'?`)
	duplicate = regexp.MustCompile(`^Duplicate node name in graph: `)
)

// buildError says in short what TensorFlow says in full of an operation that it
// refused: its messages repeat the node, the op's definition and where both
// come from.
func buildError(spec *OpSpec, code Code, message string) error {
	label := nodeLabel(spec.Type, spec.Name)
	if duplicate.MatchString(message) {
		return Errorf(AlreadyExists, label, "the graph already has an operation named %q", spec.Name)
	}
	message, _, _ = strings.Cut(message, "; NodeDef: ")
	message, _, _ = strings.Cut(message, " while building NodeDef ")
	message = strings.ReplaceAll(message, "\n\t for attr ", " for attr ")
	message = nodeText.ReplaceAllString(message, "")
	message = strings.TrimSuffix(strings.TrimSpace(message), " for")
	message = strings.ReplaceAll(message, " for with input shapes", " with input shapes")
	return &Error{Code: code, Op: label, Message: strings.TrimSpace(message)}
}
