package ops_test

import (
	"context"
	"fmt"
	"log"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tfgo"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// evaluate runs g's initializers and returns a tensor's elements.
func evaluate(g *ops.Graph, out tf.Output) []float32 {
	init := g.Init()
	if err := g.Err(); err != nil {
		log.Fatal(err)
	}
	s, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	if err := s.Run(ctx, init); err != nil {
		log.Fatal(err)
	}
	results, err := s.Call(ctx, bridge.Call{Fetches: []tf.Output{out}})
	if err != nil {
		log.Fatal(err)
	}
	defer results[0].Close()
	values, err := bridge.ToFloat32(results[0])
	if err != nil {
		log.Fatal(err)
	}
	return values
}

// A layer written with ops/raw, in a scope.
func Example() {
	g := ops.NewGraph(ops.GraphOptions{Seed: 7})
	x := g.Const([][]float32{{1, 2, 3}})
	net := g.Scope("net")
	w := net.Variable("w", ops.Shape{3, 2}, ops.Value(0.5))
	b := net.Variable("b", ops.Shape{2}, ops.FromValue([]float32{10, 20}))
	y := raw.BiasAdd(net, raw.MatMul(net, x, w.Value()), b.Value())
	fmt.Println(y.Op.Name(), evaluate(g, y))
	// Output: net/BiasAdd [13 23]
}

// tfgo on the same graph, in the same scope.
func ExampleScope_Op() {
	g := ops.NewGraph(ops.GraphOptions{})
	net := g.Scope("net")
	w := net.Variable("w", ops.Shape{2, 1}, ops.Ones())
	x := g.Const([][]float32{{3, 4}})
	y := tfgo.NewTensor(net.Op(), x).Square().MatMul(w.Value()).Output
	fmt.Println(evaluate(g, y))
	// Output: [25]
}

// The first error sticks, and names the line that caused it.
func ExampleGraph_Err() {
	g := ops.NewGraph(ops.GraphOptions{})
	a := g.Const([]float32{1, 2})
	b := g.Const([]float32{1, 2, 3})
	sum := raw.AddV2(g, a, b) // the shapes do not fit
	raw.Square(g, sum)        // adds nothing
	fmt.Println(g.Err())
	// Output: ops/example_test.go:71: AddV2: Dimensions must be equal, but are 2 and 3 with input shapes: [2], [3]. (INVALID_ARGUMENT)
}

// A panic of tfgo becomes an error.
func ExampleGraph_Build() {
	g := ops.NewGraph(ops.GraphOptions{})
	err := g.Build(func() error {
		x := tfgo.NewTensor(g.Op(), g.Const([]float32{1, 2}))
		x.MatMul(g.Const([]float32{3, 4})) // vectors, not matrices
		return nil
	})
	fmt.Println(err != nil)
	// Output: true
}

// The two ways to take part of a model: safe paths, and Python's expressions.
func ExampleGraph_Trainable() {
	g := ops.NewGraph(ops.GraphOptions{})
	for _, name := range []string{"net/w", "net/b", "network/w"} {
		g.Variable(name, ops.Shape{}, ops.Zeros())
	}
	for _, v := range g.Trainable("net") {
		fmt.Println(v.Name())
	}
	matched, _ := g.Collection(ops.TrainableVariables, "net") // as in Python
	fmt.Println(len(matched))
	// Output:
	// net/w
	// net/b
	// 3
}

// A gate lets x through unchanged and multiplies its gradient.
func ExampleGate() {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const([]float32{1, 2, 3})
	open := g.Const([]float32{1, 0, 0.5}) // by row; a placeholder or a schedule as well
	y := ops.Gate(g.Root(), open, x)
	loss := raw.Sum(g, raw.Square(g, y), g.Const(int32(0)))
	grads, err := ops.Gradients(g.Root(), []tf.Output{loss}, []tf.Output{x})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(evaluate(g, y), evaluate(g, grads[0].Dense))
	// Output: [1 2 3] [2 0 3]
}

// Arithmetic as methods.
func ExampleFormula() {
	g := ops.NewGraph(ops.GraphOptions{})
	f := ops.NewFormula(g.Root(), tf.Float)
	w, grad := g.Const([]float32{0.5, 6}), g.Const([]float32{10, -10})
	step := f.Sub(w, f.Mul(f.Constant(0.1), grad))
	fmt.Println(evaluate(g, f.FloorMod(step, f.Constant(5))))
	// Output: [4.5 2]
}

// A loss with a weight for each sample.
func ExampleMeanSquaredError() {
	g := ops.NewGraph(ops.GraphOptions{})
	labels := g.Const([][]float32{{1}, {2}})
	predictions := g.Const([][]float32{{2}, {5}})
	loss := ops.MeanSquaredError(g.Root(), labels, predictions, ops.LossOptions{Weights: g.Const([]float32{1, 0.5})})
	fmt.Println(evaluate(g, loss)) // (1·1 + 0.5·9) / 2
	// Output: [2.75]
}

// A variable whose initial value is made from another one.
func ExampleFromOutput() {
	g := ops.NewGraph(ops.GraphOptions{})
	w := g.Variable("w", ops.Shape{2}, ops.Value(3))
	shadow := g.Variable("shadow", ops.Shape{2}, ops.FromOutput(raw.Neg(g, w.Value())),
		ops.VariableOptions{NonTrainable: true})
	fmt.Println(evaluate(g, shadow.Value()))
	// Output: [-3 -3]
}
