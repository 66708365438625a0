package optimizers_test

import (
	"fmt"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
)

// One step of training an MLP of 20 variables, width 64, batch 32, without
// fetches. What a rule costs is the difference to gradient descent.
func BenchmarkStep(b *testing.B) {
	for name, optimizer := range map[string]func() trainer{
		"gradient descent": func() trainer { return optimizers.NewGradientDescent(.01) },
		"floormod":         func() trainer { return optimizers.NewFloorMod(.01, 6.283185307) },
		"formula":          func() trainer { return rated(descent(), .01) },
		"adam":             func() trainer { return optimizers.NewAdam(.001) },
	} {
		b.Run(name, func(b *testing.B) {
			g := ops.NewGraph(ops.GraphOptions{Seed: 1})
			s := g.Root()
			h := ops.Const(s, ops.Shape{32, 64}, make([]float32, 32*64))
			for i := range 10 {
				layer := g.Scope(fmt.Sprintf("layer%d", i))
				w := layer.Variable("w", ops.Shape{64, 64}, ops.GlorotUniform())
				bias := layer.Variable("b", ops.Shape{64}, ops.Ones())
				h = raw.Relu(layer, raw.BiasAdd(layer, raw.MatMul(layer, h, w.Value()), bias.Value()))
			}
			loss := sum(s, raw.Square(s, h))
			train, err := optimizer().Minimize(loss, g.Trainable())
			if err != nil {
				b.Fatal(err)
			}
			sess, err := bridge.NewSession(g.TF(), bridge.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer sess.Close()
			if err := sess.Run(b.Context(), g.Init()); err != nil {
				b.Fatal(err)
			}
			step, err := sess.Prepare(bridge.Call{Targets: []*tf.Operation{train.Op}})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := step.Run(b.Context(), nil, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
