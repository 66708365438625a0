package bridge

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	tensorshape "github.com/galeone/tensorflow/tensorflow/go/core/framework/tensor_shape_go_proto"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Field numbers of the protos that attributes are made of.
const (
	attrList, attrS, attrI, attrF, attrB, attrType, attrShape, attrTensor, attrFunc = 1, 2, 3, 4, 5, 6, 7, 8, 10
	listFunc                                                                        = 9 // in AttrValue.ListValue; the others are as above
	shapeDim, shapeUnknownRank, dimSize                                             = 2, 3, 1
	funcName, funcAttr, entryKey, entryValue                                        = 1, 2, 1, 2
	tensorDType, tensorShape, tensorContent, tensorStrings                          = 1, 2, 4, 8
)

// appendAttr appends value as an AttrValue proto. kind is what the op's
// definition wants; "" takes any.
func appendAttr(b []byte, value any, kind attrKind) ([]byte, error) {
	got := attrKind("")
	switch value := value.(type) {
	case AttrProto:
		if kind != "" {
			if found, err := kindOfProto(value); err != nil {
				return b, err
			} else if found != kind && !(found == "list" && strings.HasPrefix(string(kind), "list(")) {
				return b, invalid("", "wanted %s, got an AttrProto that holds %s", kind, found)
			}
		}
		return append(b, value...), nil
	case string:
		got, b = "string", protowire.AppendString(tag(b, attrS, protowire.BytesType), value)
	case []byte:
		got, b = "string", protowire.AppendBytes(tag(b, attrS, protowire.BytesType), value)
	case int:
		got, b = "int", protowire.AppendVarint(tag(b, attrI, protowire.VarintType), uint64(value))
	case int64:
		got, b = "int", protowire.AppendVarint(tag(b, attrI, protowire.VarintType), uint64(value))
	case float32:
		got, b = "float", appendFloat(tag(b, attrF, protowire.Fixed32Type), float64(value))
	case float64:
		got, b = "float", appendFloat(tag(b, attrF, protowire.Fixed32Type), value)
	case bool:
		got, b = "bool", protowire.AppendVarint(tag(b, attrB, protowire.VarintType), protowire.EncodeBool(value))
	case tf.DataType:
		if err := lackingDType("", value); err != nil {
			return b, err
		}
		got, b = "type", protowire.AppendVarint(tag(b, attrType, protowire.VarintType), uint64(value))
	case Shape:
		shape, err := shapeProto(value)
		if err != nil {
			return b, err
		}
		got, b = "shape", protowire.AppendBytes(tag(b, attrShape, protowire.BytesType), shape)
	case tf.Shape:
		return appendAttr(b, FromTFShape(value), kind)
	case Func:
		function, err := funcProto(value)
		if err != nil {
			return b, err
		}
		got, b = "func", protowire.AppendBytes(tag(b, attrFunc, protowire.BytesType), function)
	case *Tensor: // inside a Func; AddOperation hands an op's own tensors over without serializing them
		tensor, err := tensorProto(value)
		if err != nil {
			return b, err
		}
		got, b = "tensor", protowire.AppendBytes(tag(b, attrTensor, protowire.BytesType), tensor)
	default:
		var list []byte
		var err error
		if list, got, err = listProto(value); err != nil {
			return b, err
		}
		b = protowire.AppendBytes(tag(b, attrList, protowire.BytesType), list)
	}
	return b, wantKind(value, got, kind)
}

func tag(b []byte, field protowire.Number, wire protowire.Type) []byte {
	return protowire.AppendTag(b, field, wire)
}

func appendFloat(b []byte, v float64) []byte {
	return protowire.AppendFixed32(b, math.Float32bits(float32(v)))
}

