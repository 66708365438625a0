package savedmodels_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	graphdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/savedmodels"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

// classifier is a small net with all that a model can have: words are looked up
// in a table that an asset fills, rows of an embedding are averaged, and a dense
// layer gives scores; it can be trained.
type classifier struct {
	g             *ops.Graph
	sess          *bridge.Session
	words, labels tf.Output
	scores, loss  tf.Output
	train         *optimizers.TrainOp
	vocabulary    tf.Output
	embedding     *ops.Variable
}

func newClassifier(t testing.TB) *classifier {
	t.Helper()
	file := filepath.Join(t.TempDir(), "vocab.txt")
	require.NoError(t, os.WriteFile(file, []byte("go\npython\nrust\n"), 0o644))
	c := &classifier{g: ops.NewGraph(ops.GraphOptions{Seed: 3})}
	g := c.g
	c.words = g.Placeholder("words", tf.String, ops.Shape{-1, 2})
	c.labels = g.Placeholder("labels", tf.Int32, ops.Shape{-1})
	c.vocabulary = g.Const(file)
	table := raw.HashTableV2(g, tf.String, tf.Int64, raw.Attr{Name: "shared_name", Value: "vocabulary"})
	g.AddToCollection("table_initializer", raw.InitializeTableFromTextFileV2(g, table, c.vocabulary, -2, -1))
	ids := raw.LookupTableFindV2(g, table, c.words, g.Const(int64(0)))
	net := g.Scope("net")
	c.embedding = net.Variable("embedding", ops.Shape{3, 4}, ops.GlorotUniform())
	w := net.Variable("w", ops.Shape{4, 2}, ops.GlorotUniform())
	b := net.Variable("b", ops.Shape{2}, ops.FromValue([]float32{0.5, -0.5}), ops.VariableOptions{NonTrainable: true})
	mean := raw.Mean(net, c.embedding.Gather(net, ids), g.Const([]int32{1}))
	c.scores = raw.AddV2(net, raw.MatMul(net, mean, w.Value()), b.Value())
	c.loss = ops.SparseSoftmaxCrossEntropy(net, c.scores, c.labels)
	var err error
	c.train, err = optimizers.NewAdam(0.1).Minimize(c.loss, g.Trainable("net/"))
	require.NoError(t, err)
	init := g.Init()
	require.NoError(t, g.Err())
	c.sess, err = bridge.NewSession(g.TF(), bridge.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.sess.Close()) })
	require.NoError(t, c.sess.Run(t.Context(), init))
	tables, err := ops.CollectionOf[*tf.Operation](g, "table_initializer", "")
	require.NoError(t, err)
	require.NoError(t, c.sess.Run(t.Context(), tables...))
	return c
}

func (c *classifier) in(t testing.TB) savedmodels.Tensors {
	t.Helper()
	words := must(bridge.FromStrings(bridge.Shape{2, 2}, []string{"go", "rust", "python", "python"}))(t)
	labels := must(bridge.FromFlat(bridge.Shape{2}, []int32{1, 0}))(t)
	t.Cleanup(func() { words.Close(); labels.Close() })
	return savedmodels.Tensors{"words": words, "labels": labels}
}

// run trains some steps, or computes the scores after none.
func (c *classifier) steps(t testing.TB, n int) []float32 {
	t.Helper()
	in := c.in(t)
	for range n {
		_, err := c.sess.Call(t.Context(), bridge.Call{Feeds: []tf.Output{c.words, c.labels}, Targets: []*tf.Operation{c.train.Op}}, in["words"], in["labels"])
		require.NoError(t, err)
	}
	out, err := c.sess.Call(t.Context(), bridge.Call{Feeds: []tf.Output{c.words}, Fetches: []tf.Output{c.scores}}, in["words"])
	require.NoError(t, err)
	defer out[0].Close()
	return must(bridge.Values[float32](out[0]))(t)
}

func (c *classifier) serving() map[string]savedmodels.SignatureSpec {
	return map[string]savedmodels.SignatureSpec{"serving_default": {
		Inputs: map[string]tf.Output{"words": c.words}, Outputs: map[string]tf.Output{"scores": c.scores}}}
}

