package gradients

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops/raw"
)

func init() {
	corners := []string{"align_corners", "half_pixel_centers"}
	Register("ResizeNearestNeighbor", func(c *Context) []Gradient {
		size := c.Part(c.Shape(c.Input(0)), 1, 3)
		return dense(firstOf(c.sibling("ResizeNearestNeighborGrad", corners, c.Grad(0), size)))
	})
	Register("ResizeBilinear", func(c *Context) []Gradient {
		return dense(firstOf(c.sibling("ResizeBilinearGrad", corners, c.Grad(0), c.Input(0))))
	})
	Register("ResizeBicubic", func(c *Context) []Gradient {
		if dt := c.Input(0).DataType(); dt != tf.Float && dt != tf.Double {
			return nil
		}
		return dense(firstOf(c.sibling("ResizeBicubicGrad", corners, c.Grad(0), c.Input(0))))
	})
	Register("ScaleAndTranslate", func(c *Context) []Gradient {
		return dense(firstOf(c.sibling("ScaleAndTranslateGrad", []string{"kernel_type", "antialias"},
			c.Grad(0), c.Input(0), c.Input(2), c.Input(3))))
	}, 2, 3)
	Register("CropAndResize", func(c *Context) []Gradient { // inputs: images, boxes, box_ind, size
		image, boxes, which, g := c.Input(0), c.Input(1), c.Input(2), c.Grad(0)
		grads := make([]Gradient, 2)
		if c.Wants(0) {
			grads[0].Dense = raw.CropAndResizeGradImage(c, g, boxes, which, c.Shape(image), image.DataType(),
				raw.WithMethod(c.AttrString("method")))
		}
		if c.Wants(1) {
			grads[1].Dense = raw.CropAndResizeGradBoxes(c, g, image, boxes, which)
		}
		return grads
	})
	Register("RGBToHSV", rgbToHSVGrad)
	for _, name := range []string{"ImageProjectiveTransformV2", "ImageProjectiveTransformV3"} {
		Register(name, projectiveTransformGrad, 1, 3)
	}
	Register("ExtractImagePatches", func(c *Context) []Gradient {
		return patchesGrad(c, []string{"ksizes", "strides", "rates", "padding"}, 2)
	})
	Register("ExtractVolumePatches", func(c *Context) []Gradient {
		return patchesGrad(c, []string{"ksizes", "strides", "padding"}, 3)
	})
}

// projectiveTransformGrad carries the gradient back by the inverse transform.
// A transform is the first eight elements of a 3×3 matrix whose last is 1.
func projectiveTransformGrad(c *Context) []Gradient {
	transforms := raw.Reshape(c, c.Input(1), c.Ints(tf.Int32, -1, 8))
	one := c.OnesLike(c.columns(transforms, 0, 1))
	matrices := raw.Reshape(c, raw.ConcatV2(c, []tf.Output{transforms, one}, c.Int(tf.Int32, 1)), c.Ints(tf.Int32, -1, 3, 3))
	inverse := raw.Reshape(c, raw.MatrixInverse(c, matrices), c.Ints(tf.Int32, -1, 9))
	inverse = c.columns(c.Div(inverse, c.columns(inverse, 8, 0)), 0, 8)
	in := []tf.Output{c.Grad(0), inverse, c.Part(c.Shape(c.Input(0)), 1, 3)}
	if len(c.Inputs) > 3 { // the fill value, of which a gradient has none
		in = append(in, c.Number(tf.Float, 0))
	}
	return dense(firstOf(c.sibling(c.Op.Type(), []string{"interpolation", "fill_mode"}, in...)))
}

