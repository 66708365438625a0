package bridge_test

import (
	"math"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/sluice-ml/sluice/bridge"
	"github.com/stretchr/testify/require"
)

func TestDTypeNames(t *testing.T) {
	for dt, name := range map[tf.DataType]string{
		tf.Float: "float32", tf.Double: "float64", tf.Half: "float16", tf.Bfloat16: "bfloat16",
		tf.Bool: "bool", tf.String: "string", tf.Int64: "int64", tf.Uint16: "uint16",
		tf.Complex128: "complex128", tf.Quint8: "quint8", bridge.Float8E4M3FN: "float8_e4m3fn",
		bridge.Int4: "int4", bridge.Resource: "resource", bridge.Variant: "variant",
		tf.Float + 100: "float32_ref",
	} {
		require.Equal(t, name, bridge.DTypeName(dt))
		parsed, err := bridge.ParseDType(name)
		require.NoError(t, err)
		require.Equal(t, dt, parsed)
	}
	for name, dt := range map[string]tf.DataType{
		"half": tf.Half, "double": tf.Double, "DT_FLOAT": tf.Float, "DT_HALF": tf.Half, "DT_BFLOAT16": tf.Bfloat16, "DT_INT32_REF": tf.Int32 + 100,
	} {
		parsed, err := bridge.ParseDType(name)
		require.NoError(t, err)
		require.Equal(t, dt, parsed, name)
	}
	for _, none := range []string{"", "float", "int128", "ref", "_ref"} {
		_, err := bridge.ParseDType(none)
		require.ErrorIs(t, err, bridge.ErrInvalidArgument)
		require.ErrorContains(t, err, "bfloat16", "what exists is listed")
	}
	for _, none := range []tf.DataType{0, 33, 99, 100, 133, 1 << 20, math.MaxUint32} {
		require.Contains(t, bridge.DTypeName(none), "dtype(")
		require.Zero(t, bridge.DTypeSize(none))
		require.False(t, bridge.IsFloating(none) || bridge.IsInteger(none) || bridge.IsComplex(none) || bridge.IsQuantized(none))
	}
	require.True(t, bridge.IsFloating(bridge.Float8E5M2) && bridge.IsFloating(tf.Bfloat16) && !bridge.IsFloating(tf.Complex64))
	require.True(t, bridge.IsInteger(bridge.Uint4) && bridge.IsInteger(tf.Int8) && !bridge.IsInteger(tf.Qint8) && !bridge.IsInteger(tf.Bool))
	require.True(t, bridge.IsComplex(tf.Complex128) && bridge.IsQuantized(tf.Qint32))
	require.Equal(t, tf.Float, bridge.BaseDType(tf.Float+100))
	require.Equal(t, tf.Float, bridge.BaseDType(tf.Float))
}

// cast converts in TensorFlow.
func cast(t *testing.T, v *bridge.Tensor, to tf.DataType) *bridge.Tensor {
	t.Helper()
	g := newGraph(t)
	x := g.placeholder("x", v.DType(), nil)
	y := g.op("Cast", "y", []tf.Output{x}, bridge.Attr{Name: "DstT", Value: to}).Output(0)
	got, err := g.session(bridge.Config{}).Call(t.Context(), bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{y}}, v)
	require.NoError(t, err)
	t.Cleanup(func() { got[0].Close() })
	return got[0]
}

// sameFloats compares bit for bit, but for a NaN's bits.
func sameFloats(t *testing.T, want, got []float32) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) && (want[i] == want[i] || got[i] == got[i]) {
			t.Fatalf("element %d: wanted %v (%08x), got %v (%08x)", i, want[i], math.Float32bits(want[i]), got[i], math.Float32bits(got[i]))
		}
	}
}

// decodes compares ToFloat32 and ToFloat64 of every bit pattern with
// TensorFlow's Cast.
func decodes[T interface {
	bridge.Element
	~uint8 | ~uint16
}](t *testing.T, patterns int) {
	t.Helper()
	t.Run(bridge.DTypeName(bridge.DTypeOf[T]()), func(t *testing.T) {
		all := make([]T, patterns)
		for i := range all {
			all[i] = T(i)
		}
		v := flat(t, bridge.Shape{int64(patterns)}, all...)
		want := values[float32](t, cast(t, v, tf.Float))
		got, err := bridge.ToFloat32(v)
		require.NoError(t, err)
		sameFloats(t, want, got)
		wide, err := bridge.ToFloat64(v)
		require.NoError(t, err)
		for i, w := range wide {
			got[i] = float32(w)
		}
		sameFloats(t, want, got)
	})
}

