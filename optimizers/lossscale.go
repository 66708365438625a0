package optimizers

import (
	"errors"
	"fmt"
	"sync"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

// LossScale trains in half precision without losing small gradients: the loss is
// multiplied by a scale before gradients are taken, and they are divided by it
// afterwards. A step with a gradient that is not finite is left out altogether,
// the count of steps included, and halves the scale; after Growth steps in a row
// without one, it doubles. It is Keras' LossScaleOptimizer.
//
// Minimize scales the loss itself, also that of an optimizer around this one.
// Whoever takes the gradients by ComputeGradients gives it ScaleLoss.
type LossScale struct {
	Optimizer
	Initial float64 // scale at the start, above 0; default 2^15
	Growth  int64   // steps in a row that double it, above 0; default 2000
}

// LossScaled is rule with a [LossScale] around it.
func LossScaled(rule Rule) *LossScale {
	l := &LossScale{Initial: 1 << 15, Growth: 2000}
	if !missing(rule) {
		l.Rule = &lossScale{wrapper: wrapper{rule}, of: l, scales: map[*ops.Graph]*ops.Variable{}}
	}
	return l
}

type lossScale struct {
	wrapper
	of     *LossScale
	mu     sync.Mutex
	scales map[*ops.Graph]*ops.Variable
}

func (l *lossScale) holds() string { return "loss scaling" }

// Scale is the variable that holds the scale in a graph, a float32 scalar, made
// the first time that it is asked for.
func (l *LossScale) Scale(g *ops.Graph) (*ops.Variable, error) {
	rule, ok := l.Rule.(*lossScale)
	if !ok {
		return nil, errNoRule
	}
	return rule.scaleIn(l.base(), g)
}

// ScaleLoss is a loss in g, a tensor of a floating dtype, times the scale.
func (l *LossScale) ScaleLoss(g *ops.Graph, loss tf.Output) (tf.Output, error) {
	rule, ok := l.Rule.(*lossScale)
	if !ok {
		return tf.Output{}, errNoRule
	}
	return rule.scale(l.base(), g, loss)
}

// scaleIn finds or makes the scale's variable.
func (l *lossScale) scaleIn(base *Optimizer, g *ops.Graph) (*ops.Variable, error) {
	if err := l.Check(nil); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.scales[g]; v != nil {
		return v, nil
	}
	err := g.Build(func() error {
		s := g.Root().NameScope("loss_scale_optimizer")
		v := base.stateOf(stateKey{g, l, "dynamic_scale"}, s, tf.Float, ops.Shape{}, ops.Value(l.of.Initial))
		base.stateOf(stateKey{g, l, "step_counter"}, s, tf.Int64, ops.Shape{}, ops.Zeros())
		l.scales[g] = v
		return nil
	})
	if err != nil {
		delete(l.scales, g)
		return nil, err
	}
	return l.scales[g], nil
}

// scale is the loss times the scale.
func (l *lossScale) scale(base *Optimizer, g *ops.Graph, loss tf.Output) (tf.Output, error) {
	switch {
	case !bridge.Valid(loss):
		return loss, errors.New("loss scaling: the loss is not a tensor (a zero Output)")
	case !bridge.IsFloating(loss.DataType()):
		return loss, fmt.Errorf("loss scaling: the loss %s is %s, wanted a floating dtype", outputName(loss), bridge.DTypeName(loss.DataType()))
	case bridge.GraphOf(loss.Op) != g.TF():
		return loss, fmt.Errorf("loss scaling: the loss %s is in another graph", outputName(loss))
	}
	v, err := l.scaleIn(base, g)
	if err != nil {
		return loss, err
	}
	var scaled tf.Output
	err = g.Build(func() error {
		f := ops.NewFormula(g.Root().NameScope("scaled_loss"), loss.DataType())
		scaled = f.Mul(loss, f.Cast(v.Value()))
		return nil
	})
	return scaled, err
}

func (l *lossScale) Check([]*ops.Variable) error {
	if err := above(0, "loss scaling: the initial scale", l.of.Initial); err != nil {
		return err
	}
	if l.of.Growth <= 0 {
		return fmt.Errorf("loss scaling: Growth is %d, wanted above 0", l.of.Growth)
	}
	if _, twice := inside[*lossScale](l.inner); twice {
		return errors.New("loss scaling around loss scaling: one is enough")
	}
	return nil
}

func (l *lossScale) Together(a *Apply, all []*Update) {
	s := a.Scope.NameScope("loss_scale")
	v, err := l.scaleIn(a.optimizer, a.Scope.Graph())
	if err != nil {
		s.Fail(err)
		return
	}
	unscaled := make([]tf.Output, len(all))
	for i, u := range all {
		f := ops.NewFormula(s, tf.Float)
		if u.DType == tf.Double {
			f = f.Of(tf.Double)
		}
		unscaled[i] = f.Of(u.DType).Cast(f.Div(f.Cast(u.Grad), f.Cast(v.Value())))
	}
	here := &scaling{gate: newGate(a, s, allFinite(s, all)), scale: v}
	a.Keep(l, func() any { return here })
	here.run(l.inner, all, func(i int, nested *Update) { nested.setGrad(unscaled[i]) })
}

type scaling struct {
	*gate
	scale *ops.Variable
}

func (l *lossScale) Finish(a *Apply) []*tf.Operation {
	here, made := a.Keep(l, func() any { return nil }).(*scaling)
	if !made {
		return nil
	}
	all := here.finish(l.inner, a, true, nil)
	if a.Scope.Err() != nil {
		return nil
	}
	s := a.Scope.WithControl(all...).NameScope("loss_scale")
	counter := a.State(l, "step_counter", tf.Int64, ops.Shape{}, ops.Zeros())
	f, n := ops.NewFormula(s, tf.Float), ops.NewFormula(s, tf.Int64)
	zero, one := n.Constant(0), n.Constant(1)
	scale, count := here.scale.Read(s), counter.Read(s)
	// Of 1 or 0: whether the gradients were finite.
	finite := here.choose(s, one, zero)
	good := n.Greater(finite, zero)
	full := n.GreaterEqual(n.Add(count, one), ops.Const(s, ops.Shape{}, []int64{l.of.Growth}))
	next := f.Select(good, f.Select(full, f.Mul(scale, f.Constant(2)), scale), f.Mul(scale, f.Constant(.5)))
	count = n.Select(n.And(good, n.Not(full)), n.Add(count, one), zero)
	return append(all, here.scale.Assign(s, next), counter.Assign(s, count))
}
