package main

import (
	"fmt"
	"os"
	"time"
)

// progress is one line on a terminal that says how far a section is; it writes
// nothing when standard error is no terminal.
type progress struct {
	out      *os.File
	terminal bool
	name     string
	last     time.Time
}

func newProgress(out *os.File) *progress {
	info, err := out.Stat()
	return &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (p *progress) section(name string) { p.name = name; p.last = time.Time{} }

// At says that done of total is reached; what names the work.
func (p *progress) At(what string, done, total int) {
	if !p.terminal || time.Since(p.last) < 100*time.Millisecond {
		return
	}
	p.last = time.Now()
	fmt.Fprintf(p.out, "\r\x1b[K%s: %s %d of %d", p.name, what, done, total)
}

func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
