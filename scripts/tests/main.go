// Command tests runs go test, prints what failed, and counts.
//
//	go run ./scripts/tests -name unit ./...
//
// Whatever follows -name NAME is go test's. Passing packages take a line each,
// failing tests are printed whole. The count goes to build/tests/NAME.count as
// "passed failed skipped", subtests included.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// event is a line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

// tally reads the events of a run.
type tally struct {
	out                     io.Writer
	passed, failed, skipped int
	pending                 map[string][]string // package and test: what it printed so far
	failedIn                map[string]bool     // packages in which a test failed
}

func (t *tally) read(events io.Reader) error {
	t.pending, t.failedIn = map[string][]string{}, map[string]bool{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
			t.take(e)
		} else {
			fmt.Fprint(t.out, line) // go's own complaints are no JSON
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (t *tally) take(e event) {
	key := e.Package + "\x00" + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(t.out, e.Output)
	case "output":
		if e.Test != "" {
			t.pending[key] = append(t.pending[key], e.Output)
		} else if e.Output != "PASS\n" && e.Output != "FAIL\n" {
			fmt.Fprint(t.out, e.Output)
		}
	case "pass", "skip", "fail":
		if e.Test == "" {
			t.finish(e)
			return
		}
		switch e.Action {
		case "pass":
			t.passed++
		case "skip":
			t.skipped++
			t.print(key)
		case "fail":
			t.failed++
			t.failedIn[e.Package] = true
			t.print(key)
		}
		delete(t.pending, key)
	}
}

// finish closes a package. One that fails with no failed test did not build,
// crashed or ran out of time: that counts as a failure, and what its unfinished
// tests printed is shown.
func (t *tally) finish(e event) {
	for key := range t.pending {
		if strings.HasPrefix(key, e.Package+"\x00") {
			if e.Action == "fail" {
				t.print(key)
			}
			delete(t.pending, key)
		}
	}
	if e.Action == "fail" && !t.failedIn[e.Package] {
		t.failed++
	}
}

func (t *tally) print(key string) {
	for _, line := range t.pending[key] {
		fmt.Fprint(t.out, line)
	}
}

func main() {
	args := os.Args[1:]
	if len(args) < 3 || args[0] != "-name" {
		fmt.Fprintln(os.Stderr, "usage: go run ./scripts/tests -name NAME [go test flags] PACKAGES")
		os.Exit(2)
	}
	if err := run(args[1], args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		os.Exit(1)
	}
}

func run(name string, args []string) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t := tally{out: os.Stdout}
	if err := t.read(events); err != nil {
		return err
	}
	failure := cmd.Wait()
	if failure != nil && t.failed == 0 {
		t.failed++ // go test itself did not start
	}
	fmt.Printf("%s: %d passed, %d failed, %d skipped\n", name, t.passed, t.failed, t.skipped)
	file := filepath.Join("build", "tests", name+".count")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, "%d %d %d\n", t.passed, t.failed, t.skipped), 0o644); err != nil {
		return err
	}
	return failure
}
