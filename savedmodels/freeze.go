package savedmodels

import (
	"context"
	"errors"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	nodedef "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	opdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/op_def_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

// FreezeOptions are the settings of [Freeze].
type FreezeOptions struct {
	// Weights stores the float32 variables as 16-bit numbers, tf.Half or
	// tf.Bfloat16, which are converted in the graph; 0 stores them as they are.
	Weights tf.DataType
}

// Freeze is a graph as a serialized GraphDef without variables: what the outputs
// need, where each variable is a constant of the value that it has in the session.
// It is Python's convert_variables_to_constants; [bridge.Import] and
// tf.import_graph_def read it, under the same names. The graph is not changed.
//
// Functions, loops and conditionals that are given variables are given their values.
//
// Errors: ErrFailedPrecondition for outputs that update variables or hand them to
// operations that need a variable; ErrResourceExhausted for
// values of 2 GiB and more, which a GraphDef can't hold; ErrUninitialized.
func Freeze(ctx context.Context, g *ops.Graph, sess *bridge.Session, outputs []tf.Output, o FreezeOptions) ([]byte, error) {
	if err := g.Err(); err != nil {
		return nil, err
	}
	f, err := newFreezer(g.TF(), sess, outputs, o)
	if err != nil {
		return nil, err
	}
	reads := map[string]tf.Output{}
	for _, v := range g.Variables() {
		reads[v.Handle().Op.Name()] = v.Value()
	}
	return f.freeze(ctx, sess, func(handle string) (tf.Output, bool) {
		read, known := reads[handle]
		return read, known
	})
}

// Freeze is [Freeze] of a loaded model: a GraphDef that computes the outputs of the
// signatures, all when none is named, under the names that [Model.Signature] tells.
// Functions, loops and conditionals stay, and are given values where they were given
// variables. Tables are not variables: who imports the graph has to fill them.
func (m *Model) Freeze(ctx context.Context, signatures []string, o FreezeOptions) ([]byte, error) {
	if m == nil {
		return nil, bridge.Errorf(bridge.InvalidArgument, "Freeze", "the model is nil")
	}
	if signatures == nil {
		signatures = m.Signatures()
	}
	var outputs []tf.Output
	for _, name := range signatures {
		s, err := m.Signature(name)
		if err != nil {
			return nil, err
		}
		for _, p := range s.Outputs {
			out, err := m.Tensor(p.Tensor)
			if err != nil {
				return nil, err
			}
			outputs = append(outputs, out)
		}
	}
	f, err := newFreezer(m.graph, m.session, outputs, o)
	if err != nil {
		return nil, err
	}
	var failed error
	frozen, err := f.freeze(ctx, m.session, func(handle string) (tf.Output, bool) {
		read, err := m.reading(bridge.OperationByName(m.graph, handle))
		failed = errors.Join(failed, err)
		return read, err == nil
	})
	if failed != nil {
		return nil, failed
	}
	return frozen, err
}

// reading is a tensor with the value of a variable: one that the graph has, or a
// new one.
func (m *Model) reading(handle *tf.Operation) (tf.Output, error) {
	if handle.Type() != "VarHandleOp" {
		return handle.Output(0), nil
	}
	const name = "/read_to_freeze"
	if op := bridge.OperationByName(m.graph, handle.Name()+name); op != nil {
		return op.Output(0), nil
	}
	dt, err := bridge.AttrType(handle, "dtype")
	if err != nil {
		return tf.Output{}, err
	}
	op, err := bridge.AddOperation(m.graph, bridge.OpSpec{Type: "ReadVariableOp", Name: handle.Name() + name,
		Inputs: []tf.Input{handle.Output(0)}, Attrs: []bridge.Attr{{Name: "dtype", Value: dt}}})
	if err != nil {
		return tf.Output{}, err
	}
	return op.Output(0), nil
}

// freezer makes constants of variables.
type freezer struct {
	*rewrite
	outputs []string // nodes
	o       FreezeOptions
}

func newFreezer(g *tf.Graph, sess *bridge.Session, outputs []tf.Output, o FreezeOptions) (*freezer, error) {
	const op = "Freeze"
	switch {
	case sess == nil || sess.Graph() != g:
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "the session is not one of the graph")
	case len(outputs) == 0:
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "there is no output: a frozen graph is what its outputs need")
	case o.Weights != 0 && o.Weights != tf.Half && o.Weights != tf.Bfloat16:
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "Weights is %s; wanted half or bfloat16, or 0 for the variables' own", bridge.DTypeName(o.Weights))
	}
	f := &freezer{o: o}
	for i, out := range outputs {
		if !bridge.Valid(out) || bridge.GraphOf(out.Op) != g {
			return nil, bridge.Errorf(bridge.InvalidArgument, op, "output %d is not a tensor of the graph", i)
		}
		f.outputs = append(f.outputs, out.Op.Name())
	}
	var err error
	f.rewrite, err = newRewrite(g)
	return f, err
}

