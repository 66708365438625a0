package checkpoints

import (
	"encoding/binary"
	"fmt"
	"strings"

	slicepb "github.com/galeone/tensorflow/tensorflow/go/core/framework/tensor_slice_go_proto"

	"github.com/sluice-ml/sluice/bridge"
)

// A partitioned variable is one entry that describes the whole and lists slices,
// each of which has an entry of its own under a key made of the name and its
// extents. The keys begin with a zero byte, which no name does.

// extent is what a slice covers of one dimension.
type extent struct{ start, length int64 }

// extents are a slice's, with lengths instead of "all that is left".
func extents(s *slicepb.TensorSliceProto, shape bridge.Shape) ([]extent, error) {
	if len(s.GetExtent()) != len(shape) {
		return nil, fmt.Errorf("a slice of %d dimensions of a tensor of %d", len(s.GetExtent()), len(shape))
	}
	all := make([]extent, len(shape))
	for i, e := range s.GetExtent() {
		all[i] = extent{e.GetStart(), e.GetLength()}
		if _, given := e.GetHasLength().(*slicepb.TensorSliceProto_Extent_Length); !given || e.GetLength() < 0 {
			all[i] = extent{0, shape[i]}
		}
		if all[i].start < 0 || all[i].length > shape[i] || all[i].start > shape[i]-all[i].length {
			return nil, fmt.Errorf("a slice from %d of %d in dimension %d of %v", all[i].start, all[i].length, i, shape)
		}
	}
	return all, nil
}

// sliceKey is the key of a slice's entry: TensorFlow's order-preserving code of
// zero, the name, the rank, and start and length of each dimension, where -1
// stands for a whole dimension.
func sliceKey(name string, s *slicepb.TensorSliceProto) string {
	key := []byte{0}
	key = append(key, strings.NewReplacer("\x00", "\x00\xff", "\xff", "\xff\x00").Replace(name)...)
	key = append(key, 0, 1)
	key = appendOrdered(key, uint64(len(s.GetExtent())))
	for _, e := range s.GetExtent() {
		length := int64(-1)
		if _, given := e.GetHasLength().(*slicepb.TensorSliceProto_Extent_Length); given {
			length = e.GetLength()
		}
		key = appendOrderedSigned(appendOrderedSigned(key, e.GetStart()), length)
	}
	return string(key)
}

// appendOrdered appends a number as its count of bytes and the bytes, the
// largest first.
func appendOrdered(b []byte, v uint64) []byte {
	var buf [8]byte
	binary.BigEndian.PutUint64(buf[:], v)
	n := 8
	for n > 0 && buf[8-n] == 0 {
		n--
	}
	return append(append(b, byte(n)), buf[8-n:]...)
}

// appendOrderedSigned appends a signed number: n bytes hold 7n-1 bits and the
// sign; the leading bits count the bytes, ones for positive, zeros for negative
// numbers.
func appendOrderedSigned(b []byte, v int64) []byte {
	magnitude := uint64(v)
	if v < 0 {
		magnitude = ^magnitude
	}
	n := 1
	for n < 10 && (7*n-1 < 64) && magnitude>>(7*n-1) != 0 {
		n++
	}
	// Big-endian, sign-extended, then the length's bits flipped in from the front.
	buf := make([]byte, 10)
	if v < 0 {
		for i := range buf {
			buf[i] = 0xff
		}
	}
	binary.BigEndian.PutUint64(buf[2:], uint64(v))
	out := buf[10-n:]
	for i := range n {
		out[i/8] ^= 0x80 >> (i % 8)
	}
	return append(b, out...)
}

// place copies a slice's elements, which are whole rows of bytes, to where they
// belong in the whole tensor.
func place(whole []byte, shape bridge.Shape, part []byte, all []extent, size int64) {
	if len(part) == 0 {
		return
	}
	// Trailing dimensions that are covered whole are one run of bytes.
	run, d := size, len(shape)
	for d > 0 && all[d-1].length == shape[d-1] {
		d--
		run *= shape[d]
	}
	stride := make([]int64, d)
	step := run
	for i := d - 1; i >= 0; i-- {
		stride[i] = step
		step *= shape[i]
	}
	if d > 0 {
		run *= all[d-1].length
		d--
	}
	at := make([]int64, d)
	for {
		offset := int64(0)
		for i, e := range all[:len(stride)] {
			offset += e.start * stride[i]
		}
		for i, a := range at {
			offset += a * stride[i]
		}
		copy(whole[offset:offset+run], part)
		part = part[run:]
		i := d - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < all[i].length {
				break
			}
			at[i] = 0
		}
		if i < 0 {
			return
		}
	}
}
