package gradients

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops/raw"
)

// Complex numbers and conversions between number types. The gradient of a real
// loss by a complex z is ∂/∂Re(z) + i·∂/∂Im(z).
func init() {
	// complexOf is re + i·im in the dtype of like.
	complexOf := func(c *Context, re, im, like tf.Output) tf.Output {
		if like.Op == nil {
			return like
		}
		return raw.Complex(c, re, im, raw.WithTout(like.DataType()))
	}
	Register("Real", func(c *Context) []Gradient {
		g := c.Grad(0)
		return dense(complexOf(c, g, c.NumberLike(0, g), c.Input(0)))
	})
	Register("Imag", func(c *Context) []Gradient {
		g := c.Grad(0)
		return dense(complexOf(c, c.NumberLike(0, g), g, c.Input(0)))
	})
	Register("Conj", func(c *Context) []Gradient { return dense(c.Conj(c.Grad(0))) })
	// -g / (Im(x) + i Re(x))
	Register("Angle", func(c *Context) []Gradient {
		x, g := c.Input(0), c.Grad(0)
		dt := raw.WithTout(g.DataType())
		z := c.Inverse(complexOf(c, raw.Imag(c, x, dt), raw.Real(c, x, dt), x))
		return dense(c.Mul(c.Neg(complexOf(c, g, c.NumberLike(0, g), x)), z))
	})
	// g x/|x|, 0 at 0
	Register("ComplexAbs", func(c *Context) []Gradient {
		x, y, g := c.Input(0), c.Output(0), c.Grad(0)
		zero := c.NumberLike(0, g)
		return dense(raw.DivNoNan(c, c.Mul(complexOf(c, g, zero, x), x), complexOf(c, y, zero, x)))
	})

	// Integers carry no gradient, so only conversions among real and complex
	// floating types are ever asked.
	Register("Cast", func(c *Context) []Gradient {
		x := c.Input(0)
		if !Differentiable(x.DataType()) {
			return nil
		}
		return []Gradient{c.Grads[0].Map(func(g tf.Output) tf.Output { return c.Cast(g, x.DataType()) })}
	})
}
