package optimizers

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	graph "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	nodedef "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	types "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

// A formula of a dozen operations walks a dozen times over the memory of a
// large variable. XLA makes one loop of it, which takes as long as a fused
// operation of TensorFlow's. So where a variable is large, what a rule has
// built is copied into a function, and the nodes it was copied from are never
// run. The function reads and changes the variable and its slots in place, for
// a new buffer for each of them would cost as much as the loop; where something
// else may change the variable first, it takes and returns values instead.

// compiledFrom is the number of elements from which formulas are compiled. It is
// where a call of XLA's begins to cost less than the memory it saves.
const compiledFrom = 1 << 18

// compilable are the operations that XLA is known to make one loop of, with the
// results that their kernels have.
var compilable = map[string]bool{}

func init() {
	for _, name := range strings.Fields(`Abs AddV2 Cast Ceil ClipByValue Cos DivNoNan Equal Exp ExpandDims Expm1 Floor
		FloorDiv FloorMod Greater GreaterEqual Identity IsFinite Less LessEqual Log Log1p LogicalAnd LogicalNot LogicalOr
		Maximum Minimum Mul Neg NotEqual Pow RealDiv Reciprocal Round Rsqrt SelectV2 Sigmoid Sign Sin Softplus Sqrt
		Square Sub Tanh`) {
		compilable[name] = true
	}
}

// compile replaces what u stores, as far as it is made in u's scope, by a
// function that XLA compiles, where that is worth it. In place, the function
// changes the variables itself.
func (u *Update) compile(inPlace bool) {
	elements, known := u.Variable.Shape().NumElements()
	from := u.Apply.compileFrom
	if u.DType != tf.Float && u.DType != tf.Double || from < 0 || !known || elements < from {
		return
	}
	c := cone{u: u, names: map[string]string{}, inputs: map[string]string{}, handles: map[string]string{}}
	var replaced []*store
	for _, each := range u.stores {
		if !each.rows && c.takes(each.value.Op) {
			replaced = append(replaced, each)
		}
	}
	if inPlace {
		for _, each := range replaced {
			c.handles[each.of.Handle().Op.Name()] = c.argument(each.of.Handle())
		}
	}
	results := make([]string, len(replaced))
	for i, each := range replaced {
		results[i] = c.add(each.value)
	}
	if u.Scope.Err() != nil || c.err != nil || c.full < 2 || c.entangled() {
		return
	}
	if inPlace {
		for i, each := range replaced {
			c.assign(each.of, results[i])
		}
		results = nil
	}
	f, err := c.function(results)
	if err != nil {
		u.Scope.Fail(fmt.Errorf("compiling the update of %q: %w", u.Variable.Name(), err))
		return
	}
	if inPlace {
		var called *tf.Operation
		for _, each := range replaced {
			each.instead = func(s *ops.Scope) *tf.Operation {
				if called == nil {
					called = f.call(s)
				}
				return called
			}
		}
		u.computed.addOutputs(c.args...)
		return
	}
	call := f.call(u.Scope)
	for i, each := range replaced {
		each.value = tf.Output{Op: call, Index: i}
	}
}

// cone is what tensors are made of by compilable operations in an update's scope.
type cone struct {
	u        *Update
	nodes    []*nodedef.NodeDef
	names    map[string]string // in the cone, by operation
	args     []tf.Output
	inputs   map[string]string // arguments' names, by tensor
	handles  map[string]string // arguments that are variables, by operation
	assigned []string
	full     int // operations that make tensors of the variable's size
	err      error
	external []*tf.Operation // operations of the update that are not part of it
}

// takes says that an operation becomes part of the cone.
func (c *cone) takes(op *tf.Operation) bool { return c.mine(op) && compilable[op.Type()] }

// mine says that an operation was made for this update alone.
func (c *cone) mine(op *tf.Operation) bool {
	return strings.HasPrefix(op.Name(), c.u.Scope.Path()+"/")
}

// add adds what makes a tensor, and is the tensor's name in the cone.
func (c *cone) add(out tf.Output) string {
	op := out.Op
	if c.err != nil {
		return ""
	}
	if name, known := c.names[op.Name()]; known {
		return name
	}
	constant := op.Type() == "Const" && bridge.ShapeOf(out).Rank() == 0
	if op.Type() == "ReadVariableOp" {
		if handle, known := c.handles[bridge.Input(op, 0).Op.Name()]; known {
			return c.node(out, []string{handle})
		}
	}
	if !constant && !c.takes(op) {
		if c.mine(op) {
			c.external = append(c.external, op)
		}
		return c.argument(out)
	}
	var inputs []string
	for _, in := range bridge.Inputs(op) {
		inputs = append(inputs, c.add(in))
	}
	if bridge.ShapeOf(out).Equal(c.u.Variable.Shape()) {
		c.full++
	}
	if op.Type() == "ClipByValue" { // of NaN, XLA's is a number
		low := c.twoOf("Minimum", inputs[0], inputs[2], out.DataType())
		c.names[op.Name()] = c.twoOf("Maximum", low, inputs[1], out.DataType())
		return c.names[op.Name()]
	}
	return c.node(out, inputs)
}

