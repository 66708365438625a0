package optimizers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

var (
	errNoFormula = errors.New("the formula is nil")
	errNoRule    = errors.New("the optimizer has no rule; make it with a constructor such as NewAdam, or set Rule")
)

// Optimizer trains variables by a [Rule]. It also keeps what the rule
// remembers between steps: slots, one per variable and purpose, and the count
// of steps. Minimize may be called several times, for one loss or several;
// slots and the count are shared by the train ops, and a variable that a later
// call adds gets slots of its own then.
//
// An Optimizer must not be copied. It is safe for several goroutines, as far
// as its rule is.
type Optimizer struct {
	Rule

	// Rate is the learning rate. Nil: that of the wrapped optimizer, or none
	// for rules that need none.
	Rate ops.Hyperparameter

	// Step counts the updates, int64, and is what schedules see: 0 during the
	// first one. Nil: a variable "<name>/iteration" made at the first
	// ApplyGradients, one for all train ops of the optimizer. A variable of
	// your own, such as Graph.GlobalStep, is advanced in the same way.
	Step *ops.Variable

	// Label is the name of train ops and slots; the rule's name when empty.
	Label string

	// CompileFrom is the number of elements of a variable from which XLA compiles
	// what a rule's formula does to it: one loop instead of one for each
	// operation, in float32 and float64. It takes a fraction of a second for each
	// formula and shape, at the first step, and rounds in other places. 0: from
	// 2^18 elements; negative: never.
	CompileFrom int64

	mu    sync.Mutex
	slots map[slotKey]*ops.Variable
	state map[stateKey]*ops.Variable
}

type slotKey struct {
	of    *ops.Variable
	owner any // a wrapper that has it for itself; nil: the optimizer
	name  string
}

type stateKey struct {
	graph *ops.Graph
	owner any // a wrapper that has it for itself; nil: the optimizer
	name  string
}

// TrainOp is one step of training as an operation: what a run targets.
//
// A fetch of a variable's Value in the same run sees it as it was before the
// step; for a variable with a sparse gradient that holds if the loss uses that
// Value.
type TrainOp struct {
	// Op runs the step. It is named like the optimizer: Adam, Adam_1.
	Op *tf.Operation
	// Iteration counts the steps, int64.
	Iteration *ops.Variable
	// Rate is the learning rate of the step, a scalar of the first variable's
	// dtype that can be fetched; the zero Output for a rule without one.
	Rate tf.Output
	// Variables are the variables that the step trains.
	Variables []*ops.Variable
}

// Value is a hyperparameter that never changes, [ops.Fixed].
func Value(v float64) ops.Hyperparameter { return ops.Fixed(v) }

// Minimize adds everything that a step of training needs: the gradients of the
// loss by the variables ([ComputeGradients]) and their updates
// ([Optimizer.ApplyGradients]). It is Python's Optimizer.minimize, and beyond
// it runs the graph's update operations that belong to the variables
// ([UpdateOps]) before the first variable changes.
//
// vars are trained whether trainable or not; a variable that is not among them
// is not touched by the step, nor are its slots.
//
// What ComputeGradients and ApplyGradients would refuse is an error before
// anything is added.
func (o *Optimizer) Minimize(loss tf.Output, vars []*ops.Variable, opts ...GradientOptions) (*TrainOp, error) {
	if err := o.check(vars); err != nil {
		return nil, err
	}
	if scaling, ok := inside[*lossScale](o); ok {
		var err error
		if loss, err = scaling.scale(o.base(), vars[0].Graph(), loss); err != nil {
			return nil, err
		}
	}
	grads, err := ComputeGradients(loss, vars, opts...)
	if err != nil {
		return nil, err
	}
	trained, err := checkGrads(grads)
	if err != nil {
		return nil, err
	}
	return o.ApplyGradients(grads, UpdateOps(vars[0].Graph(), trained)...)
}

