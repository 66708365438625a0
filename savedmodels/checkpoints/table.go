package checkpoints

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
)

// The index of a checkpoint is a sorted string table in LevelDB's format: blocks
// of entries whose keys share prefixes, each block followed by a byte for its
// compression and a checksum; a block that says where the blocks are; a footer.
const (
	tableMagic    = 0xdb4775248b80fb57
	footerSize    = 48
	trailerSize   = 5
	blockTarget   = 64 << 10 // bytes after which a new block begins
	restartEvery  = 16       // entries after which a key is written whole
	maxBlock      = 256 << 20
	maxKey        = 1 << 20
	maxExpansion  = 256 // bytes of keys to a byte of file
	crcDifference = 0xa282ead8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is how the format stores a CRC-32C, so that checksums of data that has
// checksums in it stay good ones.
func masked(crc uint32) uint32 { return (crc>>15 | crc<<17) + crcDifference }

// tableEntry is a key and its value.
type tableEntry struct {
	key   string
	value []byte
}

// tableEntries goes through a table of the given size in the order of its keys.
// What the table asks for is bounded by its size. The values are valid until the
// next step. An error, with where it is in the file, ends the sequence.
func tableEntries(file io.ReaderAt, size int64) iter.Seq2[tableEntry, error] {
	return func(yield func(tableEntry, error) bool) {
		index, err := readFooter(file, size)
		if err != nil {
			yield(tableEntry{}, err)
			return
		}
		left := maxExpansion*size + 1<<20
		last, first := "", true
		blocks, err := readBlock(file, size, index)
		if err != nil {
			yield(tableEntry{}, fmt.Errorf("the block of blocks: %w", err))
			return
		}
		for at, err := range blockEntries(blocks, &left) {
			if err != nil {
				yield(tableEntry{}, fmt.Errorf("the block of blocks, at byte %d: %w", index.offset, err))
				return
			}
			handle, _, err := readHandle(at.value)
			var block []byte
			if err == nil {
				block, err = readBlock(file, size, handle)
			}
			if err != nil {
				yield(tableEntry{}, err)
				return
			}
			for e, err := range blockEntries(block, &left) {
				if err == nil && !first && e.key <= last {
					err = fmt.Errorf("key %q comes after %q", e.key, last)
				}
				if err != nil {
					yield(tableEntry{}, fmt.Errorf("the block at byte %d: %w", handle.offset, err))
					return
				}
				last, first = e.key, false
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// blockHandle says where a block is; its trailer follows.
type blockHandle struct{ offset, size int64 }

func readHandle(b []byte) (h blockHandle, rest []byte, err error) {
	offset, n := binary.Uvarint(b)
	if n <= 0 {
		return h, nil, errors.New("a block's place is cut short")
	}
	size, m := binary.Uvarint(b[n:])
	if m <= 0 {
		return h, nil, errors.New("a block's place is cut short")
	}
	if offset > 1<<62 || size > maxBlock {
		return h, nil, fmt.Errorf("a block of %d bytes at byte %d can't be", size, offset)
	}
	return blockHandle{int64(offset), int64(size)}, b[n+m:], nil
}

func readFooter(file io.ReaderAt, size int64) (index blockHandle, err error) {
	if size < footerSize {
		return index, fmt.Errorf("%d bytes are too few for an index: the file is cut short", size)
	}
	var footer [footerSize]byte
	if _, err := file.ReadAt(footer[:], size-footerSize); err != nil {
		return index, err
	}
	if binary.LittleEndian.Uint64(footer[footerSize-8:]) != tableMagic {
		return index, errors.New("its last bytes are not those of an index: the file is cut short, or is another kind of file")
	}
	extensions, rest, err := readHandle(footer[:footerSize-8])
	if err == nil {
		index, _, err = readHandle(rest)
	}
	if err != nil {
		return index, fmt.Errorf("the footer: %w", err)
	}
	// Nobody uses extensions, but a file that is damaged there may be elsewhere.
	_, err = readBlock(file, size, extensions)
	return index, err
}

// readBlock reads a block and checks its checksum.
func readBlock(file io.ReaderAt, size int64, h blockHandle) ([]byte, error) {
	if h.offset+h.size+trailerSize > size-footerSize {
		return nil, fmt.Errorf("a block of %d bytes at byte %d does not fit a file of %d", h.size, h.offset, size)
	}
	block := make([]byte, h.size+trailerSize)
	if _, err := file.ReadAt(block, h.offset); err != nil {
		return nil, err
	}
	body, trailer := block[:h.size], block[h.size:]
	crc := crc32.Checksum(block[:h.size+1], castagnoli)
	if want := binary.LittleEndian.Uint32(trailer[1:]); masked(crc) != want {
		return nil, fmt.Errorf("the block of %d bytes at byte %d is damaged: its checksum is %08x, and %08x was written", h.size, h.offset, masked(crc), want)
	}
	if trailer[0] != 0 {
		return nil, fmt.Errorf("the block at byte %d is compressed (kind %d), which checkpoints never are", h.offset, trailer[0])
	}
	return body, nil
}

// blockEntries goes through a block. left is how many bytes of keys may still be
// made, which it lowers.
func blockEntries(block []byte, left *int64) iter.Seq2[tableEntry, error] {
	return func(yield func(tableEntry, error) bool) {
		fail := func(format string, args ...any) { yield(tableEntry{}, fmt.Errorf(format, args...)) }
		if len(block) < 4 {
			fail("%d bytes are too few", len(block))
			return
		}
		restarts := int64(binary.LittleEndian.Uint32(block[len(block)-4:]))
		end := int64(len(block)) - 4 - 4*restarts
		if end < 0 {
			fail("%d restart points do not fit", restarts)
			return
		}
		var key []byte
		for rest := block[:end]; len(rest) > 0; {
			var numbers [3]uint64
			for i := range numbers {
				v, n := binary.Uvarint(rest)
				if n <= 0 {
					fail("an entry is cut short")
					return
				}
				numbers[i], rest = v, rest[n:]
			}
			shared, added, size := numbers[0], numbers[1], numbers[2]
			if shared > uint64(len(key)) || added > uint64(len(rest)) || size > uint64(len(rest))-added {
				fail("an entry is cut short")
				return
			}
			if shared+added > maxKey {
				fail("a name of %d bytes", shared+added)
				return
			}
			key = append(key[:shared], rest[:added]...)
			if *left -= int64(len(key)); *left < 0 {
				fail("the names are longer than a file of this size has")
				return
			}
			value := rest[added : added+size]
			rest = rest[added+size:]
			if !yield(tableEntry{string(key), value}, nil) {
				return
			}
		}
	}
}

// tableWriter writes a table. Keys must come in order.
type tableWriter struct {
	out     io.Writer
	written int64
	block   blockWriter
	blocks  blockWriter
	last    []byte
}

// blockWriter collects the entries of a block.
type blockWriter struct {
	data     []byte
	restarts []uint32
	count    int
	last     []byte
}

func (b *blockWriter) add(key, value []byte) {
	shared := 0
	if b.count%restartEvery == 0 {
		b.restarts = append(b.restarts, uint32(len(b.data)))
	} else {
		for shared < min(len(key), len(b.last)) && key[shared] == b.last[shared] {
			shared++
		}
	}
	b.data = binary.AppendUvarint(b.data, uint64(shared))
	b.data = binary.AppendUvarint(b.data, uint64(len(key)-shared))
	b.data = binary.AppendUvarint(b.data, uint64(len(value)))
	b.data = append(append(b.data, key[shared:]...), value...)
	b.last = append(b.last[:0], key...)
	b.count++
}

// finish is the block's bytes; the writer is then empty.
func (b *blockWriter) finish() []byte {
	if len(b.restarts) == 0 {
		b.restarts = []uint32{0}
	}
	for _, at := range b.restarts {
		b.data = binary.LittleEndian.AppendUint32(b.data, at)
	}
	data := binary.LittleEndian.AppendUint32(b.data, uint32(len(b.restarts)))
	*b = blockWriter{}
	return data
}

func (t *tableWriter) add(key, value []byte) error {
	if t.block.count > 0 && bytes.Compare(key, t.last) <= 0 {
		return fmt.Errorf("key %q does not come after %q", key, t.last)
	}
	if len(key) > maxKey {
		return fmt.Errorf("a name of %d bytes is longer than %d", len(key), maxKey)
	}
	t.block.add(key, value)
	t.last = append(t.last[:0], key...)
	if len(t.block.data) >= blockTarget {
		return t.flush()
	}
	return nil
}

// flush ends the block, if it has entries.
func (t *tableWriter) flush() error {
	if t.block.count == 0 {
		return nil
	}
	handle, err := t.put(t.block.finish())
	if err == nil {
		t.blocks.add(t.last, handle)
	}
	return err
}

// put writes a block with its trailer and returns its place.
func (t *tableWriter) put(block []byte) (handle []byte, err error) {
	handle = binary.AppendUvarint(nil, uint64(t.written))
	handle = binary.AppendUvarint(handle, uint64(len(block)))
	block = append(block, 0)
	block = binary.LittleEndian.AppendUint32(block, masked(crc32.Checksum(block, castagnoli)))
	n, err := t.out.Write(block)
	t.written += int64(n)
	return handle, err
}

// finish writes what is left.
func (t *tableWriter) finish() error {
	if err := t.flush(); err != nil {
		return err
	}
	var empty blockWriter
	extensions, err := t.put(empty.finish())
	if err != nil {
		return err
	}
	index, err := t.put(t.blocks.finish())
	if err != nil {
		return err
	}
	footer := make([]byte, footerSize)
	copy(footer, append(extensions, index...))
	binary.LittleEndian.PutUint64(footer[footerSize-8:], tableMagic)
	_, err = t.out.Write(footer)
	return err
}
