package bridge

// #include "tensorflow/c/c_api.h"
import "C"

import (
	"slices"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// MaxRank is the largest number of dimensions a TensorFlow shape can have.
const MaxRank = 254

// Shape is the size of each dimension, as tf.TensorShape in Python: nil is a
// shape of unknown rank, Shape{} a scalar, and -1 a dimension of unknown size.
type Shape []int64

// String is "[?,3]", "[]" for a scalar, "<unknown>" for unknown rank.
func (s Shape) String() string {
	if s == nil {
		return "<unknown>"
	}
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		if d < 0 {
			b.WriteByte('?')
		} else {
			b.WriteString(strconv.FormatInt(d, 10))
		}
	}
	b.WriteByte(']')
	return b.String()
}

// Rank is the number of dimensions, -1 where it is unknown.
func (s Shape) Rank() int {
	if s == nil {
		return -1
	}
	return len(s)
}

// FullyDefined holds when rank and every dimension are known.
func (s Shape) FullyDefined() bool {
	return s != nil && !slices.ContainsFunc(s, func(d int64) bool { return d < 0 })
}

// NumElements is the product of the dimensions, 1 for a scalar; known is false,
// and the number -1, when a dimension or the rank is unknown or the product
// does not fit an int64.
func (s Shape) NumElements() (n int64, known bool) {
	if !s.FullyDefined() {
		return -1, false
	}
	n, ok := elements(s)
	if !ok {
		return -1, false
	}
	return n, true
}

// Equal holds when both have the same rank and the same dimensions, unknown ones
// included. A nil shape equals only a nil shape.
func (s Shape) Equal(t Shape) bool { return (s == nil) == (t == nil) && slices.Equal(s, t) }

// CompatibleWith holds when some fully defined shape fits both: unknown rank
// fits all, -1 fits any size.
func (s Shape) CompatibleWith(t Shape) bool {
	if s == nil || t == nil {
		return true
	}
	return slices.EqualFunc(s, t, func(a, b int64) bool { return a < 0 || b < 0 || a == b })
}

// Clone is a copy that shares nothing with s.
func (s Shape) Clone() Shape { return slices.Clone(s) }

// TF is the binding's form of the shape.
func (s Shape) TF() tf.Shape {
	if s == nil {
		return tf.Shape{}
	}
	dims := make([]int64, len(s))
	for i, d := range s {
		dims[i] = max(d, -1)
	}
	return tf.MakeShape(dims...)
}

// FromTFShape is the shape of the binding's form.
func FromTFShape(shape tf.Shape) Shape {
	dims, err := shape.ToSlice()
	if err != nil { // unknown rank
		return nil
	}
	return append(Shape{}, dims...)
}

// elements multiplies the dimensions, none of which may be negative. ok is false
// when the product of those that are not zero overflows: TensorFlow aborts the
// process on some orders of such dimensions, even where a zero makes the whole
// product zero.
func elements(dims []int64) (n int64, ok bool) {
	n = 1
	empty := false
	for _, d := range dims {
		switch {
		case d == 0:
			empty = true
		case n > (1<<63-1)/d:
			return 0, false
		default:
			n *= d
		}
	}
	if empty {
		return 0, true
	}
	return n, true
}

// checkDims validates the shape of a tensor with elements of size bytes and
// returns how many elements it has.
func checkDims(op string, shape Shape, size int) (int64, error) {
	if shape == nil {
		shape = Shape{}
	}
	if len(shape) > MaxRank {
		return 0, invalid(op, "a tensor has at most %d dimensions, got %d", MaxRank, len(shape))
	}
	for i, d := range shape {
		if d < 0 {
			return 0, invalid(op, "dimension %d of shape %s is %d; a tensor's dimensions are 0 or more", i, shape, d)
		}
	}
	n, ok := elements(shape)
	if !ok || size > 0 && n > (1<<63-1)/int64(size) {
		return 0, invalid(op, "shape %s with %d bytes an element is larger than 2^63 bytes", shape, size)
	}
	return n, nil
}

// ShapeOf is the shape that the graph knows of the output, by its shape
// inference; nil where it knows none, and for an output of no operation.
func ShapeOf(out tf.Output) Shape {
	c := cOutput(out)
	if c.oper == nil || c.index < 0 || c.index >= C.TF_OperationNumOutputs(c.oper) {
		return nil
	}
	return FromTFShape(out.Shape())
}