func TestAModelThatIsSavedIsLoadedWithItsValues(t *testing.T) {
	c := newClassifier(t)
	want := c.steps(t, 5)
	size := bridge.NumOperations(c.g.TF())
	dir := filepath.Join(t.TempDir(), "models", "1")
	require.NoError(t, savedmodels.Save(t.Context(), c.g, c.sess, dir, savedmodels.SaveOptions{
		Signatures: c.serving(), Assets: []tf.Output{c.vocabulary}}))
	assert.Equal(t, size, bridge.NumOperations(c.g.TF()), "the graph is as it was")
	c.steps(t, 3) // the model is not the session's any more

	m := load(t, dir, savedmodels.Options{})
	assert.Equal(t, []string{"serving_default"}, m.Signatures())
	in := c.in(t)
	assert.Equal(t, want, run(t, m, "", "scores", savedmodels.Tensors{"words": in["words"]}))
	var names []string
	trainable := map[string]bool{}
	for _, v := range m.Variables() {
		names = append(names, v.Name)
		trainable[v.Name] = v.Trainable
	}
	assert.Equal(t, []string{"net/b", "net/embedding", "net/w"}, names, "no slots")
	assert.False(t, trainable["net/b"])
	assert.True(t, trainable["net/w"])
	assert.Nil(t, bridge.OperationByName(m.Graph(), c.train.Op.Name()), "what no signature needs is left out")
	vocabulary, err := os.ReadFile(filepath.Join(dir, "assets", "vocab.txt"))
	require.NoError(t, err)
	assert.Equal(t, "go\npython\nrust\n", string(vocabulary))
	model, err := os.ReadFile(filepath.Join(dir, "saved_model.pb"))
	require.NoError(t, err)
	assert.NotContains(t, string(model), os.TempDir(), "no path of this machine")

	// What restores also saves: the model's own saver writes a checkpoint.
	saver := m.MetaGraph().GetSaverDef()
	prefix := filepath.Join(t.TempDir(), "again")
	path := must(bridge.FromStrings(bridge.Shape{}, []string{prefix}))(t)
	defer path.Close()
	saved, err := m.Session().Call(t.Context(), bridge.Call{
		Feeds: []tf.Output{must(m.Tensor(saver.GetFilenameTensorName()))(t)}, Fetches: []tf.Output{must(m.Tensor(saver.GetSaveTensorName()))(t)}}, path)
	require.NoError(t, err)
	saved[0].Close()
	r, err := checkpoints.Open(prefix)
	require.NoError(t, err)
	defer r.Close()
	assert.Len(t, r.Entries(), 3)
}

// A training signature is an Identity behind the step. The whole graph, slots
// included, goes on from where it was.
func TestASavedTrainingGoesOn(t *testing.T) {
	c := newClassifier(t)
	step := raw.Identity(c.g.WithControl(c.train.Op), c.loss)
	require.NoError(t, c.g.Err())
	c.steps(t, 4)
	dir := filepath.Join(t.TempDir(), "1")
	signatures := c.serving()
	signatures["train"] = savedmodels.SignatureSpec{Inputs: map[string]tf.Output{"words": c.words, "labels": c.labels}, Outputs: map[string]tf.Output{"loss": step}}
	require.NoError(t, savedmodels.Save(t.Context(), c.g, c.sess, dir, savedmodels.SaveOptions{Signatures: signatures, Assets: []tf.Output{c.vocabulary}, Shards: 2}))
	want := c.steps(t, 3)

	m := load(t, dir, savedmodels.Options{})
	assert.Len(t, m.Variables(), 8, "with two slots each of two variables, and the count of steps")
	in := c.in(t)
	for range 3 {
		out, err := m.Run(t.Context(), "train", in)
		require.NoError(t, err)
		require.NoError(t, out.Close())
	}
	assert.Equal(t, want, run(t, m, "", "scores", savedmodels.Tensors{"words": in["words"]}))
}

