package bridge_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/sluice-ml/sluice/bridge"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// through runs the tensor through an Identity in TensorFlow.
func through(t testing.TB, v *bridge.Tensor) *bridge.Tensor {
	t.Helper()
	g := newGraph(t)
	x := g.placeholder("x", v.DType(), v.Shape())
	got, err := g.session(bridge.Config{}).Call(context.Background(),
		bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{g.op("Identity", "y", []tf.Output{x}).Output(0)}}, v)
	require.NoError(t, err)
	t.Cleanup(func() { got[0].Close() })
	return got[0]
}

// lacking holds that a type which this libtensorflow is too old for is told by
// its name where a graph would get it, before libtensorflow sees its number.
func lacking[T bridge.Element](t *testing.T, dt tf.DataType, data ...T) {
	t.Helper()
	g := newGraph(t)
	v := flat(t, bridge.Shape{int64(len(data))}, data...)
	require.Equal(t, data, values[T](t, v))
	_, constant := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "Const", Attrs: []bridge.Attr{{Name: "value", Value: v}, {Name: "dtype", Value: dt}}})
	_, one := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "Placeholder", Attrs: []bridge.Attr{{Name: "dtype", Value: dt}}})
	_, several := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "FIFOQueueV2", Attrs: []bridge.Attr{{Name: "component_types", Value: []tf.DataType{dt}}}})
	for _, err := range []error{constant, one, several} {
		require.ErrorIs(t, err, bridge.ErrUnimplemented)
		require.ErrorContains(t, err, "libtensorflow "+bridge.Version()+" has no data type "+bridge.DTypeName(dt))
	}
	x := g.placeholder("x", tf.Float, nil)
	_, err := g.session(bridge.Config{}).Call(t.Context(), bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{x}}, v)
	require.ErrorIs(t, err, bridge.ErrInvalidArgument)
}

// roundTrip checks one element type: in, through TensorFlow, and out.
func roundTrip[T bridge.Element](t *testing.T, want tf.DataType, data ...T) {
	t.Helper()
	t.Run(bridge.DTypeName(want), func(t *testing.T) {
		require.Equal(t, want, bridge.DTypeOf[T]())
		if !bridge.HasDType(want) {
			lacking(t, want, data...)
			return
		}
		require.EqualValues(t, bridge.DTypeSize(want), unsafe.Sizeof(data[0]))
		for _, shape := range []bridge.Shape{{int64(len(data))}, {1, int64(len(data)), 1}} {
			v := flat(t, shape, data...)
			require.Equal(t, want, v.DType())
			require.Equal(t, shape, v.Shape())
			got := through(t, v)
			require.Equal(t, data, values[T](t, got))
			raw, err := got.Bytes()
			require.NoError(t, err)
			again, err := bridge.FromBytes(want, shape, raw)
			require.NoError(t, err)
			defer again.Close()
			require.Equal(t, data, values[T](t, again))
			clone, err := again.Clone()
			require.NoError(t, err)
			defer clone.Close()
			require.Equal(t, data, values[T](t, clone))
		}
		one, err := bridge.Scalar(data[0])
		require.NoError(t, err)
		defer one.Close()
		got := through(t, one)
		require.Equal(t, bridge.Shape{}, got.Shape())
		item, err := bridge.Item[T](got)
		require.NoError(t, err)
		require.Equal(t, data[0], item)
		for _, empty := range []bridge.Shape{{0}, {0, 3}, {2, 0, 3}} {
			v := flat[T](t, empty)
			require.EqualValues(t, 0, v.NumElements())
			got := through(t, v)
			require.Equal(t, empty, got.Shape())
			require.Empty(t, values[T](t, got))
			view, err := bridge.Flat[T](got)
			require.NoError(t, err)
			require.NotNil(t, view)
		}
		borrowed, err := bridge.Borrow(bridge.Shape{int64(len(data))}, data)
		require.NoError(t, err)
		defer borrowed.Close()
		require.Equal(t, data, values[T](t, through(t, borrowed)))
	})
}

