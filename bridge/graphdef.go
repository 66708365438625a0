package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	graph "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// What a GraphDef may ask for at most. TensorFlow takes more and dies of it: of a
// constant that a few bytes blow up to terabytes. Of calls see calls.
const (
	maxGraphBytes   = math.MaxInt32 // protobuf's own limit
	maxGraphNodes   = 1 << 22       // with those of functions
	maxBlownUpBytes = 1 << 31       // of constants, beyond what the GraphDef holds itself
)

// ReadGraphDef reads a GraphDef from a file, binary (.pb) or text (.pbtxt,
// protobuf's text format), and returns it serialized, for Import. The content
// decides which it is, not the name.
//
// Binary graphs of a newer TensorFlow are passed on with the fields that are
// unknown here. In text such a field is an error that names it.
func ReadGraphDef(path string) ([]byte, error) {
	const op = "ReadGraphDef"
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, Errorf(NotFound, op, "there is no file %s", path)
	case err != nil:
		return nil, Errorf(InvalidArgument, op, "%w", err)
	case !info.Mode().IsRegular():
		return nil, invalid(op, "%s is not a file", path)
	case info.Size() > maxGraphBytes:
		return nil, invalid(op, "%s has %d bytes, and a GraphDef ends at 2 GiB", path, info.Size())
	case info.Size() == 0:
		return nil, invalid(op, "%s is empty", path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, Errorf(InvalidArgument, op, "%w", err)
	}
	if !isText(content) {
		if _, err := scanGraphDef(content); err != nil {
			return nil, within(path, "", err)
		}
		return content, nil
	}
	def := new(graph.GraphDef)
	if err := prototext.Unmarshal(content, def); err != nil {
		message := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
		if strings.Contains(message, "unknown field") {
			return nil, invalid(path, "%s: the graph comes from a newer TensorFlow, or is none; as a binary file (.pb) it is read with such fields", message)
		}
		return nil, invalid(path, "is not a GraphDef in text: %s", message)
	}
	encoded, err := proto.Marshal(def)
	if err != nil {
		return nil, invalid(path, "is not a GraphDef in text: %w", err)
	}
	if len(encoded) == 0 {
		return nil, invalid(path, "the graph is empty")
	}
	return encoded, nil
}

var textStart = regexp.MustCompile(`^(?:\s|#[^\n]*\n)*(?:node|versions|library|version|debug_info)\s*[:{]`)

// isText tells protobuf's text from its bytes: a binary GraphDef begins with a
// tag and a length, which spell none of the fields' names.
func isText(content []byte) bool {
	return textStart.Match(content[:min(len(content), 4096)]) && !bytes.ContainsRune(content[:min(len(content), 4096)], 0)
}

// Field numbers of the protos that a GraphDef is made of; attrs.go has those of
// AttrValue, TensorProto and TensorShapeProto.
const (
	graphNode, graphLibrary                           = 1, 2
	libraryFunction                                   = 1
	functionSignature, functionBody                   = 1, 3
	opDefName                                         = 1
	nodeName, nodeOp, nodeInput, nodeDevice, nodeAttr = 1, 2, 3, 4, 5
)

// graphScan is what one pass over a serialized GraphDef finds, without copying
// its constants, which can make it large.
type graphScan struct {
	names     []string          // of the nodes, not of those in functions
	functions []string          // of the library
	opTypes   map[string]string // where each is first used, by its name
	nodes     int               // with those of functions
	blownUp   int64             // bytes of constants beyond those that are there
}

// scanGraphDef reads a GraphDef as far as it must be right before TensorFlow may
// see it.
func scanGraphDef(encoded []byte) (*graphScan, error) {
	const op = "Import"
	if len(encoded) > maxGraphBytes {
		return nil, invalid(op, "the GraphDef has %d bytes, and one ends at 2 GiB", len(encoded))
	}
	s := &graphScan{opTypes: map[string]string{}}
	err := eachField(encoded, func(f field) error {
		switch f.number {
		case graphNode:
			name, err := s.node(f.bytes, "node")
			if err != nil {
				return err
			}
			s.names = append(s.names, name)
		case graphLibrary:
			return eachField(f.bytes, func(f field) error {
				if f.number != libraryFunction {
					return nil
				}
				return s.function(f.bytes)
			})
		}
		return nil
	})
	var e *Error
	if err != nil && !errors.As(err, &e) {
		return nil, invalid(op, "the bytes are not a serialized GraphDef, or are cut short: %w", err)
	}
	if err != nil {
		return nil, within(op, "", err)
	}
	return s, nil
}