func TestTheWholeGraphIsKeptWhereItIsAskedFor(t *testing.T) {
	c := newClassifier(t)
	dir := filepath.Join(t.TempDir(), "1")
	require.NoError(t, savedmodels.Save(t.Context(), c.g, c.sess, dir, savedmodels.SaveOptions{Signatures: c.serving(), Assets: []tf.Output{c.vocabulary}, WholeGraph: true}))
	m := load(t, dir, savedmodels.Options{})
	assert.NotNil(t, bridge.OperationByName(m.Graph(), c.train.Op.Name()))
	assert.Len(t, m.Variables(), 8)
}

func TestWeightsAreStoredInSixteenBits(t *testing.T) {
	c := newClassifier(t)
	want := c.steps(t, 5)
	for _, dt := range []tf.DataType{tf.Half, tf.Bfloat16} {
		dir := filepath.Join(t.TempDir(), "1")
		require.NoError(t, savedmodels.Save(t.Context(), c.g, c.sess, dir, savedmodels.SaveOptions{Signatures: c.serving(), Assets: []tf.Output{c.vocabulary}, Weights: dt}))
		r, err := checkpoints.Open(dir)
		require.NoError(t, err)
		for _, e := range r.Entries() {
			assert.Equal(t, dt, e.DType, e.Name)
		}
		require.NoError(t, r.Close())
		m := load(t, dir, savedmodels.Options{})
		in := c.in(t)
		got := run(t, m, "", "scores", savedmodels.Tensors{"words": in["words"]})
		assert.InDeltaSlice(t, want, got, 0.02)
		assert.NotEqual(t, want, got)
	}
	// A signature may give the variable itself.
	dir := filepath.Join(t.TempDir(), "1")
	signatures := map[string]savedmodels.SignatureSpec{"w": {Outputs: map[string]tf.Output{"table": c.embedding.Value()}}}
	require.NoError(t, savedmodels.Save(t.Context(), c.g, c.sess, dir, savedmodels.SaveOptions{Signatures: signatures, Weights: tf.Bfloat16}))
	assert.Len(t, run(t, load(t, dir, savedmodels.Options{}), "w", "table", nil), 12)

	g := ops.NewGraph(ops.GraphOptions{})
	large := g.Variable("large", ops.Shape{2}, ops.FromValue([]float32{1, 1e6}))
	y := raw.Neg(g, large.Value())
	init := g.Init()
	sess := must(bridge.NewSession(g.TF(), bridge.Config{}))(t)
	defer sess.Close()
	require.NoError(t, sess.Run(t.Context(), init))
	o := savedmodels.SaveOptions{Signatures: map[string]savedmodels.SignatureSpec{"s": {Outputs: map[string]tf.Output{"y": y}}}, Weights: tf.Half}
	err := savedmodels.Save(t.Context(), g, sess, filepath.Join(t.TempDir(), "1"), o)
	require.ErrorIs(t, err, bridge.ErrOutOfRange)
	assert.ErrorContains(t, err, `"large" holds 1e+06`)
	step := raw.Identity(g.WithControl(large.AssignAdd(nil, g.Const([]float32{1, 1}))), y)
	o.Signatures = map[string]savedmodels.SignatureSpec{"s": {Outputs: map[string]tf.Output{"y": step}}}
	err = savedmodels.Save(t.Context(), g, sess, filepath.Join(t.TempDir(), "1"), o)
	require.ErrorIs(t, err, bridge.ErrFailedPrecondition)
	assert.ErrorContains(t, err, "AssignAddVariableOp")
}

// What a variable began as is not needed again, where it is large or was fed.
func TestFirstValuesAreNotSavedTwice(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	big := make([]float32, 1<<18)
	big[7] = 7
	first := floats(t, bridge.Shape{1 << 18}, big...)
	v := g.Variable("v", ops.Shape{1 << 18}, ops.FromTensor(first))
	fed := g.Placeholder("fed", tf.Float, ops.Shape{})
	u := g.Variable("u", ops.Shape{}, ops.FromOutput(fed))
	y := raw.AddV2(g, v.Value(), u.Value())
	init := g.Init()
	sess := must(bridge.NewSession(g.TF(), bridge.Config{}))(t)
	defer sess.Close()
	one := floats(t, bridge.Shape{}, 1)
	_, err := sess.Call(t.Context(), bridge.Call{Feeds: []tf.Output{fed}, Targets: []*tf.Operation{init}}, one)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "1")
	require.NoError(t, savedmodels.Save(t.Context(), g, sess, dir, savedmodels.SaveOptions{
		Signatures: map[string]savedmodels.SignatureSpec{"s": {Outputs: map[string]tf.Output{"y": y}}}}))
	info, err := os.Stat(filepath.Join(dir, "saved_model.pb"))
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(20_000))
	m := load(t, dir, savedmodels.Options{})
	assert.EqualValues(t, 8, run(t, m, "s", "y", nil)[7])
}