// freeze fetches the variables' values, by reads that the graph has, and puts them
// in.
func (f *freezer) freeze(ctx context.Context, sess *bridge.Session, read func(handle string) (tf.Output, bool)) ([]byte, error) {
	const op = "Freeze"
	f.keep(f.needed(f.outputs, nil))
	var handles, unknown []string
	call := bridge.Call{Exclusive: true}
	for _, n := range f.def.GetNode() {
		switch n.GetOp() {
		case "VarHandleOp", "VariableV2", "Variable":
			from, known := read(n.GetName())
			if !known {
				unknown = append(unknown, n.GetName())
				continue
			}
			handles, call.Fetches = append(handles, n.GetName()), append(call.Fetches, from)
		}
	}
	if len(unknown) > 0 {
		return nil, bridge.Errorf(bridge.FailedPrecondition, op, "the values of %s are not known: they are not variables that package ops made", strings.Join(unknown, ", "))
	}
	resources := map[string]tf.DataType{}
	for i, handle := range handles {
		if f.nodes[handle].GetOp() == "VarHandleOp" {
			resources[handle] = bridge.BaseDType(call.Fetches[i].DataType())
		} else if err := f.unchanged(handle); err != nil {
			return nil, err
		}
	}
	if err := f.settle(resources); err != nil {
		return nil, err
	}
	f.keep(f.needed(f.outputs, nil)) // without the functions that took variables
	if len(handles) > 0 {
		values, err := sess.Call(ctx, call)
		if err != nil {
			return nil, err
		}
		defer func() {
			for _, t := range values {
				_ = t.Close()
			}
		}()
		total := int64(0)
		for _, t := range values {
			total += t.ByteSize()
		}
		if total > maxModelBytes {
			return nil, bridge.Errorf(bridge.ResourceExhausted, op, "the variables take %d bytes, and a GraphDef ends at 2 GiB: save a SavedModel instead", total)
		}
		for i, handle := range handles {
			if err := f.replace(handle, values[i]); err != nil {
				return nil, err
			}
		}
	}
	f.sorted()
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(f.def)
	if err != nil {
		return nil, bridge.Errorf(bridge.Internal, op, "%w", err)
	}
	if len(encoded) > maxModelBytes {
		return nil, bridge.Errorf(bridge.ResourceExhausted, op, "the graph takes %d bytes, and a GraphDef ends at 2 GiB: save a SavedModel instead", len(encoded))
	}
	return encoded, nil
}

// unchanged says why one of TensorFlow 1's variables, which are tensors, can't be a
// constant.
func (f *freezer) unchanged(variable string) error {
	for _, user := range f.users(variable) {
		if def, known := bridge.OpDef(user.GetOp()); known && slices.ContainsFunc(def.GetInputArg(), (*opdef.OpDef_ArgDef).GetIsRef) {
			return bridge.Errorf(bridge.FailedPrecondition, "Freeze", "the outputs update variable %q, by %s (%s): what changes can't be a constant", variable, user.GetName(), user.GetOp())
		}
	}
	return nil
}

// replace puts a value in a variable's place.
func (f *freezer) replace(variable string, value *bridge.Tensor) error {
	index := slices.IndexFunc(f.def.Node, func(n *nodedef.NodeDef) bool { return n.GetName() == variable })
	f.def.Node = slices.Delete(f.def.Node, index, index+1)
	if f.o.Weights == 0 || value.DType() != tf.Float {
		_, err := f.constant(variable, value)
		return err
	}
	narrow, err := narrowed("Freeze", variable, value, f.o.Weights)
	if err != nil {
		return err
	}
	defer narrow.Close()
	if _, err := f.constant(variable, narrow); err != nil {
		return err
	}
	wide := f.add(f.free(variable+"/float32"), "Cast", map[string]*attrvalue.AttrValue{
		"SrcT": attrType(f.o.Weights), "DstT": attrType(tf.Float), "Truncate": {Value: &attrvalue.AttrValue_B{}}}, variable)
	f.rewire(variable, wide, wide)
	return nil
}