// listProto encodes value as an AttrValue.ListValue.
func listProto(value any) ([]byte, attrKind, error) {
	switch value := value.(type) {
	case []string:
		return appendEach(value, attrS, func(s string) ([]byte, error) { return []byte(s), nil }, "list(string)")
	case [][]byte:
		return appendEach(value, attrS, func(s []byte) ([]byte, error) { return s, nil }, "list(string)")
	case []int:
		return packed(value, attrI, func(b []byte, v int) []byte { return protowire.AppendVarint(b, uint64(v)) }), "list(int)", nil
	case []int64:
		return packed(value, attrI, func(b []byte, v int64) []byte { return protowire.AppendVarint(b, uint64(v)) }), "list(int)", nil
	case []float32:
		return packed(value, attrF, func(b []byte, v float32) []byte { return appendFloat(b, float64(v)) }), "list(float)", nil
	case []float64:
		return packed(value, attrF, appendFloat), "list(float)", nil
	case []bool:
		return packed(value, attrB, func(b []byte, v bool) []byte { return protowire.AppendVarint(b, protowire.EncodeBool(v)) }), "list(bool)", nil
	case []tf.DataType:
		for _, dt := range value {
			if err := lackingDType("", dt); err != nil {
				return nil, "", err
			}
		}
		return packed(value, attrType, func(b []byte, v tf.DataType) []byte { return protowire.AppendVarint(b, uint64(v)) }), "list(type)", nil
	case []Shape:
		return appendEach(value, attrShape, shapeProto, "list(shape)")
	case []tf.Shape:
		return appendEach(value, attrShape, func(s tf.Shape) ([]byte, error) { return shapeProto(FromTFShape(s)) }, "list(shape)")
	case []*Tensor:
		return appendEach(value, attrTensor, tensorProto, "list(tensor)")
	case []Func:
		return appendEach(value, listFunc, funcProto, "list(func)")
	}
	return nil, "", invalid("", "a %T is no attribute value; see Attr for what is", value)
}

func appendEach[T any](values []T, field protowire.Number, encode func(T) ([]byte, error), kind attrKind) ([]byte, attrKind, error) {
	var b []byte
	for i, v := range values {
		encoded, err := encode(v)
		if err != nil {
			return nil, kind, within("", fmt.Sprintf("[%d]: ", i), err)
		}
		b = protowire.AppendBytes(tag(b, field, protowire.BytesType), encoded)
	}
	return b, kind, nil
}

func packed[T any](values []T, field protowire.Number, encode func([]byte, T) []byte) []byte {
	if len(values) == 0 {
		return nil
	}
	var inner []byte
	for _, v := range values {
		inner = encode(inner, v)
	}
	return protowire.AppendBytes(tag(nil, field, protowire.BytesType), inner)
}

func shapeProto(shape Shape) ([]byte, error) {
	if shape == nil {
		return protowire.AppendVarint(tag(nil, shapeUnknownRank, protowire.VarintType), 1), nil
	}
	if len(shape) > MaxRank {
		return nil, invalid("", "a shape of rank %d: TensorFlow stops at %d", len(shape), MaxRank)
	}
	var b, dim []byte
	elements := int64(1)
	for i, size := range shape {
		if size < -1 {
			return nil, invalid("", "dimension %d of shape %v is %d: wanted -1 (unknown) or more", i, []int64(shape), size)
		}
		if size > 0 && elements > math.MaxInt64/size {
			return nil, invalid("", "shape %v has more elements than 64 bits can count", []int64(shape))
		}
		if size > 0 {
			elements *= size
		}
		dim = protowire.AppendVarint(tag(dim[:0], dimSize, protowire.VarintType), uint64(size))
		b = protowire.AppendBytes(tag(b, shapeDim, protowire.BytesType), dim)
	}
	return b, nil
}

