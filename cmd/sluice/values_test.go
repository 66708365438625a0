package main

import (
	"encoding/json"
	"math"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
)

func TestIntegersAreReadAsTheyAreWritten(t *testing.T) {
	// 2^53 + 1 is the first whole number that a float64 can't hold.
	got, err := written("[9007199254740993, -9223372036854775808, 9223372036854775807, 1e3]", tf.Int64)
	require.NoError(t, err)
	defer got.Close()
	values, err := bridge.Values[int64](got)
	require.NoError(t, err)
	assert.Equal(t, []int64{9007199254740993, math.MinInt64, math.MaxInt64, 1000}, values)

	most, err := written("18446744073709551615", tf.Uint64)
	require.NoError(t, err)
	defer most.Close()
	unsigned, err := bridge.Values[uint64](most)
	require.NoError(t, err)
	assert.Equal(t, []uint64{math.MaxUint64}, unsigned)

	for text, dt := range map[string]tf.DataType{
		"9223372036854775808": tf.Int64, "9.007199254740993e15": tf.Int64, "18446744073709551616": tf.Uint64, "-1": tf.Uint64, "1.5": tf.Int64,
	} {
		_, err := written(text, dt)
		assert.Error(t, err, "%s as %s", text, bridge.DTypeName(dt))
	}
}

func TestAValueEndsWhereItsJSONDoes(t *testing.T) {
	for _, text := range []string{"3]", "[1,2]]", "3}", "3 4", `"a" "b"`, "3,", "", "[1"} {
		_, err := written(text, tf.Float)
		assert.ErrorContains(t, err, "is not a value in JSON", "%s", text)
	}
	got, err := written(" [1, 2]\n", tf.Float)
	require.NoError(t, err)
	got.Close()
}

func TestWhatAVerbAnswersCanBeItsInput(t *testing.T) {
	for _, dt := range []tf.DataType{tf.Float, tf.Double, tf.Half, tf.Bfloat16} {
		const text = `["NaN","Infinity","-Infinity",1.5]`
		got, err := written(text, dt)
		require.NoError(t, err)
		answer, err := arrayOf(got)
		got.Close()
		require.NoError(t, err)
		again, err := json.Marshal(answer.Values)
		require.NoError(t, err)
		assert.JSONEq(t, text, string(again), bridge.DTypeName(dt))
	}
	_, err := written(`"NaN"`, tf.Int32)
	assert.ErrorContains(t, err, "wanted int32")
	_, err = written(`"nan?"`, tf.Float)
	assert.ErrorContains(t, err, "wanted float32")
}

func TestEmptyArraysAreSmallWhateverTheirShape(t *testing.T) {
	for want, shape := range map[string]bridge.Shape{
		"[]":                {0, 1 << 40},
		"[[],[]]":           {2, 0},
		"[[[],[]],[[],[]]]": {2, 2, 0},
		" []":               {1 << 40, 0},
		"  []":              {1 << 15, 1 << 15, 0},
	} {
		empty, err := bridge.NewTensor(tf.Float, shape)
		require.NoError(t, err, "%v", shape)
		answer, err := arrayOf(empty)
		empty.Close()
		require.NoError(t, err)
		text, err := json.Marshal(answer.Values)
		require.NoError(t, err)
		require.Less(t, len(text), 1<<20)
		assert.JSONEq(t, want, string(text), "%v", shape)
		assert.Equal(t, []int64(shape), answer.Shape)
	}
}
