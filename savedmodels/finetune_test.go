package savedmodels_test

import (
	"context"
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

// saveRegression writes the regression in one of the forms.
func saveRegression(t testing.TB, objects bool) (dir string) {
	t.Helper()
	r := newRegression(t)
	dir = filepath.Join(t.TempDir(), "1")
	require.NoError(t, savedmodels.Save(t.Context(), r.g, r.sess, dir, savedmodels.SaveOptions{Signatures: r.signatures, Objects: objects}))
	return dir
}

// tunedRegression trains an output of the regression towards a goal.
type tunedRegression struct {
	*savedmodels.Tuned
	step *bridge.Step
}

func tuneRegression(t testing.TB, dir, signature, output string, rule *optimizers.Optimizer) *tunedRegression {
	t.Helper()
	var x, target, loss tf.Output
	var train *optimizers.TrainOp
	tuned, err := savedmodels.FineTune(t.Context(), dir, savedmodels.TuneOptions{Build: func(m *savedmodels.Tuned) (err error) {
		y, err := m.Output(signature, output)
		if err != nil {
			return err
		}
		if x, err = m.Input(signature, "x"); err != nil {
			return err
		}
		g := m.Ops()
		target = g.Placeholder("goal", tf.Float, ops.Shape{-1, 1})
		loss = raw.Mean(g, raw.Square(g, raw.Sub(g, y, target)), g.Const([]int32{0, 1}))
		train, err = rule.Minimize(loss, g.Trainable())
		return err
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tuned.Close()) })
	step, err := tuned.Session().Prepare(bridge.Call{Feeds: []tf.Output{x, target}, Fetches: []tf.Output{loss}, Targets: []*tf.Operation{train.Op}})
	require.NoError(t, err)
	return &tunedRegression{tuned, step}
}

func (r *tunedRegression) train(t testing.TB, steps int, x, target *bridge.Tensor) (losses []float32) {
	t.Helper()
	out := r.step.NewOutputs()
	defer out.Close()
	for range steps {
		require.NoError(t, r.step.Run(t.Context(), []*bridge.Tensor{x, target}, out))
		losses = append(losses, must(bridge.Item[float32](out.Tensor(0)))(t))
	}
	return losses
}

func TestAModelIsTunedAndSavedBackAsItWas(t *testing.T) {
	for name, objects := range map[string]bool{"objects": true, "MetaGraph": false} {
		t.Run(name, func(t *testing.T) {
			dir := saveRegression(t, objects)
			graph := must(os.ReadFile(filepath.Join(dir, "saved_model.pb")))(t)
			r := tuneRegression(t, dir, "serving_default", "y", &optimizers.NewAdam(0.05).Optimizer)
			x, target := floats(t, bridge.Shape{2, 2}, 1, 2, 3, 4), floats(t, bridge.Shape{2, 1}, 7, -7)
			original := load(t, dir, savedmodels.Options{})
			in := savedmodels.Tensors{"x": x}
			assert.Equal(t, run(t, original, "", "y", in), run(t, r.Model, "", "y", in), "it begins with the model's weights")
			losses := r.train(t, 60, x, target)
			assert.Less(t, losses[59], losses[0])

			b := must(r.Ops().VariableByName("net.1/b"))(t)
			assert.False(t, b.Trainable())
			assert.Len(t, r.Ops().Trainable("net.1/"), 1)

			back := filepath.Join(t.TempDir(), "2")
			require.NoError(t, r.SaveBack(t.Context(), back, savedmodels.SaveBackOptions{}))
			assert.Equal(t, graph, must(os.ReadFile(filepath.Join(back, "saved_model.pb")))(t))
			again := load(t, back, savedmodels.Options{})
			assert.Equal(t, run(t, r.Model, "", "y", in), run(t, again, "", "y", in))
			assert.NotEqual(t, run(t, original, "", "y", in), run(t, again, "", "y", in))
			assert.Equal(t, original.Signatures(), again.Signatures())
			assert.Equal(t, keys(t, dir), keys(t, back))

			require.ErrorIs(t, r.SaveBack(t.Context(), back, savedmodels.SaveBackOptions{}), bridge.ErrAlreadyExists)
			require.NoError(t, r.SaveBack(t.Context(), dir, savedmodels.SaveBackOptions{Overwrite: true}), "over the model itself")
			assert.Equal(t, run(t, r.Model, "", "y", in), run(t, load(t, dir, savedmodels.Options{}), "", "y", in))
		})
	}
}

func keys(t testing.TB, dir string) (all []string) {
	t.Helper()
	c, err := checkpoints.Open(filepath.Join(dir, "variables", "variables"))
	require.NoError(t, err)
	defer c.Close()
	for _, e := range c.Entries() {
		all = append(all, e.Key)
	}
	return all
}

func TestAModelIsTunedThroughItsLoop(t *testing.T) {
	r := tuneRegression(t, saveRegression(t, true), "halved", "halved", optimizers.NewGradientDescent(0.01))
	losses := r.train(t, 40, floats(t, bridge.Shape{1, 2}, 1, 2), floats(t, bridge.Shape{1, 1}, 0.7))
	assert.NotEqual(t, losses[0], losses[39])
}

func TestATrainSignatureLearnsAndIsSavedBack(t *testing.T) {
	m := load(t, saveRegression(t, true), savedmodels.Options{})
	x, target := floats(t, bridge.Shape{2, 2}, 1, 2, 3, 4), floats(t, bridge.Shape{2, 1}, 7, -7)
	before := run(t, m, "", "y", savedmodels.Tensors{"x": x})
	run(t, m, "train", "y", savedmodels.Tensors{"x": x, "target": target})
	back := filepath.Join(t.TempDir(), "2")
	require.NoError(t, m.SaveBack(t.Context(), back, savedmodels.SaveBackOptions{}))
	after := run(t, load(t, back, savedmodels.Options{}), "", "y", savedmodels.Tensors{"x": x})
	assert.NotEqual(t, before, after)
	assert.Equal(t, run(t, m, "", "y", savedmodels.Tensors{"x": x}), after)
}

func TestANewHeadIsTrainedAloneAndSavedAsAModel(t *testing.T) {
	dir := saveRegression(t, true)
	var x, goal, head tf.Output
	var train *optimizers.TrainOp
	m, err := savedmodels.FineTune(t.Context(), dir, savedmodels.TuneOptions{Build: func(m *savedmodels.Tuned) (err error) {
		y, err := m.Output("", "y")
		if err != nil {
			return err
		}
		if x, err = m.Input("", "x"); err != nil {
			return err
		}
		g := m.Ops()
		s := g.Scope("head")
		w := s.Variable("w", ops.Shape{1, 2}, ops.Ones())
		head = raw.MatMul(s, y, w.Value())
		goal = g.Placeholder("goal", tf.Float, ops.Shape{-1, 2})
		loss := raw.Mean(g, raw.Square(g, raw.Sub(g, head, goal)), g.Const([]int32{0, 1}))
		train, err = optimizers.NewGradientDescent(0.01).Minimize(loss, g.Trainable("head/"))
		return err
	}})
	require.NoError(t, err)
	defer m.Close()
	in := savedmodels.Tensors{"x": floats(t, bridge.Shape{1, 2}, 1, 2)}
	before := run(t, m.Model, "", "y", in)
	call := bridge.Call{Feeds: []tf.Output{x, goal}, Targets: []*tf.Operation{train.Op}}
	_, err = m.Session().Call(t.Context(), call, in["x"], floats(t, bridge.Shape{1, 2}, 3, -3))
	require.NoError(t, err)
	assert.Equal(t, before, run(t, m.Model, "", "y", in), "what is not in the head stands still")

	out := filepath.Join(t.TempDir(), "1")
	require.NoError(t, savedmodels.Save(t.Context(), m.Ops(), m.Session(), out, savedmodels.SaveOptions{Signatures: map[string]savedmodels.SignatureSpec{
		"serving_default": {Inputs: map[string]tf.Output{"x": x}, Outputs: map[string]tf.Output{"scores": head}},
	}}))
	want, err := m.Session().Call(t.Context(), bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{head}}, in["x"])
	require.NoError(t, err)
	defer want[0].Close()
	assert.Equal(t, must(bridge.Values[float32](want[0]))(t), run(t, load(t, out, savedmodels.Options{}), "", "scores", in))
}

