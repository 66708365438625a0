package checkpoints

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	shapepb "github.com/galeone/tensorflow/tensorflow/go/core/framework/tensor_shape_go_proto"
	typespb "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	versionspb "github.com/galeone/tensorflow/tensorflow/go/core/framework/versions_go_proto"
	corepb "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
)

// WriteOptions are the settings of [Write].
type WriteOptions struct {
	// Shards is the number of data files, written beside each other; 0 is 1.
	Shards int
	// Overwrite replaces a checkpoint of the same prefix; otherwise that is
	// an error. The old one stays whole until the new one takes its place, at one
	// moment; the data files of the two have different numbers of shards then,
	// so that Shards may come out larger than asked for.
	Overwrite bool
}

// Write writes tensors as a name-based checkpoint under a prefix such as
// "run/model-100": files prefix.index and prefix.data-00000-of-00001, as
// tf.compat.v1.train.Saver writes. Its folder is made where it is missing. The
// tensors stay the caller's.
//
// All files are written beside their places, synchronized to the disk and renamed
// into place, the index last: at any moment, also after a crash, there is a
// complete checkpoint under the prefix or none. After an error nothing has been
// changed.
//
// Errors: ErrAlreadyExists, ErrInvalidArgument for names and data types that
// can't be written, ErrClosed for a closed tensor, and those of the file system.
func Write(prefix string, tensors map[string]*bridge.Tensor, o WriteOptions) error {
	w := &writer{prefix: prefix, tensors: tensors}
	if err := w.check(o); err != nil {
		return err
	}
	if err := w.write(); err != nil {
		w.discard()
		return fileErrorIn("checkpoints.Write", prefix, err)
	}
	return nil
}

func fileErrorIn(op, prefix string, err error) error {
	var coded *bridge.Error
	if errors.As(err, &coded) {
		return err
	}
	return fileError(op, fmt.Errorf("%s: %w", prefix, err))
}

// writer is one checkpoint being written.
type writer struct {
	prefix    string
	tensors   map[string]*bridge.Tensor
	names     []string // sorted
	entries   []*corepb.BundleEntryProto
	shards    int
	temporary map[string]string // what is to be renamed, by its final name
	mu        sync.Mutex        // guards temporary
}

func (w *writer) check(o WriteOptions) error {
	const op = "checkpoints.Write"
	if base := filepath.Base(w.prefix); w.prefix == "" || strings.HasSuffix(w.prefix, "/") || base == "." || base == ".." {
		return bridge.Errorf(bridge.InvalidArgument, op, "%q is not a prefix for files; wanted one such as run/model-100", w.prefix)
	}
	const mostShards = 99999
	if o.Shards < 0 || o.Shards > mostShards {
		return bridge.Errorf(bridge.InvalidArgument, op, "%d shards; wanted 1 to %d, or 0 for one", o.Shards, mostShards)
	}
	w.names = slices.Sorted(maps.Keys(w.tensors))
	var problems []string
	for _, name := range w.names {
		t := w.tensors[name]
		switch {
		case name == "" || name[0] == 0:
			problems = append(problems, fmt.Sprintf("%q is not a name", name))
		case len(name) > maxKey:
			problems = append(problems, fmt.Sprintf("a name of %d bytes", len(name)))
		case t == nil || t.DType() == 0:
			return &bridge.Error{Code: bridge.FailedPrecondition, Op: op, Message: fmt.Sprintf("tensor %q used after Close", name), Err: bridge.ErrClosed}
		case bridge.DTypeSize(t.DType()) == 0 && t.DType() != tf.String:
			problems = append(problems, fmt.Sprintf("%s is of dtype %s, which has no elements to write", name, bridge.DTypeName(t.DType())))
		}
	}
	if len(problems) > 0 {
		return bridge.Errorf(bridge.InvalidArgument, op, "%s", strings.Join(problems, "; "))
	}
	w.shards = max(1, o.Shards)
	if _, err := os.Stat(indexName(w.prefix)); err == nil {
		if !o.Overwrite {
			return bridge.Errorf(bridge.AlreadyExists, op, "there is a checkpoint %s; WriteOptions.Overwrite replaces it", w.prefix)
		}
		for w.taken() {
			w.shards++
		}
	}
	return nil
}

// taken tells whether a data file of the old checkpoint is in the way of ours.
func (w *writer) taken() bool {
	for _, file := range dataFiles(w.prefix) {
		if file.shards == w.shards {
			return true
		}
	}
	return false
}

type dataFile struct {
	path   string
	shards int
}

// dataFiles are those of a prefix, of whatever number of shards.
func dataFiles(prefix string) []dataFile {
	entries, err := os.ReadDir(filepath.Dir(prefix))
	if err != nil {
		return nil
	}
	var files []dataFile
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), filepath.Base(prefix)+".data-")
		_, count, cut := strings.Cut(rest, "-of-")
		if shards, err := strconv.Atoi(count); ours && cut && err == nil {
			files = append(files, dataFile{filepath.Join(filepath.Dir(prefix), e.Name()), shards})
		}
	}
	return files
}