func TestSaveRefusesWhatWouldNotWork(t *testing.T) {
	c := newClassifier(t)
	g := c.g
	other := ops.NewGraph(ops.GraphOptions{})
	elsewhere := other.Const(float32(1))
	stranger := raw.ReadVariableOp(g, raw.VarHandleOp(g, tf.Float, ops.Shape{}, raw.Attr{Name: "shared_name", Value: "stranger"}), tf.Float)
	changing := raw.LookupTableSizeV2(g, raw.MutableHashTableV2(g, tf.String, tf.Int64))
	missing := g.Const("/no/such/file")
	computed := raw.StringJoin(g, []tf.Output{g.Const("a"), missing})
	require.NoError(t, g.Err())
	full := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(full, "notes.txt"), nil, 0o644))
	file := filepath.Join(full, "notes.txt")
	sig := func(in, out map[string]tf.Output) map[string]savedmodels.SignatureSpec {
		return map[string]savedmodels.SignatureSpec{"s": {Inputs: in, Outputs: out}}
	}
	type ports = map[string]tf.Output
	good := filepath.Join(t.TempDir(), "1")
	for name, test := range map[string]struct {
		dir  string
		o    savedmodels.SaveOptions
		want error
		says string
	}{
		"no folder":         {"", savedmodels.SaveOptions{Signatures: c.serving()}, bridge.ErrInvalidArgument, "empty"},
		"Keras's own":       {"model.keras", savedmodels.SaveOptions{Signatures: c.serving()}, bridge.ErrUnimplemented, "TFSMLayer"},
		"HDF5":              {"model.h5", savedmodels.SaveOptions{Signatures: c.serving()}, bridge.ErrUnimplemented, "TFSMLayer"},
		"a file":            {file, savedmodels.SaveOptions{Signatures: c.serving()}, bridge.ErrAlreadyExists, "is a file"},
		"another folder":    {full, savedmodels.SaveOptions{Signatures: c.serving(), Overwrite: true}, bridge.ErrAlreadyExists, "notes.txt and no model"},
		"no signature":      {good, savedmodels.SaveOptions{}, bridge.ErrInvalidArgument, "no signature"},
		"no output":         {good, savedmodels.SaveOptions{Signatures: sig(ports{"x": c.words}, nil)}, bridge.ErrInvalidArgument, "no output"},
		"all that is wrong": {good, savedmodels.SaveOptions{Signatures: sig(ports{"": c.words, "e": elsewhere}, ports{"z": {}})}, bridge.ErrInvalidArgument, `an input has no name; signature "s": input "e" is not a tensor of the graph; signature "s": output "z" is not`},
		"a taken name": {good, savedmodels.SaveOptions{Signatures: map[string]savedmodels.SignatureSpec{"__saved_model_init_op": {Outputs: ports{"y": c.scores}}}},
			bridge.ErrInvalidArgument, "taken"},
		"a handle":             {good, savedmodels.SaveOptions{Signatures: sig(nil, ports{"y": c.embedding.Handle()})}, bridge.ErrInvalidArgument, "resource"},
		"an unfed placeholder": {good, savedmodels.SaveOptions{Signatures: sig(ports{"words": c.words}, ports{"loss": c.loss})}, bridge.ErrInvalidArgument, `signature "s" needs placeholder "labels"`},
		"a stranger":           {good, savedmodels.SaveOptions{Signatures: sig(nil, ports{"y": stranger})}, bridge.ErrFailedPrecondition, "VarHandleOp would be lost"},
		"a table that changes": {good, savedmodels.SaveOptions{Signatures: sig(nil, ports{"y": changing})}, bridge.ErrFailedPrecondition, "MutableHashTableV2 hold"},
		"a missing asset":      {good, savedmodels.SaveOptions{Signatures: c.serving(), Assets: []tf.Output{missing}}, bridge.ErrInvalidArgument, "/no/such/file"},
		"a computed asset":     {good, savedmodels.SaveOptions{Signatures: c.serving(), Assets: []tf.Output{computed}}, bridge.ErrInvalidArgument, "StringJoin, wanted a constant"},
		"an asset of numbers":  {good, savedmodels.SaveOptions{Signatures: c.serving(), Assets: []tf.Output{g.Const(1)}}, bridge.ErrInvalidArgument, "wanted a string"},
		"weights of integers":  {good, savedmodels.SaveOptions{Signatures: c.serving(), Weights: tf.Int8}, bridge.ErrInvalidArgument, "int8"},
		"a nil variable":       {good, savedmodels.SaveOptions{Signatures: c.serving(), Variables: []*ops.Variable{nil}}, bridge.ErrInvalidArgument, "variable 0 of 1"},
	} {
		err := savedmodels.Save(t.Context(), g, c.sess, test.dir, test.o)
		require.ErrorIs(t, err, test.want, name)
		assert.ErrorContains(t, err, test.says, name)
	}
	require.Error(t, savedmodels.Save(t.Context(), nil, c.sess, good, savedmodels.SaveOptions{Signatures: c.serving()}))
	require.Error(t, savedmodels.Save(t.Context(), g, nil, good, savedmodels.SaveOptions{Signatures: c.serving()}))
	fresh := must(bridge.NewSession(g.TF(), bridge.Config{}))(t)
	defer fresh.Close()
	require.ErrorIs(t, savedmodels.Save(t.Context(), g, fresh, good, savedmodels.SaveOptions{Signatures: c.serving()}), bridge.ErrUninitialized)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(good), "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// A server may load at any moment while models replace each other.