func funcProto(function Func) ([]byte, error) {
	if function.Name == "" || strings.IndexByte(function.Name, 0) >= 0 || !utf8.ValidString(function.Name) {
		return nil, invalid("", "%q is not a function's name", function.Name)
	}
	b := protowire.AppendString(tag(nil, funcName, protowire.BytesType), function.Name)
	attrs := slices.Clone(function.Attrs)
	sortAttrs(attrs)
	for i, attr := range attrs {
		if attr.Name == "" || !utf8.ValidString(attr.Name) || i > 0 && attrs[i-1].Name == attr.Name {
			return nil, invalid("", "function %q: attribute %q has no name of UTF-8 or is given twice", function.Name, attr.Name)
		}
		value, err := appendAttr(nil, attr.Value, "")
		if err != nil {
			return nil, within("", fmt.Sprintf("function %q, attribute %q: ", function.Name, attr.Name), err)
		}
		entry := protowire.AppendString(tag(nil, entryKey, protowire.BytesType), attr.Name)
		entry = protowire.AppendBytes(tag(entry, entryValue, protowire.BytesType), value)
		b = protowire.AppendBytes(tag(b, funcAttr, protowire.BytesType), entry)
	}
	return b, nil
}

func tensorProto(t *Tensor) ([]byte, error) {
	if t == nil {
		return nil, invalid("", "the tensor is nil")
	}
	if err := lackingDType("", t.DType()); err != nil {
		return nil, err
	}
	shape, err := shapeProto(t.Shape())
	if err != nil {
		return nil, err
	}
	b := protowire.AppendVarint(tag(nil, tensorDType, protowire.VarintType), uint64(t.DType()))
	b = protowire.AppendBytes(tag(b, tensorShape, protowire.BytesType), shape)
	switch t.DType() {
	case tf.String:
		values, err := t.Strings()
		if err != nil {
			return nil, err
		}
		for _, s := range values {
			b = protowire.AppendString(tag(b, tensorStrings, protowire.BytesType), s)
		}
		return b, nil
	case Resource, Variant:
		return nil, invalid("", "a tensor of %s can't be part of a graph", DTypeName(t.DType()))
	}
	content, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	return protowire.AppendBytes(tag(b, tensorContent, protowire.BytesType), content), nil
}

// kindOfProto names what an AttrValue proto holds; "list" for any list, since
// an empty one does not tell of what.
func kindOfProto(b AttrProto) (attrKind, error) {
	kind := attrKind("nothing")
	for rest := []byte(b); len(rest) > 0; {
		field, wire, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return "", invalid("", "the AttrProto is not a serialized AttrValue")
		}
		rest = rest[n:]
		if n = protowire.ConsumeFieldValue(field, wire, rest); n < 0 {
			return "", invalid("", "the AttrProto is not a serialized AttrValue")
		}
		rest = rest[n:]
		if name, ok := protoKinds[field]; ok {
			kind = name
		}
	}
	return kind, nil
}

var protoKinds = map[protowire.Number]attrKind{
	attrList: "list", attrS: "string", attrI: "int", attrF: "float", attrB: "bool", attrType: "type",
	attrShape: "shape", attrTensor: "tensor", attrFunc: "func", 9: "placeholder",
}

func sortAttrs(attrs []Attr) {
	slices.SortFunc(attrs, func(x, y Attr) int { return strings.Compare(x.Name, y.Name) })
}

func shapeFromProto(p *tensorshape.TensorShapeProto) Shape {
	if p == nil || p.UnknownRank {
		return nil
	}
	shape := make(Shape, len(p.Dim))
	for i, dim := range p.Dim {
		shape[i] = dim.Size
	}
	return shape
}

func funcFromProto(p *attrvalue.NameAttrList) Func {
	function := Func{Name: p.GetName()}
	for name, value := range p.GetAttr() {
		if encoded, err := (proto.MarshalOptions{Deterministic: true}).Marshal(value); err == nil {
			function.Attrs = append(function.Attrs, Attr{Name: name, Value: AttrProto(encoded)})
		}
	}
	sortAttrs(function.Attrs)
	return function
}
