package ops

import (
	"errors"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// Hyperparameter is a number that training is steered by, such as a rate: a
// constant ([Fixed]), a tensor fed in each run ([Fed]), a schedule of the step
// (package optimizers/schedules), or a formula ([HyperparameterFunc]).
type Hyperparameter interface {
	// At is the value as a scalar of dt. step is an int64 scalar: how many
	// updates have been made, 0 for the first.
	At(s *Scope, step tf.Output, dt tf.DataType) tf.Output
}

// Fixed is a number that never changes.
type Fixed float64

// At is a constant.
func (f Fixed) At(s *Scope, _ tf.Output, dt tf.DataType) tf.Output { return Number(s, dt, float64(f)) }

// Fed is a hyperparameter whose value is a scalar tensor of any numeric dtype,
// such as a placeholder that each run feeds or the value of a variable.
func Fed(t tf.Output) Hyperparameter {
	return HyperparameterFunc(func(s *Scope, _ tf.Output, dt tf.DataType) tf.Output {
		if !bridge.Valid(t) {
			s.fail("Fed", errors.New("the tensor is the zero tf.Output"))
			return tf.Output{}
		}
		if shape := bridge.ShapeOf(t); shape.Rank() > 0 {
			s.fail("Fed", fmt.Errorf("a hyperparameter is a scalar, got %s of shape %v", t.Op.Name(), shape))
			return tf.Output{}
		}
		return Cast(s, t, dt)
	})
}

// HyperparameterFunc is a hyperparameter given by its formula.
type HyperparameterFunc func(s *Scope, step tf.Output, dt tf.DataType) tf.Output

// At calls the function.
func (f HyperparameterFunc) At(s *Scope, step tf.Output, dt tf.DataType) tf.Output {
	if f == nil {
		s.fail("HyperparameterFunc", errors.New("the function is nil"))
		return tf.Output{}
	}
	return f(s, step, dt)
}

// At is the value of a hyperparameter at the graph's [Graph.GlobalStep], as a
// scalar of dt: how a gate is opened by a schedule.
func At(s *Scope, h Hyperparameter, dt tf.DataType) tf.Output {
	if !s.ok() {
		return tf.Output{}
	}
	if h == nil {
		s.fail("At", errors.New("the hyperparameter is nil"))
		return tf.Output{}
	}
	return h.At(s, s.graph.GlobalStep().Value(), dt)
}

// GlobalStep is the graph's step counter: the int64 scalar variable
// "global_step", not trainable, 0 at first, made by the first call unless
// there is one of that name. Whoever trains advances it once a step. It is
// Python's get_or_create_global_step.
func (g *Graph) GlobalStep() *Variable {
	if g == nil {
		return nil
	}
	g = g.outermost()
	g.stepOnce.Do(func() {
		if v, err := g.VariableByName("global_step"); err == nil && v.dtype == tf.Int64 && len(v.shape) == 0 {
			g.globalStep = v
			return
		}
		g.globalStep = g.rootScope.WithoutControl().WithDevice("").Variable("global_step", Shape{}, Zeros(), VariableOptions{
			DType: tf.Int64, NonTrainable: true, Collections: []string{GlobalVariables, GlobalStepKey}})
	})
	return g.globalStep
}

// Cast is t in another dtype; t itself where it has that dtype.
func Cast(s *Scope, t tf.Output, dt tf.DataType) tf.Output {
	if bridge.Valid(t) && t.DataType() == dt {
		return t
	}
	return first(s.Add(bridge.OpSpec{Type: "Cast", Inputs: []tf.Input{t}, Attrs: []bridge.Attr{{Name: "DstT", Value: dt}}}))
}