func TestEveryDTypeGoesThroughTensorFlow(t *testing.T) {
	roundTrip(t, tf.Float, float32(math.Inf(-1)), -0.5, math.MaxFloat32, math.SmallestNonzeroFloat32)
	roundTrip(t, tf.Double, math.Inf(1), -0.5, math.MaxFloat64, math.SmallestNonzeroFloat64)
	roundTrip(t, tf.Int8, int8(-128), 0, 127)
	roundTrip(t, tf.Int16, int16(math.MinInt16), 0, math.MaxInt16)
	roundTrip(t, tf.Int32, int32(math.MinInt32), 0, math.MaxInt32)
	roundTrip(t, tf.Int64, int64(math.MinInt64), 0, math.MaxInt64)
	roundTrip(t, tf.Uint8, uint8(0), 7, 255)
	roundTrip(t, tf.Uint16, uint16(0), 7, math.MaxUint16)
	roundTrip(t, tf.Uint32, uint32(0), 7, math.MaxUint32)
	roundTrip(t, tf.Uint64, uint64(0), 7, math.MaxUint64)
	roundTrip(t, tf.Bool, true, false, true)
	roundTrip(t, tf.Complex64, complex64(complex(1, -2)), 3)
	roundTrip(t, tf.Complex128, complex(1, -2), 3)
	roundTrip(t, tf.Half, bridge.Half(0x3c00), 0x7bff, 0x0001)
	roundTrip(t, tf.Bfloat16, bridge.BFloat16(0x3f80), 0x7f7f, 0x0001)
	roundTrip(t, bridge.Float8E5M2, bridge.F8E5M2(0x3c), 0x7b, 0x81)
	roundTrip(t, bridge.Float8E4M3FN, bridge.F8E4M3FN(0x38), 0x7e, 0x81)
	roundTrip(t, bridge.Float8E4M3FNUZ, bridge.F8E4M3FNUZ(0x40), 0x7f, 0x81)
	roundTrip(t, bridge.Float8E4M3B11FNUZ, bridge.F8E4M3B11FNUZ(0x58), 0x7f, 0x81)
	roundTrip(t, bridge.Float8E5M2FNUZ, bridge.F8E5M2FNUZ(0x40), 0x7f, 0x81)
	roundTrip(t, bridge.Int4, bridge.I4(8), 0, 15)
	roundTrip(t, bridge.Uint4, bridge.U4(0), 9, 15)
	roundTrip(t, bridge.Int2, bridge.I2(2), 3, 1)
	roundTrip(t, bridge.Uint2, bridge.U2(0), 1, 3)
	roundTrip(t, tf.Qint8, bridge.QInt8(-128), 127)
	roundTrip(t, tf.Quint8, bridge.QUint8(0), 255)
	roundTrip(t, tf.Qint16, bridge.QInt16(-1), 1)
	roundTrip(t, tf.Quint16, bridge.QUint16(0), 65535)
	roundTrip(t, tf.Qint32, bridge.QInt32(-1), 1)

	t.Run("string", func(t *testing.T) {
		for _, c := range []struct {
			shape bridge.Shape
			data  []string
		}{
			{bridge.Shape{}, []string{"scalar"}},
			{bridge.Shape{0}, []string{}},
			{bridge.Shape{0, 3}, []string{}},
			{bridge.Shape{2, 3}, []string{"", "\x00", "a\x00b", strings.Repeat("x", 22), strings.Repeat("y", 23), strings.Repeat("long\x00", 10_000)}},
			{bridge.Shape{300}, strings.Split(strings.Repeat("more than one chunk,", 299)+"last", ",")},
		} {
			v, err := bridge.FromStrings(c.shape, c.data)
			require.NoError(t, err)
			defer v.Close()
			got := through(t, v)
			require.Equal(t, c.shape, got.Shape())
			all, err := got.Strings()
			require.NoError(t, err)
			require.Equal(t, c.data, all)
			clone, err := got.Clone()
			require.NoError(t, err)
			defer clone.Close()
			all, err = clone.Strings()
			require.NoError(t, err)
			require.Equal(t, c.data, all)
		}
		blank, err := bridge.NewTensor(tf.String, bridge.Shape{2})
		require.NoError(t, err)
		defer blank.Close()
		all, err := through(t, blank).Strings()
		require.NoError(t, err)
		require.Equal(t, []string{"", ""}, all)
	})

	t.Run("variant", func(t *testing.T) {
		g := newGraph(t)
		list := g.op("EmptyTensorList", "list", []tf.Output{constant(g, "shape", bridge.Shape{0}, []int32{}...), constant(g, "max", bridge.Shape{}, int32(-1))},
			bridge.Attr{Name: "element_dtype", Value: tf.Float}).Output(0)
		length := g.op("TensorListLength", "length", []tf.Output{list}).Output(0)
		s := g.session(bridge.Config{})
		lists, err := s.Call(t.Context(), bridge.Call{Fetches: []tf.Output{list}})
		require.NoError(t, err)
		defer lists[0].Close()
		require.Equal(t, "variant []", lists[0].String())
		_, err = lists[0].Bytes()
		require.ErrorIs(t, err, bridge.ErrInvalidArgument)
		_, err = lists[0].Strings()
		require.ErrorIs(t, err, bridge.ErrInvalidArgument)
		_, err = bridge.ToFloat32(lists[0])
		require.ErrorIs(t, err, bridge.ErrInvalidArgument)
		_, err = lists[0].Clone()
		require.ErrorIs(t, err, bridge.ErrUnimplemented)
		_, err = lists[0].TF()
		require.Error(t, err)
		lengths, err := s.Call(t.Context(), bridge.Call{Feeds: []tf.Output{list}, Fetches: []tf.Output{length}}, lists[0])
		require.NoError(t, err)
		defer lengths[0].Close()
		require.Equal(t, []int32{0}, values[int32](t, lengths[0]))
	})
}

