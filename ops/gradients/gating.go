package gradients

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Gating says which gradients wait for each other before anybody uses one of
// them, Python's gate_gradients. It changes no value unless the operations
// between have effects.
type Gating int

const (
	// GateNone lets each gradient be used as soon as it is there.
	GateNone Gating = iota
	// GateOp has the gradients of one operation's inputs wait for each other.
	GateOp
	// GateGraph has the gradients by all xs wait for each other, and for nothing
	// before.
	GateGraph
)

// Aggregation is how the gradients that reach one tensor from several sides are
// added up, Python's AggregationMethod. Sparse gradients are concatenated in
// either.
type Aggregation int

const (
	// AggregateAddN adds all of them at once, when the last one is there.
	AggregateAddN Aggregation = iota
	// AggregatePairwise adds each to the sum of those before, so that fewer are held at
	// the same time (EXPERIMENTAL_TREE). The order of additions differs.
	AggregatePairwise
)

// together has gradients wait for each other.
func together(c *Context, grads []Gradient) []Gradient {
	var all []*tf.Operation
	for _, g := range grads {
		switch {
		case g.IsNone():
		case g.Slices != nil:
			all = append(all, g.Slices.Values.Op, g.Slices.Indices.Op)
		default:
			all = append(all, g.Dense.Op)
		}
	}
	if len(all) < 2 || c.Err() != nil {
		return grads
	}
	group := c.Add(bridge.OpSpec{Type: "NoOp", Name: "tuple/group_deps", Control: all})
	gated := make([]Gradient, len(grads))
	for i, g := range grads {
		gated[i] = g.Map(func(t tf.Output) tf.Output {
			return raw.Identity(c, t, raw.WithControl(group), raw.WithName("tuple/control_dependency"))
		})
	}
	return gated
}
