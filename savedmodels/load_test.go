package savedmodels_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	nodedef "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	types "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	protos "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/savedmodels"
)

func TestLoadSaysWhatIsThereInstead(t *testing.T) {
	dir := linear(t, 1).write()
	empty := t.TempDir()
	keras := filepath.Join(t.TempDir(), "model.keras")
	require.NoError(t, os.WriteFile(keras, []byte("PK"), 0o600))
	folder := func(names ...string) string {
		dir := t.TempDir()
		for _, name := range names {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		return dir
	}
	for name, c := range map[string]struct {
		dir  string
		o    savedmodels.Options
		code error
		want string
	}{
		"no folder":                 {filepath.Join(empty, "none"), savedmodels.Options{}, bridge.ErrNotFound, "there is no folder"},
		"an empty folder":           {empty, savedmodels.Options{}, bridge.ErrNotFound, "it is empty"},
		"a folder of versions":      {filepath.Dir(dir), savedmodels.Options{}, bridge.ErrNotFound, "a model in each of 1: name one"},
		"the file itself":           {filepath.Join(dir, "saved_model.pb"), savedmodels.Options{}, bridge.ErrInvalidArgument, "wanted the folder"},
		"Keras's own file":          {keras, savedmodels.Options{}, bridge.ErrUnimplemented, "export"},
		"a folder of checkpoints":   {folder("checkpoint", "a.index"), savedmodels.Options{}, bridge.ErrNotFound, "folder of checkpoints"},
		"the text form":             {folder("saved_model.pbtxt"), savedmodels.Options{}, bridge.ErrNotFound, "text form"},
		"a model in parts":          {folder("saved_model.cpb"), savedmodels.Options{}, bridge.ErrNotFound, "more than 2 GiB in parts"},
		"other files":               {folder("a.txt", "b.txt"), savedmodels.Options{}, bridge.ErrNotFound, "it holds a.txt, b.txt"},
		"other tags":                {dir, savedmodels.Options{Tags: []string{"train"}}, bridge.ErrNotFound, "no MetaGraph with the tags {train}; it has {serve}"},
		"no tags":                   {dir, savedmodels.Options{Tags: []string{}}, bridge.ErrNotFound, "no MetaGraph with the tags {}; it has {serve}"},
		"a library that is missing": {dir, savedmodels.Options{Libraries: []string{"none.so"}}, bridge.ErrNotFound, "none.so"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := savedmodels.Load(c.dir, c.o)
			require.ErrorIs(t, err, c.code)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestTagsChooseAMetaGraph(t *testing.T) {
	first, second := linear(t, 1), linear(t, 2)
	dir := first.write()
	second.encoded()
	for _, v := range second.values {
		v.Close()
	}
	second.meta.MetaInfoDef.Tags = []string{"gpu", "train"}
	write := func(graphs ...*protos.MetaGraphDef) {
		encoded := must(proto.Marshal(&protos.SavedModel{SavedModelSchemaVersion: 1, MetaGraphs: graphs}))(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "saved_model.pb"), encoded, 0o600))
	}
	write(second.meta, first.meta)
	assert.Equal(t, []string{"serve"}, load(t, dir, savedmodels.Options{}).Tags())
	assert.Equal(t, []string{"gpu", "train"}, load(t, dir, savedmodels.Options{Tags: []string{"train", "gpu"}}).Tags())
	_, err := savedmodels.Load(dir, savedmodels.Options{Tags: []string{"train"}})
	assert.ErrorContains(t, err, "it has {gpu,train}, {serve}", "all tags are needed")
	first.meta.MetaInfoDef.Tags = nil
	write(second.meta, first.meta)
	_, err = savedmodels.Load(dir, savedmodels.Options{})
	assert.ErrorContains(t, err, `none with the tag "serve" alone: Options.Tags chooses one of {gpu,train}, {}`)
	assert.Empty(t, load(t, dir, savedmodels.Options{Tags: []string{}}).Tags())
	write(first.meta)
	assert.Empty(t, load(t, dir, savedmodels.Options{}).Tags(), "the only one needs no tags")
}

func TestDamagedModelsSayWhatIsWrongAndWhere(t *testing.T) {
	replace := func(name string, content func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			old := must(os.ReadFile(path))(t)
			require.NoError(t, os.WriteFile(path, content(old), 0o600))
		}
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, name))) }
	}
	meta := func(change func(*protos.MetaGraphDef)) func(*testing.T, string) {
		return replace("saved_model.pb", func(old []byte) []byte {
			m := new(protos.SavedModel)
			if proto.Unmarshal(old, m) != nil {
				return nil
			}
			change(m.MetaGraphs[0])
			encoded, _ := proto.Marshal(m)
			return encoded
		})
	}
	const index, data = "variables/variables.index", "variables/variables.data-00000-of-00001"
	for name, c := range map[string]struct {
		damage func(*testing.T, string)
		want   []string
	}{
		"an empty file":                    {replace("saved_model.pb", func([]byte) []byte { return nil }), []string{"saved_model.pb", "is empty"}},
		"cut in the middle":                {replace("saved_model.pb", func(b []byte) []byte { return b[:len(b)/2] }), []string{"saved_model.pb", "damaged or cut short at byte 2"}},
		"no model":                         {replace("saved_model.pb", func([]byte) []byte { return []byte("hello, world") }), []string{"saved_model.pb", "damaged or cut short"}},
		"of a later schema":                {replace("saved_model.pb", func(b []byte) []byte { b[1] = 7; return b }), []string{"schema version 7"}},
		"no graph":                         {meta(func(m *protos.MetaGraphDef) { m.GraphDef = nil }), []string{"MetaGraph 0: has no graph"}},
		"an op that is not registered":     {meta(func(m *protos.MetaGraphDef) { m.GraphDef.Node[0].Op = "SentencepieceOp" }), []string{"SentencepieceOp", "Options.Libraries", "saved by TensorFlow 2.21.0"}},
		"a constant that is not its bytes": {meta(func(m *protos.MetaGraphDef) { widen(m) }), []string{"saved_model.pb", "is a tensor of string"}},
		"a signature's node is missing": {meta(func(m *protos.MetaGraphDef) {
			m.SignatureDef["serving_default"].Inputs["x"].Encoding = &protos.TensorInfo_Name{Name: "z:0"}
		}), []string{`signature "serving_default", x: the graph has no node "z"`}},
		"a signature's output is missing": {meta(func(m *protos.MetaGraphDef) {
			m.SignatureDef["serving_default"].Inputs["x"].Encoding = &protos.TensorInfo_Name{Name: "x:3"}
		}), []string{"no output 3"}},
		"a signature of another type":   {meta(func(m *protos.MetaGraphDef) { m.SignatureDef["serving_default"].Inputs["x"].Dtype = 3 }), []string{"the signature has int32, but tensor x:0 of the graph is float32"}},
		"the saver's node is missing":   {meta(func(m *protos.MetaGraphDef) { m.SaverDef.RestoreOpName = "gone" }), []string{"saver_def", `"gone"`}},
		"no saver":                      {meta(func(m *protos.MetaGraphDef) { m.SaverDef = nil }), []string{"no saver_def"}},
		"no index":                      {remove(index), []string{"variables.index"}},
		"no values":                     {remove(data), []string{"can't be restored", "variables.data-00000-of-00001"}},
		"an index that is cut":          {replace(index, func(b []byte) []byte { return b[:len(b)/2] }), []string{"can't be restored", "variables/variables"}},
		"values that are cut":           {replace(data, func(b []byte) []byte { return b[:3] }), []string{"can't be restored"}},
		"values with a wrong bit":       {replace(data, func(b []byte) []byte { b[2] ^= 1; return b }), []string{"can't be restored", "hecksum"}},
		"an asset is missing":           {remove("assets/words.txt"), []string{"assets are missing", "assets/words.txt"}},
		"an asset outside of the model": {meta(func(m *protos.MetaGraphDef) { m.AssetFileDef[0].Filename = "../../secret" }), []string{"lies outside of the model"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := linear(t, 1)
			d.asset("words.txt", "a\nb\n")
			dir := d.write()
			c.damage(t, dir)
			_, err := savedmodels.Load(dir, savedmodels.Options{})
			require.Error(t, err)
			if strings.HasSuffix(name, "cut") || strings.HasPrefix(name, "cut") {
				assert.ErrorIs(t, err, bridge.ErrDataLoss)
			}
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

// widen makes a string constant of a few bytes claim a terabyte.
func widen(m *protos.MetaGraphDef) {
	for _, node := range m.GraphDef.Node {
		if value := node.Attr["value"].GetTensor(); node.Op == "Const" && value != nil {
			for range 4 {
				value.TensorShape.Dim = append(value.TensorShape.Dim, proto.CloneOf(m.SignatureDef["serving_default"].Inputs["x"].TensorShape.Dim[1]))
				value.TensorShape.Dim[len(value.TensorShape.Dim)-1].Size = 1 << 10
			}
			return
		}
	}
}

func TestEveryCutOfAModelIsAnError(t *testing.T) {
	d := linear(t, 1)
	dir := d.write()
	path := filepath.Join(dir, "saved_model.pb")
	whole := must(os.ReadFile(path))(t)
	for n := 0; n < len(whole); n += 1 + len(whole)/150 {
		require.NoError(t, os.WriteFile(path, whole[:n], 0o600))
		_, err := savedmodels.Load(dir, savedmodels.Options{})
		require.Errorf(t, err, "the first %d of %d bytes", n, len(whole))
	}
}

func TestTablesAreFilledFromTheModelsAssets(t *testing.T) {
	d := newDraft(t)
	root := d.g.Root()
	path := d.asset("words.txt", "zero\none\ntwo\n")
	table := raw.HashTableV2(root, tf.String, tf.Int64, raw.Attr{Name: "shared_name", Value: "words"})
	// The line is the key, its number the value.
	fill := root.Add(bridge.OpSpec{Type: "InitializeTableFromTextFileV2", Name: "fill", Inputs: []tf.Input{table, path},
		Attrs: []bridge.Attr{{Name: "key_index", Value: -2}, {Name: "value_index", Value: -1}}})
	word := d.g.Placeholder("word", tf.String, bridge.Shape{-1})
	number := raw.LookupTableFindV2(root, table, word, root.Const(int64(-1)))
	d.signature("serving_default", map[string]tf.Output{"word": word}, map[string]tf.Output{"number": number})
	d.meta.CollectionDef = map[string]*protos.CollectionDef{"saved_model_main_op": {Kind: &protos.CollectionDef_NodeList_{NodeList: &protos.CollectionDef_NodeList{Value: []string{fill.Name()}}}}}
	dir := d.write()
	m := load(t, dir, savedmodels.Options{})
	in := must(bridge.FromStrings(bridge.Shape{3}, []string{"two", "ten", "zero"}))(t)
	defer in.Close()
	out, err := m.Run(t.Context(), "", savedmodels.Tensors{"word": in})
	require.NoError(t, err)
	defer out.Close()
	assert.Equal(t, []int64{2, -1, 0}, must(bridge.Values[int64](out["number"]))(t))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "assets", "words.txt"), []byte("a\na\n"), 0o600))
	_, err = savedmodels.Load(dir, savedmodels.Options{})
	assert.ErrorContains(t, err, `the model's initializer "fill" failed`)
}

