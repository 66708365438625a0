package optimizers

import (
	"errors"
	"fmt"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
)

// Grad is the gradient of a loss by a variable. The Gradient is empty where
// there is none; such a Grad is passed on by the Clip functions and left out
// by ApplyGradients.
type Grad struct {
	gradients.Gradient
	Variable *ops.Variable
	// Summed says that a sparse gradient has each index once.
	Summed bool
}

// outputs are the tensors that the gradient is made of.
func (g Grad) outputs() []tf.Output {
	if g.Slices != nil {
		return []tf.Output{g.Slices.Values, g.Slices.Indices}
	}
	return []tf.Output{g.Dense}
}

// GradientOptions are the settings of [ComputeGradients]. The zero value is
// the default.
type GradientOptions struct {
	// AllowMissing lets some variables be without a gradient: they are not
	// trained. It is an error still if all are.
	AllowMissing bool
	// GradLoss is the gradient of the loss itself, of its shape: ones when
	// empty. It is Python's grad_loss.
	GradLoss tf.Output
	// StopGradients are tensors taken as constants.
	StopGradients []tf.Output
}

// MissingError says that variables have no gradient: the loss does not depend
// on them, or only through integers or operations without a derivative.
type MissingError struct {
	Loss      string
	Variables []string // without a gradient
	All       bool     // none of the variables has one
}

// Error lists the variables.
func (e *MissingError) Error() string {
	if e.All {
		return fmt.Sprintf("no gradients: the loss %s depends on none of the variables %s in a differentiable way",
			e.Loss, strings.Join(e.Variables, ", "))
	}
	return fmt.Sprintf("no gradient of the loss %s by %s; leave these variables out, or set AllowMissing to train the others",
		e.Loss, strings.Join(e.Variables, ", "))
}

// ComputeGradients adds the gradients of the loss by the variables to the graph
// and returns them in the order of vars. A loss that is no scalar counts as the
// sum of its elements. The gradient of a variable that is only gathered from
// ([ops.Variable.Gather]) is sparse. It is Python's
// Optimizer.compute_gradients.
//
// Errors, all found before anything is added: no variables, one that is nil,
// named twice, in another graph or not floating; a loss that is not floating;
// operations without a gradient function on the way
// ([gradients.MissingGradientError], all of them); and variables without a
// gradient ([MissingError]).
func ComputeGradients(loss tf.Output, vars []*ops.Variable, opts ...GradientOptions) ([]Grad, error) {
	var o GradientOptions
	if len(opts) > 1 {
		return nil, fmt.Errorf("compute gradients: %d GradientOptions given, wanted at most one", len(opts))
	}
	for _, given := range opts {
		o = given
	}
	if err := checkVariables(vars); err != nil {
		return nil, err
	}
	g := vars[0].Graph()
	switch {
	case g.Err() != nil:
		return nil, g.Err()
	case !bridge.Valid(loss):
		return nil, errors.New("the loss is not a tensor (a zero Output)")
	case bridge.GraphOf(loss.Op) != g.TF():
		return nil, fmt.Errorf("the loss %s is in another graph than the variables", outputName(loss))
	case !bridge.IsFloating(loss.DataType()):
		return nil, fmt.Errorf("the loss %s is %s, wanted a floating dtype", outputName(loss), bridge.DTypeName(loss.DataType()))
	}
	handles := make([]tf.Output, len(vars))
	for i, v := range vars {
		handles[i] = v.Handle()
	}
	options := ops.GradientOptions{StopGradients: o.StopGradients}
	if o.GradLoss.Op != nil {
		options.GradYs = []gradients.Gradient{{Dense: o.GradLoss}}
	}
	missing := func(has func(i int) bool) error {
		e := &MissingError{Loss: outputName(loss)}
		for i, v := range vars {
			if !has(i) {
				e.Variables = append(e.Variables, v.Name())
			}
		}
		e.All = len(e.Variables) == len(vars)
		if len(e.Variables) == 0 || o.AllowMissing && !e.All {
			return nil
		}
		return e
	}

	reached, err := gradients.Reached(ops.GradientScope(g.Root()), []tf.Output{loss}, handles, gradients.Options{StopGradients: o.StopGradients})
	if err == nil {
		err = missing(func(i int) bool { return reached[i] })
	}
	if err != nil {
		return nil, err
	}
	computed, err := ops.Gradients(g.Root(), []tf.Output{loss}, handles, options)
	if err != nil {
		return nil, err
	}
	// A gradient function can still answer that there is none.
	if err := missing(func(i int) bool { return !computed[i].IsNone() }); err != nil {
		return nil, err
	}
	grads := make([]Grad, len(vars))
	for i, v := range vars {
		grads[i] = Grad{Gradient: computed[i], Variable: v}
	}
	return grads, nil
}

