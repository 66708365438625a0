package ops_test

import (
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

func variableNames(variables []*ops.Variable) []string {
	names := []string{}
	for _, v := range variables {
		names = append(names, v.Name())
	}
	return names
}

// collected is a graph with the variables of reference cases: net/w, network/w,
// aXb, net/frozen (not trainable), net/local (in another collection).
func collected(t *testing.T) *ops.Graph {
	g := ops.NewGraph(ops.GraphOptions{})
	scalar := ops.Shape{}
	g.Scope("net").Variable("w", scalar, ops.Zeros())
	g.Scope("network").Variable("w", scalar, ops.Zeros())
	g.Variable("aXb", scalar, ops.Zeros())
	g.Scope("net").Variable("frozen", scalar, ops.Zeros(), ops.VariableOptions{NonTrainable: true})
	g.Scope("net").Variable("local", scalar, ops.Zeros(), ops.VariableOptions{Collections: []string{ops.LocalVariables}})
	g.Variable("net", scalar, ops.Zeros(), ops.VariableOptions{DType: tf.Int32})
	require.NoError(t, g.Err())
	return g
}

func TestVariablesJoinPythonsCollections(t *testing.T) {
	g := collected(t)
	for key, want := range map[string][]string{
		ops.GlobalVariables:    {"net/w", "network/w", "aXb", "net/frozen", "net"},
		ops.TrainableVariables: {"net/w", "network/w", "aXb", "net/local", "net"},
		ops.LocalVariables:     {"net/local"},
		"nothing":              {},
	} {
		found, err := ops.CollectionOf[*ops.Variable](g, key, "")
		require.NoError(t, err)
		assert.Equal(t, want, variableNames(found), key)
	}
	assert.Equal(t, []string{ops.LocalVariables, ops.TrainableVariables, ops.GlobalVariables}, g.CollectionKeys())
}

// Python: get_collection(key, scope) is re.match(scope, item.name).
func TestCollectionScopesArePrefixExpressions(t *testing.T) {
	g := collected(t)
	for scope, want := range map[string][]string{
		"net":        {"net/w", "network/w", "net/local", "net"},
		"net/":       {"net/w", "net/local"},
		"a.b":        {"aXb"},
		"w":          {},
		".*w":        {"net/w", "network/w"},
		"net:0":      {"net"},
		"net|aXb":    {"net/w", "network/w", "aXb", "net/local", "net"},
		"aXb:0$":     {"aXb"},
		"(?i)NET/w$": {},
	} {
		found, err := ops.CollectionOf[*ops.Variable](g, ops.TrainableVariables, scope)
		require.NoError(t, err)
		assert.Equal(t, want, variableNames(found), "scope %q", scope)
	}
	for _, bad := range []string{"(", "a)(b", "*", "(?=x)"} {
		_, err := g.Collection(ops.TrainableVariables, bad)
		require.ErrorIs(t, err, bridge.ErrInvalidArgument, bad)
	}
}

func TestTrainableTakesPaths(t *testing.T) {
	g := collected(t)
	for _, c := range []struct {
		paths []string
		want  []string
	}{
		{nil, []string{"net/w", "network/w", "aXb", "net/local", "net"}},
		{[]string{"net"}, []string{"net/w", "net/local", "net"}},
		{[]string{"net/"}, []string{"net/w", "net/local", "net"}},
		{[]string{"net/w"}, []string{"net/w"}},
		{[]string{"network", "aXb"}, []string{"network/w", "aXb"}},
		{[]string{"a.b"}, []string{}},
		{[]string{"ne"}, []string{}},
		{[]string{""}, []string{"net/w", "network/w", "aXb", "net/local", "net"}},
	} {
		assert.Equal(t, c.want, variableNames(g.Trainable(c.paths...)), "%q", c.paths)
	}
	assert.Len(t, g.Variables(), 6)
	v, err := g.VariableByName("net/frozen")
	require.NoError(t, err)
	g.AddToCollection(ops.TrainableVariables, v)
	assert.Contains(t, g.Trainable("net"), v)
}

type named string

func (n named) Name() string { return string(n) }

func TestCollectionsHoldAnything(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Scope("s").Const(float32(1))
	items := []any{x, x.Op, named("s/own"), 7, x}
	for _, item := range items {
		g.AddToCollection("any", item)
	}
	all, err := g.Collection("any", "")
	require.NoError(t, err)
	assert.Equal(t, items, all, "in order, with duplicates")
	all[0] = nil
	scoped, err := g.Collection("any", "s/")
	require.NoError(t, err)
	assert.Equal(t, []any{x, x.Op, named("s/own"), x}, scoped, "without those that have no name")
	tensors, err := ops.CollectionOf[tf.Output](g, "any", "s/Const:0")
	require.NoError(t, err)
	assert.Len(t, tensors, 2, "a tensor's name ends in :0, an operation's does not")
	operations, err := ops.CollectionOf[*tf.Operation](g, "any", "s/Const$")
	require.NoError(t, err)
	assert.Len(t, operations, 1)
	g.AddToCollection("", x)
	require.Error(t, g.Err())
}
