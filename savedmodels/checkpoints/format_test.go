package checkpoints_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

func open(t testing.TB, path string) *checkpoints.Reader {
	t.Helper()
	r, err := checkpoints.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func TestWhatTensorFlowWritesIsReadBitForBit(t *testing.T) {
	want := allTypes(t)
	prefix := filepath.Join(t.TempDir(), "theirs")
	tensorflowSaves(t, prefix, want, nil)
	r := open(t, prefix)
	require.NoError(t, r.Verify(t.Context()))
	assert.Len(t, r.Entries(), len(want))
	assert.False(t, r.ObjectBased())
	for name, v := range want {
		got, err := r.Read(name)
		requireSame(t, name, v, closed(t, got, err))
		entry, err := r.Find(name)
		require.NoError(t, err)
		assert.Equal(t, v.Shape(), entry.Shape, name)
	}
}

func TestTensorFlowReadsWhatIsWrittenBitForBit(t *testing.T) {
	want := allTypes(t)
	for _, shards := range []int{0, 1, 3, 200} {
		prefix := filepath.Join(t.TempDir(), "new folder", "ours")
		require.NoError(t, checkpoints.Write(prefix, want, checkpoints.WriteOptions{Shards: shards}))
		for name, got := range tensorflowRestores(t, prefix, want) {
			requireSame(t, name, want[name], got)
		}
		r := open(t, prefix)
		require.NoError(t, r.Verify(t.Context()))
		assert.Equal(t, max(1, shards), r.Shards())
		for name, v := range want {
			got, err := r.Read(name)
			requireSame(t, name, v, closed(t, got, err))
		}
		left, err := filepath.Glob(filepath.Join(filepath.Dir(prefix), "*"))
		require.NoError(t, err)
		assert.Len(t, left, 1+max(1, shards), "the index, the data files, and nothing else")
	}
}

// Ten thousand names make several blocks, and many that share beginnings.
func TestManyNames(t *testing.T) {
	want := map[string]*bridge.Tensor{}
	one := floats(t, bridge.Shape{1}, 1)
	for i := range 10_000 {
		want[fmt.Sprintf("layer_%d/a_rather_long_name_of_a_variable/%d", i%7, i)] = one
	}
	prefix := filepath.Join(t.TempDir(), "m")
	require.NoError(t, checkpoints.Write(prefix, want, checkpoints.WriteOptions{}))
	assert.Len(t, open(t, prefix).Entries(), len(want))
	some := map[string]*bridge.Tensor{}
	for _, i := range []int{0, 15, 16, 17, 4999, 9999} {
		some[fmt.Sprintf("layer_%d/a_rather_long_name_of_a_variable/%d", i%7, i)] = one
	}
	for name, got := range tensorflowRestores(t, prefix, some) {
		requireSame(t, name, one, got)
	}
}

func TestManyGoroutinesReadTogether(t *testing.T) {
	want := allTypes(t)
	prefix := filepath.Join(t.TempDir(), "m")
	require.NoError(t, checkpoints.Write(prefix, want, checkpoints.WriteOptions{Shards: 5}))
	r := open(t, prefix)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for name, v := range want {
				got, err := r.Read(name)
				if !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, v.String(), got.String())
				assert.NoError(t, got.Close())
			}
		})
	}
	all.Wait()
}

