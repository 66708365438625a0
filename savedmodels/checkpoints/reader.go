package checkpoints

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	corepb "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
)

// Entry describes one tensor of a checkpoint.
type Entry struct {
	// Key is the name in the file.
	Key string
	// Name is Key without what TensorFlow 2 appends to it: "model/w" for
	// "model/w/.ATTRIBUTES/VARIABLE_VALUE". The same as Key in name-based
	// checkpoints.
	Name string
	// FullName is the name that the variable had in Python, "dense/kernel",
	// which an object-based checkpoint tells; otherwise the same as Name.
	FullName string
	DType    tf.DataType
	Shape    bridge.Shape
	// Bytes is what it takes in the files.
	Bytes int64
	// Slices is in how many pieces a partitioned variable is stored; 0 for a
	// tensor in one piece.
	Slices int

	pieces []piece
}

// piece is a part of a tensor, or the whole of it, in a data file.
type piece struct {
	shard        int32
	offset, size int64
	crc          uint32
	extents      []extent // nil: the whole
}

// String is "net/w float32 [64,10]".
func (e Entry) String() string {
	return fmt.Sprintf("%s %s %v", e.Name, bridge.DTypeName(e.DType), e.Shape)
}

// Reader reads the tensors of a checkpoint one at a time, without a session. It
// is safe from many goroutines.
type Reader struct {
	prefix  string
	shards  int
	entries []*Entry // by Key
	objects *objects // nil in a name-based checkpoint

	mu     sync.Mutex
	files  map[int32]*os.File
	closed bool
}

const objectGraphKey = "_CHECKPOINTABLE_OBJECT_GRAPH"

// Open opens a checkpoint: path is its prefix ("run/model-100"), its .index file,
// a folder of checkpoints, which stands for the newest complete one ([Latest]),
// or the folder of a SavedModel, which stands for its variables.
//
// The index is read and checked whole, and that all data files are there and
// long enough. The tensors' own checksums are checked when they are read, or by
// [Reader.Verify]. Memory is bounded by the size of the files, whatever is in
// them.
func Open(path string) (*Reader, error) {
	prefix, err := resolve(path)
	if err != nil {
		return nil, err
	}
	return openPrefix(prefix)
}

