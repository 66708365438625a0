package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tensorflow/tensorflow/go/op"
	"github.com/sluice-ml/sluice/bridge"
)

// double is a graph of the binding's: y = x + x for x of float32 [?].
func double() (g *tf.Graph, x, y tf.Output) {
	s := op.NewScope()
	x = op.Placeholder(s, tf.Float, op.PlaceholderShape(tf.MakeShape(-1)))
	y = op.Add(s, x, x)
	g, err := s.Finalize()
	if err != nil {
		log.Fatal(err)
	}
	return g, x, y
}

// What runs often is prepared once, and its outputs are reused.
func Example() {
	g, x, y := double()
	sess, err := bridge.NewSession(g, bridge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close()
	step, err := sess.Prepare(bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{y}})
	if err != nil {
		log.Fatal(err)
	}
	out := step.NewOutputs()
	defer out.Close()

	in, err := bridge.NewTensor(tf.Float, bridge.Shape{2})
	if err != nil {
		log.Fatal(err)
	}
	defer in.Close()
	batch, err := bridge.Flat[float32](in) // a view: filling it is feeding it
	if err != nil {
		log.Fatal(err)
	}
	for i := range 3 {
		batch[0], batch[1] = float32(i), 0.5
		if err := step.Run(context.Background(), []*bridge.Tensor{in}, out); err != nil {
			log.Fatal(err)
		}
		result, err := bridge.Flat[float32](out.Tensor(0))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(out.Tensor(0), result)
	}
	// Output:
	// float32 [2] [0 1]
	// float32 [2] [2 1]
	// float32 [2] [4 1]
}

// Call is for the run that is made once.
func ExampleSession_Call() {
	g, x, y := double()
	sess, err := bridge.NewSession(g, bridge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close()
	in, err := bridge.FromFlat(bridge.Shape{3}, []float32{1, 2, 3})
	if err != nil {
		log.Fatal(err)
	}
	defer in.Close()
	got, err := sess.Call(context.Background(), bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{y}}, in)
	if err != nil {
		log.Fatal(err)
	}
	defer got[0].Close()
	fmt.Println(bridge.Values[float32](got[0]))
	// Output: [2 4 6] <nil>
}

// What does not fit is named before anything runs.
func ExampleStep_Run_feeds() {
	g, x, y := double()
	sess, err := bridge.NewSession(g, bridge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close()
	in, err := bridge.FromFlat(bridge.Shape{3}, []int32{1, 2, 3})
	if err != nil {
		log.Fatal(err)
	}
	defer in.Close()
	_, err = sess.Call(context.Background(), bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{y}}, in)
	fmt.Println(err)
	fmt.Println(errors.Is(err, bridge.ErrInvalidArgument))
	// Output:
	// Run: feed Placeholder:0: wanted float32 [?], got int32 [3] (INVALID_ARGUMENT)
	// true
}

// A run under a deadline returns in time, and the session stays good.
func ExampleStep_Run_deadline() {
	s := op.NewScope()
	queue := op.FIFOQueueV2(s, []tf.DataType{tf.Float})
	never := op.QueueDequeueV2(s, queue, []tf.DataType{tf.Float})
	g, err := s.Finalize()
	if err != nil {
		log.Fatal(err)
	}
	sess, err := bridge.NewSession(g, bridge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err = sess.Run(ctx, never[0].Op)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output: true
}

// Into memory of the caller's, without a copy that Go would have to free.
func ExampleBind() {
	g, x, y := double()
	sess, err := bridge.NewSession(g, bridge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close()
	step, err := sess.Prepare(bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{y}})
	if err != nil {
		log.Fatal(err)
	}
	out := step.NewOutputs()
	defer out.Close()
	result := make([]float32, 2)
	if err := bridge.Bind(out, 0, result); err != nil {
		log.Fatal(err)
	}
	in, err := bridge.FromFlat(bridge.Shape{2}, []float32{20, 21})
	if err != nil {
		log.Fatal(err)
	}
	defer in.Close()
	if err := step.Run(context.Background(), []*bridge.Tensor{in}, out); err != nil {
		log.Fatal(err)
	}
	fmt.Println(result)
	// Output: [40 42]
}

func ExampleFromStrings() {
	t, err := bridge.FromStrings(bridge.Shape{2}, []string{"bytes of any kind", "\x00"})
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	all, err := t.Strings()
	fmt.Printf("%v %q %v\n", t, all, err)
	// Output: string [2] ["bytes of any kind" "\x00"] <nil>
}
