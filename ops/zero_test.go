package ops_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/ops"
)

func TestAZeroGraphIsAnErrorNotAPanic(t *testing.T) {
	g := new(ops.Graph)
	require.Nil(t, g.Init())
	g.AddToCollection("a", 1)
	require.ErrorContains(t, g.Err(), "NewGraph")
	require.Error(t, g.Build(func() error { return nil }))
}
