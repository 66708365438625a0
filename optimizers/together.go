package optimizers

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Together is implemented by rules that look at all variables of a step before
// any of them is updated, as wrappers do. The optimizer calls it in the place of
// Prepare, Dense and Sparse, and Finish afterwards.
type Together interface {
	Rule
	// Together updates all variables. A wrapper hands nested updates to
	// [Apply.Run], and takes them over with [Update.Include] or Emit.
	Together(a *Apply, all []*Update)
}

// Run asks a rule for the updates of all variables: by its Together if it has
// that, else by Prepare and then Dense or Sparse for each.
func (a *Apply) Run(rule Rule, all []*Update) {
	if t := togetherOf(rule); t != nil {
		t.Together(a, all)
		return
	}
	rule.Prepare(a)
	for _, u := range all {
		if a.Scope.Err() != nil {
			return
		}
		if u.sparse() {
			rule.Sparse(u)
		} else {
			rule.Dense(u)
		}
	}
}

// togetherOf is a rule, or the one inside of an optimizer, that wants to see all
// variables; nil if there is none.
func togetherOf(rule Rule) Together {
	for range deepest {
		if t, ok := rule.(Together); ok {
			return t
		}
		o, ok := rule.(interface{ Self() *Optimizer })
		if !ok || o.Self() == nil {
			return nil
		}
		rule = o.Self().Rule
	}
	return nil
}

func (u *Update) sparse() bool { return u.Indices.Op != nil }

// gradient is u's gradient, each index once.
func (u *Update) gradient() Grad {
	if !u.sparse() {
		return Grad{Variable: u.Variable, Gradient: gradients.Gradient{Dense: u.Grad}}
	}
	return Grad{Variable: u.Variable, Summed: true, Gradient: gradients.Gradient{Slices: &gradients.IndexedSlices{
		Values: u.Grad, Indices: u.Indices, DenseShape: u.Slices.DenseShape}}}
}

// setGrad gives u another gradient, of the same shape.
func (u *Update) setGrad(values tf.Output) {
	u.Grad = values
	if u.sparse() {
		u.Slices = &gradients.IndexedSlices{Values: values, Indices: u.Indices, DenseShape: u.Slices.DenseShape}
	}
}

// wrapper is what the wrappers of this package have in common: without methods
// of their own they are the rule inside.
type wrapper struct{ inner Rule }

func (w wrapper) Name() string     { return w.inner.Name() }
func (w wrapper) Unwrap() Rule     { return w.inner }
func (w wrapper) Prepare(a *Apply) {}

func (w wrapper) Dense(u *Update) {
	u.Scope.Fail(errors.New("a wrapper of this package sees all variables together: call Apply.Run in the place of its Dense and Sparse"))
}
func (w wrapper) Sparse(u *Update) { w.Dense(u) }

func (w wrapper) Together(a *Apply, all []*Update) { a.Run(w.inner, all) }
func (w wrapper) Finish(a *Apply) []*tf.Operation  { return w.inner.Finish(a) }
func (w wrapper) nest(a *Apply, all []*Update) []*Update {
	nested := make([]*Update, len(all))
	for i, u := range all {
		nested[i] = u.Nested(a)
	}
	return nested
}

// include takes over what nested updates say.
func include(all, nested []*Update) {
	for i, u := range all {
		u.Include(nested[i])
	}
}

// around is an optimizer with a wrapper as its rule. Around nothing it has no
// rule, as its first use says.
func around(inner Rule, with Rule) *Optimizer {
	if missing(inner) {
		return &Optimizer{}
	}
	return &Optimizer{Rule: with}
}

