package bridge

// #include <stdlib.h>
// #include "run.h"
import "C"

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/cgo"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// Tensor is a TF_Tensor: an array of one data type and a fixed shape, in memory
// that Go's collector does not see. Whoever makes one, or takes one out of a
// run, closes it.
//
// A tensor may be fed to many runs at once, and closed while runs that were
// given it are still going: the memory is freed when the last of them is done.
// After Close, whatever reads its elements gives an error that matches
// ErrClosed, and DType, Shape, Rank, NumElements and ByteSize give 0, nil, -1,
// 0 and 0.
//
// Memory of a tensor that was forgotten is freed when Go collects it, but only
// if no view of it (Flat, Bytes) was ever given out: a view doesn't keep the
// tensor alive, and to free memory under a view would be worse than to leak it.
type Tensor struct {
	b     *buffer
	owner *Outputs // keeps the outputs that b belongs to alive; nil for tensors of their own
}

// buffer is what a Tensor refers to. It is an object of its own so that the
// cleanup of a forgotten Tensor can still reach it.
type buffer struct {
	state  atomic.Int64 // 2 × references, +1 once closed
	viewed atomic.Bool
	id     uint64 // of its entry in the leak report, 0 without one

	// Below here: written before the state makes the buffer readable.
	c     *C.TF_Tensor
	dt    tf.DataType
	shape Shape
	data  unsafe.Pointer
	n     int64 // elements
	size  int64 // bytes, as TensorFlow counts them
}

const (
	bufferClosed = 1
	bufferRef    = 2
	bufferOpen   = bufferRef // open, and only its owner refers to it
)

var (
	liveTensors atomic.Int64
	liveBytes   atomic.Int64
)

// Live is the number of tensors that are not freed yet, and the bytes they take
// (for strings: of the headers alone). Tensors that borrow Go memory, and those
// that outputs hold, count as well.
func Live() (tensors int, bytes int64) {
	return int(liveTensors.Load()), liveBytes.Load()
}

// acquire is a reference for reading, to be given back by release.
func (t *Tensor) acquire(op string) (*buffer, error) {
	if t == nil || t.b == nil {
		return nil, invalid(op, "the tensor is nil")
	}
	if !t.b.retain() {
		return nil, closedError(op, "tensor")
	}
	return t.b, nil
}

func (b *buffer) retain() bool {
	for {
		s := b.state.Load()
		if s&bufferClosed != 0 || s < bufferRef {
			return false
		}
		if b.state.CompareAndSwap(s, s+bufferRef) {
			return true
		}
	}
}

func (b *buffer) release() {
	if b.state.Add(-bufferRef) < bufferRef {
		b.free()
	}
}

// close drops the owner's reference, once.
func (b *buffer) close() {
	for {
		s := b.state.Load()
		if s&bufferClosed != 0 {
			return
		}
		if b.state.CompareAndSwap(s, s|bufferClosed) {
			b.release()
			return
		}
	}
}

func (b *buffer) free() {
	C.TF_DeleteTensor(b.c)
	b.c, b.data = nil, nil
	liveTensors.Add(-1)
	liveBytes.Add(-b.size)
	if b.id != 0 {
		forget(b.id)
		b.id = 0
	}
	b.viewed.Store(false)
	b.state.Store(bufferIdle)
}

// fill takes what C told of a tensor. The buffer becomes readable when the
// caller sets its state.
func (b *buffer) fill(v *C.sluice_value) {
	b.c = v.tensor
	b.dt = tf.DataType(v.dtype)
	b.data = v.data
	b.n = int64(v.elements)
	b.size = int64(v.bytes)
	rank := int(v.rank)
	if b.shape == nil {
		b.shape = make(Shape, 0, rank) // a nil Shape would be of unknown rank
	}
	if rank <= C.SLUICE_DIMS {
		dims := unsafe.Slice((*int64)(unsafe.Pointer(&v.dims[0])), rank)
		b.shape = append(b.shape[:0], dims...)
		return
	}
	b.shape = slices.Grow(b.shape[:0], rank)[:rank]
	C.sluice_dims(v.tensor, (*C.int64_t)(unsafe.SliceData(b.shape)))
}

// ownTensor makes the Tensor that owns c.
func ownTensor(c *C.TF_Tensor) *Tensor {
	var v C.sluice_value
	C.sluice_describe(c, &v)
	b := new(buffer)
	b.fill(&v)
	return newTensor(b)
}

