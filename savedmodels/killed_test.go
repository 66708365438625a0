package savedmodels_test

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
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/savedmodels"
)

// untilKilled names the folder in which a process of this test saves models.
const untilKilled = "SLUICE_TEST_SAVE_MODELS_UNTIL_KILLED"

// saveUntilKilled saves one model over another, and every version in a folder of its
// own as well, without pause. All numbers of a model are the same, and grow.
func saveUntilKilled(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	ctx := context.Background()
	g := ops.NewGraph(ops.GraphOptions{})
	var steps []*tf.Operation
	var sum tf.Output
	for i := range 4 {
		v := g.Variable(fmt.Sprintf("v%d", i), ops.Shape{50_000}, ops.Zeros())
		steps = append(steps, v.AssignAdd(nil, raw.Fill(g, g.Const([]int32{50_000}), g.Const(float32(1)))))
		if i == 0 {
			sum = v.Value()
		} else {
			sum = raw.AddV2(g, sum, v.Value())
		}
	}
	init := g.Init()
	fail(g.Err())
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	fail(err)
	fail(sess.Run(ctx, init))
	o := savedmodels.SaveOptions{Signatures: map[string]savedmodels.SignatureSpec{"sum": {Outputs: map[string]tf.Output{"sum": sum}}}}
	fmt.Println("begin 0")
	for n := 1; ; n++ {
		fail(sess.Run(ctx, steps...))
		o.Overwrite, o.Objects, o.Shards = true, n%2 == 0, 1+n%3
		fail(savedmodels.Save(ctx, g, sess, filepath.Join(dir, "model"), o))
		fmt.Println("saved", n)
		o.Overwrite = false
		next, err := savedmodels.NextVersion(filepath.Join(dir, "versions"))
		fail(err)
		fail(savedmodels.Save(ctx, g, sess, next, o))
	}
}

// A process that saves is killed at random moments. Whatever stands under a model's
// name then is a whole model, of one moment.
func TestAKilledSaveLeavesNoHalfModel(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	loaded, unfinished, versions := 0, 0, 0
	whole := func(dir string) float32 {
		t.Helper()
		m, err := savedmodels.Load(dir, savedmodels.Options{})
		require.NoError(t, err)
		defer m.Close()
		sums := run(t, m, "", "sum", nil)
		require.Len(t, sums, 50_000)
		for _, s := range sums {
			require.Equal(t, sums[0], s)
		}
		return sums[0] / 4
	}
	for kill := range killsOfSave {
		dir := t.TempDir()
		said := killedWhileSaving(t, dir, time.Duration(random.IntN(120_000))*time.Microsecond)
		model := filepath.Join(dir, "model")
		if _, err := os.Stat(model); err == nil || said > 0 {
			assert.GreaterOrEqual(t, whole(model), float32(said), "after kill %d", kill)
			loaded++
		}
		entries, err := os.ReadDir(filepath.Join(dir, "versions"))
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(t, err)
		}
		for _, e := range entries {
			if n, err := strconv.Atoi(e.Name()); err == nil {
				versions++
				assert.EqualValues(t, n, whole(filepath.Join(dir, "versions", e.Name())))
			} else {
				require.True(t, strings.HasPrefix(e.Name(), ".unfinished-"), e.Name())
				unfinished++
			}
		}
		left, err := filepath.Glob(filepath.Join(dir, ".unfinished-*"))
		require.NoError(t, err)
		unfinished += len(left)
	}
	t.Logf("%d kills: %d models and %d versions were whole, %d saves were in progress", killsOfSave, loaded, versions, unfinished)
	assert.NotZero(t, loaded)
	assert.NotZero(t, versions)
	if killsOfSave > 10 {
		assert.NotZero(t, unfinished, "kills came while a model was being written")
	}
}

// killedWhileSaving starts the process, kills it some time after it has begun, and
// returns the last model that it said was saved.
func killedWhileSaving(t *testing.T, dir string, after time.Duration) (said int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), untilKilled+"="+dir, "TF_CPP_MIN_LOG_LEVEL=3")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	begun := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		_, number, _ := strings.Cut(lines.Text(), " ")
		said, err = strconv.Atoi(number)
		require.NoError(t, err, lines.Text())
		if !begun {
			begun = true
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
	}
	require.True(t, begun)
	require.Error(t, cmd.Wait(), "killed")
	return said
}
