package gradients

import (
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// sibling adds an operation that takes the named attributes, and those alone,
// from c.Op, as a convolution's gradient takes the convolution's strides.
func (c *Context) sibling(opType string, attrs []string, inputs ...tf.Output) *tf.Operation {
	spec := bridge.OpSpec{Type: opType}
	for _, in := range inputs {
		spec.Inputs = append(spec.Inputs, in)
	}
	for _, name := range attrs {
		value, err := bridge.RawAttr(c.Op, name)
		if err != nil {
			c.Fail(err)
			return nil
		}
		spec.Attrs = append(spec.Attrs, bridge.Attr{Name: name, Value: value})
	}
	return c.Add(spec)
}

// Activations: the gradient of each comes from its output or its input alone.
var activations = map[string]func(c *Context, x, y, g tf.Output) tf.Output{
	"Relu":  func(c *Context, x, y, g tf.Output) tf.Output { return raw.ReluGrad(c, g, y) },
	"Relu6": func(c *Context, x, y, g tf.Output) tf.Output { return raw.Relu6Grad(c, g, y) },
	"LeakyRelu": func(c *Context, x, y, g tf.Output) tf.Output {
		return raw.LeakyReluGrad(c, g, x, raw.WithAlpha(c.AttrFloat("alpha")))
	},
	"Elu":  func(c *Context, x, y, g tf.Output) tf.Output { return raw.EluGrad(c, g, y) },
	"Selu": func(c *Context, x, y, g tf.Output) tf.Output { return raw.SeluGrad(c, g, y) },
	// 1 / (1 + e^{-x}); 1 / (1+|x|)²
	"Softplus": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(g, raw.Sigmoid(c, x)) },
	"Softsign": func(c *Context, x, y, g tf.Output) tf.Output { return raw.SoftsignGrad(c, g, x) },
	// y (g - Σ g y)
	"Softmax": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Mul(c.Minus(g, c.sumLast(c.Mul(g, y))), y)
	},
	// g - Σg · softmax(x)
	"LogSoftmax": func(c *Context, x, y, g tf.Output) tf.Output {
		return c.Minus(g, c.Mul(c.sumLast(g), c.Exp(y)))
	},
	"L2Loss": func(c *Context, x, y, g tf.Output) tf.Output { return c.Mul(x, g) },
}

// The gradients of activations are linear in their first input, the gradient;
// by the second they are zero wherever the activation is linear, and the
// exponential branch of Elu and Selu has the slope g·g0.
var activationGrads = map[string]func(c *Context, g0, x, g tf.Output) (tf.Output, tf.Output){
	"ReluGrad": func(c *Context, g0, x, g tf.Output) (tf.Output, tf.Output) {
		return raw.ReluGrad(c, g, x), c.ZerosLike(x)
	},
	"Relu6Grad": func(c *Context, g0, x, g tf.Output) (tf.Output, tf.Output) {
		return raw.Relu6Grad(c, g, x), c.ZerosLike(x)
	},
	"LeakyReluGrad": func(c *Context, g0, x, g tf.Output) (tf.Output, tf.Output) {
		return raw.LeakyReluGrad(c, g, x, raw.WithAlpha(c.AttrFloat("alpha"))), c.ZerosLike(x)
	},
	"EluGrad": func(c *Context, g0, y, g tf.Output) (tf.Output, tf.Output) {
		return raw.EluGrad(c, g, y), c.whereNegative(y, c.Mul(g, g0))
	},
	"SeluGrad": func(c *Context, g0, y, g tf.Output) (tf.Output, tf.Output) {
		return raw.SeluGrad(c, g, y), c.whereNegative(y, c.Mul(g, g0))
	},
	// σ'(x) = 1 / (e^{-x} + 2 + e^x)
	"SoftplusGrad": func(c *Context, g0, x, g tf.Output) (tf.Output, tf.Output) {
		return raw.SoftplusGrad(c, g, x),
			c.Div(c.Mul(g, g0), c.Plus(c.Shift(c.Exp(c.Neg(x)), 2), c.Exp(x)))
	},
}