func TestTensorRefuses(t *testing.T) {
	big := make(bridge.Shape, 255)
	for i := range big {
		big[i] = 1
	}
	made := func(v *bridge.Tensor, err error) error { v.Close(); return err }
	v := flat(t, bridge.Shape{2}, float32(1), 2)
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"a negative dimension", made(bridge.NewTensor(tf.Float, bridge.Shape{2, -1})), "dimension 1 of shape [2,?] is -1"},
		{"too many dimensions", made(bridge.NewTensor(tf.Float, big)), "at most 254 dimensions, got 255"},
		{"too many elements", made(bridge.NewTensor(tf.Float, bridge.Shape{1 << 32, 1 << 32})), "larger than 2^63 bytes"},
		{"too many bytes", made(bridge.NewTensor(tf.Double, bridge.Shape{1 << 61})), "larger than 2^63 bytes"},
		{"too many elements with none at last", made(bridge.NewTensor(tf.Float, bridge.Shape{1 << 32, 1 << 32, 0})), "larger than 2^63 bytes"},
		{"data type 0", made(bridge.NewTensor(0, bridge.Shape{1})), "dtype(0)"},
		{"resource", made(bridge.NewTensor(bridge.Resource, bridge.Shape{1})), "resource"},
		{"a reference type", made(bridge.NewTensor(tf.Float+100, bridge.Shape{1})), "float32_ref"},
		{"too few elements", made(bridge.FromFlat(bridge.Shape{2, 3}, []float32{1})), "shape [2,3] has 6 elements, got 1"},
		{"too many elements for a scalar", made(bridge.FromFlat(nil, []float32{1, 2})), "has 1 elements, got 2"},
		{"a huge shape for few elements", made(bridge.FromFlat(bridge.Shape{1 << 40}, []float32{1})), "has 1099511627776 elements, got 1"},
		{"too few bytes", made(bridge.FromBytes(tf.Int32, bridge.Shape{2}, make([]byte, 7))), "has 8 bytes, got 7"},
		{"bytes for strings", made(bridge.FromBytes(tf.String, bridge.Shape{2}, make([]byte, 48))), "string has no elements of fixed size"},
		{"too few strings", made(bridge.FromStrings(bridge.Shape{2}, []string{"a"})), "has 2 elements, got 1"},
		{"too little memory to borrow", made(bridge.Borrow(bridge.Shape{2}, []float32{1})), "has 2 elements, got 1"},
		{"a nil tensor of the binding's", made(bridge.FromTF(nil)), "the tensor is nil"},
		{"an empty tensor of the binding's", made(bridge.FromTF(&tf.Tensor{})), "the tensor is nil"},
		{"a view of another type", func() error { _, err := bridge.Flat[int32](v); return err }(), "the tensor's elements are float32, not int32"},
		{"a quantized view of an integer", func() error { _, err := bridge.Values[bridge.QInt32](v); return err }(), "float32, not qint32"},
		{"one item of two", func() error { _, err := bridge.Item[float32](v); return err }(), "has 2 elements (shape [2]), not one"},
		{"strings of numbers", func() error { _, err := v.Strings(); return err }(), "float32, not string"},
		{"a view of nil", func() error { _, err := bridge.Flat[int32](nil); return err }(), "the tensor is nil"},
		{"a copy of a zero tensor", func() error { _, err := new(bridge.Tensor).Clone(); return err }(), "the tensor is nil"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.ErrorIs(t, c.err, bridge.ErrInvalidArgument)
			require.ErrorContains(t, c.err, c.want)
		})
	}
	t.Run("what there is no memory for", func(t *testing.T) {
		require.ErrorIs(t, made(bridge.NewTensor(tf.Float, bridge.Shape{1 << 60})), bridge.ErrResourceExhausted)
	})
}

