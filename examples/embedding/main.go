// Command embedding learns a table by sparse updates. 1,000 clocks each have an hour in
// [0, 24), and a batch shows where the hands of 64 of them are, some twice. Only the rows that
// a batch shows are read, moved, and wrapped around modulo 24; clocks that are never shown
// keep their rows, bit for bit.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tfgo"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
)

const (
	hours  = 24
	clocks = 1000
	shown  = 500 // clocks that batches show; the others never are
	batch  = 64
)

// tables are the hours of the clocks: as they are, and as the table has them before training and after.
type tables struct{ truth, before, after []float32 }

// apart is how many hours two of them are apart, around the dial.
func apart(a, b float32) float64 {
	d := math.Mod(math.Abs(float64(a-b)), hours)
	return min(d, hours-d)
}

func train(ctx context.Context) (t tables, err error) {
	g := ops.NewGraph(ops.GraphOptions{Seed: 7})
	ids := g.Placeholder("ids", tf.Int32, ops.Shape{batch})
	hands := g.Placeholder("hands", tf.Float, ops.Shape{batch})
	s := g.Scope("clocks")
	table := s.Variable("hours", ops.Shape{clocks}, ops.Uniform(0, hours))

	// The loss is how little a hand and the table's hour point the same way: -cos of the angle.
	rows := table.Gather(s, ids)
	angle := tfgo.NewTensor(s.Op(), raw.Sub(s, rows, hands)).Mul(s.Const(float32(2 * math.Pi / hours)))
	loss := raw.Neg(s, raw.Sum(s, raw.Cos(s, angle.Output), s.Const([]int32{0})))

	// The gradient of Gather is sparse; the rule is the one that dense variables have.
	step, err := optimizers.NewFloorMod(4, hours).Minimize(loss, g.Trainable("clocks/"))
	if err != nil {
		return t, err
	}
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		return t, err
	}
	defer sess.Close()
	if err := sess.Run(ctx, g.Init()); err != nil {
		return t, err
	}
	learn, err1 := sess.Prepare(bridge.Call{Feeds: []tf.Output{ids, hands}, Targets: []*tf.Operation{step.Op}})
	read, err2 := sess.Prepare(bridge.Call{Fetches: []tf.Output{table.Value()}})
	idTensor, err3 := bridge.NewTensor(tf.Int32, ops.Shape{batch})
	handTensor, err4 := bridge.NewTensor(tf.Float, ops.Shape{batch})
	id, err5 := bridge.Flat[int32](idTensor) // views: what is written there is what is fed
	hand, err6 := bridge.Flat[float32](handTensor)
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return t, err
	}
	defer idTensor.Close()
	defer handTensor.Close()

	random := rand.New(rand.NewPCG(1, 2))
	t.truth = make([]float32, clocks)
	for i := range t.truth {
		t.truth[i] = hours * random.Float32()
	}
	if t.before, err = values(ctx, read); err != nil {
		return t, err
	}
	for range 600 {
		for i := range batch {
			clock := random.IntN(shown)
			id[i], hand[i] = int32(clock), t.truth[clock]
		}
		if err := learn.Run(ctx, []*bridge.Tensor{idTensor, handTensor}, nil); err != nil {
			return t, err
		}
	}
	t.after, err = values(ctx, read)
	return t, err
}

// values runs a step that fetches one tensor and copies what it holds.
func values(ctx context.Context, step *bridge.Step) ([]float32, error) {
	out := step.NewOutputs()
	defer out.Close()
	if err := step.Run(ctx, nil, out); err != nil {
		return nil, err
	}
	return bridge.Values[float32](out.Tensor(0))
}

func run(ctx context.Context, w io.Writer) error {
	t, err := train(ctx)
	if err != nil {
		return err
	}
	worst := func(table []float32) (hours float64) {
		for i := range shown {
			hours = max(hours, apart(table[i], t.truth[i]))
		}
		return hours
	}
	same := 0
	for i := shown; i < clocks; i++ {
		if math.Float32bits(t.before[i]) == math.Float32bits(t.after[i]) {
			same++
		}
	}
	fmt.Fprintf(w, "clocks that were shown: at most %.2f hours off, before %.2f\n", worst(t.after), worst(t.before))
	fmt.Fprintf(w, "clocks that were not: %d of %d unchanged, bit for bit\n", same, clocks-shown)
	return nil
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
