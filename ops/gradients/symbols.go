package gradients

import (
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// size is one dimension of a tensor: a number, or, where that is unknown
// before a run, the tensor and axis that first had it. Equal sizes are equal
// in every run; two activations over an unknown batch are thereby known to need
// no broadcasting between them.
type size struct {
	n    int64 // -1: unknown
	of   bridge.OutputKey
	axis int
}

var one = size{n: 1}

func (s size) known() bool { return s.n >= 0 }

// keeping are the operations whose output 0 has the shape of input 0.
var keeping = setOf("Abs", "BiasAdd", "Cast", "Ceil", "CheckNumerics", "Conj", "Cos", "Cosh", "Cumsum", "Elu", "Erf", "Erfc",
	"Exp", "Expm1", "Floor", "Identity", "LeakyRelu", "Log", "Log1p", "LogSoftmax", "LogicalNot", "Neg", "OnesLike",
	"PreventGradient", "Reciprocal", "Relu", "Relu6", "ReverseV2", "Round", "Rsqrt", "Selu", "Sigmoid", "Sign", "Sin", "Sinh",
	"Softmax", "Softplus", "Softsign", "Sqrt", "Square", "StopGradient", "Tan", "Tanh", "ZerosLike",
	"EluGrad", "LeakyReluGrad", "Relu6Grad", "ReluGrad", "RsqrtGrad", "ReciprocalGrad", "SeluGrad", "SigmoidGrad",
	"SoftplusGrad", "SoftsignGrad", "SqrtGrad", "TanhGrad")

// broadcasting are the operations whose output 0 is all inputs broadcast.
var broadcasting = setOf("Add", "AddV2", "Atan2", "Div", "DivNoNan", "Equal", "FloorDiv", "FloorMod", "Greater", "GreaterEqual",
	"Less", "LessEqual", "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul", "MulNoNan", "NotEqual", "Pow", "RealDiv",
	"SelectV2", "SquaredDifference", "Sub", "Xdivy", "Xlogy")

var reducing = setOf("EuclideanNorm", "Max", "Mean", "Min", "Prod", "Sum")

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// furthest is how many operations sizes looks back from a tensor it knows
// nothing of: a limit to its recursion, beyond which a size counts as new.
const furthest = 100

// sizes is what is known of t's shape before a run; nil for an unknown rank.
func (c *Context) sizes(t tf.Output) []size { return c.sizesWithin(t, furthest) }

func (c *Context) sizesWithin(t tf.Output, depth int) []size {
	if t.Op == nil {
		return nil
	}
	key := bridge.Key(t)
	if s, ok := c.shared.sizes[key]; ok {
		return s
	}
	static := c.Static(t)
	if static == nil {
		return nil
	}
	s := make([]size, len(static))
	for i, n := range static {
		s[i] = size{n: n}
		if n < 0 {
			s[i] = size{n: -1, of: key, axis: i}
		}
	}
	if depth > 0 && !static.FullyDefined() {
		if from := c.derived(t, s, depth-1); len(from) == len(s) {
			for i := range s {
				if !s[i].known() {
					s[i] = from[i]
				}
			}
		}
	}
	c.shared.sizes[key] = s
	return s
}

// derived is t's shape by its inputs' shapes, nil where its operation is not
// one that is looked into. own has a size of its own for each that is unknown.
func (c *Context) derived(t tf.Output, own []size, depth int) []size {
	input := func(i int) []size { return c.sizesWithin(bridge.Input(t.Op, i), depth) }
	constant := func(i int) []int64 { v, _ := c.ConstInts(bridge.Input(t.Op, i)); return v }
	switch kind := t.Op.Type(); {
	case keeping[kind]:
		return input(0)
	case broadcasting[kind]:
		return c.broadcast(t.Op, own, input)
	case kind == "MatMul":
		a, b := input(0), input(1)
		ta, errA := bridge.AttrBool(t.Op, "transpose_a")
		tb, errB := bridge.AttrBool(t.Op, "transpose_b")
		if len(a) != 2 || len(b) != 2 || errA != nil || errB != nil {
			return nil
		}
		rows, columns := a[0], b[1]
		if ta {
			rows = a[1]
		}
		if tb {
			columns = b[0]
		}
		return []size{rows, columns}
	case kind == "BroadcastTo", kind == "Reshape", kind == "Fill":
		// To the shape of another tensor.
		i := 1
		if kind == "Fill" {
			i = 0
		}
		if shape := bridge.Input(t.Op, i); shape.Op.Type() == "Shape" {
			return c.sizesWithin(bridge.Input(shape.Op, 0), depth)
		}
	case reducing[kind]:
		in := input(0)
		axes, ok := c.ConstInts(bridge.Input(t.Op, 1))
		keep, err := bridge.AttrBool(t.Op, "keep_dims")
		if in == nil || !ok || err != nil {
			return nil
		}
		out := make([]size, 0, len(in))
		for i, s := range in {
			switch reduced := slices.Contains(axes, int64(i)) || slices.Contains(axes, int64(i-len(in))); {
			case !reduced:
				out = append(out, s)
			case keep:
				out = append(out, one)
			}
		}
		return out
	case kind == "ConcatV2":
		return c.except(own, input(0), constant(t.Op.NumInputs()-1))
	case kind == "Split":
		return c.except(own, input(1), constant(0))
	}
	return nil
}

// except is in with another size at an axis.
func (c *Context) except(own, in []size, axes []int64) []size {
	if len(axes) != 1 || len(in) != len(own) {
		return nil
	}
	axis := int(axes[0])
	if axis < 0 {
		axis += len(in)
	}
	if axis < 0 || axis >= len(in) {
		return nil
	}
	out := slices.Clone(in)
	out[axis] = own[axis]
	return out
}

// broadcast is the shape of all inputs broadcast: at each axis the one size
// that is not 1.
func (c *Context) broadcast(op *tf.Operation, own []size, input func(int) []size) []size {
	out := slices.Clone(own)
	ins := make([][]size, op.NumInputs())
	for i := range ins {
		if ins[i] = input(i); ins[i] == nil {
			return nil
		}
	}
	for axis := range out {
		found := one
		for _, in := range ins {
			switch s := alignedSize(in, axis, len(out)); {
			case s == one || s == found:
			case found == one:
				found = s
			default:
				found = own[axis] // two sizes, and either could be the 1
			}
			if found == own[axis] {
				break
			}
		}
		out[axis] = found
	}
	return out
}

// alignedSize is the size at an axis of shapes of that rank, 1 where s has no
// such axis.
func alignedSize(s []size, axis, rank int) size {
	if i := axis - (rank - len(s)); i >= 0 && i < len(s) {
		return s[i]
	}
	return one
}
