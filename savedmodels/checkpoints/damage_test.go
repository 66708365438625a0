package checkpoints_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	corepb "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

// objectGraph is a graph of objects given as protobuf text.
func objectGraph(t testing.TB, text string) string {
	t.Helper()
	m := new(corepb.TrackableObjectGraph)
	require.NoError(t, prototext.Unmarshal([]byte(text), m))
	data, err := proto.Marshal(m)
	require.NoError(t, err)
	return string(data)
}

// sample is a checkpoint with everything a reader has code for.
func sample(t testing.TB, prefix string) {
	t.Helper()
	tensorflowSaves(t, prefix, map[string]*bridge.Tensor{
		"net/w":  floats(t, bridge.Shape{3, 2}, 1, 2, 3, 4, 5, 6),
		"net/b":  floats(t, bridge.Shape{2}, 1, 2),
		"words":  texts(t, bridge.Shape{3}, "one", "", "three"),
		"rows#0": floats(t, bridge.Shape{1, 2}, 1, 2),
		"rows#1": floats(t, bridge.Shape{2, 2}, 3, 4, 5, 6),
		"_CHECKPOINTABLE_OBJECT_GRAPH": texts(t, bridge.Shape{}, objectGraph(t, `
			nodes { children { node_id: 1 local_name: "w" } }
			nodes { attributes { name: "VARIABLE_VALUE" full_name: "w" checkpoint_key: "net/w" } }`)),
	}, map[string]string{"rows#0": "3 2 0,1:-", "rows#1": "3 2 1,2:-"})
}

// readAll reads whatever the checkpoint has.
func readAll(prefix string) error {
	r, err := checkpoints.Open(prefix)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, e := range r.Entries() {
		v, err := r.Read(e.Key)
		if err != nil {
			return err
		}
		if err := v.Close(); err != nil {
			return err
		}
	}
	return nil
}

func TestAPipeIsNoFileOfACheckpoint(t *testing.T) {
	for _, name := range []string{"checkpoint", "model-1.index", "model-1.data-00000-of-00001", "other"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			sample(t, filepath.Join(dir, "model-1"))
			require.NoError(t, checkpoints.WriteState(dir, checkpoints.State{Latest: "model-1"}))
			file := filepath.Join(dir, name)
			_ = os.Remove(file)
			require.NoError(t, unix.Mkfifo(file, 0o600))
			opened := make(chan error, 2)
			go func() {
				opened <- readAll(dir)
				opened <- readAll(file)
			}()
			for i := range 2 {
				select {
				case err := <-opened:
					if whole := name == "checkpoint" || name == "other"; i == 0 && whole {
						require.NoError(t, err, "the checkpoints are found without the list")
					} else {
						require.Error(t, err)
					}
				case <-time.After(10 * time.Second):
					require.Fail(t, "the reader waits")
				}
			}
		})
	}
}

// Every byte of both files is flipped in turn. Only in what nothing points to, or
// what no reader looks at, may that go unseen.
func TestEveryFlippedByteIsFound(t *testing.T) {
	dir := t.TempDir()
	prefix := filepath.Join(dir, "m")
	sample(t, prefix)
	require.NoError(t, readAll(prefix))
	unseen := map[string]int{}
	for _, suffix := range []string{".index", ".data-00000-of-00001"} {
		good, err := os.ReadFile(prefix + suffix)
		require.NoError(t, err)
		for i := range good {
			for _, bit := range []byte{1, 0x80} {
				bad := append([]byte(nil), good...)
				bad[i] ^= bit
				require.NoError(t, os.WriteFile(prefix+suffix, bad, 0o644))
				err := readAll(prefix)
				if err == nil {
					unseen[suffix]++
					// The padding of the footer.
					assert.Greater(t, i, len(good)-49, "%s: byte %d of %d", suffix, i, len(good))
					continue
				}
				require.ErrorIs(t, err, bridge.ErrDataLoss, "%s: byte %d", suffix, i)
				require.ErrorContains(t, err, prefix, "%s: byte %d", suffix, i)
			}
		}
		require.NoError(t, os.WriteFile(prefix+suffix, good, 0o644))
	}
	assert.Zero(t, unseen[".data-00000-of-00001"])
}