func TestAModelIsReplacedAtOneMoment(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	v := g.Variable("v", ops.Shape{}, ops.Zeros())
	y := raw.Identity(g, v.Value())
	step := v.AssignAdd(nil, g.Const(float32(1)))
	init := g.Init()
	sess := must(bridge.NewSession(g.TF(), bridge.Config{}))(t)
	defer sess.Close()
	require.NoError(t, sess.Run(t.Context(), init))
	dir := filepath.Join(t.TempDir(), "model")
	o := savedmodels.SaveOptions{Signatures: map[string]savedmodels.SignatureSpec{"s": {Outputs: map[string]tf.Output{"y": y}}}}
	require.NoError(t, savedmodels.Save(t.Context(), g, sess, dir, o))
	err := savedmodels.Save(t.Context(), g, sess, dir, o)
	require.ErrorIs(t, err, bridge.ErrAlreadyExists)
	assert.ErrorContains(t, err, "Overwrite")

	o.Overwrite = true
	ctx, stop := context.WithCancel(t.Context())
	var reader sync.WaitGroup
	looks := 0
	reader.Go(func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "saved_model.pb")); !assert.NoError(t, err) {
				return
			}
			looks++
		}
	})
	for range 10 {
		require.NoError(t, sess.Run(t.Context(), step))
		require.NoError(t, savedmodels.Save(t.Context(), g, sess, dir, o))
	}
	stop()
	reader.Wait()
	assert.Greater(t, looks, 10)
	assert.Equal(t, []float32{10}, run(t, load(t, dir, savedmodels.Options{}), "s", "y", nil))
	left, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	assert.Len(t, left, 1, "nothing is left beside it")
}

