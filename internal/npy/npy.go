// Package npy reads and writes NumPy's .npy and .npz files as tensors (format
// versions 1 to 3, numpy.lib.format).
//
// Numbers keep their type: float16 and bfloat16 (which NumPy stores as raw
// two-byte elements, '<V2') too. Fixed-width bytes (S) and text (U) become
// strings, trailing NULs dropped as NumPy does; strings are written as S. Arrays
// of Python objects are pickles, which are programs, and are refused.
//
// Nothing is allocated that the file does not hold: a header that promises more
// than there is is an error.
package npy

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

const magic = "\x93NUMPY"

// maxHeader bounds the text before the elements; NumPy's own are of 128 bytes,
// and it refuses more than 10,000 itself.
const maxHeader = 1 << 16

// numeric is the data types by NumPy's kind and size.
var numeric = map[string]tf.DataType{
	"b1": tf.Bool,
	"i1": tf.Int8, "i2": tf.Int16, "i4": tf.Int32, "i8": tf.Int64,
	"u1": tf.Uint8, "u2": tf.Uint16, "u4": tf.Uint32, "u8": tf.Uint64,
	"f2": tf.Half, "f4": tf.Float, "f8": tf.Double,
	"c8": tf.Complex64, "c16": tf.Complex128,
	"V2": tf.Bfloat16,
}

// Header is what a .npy says of its array.
type Header struct {
	Descr   string // NumPy's dtype, such as "<f4"
	Fortran bool   // the first index varies fastest
	Shape   bridge.Shape
}

var (
	descrField   = regexp.MustCompile(`['"]descr['"]\s*:\s*(?:'([^']*)'|"([^"]*)"|([^'"\s]))`)
	fortranField = regexp.MustCompile(`['"]fortran_order['"]\s*:\s*(True|False)`)
	shapeField   = regexp.MustCompile(`['"]shape['"]\s*:\s*\(([^)]*)\)`)
)

// ReadHeader reads up to the first element.
func ReadHeader(r io.Reader) (Header, error) {
	var h Header
	var start [8]byte
	if _, err := io.ReadFull(r, start[:]); err != nil || string(start[:6]) != magic {
		return h, errors.New("is not a .npy file: it does not begin with \"\\x93NUMPY\"")
	}
	var size int
	switch major := start[6]; major {
	case 1:
		var n [2]byte
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return h, cut(err)
		}
		size = int(binary.LittleEndian.Uint16(n[:]))
	case 2, 3:
		var n [4]byte
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return h, cut(err)
		}
		size = int(binary.LittleEndian.Uint32(n[:]))
	default:
		return h, fmt.Errorf(".npy format version %d is unknown; wanted 1, 2 or 3", major)
	}
	if size > maxHeader {
		return h, fmt.Errorf("the header claims %d bytes; NumPy's have about 128", size)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return h, cut(err)
	}
	descr, fortran, shape := descrField.FindSubmatch(text), fortranField.FindSubmatch(text), shapeField.FindSubmatch(text)
	switch {
	case descr != nil && len(descr[3]) > 0:
		return h, errors.New("holds a structured array; wanted one of numbers or strings")
	case descr == nil || fortran == nil || shape == nil:
		return h, fmt.Errorf("the header is damaged: %.200q", text)
	}
	h.Descr = string(descr[1]) + string(descr[2])
	h.Fortran = string(fortran[1]) == "True"
	h.Shape = bridge.Shape{}
	for part := range strings.SplitSeq(string(shape[1]), ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(part, "L"), 10, 64)
		if err != nil || n < 0 {
			return h, fmt.Errorf("the header's shape is damaged: (%.200s)", shape[1])
		}
		h.Shape = append(h.Shape, n)
	}
	if len(h.Shape) > bridge.MaxRank {
		return h, fmt.Errorf("has %d dimensions; a tensor has at most %d", len(h.Shape), bridge.MaxRank)
	}
	return h, nil
}

func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file is cut short")
	}
	return err
}

// element reads a dtype: "<f4" is little-endian float32 of 4 bytes.
func element(descr string) (dt tf.DataType, kind byte, width int64, bigEndian bool, err error) {
	bare := strings.TrimLeft(descr, "<>|=")
	bigEndian = strings.HasPrefix(descr, ">")
	if dt, ok := numeric[bare]; ok {
		return dt, bare[0], int64(bridge.DTypeSize(dt)), bigEndian, nil
	}
	switch {
	case strings.HasPrefix(bare, "O"):
		return 0, 0, 0, false, errors.New("holds Python objects, which are pickled and not read; save numbers, or strings as numpy.array(x, 'S')")
	case bare != "" && (bare[0] == 'S' || bare[0] == 'U'):
		n, err := strconv.ParseInt(bare[1:], 10, 31)
		if err == nil && n >= 0 {
			if bare[0] == 'U' {
				n *= 4
			}
			return tf.String, bare[0], n, bigEndian, nil
		}
	}
	return 0, 0, 0, false, fmt.Errorf("elements of NumPy type %q have no TensorFlow type; wanted numbers, bool, S or U", descr)
}

