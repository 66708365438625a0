package gradients_test

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

type (
	outs        = []tf.Output
	unaryFunc   = func(raw.Builder, tf.Output, ...raw.Attr) tf.Output
	binaryFunc  = func(raw.Builder, tf.Output, tf.Output, ...raw.Attr) tf.Output
	complexFunc = func(s *scope, z tf.Output) tf.Output
)

// of1 is f(x), one output.
func of1(f unaryFunc) func(*scope, outs) outs {
	return func(s *scope, x outs) outs { return outs{f(s, x[0])} }
}

func of2(f binaryFunc) func(*scope, outs) outs {
	return func(s *scope, x outs) outs { return outs{f(s, x[0], x[1])} }
}

// one makes a case builder of a function of all inputs with one output.
func one(f func(s *scope, x outs) tf.Output) func(*scope, outs) outs {
	return func(s *scope, x outs) outs { return outs{f(s, x)} }
}

// complexOf makes z = x0 + i·x1 and returns the real and imaginary parts of
// f(z): what is differentiated stays real.
func complexOf(f complexFunc) func(*scope, outs) outs {
	return func(s *scope, x outs) outs {
		y := f(s, toComplex(s, x[0], x[1]))
		return outs{realPart(s, y), imagPart(s, y)}
	}
}

func toComplex(s *scope, re, im tf.Output) tf.Output {
	return raw.Complex(s, re, im, raw.WithTout(tf.Complex128))
}

func realPart(s *scope, z tf.Output) tf.Output { return raw.Real(s, z, raw.WithTout(tf.Double)) }
func imagPart(s *scope, z tf.Output) tf.Output { return raw.Imag(s, z, raw.WithTout(tf.Double)) }

var (
	linear    = caseOptions{} // its second gradient is none or zero
	firstOnly = caseOptions{first: true}
)

