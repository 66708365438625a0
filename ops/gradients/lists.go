package gradients

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops/raw"
)

// TensorLists are what loops keep their values in. The gradient of a list is a
// list of the same length that holds the gradients of its elements: whatever
// puts a tensor into a list takes its gradient out of the list's, and the other
// way round.

func init() {
	Register("TensorListPushBack", func(c *Context) []Gradient {
		item := c.Input(1)
		list, gradient := raw.TensorListPopBack(c, c.Grad(0), c.Shape(item), item.DataType())
		return dense(list, gradient)
	})
	Register("TensorListPopBack", func(c *Context) []Gradient { // outputs: the shorter list, the element
		return dense(raw.TensorListPushBack(c, c.Grad(0), c.Grad(1)))
	})
	Register("TensorListStack", func(c *Context) []Gradient {
		g := c.Grad(0)
		return dense(raw.TensorListFromTensor(c, g, c.Part(c.Shape(g), 1, 0)))
	})
	Register("TensorListFromTensor", func(c *Context) []Gradient {
		x := c.Input(0)
		n := int64(-1)
		if s := c.Static(x); len(s) > 0 {
			n = s[0]
		}
		return dense(raw.TensorListStack(c, c.Grad(0), c.Part(c.Shape(x), 1, 0), x.DataType(), raw.WithNumElements(n)))
	})
	for _, name := range []string{"TensorListConcat", "TensorListConcatV2"} {
		Register(name, func(c *Context) []Gradient { // outputs: the tensor, the lengths of its parts
			return dense(raw.TensorListSplit(c, c.Grad(0), c.elementShape(c.Input(0)), c.Output(1)))
		})
	}
	Register("TensorListSplit", func(c *Context) []Gradient { // inputs: tensor, element shape, lengths
		x := c.Input(0)
		shape := c.Join(c.Ints(tf.Int32, -1), c.Part(c.Shape(x), 1, 0))
		whole, _ := raw.TensorListConcatV2(c, c.Grad(0), shape, c.Input(2), x.DataType())
		return dense(whole)
	})
	Register("TensorListGetItem", func(c *Context) []Gradient { // inputs: list, index, element shape
		g := c.Grad(0)
		return dense(raw.TensorListSetItem(c, c.zeroList(c.Input(0), g.DataType()), c.Input(1), g))
	})
	Register("TensorListSetItem", func(c *Context) []Gradient { // inputs: list, index, item
		g, index, item := c.Grad(0), c.Input(1), c.Input(2)
		rest := raw.TensorListSetItem(c, g, index, c.ZerosLike(item))
		if c.AttrBool("resize_if_index_out_of_bounds") {
			rest = raw.TensorListResize(c, rest, raw.TensorListLength(c, c.Input(0)))
		}
		return dense(rest, none, raw.TensorListGetItem(c, g, index, c.Shape(item), item.DataType()))
	})
	Register("TensorListResize", func(c *Context) []Gradient {
		return dense(raw.TensorListResize(c, c.Grad(0), raw.TensorListLength(c, c.Input(0))))
	})
	Register("TensorListGather", func(c *Context) []Gradient { // inputs: list, indices, element shape
		g := c.Grad(0)
		return dense(raw.TensorListScatterIntoExistingList(c, c.zeroList(c.Input(0), g.DataType()), g, c.Input(1)))
	})
	gathered := func(c *Context, x, indices tf.Output) tf.Output {
		return raw.TensorListGather(c, c.Grad(0), indices, c.Part(c.Shape(x), 1, 0), x.DataType())
	}
	for _, name := range []string{"TensorListScatter", "TensorListScatterV2"} {
		Register(name, func(c *Context) []Gradient { return dense(gathered(c, c.Input(0), c.Input(1))) })
	}
	Register("TensorListScatterIntoExistingList", func(c *Context) []Gradient { // inputs: list, tensor, indices
		x, indices := c.Input(1), c.Input(2)
		rest := raw.TensorListScatterIntoExistingList(c, c.Grad(0), c.ZerosLike(x), indices)
		return dense(rest, gathered(c, x, indices))
	})
}

// elementShape is the shape that a list's elements share, with -1 for what is
// not known of it.
func (c *Context) elementShape(list tf.Output) tf.Output {
	return raw.TensorListElementShape(c, list, tf.Int32)
}

// zeroList is a list of the length of another one whose elements are zeros
// until they are set.
func (c *Context) zeroList(like tf.Output, dt tf.DataType) tf.Output {
	return raw.TensorListReserve(c, c.elementShape(like), raw.TensorListLength(c, like), dt)
}
