package optimizers_test

import (
	"context"
	"fmt"
	"log"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/optimizers/schedules"
)

// line is a graph with a loss: how far w·x is from 7x.
func line() (g *ops.Graph, w *ops.Variable, loss tf.Output) {
	g = ops.NewGraph(ops.GraphOptions{Seed: 1})
	w = g.Scope("net").Variable("w", ops.Shape{}, ops.Ones())
	f := ops.NewFormula(g.Root(), tf.Float)
	x, y := g.Const([]float32{1, 2}), g.Const([]float32{7, 14})
	loss = raw.Mean(g.Root(), f.Square(f.Sub(f.Mul(w.Value(), x), y)), g.Const([]int32{0}))
	return g, w, loss
}

// train runs a train op n times and returns the weight.
func train(g *ops.Graph, w *ops.Variable, step *optimizers.TrainOp, n int) float32 {
	ctx := context.Background()
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close()
	if err := sess.Run(ctx, g.Init()); err != nil {
		log.Fatal(err)
	}
	for range n {
		if err := sess.Run(ctx, step.Op); err != nil {
			log.Fatal(err)
		}
	}
	out, err := sess.Call(ctx, bridge.Call{Fetches: []tf.Output{w.Value()}})
	if err != nil {
		log.Fatal(err)
	}
	defer out[0].Close()
	values, err := bridge.Flat[float32](out[0])
	if err != nil {
		log.Fatal(err)
	}
	return values[0]
}

func ExampleOptimizer_Minimize() {
	g, w, loss := line()
	adam := optimizers.NewAdam(0.1)
	adam.Rate = schedules.ExponentialDecay{Initial: 0.5, Steps: 20, Rate: 0.8}
	step, err := adam.Minimize(loss, g.Trainable("net/"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(step.Op.Name())
	fmt.Printf("%.2f\n", train(g, w, step, 200))
	// Output:
	// Adam
	// 7.00
}

// A rule of one's own: a step, wrapped around at 5. Where 7 is wanted, the
// weight goes round and round.
func ExampleElementwise() {
	g, w, loss := line()
	rule := optimizers.Elementwise("floormod", func(u *optimizers.Update) tf.Output {
		return u.FloorMod(u.Sub(u.Var, u.Mul(u.Rate, u.Grad)), u.Constant(5))
	})
	rule.Rate = optimizers.Value(0.1)
	step, err := rule.Minimize(loss, []*ops.Variable{w})
	if err != nil {
		log.Fatal(err)
	}
	// 1 + 0.1·2·(7-1)·(1²+2²)/2 = 4; then 4 + 0.5·(7-4) = 5.5, which is 0.5.
	for n := range 3 {
		fmt.Printf("%.1f\n", train(g, w, step, n))
	}
	// Output:
	// 1.0
	// 4.0
	// 0.5
}

// Compute, process, apply.
func ExampleClipByGlobalNorm() {
	g, w, loss := line()
	grads, err := optimizers.ComputeGradients(loss, g.Trainable())
	if err != nil {
		log.Fatal(err)
	}
	grads, err = optimizers.ClipByGlobalNorm(grads, 2)
	if err != nil {
		log.Fatal(err)
	}
	step, err := optimizers.NewGradientDescent(0.5).ApplyGradients(grads)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(train(g, w, step, 3)) // three steps of length 0.5·2
	// Output: 4
}

// Training stops after two steps: weight and slots then stand still.
func ExampleGated() {
	g, w, loss := line()
	onlyAtFirst := schedules.PiecewiseConstant{Boundaries: []int64{1}, Values: []float64{1, 0}}
	descent := optimizers.Gated(optimizers.NewGradientDescent(0.1), onlyAtFirst)
	step, err := descent.Minimize(loss, g.Trainable())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(train(g, w, step, 2) == train(g, w, step, 50))
	// Output: true
}
