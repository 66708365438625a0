package bridge

// #include <stdlib.h>
// #include "tensorflow/c/c_api.h"
import "C"

import (
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	graph "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	"google.golang.org/protobuf/proto"
)

// FunctionSpec tells ToFunction which part of a graph becomes a function.
type FunctionSpec struct {
	Name    string      // what Func and OpSpec.Type will call it by
	Inputs  []tf.Output // the arguments, as a rule placeholders; each once
	Outputs []tf.Output // the results; one may come twice

	// OutputNames names the results, each [a-z][a-z0-9_]*; nil: made from the
	// names of their operations.
	OutputNames []string

	// Ops is the body. nil: every operation of the graph but those that make the
	// inputs. Not nil, but empty: none.
	Ops []*tf.Operation

	// Control are operations of the body that run whenever the function does,
	// whether a result needs them or not, such as assignments.
	Control []*tf.Operation

	Attrs []Attr // of the function itself, such as _noinline
}

var resultName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// ToFunction makes a function of g or a part of it
// (TF_GraphToFunctionWithControlOutputs). g is not changed; AddFunctions puts
// the result into the library of the graph that calls it.
func ToFunction(g *tf.Graph, spec FunctionSpec) (*function.FunctionDef, error) {
	op := "function " + spec.Name
	body := cGraph(g)
	switch {
	case layoutError != nil:
		return nil, layoutError
	case body == nil:
		return nil, invalid(op, "the graph is nil")
	case CheckName(spec.Name) != nil:
		return nil, invalid("ToFunction", "%q is not a function's name: wanted letters, digits and '.', then also '_', '-', '/'", spec.Name)
	case spec.OutputNames != nil && len(spec.OutputNames) != len(spec.Outputs):
		return nil, invalid(op, "%d names for %d outputs", len(spec.OutputNames), len(spec.Outputs))
	}
	inputs, err := functionOutputs(g, op, "input", spec.Inputs)
	if err != nil {
		return nil, err
	}
	outputs, err := functionOutputs(g, op, "output", spec.Outputs)
	if err != nil {
		return nil, err
	}
	ops, err := functionOps(g, op, "operation", spec.Ops)
	if err != nil {
		return nil, err
	}
	control, err := functionOps(g, op, "control output", spec.Control)
	if err != nil {
		return nil, err
	}
	for i, name := range spec.OutputNames {
		if !resultName.MatchString(name) {
			return nil, invalid(op, "%q is not a name for output %d: wanted [a-z][a-z0-9_]*", name, i)
		}
	}

	name := C.CString(spec.Name)
	defer C.free(unsafe.Pointer(name))
	outputNames := cStrings(spec.OutputNames)
	defer outputNames.free()
	controlNames := make([]string, len(spec.Control))
	for i, op := range spec.Control {
		controlNames[i] = op.Name()
	}
	cControlNames := cStrings(controlNames)
	defer cControlNames.free()
	count := C.int(-1)
	if spec.Ops != nil {
		count = C.int(len(ops))
	}
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	made := C.TF_GraphToFunctionWithControlOutputs(body, name, 0,
		count, unsafe.SliceData(ops),
		C.int(len(inputs)), unsafe.SliceData(inputs),
		C.int(len(outputs)), unsafe.SliceData(outputs), outputNames.data(),
		C.int(len(control)), unsafe.SliceData(control), cControlNames.data(),
		nil, nil, status)
	runtime.KeepAlive(g)
	if err := statusError(status, op); err != nil {
		return nil, err
	}
	defer C.TF_DeleteFunction(made)
	def, err := functionDef(made)
	if err != nil {
		return nil, err
	}
	for _, attr := range spec.Attrs {
		encoded, err := appendAttr(nil, attr.Value, "")
		if err != nil {
			return nil, within(op, fmt.Sprintf("attribute %q: ", attr.Name), err)
		}
		value := new(attrvalue.AttrValue)
		if err := proto.Unmarshal(encoded, value); err != nil {
			return nil, invalid(op, "attribute %q is not a serialized AttrValue", attr.Name)
		}
		if def.Attr == nil {
			def.Attr = make(map[string]*attrvalue.AttrValue)
		}
		def.Attr[attr.Name] = value
	}
	return def, nil
}

