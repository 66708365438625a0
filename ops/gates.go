package ops

import (
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// gateGradientType marks the node of a gate, by the attribute with which
// Python's gradient_override_map marks nodes. Python, which has no gradient of
// that name, refuses to differentiate an exported gate rather than ignore it.
const gateGradientType = "SluiceGate"

func init() { gradients.Register(gateGradientType, gateGradient, 1) }

// StopGradient is x with no gradient passing: what is before it counts as
// constant. It is Python's tf.stop_gradient.
func StopGradient(s *Scope, x tf.Output) tf.Output { return raw.StopGradient(s, x) }

// Gate is x, bit for bit, with its gradient multiplied by open: 1 lets the
// gradient pass, 0 stops it, and what is between damps it. Where open is 0 the
// gradient is exactly 0, also where it would be infinite or NaN. No gradient
// flows to open.
//
// open is a scalar or, for each row of x, a vector [rows]; of a numeric dtype
// or bool. It can be
//
//	a placeholder that each run feeds, or a constant (ops.Number)
//	ops.At(s, schedule, tf.Float)      a schedule of the global step
//	ops.PerRun(s, 0.5, ops.Draw{})     drawn at random, once a run
//	ops.PerRow(s, 0.5, x, ops.Draw{})  drawn for each row
//	ops.HalfOfRows(s, x, ops.Draw{})   a random half of the rows
//
// A gate holds back the gradient, not the variables behind it: plain gradient
// descent leaves them bit-identical, momentum and weight decay move them as
// they do with a zero gradient. To hold those still, see optimizers.Gated.
//
// Every run that needs the gated tensor needs open too. A placeholder with a
// default ([Scope.PlaceholderWithDefault]) spares it feeding one.
func Gate(s *Scope, open, x tf.Output) tf.Output { return gate(s, open, x, "Gate") }

// GateAll gates several tensors by one open, so that a random one is drawn
// once for all of them. An open by row needs the same number of rows in each.
func GateAll(s *Scope, open tf.Output, xs ...tf.Output) []tf.Output {
	gated := make([]tf.Output, len(xs))
	for i, x := range xs {
		gated[i] = gate(s, open, x, "GateAll")
	}
	return gated
}

func gate(s *Scope, open, x tf.Output, what string) tf.Output {
	if !s.ok() {
		return tf.Output{}
	}
	if bridge.Valid(open) && bridge.Valid(x) { // else Add says what is wrong
		if err := checkGate(open, x); err != nil {
			s.fail(what, err)
			return tf.Output{}
		}
		open = Cast(s, open, x.DataType())
	}
	gated := raw.IdentityN(s, []tf.Output{x, open}, raw.WithName("Gate"),
		raw.Attr{Name: "_gradient_op_type", Value: gateGradientType})
	if len(gated) == 0 {
		return tf.Output{}
	}
	return gated[0]
}

func checkGate(open, x tf.Output) error {
	dt := x.DataType()
	if !bridge.IsFloating(dt) && !bridge.IsComplex(dt) {
		return fmt.Errorf("only tensors with a gradient can be gated, %s is %s", x.Op.Name(), bridge.DTypeName(dt))
	}
	shape, rows := bridge.ShapeOf(open), bridge.ShapeOf(x)
	switch shape.Rank() {
	case 0:
		return nil
	case 1:
		if rows.Rank() == 0 {
			return fmt.Errorf("open has shape %v but x is a scalar, without rows", shape)
		}
		if rows != nil && !shape.CompatibleWith(Shape{rows[0]}) {
			return fmt.Errorf("open has shape %v but x, of shape %v, has %d rows", shape, rows, rows[0])
		}
		return nil
	}
	return fmt.Errorf("open has shape %v: wanted a scalar [] or one number for each row [rows]", shape)
}

// gateGradient: dx = 0 where open = 0, else g · open.
func gateGradient(c *gradients.Context) []gradients.Gradient {
	if !c.HasGrad(0) {
		return nil
	}
	x, open := c.Input(0), raw.StopGradient(c, c.Input(1))
	if open.Op == nil {
		return nil
	}
	byRow := bridge.ShapeOf(open).Rank() == 1
	stopped := func(g, open tf.Output) tf.Output {
		zero := c.Number(x.DataType(), 0)
		return raw.SelectV2(c, raw.Equal(c, open, zero), raw.ZerosLike(c, g), raw.Mul(c, g, open))
	}
	if !byRow {
		return []gradients.Gradient{c.Grads[0].Map(func(g tf.Output) tf.Output { return stopped(g, open) })}
	}
	// [rows] becomes [rows, 1 …], to broadcast over the rest of each row.
	switch rank := bridge.ShapeOf(x).Rank(); rank {
	case 1:
	case -1:
		rest := raw.Fill(c, raw.ExpandDims(c, raw.Sub(c, raw.Rank(c, x), c.Int(tf.Int32, 1)), c.Int(tf.Int32, 0)), c.Int(tf.Int32, 1))
		open = raw.Reshape(c, open, raw.ConcatV2(c, []tf.Output{c.Ints(tf.Int32, -1), rest}, c.Int(tf.Int32, 0)))
	default:
		dims := make([]int64, rank)
		for i := range dims {
			dims[i] = 1
		}
		dims[0] = -1
		open = raw.Reshape(c, open, c.Ints(tf.Int32, dims...))
	}
	return []gradients.Gradient{{Dense: stopped(c.Grad(0), open)}}
}

// PerRun is an open for [Gate] that is 1 with probability p and else 0, one
// draw for a whole run: a float32 scalar.
//
// For this and the other random gates the zero d.Step stands for a counter of
// the draw's own, an int64 variable called runs below the draw's node, that
// each run which needs the draw advances by one: the draw differs from run to
// run, and a run continued from a checkpoint draws what it would have drawn.
// With a step of your own, such as g.GlobalStep().Value(), the draw is the
// same in every run at that step.
func PerRun(s *Scope, p float64, d Draw) tf.Output {
	return bernoulli(s, "PerRun", p, d, func(*Scope) any { return Shape{} })
}

// PerRow is an open for [Gate] that is 1 with probability p and else 0, drawn
// for each row of x, which has rank 1 or more: float32 [rows]. [PerRun] tells
// of d.
func PerRow(s *Scope, p float64, x tf.Output, d Draw) tf.Output {
	return bernoulli(s, "PerRow", p, d, func(s *Scope) any { return rowsOf(s, x) })
}

// HalfOfRows is an open for [Gate] that is 1 for a random half of the rows of
// x, which has rank 1 or more, and 0 for the others: float32 [rows]. Of an odd
// number of rows the smaller half is open, ⌊rows/2⌋. [PerRun] tells of d.
func HalfOfRows(s *Scope, x tf.Output, d Draw) tf.Output {
	in, ok := drawScope(s, "HalfOfRows", &d, x)
	if !ok {
		return tf.Output{}
	}
	rows := rowsOf(in, x) // [1]
	half := raw.FloorDiv(in, rows, in.ints("two", 2))
	drawn := statelessIn(in, "StatelessRandomUniform", rows, tf.Float, d)
	// The rows with the largest numbers drawn are a random choice of them.
	_, chosen := raw.TopKV2(in, drawn, raw.Squeeze(in, half))
	open := raw.ScatterNd(in, raw.ExpandDims(in, chosen, in.ints("last", -1)),
		raw.Fill(in, half, in.number("one", tf.Float, 1)), rows)
	return open
}

func bernoulli(s *Scope, what string, p float64, d Draw, shape func(*Scope) any) tf.Output {
	if s.ok() && !(p >= 0 && p <= 1) {
		s.fail(what, fmt.Errorf("p is a probability, from 0 to 1, got %v", p))
		return tf.Output{}
	}
	in, ok := drawScope(s, what, &d, tf.Output{})
	if !ok {
		return tf.Output{}
	}
	drawn := statelessIn(in, "StatelessRandomUniform", shape(in), tf.Float, d)
	return raw.Cast(in, raw.Less(in, drawn, in.number("p", tf.Float, p)), tf.Float)
}

// drawScope is a name scope for a random open, with d's name and step filled
// in.
func drawScope(s *Scope, what string, d *Draw, x tf.Output) (*Scope, bool) {
	if !s.ok() || s.graph.Err() != nil {
		return s, false
	}
	in := s.NameScope(what)
	if d.Name == "" {
		d.Name = in.path
	}
	if d.Step.Op == nil {
		d.Step = in.counter("runs")
	}
	return in, true
}

// counter is how often a run has needed this tensor before: an int64 scalar
// that counts from 0.
func (s *Scope) counter(name string) tf.Output {
	v := s.WithoutControl().Variable(name, Shape{}, Zeros(), VariableOptions{DType: tf.Int64, NonTrainable: true})
	before := v.Read(s)
	one, err := bridge.Scalar(int64(1))
	advance := v.AssignAdd(s.WithControl(before.Op), s.constTensor("one", one, err))
	if advance == nil {
		return tf.Output{}
	}
	return raw.Identity(s.WithControl(advance), before)
}

// rowsOf is the number of rows of x, an int32 vector [1].
func rowsOf(s *Scope, x tf.Output) tf.Output {
	if bridge.Valid(x) {
		switch shape := bridge.ShapeOf(x); {
		case shape.Rank() == 0:
			s.fail("rows", fmt.Errorf("%s is a scalar, without rows", x.Op.Name()))
			return tf.Output{}
		case shape.Rank() > 0 && shape[0] >= 0:
			return s.ints("rows", shape[0])
		}
	}
	return raw.StridedSlice(s, raw.Shape(s, x), s.ints("from", 0), s.ints("to", 1), s.ints("by", 1))
}