func TestTheFolderIsLeftAsItIs(t *testing.T) {
	dir := linear(t, 1).write()
	content := func() map[string]string {
		all := map[string]string{}
		require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				data, err := os.ReadFile(path)
				all[path] = string(data)
				return err
			}
			return err
		}))
		return all
	}
	before := content()
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = os.Chmod(path, 0o555)
		}
		return err
	}))
	m := load(t, dir, savedmodels.Options{})
	assert.Equal(t, []float32{12}, run(t, m, "", "y", savedmodels.Tensors{"x": floats(t, bridge.Shape{1, 2}, 1, 2)}))
	assert.Equal(t, before, content())
}

func TestBuildAddsToTheGraphBeforeAnythingHasRun(t *testing.T) {
	dir := linear(t, 1).write()
	var added tf.Output
	m := load(t, dir, savedmodels.Options{Build: func(m *savedmodels.Model) error {
		y, err := m.Tensor("MatMul:0")
		if err != nil {
			return err
		}
		op, err := bridge.AddOperation(m.Graph(), bridge.OpSpec{Type: "Neg", Name: "added", Inputs: []tf.Input{y}})
		added = op.Output(0)
		return err
	}})
	x := must(m.Tensor("x"))(t)
	out, err := m.Session().Call(t.Context(), bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{added}}, floats(t, bridge.Shape{1, 2}, 1, 2))
	require.NoError(t, err)
	defer out[0].Close()
	assert.Equal(t, []float32{-12}, must(bridge.Values[float32](out[0]))(t))

	_, err = savedmodels.Load(dir, savedmodels.Options{Build: func(*savedmodels.Model) error { return context.Canceled }})
	assert.ErrorIs(t, err, context.Canceled)
}

