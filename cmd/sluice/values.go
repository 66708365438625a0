package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// written is the tensor of a value that is written at the shell as JSON: a
// number, a string, a bool or lists of one of them. Its type is dt, or where that
// is 0 follows from the value: float32, string or bool.
func written(text string, dt tf.DataType) (*bridge.Tensor, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	if _, after := decoder.Token(); err != nil || after != io.EOF {
		return nil, fmt.Errorf("%q is not a value in JSON (strings are in quotes)", text)
	}
	shape, flat, err := flatten(value)
	if err != nil {
		return nil, err
	}
	if dt == 0 {
		dt = tf.Float
		if len(flat) > 0 {
			switch flat[0].(type) {
			case string:
				dt = tf.String
			case bool:
				dt = tf.Bool
			}
		}
	}
	if dt == tf.String {
		texts := make([]string, len(flat))
		for i, v := range flat {
			s, is := v.(string)
			if !is {
				return nil, fmt.Errorf("wanted strings, got %v", v)
			}
			texts[i] = s
		}
		return bridge.FromStrings(shape, texts)
	}
	t, err := bridge.NewTensor(dt, shape)
	if err != nil {
		return nil, err
	}
	data, err := t.Bytes()
	if err != nil {
		t.Close()
		return nil, err
	}
	size := bridge.DTypeSize(dt)
	for i, v := range flat {
		if err := put(data[i*size:(i+1)*size], dt, v); err != nil {
			t.Close()
			return nil, err
		}
	}
	return t, nil
}

// notFinite is what JSON has no number for, as the answers of a verb have it.
var notFinite = map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}

// sixtyFour reads an integer of 64 bits that is written in digits.
func sixtyFour(text string, dt tf.DataType) (uint64, bool) {
	if dt == tf.Uint64 {
		n, err := strconv.ParseUint(text, 10, 64)
		return n, err == nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return uint64(n), err == nil
}

// put writes one element.
func put(into []byte, dt tf.DataType, value any) error {
	var f float64
	switch v := value.(type) {
	case bool:
		if dt != tf.Bool {
			return fmt.Errorf("wanted %s, got %v", bridge.DTypeName(dt), v)
		}
		if v {
			f = 1
		}
	case json.Number:
		if dt == tf.Bool {
			return fmt.Errorf("wanted true or false, got %v", v)
		}
		n, err := v.Float64()
		if err != nil {
			return fmt.Errorf("%v is too large", v)
		}
		if n != math.Trunc(n) && !bridge.IsFloating(dt) && !bridge.IsComplex(dt) {
			return fmt.Errorf("wanted %s, got %v", bridge.DTypeName(dt), v)
		}
		// Beyond 2^53 a float64 is not the number that was written.
		if dt == tf.Int64 || dt == tf.Uint64 {
			if exact, ok := sixtyFour(string(v), dt); ok {
				binary.NativeEndian.PutUint64(into, exact)
				return nil
			}
			if math.Abs(n) >= 1<<53 {
				return fmt.Errorf("%v is no number of %s, or is too long for the notation with an exponent: write all its digits", v, bridge.DTypeName(dt))
			}
		}
		f = n
	case string:
		special, is := notFinite[v]
		if !is || !bridge.IsFloating(dt) {
			return fmt.Errorf("wanted %s, got %q", bridge.DTypeName(dt), v)
		}
		f = special
	default:
		return fmt.Errorf("wanted %s, got %q", bridge.DTypeName(dt), v)
	}
	one, err := bridge.Number(dt, f)
	if err != nil {
		return err
	}
	defer one.Close()
	data, err := one.Bytes()
	copy(into, data)
	return err
}

// flatten is the shape of lists in lists, and the values in them.
func flatten(value any) (bridge.Shape, []any, error) {
	list, is := value.([]any)
	if !is {
		if value == nil {
			return nil, nil, errors.New("null is no value")
		}
		if _, is := value.(map[string]any); is {
			return nil, nil, errors.New("an object is no value")
		}
		return bridge.Shape{}, []any{value}, nil
	}
	var flat []any
	var inner bridge.Shape
	for i, each := range list {
		s, part, err := flatten(each)
		switch {
		case err != nil:
			return nil, nil, err
		case i > 0 && !slices.Equal(s, inner):
			return nil, nil, errors.New("the lists are not all as long, or not all as deep")
		}
		inner = s
		flat = append(flat, part...)
	}
	return append(bridge.Shape{int64(len(list))}, inner...), flat, nil
}
