package gradients

import (
	"math"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops/raw"
)

// Samples as functions of their distribution's parameters, by implicit
// reparameterization (Figurnov, Mohamed, Mnih 2018): where F is the cumulative
// distribution, the derivative of a sample z by a parameter p is
// -(∂F/∂p) / (∂F/∂z).
func init() {
	// The sample's shape is the shape argument and then alpha's.
	Register("RandomGamma", func(c *Context) []Gradient {
		shape, alpha := c.Input(0), c.Input(1)
		return nth(1, gammaGrad(c, alpha, c.Dim(c.Shape(shape), 0)))
	})
	// Here the shape argument is the whole sample's.
	stateless := func(input int) Func {
		return func(c *Context) []Gradient {
			alpha := c.Input(input)
			extra := c.Minus(c.Rank(c.Output(0)), c.Rank(alpha))
			return nth(input, gammaGrad(c, alpha, extra))
		}
	}
	Register("StatelessRandomGammaV2", stateless(2))
	Register("StatelessRandomGammaV3", stateless(4))
	Register("StatelessParameterizedTruncatedNormal", truncatedNormalGrad)
}

// gammaGrad sums over the samples that share an alpha: the first extra
// dimensions of the sample.
func gammaGrad(c *Context, alpha, extra tf.Output) tf.Output {
	sample, g := c.Output(0), c.Grad(0)
	one := raw.Fill(c, c.Reshape(extra, c.Ints(tf.Int32, 1)), c.Int(tf.Int32, 1))
	spread := raw.Reshape(c, alpha, c.Join(one, c.Shape(alpha)))
	slope := raw.RandomGammaGrad(c, spread, sample)
	return raw.Sum(c, c.Mul(g, slope), raw.Range(c, c.Int(tf.Int32, 0), extra, c.Int(tf.Int32, 1)))
}

// truncatedNormalGrad: with the standardized sample s between a and b and its
// position F in the truncated distribution, ds/dmean = 1, ds/dstddev = s,
// ds/dmax = F e^{(s²-b²)/2}, ds/dmin = (1-F) e^{(s²-a²)/2}.
func truncatedNormalGrad(c *Context) []Gradient {
	mean, stddev, low, high := c.Input(2), c.Input(3), c.Input(4), c.Input(5)
	sample, g := c.Output(0), c.Grad(0)
	dt := mean.DataType()
	standard := func(t tf.Output) tf.Output { return c.Div(c.Minus(t, mean), stddev) }
	a, b, s := standard(low), standard(high), standard(sample)

	at := c.Div(c.Minus(normalCDF(c, s), normalCDF(c, a)), c.Minus(normalCDF(c, b), normalCDF(c, a)))
	tiny, eps := smallest(dt)
	at = raw.Maximum(c, raw.Minimum(c, at, c.Number(dt, 1-eps)), c.Number(dt, tiny))
	falloff := func(bound tf.Output) tf.Output {
		return c.Times(0.5, c.Minus(c.Square(s), c.Square(bound)))
	}
	slopes := []struct {
		of    tf.Output
		slope tf.Output
	}{
		{mean, tf.Output{}},
		{stddev, s},
		{low, c.Exp(c.Plus(falloff(a), raw.Log1p(c, c.Neg(at))))},
		{high, c.Exp(c.Plus(falloff(b), c.Log(at)))},
	}
	out := make([]Gradient, 2, 6)
	for _, p := range slopes {
		t := g
		if p.slope.Op != nil {
			t = c.Mul(g, p.slope)
		}
		out = append(out, Gradient{Dense: c.ReduceTo(t, p.of)})
	}
	return out
}

// normalCDF is twice-safe: erfc keeps precision far from 0.
func normalCDF(c *Context, x tf.Output) tf.Output {
	w := c.Times(math.Sqrt2/2, x)
	z := raw.Abs(c, w)
	tail := raw.Erfc(c, z)
	far := c.Where(raw.Greater(c, w, c.NumberLike(0, w)), c.Minus(c.NumberLike(2, w), tail), tail)
	near := raw.Less(c, z, c.NumberLike(math.Sqrt2/2, z))
	return c.Times(0.5, c.Where(near, c.Shift(raw.Erf(c, w), 1), far))
}

// smallest is the smallest positive normal number of a dtype and its distance
// from 1 to the next number.
func smallest(dt tf.DataType) (tiny, eps float64) {
	switch dt {
	case tf.Half:
		return 0x1p-14, 0x1p-10
	case tf.Bfloat16:
		return 0x1p-126, 0x1p-7
	case tf.Float:
		return 0x1p-126, 0x1p-23
	}
	return 0x1p-1022, 0x1p-52
}
