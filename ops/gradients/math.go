package gradients

import (
	"math"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// unary are the elementwise functions y = f(x): each entry is g·f'(x), where g
// is the gradient of y. For complex x the derivative is conjugated, as
// everywhere in TensorFlow.
var unary = map[string]func(c *Context, x, y, g tf.Output) tf.Output{
	"Abs":    func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, raw.Sign(c, x)) },
	"Sign":   func(c *Context, x, y, g tf.Output) tf.Output { return c.ZerosLike(x) },
	"Square": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, c.Times(2, c.Conj(x))) },
	"Sqrt":   func(c *Context, x, y, g tf.Output) tf.Output { return raw.SqrtGrad(c, y, g) },  // g / 2y
	"Rsqrt":  func(c *Context, x, y, g tf.Output) tf.Output { return raw.RsqrtGrad(c, y, g) }, // -g y³ / 2

	"Inv":        func(c *Context, x, y, g tf.Output) tf.Output { return raw.ReciprocalGrad(c, y, g) }, // -g y²
	"Reciprocal": func(c *Context, x, y, g tf.Output) tf.Output { return raw.ReciprocalGrad(c, y, g) },

	"Exp":   func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, c.Conj(y)) },
	"Expm1": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, c.Exp(c.Conj(x))) },
	"Log":   func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, c.Inverse(c.Conj(x))) },
	"Log1p": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, c.Inverse(c.Shift(c.Conj(x), 1))) },

	"Sin": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, raw.Cos(c, c.Conj(x))) },
	"Cos": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(c.Neg(g), raw.Sin(c, c.Conj(x))) },
	// sec²(x)
	"Tan": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(c.Square(c.Inverse(raw.Cos(c, c.Conj(x)))), g)
	},
	// 1 / √(1-x²), and its negative
	"Asin": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, arcRoot(c, x)) },
	"Acos": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(c.Neg(g), arcRoot(c, x)) },
	// 1 / (1+x²)
	"Atan": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(g, c.Inverse(c.Shift(c.Square(c.Conj(x)), 1)))
	},
	"Sinh": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, raw.Cosh(c, c.Conj(x))) },
	"Cosh": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, raw.Sinh(c, c.Conj(x))) },
	"Tanh": func(c *Context, x, y, g tf.Output) tf.Output { return raw.TanhGrad(c, c.Conj(y), g) }, // g (1-y²)
	// 1 / cosh(y), 1 / sinh(y), 1 / (1-x²)
	"Asinh": func(c *Context, x, y, g tf.Output) tf.Output { return c.Div(g, raw.Cosh(c, c.Conj(y))) },
	"Acosh": func(c *Context, x, y, g tf.Output) tf.Output { return c.Div(g, raw.Sinh(c, c.Conj(y))) },
	"Atanh": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(g, c.Inverse(c.OneMinus(c.Square(c.Conj(x)))))
	},
	"Sigmoid": func(c *Context, x, y, g tf.Output) tf.Output { return raw.SigmoidGrad(c, c.Conj(y), g) }, // g y (1-y)

	// ±2/√π e^{-x²}
	"Erf":  func(c *Context, x, y, g tf.Output) tf.Output { return gauss(c, 2/math.Sqrt(math.Pi), x, g) },
	"Erfc": func(c *Context, x, y, g tf.Output) tf.Output { return gauss(c, -2/math.Sqrt(math.Pi), x, g) },
	// √π/2 e^{y²}
	"Erfinv": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(c.Times(math.Sqrt(math.Pi)/2, g), c.Exp(c.Square(y)))
	},
	// √(2π) e^{y²/2}
	"Ndtri": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(c.Times(math.Sqrt(2*math.Pi), g), c.Exp(c.Div(c.Square(y), c.NumberLike(2, y))))
	},
	"Lgamma": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, raw.Digamma(c, x)) },
	// ψ'(x), the polygamma function of order 1
	"Digamma": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(g, raw.Polygamma(c, c.NumberLike(1, x), x))
	},
	// 1 - 2xy
	"Dawsn": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(g, c.OneMinus(c.Mul(c.Times(2, x), y)))
	},
	// e^x / x
	"Expint": func(c *Context, x, y, g tf.Output) tf.Output { return c.Div(c.Mul(g, c.Exp(x)), x) },
	// cos(πx²/2), sin(πx²/2)
	"FresnelCos": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(g, raw.Cos(c, c.Times(math.Pi/2, c.Square(x))))
	},
	"FresnelSin": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(g, raw.Sin(c, c.Times(math.Pi/2, c.Square(x))))
	},
	// ln(x) / (1-x), which tends to -1 at x = 1
	"Spence": func(c *Context, x, y, g tf.Output) tf.Output {
		slope := c.Div(c.Log(x), c.OneMinus(x))
		return c.Mul(g, c.Where(c.Equals(x, 1), c.NumberLike(-1, x), slope))
	},

	"BesselI0": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, raw.BesselI1(c, x)) },
	// i1e(x) - sign(x) y
	"BesselI0e": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(g, c.Minus(raw.BesselI1e(c, x), c.Mul(raw.Sign(c, x), y)))
	},
	// i0(x) - y/x. The limit at 0 is ½; Python says 1, and so must we.
	"BesselI1": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(g, c.Where(c.Equals(x, 0), c.NumberLike(1, x), c.Minus(raw.BesselI0(c, x), c.Div(y, x))))
	},
	// i0e(x) - y (sign(x) + 1/x), which tends to ½ at 0
	"BesselI1e": func(c *Context, x, y, g tf.Output) tf.Output {
		slope := c.Minus(raw.BesselI0e(c, x), c.Mul(y, c.Plus(raw.Sign(c, x), c.Inverse(x))))
		return c.Mul(g, c.Where(c.Equals(x, 0), c.NumberLike(0.5, x), slope))
	},
	"BesselK0":  func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, c.Neg(raw.BesselK1(c, x))) },
	"BesselK0e": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, c.Minus(y, raw.BesselK1e(c, x))) },
	// -k0(x) - y/x
	"BesselK1": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(g, c.Minus(c.Neg(raw.BesselK0(c, x)), c.Div(y, x)))
	},
	// y (1 - 1/x) - k0e(x)
	"BesselK1e": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(g, c.Minus(c.Mul(y, c.OneMinus(c.Inverse(x))), raw.BesselK0e(c, x)))
	},
	"BesselJ0": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, c.Neg(raw.BesselJ1(c, x))) },
	// j0(x) - y/x, which tends to ½ at 0
	"BesselJ1": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(g, c.Where(c.Equals(x, 0), c.NumberLike(0.5, x), c.Minus(raw.BesselJ0(c, x), c.Div(y, x))))
	},
	"BesselY0": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, c.Neg(raw.BesselY1(c, x))) },
	"BesselY1": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(g, c.Minus(raw.BesselY0(c, x), c.Div(y, x)))
	},
}

