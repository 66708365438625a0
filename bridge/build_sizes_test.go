package bridge_test

import (
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
)

// TensorFlow takes such a node and aborts the process when a run folds it.
func TestOutputsThatCannotBeCountedAreRefused(t *testing.T) {
	g := newGraph(t)
	one := constant(g, "one", bridge.Shape{}, float32(1))
	fill := func(name string, dims ...int64) error {
		shape := constant(g, name+"_dims", bridge.Shape{int64(len(dims))}, dims...)
		_, err := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "Fill", Name: name, Inputs: []tf.Input{shape, one}})
		return err
	}
	err := fill("huge", 1<<40, 1<<40)
	require.ErrorIs(t, err, bridge.ErrInvalidArgument)
	require.ErrorContains(t, err, "more elements than 64 bits can count")
	require.NoError(t, fill("empty", 1<<40, 1<<40, 0))
	require.NoError(t, fill("small", 2, 3))
}
