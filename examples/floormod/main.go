// Command floormod trains a linear model whose weights live modulo B, in [0, B), by
//
//	w := (w - rate*gradient + noise) mod B
//
// It does so twice: by the optimizer that the library has for it, between whose gradients
// and updates the gradients are capped, and by the rule written out as one formula.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tfgo"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/optimizers/schedules"
)

const B = 5

// The weights that made the data: what training is to find.
var truth = []float32{0.5, 2, 4.5}

// A rule builds the train op of a loss over some variables.
type rule func(loss tf.Output, vars []*ops.Variable) (*optimizers.TrainOp, error)

// byOptimizer has all its settings in the graph: a rate and a noise that shrink, and caps.
func byOptimizer(loss tf.Output, vars []*ops.Variable) (*optimizers.TrainOp, error) {
	rule := optimizers.NewFloorMod(0.1, B)
	rule.Rate = schedules.ExponentialDecay{Initial: 0.1, Steps: 100, Rate: 0.8}
	rule.Stddev = schedules.ExponentialDecay{Initial: 0.1, Steps: 100, Rate: 0.5}

	grads, err := optimizers.ComputeGradients(loss, vars)
	if err != nil {
		return nil, err
	}
	grads, err = optimizers.ClipByGlobalNorm(grads, 5)
	if err != nil {
		return nil, err
	}
	return rule.ApplyGradients(grads)
}

// byFormula is the same kind of rule by hand. Sparse updates would follow from it too.
func byFormula(loss tf.Output, vars []*ops.Variable) (*optimizers.TrainOp, error) {
	rule := optimizers.Elementwise("floormod", func(u *optimizers.Update) tf.Output {
		step := u.Sub(u.Var, u.Mul(u.Rate, u.Grad))
		return u.FloorMod(u.Add(step, u.Normal(0, 0.001)), u.Constant(B))
	})
	rule.Rate = optimizers.Value(0.05)
	return rule.Minimize(loss, vars)
}

// fit trains from the same data and first weights by either rule and returns the weights.
func fit(ctx context.Context, train rule) ([]float32, error) {
	g := ops.NewGraph(ops.GraphOptions{Seed: 7})
	x := g.Placeholder("x", tf.Float, ops.Shape{-1, 3})
	y := g.Placeholder("y", tf.Float, ops.Shape{-1, 1})
	model := g.Scope("model")
	w := model.Variable("w", ops.Shape{3, 1}, ops.Uniform(0, B))
	predicted := tfgo.NewTensor(model.Op(), x).MatMul(w.Value()).Output
	loss := ops.MeanSquaredError(model, y, predicted)
	step, err := train(loss, g.Trainable("model/"))
	if err != nil {
		return nil, err
	}

	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		return nil, err
	}
	defer sess.Close()
	if err := sess.Run(ctx, g.Init()); err != nil {
		return nil, err
	}
	// Resolved once; a run is then one call into TensorFlow that allocates nothing in Go.
	prepared, err := sess.Prepare(bridge.Call{Feeds: []tf.Output{x, y}, Targets: []*tf.Operation{step.Op}})
	if err != nil {
		return nil, err
	}
	batch, err := data()
	if err != nil {
		return nil, err
	}
	defer batch[0].Close()
	defer batch[1].Close()
	for range 1000 {
		if err := prepared.Run(ctx, batch, nil); err != nil {
			return nil, err
		}
	}
	found, err := sess.Call(ctx, bridge.Call{Fetches: []tf.Output{w.Value()}})
	if err != nil {
		return nil, err
	}
	defer found[0].Close()
	return bridge.Values[float32](found[0])
}

// data is 64 examples of the linear model that is to be found.
func data() ([]*bridge.Tensor, error) {
	random := rand.New(rand.NewPCG(1, 2))
	xs, ys := make([]float32, 64*3), make([]float32, 64)
	for i := range xs {
		xs[i] = float32(random.NormFloat64())
		ys[i/3] += xs[i] * truth[i%3]
	}
	x, err := bridge.FromFlat(ops.Shape{64, 3}, xs)
	if err != nil {
		return nil, err
	}
	y, err := bridge.FromFlat(ops.Shape{64, 1}, ys)
	return []*bridge.Tensor{x, y}, err
}

func run(ctx context.Context, w io.Writer) error {
	fmt.Fprintf(w, "to be found    %.3f\n", truth)
	optimizer, err := fit(ctx, byOptimizer)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "by optimizer   %.3f\n", optimizer)
	formula, err := fit(ctx, byFormula)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "by formula     %.3f\n", formula)
	return nil
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
