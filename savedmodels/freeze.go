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
// Errors: ErrFailedPrecondition for outputs that update variables or hand them to
// functions and other operations that need a variable; ErrResourceExhausted for
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
// Models whose signatures are calls of functions that use variables, as those of
// TensorFlow 2 are, are ErrFailedPrecondition. Tables are not variables: who imports
// the graph has to fill them.
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
	for _, handle := range handles {
		if err := f.freezable(handle); err != nil {
			return nil, err
		}
	}
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

// freezable says why a variable can't be a constant.
func (f *freezer) freezable(handle string) error {
	for _, user := range f.users(handle) {
		switch kind := user.GetOp(); {
		case f.nodes[handle].GetOp() != "VarHandleOp":
			// TensorFlow 1's variables are tensors; only who changes one needs more.
			if def, known := bridge.OpDef(kind); known && slices.ContainsFunc(def.GetInputArg(), (*opdef.OpDef_ArgDef).GetIsRef) {
				return bridge.Errorf(bridge.FailedPrecondition, "Freeze", "the outputs update variable %q, by %s (%s): what changes can't be a constant", handle, user.GetName(), kind)
			}
		case kind == "ReadVariableOp", kind == "ResourceGather", kind == "ResourceGatherNd", kind == "VarIsInitializedOp", kind == "VariableShape":
		case strings.HasPrefix(kind, "Assign"), strings.HasPrefix(kind, "Resource"):
			return bridge.Errorf(bridge.FailedPrecondition, "Freeze", "the outputs update variable %q, by %s (%s): what changes can't be a constant", handle, user.GetName(), kind)
		default:
			return bridge.Errorf(bridge.FailedPrecondition, "Freeze", "%s (%s) takes variable %q itself: a function that uses variables has to be inlined first", user.GetName(), kind, handle)
		}
	}
	return nil
}

// replace puts a value in a variable's place.
func (f *freezer) replace(handle string, value *bridge.Tensor) error {
	users := f.users(handle)
	if f.nodes[handle].GetOp() != "VarHandleOp" {
		users = nil // they go on with the constant
	}
	index := slices.IndexFunc(f.def.Node, func(n *nodedef.NodeDef) bool { return n.GetName() == handle })
	f.def.Node = slices.Delete(f.def.Node, index, index+1)
	dt, source := value.DType(), handle
	if f.o.Weights != 0 && dt == tf.Float {
		narrow, err := narrowed(handle, value, f.o.Weights)
		if err != nil {
			return err
		}
		defer narrow.Close()
		if _, err := f.constant(handle, narrow); err != nil {
			return err
		}
		source = f.add(f.free(handle+"/float32"), "Cast", map[string]*attrvalue.AttrValue{
			"SrcT": attrType(f.o.Weights), "DstT": attrType(dt), "Truncate": {Value: &attrvalue.AttrValue_B{}}}, handle)
	} else if _, err := f.constant(handle, value); err != nil {
		return err
	}
	if source != handle && users == nil {
		f.rewire(handle, source, source)
	}
	for _, n := range users {
		old := n.GetAttr()
		n.Input[0] = source
		switch n.GetOp() {
		case "ReadVariableOp":
			n.Op, n.Attr = "Identity", map[string]*attrvalue.AttrValue{"T": attrType(dt)}
		case "VariableShape":
			n.Op, n.Attr = "Shape", map[string]*attrvalue.AttrValue{"T": attrType(dt), "out_type": old["out_type"]}
		case "ResourceGatherNd":
			n.Op, n.Attr = "GatherNd", map[string]*attrvalue.AttrValue{"Tparams": attrType(dt), "Tindices": old["Tindices"]}
		case "ResourceGather":
			axis, err := bridge.Scalar(int32(0))
			if err != nil {
				return err
			}
			batch := old["batch_dims"]
			if batch.GetI() != 0 {
				_ = axis.Close()
				if axis, err = bridge.Scalar(int32(batch.GetI())); err != nil {
					return err
				}
			}
			name, err := f.constant(f.free(n.GetName()+"/axis"), axis)
			_ = axis.Close()
			if err != nil {
				return err
			}
			n.Op, n.Input = "GatherV2", slices.Insert(n.Input, 2, name)
			n.Attr = map[string]*attrvalue.AttrValue{"Tparams": attrType(dt), "Tindices": old["Tindices"], "Taxis": attrType(tf.Int32), "batch_dims": batch}
		case "VarIsInitializedOp":
			yes, err := bridge.Scalar(true)
			if err != nil {
				return err
			}
			name, err := f.constant(f.free(n.GetName()+"/yes"), yes)
			_ = yes.Close()
			if err != nil {
				return err
			}
			n.Op, n.Attr = "Identity", map[string]*attrvalue.AttrValue{"T": attrType(tf.Bool)}
			n.Input[0] = name
		}
		if value := n.Attr["out_type"]; value == nil {
			delete(n.Attr, "out_type")
		}
		if value := n.Attr["batch_dims"]; value == nil {
			delete(n.Attr, "batch_dims")
		}
	}
	return nil
}
