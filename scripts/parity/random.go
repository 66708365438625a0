package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

const (
	randomGraphs   = 100 // seeds of a run without -seconds
	randomExchange = 250 // seeds that one Python process makes
	randomShown    = 5   // failing seeds that are taken apart
)

func init() { register("random", randomSection) }

// A randomCase is one program of randomgraphs.py.
type randomCase struct {
	Name    string
	Seed    int
	Program []string
	Kinds   []string
	Graph   string
	Feeds   []namedArray
	Xs, Vs  []string
	Stops   []string
	Floor   float64   // magnitudes below are roundings
	Noise   float64   // what the ys may differ by in less than 64 bits
	Bounds  []float64 // for the gradient by each x
	Ys      []namedArray
	G       []*expectedGradient // nil: Python gives None
	Size    int
	Cut     json.RawMessage // what of the seed's program this is, for the next --shrink
}

type randomReport struct {
	Graphs    int            `json:"graphs"`
	Ops       int            `json:"ops"`
	Gradients int            `json:"gradients"`
	Nones     int            `json:"nones"`
	Worst     float64        `json:"worst"` // relative error of the 64-bit programs
	OK        bool           `json:"ok"`
	Seeds     [2]int         `json:"seeds"` // the first, and the one after the last
	Discarded map[string]int `json:"discarded"`
	Kinds     map[string]int `json:"kinds"`
}

// randomSection differentiates random graphs. A failing one is taken apart, so
// that what is reported is the smallest program that still fails.
func randomSection(ctx context.Context, h *Harness) (Result, error) {
	var result Result
	report := randomReport{OK: true, Seeds: [2]int{h.Seed, h.Seed}, Discarded: map[string]int{}, Kinds: map[string]int{}}
	until, single := time.Now().Add(h.Duration), false
	if h.Filter != nil {
		// -run 1234 is that seed; another pattern means cases of other sections.
		seed, err := strconv.Atoi(h.Filter.String())
		if err != nil {
			return result, nil
		}
		report.Seeds[1], single = seed, true
	}
	unfiltered := *h
	unfiltered.Filter = nil
	for {
		graphs := randomGraphs
		args := []string{}
		switch {
		case single:
			graphs = 1
		case h.Duration > 0:
			graphs = randomExchange
			args = append(args, "--seconds", fmt.Sprint(max(1, int(time.Until(until).Seconds()))))
		}
		args = append(args, "--seed", strconv.Itoa(report.Seeds[1]), "--graphs", strconv.Itoa(graphs))
		next, err := randomExchangeRun(ctx, &unfiltered, &result, &report, args)
		if err != nil {
			return result, err
		}
		report.Seeds[1] = next
		if single || h.Duration == 0 || !time.Now().Before(until) {
			break
		}
		fmt.Fprintf(os.Stderr, "random: %d graphs of %d operations, %d failed, worst %.2g, next seed %d\n",
			report.Graphs, report.Ops, len(result.Failures), report.Worst, next)
	}
	report.OK = len(result.Failures) == 0
	result.Report = report
	discarded := 0
	for _, n := range report.Discarded {
		discarded += n
	}
	result.Notes = append(result.Notes, fmt.Sprintf("%d operations of %d kinds, %d gradients and %d Nones, worst %.2g; %d graphs left out",
		report.Ops, len(report.Kinds), report.Gradients, report.Nones, report.Worst, discarded))
	return result, nil
}

// randomExchangeRun compares the graphs of one Python process; it returns the
// seed that comes next.
func randomExchangeRun(ctx context.Context, h *Harness, result *Result, report *randomReport, args []string) (int, error) {
	rec, err := h.Python(ctx, "randomgraphs", args...)
	if err != nil {
		return 0, err
	}
	var doc struct {
		Cases     []randomCase
		Discarded []struct {
			Seed int
			Why  string
		}
		Next int
	}
	if err := rec.Document(&doc); err != nil {
		rec.Close()
		return 0, err
	}
	var failed []randomCase
	why := map[int]error{}
	for i, c := range doc.Cases {
		if ctx.Err() != nil {
			rec.Close()
			return 0, ctx.Err()
		}
		h.Progress.At("graphs", i, len(doc.Cases))
		worst, err := c.check(ctx, rec)
		if err != nil {
			fmt.Fprintf(os.Stderr, "random: %s: %.300s\n", c.Name, err)
			failed = append(failed, c)
			why[c.Seed] = err
		} else {
			report.Worst = max(report.Worst, worst)
		}
		result.Cases++
		report.Graphs++
		report.Ops += c.Size
		for _, k := range c.Kinds {
			report.Kinds[k]++
		}
		for _, g := range c.G {
			if g == nil {
				report.Nones++
			} else {
				report.Gradients++
			}
		}
	}
	for _, d := range doc.Discarded {
		report.Discarded[d.Why]++
	}
	rec.Close()
	for _, c := range failed {
		var text []string
		err := why[c.Seed]
		if len(result.Failures) < randomShown {
			var trouble error
			if text, err, trouble = c.shrink(ctx, h, err); trouble != nil {
				text = append(text, "(taking it apart: "+trouble.Error()+")")
			}
		} else {
			text = []string{fmt.Sprintf("(-only random -run %d takes it apart)", c.Seed)}
		}
		result.Failures = append(result.Failures, fmt.Sprintf("%s: %s\n%s", c.Name, err, strings.Join(text, "\n")))
	}
	return doc.Next, nil
}