func TestPartitionedVariablesAreReadWhole(t *testing.T) {
	// [70,200] in two row blocks; [2,3,2] in blocks of the middle dimension, with
	// starts and lengths that need more than one byte in a key; a name with bytes
	// that keys escape.
	rows := make([]float32, 70*200)
	for i := range rows {
		rows[i] = float32(i)
	}
	var middle [3][]float32
	whole := make([]float32, 2*300*2)
	for i := range whole {
		whole[i] = float32(i)
		part := 0
		switch j := i / 2 % 300; {
		case j >= 200:
			part = 2
		case j >= 100:
			part = 1
		}
		middle[part] = append(middle[part], whole[i])
	}
	prefix := filepath.Join(t.TempDir(), "p")
	tensorflowSaves(t, prefix, map[string]*bridge.Tensor{
		"rows#0":          floats(t, bridge.Shape{40, 200}, rows[:8000]...),
		"rows#1":          floats(t, bridge.Shape{30, 200}, rows[8000:]...),
		"mid\xffdle#0":    floats(t, bridge.Shape{2, 100, 2}, middle[0]...),
		"mid\xffdle#1":    floats(t, bridge.Shape{2, 100, 2}, middle[1]...),
		"mid\xffdle#2":    floats(t, bridge.Shape{2, 100, 2}, middle[2]...),
		"whole, one part": floats(t, bridge.Shape{2}, 5, 6),
	}, map[string]string{
		"rows#0": "70 200 0,40:-", "rows#1": "70 200 40,30:-",
		"mid\xffdle#0": "2 300 2 -:0,100:-", "mid\xffdle#1": "2 300 2 -:100,100:-", "mid\xffdle#2": "2 300 2 -:200,100:-",
		"whole, one part": "2 -",
	})
	r := open(t, prefix)
	require.NoError(t, r.Verify(t.Context()))
	require.Len(t, r.Entries(), 3)
	got, err := r.Read("rows")
	requireSame(t, "rows", floats(t, bridge.Shape{70, 200}, rows...), closed(t, got, err))
	got, err = r.Read("mid\xffdle")
	requireSame(t, "middle", floats(t, bridge.Shape{2, 300, 2}, whole...), closed(t, got, err))
	got, err = r.Read("whole, one part")
	requireSame(t, "one part", floats(t, bridge.Shape{2}, 5, 6), closed(t, got, err))
	entry, err := r.Find("rows")
	require.NoError(t, err)
	assert.Equal(t, 2, entry.Slices)
	assert.EqualValues(t, 70*200*4, entry.Bytes)
}

func TestMergedShardsAreRead(t *testing.T) {
	dir := t.TempDir()
	a, b := floats(t, bridge.Shape{2}, 1, 2), texts(t, bridge.Shape{1}, "x")
	tensorflowSaves(t, filepath.Join(dir, "part-0"), map[string]*bridge.Tensor{"a": a}, nil)
	tensorflowSaves(t, filepath.Join(dir, "part-1"), map[string]*bridge.Tensor{"b": b}, nil)
	g := ops.NewGraph(ops.GraphOptions{})
	merge := raw.MergeV2Checkpoints(g, g.Const([]string{filepath.Join(dir, "part-0"), filepath.Join(dir, "part-1")}), g.Const(filepath.Join(dir, "all")))
	require.NoError(t, session(t, g).Run(t.Context(), merge))
	r := open(t, filepath.Join(dir, "all"))
	assert.Equal(t, 2, r.Shards())
	got, err := r.Read("a")
	requireSame(t, "a", a, closed(t, got, err))
	got, err = r.Read("b")
	requireSame(t, "b", b, closed(t, got, err))
}

func TestWriteRefusesWhatItCannotWrite(t *testing.T) {
	dir := t.TempDir()
	one := floats(t, bridge.Shape{}, 1)
	gone, err := one.Clone()
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	for name, c := range map[string]struct {
		prefix  string
		tensors map[string]*bridge.Tensor
		o       checkpoints.WriteOptions
		want    error
		says    string
	}{
		"no prefix":         {"", nil, checkpoints.WriteOptions{}, bridge.ErrInvalidArgument, "not a prefix"},
		"a folder":          {dir + "/", nil, checkpoints.WriteOptions{}, bridge.ErrInvalidArgument, "not a prefix"},
		"an empty name":     {dir + "/m", map[string]*bridge.Tensor{"": one}, checkpoints.WriteOptions{}, bridge.ErrInvalidArgument, "not a name"},
		"a name of slices":  {dir + "/m", map[string]*bridge.Tensor{"\x00": one}, checkpoints.WriteOptions{}, bridge.ErrInvalidArgument, "not a name"},
		"a closed tensor":   {dir + "/m", map[string]*bridge.Tensor{"w": gone}, checkpoints.WriteOptions{}, bridge.ErrClosed, `"w"`},
		"a nil tensor":      {dir + "/m", map[string]*bridge.Tensor{"w": nil}, checkpoints.WriteOptions{}, bridge.ErrClosed, `"w"`},
		"negative shards":   {dir + "/m", nil, checkpoints.WriteOptions{Shards: -1}, bridge.ErrInvalidArgument, "-1 shards"},
		"a file for folder": {dir + "/file/m", map[string]*bridge.Tensor{"w": one}, checkpoints.WriteOptions{}, bridge.ErrUnknown, "not a directory"},
	} {
		err := checkpoints.Write(c.prefix, c.tensors, c.o)
		require.ErrorIs(t, err, c.want, name)
		assert.ErrorContains(t, err, c.says, name)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(dir, "file")}, left)
}

