package checkpoints_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

// training is a small net with an embedding, Adam and a noisy rule, so that a
// resumed training needs slots, steps and random numbers to be as they were.
func training(t testing.TB) (g *ops.Graph, train *tf.Operation) {
	t.Helper()
	g = ops.NewGraph(ops.GraphOptions{Seed: 7})
	net := g.Scope("net")
	table := net.Variable("table", ops.Shape{6, 4}, ops.GlorotUniform())
	w := net.Variable("w", ops.Shape{4, 3}, ops.GlorotUniform())
	rows := table.Gather(net, g.Const([]int32{0, 2, 2, 5}))
	logits := raw.MatMul(net, rows, w.Value())
	loss := ops.SparseSoftmaxCrossEntropy(net, logits, g.Const([]int32{0, 1, 2, 1}))
	adam := optimizers.NewAdam(0.05)
	noisy := optimizers.Elementwise("noisy", func(u *optimizers.Update) tf.Output {
		return u.Add(u.Sub(u.Var, u.Mul(u.Rate, u.Grad)), u.Normal(0, 0.01))
	})
	noisy.Rate = optimizers.Value(0.1)
	first, err := adam.Minimize(loss, []*ops.Variable{table})
	require.NoError(t, err)
	second, err := noisy.Minimize(loss, []*ops.Variable{w})
	require.NoError(t, err)
	return g, g.Group("train", first.Op, second.Op)
}

// bits are all variables of the graph, for a comparison bit by bit.
func bits(t testing.TB, g *ops.Graph, sess *bridge.Session) map[string][]byte {
	t.Helper()
	values, err := checkpoints.Snapshot(t.Context(), g, sess, nil)
	require.NoError(t, err)
	all := map[string][]byte{}
	for name, v := range values {
		data, err := v.Bytes()
		require.NoError(t, err)
		all[name] = append([]byte(nil), data...)
		require.NoError(t, v.Close())
	}
	return all
}

func TestAResumedTrainingGoesOnBitForBit(t *testing.T) {
	dir := t.TempDir()
	g, train := training(t)
	sess := initialized(t, g)
	saver, err := checkpoints.NewSaver(g, dir, checkpoints.SaverOptions{})
	require.NoError(t, err)
	for range 7 {
		require.NoError(t, sess.Run(t.Context(), train))
	}
	prefix, err := saver.Save(t.Context(), sess, 7, checkpoints.SaveOptions{})
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "model-7"), prefix)
	for range 6 {
		require.NoError(t, sess.Run(t.Context(), train))
	}
	want := bits(t, g, sess)
	assert.Contains(t, want, "net/table/Adam")
	assert.Contains(t, want, "net/table/Adam_1")
	assert.Contains(t, want, "Adam/iteration")
	assert.Contains(t, want, "noisy/iteration")

	again, train := training(t)
	fresh := session(t, again) // without Init: everything comes from the checkpoint
	resumed, err := checkpoints.NewSaver(again, dir, checkpoints.SaverOptions{})
	require.NoError(t, err)
	step, report, err := resumed.Restore(t.Context(), fresh)
	require.NoError(t, err)
	assert.EqualValues(t, 7, step)
	assert.Len(t, report.Matched, len(want))
	assert.Empty(t, report.Missing)
	assert.Empty(t, report.Unused)
	for range 6 {
		require.NoError(t, fresh.Run(t.Context(), train))
	}
	assert.Equal(t, want, bits(t, again, fresh))
}

func TestRestoringAgainAddsNothingToTheGraph(t *testing.T) {
	g, _ := training(t)
	sess := initialized(t, g)
	saver, err := checkpoints.NewSaver(g, t.TempDir(), checkpoints.SaverOptions{})
	require.NoError(t, err)
	_, err = saver.Save(t.Context(), sess, 0, checkpoints.SaveOptions{})
	require.NoError(t, err)
	_, _, err = saver.Restore(t.Context(), sess)
	require.NoError(t, err)
	size := bridge.NumOperations(g.TF())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			_, _, err := saver.Restore(t.Context(), sess)
			assert.NoError(t, err)
		})
	}
	all.Wait()
	assert.Equal(t, size, bridge.NumOperations(g.TF()))
}

