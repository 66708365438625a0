package checkpoints

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corepb "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// valueSuffix is what an object-based checkpoint appends to a variable's path.
const valueSuffix = "/.ATTRIBUTES/VARIABLE_VALUE"

// objects is what an object-based checkpoint knows beside names: the graph of
// Python's objects, with the keys of their values.
type objects struct {
	children   []map[string]int32 // by node: local names, escaped as in paths
	keys       []string           // by node: of its value; "" where it has none
	byFullName map[string][]string
}

// readObjects reads the graph of objects, if there is one, and gives the entries
// their full names.
func (r *Reader) readObjects() error {
	entry := r.byKey(objectGraphKey)
	if entry == nil {
		return nil
	}
	graph, err := r.objectGraph(entry)
	if err != nil {
		return fmt.Errorf("%s: the graph of objects: %w", r.prefix, err)
	}
	o := &objects{byFullName: map[string][]string{}}
	for _, node := range graph.GetNodes() {
		children := make(map[string]int32, len(node.GetChildren()))
		for _, c := range node.GetChildren() {
			children[escapePart(c.GetLocalName())] = c.GetNodeId()
		}
		o.children = append(o.children, children)
		value := ""
		for _, a := range node.GetAttributes() {
			e := r.byKey(a.GetCheckpointKey())
			if e == nil {
				continue // Python tolerates it, for values it does not need
			}
			if a.GetName() == "VARIABLE_VALUE" {
				value = e.Key
			}
			if full := a.GetFullName(); full != "" {
				e.FullName = full
				if keys := o.byFullName[full]; !slices.Contains(keys, e.Key) {
					o.byFullName[full] = append(keys, e.Key)
				}
			}
		}
		o.keys = append(o.keys, value)
	}
	r.objects = o
	return nil
}

func (r *Reader) objectGraph(e *Entry) (*corepb.TrackableObjectGraph, error) {
	if e.DType != tf.String || len(e.Shape) != 0 {
		return nil, damaged(indexName(r.prefix), "%v, wanted a string scalar", e)
	}
	t, err := r.readStrings(e)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	text, err := t.Strings()
	if err != nil {
		return nil, err
	}
	graph := new(corepb.TrackableObjectGraph)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text[0]), graph); err != nil {
		return nil, damaged(dataName(r.prefix, int(e.pieces[0].shard), r.shards), "%w", err)
	}
	return graph, nil
}

// escapePart is a local name as it stands in a path.
func escapePart(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, ".", ".."), "/", ".S")
}

// keyAt is the key of the value of the object that a path from the root leads
// to, "" where there is none.
func (o *objects) keyAt(path string) string {
	node := int32(0)
	for part := range strings.SplitSeq(path, "/") {
		if node < 0 || int(node) >= len(o.children) {
			return ""
		}
		next, found := o.children[node][part]
		if !found {
			return ""
		}
		node = next
	}
	if node < 0 || int(node) >= len(o.keys) {
		return ""
	}
	return o.keys[node]
}

// nearest is "have a, b, c": the names most like the wanted one.
func nearest(wanted string, names []string) string {
	const most = 5
	if len(names) == 0 {
		return "it has nothing"
	}
	names = slices.Clone(names)
	parts := strings.Split(wanted, "/")
	alike := func(name string) int {
		n := 0
		for _, part := range parts {
			if part != "" && strings.Contains(name, part) {
				n++
			}
		}
		return n
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(alike(b), alike(a)) })
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("have %s and %d more", strings.Join(names[:most], ", "), n)
	}
	return "have " + strings.Join(names, ", ")
}
