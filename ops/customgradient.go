package ops

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// gradientMark is the attribute that says under which name to look for a
// node's gradient, in Python too.
const gradientMark = "_gradient_op_type"

// marked adds the mark to a node's attributes unless they have one.
func marked(attrs []bridge.Attr, name string) []bridge.Attr {
	if slices.ContainsFunc(attrs, func(a bridge.Attr) bool { return a.Name == gradientMark }) {
		return attrs
	}
	return append(slices.Clip(attrs), bridge.Attr{Name: gradientMark, Value: name})
}

// WithGradients is s with other gradients for what is added in it: byType says
// for an operation type, "Round", which gradient it gets, the name of one that
// gradients.Register knows. It is Python's gradient_override_map.
//
// The names become an attribute of the nodes and stay with the graph where it
// is saved. A name that is not registered is an error of the graph. Nodes that
// tfgo and the binding add (Scope.Op) are not reached.
func (s *Scope) WithGradients(byType map[string]string) *Scope {
	if !s.ok() {
		return s
	}
	for _, opType := range slices.Sorted(maps.Keys(byType)) {
		if _, known := bridge.OpDef(opType); !known {
			s.fail("WithGradients", fmt.Errorf("there is no operation type %q", opType))
			return s
		}
		if name := byType[opType]; name != "" {
			if _, known := gradients.Lookup(name); !known {
				s.fail("WithGradients", fmt.Errorf("no gradient is registered as %q, wanted for %s; gradients.Register does that", name, opType))
				return s
			}
		}
	}
	return s.with(func(c *Scope) {
		c.gradients = maps.Clone(s.gradients)
		if c.gradients == nil {
			c.gradients = map[string]string{}
		}
		maps.Copy(c.gradients, byType)
	})
}

// Backward is the gradient of a [CustomGradient]: from the gradients of its
// outputs, zeros for one that nothing depends on, to those of its inputs, in
// order. A zero Output is no gradient. What it is made of can be differentiated
// again.
type Backward func(s *Scope, grads []tf.Output) []tf.Output

// CustomGradient is a part of a graph with a gradient of its own, Python's
// tf.custom_gradient. forward is called at once and makes the outputs from the
// inputs, together with the function that makes the gradient:
//
//	y := ops.CustomGradient(s, []tf.Output{x}, func(s *ops.Scope, in []tf.Output) ([]tf.Output, ops.Backward) {
//		e := raw.Exp(s, in[0])
//		return []tf.Output{raw.Log1p(s, e)}, func(s *ops.Scope, g []tf.Output) []tf.Output {
//			return []tf.Output{raw.Mul(s, g[0], raw.Div(s, e, raw.AddV2(s, e, one)))}
//		}
//	})
//
// What forward takes from outside without its being an input is a constant to
// the gradient; for a variable that is an error, pass its Value among the
// inputs. Operations inside need no gradient.
//
// The gradient lives in this process. Where the graph is saved, its node keeps
// the mark of a custom gradient, and Python, which does not know it, refuses to
// differentiate there. One made inside of a body of [If], [Case] or [While] can be
// differentiated in that body alone.
//
// Errors are errors of the graph: no outputs, a nil Backward, an output of
// another graph. A Backward that panics, or returns another number of gradients
// than there are inputs, or one of another dtype, is an error of whoever asks for
// the gradient.
func CustomGradient(s *Scope, inputs []tf.Output, forward func(s *Scope, inputs []tf.Output) ([]tf.Output, Backward)) []tf.Output {
	const what = "CustomGradient"
	if !s.ok() || s.graph.Err() != nil {
		return nil
	}
	if forward == nil {
		s.fail(what, errors.New("the function is nil"))
		return nil
	}
	inputs = s.captureAll(inputs)
	if err := checkTensors(s.graph.tf, "input", inputs); err != nil {
		s.fail(what, err)
		return nil
	}
	in := s.NameScope(what)
	segment := beginSegment(s.graph)
	outputs, backward := forward(in, slices.Clone(inputs))
	if outputs = s.captureAll(outputs); s.graph.Err() != nil {
		return nil
	}
	switch err := checkTensors(s.graph.tf, "output", outputs); {
	case err != nil:
		s.fail(what, err)
		return nil
	case len(outputs) == 0:
		s.fail(what, errors.New("the function gave no outputs"))
		return nil
	case backward == nil:
		s.fail(what, errors.New("the function gave no Backward"))
		return nil
	}
	if err := s.graph.variablesAmong(segment.end(outputs), inputs); err != nil {
		s.fail(what, err)
		return nil
	}
	return in.markedIdentities(gradientMark, outputs, inputs, func(name string) gradients.Marked {
		return gradients.Marked{
			Grad: func(c *gradients.Context) []gradients.Gradient {
				return s.graph.runBackward(c, name, len(outputs), len(inputs), backward)
			},
			Check: func(op *tf.Operation) error {
				if bridge.GraphOf(op) != s.graph.tf {
					return errors.New("its Backward belongs to the body in which it was made, and can't be called for a gradient from outside; make the CustomGradient around the loop or branch")
				}
				return nil
			},
		}
	})
}