// Each variable is raised by the same step, some in place, some row by row. A
// snapshot that is taken while steps run has all of one moment, and stays as it
// was while they go on.
func TestASnapshotIsOfOneMomentAndStays(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	ones := g.Const(make1(4000))
	var steps []*tf.Operation
	variable := func(name string) *ops.Variable { return g.Variable(name, ops.Shape{4000}, ops.Zeros()) }
	added, assigned, scattered, applied := variable("added"), variable("assigned"), variable("scattered"), variable("applied")
	all := make([]int32, 4000)
	for i := range all {
		all[i] = int32(i)
	}
	steps = append(steps,
		added.AssignAdd(nil, ones),
		assigned.Assign(nil, raw.AddV2(g, assigned.Value(), ones)),
		scattered.Scatter(nil, ops.ScatterAdd, g.Const(all), ones),
		raw.ResourceApplyGradientDescent(g, applied.Handle(), g.Const(float32(-1)), ones))
	step := g.Group("step", steps...)
	sess := initialized(t, g)

	ctx, stop := context.WithCancel(t.Context())
	var training sync.WaitGroup
	for range 2 {
		training.Go(func() {
			for ctx.Err() == nil {
				if err := sess.Run(context.WithoutCancel(ctx), step); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	seen := map[float32]bool{}
	for range 50 {
		values, err := checkpoints.Snapshot(t.Context(), g, sess, nil)
		require.NoError(t, err)
		time.Sleep(time.Millisecond) // a few steps
		at := float32(-1)
		for name, v := range values {
			got, err := bridge.Flat[float32](v)
			require.NoError(t, err)
			if at < 0 {
				at = got[0]
			}
			for _, x := range got {
				require.Equal(t, at, x, name)
			}
			require.NoError(t, v.Close())
		}
		seen[at] = true
	}
	stop()
	training.Wait()
	assert.Greater(t, len(seen), 10, "training went on meanwhile")
}

func TestSavesBesideTraining(t *testing.T) {
	g, step, _ := counting()
	sess := initialized(t, g)
	dir := t.TempDir()
	saver, err := checkpoints.NewSaver(g, dir, checkpoints.SaverOptions{Keep: -1, Shards: 3})
	require.NoError(t, err)
	for i := range int64(20) {
		require.NoError(t, sess.Run(t.Context(), step))
		pending, err := saver.Start(t.Context(), sess, i+1, checkpoints.SaveOptions{})
		require.NoError(t, err)
		assert.Equal(t, filepath.Base(pending.Prefix()), "model-"+itoa(i+1))
	}
	require.NoError(t, saver.Close())
	require.NoError(t, saver.Close())
	_, err = saver.Start(t.Context(), sess, 1, checkpoints.SaveOptions{})
	require.ErrorIs(t, err, bridge.ErrClosed)
	for i := range int64(20) {
		r := open(t, filepath.Join(dir, "model-"+itoa(i+1)))
		v, err := r.Read("count_2")
		got, err := bridge.Flat[float32](closed(t, v, err))
		require.NoError(t, err)
		assert.EqualValues(t, i+1, got[17])
	}
}

// A save that fails where nobody waits is heard of by whoever saves next, once.
func TestAFailedSaveIsHeardOf(t *testing.T) {
	g, _, _ := counting()
	sess := initialized(t, g)
	dir := filepath.Join(t.TempDir(), "run")
	saver, err := checkpoints.NewSaver(g, dir, checkpoints.SaverOptions{})
	require.NoError(t, err)
	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o644)) // a file where the folder was
	pending, err := saver.Start(t.Context(), sess, 1, checkpoints.SaveOptions{})
	require.NoError(t, err)
	<-pending.Done()
	_, err = saver.Start(t.Context(), sess, 2, checkpoints.SaveOptions{})
	require.ErrorContains(t, err, "not a directory")
	_, err = saver.Save(t.Context(), sess, 3, checkpoints.SaveOptions{})
	require.ErrorContains(t, err, "model-3")
	require.NoError(t, os.Remove(dir))
	_, err = saver.Save(t.Context(), sess, 4, checkpoints.SaveOptions{})
	require.NoError(t, err)
	require.NoError(t, saver.Close())
}

func TestTheLastAndTheBestAreKept(t *testing.T) {
	for name, c := range map[string]struct {
		o       checkpoints.SaverOptions
		metrics []float64 // of steps 1, 2 …
		want    []string
		best    string
	}{
		"Python's default": {checkpoints.SaverOptions{}, make([]float64, 8),
			[]string{"model-4", "model-5", "model-6", "model-7", "model-8"}, ""},
		"the last two": {checkpoints.SaverOptions{Keep: 2, Name: "m"}, make([]float64, 5),
			[]string{"m-4", "m-5"}, ""},
		"all": {checkpoints.SaverOptions{Keep: -1}, make([]float64, 4),
			[]string{"model-1", "model-2", "model-3", "model-4"}, ""},
		"the best accuracy too": {checkpoints.SaverOptions{Keep: 1, KeepBest: 2}, []float64{0.1, 0.9, 0.5, 0.8, 0.2, 0.3},
			[]string{"model-2", "model-4", "model-6"}, "model-2"},
		"the best loss too": {checkpoints.SaverOptions{Keep: 1, KeepBest: 1, LowerIsBetter: true}, []float64{3, 1, 2, 4},
			[]string{"model-2", "model-4"}, "model-2"},
		"of equals the newer": {checkpoints.SaverOptions{Keep: 1, KeepBest: 1}, []float64{1, 1, 0},
			[]string{"model-2", "model-3"}, "model-2"},
		"a loss that is none": {checkpoints.SaverOptions{Keep: 1, KeepBest: 1, LowerIsBetter: true}, []float64{5, math.NaN(), math.Inf(-1), 6},
			[]string{"model-1", "model-4"}, "model-1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := ops.NewGraph(ops.GraphOptions{})
			g.Variable("w", ops.Shape{2}, ops.Ones())
			sess := initialized(t, g)
			dir := t.TempDir()
			for i, metric := range c.metrics {
				// A saver of its own each time, as after a restart.
				saver, err := checkpoints.NewSaver(g, dir, c.o)
				require.NoError(t, err)
				_, err = saver.Save(t.Context(), sess, int64(i+1), checkpoints.SaveOptions{Metric: &metric})
				require.NoError(t, err)
			}
			assert.Equal(t, c.want, prefixes(t, dir))
			state, err := checkpoints.ReadState(dir)
			require.NoError(t, err)
			assert.Equal(t, filepath.Join(dir, c.want[len(c.want)-1]), state.Latest)
			assert.Len(t, state.All, len(c.want))
			assert.Len(t, state.Times, len(c.want))
			saver, err := checkpoints.NewSaver(g, dir, c.o)
			require.NoError(t, err)
			best, err := saver.Best()
			if c.best == "" {
				require.ErrorIs(t, err, bridge.ErrNotFound)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, filepath.Join(dir, c.best), best)
		})
	}
}

func TestLatestIsTheNewestCompleteOne(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) string {
		prefix := filepath.Join(dir, name)
		require.NoError(t, checkpoints.Write(prefix, map[string]*bridge.Tensor{"w": floats(t, bridge.Shape{}, 1)}, checkpoints.WriteOptions{}))
		return prefix
	}
	latest := func() string {
		got, err := checkpoints.Latest(dir)
		require.NoError(t, err)
		return got
	}
	_, err := checkpoints.Latest(dir)
	require.ErrorIs(t, err, bridge.ErrNotFound)
	_, err = checkpoints.Latest(filepath.Join(dir, "no"))
	require.ErrorIs(t, err, bridge.ErrNotFound)

	one, two := write("m-1"), write("m-2")
	assert.Equal(t, two, latest(), "without a list, by time and step")
	require.NoError(t, checkpoints.WriteState(dir, checkpoints.State{Latest: one, All: []string{two, one}}))
	assert.Equal(t, one, latest(), "what the list says")
	three := write("m-3")
	assert.Equal(t, three, latest(), "finished after the list was written")
	require.NoError(t, os.Truncate(three+".index", 20))
	assert.Equal(t, one, latest(), "not whole")
	require.NoError(t, os.Remove(one+".data-00000-of-00001"))
	assert.Equal(t, two, latest(), "data lost")
	require.NoError(t, os.Remove(two+".index"))
	_, err = checkpoints.Latest(dir)
	require.ErrorIs(t, err, bridge.ErrDataLoss)
	assert.ErrorContains(t, err, three)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoint"), []byte("model_checkpoint_path: 7"), 0o644))
	_, err = checkpoints.ReadState(dir)
	require.ErrorIs(t, err, bridge.ErrDataLoss)
}

