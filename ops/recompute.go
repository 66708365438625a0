package ops

import (
	"errors"
	"fmt"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Recompute is a part of a graph whose intermediate results are not kept for
// the gradient: the backward pass computes them once more from what the part
// was given, when the gradient of its outputs is there (gradient checkpointing,
// Python's tf.recompute_grad). A chain of n such parts of equal size holds the
// values between the parts and those of one part, not those of all.
//
// forward is called once, at once, and makes the outputs; tensors and variables
// that it takes from outside are found, and receive their gradients as ever.
// Values and gradients are those of the same operations without Recompute.
//
// Reads of variables, random numbers and whatever else has state run once only:
// their results are kept.
//
// A graph that is saved and read again, here or in Python, computes the same and
// has the same gradients, but keeps what is inside.
//
// Errors are errors of the graph: no outputs, an output that is no tensor of the
// graph. What has no gradient inside is named by whoever asks for the gradient,
// before anything is added.
func Recompute(s *Scope, forward func(s *Scope) []tf.Output) []tf.Output {
	const what = "Recompute"
	if !s.ok() || s.graph.Err() != nil {
		return nil
	}
	if forward == nil {
		s.fail(what, errors.New("the function is nil"))
		return nil
	}
	in := s.NameScope(what)
	part := beginSegment(s.graph)
	outputs := s.captureAll(forward(in))
	if s.graph.Err() != nil {
		return nil
	}
	if err := checkTensors(s.graph.tf, "output", outputs); err != nil {
		s.fail(what, err)
		return nil
	}
	if len(outputs) == 0 {
		s.fail(what, errors.New("the function gave no outputs"))
		return nil
	}
	part.end(outputs, hasState)
	return in.markedIdentities(gradients.SegmentAttr, outputs, part.taken, func(name string) gradients.Marked {
		r := recomputed{graph: s.graph, name: name, part: part, outputs: outputs}
		return gradients.Marked{Grad: r.gradient, Check: r.check}
	})
}

// hasState reports whether running an operation twice may give two results.
func hasState(op *tf.Operation) bool {
	def, known := bridge.OpDef(op.Type())
	return !known || def.IsStateful || op.Type() == "Placeholder" // is given something in each run
}

// recomputed is a segment that a gradient runs again. Its node's inputs are the
// segment's outputs and then what it takes from outside.
type recomputed struct {
	graph   *Graph
	name    string
	part    *segment
	outputs []tf.Output
}

// check finds what has no gradient inside of the segment.
func (r recomputed) check(*tf.Operation) error {
	if len(r.part.taken) == 0 {
		return nil
	}
	_, err := gradients.Reached(GradientScope(r.graph.Root()), r.outputs, r.part.taken, gradients.Options{StopGradients: r.part.taken})
	return err
}

// gradient builds the segment again, from inputs that wait for the gradients of
// the outputs, and differentiates that.
func (r recomputed) gradient(c *gradients.Context) []gradients.Gradient {
	n := len(r.outputs)
	var arrived []*tf.Operation
	var ys []tf.Output
	var gradYs []gradients.Gradient
	for i := range n {
		if !c.HasGrad(i) {
			continue
		}
		g := c.Grad(i)
		if g.Op == nil {
			return nil
		}
		ys, gradYs = append(ys, r.outputs[i]), append(gradYs, gradients.Gradient{Dense: g})
		if !slices.Contains(arrived, g.Op) {
			arrived = append(arrived, g.Op)
		}
	}
	again := map[bridge.OutputKey]tf.Output{}
	var wanted []int
	var xs, all []tf.Output
	for i, t := range r.part.taken {
		input := c.Input(n + i)
		held := raw.Identity(c, input, raw.WithControl(arrived...), raw.WithName("held"))
		again[bridge.Key(t)] = held
		all = append(all, held)
		if c.Wants(n + i) {
			wanted, xs = append(wanted, n+i), append(xs, held)
		}
	}
	for _, op := range r.part.ops {
		if err := copyOperation(c, op, again, arrived); err != nil {
			c.Fail(fmt.Errorf("computing %s again: %w", r.name, err))
			return nil
		}
		if c.Err() != nil {
			return nil
		}
	}
	for i, y := range ys {
		ys[i] = again[bridge.Key(y)]
	}
	found, err := gradients.Compute(c, ys, gradYs, xs, gradients.Options{StopGradients: all})
	if err != nil {
		c.Fail(err)
		return nil
	}
	result := make([]gradients.Gradient, n+len(r.part.taken))
	for i, g := range found {
		result[wanted[i]] = g
	}
	return result
}

// copyOperation adds an operation again, with inputs replaced, and records its
// outputs. One without replaced inputs waits for after.
func copyOperation(b raw.Builder, op *tf.Operation, again map[bridge.OutputKey]tf.Output, after []*tf.Operation) error {
	def, known := bridge.OpDef(op.Type())
	if !known {
		return fmt.Errorf("%s has no definition", op.Type())
	}
	spec := bridge.OpSpec{Type: op.Type(), Name: op.Name(), Device: op.Device()}
	inputs := bridge.Inputs(op)
	for i, t := range inputs {
		if inputs[i] = again[bridge.Key(t)]; inputs[i].Op == nil {
			return fmt.Errorf("input %s:%d is not there", t.Op.Name(), t.Index)
		}
	}
	next := 0
	for _, arg := range def.InputArg {
		if arg.NumberAttr == "" && arg.TypeListAttr == "" {
			spec.Inputs = append(spec.Inputs, inputs[next])
			next++
			continue
		}
		length, err := bridge.InputListLength(op, arg.Name)
		if err != nil {
			return err
		}
		spec.Inputs = append(spec.Inputs, tf.OutputList(inputs[next:next+length]))
		next += length
	}
	attrs, err := bridge.Attrs(op)
	if err != nil {
		return err
	}
	spec.Attrs = attrs
	if len(inputs) == 0 && op.Type() != "Const" {
		spec.Control = after
	}
	copied := b.Add(spec)
	for i, t := range bridge.OutputsOf(copied) {
		again[bridge.Key(op.Output(i))] = t
	}
	return nil
}