func TestTensorAfterClose(t *testing.T) {
	v, err := bridge.FromFlat(bridge.Shape{2}, []float32{1, 2})
	require.NoError(t, err)
	words, err := bridge.FromStrings(bridge.Shape{}, []string{"a"})
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, v.Close())
		require.NoError(t, words.Close())
	}
	for name, use := range map[string]func() error{
		"Flat":      func() error { _, err := bridge.Flat[float32](v); return err },
		"Values":    func() error { _, err := bridge.Values[float32](v); return err },
		"Item":      func() error { _, err := bridge.Item[float32](v); return err },
		"ToFloat32": func() error { _, err := bridge.ToFloat32(v); return err },
		"ToFloat64": func() error { _, err := bridge.ToFloat64(v); return err },
		"Bytes":     func() error { _, err := v.Bytes(); return err },
		"Strings":   func() error { _, err := words.Strings(); return err },
		"Clone":     func() error { _, err := v.Clone(); return err },
		"TF":        func() error { _, err := v.TF(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, use(), bridge.ErrClosed)
			require.ErrorIs(t, use(), bridge.ErrFailedPrecondition)
		})
	}
	require.Zero(t, v.DType())
	require.Nil(t, v.Shape())
	require.Equal(t, -1, v.Rank())
	require.Zero(t, v.NumElements())
	require.Zero(t, v.ByteSize())
	require.Equal(t, "tensor (closed)", v.String())
	require.NoError(t, (*bridge.Tensor)(nil).Close())
	require.NoError(t, new(bridge.Tensor).Close())
}

func TestViewsShareTheMemory(t *testing.T) {
	v, err := bridge.NewTensor(tf.Int32, bridge.Shape{2, 2})
	require.NoError(t, err)
	defer v.Close()
	view, err := bridge.Flat[int32](v)
	require.NoError(t, err)
	require.Equal(t, []int32{0, 0, 0, 0}, view)
	copied := values[int32](t, v)
	view[3] = 7
	require.Equal(t, []int32{0, 0, 0, 7}, values[int32](t, v))
	require.Equal(t, []int32{0, 0, 0, 0}, copied)
	raw, err := v.Bytes()
	require.NoError(t, err)
	binary.NativeEndian.PutUint32(raw, 5)
	require.EqualValues(t, 5, view[0])
	require.EqualValues(t, 16, v.ByteSize())
	require.EqualValues(t, 2, v.Rank())
	require.Equal(t, "int32 [2,2]", v.String())
	require.Zero(t, uintptr(unsafe.Pointer(&view[0]))%64, "aligned as TensorFlow wants it")
	require.Zero(t, testing.AllocsPerRun(10, func() { _, _ = bridge.Flat[int32](v) }))
}

func TestBoolFromBytes(t *testing.T) {
	v, err := bridge.FromBytes(tf.Bool, bridge.Shape{4}, []byte{0, 1, 2, 255})
	require.NoError(t, err)
	defer v.Close()
	require.Equal(t, []bool{false, true, true, true}, values[bool](t, v))
}

