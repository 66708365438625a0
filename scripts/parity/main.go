// Parity holds what Sluice computes against Python TensorFlow, live: Python
// computes the expected numbers in the same run, from the same graphs, and
// nothing expected is stored in the repository.
//
//	go run ./scripts/parity [-only gradients,questions] [-run regexp] [-out build/parity.json]
//	go run ./scripts/parity -only random -seconds 600 [-seed 1000]
//
// It writes one JSON document with a key a section and exits 1 when anything
// differs. Python is $SLUICE_PYTHON, or the one that cmd/libtensorflow installs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ml/sluice/internal/python"
)

// A Section is one key of the report. It lives in a Go file of its own,
// registers itself from init, and mostly has a Python module of the same name
// beside it, which one Python process runs.
type Section struct {
	Name string
	// Run does the comparison. An error means that it could not be made at all;
	// what differs belongs into the Result.
	Run func(ctx context.Context, h *Harness) (Result, error)
}

// Result is what a section found.
type Result struct {
	Report   any      // becomes the section's value in the report
	Cases    int      // comparisons made
	Failures []string // one line each, "case: what differs"
	Notes    []string // one line each, worth reading, not failing
}

// count adds a case's outcome to the result and to the entry of what it is a
// case of, which it returns.
func (r *Result) count(entries map[string]*opReport, of, name string, worst float64, err error) *opReport {
	entry := entries[of]
	if entry == nil {
		entry = &opReport{OK: true}
		entries[of] = entry
	}
	r.Cases++
	entry.Cases++
	entry.Worst = max(entry.Worst, worst)
	if err != nil {
		entry.OK = false
		r.Failures = append(r.Failures, name+": "+err.Error())
	}
	return entry
}

var sections []Section

func register(name string, run func(ctx context.Context, h *Harness) (Result, error)) {
	sections = append(sections, Section{Name: name, Run: run})
}

// Harness is what a section gets to work with.
type Harness struct {
	Root     string         // the repository
	Dir      string         // scratch space of this run alone, one folder a section
	Filter   *regexp.Regexp // -run: which cases to make; nil means all
	Progress *progress
	Seed     int           // of the first random graph
	Duration time.Duration // how long random graphs are made; 0: a fixed number of them
	python   string
}

// Wants reports whether -run selects the case.
func (h *Harness) Wants(name string) bool { return h.Filter == nil || h.Filter.MatchString(name) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	code, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
	}
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout io.Writer) (int, error) {
	slices.SortFunc(sections, func(a, b Section) int { return strings.Compare(a.Name, b.Name) })
	var names []string
	for _, s := range sections {
		names = append(names, s.Name)
	}
	flags := flag.NewFlagSet("parity", flag.ContinueOnError)
	only := flags.String("only", "", "sections to run, comma separated (default all: "+strings.Join(names, ", ")+")")
	pattern := flags.String("run", "", "regular expression: run only the cases whose name matches")
	keep := flags.Bool("keep", false, "keep the graphs and numbers from Python, and say where")
	seed := flags.Int("seed", 1, "first seed of the random graphs")
	seconds := flags.Float64("seconds", 0, "make random graphs for so long, rather than a fixed number of them")
	out := flags.String("out", "", "where the report goes (default <repository>/build/parity.json)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0, nil
		}
		return 2, nil
	}

	root, err := repository()
	if err != nil {
		return 1, err
	}
	interpreter, err := python.Interpreter()
	if err != nil {
		return 1, err
	}
	// Two runs at once don't meet: each has its folder.
	scratch := filepath.Join(root, "build", "parity")
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp(scratch, "run-")
	if err != nil {
		return 1, err
	}
	if *keep {
		fmt.Fprintln(stdout, "keeping", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	h := &Harness{Root: root, Dir: dir, python: interpreter, Progress: newProgress(os.Stderr),
		Seed: *seed, Duration: time.Duration(*seconds * float64(time.Second))}
	if *pattern != "" {
		if h.Filter, err = regexp.Compile(*pattern); err != nil {
			return 2, fmt.Errorf("-run: %w", err)
		}
	}
	if *out == "" {
		*out = filepath.Join(root, "build", "parity.json")
	}
	chosen := sections
	if *only != "" {
		chosen = nil
		for name := range strings.SplitSeq(*only, ",") {
			i := slices.Index(names, strings.TrimSpace(name))
			if i < 0 {
				return 2, fmt.Errorf("no section %q; have %s", name, strings.Join(names, ", "))
			}
			chosen = append(chosen, sections[i])
		}
	}

	// A partial run keeps what an earlier one found in the other sections.
	report := map[string]json.RawMessage{}
	if len(chosen) < len(sections) {
		if old, err := os.ReadFile(*out); err == nil {
			_ = json.Unmarshal(old, &report) // an unreadable report is replaced
		}
	}
	fmt.Fprintf(stdout, "%-14s %7s %7s %9s\n", "section", "cases", "failed", "seconds")
	total, failed := 0, 0
	for _, s := range chosen {
		begin := time.Now()
		h.Progress.section(s.Name)
		result, err := s.Run(ctx, h)
		h.Progress.clear()
		if ctx.Err() != nil {
			return 130, errors.New("interrupted; nothing written")
		}
		if err != nil {
			result.Failures = append(result.Failures, err.Error())
		} else if result.Cases == 0 && h.Filter == nil {
			result.Failures = append(result.Failures, "compared nothing")
		}
		fmt.Fprintf(stdout, "%-14s %7d %7d %9.1f\n", s.Name, result.Cases, len(result.Failures), time.Since(begin).Seconds())
		for _, note := range result.Notes {
			fmt.Fprintf(stdout, "    note  %s\n", note)
		}
		for _, failure := range result.Failures {
			fmt.Fprintf(stdout, "    FAIL  %s\n", strings.ReplaceAll(failure, "\n", "\n          "))
		}
		total, failed = total+result.Cases, failed+len(result.Failures)
		if result.Report != nil {
			if report[s.Name], err = json.Marshal(result.Report); err != nil {
				return 1, err
			}
		}
	}
	fmt.Fprintf(stdout, "%d compared with Python, %d failed\n", total, failed)
	if h.Filter == nil { // a filtered run is no report
		if err := writeReport(*out, report); err != nil {
			return 1, err
		}
	}
	if failed > 0 {
		return 1, nil
	}
	return 0, nil
}

func writeReport(path string, report map[string]json.RawMessage) error {
	text, err := json.MarshalIndent(report, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// repository is the nearest folder upward that holds go.mod.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no go.mod in %s or above it: run from inside the repository", dir)
		}
	}
}