func functionOutputs(g *tf.Graph, op, what string, from []tf.Output) ([]C.TF_Output, error) {
	outputs := make([]C.TF_Output, len(from))
	for i, out := range from {
		if problem := checkOutput(g, out); problem != "" {
			return nil, invalid(op, "%s %d %s", what, i, problem)
		}
		outputs[i] = cOutput(out)
	}
	return outputs, nil
}

func functionOps(g *tf.Graph, op, what string, from []*tf.Operation) ([]*C.TF_Operation, error) {
	ops := make([]*C.TF_Operation, len(from))
	for i, o := range from {
		if problem := checkOp(g, o); problem != "" {
			return nil, invalid(op, "%s %d %s", what, i, problem)
		}
		ops[i] = cOp(o)
	}
	return ops, nil
}

// cStringList is an array of C strings in C memory; nil for no strings.
type cStringList []*C.char

func cStrings(strings []string) cStringList {
	if len(strings) == 0 {
		return nil
	}
	array := (**C.char)(C.calloc(C.size_t(len(strings)), C.size_t(unsafe.Sizeof((*C.char)(nil)))))
	list := unsafe.Slice(array, len(strings))
	for i, s := range strings {
		list[i] = C.CString(s)
	}
	return list
}

func (l cStringList) data() **C.char { return unsafe.SliceData(l) }

func (l cStringList) free() {
	for _, s := range l {
		C.free(unsafe.Pointer(s))
	}
	if l != nil {
		C.free(unsafe.Pointer(unsafe.SliceData(l)))
	}
}

func functionDef(f *C.TF_Function) (*function.FunctionDef, error) {
	def := new(function.FunctionDef)
	err := protoFrom("function "+C.GoString(C.TF_FunctionName(f)), def, func(buffer *C.TF_Buffer, status *C.TF_Status) {
		C.TF_FunctionToFunctionDef(f, buffer, status)
	})
	return def, err
}

// Functions returns the functions in g's library, by name
// (TF_GraphGetFunctions). They are copies.
func Functions(g *tf.Graph) ([]*function.FunctionDef, error) {
	c := cGraph(g)
	if c == nil {
		return nil, invalid("Functions", "the graph is nil")
	}
	n := C.TF_GraphNumFunctions(c)
	if n == 0 {
		return nil, nil
	}
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	handles := make([]*C.TF_Function, n)
	n = C.TF_GraphGetFunctions(c, &handles[0], n, status)
	runtime.KeepAlive(g)
	if err := statusError(status, "Functions"); err != nil {
		return nil, err
	}
	defs := make([]*function.FunctionDef, 0, n)
	var failed error
	for _, f := range handles[:n] {
		def, err := functionDef(f)
		C.TF_DeleteFunction(f)
		if err != nil && failed == nil {
			failed = err
		}
		defs = append(defs, def)
	}
	if failed != nil {
		return nil, failed
	}
	slices.SortFunc(defs, func(a, b *function.FunctionDef) int {
		return strings.Compare(a.GetSignature().GetName(), b.GetSignature().GetName())
	})
	return defs, nil
}

