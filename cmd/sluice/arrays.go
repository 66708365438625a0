package main

import (
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/npy"
)

// feedHelp is what --input and --feed take.
const feedHelp = `NAME=FILE.npy, NAME=FILE.npz for the array of that name or the only one in it,
NAME=FILE.npz[ARRAY] for another, FILE.npz alone for every array by its name,
or NAME:=VALUE for a number ("NaN" and "Infinity" too), a string in quotes, or [lists] of them, as JSON`

// readFeeds reads arrays by the arguments of --input or --feed; the caller closes
// them. dtype tells the type that a name wants, for values that are written at the
// shell; 0 where it is not known.
func readFeeds(flag string, arguments []string, dtype func(name string) tf.DataType) (feeds map[string]*bridge.Tensor, err error) {
	feeds = map[string]*bridge.Tensor{}
	defer func() {
		if err != nil {
			closeAll(feeds)
		}
	}()
	set := func(name string, t *bridge.Tensor) error {
		if feeds[name] != nil {
			t.Close()
			return fmt.Errorf("%w: --%s gives %q twice", errUsage, flag, name)
		}
		feeds[name] = t
		return nil
	}
	for _, argument := range arguments {
		if name, text, ok := strings.Cut(argument, ":="); ok && name != "" && !strings.Contains(name, "=") {
			t, err := written(text, dtype(name))
			if err != nil {
				return feeds, fmt.Errorf("%w: --%s %s: %w", errUsage, flag, argument, err)
			}
			if err := set(name, t); err != nil {
				return feeds, err
			}
			continue
		}
		name, file, named := strings.Cut(argument, "=")
		if !named {
			name, file = "", argument
		}
		path, array := splitArray(file)
		switch {
		case strings.EqualFold(filepath.Ext(path), ".npy") && named && array == "":
			t, err := npy.ReadFile(path)
			if err != nil {
				return feeds, readError(flag, argument, err)
			}
			if err := set(name, t); err != nil {
				return feeds, err
			}
		case strings.EqualFold(filepath.Ext(path), ".npz"):
			if err := readArchive(path, name, array, set); err != nil {
				return feeds, readError(flag, argument, err)
			}
		default:
			return feeds, fmt.Errorf("%w: --%s %s is not understood; it takes %s", errUsage, flag, argument, feedHelp)
		}
	}
	return feeds, nil
}

func readError(flag, argument string, err error) error {
	if _, isPath := err.(*fs.PathError); isPath {
		return fmt.Errorf("--%s %s: %w", flag, argument, err)
	}
	return err
}

// splitArray reads "file.npz[name]".
func splitArray(file string) (path, array string) {
	if at := strings.IndexByte(file, '['); at > 0 && strings.HasSuffix(file, "]") {
		return file[:at], file[at+1 : len(file)-1]
	}
	return file, ""
}

func readArchive(path, name, array string, set func(string, *bridge.Tensor) error) error {
	archive, err := npy.Open(path)
	if err != nil {
		return err
	}
	defer archive.Close()
	names := archive.Names()
	switch {
	case name == "": // all of them
		for _, each := range names {
			t, err := archive.Tensor(each)
			if err == nil {
				err = set(each, t)
			}
			if err != nil {
				return err
			}
		}
		return nil
	case array == "" && len(names) == 1:
		array = names[0]
	case array == "":
		array = name
	}
	t, err := archive.Tensor(array)
	if err != nil {
		return err
	}
	return set(name, t)
}

func closeAll(tensors map[string]*bridge.Tensor) {
	for _, t := range tensors {
		t.Close()
	}
}