func openPrefix(prefix string) (*Reader, error) {
	r := &Reader{prefix: prefix, files: map[int32]*os.File{}}
	err := r.readIndex()
	if err == nil {
		err = r.checkFiles()
	}
	if err == nil {
		err = r.readObjects()
	}
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// damaged is the error of a file that holds what can't be.
func damaged(file, format string, args ...any) error {
	return bridge.Errorf(bridge.DataLoss, file, format, args...)
}

func indexName(prefix string) string { return prefix + ".index" }

func dataName(prefix string, shard, shards int) string {
	return fmt.Sprintf("%s.data-%05d-of-%05d", prefix, shard, shards)
}

// resolve finds the prefix that a path stands for.
func resolve(path string) (string, error) {
	const op = "checkpoints.Open"
	if path == "" {
		return "", bridge.Errorf(bridge.InvalidArgument, op, "the path is empty; wanted a checkpoint's prefix or a folder")
	}
	prefix := strings.TrimSuffix(path, ".index")
	if _, err := os.Stat(indexName(prefix)); err == nil {
		return prefix, nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		variables := filepath.Join(path, "variables", "variables")
		if _, err := os.Stat(indexName(variables)); err == nil {
			return variables, nil
		}
		return Latest(path)
	case err == nil && strings.Contains(filepath.Base(path), ".data-"):
		return "", bridge.Errorf(bridge.NotFound, op, "%s is a data file whose index, %s, is missing", path, indexName(path[:strings.LastIndex(path, ".data-")]))
	case err == nil:
		return "", bridge.Errorf(bridge.InvalidArgument, op, "%s %s", path, otherFormat(path))
	}
	have := prefixesIn(filepath.Dir(path))
	if len(have) == 0 {
		return "", bridge.Errorf(bridge.NotFound, op, "there is no %s, and no checkpoint in %s", indexName(prefix), filepath.Dir(path))
	}
	return "", bridge.Errorf(bridge.NotFound, op, "there is no %s; have %s", indexName(prefix), someOf(have))
}

// otherFormat says what a file is that is no checkpoint of ours.
func otherFormat(path string) string {
	var head [8]byte
	if f, err := openFile(path); err == nil {
		_, _ = io.ReadFull(f, head[:])
		_ = f.Close()
	}
	switch start := string(head[:]); {
	case start == "\x89HDF\r\n\x1a\n":
		return "is Keras' HDF5 format, which is not read here; in Python, tf.train.Checkpoint(model=model).write(path) or model.export(path) writes what is"
	case strings.HasPrefix(start, "PK\x03\x04"):
		return "is a zip file such as Keras' .keras format, which is not read here; in Python, tf.train.Checkpoint(model=model).write(path) or model.export(path) writes what is"
	}
	return "is a file, not a checkpoint: wanted a prefix that has a .index file, or a folder"
}

// someOf is the first few of a list, for a message.
func someOf(names []string) string {
	const most = 8
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

// openFile opens what is a file to read it: to open a pipe is to wait for its
// writer.
func openFile(name string) (*os.File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, damaged(name, "is not a file")
	}
	return os.Open(name)
}

func (r *Reader) readIndex() error {
	name := indexName(r.prefix)
	file, err := openFile(name)
	if err != nil {
		return fileErrorIn("checkpoints.Open", r.prefix, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fileError("checkpoints.Open", err)
	}
	var (
		header *corepb.BundleHeaderProto
		whole  []*corepb.BundleEntryProto
		names  []string
		slices = map[string]*corepb.BundleEntryProto{}
	)
	for e, err := range tableEntries(file, info.Size()) {
		if err != nil {
			return damaged(name, "%w", err)
		}
		if header == nil {
			if e.key != "" {
				return damaged(name, "it does not begin with a header, but with %q", e.key)
			}
			header = new(corepb.BundleHeaderProto)
			if err := proto.Unmarshal(e.value, header); err != nil {
				return damaged(name, "its header: %w", err)
			}
			if err := r.checkHeader(header); err != nil {
				return err
			}
			continue
		}
		entry := new(corepb.BundleEntryProto)
		if err := proto.Unmarshal(e.value, entry); err != nil {
			return damaged(name, "the entry of %q: %w", e.key, err)
		}
		if e.key[0] == 0 {
			slices[e.key] = entry
			continue
		}
		whole, names = append(whole, entry), append(names, e.key)
	}
	if header == nil {
		return damaged(name, "it is empty")
	}
	for i, p := range whole {
		e, err := entryOf(names[i], p, slices)
		if err != nil {
			return damaged(name, "the entry of %q: %w", names[i], err)
		}
		r.entries = append(r.entries, e)
	}
	return nil
}

func (r *Reader) checkHeader(h *corepb.BundleHeaderProto) error {
	name := indexName(r.prefix)
	const version = 1 // of the format, the only one so far
	switch {
	case h.GetEndianness() != corepb.BundleHeaderProto_LITTLE:
		return bridge.Errorf(bridge.Unimplemented, name, "it was written on a big-endian machine, which is not read here")
	case h.GetVersion().GetMinConsumer() > version:
		return bridge.Errorf(bridge.Unimplemented, name, "it is of format version %d and wants a reader of version %d; this one has %d",
			h.GetVersion().GetProducer(), h.GetVersion().GetMinConsumer(), version)
	case h.GetNumShards() < 1:
		return damaged(name, "its header speaks of %d data files", h.GetNumShards())
	}
	r.shards = int(h.GetNumShards())
	return nil
}

// entryOf makes an entry of its proto. slices are the entries of all slices.
func entryOf(key string, p *corepb.BundleEntryProto, slices map[string]*corepb.BundleEntryProto) (*Entry, error) {
	e := &Entry{Key: key, Name: strings.TrimSuffix(key, valueSuffix), DType: tf.DataType(p.GetDtype()), Shape: bridge.Shape{}}
	e.FullName = e.Name
	if p.GetShape().GetUnknownRank() || len(p.GetShape().GetDim()) > bridge.MaxRank {
		return nil, errors.New("its shape is unknown")
	}
	for _, d := range p.GetShape().GetDim() {
		e.Shape = append(e.Shape, d.GetSize())
	}
	size := bridge.DTypeSize(e.DType)
	elements, known := e.Shape.NumElements()
	if !known || size > 0 && elements > math.MaxInt64/int64(size) {
		return nil, fmt.Errorf("its shape %v can't be", e.Shape)
	}
	if len(p.GetSlices()) == 0 {
		whole, err := pieceOf(e.DType, elements, p)
		e.pieces, e.Bytes = []piece{whole}, whole.size
		return e, err
	}
	if size == 0 {
		return nil, fmt.Errorf("a partitioned tensor of %s", bridge.DTypeName(e.DType))
	}
	e.Slices = len(p.GetSlices())
	covered := int64(0)
	for _, s := range p.GetSlices() {
		all, err := extents(s, e.Shape)
		if err != nil {
			return nil, err
		}
		entry := slices[sliceKey(key, s)]
		if entry == nil {
			return nil, fmt.Errorf("its slice %v has no entry", all)
		}
		n := int64(1)
		for _, x := range all {
			n *= x.length
		}
		part, err := pieceOf(e.DType, n, entry)
		if err != nil {
			return nil, fmt.Errorf("its slice %v: %w", all, err)
		}
		part.extents = all
		if covered += n; covered > elements {
			break
		}
		e.pieces, e.Bytes = append(e.pieces, part), e.Bytes+part.size
	}
	if covered != elements {
		return nil, fmt.Errorf("its %d slices do not make up the %d elements of %v", e.Slices, elements, e.Shape)
	}
	return e, nil
}

// pieceOf is where the elements lie.
func pieceOf(dt tf.DataType, elements int64, p *corepb.BundleEntryProto) (piece, error) {
	at := piece{shard: p.GetShardId(), offset: p.GetOffset(), size: p.GetSize(), crc: p.GetCrc32C()}
	if at.offset < 0 || at.size < 0 || at.offset > math.MaxInt64-at.size {
		return at, fmt.Errorf("%d bytes at byte %d can't be", at.size, at.offset)
	}
	switch size := int64(bridge.DTypeSize(dt)); {
	case size > 0 && at.size != elements*size:
		return at, fmt.Errorf("it has %d bytes, and %d elements of %s take %d", at.size, elements, bridge.DTypeName(dt), elements*size)
	case dt == tf.String && (at.size < 4 || elements > at.size-4):
		return at, fmt.Errorf("%d bytes are too few for %d strings", at.size, elements)
	}
	return at, nil
}

// checkFiles looks whether the data files hold what the index says.
func (r *Reader) checkFiles() error {
	name := indexName(r.prefix)
	need := map[int32]int64{}
	for _, e := range r.entries {
		for _, p := range e.pieces {
			if p.shard < 0 || int(p.shard) >= r.shards {
				return damaged(name, "the entry of %q is in data file %d of %d", e.Key, p.shard, r.shards)
			}
			need[p.shard] = max(need[p.shard], p.offset+p.size)
		}
	}
	var missing, short []string
	for shard, bytes := range need {
		file := dataName(r.prefix, int(shard), r.shards)
		info, err := os.Stat(file)
		switch {
		case errors.Is(err, os.ErrNotExist):
			missing = append(missing, file)
		case err != nil:
			return fileError("checkpoints.Open", err)
		case !info.Mode().IsRegular():
			return damaged(file, "is not a file")
		case info.Size() < bytes:
			short = append(short, fmt.Sprintf("%s has %d bytes of at least %d", file, info.Size(), bytes))
		}
	}
	slices.Sort(missing)
	slices.Sort(short)
	if len(missing) > 0 {
		return bridge.Errorf(bridge.NotFound, name, "%d of %d data files are missing: %s", len(missing), r.shards, someOf(missing))
	}
	if len(short) > 0 {
		return damaged(name, "data files are cut short: %s", someOf(short))
	}
	return nil
}

// Close closes the files. Tensors that were read live on.
func (r *Reader) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var all []error
	for _, f := range r.files {
		all = append(all, f.Close())
	}
	r.files = nil
	return errors.Join(all...)
}

// Prefix is the path that the checkpoint's files begin with.
func (r *Reader) Prefix() string {
	if r == nil {
		return ""
	}
	return r.prefix
}

// Shards is the number of data files.
func (r *Reader) Shards() int {
	if r == nil {
		return 0
	}
	return r.shards
}

// ObjectBased reports whether the checkpoint was written by tf.train.Checkpoint,
// Keras or a TensorFlow 2 SavedModel, and so knows objects beside names.
func (r *Reader) ObjectBased() bool { return r != nil && r.objects != nil }

// Entries are the checkpoint's tensors, sorted by key, without the graph of
// objects that an object-based checkpoint has beside them.
func (r *Reader) Entries() []Entry {
	if r == nil {
		return nil
	}
	all := make([]Entry, 0, len(r.entries))
	for _, e := range r.entries {
		if e.Key != objectGraphKey {
			all = append(all, e.copy())
		}
	}
	return all
}

func (e *Entry) copy() Entry {
	c := *e
	c.Shape = slices.Clone(c.Shape)
	return c
}

// byKey finds an entry by the name in the file.
func (r *Reader) byKey(key string) *Entry {
	i, found := slices.BinarySearchFunc(r.entries, key, func(e *Entry, key string) int { return strings.Compare(e.Key, key) })
	if !found {
		return nil
	}
	return r.entries[i]
}

// Find finds a tensor by its name: the key, the path of an object from the root
// ("model/layers/0/kernel", by any way that leads to it), or Python's name of the
// variable ("dense/kernel"), in this order.
//
// Errors: ErrNotFound, with the names nearest to it; ErrInvalidArgument for a
// name that several variables have, with their keys.
func (r *Reader) Find(name string) (Entry, error) {
	e, err := r.find(name)
	if err != nil {
		return Entry{}, err
	}
	return e.copy(), nil
}

func (r *Reader) find(name string) (*Entry, error) {
	const op = "checkpoints.Find"
	if r == nil {
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "the reader is nil")
	}
	if e := r.byKey(name); e != nil {
		return e, nil
	}
	if e := r.byKey(name + valueSuffix); e != nil {
		return e, nil
	}
	if r.objects != nil {
		if e := r.byKey(r.objects.keyAt(name)); e != nil {
			return e, nil
		}
		switch keys := r.objects.byFullName[name]; {
		case len(keys) == 1:
			if e := r.byKey(keys[0]); e != nil {
				return e, nil
			}
		case len(keys) > 1:
			return nil, bridge.Errorf(bridge.InvalidArgument, op, "%s: %d variables are called %q: %s", r.prefix, len(keys), name, someOf(keys))
		}
	}
	return nil, bridge.Errorf(bridge.NotFound, op, "%s has no %q; %s", r.prefix, name, nearest(name, r.allNames()))
}