func newTensor(b *buffer) *Tensor {
	liveTensors.Add(1)
	liveBytes.Add(b.size)
	if verifyLeaks {
		b.id = remember(b)
	}
	b.state.Store(bufferOpen)
	t := &Tensor{b: b}
	t.catch()
	return t
}

// catch frees the tensor when it is forgotten.
func (t *Tensor) catch() {
	runtime.AddCleanup(t, func(b *buffer) {
		if !b.viewed.Load() {
			b.close()
		}
	}, t.b)
}

// adopt makes a tensor of outputs, which they have let go of, one of its own.
func (t *Tensor) adopt() {
	t.owner = nil
	if !t.b.retain() {
		return
	}
	defer t.b.release()
	if verifyLeaks {
		t.b.id = remember(t.b)
	}
	t.catch()
}

// notFinite tells where the first NaN or infinity is; "" where there is none, and
// for data types that have none.
func (b *buffer) notFinite() string {
	look := func(at int64, v float64) string {
		if v-v == 0 {
			return ""
		}
		return fmt.Sprintf("element %d of %s %s is %v", at, DTypeName(b.dt), b.shape, v)
	}
	for i := range b.n {
		var problem string
		switch b.dt {
		case tf.Float:
			problem = look(i, float64(view[float32](b)[i]))
		case tf.Double:
			problem = look(i, view[float64](b)[i])
		case tf.Half:
			problem = look(i, float64(view[Half](b)[i].Float32()))
		case tf.Bfloat16:
			problem = look(i, float64(view[BFloat16](b)[i].Float32()))
		default:
			return ""
		}
		if problem != "" {
			return problem
		}
	}
	return ""
}

// allocate makes a tensor of n elements; the shape has been checked.
func allocate(op string, dt tf.DataType, shape Shape, n int64, zero bool) (*Tensor, error) {
	if layoutError != nil {
		return nil, layoutError
	}
	size := elementBytes(dt)
	flag := C.int(0)
	if zero {
		flag = 1
	}
	c := C.sluice_new_tensor(C.int(dt), (*C.int64_t)(unsafe.SliceData(shape)), C.int(len(shape)), C.size_t(n*size), flag)
	if c == nil {
		return nil, Errorf(ResourceExhausted, op, "no memory for a tensor of %s %s (%d bytes)", DTypeName(dt), shape, n*size)
	}
	return ownTensor(c), nil
}

// elementBytes is what an element takes in a tensor: for a string its header.
func elementBytes(dt tf.DataType) int64 {
	if dt == tf.String {
		return C.sizeof_TF_TString
	}
	return int64(DTypeSize(dt))
}

func checkCount(op string, shape Shape, n int64, got int) error {
	if int64(got) != n {
		return invalid(op, "shape %s has %d elements, got %d", shape, n, got)
	}
	return nil
}

// NewTensor is a tensor of zeros (false, empty strings) of any data type but
// resource and variant. Fill it through Flat.
func NewTensor(dt tf.DataType, shape Shape) (*Tensor, error) {
	const op = "NewTensor"
	if elementBytes(dt) == 0 {
		return nil, invalid(op, "%s is not a data type that a tensor can be made of", DTypeName(dt))
	}
	n, err := checkDims(op, shape, int(elementBytes(dt)))
	if err != nil {
		return nil, err
	}
	return allocate(op, dt, shape, n, true)
}

// FromFlat copies data, in row-major order, into a new tensor of the shape; a
// nil shape is a scalar's. The data type follows from T (DTypeOf).
func FromFlat[T Element](shape Shape, data []T) (*Tensor, error) {
	const op = "FromFlat"
	n, err := checkDims(op, shape, int(unsafe.Sizeof(*new(T))))
	if err == nil {
		err = checkCount(op, shape, n, len(data))
	}
	if err != nil {
		return nil, err
	}
	t, err := allocate(op, DTypeOf[T](), shape, n, false)
	if err != nil {
		return nil, err
	}
	copy(view[T](t.b), data)
	return t, nil
}

// Scalar is a tensor of rank 0.
func Scalar[T Element](v T) (*Tensor, error) {
	t, err := allocate("Scalar", DTypeOf[T](), Shape{}, 1, false)
	if err != nil {
		return nil, err
	}
	view[T](t.b)[0] = v
	return t, nil
}

