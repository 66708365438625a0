package ops

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// Variable is a resource variable: a tensor that lives in a session, is given
// its first value by the graph's Init, and is changed by assignments and train
// ops. It is Python's ResourceVariable, with the same nodes: net/w is the
// handle, net/w/Assign sets the initial value, net/w/Read/ReadVariableOp reads.
type Variable struct {
	scope       *Scope // where it was made, without control dependencies
	name        string
	shape       Shape
	dtype       tf.DataType
	trainable   bool
	handle      tf.Output
	value       tf.Output
	initial     tf.Output
	initializer *tf.Operation
	madeAt      string
	existing    bool // taken in with the value that it has
}

// VariableOptions are the settings of a new variable.
type VariableOptions struct {
	// DType is the dtype; zero means float32 (tf.Float).
	DType tf.DataType
	// NonTrainable keeps the variable out of TRAINABLE_VARIABLES, Python's
	// trainable=False. It can still be trained by naming it.
	NonTrainable bool
	// Collections are the collections it joins instead of GLOBAL_VARIABLES. A
	// trainable one joins TRAINABLE_VARIABLES as well.
	Collections []string
}

// ScatterKind is what [Variable.Scatter] does with rows: the name of the
// TensorFlow operation.
type ScatterKind string

// The scatter operations. With duplicate indices all are applied, one after
// another; of ScatterUpdate the last wins, on a GPU any.
const (
	ScatterUpdate ScatterKind = "ResourceScatterUpdate"
	ScatterAdd    ScatterKind = "ResourceScatterAdd"
	ScatterSub    ScatterKind = "ResourceScatterSub"
	ScatterMul    ScatterKind = "ResourceScatterMul"
	ScatterDiv    ScatterKind = "ResourceScatterDiv"
	ScatterMin    ScatterKind = "ResourceScatterMin"
	ScatterMax    ScatterKind = "ResourceScatterMax"
)

var scatterKinds = []ScatterKind{ScatterUpdate, ScatterAdd, ScatterSub, ScatterMul, ScatterDiv, ScatterMin, ScatterMax}

// Variable makes a variable called name in s, of a fully defined shape, with
// the initial value that init gives ([GlorotUniform], [Zeros] …). It joins
// GLOBAL_VARIABLES, and TRAINABLE_VARIABLES unless the options say otherwise.
// It is Python's tf.compat.v1.get_variable without reuse: a second variable of
// the same name is an error, [Graph.VariableByName] finds the first.
//
// After an error, which sticks to the graph, the result is a variable whose
// outputs are zero; it is never nil.
func (s *Scope) Variable(name string, shape Shape, init Initializer, options ...VariableOptions) *Variable {
	v := &Variable{shape: slices.Clone(shape), dtype: tf.Float, trainable: true}
	if !s.ok() {
		return v
	}
	v.scope, v.name = s.WithoutControl(), join(s.path, name)
	if err := v.make(init, options); err != nil {
		s.fail(fmt.Sprintf("Variable %q", v.name), err)
		v.handle, v.value, v.initial, v.initializer = tf.Output{}, tf.Output{}, tf.Output{}, nil
	}
	return v
}