// allNames are the names that entries are known by, each once.
func (r *Reader) allNames() []string {
	var names []string
	for _, e := range r.entries {
		if e.Key == objectGraphKey {
			continue
		}
		names = append(names, e.Name)
		if e.FullName != e.Name {
			names = append(names, e.FullName)
		}
	}
	return names
}

// Read reads a tensor, found by name as [Reader.Find] does, and checks its
// checksum. The caller closes it.
//
// Errors beside those of Find: ErrDataLoss, with the file and the place in it,
// when what is there is not what was written; ErrUnimplemented for data types
// that are no plain elements.
func (r *Reader) Read(name string) (*bridge.Tensor, error) {
	e, err := r.find(name)
	if err != nil {
		return nil, err
	}
	return r.read(e)
}

func (r *Reader) read(e *Entry) (*bridge.Tensor, error) {
	if e.DType == tf.String {
		return r.readStrings(e)
	}
	if bridge.DTypeSize(e.DType) == 0 {
		return nil, bridge.Errorf(bridge.Unimplemented, "checkpoints.Read", "%s: tensors of %s are not read", e.Key, bridge.DTypeName(e.DType))
	}
	t, err := bridge.NewTensor(e.DType, e.Shape)
	if err != nil {
		return nil, err
	}
	if err := r.fill(t, e); err != nil {
		_ = t.Close()
		return nil, err
	}
	return t, nil
}

