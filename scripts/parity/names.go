package main

import (
	"context"
	"fmt"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

func init() { register("names", nameSection) }

// nameSection gives operations and name scopes the same names as Python, in
// random sequences that names.py made.
func nameSection(ctx context.Context, h *Harness) (Result, error) {
	var result Result
	rec, err := h.Python(ctx, "names")
	if err != nil {
		return result, err
	}
	defer rec.Close()
	var cases []struct {
		Name  string
		Steps [][3]string // what, the name asked for, the name given
	}
	if err := rec.Document(&cases); err != nil {
		return result, err
	}
	for _, c := range cases {
		if !h.Wants(c.Name) {
			continue
		}
		result.Cases++
		if err := sameNames(c.Steps); err != nil {
			result.Failures = append(result.Failures, c.Name+": "+err.Error())
		}
	}
	result.Report = map[string]any{"unique_name": map[string]any{
		"cases": result.Cases, "worst": 0, "ok": len(result.Failures) == 0,
	}}
	return result, nil
}

func sameNames(steps [][3]string) error {
	g := ops.NewGraph(ops.GraphOptions{})
	scopes := []*ops.Scope{g.Root()}
	for i, step := range steps {
		top := scopes[len(scopes)-1]
		what, name, want := step[0], step[1], step[2]
		got := ""
		switch what {
		case "op":
			if op := top.Add(bridge.OpSpec{Type: "NoOp", Name: name}); op != nil {
				got = op.Name()
			}
		case "scope":
			scopes = append(scopes, top.NameScope(name))
			got = scopes[len(scopes)-1].Path()
		case "end":
			scopes = scopes[:len(scopes)-1]
		}
		if err := g.Err(); err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("step %d, %s %q in %q: got %q, Python has %q", i, what, name, top.Path(), got, want)
		}
	}
	return nil
}
