package bridge

// #include "tensorflow/c/tf_datatype.h"
import "C"

import (
	"math"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// The data types that the binding has no name for, by TensorFlow's numbers
// (types.proto). They are numbers here, not names from the C header, so that
// the package compiles against every supported libtensorflow.
const (
	Resource          tf.DataType = 20 // a handle to a variable, table, iterator …
	Variant           tf.DataType = 21 // lists, datasets and other opaque values
	Float8E5M2        tf.DataType = 24
	Float8E4M3FN      tf.DataType = 25
	Float8E4M3FNUZ    tf.DataType = 26
	Float8E4M3B11FNUZ tf.DataType = 27
	Float8E5M2FNUZ    tf.DataType = 28
	Int4              tf.DataType = 29
	Uint4             tf.DataType = 30
	Int2              tf.DataType = 31
	Uint2             tf.DataType = 32

	refOffset = 100 // DT_FLOAT_REF is DT_FLOAT + 100, and so on
)

// Go element types for the data types that Go has no type for. They hold
// TensorFlow's bits. Four-bit and two-bit integers take one byte an element, as
// TensorFlow keeps them, the bits of negative ones in the low bits: -1 of int4 is
// 0x0f.
type (
	Half          uint16 // IEEE 754 binary16
	BFloat16      uint16 // the upper half of a float32
	F8E5M2        uint8
	F8E4M3FN      uint8
	F8E4M3FNUZ    uint8
	F8E4M3B11FNUZ uint8
	F8E5M2FNUZ    uint8
	I4            uint8 // of -8 … 7
	U4            uint8 // 0 … 15
	I2            uint8 // of -2 … 1
	U2            uint8 // 0 … 3
	QInt8         int8
	QUint8        uint8
	QInt16        int16
	QUint16       uint16
	QInt32        int32
)

// Element is every Go type that a tensor's elements can be read and written as
// without conversion: one Go type for each data type of fixed size. Strings
// have FromStrings and Tensor.Strings.
type Element interface {
	bool | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 |
		float32 | float64 | complex64 | complex128 |
		Half | BFloat16 | F8E5M2 | F8E4M3FN | F8E4M3FNUZ | F8E4M3B11FNUZ | F8E5M2FNUZ |
		I4 | U4 | I2 | U2 | QInt8 | QUint8 | QInt16 | QUint16 | QInt32
}

// DTypeOf is the data type whose elements are T in Go: float32 is tf.Float.
func DTypeOf[T Element]() tf.DataType {
	switch any((*T)(nil)).(type) {
	case *float32:
		return tf.Float
	case *float64:
		return tf.Double
	case *int32:
		return tf.Int32
	case *int64:
		return tf.Int64
	case *bool:
		return tf.Bool
	case *int8:
		return tf.Int8
	case *int16:
		return tf.Int16
	case *uint8:
		return tf.Uint8
	case *uint16:
		return tf.Uint16
	case *uint32:
		return tf.Uint32
	case *uint64:
		return tf.Uint64
	case *complex64:
		return tf.Complex64
	case *complex128:
		return tf.Complex128
	case *Half:
		return tf.Half
	case *BFloat16:
		return tf.Bfloat16
	case *F8E5M2:
		return Float8E5M2
	case *F8E4M3FN:
		return Float8E4M3FN
	case *F8E4M3FNUZ:
		return Float8E4M3FNUZ
	case *F8E4M3B11FNUZ:
		return Float8E4M3B11FNUZ
	case *F8E5M2FNUZ:
		return Float8E5M2FNUZ
	case *I4:
		return Int4
	case *U4:
		return Uint4
	case *I2:
		return Int2
	case *U2:
		return Uint2
	case *QInt8:
		return tf.Qint8
	case *QUint8:
		return tf.Quint8
	case *QInt16:
		return tf.Qint16
	case *QUint16:
		return tf.Quint16
	case *QInt32:
		return tf.Qint32
	}
	return 0
}

type dtypeKind uint8

const (
	kindOther dtypeKind = iota
	kindFloat
	kindInteger
	kindComplex
	kindQuantized
)

// dtypes is indexed by TensorFlow's number. size 0: not of fixed size.
var dtypes = [...]struct {
	name string
	size int
	kind dtypeKind
}{
	tf.Float:          {"float32", 4, kindFloat},
	tf.Double:         {"float64", 8, kindFloat},
	tf.Int32:          {"int32", 4, kindInteger},
	tf.Uint8:          {"uint8", 1, kindInteger},
	tf.Int16:          {"int16", 2, kindInteger},
	tf.Int8:           {"int8", 1, kindInteger},
	tf.String:         {"string", 0, kindOther},
	tf.Complex64:      {"complex64", 8, kindComplex},
	tf.Int64:          {"int64", 8, kindInteger},
	tf.Bool:           {"bool", 1, kindOther},
	tf.Qint8:          {"qint8", 1, kindQuantized},
	tf.Quint8:         {"quint8", 1, kindQuantized},
	tf.Qint32:         {"qint32", 4, kindQuantized},
	tf.Bfloat16:       {"bfloat16", 2, kindFloat},
	tf.Qint16:         {"qint16", 2, kindQuantized},
	tf.Quint16:        {"quint16", 2, kindQuantized},
	tf.Uint16:         {"uint16", 2, kindInteger},
	tf.Complex128:     {"complex128", 16, kindComplex},
	tf.Half:           {"float16", 2, kindFloat},
	Resource:          {"resource", 0, kindOther},
	Variant:           {"variant", 0, kindOther},
	tf.Uint32:         {"uint32", 4, kindInteger},
	tf.Uint64:         {"uint64", 8, kindInteger},
	Float8E5M2:        {"float8_e5m2", 1, kindFloat},
	Float8E4M3FN:      {"float8_e4m3fn", 1, kindFloat},
	Float8E4M3FNUZ:    {"float8_e4m3fnuz", 1, kindFloat},
	Float8E4M3B11FNUZ: {"float8_e4m3b11fnuz", 1, kindFloat},
	Float8E5M2FNUZ:    {"float8_e5m2fnuz", 1, kindFloat},
	Int4:              {"int4", 1, kindInteger},
	Uint4:             {"uint4", 1, kindInteger},
	Int2:              {"int2", 1, kindInteger},
	Uint2:             {"uint2", 1, kindInteger},
}

func dtypeKnown(dt tf.DataType) bool {
	return dt >= 1 && int(dt) < len(dtypes) && dtypes[dt].name != ""
}

// HasDType tells whether the linked libtensorflow knows a data type. The older
// of SupportedVersions lack float8_e4m3fnuz, float8_e4m3b11fnuz,
// float8_e5m2fnuz, int2 and uint2: there a tensor can have such a type, and a
// graph can't.
func HasDType(dt tf.DataType) bool {
	if !dtypeKnown(dt) {
		return false
	}
	// Those below are in all supported versions.
	return dt < Float8E4M3FNUZ || C.TF_DataTypeSize(C.TF_DataType(dt)) != 0
}

// lackingDType is an error when dt is a data type that libtensorflow lacks,
// which it would tell as a number.
func lackingDType(op string, dt tf.DataType) error {
	if dt > refOffset {
		dt -= refOffset
	}
	if !dtypeKnown(dt) || HasDType(dt) {
		return nil
	}
	return Errorf(Unimplemented, op, "libtensorflow %s has no data type %s", Version(), DTypeName(dt))
}

// DTypeName is Python's name of the data type (tf.DType.name): "float32",
// "bfloat16", "float32_ref" for a reference type, "dtype(n)" for a number that
// is none.
func DTypeName(dt tf.DataType) string {
	switch {
	case dtypeKnown(dt):
		return dtypes[dt].name
	case dt > refOffset && dtypeKnown(dt-refOffset):
		return dtypes[dt-refOffset].name + "_ref"
	}
	return "dtype(" + strconv.Itoa(int(dt)) + ")"
}

// ParseDType is the data type of Python's name ("float32", also "half" and
// "double"), of TensorFlow's enum name ("DT_FLOAT") or of either as a reference
// type ("float32_ref").
func ParseDType(name string) (tf.DataType, error) {
	n := strings.ToLower(strings.TrimSpace(name))
	n, isRef := strings.CutSuffix(n, "_ref")
	n, isEnum := strings.CutPrefix(n, "dt_")
	switch {
	case n == "half":
		n = "float16"
	case n == "double":
		n = "float64"
	case isEnum && n == "float":
		n = "float32"
	}
	for i := range dtypes {
		dt := tf.DataType(i)
		if !dtypeKnown(dt) || dtypes[i].name != n {
			continue
		}
		if isRef {
			dt += refOffset
		}
		return dt, nil
	}
	names := make([]string, 0, len(dtypes))
	for _, d := range dtypes {
		if d.name != "" {
			names = append(names, d.name)
		}
	}
	return 0, invalid("ParseDType", "no data type %q; have %s", name, strings.Join(names, ", "))
}

// DTypeSize is the size of one element in bytes; 0 for string, resource,
// variant and numbers that are no data type.
func DTypeSize(dt tf.DataType) int {
	if !dtypeKnown(dt) {
		return 0
	}
	return dtypes[dt].size
}

// IsFloating holds for the real floating-point types, half, bfloat16 and the
// float8 types included (Python's tf.DType.is_floating).
func IsFloating(dt tf.DataType) bool { return kindOf(dt) == kindFloat }

// IsInteger holds for the integers, signed and unsigned, int4 and its kin
// included, quantized types excluded (Python's tf.DType.is_integer).
func IsInteger(dt tf.DataType) bool { return kindOf(dt) == kindInteger }

// IsComplex holds for complex64 and complex128.
func IsComplex(dt tf.DataType) bool { return kindOf(dt) == kindComplex }

// IsQuantized holds for qint8, quint8, qint16, quint16 and qint32.
func IsQuantized(dt tf.DataType) bool { return kindOf(dt) == kindQuantized }

func kindOf(dt tf.DataType) dtypeKind {
	if dtypeKnown(dt) {
		return dtypes[dt].kind
	}
	return kindOther
}

// BaseDType is the data type without the reference: float32 of float32_ref.
func BaseDType(dt tf.DataType) tf.DataType {
	if dt > refOffset {
		return dt - refOffset
	}
	return dt
}

// Float32 is the value of h; exact.
func (h Half) Float32() float32 {
	sign := uint32(h>>15) << 31
	exponent, fraction := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch {
	case exponent == 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	case exponent == 0:
		// Subnormal: fraction · 2^-24, a normal float32.
		v := math.Float32bits(float32(fraction) * 0x1p-24)
		return math.Float32frombits(sign | v)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}

// HalfFromFloat32 rounds to the nearest half, ties to even; what is too large
// becomes an infinity and a NaN stays one.
func HalfFromFloat32(f float32) Half {
	bits := math.Float32bits(f)
	sign := Half(bits >> 16 & 0x8000)
	magnitude := bits & 0x7fffffff
	switch {
	case magnitude > 0x7f800000: // NaN
		return sign | 0x7e00 | Half(magnitude>>13&0x3ff)
	case magnitude >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case magnitude < 0x38800000: // below 2^-14: subnormal or zero
		// Adding 0.5 shifts the value into the last bits of a float32 of
		// exponent -1, whose unit is 2^-24, and rounds on the way.
		return sign | Half(math.Float32bits(math.Float32frombits(magnitude)+0.5)-0x3f000000)
	}
	magnitude += 0xfff + magnitude>>13&1
	return sign | Half((magnitude-112<<23)>>13)
}

// Float32 is the value of b; exact.
func (b BFloat16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// BFloat16FromFloat32 rounds to the nearest bfloat16, ties to even; a NaN stays
// one.
func BFloat16FromFloat32(f float32) BFloat16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return BFloat16(bits>>16 | 0x40)
	}
	return BFloat16((bits + 0x7fff + bits>>16&1) >> 16)
}

// I4FromInt8 is the low four bits of v.
func I4FromInt8(v int8) I4 { return I4(v & 0xf) }

// Int8 is the value of i, -8 … 7.
func (i I4) Int8() int8 { return int8(i<<4) >> 4 }

// I2FromInt8 is the low two bits of v.
func I2FromInt8(v int8) I2 { return I2(v & 3) }

// Int8 is the value of i, -2 … 1.
func (i I2) Int8() int8 { return int8(i<<6) >> 6 }

// float8 describes an eight-bit float (Micikevicius et al. 2022 for E5M2 and
// E4M3FN, Noune et al. 2022 for the FNUZ ones: no infinities, no negative zero,
// 0x80 is the NaN).
type float8 struct {
	mantissa, bias int
	infinities     bool // the largest exponent holds Inf and NaN, as in IEEE 754
	unsignedZero   bool // FNUZ
}

func (f float8) value(b uint8) float32 {
	magnitude := int(b & 0x7f)
	exponent, fraction := magnitude>>f.mantissa, magnitude&(1<<f.mantissa-1)
	last := 1<<(7-f.mantissa) - 1
	var v float64
	switch {
	case f.unsignedZero && b == 0x80, !f.unsignedZero && !f.infinities && magnitude == 0x7f:
		return float32(math.NaN())
	case f.infinities && exponent == last && fraction != 0:
		return float32(math.NaN())
	case f.infinities && exponent == last:
		v = math.Inf(1)
	case exponent == 0:
		v = math.Ldexp(float64(fraction), 1-f.bias-f.mantissa)
	default:
		v = math.Ldexp(float64(fraction+1<<f.mantissa), exponent-f.bias-f.mantissa)
	}
	if b&0x80 != 0 {
		v = -v
	}
	if b == 0x80 {
		return float32(math.Copysign(0, -1))
	}
	return float32(v)
}

var (
	e5m2        = float8{mantissa: 2, bias: 15, infinities: true}
	e4m3fn      = float8{mantissa: 3, bias: 7}
	e4m3fnuz    = float8{mantissa: 3, bias: 8, unsignedZero: true}
	e4m3b11fnuz = float8{mantissa: 3, bias: 11, unsignedZero: true}
	e5m2fnuz    = float8{mantissa: 2, bias: 16, unsignedZero: true}
)

// Float32 is the value of f; exact.
func (f F8E5M2) Float32() float32 { return e5m2.value(uint8(f)) }

// Float32 is the value of f; exact.
func (f F8E4M3FN) Float32() float32 { return e4m3fn.value(uint8(f)) }

// Float32 is the value of f; exact.
func (f F8E4M3FNUZ) Float32() float32 { return e4m3fnuz.value(uint8(f)) }

// Float32 is the value of f; exact.
func (f F8E4M3B11FNUZ) Float32() float32 { return e4m3b11fnuz.value(uint8(f)) }

// Float32 is the value of f; exact.
func (f F8E5M2FNUZ) Float32() float32 { return e5m2fnuz.value(uint8(f)) }