// fill reads an entry's elements into its tensor.
func (r *Reader) fill(t *bridge.Tensor, e *Entry) error {
	whole, err := t.Bytes()
	if err != nil {
		return err
	}
	for _, p := range e.pieces {
		part := whole
		if p.extents != nil {
			part = make([]byte, p.size)
		}
		if err := r.readPiece(part, e, p); err != nil {
			return err
		}
		if p.extents != nil {
			place(whole, e.Shape, part, p.extents, int64(bridge.DTypeSize(e.DType)))
		}
	}
	return nil
}

// readPiece reads bytes and checks them.
func (r *Reader) readPiece(into []byte, e *Entry, p piece) error {
	file, err := r.data(p.shard)
	if err != nil {
		return err
	}
	// In parts, so that what is summed is still in the cache.
	crc, offset := uint32(0), p.offset
	for part := range slices.Chunk(into, 1<<18) {
		if _, err := file.ReadAt(part, offset); err != nil {
			return r.readError(e, p, err)
		}
		crc = crc32.Update(crc, castagnoli, part)
		offset += int64(len(part))
	}
	return r.checkSum(e, p, crc)
}

func (r *Reader) readError(e *Entry, p piece, err error) error {
	if errors.Is(err, io.EOF) {
		return damaged(dataName(r.prefix, int(p.shard), r.shards), "%s: the file ends within its %d bytes at byte %d", e.Key, p.size, p.offset)
	}
	return fileError(e.Key, err)
}