// Elementwise functions of one tensor.
var _ = func() bool {
	for op, f := range map[string]struct {
		f   unaryFunc
		in  input
		opt caseOptions
	}{
		"Neg": {raw.Neg, normal(2, 3), linear}, "Abs": {raw.Abs, exactly(-2, -0.5, 0.7, 3), linear},
		"Sign": {raw.Sign, exactly(-2, -0.5, 0.7, 3), linear}, "Square": {raw.Square, normal(2, 3), caseOptions{}},
		"Sqrt": {raw.Sqrt, positive(3), caseOptions{}}, "Rsqrt": {raw.Rsqrt, positive(3), caseOptions{}},
		"Inv": {raw.Inv, positive(3), caseOptions{}}, "Reciprocal": {raw.Reciprocal, positive(2, 2), caseOptions{}},
		"Exp": {raw.Exp, normal(3), caseOptions{}}, "Expm1": {raw.Expm1, normal(3), caseOptions{}},
		"Log": {raw.Log, positive(3), caseOptions{}}, "Log1p": {raw.Log1p, positive(), caseOptions{}},
		"Sin": {raw.Sin, normal(3), caseOptions{}}, "Cos": {raw.Cos, normal(3), caseOptions{}},
		"Tan": {raw.Tan, between(-1, 1, 3), caseOptions{}}, "Asin": {raw.Asin, inside(3), caseOptions{}},
		"Acos": {raw.Acos, inside(3), caseOptions{}}, "Atan": {raw.Atan, normal(3), caseOptions{}},
		"Sinh": {raw.Sinh, normal(3), caseOptions{}}, "Cosh": {raw.Cosh, normal(3), caseOptions{}},
		"Tanh": {raw.Tanh, normal(3), caseOptions{}}, "Asinh": {raw.Asinh, normal(3), caseOptions{}},
		"Acosh": {raw.Acosh, between(1.3, 3, 3), caseOptions{}}, "Atanh": {raw.Atanh, inside(3), caseOptions{}},
		"Sigmoid": {raw.Sigmoid, normal(3), caseOptions{}},
		"Erf":     {raw.Erf, normal(3), caseOptions{}}, "Erfc": {raw.Erfc, normal(3), caseOptions{}},
		"Erfinv": {raw.Erfinv, between(-0.8, 0.8, 3), caseOptions{}}, "Ndtri": {raw.Ndtri, inside(3), caseOptions{}},
		"Lgamma": {raw.Lgamma, positive(3), caseOptions{}}, "Digamma": {raw.Digamma, positive(3), caseOptions{}},
		"Dawsn": {raw.Dawsn, normal(3), caseOptions{}}, "Expint": {raw.Expint, positive(3), caseOptions{}},
		"FresnelCos": {raw.FresnelCos, normal(3), caseOptions{}}, "FresnelSin": {raw.FresnelSin, normal(3), caseOptions{}},
		"Spence":    {raw.Spence, between(0.2, 0.8, 3), caseOptions{}},
		"BesselI0":  {raw.BesselI0, positive(3), caseOptions{}},
		"BesselI0e": {raw.BesselI0e, positive(3), caseOptions{}},
		"BesselI1":  {raw.BesselI1, positive(3), caseOptions{}},
		"BesselI1e": {raw.BesselI1e, positive(3), caseOptions{}},
		"BesselK0":  {raw.BesselK0, positive(3), caseOptions{}},
		"BesselK0e": {raw.BesselK0e, positive(3), caseOptions{}},
		"BesselK1":  {raw.BesselK1, positive(3), caseOptions{}},
		"BesselK1e": {raw.BesselK1e, positive(3), caseOptions{}},
		"BesselJ0":  {raw.BesselJ0, positive(3), caseOptions{}},
		"BesselJ1":  {raw.BesselJ1, positive(3), caseOptions{}},
		"BesselY0":  {raw.BesselY0, positive(3), caseOptions{}},
		"BesselY1":  {raw.BesselY1, positive(3), caseOptions{}},

		"Identity": {raw.Identity, normal(2, 2), linear}, "Snapshot": {raw.Snapshot, normal(2), linear},
		"DebugGradientIdentity": {raw.DebugGradientIdentity, normal(2), linear},
		"Diag":                  {raw.Diag, normal(3), linear}, "DiagPart": {raw.DiagPart, normal(2, 2), linear},
	} {
		cases(numericCase{op, []input{f.in}, of1(f.f), f.opt})
	}
	return true
}()