// Where are the variables for which keep is true: a var_list by predicate. A
// nil keep keeps all.
//
//	optimizers.Where(g.Trainable("net/"), func(v *ops.Variable) bool { return v.Shape().Rank() > 1 })
func Where(vars []*ops.Variable, keep func(*ops.Variable) bool) []*ops.Variable {
	var kept []*ops.Variable
	for _, v := range vars {
		if keep == nil || keep(v) {
			kept = append(kept, v)
		}
	}
	return kept
}

func outputName(t tf.Output) string { return fmt.Sprintf("%s:%d", t.Op.Name(), t.Index) }

// checkVariables says why these can't be trained together.
func checkVariables(vars []*ops.Variable) error {
	if len(vars) == 0 {
		return errors.New("no variables to optimize: the list is empty, as Graph.Trainable's is for a path that no trainable variable has")
	}
	seen := make(map[*ops.Variable]bool, len(vars))
	for i, v := range vars {
		switch {
		case v == nil:
			return fmt.Errorf("variable %d of %d is nil", i, len(vars))
		case v.Graph() == nil || v.Handle().Op == nil:
			if err := v.Graph().Err(); v.Graph() != nil && err != nil {
				return err
			}
			return fmt.Errorf("variable %d of %d, %q, is in no graph", i, len(vars), v.Name())
		case v.Graph() != vars[0].Graph():
			return fmt.Errorf("variables %q and %q are in different graphs", vars[0].Name(), v.Name())
		case !bridge.IsFloating(v.DType()):
			return fmt.Errorf("variable %q is %s, a floating dtype is wanted for training", v.Name(), bridge.DTypeName(v.DType()))
		case seen[v]:
			return fmt.Errorf("variable %q is listed twice", v.Name())
		}
		seen[v] = true
	}
	return nil
}

// checkGrads says why gradients can't be applied, and lists the variables of
// those that are there.
func checkGrads(grads []Grad) ([]*ops.Variable, error) {
	if len(grads) == 0 {
		return nil, errors.New("no variables to optimize: the list of gradients is empty")
	}
	all := make([]*ops.Variable, len(grads))
	for i, grad := range grads {
		all[i] = grad.Variable
	}
	if err := checkVariables(all); err != nil {
		return nil, err
	}
	g := all[0].Graph()
	if err := g.Err(); err != nil {
		return nil, err
	}
	var present []*ops.Variable
	for _, grad := range grads {
		if grad.IsNone() {
			continue
		}
		if err := checkGrad(g, grad); err != nil {
			return nil, fmt.Errorf("gradient of %q: %w", grad.Variable.Name(), err)
		}
		present = append(present, grad.Variable)
	}
	if len(present) == 0 {
		names := make([]string, len(all))
		for i, v := range all {
			names[i] = v.Name()
		}
		return nil, fmt.Errorf("no gradients: none of the variables %s has one", strings.Join(names, ", "))
	}
	return present, nil
}

func checkGrad(g *ops.Graph, grad Grad) error {
	v := grad.Variable
	for _, t := range grad.outputs() {
		switch {
		case !bridge.Valid(t):
			return errors.New("it is not a tensor (a zero Output)")
		case bridge.GraphOf(t.Op) != g.TF():
			return fmt.Errorf("%s is in another graph", outputName(t))
		}
	}
	values, want := grad.outputs()[0], v.Shape()
	if grad.IsSparse() {
		if len(want) == 0 {
			return errors.New("it is sparse, but the variable is a scalar")
		}
		if dt := grad.Slices.Indices.DataType(); dt != tf.Int32 && dt != tf.Int64 {
			return fmt.Errorf("its indices are %s, wanted int32 or int64", bridge.DTypeName(dt))
		}
		want[0] = -1
	}
	if have := values.DataType(); have != v.DType() {
		return fmt.Errorf("it is %s, wanted %s as the variable", bridge.DTypeName(have), bridge.DTypeName(v.DType()))
	}
	if have := bridge.ShapeOf(values); !have.CompatibleWith(want) {
		return fmt.Errorf("its shape is %s, wanted %s", have, want)
	}
	return nil
}

func checkOperations(g *ops.Graph, all []*tf.Operation) error {
	for i, o := range all {
		switch {
		case o == nil:
			return fmt.Errorf("operation %d of the %d to run before the update is nil", i, len(all))
		case bridge.GraphOf(o) != g.TF():
			return fmt.Errorf("operation %q, to run before the update, is in another graph", o.Name())
		}
	}
	return nil
}