// read makes the tensor of what r holds, of which there are at most size bytes.
func read(r io.Reader, size int64) (*bridge.Tensor, error) {
	counted := &counter{r: r}
	h, err := ReadHeader(counted)
	if err != nil {
		return nil, err
	}
	dt, kind, width, bigEndian, err := element(h.Descr)
	if err != nil {
		return nil, err
	}
	n, ok := h.Shape.NumElements()
	if !ok || width > 0 && n > math.MaxInt64/width {
		return nil, fmt.Errorf("shape %s of %s is larger than 2^63 bytes", h.Shape, h.Descr)
	}
	if left := size - counted.n; n*width > left || width == 0 && n > size {
		return nil, fmt.Errorf("is cut short: shape %s of %s takes %d bytes, and %d are there", h.Shape, h.Descr, n*width, left)
	}
	if dt == tf.String {
		data := make([]byte, n*width)
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, cut(err)
		}
		if h.Fortran {
			data = rowMajor(data, h.Shape, int(width))
		}
		values := make([]string, n)
		for i := range values {
			part := data[int64(i)*width : int64(i+1)*width]
			if values[i], err = decode(part, kind, bigEndian); err != nil {
				return nil, fmt.Errorf("element %d: %w", i, err)
			}
		}
		return bridge.FromStrings(h.Shape, values)
	}
	t, err := bridge.NewTensor(dt, h.Shape)
	if err != nil {
		return nil, err
	}
	if err := fill(t, r, h, int(width), kind, bigEndian); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// counter counts the bytes of a header.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func fill(t *bridge.Tensor, r io.Reader, h Header, width int, kind byte, bigEndian bool) error {
	data, err := t.Bytes()
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(r, data); err != nil {
		return cut(err)
	}
	if bigEndian {
		part := width
		if kind == 'c' {
			part /= 2 // the real and the imaginary part, each by itself
		}
		for i := 0; i+part <= len(data); i += part {
			slices.Reverse(data[i : i+part])
		}
	}
	if kind == 'b' {
		for i, b := range data {
			data[i] = min(b, 1)
		}
	}
	if h.Fortran {
		copy(data, rowMajor(data, h.Shape, width))
	}
	return nil
}

// rowMajor turns elements whose first index varies fastest into ones whose last
// does.
func rowMajor(data []byte, shape bridge.Shape, width int) []byte {
	if len(shape) < 2 || len(data) == 0 {
		return data
	}
	to := make([]byte, len(data))
	at := make([]int64, len(shape))
	for i := 0; i < len(data)/width; i++ {
		from, stride := int64(0), int64(1)
		for d, n := range shape {
			from += at[d] * stride
			stride *= n
		}
		copy(to[i*width:(i+1)*width], data[from*int64(width):])
		for d := len(shape) - 1; d >= 0; d-- {
			if at[d]++; at[d] < shape[d] {
				break
			}
			at[d] = 0
		}
	}
	return to
}

// decode reads one fixed-width string.
func decode(part []byte, kind byte, bigEndian bool) (string, error) {
	if kind == 'S' {
		return strings.TrimRight(string(part), "\x00"), nil
	}
	var text strings.Builder
	var pending int // NULs, which count only when something follows
	for ; len(part) >= 4; part = part[4:] {
		code := binary.LittleEndian.Uint32(part)
		if bigEndian {
			code = binary.BigEndian.Uint32(part)
		}
		if code == 0 {
			pending++
			continue
		}
		if code > utf8.MaxRune || !utf8.ValidRune(rune(code)) {
			return "", fmt.Errorf("%#x is no Unicode code point", code)
		}
		for ; pending > 0; pending-- {
			text.WriteByte(0)
		}
		text.WriteRune(rune(code))
	}
	return text.String(), nil
}