// Elementwise functions of complex numbers, where the conjugates show.
var _ = func() bool {
	for op, f := range map[string]complexFunc{
		"Complex and parts": func(s *scope, z tf.Output) tf.Output { return z },
		"Conj":              func(s *scope, z tf.Output) tf.Output { return raw.Conj(s, raw.Square(s, z)) },
		"Neg complex":       func(s *scope, z tf.Output) tf.Output { return raw.Neg(s, z) },
		"Square complex":    func(s *scope, z tf.Output) tf.Output { return raw.Square(s, z) },
		"Sqrt complex":      func(s *scope, z tf.Output) tf.Output { return raw.Sqrt(s, z) },
		"Rsqrt complex":     func(s *scope, z tf.Output) tf.Output { return raw.Rsqrt(s, z) },
		"Reciprocal complex": func(s *scope, z tf.Output) tf.Output {
			return raw.Reciprocal(s, z)
		},
		"Exp complex":     func(s *scope, z tf.Output) tf.Output { return raw.Exp(s, z) },
		"Expm1 complex":   func(s *scope, z tf.Output) tf.Output { return raw.Expm1(s, z) },
		"Log complex":     func(s *scope, z tf.Output) tf.Output { return raw.Log(s, z) },
		"Log1p complex":   func(s *scope, z tf.Output) tf.Output { return raw.Log1p(s, z) },
		"Sin complex":     func(s *scope, z tf.Output) tf.Output { return raw.Sin(s, z) },
		"Cos complex":     func(s *scope, z tf.Output) tf.Output { return raw.Cos(s, z) },
		"Tan complex":     func(s *scope, z tf.Output) tf.Output { return raw.Tan(s, z) },
		"Sinh complex":    func(s *scope, z tf.Output) tf.Output { return raw.Sinh(s, z) },
		"Cosh complex":    func(s *scope, z tf.Output) tf.Output { return raw.Cosh(s, z) },
		"Tanh complex":    func(s *scope, z tf.Output) tf.Output { return raw.Tanh(s, z) },
		"Sigmoid complex": func(s *scope, z tf.Output) tf.Output { return raw.Sigmoid(s, z) },
		"Asinh complex":   func(s *scope, z tf.Output) tf.Output { return raw.Asinh(s, z) },
		"Acosh complex":   func(s *scope, z tf.Output) tf.Output { return raw.Acosh(s, z) },
		"Atanh complex":   func(s *scope, z tf.Output) tf.Output { return raw.Atanh(s, z) },
		"Mul complex":     func(s *scope, z tf.Output) tf.Output { return raw.Mul(s, z, raw.Exp(s, z)) },
		"RealDiv complex": func(s *scope, z tf.Output) tf.Output { return raw.RealDiv(s, raw.Exp(s, z), z) },
		"DivNoNan complex": func(s *scope, z tf.Output) tf.Output {
			return raw.DivNoNan(s, raw.Exp(s, z), z)
		},
		"Pow complex": func(s *scope, z tf.Output) tf.Output { return raw.Pow(s, z, raw.Square(s, z)) },
		"Cumprod complex": func(s *scope, z tf.Output) tf.Output {
			return raw.Cumsum(s, raw.Mul(s, z, z), scalar(s, int32(0)))
		},
		"ConjugateTranspose": func(s *scope, z tf.Output) tf.Output {
			return raw.ConjugateTranspose(s, raw.Mul(s, z, z), ints(s, 1, 0))
		},
		"MatMul complex": func(s *scope, z tf.Output) tf.Output { return raw.MatMul(s, z, raw.Exp(s, z)) },
		"MatMul complex_transposed": func(s *scope, z tf.Output) tf.Output {
			return raw.MatMul(s, z, raw.Exp(s, z), raw.WithTransposeA(true), raw.WithTransposeB(true))
		},
		"BatchMatMulV2 complex": func(s *scope, z tf.Output) tf.Output {
			return raw.BatchMatMulV2(s, z, raw.Exp(s, z), raw.WithAdjX(true))
		},
		"BatchMatMulV2 complex_adjoints": func(s *scope, z tf.Output) tf.Output {
			return raw.BatchMatMulV2(s, z, raw.Exp(s, z), raw.WithAdjX(true), raw.WithAdjY(true))
		},
		"Einsum complex": func(s *scope, z tf.Output) tf.Output {
			return raw.Einsum(s, outs{z, raw.Exp(s, z)}, "ab,bc->ca")
		},
		"Cast complex": func(s *scope, z tf.Output) tf.Output {
			return raw.Mul(s, raw.Cast(s, realPart(s, z), tf.Complex128), z)
		},
		"Prod complex": func(s *scope, z tf.Output) tf.Output { return raw.Prod(s, z, ints(s, 1)) },
	} {
		nc := numericCase{op: op, in: []input{positive(2, 2), positive(2, 2)}, ys: complexOf(f)}
		if op == "Cumprod complex" {
			nc.op = "Cumsum complex"
		}
		cases(nc)
	}
	return cases(
		numericCase{"ComplexAbs", []input{positive(3), positive(3)}, one(func(s *scope, x outs) tf.Output {
			return raw.ComplexAbs(s, toComplex(s, x[0], x[1]), raw.WithTout(tf.Double))
		}), caseOptions{}},
		numericCase{"Angle", []input{positive(3), positive(3)}, one(func(s *scope, x outs) tf.Output {
			return raw.Angle(s, toComplex(s, x[0], x[1]), raw.WithTout(tf.Double))
		}), caseOptions{}},
		numericCase{"Complex broadcast", []input{normal(2, 3), normal(3)}, one(func(s *scope, x outs) tf.Output {
			return raw.ComplexAbs(s, toComplex(s, x[0], x[1]), raw.WithTout(tf.Double))
		}), caseOptions{}},
		numericCase{"Cast", []input{normal(3)}, one(func(s *scope, x outs) tf.Output {
			return realPart(s, raw.Square(s, raw.Cast(s, x[0], tf.Complex128)))
		}), caseOptions{}},
	)
}()