func TestVersionsAreCounted(t *testing.T) {
	base := filepath.Join(t.TempDir(), "models")
	for _, want := range []string{"1", "2", "3"} {
		dir, err := savedmodels.NextVersion(base)
		require.NoError(t, err)
		assert.Equal(t, filepath.Join(base, want), dir)
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	require.NoError(t, os.Mkdir(filepath.Join(base, "0012"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(base, ".unfinished-77"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(base, "99"), nil, 0o644))
	dir, err := savedmodels.NextVersion(base)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(base, "13"), dir)
}

func TestAFrozenGraphHasConstantsForVariables(t *testing.T) {
	c := newClassifier(t)
	c.steps(t, 5)
	g := c.g
	ids := g.Placeholder("ids", tf.Int32, ops.Shape{-1})
	rows := c.embedding.Gather(g.Root(), ids)
	shape := raw.VariableShape(g, c.embedding.Handle())
	filled := c.embedding.IsInitialized(g.Root())
	nd := raw.ResourceGatherNd(g, c.embedding.Handle(), g.Const([][]int32{{2, 1}}), tf.Float)
	require.NoError(t, g.Err())
	for _, o := range []savedmodels.FreezeOptions{{}, {Weights: tf.Bfloat16}} {
		frozen, err := savedmodels.Freeze(t.Context(), g, c.sess, []tf.Output{rows, shape, filled, nd, c.scores}, o)
		require.NoError(t, err)
		def := new(graphdef.GraphDef)
		require.NoError(t, proto.Unmarshal(frozen, def))
		for _, n := range def.GetNode() {
			assert.NotContains(t, []string{"VarHandleOp", "ReadVariableOp", "AssignVariableOp", "ResourceGather"}, n.GetOp(), n.GetName())
		}
		fresh := tf.NewGraph()
		imported, err := bridge.Import(fresh, frozen, bridge.ImportOptions{ReturnOutputs: []string{
			"words", rows.Op.Name(), shape.Op.Name(), filled.Op.Name(), nd.Op.Name(), c.scores.Op.Name(), "ids"}})
		require.NoError(t, err)
		sess := must(bridge.NewSession(fresh, bridge.Config{}))(t)
		// The table is no variable: it is still filled by its initializer, which no
		// output needs. What needs none runs.
		indices := must(bridge.FromFlat(bridge.Shape{2}, []int32{2, 0}))(t)
		got, err := sess.Call(t.Context(), bridge.Call{Feeds: []tf.Output{imported.Outputs[6]}, Fetches: imported.Outputs[1:5]}, indices)
		require.NoError(t, err)
		live, err := c.sess.Call(t.Context(), bridge.Call{Feeds: []tf.Output{ids}, Fetches: []tf.Output{rows, shape, filled, nd}}, indices)
		require.NoError(t, err)
		for i := range live {
			if o.Weights == 0 || i == 1 || i == 2 {
				a, b := must(live[i].Bytes())(t), must(got[i].Bytes())(t)
				assert.Equal(t, a, b)
			} else {
				assert.InDeltaSlice(t, must(bridge.Flat[float32](live[i]))(t), must(bridge.Flat[float32](got[i]))(t), 0.02)
			}
			live[i].Close()
			got[i].Close()
		}
		indices.Close()
		require.NoError(t, sess.Close())
	}
	_, err := savedmodels.Freeze(t.Context(), g, c.sess, nil, savedmodels.FreezeOptions{})
	require.ErrorIs(t, err, bridge.ErrInvalidArgument)
	step := raw.Identity(g.WithControl(c.train.Op), c.loss)
	_, err = savedmodels.Freeze(t.Context(), g, c.sess, []tf.Output{step}, savedmodels.FreezeOptions{})
	require.ErrorIs(t, err, bridge.ErrFailedPrecondition)
	assert.ErrorContains(t, err, "what changes can't be a constant")
}

// A loop is a call of functions, which the model takes along, and no others. A
// variable that the loop reads inside is one of the model.
func TestLoopsAreSavedWithTheirFunctions(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Placeholder("x", tf.Float, ops.Shape{})
	w := g.Variable("w", ops.Shape{}, ops.Value(3))
	more := func(limit float32) func(s *ops.Scope, v []tf.Output) tf.Output {
		return func(s *ops.Scope, v []tf.Output) tf.Output { return raw.Less(s, v[0], s.Const(limit)) }
	}
	times := func(s *ops.Scope, v []tf.Output) []tf.Output {
		return []tf.Output{raw.Mul(s, v[0], w.Read(s))}
	}
	y := ops.While(g.Root(), more(100), times, []tf.Output{x})[0]
	other := ops.While(g.Root(), more(7), times, []tf.Output{x})[0]
	init := g.Init()
	require.NoError(t, g.Err())
	sess := must(bridge.NewSession(g.TF(), bridge.Config{}))(t)
	defer sess.Close()
	require.NoError(t, sess.Run(t.Context(), init))
	dir := filepath.Join(t.TempDir(), "1")
	o := savedmodels.SaveOptions{Signatures: map[string]savedmodels.SignatureSpec{"s": {Inputs: map[string]tf.Output{"x": x}, Outputs: map[string]tf.Output{"y": y}}}}
	require.NoError(t, savedmodels.Save(t.Context(), g, sess, dir, o))
	m := load(t, dir, savedmodels.Options{})
	assert.Equal(t, []float32{162}, run(t, m, "", "y", savedmodels.Tensors{"x": floats(t, bridge.Shape{}, 2)}), "2·3·3·3·3")
	all, kept := must(bridge.Functions(g.TF()))(t), must(bridge.Functions(m.Graph()))(t)
	assert.Len(t, all, 4)
	assert.Len(t, kept, 2)

	// Stored in 16 bits, the variable is converted where the loop reads it.
	o.Weights = tf.Half
	dir = filepath.Join(t.TempDir(), "1")
	require.NoError(t, savedmodels.Save(t.Context(), g, sess, dir, o))
	half := load(t, dir, savedmodels.Options{})
	assert.Equal(t, tf.Half, half.Variables()[0].DType)
	assert.Equal(t, []float32{162}, run(t, half, "", "y", savedmodels.Tensors{"x": floats(t, bridge.Shape{}, 2)}))
	assert.Len(t, must(bridge.Functions(half.Graph()))(t), 2)

	// Frozen, the loops are given the value.
	frozen, err := savedmodels.Freeze(t.Context(), g, sess, []tf.Output{y, other}, savedmodels.FreezeOptions{})
	require.NoError(t, err)
	fresh := tf.NewGraph()
	imported, err := bridge.Import(fresh, frozen, bridge.ImportOptions{ReturnOutputs: []string{"x", fmt.Sprintf("%s:%d", y.Op.Name(), y.Index), fmt.Sprintf("%s:%d", other.Op.Name(), other.Index)}})
	require.NoError(t, err)
	assert.Len(t, must(bridge.Functions(fresh))(t), 4)
	again := must(bridge.NewSession(fresh, bridge.Config{}))(t)
	defer again.Close()
	out, err := again.Call(t.Context(), bridge.Call{Feeds: imported.Outputs[:1], Fetches: imported.Outputs[1:]}, floats(t, bridge.Shape{}, 2))
	require.NoError(t, err)
	defer out[0].Close()
	defer out[1].Close()
	assert.Equal(t, float32(162), must(bridge.Item[float32](out[0]))(t))
	assert.Equal(t, float32(18), must(bridge.Item[float32](out[1]))(t))

	// A loop that updates it can't be.
	counts := func(s *ops.Scope, v []tf.Output) []tf.Output {
		return []tf.Output{raw.Mul(s.WithControl(w.AssignAdd(s, s.Const(float32(1)))), v[0], s.Const(float32(2)))}
	}
	changing := ops.While(g.Root(), more(7), counts, []tf.Output{x})[0]
	require.NoError(t, g.Err())
	_, err = savedmodels.Freeze(t.Context(), g, sess, []tf.Output{changing}, savedmodels.FreezeOptions{})
	require.ErrorIs(t, err, bridge.ErrFailedPrecondition)
	assert.ErrorContains(t, err, "AssignAddVariableOp")
	assert.ErrorContains(t, err, "in function")
}

// A model of TensorFlow 1 has variables of both kinds.
func TestALoadedModelIsFrozen(t *testing.T) {
	d := linear(t, 4)
	x := bridge.OperationByName(d.g.TF(), "x").Output(0)
	old := d.g.Add(bridge.OpSpec{Type: "VariableV2", Name: "old", Attrs: []bridge.Attr{{Name: "shape", Value: bridge.Shape{2}}, {Name: "dtype", Value: tf.Float}}})
	require.NoError(t, d.g.Err())
	set := d.g.Add(bridge.OpSpec{Type: "Assign", Inputs: []tf.Input{old.Output(0), d.g.Const([]float32{3, 5})}})
	sum := raw.AddV2(d.g, x, raw.Identity(d.g, old.Output(0)))
	d.signature("old", map[string]tf.Output{"x": x}, map[string]tf.Output{"sum": sum})
	changed := raw.Identity(d.g.WithControl(set), old.Output(0))
	d.signature("set", nil, map[string]tf.Output{"old": changed})
	require.NoError(t, d.g.Err())
	m := load(t, d.write(), savedmodels.Options{})
	_, err := m.Freeze(t.Context(), []string{"old"}, savedmodels.FreezeOptions{})
	require.ErrorIs(t, err, bridge.ErrUninitialized)
	require.Equal(t, []float32{3, 5}, run(t, m, "set", "old", nil))
	_, err = m.Freeze(t.Context(), nil, savedmodels.FreezeOptions{})
	require.ErrorIs(t, err, bridge.ErrFailedPrecondition)
	assert.ErrorContains(t, err, "(Assign)")

	for _, o := range []savedmodels.FreezeOptions{{}, {Weights: tf.Half}} {
		frozen, err := m.Freeze(t.Context(), []string{"old", "serving_default"}, o)
		require.NoError(t, err)
		fresh := tf.NewGraph()
		y := must(m.Signature("serving_default"))(t).Outputs[0].Tensor
		imported, err := bridge.Import(fresh, frozen, bridge.ImportOptions{ReturnOutputs: []string{"x", y, sum.Op.Name()}})
		require.NoError(t, err)
		sess := must(bridge.NewSession(fresh, bridge.Config{}))(t)
		out, err := sess.Call(t.Context(), bridge.Call{Feeds: imported.Outputs[:1], Fetches: imported.Outputs[1:]}, floats(t, bridge.Shape{1, 2}, 1, 2))
		require.NoError(t, err)
		assert.Equal(t, []float32{18}, must(bridge.Values[float32](out[0]))(t), "1·10 + 2·4")
		assert.Equal(t, []float32{4, 7}, must(bridge.Values[float32](out[1]))(t))
		out[0].Close()
		out[1].Close()
		require.NoError(t, sess.Close())
	}
}

func ExampleSave() {
	ctx := context.Background()
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Placeholder("x", tf.Float, ops.Shape{-1, 2})
	w := g.Scope("net").Variable("w", ops.Shape{2, 1}, ops.FromValue([][]float32{{3}, {4}}))
	y := raw.MatMul(g, x, w.Value())
	init := g.Init()
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sess.Close()
	if err := sess.Run(ctx, init); err != nil {
		fmt.Println(err)
		return
	}
	base, err := os.MkdirTemp("", "models")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(base)
	dir, err := savedmodels.NextVersion(base)
	if err != nil {
		fmt.Println(err)
		return
	}
	o := savedmodels.SaveOptions{Signatures: map[string]savedmodels.SignatureSpec{"serving_default": {
		Inputs:  map[string]tf.Output{"x": x},
		Outputs: map[string]tf.Output{"y": y},
	}}}
	if err := savedmodels.Save(ctx, g, sess, dir, o); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(strings.TrimPrefix(dir, base))
	err = savedmodels.Save(ctx, g, sess, dir, o)
	fmt.Println(errors.Is(err, bridge.ErrAlreadyExists))

	m, err := savedmodels.Load(dir, savedmodels.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	s, _ := m.Signature("")
	fmt.Println(s)
	fmt.Println(slices.Collect(func(yield func(string) bool) {
		for _, v := range m.Variables() {
			yield(v.Name)
		}
	}))
	// Output:
	// /1
	// true
	// serving_default(x: float32 [?,2]) → (y: float32 [?,1])
	// [net/w]
}