// runBackward calls a Backward in the scope of a gradient.
func (g *Graph) runBackward(c *gradients.Context, name string, outputs, inputs int, backward Backward) []gradients.Gradient {
	at, ok := scopeOf(c.Scope)
	if !ok || at.graph != g {
		c.Fail(fmt.Errorf("the gradient of %s is a function made for another graph; it can't be differentiated inside of a function", name))
		return nil
	}
	grads := make([]tf.Output, outputs)
	for i := range grads {
		grads[i] = c.Grad(i)
	}
	byInputs := backward(at, grads)
	if len(byInputs) != inputs {
		c.Fail(fmt.Errorf("the Backward of %s gave %d gradients, wanted one for each of %d inputs", name, len(byInputs), inputs))
		return nil
	}
	result := make([]gradients.Gradient, outputs+inputs)
	for i, t := range byInputs {
		if t.Op == nil {
			continue
		}
		if !bridge.Valid(t) || bridge.GraphOf(t.Op) != g.tf {
			c.Fail(fmt.Errorf("the Backward of %s gave no tensor of this graph for input %d", name, i))
			return nil
		}
		result[outputs+i].Dense = t
	}
	return result
}

// scopeOf is the ops.Scope behind a gradient's scope.
func scopeOf(s gradients.Scope) (*Scope, bool) {
	switch s := s.(type) {
	case gradientScope:
		return s.Scope, true
	case *gradients.Context:
		return scopeOf(s.Scope)
	}
	return nil, false
}

// markedIdentities hands the outputs on by one node that stands, for a gradient,
// between them and the inputs: it takes both, and only the inputs receive one.
func (s *Scope) markedIdentities(attr string, outputs, inputs []tf.Output, make func(name string) gradients.Marked) []tf.Output {
	m := make(s.path)
	for i := range outputs {
		m.Opaque = append(m.Opaque, i)
	}
	all := raw.IdentityN(s.with(func(c *Scope) { c.gradients = nil }), slices.Concat(outputs, inputs),
		raw.Attr{Name: attr, Value: s.graph.marks.add(s.path, m)})
	if len(all) == 0 {
		return nil
	}
	return all[:len(outputs):len(outputs)]
}

// captureAll makes tensors of a graph around a body usable in it.
func (s *Scope) captureAll(list []tf.Output) []tf.Output {
	list = slices.Clone(list)
	for i, t := range list {
		if bridge.Valid(t) {
			list[i] = s.Capture(t)
		}
	}
	return list
}

// marks are the gradients of single nodes, by the mark that the nodes have.
type marks struct {
	mu    sync.Mutex
	known map[string]gradients.Marked
}

