package optimizers

import (
	"errors"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// Lookahead is rule with a slow copy of the weights (Zhang et al.,
// arXiv:1907.08610): after every k updates the copy moves by the part alpha of
// the way to where the rule has got, and the rule goes on from there,
//
//	slow := slow + alpha·(w - slow)
//	w := slow
//
// The paper has k = 5 and alpha = 0.5. The slow copy of a variable, its slot
// "slow", is what the variable was before its first update. Steps that a rule
// inside leaves out do not count.
func Lookahead(rule Rule, k int64, alpha float64) *Optimizer {
	return around(rule, &lookahead{wrapper: wrapper{rule}, k: k, alpha: alpha, updates: byVariables{name: "lookahead_updates"}})
}

type lookahead struct {
	wrapper
	k       int64
	alpha   float64
	updates byVariables
}

func (l *lookahead) Check([]*ops.Variable) error {
	if l.k <= 0 {
		return fmt.Errorf("Lookahead: k is %d, wanted above 0", l.k)
	}
	if !(l.alpha > 0 && l.alpha <= 1) {
		return fmt.Errorf("Lookahead: alpha is %v, wanted a number above 0, up to 1", l.alpha)
	}
	if _, twice := inside[*lookahead](l.inner); twice {
		return errors.New("Lookahead around Lookahead: both would set the variable back; one is enough")
	}
	return nil
}

func (l *lookahead) slow(a *Apply, v *ops.Variable) *ops.Variable {
	return a.optimizer.slotOf(slotKey{of: v, name: "slow"}, "Lookahead", v.Shape(), initialValue(v))
}

func (l *lookahead) Together(a *Apply, all []*Update) {
	nested := l.nest(a, all)
	a.Run(l.inner, nested)
	counts, vars := l.updates.of(a)
	firsts := make([]tf.Output, len(counts))
	f := ops.NewFormula(a.Scope, tf.Int64)
	for i, count := range counts {
		firsts[i] = f.Equal(count.Value(), f.Constant(0))
		for _, v := range vars[count] {
			l.slow(a, v)
		}
	}
	var begun *tf.Operation // the slow copies have been made
	begin := func(s *ops.Scope) *tf.Operation {
		if begun != nil || s.Err() != nil {
			return begun
		}
		var made []*tf.Operation
		for i, count := range counts {
			made = append(made, when(s, firsts[i], func(s *ops.Scope) (copies []*tf.Operation) {
				for _, v := range vars[count] {
					copies = append(copies, l.slow(a, v).Assign(s, v.Read(s)))
				}
				return copies
			}))
		}
		if s.Err() == nil {
			begun = s.Group("slow", made...)
		}
		return begun
	}
	for i, u := range all {
		u.Wait(nested[i].Computed()...)
		u.Do(func(s *ops.Scope) *tf.Operation {
			first := begin(s)
			if first == nil {
				return nil
			}
			return u.Scope.Group("fast", nested[i].Emit(first)...)
		}, firsts...)
	}
}

func (l *lookahead) Finish(a *Apply) []*tf.Operation {
	return a.whenMoved(l.inner.Finish(a), func(s *ops.Scope) (done []*tf.Operation) {
		counts, vars := l.updates.of(a)
		for _, count := range counts {
			n := ops.NewFormula(s, tf.Int64)
			counted := count.AssignAdd(s, n.Constant(1))
			if counted == nil {
				return nil
			}
			s := s.WithControl(counted)
			n = n.In(s)
			due := n.Equal(n.FloorMod(count.Read(s), ops.Const(s, ops.Shape{}, []int64{l.k})), n.Constant(0))
			done = append(done, when(s, due, func(s *ops.Scope) (synced []*tf.Operation) {
				for _, v := range vars[count] {
					f, slow := ops.NewFormula(s, v.DType()), l.slow(a, v)
					old := slow.Read(s)
					next := f.Add(old, f.Mul(f.Sub(v.Read(s), old), f.Constant(l.alpha)))
					synced = append(synced, slow.Assign(s, next), v.Assign(s, next))
				}
				return synced
			}))
		}
		return done
	})
}
