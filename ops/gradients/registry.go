package gradients

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// Func is the gradient of one operation type: it returns one [Gradient] for
// each input of c.Op, in order. A result shorter than the inputs leaves the
// rest without a gradient, and so does a zero Gradient.
type Func func(c *Context) []Gradient

// Check says, from what is known before a run, why a gradient function would
// fail for op, or nil. It runs before any node is added.
type Check func(op *tf.Operation) error

type entry struct {
	grad  Func
	check Check
	// opaque inputs never receive a gradient although their dtype could carry one.
	opaque []int
	// open looks into the functions that an operation calls, before any node is
	// added, and tells what can't be differentiated there.
	open func(w *walk, n *node) ([]MissingOp, error)
}

var registry = struct {
	sync.RWMutex
	entries map[string]entry
}{entries: map[string]entry{}}

// Register sets the gradient function of an operation type, as Python's
// tf.RegisterGradient does. The inputs listed as opaque never receive a
// gradient, whatever their dtype, so what lies only behind them needs no
// gradient function. Registering a type again replaces it, which lets a
// program correct a gradient of this package. An empty name or a nil function is
// an error; [RegisterNone] is for types without a gradient.
func Register(opType string, f Func, opaque ...int) error {
	if opType == "" || f == nil {
		return fmt.Errorf("gradients.Register(%q): the operation type and its function are both needed", opType)
	}
	registry.Lock()
	defer registry.Unlock()
	e := registry.entries[opType]
	registry.entries[opType] = entry{grad: f, opaque: opaque, check: e.check}
	return nil
}

// Marked is the gradient of the nodes of one graph whose attribute
// _gradient_op_type, or [SegmentAttr], has a certain value. By the former
// Python's custom gradients mark a node too.
type Marked struct {
	Grad   Func
	Check  Check // nil: none
	Opaque []int // inputs that never receive a gradient
}

// Marker is a [Scope] whose graph has marked nodes. What it does not know is
// looked up as a registered name.
type Marker interface {
	MarkedGradient(name string) (Marked, bool)
}

// RegisterNone states that operations of these types are not differentiable:
// a gradient that arrives at one ends there, without an error. It is Python's
// ops.NotDifferentiable.
func RegisterNone(opTypes ...string) {
	registry.Lock()
	defer registry.Unlock()
	for _, t := range opTypes {
		registry.entries[t] = entry{}
	}
}

// RegisterCheck adds to a registered type a check that is asked before
// anything is built, for gradient functions that can't handle every case.
func RegisterCheck(opType string, check Check) {
	registry.Lock()
	defer registry.Unlock()
	e := registry.entries[opType]
	e.check = check
	registry.entries[opType] = e
}

// Lookup finds the gradient function of an operation type. known is false for
// a type nobody registered; a known type with a nil Func is not
// differentiable.
func Lookup(opType string) (f Func, known bool) {
	e, ok := lookup(opType)
	return e.grad, ok
}

func lookup(opType string) (entry, bool) {
	registry.RLock()
	defer registry.RUnlock()
	e, ok := registry.entries[opType]
	return e, ok
}

// Registered lists the operation types that have a gradient function, sorted.
func Registered() []string {
	registry.RLock()
	defer registry.RUnlock()
	var names []string
	for name, e := range registry.entries {
		if e.grad != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// NotDifferentiable lists the operation types registered by [RegisterNone],
// sorted.
func NotDifferentiable() []string {
	registry.RLock()
	defer registry.RUnlock()
	var names []string
	for name, e := range registry.entries {
		if e.grad == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// MissingOp is an operation on the way from a y to an x through which no
// gradient can be built.
type MissingOp struct {
	Type string // operation type, as "Unique"
	Name string // node name
	// Reason is why the gradient function can't handle this node; empty when
	// the type has no gradient function at all.
	Reason string
	// Equivalent names what to use instead, where there is something.
	Equivalent string
}

// MissingGradientError lists every operation between the ys and the xs that
// has no gradient function. It is found before a node is added, so the graph
// is unchanged. Python raises LookupError for the first of them.
type MissingGradientError struct {
	Ops []MissingOp
}

func (e *MissingGradientError) Error() string {
	var b strings.Builder
	if len(e.Ops) == 1 {
		b.WriteString("no gradient through ")
	} else {
		fmt.Fprintf(&b, "no gradient through %d operations: ", len(e.Ops))
	}
	for i, op := range e.Ops {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s at node %q", op.Type, op.Name)
		if op.Reason != "" {
			fmt.Fprintf(&b, " (%s)", op.Reason)
		} else {
			b.WriteString(" (no gradient function)")
		}
		if op.Equivalent != "" {
			fmt.Fprintf(&b, ", use %s", op.Equivalent)
		}
	}
	return b.String()
}

// v1Loop is said of each part of a loop of TensorFlow 1.
const v1Loop = "While (loops of TensorFlow 1, which are made of Enter, Exit and NextIteration, can't be differentiated; tf.compat.v1.enable_control_flow_v2 makes While of them)"

// equivalents says what does the same as an operation without a gradient.
var equivalents = map[string]string{
	"SymbolicGradient":                 "the function's body inlined into the graph",
	"Enter":                            v1Loop,
	"RefEnter":                         v1Loop,
	"Exit":                             v1Loop,
	"NextIteration":                    v1Loop,
	"Unique":                           "Gather by indices computed outside of the differentiated path",
	"BatchNormWithGlobalNormalization": "FusedBatchNormV3",
	"Bincount":                         "UnsortedSegmentSum",
	"DenseBincount":                    "UnsortedSegmentSum",
	"Mod":                              "FloorMod",
	"QuantizeAndDequantize":            "QuantizeAndDequantizeV2",
	"TopK":                             "TopKV2",
	"TensorArrayGatherV2":              "TensorArrayGatherV3",
	"TensorArrayReadV2":                "TensorArrayReadV3",
	"TensorArrayScatterV2":             "TensorArrayScatterV3",
	"TensorArraySplitV2":               "TensorArraySplitV3",
	"TensorArrayWriteV2":               "TensorArrayWriteV3",
	"TruncateMod":                      "Sub(x, Mul(y, TruncateDiv(x, y)))",
	"VariableV2":                       "a resource variable (VarHandleOp and ReadVariableOp)",
}

// Types returns the operation types the error names, each once, sorted.
func (e *MissingGradientError) Types() []string {
	types := map[string]bool{}
	for _, op := range e.Ops {
		types[op.Type] = true
	}
	return slices.Sorted(maps.Keys(types))
}
