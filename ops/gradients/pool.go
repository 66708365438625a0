package gradients

import (
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

func init() {
	window := []string{"ksize", "strides", "padding", "data_format"}
	explicit := append(append([]string{}, window...), "explicit_paddings")

	// The mean of a window is linear: its gradient's gradient is the mean again.
	for _, name := range []string{"AvgPool", "AvgPool3D"} {
		Register(name, func(c *Context) []Gradient {
			return dense(firstOf(c.sibling(name+"Grad", window, c.Shape(c.Input(0)), c.Grad(0))))
		})
		Register(name+"Grad", func(c *Context) []Gradient { // inputs: shape of x, gradient
			return dense(none, firstOf(c.sibling(name, window, c.Grad(0))))
		})
	}

	// The maximum of a window passes its gradient to where it was found, in
	// the gradient's gradient back again; by x and y those are zero.
	maxima := []struct {
		op, grad, gradGrad string
		attrs              []string // of op and grad
		extra              int      // inputs after x: ksize and strides
	}{
		{"MaxPool", "MaxPoolGrad", "MaxPoolGradGrad", explicit, 0},
		{"MaxPoolV2", "MaxPoolGradV2", "MaxPoolGradGradV2", []string{"padding", "data_format"}, 2},
		{"MaxPool3D", "MaxPool3DGrad", "MaxPool3DGradGrad", window, 0},
	}
	for _, m := range maxima {
		last := window
		if m.extra > 0 {
			last = m.attrs
		}
		Register(m.op, func(c *Context) []Gradient {
			in := append([]tf.Output{c.Input(0), c.Output(0), c.Grad(0)}, c.Inputs[1:]...)
			return dense(firstOf(c.sibling(m.grad, m.attrs, in...)))
		})
		again := func(opType string) Func { // inputs: x, y, gradient, ksize, strides
			return func(c *Context) []Gradient {
				in := append([]tf.Output{c.Input(0), c.Input(1), c.Grad(0)}, c.Inputs[3:]...)
				return dense(c.ZerosLike(c.Input(0)), c.ZerosLike(c.Input(1)), firstOf(c.sibling(opType, last, in...)))
			}
		}
		Register(m.grad, again(m.gradGrad))
		if m.extra == 0 {
			Register(m.gradGrad, again(m.grad))
		}
	}
	RegisterCheck("MaxPoolGrad", func(op *tf.Operation) error {
		if padding, err := bridge.AttrString(op, "padding"); err == nil && padding == "EXPLICIT" {
			return fmt.Errorf("TensorFlow has no kernel for the second derivative under EXPLICIT padding; pad first")
		}
		return nil
	})
	Register("MaxPoolWithArgmax", func(c *Context) []Gradient {
		return dense(firstOf(c.sibling("MaxPoolGradWithArgmax",
			[]string{"ksize", "strides", "padding", "include_batch_in_index"}, c.Input(0), c.Grad(0), c.Output(1))))
	})
	// The second and third output say where the pooling regions begin.
	Register("FractionalMaxPool", func(c *Context) []Gradient {
		return dense(raw.FractionalMaxPoolGrad(c, c.Input(0), c.Output(0), c.Grad(0), c.Output(1), c.Output(2),
			raw.WithOverlapping(c.AttrBool("overlapping"))))
	})
	Register("FractionalAvgPool", func(c *Context) []Gradient {
		return dense(raw.FractionalAvgPoolGrad(c, c.ShapeAs(c.Input(0), tf.Int64), c.Grad(0), c.Output(1), c.Output(2),
			raw.WithOverlapping(c.AttrBool("overlapping"))))
	})
}