// The old checkpoint is whole until the new one takes its place, so the two have
// no file in common.
func TestOverwriteIsAskedForAndReplacesInOneStep(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "m")
	write := func(v float32, o checkpoints.WriteOptions) error {
		return checkpoints.Write(prefix, map[string]*bridge.Tensor{"w": floats(t, bridge.Shape{}, v)}, o)
	}
	read := func(r *checkpoints.Reader) float32 {
		got, err := r.Read("w")
		v, err := bridge.Item[float32](closed(t, got, err))
		require.NoError(t, err)
		return v
	}
	require.NoError(t, write(1, checkpoints.WriteOptions{}))
	err := write(2, checkpoints.WriteOptions{})
	require.ErrorIs(t, err, bridge.ErrAlreadyExists)
	assert.ErrorContains(t, err, "Overwrite")
	old := open(t, prefix)
	assert.EqualValues(t, 1, read(old))
	for i := range 4 {
		require.NoError(t, write(float32(2+i), checkpoints.WriteOptions{Overwrite: true}))
		assert.EqualValues(t, 2+i, read(open(t, prefix)))
		files, err := filepath.Glob(prefix + "*")
		require.NoError(t, err)
		assert.LessOrEqual(t, len(files), 3, "the old data files are gone")
	}
	assert.EqualValues(t, 1, read(old), "an open reader keeps what it opened")
}

func TestOpenSaysWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, checkpoints.Write(filepath.Join(dir, "m-1"), map[string]*bridge.Tensor{"net/w": floats(t, bridge.Shape{}, 1)}, checkpoints.WriteOptions{}))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "k.h5"), []byte("\x89HDF\r\n\x1a\n..."), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "k.keras"), []byte("PK\x03\x04..."), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text"), []byte("hello"), 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	for path, c := range map[string]struct {
		want error
		says string
	}{
		"":                                      {bridge.ErrInvalidArgument, "empty"},
		filepath.Join(dir, "m-2"):               {bridge.ErrNotFound, "have " + filepath.Join(dir, "m-1")},
		filepath.Join(dir, "no", "m-2"):         {bridge.ErrNotFound, "no checkpoint in"},
		filepath.Join(dir, "empty"):             {bridge.ErrNotFound, "no checkpoint in"},
		filepath.Join(dir, "k.h5"):              {bridge.ErrInvalidArgument, "HDF5"},
		filepath.Join(dir, "k.keras"):           {bridge.ErrInvalidArgument, ".keras"},
		filepath.Join(dir, "text"):              {bridge.ErrInvalidArgument, "not a checkpoint"},
		filepath.Join(dir, "m-1.index", "more"): {bridge.ErrNotFound, "no"},
	} {
		_, err := checkpoints.Open(path)
		require.ErrorIs(t, err, c.want, path)
		assert.ErrorContains(t, err, c.says, path)
	}
	for _, path := range []string{"m-1", "m-1.index", ""} {
		r := open(t, filepath.Join(dir, path))
		assert.Equal(t, filepath.Join(dir, "m-1"), r.Prefix())
		_, err := r.Read("net/v")
		require.ErrorIs(t, err, bridge.ErrNotFound)
		assert.ErrorContains(t, err, "have net/w")
	}
	r := open(t, filepath.Join(dir, "m-1"))
	require.NoError(t, r.Close())
	_, err := r.Read("net/w")
	assert.ErrorIs(t, err, bridge.ErrClosed)
}