// AddFunctions adds functions to g's library (TF_GraphCopyFunction). One that
// is there already, with the same body, stays as it is. One whose name belongs
// to another function of g or to a registered op gets a fresh name, in the calls
// of the other functions too: renamed tells the new name by the old one. defs are
// not changed.
func AddFunctions(g *tf.Graph, defs ...*function.FunctionDef) (renamed map[string]string, err error) {
	c := cGraph(g)
	if c == nil {
		return nil, invalid("AddFunctions", "the graph is nil")
	}
	// Where all names are new, which is the rule, nothing needs to be compared.
	var present map[string]*function.FunctionDef
	if slices.ContainsFunc(defs, func(def *function.FunctionDef) bool { return lookUp(c, def.GetSignature().GetName()) != nil }) {
		if present, err = functionsReached(g, defs); err != nil {
			return nil, err
		}
	}
	renamed, err = freshNames(present, defs)
	if err != nil {
		return nil, err
	}
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	// First all are read, so that none is added when one can't be.
	var handles []*C.TF_Function
	defer func() {
		for _, f := range handles {
			C.TF_DeleteFunction(f)
		}
	}()
	for _, def := range defs {
		name := def.Signature.Name
		if len(renamed) > 0 {
			def = proto.CloneOf(def)
			renameInFunction(def, renamed)
		}
		if present[def.Signature.Name] != nil {
			continue
		}
		encoded, err := proto.Marshal(def)
		if err != nil {
			return nil, invalid("function "+name, "can't be serialized: %w", err)
		}
		if len(encoded) == 0 {
			return nil, invalid("AddFunctions", "a function is empty")
		}
		f := C.TF_FunctionImportFunctionDef(unsafe.Pointer(&encoded[0]), C.size_t(len(encoded)), status)
		if err := statusError(status, "function "+name); err != nil {
			return nil, err
		}
		handles = append(handles, f)
	}
	for _, f := range handles {
		C.TF_GraphCopyFunction(c, f, nil, status)
		if err := statusError(status, "function "+C.GoString(C.TF_FunctionName(f))); err != nil {
			return nil, err
		}
	}
	runtime.KeepAlive(g)
	return renamed, nil
}

// CopyFunctions adds src's functions to dst as AddFunctions does.
func CopyFunctions(dst, src *tf.Graph) (renamed map[string]string, err error) {
	defs, err := Functions(src)
	if err != nil {
		return nil, err
	}
	return AddFunctions(dst, defs...)
}

// functionsReached reads those functions of g's library that defs are named as or
// call, and those that these call. The others are there by name, as nil: to read a
// large library again and again takes long.
func functionsReached(g *tf.Graph, defs []*function.FunctionDef) (map[string]*function.FunctionDef, error) {
	c := cGraph(g)
	reached := map[string]*function.FunctionDef{}
	n := C.TF_GraphNumFunctions(c)
	if n == 0 {
		return reached, nil
	}
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	all := make([]*C.TF_Function, n)
	n = C.TF_GraphGetFunctions(c, &all[0], n, status)
	runtime.KeepAlive(g)
	if err := statusError(status, "Functions"); err != nil {
		return nil, err
	}
	handles := make(map[string]*C.TF_Function, n)
	for _, f := range all[:n] {
		defer C.TF_DeleteFunction(f)
		name := C.GoString(C.TF_FunctionName(f))
		handles[name], reached[name] = f, nil
	}
	var failed error
	var read func(name string)
	follow := func(def *function.FunctionDef) {
		for _, node := range def.GetNodeDef() {
			read(node.GetOp())
			for _, value := range node.GetAttr() {
				for _, name := range functionsIn(value) {
					read(name)
				}
			}
		}
	}
	read = func(name string) {
		if handles[name] == nil || reached[name] != nil || failed != nil {
			return
		}
		def, err := functionDef(handles[name])
		if err != nil {
			failed = err
			return
		}
		reached[name] = def
		follow(def)
	}
	for _, def := range defs {
		read(def.GetSignature().GetName())
		follow(def)
	}
	return reached, failed
}

func functionsByName(g *tf.Graph) (map[string]*function.FunctionDef, error) {
	defs, err := Functions(g)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*function.FunctionDef, len(defs))
	for _, def := range defs {
		byName[def.Signature.Name] = def
	}
	return byName, nil
}