func TestTheListMovesWithItsFolder(t *testing.T) {
	dir := t.TempDir()
	elsewhere := filepath.Join(t.TempDir(), "other-1")
	strange := filepath.Join(dir, "a \"b\"\n\\ü-1")
	require.NoError(t, checkpoints.WriteState(dir, checkpoints.State{Latest: strange, All: []string{elsewhere, strange}, Times: []time.Time{time.UnixMicro(1_700_000_000_000_001)}}))
	state, err := checkpoints.ReadState(dir)
	require.NoError(t, err)
	assert.Equal(t, []string{elsewhere, strange}, state.All)
	assert.Equal(t, strange, state.Latest)
	text, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	require.NoError(t, err)
	assert.NotContains(t, string(text), dir)
	assert.Contains(t, string(text), elsewhere)
}

func TestSaversRefuseWhatCannotBeSaved(t *testing.T) {
	g, _, variables := counting()
	other, _, _ := counting()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		g    *ops.Graph
		dir  string
		o    checkpoints.SaverOptions
		says string
	}{
		"a nil graph":              {nil, dir, checkpoints.SaverOptions{}, "graph is nil"},
		"no folder":                {g, "", checkpoints.SaverOptions{}, "folder"},
		"a path as a name":         {g, dir, checkpoints.SaverOptions{Name: "a/b"}, "a/b"},
		"negative":                 {g, dir, checkpoints.SaverOptions{KeepBest: -1}, "negative"},
		"another graph's variable": {other, dir, checkpoints.SaverOptions{Variables: variables}, "not one of the graph"},
		"a variable twice":         {g, dir, checkpoints.SaverOptions{Variables: append(variables[:1:1], variables[0])}, "twice"},
	} {
		_, err := checkpoints.NewSaver(c.g, c.dir, c.o)
		assert.ErrorContains(t, err, c.says, name)
	}
	saver, err := checkpoints.NewSaver(g, dir, checkpoints.SaverOptions{})
	require.NoError(t, err)
	empty := session(t, g)
	_, err = saver.Save(t.Context(), empty, 1, checkpoints.SaveOptions{})
	require.ErrorIs(t, err, bridge.ErrUninitialized)
	_, err = saver.Save(t.Context(), session(t, other), 1, checkpoints.SaveOptions{})
	require.ErrorContains(t, err, "not one of the graph")
	_, err = saver.Save(t.Context(), empty, -1, checkpoints.SaveOptions{})
	require.ErrorContains(t, err, "negative")
	_, _, err = saver.Restore(t.Context(), empty)
	require.ErrorIs(t, err, bridge.ErrNotFound)
	_, err = saver.Best()
	require.ErrorIs(t, err, bridge.ErrNotFound)
	assert.Empty(t, prefixes(t, dir))

	var none *checkpoints.Saver
	_, err = none.Save(t.Context(), empty, 1, checkpoints.SaveOptions{})
	require.Error(t, err)
	_, _, err = none.Restore(t.Context(), empty)
	require.Error(t, err)
	_, err = none.Best()
	require.Error(t, err)
	require.NoError(t, none.Close())
	var reader *checkpoints.Reader
	_, err = reader.Read("w")
	require.Error(t, err)
	require.Error(t, reader.Verify(t.Context()))
	require.NoError(t, reader.Close())
	assert.Empty(t, reader.Entries())
}

func TestLocalVariablesAreLeftOut(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	g.Variable("w", ops.Shape{}, ops.Ones())
	g.Variable("metric", ops.Shape{}, ops.Ones(), ops.VariableOptions{NonTrainable: true, Collections: []string{ops.LocalVariables}})
	sess := initialized(t, g)
	values, err := checkpoints.Snapshot(t.Context(), g, sess, nil)
	require.NoError(t, err)
	assert.Len(t, values, 1)
	closed(t, values["w"], nil)
}
