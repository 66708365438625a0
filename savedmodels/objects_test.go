package savedmodels_test

import (
	"os"
	"path/filepath"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/savedmodels"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

// regression is y = x·w + b with a loop that halves, to be trained by Adam.
type regression struct {
	g          *ops.Graph
	sess       *bridge.Session
	signatures map[string]savedmodels.SignatureSpec
}

func newRegression(t testing.TB) *regression {
	t.Helper()
	g := ops.NewGraph(ops.GraphOptions{Seed: 3})
	x := g.Placeholder("x", tf.Float, ops.Shape{-1, 2})
	target := g.Placeholder("target", tf.Float, ops.Shape{-1, 1})
	net := g.Scope("net.1")
	w := net.Scope("dense").Variable("w", ops.Shape{2, 1}, ops.GlorotUniform())
	b := net.Variable("b", ops.Shape{1}, ops.Ones(), ops.VariableOptions{NonTrainable: true})
	y := raw.AddV2(net, raw.MatMul(net, x, w.Value()), b.Value())
	train, err := optimizers.NewAdam(0.1).Minimize(raw.Mean(g, raw.Square(g, raw.Sub(g, y, target)), g.Const([]int32{0, 1})), g.Trainable())
	require.NoError(t, err)
	step := raw.Identity(g.WithControl(train.Op), y)
	halved := ops.While(g.Root(), func(s *ops.Scope, v []tf.Output) tf.Output {
		return raw.Less(s, s.Const(float32(1)), raw.Sum(s, raw.Abs(s, v[0]), s.Const([]int32{0, 1})))
	}, func(s *ops.Scope, v []tf.Output) []tf.Output {
		return []tf.Output{raw.Mul(s, v[0], s.Const(float32(0.5)))}
	}, []tf.Output{y})[0]
	init := g.Init()
	require.NoError(t, g.Err())
	sess := must(bridge.NewSession(g.TF(), bridge.Config{}))(t)
	t.Cleanup(func() { require.NoError(t, sess.Close()) })
	require.NoError(t, sess.Run(t.Context(), init))
	type ports = map[string]tf.Output
	return &regression{g, sess, map[string]savedmodels.SignatureSpec{
		"serving_default": {Inputs: ports{"x": x}, Outputs: ports{"y": y}},
		"train":           {Inputs: ports{"x": x, "target": target}, Outputs: ports{"y": step, "x": x}},
		"halved":          {Inputs: ports{"x": x}, Outputs: ports{"halved": halved, "y": y}},
		"weights":         {Outputs: ports{"w": w.Value()}},
	}}
}

func TestAModelOfObjectsIsLoadedTrainedAndSavedByItsOwnSaver(t *testing.T) {
	r := newRegression(t)
	dir := filepath.Join(t.TempDir(), "1")
	require.NoError(t, savedmodels.Save(t.Context(), r.g, r.sess, dir, savedmodels.SaveOptions{Signatures: r.signatures, Objects: true}))
	m := load(t, dir, savedmodels.Options{})
	assert.Equal(t, []string{"halved", "serving_default", "train", "weights"}, m.Signatures())
	x := floats(t, bridge.Shape{2, 2}, 1, 2, 3, 4)
	target := floats(t, bridge.Shape{2, 1}, 7, -7)
	plain := filepath.Join(t.TempDir(), "1")
	require.NoError(t, savedmodels.Save(t.Context(), r.g, r.sess, plain, savedmodels.SaveOptions{Signatures: r.signatures}))
	other := load(t, plain, savedmodels.Options{})
	same := func() {
		t.Helper()
		for _, s := range []string{"serving_default", "halved"} {
			assert.Equal(t, run(t, other, s, "y", savedmodels.Tensors{"x": x}), run(t, m, s, "y", savedmodels.Tensors{"x": x}))
		}
		assert.Equal(t, run(t, other, "halved", "halved", savedmodels.Tensors{"x": x}), run(t, m, "halved", "halved", savedmodels.Tensors{"x": x}))
		assert.Equal(t, run(t, other, "weights", "w", nil), run(t, m, "weights", "w", nil))
	}
	same()
	before := run(t, m, "", "y", savedmodels.Tensors{"x": x})
	for range 3 {
		for _, each := range []*savedmodels.Model{m, other} {
			assert.Equal(t, []float32{1, 2, 3, 4}, run(t, each, "train", "x", savedmodels.Tensors{"x": x, "target": target}))
		}
	}
	assert.NotEqual(t, before, run(t, m, "", "y", savedmodels.Tensors{"x": x}))
	same()

	names, trainable := []string{}, []string{}
	for _, v := range m.Variables() {
		names = append(names, v.Name)
		if v.Trainable {
			trainable = append(trainable, v.Name)
		}
	}
	assert.Contains(t, names, "net.1/b")
	assert.Equal(t, []string{"net.1/dense/w"}, trainable)
	assert.Len(t, names, len(other.Variables()))

	saver := m.MetaGraph().GetSaverDef()
	prefix := filepath.Join(t.TempDir(), "again")
	path := must(bridge.FromStrings(bridge.Shape{}, []string{prefix}))(t)
	defer path.Close()
	saved, err := m.Session().Call(t.Context(), bridge.Call{
		Feeds: []tf.Output{must(m.Tensor(saver.GetFilenameTensorName()))(t)}, Fetches: []tf.Output{must(m.Tensor(saver.GetSaveTensorName()))(t)}}, path)
	require.NoError(t, err)
	saved[0].Close()
	c, err := checkpoints.Open(prefix)
	require.NoError(t, err)
	defer c.Close()
	assert.True(t, c.ObjectBased())
	e, err := c.Find("net.1/dense/w")
	require.NoError(t, err)
	assert.Equal(t, "net..1/dense/w/.ATTRIBUTES/VARIABLE_VALUE", e.Key)
}

func TestObjectsAreStoredInSixteenBitsAndFrozen(t *testing.T) {
	r := newRegression(t)
	x := floats(t, bridge.Shape{1, 2}, 1, 2)
	delete(r.signatures, "train")
	dir := filepath.Join(t.TempDir(), "1")
	require.NoError(t, savedmodels.Save(t.Context(), r.g, r.sess, dir, savedmodels.SaveOptions{Signatures: r.signatures, Objects: true, Weights: tf.Half}))
	m := load(t, dir, savedmodels.Options{})
	for _, v := range m.Variables() {
		assert.Equal(t, tf.Half, v.DType, v.Name)
	}
	_, err := m.Freeze(t.Context(), nil, savedmodels.FreezeOptions{})
	require.NoError(t, err)
	whole := filepath.Join(t.TempDir(), "1")
	require.NoError(t, savedmodels.Save(t.Context(), r.g, r.sess, whole, savedmodels.SaveOptions{Signatures: r.signatures}))
	assert.InDeltaSlice(t, run(t, load(t, whole, savedmodels.Options{}), "", "y", savedmodels.Tensors{"x": x}), run(t, m, "", "y", savedmodels.Tensors{"x": x}), 0.01)
	assert.Len(t, run(t, m, "weights", "w", nil), 2)
}

func TestObjectsOfTablesAreRefused(t *testing.T) {
	c := newClassifier(t)
	dir := filepath.Join(t.TempDir(), "1")
	err := savedmodels.Save(t.Context(), c.g, c.sess, dir, savedmodels.SaveOptions{Signatures: c.serving(), Assets: []tf.Output{c.vocabulary}, Objects: true})
	require.ErrorIs(t, err, bridge.ErrUnimplemented)
	assert.ErrorContains(t, err, "tables")
	_, err = os.Stat(dir)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