// freshNames finds which of defs can't keep their names in a library that holds
// present, and names for them: those of another body, those named as an op is,
// and those that are there but call one of the former.
func freshNames(present map[string]*function.FunctionDef, defs []*function.FunctionDef) (map[string]string, error) {
	taken := make(map[string]bool, len(present)+len(defs))
	for name := range present {
		taken[name] = true
	}
	given := make(map[string]bool, len(defs))
	for i, def := range defs {
		name := def.GetSignature().GetName()
		if name == "" {
			return nil, invalid("AddFunctions", "function %d has no name", i)
		}
		if given[name] {
			return nil, invalid("AddFunctions", "function %q is given twice", name)
		}
		given[name], taken[name] = true, true
	}
	calls := newCalls(present, defs)
	for _, def := range defs {
		if _, err := calls.of(def.GetSignature().GetName()); err != nil {
			return nil, within("AddFunctions", "", err)
		}
	}
	var renamed map[string]string
	rename := func(name string) {
		if renamed == nil {
			renamed = make(map[string]string)
		}
		for i := 1; ; i++ {
			fresh := name + "_" + strconv.Itoa(i)
			if !taken[fresh] && registered(fresh) == nil {
				renamed[name], taken[fresh] = fresh, true
				return
			}
		}
	}
	for _, def := range defs {
		name := def.Signature.Name
		if other := present[name]; other != nil && !proto.Equal(other, def) || registered(name) != nil {
			rename(name)
		}
	}
	for again := renamed != nil; again; {
		again = false
		for _, def := range defs {
			name := def.Signature.Name
			if _, done := renamed[name]; done || present[name] == nil {
				continue
			}
			if renameInFunction(proto.CloneOf(def), renamed) {
				rename(name)
				again = true
			}
		}
	}
	return renamed, nil
}

// What calls of functions may come to. TensorFlow follows calls when a node that
// makes one is added: into the depth until its stack is full, and a function that
// is called twice twice.
const (
	maxCallDepth  = 1000
	maxCalledSize = 1 << 20 // nodes, each as often as the function that has it is called
)

// calls measures functions by the calls that they always make: a branch of an If
// may well call the function that it is in.
type calls struct {
	all  map[string]*function.FunctionDef
	size map[string]int // nodes that a call comes to
	way  []string
}

func newCalls(present map[string]*function.FunctionDef, defs []*function.FunctionDef) *calls {
	c := &calls{all: make(map[string]*function.FunctionDef, len(present)+len(defs)), size: map[string]int{}}
	maps.Copy(c.all, present)
	for _, def := range defs {
		c.all[def.GetSignature().GetName()] = def
	}
	return c
}

// of is how many nodes a call of the function comes to, 0 for what is none.
func (c *calls) of(name string) (int, error) {
	def := c.all[name]
	if def == nil {
		return 0, nil
	}
	if n, known := c.size[name]; known {
		return n, nil
	}
	if i := slices.Index(c.way, name); i >= 0 {
		return 0, invalid("", "functions call each other in a circle, which has no end: %s", strings.Join(append(c.way[i:], name), " calls "))
	}
	if len(c.way) == maxCallDepth {
		return 0, invalid("", "functions call each other to a depth of more than %d, from %q to %q", maxCallDepth, c.way[0], name)
	}
	c.way = append(c.way, name)
	total := 0
	for _, node := range def.GetNodeDef() {
		callee := node.GetOp()
		if isCall(callee) {
			callee = node.GetAttr()["f"].GetFunc().GetName()
		}
		n, err := c.of(callee)
		if err != nil {
			return 0, err
		}
		if total += 1 + n; total > maxCalledSize {
			return 0, invalid("", "a call of function %q comes to more than %d nodes, since functions call each other again and again", name, maxCalledSize)
		}
	}
	c.way = c.way[:len(c.way)-1]
	c.size[name] = total
	return total, nil
}

func isCall(opType string) bool {
	return opType == "PartitionedCall" || opType == "StatefulPartitionedCall"
}

