package savedmodels_test

import (
	"context"
	"fmt"
	"path/filepath"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/savedmodels"
)

// A model of y = x·w is trained towards a goal, and written as it was, with the new w.
func ExampleFineTune() {
	dir, remove := tunableModel()
	defer remove()
	ctx := context.Background()
	var x, goal tf.Output
	var train *optimizers.TrainOp
	m, err := savedmodels.FineTune(ctx, dir, savedmodels.TuneOptions{Build: func(t *savedmodels.Tuned) error {
		y, err := t.Output("serving_default", "y")
		if err != nil {
			return err
		}
		if x, err = t.Input("serving_default", "x"); err != nil {
			return err
		}
		goal = t.Ops().Placeholder("goal", tf.Float, ops.Shape{-1, 1})
		loss := ops.MeanSquaredError(t.Ops().Root(), goal, y)
		train, err = optimizers.NewGradientDescent(0.25).Minimize(loss, t.Ops().Trainable("net/"))
		return err
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	in, _ := bridge.FromFlat(bridge.Shape{1, 1}, []float32{1})
	defer in.Close()
	want, _ := bridge.FromFlat(bridge.Shape{1, 1}, []float32{8})
	defer want.Close()
	call := bridge.Call{Feeds: []tf.Output{x, goal}, Targets: []*tf.Operation{train.Op}}
	for range 40 {
		if _, err := m.Session().Call(ctx, call, in, want); err != nil {
			fmt.Println(err)
			return
		}
	}
	tuned := filepath.Join(filepath.Dir(dir), "2")
	if err := m.SaveBack(ctx, tuned, savedmodels.SaveBackOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	again, err := savedmodels.Load(tuned, savedmodels.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer again.Close()
	out, err := again.Run(ctx, "", savedmodels.Tensors{"x": in})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer out.Close()
	y, _ := bridge.Item[float32](out["y"])
	fmt.Printf("%.3f\n", y)
	// Output: 8.000
}