func TestLiveCountsEveryTensor(t *testing.T) {
	tensors, size := bridge.Live()
	v, err := bridge.NewTensor(tf.Double, bridge.Shape{100})
	require.NoError(t, err)
	now, nowSize := bridge.Live()
	require.Equal(t, tensors+1, now)
	require.Equal(t, size+800, nowSize)
	v.Close()
	v.Close()
	now, nowSize = bridge.Live()
	require.Equal(t, tensors, now)
	require.Equal(t, size, nowSize)
}

func TestForgottenTensors(t *testing.T) {
	tensors, _ := bridge.Live()
	for range 10 {
		_, err := bridge.NewTensor(tf.Double, bridge.Shape{100})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		now, _ := bridge.Live()
		return now == tensors
	}, 10*time.Second, time.Millisecond, "without views they are freed")

	// Outputs too, whatever views of earlier results were given out.
	d := newDoubler(t)
	s := d.session(bridge.Config{})
	tensors, _ = bridge.Live()
	func() {
		step, err := s.Prepare(bridge.Call{Fetches: []tf.Output{d.op("Neg", "neg", []tf.Output{constant(d.testGraph, "c", bridge.Shape{2}, float32(1), 2)}).Output(0)}})
		require.NoError(t, err)
		out := step.NewOutputs()
		require.NoError(t, step.Run(t.Context(), nil, out))
		_, err = bridge.Flat[float32](out.Tensor(0))
		require.NoError(t, err)
		require.NoError(t, step.Run(t.Context(), nil, out))
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		now, _ := bridge.Live()
		return now < tensors+1
	}, 10*time.Second, time.Millisecond)
}

// inAnotherProcess runs the calling test again in a process of its own, with the
// environment variable set, and returns true in the one that waits for it.
func inAnotherProcess(t *testing.T, env ...string) bool {
	t.Helper()
	const mark = "SLUICE_TEST_INNER"
	if os.Getenv(mark) != "" {
		return false
	}
	run := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	run.Env = append(append(os.Environ(), mark+"=1"), env...)
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "=== RUN   "+t.Name()+"\n")
	return true
}

func TestViewsOfForgottenTensorsStayReadable(t *testing.T) {
	if inAnotherProcess(t) {
		return
	}
	const n = 1 << 20
	var views [][]float64
	for range 4 {
		v, err := bridge.NewTensor(tf.Double, bridge.Shape{n})
		require.NoError(t, err)
		view, err := bridge.Flat[float64](v)
		require.NoError(t, err)
		views = append(views, view)
	}
	for range 5 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	tensors, _ := bridge.Live()
	require.Equal(t, 4, tensors)
	for _, view := range views {
		view[0], view[n-1] = 1, 2 // would be a fault, were the memory given back
	}
	os.Exit(0) // what is leaked on purpose is not to be found
}

func TestStringsAreFreed(t *testing.T) {
	g := newGraph(t)
	x := g.placeholder("x", tf.String, bridge.Shape{1})
	y := g.op("StringLower", "y", []tf.Output{x}).Output(0)
	step, out := prepare(t, g.session(bridge.Config{}), bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{y}})
	word := []string{strings.Repeat("A", 1<<20)}
	var first int64
	for i := range 400 {
		v, err := bridge.FromStrings(bridge.Shape{1}, word)
		require.NoError(t, err)
		require.NoError(t, step.Run(t.Context(), []*bridge.Tensor{v}, out))
		clone, err := v.Clone()
		require.NoError(t, err)
		require.NoError(t, clone.Close())
		require.NoError(t, v.Close())
		if i == 50 {
			first = residentBytes(t)
		}
	}
	require.Less(t, residentBytes(t)-first, int64(64<<20)) // 350 MiB for each that leaks
}

