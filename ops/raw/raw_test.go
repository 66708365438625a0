package raw_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if tensors, bytes := bridge.Live(); code == 0 && tensors != 0 {
		fmt.Fprintf(os.Stderr, "left alive: %d tensors (%d bytes)\n", tensors, bytes)
		code = 1
	}
	os.Exit(code)
}

// builder is the least that a Builder is: it names operations by number and
// keeps the first error.
type builder struct {
	g   *tf.Graph
	err error
}

func newBuilder() *builder { return &builder{g: tf.NewGraph()} }

func (b *builder) Add(spec bridge.OpSpec) *tf.Operation {
	if b.err != nil {
		return nil
	}
	if spec.Name == "" {
		spec.Name = fmt.Sprintf("%s_%d", spec.Type, bridge.NumOperations(b.g))
	}
	var op *tf.Operation
	op, b.err = bridge.AddOperation(b.g, spec)
	return op
}

func constant[T bridge.Element](t testing.TB, b raw.Builder, shape bridge.Shape, data ...T) tf.Output {
	t.Helper()
	value, err := bridge.FromFlat(shape, data)
	require.NoError(t, err)
	defer value.Close()
	return raw.Const(b, value, value.DType())
}

func run(t testing.TB, b *builder, fetches ...tf.Output) []*bridge.Tensor {
	t.Helper()
	require.NoError(t, b.err)
	s, err := bridge.NewSession(b.g, bridge.Config{})
	require.NoError(t, err)
	defer s.Close()
	out, err := s.Call(t.Context(), bridge.Call{Fetches: fetches})
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, tensor := range out {
			tensor.Close()
		}
	})
	return out
}

func flat[T bridge.Element](t testing.TB, tensor *bridge.Tensor) []T {
	t.Helper()
	v, err := bridge.Values[T](tensor)
	require.NoError(t, err)
	return v
}

// functions are the package's functions that take a Builder first, by name.
func functions(t *testing.T) map[string]*ast.FuncDecl {
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	found := map[string]*ast.FuncDecl{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || len(f.Type.Params.List) == 0 {
				continue
			}
			if first, ok := f.Type.Params.List[0].Type.(*ast.Ident); ok && first.Name == "Builder" {
				found[f.Name.Name] = f
			}
		}
	}
	return found
}

// otherwise are the ops that older libraries define in another way than the one
// that the functions were generated from, or had and it has no more.
var otherwise = map[string]bool{"CustomAggregator": true, "TfLiteSubgraphExecute": true}

func TestEveryOpHasItsFunction(t *testing.T) {
	found := functions(t)
	source, err := os.ReadFile("options.go")
	require.NoError(t, err)
	generatedFrom := strings.Contains(string(source), "from libtensorflow "+bridge.Version()+";")
	defs, err := bridge.AllOps()
	require.NoError(t, err)
	public, internal := 0, 0
	for _, def := range defs {
		if strings.HasPrefix(def.Name, "_") {
			internal++
			continue
		}
		if otherwise[def.Name] && !generatedFrom {
			continue
		}
		public++
		f := found[def.Name]
		if !assert.NotNil(t, f, "no function for op %s: run go generate ./ops/raw", def.Name) {
			continue
		}
		inferred := map[string]bool{}
		for _, arg := range def.InputArg {
			inferred[arg.TypeAttr], inferred[arg.NumberAttr], inferred[arg.TypeListAttr] = true, true, true
		}
		params := 2 + len(def.InputArg) // the Builder and the options
		for _, attr := range def.Attr {
			if attr.DefaultValue == nil && !inferred[attr.Name] {
				params++
			}
		}
		assert.Equal(t, params, f.Type.Params.NumFields(), def.Name)
		assert.Equal(t, max(1, len(def.OutputArg)), f.Type.Results.NumFields(), def.Name)
		assert.True(t, strings.HasPrefix(f.Doc.Text(), def.Name+" "), def.Name)
	}
	if !generatedFrom {
		return // its registry is smaller
	}
	assert.Len(t, found, public, "and no function without an op")
	assert.Equal(t, []int{1625, 174}, []int{public, internal}, "as the package's documentation says")
}