func init() {
	for name, f := range activations {
		Register(name, func(c *Context) []Gradient {
			return dense(f(c, c.Input(0), c.Output(0), c.Grad(0)))
		})
	}
	for name, f := range activationGrads {
		Register(name, func(c *Context) []Gradient {
			return dense(f(c, c.Input(0), c.Input(1), c.Grad(0)))
		})
	}
	Register("SoftmaxCrossEntropyWithLogits", func(c *Context) []Gradient {
		logits, labels := c.Input(0), c.Input(1)
		grads := make([]Gradient, 2)
		grads[0].Dense = c.unbroadcast(crossEntropyGrad(c), logits, labels)
		if c.Wants(1) { // by a label: -log softmax(x)
			grads[1].Dense = c.unbroadcast(c.Mul(c.column(c.Grad(0)), c.Neg(raw.LogSoftmax(c, logits))), labels, logits)
		}
		return grads
	})
	Register("SparseSoftmaxCrossEntropyWithLogits", func(c *Context) []Gradient {
		return dense(crossEntropyGrad(c))
	})
	Register("BiasAdd", func(c *Context) []Gradient {
		grads := []Gradient{c.Grads[0], {}}
		if c.Wants(1) {
			grads[1].Dense = raw.BiasAddGrad(c, c.Grad(0), raw.WithDataFormat(c.AttrString("data_format")))
		}
		return grads
	})
	Register("BiasAddV1", func(c *Context) []Gradient {
		grads := []Gradient{c.Grads[0], {}}
		if c.Wants(1) {
			g := c.Grad(0)
			last := c.Minus(c.Rank(g), c.Int(tf.Int32, 1))
			grads[1].Dense = raw.Sum(c, g, raw.Range(c, c.Int(tf.Int32, 0), last, c.Int(tf.Int32, 1)))
		}
		return grads
	})
	Register("BiasAddGrad", biasAddGradGrad)
	for _, name := range []string{"CTCLoss", "CTCLossV2"} {
		// The operation computes the gradient of its loss beside it.
		Register(name, func(c *Context) []Gradient {
			once := raw.PreventGradient(c, c.Output(1),
				raw.WithMessage("the second derivative of a CTC loss is not known"))
			return dense(c.Mul(c.column(c.Grad(0)), once))
		})
	}
	for _, name := range []string{"BlockLSTM", "BlockLSTMV2"} {
		Register(name, blockLSTMGrad)
	}
	Register("ApproxTopK", approxTopKGrad)
	RegisterCheck("ApproxTopK", func(op *tf.Operation) error {
		if bridge.ShapeOf(bridge.Input(op, 0)) == nil {
			return fmt.Errorf("its input's rank must be known before a run")
		}
		return nil
	})
	Register("IsotonicRegression", isotonicGrad)
}

func (c *Context) whereNegative(x, then tf.Output) tf.Output {
	return c.Where(raw.Less(c, x, c.NumberLike(0, x)), then, c.ZerosLike(x))
}

// sumLast sums over the last dimension and keeps it.
func (c *Context) sumLast(t tf.Output) tf.Output {
	return raw.Sum(c, t, c.Ints(tf.Int32, -1), raw.WithKeepDims(true))
}

// column gives a vector a last dimension of 1, so that it scales rows.
func (c *Context) column(t tf.Output) tf.Output { return raw.ExpandDims(c, t, c.Int(tf.Int32, -1)) }

// unbroadcast is ReduceTo where the shapes say that x may have been stretched
// to y's; two equal batches of unknown size are taken for what they look like.
func (c *Context) unbroadcast(g, x, y tf.Output) tf.Output {
	xs, ys := c.Static(x), c.Static(y)
	if xs == nil || ys == nil || len(xs) != len(ys) {
		return g
	}
	for i := range xs {
		if xs[i] == 1 && ys[i] != 1 {
			return c.ReduceTo(g, x, y)
		}
	}
	return g
}

// crossEntropyGrad is the gradient of both cross entropies by the logits. Their
// second output is p - labels, the derivative of the loss; when the ys depend
// on it as well (a second derivative), it adds p (g₂ - Σ g₂ p). As in Python,
// that output counts as constant in the labels.
func crossEntropyGrad(c *Context) tf.Output {
	g := c.Mul(c.column(c.Grad(0)), c.Output(1))
	if !c.HasGrad(1) {
		return g
	}
	p, g2 := raw.Softmax(c, c.Input(0)), c.Grad(1)
	return c.Plus(g, c.Mul(c.Minus(g2, c.sumLast(c.Mul(g2, p))), p))
}

