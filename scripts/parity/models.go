package main

import "context"

func init() { register("models", modelSection) }

// modelSection holds the gradient of whole models' losses by every weight
// against Python's; the critic's gradient penalty by a second gradient.
func modelSection(ctx context.Context, h *Harness) (Result, error) {
	var result Result
	rec, err := h.Python(ctx, "models")
	if err != nil {
		return result, err
	}
	defer rec.Close()
	var cases []gradientCase
	if err := rec.Document(&cases); err != nil {
		return result, err
	}
	report := map[string]*opReport{}
	for i, c := range cases {
		h.Progress.At("models", i, len(cases))
		worst, second, err := c.check(ctx, rec)
		most := 0.0
		for _, rel := range worst {
			most = max(most, min(rel, 1e30)) // JSON has no infinity
		}
		entry := result.count(report, c.Name, c.Name, most, err)
		if second && c.hasSecond() {
			entry.Second, entry.SecondCases = "yes", 1
		}
		if c.Loose > 1e-5 {
			entry.Loose = c.Why
		}
	}
	result.Report = report
	return result, nil
}
