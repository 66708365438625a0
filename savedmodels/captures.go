package savedmodels

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	nodedef "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	types "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
)

// settling turns what is done with variables into what is done with their values: a
// read into an Identity, and a function that is given a variable into one that is
// given its value. So a value is in the graph once, whoever calls with it, and loops
// and conditionals stay what they are.
type settling struct {
	*rewrite
	library map[string]*function.FunctionDef
	made    map[string]settled // by the function and the arguments that are values now
	busy    map[string]bool    // functions that are being looked at: a recursion ends there
	narrow  tf.DataType        // not 0: variables stay, and are of this type; who reads them converts
}

// settled is a function that takes values where it took variables.
type settled struct {
	name    string
	outputs map[int]tf.DataType // those that hand a variable on
}

// room is a graph or the body of a function: where tensors have names.
type room struct {
	where string // for messages: "" or of which function
	nodes []*nodedef.NodeDef
	body  bool // tensors are "node:name:1", in a graph "node:1"
	// add makes a node of the room.
	add func(name, op string, attrs map[string]*attrvalue.AttrValue, inputs ...string) string
	// values are the tensors that were variables, by name.
	values map[string]tf.DataType
	// renamed are outputs whose name in a body is another now.
	renamed map[string]string
}

// tensor is the name of a node's output, as its users write it. Of the nodes that hand
// variables on, all call it "output".
func (r *room) tensor(node string, index int) string {
	switch {
	case r.body:
		return node + ":output:" + strconv.Itoa(index)
	case index == 0:
		return node
	}
	return node + ":" + strconv.Itoa(index)
}

// value tells whether an input is a variable's value.
func (r *room) value(input string) (tf.DataType, bool) {
	if !r.body {
		input = strings.TrimSuffix(input, ":0")
	}
	dt, is := r.values[input]
	return dt, is
}

// given are the data inputs of a node from the n-th on that are values, by place.
func (r *room) given(n *nodedef.NodeDef, from int) map[int]tf.DataType {
	found := map[int]tf.DataType{}
	for i, input := range n.GetInput() {
		if dt, is := r.value(input); is && i >= from && !strings.HasPrefix(input, "^") {
			found[i-from] = dt
		}
	}
	return found
}

// settle has a graph use the values of variables, which the nodes of these names are
// to become.
func (w *rewrite) settle(variables map[string]tf.DataType) error { return w.settleAs(variables, 0) }

// narrow stores float32 variables as 16-bit numbers: what reads them converts them.
func (w *rewrite) narrow(variables []string, dt tf.DataType) error {
	all := map[string]tf.DataType{}
	for _, v := range variables {
		all[v] = dt
		w.nodes[v].Attr["dtype"] = attrType(dt)
	}
	return w.settleAs(all, dt)
}

func (w *rewrite) settleAs(variables map[string]tf.DataType, narrow tf.DataType) error {
	s := &settling{narrow: narrow, rewrite: w, library: map[string]*function.FunctionDef{}, made: map[string]settled{}, busy: map[string]bool{}}
	for _, f := range w.def.GetLibrary().GetFunction() {
		s.library[f.GetSignature().GetName()] = f
	}
	r := &room{nodes: slices.Clone(w.def.GetNode()), add: w.add, values: maps.Clone(variables)}
	return s.room(r)
}

// caller is what a node does with functions: the attributes that name them, where
// their arguments begin among its inputs, and the attribute with the types of these.
type caller struct {
	functions []string
	skip      int
	types     string
	results   string // "": as the arguments
}

var callers = map[string]caller{
	"PartitionedCall":         {[]string{"f"}, 0, "Tin", "Tout"},
	"StatefulPartitionedCall": {[]string{"f"}, 0, "Tin", "Tout"},
	"If":                      {[]string{"then_branch", "else_branch"}, 1, "Tin", "Tout"},
	"StatelessIf":             {[]string{"then_branch", "else_branch"}, 1, "Tin", "Tout"},
	"Case":                    {[]string{"branches"}, 1, "Tin", "Tout"},
	"StatelessCase":           {[]string{"branches"}, 1, "Tin", "Tout"},
	"While":                   {[]string{"cond", "body"}, 0, "T", ""},
	"StatelessWhile":          {[]string{"cond", "body"}, 0, "T", ""},
}

// handOn are nodes that give what they are given, by how many outputs they have.
var handOn = map[string]int{"Identity": 1, "Enter": 1, "Switch": 2}