func TestWhatCantBeTunedOrSavedBackIsAnError(t *testing.T) {
	dir := saveRegression(t, true)
	_, err := savedmodels.FineTune(t.Context(), dir, savedmodels.TuneOptions{Build: func(*savedmodels.Tuned) error { return context.Canceled }})
	require.ErrorIs(t, err, context.Canceled)
	m := load(t, dir, savedmodels.Options{})
	_, err = m.Output("", "nothing")
	require.ErrorIs(t, err, bridge.ErrNotFound)
	assert.ErrorContains(t, err, `it has ["y"]`)
	_, err = m.Input("nothing", "x")
	require.ErrorIs(t, err, bridge.ErrNotFound)

	restoring := load(t, linear(t, 1).write(), savedmodels.Options{})
	back := filepath.Join(t.TempDir(), "2")
	require.ErrorIs(t, restoring.SaveBack(t.Context(), back, savedmodels.SaveBackOptions{}), bridge.ErrFailedPrecondition)
	_, err = os.Stat(back)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// tunableModel writes a model of y = x·w with w = 1, and what saves it.
func tunableModel() (dir string, remove func()) {
	base, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Placeholder("x", tf.Float, ops.Shape{-1, 1})
	w := g.Scope("net").Variable("w", ops.Shape{1, 1}, ops.Ones())
	y := raw.MatMul(g, x, w.Value())
	init := g.Init()
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	check(err)
	defer sess.Close()
	check(sess.Run(context.Background(), init))
	dir = filepath.Join(base, "1")
	check(savedmodels.Save(context.Background(), g, sess, dir, savedmodels.SaveOptions{Signatures: map[string]savedmodels.SignatureSpec{
		"serving_default": {Inputs: map[string]tf.Output{"x": x}, Outputs: map[string]tf.Output{"y": y}},
	}}))
	return dir, func() { os.RemoveAll(base) }
}