func arcRoot(c *Context, x tf.Output) tf.Output {
	return c.Inverse(raw.Sqrt(c, c.OneMinus(c.Square(c.Conj(x)))))
}

func gauss(c *Context, factor float64, x, g tf.Output) tf.Output {
	return c.Mul(c.Times(factor, g), c.Exp(c.Neg(c.Square(c.Conj(x)))))
}

// Inverse is 1/t.
func (c *Context) Inverse(t tf.Output) tf.Output { return raw.Reciprocal(c, t) }

// OneMinus is 1-t.
func (c *Context) OneMinus(t tf.Output) tf.Output { return c.Minus(c.NumberLike(1, t), t) }

// Equals is t == v, elementwise.
func (c *Context) Equals(t tf.Output, v float64) tf.Output {
	return raw.Equal(c, t, c.NumberLike(v, t))
}

// partials are the derivatives of a broadcasting function z = f(x, y), each
// multiplied by the gradient g of z, before the broadcast is undone. A nil one
// has no gradient.
type partials struct {
	x, y func(c *Context, x, y, z, g tf.Output) tf.Output
}

func pass(c *Context, x, y, z, g tf.Output) tf.Output { return g }

var binary = map[string]partials{
	"Mul": {
		func(c *Context, x, y, z, g tf.Output) tf.Output { return c.Mul(g, c.Conj(y)) },
		func(c *Context, x, y, z, g tf.Output) tf.Output { return c.Mul(c.Conj(x), g) },
	},
	"MulNoNan": {
		func(c *Context, x, y, z, g tf.Output) tf.Output { return raw.MulNoNan(c, g, y) },
		func(c *Context, x, y, z, g tf.Output) tf.Output { return raw.MulNoNan(c, x, g) },
	},
	// 1/y, -x/y²
	"Div":     quotient(raw1(raw.RealDiv)),
	"RealDiv": quotient(raw1(raw.RealDiv)),
	// as the quotient, with 0 where y is 0
	"DivNoNan": quotient(raw1(raw.DivNoNan)),
	// x - y⌊x/y⌋: 1, -⌊x/y⌋
	"FloorMod": {pass, func(c *Context, x, y, z, g tf.Output) tf.Output {
		return c.Mul(g, c.Neg(raw.FloorDiv(c, x, y)))
	}},
	// x - y trunc(x/y): 1, -trunc(x/y). Python has no gradient for these two.
	"Mod":         {pass, truncated},
	"TruncateMod": {pass, truncated},
	// y x^{y-1}, z ln x where that is defined, else 0
	"Pow": {
		func(c *Context, x, y, z, g tf.Output) tf.Output {
			cy := c.Conj(y)
			return c.Product(g, cy, c.Pow(c.Conj(x), c.Minus(cy, c.NumberLike(1, y))))
		},
		func(c *Context, x, y, z, g tf.Output) tf.Output {
			cx := c.Conj(x)
			zero, one := c.NumberLike(0, x), c.NumberLike(1, x)
			var defined tf.Output
			if bridge.IsComplex(x.DataType()) {
				defined = raw.NotEqual(c, cx, zero)
			} else {
				defined = raw.Greater(c, cx, zero)
			}
			log := c.Where(defined, c.Log(c.Where(defined, cx, one)), zero)
			return c.Product(g, c.Conj(z), log)
		},
	},
	"Maximum": chosen(raw.GreaterEqual),
	"Minimum": chosen(raw.LessEqual),
	// 2(x-y), its negative
	"SquaredDifference": {
		func(c *Context, x, y, z, g tf.Output) tf.Output { return c.Mul(c.Times(2, g), c.Minus(x, y)) },
		func(c *Context, x, y, z, g tf.Output) tf.Output { return c.Neg(c.Mul(c.Times(2, g), c.Minus(x, y))) },
	},
	// atan2(x, y) in the order of the inputs: y/(x²+y²), -x/(x²+y²)
	"Atan2": {
		func(c *Context, x, y, z, g tf.Output) tf.Output {
			return c.Mul(y, c.Div(g, c.Plus(c.Square(x), c.Square(y))))
		},
		func(c *Context, x, y, z, g tf.Output) tf.Output {
			return c.Mul(c.Neg(x), c.Div(g, c.Plus(c.Square(x), c.Square(y))))
		},
	},
	// x ln y: ln y, x/y; 0 where x is 0
	"Xlogy": {
		func(c *Context, x, y, z, g tf.Output) tf.Output { return c.Mul(raw.Xlogy(c, c.nonZero(x), y), g) },
		func(c *Context, x, y, z, g tf.Output) tf.Output { return c.Mul(raw.Xdivy(c, x, y), g) },
	},
	// x ln(1+y): ln(1+y), x/(1+y)
	"Xlog1py": {
		func(c *Context, x, y, z, g tf.Output) tf.Output { return c.Mul(raw.Xlog1py(c, c.nonZero(x), y), g) },
		func(c *Context, x, y, z, g tf.Output) tf.Output { return c.Mul(raw.Xdivy(c, x, c.Shift(y, 1)), g) },
	},
	// x/y: 1/y, -x/y²
	"Xdivy": {
		func(c *Context, x, y, z, g tf.Output) tf.Output { return c.Mul(raw.Xdivy(c, c.nonZero(x), y), g) },
		func(c *Context, x, y, z, g tf.Output) tf.Output { return c.Mul(raw.Xdivy(c, c.Neg(x), c.Square(y)), g) },
	},
	// P(a, x): IgammaGradA, x^{a-1} e^{-x} / Γ(a); Q = 1-P
	"Igamma": {
		func(c *Context, a, x, z, g tf.Output) tf.Output { return c.Mul(raw.IgammaGradA(c, a, x), g) },
		func(c *Context, a, x, z, g tf.Output) tf.Output { return c.Mul(gammaDensity(c, a, x), g) },
	},
	"Igammac": {
		func(c *Context, a, x, z, g tf.Output) tf.Output { return c.Neg(c.Mul(raw.IgammaGradA(c, a, x), g)) },
		func(c *Context, a, x, z, g tf.Output) tf.Output { return c.Neg(c.Mul(gammaDensity(c, a, x), g)) },
	},
	// ζ(x, q): -x ζ(x+1, q) by q
	"Zeta": {nil, func(c *Context, x, q, z, g tf.Output) tf.Output {
		return c.Mul(c.Mul(c.Neg(x), raw.Zeta(c, c.Shift(x, 1), q)), g)
	}},
	// ψ⁽ⁿ⁾(x): ψ⁽ⁿ⁺¹⁾(x) by x
	"Polygamma": {nil, func(c *Context, n, x, z, g tf.Output) tf.Output {
		return c.Mul(raw.Polygamma(c, c.Shift(n, 1), x), g)
	}},
	// The neighbour of x towards y moves with x alone.
	"NextAfter": {pass, func(c *Context, x, y, z, g tf.Output) tf.Output { return c.ZerosLike(g) }},
	"Complex": {
		func(c *Context, x, y, z, g tf.Output) tf.Output { return raw.Real(c, g, raw.WithTout(x.DataType())) },
		func(c *Context, x, y, z, g tf.Output) tf.Output { return raw.Imag(c, g, raw.WithTout(y.DataType())) },
	},
}

