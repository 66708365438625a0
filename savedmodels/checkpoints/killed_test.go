package checkpoints_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

// counting is a graph whose variables all hold the same number, which a step
// raises by one.
func counting() (g *ops.Graph, step *tf.Operation, variables []*ops.Variable) {
	g = ops.NewGraph(ops.GraphOptions{})
	var steps []*tf.Operation
	for i := range 3 {
		v := g.Variable("count_"+strconv.Itoa(i), ops.Shape{5000}, ops.Zeros())
		steps = append(steps, v.AssignAdd(nil, g.Const(make1(5000))))
		variables = append(variables, v)
	}
	return g, g.Group("step", steps...), variables
}

func make1(n int) []float32 {
	ones := make([]float32, n)
	for i := range ones {
		ones[i] = 1
	}
	return ones
}

// saveUntilKilled is the process that the test kills: it goes on from the newest
// checkpoint, and says on standard output what it has saved.
func saveUntilKilled(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
	}
	ctx := context.Background()
	g, step, _ := counting()
	init := g.Init()
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	fail(err)
	fail(sess.Run(ctx, init))
	saver, err := checkpoints.NewSaver(g, dir, checkpoints.SaverOptions{Keep: 3, KeepBest: 1, Shards: 2})
	fail(err)
	at, _, err := saver.Restore(ctx, sess)
	if !errors.Is(err, bridge.ErrNotFound) {
		fail(err)
	}
	fmt.Println("begin", at)
	for {
		fail(sess.Run(ctx, step))
		at++
		pending, err := saver.Start(ctx, sess, at, checkpoints.SaveOptions{Metric: new(float64(at % 7))})
		fail(err)
		if at%2 == 0 {
			_, err := pending.Wait(ctx)
			fail(err)
			fmt.Println("saved", at)
		}
	}
}

// TestTheNewestCheckpointSurvivesAKill kills a process that saves without pause,
// kills times at random moments. Each time the newest checkpoint is whole, as
// new as what the process said it had saved, and of one moment.
func TestTheNewestCheckpointSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(5, 6))
	said := int64(0)
	unlisted := 0
	for kill := range kills {
		said = max(said, killedAfter(t, dir, time.Duration(random.IntN(60_000))*time.Microsecond))
		prefix, err := checkpoints.Latest(dir)
		if said == 0 && errors.Is(err, bridge.ErrNotFound) {
			continue
		}
		require.NoError(t, err, "after kill %d", kill)
		step, err := checkpoints.StepOf(prefix)
		require.NoError(t, err)
		require.GreaterOrEqual(t, step, said, "after kill %d", kill)
		said = step
		r, err := checkpoints.Open(prefix)
		require.NoError(t, err)
		for _, e := range r.Entries() {
			v, err := r.Read(e.Key)
			require.NoError(t, err, "after kill %d", kill)
			values, err := bridge.Values[float32](v)
			require.NoError(t, err)
			require.NoError(t, v.Close())
			require.EqualValues(t, step, values[0], "after kill %d: %s", kill, e.Key)
			require.Equal(t, values[0], values[len(values)-1])
		}
		require.NoError(t, r.Close())
		state, err := checkpoints.ReadState(dir)
		if err != nil || state.Latest != prefix {
			unlisted++
		}
	}
	assert.Greater(t, said, int64(kills/10), "the process got somewhere")
	t.Logf("step %d after %d kills, of which %d came between a checkpoint and the list", said, kills, unlisted)

	// What the killed left lying about is gone when the next one begins.
	g, _, _ := counting()
	_, err := checkpoints.NewSaver(g, dir, checkpoints.SaverOptions{})
	require.NoError(t, err)
	left, err := filepath.Glob(filepath.Join(dir, "*unfinished*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// killedAfter starts the process, kills it some time after it has begun, and
// returns the last step that it said was saved.
func killedAfter(t *testing.T, dir string, after time.Duration) (said int64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SLUICE_TEST_SAVE_UNTIL_KILLED="+dir, "TF_CPP_MIN_LOG_LEVEL=3")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	begun := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		word, number, _ := strings.Cut(lines.Text(), " ")
		step, err := strconv.ParseInt(number, 10, 64)
		require.NoError(t, err, lines.Text())
		said = max(said, step)
		if word == "begin" && !begun {
			begun = true
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
	}
	require.True(t, begun)
	require.Error(t, cmd.Wait(), "killed")
	return said
}