// The wheel has a library of one custom op beside the Python that wraps it.
func TestLibrariesOfCustomOpsAreLoadedFirst(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(bridge.LibraryPath()), "lite/experimental/microfrontend/python/ops/*.so"))
	require.NoError(t, err)
	require.Len(t, found, 1, "the wheel's custom op")
	d := newDraft(t)
	samples := d.g.Placeholder("samples", tf.Int16, bridge.Shape{-1})
	d.signature("features", map[string]tf.Output{"samples": samples}, map[string]tf.Output{"features": samples})
	d.encoded()
	d.meta.GraphDef.Node = append(d.meta.GraphDef.Node, &nodedef.NodeDef{Name: "frontend", Op: "AudioMicrofrontend", Input: []string{"samples"}})
	features := d.meta.SignatureDef["features"].Outputs["features"]
	features.Encoding, features.Dtype, features.TensorShape = &protos.TensorInfo_Name{Name: "frontend:0"}, types.DataType(tf.Uint16), nil
	dir := t.TempDir()
	encoded := must(proto.Marshal(&protos.SavedModel{SavedModelSchemaVersion: 1, MetaGraphs: []*protos.MetaGraphDef{d.meta}}))(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "saved_model.pb"), encoded, 0o600))

	_, err = savedmodels.Load(dir, savedmodels.Options{})
	require.ErrorIs(t, err, bridge.ErrNotFound)
	assert.ErrorContains(t, err, `frontend (AudioMicrofrontend): there is no op type "AudioMicrofrontend"`)
	assert.ErrorContains(t, err, "Options.Libraries")

	m := load(t, dir, savedmodels.Options{Libraries: found})
	in := must(bridge.NewTensor(tf.Int16, bridge.Shape{1000}))(t)
	defer in.Close()
	out, err := m.Run(t.Context(), "features", savedmodels.Tensors{"samples": in})
	require.NoError(t, err)
	defer out.Close()
	assert.Equal(t, bridge.Shape{4, 32}, out["features"].Shape())
}