// least is how many inputs operations on variables have: bodies of functions in a file
// are not checked before they run.
var least = map[string]int{"ResourceGather": 2, "ResourceGatherNd": 2, "AssignVariableOp": 2}

// called are the functions that a node calls.
func called(n *nodedef.NodeDef, c caller) (all []*attrvalue.NameAttrList) {
	for _, name := range c.functions {
		if f := n.GetAttr()[name].GetFunc(); f != nil {
			all = append(all, f)
		}
		all = append(all, n.GetAttr()[name].GetList().GetFunc()...)
	}
	return all
}

// room rewrites the nodes of a graph or body.
func (s *settling) room(r *room) error {
	r.renamed = map[string]string{}
	for _, n := range r.nodes {
		if n.Attr == nil {
			n.Attr = map[string]*attrvalue.AttrValue{}
		}
	}
	if err := s.spread(r); err != nil {
		return err
	}
	for _, n := range r.nodes {
		inputs := r.given(n, 0)
		if len(inputs) == 0 {
			continue
		}
		if c, calls := callers[n.GetOp()]; calls {
			if err := s.call(r, n, c); err != nil {
				return err
			}
			continue
		}
		if _, hands := handOn[n.GetOp()]; hands {
			if s.narrow == 0 {
				n.Attr["T"] = attrType(inputs[0])
				delete(n.Attr, "_output_shapes")
			}
			continue
		}
		if takes := least[n.GetOp()]; len(n.GetInput()) < takes {
			return bridge.Errorf(bridge.InvalidArgument, "Freeze", "%s (%s)%s has %d inputs, wanted %d", n.GetName(), n.GetOp(), r.where, len(n.GetInput()), takes)
		}
		use := s.use
		if s.narrow != 0 {
			use = s.convert
		}
		if err := use(r, n, inputs[0]); err != nil {
			return err
		}
	}
	for _, n := range r.nodes {
		for i, input := range n.GetInput() {
			if to := r.renamed[input]; to != "" {
				n.Input[i] = to
			}
		}
	}
	return nil
}

// spread finds which tensors are values: what hands a variable on hands its value on.
func (s *settling) spread(r *room) error {
	for known := -1; known < len(r.values); {
		known = len(r.values)
		for _, n := range r.nodes {
			if len(n.GetInput()) == 0 {
				continue
			}
			if outputs, hands := handOn[n.GetOp()]; hands {
				if dt, is := r.value(n.GetInput()[0]); is {
					for i := range outputs {
						r.values[r.tensor(n.GetName(), i)] = dt
					}
				}
				continue
			}
			c, calls := callers[n.GetOp()]
			if !calls {
				continue
			}
			given := r.given(n, c.skip)
			if len(given) == 0 {
				continue
			}
			if c.results == "" { // a loop gives a variable as it took it
				for i, dt := range given {
					r.values[r.tensor(n.GetName(), i)] = dt
				}
				continue
			}
			if !slices.Contains(n.GetAttr()[c.results].GetList().GetType(), types.DataType_DT_RESOURCE) {
				continue
			}
			for _, f := range called(n, c) {
				made, err := s.function(f.GetName(), given)
				if err != nil {
					return err
				}
				for i, dt := range made.outputs {
					r.values[r.tensor(n.GetName(), i)] = dt
				}
			}
		}
	}
	return nil
}

// call has a node call functions that take values.
func (s *settling) call(r *room, n *nodedef.NodeDef, c caller) error {
	given := r.given(n, c.skip)
	if s.narrow != 0 {
		for _, f := range called(n, c) {
			made, err := s.function(f.GetName(), given)
			if err != nil {
				return err
			}
			f.Name = made.name
		}
		return nil
	}
	arguments := n.GetAttr()[c.types].GetList()
	for i, dt := range given {
		if i >= len(arguments.GetType()) {
			return bridge.Errorf(bridge.InvalidArgument, "Freeze", "%s (%s)%s has more inputs than its types tell", n.GetName(), n.GetOp(), r.where)
		}
		arguments.Type[i] = types.DataType(dt)
	}
	if c.results == "" {
		for i := range given {
			if shapes := n.GetAttr()["output_shapes"].GetList().GetShape(); i < len(shapes) {
				shapes[i] = shapeProto(nil)
			}
		}
	}
	for k, f := range called(n, c) {
		made, err := s.function(f.GetName(), given)
		if err != nil {
			return err
		}
		f.Name = made.name
		loop := c.results == "" && k == 1 // the body of a loop; the condition gives a truth
		for i, dt := range given {
			if loop && made.outputs[i] != dt {
				return bridge.Errorf(bridge.FailedPrecondition, "Freeze", "the loop %s%s does not keep the variable that it is given as argument %d: what changes can't be a constant", n.GetName(), r.where, i)
			}
		}
		if c.results != "" {
			results := n.GetAttr()[c.results].GetList().GetType()
			for i, dt := range made.outputs {
				if i >= len(results) {
					return bridge.Errorf(bridge.InvalidArgument, "Freeze", "%s (%s)%s has %d outputs, and function %q gives more", n.GetName(), n.GetOp(), r.where, len(results), made.name)
				}
				results[i] = types.DataType(dt)
			}
		}
	}
	for _, stale := range []string{"_output_shapes", "_read_only_resource_inputs"} {
		delete(n.Attr, stale)
	}
	return nil
}

