// Command libtensorflow puts TensorFlow's C library where Go can build against it.
//
//	go run github.com/sluice-ml/sluice/cmd/libtensorflow install
//	eval "$(go run github.com/sluice-ml/sluice/cmd/libtensorflow env)"
//	go build ./...
//
// It needs neither cgo nor the library, so that it works before there is one.
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
	"runtime/debug"
	"strings"
	"syscall"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

const usage = `libtensorflow puts TensorFlow's C library where Go can build against it.

Usage:
  libtensorflow install   fetch it with pip, pinned and checked by hash, once
  libtensorflow env       print the build flags:  eval "$(libtensorflow env)"
  libtensorflow check     say what is there, which version, and what is missing

"libtensorflow VERB --help" tells more about each.

Exit status: 0 done, 1 something is wrong, 2 wrong usage, 130 interrupted.
`

const rootHelp = `
Where it is:
  --dir DIR, else $SLUICE_LIBTENSORFLOW, else sluice/%s in the
  user's cache directory ($XDG_CACHE_HOME or ~/.cache).
`

const installHelp = `Usage: libtensorflow install [--gpu] [--version VERSION] [--dir DIR]
               [--python PYTHON] [--with REQUIREMENTS]... [--json]

Makes a Python virtual environment, lets pip install TensorFlow %s into it
(wheels only, every one checked against a hash that is pinned here), and links
the C library and its headers beside it. Nothing outside its own directory is
touched and no root is needed. Python is needed for this alone: no program
that is built afterwards runs or loads it.

Run it as often as you like: what is complete is left alone and nothing is
fetched a second time; what was interrupted is mended; a second one at the same
time waits for the first. Which index pip asks is pip's own configuration.
`

const envHelp = `Usage: libtensorflow env [--gpu] [--version VERSION] [--dir DIR] [--json]

Prints what a shell must export for cgo to find the library:

  eval "$(libtensorflow env)"

After that plain "go build", "go test" and an editor started from that shell
work. For editors started elsewhere, store the flags in Go's own settings:

  go env -w CGO_CFLAGS="$CGO_CFLAGS" CGO_LDFLAGS="$CGO_LDFLAGS"

Flags that CGO_CFLAGS and CGO_LDFLAGS hold already are kept. The path of the
library is written into what is built (rpath), so that it runs without
LD_LIBRARY_PATH. Prints nothing and fails when the library is not complete.
`

const checkHelp = `Usage: libtensorflow check [--gpu] [--version VERSION] [--dir DIR] [--json]

Looks at everything a build needs: the platform, the processor, the C compiler,
the library and its headers; builds and runs a small C program against them to
learn the library's version. Says for whatever is missing the one command that
mends it, and exits with 1.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options is what the three verbs are told.
type options struct {
	variant variant
	root    string
	python  string
	with    []string
	json    bool
	out     io.Writer // the answer
	log     io.Writer // progress and what pip says
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	verbs := map[string]struct {
		help string
		run  func(context.Context, options) error
	}{
		"install": {fmt.Sprintf(installHelp, cpu.version), install},
		"env":     {envHelp, printEnv},
		"check":   {checkHelp, check},
	}
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" {
		fmt.Fprint(stdout, usage)
		return exitOK
	}
	name := args[0]
	verb, ok := verbs[name]
	if !ok {
		fmt.Fprintf(stderr, "libtensorflow: no verb %q; there are install, env, check\n\n%s", name, usage)
		return exitUsage
	}

	o := options{out: stdout, log: stderr}
	var gpu bool
	var version string
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&gpu, "gpu", false, "the library for NVIDIA GPUs, with CUDA's libraries (about 4 GB to fetch, 9 GB on disk)")
	flags.StringVar(&version, "version", "", "the `version` of TensorFlow: "+cpu.version+", the default, or "+oldestCPU.version+", the oldest that is supported")
	flags.StringVar(&o.root, "dir", "", "the `directory` of the library itself")
	flags.BoolVar(&o.json, "json", false, "print the answer as JSON")
	if name == "install" {
		flags.StringVar(&o.python, "python", "", "the `interpreter` to make the environment with (CPython "+cpu.pythons()+")")
		flags.Func("with", "a pip requirements `file`, pinned by hash, to install into the same environment", func(s string) error {
			o.with = append(o.with, s)
			return nil
		})
	}
	if err := flags.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(stdout, "%s\nFlags:\n", verb.help)
			flags.SetOutput(stdout)
			flags.PrintDefaults()
			fmt.Fprintf(stdout, rootHelp, cpu.name())
			return exitOK
		}
		fmt.Fprintf(stderr, "libtensorflow %s: %v\n(libtensorflow %s --help tells its flags)\n", name, err, name)
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "libtensorflow %s: takes no argument, got %q\n", name, flags.Arg(0))
		return exitUsage
	}
	var err error
	if o.variant, err = choose(version, gpu); err != nil {
		fmt.Fprintf(stderr, "libtensorflow %s: %v\n", name, err)
		return exitUsage
	}

	err = func() error {
		if err := o.place(); err != nil {
			return err
		}
		return verb.run(ctx, o)
	}()
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "libtensorflow %s: interrupted; running it again goes on from here\n", name)
		return exitInterrupted
	case errors.Is(err, errReported):
		return exitFailure
	}
	fmt.Fprintf(stderr, "libtensorflow %s: %v\n", name, err)
	return exitFailure
}

// errReported is a failure that the verb has told about already.
var errReported = errors.New("reported")

// problem is something wrong with the machine, and the one command that mends it.
type problem struct {
	What string
	Mend string
}

func (p *problem) Error() string {
	if p.Mend == "" {
		return p.What
	}
	return p.What + "\nto mend it:  " + p.Mend
}

// self is how this program was started, to be pasted into a shell.
func self(verb string, o options) string {
	words := []string{"libtensorflow"}
	if exe, err := os.Executable(); err == nil {
		words[0] = shellQuote(exe)
		if strings.Contains(exe, string(filepath.Separator)+"go-build") { // started by go run
			words = []string{"go", "run", "github.com/sluice-ml/sluice/cmd/libtensorflow"}
			if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
				words[2] += "@" + info.Main.Version
			}
		}
	}
	words = append(words, verb)
	if o.variant.gpu {
		words = append(words, "--gpu")
	}
	if o.variant.version != cpu.version {
		words = append(words, "--version", o.variant.version)
	}
	if o.root != "" && o.root != defaultRoot(o.variant) && o.root != os.Getenv("SLUICE_LIBTENSORFLOW") {
		words = append(words, "--dir", shellQuote(o.root))
	}
	return strings.Join(words, " ")
}

func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