// raw1 narrows a generated binary operation to two tensors.
func raw1(f func(raw.Builder, tf.Output, tf.Output, ...raw.Attr) tf.Output) func(*Context, tf.Output, tf.Output) tf.Output {
	return func(c *Context, a, b tf.Output) tf.Output { return f(c, a, b) }
}

func quotient(div func(c *Context, a, b tf.Output) tf.Output) partials {
	return partials{
		func(c *Context, x, y, z, g tf.Output) tf.Output { return div(c, g, c.Conj(y)) },
		func(c *Context, x, y, z, g tf.Output) tf.Output {
			cy := c.Conj(y)
			return c.Mul(g, div(c, div(c, c.Neg(c.Conj(x)), cy), cy))
		},
	}
}

func truncated(c *Context, x, y, z, g tf.Output) tf.Output {
	return c.Mul(g, c.Neg(raw.TruncateDiv(c, x, y)))
}

// chosen is the gradient of a choice between x and y: all of it goes to x
// where first holds, else to y.
func chosen(first func(raw.Builder, tf.Output, tf.Output, ...raw.Attr) tf.Output) partials {
	return partials{
		func(c *Context, x, y, z, g tf.Output) tf.Output {
			return c.Where(first(c, x, y), g, c.NumberLike(0, g))
		},
		func(c *Context, x, y, z, g tf.Output) tf.Output {
			return c.Where(first(c, x, y), c.NumberLike(0, g), g)
		},
	}
}