// ApplyGradients adds the updates of the variables by their gradients, which
// [ComputeGradients] made and the caller may have changed. Variables without a
// gradient are left out. before are operations that must have run before the
// first variable changes.
//
// Errors: no gradient at all, a variable listed twice, variables or gradients
// of different graphs, dtypes or shapes, a variable that is not floating, and
// what the rule itself refuses.
func (o *Optimizer) ApplyGradients(grads []Grad, before ...*tf.Operation) (*TrainOp, error) {
	vars, err := checkGrads(grads)
	if err == nil {
		err = o.check(vars)
	}
	if err == nil {
		err = checkOperations(vars[0].Graph(), before)
	}
	if err != nil {
		return nil, err
	}
	present := slices.DeleteFunc(slices.Clone(grads), func(g Grad) bool { return g.IsNone() })
	g := vars[0].Graph()
	var train *TrainOp
	err = g.Build(func() error {
		train = o.apply(g, present, vars, before)
		return nil
	})
	if err != nil && o.LearningRate() == nil && strings.Contains(err.Error(), "zero tf.Output") {
		return nil, fmt.Errorf("%s: %w (the optimizer has no Rate, so u.Rate is the zero tf.Output)", o.name(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.name(), err)
	}
	return train, nil
}

// apply adds the train op; errors stick to the graph.
func (o *Optimizer) apply(g *ops.Graph, grads []Grad, vars []*ops.Variable, before []*tf.Operation) *TrainOp {
	scope := g.Root().NameScope(o.name())
	step := o.iteration(g, scope)
	a := newApply(scope, o.base(), o.LearningRate(), step.Value(), vars)
	a.compileFrom = o.compileFrom()
	updates := make([]*Update, len(grads))
	for i, grad := range grads {
		updates[i] = newUpdate(a, grad)
	}
	a.Run(o.Rule, updates)
	if g.Err() != nil {
		return nil
	}
	for _, u := range updates {
		if len(u.updates) == 0 {
			scope.Fail(fmt.Errorf("the rule gave no new value for %q; call Assign, SetSlot or Do", u.Variable.Name()))
			return nil
		}
	}

	// Nothing changes before everything that a new value is made from has
	// been computed.
	var values operations
	values.add(before...)
	values.add(a.computed.list...)
	for i, grad := range grads {
		values.addOutputs(grad.outputs()...)
		updates[i].seal(true)
		values.add(updates[i].computed.list...)
		if !grad.IsSparse() {
			// A read of a sparsely updated variable copies the whole table.
			values.addOutputs(grad.Variable.Value())
		}
	}
	ready := scope.Group("ready", values.list...)
	var done operations
	for _, u := range updates {
		done.add(u.Emit(ready)...)
	}
	done.add(o.Rule.Finish(a.after(done.list...))...)
	if g.Err() != nil {
		return nil
	}
	count := step.AssignAdd(scope.WithControl(done.list...), a.advanced(scope))
	if count == nil {
		return nil
	}
	train := &TrainOp{
		Op:        g.Root().Group(scope.Path()+"/", count),
		Iteration: step,
		Rate:      a.rateOf(vars[0].DType()),
		Variables: vars,
	}
	g.AddToCollection(ops.TrainOp, train.Op)
	return train
}

// check is what can be said of the settings before anything is added.
// A rule that panics when it is asked is an error.
func (o *Optimizer) check(vars []*ops.Variable) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the rule %T panicked: %v", o.Rule, p)
		}
	}()
	if o == nil || o.Rule == nil {
		return errNoRule
	}
	if len(o.rules()) == deepest {
		return errors.New("the optimizer wraps itself, or is wrapped a hundred times")
	}
	if err := checkVariables(vars); err != nil {
		return err
	}
	if step := o.stepVariable(); step != nil {
		switch {
		case step.Graph() != vars[0].Graph():
			return fmt.Errorf("%s: Step %q is in another graph than the variables", o.name(), step.Name())
		case step.DType() != tf.Int64 || step.Shape().Rank() != 0:
			return fmt.Errorf("%s: Step is %v, wanted an int64 scalar", o.name(), step)
		}
	}
	if rate := o.LearningRate(); rate != nil {
		if err := checkHyperparameter("rate", rate); err != nil {
			return fmt.Errorf("%s: %w", o.name(), err)
		}
	}
	_ = o.name() // asked here, where a panic in it is caught
	for _, rule := range o.rules() {
		if rule == nil {
			return fmt.Errorf("%s: %w", o.name(), errNoRule)
		}
		if c, ok := rule.(Checker); ok {
			if err := c.Check(vars); err != nil {
				return fmt.Errorf("%s: %w", o.name(), err)
			}
		}
	}
	return nil
}

// Unwrap is the Rule.
func (o *Optimizer) Unwrap() Rule { return o.Rule }

// deepest is how many rules may be around each other; one that wraps itself has
// no end.
const deepest = 100

// rules are the rule, the one it wraps, and so on.
func (o *Optimizer) rules() []Rule {
	var rules []Rule
	for rule := o.Rule; len(rules) < deepest; {
		rules = append(rules, rule)
		w, ok := rule.(Wrapper)
		if !ok {
			break
		}
		rule = w.Unwrap()
	}
	return rules
}

// chain are the optimizers from o inwards: o, and those it wraps.
func (o *Optimizer) chain() []*Optimizer {
	chain := []*Optimizer{o}
	for _, rule := range o.rules() {
		if inner, ok := rule.(interface{ Self() *Optimizer }); ok {
			chain = append(chain, inner.Self())
		}
	}
	return chain
}

// Self is the optimizer itself, for types that embed one.
func (o *Optimizer) Self() *Optimizer { return o }

