package ops

import (
	"fmt"
	"reflect"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// Const is a constant of the given shape from its elements in row-major order;
// the dtype follows from T. A shape that the data does not fill is an error of
// the graph.
func Const[T bridge.Element](s *Scope, shape Shape, data []T) tf.Output {
	t, err := bridge.FromFlat(shape, data)
	return s.constTensor("", t, err)
}

// Number is a scalar constant of a numeric dtype.
func Number(s *Scope, dt tf.DataType, v float64) tf.Output { return s.number("", dt, v) }

func (s *Scope) number(name string, dt tf.DataType, v float64) tf.Output {
	t, err := bridge.Number(dt, v)
	return s.constTensor(name, t, err)
}

// Const is a constant made of a Go value: a number, bool or string, a slice of
// them, a slice of slices as [][]float32 (all of one length), a *bridge.Tensor
// or a *tf.Tensor, which stay the caller's. The dtype is Go's: float32 for
// float32, float64 for 0.5, int64 for int and for 3.
func (s *Scope) Const(value any) tf.Output {
	if !s.ok() {
		return tf.Output{}
	}
	switch value := value.(type) {
	case *bridge.Tensor:
		return s.constNode("", value)
	case *tf.Tensor:
		t, err := bridge.FromTF(value)
		return s.constTensor("", t, err)
	}
	t, err := tensorOf(value)
	return s.constTensor("", t, err)
}

// constTensor adds a Const of a tensor that it owns, or fails with err.
func (s *Scope) constTensor(name string, t *bridge.Tensor, err error) tf.Output {
	if err != nil {
		s.fail("Const", err)
		return tf.Output{}
	}
	defer t.Close()
	return s.constNode(name, t)
}

func (s *Scope) constNode(name string, t *bridge.Tensor) tf.Output {
	if t == nil {
		s.fail("Const", fmt.Errorf("the tensor is nil"))
		return tf.Output{}
	}
	return first(s.Add(bridge.OpSpec{Type: "Const", Name: name, Attrs: []bridge.Attr{
		{Name: "value", Value: t}, {Name: "dtype", Value: t.DType()}}}))
}

// ints is an int32 vector constant, as axes and shapes are given.
func (s *Scope) ints(name string, values ...int64) tf.Output {
	data := make([]int32, len(values))
	for i, v := range values {
		if data[i] = int32(v); int64(data[i]) != v {
			t, err := bridge.FromFlat(Shape{int64(len(values))}, values)
			return s.constTensor(name, t, err) // a shape that needs int64
		}
	}
	t, err := bridge.FromFlat(Shape{int64(len(values))}, data)
	return s.constTensor(name, t, err)
}

// makers make a tensor of a flat list of Go values of one type.
var makers = map[reflect.Type]func(Shape, []reflect.Value) (*bridge.Tensor, error){}

func init() {
	maker[bool]()
	maker[int8]()
	maker[int16]()
	maker[int32]()
	maker[int64]()
	maker[uint8]()
	maker[uint16]()
	maker[uint32]()
	maker[uint64]()
	maker[float32]()
	maker[float64]()
	maker[complex64]()
	maker[complex128]()
	maker[bridge.Half]()
	maker[bridge.BFloat16]()
	makers[reflect.TypeFor[int]()] = func(shape Shape, leaves []reflect.Value) (*bridge.Tensor, error) {
		data := make([]int64, len(leaves))
		for i, v := range leaves {
			data[i] = v.Int()
		}
		return bridge.FromFlat(shape, data)
	}
	makers[reflect.TypeFor[string]()] = func(shape Shape, leaves []reflect.Value) (*bridge.Tensor, error) {
		data := make([]string, len(leaves))
		for i, v := range leaves {
			data[i] = v.String()
		}
		return bridge.FromStrings(shape, data)
	}
}

func maker[T bridge.Element]() {
	makers[reflect.TypeFor[T]()] = func(shape Shape, leaves []reflect.Value) (*bridge.Tensor, error) {
		data := make([]T, len(leaves))
		for i, v := range leaves {
			data[i] = v.Interface().(T)
		}
		return bridge.FromFlat(shape, data)
	}
}

// tensorOf makes a tensor of a Go value as Scope.Const describes it.
func tensorOf(value any) (*bridge.Tensor, error) {
	switch flat := value.(type) { // without reflection on every element
	case []float32:
		return bridge.FromFlat(Shape{int64(len(flat))}, flat)
	case []float64:
		return bridge.FromFlat(Shape{int64(len(flat))}, flat)
	case []int32:
		return bridge.FromFlat(Shape{int64(len(flat))}, flat)
	case []int64:
		return bridge.FromFlat(Shape{int64(len(flat))}, flat)
	case []byte:
		return bridge.FromFlat(Shape{int64(len(flat))}, flat)
	case nil:
		return nil, fmt.Errorf("nil is not a constant")
	}
	v := reflect.ValueOf(value)
	leaf := v.Type()
	shape := Shape{}
	for level := v; leaf.Kind() == reflect.Slice || leaf.Kind() == reflect.Array; leaf = leaf.Elem() {
		n := 0
		if level.IsValid() {
			n = level.Len()
		}
		shape = append(shape, int64(n))
		if n > 0 {
			level = level.Index(0)
		} else {
			level = reflect.Value{}
		}
	}
	make, known := makers[leaf]
	if !known {
		return nil, fmt.Errorf("a %T can't be a constant; wanted a number, bool, string, slices of them, or a tensor", value)
	}
	leaves, err := flatten(v, shape, nil)
	if err != nil {
		return nil, err
	}
	return make(shape, leaves)
}

func flatten(v reflect.Value, shape Shape, leaves []reflect.Value) ([]reflect.Value, error) {
	if len(shape) == 0 {
		return append(leaves, v), nil
	}
	if n := int64(v.Len()); n != shape[0] {
		return nil, fmt.Errorf("the slices of a constant must be of one length each: got one of %d and one of %d", shape[0], n)
	}
	var err error
	for i := range v.Len() {
		if leaves, err = flatten(v.Index(i), shape[1:], leaves); err != nil {
			return nil, err
		}
	}
	return leaves, nil
}