func TestSmallFloatsAreTensorFlows(t *testing.T) {
	decodes[bridge.Half](t, 1<<16)
	decodes[bridge.BFloat16](t, 1<<16)
	decodes[bridge.F8E5M2](t, 1<<8)
	decodes[bridge.F8E4M3FN](t, 1<<8)

	// TensorFlow has no Cast kernel for the others. The largest value, one, the
	// smallest above zero, a negative and the NaN of the papers' tables:
	// E4M3FNUZ has bias 8, E4M3B11FNUZ bias 11, E5M2FNUZ bias 16; none has an
	// infinity or a negative zero.
	nan := float32(math.NaN())
	sameFloats(t, []float32{240, 1, 0x1p-10, -0x1p-10, nan, 0}, []float32{
		bridge.F8E4M3FNUZ(0x7f).Float32(), bridge.F8E4M3FNUZ(0x40).Float32(), bridge.F8E4M3FNUZ(0x01).Float32(),
		bridge.F8E4M3FNUZ(0x81).Float32(), bridge.F8E4M3FNUZ(0x80).Float32(), bridge.F8E4M3FNUZ(0).Float32()})
	sameFloats(t, []float32{30, 1, 0x1p-13, -0x1p-13, nan, 0}, []float32{
		bridge.F8E4M3B11FNUZ(0x7f).Float32(), bridge.F8E4M3B11FNUZ(0x58).Float32(), bridge.F8E4M3B11FNUZ(0x01).Float32(),
		bridge.F8E4M3B11FNUZ(0x81).Float32(), bridge.F8E4M3B11FNUZ(0x80).Float32(), bridge.F8E4M3B11FNUZ(0).Float32()})
	sameFloats(t, []float32{57344, 1, 0x1p-17, -0x1p-17, nan, 0}, []float32{
		bridge.F8E5M2FNUZ(0x7f).Float32(), bridge.F8E5M2FNUZ(0x40).Float32(), bridge.F8E5M2FNUZ(0x01).Float32(),
		bridge.F8E5M2FNUZ(0x81).Float32(), bridge.F8E5M2FNUZ(0x80).Float32(), bridge.F8E5M2FNUZ(0).Float32()})
}

func TestRoundingIsTensorFlows(t *testing.T) {
	in := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 65504, 65519.99, 65520, 65536, 1e10, -1e10,
		0x1p-24, 0x1p-25, 0x1.8p-25, 0x1p-26, 0x1p-14, 0x1.ffcp-15, 0x1.ffep-15, 0x1.ffffp-15, math.MaxFloat32, math.SmallestNonzeroFloat32,
		float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	for _, bits := range randomBits(1 << 16) {
		in = append(in, math.Float32frombits(bits))
		// The same fraction in half's range, where ties and subnormals are.
		in = append(in, math.Float32frombits(bits&0x807fffff|(bits>>23%48+100)<<23))
		in = append(in, math.Float32frombits(bits&0x807ff000|(bits>>23%48+100)<<23))
	}
	v := flat(t, bridge.Shape{int64(len(in))}, in...)
	want, err := bridge.ToFloat32(cast(t, v, tf.Half))
	require.NoError(t, err)
	got := make([]float32, len(in))
	for i, f := range in {
		got[i] = bridge.HalfFromFloat32(f).Float32()
	}
	sameFloats(t, want, got)

	want, err = bridge.ToFloat32(cast(t, v, tf.Bfloat16))
	require.NoError(t, err)
	for i, f := range in {
		got[i] = bridge.BFloat16FromFloat32(f).Float32()
	}
	sameFloats(t, want, got)
}

func TestToFloat(t *testing.T) {
	numbers := func(v *bridge.Tensor) []float64 {
		defer v.Close()
		narrow, err := bridge.ToFloat32(v)
		require.NoError(t, err)
		wide, err := bridge.ToFloat64(v)
		require.NoError(t, err)
		for i := range narrow {
			require.Equal(t, float32(wide[i]), narrow[i])
		}
		return wide
	}
	two := bridge.Shape{2}
	for name, c := range map[string]struct {
		v    *bridge.Tensor
		want []float64
	}{
		"float32": {flat(t, two, float32(0.5), -2), []float64{0.5, -2}},
		"float64": {flat(t, two, 0.1, -2), []float64{0.1, -2}},
		"bool":    {flat(t, two, true, false), []float64{1, 0}},
		"int8":    {flat(t, two, int8(-128), 127), []float64{-128, 127}},
		"uint8":   {flat(t, two, uint8(0), 255), []float64{0, 255}},
		"int16":   {flat(t, two, int16(-3), 3), []float64{-3, 3}},
		"uint16":  {flat(t, two, uint16(0), 65535), []float64{0, 65535}},
		"int32":   {flat(t, two, int32(-3), 3), []float64{-3, 3}},
		"uint32":  {flat(t, two, uint32(0), math.MaxUint32), []float64{0, math.MaxUint32}},
		"int64":   {flat(t, two, int64(-1<<40), 1<<53), []float64{-1 << 40, 1 << 53}},
		"uint64":  {flat(t, two, uint64(0), 1<<63), []float64{0, 1 << 63}},
		"qint8":   {flat(t, two, bridge.QInt8(-5), 5), []float64{-5, 5}},
		"quint16": {flat(t, two, bridge.QUint16(0), 5), []float64{0, 5}},
		"qint32":  {flat(t, two, bridge.QInt32(-5), 5), []float64{-5, 5}},
		"int4":    {flat(t, two, bridge.I4FromInt8(-8), 7), []float64{-8, 7}},
		"uint4":   {flat(t, two, bridge.U4(0), 15), []float64{0, 15}},
		"int2":    {flat(t, two, bridge.I2FromInt8(-2), 1), []float64{-2, 1}},
		"uint2":   {flat(t, two, bridge.U2(0), 3), []float64{0, 3}},
		"empty":   {flat[float32](t, bridge.Shape{0}), []float64{}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, numbers(c.v)) })
	}
	for _, v := range []*bridge.Tensor{flat(t, two, complex64(1), 2), flat(t, two, complex(1, 1), 2)} {
		_, err := bridge.ToFloat64(v)
		require.ErrorContains(t, err, "not real numbers")
	}
}