func TestBorrow(t *testing.T) {
	t.Run("aligned memory is used as it is", func(t *testing.T) {
		for _, n := range []int{1, 3, 64, 1000} {
			data := bridge.AlignedSlice[float32](n)
			require.Len(t, data, n)
			require.Zero(t, uintptr(unsafe.Pointer(&data[0]))%64)
			v, err := bridge.Borrow(bridge.Shape{int64(n)}, data)
			require.NoError(t, err)
			require.True(t, bridge.Borrowed(v, data))
			data[n-1] = 5
			require.EqualValues(t, 5, values[float32](t, v)[n-1])
			require.NoError(t, v.Close())
			require.False(t, bridge.Borrowed(v, data))
		}
		require.Empty(t, bridge.AlignedSlice[complex128](0))
		require.Nil(t, bridge.AlignedSlice[float32](-1))
		require.Nil(t, bridge.AlignedSlice[float64](math.MaxInt))
	})
	t.Run("other memory is copied", func(t *testing.T) {
		data := bridge.AlignedSlice[float32](33)[1:]
		v, err := bridge.Borrow(bridge.Shape{32}, data)
		require.NoError(t, err)
		defer v.Close()
		require.False(t, bridge.Borrowed(v, data))
		data[0] = 5
		require.Zero(t, values[float32](t, v)[0])
	})
	t.Run("memory lives as long as TensorFlow has it", func(t *testing.T) {
		var out *bridge.Tensor
		func() {
			data := bridge.AlignedSlice[float32](1 << 16)
			for i := range data {
				data[i] = float32(i)
			}
			v, err := bridge.Borrow(bridge.Shape{1 << 16}, data)
			require.NoError(t, err)
			defer v.Close()
			out = through(t, v) // Identity gives the same memory back
		}()
		for range 3 {
			runtime.GC()
			_ = make([]float32, 1<<16) // what might take its place
		}
		for i, x := range values[float32](t, out) {
			if x != float32(i) {
				t.Fatalf("element %d is %v", i, x)
			}
		}
	})
	t.Run("is let go of", func(t *testing.T) {
		freed := make(chan bool, 1)
		func() {
			data := bridge.AlignedSlice[float64](1 << 16)
			runtime.AddCleanup(&data[0], func(c chan bool) { c <- true }, freed)
			v, err := bridge.Borrow(bridge.Shape{1 << 16}, data)
			require.NoError(t, err)
			runtime.GC()
			require.NoError(t, v.Close())
		}()
		require.Eventually(t, func() bool {
			runtime.GC()
			return len(freed) == 1
		}, 10*time.Second, time.Millisecond)
	})
}

func TestBindingsTensors(t *testing.T) {
	t.Run("from the binding, on the same memory", func(t *testing.T) {
		theirs, err := tf.NewTensor([][]float32{{1, 2}, {3, 4}})
		require.NoError(t, err)
		ours, err := bridge.FromTF(theirs)
		require.NoError(t, err)
		defer ours.Close()
		view, err := bridge.Flat[float32](ours)
		require.NoError(t, err)
		require.Equal(t, []float32{1, 2, 3, 4}, view)
		require.Equal(t, bridge.Shape{2, 2}, ours.Shape())
		view[0] = 9
		require.Equal(t, [][]float32{{9, 2}, {3, 4}}, theirs.Value())
		theirs = nil
		for range 3 {
			runtime.GC()
		}
		require.Equal(t, []float32{9, 2, 3, 4}, view)
	})
	t.Run("to the binding", func(t *testing.T) {
		ours := flat(t, bridge.Shape{2, 2}, int64(1), 2, 3, 4)
		theirs, err := ours.TF()
		require.NoError(t, err)
		require.NoError(t, ours.Close())
		require.Equal(t, [][]int64{{1, 2}, {3, 4}}, theirs.Value())
		require.Equal(t, []int64{2, 2}, theirs.Shape())
	})
	t.Run("strings and empty ones", func(t *testing.T) {
		words := []string{"a\x00b", strings.Repeat("z", 100)}
		ours, err := bridge.FromStrings(bridge.Shape{2}, words)
		require.NoError(t, err)
		defer ours.Close()
		theirs, err := ours.TF()
		require.NoError(t, err)
		require.Equal(t, words, theirs.Value())
		back, err := bridge.FromTF(theirs)
		require.NoError(t, err)
		defer back.Close()
		all, err := back.Strings()
		require.NoError(t, err)
		require.Equal(t, words, all)

		none := flat[float32](t, bridge.Shape{0, 3})
		theirs, err = none.TF()
		require.NoError(t, err)
		require.Equal(t, []int64{0, 3}, theirs.Shape())
		back, err = bridge.FromTF(theirs)
		require.NoError(t, err)
		defer back.Close()
		require.Equal(t, bridge.Shape{0, 3}, back.Shape())
	})
}

