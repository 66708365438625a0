package checkpoints_test

import (
	"path/filepath"
	"strconv"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// scalars is a graph of float32 scalars, all 0, of the given names.
func scalars(t testing.TB, names ...string) (*ops.Graph, *bridge.Session) {
	t.Helper()
	g := ops.NewGraph(ops.GraphOptions{})
	for _, name := range names {
		g.Variable(name, ops.Shape{}, ops.Zeros())
	}
	return g, initialized(t, g)
}

func TestRestoreByAnAssignmentMap(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "m")
	saved := map[string]*bridge.Tensor{}
	for i, name := range []string{"old/w", "old/b", "old/deep/w", "w", "other/w"} {
		saved[name] = floats(t, bridge.Shape{}, float32(i+1))
	}
	require.NoError(t, checkpoints.Write(prefix, saved, checkpoints.WriteOptions{}))
	for name, c := range map[string]struct {
		variables []string
		o         checkpoints.RestoreOptions
		want      []float64 // of the variables
		missing   []string
		unused    []string
		says      string // the error
	}{
		"the same names": {variables: []string{"w", "old/b"}, want: []float64{4, 2}, unused: []string{"old/deep/w", "old/w", "other/w"}},
		"a scope to a scope": {variables: []string{"new/w", "new/b", "new/deep/w", "x"},
			o:    checkpoints.RestoreOptions{Map: map[string]string{"old/": "new/"}},
			want: []float64{1, 2, 3, 0}, unused: []string{"other/w", "w"}},
		"a scope to the root": {variables: []string{"w", "b"},
			o:    checkpoints.RestoreOptions{Map: map[string]string{"old/": "/"}},
			want: []float64{1, 2}, unused: []string{"old/deep/w", "other/w", "w"}},
		"the root to a scope": {variables: []string{"in/old/w", "in/w", "w"},
			o:    checkpoints.RestoreOptions{Map: map[string]string{"/": "in/"}},
			want: []float64{1, 4, 0}, unused: []string{"old/b", "old/deep/w", "other/w"}},
		"a name to a name": {variables: []string{"a", "w"},
			o:    checkpoints.RestoreOptions{Map: map[string]string{"old/deep/w": "a"}},
			want: []float64{3, 0}, unused: []string{"old/b", "old/w", "other/w", "w"}},
		"a name before a scope, the longer scope before the shorter": {variables: []string{"new/w", "new/b", "new/deep/w"},
			o:    checkpoints.RestoreOptions{Map: map[string]string{"other/w": "new/b", "old/": "new/", "other/": "new/deep/"}},
			want: []float64{1, 5, 5}, unused: []string{"old/b", "old/deep/w", "w"}},
		"one tensor for two variables": {variables: []string{"a/w", "b/w"},
			o:    checkpoints.RestoreOptions{Map: map[string]string{"old/": "a/", "old/w": "b/w"}},
			want: []float64{1, 1}, unused: []string{"old/b", "old/deep/w", "other/w", "w"}},
		"what is missing is an error": {variables: []string{"w", "old/c", "old/d"}, want: []float64{0, 0, 0},
			says: "does not have 2 of 3 variables: old/c, old/d; have old/b, old/deep/w, old/w"},
		"or is left alone": {variables: []string{"w", "old/c"}, o: checkpoints.RestoreOptions{AllowMissing: true},
			want: []float64{4, 0}, missing: []string{"old/c"}, unused: []string{"old/b", "old/deep/w", "old/w", "other/w"}},
		"nothing matches": {variables: []string{"x"}, o: checkpoints.RestoreOptions{AllowMissing: true},
			want: []float64{0}, missing: []string{"x"}, unused: []string{"old/b", "old/deep/w", "old/w", "other/w", "w"}},
		"a scope to a name": {variables: []string{"w"}, o: checkpoints.RestoreOptions{Map: map[string]string{"old/": "w"}},
			want: []float64{0}, says: "either both are scopes"},
		"an empty name": {variables: []string{"w"}, o: checkpoints.RestoreOptions{Map: map[string]string{"": "w"}},
			want: []float64{0}, says: `"/" is the root`},
		"two for one": {variables: []string{"w"}, o: checkpoints.RestoreOptions{Map: map[string]string{"w": "w", "old/w": "w"}},
			want: []float64{0}, says: `two sources for "w": "old/w" and "w"`},
		"for nobody": {variables: []string{"w"}, o: checkpoints.RestoreOptions{Map: map[string]string{"/": "/", "old/": "new/", "w": "v"}},
			want: []float64{0}, says: `"old/": "new/", "w": "v", for which there is no variable; have w`},
	} {
		t.Run(name, func(t *testing.T) {
			g, sess := scalars(t, c.variables...)
			report, err := checkpoints.Restore(t.Context(), g, sess, prefix, c.o)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
			} else {
				require.NoError(t, err)
				assert.Equal(t, c.missing, report.Missing)
				assert.Equal(t, c.unused, report.Unused)
			}
			for i, v := range g.Variables() {
				assert.Equal(t, []float64{c.want[i]}, value(t, sess, v), v.Name())
			}
		})
	}
}