func (s *graphScan) function(encoded []byte) error {
	name := ""
	// The signature comes first in what is written by anybody, but need not.
	if err := eachField(encoded, func(f field) error {
		if f.number != functionSignature {
			return nil
		}
		return eachField(f.bytes, func(f field) error {
			if f.number == opDefName {
				name = string(f.bytes)
			}
			return nil
		})
	}); err != nil {
		return err
	}
	s.functions = append(s.functions, name)
	return eachField(encoded, func(f field) error {
		if f.number != functionBody {
			return nil
		}
		_, err := s.node(f.bytes, fmt.Sprintf("function %q, node", name))
		return err
	})
}

// node checks a NodeDef and returns its name.
func (s *graphScan) node(encoded []byte, what string) (string, error) {
	if s.nodes++; s.nodes > maxGraphNodes {
		return "", invalid("", "the graph has more than %d nodes", maxGraphNodes)
	}
	name, opType := "", ""
	var declared, held tf.DataType // of a constant
	err := eachField(encoded, func(f field) error {
		switch f.number {
		case nodeName, nodeOp, nodeInput, nodeDevice:
			if !utf8.Valid(f.bytes) {
				return invalid("", "holds %.80q, which is not UTF-8", f.bytes)
			}
			switch f.number {
			case nodeName:
				name = string(f.bytes)
			case nodeOp:
				opType = string(f.bytes)
			}
		case nodeAttr:
			key, value, err := mapEntry(f.bytes)
			if err != nil {
				return err
			}
			dt, tensor, err := s.attr(value)
			if err != nil {
				return within("", fmt.Sprintf("attribute %q: ", key), err)
			}
			switch {
			case key == "dtype":
				declared = dt
			case key == "value":
				held = tensor
			}
		}
		return nil
	})
	if err == nil && opType == "Const" && held != declared {
		// TensorFlow's shape functions abort the process on such a constant.
		err = invalid("", "is a constant of %s, but its value is a tensor of %s", DTypeName(declared), DTypeName(held))
	}
	if err != nil {
		label := fmt.Sprintf("%s %d", what, s.nodes)
		if name != "" {
			label = fmt.Sprintf("%s %.200q", what, name)
		}
		var e *Error
		if !errors.As(err, &e) {
			return "", invalid("", "%s: its bytes are damaged: %w", label, err)
		}
		return "", within("", label+": ", err)
	}
	if _, seen := s.opTypes[opType]; !seen {
		s.opTypes[opType] = name
	}
	return name, nil
}

func mapEntry(encoded []byte) (key string, value []byte, err error) {
	err = eachField(encoded, func(f field) error {
		switch f.number {
		case entryKey:
			if !utf8.Valid(f.bytes) {
				return invalid("", "has an attribute named %.80q, which is not UTF-8", f.bytes)
			}
			key = string(f.bytes)
		case entryValue:
			if value != nil {
				return errTwice // which protobuf would merge
			}
			value = f.bytes
		}
		return nil
	})
	return key, value, err
}

// attr checks an AttrValue: the data type that it is, and that of the tensor that
// it holds, 0 where there is none.
func (s *graphScan) attr(encoded []byte) (dt, tensor tf.DataType, err error) {
	err = eachField(encoded, func(f field) (err error) {
		switch f.number {
		case attrType:
			dt = tf.DataType(f.varint)
		case attrTensor:
			if tensor != 0 {
				return errTwice
			}
			tensor, err = s.tensor(f.bytes)
		case attrList: // its fields have the numbers of the single values
			return eachField(f.bytes, func(f field) error {
				if f.number != attrTensor || f.wire != protowire.BytesType {
					return nil
				}
				_, err := s.tensor(f.bytes)
				return err
			})
		}
		return err
	})
	return dt, tensor, err
}