// base is the innermost optimizer, which keeps the slots and the count.
func (o *Optimizer) base() *Optimizer {
	chain := o.chain()
	return chain[len(chain)-1]
}

// LearningRate is the Rate, or that of the wrapped optimizer where it is nil.
func (o *Optimizer) LearningRate() ops.Hyperparameter {
	for _, each := range o.chain() {
		if each.Rate != nil {
			return each.Rate
		}
	}
	return nil
}

// compileFrom is the first CompileFrom that says something, from the outside in.
func (o *Optimizer) compileFrom() int64 {
	for _, each := range o.chain() {
		if each.CompileFrom != 0 {
			return each.CompileFrom
		}
	}
	return compiledFrom
}

// stepVariable is the variable given as Step, here or in a wrapped optimizer.
func (o *Optimizer) stepVariable() *ops.Variable {
	for _, each := range o.chain() {
		if each.Step != nil {
			return each.Step
		}
	}
	return nil
}

func (o *Optimizer) name() string {
	for _, each := range o.chain() {
		if each.Label != "" {
			return each.Label
		}
	}
	rules := o.rules()
	if last := rules[len(rules)-1]; last != nil {
		return last.Name()
	}
	return "optimizer"
}

// iteration is the count of steps in g.
func (o *Optimizer) iteration(g *ops.Graph, scope *ops.Scope) *ops.Variable {
	if own := o.stepVariable(); own != nil {
		return own
	}
	return o.base().stateOf(stateKey{graph: g, name: "iteration"}, scope, tf.Int64, ops.Shape{}, ops.Zeros())
}

// stateOf finds or makes a variable of the optimizer's own, not of one of the
// variables that it trains.
func (o *Optimizer) stateOf(key stateKey, scope *ops.Scope, dt tf.DataType, shape ops.Shape, init ops.Initializer) *ops.Variable {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v := o.state[key]; v != nil {
		return v
	}
	v := scope.WithoutControl().Variable(key.name, shape, init, ops.VariableOptions{DType: dt, NonTrainable: true})
	if o.state == nil {
		o.state = map[stateKey]*ops.Variable{}
	}
	o.state[key] = v
	return v
}

// slot finds or makes what the optimizer remembers of v under a name. The
// variable is called as in Python, v's name and the optimizer's: net/w/Adam,
// net/w/Adam_1 for the second one.
func (o *Optimizer) slot(v *ops.Variable, name string, shape ops.Shape, init ops.Initializer) *ops.Variable {
	return o.slotOf(slotKey{of: v, name: name}, o.name(), shape, init)
}

// slotOf is slot for a wrapper, which has a key and a label of its own.
func (o *Optimizer) slotOf(key slotKey, label string, shape ops.Shape, init ops.Initializer) *ops.Variable {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := key.of
	if s := o.slots[key]; s != nil {
		return s
	}
	dir := v.Graph().Root().Scope(v.Name())
	free := label
	for i := 1; ; i++ {
		if _, err := v.Graph().VariableByName(v.Name() + "/" + free); err != nil {
			break
		}
		free = fmt.Sprintf("%s_%d", label, i)
	}
	s := dir.Variable(free, shape, init, ops.VariableOptions{DType: v.DType(), NonTrainable: true})
	if o.slots == nil {
		o.slots = map[slotKey]*ops.Variable{}
	}
	o.slots[key] = s
	return s
}

// Slot is the variable that the optimizer remembers of v under a name, such as
// "momentum", and whether there is one.
func (o *Optimizer) Slot(v *ops.Variable, name string) (*ops.Variable, bool) {
	base := o.base()
	base.mu.Lock()
	defer base.mu.Unlock()
	if s, ok := base.slots[slotKey{of: v, name: name}]; ok {
		return s, true
	}
	for _, member := range base.members() {
		if s, ok := member.Slot(v, name); ok {
			return s, true
		}
	}
	return nil, false
}

// members are the optimizers of groups.
func (o *Optimizer) members() []*Optimizer {
	if groups, ok := o.Rule.(*grouped); ok {
		return groups.members
	}
	return nil
}

// State lists the variables that the optimizer itself has made in g, sorted by
// name: slots, the count of steps, and what else its rules count. A training that is to be resumed exactly
// saves them beside the trained variables.
func (o *Optimizer) State(g *ops.Graph) []*ops.Variable {
	base := o.base()
	base.mu.Lock()
	defer base.mu.Unlock()
	var state []*ops.Variable
	for _, s := range base.slots {
		if s.Graph() == g {
			state = append(state, s)
		}
	}
	for key, v := range base.state {
		if key.graph == g {
			state = append(state, v)
		}
	}
	for _, member := range base.members() {
		state = append(state, member.State(g)...)
	}
	slices.SortFunc(state, func(a, b *ops.Variable) int { return strings.Compare(a.Name(), b.Name()) })
	return state
}
