package gradients

import (
	"errors"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// Reached reports for each x whether [Compute] would look for a gradient of
// the ys by it: whether they depend on it by way of differentiable operations.
// It adds nothing to the graph, and returns the errors that Compute finds
// before it adds anything.
func Reached(s Scope, ys, xs []tf.Output, opts Options) ([]bool, error) {
	if s == nil {
		return nil, errors.New("gradients: the scope is nil")
	}
	if err := checkArguments(s.TF(), ys, nil, xs, opts.StopGradients); err != nil {
		return nil, err
	}
	w := newWalk(s, opts)
	w.backwards(ys)
	w.mark(ys, xs)
	if err := w.missing(); err != nil {
		return nil, err
	}
	reached := make([]bool, len(xs))
	for i, x := range xs {
		if k, ok := w.index[bridge.OpKey(x.Op)]; ok {
			reached[i] = at(w.nodes[k].live, x.Index)
		}
	}
	return reached, nil
}
