package optimizers

import (
	"errors"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Update is one variable's turn in a train op: what a [Rule] computes with,
// and where it says the new values.
//
// Its [ops.Formula] does elementwise arithmetic in the variable's dtype, and
// its Scope takes any other operation: raw.Erf(u.Scope, x).
//
// All tensors are from before the step, whatever else the step changes.
type Update struct {
	ops.Formula

	// Apply is the train op that this is part of.
	Apply *Apply
	// Variable is the variable itself.
	Variable *ops.Variable
	// Var is its value; in a sparse update the rows Indices of it.
	Var tf.Output
	// Grad is the gradient, of Var's shape. In a sparse update rows with the
	// same index have been summed.
	Grad tf.Output
	// Rate is the learning rate, a scalar; the zero Output for an optimizer
	// without one.
	Rate tf.Output
	// Indices are the rows being updated, each once, int32 or int64 [rows]; the
	// zero Output in a dense update.
	Indices tf.Output
	// Slices is a sparse gradient as it came, indices not unique; nil in a
	// dense update.
	Slices *gradients.IndexedSlices

	whole    tf.Output // in a sparse update: all of the variable, if not its Value
	draws    int
	updates  []func(s *ops.Scope) *tf.Operation
	stores   []*store // of updates
	inPlace  bool
	computed *operations
}

// store is a new value of a variable or slot, or of rows of one.
type store struct {
	of      *ops.Variable
	value   tf.Output
	rows    bool
	instead func(s *ops.Scope) *tf.Operation // of assigning the value
}

func newUpdate(a *Apply, grad Grad) *Update {
	v := grad.Variable
	scope := a.Scope.NameScope("update_" + v.Name())
	u := &Update{
		Formula: a.formula.In(scope).Of(v.DType()), Apply: a, Variable: v,
		Rate: a.rateOf(v.DType()), computed: &operations{},
	}
	if !grad.IsSparse() {
		u.Var, u.Grad = v.Value(), grad.Dense
		return u
	}
	u.Slices = grad.Slices
	if grad.Summed {
		u.Grad, u.Indices = grad.Slices.Values, grad.Slices.Indices
	} else {
		u.Grad, u.Indices = sumDuplicates(scope, grad.Slices)
	}
	u.Var = v.Gather(scope, u.Indices)
	return u
}

// sumDuplicates is a sparse gradient with each index once: the sums of the
// rows that have it, and the indices.
func sumDuplicates(s *ops.Scope, sl *gradients.IndexedSlices) (values, indices tf.Output) {
	indices, position := raw.Unique(s, sl.Indices)
	return raw.UnsortedSegmentSum(s, sl.Values, position, raw.Size(s, indices)), indices
}

// Step is the count of steps before this one, an int64 scalar.
func (u *Update) Step() tf.Output { return u.Apply.Step }

// Param is the value of a hyperparameter of the rule in this step, a scalar of
// the variable's dtype, computed once for all variables. The name says which
// one it is.
func (u *Update) Param(name string, h ops.Hyperparameter) tf.Output {
	return u.Apply.Param(name, h, u.Variable.DType())
}

// Once is a tensor that all variables of the same dtype share in a step.
func (u *Update) Once(name string, build func(f ops.Formula) tf.Output) tf.Output {
	return u.Apply.Once(name, u.Variable.DType(), build)
}

// OnceWide is Once for what 16 bits can't hold, such as 1 - 0.999^t: it is
// built in float32, for float64 variables in float64, and cast to their dtype.
func (u *Update) OnceWide(name string, build func(f ops.Formula) tf.Output) tf.Output {
	return u.Once(name, func(f ops.Formula) tf.Output {
		if f.DType == tf.Double {
			return build(f)
		}
		return f.Cast(build(f.Of(tf.Float)))
	})
}

// Noise is a tensor of Var's shape drawn from the standard normal
// distribution, anew in each step. It is the stateless draw (see [ops.Draw])
// named "<variable>/<optimizer>/noise" at the train op's Step; a second call
// for the same variable draws under that name and "_1", and so on. So training
// again, or on from a checkpoint, draws the same. In a sparse update only the
// rows that are updated get numbers, in the order of Indices.
func (u *Update) Noise() tf.Output {
	name := fmt.Sprintf("%s/%s/noise", u.Variable.Name(), u.Apply.optimizer.name())
	if u.draws > 0 {
		name = fmt.Sprintf("%s_%d", name, u.draws)
	}
	u.draws++
	draw := ops.Draw{Name: name, Step: u.Apply.Step}
	if shape := bridge.ShapeOf(u.Var); shape.FullyDefined() {
		return ops.StatelessNormal(u.Scope, shape, u.DType, draw)
	}
	return ops.StatelessNormal(u.Scope, raw.Shape(u.Scope, u.Var), u.DType, draw)
}

// Normal is noise of the given mean and standard deviation, see [Update.Noise].
func (u *Update) Normal(mean, stddev float64) tf.Output {
	if stddev == 0 {
		return u.Constant(mean)
	}
	noise := u.Noise()
	if stddev != 1 {
		noise = u.Mul(noise, u.Constant(stddev))
	}
	if mean != 0 {
		noise = u.Add(noise, u.Constant(mean))
	}
	return noise
}

// SlotVariable is the variable in which the optimizer remembers something of
// u.Variable under this name, of the same shape and dtype, made with init the
// first time.
func (u *Update) SlotVariable(name string, init ops.Initializer) *ops.Variable {
	return u.ShapedSlot(name, u.Variable.Shape(), init)
}

// ShapedSlot is a SlotVariable of another shape than the variable's, such as
// the sums over one of its dimensions. It is read by its Value and, of rules
// that look at whole variables only, set by SetSlot.
func (u *Update) ShapedSlot(name string, shape ops.Shape, init ops.Initializer) *ops.Variable {
	return u.Apply.optimizer.slot(u.Variable, name, shape, init)
}

// Slot is the value of a [Update.SlotVariable]; in a sparse update the rows
// Indices of it.
func (u *Update) Slot(name string, init ops.Initializer) tf.Output {
	v := u.SlotVariable(name, init)
	if u.Indices.Op != nil {
		return v.Gather(u.Scope, u.Indices)
	}
	return v.Value()
}

// SetSlot gives a slot that Slot, SlotVariable or ShapedSlot made its new
// value: in a sparse update the rows Indices of it, else all of it.
func (u *Update) SetSlot(name string, value tf.Output) {
	v, ok := u.Apply.optimizer.Slot(u.Variable, name)
	if !ok {
		u.Scope.Fail(fmt.Errorf("SetSlot(%q): %q has no such slot; make it with Slot first", name, u.Variable.Name()))
		return
	}
	u.store(v, value)
}

// Assign gives the variable its new value, of u.Var's shape.
func (u *Update) Assign(value tf.Output) { u.store(u.Variable, value) }

func (u *Update) store(v *ops.Variable, value tf.Output) {
	if value.Op == nil {
		if u.Scope.Err() == nil {
			u.Scope.Fail(fmt.Errorf("the new value of %q is no tensor", v.Name()))
		}
		return
	}
	new := &store{of: v, value: value, rows: u.Indices.Op != nil}
	u.stores = append(u.stores, new)
	u.updates = append(u.updates, func(s *ops.Scope) *tf.Operation {
		if new.instead != nil {
			return new.instead(s)
		}
		if new.rows {
			return v.Scatter(s, ops.ScatterUpdate, u.Indices, new.value)
		}
		if bridge.ShapeOf(new.value).FullyDefined() {
			return v.Assign(s, new.value)
		}
		return s.Add(bridge.OpSpec{Type: "AssignVariableOp", Inputs: []tf.Input{v.Handle(), new.value},
			Attrs: []bridge.Attr{{Name: "validate_shape", Value: true}}})
	})
}

// Do adds an update that is an operation of its own, such as
// ResourceApplyAdam on u.Variable.Handle(). f is called when all rules have
// been asked; whatever it adds in s waits until all values of the step have
// been computed. The inputs are the tensors that f's operations will use and
// that are not the fields of u, slots or Params: they too are then from before
// the step.
func (u *Update) Do(f func(s *ops.Scope) *tf.Operation, inputs ...tf.Output) {
	if f == nil {
		u.Scope.Fail(errors.New("Do: the function is nil"))
		return
	}
	u.computed.addOutputs(inputs...)
	u.inPlace = true
	u.updates = append(u.updates, f)
}

// Whole is a sparse update as a dense one, with zeros in the rows that have no
// gradient, for rules that move all rows anyway. Its updates count when the
// rule hands it to Include.
func (u *Update) Whole() *Update {
	w := u.Nested(u.Apply)
	if u.Slices == nil {
		return w
	}
	if w.Var = u.whole; w.Var.Op == nil {
		w.Var = u.Variable.Value()
	}
	rows := ops.Number(u.Scope, tf.Int64, float64(u.Variable.Shape()[0]))
	w.Grad = raw.UnsortedSegmentSum(u.Scope, u.Slices.Values, u.Slices.Indices, rows)
	w.Indices, w.Slices = tf.Output{}, nil
	return w
}

// Nested is an Update for the rule that a wrapper wraps. What that rule gives
// is not done until the wrapper has taken it over with Include, or adds it
// with Emit.
func (u *Update) Nested(a *Apply, before ...*tf.Operation) *Update {
	c := *u
	c.Scope = u.Scope.WithControl(before...)
	c.Apply, c.updates, c.stores, c.inPlace, c.computed = a, nil, nil, false, &operations{}
	c.Rate = a.rateOf(u.DType)
	return &c
}

// Include makes the updates of a nested Update those of u.
func (u *Update) Include(nested *Update) {
	u.updates = append(u.updates, nested.updates...)
	u.stores = append(u.stores, nested.stores...)
	u.inPlace = u.inPlace || nested.inPlace
	u.Wait(nested.Apply.computed.list...)
	u.Wait(nested.computed.list...)
}

// InPlace says whether a rule has called Do, so that the variable may be
// changed where it stands, without regard to Var.
func (u *Update) InPlace() bool { return u.inPlace }

// Wait lists operations that run before any variable changes.
func (u *Update) Wait(before ...*tf.Operation) { u.computed.add(before...) }

// Computed are the operations that compute the new values so far. Large new
// values of formulas are compiled here, so it is asked once a rule is done.
func (u *Update) Computed() []*tf.Operation {
	u.seal(false)
	all := operations{}
	all.add(u.Apply.computed.list...)
	all.add(u.computed.list...)
	return all.list
}

// seal takes over the new values of stores, compiled where that is worth it; in
// place where nothing else changes the variable in the same step.
func (u *Update) seal(inPlace bool) {
	u.compile(inPlace)
	for _, each := range u.stores {
		if each.instead == nil {
			u.computed.addOutputs(each.value)
		}
	}
	u.stores = nil
}

// Emit adds the updates, which wait for before, and returns them. Only the
// wrapper of a nested Update calls it, in its own Do.
func (u *Update) Emit(before ...*tf.Operation) []*tf.Operation {
	u.seal(false)
	s := u.Scope.WithControl(before...)
	all := make([]*tf.Operation, 0, len(u.updates))
	for _, update := range u.updates {
		op := update(s)
		if op == nil {
			if u.Scope.Err() == nil {
				u.Scope.Fail(fmt.Errorf("the update of %q is no operation", u.Variable.Name()))
			}
			return nil
		}
		all = append(all, op)
	}
	return all
}
