package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// finding is one thing that check looked at.
type finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Mend   string `json:"mend,omitempty"`
}

// report is what check answers.
type report struct {
	Root     string    `json:"root"`
	OK       bool      `json:"ok"`
	Version  string    `json:"version,omitempty"`
	Findings []finding `json:"findings"`
}

func (r *report) add(name, detail string, err error) bool {
	f := finding{Name: name, OK: err == nil, Detail: detail}
	if err != nil {
		f.Detail = err.Error()
		if p, ok := err.(*problem); ok {
			f.Detail, f.Mend = p.What, p.Mend
		}
	}
	r.Findings = append(r.Findings, f)
	r.OK = r.OK && f.OK
	return f.OK
}

func check(ctx context.Context, o options) error {
	t := tree(o.root)
	r := report{Root: o.root, OK: true}
	r.add("platform", runtime.GOOS+"/"+runtime.GOARCH, checkPlatform(runtime.GOOS, runtime.GOARCH, hasMusl("/")))
	r.add("processor", "has AVX", checkCPU("/proc/cpuinfo"))
	cc, err := compiler()
	canCompile := r.add("compiler", strings.Join(cc, " "), err)

	var incomplete error
	detail := o.root
	switch have := t.complete(o.variant); {
	case have != nil:
		detail = have.Wheel + " in " + o.root
	case t.foreign() != nil && len(t.missing(o.variant)) == 0:
		detail = "not installed by this command, in " + o.root
	case t.foreign() != nil:
		incomplete = fmt.Errorf("%w, and it lacks %s", t.foreign(), strings.Join(t.missing(o.variant), " and "))
	default:
		what := "not in " + o.root
		if entries, err := os.ReadDir(o.root); err == nil && len(entries) > 0 {
			what = "not complete in " + o.root
		}
		incomplete = &problem{what, self("install", o)}
	}
	there := r.add("library", detail, incomplete)

	if there && canCompile {
		version, err := probe(ctx, t)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			r.Version = version
			if !supported(version) {
				err = &problem{fmt.Sprintf("TensorFlow %s is outside %s to %s", version, oldest, newest), "unset SLUICE_LIBTENSORFLOW && " + self("install", options{variant: o.variant})}
			}
		}
		r.add("version", version, err)
	}
	if have := t.receipt(); have != nil && have.With != "" {
		python, healthy := t.healthy(ctx, o.variant)
		var broken error
		if !healthy {
			broken = &problem{"the environment's Python does not run any more", self("install", o)}
		}
		r.add("python", python.version()+" with "+have.WithFiles, broken)
	}

	if o.json {
		if err := printJSON(o.out, r); err != nil {
			return err
		}
	} else {
		for _, f := range r.Findings {
			mark := "ok "
			if !f.OK {
				mark = "BAD"
			}
			fmt.Fprintf(o.out, "%s  %-10s %s\n", mark, f.Name, strings.ReplaceAll(f.Detail, "\n", "\n                "))
			if f.Mend != "" {
				fmt.Fprintf(o.out, "                to mend it:  %s\n", f.Mend)
			}
		}
	}
	if !r.OK {
		return errReported
	}
	return nil
}

// supported tells whether a version lies in the range that is tested.
func supported(version string) bool {
	number := func(v string) int {
		parts := strings.SplitN(v, ".", 3)
		if len(parts) < 2 {
			return -1
		}
		major, err1 := strconv.Atoi(parts[0])
		minor, err2 := strconv.Atoi(parts[1])
		if err1 != nil || err2 != nil {
			return -1
		}
		return major*1000 + minor
	}
	n := number(version)
	return n >= number(oldest) && n <= number(newest)
}

const probeSource = `#include <stdio.h>
#include <tensorflow/c/c_api.h>
int main(void) { return puts(TF_Version()) < 0; }
`

// probe builds a C program as cgo would and lets the library tell its version.
func probe(ctx context.Context, t tree) (string, error) {
	cc, err := compiler()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "libtensorflow-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	source, program := filepath.Join(dir, "version.c"), filepath.Join(dir, "version")
	if err := os.WriteFile(source, []byte(probeSource), 0o644); err != nil {
		return "", err
	}
	args := append(slices.Clone(cc[1:]), "-I"+t.path("include"), source, "-o", program, "-L"+t.path("lib"), "-Wl,-rpath,"+t.path("lib"), "-ltensorflow")
	if out, err := exec.CommandContext(ctx, cc[0], args...).CombinedOutput(); err != nil {
		return "", compileError(cc[0], "a program against the library", err, out)
	}
	var out, log bytes.Buffer
	run := exec.CommandContext(ctx, program)
	run.Stdout, run.Stderr = &out, &log
	if err := run.Run(); err != nil {
		return "", fmt.Errorf("a program built against the library does not run: %v\n%s", err, strings.TrimSpace(log.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// compileError tells a compiler that has only half of what it needs from a real failure.
func compileError(cc, what string, err error, output []byte) error {
	text := strings.TrimSpace(string(output))
	for _, missing := range []string{"stdio.h", "crt1.o", "crti.o", "-lc:", "cannot find -lc"} {
		if strings.Contains(text, missing) {
			return &problem{fmt.Sprintf("%s lacks the C library's own headers and files:\n%s", cc, text), installPackages(needCompiler)}
		}
	}
	return fmt.Errorf("%s does not build %s: %v\n%s", cc, what, err, text)
}