// ReadFile reads a .npy; the caller closes the tensor.
func ReadFile(path string) (*bridge.Tensor, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // to open a pipe is to wait for its writer
		return nil, fmt.Errorf("%s: is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := read(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Archive is an open .npz.
type Archive struct {
	path  string
	zip   *zip.ReadCloser
	files map[string]*zip.File
}

// Open opens a .npz.
func Open(path string) (*Archive, error) {
	// To open a pipe is to wait for its writer.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is not a file", path)
	}
	z, err := zip.OpenReader(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: is not a .npz file: %w", path, err)
	}
	a := &Archive{path: path, zip: z, files: map[string]*zip.File{}}
	for _, f := range z.File {
		a.files[strings.TrimSuffix(f.Name, ".npy")] = f
	}
	return a, nil
}

// Names are the arrays' names, in alphabetical order.
func (a *Archive) Names() []string {
	names := make([]string, 0, len(a.files))
	for name := range a.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// deflateLimit is the most that a byte of a deflated stream can stand for.
const deflateLimit = 1032

// Tensor reads one array; the caller closes it.
func (a *Archive) Tensor(name string) (*bridge.Tensor, error) {
	f, ok := a.files[name]
	if !ok {
		return nil, fmt.Errorf("%s: there is no array %q; it has %s", a.path, name, strings.Join(a.Names(), ", "))
	}
	size := f.UncompressedSize64
	if most := f.CompressedSize64 * deflateLimit; size > most {
		size = most // what the directory claims can't be true
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: array %q: %w", a.path, name, err)
	}
	defer r.Close()
	t, err := read(r, int64(min(size, math.MaxInt64)))
	if err == nil {
		// The end of the entry is where its checksum is compared.
		if _, err = io.Copy(io.Discard, r); err != nil {
			t.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: array %q: %w", a.path, name, err)
	}
	return t, nil
}

// Close closes the file.
func (a *Archive) Close() error { return a.zip.Close() }

// Write writes a tensor as a .npy, version 1, row-major and little-endian.
func Write(w io.Writer, t *bridge.Tensor) error {
	dt, shape := t.DType(), t.Shape()
	if dt == tf.String {
		return writeStrings(w, t, shape)
	}
	descr := ""
	for name, d := range numeric {
		if d == dt {
			descr = "<" + name
			if bridge.DTypeSize(dt) == 1 {
				descr = "|" + name
			}
		}
	}
	if descr == "" {
		return fmt.Errorf("NumPy has no type for elements of %s", bridge.DTypeName(dt))
	}
	data, err := t.Bytes()
	if err != nil {
		return err
	}
	if err := writeHeader(w, descr, shape); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

func writeStrings(w io.Writer, t *bridge.Tensor, shape bridge.Shape) error {
	values, err := t.Strings()
	if err != nil {
		return err
	}
	width := 1
	for i, s := range values {
		if strings.HasSuffix(s, "\x00") {
			return fmt.Errorf("string %d ends in NUL, which NumPy would drop", i)
		}
		width = max(width, len(s))
	}
	if err := writeHeader(w, "|S"+strconv.Itoa(width), shape); err != nil {
		return err
	}
	row := make([]byte, width)
	for _, s := range values {
		clear(row[copy(row, s):])
		if _, err := w.Write(row); err != nil {
			return err
		}
	}
	return nil
}

func writeHeader(w io.Writer, descr string, shape bridge.Shape) error {
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = strconv.FormatInt(d, 10)
	}
	tuple := strings.Join(dims, ", ")
	if len(dims) == 1 {
		tuple += ","
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, tuple)
	// The elements begin at a multiple of 64, as NumPy has them.
	const before = len(magic) + 4
	pad := 64 - (before+len(text)+1)%64
	text += strings.Repeat(" ", pad%64) + "\n"
	header := append([]byte(magic), 1, 0)
	header = binary.LittleEndian.AppendUint16(header, uint16(len(text)))
	_, err := w.Write(append(header, text...))
	return err
}

// WriteFile writes a .npy, beside its name first and then renamed into place.
func WriteFile(path string, t *bridge.Tensor) error {
	return replace(path, func(w io.Writer) error { return Write(w, t) })
}

// Named is an array of a .npz.
type Named struct {
	Name   string
	Tensor *bridge.Tensor
}

// WriteArchive writes a .npz, uncompressed as numpy.savez does, beside its name
// first and then renamed into place.
func WriteArchive(path string, arrays []Named) error {
	return replace(path, func(w io.Writer) error {
		z := zip.NewWriter(w)
		for _, a := range arrays {
			entry, err := z.CreateHeader(&zip.FileHeader{Name: a.Name + ".npy", Method: zip.Store})
			if err != nil {
				return err
			}
			if err := Write(entry, a.Tensor); err != nil {
				return fmt.Errorf("array %q: %w", a.Name, err)
			}
		}
		return z.Close()
	})
}

func replace(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // of no effect once renamed
	err = write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