func TestEveryTruncationIsFound(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "m")
	sample(t, prefix)
	for _, suffix := range []string{".index", ".data-00000-of-00001"} {
		good, err := os.ReadFile(prefix + suffix)
		require.NoError(t, err)
		for n := range good {
			require.NoError(t, os.WriteFile(prefix+suffix, good[:n], 0o644))
			_, err := checkpoints.Open(prefix)
			require.ErrorIs(t, err, bridge.ErrDataLoss, "%s: %d bytes", suffix, n)
			require.ErrorContains(t, err, prefix, "%s: %d bytes", suffix, n)
		}
		require.NoError(t, os.WriteFile(prefix+suffix, good, 0o644))
	}
}

func TestDamageIsNamed(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "m")
	require.NoError(t, checkpoints.Write(prefix, map[string]*bridge.Tensor{
		"a": floats(t, bridge.Shape{2}, 1, 2), "b": floats(t, bridge.Shape{2}, 3, 4), "c": floats(t, bridge.Shape{2}, 3, 4)},
		checkpoints.WriteOptions{Shards: 3}))
	data := fmt.Sprintf("%s.data-%05d-of-%05d", prefix, 1, 3)
	flip(t, data, 5)

	r := open(t, prefix)
	err := r.Verify(t.Context())
	require.ErrorIs(t, err, bridge.ErrDataLoss)
	assert.ErrorContains(t, err, data)
	assert.ErrorContains(t, err, "b is damaged: the checksum of its 8 bytes at byte 0 is ")
	_, err = r.Read("b")
	require.ErrorIs(t, err, bridge.ErrDataLoss)
	v, err := r.Read("a")
	closed(t, v, err)

	require.NoError(t, os.Remove(data))
	_, err = checkpoints.Open(prefix)
	require.ErrorIs(t, err, bridge.ErrNotFound)
	assert.ErrorContains(t, err, "1 of 3 data files are missing: "+data)
}

// FuzzOpen gives the reader files of any content. Whatever they are, it must
// neither crash nor take memory out of proportion.
func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	prefix := filepath.Join(dir, "m")
	sample(f, prefix)
	index, err := os.ReadFile(prefix + ".index")
	require.NoError(f, err)
	data, err := os.ReadFile(prefix + ".data-00000-of-00001")
	require.NoError(f, err)
	f.Add(index, data)
	f.Add(index[:len(index)/2], data)
	f.Fuzz(func(t *testing.T, index, data []byte) {
		prefix := filepath.Join(t.TempDir(), "m")
		require.NoError(t, os.WriteFile(prefix+".index", index, 0o644))
		require.NoError(t, os.WriteFile(prefix+".data-00000-of-00001", data, 0o644))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = readAll(prefix)
		runtime.ReadMemStats(&after)
		bound := uint64(400*(len(index)+len(data)) + 8<<20)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, bound)
	})
}

// What the checksums let through is damaged behind them: the index's blocks are
// mutated and summed again.
func TestIndexesOfAnyContentAreSafe(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "m")
	sample(t, prefix)
	good, err := os.ReadFile(prefix + ".index")
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(3, 4))
	refused := 0
	for range 5000 {
		bad := append([]byte(nil), good...)
		for range 1 + random.IntN(4) {
			bad[random.IntN(len(bad))] = byte(random.Uint32())
		}
		require.NoError(t, os.WriteFile(prefix+".index", checkpoints.SumAgain(bad), 0o644))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if readAll(prefix) != nil {
			refused++
		}
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
	}
	assert.Greater(t, refused, 2500)
}

// flip changes a byte of a file.
func flip(t testing.TB, file string, at int) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	content[at] ^= 0x10
	require.NoError(t, os.WriteFile(file, content, 0o644))
}
