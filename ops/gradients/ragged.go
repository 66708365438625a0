package gradients

import (
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// A ragged tensor is its flat values and, for each ragged dimension, where the
// rows begin (splits) or which row a value is in (row ids). Only flat values
// carry gradients.

func init() {
	Register("RaggedTensorToTensor", raggedToTensorGrad)
	// Inputs: the splits of each ragged dimension, the flat values; the sparse
	// tensor's values are those in their order.
	Register("RaggedTensorToSparse", func(c *Context) []Gradient {
		last := len(c.Inputs) - 1
		return nth(last, c.ReshapeLike(c.Grad(1), c.Input(last)))
	})
	Register("RaggedGather", raggedGatherGrad)
	Register("RaggedFillEmptyRows", func(c *Context) []Gradient { // inputs: row ids, values, number of rows, default
		values, byDefault := raw.RaggedFillEmptyRowsGrad(c, c.Output(3), c.Grad(1))
		return dense(none, values, none, byDefault)
	})

	// Into a variant and out of it again; a variant's gradient is the gradient of
	// its flat values, packed in the same way.
	Register("RaggedTensorToVariant", func(c *Context) []Gradient { // inputs: splits…, flat values
		last := len(c.Inputs) - 1
		values := c.Input(last)
		if !c.AttrBool("batched_input") && last > 0 {
			_, g := raw.RaggedTensorFromVariant(c, c.Grad(0), int64(last), int64(last), values.DataType(), splitsType(c.Inputs[:last]))
			return nth(last, c.ReshapeLike(g, values))
		}
		outer := c.Int(tf.Int64, 0) // no rows
		if last > 0 {
			outer = c.Input(0)
		}
		return nth(last, raw.RaggedTensorToVariantGradient(c, c.Grad(0), outer, c.Shape(values), values.DataType()))
	})
	Register("RaggedTensorFromVariant", func(c *Context) []Gradient { // outputs: splits…, flat values
		last := len(c.Outputs) - 1
		batched := c.AttrInt("output_ragged_rank") > 0
		if s := c.Static(c.Input(0)); s != nil {
			batched = len(s) == 1
		}
		return dense(raw.RaggedTensorToVariant(c, c.Outputs[:last], c.Grad(last), batched, splitsType(c.Outputs[:last])))
	})
	RegisterCheck("RaggedTensorFromVariant", func(op *tf.Operation) error {
		if s := bridge.ShapeOf(bridge.Input(op, 0)); len(s) > 1 {
			return fmt.Errorf("its input has %d dimensions, 0 or 1 can be differentiated", len(s))
		}
		return nil
	})
}

// splitsType is the attribute that an empty list of splits does not tell.
func splitsType(splits []tf.Output) raw.Attr {
	dt := tf.Int64
	if len(splits) > 0 && splits[0].Op != nil {
		dt = splits[0].DataType()
	}
	return raw.Attr{Name: "Tsplits", Value: dt}
}

// raggedToTensorGrad sends the same rows through once more as numbers of flat
// values, with -1 for the default: they tell where each place's gradient goes.
func raggedToTensorGrad(c *Context) []Gradient { // inputs: shape, flat values, default, row partitions…
	values, byDefault, g := c.Input(1), c.Input(2), c.Grad(0)
	partitions := c.Inputs[3:]
	kinds, err := bridge.AttrStrings(c.Op, "row_partition_types")
	if err != nil {
		c.Fail(err)
		return nil
	}
	ragged := int64(0)
	for _, kind := range kinds {
		if kind != "FIRST_DIM_SIZE" {
			ragged++
		}
	}
	numbers := raw.Range(c, c.Int(tf.Int32, 0), c.Dim(c.Shape(values), 0), c.Int(tf.Int32, 1))
	from := raw.RaggedTensorToTensor(c, c.Part(c.Shape(g), 0, 1+ragged), numbers, c.Int(tf.Int32, -1), partitions, kinds)
	isDefault := c.Equals(from, -1)
	grads := make([]Gradient, 3)
	if c.Wants(1) {
		places := raw.Where(c, raw.LogicalNot(c, isDefault))
		grads[1].Slices = &IndexedSlices{
			Values: raw.GatherNd(c, g, places), Indices: raw.GatherNd(c, from, places), DenseShape: c.Shape(values)}
	}
	if c.Wants(2) {
		grads[2].Dense = c.reduceTo(raw.GatherNd(c, g, raw.Where(c, isDefault)), byDefault, nil)
	}
	return grads
}

// raggedGatherGrad: gathered rows are runs of flat values.
func raggedGatherGrad(c *Context) []Gradient { // inputs: splits…, flat values, indices; outputs: splits…, flat values
	last := len(c.Inputs) - 2
	values, indices := c.Input(last), c.Flat(c.Input(last+1))
	begin := c.Input(0) // of each outermost row, in the flat values
	for _, splits := range c.Inputs[1:last] {
		begin = takeRows(c, splits, begin)
	}
	one := func(like tf.Output) tf.Output { return c.NumberLike(1, like) }
	_, from := raw.RaggedRange(c, takeRows(c, begin, indices), takeRows(c, begin, c.Plus(indices, one(indices))), one(begin))
	grads := make([]Gradient, last+1)
	grads[last].Slices = &IndexedSlices{Values: c.Grad(len(c.Outputs) - 1), Indices: from, DenseShape: c.Shape(values)}
	return grads
}