func missing(rule Rule) bool {
	v := reflect.ValueOf(rule)
	return rule == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// holder is implemented by wrappers that let whole steps be left out, the count
// of steps included: it says what they are.
type holder interface{ holds() string }

// within are the rules in a rule, itself first, those of groups included.
func within(rule Rule) []Rule {
	var all []Rule
	seen := map[*grouped]bool{}
	for queue := []Rule{rule}; len(queue) > 0; queue = queue[1:] {
		all = append(all, (&Optimizer{Rule: queue[0]}).rules()...)
		if groups, ok := all[len(all)-1].(*grouped); ok && !seen[groups] {
			seen[groups] = true
			for _, member := range groups.members {
				queue = append(queue, member)
			}
		}
	}
	return all
}

// inside is what is in the first rule of type T in a rule, and whether there is one.
func inside[T any](rule Rule) (found T, ok bool) {
	for _, each := range within(rule) {
		if found, ok = each.(T); ok {
			return found, true
		}
	}
	return found, false
}

// misplaced says that one wrapper makes no sense around another.
func misplaced(outer, inner, why string) error {
	return fmt.Errorf("%s around %s %s; wrap them the other way round", outer, inner, why)
}

// aroundHolder is an error for a wrapper around one that leaves steps out.
func aroundHolder(what string, inner Rule, why string) error {
	if h, ok := inside[holder](inner); ok {
		return misplaced(what, h.holds(), why)
	}
	return nil
}

// aroundScaled is an error for what changes gradients around a loss scaling.
func aroundScaled(what string, inner Rule) error {
	if scaled, ok := inside[*lossScale](inner); ok {
		return misplaced(what, scaled.holds(), "would work on gradients that are scaled")
	}
	return nil
}

// checkScopes says which of the paths no variable of the graph has.
func checkScopes(what string, scopes []string, vars []*ops.Variable) error {
	for _, scope := range scopes {
		if len(Where(vars[0].Graph().Variables(), func(v *ops.Variable) bool { return ops.InScope(v.Name(), scope) })) == 0 {
			names := make([]string, len(vars))
			for i, v := range vars {
				names[i] = v.Name()
			}
			return fmt.Errorf("%s: no variable is in the scope %q; those to train are %s", what, scope, strings.Join(names, ", "))
		}
	}
	return nil
}

// when runs what body adds, in a run in which condition, a bool scalar, holds.
// The result runs in any case, after it.
//
// Everything in body has a control dependency on a node that a Switch leaves
// dead where the condition does not hold; dead operations don't run. This is how
// v1's tf.cond works.
func when(s *ops.Scope, condition tf.Output, body func(s *ops.Scope) []*tf.Operation) *tf.Operation {
	g := newBranch(s, condition)
	all := body(s.WithControl(g.pivot.Op))
	if s.Err() != nil {
		return nil
	}
	return g.merge(s, all...)
}

// branch is a condition: pivot is alive where it holds, closed where it does not.
type branch struct{ pivot, closed tf.Output }

func newBranch(s *ops.Scope, condition tf.Output) branch {
	closed, opened := raw.Switch(s, condition, condition)
	return branch{pivot: raw.Identity(s, opened), closed: raw.Identity(s, closed)}
}

// merge is an operation that runs after all, and also where they are dead.
func (b branch) merge(s *ops.Scope, all ...*tf.Operation) *tf.Operation {
	if s.Err() != nil {
		return nil
	}
	done := raw.Identity(s.WithControl(all...), b.pivot)
	merged, _ := raw.Merge(s, []tf.Output{b.closed, done})
	return merged.Op
}

// choose is a tensor of one value where the condition holds and of another where
// it does not; each need only be alive where it counts.
func (b branch) choose(s *ops.Scope, holds, not tf.Output) tf.Output {
	if s.Err() != nil {
		return tf.Output{}
	}
	here := raw.Identity(s.WithControl(b.pivot.Op), holds)
	there := raw.Identity(s.WithControl(b.closed.Op), not)
	chosen, _ := raw.Merge(s, []tf.Output{there, here})
	return chosen
}

// gate is a rule that is asked only in steps in which a condition holds.
type gate struct {
	branch
	apply   *Apply // for the rule behind the gate
	updates []*Update
	done    *tf.Operation
}

func newGate(a *Apply, s *ops.Scope, open tf.Output) *gate {
	g := &gate{branch: newBranch(s, open)}
	if s.Err() == nil {
		g.apply = a.Nested(g.pivot.Op)
		g.apply.advance = new(tf.Output)
	}
	return g
}

// run asks the rule behind the gate. change, if there is one, is told each
// nested update before.
func (g *gate) run(inner Rule, all []*Update, change func(i int, nested *Update)) {
	if g.apply == nil {
		return
	}
	for i, u := range all {
		nested := u.Nested(g.apply, g.pivot.Op)
		if change != nil {
			change(i, nested)
		}
		g.updates = append(g.updates, nested)
	}
	g.apply.Run(inner, g.updates)
	for _, u := range all {
		u.Do(func(s *ops.Scope) *tf.Operation { return g.emit(u.Apply.Scope, s) })
	}
}

// emit adds the updates of all variables, at the first call.
func (g *gate) emit(s, ready *ops.Scope) *tf.Operation {
	if g.done != nil || s.Err() != nil {
		return g.done
	}
	var values operations
	for _, u := range g.updates {
		values.add(u.Computed()...)
	}
	computed := ready.Group("gate", append(values.list, g.pivot.Op)...)
	var all []*tf.Operation
	for _, u := range g.updates {
		all = append(all, u.Emit(computed)...)
	}
	g.done = g.merge(s, all...)
	return g.done
}

// finish is the rule's Finish behind the gate. more, if there is one, adds to it
// what runs behind the gate as well; advance is by how much the count of steps
// goes on there. holds says that it stands still where the gate is closed.
func (g *gate) finish(inner Rule, a *Apply, holds bool, more func(last *Apply, advance tf.Output) []*tf.Operation) []*tf.Operation {
	if g.apply == nil {
		return nil
	}
	last := *g.apply
	last.Scope = a.Scope.WithControl(g.pivot.Op)
	all := inner.Finish(&last)
	advance := last.advanced(last.Scope)
	if more != nil {
		all = append(all, more(&last, advance)...)
	}
	if holds {
		*a.advance = g.choose(a.Scope, advance, ops.Number(a.Scope, tf.Int64, 0))
	} else if last.advance.Op != nil {
		*a.advance = g.choose(a.Scope, advance, ops.Number(a.Scope, tf.Int64, 1))
	}
	if len(all) == 0 || a.Scope.Err() != nil {
		return nil
	}
	return []*tf.Operation{g.merge(a.Scope, all...)}
}

// advanced is by how much the count of steps goes on, 1 or 0, as an int64
// scalar, when the rules inside have finished.
func (a *Apply) advanced(s *ops.Scope) tf.Output {
	if a.advance.Op == nil {
		return ops.Number(s, tf.Int64, 1)
	}
	return *a.advance
}

// whenMoved adds what body does to a Finish, after what the rule inside has
// done there, in steps that are not left out by it.
func (a *Apply) whenMoved(before []*tf.Operation, body func(s *ops.Scope) []*tf.Operation) []*tf.Operation {
	s := a.Scope.WithControl(before...)
	if a.advance.Op == nil {
		return append(before, body(s)...)
	}
	moved := ops.NewFormula(s, tf.Int64)
	return append(before, when(s, moved.Greater(*a.advance, moved.Constant(0)), body))
}

// byVariables is a count of steps for each set of variables that was first
// trained at the same time, so that who comes later starts from the beginning.
type byVariables struct {
	name   string
	counts map[*ops.Variable]*ops.Variable
}

// of are the counts of the variables being trained, and for each its variables.
func (b *byVariables) of(a *Apply) (counts []*ops.Variable, vars map[*ops.Variable][]*ops.Variable) {
	var fresh *ops.Variable
	vars = map[*ops.Variable][]*ops.Variable{}
	for _, v := range a.Variables {
		count := b.counts[v]
		if count == nil {
			if fresh == nil {
				fresh = a.newCount(b, len(b.counts), b.name)
			}
			if b.counts == nil {
				b.counts = map[*ops.Variable]*ops.Variable{}
			}
			count, b.counts[v] = fresh, fresh
		}
		if vars[count] == nil {
			counts = append(counts, count)
		}
		vars[count] = append(vars[count], v)
	}
	return counts, vars
}

// newCount is an int64 scalar that is kept for an owner and an index.
func (a *Apply) newCount(owner any, index int, name string) *ops.Variable {
	type indexed struct {
		owner any
		index int
	}
	free := name
	for i := 1; ; i++ {
		if _, err := a.Scope.Graph().VariableByName(a.Scope.Path() + "/" + free); err != nil {
			break
		}
		free = fmt.Sprintf("%s_%d", name, i)
	}
	return a.State(indexed{owner, index}, free, tf.Int64, ops.Shape{}, ops.Zeros())
}

// initialValue starts a slot at what its variable starts at.
func initialValue(v *ops.Variable) ops.Initializer {
	return func(s *ops.Scope, name string, shape ops.Shape, dt tf.DataType) tf.Output {
		if v.InitialValue().Op == nil {
			return ops.Zeros()(s, name, shape, dt)
		}
		return v.InitialValue()
	}
}
