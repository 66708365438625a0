package gradients

import (
	"errors"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Gradient is the derivative of the ys by one tensor: a dense tensor of that
// tensor's shape, or [IndexedSlices] when only some of its rows are touched.
// The zero Gradient says that there is none (Python's None).
type Gradient struct {
	Dense  tf.Output
	Slices *IndexedSlices
}

// IndexedSlices is a sparse gradient: row Indices[i] of the dense gradient is
// the sum of the Values[i] with that index, every other row is zero. It is
// Python's tf.IndexedSlices.
type IndexedSlices struct {
	Values     tf.Output // [n, rest…], dtype of the tensor
	Indices    tf.Output // [n], int32 or int64, duplicates allowed
	DenseShape tf.Output // [rank], int32 or int64: the shape of the dense gradient
}

// IsNone reports whether there is no gradient.
func (g Gradient) IsNone() bool { return g.Dense.Op == nil && g.Slices == nil }

// IsSparse reports whether the gradient is given as [IndexedSlices].
func (g Gradient) IsSparse() bool { return g.Slices != nil }

// DType is the gradient's dtype; zero for no gradient.
func (g Gradient) DType() tf.DataType {
	switch {
	case g.Slices != nil && g.Slices.Values.Op != nil:
		return g.Slices.Values.DataType()
	case g.Dense.Op != nil:
		return g.Dense.DataType()
	}
	return 0
}

// Map applies an elementwise function that keeps zero at zero (a scaling, a
// negation, a cast) to what the gradient stores, so that a sparse gradient
// stays sparse. The zero Gradient stays as it is.
func (g Gradient) Map(f func(tf.Output) tf.Output) Gradient {
	switch {
	case g.Slices != nil:
		return Gradient{Slices: &IndexedSlices{
			Values: f(g.Slices.Values), Indices: g.Slices.Indices, DenseShape: g.Slices.DenseShape}}
	case g.Dense.Op != nil:
		return Gradient{Dense: f(g.Dense)}
	}
	return g
}

// Densify turns a gradient into a dense tensor: duplicates summed, untouched
// rows zero. A dense gradient is returned as it is; for no gradient the result
// is the zero Output.
func Densify(s Scope, g Gradient) tf.Output {
	if g.Slices == nil {
		return g.Dense
	}
	sl := g.Slices
	c := contextFor(s)
	for _, t := range []tf.Output{sl.Values, sl.Indices, sl.DenseShape} {
		if t.Op == nil {
			s.Fail(errors.New("densify: IndexedSlices need Values, Indices and DenseShape, one of them is missing"))
			return tf.Output{}
		}
	}
	dense := raw.UnsortedSegmentSum(c, sl.Values, sl.Indices, c.Dim(sl.DenseShape, 0))
	// UnsortedSegmentSum knows the rows' shape from Values alone; the rest of
	// a statically known shape is put back where it is lost.
	if shape, ok := c.ConstInts(sl.DenseShape); ok && dense.Op != nil && !bridge.ShapeOf(dense).FullyDefined() {
		dense = raw.Reshape(c, dense, c.Ints(tf.Int64, shape...))
	}
	return dense
}

// Scale multiplies a gradient by a scalar of its dtype, keeping it sparse.
func Scale(s Scope, g Gradient, factor tf.Output) Gradient {
	return g.Map(func(t tf.Output) tf.Output { return raw.Mul(s, t, factor) })
}

// sum adds up the gradients that reach one tensor: dense ones by AddN, sparse
// ones by concatenation, and both kinds by making all of them dense.
func sum(c *Context, parts []Gradient, how Aggregation) Gradient {
	switch len(parts) {
	case 0:
		return Gradient{}
	case 1:
		return parts[0]
	}
	sparse := 0
	for _, p := range parts {
		if p.Slices != nil {
			sparse++
		}
	}
	if sparse == len(parts) {
		return concatSlices(c, parts)
	}
	dense := make([]tf.Output, len(parts))
	for i, p := range parts {
		dense[i] = Densify(c, p)
	}
	if how == AggregatePairwise {
		total := dense[0]
		for _, d := range dense[1:] {
			total = raw.AddN(c, []tf.Output{total, d})
		}
		return Gradient{Dense: total}
	}
	return Gradient{Dense: raw.AddN(c, dense)}
}

func concatSlices(c *Context, parts []Gradient) Gradient {
	indexType := parts[0].Slices.Indices.DataType()
	for _, p := range parts {
		if p.Slices.Indices.DataType() == tf.Int64 {
			indexType = tf.Int64
		}
	}
	values, indices := make([]tf.Output, len(parts)), make([]tf.Output, len(parts))
	shape := parts[0].Slices.DenseShape
	for i, p := range parts {
		values[i], indices[i] = p.Slices.Values, c.Cast(p.Slices.Indices, indexType)
		if _, known := c.ConstInts(p.Slices.DenseShape); known {
			shape = p.Slices.DenseShape
		}
	}
	zero := c.Int(tf.Int32, 0)
	return Gradient{Slices: &IndexedSlices{
		Values: raw.ConcatV2(c, values, zero), Indices: raw.ConcatV2(c, indices, zero), DenseShape: shape}}
}