// numbersAsText are the elements as JSON has them; what it has no number for is
// "NaN", "Infinity" or "-Infinity" in quotes.
func numbersAsText(t *bridge.Tensor) ([]any, error) {
	var all []any
	switch dt := t.DType(); {
	case dt == tf.String:
		texts, err := t.Strings()
		for _, s := range texts {
			all = append(all, strings.ToValidUTF8(s, "\ufffd"))
		}
		return all, err
	case dt == tf.Bool:
		flags, err := bridge.Values[bool](t)
		for _, b := range flags {
			all = append(all, b)
		}
		return all, err
	case dt == tf.Int64:
		return each[int64](t)
	case dt == tf.Uint64:
		return each[uint64](t)
	case dt == tf.Float:
		values, err := bridge.Values[float32](t)
		for _, v := range values {
			all = append(all, number(float64(v), 32))
		}
		return all, err
	case bridge.IsComplex(dt):
		values, err := complexes(t)
		for _, c := range values {
			all = append(all, []any{number(real(c), 64), number(imag(c), 64)})
		}
		return all, err
	}
	values, err := bridge.ToFloat64(t)
	for _, v := range values {
		all = append(all, number(v, 64))
	}
	return all, err
}

func each[T bridge.Element](t *bridge.Tensor) ([]any, error) {
	values, err := bridge.Values[T](t)
	all := make([]any, len(values))
	for i, v := range values {
		all[i] = v
	}
	return all, err
}

func complexes(t *bridge.Tensor) ([]complex128, error) {
	if t.DType() == tf.Complex128 {
		return bridge.Values[complex128](t)
	}
	values, err := bridge.Values[complex64](t)
	all := make([]complex128, len(values))
	for i, v := range values {
		all[i] = complex128(v)
	}
	return all, err
}

// jsonNumber is a number as it is written.
type jsonNumber string

func (n jsonNumber) MarshalJSON() ([]byte, error) { return []byte(n), nil }

func number(v float64, bits int) any {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	format := byte('g')
	if a := math.Abs(v); a == 0 || a >= 1e-6 && a < 1e21 {
		format = 'f'
	}
	return jsonNumber(strconv.FormatFloat(v, format, -1, bits))
}

// array is a tensor in a verb's JSON.
type array struct {
	DType  string  `json:"dtype"`
	Shape  []int64 `json:"shape"`
	Values any     `json:"values"` // nested as the shape is
}

func arrayOf(t *bridge.Tensor) (array, error) {
	flat, err := numbersAsText(t)
	if err != nil {
		return array{}, err
	}
	shape := t.Shape()
	values := any([]any{})
	if len(flat) > 0 || emptyLists(shape) <= mostEmptyLists {
		values = nested(flat, shape)
	}
	return array{bridge.DTypeName(t.DType()), append([]int64{}, shape...), values}, nil
}

// mostEmptyLists is how many lists with nothing in them an answer has: a shape of
// [1000000000000, 0] costs a tensor nothing. Beyond it the values are [].
const mostEmptyLists = 1 << 16

// emptyLists is how many lists an empty tensor's values are, but no more than a
// little beyond mostEmptyLists.
func emptyLists(shape bridge.Shape) int64 {
	lists, row := int64(1), int64(1)
	for _, d := range shape {
		if d == 0 || lists > mostEmptyLists {
			break
		}
		row *= min(d, mostEmptyLists+1)
		lists += row
	}
	return lists
}

func nested(flat []any, shape bridge.Shape) any {
	if len(shape) == 0 {
		return flat[0]
	}
	rows := make([]any, shape[0])
	size := len(flat)
	if len(rows) > 0 {
		size /= len(rows)
	}
	for i := range rows {
		rows[i] = nested(flat[i*size:(i+1)*size], shape[1:])
	}
	return rows
}

// brief is a tensor in a line: all of it where it is small.
func brief(t *bridge.Tensor) string {
	flat, err := numbersAsText(t)
	if err != nil {
		return err.Error()
	}
	const most = 8
	var text []string
	for _, v := range flat[:min(len(flat), most)] {
		switch v := v.(type) {
		case jsonNumber:
			f, _ := strconv.ParseFloat(string(v), 64)
			text = append(text, strconv.FormatFloat(f, 'g', 6, 64))
		default:
			text = append(text, fmt.Sprintf("%v", v))
		}
	}
	line := strings.Join(text, " ")
	if len(flat) > most {
		line += " …"
	}
	return line
}
