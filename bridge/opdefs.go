package bridge

// #include <stdlib.h>
// #include "tensorflow/c/c_api.h"
import "C"

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unsafe"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	opdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/op_def_go_proto"
	"google.golang.org/protobuf/proto"
)

// OpDef returns the definition of an op type that libtensorflow (or a library
// loaded by LoadLibrary) has registered: its inputs, outputs and attributes.
// The result is shared: it may be read, not written.
func OpDef(opType string) (*opdef.OpDef, bool) {
	s := registered(opType)
	if s == nil {
		return nil, false
	}
	return s.def, true
}

// AllOps returns the definitions of every registered op, by name
// (TF_GetAllOpList). The definitions are shared: they may be read, not written.
func AllOps() ([]*opdef.OpDef, error) {
	buffer := C.TF_GetAllOpList()
	defer C.TF_DeleteBuffer(buffer)
	var list opdef.OpList
	if err := proto.Unmarshal(bufferBytes(buffer), &list); err != nil {
		return nil, Errorf(Internal, "AllOps", "libtensorflow's op list can't be read: %w", err)
	}
	slices.SortFunc(list.Op, func(a, b *opdef.OpDef) int { return strings.Compare(a.Name, b.Name) })
	return list.Op, nil
}

// bufferBytes is a view of a TF_Buffer's bytes.
func bufferBytes(buffer *C.TF_Buffer) []byte {
	if buffer == nil || buffer.data == nil {
		return nil
	}
	return unsafe.Slice((*byte)(buffer.data), int(buffer.length))
}

// signature is what the builder asks of an op's definition.
type signature struct {
	def      *opdef.OpDef
	lists    []bool // per input: is it a list
	attrs    map[string]attrKind
	required []string // attributes that have no default and follow from no input
}

// attrKind is an attribute's type as OpDefs write it: "int", "list(type)" …
type attrKind string

var (
	signatures    sync.Map // op type → *signature; for registered ops only
	registryGraph = sync.OnceValue(func() *C.TF_Graph { return C.TF_NewGraph() })
)

// registered returns the signature of a registered op, nil for another name.
func registered(opType string) *signature {
	if s, ok := signatures.Load(opType); ok {
		return s.(*signature)
	}
	s := lookUp(registryGraph(), opType)
	if s != nil {
		signatures.Store(opType, s)
	}
	return s
}

// signatureIn also finds the functions in g's library, which can be called as
// ops are. They are not kept: another graph may have other ones.
func signatureIn(g *tf.Graph, opType string) *signature {
	if s := registered(opType); s != nil {
		return s
	}
	return lookUp(cGraph(g), opType)
}

func lookUp(g *C.TF_Graph, opType string) *signature {
	if opType == "" || strings.IndexByte(opType, 0) >= 0 {
		return nil
	}
	name := C.CString(opType)
	defer C.free(unsafe.Pointer(name))
	buffer := C.TF_NewBuffer()
	defer C.TF_DeleteBuffer(buffer)
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	C.TF_GraphGetOpDef(g, name, buffer, status)
	if C.TF_GetCode(status) != C.TF_OK {
		return nil
	}
	def := new(opdef.OpDef)
	if err := proto.Unmarshal(bufferBytes(buffer), def); err != nil {
		return nil
	}
	return newSignature(def)
}

func newSignature(def *opdef.OpDef) *signature {
	s := &signature{def: def, attrs: make(map[string]attrKind, len(def.Attr))}
	inferred := make(map[string]bool)
	for _, arg := range def.InputArg {
		s.lists = append(s.lists, arg.NumberAttr != "" || arg.TypeListAttr != "")
		inferred[arg.NumberAttr], inferred[arg.TypeListAttr], inferred[arg.TypeAttr] = true, true, true
	}
	for _, attr := range def.Attr {
		s.attrs[attr.Name] = attrKind(attr.Type)
		if attr.DefaultValue == nil && !inferred[attr.Name] {
			s.required = append(s.required, attr.Name)
		}
	}
	return s
}

// describeInputs reads as "a, b, values (list)".
func (s *signature) describeInputs() string {
	if len(s.lists) == 0 {
		return "none"
	}
	var b strings.Builder
	for i, arg := range s.def.InputArg {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(arg.Name)
		if s.lists[i] {
			b.WriteString(" (list)")
		}
	}
	return b.String()
}

// describeAttrs reads as "T type, transpose_a bool".
func (s *signature) describeAttrs() string {
	if len(s.def.Attr) == 0 {
		return "none"
	}
	var names []string
	for _, attr := range s.def.Attr {
		names = append(names, attr.Name+" "+attr.Type)
	}
	return strings.Join(names, ", ")
}

// Nearest returns what of names is written most like wanted, the best first, at
// most three, for errors that say what was perhaps meant.
func Nearest(wanted string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	limit := len(wanted)/3 + 1
	folded := strings.ToLower(wanted)
	var found []candidate
	for _, name := range names {
		other := strings.ToLower(name)
		d := editDistance(folded, other, limit)
		if d > limit && len(folded) > 3 && strings.Contains(other, folded) {
			d = limit
		}
		if d <= limit {
			found = append(found, candidate{name, d})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		if a.distance != b.distance {
			return a.distance - b.distance
		}
		return len(a.name) - len(b.name)
	})
	var best []string
	for _, c := range found[:min(3, len(found))] {
		best = append(best, c.name)
	}
	return best
}

// editDistance counts the insertions, deletions and replacements between two
// strings (Levenshtein); more than limit where it is more than limit.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// opNames are kept until a library adds some.
var opNames struct {
	sync.Mutex
	names []string
}

func registeredNames() []string {
	opNames.Lock()
	defer opNames.Unlock()
	if opNames.names == nil {
		ops, err := AllOps()
		if err != nil {
			return nil
		}
		for _, op := range ops {
			opNames.names = append(opNames.names, op.Name)
		}
	}
	return opNames.names
}

func forgetNames() {
	opNames.Lock()
	defer opNames.Unlock()
	opNames.names = nil
}

func unknownOp(opType, name string) error {
	hint := "a library of custom ops is loaded with LoadLibrary"
	if near := Nearest(opType, registeredNames()); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, ", ") + "? " + hint
	}
	return Errorf(NotFound, nodeLabel(opType, name),
		"there is no op type %q, neither in libtensorflow %s nor among the graph's functions (%s)", opType, Version(), hint)
}

// nodeLabel names a node in errors: "net/MatMul (MatMul)".
func nodeLabel(opType, name string) string {
	if name == "" || name == opType {
		return opType
	}
	return fmt.Sprintf("%s (%s)", name, opType)
}