// nonZero is 1 where x is not 0, else 0, in x's dtype.
func (c *Context) nonZero(x tf.Output) tf.Output {
	return c.Cast(raw.NotEqual(c, x, c.NumberLike(0, x)), x.DataType())
}

// gammaDensity is x^{a-1} e^{-x} / Γ(a).
func gammaDensity(c *Context, a, x tf.Output) tf.Output {
	power := c.Mul(c.Minus(a, c.NumberLike(1, a)), c.Log(x))
	return c.Exp(c.Minus(c.Plus(c.Neg(x), power), raw.Lgamma(c, a)))
}

func init() {
	for name, f := range unary {
		Register(name, func(c *Context) []Gradient {
			return dense(f(c, c.Input(0), c.Output(0), c.Grad(0)))
		})
	}
	for name, p := range binary {
		var opaque []int
		if p.x == nil {
			opaque = append(opaque, 0)
		}
		Register(name, func(c *Context) []Gradient {
			x, y, z, g := c.Input(0), c.Input(1), c.Output(0), c.Grad(0)
			var gx, gy tf.Output
			if p.x != nil && c.Wants(0) {
				gx = c.ReduceTo(p.x(c, x, y, z, g), x, y)
			}
			if p.y != nil && c.Wants(1) {
				gy = c.ReduceTo(p.y(c, x, y, z, g), y, x)
			}
			return dense(gx, gy)
		}, opaque...)
	}

	// These hand the rows of a sparse gradient on.
	Register("Neg", func(c *Context) []Gradient { return []Gradient{c.Grads[0].Map(c.Neg)} })
	Register("Add", sumGrad(false))
	Register("AddV2", sumGrad(false))
	Register("Sub", sumGrad(true))

	// Piecewise constant functions.
	RegisterNone("Floor", "Ceil", "Round", "Rint", "FloorDiv", "TruncateDiv", "ArgMax", "ArgMin")

	copyToAll := func(c *Context) []Gradient {
		out := make([]Gradient, len(c.Inputs))
		for i := range out {
			out[i] = c.Grads[0]
		}
		return out
	}
	Register("AddN", copyToAll)
	Register("AccumulateNV2", copyToAll)

	// The gradient operations of the elementwise functions, for second order.
	// Each is linear in its second input dy.

	// -dy a²: -2 dy a, -g a²
	for _, name := range []string{"InvGrad", "ReciprocalGrad"} {
		Register(name, func(c *Context) []Gradient {
			a, dy, g := c.Conj(c.Input(0)), c.Input(1), c.Grad(0)
			return dense(c.Product(c.Times(-2, c.Conj(g)), dy, a), raw.ReciprocalGrad(c, a, g))
		})
	}
	// dy / 2a: -y g/a, g / 2a
	Register("SqrtGrad", func(c *Context) []Gradient {
		ga := c.Div(c.Grad(0), c.Input(0))
		return dense(c.Mul(c.Neg(c.Conj(ga)), c.Output(0)), c.Times(0.5, ga))
	})
	// -dy a³ / 2: -3/2 dy a², -g a³ / 2
	Register("RsqrtGrad", func(c *Context) []Gradient {
		a, dy, g := c.Conj(c.Input(0)), c.Input(1), c.Grad(0)
		return dense(c.Product(c.Times(-1.5, c.Conj(g)), dy, c.Square(a)), raw.RsqrtGrad(c, a, g))
	})
	// dy (1-a²): -2 dy a, 1-a²
	Register("TanhGrad", func(c *Context) []Gradient {
		a, dy, g := c.Conj(c.Input(0)), c.Conj(c.Input(1)), c.Grad(0)
		return dense(c.Product(c.Times(-2, g), dy, a), raw.TanhGrad(c, a, g))
	})
	// dy a (1-a): dy (1-2a), a (1-a)
	Register("SigmoidGrad", func(c *Context) []Gradient {
		a, dy, g := c.Conj(c.Input(0)), c.Conj(c.Input(1)), c.Grad(0)
		gb := c.Mul(g, dy)
		return dense(c.Minus(gb, c.Mul(c.Times(2, gb), a)), raw.SigmoidGrad(c, a, g))
	})

	// I_x(a, b): x^{a-1} (1-x)^{b-1} / B(a, b) by x; none by a and b
	Register("Betainc", func(c *Context) []Gradient {
		a, b, x := c.Input(0), c.Input(1), c.Input(2)
		one := c.NumberLike(1, x)
		logBeta := c.Minus(c.Plus(raw.Lgamma(c, a), raw.Lgamma(c, b)), raw.Lgamma(c, c.Plus(a, b)))
		powers := c.Plus(raw.Xlog1py(c, c.Minus(b, one), c.Neg(x)), raw.Xlogy(c, c.Minus(a, one), x))
		return nth(2, c.ReduceTo(c.Mul(c.Exp(c.Minus(powers, logBeta)), c.Grad(0)), x))
	}, 0, 1)

	Register("Select", func(c *Context) []Gradient {
		cond, g := c.Input(0), c.Grad(0)
		zeros := c.ZerosLike(g)
		return dense(none, raw.Select(c, cond, g, zeros), raw.Select(c, cond, zeros, g))
	}, 0)
	Register("SelectV2", func(c *Context) []Gradient {
		cond, x, y, g := c.Input(0), c.Input(1), c.Input(2), c.Grad(0)
		zero := c.NumberLike(0, g)
		var gx, gy tf.Output
		if c.Wants(1) {
			gx = c.ReduceTo(c.Where(cond, g, zero), x, cond, y)
		}
		if c.Wants(2) {
			gy = c.ReduceTo(c.Where(cond, zero, g), y, cond, x)
		}
		return dense(none, gx, gy)
	}, 0)

	// min(max(x, low), high): where x is outside, the gradient is the bound's
	Register("ClipByValue", func(c *Context) []Gradient {
		x, low, high, g := c.Input(0), c.Input(1), c.Input(2), c.Grad(0)
		zero := c.NumberLike(0, g)
		below, above := raw.Less(c, x, low), raw.Greater(c, x, high)
		gx := c.ReduceTo(c.Where(raw.LogicalOr(c, below, above), zero, g), x)
		return dense(gx, c.ReduceTo(c.Where(below, g, zero), low), c.ReduceTo(c.Where(above, g, zero), high))
	})

	// u × v
	Register("Cross", func(c *Context) []Gradient {
		u, v, g := c.Input(0), c.Input(1), c.Grad(0)
		return dense(raw.Cross(c, v, g), raw.Cross(c, g, u))
	})

	Register("MatMul", matMulGrad)
	for _, name := range []string{"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"} {
		Register(name, batchMatMulGrad)
	}
}

