package ops

import (
	"errors"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops/gradients"
)

// Gradient is the derivative by one tensor: dense, or [IndexedSlices], or none
// (IsNone, Python's None).
type Gradient = gradients.Gradient

// IndexedSlices is a sparse gradient, Python's tf.IndexedSlices.
type IndexedSlices = gradients.IndexedSlices

// Gating says which gradients wait for each other.
type Gating = gradients.Gating

// Aggregation is how several gradients of one tensor are added.
type Aggregation = gradients.Aggregation

// The settings of GradientOptions.Gate and .Aggregation.
const (
	GateNone  = gradients.GateNone
	GateOp    = gradients.GateOp
	GateGraph = gradients.GateGraph

	AggregateAddN     = gradients.AggregateAddN
	AggregatePairwise = gradients.AggregatePairwise
)

// GradientOptions are the settings of [Gradients].
type GradientOptions struct {
	// GradYs are the gradients of the ys, Python's grad_ys; nil or a zero
	// Gradient means ones.
	GradYs []Gradient
	// StopGradients are tensors taken as constants.
	StopGradients []tf.Output
	// Zeros asks for zeros instead of no gradient where an x has none.
	Zeros bool
	// Gate has gradients wait for each other before one is used: GateOp those of
	// one operation's inputs, GateGraph those by all xs. None by default.
	Gate Gating
	// Aggregation is how gradients that reach a tensor from several sides are
	// added: by one AddN by default, or AggregatePairwise.
	Aggregation Aggregation
	// Name is the name scope of the new nodes, "gradients" when empty.
	Name string
}

// Gradients adds the derivative of the sum of the ys by each x to the graph,
// and returns it in the order of xs: Python's tf.gradients. An x may be any
// tensor that the ys are made from, or a variable's handle, whose gradient is
// that of all its reads; see [VariableGradients]. An x that has no gradient
// gets none, which is a value (IsNone) and not an error.
//
// Control flow and function calls (If, Case, While and their variants,
// PartitionedCall) are differentiated within. The gradient needs values from inside
// of them, so the operation in the graph is changed in its place: it calls functions
// that also return those, and has more outputs. What it does, such as drawing random
// numbers or assigning variables, happens once a step as before. It can be changed
// only as long as no session has run the graph; afterwards the gradient is an error
// that says so: add gradients before the first run, the one of Init included.
// Sessions of the binding (tf.NewSession) are not noticed; they would go on with what
// they know, and fail. Loops of TensorFlow 1 (Enter, Exit) are refused.
//
// A graph that can't be differentiated is a *gradients.MissingGradientError,
// which lists every operation on the way that has no gradient. Nothing has
// been added then, and no error sticks to the graph.
func Gradients(s *Scope, ys, xs []tf.Output, options ...GradientOptions) ([]Gradient, error) {
	if !s.ok() {
		return nil, errNoGraph
	}
	if len(options) > 1 {
		return nil, fmt.Errorf("Gradients: %d GradientOptions given, wanted at most one", len(options))
	}
	var o GradientOptions
	if len(options) == 1 {
		o = options[0]
	}
	return gradients.Compute(GradientScope(s), ys, o.GradYs, xs, gradients.Options{
		Name: o.Name, StopGradients: o.StopGradients, Zeros: o.Zeros, Gate: o.Gate, Aggregation: o.Aggregation})
}

// VariableGradients is [Gradients] by variables.
func VariableGradients(s *Scope, ys []tf.Output, variables []*Variable, options ...GradientOptions) ([]Gradient, error) {
	xs := make([]tf.Output, len(variables))
	for i, v := range variables {
		if xs[i] = v.Handle(); xs[i].Op == nil {
			return nil, errors.Join(fmt.Errorf("VariableGradients: variable %d of %d is nil or was not built", i, len(variables)), s.Err())
		}
	}
	return Gradients(s, ys, xs, options...)
}

// Densify is a gradient as a dense tensor: the rows of [IndexedSlices] summed
// into zeros. No gradient is the zero Output.
func Densify(s *Scope, g Gradient) tf.Output {
	if !s.ok() {
		return tf.Output{}
	}
	return gradients.Densify(GradientScope(s), g)
}

// GradientScope is s as package gradients takes it, for those who call that
// package themselves.
func GradientScope(s *Scope) gradients.Scope { return gradientScope{s} }

type gradientScope struct{ *Scope }

func (s gradientScope) Sub(name string) gradients.Scope { return gradientScope{s.NameScope(name)} }

// Free is s without control dependencies.
func (s gradientScope) Free() gradients.Scope { return gradientScope{s.WithoutControl()} }

func (s gradientScope) On(device string) gradients.Scope {
	if device == "" {
		return s
	}
	return gradientScope{s.WithDevice(device)}
}