func TestFourBitIntegersAreTensorFlows(t *testing.T) {
	all := []int8{-8, -7, -1, 0, 1, 7}
	ours := make([]bridge.I4, len(all))
	for i, v := range all {
		ours[i] = bridge.I4FromInt8(v)
		require.Equal(t, v, ours[i].Int8())
	}
	require.Equal(t, ours, values[bridge.I4](t, cast(t, flat(t, bridge.Shape{6}, all...), bridge.Int4)))
	require.Equal(t, all, values[int8](t, cast(t, flat(t, bridge.Shape{6}, ours...), tf.Int8)))
	require.Equal(t, []bridge.U4{0, 9, 15}, values[bridge.U4](t, cast(t, flat(t, bridge.Shape{3}, uint8(0), 9, 15), bridge.Uint4)))
	for _, v := range []int8{-2, -1, 0, 1} {
		require.Equal(t, v, bridge.I2FromInt8(v).Int8())
	}
}

func TestShape(t *testing.T) {
	var unknown bridge.Shape
	for _, c := range []struct {
		shape    bridge.Shape
		text     string
		rank     int
		elements int64
		defined  bool
	}{
		{unknown, "<unknown>", -1, -1, false},
		{bridge.Shape{}, "[]", 0, 1, true},
		{bridge.Shape{3}, "[3]", 1, 3, true},
		{bridge.Shape{-1, 3}, "[?,3]", 2, -1, false},
		{bridge.Shape{0, 3}, "[0,3]", 2, 0, true},
		{bridge.Shape{1 << 40, 1 << 40}, "[1099511627776,1099511627776]", 2, -1, true},
	} {
		t.Run(c.text, func(t *testing.T) {
			require.Equal(t, c.text, c.shape.String())
			require.Equal(t, c.rank, c.shape.Rank())
			n, known := c.shape.NumElements()
			require.Equal(t, c.elements, n)
			require.Equal(t, c.elements >= 0, known)
			require.Equal(t, c.defined, c.shape.FullyDefined())
			require.True(t, c.shape.Equal(bridge.FromTFShape(c.shape.TF())), "to the binding and back")
			require.True(t, c.shape.Equal(c.shape.Clone()))
		})
	}
	require.True(t, unknown.CompatibleWith(bridge.Shape{1, 2}) && bridge.Shape{}.CompatibleWith(unknown))
	require.True(t, bridge.Shape{-1, 3}.CompatibleWith(bridge.Shape{2, -1}))
	require.False(t, bridge.Shape{-1, 3}.CompatibleWith(bridge.Shape{2, 4}))
	require.False(t, bridge.Shape{3}.CompatibleWith(bridge.Shape{3, 1}))
	require.False(t, unknown.Equal(bridge.Shape{}))
	require.False(t, bridge.Shape{-1}.Equal(bridge.Shape{1}))
}

func TestShapeOf(t *testing.T) {
	g := newGraph(t)
	require.Equal(t, bridge.Shape{-1, 3}, bridge.ShapeOf(g.placeholder("a", tf.Float, bridge.Shape{-1, 3})))
	require.Equal(t, bridge.Shape{}, bridge.ShapeOf(g.placeholder("b", tf.Float, bridge.Shape{})))
	c := g.placeholder("c", tf.Float, nil)
	require.Nil(t, bridge.ShapeOf(c))
	require.Nil(t, bridge.ShapeOf(tf.Output{}))
	require.Nil(t, bridge.ShapeOf(c.Op.Output(1)))
	require.Nil(t, bridge.ShapeOf(tf.Output{Op: c.Op, Index: -1}))
	require.Nil(t, bridge.ShapeOf(tf.Output{Op: &tf.Operation{}}))
}