// function makes a function that is given values in these places.
func (s *settling) function(name string, given map[int]tf.DataType) (settled, error) {
	var key strings.Builder
	key.WriteString(name)
	for _, i := range slices.Sorted(maps.Keys(given)) {
		fmt.Fprintf(&key, ",%d:%d", i, given[i])
	}
	if made, known := s.made[key.String()]; known {
		return made, nil
	}
	old := s.library[name]
	switch {
	case old == nil:
		return settled{}, bridge.Errorf(bridge.NotFound, "Freeze", "the graph has no function %q", name)
	case s.busy[name]:
		return settled{}, bridge.Errorf(bridge.Unimplemented, "Freeze", "function %q calls itself with a variable", name)
	}
	s.busy[name] = true
	defer delete(s.busy, name)
	f := proto.CloneOf(old)
	r := &room{where: fmt.Sprintf(" in function %q", name), nodes: slices.Clone(f.GetNodeDef()), body: true, values: map[string]tf.DataType{}}
	taken := map[string]bool{}
	for _, n := range f.GetNodeDef() {
		taken[n.GetName()] = true
	}
	r.add = func(name, op string, attrs map[string]*attrvalue.AttrValue, inputs ...string) string {
		free := name
		for i := 1; taken[free]; i++ {
			free = name + "_" + strconv.Itoa(i)
		}
		taken[free] = true
		f.NodeDef = append(f.NodeDef, &nodedef.NodeDef{Name: free, Op: op, Attr: attrs, Input: inputs})
		return free
	}
	arguments := f.GetSignature().GetInputArg()
	for i, dt := range given {
		if i >= len(arguments) {
			return settled{}, bridge.Errorf(bridge.InvalidArgument, "Freeze", "function %q takes %d arguments and is given more", name, len(arguments))
		}
		r.values[arguments[i].GetName()] = dt
		arguments[i].HandleData = nil
		if s.narrow == 0 {
			arguments[i].Type = types.DataType(dt)
			delete(f.GetArgAttr()[uint32(i)].GetAttr(), "_output_shapes")
			delete(f.GetAttr(), "_input_shapes")
		}
	}
	if err := s.room(r); err != nil {
		return settled{}, err
	}
	made := settled{outputs: map[int]tf.DataType{}}
	for i, result := range f.GetSignature().GetOutputArg() {
		from := f.GetRet()[result.GetName()]
		if to := r.renamed[from]; to != "" {
			f.Ret[result.GetName()] = to
		}
		if dt, is := r.value(from); is {
			made.outputs[i] = dt
			result.HandleData = nil
			if s.narrow == 0 {
				result.Type = types.DataType(dt)
			}
		}
	}
	ending := "_of_values"
	if s.narrow != 0 {
		ending = "_of_" + bridge.DTypeName(s.narrow)
	}
	made.name = name + ending
	for i := 1; s.library[made.name] != nil; i++ {
		made.name = name + ending + "_" + strconv.Itoa(i)
	}
	f.Signature.Name = made.name
	s.library[made.name] = f
	s.def.Library.Function = append(s.def.Library.Function, f)
	s.made[key.String()] = made
	return made, nil
}

