package ops_test

import (
	"math"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

func TestFormulaIsArithmetic(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	g := ops.NewGraph(ops.GraphOptions{})
	f := ops.NewFormula(g.Root(), tf.Double)
	x, y := g.Const([]float64{-7.5, 0.25, 4}), g.Const([]float64{2, 2, -3})
	holes := g.Const([]float64{nan, inf, 1})
	type row struct {
		name string
		out  tf.Output
		want []float64
	}
	rows := []row{
		{"add", f.Add(x, y), []float64{-5.5, 2.25, 1}},
		{"sub", f.Sub(x, y), []float64{-9.5, -1.75, 7}},
		{"mul", f.Mul(x, y), []float64{-15, 0.5, -12}},
		{"div", f.Div(x, y), []float64{-3.75, .125, -4. / 3}},
		{"div by zero", f.DivNoNaN(x, f.Constant(0)), []float64{0, 0, 0}},
		{"floor div", f.FloorDiv(x, y), []float64{-4, 0, -2}},
		{"floor mod", f.FloorMod(x, y), []float64{.5, .25, -2}},
		{"pow", f.Pow(x, f.Constant(2)), []float64{56.25, .0625, 16}},
		{"maximum", f.Maximum(x, y), []float64{2, 2, 4}},
		{"minimum", f.Minimum(x, y), []float64{-7.5, .25, -3}},
		{"neg", f.Neg(x), []float64{7.5, -.25, -4}},
		{"abs", f.Abs(x), []float64{7.5, .25, 4}},
		{"sign", f.Sign(x), []float64{-1, 1, 1}},
		{"square", f.Square(y), []float64{4, 4, 9}},
		{"sqrt", f.Sqrt(f.Abs(x)), []float64{math.Sqrt(7.5), .5, 2}},
		{"rsqrt", f.Rsqrt(f.Abs(x)), []float64{1 / math.Sqrt(7.5), 2, .5}},
		{"reciprocal", f.Reciprocal(y), []float64{.5, .5, -1. / 3}},
		{"exp", f.Exp(y), []float64{math.Exp(2), math.Exp(2), math.Exp(-3)}},
		{"log", f.Log(f.Abs(y)), []float64{math.Log(2), math.Log(2), math.Log(3)}},
		{"log1p", f.Log1p(f.Constant(1e-9)), []float64{math.Log1p(1e-9)}},
		{"expm1", f.Expm1(f.Constant(1e-9)), []float64{math.Expm1(1e-9)}},
		{"floor", f.Floor(x), []float64{-8, 0, 4}},
		{"ceil", f.Ceil(x), []float64{-7, 1, 4}},
		{"round", f.Round(g.Const([]float64{.5, 1.5, -2.6})), []float64{0, 2, -3}},
		{"sin", f.Sin(x), []float64{math.Sin(-7.5), math.Sin(.25), math.Sin(4)}},
		{"cos", f.Cos(x), []float64{math.Cos(-7.5), math.Cos(.25), math.Cos(4)}},
		{"tanh", f.Tanh(x), []float64{math.Tanh(-7.5), math.Tanh(.25), math.Tanh(4)}},
		{"sigmoid", f.Sigmoid(y), []float64{1 / (1 + math.Exp(-2)), 1 / (1 + math.Exp(-2)), 1 / (1 + math.Exp(3))}},
		{"softplus", f.Softplus(y), []float64{math.Log1p(math.Exp(2)), math.Log1p(math.Exp(2)), math.Log1p(math.Exp(-3))}},
		{"select keeps the other side's NaN out", f.Select(f.IsFinite(holes), holes, f.Constant(-1)), []float64{-1, -1, 1}},
		{"clip", f.Clip(x, f.Constant(-1), f.Constant(1)), []float64{-1, .25, 1}},
		{"greater", f.Cast(f.Greater(x, y)), []float64{0, 0, 1}},
		{"greater or equal", f.Cast(f.GreaterEqual(x, x)), []float64{1, 1, 1}},
		{"less", f.Cast(f.Less(x, y)), []float64{1, 1, 0}},
		{"less or equal", f.Cast(f.LessEqual(x, y)), []float64{1, 1, 0}},
		{"equal", f.Cast(f.Equal(holes, holes)), []float64{0, 1, 1}},
		{"not equal", f.Cast(f.NotEqual(holes, holes)), []float64{1, 0, 0}},
		{"and", f.Cast(f.And(f.Less(x, y), f.Less(x, f.Constant(0)))), []float64{1, 0, 0}},
		{"or", f.Cast(f.Or(f.Greater(x, y), f.Less(x, f.Constant(0)))), []float64{1, 0, 1}},
		{"not", f.Cast(f.Not(f.Greater(x, y))), []float64{1, 1, 0}},
		{"cast", f.Cast(g.Const([]int32{1, 2})), []float64{1, 2}},
		{"normal of no spread", f.NormalLike(x, f.Constant(3), f.Constant(0), ops.Draw{}), []float64{3, 3, 3}},
	}
	s := session(t, g)
	for _, r := range rows {
		assert.InDeltaSlice(t, r.want, floats(t, s, r.out), 1e-12, r.name)
	}
}

func TestFormulaUsesEqualConstantsOnce(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	f := ops.NewFormula(g.Root(), tf.Float)
	a := f.Constant(.5)
	assert.True(t, bridge.SameOutput(a, f.Constant(.5)))
	assert.True(t, bridge.SameOutput(a, f.In(g.Scope("other")).Constant(.5)))
	assert.False(t, bridge.SameOutput(a, f.Of(tf.Double).Constant(.5)))
	negativeZero := f.Constant(math.Copysign(0, -1))
	assert.False(t, bridge.SameOutput(f.Constant(0), negativeZero))
	plain := ops.Formula{Scope: g.Root(), DType: tf.Float}
	assert.False(t, bridge.SameOutput(plain.Constant(.5), plain.Constant(.5)))
	require.NoError(t, g.Err())
}

func TestConstantsOfGoValues(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	given, err := bridge.FromFlat(ops.Shape{2}, []float32{1, 2})
	require.NoError(t, err)
	defer given.Close()
	for name, c := range map[string]struct {
		value any
		dt    tf.DataType
		shape ops.Shape
	}{
		"int":          {3, tf.Int64, ops.Shape{}},
		"ints":         {[]int{1, 2}, tf.Int64, ops.Shape{2}},
		"float32":      {float32(1), tf.Float, ops.Shape{}},
		"float64":      {.5, tf.Double, ops.Shape{}},
		"matrix":       {[][]float32{{1, 2, 3}, {4, 5, 6}}, tf.Float, ops.Shape{2, 3}},
		"array":        {[2][1]int32{{1}, {2}}, tf.Int32, ops.Shape{2, 1}},
		"empty":        {[]float32{}, tf.Float, ops.Shape{0}},
		"empty rows":   {[][]float32{{}, {}}, tf.Float, ops.Shape{2, 0}},
		"no rows":      {[][]float32{}, tf.Float, ops.Shape{0, 0}},
		"bool":         {[]bool{true}, tf.Bool, ops.Shape{1}},
		"string":       {"a", tf.String, ops.Shape{}},
		"strings":      {[][]string{{"a", "b\x00"}}, tf.String, ops.Shape{1, 2}},
		"half":         {[]bridge.Half{1}, tf.Half, ops.Shape{1}},
		"bytes":        {[]byte{1, 2}, tf.Uint8, ops.Shape{2}},
		"complex":      {complex64(1i), tf.Complex64, ops.Shape{}},
		"a tensor":     {given, tf.Float, ops.Shape{2}},
		"many float64": {[]float64{1, 2}, tf.Double, ops.Shape{2}},
		"many int64":   {[]int64{1, 2}, tf.Int64, ops.Shape{2}},
		"many int32":   {[]int32{1, 2}, tf.Int32, ops.Shape{2}},
	} {
		out := g.Const(c.value)
		require.NotNil(t, out.Op, "%s: %v", name, g.Err())
		assert.Equal(t, c.dt, out.DataType(), name)
		assert.True(t, c.shape.Equal(bridge.ShapeOf(out)), "%s: %v", name, bridge.ShapeOf(out))
	}
	binding, err := tf.NewTensor([]float32{7})
	require.NoError(t, err)
	typed := ops.Const(g.Root(), ops.Shape{2, 1}, []int8{-1, 1})
	s := session(t, g)
	assert.Equal(t, []float64{7}, floats(t, s, g.Const(binding)))
	assert.Equal(t, []float64{-1, 1}, floats(t, s, typed))
}