// FromBytes copies the elements' bytes, in this machine's byte order and
// row-major, into a new tensor of a data type of fixed size. For bool every
// byte but 0 is true.
func FromBytes(dt tf.DataType, shape Shape, data []byte) (*Tensor, error) {
	const op = "FromBytes"
	size := DTypeSize(dt)
	if size == 0 {
		return nil, invalid(op, "%s has no elements of fixed size", DTypeName(dt))
	}
	n, err := checkDims(op, shape, size)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != n*int64(size) {
		return nil, invalid(op, "shape %s of %s has %d bytes, got %d", shape, DTypeName(dt), n*int64(size), len(data))
	}
	t, err := allocate(op, dt, shape, n, false)
	if err != nil {
		return nil, err
	}
	to := t.b.bytes()
	copy(to, data)
	if dt == tf.Bool {
		for i, b := range to {
			if b > 1 {
				to[i] = 1
			}
		}
	}
	return t, nil
}

// FromStrings copies strings, in row-major order, into a new string tensor. They
// may hold any bytes, NUL included.
func FromStrings(shape Shape, data []string) (*Tensor, error) {
	const op = "FromStrings"
	n, err := checkDims(op, shape, C.sizeof_TF_TString)
	if err == nil {
		err = checkCount(op, shape, n, len(data))
	}
	if err != nil {
		return nil, err
	}
	t, err := allocate(op, tf.String, shape, n, true)
	if err != nil {
		return nil, err
	}
	for i, s := range data {
		if s != "" {
			C.sluice_set_string(t.b.data, C.int64_t(i), (*C.char)(unsafe.Pointer(unsafe.StringData(s))), C.size_t(len(s)))
		}
	}
	return t, nil
}

// Borrow is a tensor on Go's own memory: data is pinned, not copied, until
// TensorFlow drops its last reference, which can be after Close while a run
// holds it. Don't write to data while a run may read it.
//
// TensorFlow wants memory aligned to 64 bytes (AlignedSlice has it). Of other
// memory it makes a copy, once, here: what is written to data later is then not
// seen. Borrowed tells which it was.
func Borrow[T Element](shape Shape, data []T) (*Tensor, error) {
	const op = "Borrow"
	size := int(unsafe.Sizeof(*new(T)))
	n, err := checkDims(op, shape, size)
	if err == nil {
		err = checkCount(op, shape, n, len(data))
	}
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return allocate(op, DTypeOf[T](), shape, 0, false)
	}
	if layoutError != nil {
		return nil, layoutError
	}
	at := unsafe.Pointer(unsafe.SliceData(data))
	pin := new(runtime.Pinner)
	pin.Pin(at)
	c := C.sluice_borrow_tensor(C.int(DTypeOf[T]()), (*C.int64_t)(unsafe.SliceData(shape)), C.int(len(shape)),
		at, C.size_t(n*int64(size)), C.uintptr_t(cgo.NewHandle(pin)))
	return ownTensor(c), nil
}

//export sluiceUnpin
func sluiceUnpin(handle C.uintptr_t) {
	h := cgo.Handle(handle)
	h.Value().(*runtime.Pinner).Unpin()
	h.Delete()
}

// Borrowed tells whether the tensor's elements are data itself, not a copy.
func Borrowed[T Element](t *Tensor, data []T) bool {
	b, err := t.acquire("Borrowed")
	if err != nil {
		return false
	}
	defer b.release()
	return b.data == unsafe.Pointer(unsafe.SliceData(data))
}

// AlignedSlice is a slice of n zeros on memory aligned to 64 bytes, which Borrow
// need not copy; nil when n is negative or too large.
func AlignedSlice[T Element](n int) []T {
	const alignment = 64
	size := int(unsafe.Sizeof(*new(T)))
	if n < 0 || n > (math.MaxInt-alignment)/size {
		return nil
	}
	// alignment is a multiple of every element's size, and the allocator aligns
	// to the element's at least.
	all := make([]T, n+alignment/size)
	past := int(uintptr(unsafe.Pointer(unsafe.SliceData(all))) % alignment)
	if past == 0 {
		return all[:n:n]
	}
	skip := (alignment - past) / size
	return all[skip : skip+n : skip+n]
}

func view[T Element](b *buffer) []T {
	if b.n == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(b.data), b.n)
}

func (b *buffer) bytes() []byte {
	if b.n == 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(b.data), b.n*int64(DTypeSize(b.dt)))
}

func checkElement[T Element](op string, b *buffer) error {
	if want := DTypeOf[T](); b.dt != want {
		return invalid(op, "the tensor's elements are %s, not %s", DTypeName(b.dt), DTypeName(want))
	}
	return nil
}

