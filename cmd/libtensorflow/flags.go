package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// buildEnv is what cgo must be told. Its flags are spelled the same each time:
// Go's build cache is keyed by them.
type buildEnv struct {
	Root    string `json:"root"`
	Enabled string `json:"CGO_ENABLED"`
	CFlags  string `json:"CGO_CFLAGS"`
	LDFlags string `json:"CGO_LDFLAGS"`
	XLA     string `json:"XLA_FLAGS,omitempty"`
	Python  string `json:"SLUICE_PYTHON,omitempty"`
}

func newBuildEnv(t tree, v variant) (buildEnv, error) {
	e := buildEnv{Root: string(t), Enabled: "1"}
	var err error
	if e.CFlags, err = mergeFlags(os.Getenv("CGO_CFLAGS"), "-O2 -g", "-I"+t.path("include")); err != nil {
		return e, fmt.Errorf("CGO_CFLAGS: %w", err)
	}
	if e.LDFlags, err = mergeFlags(os.Getenv("CGO_LDFLAGS"), "", "-L"+t.path("lib"), "-Wl,-rpath,"+t.path("lib")); err != nil {
		return e, fmt.Errorf("CGO_LDFLAGS: %w", err)
	}
	if v.gpu && os.Getenv("XLA_FLAGS") == "" {
		e.XLA = "--xla_gpu_cuda_data_dir=" + t.path("nvidia", "cuda_nvcc")
	}
	if r := t.receipt(); r != nil && r.With != "" { // without, it can't import tensorflow
		e.Python = t.python()
	}
	return e, nil
}

func printEnv(_ context.Context, o options) error {
	t := tree(o.root)
	if t.foreign() == nil && t.complete(o.variant) == nil {
		return &problem{"the library is not complete in " + o.root, self("install", o)}
	}
	if missing := t.missing(o.variant); len(missing) > 0 {
		return fmt.Errorf("%s holds no libtensorflow: it lacks %s", o.root, strings.Join(missing, " and "))
	}
	e, err := newBuildEnv(t, o.variant)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(o.out, e)
	}
	for _, line := range [][2]string{
		{"CGO_ENABLED", e.Enabled}, {"CGO_CFLAGS", e.CFlags}, {"CGO_LDFLAGS", e.LDFlags}, {"XLA_FLAGS", e.XLA}, {"SLUICE_PYTHON", e.Python},
	} {
		if line[1] != "" {
			fmt.Fprintf(o.out, "export %s=%s\n", line[0], shellQuote(line[1]))
		}
	}
	return nil
}

// mergeFlags puts our flags before the first flag of its kind among those that
// are set already, so that our headers and library are found first, and once.
func mergeFlags(set, unset string, ours ...string) (string, error) {
	if strings.TrimSpace(set) == "" {
		set = unset
	}
	fields, err := splitFlags(set)
	if err != nil {
		return "", err
	}
	fields = slices.DeleteFunc(fields, func(f string) bool { return slices.Contains(ours, f) })
	at := slices.IndexFunc(fields, func(f string) bool {
		return strings.HasPrefix(f, "-I") || strings.HasPrefix(f, "-L") || strings.HasPrefix(f, "-l") || strings.HasPrefix(f, "-Wl,")
	})
	if at < 0 {
		at = len(fields)
	}
	fields = slices.Insert(fields, at, ours...)
	for i, field := range fields {
		if fields[i], err = quoteFlag(field); err != nil {
			return "", err
		}
	}
	return strings.Join(fields, " "), nil
}

const flagSpace = " \t\r\n"

// splitFlags reads a list as the go command does: fields between spaces, one
// that begins with a quote reaching to the next quote of its kind.
func splitFlags(s string) ([]string, error) {
	var fields []string
	for {
		s = strings.TrimLeft(s, flagSpace)
		if s == "" {
			return fields, nil
		}
		if quote := s[0]; quote == '\'' || quote == '"' {
			field, rest, ok := strings.Cut(s[1:], string(quote))
			if !ok {
				return nil, fmt.Errorf("unterminated %c in %s", quote, s)
			}
			fields, s = append(fields, field), rest
			continue
		}
		end := strings.IndexAny(s, flagSpace)
		if end < 0 {
			end = len(s)
		}
		fields, s = append(fields, s[:end]), s[end:]
	}
}

// quoteFlag is the inverse for one field.
func quoteFlag(s string) (string, error) {
	switch {
	case s != "" && !strings.ContainsAny(s, flagSpace+`'"`):
		return s, nil
	case !strings.Contains(s, "'"):
		return "'" + s + "'", nil
	case !strings.Contains(s, `"`):
		return `"` + s + `"`, nil
	}
	return "", fmt.Errorf("the go command has no way to read a flag with both kinds of quotes: %s", s)
}

// shellQuote spells s for any POSIX shell.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./,=+:@%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
