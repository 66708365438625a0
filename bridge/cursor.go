package bridge

// #include "tensorflow/c/c_api.h"
import "C"

import (
	"runtime"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// Cursor walks the operations of one graph in the order in which they were
// added, and goes on where it stopped when more have been added since. The
// zero Cursor stands before the first operation.
type Cursor struct{ pos C.size_t }

// Next returns the next operation, nil when there is none yet
// (TF_GraphNextOperation).
func (c *Cursor) Next(g *tf.Graph) *tf.Operation {
	cg := cGraph(g)
	if cg == nil {
		return nil
	}
	// At the end TensorFlow moves the position on all the same, past operations
	// that are yet to come.
	pos := c.pos
	op := wrapOp(C.TF_GraphNextOperation(cg, &pos), g)
	runtime.KeepAlive(g)
	if op != nil {
		c.pos = pos
	}
	return op
}
