package checkpoints

import (
	"encoding/binary"
	"hash/crc32"
)

// SumAgain gives every block of an index that its footer leads to a checksum
// that fits, as far as that can be.
func SumAgain(table []byte) []byte {
	size := int64(len(table))
	sum := func(h blockHandle) bool {
		if h.offset+h.size+trailerSize > size-footerSize {
			return false
		}
		end := h.offset + h.size + 1
		table[end-1] = 0
		binary.LittleEndian.PutUint32(table[end:], masked(crc32.Checksum(table[h.offset:end], castagnoli)))
		return true
	}
	if size < footerSize {
		return table
	}
	extensions, rest, err := readHandle(table[size-footerSize:])
	index, _, err2 := readHandle(rest)
	if err != nil || err2 != nil || !sum(extensions) || !sum(index) {
		return table
	}
	left := int64(1 << 20)
	for e, err := range blockEntries(table[index.offset:index.offset+index.size], &left) {
		if err != nil {
			break
		}
		if h, _, err := readHandle(e.value); err == nil {
			sum(h)
		}
	}
	sum(index) // a block may lie over it
	return table
}
