package gradients

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// Reached reports for each x whether [Compute] would look for a gradient of
// the ys by it: whether they depend on it by way of differentiable operations.
// It adds nothing to the graph, and returns the errors that Compute finds
// before it adds anything.
func Reached(g *tf.Graph, ys, xs []tf.Output, opts Options) ([]bool, error) {
	if err := checkArguments(g, ys, nil, xs, opts.StopGradients); err != nil {
		return nil, err
	}
	w := walk{opts: opts, index: map[bridge.OutputKey]int{}}
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