func (m *marks) add(path string, marked gradients.Marked) (mark string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]gradients.Marked{}
	}
	mark = fmt.Sprintf("Sluice/%s/%d", path, len(m.known))
	m.known[mark] = marked
	return mark
}

// MarkedGradient makes gradients know the graph's CustomGradient and Recompute.
func (s gradientScope) MarkedGradient(name string) (gradients.Marked, bool) {
	m := s.Scope.graph.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	marked, ok := m.known[name]
	return marked, ok
}

func checkTensors(g *tf.Graph, what string, list []tf.Output) error {
	for i, t := range list {
		switch {
		case !bridge.Valid(t):
			return fmt.Errorf("%s %d of %d is not a tensor (a zero Output, or an index its operation lacks)", what, i, len(list))
		case bridge.GraphOf(t.Op) != g:
			return fmt.Errorf("%s %d of %d, %s, is in another graph", what, i, len(list), t.Op.Name())
		}
	}
	return nil
}

// segment is what was added to a graph between two moments.
type segment struct {
	graph *tf.Graph
	first bridge.Cursor // where it begins
	ops   []*tf.Operation
	// taken are the tensors from before that ops use, each once.
	taken []tf.Output
}

func beginSegment(g *Graph) *segment {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.names.sync()
	return &segment{graph: g.tf, first: g.names.cursor}
}

// added are all operations since the segment began, in the order in which they
// were added.
func (s *segment) added() iter.Seq[*tf.Operation] {
	return func(yield func(*tf.Operation) bool) {
		cursor := s.first
		for op := cursor.Next(s.graph); op != nil; op = cursor.Next(s.graph) {
			if !yield(op) {
				return
			}
		}
	}
}

// end collects those of the operations added that the outputs are made from, in
// the order in which they were added. What some of them hold must be kept, and
// kept says which: their outputs count as taken. An output that was there before
// is not one of the segment's.
func (s *segment) end(outputs []tf.Output, kept ...func(*tf.Operation) bool) *segment {
	added := map[bridge.OutputKey]bool{}
	var order []*tf.Operation
	for op := range s.added() {
		added[bridge.OpKey(op)] = true
		order = append(order, op)
	}
	inside := func(op *tf.Operation) bool {
		if !added[bridge.OpKey(op)] {
			return false
		}
		for _, k := range kept {
			if k(op) {
				return false
			}
		}
		return true
	}
	needed := map[bridge.OutputKey]bool{}
	seen := map[bridge.OutputKey]bool{}
	stack := slices.Clone(outputs)
	for len(stack) > 0 {
		t := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !inside(t.Op) {
			if !seen[bridge.Key(t)] {
				seen[bridge.Key(t)] = true
				s.taken = append(s.taken, t)
			}
			continue
		}
		if key := bridge.OpKey(t.Op); !needed[key] {
			needed[key] = true
			stack = append(stack, bridge.Inputs(t.Op)...)
		}
	}
	for _, op := range order {
		if needed[bridge.OpKey(op)] {
			s.ops = append(s.ops, op)
		}
	}
	return s
}

// variablesAmong says which variable a segment reads without its being an input.
func (g *Graph) variablesAmong(s *segment, inputs []tf.Output) error {
	given := map[bridge.OutputKey]bool{}
	for _, in := range inputs {
		given[bridge.Key(in)] = true
	}
	for _, t := range s.taken {
		handle := t
		if t.Op.Type() == "ReadVariableOp" {
			handle = bridge.Input(t.Op, 0)
		}
		g.mu.Lock()
		v := g.byHandle[bridge.Key(handle)]
		g.mu.Unlock()
		if v != nil && v.trainable && !given[bridge.Key(t)] {
			return fmt.Errorf("the function uses variable %q, which is not among the inputs; pass its Value as one, or its gradient is lost", v.name)
		}
	}
	return nil
}
