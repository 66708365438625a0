// Package raw has one function for each op that libtensorflow registers, 1,625
// of them, generated from the ops' own definitions.
//
// A function takes a Builder (ops.Scope is one), the op's inputs in the order of
// its definition, then the attributes that have no default, then options:
//
//	product := raw.MatMul(scope, a, b, raw.WithTransposeB(true), raw.WithName("logits"))
//	x := raw.Placeholder(scope, tf.Float, raw.WithShape(bridge.Shape{-1, 64}))
//	values, indices := raw.TopKV2(scope, scores, k)
//
// Lists of tensors are []tf.Output. Attributes that follow from the inputs, such
// as MatMul's T, are never asked for; where an empty list says nothing of its
// type, an Attr such as {Name: "T", Value: tf.Float} does. An op without outputs gives its
// *tf.Operation.
//
// Errors stick to the Builder: after one, functions return zero outputs, and a
// zero output as an input is an error in turn, so that building code reads as
// formulas.
//
// TensorFlow registers 174 more ops whose names begin with an underscore: it
// adds them to graphs itself. They have no function here;
// bridge.AddOperation takes them. What ops compute is told at
// https://www.tensorflow.org/api_docs/python/tf/raw_ops, under the same names.
package raw

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/sluice-ml/sluice/bridge"
)

//go:generate go run ./internal/generate

// Builder adds operations to a graph. Add returns nil after an error, which the
// builder keeps.
type Builder interface {
	Add(bridge.OpSpec) *tf.Operation
}

// Attr is an attribute or, made by WithName, WithDevice, WithControl or
// WithColocation, another property of the operation.
type Attr = bridge.Attr

// Names that no attribute has, for the options that are not attributes.
const (
	nameOption       = "\x00name"
	deviceOption     = "\x00device"
	controlOption    = "\x00control"
	colocationOption = "\x00colocation"
)

// WithName names the operation; the Builder makes the name unique in its scope.
// Without it the name comes from the op's type.
func WithName(name string) Attr { return attr(nameOption, name) }

// WithDevice places the operation, such as on "/device:GPU:0".
func WithDevice(device string) Attr { return attr(deviceOption, device) }

// WithControl makes the operation run after others.
func WithControl(ops ...*tf.Operation) Attr { return attr(controlOption, ops) }

// WithColocation places the operation where others are.
func WithColocation(ops ...*tf.Operation) Attr { return attr(colocationOption, ops) }

func attr(name string, value any) Attr { return Attr{Name: name, Value: value} }

// with is the attributes of an op: required is the caller's own.
func with(options []Attr, required ...Attr) []Attr { return append(required, options...) }

func add(b Builder, opType string, attrs []Attr, inputs ...tf.Input) *tf.Operation {
	if b == nil {
		return nil
	}
	spec := bridge.OpSpec{Type: opType, Inputs: inputs, Attrs: make([]Attr, 0, len(attrs))}
	for _, a := range attrs {
		switch a.Name {
		case nameOption:
			spec.Name, _ = a.Value.(string)
		case deviceOption:
			spec.Device, _ = a.Value.(string)
		case controlOption:
			ops, _ := a.Value.([]*tf.Operation)
			spec.Control = append(spec.Control, ops...)
		case colocationOption:
			ops, _ := a.Value.([]*tf.Operation)
			spec.ColocateWith = append(spec.ColocateWith, ops...)
		default:
			spec.Attrs = append(spec.Attrs, a)
		}
	}
	return b.Add(spec)
}

func nth(op *tf.Operation, i int) tf.Output {
	if op == nil {
		return tf.Output{}
	}
	return tf.Output{Op: op, Index: i}
}

func one(op *tf.Operation) tf.Output { return nth(op, 0) }

func two(op *tf.Operation) (tf.Output, tf.Output) { return nth(op, 0), nth(op, 1) }

func three(op *tf.Operation) (tf.Output, tf.Output, tf.Output) {
	return nth(op, 0), nth(op, 1), nth(op, 2)
}

// all is the outputs of an op whose one output is a list.
func all(op *tf.Operation) []tf.Output { return bridge.OutputsOf(op) }

// parts are the outputs of an op that has lists among them.
type parts struct {
	op    *tf.Operation
	start []int // of each output of the definition, and the end
}

// split finds where each of the named outputs begins.
func split(op *tf.Operation, outputs ...string) parts {
	p := parts{op: op, start: make([]int, 1, len(outputs)+1)}
	if op == nil {
		return p
	}
	for i, name := range outputs {
		n, err := bridge.OutputListLength(op, name)
		if err != nil {
			return parts{}
		}
		p.start = append(p.start, p.start[i]+n)
	}
	return p
}

func (p parts) one(i int) tf.Output {
	if p.op == nil {
		return tf.Output{}
	}
	return tf.Output{Op: p.op, Index: p.start[i]}
}

func (p parts) list(i int) []tf.Output {
	if p.op == nil {
		return nil
	}
	list := make([]tf.Output, 0, p.start[i+1]-p.start[i])
	for j := p.start[i]; j < p.start[i+1]; j++ {
		list = append(list, tf.Output{Op: p.op, Index: j})
	}
	return list
}