// patchesGrad is the gradient of extracting patches from images (spatial = 2)
// or volumes (3): it numbers the pixels from 1, extracts the patches of the
// numbers, and adds each element of the gradient up at its number's pixel; what
// padding added has the number 0.
func patchesGrad(c *Context, attrs []string, spatial int64) []Gradient {
	x, g := c.Input(0), c.Grad(0)
	shape := c.Shape(x) // [batch, spatial…, channels]
	first, last := c.Ints(tf.Int32, 1), c.Part(shape, -1, 0)
	inside := c.Part(shape, 1, spatial+1)
	pixels := raw.Prod(c, inside, c.Ints(tf.Int32, 0))
	one := c.Int(tf.Int32, 1)
	// Doubles count exactly far beyond the size of any image.
	numbers := c.Cast(raw.Range(c, one, c.Plus(pixels, one), one), tf.Double)
	numbers = raw.Reshape(c, numbers, c.Join(first, inside, first))
	taken := c.Flat(firstOf(c.sibling(c.Op.Type(), attrs, numbers)))
	ids := c.Minus(c.Cast(taken, tf.Int32), one)

	// [batch, taken, channels], with the batch moved inwards and back.
	swap := c.Ints(tf.Int32, 1, 0, 2)
	batch := c.Part(shape, 0, 1)
	g = raw.Reshape(c, g, c.Join(batch, c.Reshape(c.Size(ids), first), last))
	sums := raw.UnsortedSegmentSum(c, raw.Transpose(c, g, swap), ids, pixels)
	return dense(raw.Reshape(c, raw.Transpose(c, sums, swap), shape))
}

// rgbToHSVGrad: with M and m the largest and smallest of r, g, b, and d = M-m,
// value is M, saturation d/M, and the hue a sixth of
//
//	(g-b)/d, 2 + (b-r)/d or 4 + (r-g)/d
//
// where r, g or b is the largest. Where colours tie, the first of the cases that
// Python's formula selects holds; where a denominator is zero the slope is too.
func rgbToHSVGrad(c *Context) []Gradient {
	rgb, hsv, grad := c.Input(0), c.Output(0), c.Grad(0)
	r, g, b := c.columns(rgb, 0, 1), c.columns(rgb, 1, 2), c.columns(rgb, 2, 3)
	value := c.columns(hsv, 2, 3)
	dtype := rgb.DataType()
	zero := c.Number(dtype, 0)
	is := func(conditions ...tf.Output) tf.Output {
		all := conditions[0]
		for _, also := range conditions[1:] {
			all = raw.LogicalAnd(c, all, also)
		}
		return c.Cast(all, dtype)
	}
	ge := func(x, y tf.Output) tf.Output { return raw.GreaterEqual(c, x, y) }
	gt := func(x, y tf.Output) tf.Output { return raw.Greater(c, x, y) }
	largest := []tf.Output{is(ge(r, b), ge(r, g)), is(gt(g, r), ge(g, b)), is(gt(b, r), gt(b, g))}
	smallest := []tf.Output{is(gt(b, r), gt(g, r)), is(ge(r, g), gt(b, g)), is(ge(r, b), ge(g, b))}
	channels := []tf.Output{r, g, b}
	pick := func(masks []tf.Output) tf.Output {
		sum := c.Mul(masks[0], channels[0])
		for i := 1; i < 3; i++ {
			sum = c.Plus(sum, c.Mul(masks[i], channels[i]))
		}
		return sum
	}
	low := pick(smallest)
	d := c.Minus(value, low)
	// The numerator of the hue, and its slope by each channel: by the largest
	// it is 0, by the next in the order r, g, b, r it is 1, by the one before -1.
	difference := c.Plus(c.Plus(c.Mul(largest[0], c.Minus(g, b)), c.Mul(largest[1], c.Minus(b, r))), c.Mul(largest[2], c.Minus(r, g)))
	lit := c.Cast(gt(value, zero), dtype)

	byHue, bySaturation, byValue := c.columns(grad, 0, 1), c.columns(grad, 1, 2), c.columns(grad, 2, 3)
	over := func(x, y tf.Output) tf.Output { return raw.DivNoNan(c, x, y) }
	out := make([]tf.Output, 3)
	for i, x := range channels {
		slope := c.Minus(largest[(i+2)%3], largest[(i+1)%3])
		spread := c.Minus(largest[i], smallest[i])
		hue := over(c.Minus(c.Mul(slope, d), c.Mul(difference, spread)), c.Square(d))
		saturation := c.Minus(over(c.Mul(largest[i], low), c.Square(value)), over(smallest[i], value))
		out[i] = c.Plus(c.Plus(
			c.Mul(byHue, c.Times(1.0/6, c.Mul(hue, lit))),
			c.Mul(bySaturation, c.Mul(saturation, c.Cast(gt(x, zero), dtype)))),
			c.Mul(byValue, largest[i]))
	}
	return dense(raw.ConcatV2(c, out, c.Int(tf.Int32, -1)))
}
