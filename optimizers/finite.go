package optimizers

import (
	"errors"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// NonFinite is what a step does with a gradient that is NaN or infinite.
type NonFinite int

const (
	// Propagate lets it into the variables, as Python does.
	Propagate NonFinite = iota
	// Fail makes the run an error, before anything has changed.
	Fail
	// Skip leaves the step out: variables, slots and the count of steps stay
	// as they are.
	Skip
)

// Finite is rule, which sees only gradients that are finite: where an element
// of any of them is not, the step fails or is left out, as policy says.
func Finite(rule Rule, policy NonFinite) *Optimizer {
	switch policy {
	case Skip:
		return around(rule, &skipping{wrapper: wrapper{rule}})
	case Fail:
		return around(rule, &failing{wrapper: wrapper{rule}})
	}
	return around(rule, &propagating{wrapper: wrapper{rule}, policy: policy})
}

// allFinite is whether all elements of all gradients are, a bool scalar.
func allFinite(s *ops.Scope, all []*Update) tf.Output {
	each := make([]tf.Output, len(all))
	for i, u := range all {
		f := ops.NewFormula(s, u.DType)
		finite := f.IsFinite(u.Grad)
		each[i] = raw.All(s, finite, allAxes(s, finite))
	}
	return raw.All(s, raw.Pack(s, each), ops.Number(s, tf.Int32, 0))
}

// skipping leaves out steps with a gradient that is not finite.
type skipping struct{ wrapper }

func (k *skipping) holds() string { return "skipping of gradients that are not finite" }

func (k *skipping) Check([]*ops.Variable) error { return aroundScaled(k.holds(), k.inner) }

func (k *skipping) Together(a *Apply, all []*Update) {
	s := a.Scope.NameScope("finite")
	here := newGate(a, s, allFinite(s, all))
	a.Keep(k, func() any { return here })
	here.run(k.inner, all, nil)
}

func (k *skipping) Finish(a *Apply) []*tf.Operation {
	here, made := a.Keep(k, func() any { return nil }).(*gate)
	if !made {
		return nil
	}
	return here.finish(k.inner, a, true, nil)
}

// failing makes an error of a gradient that is not finite.
type failing struct{ wrapper }

func (k *failing) Check([]*ops.Variable) error {
	return aroundScaled("an error for gradients that are not finite", k.inner)
}

func (k *failing) Together(a *Apply, all []*Update) {
	s := a.Scope.NameScope("finite")
	nested := k.nest(a, all)
	for _, u := range all {
		f := ops.NewFormula(s, u.DType)
		finite := f.IsFinite(u.Grad)
		what := s.Const(fmt.Sprintf("the gradient of %q is not finite in a step that should fail then", u.Variable.Name()))
		checked := raw.Assert(s, raw.All(s, finite, allAxes(s, finite)), []tf.Output{what})
		if checked == nil {
			return
		}
		u.Wait(checked)
	}
	a.Run(k.inner, nested)
	include(all, nested)
}

// propagating does nothing about it.
type propagating struct {
	wrapper
	policy NonFinite
}

func (p *propagating) Check([]*ops.Variable) error {
	if p.policy != Propagate {
		return errors.New("the policy for gradients that are not finite is none of Propagate, Fail and Skip")
	}
	return nil
}