func (v *Variable) make(init Initializer, options []VariableOptions) error {
	g := v.scope.graph
	collections := []string{GlobalVariables}
	if len(options) > 1 {
		return fmt.Errorf("%d VariableOptions given, wanted at most one", len(options))
	}
	for _, o := range options {
		v.dtype, v.trainable = cmp.Or(o.DType, tf.Float), !o.NonTrainable
		if o.Collections != nil {
			collections = slices.Clone(o.Collections)
		}
	}
	if v.trainable && !slices.Contains(collections, TrainableVariables) {
		collections = append(collections, TrainableVariables)
	}
	switch {
	case g.body != nil:
		return errors.New("a variable can't be made in the body of an If, a Case or a While; make it before, and use it there")
	case init == nil:
		return errors.New("the initializer is nil; wanted one such as ops.Zeros() or ops.GlorotUniform()")
	case !v.shape.FullyDefined():
		return fmt.Errorf("shape %v is not fully defined; a variable needs its rank and every dimension", v.shape)
	case v.dtype == bridge.Resource || v.dtype == bridge.Variant || bridge.DTypeSize(v.dtype) == 0 && v.dtype != tf.String:
		return fmt.Errorf("a variable can't be of dtype %s", bridge.DTypeName(v.dtype))
	}
	if _, known := v.shape.NumElements(); !known {
		return fmt.Errorf("shape %v has more elements than memory can hold", v.shape)
	}
	if err := v.claim(); err != nil {
		return err
	}
	if err := v.build(init); err != nil {
		g.mu.Lock()
		delete(g.byName, v.name)
		g.mu.Unlock()
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.variables = append(g.variables, v)
	g.byHandle[bridge.Key(v.handle)] = v
	for _, key := range collections {
		g.collections[key] = append(g.collections[key], v)
	}
	return nil
}

// claim takes the variable's name, which is never changed to make it unique.
func (v *Variable) claim() error {
	g := v.scope.graph
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	if err := errors.Join(checkPath(v.name), g.names.checkOpen(v.name)); err != nil {
		return err
	}
	if old := g.byName[v.name]; old != nil {
		return bridge.Errorf(bridge.AlreadyExists, "", "there is one already, %s %v, made at %s; g.VariableByName(%q) finds it",
			bridge.DTypeName(old.dtype), old.shape, old.madeAt, v.name)
	}
	if node := bridge.OperationByName(g.tf, v.name); node != nil {
		return bridge.Errorf(bridge.AlreadyExists, "", "a node of that name exists already, of type %s", node.Type())
	}
	file, line := caller()
	v.madeAt = fmt.Sprintf("%s:%d", file, line)
	g.names.sync()
	g.names.reserve(v.name)
	g.byName[v.name] = v
	return nil
}

// build adds the variable's nodes, under the names that Python gives them.
func (v *Variable) build(init Initializer) error {
	g := v.scope.graph
	here := v.scope.with(func(c *Scope) { c.path = v.name })
	inits := v.scope.with(func(c *Scope) { c.path = v.name + "/Initializer" })
	initial := init(inits, v.name, slices.Clone(v.shape), v.dtype)
	if err := g.Err(); err != nil {
		return err
	}
	if !bridge.Valid(initial) {
		return errors.New("the initializer gave no tensor")
	}
	if err := v.checkValue(initial); err != nil {
		return fmt.Errorf("initial value: %w", err)
	}
	initial, err := withInitialValues(inits, initial)
	if err != nil {
		return err
	}
	v.initial = initial
	v.handle = first(v.scope.Add(bridge.OpSpec{Type: "VarHandleOp", Name: v.name + "/", Attrs: []bridge.Attr{
		{Name: "dtype", Value: v.dtype}, {Name: "shape", Value: v.shape},
		{Name: "shared_name", Value: v.name}, {Name: "container", Value: ""}}}))
	v.initializer = here.Add(bridge.OpSpec{Type: "AssignVariableOp", Name: "Assign", Inputs: []tf.Input{v.handle, initial}})
	v.value = v.Read(here.with(func(c *Scope) { c.path += "/Read" }))
	return g.Err()
}

// checkValue says why value can't be assigned to the variable.
func (v *Variable) checkValue(value tf.Output) error {
	if dt := value.DataType(); dt != v.dtype {
		return fmt.Errorf("wanted dtype %s, got %s", bridge.DTypeName(v.dtype), bridge.DTypeName(dt))
	}
	if shape := bridge.ShapeOf(value); !shape.CompatibleWith(v.shape) {
		return fmt.Errorf("wanted shape %v, got %v", v.shape, shape)
	}
	return nil
}

// Name is the full name, "net/w", which is also its name in checkpoints.
func (v *Variable) Name() string {
	if v == nil {
		return ""
	}
	return v.name
}

// Shape is the static shape.
func (v *Variable) Shape() Shape {
	if v == nil {
		return nil
	}
	return slices.Clone(v.shape)
}

// DType is the dtype.
func (v *Variable) DType() tf.DataType {
	if v == nil {
		return 0
	}
	return v.dtype
}

// Trainable reports whether the variable was made to be trained.
func (v *Variable) Trainable() bool { return v != nil && v.trainable }

// Graph is the graph the variable is in, nil for none.
func (v *Variable) Graph() *Graph {
	if v == nil {
		return nil
	}
	return v.scope.Graph()
}

// Scope is the scope the variable was made in, without control dependencies:
// the place for slots and whatever else belongs to it.
func (v *Variable) Scope() *Scope {
	if v == nil {
		return nil
	}
	return v.scope
}

// Handle is the resource handle that reading and assigning operations take.
func (v *Variable) Handle() tf.Output {
	if v == nil {
		return tf.Output{}
	}
	return v.handle
}

// Value is the variable as a tensor: one read that all who call this share.
// Within a run it is read once, and a train op made by optimizers changes the
// variable only after that. For the value after an update, use Read.
func (v *Variable) Value() tf.Output {
	if v == nil {
		return tf.Output{}
	}
	return v.value
}

// InitialValue is the tensor that Initializer assigns. It does not depend on
// variables, not even where the value given for it does: their reads are
// replaced by their initial values (Python's initialized_value).
func (v *Variable) InitialValue() tf.Output {
	if v == nil {
		return tf.Output{}
	}
	return v.initial
}

// Initializer is the operation that gives this variable alone its initial
// value. [Graph.Init] runs all of them.
func (v *Variable) Initializer() *tf.Operation {
	if v == nil {
		return nil
	}
	return v.initializer
}

// String is "net/w float32 [64,10]".
func (v *Variable) String() string {
	if v == nil {
		return "<nil variable>"
	}
	return fmt.Sprintf("%s %s %v", v.name, bridge.DTypeName(v.dtype), v.shape)
}

// in is the scope to add an operation on v at: s, or the variable's own for a
// nil s. It says false, and why to the graph, where that can't work.
func (v *Variable) in(s *Scope, what string) (*Scope, bool) {
	if v == nil {
		s.fail(what, errors.New("the variable is nil"))
		return s, false
	}
	if !s.ok() {
		s = v.scope
	}
	if !s.ok() {
		return s, false
	}
	if g := v.Graph(); g != nil && g != s.graph && !s.graph.isInside(g) {
		s.fail(what, fmt.Errorf("variable %s belongs to another graph", v.name))
		return s, false
	}
	return s, true
}

// Read is a read of its own, at s: after s's control dependencies have run.
func (v *Variable) Read(s *Scope) tf.Output {
	s, ok := v.in(s, "Variable.Read")
	if !ok {
		return tf.Output{}
	}
	return first(s.Add(bridge.OpSpec{Type: "ReadVariableOp", Inputs: []tf.Input{v.handle},
		Attrs: []bridge.Attr{{Name: "dtype", Value: v.dtype}}}))
}

// Gather is the rows of the variable at indices (int32 or int64 [n…]):
// [n…, rest…], Python's tf.gather. Its gradient is sparse: IndexedSlices, so
// that a train op touches only these rows.
func (v *Variable) Gather(s *Scope, indices tf.Output) tf.Output {
	s, ok := v.in(s, "Variable.Gather")
	if !ok {
		return tf.Output{}
	}
	return first(s.Add(bridge.OpSpec{Type: "ResourceGather", Name: "Gather", Inputs: []tf.Input{v.handle, indices},
		Attrs: []bridge.Attr{{Name: "dtype", Value: v.dtype}}}))
}

// IsInitialized is a bool scalar: whether the variable has a value.
func (v *Variable) IsInitialized(s *Scope) tf.Output {
	s, ok := v.in(s, "Variable.IsInitialized")
	if !ok {
		return tf.Output{}
	}
	return first(s.Add(bridge.OpSpec{Type: "VarIsInitializedOp", Inputs: []tf.Input{v.handle}}))
}

// Assign is an operation that sets the variable to value.
func (v *Variable) Assign(s *Scope, value tf.Output) *tf.Operation {
	return v.assign(s, "AssignVariableOp", value)
}

// AssignAdd is an operation that adds value to the variable.
func (v *Variable) AssignAdd(s *Scope, value tf.Output) *tf.Operation {
	return v.assign(s, "AssignAddVariableOp", value)
}

// AssignSub is an operation that subtracts value from the variable.
func (v *Variable) AssignSub(s *Scope, value tf.Output) *tf.Operation {
	return v.assign(s, "AssignSubVariableOp", value)
}

func (v *Variable) assign(s *Scope, opType string, value tf.Output) *tf.Operation {
	s, ok := v.in(s, opType)
	if !ok {
		return nil
	}
	if bridge.Valid(value) { // else Add says what is wrong with it
		if err := v.checkValue(value); err != nil {
			s.fail(opType, fmt.Errorf("value for variable %s: %w", v.name, err))
			return nil
		}
	}
	return s.Add(bridge.OpSpec{Type: opType, Inputs: []tf.Input{v.handle, value}})
}

// Scatter is an operation that combines the variable's rows at indices (int32
// or int64 [n…]) with updates ([n…, rest…], or a scalar).
func (v *Variable) Scatter(s *Scope, kind ScatterKind, indices, updates tf.Output) *tf.Operation {
	s, ok := v.in(s, string(kind))
	if !ok {
		return nil
	}
	if !slices.Contains(scatterKinds, kind) {
		s.fail("Variable.Scatter", fmt.Errorf("%q is not a kind of scatter; wanted one of %q", kind, scatterKinds))
		return nil
	}
	return s.Add(bridge.OpSpec{Type: string(kind), Inputs: []tf.Input{v.handle, indices, updates}})
}

// Init is the operation that gives every variable its initial value; run it
// once in a new session. It is Python's global_variables_initializer, but for
// all variables, whatever collection they are in. Variables whose initial
// value is made from others get it from the others' initial values, so the
// order does not matter. When variables have been added since, the next Init is
// another operation, which covers them too; [Graph.InitOf] sets only the new. Those of
// [Graph.ExistingVariable] keep what they have.
func (g *Graph) Init() *tf.Operation {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	vars := slices.Clone(g.variables)
	init := g.inits[len(vars)]
	g.mu.Unlock()
	if init != nil {
		return init
	}
	init = g.InitOf(slices.DeleteFunc(slices.Clone(vars), (*Variable).Existing)...)
	if init == nil {
		return nil // Err says why
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inits[len(vars)] = init
	return init
}

// InitOf is an operation that gives the variables their initial values and
// leaves all others alone.
func (g *Graph) InitOf(variables ...*Variable) *tf.Operation {
	if g == nil {
		return nil
	}
	assigns := make([]*tf.Operation, 0, len(variables))
	for i, v := range variables {
		switch {
		case v == nil:
			g.fail("InitOf", fmt.Errorf("variable %d of %d is nil", i, len(variables)))
			return nil
		case v.Graph() != g:
			g.fail("InitOf", fmt.Errorf("variable %s belongs to another graph", v.name))
			return nil
		case v.initializer == nil:
			g.fail("InitOf", fmt.Errorf("variable %s was not built", v.name))
			return nil
		}
		assigns = append(assigns, v.initializer)
	}
	return g.rootScope.WithoutControl().Group("init", assigns...)
}

// Variables are all variables of the graph, in the order they were made.
func (g *Graph) Variables() []*Variable {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.variables)
}

// VariableByName finds a variable by its full name, "net/w". The error, with
// the code NotFound, lists the names nearest to it.
func (g *Graph) VariableByName(name string) (*Variable, error) {
	if g == nil {
		return nil, errors.New("the graph is nil")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	names := make([]string, 0, len(g.variables))
	for _, v := range g.variables {
		if v.name == name {
			return v, nil
		}
		names = append(names, v.name)
	}
	return nil, bridge.Errorf(bridge.NotFound, "VariableByName", "no variable %q; %s", name, nearest(name, names))
}

// nearest is "have a, b, c": the names most like the wanted one.
func nearest(wanted string, names []string) string {
	const most = 5
	if len(names) == 0 {
		return "there is none"
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(distance(wanted, a), distance(wanted, b))
	})
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("have %s and %d more", strings.Join(names[:most], ", "), n)
	}
	return "have " + strings.Join(names, ", ")
}

