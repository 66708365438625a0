package gradients

import (
	"errors"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// TensorArrays are the lists of graphs made before TensorLists. Each has a
// handle and a float scalar, the flow, which says what must have happened to
// the array before. In a graph of gradients every array has a second one beside
// it that holds the gradients of its elements: what read an element writes its
// gradient there (gradients of several reads are summed), what wrote one reads
// it there. The gradient of a flow is the flow of that second array.

func init() {
	Register("TensorArrayReadV3", func(c *Context) []Gradient { // inputs: handle, index, flow
		grads, flow := c.gradientArray(c.Input(0), c.Input(2))
		return nth(2, raw.TensorArrayWriteV3(c, grads, c.Input(1), c.Grad(0), flow))
	})
	Register("TensorArrayWriteV3", func(c *Context) []Gradient { // inputs: handle, index, value, flow
		grads, flow := c.gradientArray(c.Input(0), c.afterWrite())
		return dense(none, none, raw.TensorArrayReadV3(c, grads, c.Input(1), flow, c.AttrType("T")), c.Grad(0))
	})
	Register("TensorArrayGatherV3", func(c *Context) []Gradient { // inputs: handle, indices, flow
		grads, flow := c.gradientArray(c.Input(0), c.Input(2))
		return nth(2, raw.TensorArrayScatterV3(c, grads, c.Input(1), c.Grad(0), flow))
	})
	Register("TensorArrayScatterV3", func(c *Context) []Gradient { // inputs: handle, indices, value, flow
		grads, flow := c.gradientArray(c.Input(0), c.afterWrite())
		var element bridge.Shape
		if s := c.Static(c.Input(2)); len(s) > 0 {
			element = s[1:]
		}
		return dense(none, none, raw.TensorArrayGatherV3(c, grads, c.Input(1), flow, c.AttrType("T"), raw.WithElementShape(element)), c.Grad(0))
	})
	Register("TensorArrayConcatV3", func(c *Context) []Gradient { // inputs: handle, flow; outputs: value, lengths
		grads, flow := c.gradientArray(c.Input(0), c.Input(1))
		return nth(1, raw.TensorArraySplitV3(c, grads, c.Grad(0), c.Output(1), flow))
	})
	Register("TensorArraySplitV3", func(c *Context) []Gradient { // inputs: handle, value, lengths, flow
		grads, flow := c.gradientArray(c.Input(0), c.afterWrite())
		value, _ := raw.TensorArrayConcatV3(c, grads, flow, c.AttrType("T"))
		return dense(none, value, none, c.Grad(0))
	})
	for _, name := range []string{"Read", "Write", "Gather", "Scatter", "Concat", "Split"} {
		RegisterCheck("TensorArray"+name+"V3", ofValues)
	}

	// The one operation on handles of strings that graphs can still hold. The
	// arrays themselves can't be made since version 26, and there is no array
	// for its gradient.
	Register("TensorArrayConcatV2", func(*Context) []Gradient { return nil })
	RegisterCheck("TensorArrayConcatV2", func(*tf.Operation) error {
		return errors.New("its array can't be made in a graph of today, in TensorFlow neither; use TensorArrayConcatV3")
	})
}

// ofValues refuses what reads or writes gradients: TensorFlow's kernels keep one
// array beside another, and none beside that one.
func ofValues(op *tf.Operation) error {
	switch handle := bridge.Input(op, 0); handle.Op.Type() {
	case "TensorArrayGradV3", "TensorArrayGradWithShape":
		return errors.New("TensorFlow's TensorArrays have no second gradient; TensorLists do")
	}
	return nil
}

// gradientArray is the array of the gradients of another one's elements, and
// the flow that orders what is done to it. All of one computation share it.
// The forward array has its final size once flow is there.
func (c *Context) gradientArray(handle, flow tf.Output) (grads, ordered tf.Output) {
	if c.shared.source == "" {
		// Two computations on one graph must not add to the same array. The
		// number of nodes differs between them, since each has added some.
		c.shared.source = fmt.Sprintf("gradients@%d", bridge.NumOperations(c.TF()))
	}
	grads, _ = raw.TensorArrayGradV3(c, handle, flow, c.shared.source)
	// Not the operation's own flow, which has no gradient.
	return grads, raw.Identity(c, flow, raw.WithControl(grads.Op), raw.WithName("gradient_flow"))
}

// afterWrite is the gradient of the flow out of a write, once that write is done.
func (c *Context) afterWrite() tf.Output {
	return raw.Identity(c, c.Grad(0), raw.WithControl(c.Op), raw.WithName("write_barrier"))
}
