package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/sluice-ml/sluice/bridge"
)

// tolerances is how far two arrays of a dtype may lie apart, as a relative error
// (see difference). 32-bit floats: the same kernels on the same numbers agree
// far better than 1e-6. The 16-bit types round every intermediate result to 11
// or 8 bits.
var tolerances = map[string]float64{
	"float32": 1e-6, "complex64": 1e-6,
	"float64": 1e-12, "complex128": 1e-12,
	"half": 2e-3, "float16": 2e-3, "bfloat16": 1.6e-2,
}

// difference is the largest relative error between two arrays: |a-b| over
// max(|a|,|b|), where the denominator is at least a tenth of the largest
// expected magnitude, so that an element that almost cancels is held to the
// precision of what it was computed from. NaN equals NaN and an infinity itself.
func difference(got, want []complex128) float64 { return differenceAbove(0, got, want) }

// differenceAbove is difference where magnitudes below floor count as floor: of
// what is zero but for roundings.
func differenceAbove(floor float64, got, want []complex128) float64 {
	largest := 10 * floor
	for _, w := range want {
		if a := magnitude(w); !math.IsInf(a, 0) && !math.IsNaN(a) {
			largest = max(largest, a)
		}
	}
	worst := 0.0
	for i := range want {
		worst = max(worst, relative(got[i], want[i], largest/10))
	}
	return worst
}

func relative(got, want complex128, floor float64) float64 {
	worst := 0.0
	parts := [2][2]float64{{real(got), real(want)}, {imag(got), imag(want)}}
	scale := max(magnitude(got), magnitude(want), floor)
	for _, p := range parts {
		switch g, w := p[0], p[1]; {
		case g == w, math.IsNaN(g) && math.IsNaN(w):
		case math.IsNaN(g) || math.IsNaN(w) || math.IsInf(g, 0) || math.IsInf(w, 0):
			return math.Inf(1)
		default:
			worst = max(worst, math.Abs(g-w)/scale)
		}
	}
	return worst
}

func magnitude(c complex128) float64 { return math.Hypot(real(c), imag(c)) }

// numbers reads the elements of any numeric dtype.
func numbers(dtype string, data []byte) ([]complex128, error) {
	dt, err := bridge.ParseDType(dtype)
	if err != nil {
		return nil, err
	}
	size := int(bridge.DTypeSize(dt))
	if size == 0 || len(data)%size != 0 {
		return nil, fmt.Errorf("%d bytes are no array of %s", len(data), dtype)
	}
	f32 := func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }
	f64 := func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }
	var read func([]byte) complex128
	switch dtype {
	case "float32":
		read = func(b []byte) complex128 { return complex(f32(b), 0) }
	case "float64":
		read = func(b []byte) complex128 { return complex(f64(b), 0) }
	case "half", "float16":
		read = func(b []byte) complex128 {
			return complex(float64(bridge.Half(binary.LittleEndian.Uint16(b)).Float32()), 0)
		}
	case "bfloat16":
		read = func(b []byte) complex128 {
			return complex(float64(bridge.BFloat16(binary.LittleEndian.Uint16(b)).Float32()), 0)
		}
	case "complex64":
		read = func(b []byte) complex128 { return complex(f32(b), f32(b[4:])) }
	case "complex128":
		read = func(b []byte) complex128 { return complex(f64(b), f64(b[8:])) }
	case "int64":
		read = func(b []byte) complex128 { return complex(float64(int64(binary.LittleEndian.Uint64(b))), 0) }
	case "int32":
		read = func(b []byte) complex128 { return complex(float64(int32(binary.LittleEndian.Uint32(b))), 0) }
	case "int8":
		read = func(b []byte) complex128 { return complex(float64(int8(b[0])), 0) }
	case "uint8", "bool":
		read = func(b []byte) complex128 { return complex(float64(b[0]), 0) }
	default:
		return nil, fmt.Errorf("no comparison of %s arrays", dtype)
	}
	out := make([]complex128, 0, len(data)/size)
	for chunk := range slices.Chunk(data, size) {
		out = append(out, read(chunk))
	}
	return out, nil
}

// Compare returns the relative error between a tensor and a recorded array, and
// an error when they can't be compared: another dtype or shape.
func (r *Recording) Compare(got *bridge.Tensor, want Array) (float64, error) {
	return r.CompareAbove(0, got, want)
}

// CompareAbove is Compare where magnitudes below floor count as floor.
func (r *Recording) CompareAbove(floor float64, got *bridge.Tensor, want Array) (float64, error) {
	if dtype := bridge.DTypeName(got.DType()); dtype != want.DType && !(dtype == "half" && want.DType == "float16") && !(dtype == "float16" && want.DType == "half") {
		return math.Inf(1), fmt.Errorf("dtype %s, Python has %s", dtype, want.DType)
	}
	if !slices.Equal([]int64(got.Shape()), want.Shape) {
		return math.Inf(1), fmt.Errorf("shape %v, Python has %v", got.Shape(), bridge.Shape(want.Shape))
	}
	data, err := got.Bytes()
	if err != nil {
		return math.Inf(1), err
	}
	a, err := numbers(want.DType, data)
	if err != nil {
		return math.Inf(1), err
	}
	expected, err := r.Bytes(want)
	if err != nil {
		return math.Inf(1), err
	}
	b, err := numbers(want.DType, expected)
	if err != nil {
		return math.Inf(1), err
	}
	if len(a) != len(b) {
		return math.Inf(1), fmt.Errorf("%d elements, Python has %d", len(a), len(b))
	}
	return differenceAbove(floor, a, b), nil
}

// zeros reports whether a recorded array holds nothing but zeros.
func (r *Recording) zeros(a Array) bool {
	data, err := r.Bytes(a)
	if err != nil {
		return false
	}
	values, err := numbers(a.DType, data)
	return err == nil && !slices.ContainsFunc(values, func(v complex128) bool { return v != 0 })
}

// tolerance is the bound for a dtype. loose is a wider one for 32-bit floats, for
// what the two sides reach by other steps; 64-bit floats get a millionth of it.
func tolerance(dtype string, loose float64) float64 {
	if dtype == "float64" || dtype == "complex128" {
		loose *= 1e-6
	}
	return max(tolerances[dtype], loose)
}