// Flat is a view of the elements in row-major order: no copy, writable, valid
// until the tensor is closed (for an output of a run: until the outputs' next
// run or Close). T must be the data type's own Go type. Write only to tensors
// that you have made, and not while a run may read them; the memory of what a
// run gave may be a variable's own.
func Flat[T Element](t *Tensor) ([]T, error) {
	b, err := t.acquire("Flat")
	if err != nil {
		return nil, err
	}
	defer b.release()
	if err := checkElement[T]("Flat", b); err != nil {
		return nil, err
	}
	b.viewed.Store(true)
	return view[T](b), nil
}

// Values is a copy of the elements in row-major order, which outlives the
// tensor.
func Values[T Element](t *Tensor) ([]T, error) {
	b, err := t.acquire("Values")
	if err != nil {
		return nil, err
	}
	defer b.release()
	if err := checkElement[T]("Values", b); err != nil {
		return nil, err
	}
	return append(make([]T, 0, b.n), view[T](b)...), nil
}

// Item is the one element of a tensor that has one, of whatever rank.
func Item[T Element](t *Tensor) (T, error) {
	var none T
	b, err := t.acquire("Item")
	if err != nil {
		return none, err
	}
	defer b.release()
	if err := checkElement[T]("Item", b); err != nil {
		return none, err
	}
	if b.n != 1 {
		return none, invalid("Item", "the tensor has %d elements (shape %s), not one", b.n, b.shape)
	}
	return view[T](b)[0], nil
}

// Bytes is a view of the elements' bytes, as Flat.
func (t *Tensor) Bytes() ([]byte, error) {
	b, err := t.acquire("Bytes")
	if err != nil {
		return nil, err
	}
	defer b.release()
	if DTypeSize(b.dt) == 0 {
		return nil, invalid("Bytes", "%s has no elements of fixed size", DTypeName(b.dt))
	}
	b.viewed.Store(true)
	return b.bytes(), nil
}

// Strings is a copy of a string tensor's elements in row-major order.
func (t *Tensor) Strings() ([]string, error) {
	b, err := t.acquire("Strings")
	if err != nil {
		return nil, err
	}
	defer b.release()
	if b.dt != tf.String {
		return nil, invalid("Strings", "the tensor's elements are %s, not string", DTypeName(b.dt))
	}
	return b.strings(), nil
}

func (b *buffer) strings() []string {
	const chunk = 128
	var (
		all   = make([]string, 0, b.n)
		at    [chunk]*C.char
		sizes [chunk]C.size_t
	)
	for first := int64(0); first < b.n; first += chunk {
		n := min(chunk, b.n-first)
		C.sluice_get_strings(b.data, C.int64_t(first), C.int(n), &at[0], &sizes[0])
		for i := range n {
			all = append(all, strings.Clone(unsafe.String((*byte)(unsafe.Pointer(at[i])), int(sizes[i]))))
		}
	}
	return all
}

// DType is the data type of the elements; 0 after Close.
func (t *Tensor) DType() tf.DataType {
	b, err := t.acquire("DType")
	if err != nil {
		return 0
	}
	defer b.release()
	return b.dt
}

// Shape is a copy of the tensor's shape, all dimensions known; nil after Close.
func (t *Tensor) Shape() Shape {
	b, err := t.acquire("Shape")
	if err != nil {
		return nil
	}
	defer b.release()
	return append(make(Shape, 0, len(b.shape)), b.shape...)
}

// Rank is the number of dimensions, 0 for a scalar; -1 after Close.
func (t *Tensor) Rank() int {
	b, err := t.acquire("Rank")
	if err != nil {
		return -1
	}
	defer b.release()
	return len(b.shape)
}

// NumElements is how many elements there are; 0 after Close.
func (t *Tensor) NumElements() int64 {
	b, err := t.acquire("NumElements")
	if err != nil {
		return 0
	}
	defer b.release()
	return b.n
}

// ByteSize is how many bytes the elements take, for strings their headers
// alone; 0 after Close.
func (t *Tensor) ByteSize() int64 {
	b, err := t.acquire("ByteSize")
	if err != nil {
		return 0
	}
	defer b.release()
	return b.size
}

// String tells data type and shape, such as "float32 [2,3]".
func (t *Tensor) String() string {
	b, err := t.acquire("String")
	if err != nil {
		return "tensor (closed)"
	}
	defer b.release()
	return DTypeName(b.dt) + " " + b.shape.String()
}