func (r *Reader) checkSum(e *Entry, p piece, crc uint32) error {
	if got := masked(crc); got != p.crc {
		return damaged(dataName(r.prefix, int(p.shard), r.shards), "%s is damaged: the checksum of its %d bytes at byte %d is %08x, and %08x was written", e.Key, p.size, p.offset, got, p.crc)
	}
	return nil
}

// data is the opened data file.
func (r *Reader) data(shard int32) (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, &bridge.Error{Code: bridge.FailedPrecondition, Op: "checkpoints.Read", Message: "reader used after Close", Err: bridge.ErrClosed}
	}
	if f := r.files[shard]; f != nil {
		return f, nil
	}
	f, err := os.Open(dataName(r.prefix, int(shard), r.shards))
	if err != nil {
		return nil, fileError("checkpoints.Read", err)
	}
	r.files[shard] = f
	return f, nil
}

func (r *Reader) readStrings(e *Entry) (*bridge.Tensor, error) {
	p := e.pieces[0]
	file, err := r.data(p.shard)
	if err != nil {
		return nil, err
	}
	// A piece's size was held against the file's, which may have shrunk since.
	data := make([]byte, p.size)
	if _, err := file.ReadAt(data, p.offset); err != nil {
		return nil, r.readError(e, p, err)
	}
	elements, _ := e.Shape.NumElements()
	values, crc, err := decodeStrings(data, elements)
	if err != nil {
		return nil, damaged(dataName(r.prefix, int(p.shard), r.shards), "%s, %d bytes at byte %d: %w", e.Key, p.size, p.offset, err)
	}
	if err := r.checkSum(e, p, crc); err != nil {
		return nil, err
	}
	return bridge.FromStrings(e.Shape, values)
}