// What a function and an older library do not agree on is an error, at the
// latest where a result that the op does not give is used.
func TestResultsThatAnOlderLibraryDoesNotGive(t *testing.T) {
	b := newBuilder()
	output, _, _, histogram := raw.CustomAggregator(b, constant(t, b, bridge.Shape{2}, float32(1), 2), "x")
	raw.Identity(b, output)
	require.NoError(t, b.err)
	def, known := bridge.OpDef("CustomAggregator")
	require.True(t, known)
	raw.Identity(b, histogram)
	if len(def.OutputArg) == 4 {
		require.NoError(t, b.err)
		return
	}
	require.ErrorContains(t, b.err, "CustomAggregator has 1 outputs")
}

func TestResultsAreWhatTheOpGives(t *testing.T) {
	b := newBuilder()
	x := constant(t, b, bridge.Shape{2, 2}, float32(1), 2, 3, 4)

	product := raw.MatMul(b, x, x, raw.WithTransposeB(true), raw.WithName("product"))
	values, indices := raw.TopKV2(b, x, constant(t, b, bridge.Shape{}, int32(1)))
	joined := raw.ConcatV2(b, []tf.Output{x, x}, constant(t, b, bridge.Shape{}, int32(0)))
	halves := raw.Split(b, constant(t, b, bridge.Shape{}, int32(1)), x, 2)
	size, split := raw.Shape(b, joined), raw.Unpack(b, x, 2, raw.WithAxis(0))
	cast := raw.Cast(b, x, tf.Int32)
	image := raw.Reshape(b, x, constant(t, b, bridge.Shape{4}, int32(1), 2, 2, 1))
	pooled := raw.MaxPool(b, image, []int64{1, 2, 2, 1}, []int64{1, 2, 2, 1}, "VALID")
	s, u, v := raw.Svd(b, x, raw.WithComputeUV(false))
	require.NoError(t, b.err)
	require.Len(t, halves, 2)
	require.Len(t, split, 2)
	assert.Equal(t, "product", product.Op.Name())
	assert.Equal(t, []int{0, 1, 2}, []int{s.Index, u.Index, v.Index})

	out := run(t, b, product, values, indices, joined, halves[1], size, split[1], cast, pooled)
	assert.Equal(t, []float32{5, 11, 11, 25}, flat[float32](t, out[0]), "[1 2; 3 4] times its transpose")
	assert.Equal(t, []float32{2, 4}, flat[float32](t, out[1]))
	assert.Equal(t, []int32{1, 1}, flat[int32](t, out[2]))
	assert.Equal(t, []float32{1, 2, 3, 4, 1, 2, 3, 4}, flat[float32](t, out[3]))
	assert.Equal(t, []float32{2, 4}, flat[float32](t, out[4]), "the second column")
	assert.Equal(t, []int32{4, 2}, flat[int32](t, out[5]))
	assert.Equal(t, []float32{3, 4}, flat[float32](t, out[6]), "the second row")
	assert.Equal(t, []int32{1, 2, 3, 4}, flat[int32](t, out[7]))
	assert.Equal(t, []float32{4}, flat[float32](t, out[8]))
}

// Where lists and single tensors are mixed, each result begins where the one
// before it ends.
func TestListsAmongResults(t *testing.T) {
	b := newBuilder()
	strings := func(values ...string) tf.Output {
		tensor, err := bridge.FromStrings(bridge.Shape{int64(len(values))}, values)
		require.NoError(t, err)
		defer tensor.Close()
		return raw.Const(b, tensor, tf.String)
	}
	indices, values, shapes, dense := raw.ParseExample(b, strings(), strings(),
		[]tf.Output{raw.Reshape(b, strings("a"), constant(t, b, bridge.Shape{0}, []int32{}...)), raw.Reshape(b, strings("b"), constant(t, b, bridge.Shape{0}, []int32{}...))},
		[]tf.Output{raw.Reshape(b, strings("c"), constant(t, b, bridge.Shape{0}, []int32{}...))},
		[]tf.Output{constant(t, b, bridge.Shape{1}, float32(0))},
		[]tf.DataType{tf.Int64, tf.String}, []bridge.Shape{{1}})
	require.NoError(t, b.err)
	require.Len(t, indices, 2)
	require.Len(t, values, 2)
	require.Len(t, shapes, 2)
	require.Len(t, dense, 1)
	assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, []int{indices[0].Index, indices[1].Index, values[0].Index, values[1].Index, shapes[0].Index, shapes[1].Index, dense[0].Index})
	assert.Equal(t, []tf.DataType{tf.Int64, tf.String, tf.Float}, []tf.DataType{values[0].DataType(), values[1].DataType(), dense[0].DataType()})
}

