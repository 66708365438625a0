package bridge

import (
	"math"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// Number is a scalar tensor of a numeric or bool dtype that holds v, rounded
// to nearest even. Integer dtypes take whole numbers in their range only, bool
// 0 and 1; anything else is ErrInvalidArgument.
func Number(dt tf.DataType, v float64) (*Tensor, error) {
	switch dt {
	case tf.Float:
		return Scalar(float32(v))
	case tf.Double:
		return Scalar(v)
	case tf.Half:
		return Scalar(HalfFromFloat32(float32(v)))
	case tf.Bfloat16:
		return Scalar(BFloat16FromFloat32(float32(v)))
	case tf.Complex64:
		return Scalar(complex(float32(v), 0))
	case tf.Complex128:
		return Scalar(complex(v, 0))
	case tf.Bool:
		if v != 0 && v != 1 {
			return nil, invalid("Number", "%v is not a bool: wanted 0 or 1", v)
		}
		return Scalar(v != 0)
	case tf.Int8:
		return whole[int8](v, math.MinInt8, math.MaxInt8)
	case tf.Int16:
		return whole[int16](v, math.MinInt16, math.MaxInt16)
	case tf.Int32:
		return whole[int32](v, math.MinInt32, math.MaxInt32)
	case tf.Int64:
		return whole[int64](v, -1<<63, 1<<63-1024) // the last float64 below 2^63
	case tf.Uint8:
		return whole[uint8](v, 0, math.MaxUint8)
	case tf.Uint16:
		return whole[uint16](v, 0, math.MaxUint16)
	case tf.Uint32:
		return whole[uint32](v, 0, math.MaxUint32)
	case tf.Uint64:
		return whole[uint64](v, 0, 1<<64-2048)
	}
	return nil, invalid("Number", "a tensor of %s can't be made of the number %v", DTypeName(dt), v)
}

func whole[T interface {
	Element
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}](v, low, high float64) (*Tensor, error) {
	if v != math.Trunc(v) || !(v >= low && v <= high) {
		return nil, invalid("Number", "%v is not a number of %s: wanted a whole one from %v to %v", v, DTypeName(DTypeOf[T]()), low, high)
	}
	return Scalar(T(v))
}
