package gradients

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// The conditionals of TensorFlow 1: Switch hands a tensor to one of two branches,
// the other branch is dead, and Merge takes up the branch that lives. Each is the
// other's gradient. Loops of TensorFlow 1, which are made of the same and of Enter,
// Exit and NextIteration, have no gradient here.

func init() {
	for _, name := range []string{"Switch", "RefSwitch"} {
		Register(name, switchGrad, 1)
	}
	for _, name := range []string{"Merge", "RefMerge"} {
		Register(name, mergeGrad)
	}
}

// routed is a gradient that lives only where pred is branch (1: true).
func (c *Context) routed(g Gradient, pred tf.Output, branch int) Gradient {
	return each(g, func(t tf.Output) tf.Output {
		whenFalse, whenTrue := raw.Switch(c, t, pred)
		if branch == 1 {
			return whenTrue
		}
		return whenFalse
	})
}

// each applies a function to all tensors that a gradient consists of.
func each(g Gradient, f func(tf.Output) tf.Output) Gradient {
	switch {
	case g.Slices != nil:
		return Gradient{Slices: &IndexedSlices{Values: f(g.Slices.Values), Indices: f(g.Slices.Indices), DenseShape: f(g.Slices.DenseShape)}}
	case !g.IsNone():
		return Gradient{Dense: f(g.Dense)}
	}
	return g
}

func mergeGrad(c *Context) []Gradient { // outputs: the living input, which one that is
	grads := make([]Gradient, len(c.Inputs))
	for i := range grads {
		if c.Wants(i) && c.HasGrad(0) {
			grads[i] = c.routed(c.Grads[0], raw.Equal(c, c.Output(1), c.Int(tf.Int32, int64(i))), 1)
		}
	}
	return grads
}

// switchGrad: the gradient of the branch that lives. Where the other one has none it
// is zeros.
func switchGrad(c *Context) []Gradient { // outputs: when pred is false, when it is true
	data, pred := c.Input(0), c.Input(1)
	present := at(c.Grads, 0)
	if present.IsNone() {
		present = at(c.Grads, 1)
	}
	if present.IsNone() {
		return nil
	}
	sparse := at(c.Grads, 0).IsSparse() || at(c.Grads, 1).IsSparse()
	var parts [2]Gradient
	for branch := range parts {
		g := at(c.Grads, branch)
		if g.IsNone() {
			g.Dense = c.zeros(data, present.DType())
		}
		if sparse {
			g = c.asSlices(g)
		}
		parts[branch] = c.routed(g, pred, branch)
	}
	merge := func(a, b tf.Output) tf.Output {
		t, _ := raw.Merge(c, []tf.Output{a, b})
		return t
	}
	if sparse {
		a, b := parts[0].Slices, parts[1].Slices
		return []Gradient{{Slices: &IndexedSlices{
			Values: merge(a.Values, b.Values), Indices: merge(a.Indices, b.Indices), DenseShape: merge(a.DenseShape, b.DenseShape)}}}
	}
	return dense(merge(parts[0].Dense, parts[1].Dense))
}

// zeros is the gradient of a tensor, or of the variable behind a handle, on which
// nothing depends; dt is the gradient's dtype.
func (c *Context) zeros(x tf.Output, dt tf.DataType) tf.Output {
	if x.DataType() == bridge.Resource {
		return raw.Fill(c, c.VariableShape(x, tf.Int32), c.Number(dt, 0))
	}
	return c.ZerosLike(x)
}

// asSlices is a gradient as IndexedSlices of int64 indices: of all rows, for a dense
// one.
func (c *Context) asSlices(g Gradient) Gradient {
	s := g.Slices
	if s == nil {
		shape := c.ShapeAs(g.Dense, tf.Int64)
		s = &IndexedSlices{Values: g.Dense, DenseShape: shape,
			Indices: raw.Range(c, c.Int(tf.Int64, 0), c.Dim(shape, 0), c.Int(tf.Int64, 1))}
	}
	return Gradient{Slices: &IndexedSlices{
		Values: s.Values, Indices: c.Cast(s.Indices, tf.Int64), DenseShape: c.Cast(s.DenseShape, tf.Int64)}}
}