// decodeStrings takes apart a string tensor: the lengths as varints, a checksum
// of the lengths as fixed numbers, the strings. crc is the checksum of all.
func decodeStrings(data []byte, n int64) (values []string, crc uint32, err error) {
	lengths := make([]uint64, n)
	rest, total := data, uint64(0)
	for i := range lengths {
		length, size := binary.Uvarint(rest)
		if size <= 0 || length > uint64(len(data)) {
			return nil, 0, fmt.Errorf("the length of string %d of %d is damaged", i, n)
		}
		lengths[i], rest = length, rest[size:]
		total += length
		crc = crc32.Update(crc, castagnoli, lengthBytes(length))
	}
	if len(rest) < 4 || total != uint64(len(rest)-4) {
		return nil, 0, errors.New("the lengths of its strings are damaged")
	}
	if got, want := masked(crc), binary.LittleEndian.Uint32(rest); got != want {
		return nil, 0, fmt.Errorf("the lengths of its strings are damaged: their checksum is %08x, and %08x was written", got, want)
	}
	crc = crc32.Update(crc, castagnoli, rest)
	rest = rest[4:]
	values = make([]string, n)
	for i, length := range lengths {
		values[i], rest = string(rest[:length]), rest[length:]
	}
	return values, crc, nil
}

// lengthBytes is a string's length as it enters the checksum: four bytes, eight
// when it needs them.
func lengthBytes(length uint64) []byte {
	if length <= math.MaxUint32 {
		return binary.LittleEndian.AppendUint32(nil, uint32(length))
	}
	return binary.LittleEndian.AppendUint64(nil, length)
}

// Verify reads everything, a megabyte at a time, and checks that it is what was
// written. The error lists the tensors that are damaged, each with the file and
// the place in it.
func (r *Reader) Verify(ctx context.Context) error {
	if r == nil {
		return bridge.Errorf(bridge.InvalidArgument, "checkpoints.Verify", "the reader is nil")
	}
	var all []error
	buffer := make([]byte, 1<<20)
	for _, e := range r.entries {
		for _, p := range e.pieces {
			if err := r.verify(ctx, e, p, buffer); err != nil {
				all = append(all, err)
			}
			if ctx.Err() != nil {
				return bridge.Errorf(bridge.Canceled, "checkpoints.Verify", "stopped: %w", ctx.Err())
			}
		}
	}
	return errors.Join(all...)
}

func (r *Reader) verify(ctx context.Context, e *Entry, p piece, buffer []byte) error {
	if e.DType == tf.String {
		t, err := r.readStrings(e)
		if err == nil {
			_ = t.Close()
		}
		return err
	}
	file, err := r.data(p.shard)
	if err != nil {
		return err
	}
	crc := uint32(0)
	for at := int64(0); at < p.size && ctx.Err() == nil; {
		part := buffer[:min(int64(len(buffer)), p.size-at)]
		if _, err := file.ReadAt(part, p.offset+at); err != nil {
			return r.readError(e, p, err)
		}
		crc = crc32.Update(crc, castagnoli, part)
		at += int64(len(part))
	}
	if ctx.Err() != nil {
		return nil // Verify says so
	}
	return r.checkSum(e, p, crc)
}

// fileError is an error of the file system with a code.
func fileError(op string, err error) error {
	code := bridge.Unknown
	switch {
	case errors.Is(err, os.ErrNotExist):
		code = bridge.NotFound
	case errors.Is(err, os.ErrExist):
		code = bridge.AlreadyExists
	case errors.Is(err, os.ErrPermission):
		code = bridge.PermissionDenied
	}
	return bridge.Errorf(code, op, "%w", err)
}
