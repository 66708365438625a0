package savedmodels

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	tensorshape "github.com/galeone/tensorflow/tensorflow/go/core/framework/tensor_shape_go_proto"
	protos "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluice-ml/sluice/bridge"
)

// Signature is one of a model's computations: what it is given and what it
// gives, by name.
type Signature struct {
	Name    string // its key, such as "serving_default"
	Method  string // such as "tensorflow/serving/predict"; may be empty
	Inputs  []Port // by name
	Outputs []Port // by name
}

// Port is an input or an output of a signature.
type Port struct {
	Name  string // in the signature
	DType tf.DataType
	Shape bridge.Shape // as the signature has it
	// Tensor is the tensor of the graph, "node:0", which takes or gives it.
	Tensor string
	// Part is what this is of a tensor that is made of several, such as "values of
	// the sparse tensor x"; empty for an ordinary tensor.
	Part string
	// Optional: an input that the model has a value for.
	Optional bool
}

// String reads as "image: float32 [?,28,28]".
func (p Port) String() string {
	s := fmt.Sprintf("%s: %s %s", p.Name, bridge.DTypeName(p.DType), p.Shape)
	if p.Part != "" {
		s += " (" + p.Part + ")"
	}
	if p.Optional {
		s += " (optional)"
	}
	return s
}

// String reads as "serving_default(image: float32 [?,28,28]) → (scores: float32
// [?,10])".
func (s *Signature) String() string {
	list := func(ports []Port) string {
		all := make([]string, len(ports))
		for i, p := range ports {
			all[i] = p.String()
		}
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s(%s) → (%s)", s.Name, list(s.Inputs), list(s.Outputs))
}

// Signatures that TensorFlow keeps for itself.
const (
	initSignature  = "__saved_model_init_op"
	trainSignature = "__saved_model_train_op"
)

// signaturesOf reads a MetaGraph's signatures, by name.
func signaturesOf(g *metaGraph) (map[string]*Signature, error) {
	all := map[string]*Signature{}
	for key, def := range g.GetSignatureDef() {
		if key == initSignature || key == trainSignature {
			continue
		}
		s := &Signature{Name: key, Method: def.GetMethodName()}
		var err error
		if s.Inputs, err = ports(def.GetInputs()); err != nil {
			return nil, fmt.Errorf("signature %q: input %w", key, err)
		}
		if s.Outputs, err = ports(def.GetOutputs()); err != nil {
			return nil, fmt.Errorf("signature %q: output %w", key, err)
		}
		all[key] = s
	}
	return all, nil
}

// ports reads the inputs or outputs of a signature. A tensor that is made of
// several, a sparse one for instance, becomes a port for each of them.
func ports(infos map[string]*protos.TensorInfo) ([]Port, error) {
	var all []Port
	for _, name := range slices.Sorted(maps.Keys(infos)) {
		info := infos[name]
		switch encoding := info.GetEncoding().(type) {
		case *protos.TensorInfo_Name:
			all = append(all, Port{Name: name, DType: tf.DataType(info.GetDtype()), Shape: shapeOf(info.GetTensorShape()), Tensor: encoding.Name})
		case *protos.TensorInfo_CooSparse_:
			sparse, rank := encoding.CooSparse, int64(shapeOf(info.GetTensorShape()).Rank())
			of := " of the sparse tensor " + name
			all = append(all,
				Port{Name: name + "/dense_shape", DType: tf.Int64, Shape: bridge.Shape{rank}, Tensor: sparse.GetDenseShapeTensorName(), Part: "dense_shape" + of},
				Port{Name: name + "/indices", DType: tf.Int64, Shape: bridge.Shape{-1, rank}, Tensor: sparse.GetIndicesTensorName(), Part: "indices" + of},
				Port{Name: name + "/values", DType: tf.DataType(info.GetDtype()), Shape: bridge.Shape{-1}, Tensor: sparse.GetValuesTensorName(), Part: "values" + of})
		case *protos.TensorInfo_CompositeTensor_:
			spec := encoding.CompositeTensor.GetTypeSpec()
			class := spec.GetTypeSpecClassName()
			if class == "" {
				class = spec.GetTypeSpecClass().String()
			}
			for i, part := range encoding.CompositeTensor.GetComponents() {
				component := componentName(spec.GetTypeSpecClass(), i)
				all = append(all, Port{Name: name + "/" + component, DType: tf.DataType(part.GetDtype()), Shape: shapeOf(part.GetTensorShape()),
					Tensor: part.GetName(), Part: fmt.Sprintf("%s of %s, a %s", component, name, class)})
			}
		default:
			return nil, fmt.Errorf("%q names no tensor", name)
		}
	}
	slices.SortFunc(all, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// componentName is what Python calls the i-th component of a composite tensor.
func componentName(class protos.TypeSpecProto_TypeSpecClass, i int) string {
	var names []string
	switch class {
	case protos.TypeSpecProto_SPARSE_TENSOR_SPEC:
		names = []string{"indices", "values", "dense_shape"}
	case protos.TypeSpecProto_RAGGED_TENSOR_SPEC:
		if i == 0 {
			return "flat_values"
		}
		return fmt.Sprintf("row_splits_%d", i-1)
	case protos.TypeSpecProto_INDEXED_SLICES_SPEC:
		names = []string{"values", "indices", "dense_shape"}
	}
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprint(i)
}

func shapeOf(shape *tensorshape.TensorShapeProto) bridge.Shape {
	if shape == nil || shape.GetUnknownRank() {
		return nil
	}
	dims := bridge.Shape{}
	for _, d := range shape.GetDim() {
		dims = append(dims, max(d.GetSize(), -1))
	}
	return dims
}

// defaultsField is SignatureDef.defaults, map<string, TensorProto>, which is
// younger than the protos of the binding.
const defaultsField = 4

// defaultsOf reads the values of a signature's optional inputs; the caller closes
// them.
func defaultsOf(def *protos.SignatureDef) (values Tensors, err error) {
	values = Tensors{}
	defer func() {
		if err != nil {
			values.Close()
			values = nil
		}
	}()
	for rest := []byte(def.ProtoReflect().GetUnknown()); len(rest) > 0; {
		number, wire, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return values, fmt.Errorf("its defaults are damaged")
		}
		length := protowire.ConsumeFieldValue(number, wire, rest[n:])
		if length < 0 {
			return values, fmt.Errorf("its defaults are damaged")
		}
		if number == defaultsField && wire == protowire.BytesType {
			entry, _ := protowire.ConsumeBytes(rest[n:])
			name, encoded := "", []byte(nil)
			for len(entry) > 0 {
				number, wire, n := protowire.ConsumeTag(entry)
				if n < 0 || wire != protowire.BytesType {
					return values, fmt.Errorf("its defaults are damaged")
				}
				value, length := protowire.ConsumeBytes(entry[n:])
				if length < 0 {
					return values, fmt.Errorf("its defaults are damaged")
				}
				switch number {
				case 1:
					name = string(value)
				case 2:
					encoded = value
				}
				entry = entry[n+length:]
			}
			t, err := bridge.FromProto(encoded)
			if err != nil {
				return values, fmt.Errorf("the default of input %q: %w", name, err)
			}
			if old := values[name]; old != nil {
				old.Close()
			}
			values[name] = t
		}
		rest = rest[n+length:]
	}
	return values, nil
}