// Broadcasting functions of two tensors: equal shapes, a row, a column, ranks
// that differ, a scalar.
var _ = func() bool {
	shapes := map[string][2][]int64{
		"":        {{2, 3}, {2, 3}},
		" row":    {{2, 3}, {3}},
		" column": {{2, 1}, {2, 3}},
		" both":   {{2, 1, 3}, {4, 1}},
		" scalar": {{2, 2}, {}},
	}
	for op, f := range map[string]struct {
		f    binaryFunc
		x, y input
		opt  caseOptions
	}{
		"Add": {raw.Add, normal(), normal(), linear}, "AddV2": {raw.AddV2, normal(), normal(), linear},
		"Sub": {raw.Sub, normal(), normal(), linear}, "Mul": {raw.Mul, normal(), normal(), caseOptions{}},
		"MulNoNan": {raw.MulNoNan, normal(), positive(), caseOptions{}},
		"Div":      {raw.Div, normal(), positive(), caseOptions{}},
		"RealDiv":  {raw.RealDiv, normal(), positive(), caseOptions{}},
		"DivNoNan": {raw.DivNoNan, normal(), positive(), caseOptions{}},
		"FloorMod": {raw.FloorMod, between(0.1, 0.9), between(1, 2), linear},
		"Mod":      {raw.Mod, between(0.1, 0.9), between(1, 2), linear},
		"TruncateMod": {raw.TruncateMod, between(-0.9, -0.1), between(1, 2),
			linear},
		"Pow":               {raw.Pow, positive(), normal(), caseOptions{}},
		"Maximum":           {raw.Maximum, between(0, 1), between(1.1, 2), linear},
		"Minimum":           {raw.Minimum, normal(), normal(), linear},
		"SquaredDifference": {raw.SquaredDifference, normal(), normal(), caseOptions{}},
		"Atan2":             {raw.Atan2, positive(), positive(), caseOptions{}},
		"Xlogy":             {raw.Xlogy, positive(), positive(), caseOptions{}},
		"Xlog1py":           {raw.Xlog1py, positive(), positive(), caseOptions{}},
		"Xdivy":             {raw.Xdivy, positive(), positive(), caseOptions{}},
		"Igamma":            {raw.Igamma, positive(), positive(), firstOnly},
		"Igammac":           {raw.Igammac, positive(), positive(), firstOnly},
		"Zeta":              {raw.Zeta, between(2.5, 4), positive(), caseOptions{first: true, none: []int{0}}},
		"Polygamma":         {raw.Polygamma, exactly(1), positive(), caseOptions{none: []int{0}}},
		"NextAfter":         {raw.NextAfter, normal(), normal(), linear},
	} {
		for how, s := range shapes {
			x, y := f.x, f.y
			x.shape, y.shape = s[0], s[1]
			if op == "Polygamma" {
				n, _ := x.shape.NumElements()
				x.values = make([]float64, n)
				for i := range x.values {
					x.values[i] = float64(i%2 + 1)
				}
			}
			cases(numericCase{op + how, []input{x, y}, of2(f.f), f.opt})
		}
	}
	return cases(
		numericCase{"Mul by_itself", []input{normal(2, 3)}, one(func(s *scope, x outs) tf.Output {
			return raw.Mul(s, x[0], x[0])
		}), caseOptions{}},
		numericCase{"Mul scalars", []input{normal(), normal()}, of2(raw.Mul), caseOptions{}},
		numericCase{"Mul empty", []input{normal(0, 3), normal(3)}, of2(raw.Mul), caseOptions{}},
		numericCase{"Mul empty_column", []input{normal(2, 0), normal(2, 1)}, of2(raw.Mul), caseOptions{}},
		numericCase{"FloorMod several_turns", []input{exactly(5.3, -1.2, 2.6), exactly(2, 1, -1)}, of2(raw.FloorMod), linear},
		numericCase{"TruncateMod several_turns", []input{exactly(5.3, -1.2, 2.6), exactly(2, 1, -1)}, of2(raw.TruncateMod), linear},
		numericCase{"Betainc", []input{positive(3), positive(3), inside(3)}, one(func(s *scope, x outs) tf.Output {
			return raw.Betainc(s, x[0], x[1], x[2])
		}), caseOptions{first: true, none: []int{0, 1}}},
		numericCase{"Select", []input{normal(2, 3), normal(2, 3)}, one(func(s *scope, x outs) tf.Output {
			cond := constant(s, bridge.Shape{2, 3}, true, false, true, true, false, false)
			return raw.Select(s, cond, raw.Square(s, x[0]), x[1])
		}), caseOptions{}},
		numericCase{"Select rows", []input{normal(2, 3), normal(2, 3)}, one(func(s *scope, x outs) tf.Output {
			return raw.Select(s, constant(s, bridge.Shape{2}, true, false), raw.Square(s, x[0]), x[1])
		}), caseOptions{}},
		numericCase{"SelectV2", []input{normal(2, 3), normal(3)}, one(func(s *scope, x outs) tf.Output {
			cond := constant(s, bridge.Shape{2, 1}, true, false)
			return raw.SelectV2(s, cond, raw.Square(s, x[0]), x[1])
		}), caseOptions{}},
		numericCase{"SelectV2 stretched_by_the_condition", []input{normal(), normal(1)}, one(func(s *scope, x outs) tf.Output {
			return raw.SelectV2(s, constant(s, bridge.Shape{3}, true, false, false), raw.Square(s, x[0]), x[1])
		}), caseOptions{}},
		numericCase{"ClipByValue", []input{exactly(-2, -0.5, 0.7, 3), between(-1, -0.8), between(0.9, 1)}, one(func(s *scope, x outs) tf.Output {
			return raw.ClipByValue(s, x[0], x[1], x[2])
		}), linear},
		numericCase{"Cross", []input{normal(2, 3), normal(2, 3)}, of2(raw.Cross), caseOptions{}},
		numericCase{"AddN", []input{normal(2), normal(2), normal(2)}, one(func(s *scope, x outs) tf.Output {
			return raw.AddN(s, x)
		}), linear},
		numericCase{"AccumulateNV2", []input{normal(2), normal(2)}, one(func(s *scope, x outs) tf.Output {
			return raw.AccumulateNV2(s, x, bridge.Shape{2})
		}), linear},
	)
}()