func TestMisfitsAreAllNamedAndNothingIsChanged(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "m")
	require.NoError(t, checkpoints.Write(prefix, map[string]*bridge.Tensor{
		"a": floats(t, bridge.Shape{2}, 1, 2), "b": floats(t, bridge.Shape{1, 2}, 1, 2), "c": texts(t, bridge.Shape{2}, "x", "y")},
		checkpoints.WriteOptions{}))
	g := ops.NewGraph(ops.GraphOptions{})
	a := g.Variable("a", ops.Shape{2}, ops.Zeros())
	g.Variable("b", ops.Shape{2}, ops.Zeros())
	g.Variable("c", ops.Shape{2}, ops.Zeros(), ops.VariableOptions{DType: tf.Double})
	sess := initialized(t, g)
	size := bridge.NumOperations(g.TF())
	_, err := checkpoints.Restore(t.Context(), g, sess, prefix, checkpoints.RestoreOptions{})
	require.ErrorIs(t, err, bridge.ErrInvalidArgument)
	assert.ErrorContains(t, err, "2 variables don't fit: b float32 [2]: the checkpoint's b is float32 [1,2]; c float64 [2]: the checkpoint's c is string [2]")
	assert.Equal(t, []float64{0, 0}, value(t, sess, a))
	assert.Equal(t, size, bridge.NumOperations(g.TF()), "nothing was added")
}

// A damaged value is found before any variable changes.
func TestDamageIsFoundBeforeAnythingChanges(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "m")
	require.NoError(t, checkpoints.Write(prefix, map[string]*bridge.Tensor{"a": floats(t, bridge.Shape{}, 1), "b": floats(t, bridge.Shape{}, 2)}, checkpoints.WriteOptions{}))
	flip(t, prefix+".data-00000-of-00001", 6)
	g, sess := scalars(t, "a", "b")
	_, err := checkpoints.Restore(t.Context(), g, sess, prefix, checkpoints.RestoreOptions{})
	require.ErrorIs(t, err, bridge.ErrDataLoss)
	for _, v := range g.Variables() {
		assert.Equal(t, []float64{0}, value(t, sess, v), v.Name())
	}
}

func TestRestoreOfAllDataTypes(t *testing.T) {
	want := allTypes(t)
	prefix := filepath.Join(t.TempDir(), "m")
	g := ops.NewGraph(ops.GraphOptions{})
	saved := map[string]*bridge.Tensor{}
	for name, v := range want {
		switch v.DType() {
		case tf.Qint8, tf.Quint8, tf.Qint16, tf.Quint16, tf.Qint32, bridge.Float8E4M3FNUZ, bridge.Float8E4M3B11FNUZ, bridge.Float8E5M2FNUZ, bridge.Int2, bridge.Uint2:
			continue // TensorFlow has no kernel that reads such a variable
		}
		saved[name] = v
		initial := g.Placeholder("initial", v.DType(), v.Shape())
		g.Variable(name, v.Shape(), ops.FromOutput(initial), ops.VariableOptions{DType: v.DType(), NonTrainable: true})
	}
	require.NoError(t, checkpoints.Write(prefix, saved, checkpoints.WriteOptions{Shards: 2}))
	sess := session(t, g)
	report, err := checkpoints.Restore(t.Context(), g, sess, prefix, checkpoints.RestoreOptions{})
	require.NoError(t, err)
	assert.Len(t, report.Matched, len(saved))
	got, err := checkpoints.Snapshot(t.Context(), g, sess, nil)
	require.NoError(t, err)
	for name, v := range got {
		requireSame(t, name, saved[name], closed(t, v, nil))
	}
}

func TestRestoreOfObjectsByPathAndByName(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "ckpt-1")
	tensorflowSaves(t, prefix, map[string]*bridge.Tensor{
		"_CHECKPOINTABLE_OBJECT_GRAPH": texts(t, bridge.Shape{}, objectGraph(t, `
			nodes { children { node_id: 1 local_name: "model" } children { node_id: 2 local_name: "step" } }
			nodes { children { node_id: 3 local_name: "w" } }
			nodes { attributes { name: "VARIABLE_VALUE" full_name: "Variable" checkpoint_key: "step/.ATTRIBUTES/VARIABLE_VALUE" } }
			nodes { attributes { name: "VARIABLE_VALUE" full_name: "dense/kernel" checkpoint_key: "model/w/.ATTRIBUTES/VARIABLE_VALUE" } }`)),
		"model/w/.ATTRIBUTES/VARIABLE_VALUE": floats(t, bridge.Shape{}, 3),
		"step/.ATTRIBUTES/VARIABLE_VALUE":    floats(t, bridge.Shape{}, 9),
	}, nil)
	g, sess := scalars(t, "dense/kernel", "step")
	report, err := checkpoints.Restore(t.Context(), g, sess, prefix, checkpoints.RestoreOptions{})
	require.NoError(t, err)
	assert.Equal(t, "2 of 2 variables restored from "+prefix, report.String())
	assert.Equal(t, []float64{3}, value(t, sess, g.Variables()[0]))

	g, sess = scalars(t, "net/w")
	report, err = checkpoints.Restore(t.Context(), g, sess, prefix, checkpoints.RestoreOptions{Map: map[string]string{"model/": "net/"}})
	require.NoError(t, err)
	assert.Equal(t, []string{"step"}, report.Unused)
	assert.Equal(t, []float64{3}, value(t, sess, g.Variables()[0]))
}
