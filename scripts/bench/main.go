// Command bench measures Sluice beside its peers, each at its own best, and writes build/bench.json.
//
// Both sides of a row run in the same process run, alternating round by round; a row's ratio is the median
// of the rounds' ratios, its spread the distance of the 10th from the 90th percentile over that median.
// The peers that are not Go (a C program, a Python process) are children that answer `form runs` with
// nanoseconds per run. Of a peer's forms the fastest counts.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"text/tabwriter"
)

// A form is one way of doing the work: it does it n times and reports nanoseconds per run.
type form struct {
	name string
	run  func(ctx context.Context, n int) (float64, error)
}

// A row is one line of bench.json.
type row struct {
	Name     string  `json:"name"`
	Ours     float64 `json:"ours"` // nanoseconds per run, or a count
	Peer     float64 `json:"peer"`
	PeerName string  `json:"peer_name"`
	Ratio    float64 `json:"ratio"`  // the peer's time over ours, or ours over the peer's where the name says so
	Spread   float64 `json:"spread"` // of the ratio, relative
}

// A bench compares one way of ours with the fastest of the peers'.
type bench struct {
	name         string
	ours         []form // the fastest of ours counts too
	peers        []form
	runs         int
	rounds       int          // at most so many, where a run takes long; 0: as many as asked for
	oursOverPeer bool         // ratio is ours over theirs
	done         func() error // frees what the forms hold; may be nil
}

func main() {
	var (
		only   = flag.String("run", "", "measure only the rows whose names match this regular expression")
		out    = flag.String("out", filepath.Join("build", "bench.json"), "where to write the rows")
		rounds = flag.Int("rounds", 15, "how many times the sides alternate")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *out, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		if errors.Is(err, context.Canceled) {
			os.Exit(130)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, only, out string, rounds int) (err error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if rounds < 1 {
		return fmt.Errorf("-rounds: want at least 1, got %d", rounds)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	stories, err := newStories(ctx, filepath.Dir(out))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stories.Close()) }()

	var rows []row
	for _, b := range append(stories.benches(), optimizerBenches(stories.optimizerPeer())...) {
		if !match.MatchString(b.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s …\n", b.name)
		r, err := b.measure(ctx, rounds)
		if b.done != nil {
			err = errors.Join(err, b.done())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		rows = append(rows, r)
	}
	if match.MatchString("step_allocs") {
		r, err := stories.stepAllocs(ctx)
		if err != nil {
			return fmt.Errorf("step_allocs: %w", err)
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return fmt.Errorf("-run %q matches no row", only)
	}
	print(rows)
	return write(out, rows)
}

// measure alternates the forms round by round.
func (b bench) measure(ctx context.Context, rounds int) (row, error) {
	if b.rounds > 0 {
		rounds = min(rounds, b.rounds)
	}
	forms := append(slices.Clone(b.ours), b.peers...)
	times := make([][]float64, len(forms))
	for i, f := range forms { // warm up: sessions opened, functions traced
		if _, err := f.run(ctx, max(1, b.runs/4)); err != nil {
			return row{}, fmt.Errorf("%s: %w", f.name, err)
		}
		times[i] = make([]float64, rounds)
	}
	for r := range rounds {
		for i, f := range forms {
			t, err := f.run(ctx, b.runs)
			if err != nil {
				return row{}, fmt.Errorf("%s: %w", f.name, err)
			}
			times[i][r] = t
		}
	}
	ours := fastest(times[:len(b.ours)])
	best := fastest(times[len(b.ours):])
	mine, theirs := times[ours], times[len(b.ours)+best]
	ratios := make([]float64, rounds)
	for r := range rounds {
		if b.oursOverPeer {
			ratios[r] = mine[r] / theirs[r]
		} else {
			ratios[r] = theirs[r] / mine[r]
		}
	}
	ratio := quantile(ratios, 0.5)
	return row{
		Name:     b.name,
		Ours:     quantile(mine, 0.5),
		Peer:     quantile(theirs, 0.5),
		PeerName: b.peers[best].name,
		Ratio:    ratio,
		Spread:   (quantile(ratios, 0.9) - quantile(ratios, 0.1)) / ratio,
	}, nil
}

// fastest is the index of the form with the smallest median time.
func fastest(times [][]float64) int {
	best, least := 0, math.Inf(1)
	for i, t := range times {
		if m := quantile(t, 0.5); m < least {
			best, least = i, m
		}
	}
	return best
}

// quantile interpolates linearly between the sorted values.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 >= len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

func print(rows []row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "name\tours\tpeer\tratio\t±\tpeer's best form")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%.1f µs\t%.1f µs\t%.2f\t%.0f %%\t%s\n", r.Name, r.Ours/1e3, r.Peer/1e3, r.Ratio, 100*r.Spread, r.PeerName)
	}
	w.Flush()
}

// write puts the file in place whole or not at all.
func write(path string, rows []row) error {
	data, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	temp := path + ".tmp"
	if err := os.WriteFile(temp, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