// sumGrad: x + y, or x - y. A sparse gradient stays sparse for an operand that
// was not stretched.
func sumGrad(minus bool) Func {
	return func(c *Context) []Gradient {
		grads := make([]Gradient, 2)
		for i := range grads {
			if !c.Wants(i) {
				continue
			}
			x, other := c.Input(i), c.Input(1-i)
			g := c.Grads[0]
			if !g.IsSparse() || c.mayStretch(x, other) {
				g.Dense, g.Slices = c.ReduceTo(c.Grad(0), x, other), nil
			}
			if minus && i == 1 {
				g = g.Map(c.Neg)
			}
			grads[i] = g
		}
		return grads
	}
}

// mayStretch reports whether broadcasting against other may have given x
// another shape, from what is known before a run.
func (c *Context) mayStretch(x, other tf.Output) bool {
	if c.SameShape(x, other) {
		return false
	}
	axes, known := c.broadcastAxes(c.Output(0), x, [][]size{c.sizes(other)})
	return !known || len(axes) > 0
}

// matMulGrad: for z = op(a) op(b), ga = g op(b)ᴴ and gb = op(a)ᴴ g, with the
// transposes that a and b themselves went through.
func matMulGrad(c *Context) []Gradient {
	a, b, g := c.Conj(c.Input(0)), c.Conj(c.Input(1)), c.Grad(0)
	ta, tb := c.AttrBool("transpose_a"), c.AttrBool("transpose_b")
	mul := func(x, y tf.Output, tx, ty bool) tf.Output {
		return raw.MatMul(c, x, y, raw.WithTransposeA(tx), raw.WithTransposeB(ty))
	}
	var ga, gb tf.Output
	if c.Wants(0) {
		if ta {
			ga = mul(b, g, tb, true)
		} else {
			ga = mul(g, b, false, !tb)
		}
	}
	if c.Wants(1) {
		if tb {
			gb = mul(g, a, true, ta)
		} else {
			gb = mul(a, g, !ta, false)
		}
	}
	return dense(ga, gb)
}