// shrink looks for the smallest part of a failing program that fails too: its
// text, and what is wrong.
func (c *randomCase) shrink(ctx context.Context, h *Harness, why error) ([]string, error, error) {
	cuts := []json.RawMessage{}
	text, size := c.Program, len(c.Program)
	for range 3 {
		ask, err := json.Marshal(map[string]any{"seed": c.Seed, "cuts": cuts})
		if err != nil {
			return text, why, err
		}
		path := filepath.Join(h.Dir, "shrink.json")
		if err := os.WriteFile(path, ask, 0o644); err != nil {
			return text, why, err
		}
		rec, err := h.Python(ctx, "randomgraphs", "--shrink", path)
		if err != nil {
			return text, why, err
		}
		var doc struct{ Cases []randomCase }
		err = rec.Document(&doc)
		var best *randomCase
		for i := range doc.Cases {
			part := &doc.Cases[i]
			if len(part.Program) >= size {
				continue
			}
			if _, wrong := part.check(ctx, rec); wrong != nil {
				best, size, why = part, len(part.Program), wrong
			}
		}
		err = errors.Join(err, rec.Close())
		if best == nil || err != nil {
			return text, why, err
		}
		text = best.Program
		cuts = append(cuts, best.Cut)
		if best.Size == 1 {
			break
		}
	}
	return text, why, nil
}

// check makes the comparison: the worst relative error where the numbers have 64
// bits, and what is wrong.
func (c *randomCase) check(ctx context.Context, rec *Recording) (worst float64, err error) {
	graph := tf.NewGraph()
	def, err := rec.File(c.Graph)
	if err != nil {
		return 0, err
	}
	if err := graph.Import(def, ""); err != nil {
		return 0, fmt.Errorf("importing: %w", err)
	}
	var lists [4][]tf.Output
	for i, list := range [][]string{names(c.Ys), c.Vs, c.Xs, c.Stops} {
		if lists[i], err = outputs(graph, list); err != nil {
			return 0, err
		}
	}
	ys, vs, xs, stops := lists[0], lists[1], lists[2], lists[3]
	var gradYs []gradients.Gradient
	for _, v := range vs {
		gradYs = append(gradYs, gradients.Gradient{Dense: v})
	}
	s := &scope{graph: graph}
	got, err := gradients.Compute(s, ys, gradYs, xs, gradients.Options{StopGradients: stops})
	if err != nil {
		return 0, err
	}
	var fetches []tf.Output
	var want []Array
	var what []string
	var bounds []float64
	for i, y := range c.Ys {
		fetches, want = append(fetches, raw.Identity(s, ys[i])), append(want, y.Array)
		what, bounds = append(what, "y "+y.Name), append(bounds, max(tolerances[y.Array.DType], c.Noise))
	}
	for i, w := range c.G {
		switch g := got[i]; {
		case w == nil && g.IsNone():
		case w == nil:
			return 0, fmt.Errorf("gradient by %s: Python gives None, ours is a value", c.Xs[i])
		case g.IsNone() && !strings.HasPrefix(c.Xs[i], "t") && rec.zeros(w.Array):
			// Python fills what is missing of an operation's gradients with
			// zeros, and finds them when that operation's output is an x.
		case g.IsNone():
			return 0, fmt.Errorf("gradient by %s: none, Python gives a value", c.Xs[i])
		default:
			fetches, want = append(fetches, raw.Identity(s, gradients.Densify(s, g))), append(want, w.Array)
			what, bounds = append(what, "gradient by "+c.Xs[i]), append(bounds, c.Bounds[i])
		}
	}
	if s.err != nil {
		return 0, s.err
	}
	session, err := bridge.NewSession(graph, bridge.Config{IntraOpThreads: 1, InterOpThreads: 1})
	if err != nil {
		return 0, err
	}
	defer session.Close()
	call := bridge.Call{Fetches: fetches}
	var feeds []*bridge.Tensor
	defer func() {
		for _, t := range feeds {
			t.Close()
		}
	}()
	for _, f := range c.Feeds {
		out, err := outputs(graph, []string{f.Name})
		if err != nil {
			return 0, err
		}
		t, err := rec.Tensor(f.Array)
		if err != nil {
			return 0, fmt.Errorf("feed %s: %w", f.Name, err)
		}
		call.Feeds, feeds = append(call.Feeds, out...), append(feeds, t)
	}
	results, err := session.Call(ctx, call, feeds...)
	if err != nil {
		return 0, fmt.Errorf("running: %w", err)
	}
	defer func() {
		for _, t := range results {
			t.Close()
		}
	}()
	var wrong []string
	for i, w := range want {
		rel, err := rec.CompareAbove(c.Floor, results[i], w)
		switch {
		case err != nil:
			wrong = append(wrong, what[i]+": "+err.Error())
		case !(rel <= bounds[i]):
			wrong = append(wrong, fmt.Sprintf("%s: relative error %.2g, at most %.2g", what[i], rel, bounds[i]))
		case w.DType == "float64" && !math.IsNaN(rel):
			worst = max(worst, rel)
		}
	}
	if len(wrong) > 0 {
		return worst, errors.New(strings.Join(wrong, "; "))
	}
	return worst, nil
}