func TestOpsWithoutOutputsAndTheirOrder(t *testing.T) {
	b := newBuilder()
	handle := raw.VarHandleOp(b, tf.Float, bridge.Shape{}, raw.WithSharedName("w"), raw.WithDevice("/cpu:0"))
	assign := raw.AssignVariableOp(b, handle, constant(t, b, bridge.Shape{}, float32(3)))
	add := raw.AssignAddVariableOp(b, handle, constant(t, b, bridge.Shape{}, float32(4)), raw.WithControl(assign))
	read := raw.ReadVariableOp(b, handle, tf.Float, raw.WithControl(add), raw.WithColocation(handle.Op))
	require.NoError(t, b.err)
	assert.Equal(t, "/cpu:0", handle.Op.Device())
	require.Len(t, bridge.ControlInputs(add), 1)
	class, err := bridge.AttrStrings(read.Op, "_class")
	require.NoError(t, err)
	assert.Equal(t, []string{"loc:@" + handle.Op.Name()}, class)
	assert.Equal(t, []float32{7}, flat[float32](t, run(t, b, read)[0]))
}

func TestErrorsStick(t *testing.T) {
	b := newBuilder()
	x := constant(t, b, bridge.Shape{2, 3}, make([]float32, 6)...)
	before := bridge.NumOperations(b.g)
	product := raw.MatMul(b, x, x)
	assert.Equal(t, tf.Output{}, product)
	assert.ErrorIs(t, b.err, bridge.ErrInvalidArgument)
	assert.ErrorContains(t, b.err, "MatMul")
	first := b.err
	values, indices := raw.TopKV2(b, product, x)
	assert.Equal(t, tf.Output{}, values)
	assert.Equal(t, tf.Output{}, indices)
	assert.Nil(t, raw.Split(b, x, product, 2))
	sparse, _, _, dense := raw.ParseExample(b, x, x, nil, nil, nil, nil, nil)
	assert.Nil(t, sparse)
	assert.Nil(t, dense)
	y, _, _, _, _, _ := raw.FusedBatchNormV3(b, x, x, x, x, x)
	assert.Equal(t, tf.Output{}, y)
	assert.Nil(t, raw.NoOp(b))
	assert.Same(t, first, b.err, "the first error stays")
	assert.Equal(t, before, bridge.NumOperations(b.g))

	assert.Equal(t, tf.Output{}, raw.Neg(nil, x), "without a builder there is nothing")
	for name, build := range map[string]func(raw.Builder){
		"the zero output":           func(b raw.Builder) { raw.Neg(b, tf.Output{}) },
		"a nil tensor":              func(b raw.Builder) { raw.Const(b, nil, tf.Float) },
		"an option of another op's": func(b raw.Builder) { raw.NoOp(b, raw.WithTransposeA(true)) },
		"an option twice":           func(b raw.Builder) { raw.Placeholder(b, tf.Float, raw.WithShape(nil), raw.WithShape(nil)) },
		"a nil control input":       func(b raw.Builder) { raw.NoOp(b, raw.WithControl(nil)) },
		"a function without a name": func(b raw.Builder) { raw.While(b, nil, bridge.Func{}, bridge.Func{}) },
	} {
		b := newBuilder()
		build(b)
		assert.ErrorIs(t, b.err, bridge.ErrInvalidArgument, name)
		assert.Zero(t, bridge.NumOperations(b.g), name)
	}
}

// An attribute that follows from a list can be given where the list is empty and
// says nothing.
func TestEmptyLists(t *testing.T) {
	b := newBuilder()
	x := constant(t, b, bridge.Shape{1}, float32(1))
	for _, c := range []struct {
		attrs []raw.Attr
		want  tf.DataType
	}{{nil, tf.Int64}, {[]raw.Attr{{Name: "Tsplits", Value: tf.Int32}}, tf.Int32}} {
		ragged := raw.RaggedTensorToVariant(b, nil, x, true, c.attrs...)
		require.NoError(t, b.err)
		splits, err := bridge.AttrType(ragged.Op, "Tsplits")
		require.NoError(t, err)
		assert.Equal(t, c.want, splits)
	}
	raw.AddN(b, nil)
	assert.ErrorIs(t, b.err, bridge.ErrInvalidArgument, "AddN wants one at least")
}
