package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// firstMinor is that of the oldest Python, 3.10, that a pinned wheel is built for.
const firstMinor = 10

// pythons tells which ones the wheel is built for.
func (v variant) pythons() string { return fmt.Sprintf("3.%d to 3.%d", firstMinor, v.lastMinor) }

// interpreter is a Python as it describes itself.
type interpreter struct {
	Path           string `json:"-"`
	Implementation string `json:"implementation"`
	Major          int    `json:"major"`
	Minor          int    `json:"minor"`
	Micro          int    `json:"micro"`
	Bits           int    `json:"bits"`
	FreeThreaded   bool   `json:"free_threaded"`
	Venv           bool   `json:"venv"` // both venv and ensurepip can be imported
}

const describe = `import importlib.util as u, json, struct, sys, sysconfig
print(json.dumps({
    "implementation": sys.implementation.name,
    "major": sys.version_info[0], "minor": sys.version_info[1], "micro": sys.version_info[2],
    "bits": 8 * struct.calcsize("P"),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "venv": bool(u.find_spec("venv") and u.find_spec("ensurepip"))}))`

func (p interpreter) version() string { return fmt.Sprintf("%d.%d.%d", p.Major, p.Minor, p.Micro) }

// unfit says why the wheel does not fit this Python, or "".
func (p interpreter) unfit(v variant) string {
	switch {
	case p.Major != 3 || p.Minor < firstMinor || p.Minor > v.lastMinor:
		return fmt.Sprintf("%s is Python %s", p.Path, p.version())
	case p.Implementation != "cpython":
		return fmt.Sprintf("%s is %s", p.Path, p.Implementation)
	case p.Bits != 64:
		return fmt.Sprintf("%s is a %d-bit build", p.Path, p.Bits)
	case p.FreeThreaded:
		return fmt.Sprintf("%s is a free-threaded build", p.Path)
	}
	return ""
}

// ask runs the interpreter and lets it describe itself.
func ask(ctx context.Context, path string) (interpreter, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	p := interpreter{Path: path}
	out, err := exec.CommandContext(ctx, path, "-c", describe).Output()
	if err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(exit.Stderr) > 0 {
			err = fmt.Errorf("%w: %s", err, firstLine(string(exit.Stderr)))
		}
		return p, fmt.Errorf("%s does not run: %w", path, err)
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return p, fmt.Errorf("%s is not a Python 3: it answered %q", path, firstLine(string(out)))
	}
	return p, nil
}

// findPython takes the one asked for, or the first on PATH that can make the environment.
func findPython(ctx context.Context, wanted string, v variant) (interpreter, error) {
	names := []string{"python3", "python"}
	for minor := v.lastMinor; minor >= firstMinor; minor-- {
		names = append(names, fmt.Sprintf("python3.%d", minor))
	}
	if wanted != "" {
		names = []string{wanted}
	}
	var reasons []string
	var withoutVenv *interpreter
	seen := map[string]bool{}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			if wanted != "" {
				reasons = append(reasons, fmt.Sprintf("there is no executable %q", wanted))
			}
			continue
		}
		p, err := ask(ctx, path)
		switch {
		case ctx.Err() != nil:
			return p, ctx.Err()
		case err != nil:
			reasons = append(reasons, err.Error())
		case p.unfit(v) != "":
			if why := p.unfit(v); !seen[why] {
				reasons = append(reasons, why)
				seen[why] = true
			}
		case !p.Venv:
			if withoutVenv == nil {
				withoutVenv = &p
			}
		default:
			return p, nil
		}
	}
	if withoutVenv != nil {
		return interpreter{}, &problem{
			fmt.Sprintf("%s (Python %s) can't make a virtual environment: its module venv or ensurepip is missing", withoutVenv.Path, withoutVenv.version()),
			installPackages(needVenv(fmt.Sprintf("%d.%d", withoutVenv.Major, withoutVenv.Minor)))}
	}
	if len(reasons) == 0 {
		return interpreter{}, &problem{"there is no Python, which fetches the library (only that: nothing that you build needs it)", installPackages(needPython)}
	}
	what := fmt.Sprintf("no Python here fits: TensorFlow %s has wheels for CPython %s, 64 bits:\n  %s", v.version, v.pythons(), strings.Join(reasons, "\n  "))
	if wanted != "" {
		return interpreter{}, &problem{what, "leave --python out, or name another one with it"}
	}
	return interpreter{}, &problem{what, "install one of them and name it:  libtensorflow install --python /path/to/python3." + fmt.Sprint(v.lastMinor)}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// healthy tells whether the tree's environment has a Python that runs, fits and has pip.
func (t tree) healthy(ctx context.Context, v variant) (interpreter, bool) {
	if _, err := os.Stat(t.python()); err != nil {
		return interpreter{}, false
	}
	p, err := ask(ctx, t.python())
	if err != nil || p.unfit(v) != "" {
		return p, false
	}
	return p, exec.CommandContext(ctx, t.python(), "-m", "pip", "--version").Run() == nil
}