// Matrix products.
var _ = func() bool {
	for name, m := range map[string]struct {
		a, b   input
		ta, tb bool
	}{
		"":    {normal(2, 3), normal(3, 4), false, false},
		" tb": {normal(2, 3), normal(4, 3), false, true},
		" ta": {normal(3, 2), normal(3, 4), true, false},
		" tt": {normal(3, 2), normal(4, 3), true, true},
	} {
		cases(
			numericCase{"MatMul" + name, []input{m.a, m.b}, one(func(s *scope, x outs) tf.Output {
				return raw.MatMul(s, x[0], x[1], raw.WithTransposeA(m.ta), raw.WithTransposeB(m.tb))
			}), caseOptions{}},
			numericCase{"BatchMatMulV2" + name, []input{m.a, m.b}, one(func(s *scope, x outs) tf.Output {
				return raw.BatchMatMulV2(s, x[0], x[1], raw.WithAdjX(m.ta), raw.WithAdjY(m.tb))
			}), caseOptions{}},
			numericCase{"BatchMatMulV3" + name, []input{m.a, m.b}, one(func(s *scope, x outs) tf.Output {
				return raw.BatchMatMulV3(s, x[0], x[1], tf.Double, raw.WithAdjX(m.ta), raw.WithAdjY(m.tb))
			}), caseOptions{}},
		)
	}
	return cases(
		numericCase{"BatchMatMul", []input{normal(2, 2, 3), normal(2, 3, 1)}, of2(raw.BatchMatMul), caseOptions{}},
		numericCase{"BatchMatMulV2 broadcast", []input{normal(2, 1, 2, 3), normal(4, 3, 1)}, of2(raw.BatchMatMulV2), caseOptions{}},
		numericCase{"BatchMatMulV2 shared_matrix", []input{normal(3, 2, 3), normal(3, 2)}, of2(raw.BatchMatMulV2), caseOptions{}},
		numericCase{"MatMul empty", []input{normal(0, 3), normal(3, 2)}, of2(raw.MatMul), caseOptions{}},
	)
}()