func TestVariablesAreListed(t *testing.T) {
	m := load(t, linear(t, 1).write(), savedmodels.Options{})
	all := m.Variables()
	require.Len(t, all, 1)
	assert.Equal(t, "net/w", all[0].Name)
	assert.Equal(t, bridge.Shape{2, 1}, all[0].Shape)
	assert.EqualValues(t, 8, all[0].Bytes())
	d, err := savedmodels.Describe(m.Dir())
	require.NoError(t, err)
	require.Len(t, d, 1)
	assert.Equal(t, []string{"serve"}, d[0].Tags)
	assert.Equal(t, "serving_default(x: float32 [?,2]) → (y: float32 [?,1])", d[0].Signatures[0].String())
	assert.Equal(t, 1, d[0].Graph.Ops["MatMul"])
	assert.Empty(t, d[0].Graph.NoGradient)
}

// FuzzLoad looks for files that stop or kill the process.
func FuzzLoad(f *testing.F) {
	d := linear(f, 1)
	d.asset("words.txt", "a\n")
	dir := d.write()
	path := filepath.Join(dir, "saved_model.pb")
	whole := must(os.ReadFile(path))(f)
	f.Add(whole)
	f.Add(bytes.Clone(whole[:len(whole)/2]))
	f.Fuzz(func(t *testing.T, content []byte) {
		require.NoError(t, os.WriteFile(path, content, 0o600))
		begin := time.Now()
		if m, err := savedmodels.Load(dir, savedmodels.Options{}); err == nil {
			require.NoError(t, m.Close())
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("took %v", took)
		}
	})
}