// twoOf adds an operation of two tensors of one dtype.
func (c *cone) twoOf(opType, a, b string, dt tf.DataType) string {
	name := fmt.Sprintf("n%d", len(c.nodes))
	c.nodes = append(c.nodes, &nodedef.NodeDef{Name: name, Op: opType, Input: []string{a, b}, Attr: typeAttr("T", dt)})
	return name
}

// node copies the operation that makes a tensor.
func (c *cone) node(out tf.Output, inputs []string) string {
	def, err := bridge.NodeDef(out.Op)
	if err != nil {
		c.err = err
		return ""
	}
	def.Name, def.Input, def.Device = fmt.Sprintf("n%d", len(c.nodes)), inputs, ""
	delete(def.Attr, "_class")
	c.nodes = append(c.nodes, def)
	c.names[out.Op.Name()] = def.Name
	return def.Name
}

// argument makes a tensor an argument of the function.
func (c *cone) argument(out tf.Output) string {
	key := fmt.Sprintf("%s:%d", out.Op.Name(), out.Index)
	name, known := c.inputs[key]
	if !known {
		name = fmt.Sprintf("in%d", len(c.args))
		c.inputs[key], c.args = name, append(c.args, out)
		c.nodes = append(c.nodes, &nodedef.NodeDef{Name: name, Op: "Placeholder", Attr: typeAttr("dtype", out.DataType())})
	}
	return name
}

// assign gives a variable its new value.
func (c *cone) assign(v *ops.Variable, value string) {
	name := fmt.Sprintf("assign%d", len(c.assigned))
	c.assigned = append(c.assigned, name)
	c.nodes = append(c.nodes, &nodedef.NodeDef{Name: name, Op: "AssignVariableOp",
		Input: []string{c.handles[v.Handle().Op.Name()], value}, Attr: typeAttr("dtype", v.DType())})
}

func typeAttr(name string, dt tf.DataType) map[string]*attrvalue.AttrValue {
	return map[string]*attrvalue.AttrValue{name: {Value: &attrvalue.AttrValue_Type{Type: types.DataType(dt)}}}
}

// entangled says that an input is made, in this update, from what is also in the
// cone, which would then be computed twice.
func (c *cone) entangled() bool {
	seen := map[string]bool{}
	for queue := c.external; len(queue) > 0; {
		op := queue[0]
		queue = queue[1:]
		for _, in := range bridge.Inputs(op) {
			name := in.Op.Name()
			if seen[name] || !c.mine(in.Op) {
				continue
			}
			if c.names[name] != "" && bridge.ShapeOf(in).Equal(c.u.Variable.Shape()) {
				return true
			}
			seen[name] = true
			queue = append(queue, in.Op)
		}
	}
	return false
}

// compiled is a function in the graph's library, with what it is called with.
type compiled struct {
	name    string
	args    []tf.Output
	results []tf.DataType
}

// function adds the cone as a function, named after its body so that equal
// formulas share one.
func (c *cone) function(results []string) (*compiled, error) {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(&graph.GraphDef{Node: c.nodes})
	if err != nil {
		return nil, err
	}
	scratch := tf.NewGraph()
	var wanted []string
	for i := range c.args {
		wanted = append(wanted, fmt.Sprintf("in%d", i))
	}
	body, err := bridge.Import(scratch, encoded, bridge.ImportOptions{ReturnOutputs: append(wanted, results...), ReturnOps: c.assigned})
	if err != nil {
		return nil, err
	}
	inputs, outputs := body.Outputs[:len(c.args)], body.Outputs[len(c.args):]
	key := sha256.Sum256(fmt.Append(encoded, results))
	name := "compiled_" + hex.EncodeToString(key[:8])
	def, err := bridge.ToFunction(scratch, bridge.FunctionSpec{
		Name: name, Inputs: inputs, Outputs: outputs, Control: body.Ops,
		Attrs: []bridge.Attr{{Name: mustCompile, Value: true}, {Name: "_noinline", Value: true}},
	})
	if err != nil {
		return nil, err
	}
	renamed, err := bridge.AddFunctions(c.u.Scope.TF(), def)
	if err != nil {
		return nil, err
	}
	if other, ok := renamed[name]; ok {
		name = other
	}
	f := &compiled{name: name, args: c.args}
	for _, out := range outputs {
		f.results = append(f.results, out.DataType())
	}
	return f, nil
}

// mustCompile is the attribute that hands a function to XLA.
const mustCompile = "_XlaMustCompile"

// call adds a call of the function.
func (f *compiled) call(s *ops.Scope) *tf.Operation {
	return s.Add(bridge.OpSpec{Type: "StatefulPartitionedCall", Inputs: []tf.Input{tf.OutputList(f.args)}, Attrs: []bridge.Attr{
		{Name: "f", Value: bridge.Func{Name: f.name}}, {Name: "Tout", Value: f.results}, {Name: mustCompile, Value: true},
	}})
}