// Clone is a tensor of its own with the same elements.
func (t *Tensor) Clone() (*Tensor, error) {
	b, err := t.acquire("Clone")
	if err != nil {
		return nil, err
	}
	defer b.release()
	switch {
	case b.dt == tf.String:
		return FromStrings(b.shape, b.strings())
	case DTypeSize(b.dt) == 0:
		return nil, Errorf(Unimplemented, "Clone", "a tensor of %s can't be copied", DTypeName(b.dt))
	}
	to, err := allocate("Clone", b.dt, b.shape, b.n, false)
	if err != nil {
		return nil, err
	}
	copy(to.b.bytes(), b.bytes())
	return to, nil
}

// Close frees the tensor, once no run uses it. A second Close, and that of a nil
// tensor, do nothing. The error is always nil; it is there for io.Closer.
func (t *Tensor) Close() error {
	if t != nil && t.b != nil {
		t.b.close()
	}
	return nil
}

// TF is a tensor of the binding's on the same memory, for use with its own
// session and wrappers; strings are copied. It lives until Go collects it, also
// after Close of this one.
func (t *Tensor) TF() (*tf.Tensor, error) {
	b, err := t.acquire("TF")
	if err != nil {
		return nil, err
	}
	defer b.release()
	c, err := share("TF", b)
	if err != nil {
		return nil, err
	}
	return wrapTensor(c, slices.Clone(b.shape)), nil
}

// FromTF is a tensor on the same memory as the binding's; strings are copied. It
// is closed like any other, and lives on when the binding's is collected.
func FromTF(from *tf.Tensor) (*Tensor, error) {
	if layoutError != nil {
		return nil, layoutError
	}
	c := cTensor(from)
	if c == nil {
		return nil, invalid("FromTF", "the tensor is nil")
	}
	defer runtime.KeepAlive(from)
	var v C.sluice_value
	C.sluice_describe(c, &v)
	var b buffer
	b.fill(&v)
	shared, err := share("FromTF", &b)
	if err != nil {
		return nil, err
	}
	return ownTensor(shared), nil
}

// share makes another TF_Tensor of what b holds.
func share(op string, b *buffer) (*C.TF_Tensor, error) {
	if b.dt == tf.String {
		t, err := FromStrings(b.shape, b.strings())
		if err != nil {
			return nil, err
		}
		return t.b.disown(), nil
	}
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	c := C.sluice_share_tensor(b.c, status)
	if c == nil {
		return nil, statusError(status, op)
	}
	return c, nil
}

// disown gives up the TF_Tensor of a buffer that nobody else knows of.
func (b *buffer) disown() *C.TF_Tensor {
	c := b.c
	b.c = nil
	b.close() // TF_DeleteTensor(NULL) does nothing
	return c
}

// ToFloat32 copies the elements of any real numeric data type to float32,
// rounding float64 and large integers. Bool counts as 0 and 1, quantized types
// by their integers.
func ToFloat32(t *Tensor) ([]float32, error) { return toFloat[float32]("ToFloat32", t) }

// ToFloat64 copies the elements of any real numeric data type to float64,
// rounding only integers beyond 2^53. Bool counts as 0 and 1, quantized types by
// their integers.
func ToFloat64(t *Tensor) ([]float64, error) { return toFloat[float64]("ToFloat64", t) }