// renameInFunction gives a function and those that it calls their new names. It
// says whether there was one.
func renameInFunction(def *function.FunctionDef, renamed map[string]string) bool {
	changed := false
	if fresh, ok := renamed[def.Signature.Name]; ok {
		def.Signature.Name, changed = fresh, true
	}
	for _, node := range def.NodeDef {
		if node == nil {
			continue
		}
		if fresh, ok := renamed[node.Op]; ok {
			node.Op, changed = fresh, true
		}
		changed = renameInAttrs(node.Attr, renamed) || changed
	}
	// Keras names the other half of a differentiable pair in strings.
	for _, key := range []string{"forward_function_name", "backward_function_name"} {
		if fresh, ok := renamed[string(def.Attr[key].GetS())]; ok {
			def.Attr[key] = &attrvalue.AttrValue{Value: &attrvalue.AttrValue_S{S: []byte(fresh)}}
			changed = true
		}
	}
	return renameInAttrs(def.Attr, renamed) || changed
}

func renameInAttrs(attrs map[string]*attrvalue.AttrValue, renamed map[string]string) bool {
	changed := false
	call := func(f *attrvalue.NameAttrList) {
		if f == nil {
			return
		}
		if fresh, ok := renamed[f.Name]; ok {
			f.Name, changed = fresh, true
		}
		changed = renameInAttrs(f.Attr, renamed) || changed
	}
	for _, value := range attrs {
		call(value.GetFunc())
		for _, f := range value.GetList().GetFunc() {
			call(f)
		}
	}
	return changed
}

// ImportOptions tells Import how a graph's nodes come into another graph.
type ImportOptions struct {
	Prefix string // before every node's name, with a '/'

	// InputMap replaces tensors of the imported graph by tensors of the
	// importing one: the keys are "node:1", "node" for its output 0, and "^node"
	// for control inputs, which then come from the output's operation.
	InputMap map[string]tf.Output

	Control []*tf.Operation // run before every imported node
	Device  string          // of nodes that name none

	ReturnOutputs []string // tensors of the imported graph, "node:1" or "node", to be found in Imported.Outputs
	ReturnOps     []string // nodes of the imported graph, to be found in Imported.Ops

	UniquifyNames  bool // a node whose name is taken gets a fresh one; otherwise that is an error
	UniquifyPrefix bool // a prefix that is taken gets a fresh name
}

// Imported is what Import brought in.
type Imported struct {
	Outputs []tf.Output       // of ImportOptions.ReturnOutputs, in that order
	Ops     []*tf.Operation   // of ImportOptions.ReturnOps, in that order
	Renamed map[string]string // functions that got another name: new ones by old ones
	Unused  []string          // keys of InputMap that no imported node takes
}