// use has a node that took a variable take its value.
func (s *settling) use(r *room, n *nodedef.NodeDef, dt tf.DataType) error {
	old, kind := n.GetAttr(), n.GetOp()
	constant := func(name string, t *bridge.Tensor, err error) (string, error) {
		if err != nil {
			return "", err
		}
		defer t.Close()
		value, err := tensorProto(t)
		if err != nil {
			return "", err
		}
		name = n.GetName() + "/" + name
		if !r.body {
			name = s.free(name)
		}
		return r.add(name, "Const", constantAttrs(value)), nil
	}
	tensor := func(node string) string { return r.tensor(node, 0) }
	switch kind {
	case "ReadVariableOp":
		n.Op, n.Attr = "Identity", map[string]*attrvalue.AttrValue{"T": attrType(dt)}
		r.renamed[n.GetName()+":value:0"] = n.GetName() + ":output:0"
	case "VariableShape":
		n.Op, n.Attr = "Shape", map[string]*attrvalue.AttrValue{"T": attrType(dt), "out_type": old["out_type"]}
	case "ResourceGatherNd":
		n.Op, n.Attr = "GatherNd", map[string]*attrvalue.AttrValue{"Tparams": attrType(dt), "Tindices": old["Tindices"]}
	case "ResourceGather":
		axis, err := bridge.Scalar(int32(old["batch_dims"].GetI()))
		name, err := constant("axis", axis, err)
		if err != nil {
			return err
		}
		n.Op, n.Input = "GatherV2", slices.Insert(n.Input, 2, tensor(name))
		n.Attr = map[string]*attrvalue.AttrValue{"Tparams": attrType(dt), "Tindices": old["Tindices"], "Taxis": attrType(tf.Int32), "batch_dims": old["batch_dims"]}
	case "VarIsInitializedOp":
		yes, err := bridge.Scalar(true)
		name, err := constant("yes", yes, err)
		if err != nil {
			return err
		}
		n.Op, n.Attr = "Identity", map[string]*attrvalue.AttrValue{"T": attrType(tf.Bool)}
		n.Input[0] = tensor(name)
		r.renamed[n.GetName()+":is_initialized:0"] = n.GetName() + ":output:0"
	default:
		if strings.HasPrefix(kind, "Assign") || strings.HasPrefix(kind, "Resource") {
			return bridge.Errorf(bridge.FailedPrecondition, "Freeze", "the outputs update a variable, by %s (%s)%s: what changes can't be a constant", n.GetName(), kind, r.where)
		}
		return bridge.Errorf(bridge.FailedPrecondition, "Freeze", "%s (%s)%s takes a variable itself, and has no use for its value", n.GetName(), kind, r.where)
	}
	maps.DeleteFunc(n.Attr, func(_ string, value *attrvalue.AttrValue) bool { return value == nil })
	if outputShapes := old["_output_shapes"]; outputShapes != nil {
		n.Attr["_output_shapes"] = outputShapes
	}
	return nil
}

// convert has a node that reads or writes a variable of 16-bit numbers convert them.
func (s *settling) convert(r *room, n *nodedef.NodeDef, dt tf.DataType) error {
	name := n.GetName()
	cast := func(as string, from, to tf.DataType, input string) string {
		node := name + "/" + as
		if !r.body {
			node = s.free(node)
		}
		return r.add(node, "Cast", map[string]*attrvalue.AttrValue{
			"SrcT": attrType(from), "DstT": attrType(to), "Truncate": {Value: &attrvalue.AttrValue_B{}}}, input)
	}
	outputs := map[string]string{"ReadVariableOp": "value", "ResourceGather": "output", "ResourceGatherNd": "output"}
	switch kind := n.GetOp(); kind {
	case "ReadVariableOp", "ResourceGather", "ResourceGatherNd":
		n.Attr["dtype"] = attrType(dt)
		if r.body {
			from := name + ":" + outputs[kind] + ":0"
			r.renamed[from] = cast("float32", dt, tf.Float, from) + ":y:0"
			return nil
		}
		wide := cast("float32", dt, tf.Float, name)
		s.rewire(name, wide, wide)
		s.widened[name] = wide
	case "AssignVariableOp":
		n.Attr["dtype"] = attrType(dt)
		value := cast(bridge.DTypeName(dt), tf.Float, dt, n.GetInput()[1])
		if r.body {
			value += ":y:0"
		}
		n.Input[1] = value
	case "VarIsInitializedOp", "VariableShape":
	default:
		return bridge.Errorf(bridge.FailedPrecondition, "Save", "a variable can't be stored as %s: %s (%s)%s takes it, and only reads, gathers and assignments can convert", bridge.DTypeName(dt), name, kind, r.where)
	}
	return nil
}