// TestObjectsAreFoundByEveryName reads a graph of objects like Python's, written
// here: root → model → layers/0 → kernel, and model → head, the same kernel.
func TestObjectsAreFoundByEveryName(t *testing.T) {
	graph := objectGraph(t, `
		nodes { children { node_id: 1 local_name: "model" } }
		nodes { children { node_id: 2 local_name: "head" } children { node_id: 3 local_name: "a/b.c" } children { node_id: 9 local_name: "nowhere" } }
		nodes { attributes { name: "VARIABLE_VALUE" full_name: "dense/kernel" checkpoint_key: "model/head/.ATTRIBUTES/VARIABLE_VALUE" } children { node_id: 1 local_name: "up" } }
		nodes { attributes { name: "VARIABLE_VALUE" full_name: "Variable" checkpoint_key: "model/a.Sb..c/.ATTRIBUTES/VARIABLE_VALUE" } children { node_id: 4 local_name: "twin" } }
		nodes { attributes { name: "VARIABLE_VALUE" full_name: "Variable" checkpoint_key: "model/twin/.ATTRIBUTES/VARIABLE_VALUE" } }
		nodes { attributes { name: "VARIABLE_VALUE" full_name: "lost" checkpoint_key: "not there" } }`)
	prefix := filepath.Join(t.TempDir(), "ckpt-1")
	tensorflowSaves(t, prefix, map[string]*bridge.Tensor{
		"_CHECKPOINTABLE_OBJECT_GRAPH":                texts(t, bridge.Shape{}, graph),
		"model/head/.ATTRIBUTES/VARIABLE_VALUE":       floats(t, bridge.Shape{}, 1),
		"model/a.Sb..c/.ATTRIBUTES/VARIABLE_VALUE":    floats(t, bridge.Shape{}, 2),
		"model/twin/.ATTRIBUTES/VARIABLE_VALUE":       floats(t, bridge.Shape{}, 3),
		"opt/.OPTIMIZER_SLOT/x/.ATTRIBUTES/SOMETHING": floats(t, bridge.Shape{}, 4),
	}, nil)
	r := open(t, prefix)
	assert.True(t, r.ObjectBased())
	assert.Len(t, r.Entries(), 4)
	for name, want := range map[string]float64{
		"model/head/.ATTRIBUTES/VARIABLE_VALUE": 1, "model/head": 1, "dense/kernel": 1, "model/head/up/head": 1,
		"model/a.Sb..c": 2, "model/a.Sb..c/twin": 3, "model/twin": 3,
		"opt/.OPTIMIZER_SLOT/x/.ATTRIBUTES/SOMETHING": 4,
	} {
		v, err := r.Read(name)
		got, err := bridge.ToFloat64(closed(t, v, err))
		require.NoError(t, err)
		assert.Equal(t, []float64{want}, got, name)
	}
	_, err := r.Find("Variable")
	require.ErrorIs(t, err, bridge.ErrInvalidArgument)
	assert.ErrorContains(t, err, "2 variables are called")
	for _, name := range []string{"lost", "model", "model/nowhere", "model/nowhere/x", "x", "", "/"} {
		_, err := r.Find(name)
		require.ErrorIs(t, err, bridge.ErrNotFound, name)
	}
	full := ""
	for _, e := range r.Entries() {
		if e.Name == "model/head" {
			full = e.FullName
		}
	}
	assert.Equal(t, "dense/kernel", full)
}

func TestVariantsAreListedAndNotRead(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	list := raw.EmptyTensorList(g, g.Const([]int32{2}), g.Const(int32(3)), tf.Float)
	prefix := filepath.Join(t.TempDir(), "v")
	save := raw.SaveV2(g, g.Const(prefix), g.Const([]string{"list"}), g.Const([]string{""}), []tf.Output{list})
	require.NoError(t, session(t, g).Run(t.Context(), save))
	r := open(t, prefix)
	assert.Equal(t, "list variant []", r.Entries()[0].String())
	_, err := r.Read("list")
	require.ErrorIs(t, err, bridge.ErrUnimplemented)
	assert.ErrorContains(t, err, "variant")
}

// prefixes are the checkpoints in a folder, by their last part, sorted.
func prefixes(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.index"))
	require.NoError(t, err)
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".index")
	}
	slices.Sort(files)
	return files
}