func toFloat[F float32 | float64](op string, t *Tensor) ([]F, error) {
	b, err := t.acquire(op)
	if err != nil {
		return nil, err
	}
	defer b.release()
	switch b.dt {
	case tf.Float:
		return convertEach(b, func(v float32) F { return F(v) }), nil
	case tf.Double:
		return convertEach(b, func(v float64) F { return F(v) }), nil
	case tf.Half:
		return convertEach(b, func(v Half) F { return F(v.Float32()) }), nil
	case tf.Bfloat16:
		return convertEach(b, func(v BFloat16) F { return F(v.Float32()) }), nil
	case Float8E5M2:
		return convertEach(b, func(v F8E5M2) F { return F(v.Float32()) }), nil
	case Float8E4M3FN:
		return convertEach(b, func(v F8E4M3FN) F { return F(v.Float32()) }), nil
	case Float8E4M3FNUZ:
		return convertEach(b, func(v F8E4M3FNUZ) F { return F(v.Float32()) }), nil
	case Float8E4M3B11FNUZ:
		return convertEach(b, func(v F8E4M3B11FNUZ) F { return F(v.Float32()) }), nil
	case Float8E5M2FNUZ:
		return convertEach(b, func(v F8E5M2FNUZ) F { return F(v.Float32()) }), nil
	case tf.Bool:
		return convertEach(b, func(v uint8) F { return F(min(v, 1)) }), nil
	case tf.Int8, tf.Qint8:
		return convertEach(b, func(v int8) F { return F(v) }), nil
	case tf.Uint8, tf.Quint8:
		return convertEach(b, func(v uint8) F { return F(v) }), nil
	case tf.Int16, tf.Qint16:
		return convertEach(b, func(v int16) F { return F(v) }), nil
	case tf.Uint16, tf.Quint16:
		return convertEach(b, func(v uint16) F { return F(v) }), nil
	case tf.Int32, tf.Qint32:
		return convertEach(b, func(v int32) F { return F(v) }), nil
	case tf.Uint32:
		return convertEach(b, func(v uint32) F { return F(v) }), nil
	case tf.Int64:
		return convertEach(b, func(v int64) F { return F(v) }), nil
	case tf.Uint64:
		return convertEach(b, func(v uint64) F { return F(v) }), nil
	case Int4:
		return convertEach(b, func(v I4) F { return F(v.Int8()) }), nil
	case Uint4:
		return convertEach(b, func(v uint8) F { return F(v & 15) }), nil
	case Int2:
		return convertEach(b, func(v I2) F { return F(v.Int8()) }), nil
	case Uint2:
		return convertEach(b, func(v uint8) F { return F(v & 3) }), nil
	}
	return nil, invalid(op, "elements of %s are not real numbers", DTypeName(b.dt))
}

func convertEach[T any, F float32 | float64](b *buffer, value func(T) F) []F {
	to := make([]F, b.n)
	if b.n > 0 {
		for i, v := range unsafe.Slice((*T)(b.data), b.n) {
			to[i] = value(v)
		}
	}
	return to
}

// Leak is a tensor that is alive, and who made it.
type Leak struct {
	DType tf.DataType
	Shape Shape
	Stack string // of the call that made it, innermost first
}

// String is data type, shape and stack.
func (l Leak) String() string {
	return fmt.Sprintf("%s %s made at\n%s", DTypeName(l.DType), l.Shape, l.Stack)
}

var (
	verifyLeaks   = verifies("leaks")
	verifyNumbers = verifies("nan")

	leaks = struct {
		sync.Mutex
		last uint64
		made map[uint64]leakRecord
	}{made: map[uint64]leakRecord{}}
)

type leakRecord struct {
	dt    tf.DataType
	shape Shape
	stack []uintptr
}

// verifies tells whether the environment variable SLUICE_VERIFY, a list such as
// "leaks,nan", has the word or "all".
func verifies(what string) bool {
	for word := range strings.SplitSeq(os.Getenv("SLUICE_VERIFY"), ",") {
		if word = strings.TrimSpace(word); word == what || word == "all" {
			return true
		}
	}
	return false
}

func remember(b *buffer) uint64 {
	stack := make([]uintptr, 32)
	stack = stack[:runtime.Callers(3, stack)]
	leaks.Lock()
	defer leaks.Unlock()
	leaks.last++
	leaks.made[leaks.last] = leakRecord{b.dt, slices.Clone(b.shape), stack}
	return leaks.last
}

func forget(id uint64) {
	leaks.Lock()
	defer leaks.Unlock()
	delete(leaks.made, id)
}

// Leaks lists the tensors that are alive, oldest first, each with the stack of
// the call that made it. The stacks are kept only in a process started with the
// environment variable SLUICE_VERIFY=all (or "leaks"); without it the list is
// empty, whatever Live says. Tensors that outputs hold are not listed.
func Leaks() []Leak {
	leaks.Lock()
	defer leaks.Unlock()
	ids := make([]uint64, 0, len(leaks.made))
	for id := range leaks.made {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	all := make([]Leak, len(ids))
	for i, id := range ids {
		r := leaks.made[id]
		var stack strings.Builder
		frames := runtime.CallersFrames(r.stack)
		for {
			f, more := frames.Next()
			fmt.Fprintf(&stack, "  %s\n    %s:%d\n", f.Function, f.File, f.Line)
			if !more {
				break
			}
		}
		all[i] = Leak{r.dt, r.shape, stack.String()}
	}
	return all
}
