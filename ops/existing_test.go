package ops_test

import (
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

func TestVariablesOfAGraphAreTakenInOnceAndKeepTheirValues(t *testing.T) {
	made := ops.NewGraph(ops.GraphOptions{})
	w := made.Variable("w", ops.Shape{2}, ops.Ones())
	require.NoError(t, made.Err())
	g := ops.FromTF(made.TF(), ops.GraphOptions{})
	v, err := g.ExistingVariable(w.Handle(), "Adam/w", ops.VariableOptions{NonTrainable: true})
	require.NoError(t, err)
	assert.True(t, v.Existing())
	assert.False(t, w.Existing())
	assert.Equal(t, "Adam/w float32 [2]", v.String())
	assert.Empty(t, g.Trainable())
	assert.Equal(t, "Adam_1", g.Add(bridge.OpSpec{Type: "NoOp", Name: "Adam"}).Name(), "what it is in keeps its name")

	for name, handle := range map[string]tf.Output{"Adam/w": w.Handle(), "again": w.Handle(), "no handle": w.Value(), "zero": {}} {
		before := nodes(made.TF())
		_, err := g.ExistingVariable(handle, name)
		require.Error(t, err, name)
		assert.Equal(t, before, nodes(made.TF()), name)
	}
	require.NoError(t, g.Err())

	added := g.Variable("added", ops.Shape{}, ops.Ones())
	init := g.Init()
	sess, err := bridge.NewSession(made.TF(), bridge.Config{})
	require.NoError(t, err)
	defer sess.Close()
	require.NoError(t, sess.Run(t.Context(), made.InitOf(w)))
	require.NoError(t, sess.Run(t.Context(), init))
	out, err := sess.Call(t.Context(), bridge.Call{Fetches: []tf.Output{v.Value(), added.Value()}})
	require.NoError(t, err)
	defer out[0].Close()
	defer out[1].Close()
	values, err := bridge.Values[float32](out[0])
	require.NoError(t, err)
	assert.Equal(t, []float32{1, 1}, values)
}

func nodes(g *tf.Graph) (n int) {
	for range bridge.Operations(g) {
		n++
	}
	return n
}
