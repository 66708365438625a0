package ops_test

import (
	"fmt"
	"log"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
)

// A critic's gradient penalty, (|∂D/∂x| - 1)², and its gradient by the critic's
// weights: a gradient of a gradient.
func ExampleGradients_penalty() {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const([][]float32{{1, 2}})
	w := g.Variable("w", ops.Shape{2, 1}, ops.FromValue([][]float32{{3}, {4}}))
	critic := raw.MatMul(g, x, w.Value())

	byInput, err := ops.Gradients(g.Root(), []tf.Output{critic}, []tf.Output{x})
	if err != nil {
		log.Fatal(err)
	}
	norm := raw.EuclideanNorm(g, byInput[0].Dense, g.Const([]int32{1}))
	penalty := raw.Square(g, raw.Sub(g, norm, g.Const([]float32{1})))
	byWeights, err := ops.VariableGradients(g.Root(), []tf.Output{penalty}, []*ops.Variable{w})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(evaluate(g, penalty), evaluate(g, byWeights[0].Dense))
	// Output: [16] [4.8 6.4]
}

// The derivative of each y by each x.
func ExampleJacobian() {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const([]float32{1, 2})
	y := raw.Pack(g, []tf.Output{raw.Sum(g, x, g.Const([]int32{0})), raw.Prod(g, x, g.Const([]int32{0}))})
	j, err := ops.Jacobian(g.Root(), y, []tf.Output{x})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(evaluate(g, j[0].Dense)) // ∂(x₀+x₁) = [1 1], ∂(x₀x₁) = [x₁ x₀]
	// Output: [1 1 2 1]
}

// A product with the Hessian, which is never formed.
func ExampleHessianVectorProduct() {
	g := ops.NewGraph(ops.GraphOptions{})
	x, v := g.Const([]float32{1, 2}), g.Const([]float32{1, 0})
	y := raw.Prod(g, raw.Square(g, x), g.Const([]int32{0})) // x₀² x₁²
	hv, err := ops.HessianVectorProduct(g.Root(), []tf.Output{y}, []tf.Output{x}, []tf.Output{v})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(evaluate(g, hv[0].Dense)) // [2 x₁², 4 x₀ x₁]
	// Output: [8 8]
}

// log(1 + eˣ) with a gradient that is not NaN where eˣ is infinite.
func ExampleCustomGradient() {
	g := ops.NewGraph(ops.GraphOptions{})
	x, one := g.Const([]float32{0, 100}), g.Const(float32(1))
	y := ops.CustomGradient(g.Root(), []tf.Output{x}, func(s *ops.Scope, in []tf.Output) ([]tf.Output, ops.Backward) {
		e := raw.Exp(s, in[0])
		return []tf.Output{raw.Log1p(s, e)}, func(s *ops.Scope, grads []tf.Output) []tf.Output {
			slope := raw.Sub(s, one, raw.Reciprocal(s, raw.AddV2(s, one, e)))
			return []tf.Output{raw.Mul(s, grads[0], slope)}
		}
	})
	grads, err := ops.Gradients(g.Root(), y, []tf.Output{x})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(evaluate(g, grads[0].Dense))
	// Output: [0.5 1]
}

// Two blocks of a deep network that keep nothing for the gradient but what they
// were given.
func ExampleRecompute() {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Const([][]float32{{0.5, 0.5}})
	w := g.Variable("w", ops.Shape{2, 2}, ops.FromValue([][]float32{{1, 2}, {3, 4}}))
	h := x
	for range 2 {
		h = ops.Recompute(g.Scope("block"), func(s *ops.Scope) []tf.Output {
			return []tf.Output{raw.Relu(s, raw.MatMul(s, h, w.Value()))}
		})[0]
	}
	grads, err := ops.VariableGradients(g.Root(), []tf.Output{h}, []*ops.Variable{w})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(h.Op.Name(), evaluate(g, grads[0].Dense))
	// Output: block/Recompute_1/IdentityN [3.5 5.5 4.5 6.5]
}
