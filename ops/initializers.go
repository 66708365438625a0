package ops

import (
	"fmt"
	"math"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// Initializer builds the initial value of the variable called name, of the
// given shape and dtype, in s, a scope of the variable's own. Random ones draw
// by the graph's seed and the variable's name: another variable gets other
// numbers, and the same program always the same.
type Initializer func(s *Scope, name string, shape Shape, dt tf.DataType) tf.Output

// Zeros sets every element to 0 (false, the empty string).
func Zeros() Initializer {
	return func(s *Scope, _ string, shape Shape, dt tf.DataType) tf.Output {
		zero, err := bridge.NewTensor(dt, Shape{})
		return fill(s, "zeros", shape, zero, err)
	}
}

// Ones sets every element to 1.
func Ones() Initializer { return constant("ones", 1) }

// Value sets every element to v, Python's constant_initializer.
func Value(v float64) Initializer { return constant("Const", v) }

func constant(name string, v float64) Initializer {
	return func(s *Scope, _ string, shape Shape, dt tf.DataType) tf.Output {
		t, err := bridge.Number(dt, v)
		return fill(s, name, shape, t, err)
	}
}

// fill is a tensor with every element as the scalar, which it closes.
func fill(s *Scope, name string, shape Shape, scalar *bridge.Tensor, err error) tf.Output {
	if err != nil {
		s.fail("initial value", err)
		return tf.Output{}
	}
	defer scalar.Close()
	if len(shape) == 0 {
		return s.constNode(name, scalar)
	}
	// A Fill keeps a large table out of the GraphDef; folded, it costs nothing.
	in := s.NameScope(name)
	return first(in.Add(bridge.OpSpec{Type: "Fill", Name: in.Path() + "/",
		Inputs: []tf.Input{in.ints("shape_as_tensor", shape...), in.constNode("Const", scalar)}}))
}

// Uniform draws uniform numbers in [low, high). Floating dtypes only, as all
// random initializers.
func Uniform(low, high float64) Initializer {
	return random("random_uniform", "StatelessRandomUniform", func(Shape) (float64, float64) { return high - low, low })
}

// Normal draws normal numbers.
func Normal(mean, stddev float64) Initializer {
	return random("random_normal", "StatelessRandomNormal", func(Shape) (float64, float64) { return stddev, mean })
}

// TruncatedNormal draws normal numbers, those beyond two standard deviations
// again.
func TruncatedNormal(mean, stddev float64) Initializer {
	return random("truncated_normal", "StatelessTruncatedNormal", func(Shape) (float64, float64) { return stddev, mean })
}

// random draws by a stateless operation and scales and shifts the result.
func random(name, opType string, scaleAndShift func(Shape) (scale, shift float64)) Initializer {
	return func(s *Scope, variable string, shape Shape, dt tf.DataType) tf.Output {
		if !bridge.IsFloating(dt) {
			s.fail("initial value", fmt.Errorf("%s draws numbers of a floating dtype, not %s", name, bridge.DTypeName(dt)))
			return tf.Output{}
		}
		scale, shift := scaleAndShift(shape)
		in := s.NameScope(name)
		drawn := statelessIn(in, opType, shape, dt, Draw{Name: variable})
		last := in.Path() + "/" // the scope's name, as in Python
		if shift == 0 {
			return binaryAs(in, "Mul", last, drawn, in.number("stddev", dt, scale))
		}
		scaled := binaryAs(in, "Mul", "mul", drawn, in.number("scale", dt, scale))
		return binaryAs(in, "AddV2", last, scaled, in.number("shift", dt, shift))
	}
}

// FanMode is what VarianceScaling divides the scale by.
type FanMode string

// The modes, by their names in Keras. The fans of a matrix [in, out] are its
// dimensions; of a convolution [<spatial…>, in, out] they are in and out times
// the spatial size; a vector's are both its length, a scalar's 1.
const (
	FanIn  FanMode = "fan_in"
	FanOut FanMode = "fan_out"
	FanAvg FanMode = "fan_avg"
)

// Distribution is what VarianceScaling draws from.
type Distribution string

// The distributions, by their names in Keras.
const (
	TruncatedNormalNumbers   Distribution = "truncated_normal"
	UntruncatedNormalNumbers Distribution = "untruncated_normal"
	UniformNumbers           Distribution = "uniform"
)

// VarianceScaling draws numbers of mean 0 and variance scale / n, where n is
// the fan of the mode; keras.initializers.VarianceScaling. What is truncated
// is drawn wider, so that its variance is right after truncation.
func VarianceScaling(scale float64, mode FanMode, distribution Distribution) Initializer {
	return func(s *Scope, name string, shape Shape, dt tf.DataType) tf.Output {
		var n float64
		in, out := fans(shape)
		switch mode {
		case FanIn:
			n = in
		case FanOut:
			n = out
		case FanAvg:
			n = (in + out) / 2
		}
		variance := scale / max(1, n)
		switch {
		case n == 0 && mode != FanIn && mode != FanOut && mode != FanAvg:
			s.fail("VarianceScaling", fmt.Errorf("mode %q: wanted %q, %q or %q", mode, FanIn, FanOut, FanAvg))
		case !(scale > 0):
			s.fail("VarianceScaling", fmt.Errorf("scale %v: wanted a positive number", scale))
		case distribution == TruncatedNormalNumbers:
			// The standard deviation of a standard normal truncated at ±2.
			return TruncatedNormal(0, math.Sqrt(variance)/0.87962566103423978)(s, name, shape, dt)
		case distribution == UntruncatedNormalNumbers:
			return Normal(0, math.Sqrt(variance))(s, name, shape, dt)
		case distribution == UniformNumbers:
			limit := math.Sqrt(3 * variance)
			return Uniform(-limit, limit)(s, name, shape, dt)
		default:
			s.fail("VarianceScaling", fmt.Errorf("distribution %q: wanted %q, %q or %q", distribution,
				TruncatedNormalNumbers, UntruncatedNormalNumbers, UniformNumbers))
		}
		return tf.Output{}
	}
}

// fans are the numbers of inputs and outputs that a unit of a layer with
// weights of this shape has.
func fans(shape Shape) (in, out float64) {
	switch n := len(shape); n {
	case 0:
		return 1, 1
	case 1:
		return float64(shape[0]), float64(shape[0])
	default:
		field := 1.0
		for _, d := range shape[:n-2] {
			field *= float64(d)
		}
		return float64(shape[n-2]) * field, float64(shape[n-1]) * field
	}
}

// GlorotUniform is VarianceScaling(1, FanAvg, UniformNumbers), Keras' default
// for kernels.
func GlorotUniform() Initializer { return VarianceScaling(1, FanAvg, UniformNumbers) }

// GlorotNormal is VarianceScaling(1, FanAvg, TruncatedNormalNumbers).
func GlorotNormal() Initializer { return VarianceScaling(1, FanAvg, TruncatedNormalNumbers) }

// HeUniform is VarianceScaling(2, FanIn, UniformNumbers), for relu layers.
func HeUniform() Initializer { return VarianceScaling(2, FanIn, UniformNumbers) }

// HeNormal is VarianceScaling(2, FanIn, TruncatedNormalNumbers).
func HeNormal() Initializer { return VarianceScaling(2, FanIn, TruncatedNormalNumbers) }

// LecunUniform is VarianceScaling(1, FanIn, UniformNumbers).
func LecunUniform() Initializer { return VarianceScaling(1, FanIn, UniformNumbers) }

// LecunNormal is VarianceScaling(1, FanIn, TruncatedNormalNumbers).
func LecunNormal() Initializer { return VarianceScaling(1, FanIn, TruncatedNormalNumbers) }

// FromTensor sets the variable to a tensor of its shape and dtype, which stays
// the caller's and is copied into the graph.
func FromTensor(t *bridge.Tensor) Initializer {
	return func(s *Scope, _ string, _ Shape, _ tf.DataType) tf.Output { return s.constNode("Const", t) }
}

// FromValue sets the variable to a Go value as [Scope.Const] takes it.
func FromValue(value any) Initializer {
	return func(s *Scope, _ string, _ Shape, _ tf.DataType) tf.Output { return s.Const(value) }
}

// FromOutput sets the variable to a tensor of the graph. It may be made from
// other variables: their initial values then stand for them.
func FromOutput(t tf.Output) Initializer {
	return func(*Scope, string, Shape, tf.DataType) tf.Output { return t }
}
