package savedmodels_test

import (
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/savedmodels"
)

// BenchmarkRun is a small model's Run beside the bare step, the least that it can
// take.
func BenchmarkRun(b *testing.B) {
	m := load(b, linear(b, 1).write(), savedmodels.Options{})
	x := floats(b, bridge.Shape{1, 2}, 1, 2)
	b.Run("model", func(b *testing.B) {
		in := savedmodels.Tensors{"x": x}
		for b.Loop() {
			out, err := m.Run(b.Context(), "serving_default", in)
			if err != nil {
				b.Fatal(err)
			}
			out.Close()
		}
	})
	b.Run("step", func(b *testing.B) {
		feed, fetch := must(m.Tensor("x:0"))(b), must(m.Tensor("MatMul:0"))(b)
		step := must(m.Session().Prepare(bridge.Call{Feeds: []tf.Output{feed}, Fetches: []tf.Output{fetch}}))(b)
		out := step.NewOutputs()
		defer out.Close()
		in := []*bridge.Tensor{x}
		for b.Loop() {
			if err := step.Run(b.Context(), in, out); err != nil {
				b.Fatal(err)
			}
		}
	})
}
