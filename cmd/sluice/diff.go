package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"math/cmplx"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/spf13/cobra"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/savedmodels"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

func diffCommand() *cobra.Command {
	var (
		asJSON     bool
		atol, rtol float64
	)
	command := &cobra.Command{
		Use:   "diff A B",
		Short: "Say what differs between two checkpoints or models, and by how much",
		Long: `Compare the tensors of two checkpoints or SavedModels, of either form, by Python's
names of the variables: which only one of them has, whose data type or shape is
another, and whose elements differ: how many, by how much at most, and where. Of two
SavedModels the signatures are compared too.

Elements are equal within --atol + --rtol·|the larger of the two|, both 0 unless they
are given; NaN is equal to NaN. Nothing is loaded into a session, and one pair of
tensors at a time is in memory.

Exit status, as diff's: 0 nothing differs, 1 something does, 2 trouble.`,
		Example: `  sluice diff exported/1 exported/2
  sluice diff run/model-1000 run/model-2000 --json | jq '.tensors[] | {name, max_abs}'
  sluice diff exported/1 half/1 --rtol 1e-3`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("takes two checkpoints or models, got %q", args)
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			if !(atol >= 0) || !(rtol >= 0) {
				return fmt.Errorf("%w: --atol and --rtol can't be negative", errUsage)
			}
			found, err := diff(command.Context(), args[0], args[1], atol, rtol)
			if err == nil && asJSON {
				err = printJSON(command, found)
			} else if err == nil {
				err = found.print(command.OutOrStdout())
			}
			if err != nil {
				return troubleError{err}
			}
			if !found.Same {
				return errReported
			}
			return nil
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	command.Flags().Float64Var(&atol, "atol", 0, "how much elements may differ")
	command.Flags().Float64Var(&rtol, "rtol", 0, "how much they may differ, relative to the larger")
	return command
}

// differences is what diff found.
type differences struct {
	A          string             `json:"a"`
	B          string             `json:"b"`
	Same       bool               `json:"same"`
	OnlyA      []tensorFound      `json:"only_a"`
	OnlyB      []tensorFound      `json:"only_b"`
	Tensors    []tensorDifference `json:"tensors"` // those that differ
	Signatures []signatureDiffer  `json:"signatures"`
	Equal      int                `json:"equal"` // how many tensors are
}

type tensorDifference struct {
	Name      string  `json:"name"`
	DTypeA    string  `json:"dtype_a"`
	DTypeB    string  `json:"dtype_b"`
	ShapeA    []int64 `json:"shape_a"`
	ShapeB    []int64 `json:"shape_b"`
	Elements  int64   `json:"elements"`
	Differing int64   `json:"differing"` // beyond the tolerance
	MaxAbs    any     `json:"max_abs"`   // null: they can't be subtracted
	MaxRel    any     `json:"max_rel"`
	At        []int64 `json:"at"` // where max_abs is
	ValueA    any     `json:"value_a"`
	ValueB    any     `json:"value_b"`
}

// signatureDiffer is a signature that is not in both, or not the same.
type signatureDiffer struct {
	Name string `json:"name"`
	A    string `json:"a"` // "": not there
	B    string `json:"b"`
}

func diff(ctx context.Context, a, b string, atol, rtol float64) (*differences, error) {
	d := &differences{A: a, B: b, OnlyA: []tensorFound{}, OnlyB: []tensorFound{}, Tensors: []tensorDifference{}, Signatures: []signatureDiffer{}}
	var sides [2]*side
	for i, path := range []string{a, b} {
		s, err := openSide(path)
		if err != nil {
			return nil, err
		}
		defer s.close()
		sides[i] = s
	}
	left, right := sides[0], sides[1]
	only := func(of, other *side) []tensorFound {
		all := []tensorFound{}
		for _, name := range slices.Sorted(maps.Keys(of.entries)) {
			if _, both := other.entries[name]; !both {
				e := of.entries[name]
				all = append(all, tensorFound{Name: name, DType: bridge.DTypeName(e.DType), Shape: e.Shape, Bytes: e.Bytes})
			}
		}
		return all
	}
	d.OnlyA, d.OnlyB = only(left, right), only(right, left)
	for _, name := range slices.Sorted(maps.Keys(left.entries)) {
		if _, both := right.entries[name]; !both {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		found, err := diffTensors(name, left, right, atol, rtol)
		if err != nil {
			return nil, err
		}
		if found == nil {
			d.Equal++
		} else {
			d.Tensors = append(d.Tensors, *found)
		}
	}
	if left.isModel && right.isModel {
		names := maps.Clone(left.signatures)
		maps.Copy(names, right.signatures)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if a, b := left.signatures[name], right.signatures[name]; a != b {
				d.Signatures = append(d.Signatures, signatureDiffer{name, a, b})
			}
		}
	}
	d.Same = len(d.OnlyA)+len(d.OnlyB)+len(d.Tensors)+len(d.Signatures) == 0
	return d, nil
}

// side is one of the two that are compared.
type side struct {
	reader     *checkpoints.Reader          // nil: a model without variables
	entries    map[string]checkpoints.Entry // by Python's name, where only one has it, else by key
	isModel    bool
	signatures map[string]string
}

func openSide(path string) (*side, error) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() && filepath.Base(path) == "saved_model.pb" {
		path = filepath.Dir(path)
	}
	s := &side{entries: map[string]checkpoints.Entry{}, signatures: map[string]string{}}
	if _, err := os.Stat(filepath.Join(path, "saved_model.pb")); err == nil {
		all, err := savedmodels.Describe(path)
		if err != nil {
			return nil, err
		}
		s.isModel = true
		variables := 0
		for _, d := range all {
			variables += len(d.Variables)
			for _, signature := range d.Signatures {
				s.signatures[signature.Name] = signature.String()
			}
		}
		if _, err := os.Stat(filepath.Join(path, "variables", "variables.index")); variables == 0 && err != nil {
			return s, nil
		}
	}
	reader, err := checkpoints.Open(path)
	if err != nil {
		return nil, err
	}
	s.reader = reader
	byName := map[string][]checkpoints.Entry{}
	for _, e := range reader.Entries() {
		name := cmp.Or(e.FullName, e.Name)
		byName[name] = append(byName[name], e)
	}
	for name, entries := range byName {
		same, err := s.same(entries)
		if err != nil {
			_ = reader.Close()
			return nil, err
		}
		if same {
			s.entries[name] = entries[0]
			continue
		}
		for _, e := range entries {
			s.entries[e.Key] = e
		}
	}
	return s, nil
}

