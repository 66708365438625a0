package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/savedmodels"
)

func init() { register("savedmodels", savedModelSection) }

// savedModelCase is a run of a signature of a model that Python made.
type savedModelCase struct {
	Name, Model, Signature string
	Tags                   []string
	Inputs, Outputs        map[string]Array
}

// savedModelSection loads models that Python made and compares what their
// signatures give.
func savedModelSection(ctx context.Context, h *Harness) (Result, error) {
	var result Result
	rec, err := h.Python(ctx, "savedmodels")
	if err != nil {
		return result, err
	}
	defer rec.Close()
	var doc struct{ Cases []savedModelCase }
	if err := rec.Document(&doc); err != nil {
		return result, err
	}
	models := map[string]*opReport{}
	for i, c := range doc.Cases {
		if ctx.Err() != nil {
			return result, ctx.Err()
		}
		h.Progress.At("models", i, len(doc.Cases))
		worst, err := c.check(ctx, rec)
		result.count(models, c.Model, c.Name, worst, err)
	}
	result.Report = models
	return result, nil
}

func (c *savedModelCase) check(ctx context.Context, rec *Recording) (worst float64, err error) {
	m, err := savedmodels.Load(filepath.Join(rec.Dir, c.Model, "1"), savedmodels.Options{Tags: c.Tags})
	if err != nil {
		return 0, err
	}
	defer m.Close()
	in := savedmodels.Tensors{}
	defer in.Close()
	for name, array := range c.Inputs {
		if in[name], err = rec.Tensor(array); err != nil {
			return 0, fmt.Errorf("input %s: %w", name, err)
		}
	}
	out, err := m.Run(ctx, c.Signature, in)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	if got, want := slices.Sorted(maps.Keys(out)), slices.Sorted(maps.Keys(c.Outputs)); !slices.Equal(got, want) {
		return 0, fmt.Errorf("gives %q, in Python %q", got, want)
	}
	var wrong []string
	for name, want := range c.Outputs {
		if want.DType == "string" {
			if err := sameStrings(rec, out[name], want); err != nil {
				wrong = append(wrong, name+": "+err.Error())
			}
			continue
		}
		rel, err := rec.Compare(out[name], want)
		worst = max(worst, rel)
		switch bound := tolerance(want.DType, 0); {
		case err != nil:
			wrong = append(wrong, name+": "+err.Error())
		case !(rel <= bound):
			wrong = append(wrong, fmt.Sprintf("%s: relative error %.2g, at most %.2g", name, rel, bound))
		}
	}
	if wrong != nil {
		return worst, fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return worst, nil
}

func sameStrings(rec *Recording, got *bridge.Tensor, want Array) error {
	expected, err := rec.Tensor(want)
	if err != nil {
		return err
	}
	defer expected.Close()
	a, err := got.Strings()
	if err != nil {
		return err
	}
	b, err := expected.Strings()
	if err != nil {
		return err
	}
	if !got.Shape().Equal(expected.Shape()) || !slices.Equal(a, b) {
		return fmt.Errorf("%s %q, in Python %s %q", got.Shape(), a, expected.Shape(), b)
	}
	return nil
}
