package optimizers_test

import (
	"context"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/optimizers/schedules"
)

// Wrappers around each other: Adam with decay on all but the biases, on clipped
// gradients that are the mean of four batches, and an average of the weights.
func ExampleNewEMA() {
	g := ops.NewGraph(ops.GraphOptions{})
	w := g.Scope("net").Variable("w", ops.Shape{2}, ops.Value(1))
	b := g.Scope("net").Variable("bias", ops.Shape{2}, ops.Zeros())
	f := ops.NewFormula(g.Root(), tf.Float)
	loss := f.Square(f.Add(w.Value(), b.Value()))

	adam := optimizers.NewAdam(0.1)
	adam.Rate = schedules.LinearWarmup{Steps: 2, Then: schedules.CosineDecay{Initial: 0.1, Steps: 100}}
	rule := optimizers.WeightDecay(adam, optimizers.Value(0.01), "net/bias")
	rule = optimizers.Clipped(rule, optimizers.Clip{By: optimizers.ByGlobalNorm, Limit: optimizers.Value(5), NonFinite: optimizers.Skip})
	ema := optimizers.NewEMA(optimizers.Accumulated(rule, 4, optimizers.Mean), 0.99)
	train, err := ema.Minimize(loss, g.Trainable("net"))
	if err != nil {
		fmt.Println(err)
		return
	}
	swap, err := ema.Swap(g) // before evaluating or saving, and again afterwards
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sess.Close()
	run := func(op *tf.Operation, times int) {
		for range times {
			if err := sess.Run(ctx, op); err != nil {
				fmt.Println(err)
			}
		}
	}
	run(g.Init(), 1)
	run(train.Op, 40)
	run(swap, 2)
	results, err := sess.Call(ctx, bridge.Call{Fetches: []tf.Output{train.Iteration.Value()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer results[0].Close()
	steps, err := bridge.Item[int64](results[0])
	fmt.Println("batches: 40, steps:", steps, err)
	// Output: batches: 40, steps: 10 <nil>
}

func ExampleMemory() {
	g := ops.NewGraph(ops.GraphOptions{})
	w := g.Variable("w", ops.Shape{}, ops.Value(1))
	adam := optimizers.NewAdam(0.1)
	train, err := adam.Minimize(ops.NewFormula(g.Root(), tf.Float).Square(w.Value()), g.Trainable())
	if err != nil {
		fmt.Println(err)
		return
	}
	memory, err := optimizers.NewMemory(append(g.Trainable(), adam.State(g)...)...)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range adam.State(g) {
		fmt.Println(v.Name())
	}
	ctx := context.Background()
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sess.Close()
	if err := sess.Run(ctx, g.Init()); err != nil {
		fmt.Println(err)
	}
	saved, err := memory.Save(ctx, sess)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer saved.Close()
	if err := sess.Run(ctx, train.Op); err != nil {
		fmt.Println(err)
	}
	fmt.Println(memory.Restore(ctx, sess, saved))
	// Output:
	// Adam/iteration
	// w/Adam
	// w/Adam_1
	// <nil>
}