// distance is the Levenshtein distance of two names, case ignored.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := diagonal
			if a[i] != b[j] {
				next = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

// withInitialValues is value with every read of a variable of the graph that
// it depends on replaced by that variable's initial value, in copies of the
// operations between. Control dependencies of the copied are dropped, as in
// Python. A value that depends on no variable is returned as it is.
func withInitialValues(s *Scope, value tf.Output) (tf.Output, error) {
	return (&initialValues{scope: s, done: map[bridge.OutputKey]*tf.Operation{}}).output(value)
}

type initialValues struct {
	scope *Scope
	done  map[bridge.OutputKey]*tf.Operation // by operation; nil while in work
}

func (c *initialValues) output(out tf.Output) (tf.Output, error) {
	if v := c.reads(out.Op); v != nil {
		return c.initialRead(out.Op, v)
	}
	replaced, err := c.operation(out.Op)
	if err != nil {
		return tf.Output{}, err
	}
	return replaced.Output(out.Index), nil
}

// reads is the variable whose handle is an input of o, nil for none.
func (c *initialValues) reads(o *tf.Operation) *Variable {
	g := c.scope.graph
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, in := range bridge.Inputs(o) {
		if v := g.byHandle[bridge.Key(in)]; v != nil {
			return v
		}
	}
	return nil
}

// initialRead is what o, which reads v, gives when v has its initial value.
func (c *initialValues) initialRead(o *tf.Operation, v *Variable) (tf.Output, error) {
	switch o.Type() {
	case "ReadVariableOp":
		return v.initial, nil
	case "ResourceGather":
		indices, err := c.output(bridge.Input(o, 1))
		if err != nil {
			return tf.Output{}, err
		}
		batch, err := bridge.RawAttr(o, "batch_dims")
		if err != nil {
			return tf.Output{}, err
		}
		return c.added(bridge.OpSpec{Type: "GatherV2", Inputs: []tf.Input{v.initial, indices, Const(c.scope, Shape{}, []int32{0})},
			Attrs: []bridge.Attr{{Name: "batch_dims", Value: batch}}})
	}
	return tf.Output{}, fmt.Errorf("the initial value depends on variable %s through %s (%s), which has no answer before the variable has a value", v.name, o.Name(), o.Type())
}

func (c *initialValues) added(spec bridge.OpSpec) (tf.Output, error) {
	o := c.scope.Add(spec)
	if o == nil {
		return tf.Output{}, c.scope.Err()
	}
	return o.Output(0), nil
}

// operation is o, or a copy of it where something it depends on was replaced.
func (c *initialValues) operation(o *tf.Operation) (*tf.Operation, error) {
	key := bridge.OpKey(o)
	if done, known := c.done[key]; known {
		if done == nil {
			return nil, fmt.Errorf("the initial value depends on itself, in a loop through %s", o.Name())
		}
		return done, nil
	}
	c.done[key] = nil
	inputs := bridge.Inputs(o)
	changed := false
	for i, in := range inputs {
		replaced, err := c.output(in)
		if err != nil {
			return nil, err
		}
		changed = changed || !bridge.SameOutput(in, replaced)
		inputs[i] = replaced
	}
	if !changed {
		c.done[key] = o
		return o, nil
	}
	spec := bridge.OpSpec{Type: o.Type(), Name: o.Name()[strings.LastIndexByte(o.Name(), '/')+1:]}
	var err error
	if spec.Attrs, err = bridge.Attrs(o); err != nil {
		return nil, err
	}
	if spec.Inputs, err = arrange(o, inputs); err != nil {
		return nil, err
	}
	copied := c.scope.Add(spec)
	if copied == nil {
		return nil, c.scope.Err()
	}
	c.done[key] = copied
	return copied, nil
}

// arrange groups a flat list of inputs as o's definition takes them.
func arrange(o *tf.Operation, flat []tf.Output) ([]tf.Input, error) {
	def, known := bridge.OpDef(o.Type())
	if !known {
		return nil, fmt.Errorf("%s calls function %s, which can't be copied", o.Name(), o.Type())
	}
	inputs := make([]tf.Input, 0, len(def.InputArg))
	for _, arg := range def.InputArg {
		n, err := bridge.InputListLength(o, arg.Name)
		if err != nil {
			return nil, err
		}
		if n > len(flat) {
			return nil, fmt.Errorf("%s has fewer inputs than its definition", o.Name())
		}
		if arg.NumberAttr != "" || arg.TypeListAttr != "" {
			inputs = append(inputs, tf.OutputList(slices.Clone(flat[:n])))
		} else {
			inputs = append(inputs, flat[0])
		}
		flat = flat[n:]
	}
	return inputs, nil
}
