package gradients_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// fetch runs a graph that needs no feeds and prints one tensor.
func fetch(g *ops.Graph, t tf.Output) {
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close()
	got, err := sess.Call(context.Background(), bridge.Call{Fetches: []tf.Output{t}})
	if err != nil {
		log.Fatal(err)
	}
	defer got[0].Close()
	values, err := bridge.ToFloat64(got[0])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(values)
}

// The gradient of x³, then the gradient of that.
func ExampleCompute() {
	g := ops.NewGraph(ops.GraphOptions{})
	s := gradients.Scope(ops.GradientScope(g.Root()))
	x := g.Const([]float64{1, 2, 3})
	y := raw.Mul(s, raw.Square(s, x), x)

	first, err := gradients.Compute(s, []tf.Output{y}, nil, []tf.Output{x}, gradients.Options{})
	if err != nil {
		log.Fatal(err)
	}
	second, err := gradients.Compute(s, []tf.Output{first[0].Dense}, nil, []tf.Output{x}, gradients.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fetch(g, first[0].Dense)
	fetch(g, second[0].Dense)
	// Output:
	// [3 12 27]
	// [6 12 18]
}

// Rounding has no gradient; straight through it, a model can be trained all the
// same. An override holds for one computation, Register for the program.
func ExampleOptions_override() {
	g := ops.NewGraph(ops.GraphOptions{})
	s := ops.GradientScope(g.Root())
	x := g.Const([]float64{0.4, 1.7})
	y := raw.Square(s, raw.Round(s, x))

	grads, err := gradients.Compute(s, []tf.Output{y}, nil, []tf.Output{x}, gradients.Options{
		Override: map[string]gradients.Func{
			"Round": func(c *gradients.Context) []gradients.Gradient { return c.Grads },
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fetch(g, grads[0].Dense)
	// Output: [0 4]
}

// What can't be differentiated is named before anything is added.
func ExampleMissingGradientError() {
	g := ops.NewGraph(ops.GraphOptions{})
	s := ops.GradientScope(g.Root())
	x := g.Const([]float64{1, 2, 2})
	distinct, _ := raw.Unique(s, x, raw.WithName("distinct"))

	_, err := gradients.Compute(s, []tf.Output{distinct}, nil, []tf.Output{x}, gradients.Options{})
	var missing *gradients.MissingGradientError
	if errors.As(err, &missing) {
		fmt.Println(missing.Types(), missing.Ops[0].Name)
	}
	// Output: [Unique] distinct
}