func (w *writer) write() error {
	if err := os.MkdirAll(filepath.Dir(w.prefix), 0o755); err != nil {
		return err
	}
	old := dataFiles(w.prefix)
	w.temporary = map[string]string{}
	w.entries = make([]*corepb.BundleEntryProto, len(w.names))
	errs := make([]error, w.shards)
	var all sync.WaitGroup
	const together = 4 // files written beside each other
	slot := make(chan struct{}, together)
	for shard, names := range w.divide() {
		slot <- struct{}{}
		all.Go(func() {
			defer func() { <-slot }()
			errs[shard] = w.file(dataName(w.prefix, shard, w.shards), func(out io.Writer) error {
				return w.data(out, shard, names)
			})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := w.file(indexName(w.prefix), w.index); err != nil {
		return err
	}
	for shard := range w.shards {
		if err := w.place(dataName(w.prefix, shard, w.shards)); err != nil {
			return err
		}
	}
	if err := syncFolder(filepath.Dir(w.prefix)); err != nil {
		return err
	}
	if err := w.place(indexName(w.prefix)); err != nil {
		return err
	}
	if err := syncFolder(filepath.Dir(w.prefix)); err != nil {
		return err
	}
	for _, file := range old {
		if file.shards != w.shards {
			_ = os.Remove(file.path) // of the checkpoint that was replaced
		}
	}
	return nil
}

// divide gives each shard its tensors, by index into names: the largest first to
// the shard that has least.
func (w *writer) divide() [][]int {
	order := make([]int, len(w.names))
	for i := range order {
		order[i] = i
	}
	size := func(i int) int64 { return w.tensors[w.names[i]].ByteSize() }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(size(b), size(a)) })
	shards, filled := make([][]int, w.shards), make([]int64, w.shards)
	for _, i := range order {
		least := 0
		for s := range filled {
			if filled[s] < filled[least] {
				least = s
			}
		}
		shards[least] = append(shards[least], i)
		filled[least] += size(i) + 1
	}
	for _, s := range shards {
		slices.Sort(s)
	}
	return shards
}

// file writes a file beside its place, synchronized.
func (w *writer) file(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+temporaryMark+"*")
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.temporary[name] = f.Name()
	w.mu.Unlock()
	buffered := bufio.NewWriterSize(f, 1<<18)
	err = write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// temporaryMark is in the names of files that are not yet in their places.
const temporaryMark = ".unfinished-"

func (w *writer) place(name string) error {
	if err := os.Rename(w.temporary[name], name); err != nil {
		return err
	}
	delete(w.temporary, name)
	return nil
}

// discard removes what was not put into place.
func (w *writer) discard() {
	for _, file := range w.temporary {
		_ = os.Remove(file)
	}
}

func syncFolder(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// data writes a shard's tensors and notes where they are.
func (w *writer) data(out io.Writer, shard int, names []int) error {
	offset := int64(0)
	for _, i := range names {
		t := w.tensors[w.names[i]]
		var size int64
		var crc uint32
		var err error
		if t.DType() == tf.String {
			size, crc, err = writeStrings(out, t)
		} else {
			size, crc, err = writeElements(out, t)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w.names[i], err)
		}
		shape := &shapepb.TensorShapeProto{}
		for _, d := range t.Shape() {
			shape.Dim = append(shape.Dim, &shapepb.TensorShapeProto_Dim{Size: d})
		}
		w.entries[i] = &corepb.BundleEntryProto{Dtype: typespb.DataType(t.DType()), Shape: shape,
			ShardId: int32(shard), Offset: offset, Size: size, Crc32C: masked(crc)}
		offset += size
	}
	return nil
}

func writeElements(out io.Writer, t *bridge.Tensor) (int64, uint32, error) {
	data, err := t.Bytes()
	if err != nil {
		return 0, 0, err
	}
	// In pieces, so that what is summed is still in the cache when it is copied.
	crc := uint32(0)
	for part := range slices.Chunk(data, 1<<20) {
		crc = crc32.Update(crc, castagnoli, part)
		if _, err := out.Write(part); err != nil {
			return 0, 0, err
		}
	}
	return int64(len(data)), crc, nil
}

// writeStrings writes what decodeStrings takes apart.
func writeStrings(out io.Writer, t *bridge.Tensor) (int64, uint32, error) {
	values, err := t.Strings()
	if err != nil {
		return 0, 0, err
	}
	var head []byte
	crc := uint32(0)
	for _, s := range values {
		head = binary.AppendUvarint(head, uint64(len(s)))
		crc = crc32.Update(crc, castagnoli, lengthBytes(uint64(len(s))))
	}
	sum := binary.LittleEndian.AppendUint32(nil, masked(crc))
	crc = crc32.Update(crc, castagnoli, sum)
	head = append(head, sum...)
	if _, err := out.Write(head); err != nil {
		return 0, 0, err
	}
	size := int64(len(head))
	for _, s := range values {
		crc = crc32.Update(crc, castagnoli, []byte(s))
		if _, err := io.WriteString(out, s); err != nil {
			return 0, 0, err
		}
		size += int64(len(s))
	}
	return size, crc, nil
}

func (w *writer) index(out io.Writer) error {
	table := &tableWriter{out: out}
	header, err := proto.Marshal(&corepb.BundleHeaderProto{NumShards: int32(w.shards), Version: &versionspb.VersionDef{Producer: 1}})
	if err != nil {
		return err
	}
	if err := table.add(nil, header); err != nil {
		return err
	}
	for i, name := range w.names {
		entry, err := proto.Marshal(w.entries[i])
		if err != nil {
			return err
		}
		if err := table.add([]byte(name), entry); err != nil {
			return err
		}
	}
	return table.finish()
}