// same tells whether the tensors of a name are one and the same: Keras exports some of
// its variables twice.
func (s *side) same(entries []checkpoints.Entry) (bool, error) {
	if len(entries) == 1 {
		return true, nil
	}
	first, err := s.reader.Read(entries[0].Key)
	if err != nil {
		return false, err
	}
	defer first.Close()
	for _, e := range entries[1:] {
		if e.DType != entries[0].DType || !slices.Equal(e.Shape, entries[0].Shape) {
			return false, nil
		}
		other, err := s.reader.Read(e.Key)
		if err != nil {
			return false, err
		}
		d := tensorDifference{Elements: first.NumElements()}
		err = d.compare(first, other, 0, 0)
		_ = other.Close()
		if err != nil || d.Differing > 0 {
			return false, err
		}
	}
	return true, nil
}

func (s *side) close() {
	if s.reader != nil {
		_ = s.reader.Close()
	}
}

// diffTensors compares the two tensors of a name; nil: they are equal.
func diffTensors(name string, left, right *side, atol, rtol float64) (*tensorDifference, error) {
	ea, eb := left.entries[name], right.entries[name]
	d := &tensorDifference{Name: name, DTypeA: bridge.DTypeName(ea.DType), DTypeB: bridge.DTypeName(eb.DType), ShapeA: ea.Shape, ShapeB: eb.Shape}
	if !slices.Equal(ea.Shape, eb.Shape) {
		return d, nil
	}
	a, err := left.reader.Read(ea.Key)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := right.reader.Read(eb.Key)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	d.Elements = a.NumElements()
	if err := d.compare(a, b, atol, rtol); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if d.Differing == 0 && ea.DType == eb.DType {
		return nil, nil
	}
	return d, nil
}

// compare fills in how the elements differ.
func (d *tensorDifference) compare(a, b *bridge.Tensor, atol, rtol float64) error {
	if a.DType() == b.DType() && a.DType() != tf.String {
		x, err := a.Bytes()
		if err != nil {
			return err
		}
		if y, err := b.Bytes(); err != nil || bytes.Equal(x, y) {
			return err // also for types whose elements can't be told apart by number
		}
	}
	switch {
	case a.DType() == tf.String || b.DType() == tf.String:
		return d.compareStrings(a, b)
	case bridge.IsComplex(a.DType()) && bridge.IsComplex(b.DType()):
		x, err := complexes(a)
		if err != nil {
			return err
		}
		y, err := complexes(b)
		if err != nil {
			return err
		}
		d.each(len(x), atol, rtol, func(i int) (distance, size float64, bothNaN bool) {
			return cmplx.Abs(x[i] - y[i]), max(cmplx.Abs(x[i]), cmplx.Abs(y[i])), cmplx.IsNaN(x[i]) && cmplx.IsNaN(y[i]) || x[i] == y[i]
		}, func(i int) (any, any) { return fmt.Sprint(x[i]), fmt.Sprint(y[i]) })
		return nil
	case a.DType() == tf.Float && b.DType() == tf.Float: // without copies
		x, err := bridge.Flat[float32](a)
		if err != nil {
			return err
		}
		y, err := bridge.Flat[float32](b)
		compareReal(d, x, y, atol, rtol, 32)
		return err
	case a.DType() == tf.Int64 && b.DType() == tf.Int64: // to the last bit
		x, err := bridge.Flat[int64](a)
		if err != nil {
			return err
		}
		y, err := bridge.Flat[int64](b)
		d.each(len(x), atol, rtol, func(i int) (distance, size float64, same bool) {
			return float64(uint64(max(x[i], y[i])) - uint64(min(x[i], y[i]))), max(math.Abs(float64(x[i])), math.Abs(float64(y[i]))), x[i] == y[i]
		}, func(i int) (any, any) { return x[i], y[i] })
		return err
	}
	x, err := bridge.ToFloat64(a)
	if err != nil {
		return err
	}
	y, err := bridge.ToFloat64(b)
	compareReal(d, x, y, atol, rtol, 64)
	return err
}

