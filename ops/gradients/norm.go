package gradients

import (
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

func init() {
	Register("LRN", func(c *Context) []Gradient {
		return dense(firstOf(c.sibling("LRNGrad", []string{"depth_radius", "bias", "alpha", "beta"},
			c.Grad(0), c.Input(0), c.Output(0))))
	})
	for _, version := range []string{"", "V2", "V3"} {
		Register("FusedBatchNorm"+version, func(c *Context) []Gradient { return batchNormGrad(c, version) })
		Register("FusedBatchNormGrad"+version, batchNormGradGrad)
	}
}

// batchNormGrad is the gradient of FusedBatchNorm: inputs x, scale, offset,
// mean, variance; outputs y, the new mean and variance, and what training
// reserves for the gradient, which inference takes from the inputs.
func batchNormGrad(c *Context, version string) []Gradient {
	x, g := c.Input(0), c.Grad(0)
	reserved := []tf.Output{c.Output(3), c.Output(4)}
	format := c.AttrString("data_format")
	training := c.AttrBool("is_training")
	if !training {
		reserved = []tf.Output{c.Input(3), c.Input(4)}
		// The kernel of inference knows channels in the last place only.
		if channelsFirst(format) {
			x, g = raw.Transpose(c, x, c.Ints(tf.Int32, channelsLast(format)...)), raw.Transpose(c, g, c.Ints(tf.Int32, channelsLast(format)...))
		}
	}
	if version == "V3" {
		reserved = append(reserved, c.Output(5))
	}
	kernelFormat := format
	if !training && channelsFirst(format) {
		kernelFormat = map[string]string{"NCHW": "NHWC", "NCDHW": "NDHWC"}[format]
	}
	op := c.Add(bridge.OpSpec{
		Type:   "FusedBatchNormGrad" + version,
		Inputs: inputsOf(append([]tf.Output{g, x, c.Input(1)}, reserved...)),
		Attrs: []bridge.Attr{
			{Name: "epsilon", Value: c.AttrFloat("epsilon")},
			{Name: "data_format", Value: kernelFormat},
			{Name: "is_training", Value: training},
		},
	})
	out := bridge.OutputsOf(op)
	gx := at(out, 0)
	if kernelFormat != format {
		gx = raw.Transpose(c, gx, raw.InvertPermutation(c, c.Ints(tf.Int32, channelsLast(format)...)))
	}
	return dense(gx, at(out, 1), at(out, 2))
}

func inputsOf(list []tf.Output) []tf.Input {
	in := make([]tf.Input, len(list))
	for i, t := range list {
		in[i] = t
	}
	return in
}

func channelsFirst(format string) bool { return strings.HasPrefix(format, "NC") }

// channelsLast is the permutation that moves the channels to the end.
func channelsLast(format string) []int64 {
	if len(format) == 5 {
		return []int64{0, 2, 3, 4, 1}
	}
	return []int64{0, 2, 3, 1}
}

// batchNormGradGrad differentiates FusedBatchNormGrad once more. Its inputs are
// dy, x, scale and the reserved statistics; its outputs, in training, with N
// elements a channel, r = 1/√(var+ε), n = (x-mean)·r and ⟨·⟩ the mean over a
// channel:
//
//	dx = s·r·(dy - ⟨dy⟩ - n·⟨dy·n⟩)    dscale = Σ dy·n    doffset = Σ dy
//
// In inference, where mean and variance are given numbers:
//
//	dx = s·r·dy    dscale = Σ dy·n    doffset = Σ dy
//
// Let a, b and c be the gradients of dx, dscale and doffset.
func batchNormGradGrad(ctx *Context) []Gradient {
	dtype := ctx.Input(1).DataType()
	wide := func(t tf.Output) tf.Output { return ctx.Cast(t, tf.Float) } // 16-bit inputs are computed in 32
	dy, x, a := wide(ctx.Input(0)), wide(ctx.Input(1)), wide(ctx.Grad(0))

	format := ctx.AttrString("data_format")
	axes := []int64{0, 1, 2}
	if len(format) == 5 {
		axes = append(axes, 3)
	}
	// Statistics of a channel broadcast against x: [c] where the channels are
	// last, [1, c, 1, 1] where they are second.
	channel := func(t tf.Output) tf.Output { return t }
	if channelsFirst(format) {
		shape := []int64{1, -1}
		for i := 1; i < len(axes); i++ {
			axes[i]++
			shape = append(shape, 1)
		}
		channel = func(t tf.Output) tf.Output { return raw.Reshape(ctx, t, ctx.Ints(tf.Int32, shape...)) }
	}
	over := ctx.Ints(tf.Int32, axes...)
	mean := func(t tf.Output) tf.Output { return raw.Mean(ctx, t, over, raw.WithKeepDims(channelsFirst(format))) }
	sum := func(t tf.Output) tf.Output { return raw.Sum(ctx, t, over) }
	mul := ctx.Product
	s, b, c := channel(ctx.Input(2)), channel(ctx.Grad(1)), channel(ctx.Grad(2))
	epsilon := float64(ctx.AttrFloat("epsilon"))

	if !ctx.AttrBool("is_training") {
		r := raw.Rsqrt(ctx, ctx.Shift(channel(ctx.Input(4)), epsilon))
		n := mul(ctx.Minus(x, channel(ctx.Input(3))), r)
		byDY := ctx.Plus(ctx.Plus(mul(a, s, r), mul(n, b)), c)
		return dense(ctx.Cast(byDY, dtype), ctx.Cast(mul(dy, b, r), dtype), sum(mul(a, dy, r)))
	}
	centred := ctx.Minus(x, mean(x))
	r := raw.Rsqrt(ctx, ctx.Shift(mean(ctx.Square(centred)), epsilon))
	n := mul(centred, r)
	an, dyn := mean(mul(a, n)), mean(mul(dy, n))
	inner := ctx.Minus(ctx.Minus(dy, mean(dy)), mul(n, dyn)) // dx / (s·r)

	// dy enters dx as a enters this, by the symmetry of dx, and the sums.
	byDY := ctx.Plus(ctx.Plus(mul(ctx.Minus(ctx.Minus(a, mean(a)), mul(n, an)), s, r), mul(n, b)), c)
	byScale := sum(mul(a, inner, r))
	// By n, then through n = (x-mean)·r, which is a normalization again; and
	// by the factor r of dx: ∂r/∂x = -r²·n/N.
	byN := ctx.Minus(mul(dy, b), mul(ctx.Plus(mul(a, dyn), mul(dy, an)), s, r))
	byX := mul(ctx.Minus(ctx.Minus(byN, mean(byN)), mul(n, mean(mul(byN, n)))), r)
	byX = ctx.Minus(byX, mul(n, mean(mul(a, inner)), s, ctx.Square(r)))
	return dense(ctx.Cast(byDY, dtype), ctx.Cast(byX, dtype), byScale)
}
