// Command first fits a line through four points. It is the first program of the README.
package main

import (
	"context"
	"fmt"
	"log"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tfgo"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/optimizers"
)

func main() {
	g := ops.NewGraph(ops.GraphOptions{Seed: 1})
	x := g.Const([][]float32{{0}, {1}, {2}, {3}})
	y := g.Const([][]float32{{1}, {3}, {5}, {7}})
	net := g.Scope("net")
	w := net.Variable("w", ops.Shape{1, 1}, ops.GlorotUniform())
	b := net.Variable("b", ops.Shape{1}, ops.Zeros())
	line := tfgo.NewTensor(net.Op(), x).MatMul(w.Value()).Add(b.Value()).Output
	loss := ops.MeanSquaredError(net, y, line)
	train := must(optimizers.NewGradientDescent(0.1).Minimize(loss, g.Trainable("net/")))

	ctx := context.Background()
	sess := must(bridge.NewSession(g.TF(), bridge.Config{}))
	defer sess.Close()
	check(sess.Run(ctx, g.Init()))
	for range 200 {
		check(sess.Run(ctx, train.Op))
	}
	found := must(sess.Call(ctx, bridge.Call{Fetches: []tf.Output{w.Value(), b.Value()}}))
	defer found[0].Close()
	defer found[1].Close()
	fmt.Printf("y = %.2f x + %.2f\n", must(bridge.Item[float32](found[0])), must(bridge.Item[float32](found[1])))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