func compareReal[F float32 | float64](d *tensorDifference, x, y []F, atol, rtol float64, bits int) {
	d.each(min(len(x), len(y)), atol, rtol, func(i int) (distance, size float64, same bool) {
		a, b := float64(x[i]), float64(y[i])
		return math.Abs(a - b), max(math.Abs(a), math.Abs(b)), a == b || a != a && b != b
	}, func(i int) (any, any) { return number(float64(x[i]), bits), number(float64(y[i]), bits) })
}

// each compares n elements.
func (d *tensorDifference) each(n int, atol, rtol float64, element func(i int) (distance, size float64, same bool), values func(i int) (a, b any)) {
	most, relative, at := -1.0, 0.0, -1
	for i := range n {
		distance, size, same := element(i)
		if same {
			continue
		}
		if distance != distance || math.IsInf(distance, 0) { // a NaN or an infinity beside something else
			distance, size = math.Inf(1), 1
		}
		if distance > atol+rtol*size {
			d.Differing++
		}
		if distance > most {
			most, at = distance, i
		}
		relative = max(relative, distance/size)
	}
	if at < 0 {
		return
	}
	d.MaxAbs, d.MaxRel, d.At = number(most, 64), number(relative, 64), place(int64(at), d.ShapeA)
	d.ValueA, d.ValueB = values(at)
}

func (d *tensorDifference) compareStrings(a, b *bridge.Tensor) error {
	if a.DType() != b.DType() {
		d.Differing = d.Elements
		return nil
	}
	x, err := a.Strings()
	if err != nil {
		return err
	}
	y, err := b.Strings()
	if err != nil {
		return err
	}
	for i := range x {
		if x[i] == y[i] {
			continue
		}
		if d.Differing == 0 {
			d.At, d.ValueA, d.ValueB = place(int64(i), d.ShapeA), fmt.Sprintf("%q", x[i]), fmt.Sprintf("%q", y[i])
		}
		d.Differing++
	}
	return nil
}

// print writes it for people.
func (d *differences) print(w io.Writer) error {
	if d.Same {
		_, err := fmt.Fprintf(w, "no difference in %d tensors\n", d.Equal)
		return err
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	p := printer{table}
	for _, only := range []struct {
		path string
		list []tensorFound
	}{{d.A, d.OnlyA}, {d.B, d.OnlyB}} {
		if len(only.list) > 0 {
			p.line("only in %s", only.path)
		}
		for _, t := range only.list {
			p.line("  %s\t%s\t%s\t%s", t.Name, t.DType, shape(t.Shape), size(t.Bytes))
		}
	}
	if len(d.Tensors) > 0 {
		p.line("differ")
		p.line("  tensor\tdtype\tshape\telements\tmax abs\tmax rel\tat\tA\tB")
	}
	show := func(v any) string {
		switch v := v.(type) {
		case nil:
			return "-"
		case jsonNumber:
			f, _ := strconv.ParseFloat(string(v), 64)
			return strconv.FormatFloat(f, 'g', 6, 64)
		}
		return fmt.Sprint(v)
	}
	for _, t := range d.Tensors {
		dtype, dims, at := t.DTypeA, shape(t.ShapeA), "-"
		if t.DTypeB != t.DTypeA {
			dtype += " → " + t.DTypeB
		}
		elements := fmt.Sprintf("%d of %d", t.Differing, t.Elements)
		if !slices.Equal(t.ShapeA, t.ShapeB) {
			dims, elements = dims+" → "+shape(t.ShapeB), "-"
		}
		if t.At != nil {
			at = shape(t.At)
		}
		p.line("  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", t.Name, dtype, dims, elements, show(t.MaxAbs), show(t.MaxRel), at, show(t.ValueA), show(t.ValueB))
	}
	if len(d.Signatures) > 0 {
		p.line("signatures")
	}
	for _, s := range d.Signatures {
		p.line("  A: %s", cmp.Or(s.A, "no "+s.Name))
		p.line("  B: %s", cmp.Or(s.B, "no "+s.Name))
	}
	p.line("%d tensors are equal", d.Equal)
	return table.Flush()
}
