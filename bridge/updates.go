package bridge

// #include <stdlib.h>
// #include "run.h"
import "C"

import (
	"regexp"
	"sync"
	"unsafe"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	"google.golang.org/protobuf/proto"
)

// updatingOps matches the op types that change a variable, resource variables
// and v1's reference variables alike.
var updatingOps = regexp.MustCompile(`^(?:` +
	`Assign(?:Add|Sub)?(?:VariableOp)?|AssignVariableXlaConcatND|` +
	`(?:Resource)?(?:Sparse)?Apply[A-Z]\w*|` +
	`ResourceScatter\w*|Scatter(?:Nd)?(?:Add|Sub|Mul|Div|Min|Max|Update)|` +
	`(?:Resource)?StridedSliceAssign|(?:Resource)?CountUpTo|DestroyResourceOp)$`)

// effects finds out whether operations of a graph update variables. What it
// learns of op types and functions is kept.
type effects struct {
	g         *tf.Graph
	mu        sync.Mutex
	opTypes   map[string]opEffect
	functions map[string]bool // by name: does a call of it update a variable?
}

type opEffect struct {
	updates bool
	call    bool     // the op type is a function's name
	bodies  []string // attributes that name functions
}

// updates walks from the operations to all that run before them, stopping at the
// outputs in fed.
func (e *effects) updates(ops []*C.TF_Operation, fed map[C.TF_Output]bool) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var (
		seen    = make(map[*C.TF_Operation]bool, len(ops))
		todo    []*C.TF_Operation
		data    = make([]C.TF_Output, 64)
		control = make([]*C.TF_Operation, 64)
		typ     *C.char
		size    C.size_t
		waits   C.int
	)
	add := func(op *C.TF_Operation) {
		if !seen[op] {
			seen[op] = true
			todo = append(todo, op)
		}
	}
	for _, op := range ops {
		add(op)
	}
	for len(todo) > 0 {
		op := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		n := int(C.sluice_parents(op, &data[0], C.int(len(data)), &control[0], C.int(len(control)), &typ, &size, &waits))
		if n > len(data) || int(waits) > len(control) {
			data = make([]C.TF_Output, max(n, len(data)))
			control = make([]*C.TF_Operation, max(int(waits), len(control)))
			C.sluice_parents(op, &data[0], C.int(len(data)), &control[0], C.int(len(control)), &typ, &size, &waits)
		}
		opType := unsafe.String((*byte)(unsafe.Pointer(typ)), int(size))
		effect := e.ofType(opType)
		if effect.updates || effect.call && e.functionUpdates(opType) {
			return true, nil
		}
		for _, attr := range effect.bodies {
			found, err := e.bodyUpdates(op, attr)
			if found || err != nil {
				return found, err
			}
		}
		for _, in := range data[:n] {
			if !fed[in] {
				add(in.oper)
			}
		}
		for _, op := range control[:waits] {
			add(op)
		}
	}
	return false, nil
}

// ofType looks at an op type. The string may be C's memory.
func (e *effects) ofType(opType string) opEffect {
	if known, ok := e.opTypes[opType]; ok {
		return known
	}
	opType = string(append([]byte(nil), opType...))
	effect := opEffect{updates: updatingOps.MatchString(opType)}
	if def, ok := OpDef(opType); ok {
		for _, a := range def.GetAttr() {
			if t := a.GetType(); t == "func" || t == "list(func)" {
				effect.bodies = append(effect.bodies, a.GetName())
			}
		}
	} else {
		effect.call = true
	}
	e.opTypes[opType] = effect
	return effect
}

func (e *effects) bodyUpdates(op *C.TF_Operation, attr string) (bool, error) {
	raw, err := RawAttr(wrapOp(op, e.g), attr)
	if err != nil {
		return false, err
	}
	var value attrvalue.AttrValue
	if err := proto.Unmarshal(raw, &value); err != nil {
		return false, Errorf(Internal, "Prepare", "attribute %s of %s: %w", attr, wrapOp(op, e.g).Name(), err)
	}
	for _, name := range functionsIn(&value) {
		if e.functionUpdates(name) {
			return true, nil
		}
	}
	return false, nil
}

// functionsIn names the functions that an attribute has.
func functionsIn(v *attrvalue.AttrValue) []string {
	var names []string
	if f := v.GetFunc(); f != nil {
		names = append(names, f.GetName())
	}
	for _, f := range v.GetList().GetFunc() {
		names = append(names, f.GetName())
	}
	return names
}

func (e *effects) functionUpdates(name string) bool {
	if known, ok := e.functions[name]; ok {
		return known
	}
	seen := map[string]bool{}
	found, complete := e.search(name, seen)
	switch {
	case found:
		e.functions[name] = true
	case complete:
		// None of those that it calls updates anything either.
		for name := range seen {
			e.functions[name] = false
		}
	}
	return found
}

// search looks for an update in a function and those that it calls, which may
// call each other. complete is false where one of them is not in the library, to
// which it may be added later.
func (e *effects) search(name string, seen map[string]bool) (found, complete bool) {
	if seen[name] {
		return false, true
	}
	if known, ok := e.functions[name]; ok {
		return known, true
	}
	def := e.find(name)
	if def == nil {
		return false, false
	}
	seen[name] = true
	complete = true
	for _, node := range def.GetNodeDef() {
		effect := e.ofType(node.GetOp())
		if effect.updates {
			return true, true
		}
		var calls []string
		if effect.call {
			calls = append(calls, node.GetOp())
		}
		for _, v := range node.GetAttr() {
			calls = append(calls, functionsIn(v)...)
		}
		for _, call := range calls {
			found, known := e.search(call, seen)
			if found {
				return true, true
			}
			complete = complete && known
		}
	}
	return false, complete
}

// find reads a function from the graph's library.
func (e *effects) find(name string) *function.FunctionDef {
	graph := cGraph(e.g)
	n := int(C.TF_GraphNumFunctions(graph))
	if n == 0 {
		return nil
	}
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	all := make([]*C.TF_Function, n)
	n = int(C.TF_GraphGetFunctions(graph, &all[0], C.int(n), status))
	var def *function.FunctionDef
	for _, f := range all[:max(n, 0)] {
		if def == nil && C.GoString(C.TF_FunctionName(f)) == name {
			def, _ = functionDef(f) // unreadable is as good as missing
		}
		C.TF_DeleteFunction(f)
	}
	return def
}
