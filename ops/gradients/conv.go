package gradients

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// convolution is a family of three operations that are each other's gradients:
// y = Forward(x, w), the gradient by x and the gradient by w.
type convolution struct {
	forward, byInput, byFilter string
	attrs                      []string // which all three share
}

var convolutions = []convolution{
	{"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter",
		[]string{"strides", "padding", "explicit_paddings", "use_cudnn_on_gpu", "data_format", "dilations"}},
	{"DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter",
		[]string{"strides", "padding", "explicit_paddings", "data_format", "dilations"}},
	{"Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2",
		[]string{"strides", "padding", "data_format", "dilations"}},
}

func init() {
	for _, f := range convolutions {
		// All three are linear in both operands, so the gradient by one
		// operand is the member of the family that yields its shape.
		y := func(c *Context, x, w tf.Output) tf.Output { return firstOf(c.sibling(f.forward, f.attrs, x, w)) }
		x := func(c *Context, like, w, g tf.Output) tf.Output {
			return firstOf(c.sibling(f.byInput, f.attrs, c.Shape(like), w, g))
		}
		w := func(c *Context, x, like, g tf.Output) tf.Output {
			return firstOf(c.sibling(f.byFilter, f.attrs, x, c.Shape(like), g))
		}
		Register(f.forward, func(c *Context) []Gradient {
			grads := make([]Gradient, 2)
			if c.Wants(0) {
				grads[0].Dense = x(c, c.Input(0), c.Input(1), c.Grad(0))
			}
			if c.Wants(1) {
				grads[1].Dense = w(c, c.Input(0), c.Input(1), c.Grad(0))
			}
			return grads
		})
		Register(f.byInput, func(c *Context) []Gradient { // inputs: shape of x, w, g
			return dense(none,
				w(c, c.Grad(0), c.Input(1), c.Input(2)),
				y(c, c.Grad(0), c.Input(1)))
		})
		Register(f.byFilter, func(c *Context) []Gradient { // inputs: x, shape of w, g
			return dense(
				x(c, c.Input(0), c.Grad(0), c.Input(2)),
				none,
				y(c, c.Input(0), c.Grad(0)))
		})
	}
	Register("Dilation2D", func(c *Context) []Gradient {
		attrs := []string{"strides", "rates", "padding"}
		return dense(
			firstOf(c.sibling("Dilation2DBackpropInput", attrs, c.Input(0), c.Input(1), c.Grad(0))),
			firstOf(c.sibling("Dilation2DBackpropFilter", attrs, c.Input(0), c.Input(1), c.Grad(0))))
	})
}

// firstOf is output 0, the zero Output of a nil operation.
func firstOf(op *tf.Operation) tf.Output { return at(bridge.OutputsOf(op), 0) }