// Import adds the nodes and functions of a serialized GraphDef to g
// (TF_GraphImportGraphDefWithResults). Functions whose names mean something else
// in g are renamed, and the nodes that call them. When it fails, no node has been
// added.
//
// What the GraphDef asks for is checked before TensorFlow sees it: damaged bytes,
// op types that nobody knows, constants whose type or size is not that of their
// bytes, functions in circles. That makes reading a file of unknown origin safe,
// and not running it: a graph is a program, which can read and write files.
func Import(g *tf.Graph, def []byte, o ImportOptions) (*Imported, error) {
	const op = "Import"
	c := cGraph(g)
	if layoutError != nil {
		return nil, layoutError
	}
	if c == nil {
		return nil, invalid(op, "the graph is nil")
	}
	if len(def) == 0 {
		return nil, invalid(op, "the GraphDef is empty")
	}
	if o.Device != "" && !validDevice.MatchString(o.Device) {
		return nil, invalid(op, "device %q is not written as TensorFlow reads devices", o.Device)
	}
	scan, err := scanGraphDef(def)
	if err != nil {
		return nil, err
	}
	if err := scan.checkOpTypes(g); err != nil {
		return nil, err
	}
	if !o.UniquifyNames && !(o.UniquifyPrefix && o.Prefix != "") {
		if err := checkCollisions(g, o.Prefix, scan.names); err != nil {
			return nil, err
		}
	}
	var renamed map[string]string
	if len(scan.functions) > 0 {
		if def, renamed, err = renameFunctions(g, def); err != nil {
			return nil, err
		}
	}

	options := C.TF_NewImportGraphDefOptions()
	defer C.TF_DeleteImportGraphDefOptions(options)
	var kept []unsafe.Pointer
	defer func() {
		for _, s := range kept {
			C.free(s)
		}
	}()
	cString := func(s string) *C.char {
		c := C.CString(s)
		kept = append(kept, unsafe.Pointer(c))
		return c
	}
	if strings.IndexByte(o.Prefix, 0) >= 0 {
		return nil, invalid(op, "the prefix %q holds a NUL", o.Prefix)
	}
	C.TF_ImportGraphDefOptionsSetPrefix(options, cString(o.Prefix))
	if o.Device != "" {
		C.TF_ImportGraphDefOptionsSetDefaultDevice(options, cString(o.Device))
	}
	C.TF_ImportGraphDefOptionsSetUniquifyNames(options, cBool(o.UniquifyNames))
	C.TF_ImportGraphDefOptionsSetUniquifyPrefix(options, cBool(o.UniquifyPrefix))
	keys := make(map[string]string, len(o.InputMap)) // by "node:0"
	for key, out := range o.InputMap {
		if problem := checkOutput(g, out); problem != "" {
			return nil, invalid(op, "the tensor for input %q %s", key, problem)
		}
		if node, isControl := strings.CutPrefix(key, "^"); isControl {
			if err := checkNodeName(node); err != nil {
				return nil, within(op, "InputMap: ", err)
			}
			C.TF_ImportGraphDefOptionsRemapControlDependency(options, cString(node), cOp(out.Op))
			continue
		}
		node, index, err := parseTensorName(key)
		if err != nil {
			return nil, within(op, "InputMap: ", err)
		}
		keys[fmt.Sprintf("%s:%d", node, index)] = key
		C.TF_ImportGraphDefOptionsAddInputMapping(options, cString(node), C.int(index), cOutput(out))
	}
	for i, control := range o.Control {
		if problem := checkOp(g, control); problem != "" {
			return nil, invalid(op, "control input %d %s", i, problem)
		}
		C.TF_ImportGraphDefOptionsAddControlDependency(options, cOp(control))
	}
	for _, name := range o.ReturnOutputs {
		node, index, err := parseTensorName(name)
		if err != nil {
			return nil, within(op, "ReturnOutputs: ", err)
		}
		C.TF_ImportGraphDefOptionsAddReturnOutput(options, cString(node), C.int(index))
	}
	for _, name := range o.ReturnOps {
		if err := checkNodeName(name); err != nil {
			return nil, within(op, "ReturnOps: ", err)
		}
		C.TF_ImportGraphDefOptionsAddReturnOperation(options, cString(name))
	}

	buffer := C.TF_NewBufferFromString(unsafe.Pointer(&def[0]), C.size_t(len(def)))
	defer C.TF_DeleteBuffer(buffer)
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	results := C.TF_GraphImportGraphDefWithResults(c, buffer, options, status)
	if err := statusError(status, op); err != nil {
		return nil, err
	}
	defer C.TF_DeleteImportGraphDefResults(results)
	imported := &Imported{Renamed: renamed}
	var n C.int
	var outputs *C.TF_Output
	C.TF_ImportGraphDefResultsReturnOutputs(results, &n, &outputs)
	for _, out := range unsafe.Slice(outputs, int(n)) {
		imported.Outputs = append(imported.Outputs, wrapOutput(out, g))
	}
	var ops **C.TF_Operation
	C.TF_ImportGraphDefResultsReturnOperations(results, &n, &ops)
	for _, c := range unsafe.Slice(ops, int(n)) {
		imported.Ops = append(imported.Ops, wrapOp(c, g))
	}
	var unusedNames **C.char
	var unusedIndexes *C.int
	C.TF_ImportGraphDefResultsMissingUnusedInputMappings(results, &n, &unusedNames, &unusedIndexes)
	for i, name := range unsafe.Slice(unusedNames, int(n)) {
		key := fmt.Sprintf("%s:%d", C.GoString(name), unsafe.Slice(unusedIndexes, int(n))[i])
		imported.Unused = append(imported.Unused, keys[key])
	}
	slices.Sort(imported.Unused)
	runtime.KeepAlive(g)
	return imported, nil
}

