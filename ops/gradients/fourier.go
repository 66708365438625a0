package gradients

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops/raw"
)

type transform func(b raw.Builder, input tf.Output, attrs ...raw.Attr) tf.Output

func init() {
	pairs := []struct {
		forward, backward string
		fft, ifft         transform
		rank              int64
	}{
		{"FFT", "IFFT", raw.FFT, raw.IFFT, 1},
		{"FFT2D", "IFFT2D", raw.FFT2D, raw.IFFT2D, 2},
		{"FFT3D", "IFFT3D", raw.FFT3D, raw.IFFT3D, 3},
	}
	for _, p := range pairs {
		// The adjoint of a transform of N elements is N times its inverse.
		Register(p.forward, func(c *Context) []Gradient {
			g := c.Grad(0)
			return dense(c.Mul(p.ifft(c, g), c.transformSize(g, p.rank, g.DataType())))
		})
		Register(p.backward, func(c *Context) []Gradient {
			g := c.Grad(0)
			return dense(c.Div(p.fft(c, g), c.transformSize(g, p.rank, g.DataType())))
		})
	}
	Register("RFFT", func(c *Context) []Gradient { return realTransformGrad(c, raw.IFFT, 1) })
	Register("RFFT2D", func(c *Context) []Gradient { return realTransformGrad(c, raw.IFFT2D, 2) })
	Register("IRFFT", func(c *Context) []Gradient {
		return inverseRealTransformGrad(c, 1, raw.RFFT)
	})
	Register("IRFFT2D", func(c *Context) []Gradient {
		return inverseRealTransformGrad(c, 2, raw.RFFT2D)
	})
}

// transformSize is the product of the last rank dimensions, as a scalar of dt.
func (c *Context) transformSize(t tf.Output, rank int64, dt tf.DataType) tf.Output {
	dims := c.Part(c.Shape(t), -rank, 0)
	if known, ok := c.ConstInts(dims); ok {
		product := 1.0
		for _, d := range known {
			product *= float64(d)
		}
		return c.Number(dt, product)
	}
	return c.Cast(raw.Prod(c, dims, c.Ints(tf.Int32, 0)), dt)
}

// realTransformGrad is the gradient of a transform of real numbers, which
// returns the first half of the spectrum: with zeros for the other half, the
// real part of N times the complex inverse.
func realTransformGrad(c *Context, inverse transform, rank int64) []Gradient {
	x, length, g := c.Input(0), c.Input(1), c.Grad(0)
	full := c.Join(c.Part(c.Shape(g), 0, -1), c.Part(length, -1, 0))
	g = c.padded(g, full)
	back := c.Mul(inverse(c, g), c.transformSize(g, rank, g.DataType()))
	real := raw.Real(c, back, raw.WithTout(x.DataType()))
	return dense(c.padded(real, c.Shape(x)))
}

// inverseRealTransformGrad is the gradient of a transform from the first half
// of a spectrum to real numbers: 1/N times the transform back, twice that where
// an element of the half stands for one of the other half as well: everywhere
// but at 0 and, for an even length, at the middle.
func inverseRealTransformGrad(c *Context, rank int64, forward func(b raw.Builder, input, length tf.Output, attrs ...raw.Attr) tf.Output) []Gradient {
	x, length, g := c.Input(0), c.Input(1), c.Grad(0)
	spectrum := forward(c, g, length, raw.WithTcomplex(x.DataType()))
	real := g.DataType()
	k := raw.Range(c, c.Int(tf.Int32, 0), c.Dim(c.Shape(spectrum), -1), c.Int(tf.Int32, 1))
	alone := c.Plus(
		c.Cast(raw.Equal(c, k, c.Int(tf.Int32, 0)), real),
		c.Cast(raw.Equal(c, c.Plus(k, k), c.Dim(length, -1)), real))
	mask := c.Div(c.Minus(c.Number(real, 2), alone), c.transformSize(g, rank, real))
	return dense(c.padded(c.Mul(spectrum, c.Cast(mask, x.DataType())), c.Shape(x)))
}

// padded adds zeros at the end of each dimension until t has the shape: the
// transforms leave out what their input has beyond their length.
func (c *Context) padded(t, shape tf.Output) tf.Output {
	have := c.Shape(t)
	known, ok1 := c.ConstInts(have)
	want, ok2 := c.ConstInts(shape)
	if ok1 && ok2 && len(known) == len(want) {
		var pads []int64
		same := true
		for i, d := range want {
			pads = append(pads, 0, d-known[i])
			same = same && d == known[i]
		}
		if same {
			return t
		}
		return raw.Pad(c, t, c.IntPairs(tf.Int32, pads...))
	}
	more := c.Minus(shape, have)
	return raw.Pad(c, t, raw.Pack(c, []tf.Output{c.Minus(more, more), more}, raw.WithAxis(1)))
}
