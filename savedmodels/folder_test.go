package savedmodels_test

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/savedmodels"
)

// saving is a save of a small model, of which the value is y.
func saving(t *testing.T, value float32) func(dir string, overwrite bool) error {
	g := ops.NewGraph(ops.GraphOptions{})
	v := g.Variable("v", ops.Shape{}, ops.FromValue(value))
	y := raw.Identity(g, v.Value())
	init := g.Init()
	sess := must(bridge.NewSession(g.TF(), bridge.Config{}))(t)
	t.Cleanup(func() { sess.Close() })
	require.NoError(t, sess.Run(t.Context(), init))
	return func(dir string, overwrite bool) error {
		return savedmodels.Save(t.Context(), g, sess, dir, savedmodels.SaveOptions{Overwrite: overwrite,
			Signatures: map[string]savedmodels.SignatureSpec{"s": {Outputs: map[string]tf.Output{"y": y}}}})
	}
}

func TestAModelIsSavedInAnEmptyFolder(t *testing.T) {
	base := t.TempDir()
	save := saving(t, 3)
	for _, overwrite := range []bool{false, true} {
		dir := filepath.Join(base, strconv.FormatBool(overwrite))
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, save(dir, overwrite))
		assert.Equal(t, []float32{3}, run(t, load(t, dir, savedmodels.Options{}), "s", "y", nil))
	}
	assert.Len(t, must(os.ReadDir(base))(t), 2, "nothing is left beside them")
}

func TestSaveLosesNothingThatIsNotTheModels(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "1")
	save := saving(t, 3)
	require.NoError(t, save(dir, false))
	notes := filepath.Join(dir, "notes.txt")
	require.NoError(t, os.WriteFile(notes, []byte("mine"), 0o644))
	err := save(dir, true)
	require.ErrorIs(t, err, bridge.ErrAlreadyExists)
	assert.ErrorContains(t, err, "notes.txt")
	assert.Equal(t, "mine", string(must(os.ReadFile(notes))(t)))
	require.NoError(t, os.Remove(notes))

	// What writers and servers put into a model's folder goes with it.
	for _, name := range []string{"assets.extra", "debug"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fingerprint.pb"), nil, 0o644))
	require.NoError(t, save(dir, true))

	t.Chdir(base)
	require.NoError(t, os.Mkdir("empty", 0o755))
	t.Chdir("empty")
	for _, here := range []string{".", filepath.Join(base, "empty"), "../empty"} {
		err = save(here, true)
		require.ErrorIs(t, err, bridge.ErrInvalidArgument, here)
		assert.ErrorContains(t, err, "working directory")
	}
	assert.Empty(t, must(os.ReadDir("."))(t))
	assert.Len(t, must(os.ReadDir(base))(t), 2)
}

func TestALinkToAModelStays(t *testing.T) {
	base := t.TempDir()
	dir, link := filepath.Join(base, "models", "1"), filepath.Join(base, "current")
	require.NoError(t, saving(t, 3)(dir, false))
	require.NoError(t, os.Symlink(dir, link))
	require.NoError(t, saving(t, 4)(link, true))
	assert.Equal(t, dir, must(os.Readlink(link))(t))
	assert.Equal(t, []float32{4}, run(t, load(t, dir, savedmodels.Options{}), "s", "y", nil))

	nowhere := filepath.Join(base, "nowhere")
	require.NoError(t, os.Symlink(filepath.Join(base, "gone"), nowhere))
	err := saving(t, 5)(nowhere, true)
	require.ErrorIs(t, err, bridge.ErrAlreadyExists)
	assert.ErrorContains(t, err, "symbolic link")
	assert.Len(t, must(os.ReadDir(base))(t), 3)
}

func TestVersionsEnd(t *testing.T) {
	base := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(base, strconv.Itoa(math.MaxInt64)), 0o755))
	_, err := savedmodels.NextVersion(base)
	require.ErrorIs(t, err, bridge.ErrResourceExhausted)
}

// TensorFlow waits for whoever writes into a pipe, and is not to be stopped.
func TestAPipeIsNoFileOfAModel(t *testing.T) {
	const data = "variables/variables.data-00000-of-00001"
	for _, name := range []string{"saved_model.pb", "variables/variables.index", data, "assets/words.txt"} {
		t.Run(name, func(t *testing.T) {
			d := linear(t, 1)
			d.asset("words.txt", "a\nb\n")
			dir := d.write()
			file := filepath.Join(dir, name)
			require.NoError(t, os.Remove(file))
			require.NoError(t, unix.Mkfifo(file, 0o600))
			loaded := make(chan error, 1)
			go func() {
				m, err := savedmodels.Load(dir, savedmodels.Options{})
				m.Close()
				loaded <- err
			}()
			select {
			case err := <-loaded:
				require.ErrorIs(t, err, bridge.ErrInvalidArgument)
				assert.ErrorContains(t, err, "is not a file")
			case <-time.After(10 * time.Second):
				require.Fail(t, "Load waits")
			}
		})
	}
}