// biasAddGradGrad spreads the gradient of the summed bias over the channels.
func biasAddGradGrad(c *Context) []Gradient {
	x, g := c.Input(0), c.Grad(0)
	if c.AttrString("data_format") == "NCHW" { // [c] → [c, 1, …]
		shape := c.Static(x)
		if shape == nil {
			ones := raw.Fill(c, raw.ExpandDims(c, c.Minus(c.Rank(x), c.Int(tf.Int32, 2)), c.Int(tf.Int32, 0)), c.Int(tf.Int32, 1))
			g = raw.Reshape(c, g, c.Join(c.Ints(tf.Int32, -1), ones))
		} else {
			dims := []int64{-1}
			for range len(shape) - 2 {
				dims = append(dims, 1)
			}
			g = c.Reshape(g, c.Ints(tf.Int32, dims...))
		}
	}
	return dense(raw.BroadcastTo(c, g, c.Shape(x)))
}

// blockLSTMGrad: inputs are the time limit, x, the states, the weights and the
// peepholes; outputs i, cs, f, o, ci, co, h, of which cs and h carry gradients.
// The gates of the second version stand in another order than the first's;
// Python differentiates both by the first's kernel, and the second wrongly.
func blockLSTMGrad(c *Context) []Gradient {
	in := append(append(append([]tf.Output{}, c.Inputs...), c.Outputs...), c.Grad(1), c.Grad(6))
	kernel := "BlockLSTMGrad"
	if c.Op.Type() == "BlockLSTMV2" {
		kernel = "BlockLSTMGradV2"
	}
	op := c.sibling(kernel, []string{"use_peephole"}, in...)
	grads := make([]Gradient, 1, 9) // the first input is the time limit
	for _, g := range bridge.OutputsOf(op) {
		grads = append(grads, Gradient{Dense: g})
	}
	return grads
}

// rowPlaces turns indices into rows of width elements, [rows, k], into indices
// of the flattened matrix, [rows·k].
func (c *Context) rowPlaces(indices, width tf.Output) tf.Output {
	rows := c.Dim(c.Shape(indices), 0)
	starts := c.Mul(raw.Range(c, c.Int(tf.Int32, 0), rows, c.Int(tf.Int32, 1)), width)
	return c.Flat(c.Plus(indices, c.column(starts)))
}

// approxTopKGrad puts the gradient back where the values were taken from.
func approxTopKGrad(c *Context) []Gradient {
	x, indices, g := c.Input(0), c.Output(1), c.Grad(0)
	rank := int64(len(c.Static(x)))
	axis := c.AttrInt("reduction_dimension")
	if axis < 0 {
		axis += rank
	}
	// The reduced dimension goes last, by exchange with the last; the same
	// exchange brings it back.
	exchange := make([]int64, rank)
	for i := range exchange {
		exchange[i] = int64(i)
	}
	if axis >= 0 && axis < rank {
		exchange[axis], exchange[rank-1] = rank-1, axis
	}
	perm := c.Ints(tf.Int32, exchange...)
	moved := raw.Gather(c, c.Shape(x), perm)
	width := c.Dim(c.Shape(x), axis)
	perRow := c.Join(c.Ints(tf.Int32, -1), c.Reshape(c.Dim(c.Shape(indices), axis), c.Ints(tf.Int32, 1)))
	places := c.rowPlaces(raw.Reshape(c, raw.Transpose(c, indices, perm), perRow), width)
	flat := raw.UnsortedSegmentSum(c, c.Flat(raw.Transpose(c, g, perm)), places, c.Size(x))
	return dense(raw.Transpose(c, raw.Reshape(c, flat, moved), perm))
}

// isotonicGrad: the output is constant on each segment of a row, the mean of
// the segment's inputs; so each element gets the mean gradient of its segment.
func isotonicGrad(c *Context) []Gradient {
	x, g, segments := c.Input(0), c.Grad(0), c.Output(1)
	places := c.rowPlaces(segments, c.Dim(c.Shape(x), -1))
	size := c.Size(x)
	flat := c.Flat(g)
	total := raw.UnsortedSegmentSum(c, flat, places, size)
	count := raw.UnsortedSegmentSum(c, c.OnesLike(flat), places, size)
	mean := c.Div(total, raw.Maximum(c, count, c.NumberLike(1, count)))
	return dense(c.Cast(c.ReshapeLike(raw.GatherV2(c, mean, places, c.Int(tf.Int32, 0)), x), x.DataType()))
}
