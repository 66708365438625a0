package raw_test

import (
	"context"
	"fmt"
	"log"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Any Builder will do; ops.Scope is the one with names, devices and errors that
// tell the line.
func Example() {
	b := newBuilder()
	x := raw.Placeholder(b, tf.Float, raw.WithShape(bridge.Shape{-1, 2}), raw.WithName("x"))
	squares := raw.MatMul(b, x, x, raw.WithTransposeB(true))
	norm := raw.Sqrt(b, raw.MatrixDiagPart(b, squares))
	if b.err != nil {
		log.Fatal(b.err)
	}

	session, err := bridge.NewSession(b.g, bridge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	points, err := bridge.FromFlat(bridge.Shape{2, 2}, []float32{3, 4, 5, 12})
	if err != nil {
		log.Fatal(err)
	}
	defer points.Close()
	out, err := session.Call(context.Background(), bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{norm}}, points)
	if err != nil {
		log.Fatal(err)
	}
	defer out[0].Close()
	lengths, err := bridge.Flat[float32](out[0])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bridge.ShapeOf(squares), lengths)
	// Output: [?,?] [5 13]
}