// tensor checks that a TensorProto is no larger than its bytes make it, or not by
// much: TensorFlow repeats the last value of one that has too few.
func (s *graphScan) tensor(encoded []byte) (tf.DataType, error) {
	var (
		dt      tf.DataType
		shape   = Shape{}
		content []byte
	)
	err := eachField(encoded, func(f field) error {
		switch f.number {
		case tensorDType:
			dt = tf.DataType(f.varint)
		case tensorContent:
			content = f.bytes
		case tensorShape:
			if len(shape) > 0 {
				return errTwice
			}
			return eachField(f.bytes, func(f field) error {
				switch f.number {
				case shapeUnknownRank:
					if f.varint != 0 {
						return invalid("", "is a tensor of unknown shape")
					}
				case shapeDim:
					size := int64(0)
					err := eachField(f.bytes, func(f field) error {
						if f.number == dimSize {
							size = int64(f.varint)
						}
						return nil
					})
					shape = append(shape, size)
					return err
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	size := DTypeSize(dt)
	if size == 0 && dtypeKnown(dt) {
		size = 24 // a string's header; handles and variants are no smaller
	}
	n, err := checkDims("", shape, size)
	if err != nil {
		return 0, err
	}
	bytes := n * int64(size)
	if len(content) > 0 && DTypeSize(dt) > 0 && int64(len(content)) != bytes {
		return 0, invalid("", "is a tensor of %s %s, which takes %d bytes, with %d", DTypeName(dt), shape, bytes, len(content))
	}
	if more := bytes - int64(len(encoded)); more > 0 {
		if s.blownUp += more; s.blownUp > maxBlownUpBytes || s.blownUp < 0 {
			return 0, invalid("", "is a tensor of %s %s, made of %d bytes; a graph's constants may take 2 GiB more than its file", DTypeName(dt), shape, len(encoded))
		}
	}
	return dt, nil
}

// checkOpTypes finds op types that nobody knows: neither libtensorflow, nor a
// library that was loaded, nor the functions of g or of the GraphDef.
func (s *graphScan) checkOpTypes(g *tf.Graph) error {
	var unknown []string
	for opType := range s.opTypes {
		if registered(opType) == nil && !slices.Contains(s.functions, opType) && signatureIn(g, opType) == nil {
			unknown = append(unknown, opType)
		}
	}
	switch len(unknown) {
	case 0:
		return nil
	case 1:
		return unknownOp(unknown[0], s.opTypes[unknown[0]])
	}
	slices.Sort(unknown)
	return Errorf(NotFound, "Import", "there are no op types %q, neither in libtensorflow %s nor among the graph's functions (a library of custom ops is loaded with LoadLibrary)", unknown, Version())
}

// field is one field of a serialized proto.
type field struct {
	number protowire.Number
	wire   protowire.Type
	bytes  []byte // of BytesType
	varint uint64 // of VarintType
}

var (
	errDamaged = errors.New("not a protocol buffer")
	errTwice   = errors.New("a field comes twice")
)

// eachField goes through the fields of a serialized proto.
func eachField(encoded []byte, visit func(field) error) error {
	for at := encoded; len(at) > 0; {
		number, wire, n := protowire.ConsumeTag(at)
		if n < 0 {
			return fmt.Errorf("%w at byte %d", errDamaged, len(encoded)-len(at))
		}
		at = at[n:]
		f := field{number: number, wire: wire}
		switch wire {
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(at)
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(at)
		default:
			n = protowire.ConsumeFieldValue(number, wire, at)
		}
		if n < 0 {
			return fmt.Errorf("%w at byte %d", errDamaged, len(encoded)-len(at))
		}
		at = at[n:]
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// FromProto is the tensor in a serialized TensorProto; the caller closes it. One
// that is larger than its bytes, or not what they say, is refused as in Import.
func FromProto(encoded []byte) (*Tensor, error) {
	const op = "FromProto"
	s := &graphScan{}
	dt, err := s.tensor(encoded)
	if err != nil {
		return nil, within(op, "", wrapDamaged(err))
	}
	if !dtypeKnown(dt) || dt == Resource || dt == Variant {
		return nil, invalid(op, "a tensor of %s can't be read", DTypeName(dt))
	}
	// TensorFlow reads protos of constants.
	g := tf.NewGraph()
	value := protowire.AppendBytes(protowire.AppendTag(nil, attrTensor, protowire.BytesType), encoded)
	c, err := AddOperation(g, OpSpec{Type: "Const", Attrs: []Attr{{Name: "dtype", Value: dt}, {Name: "value", Value: AttrProto(value)}}})
	if err != nil {
		return nil, within(op, "", err)
	}
	return AttrTensor(c, "value")
}

// wrapDamaged makes what eachField found an *Error.
func wrapDamaged(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return invalid("", "the bytes are damaged: %w", err)
}
