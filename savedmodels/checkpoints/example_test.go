package checkpoints_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// line is a graph that fits w·x to 7x by Adam.
func line() (g *ops.Graph, w *ops.Variable, train *tf.Operation) {
	g = ops.NewGraph(ops.GraphOptions{Seed: 1})
	w = g.Scope("net").Variable("w", ops.Shape{}, ops.Ones())
	x, y := g.Const([]float32{1, 2}), g.Const([]float32{7, 14})
	loss := raw.Mean(g, raw.SquaredDifference(g, raw.Mul(g, w.Value(), x), y), g.Const([]int32{0}))
	step, err := optimizers.NewAdam(0.1).Minimize(loss, g.Trainable("net/"))
	if err != nil {
		log.Fatal(err)
	}
	return g, w, step.Op
}

// run trains up to a step, beginning where the folder's newest checkpoint is.
func run(dir string, until int64) {
	ctx := context.Background()
	g, w, train := line()
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close()
	saver, err := checkpoints.NewSaver(g, dir, checkpoints.SaverOptions{Keep: 2})
	if err != nil {
		log.Fatal(err)
	}
	step, report, err := saver.Restore(ctx, sess)
	switch {
	case errors.Is(err, bridge.ErrNotFound):
		fmt.Println("from the beginning")
		err = sess.Run(ctx, g.Init())
	case err == nil:
		fmt.Println("from step", step, "with", len(report.Matched), "variables")
	}
	if err != nil {
		log.Fatal(err)
	}
	for ; step < until; step++ {
		if err := sess.Run(ctx, train); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := saver.Save(ctx, sess, step, checkpoints.SaveOptions{}); err != nil {
		log.Fatal(err)
	}
	if err := saver.Close(); err != nil {
		log.Fatal(err)
	}
	out, err := sess.Call(ctx, bridge.Call{Fetches: []tf.Output{w.Value()}})
	if err != nil {
		log.Fatal(err)
	}
	defer out[0].Close()
	value, err := bridge.Item[float32](out[0])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("step %d: w = %.5f\n", until, value)
}

// A training that is interrupted after 30 steps and resumed in another session
// ends where one that was not interrupted does, bit for bit: Adam's slots and its
// count of steps are in the checkpoint.
func Example() {
	for _, steps := range [][]int64{{50}, {30, 50}} {
		dir, err := os.MkdirTemp("", "run")
		if err != nil {
			log.Fatal(err)
		}
		defer os.RemoveAll(dir)
		for _, until := range steps {
			run(dir, until)
		}
	}
	// Output:
	// from the beginning
	// step 50: w = 5.29613
	// from the beginning
	// step 30: w = 3.83924
	// from step 30 with 4 variables
	// step 50: w = 5.29613
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	run(dir, 10)
	r, err := checkpoints.Open(dir) // the newest in the folder
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	for _, e := range r.Entries() {
		fmt.Println(e)
	}
	_, err = r.Read("net/v")
	fmt.Println(errors.Is(err, bridge.ErrNotFound))
	// Output:
	// from the beginning
	// step 10: w = 1.99383
	// Adam/iteration int64 []
	// net/w float32 []
	// net/w/Adam float32 []
	// net/w/Adam_1 float32 []
	// true
}

// Transfer: the body comes from another model's checkpoint, under another name;
// the head is new.
func ExampleRestore() {
	dir, err := os.MkdirTemp("", "pretrained")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	kernel, err := bridge.FromFlat(bridge.Shape{2}, []float32{3, 4})
	if err != nil {
		log.Fatal(err)
	}
	defer kernel.Close()
	prefix := filepath.Join(dir, "body")
	if err := checkpoints.Write(prefix, map[string]*bridge.Tensor{"old/kernel": kernel, "old/unused": kernel}, checkpoints.WriteOptions{}); err != nil {
		log.Fatal(err)
	}

	g := ops.NewGraph(ops.GraphOptions{})
	g.Variable("body/kernel", ops.Shape{2}, ops.Zeros())
	g.Variable("body/extra", ops.Shape{}, ops.Zeros())
	g.Variable("head/kernel", ops.Shape{2}, ops.Zeros())
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close()
	ctx := context.Background()
	if err := sess.Run(ctx, g.Init()); err != nil {
		log.Fatal(err)
	}
	report, err := checkpoints.Restore(ctx, g, sess, prefix, checkpoints.RestoreOptions{
		Map:          map[string]string{"old/": "body/"},
		AllowMissing: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range report.Matched {
		fmt.Println(m.Variable.Name(), "from", m.Key)
	}
	fmt.Println("missing", report.Missing)
	fmt.Println("unused", report.Unused)
	// Output:
	// body/kernel from old/kernel
	// missing [body/extra]
	// unused [old/unused]
}
