package ops

import (
	"math"
	"sync"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// Formula writes elementwise arithmetic as methods, in one scope and dtype. It
// is what an update rule, a schedule or a gate is written with:
//
//	step := f.Sub(w, f.Mul(rate, grad))
//	next := f.FloorMod(step, f.Constant(2*math.Pi))
//
// Operands broadcast as in TensorFlow. [NewFormula] makes one that uses equal
// constants once; a Formula made of its two fields makes one each time.
type Formula struct {
	Scope *Scope
	DType tf.DataType // of constants

	constants *formulaConstants
}

type formulaConstants struct {
	sync.Mutex
	made map[constantKey]tf.Output
}

type constantKey struct {
	dtype tf.DataType
	bits  uint64
}

// NewFormula is a Formula in s for dt.
func NewFormula(s *Scope, dt tf.DataType) Formula {
	return Formula{Scope: s, DType: dt, constants: &formulaConstants{made: map[constantKey]tf.Output{}}}
}

// In is the formula in another scope; constants stay shared.
func (f Formula) In(s *Scope) Formula {
	f.Scope = s
	return f
}

// Of is the formula with constants of another dtype; they stay shared.
func (f Formula) Of(dt tf.DataType) Formula {
	f.DType = dt
	return f
}

// Constant is a scalar of the formula's dtype.
func (f Formula) Constant(v float64) tf.Output {
	if f.constants == nil {
		return Number(f.Scope, f.DType, v)
	}
	f.constants.Lock()
	defer f.constants.Unlock()
	key := constantKey{f.DType, math.Float64bits(v)}
	made, known := f.constants.made[key]
	if !known {
		if made = Number(f.Scope, f.DType, v); made.Op != nil {
			f.constants.made[key] = made
		}
	}
	return made
}

// Cast is x in the formula's dtype.
func (f Formula) Cast(x tf.Output) tf.Output { return Cast(f.Scope, x, f.DType) }

// Add is a + b.
func (f Formula) Add(a, b tf.Output) tf.Output { return f.apply("AddV2", a, b) }

// Sub is a - b.
func (f Formula) Sub(a, b tf.Output) tf.Output { return f.apply("Sub", a, b) }

// Mul is a · b.
func (f Formula) Mul(a, b tf.Output) tf.Output { return f.apply("Mul", a, b) }

// Div is a / b; whole-number division for integers is FloorDiv's.
func (f Formula) Div(a, b tf.Output) tf.Output { return f.apply("RealDiv", a, b) }

// DivNoNaN is a / b, and 0 where b is 0.
func (f Formula) DivNoNaN(a, b tf.Output) tf.Output { return f.apply("DivNoNan", a, b) }

// FloorDiv is the largest whole number not above a / b.
func (f Formula) FloorDiv(a, b tf.Output) tf.Output { return f.apply("FloorDiv", a, b) }

// FloorMod is a mod b with the sign of b, as Python's %. For floats it can be
// b itself: -1e-8 mod 5 is 5.
func (f Formula) FloorMod(a, b tf.Output) tf.Output { return f.apply("FloorMod", a, b) }

// Pow is a to the power of b.
func (f Formula) Pow(a, b tf.Output) tf.Output { return f.apply("Pow", a, b) }

// Maximum is the larger of a and b; NaN where either is.
func (f Formula) Maximum(a, b tf.Output) tf.Output { return f.apply("Maximum", a, b) }

// Minimum is the smaller of a and b; NaN where either is.
func (f Formula) Minimum(a, b tf.Output) tf.Output { return f.apply("Minimum", a, b) }

// Neg is -x.
func (f Formula) Neg(x tf.Output) tf.Output { return f.apply("Neg", x) }

// Abs is |x|.
func (f Formula) Abs(x tf.Output) tf.Output { return f.apply("Abs", x) }

// Sign is -1, 0 or 1.
func (f Formula) Sign(x tf.Output) tf.Output { return f.apply("Sign", x) }

// Square is x².
func (f Formula) Square(x tf.Output) tf.Output { return f.apply("Square", x) }

// Sqrt is √x.
func (f Formula) Sqrt(x tf.Output) tf.Output { return f.apply("Sqrt", x) }

// Rsqrt is 1/√x.
func (f Formula) Rsqrt(x tf.Output) tf.Output { return f.apply("Rsqrt", x) }

// Reciprocal is 1/x.
func (f Formula) Reciprocal(x tf.Output) tf.Output { return f.apply("Reciprocal", x) }

// Exp is e to the power of x.
func (f Formula) Exp(x tf.Output) tf.Output { return f.apply("Exp", x) }

// Log is the natural logarithm.
func (f Formula) Log(x tf.Output) tf.Output { return f.apply("Log", x) }

// Log1p is log(1 + x), exact for small x.
func (f Formula) Log1p(x tf.Output) tf.Output { return f.apply("Log1p", x) }

// Expm1 is exp(x) - 1, exact for small x.
func (f Formula) Expm1(x tf.Output) tf.Output { return f.apply("Expm1", x) }

// Floor is the largest whole number not above x.
func (f Formula) Floor(x tf.Output) tf.Output { return f.apply("Floor", x) }

// Ceil is the smallest whole number not below x.
func (f Formula) Ceil(x tf.Output) tf.Output { return f.apply("Ceil", x) }

// Round is the nearest whole number, the even one of two.
func (f Formula) Round(x tf.Output) tf.Output { return f.apply("Round", x) }

// Sin is the sine of x in radians.
func (f Formula) Sin(x tf.Output) tf.Output { return f.apply("Sin", x) }

// Cos is the cosine of x in radians.
func (f Formula) Cos(x tf.Output) tf.Output { return f.apply("Cos", x) }

// Tanh is the hyperbolic tangent.
func (f Formula) Tanh(x tf.Output) tf.Output { return f.apply("Tanh", x) }

// Sigmoid is 1 / (1 + exp(-x)).
func (f Formula) Sigmoid(x tf.Output) tf.Output { return f.apply("Sigmoid", x) }

// Softplus is log(1 + exp(x)).
func (f Formula) Softplus(x tf.Output) tf.Output { return f.apply("Softplus", x) }

// IsFinite is a bool: neither NaN nor infinite.
func (f Formula) IsFinite(x tf.Output) tf.Output { return f.apply("IsFinite", x) }

// Greater is the bool a > b.
func (f Formula) Greater(a, b tf.Output) tf.Output { return f.apply("Greater", a, b) }

// GreaterEqual is the bool a ≥ b.
func (f Formula) GreaterEqual(a, b tf.Output) tf.Output { return f.apply("GreaterEqual", a, b) }

// Less is the bool a < b.
func (f Formula) Less(a, b tf.Output) tf.Output { return f.apply("Less", a, b) }

// LessEqual is the bool a ≤ b.
func (f Formula) LessEqual(a, b tf.Output) tf.Output { return f.apply("LessEqual", a, b) }

// Equal is the bool a = b; false where either is NaN.
func (f Formula) Equal(a, b tf.Output) tf.Output { return f.apply("Equal", a, b) }

// NotEqual is the bool a ≠ b; true where either is NaN.
func (f Formula) NotEqual(a, b tf.Output) tf.Output { return f.apply("NotEqual", a, b) }

// And is both of two bools.
func (f Formula) And(a, b tf.Output) tf.Output { return f.apply("LogicalAnd", a, b) }

// Or is either of two bools.
func (f Formula) Or(a, b tf.Output) tf.Output { return f.apply("LogicalOr", a, b) }

// Not is the other bool.
func (f Formula) Not(a tf.Output) tf.Output { return f.apply("LogicalNot", a) }

// Select is a where the bool holds and b elsewhere. Unlike a product with 0
// and 1 it lets no NaN or infinity of the other side through.
func (f Formula) Select(condition, a, b tf.Output) tf.Output {
	return f.apply("SelectV2", condition, a, b)
}

// Clip is x, but not below low and not above high; NaN stays.
func (f Formula) Clip(x, low, high tf.Output) tf.Output {
	return f.Maximum(f.Minimum(x, high), low)
}

// NormalLike is normal numbers in x's shape, one for each element.
func (f Formula) NormalLike(x, mean, stddev tf.Output, d Draw) tf.Output {
	shape := f.apply("Shape", x)
	return f.Add(mean, f.Mul(stddev, StatelessNormal(f.Scope, shape, f.DType, d)))
}

func (f Formula) apply(opType string, operands ...tf.Output) tf.Output {
	inputs := make([]tf.Input, len(operands))
	for i, o := range operands {
		inputs[i] = o
	}
	return first(f.Scope.Add(bridge.OpSpec{Type: opType, Inputs: inputs}))
}

// binaryAs adds an operation of two operands under a name.
func binaryAs(s *Scope, opType, name string, a, b tf.Output) tf.Output {
	return first(s.Add(bridge.OpSpec{Type: opType, Name: name, Inputs: []tf.Input{a, b}}))
}