func cBool(v bool) C.uchar {
	if v {
		return 1
	}
	return 0
}

// parseTensorName reads "node:1", or "node" for output 0.
func parseTensorName(name string) (node string, index int, err error) {
	node = name
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		node = name[:i]
		n, err := strconv.ParseUint(name[i+1:], 10, 31)
		if err != nil {
			return "", 0, invalid("", "%q is not a tensor's name: wanted \"node:0\" or \"node\"", name)
		}
		index = int(n)
	}
	return node, index, checkNodeName(node)
}

// checkNodeName is for names of nodes that exist: a GraphDef may hold others
// than CheckName takes.
func checkNodeName(name string) error {
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		return invalid("", "%q is not a node's name", name)
	}
	return nil
}

// checkCollisions finds names that are taken: under a prefix TensorFlow itself
// does not, and goes on with two nodes of one name.
func checkCollisions(g *tf.Graph, prefix string, names []string) error {
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	for _, name := range names {
		if OperationByName(g, prefix+name) != nil {
			return Errorf(AlreadyExists, "Import", "the graph already has an operation named %q; UniquifyNames or UniquifyPrefix finds another name", prefix+name)
		}
	}
	return nil
}

// renameFunctions gives the functions of a GraphDef names that are free in g.
func renameFunctions(g *tf.Graph, encoded []byte) ([]byte, map[string]string, error) {
	const op = "Import"
	def := new(graph.GraphDef)
	if err := proto.Unmarshal(encoded, def); err != nil {
		return nil, nil, invalid(op, "the bytes are not a serialized GraphDef: %w", err)
	}
	present, err := functionsByName(g)
	if err != nil {
		return nil, nil, err
	}
	if err := checkCalled(newCalls(present, def.GetLibrary().GetFunction()), def); err != nil {
		return nil, nil, within(op, "", err)
	}
	renamed, err := freshNames(present, def.GetLibrary().GetFunction())
	if err != nil || renamed == nil {
		return encoded, nil, err
	}
	for _, f := range def.Library.Function {
		renameInFunction(f, renamed)
	}
	for _, gradient := range def.Library.Gradient {
		if fresh, ok := renamed[gradient.FunctionName]; ok {
			gradient.FunctionName = fresh
		}
		if fresh, ok := renamed[gradient.GradientFunc]; ok {
			gradient.GradientFunc = fresh
		}
	}
	for _, node := range def.Node {
		if fresh, ok := renamed[node.Op]; ok {
			node.Op = fresh
		}
		renameInAttrs(node.Attr, renamed)
	}
	if encoded, err = proto.Marshal(def); err != nil {
		return nil, nil, invalid(op, "the GraphDef can't be serialized with renamed functions: %w", err)
	}
	return encoded, renamed, nil
}

// checkCalled bounds what the calls in a graph come to all together.
func checkCalled(calls *calls, def *graph.GraphDef) error {
	total := 0
	for _, node := range def.GetNode() {
		callee := node.GetOp()
		if isCall(callee) {
			callee = node.GetAttr()["f"].GetFunc().GetName()
		}
		n, err := calls.of(callee)
		if err != nil {
			return err
		}
		if total += n; total > maxCalledSize {
			return invalid("", "the graph's calls of functions come to more than %d nodes", maxCalledSize)
		}
	}
	return nil
}
