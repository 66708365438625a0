package optimizers

import (
	"fmt"
	"maps"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// Apply is a train op under construction, as a rule sees it before and after
// the variables: what they all share.
type Apply struct {
	// Scope is where the train op's nodes are added, named like it.
	Scope *ops.Scope
	// Step is the count of steps before this one, an int64 scalar.
	Step tf.Output
	// Variables are the variables being trained.
	Variables []*ops.Variable

	optimizer *Optimizer // keeps the slots
	rate      ops.Hyperparameter
	formula   ops.Formula      // for its constants, which all share
	updates   func() tf.Output // nil: Step
	shared    map[sharedKey]tf.Output
	kept      map[any]any
	computed  *operations
	advance   *tf.Output // by how much the step goes on, 1 or 0; the zero Output: 1

	compileFrom int64 // elements of variables whose formulas are compiled; negative: none
}

type sharedKey struct {
	name  string
	dtype tf.DataType
}

func newApply(scope *ops.Scope, optimizer *Optimizer, rate ops.Hyperparameter, step tf.Output, vars []*ops.Variable) *Apply {
	return &Apply{
		Scope: scope, Step: step, Variables: vars,
		optimizer: optimizer, rate: rate, formula: ops.NewFormula(scope, tf.Float),
		shared: map[sharedKey]tf.Output{}, kept: map[any]any{}, computed: &operations{},
		advance: new(tf.Output),
	}
}

// Once is a tensor that all variables of a dtype share, made the first time
// that it is asked for under this name.
func (a *Apply) Once(name string, dt tf.DataType, build func(f ops.Formula) tf.Output) tf.Output {
	key := sharedKey{name, dt}
	if t, ok := a.shared[key]; ok {
		return t
	}
	t := build(a.formula.In(a.Scope).Of(dt))
	a.shared[key] = t
	a.computed.addOutputs(t)
	return t
}

// Param is the value of a hyperparameter in this step, a scalar of dtype dt,
// computed once for all variables of that dtype. The name says which one it
// is, in the graph and in errors.
func (a *Apply) Param(name string, h ops.Hyperparameter, dt tf.DataType) tf.Output {
	return a.Once(name, dt, func(f ops.Formula) tf.Output {
		if h == nil {
			a.Scope.Fail(missingHyperparameter(name))
			return tf.Output{}
		}
		return h.At(a.Scope.NameScope(name), a.Step, dt)
	})
}

// rateOf is the learning rate, the zero Output for an optimizer without one.
func (a *Apply) rateOf(dt tf.DataType) tf.Output {
	if a.rate == nil {
		return tf.Output{}
	}
	return a.Param("learning_rate", a.rate, dt)
}

// Updates is the count of updates that the variables have had before this one,
// an int64 scalar: Step, unless a wrapper such as [Gated] leaves some out. Bias
// corrections are made with it.
func (a *Apply) Updates() tf.Output {
	if a.updates == nil {
		return a.Step
	}
	return a.updates()
}

// State is a variable that the optimizer remembers something in that belongs
// to none of the trained variables, made with init the first time that it is
// asked for. owner tells wrappers of one kind around each other apart; a rule
// passes nil. Who changes it does that in an operation of Finish.
func (a *Apply) State(owner any, name string, dt tf.DataType, shape ops.Shape, init ops.Initializer) *ops.Variable {
	return a.optimizer.stateOf(stateKey{a.Scope.Graph(), owner, name}, a.Scope, dt, shape, init)
}

// Keep is a value of the rule's own for this train op, made the first time
// that it is asked for under this key, which should be of a type of the rule's
// package.
func (a *Apply) Keep(key any, build func() any) any {
	if v, ok := a.kept[key]; ok {
		return v
	}
	v := build()
	a.kept[key] = v
	return v
}

// Nested is an Apply for the rule that a wrapper wraps: all that this rule
// adds waits for before as well, and nothing it shares is seen outside.
func (a *Apply) Nested(before ...*tf.Operation) *Apply {
	c := a.after(before...)
	c.shared, c.kept, c.computed = map[sharedKey]tf.Output{}, map[any]any{}, &operations{}
	return c
}

// after is a with nodes that wait for before.
func (a *Apply) after(before ...*tf.Operation) *Apply {
	c := *a
	c.Scope = a.Scope.WithControl(before...)
	return &c
}

// checkHyperparameters says which of a rule's settings is missing, or what is
// wrong with a schedule.
func checkHyperparameters(all settings) error {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] == nil {
			return missingHyperparameter(name)
		}
		if err := checkHyperparameter(name, all[name]); err != nil {
			return err
		}
	}
	return nil
}

// checkHyperparameter asks a hyperparameter that can tell whether it is all
// right, as the schedules can.
func checkHyperparameter(name string, h ops.Hyperparameter) error {
	if c, ok := h.(interface{ Check() error }); ok {
		if err := c.Check(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func missingHyperparameter(name string) error {
	return fmt.Errorf("the hyperparameter %s is nil; set it to optimizers.Value(x), a schedule or ops.Fed(tensor)", name)
}

// operations is a set of operations in the order they were added.
type operations struct {
	list []*tf.Operation
	seen map[string]bool
}

func (s *operations) add(all ...*tf.Operation) {
	for _, o := range all {
		if o == nil || o.Type() == "Const" || o.Type() == "Placeholder" {
			continue // there is nothing to wait for
		}
		key := o.Name()
		if s.seen[key] {
			continue
		}
		if s.seen == nil {
			s.seen = map[string]bool{}
		}
		s.seen[key] = true
		s.list = append(s.list, o)
	}
}

func (s *operations) addOutputs(outs ...tf.Output) {
	for _, out := range outs {
		if out.Op != nil {
			s.add(out.Op)
		}
	}
}