func TestTensorFromManyGoroutines(t *testing.T) {
	// Readers and closers at once: every reader gets the elements or ErrClosed.
	for range 200 {
		v, err := bridge.FromFlat(bridge.Shape{3}, []int32{1, 2, 3})
		require.NoError(t, err)
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				if i >= 4 {
					v.Close()
					return
				}
				got, err := bridge.Values[int32](v)
				if err != nil {
					assert.ErrorIs(t, err, bridge.ErrClosed)
					return
				}
				assert.Equal(t, []int32{1, 2, 3}, got)
			})
		}
		all.Wait()
	}
}

func TestVerifyNamesLeaksAndNaNs(t *testing.T) {
	if inAnotherProcess(t, "SLUICE_VERIFY=all") {
		if os.Getenv("SLUICE_VERIFY") == "" {
			require.Empty(t, bridge.Leaks(), "nothing is recorded unasked")
		}
		return
	}
	v, err := bridge.FromFlat(bridge.Shape{2}, []float32{1, 0})
	require.NoError(t, err)
	found := bridge.Leaks()
	require.Len(t, found, 1)
	require.Contains(t, found[0].String(), "float32 [2]")
	require.Contains(t, found[0].String(), "tensors_test.go")

	g := newGraph(t)
	x := g.placeholder("x", tf.Float, bridge.Shape{2})
	y := g.op("Log", "y", []tf.Output{x}).Output(0)
	step, out := prepare(t, g.session(bridge.Config{}), bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{y}})
	err = step.Run(t.Context(), []*bridge.Tensor{v}, out)
	require.ErrorContains(t, err, "fetch y:0: element 1 of float32 [2] is -Inf")
	require.NoError(t, v.Close())
	require.NoError(t, step.Run(t.Context(), []*bridge.Tensor{flat(t, bridge.Shape{2}, float32(1), 1)}, out))
	taken := out.Take(0)
	require.Len(t, bridge.Leaks(), 2, "the feed and what was taken")
	require.NoError(t, taken.Close())
}

func FuzzTensorShape(f *testing.F) {
	f.Add(uint8(1), []byte{2, 0, 0, 0, 0, 0, 0, 0})
	f.Add(uint8(7), []byte{2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0})
	f.Add(uint8(18), bytes.Repeat([]byte{0xff}, 16))
	f.Add(uint8(1), append(bytes.Repeat([]byte{0, 0, 0, 0, 1, 0, 0, 0}, 3), make([]byte, 8)...))
	f.Add(uint8(2), bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, 255))
	f.Add(uint8(29), []byte{0, 0, 0, 0, 0, 0, 0, 0x40})
	f.Add(uint8(0), []byte{})
	f.Fuzz(func(t *testing.T, dtype uint8, raw []byte) {
		shape := bridge.Shape{}
		for ; len(raw) >= 8; raw = raw[8:] {
			shape = append(shape, int64(binary.LittleEndian.Uint64(raw)))
		}
		_ = shape.String()
		require.True(t, shape.CompatibleWith(shape))
		require.True(t, shape.Equal(shape.Clone()))
		if n, known := shape.NumElements(); known && n > 1<<20 {
			return // so as not to take all memory
		}
		dt := tf.DataType(dtype)
		v, err := bridge.NewTensor(dt, shape)
		if err != nil {
			require.ErrorIs(t, err, bridge.ErrInvalidArgument)
			return
		}
		defer v.Close()
		require.Equal(t, shape, v.Shape())
		require.Equal(t, dt, v.DType())
		n, known := shape.NumElements()
		require.True(t, known)
		require.Equal(t, n, v.NumElements())
		if bridge.DTypeSize(dt) > 0 {
			b, err := v.Bytes()
			require.NoError(t, err)
			again, err := bridge.FromBytes(dt, shape, b)
			require.NoError(t, err)
			require.NoError(t, again.Close())
		}
	})
}

// randomBits gives deterministic words to try conversions with.
func randomBits(n int) []uint32 {
	r := rand.New(rand.NewPCG(1, 2))
	bits := make([]uint32, n)
	for i := range bits {
		bits[i] = r.Uint32()
	}
	return bits
}