// einsumCase is a case of one equation.
func einsumCase(name, equation string, in ...input) numericCase {
	return numericCase{"Einsum " + name, in, one(func(s *scope, x outs) tf.Output {
		return raw.Einsum(s, x, equation)
	}), caseOptions{}}
}

// reduceCase is a case of a reduction over axes.
func reduceCase(op string, in input, opt caseOptions, keep bool, axes ...int32) numericCase {
	f := map[string]func(raw.Builder, tf.Output, tf.Output, ...raw.Attr) tf.Output{
		"Sum": raw.Sum, "Mean": raw.Mean, "Max": raw.Max, "Min": raw.Min, "Prod": raw.Prod, "EuclideanNorm": raw.EuclideanNorm,
	}[op]
	name := op + " over"
	for _, a := range axes {
		name += " " + string(rune('0'+(a+10)%10))
	}
	if keep {
		name += " keep"
	}
	return numericCase{name, []input{in}, one(func(s *scope, x outs) tf.Output {
		return f(s, x[0], ints(s, axes...), raw.WithKeepDims(keep))
	}), opt}
}

// Reductions and cumulations.
var _ = func() bool {
	for _, op := range []struct {
		name string
		in   func(...int64) input
		opt  caseOptions
	}{
		{"Sum", normal, linear}, {"Mean", normal, linear}, {"Max", normal, linear}, {"Min", normal, linear},
		{"Prod", normal, caseOptions{}}, {"EuclideanNorm", positive, caseOptions{}},
	} {
		cases(
			reduceCase(op.name, op.in(2, 3), op.opt, false, 0),
			reduceCase(op.name, op.in(2, 3), op.opt, false, -1),
			reduceCase(op.name, op.in(2, 3), op.opt, false, 0, 1),
			reduceCase(op.name, op.in(2, 3, 2), op.opt, false, 0, 2),
			reduceCase(op.name, op.in(2, 3, 2), op.opt, true, 1, -1),
			reduceCase(op.name, op.in(2, 3, 2), op.opt, true, 0),
		)
		if op.name != "EuclideanNorm" { // of no axes it is √x², not differentiable where Python says it is
			cases(reduceCase(op.name, op.in(2, 2), op.opt, false))
		}
	}
	scalarAxis := func(f binaryFunc) func(*scope, outs) outs {
		return one(func(s *scope, x outs) tf.Output { return f(s, x[0], scalar(s, int32(1))) })
	}
	fedAxis := func(f binaryFunc) func(*scope, outs) outs {
		return one(func(s *scope, x outs) tf.Output {
			axes := raw.Identity(s, raw.Add(s, ints(s, 1, -2), ints(s, -1, 1)))
			return f(s, x[0], axes)
		})
	}
	cases(
		numericCase{"Sum axis_as_scalar", []input{normal(2, 3)}, scalarAxis(raw.Sum), linear},
		numericCase{"Mean axis_as_scalar", []input{normal(2, 3)}, scalarAxis(raw.Mean), linear},
		numericCase{"Prod axis_as_scalar", []input{normal(2, 3)}, scalarAxis(raw.Prod), caseOptions{}},
		numericCase{"Max axis_as_scalar", []input{normal(2, 3)}, scalarAxis(raw.Max), linear},
		numericCase{"Sum computed_axes", []input{normal(2, 3, 2)}, fedAxis(raw.Sum), linear},
		numericCase{"Mean computed_axes", []input{normal(2, 3, 2)}, fedAxis(raw.Mean), linear},
		numericCase{"Max computed_axes", []input{normal(2, 3, 2)}, fedAxis(raw.Max), linear},
		numericCase{"Prod computed_axes", []input{normal(2, 3, 2)}, fedAxis(raw.Prod), caseOptions{}},
		numericCase{"Prod with_zeros", []input{exactly(2, 0, 3, 0, 0, 1.5).reshaped(2, 3)}, one(func(s *scope, x outs) tf.Output {
			return raw.Prod(s, x[0], ints(s, 1))
		}), firstOnly},
		numericCase{"Mean empty", []input{normal(0, 3)}, one(func(s *scope, x outs) tf.Output {
			return raw.Sum(s, raw.Square(s, x[0]), ints(s, 0))
		}), caseOptions{}},
	)
	numericCases[len(numericCases)-1].op = "Sum empty"

	for _, exclusive := range []bool{false, true} {
		for _, reverse := range []bool{false, true} {
			name := map[bool]string{true: " exclusive"}[exclusive] + map[bool]string{true: " reverse"}[reverse]
			cumulate := func(f binaryFunc) func(*scope, outs) outs {
				return one(func(s *scope, x outs) tf.Output {
					return f(s, x[0], scalar(s, int32(-1)), raw.WithExclusive(exclusive), raw.WithReverse(reverse))
				})
			}
			cases(
				numericCase{"Cumsum" + name, []input{normal(2, 4)}, cumulate(raw.Cumsum), linear},
				numericCase{"Cumprod" + name, []input{positive(2, 4)}, cumulate(raw.Cumprod), caseOptions{}},
			)
			if !exclusive { // an exclusive one begins with the smallest number, whose differences mean nothing
				cases(numericCase{"CumulativeLogsumexp" + name, []input{normal(2, 4)}, cumulate(raw.CumulativeLogsumexp), firstOnly})
			}
		}
	}
	return cases(
		einsumCase("matmul", "ab,bc->ac", normal(2, 3), normal(3, 4)),
		einsumCase("batch", "bij,bjk->bik", normal(2, 2, 3), normal(2, 3, 2)),
		einsumCase("dot", "i,i->", normal(3), normal(3)),
		einsumCase("outer", "i,j->ij", normal(2), normal(3)),
		einsumCase("transpose", "abc->cab", normal(2, 3, 2)),
		einsumCase("sum", "ab->b", normal(2, 3)),
		einsumCase("sum_all", "ab->", normal(2, 3)),
		einsumCase("sum_of_one", "ab,c->c", normal(2, 3), normal(2)),
		einsumCase("trace", "aa->", normal(3, 3)),
		einsumCase("diagonal", "aab->ba", normal(2, 2, 3)),
		einsumCase("to_diagonal", "a->aa", normal(3)),
		einsumCase("ellipsis", "...ab,...bc->...ac", normal(2, 2, 3), normal(2, 3, 2)),
		einsumCase("ellipsis_broadcast", "...ab,...bc->...ac", normal(2, 1, 2, 3), normal(4, 3, 2)),
		einsumCase("ellipsis_in_the_middle", "a...b,b->...a", normal(2, 3, 2), normal(2)),
		einsumCase("ellipsis_in_the_middle_broadcast", "a...b,...ab->b...", normal(2, 1, 3), normal(4, 2, 3)),
		einsumCase("ellipsis_at_the_end", "ab...,bc...->ac...", normal(2, 3, 2), normal(3, 2, 1)),
		einsumCase("ellipsis_missing_in_one", "ab,...b->...a", normal(2, 3), normal(2, 2, 3)),
	)
}()