// batchMatMulGrad is matMulGrad over batches, with adjoints in place of
// transposes, and batch dimensions that may have been broadcast.
func batchMatMulGrad(c *Context) []Gradient {
	x, y, g := c.Input(0), c.Input(1), c.Grad(0)
	ax, ay := c.AttrBool("adj_x"), c.AttrBool("adj_y")
	mul := func(p, q tf.Output, ap, aq bool, dt tf.DataType) tf.Output {
		if p.Op != nil && q.Op != nil && p.DataType() == q.DataType() && p.DataType() == dt {
			return raw.BatchMatMulV2(c, p, q, raw.WithAdjX(ap), raw.WithAdjY(aq))
		}
		return raw.BatchMatMulV3(c, p, q, dt, raw.WithAdjX(ap), raw.WithAdjY(aq))
	}
	var gx, gy tf.Output
	if c.Wants(0) {
		if ax {
			gx = mul(y, g, ay, true, x.DataType())
		} else {
			gx = mul(g, y, false, !ay, x.DataType())
		}
		gx = c.reduceTo(gx, x, [][]size{batchOf(c.sizes(y))})
	}
	if c.Wants(1) {
		if ay {
			gy = mul(g, x, true, ax, y.DataType())
		} else {
			gy = mul(x, g, !ax, false, y.DataType())
		}
		gy = c.reduceTo(gy, y, [][]size{batchOf(c.sizes(x))})
	}
	return dense(gx, gy)
}

// batchOf is a shape with its two matrix dimensions made 1, so that only the
// batch dimensions count in a broadcast.
func batchOf(s []size) []size {
	if len(s) < 2 {
		return nil
	}
	return append(slices.Clone(s[:len(s)-2]), one, one)
}
