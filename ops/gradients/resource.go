package gradients

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Resource variables: the gradient of what is read from a variable is the
// gradient of its handle.
func init() {
	Register("ReadVariableOp", func(c *Context) []Gradient { return c.Grads })
	Register("ResourceGather", func(c *Context) []Gradient {
		handle, indices, g := c.Input(0), c.Input(1), c.Grad(0)
		shape := c.VariableShape(handle, tf.Int32)
		if batch := c.AttrInt("batch_dims"); batch > 0 {
			return dense(gatherGrad(c, g, indices, shape, c.Int(tf.Int32, batch), batch))
		}
		return []Gradient{rows(c, g, indices, shape)}
	})
	Register("ResourceGatherNd", func(c *Context) []Gradient {
		handle, indices := c.Input(0), c.Input(1)
		return []Gradient{gatherNdGrad(c, c.Grad(0), indices, c.VariableShape(handle, indices.DataType()))}
	})
}

// VariableShape is the shape of the variable behind a handle, as a vector of
// int32 or int64; a constant where the variable was made with a known shape.
func (c *Context) VariableShape(handle tf.Output, dt tf.DataType) tf.Output {
	if handle.Op == nil {
		return handle
	}
	if _, shape, ok := variable(handle); ok && shape.FullyDefined() {
		return c.Ints(dt, shape...)
	}
	return raw.VariableShape(c, handle, raw.WithOutType(dt))
}

// variable finds the dtype and shape that a variable was made with.
func variable(handle tf.Output) (dt tf.DataType, shape bridge.Shape, ok bool) {
	for handle.Op != nil && handle.Op.Type() == "Identity" {
		handle = bridge.Input(handle.Op, 0)
	}
	if handle.Op == nil || handle.Op.Type() != "VarHandleOp" {
		return 0, nil, false
	}
	dt, err := bridge.AttrType(handle.Op, "dtype")
	if err != nil {
		return 0, nil, false
	}
	shape, err = bridge.AttrShape(handle.Op, "shape")
	return dt, shape, err == nil
}
