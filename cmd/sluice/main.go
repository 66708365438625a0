// Command sluice trains, inspects, runs and differentiates TensorFlow models from a
// shell.
//
// Every verb keeps to one convention: the answer goes to standard output, as
// one JSON document with --json; progress and errors go to standard error. The
// exit status is 0 for done, 1 for failed, 2 for wrong usage (and for trouble where
// 1 is an answer, as in diff), and 130 when it was interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// verbs are the commands, each in the file that has its name.
func verbs() []*cobra.Command {
	return []*cobra.Command{
		convertCommand(),
		demoCommand(),
		diffCommand(),
		doctorCommand(),
		freezeCommand(),
		gradCommand(),
		inspectCommand(),
		runCommand(),
	}
}

// noArguments is the check of a verb that takes flags alone.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("takes no arguments, got %q", args)
	}
	return nil
}

// errReported is a failure that a verb has told about in its answer: the exit
// status says it, and nothing is printed besides.
var errReported = errors.New("reported")

// troubleError is a failure of a verb whose status 1 is an answer, as diff's: the
// status is 2.
type troubleError struct{ error }

func (t troubleError) Unwrap() error { return t.error }

// errUsage marks a verb's error about how it was called, found after its flags
// were read: fmt.Errorf("%w: --steps must be positive", errUsage).
var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := supervise(ctx, stop, lastMoments, os.Stderr, func() int { return run(ctx, verbs(), os.Args[1:], os.Stdout, os.Stderr) })
	stop()
	os.Exit(code)
}

// lastMoments is how long an interrupted verb may take to end: less than the ten
// seconds after which container engines kill.
const lastMoments = 8 * time.Second

// supervise gives work's exit code. TensorFlow does not stop at any moment, and the
// process has to end all the same: once the context is done, signals kill again
// (stop takes the handler away), and work has but the grace to end by itself.
func supervise(ctx context.Context, stop func(), grace time.Duration, stderr io.Writer, work func() int) int {
	code := make(chan int, 1)
	go func() { code <- work() }()
	select {
	case c := <-code:
		return c
	case <-ctx.Done():
	}
	stop()
	select {
	case c := <-code:
		return c
	case <-time.After(grace):
		fmt.Fprintln(stderr, "sluice: interrupted; left what did not stop within", grace)
		return exitInterrupted
	}
}

// version is the module's, as the go command stamped it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}

// run is main without the process: it answers the exit code.
func run(ctx context.Context, verbs []*cobra.Command, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:     "sluice",
		Short:   "Train, inspect, run and differentiate TensorFlow models, with no Python in the process",
		Version: version(),
		Long: `sluice trains, inspects, runs and differentiates TensorFlow models, with no Python
in the process.

The answer of every verb goes to standard output (with --json as one JSON
document), progress and errors to standard error. Exit status: 0 done, 1 failed,
2 wrong usage, 130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)

	// What cobra refuses before a verb begins is wrong usage.
	began := false
	for _, verb := range verbs {
		if inner := verb.RunE; inner != nil {
			verb.RunE = func(cmd *cobra.Command, args []string) error {
				began = true
				return inner(cmd, args)
			}
		}
		root.AddCommand(verb)
	}

	called, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil && called == root && len(args) == 0:
		return exitUsage // it printed its help, for nothing was asked
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		if err.Error() == context.Canceled.Error() {
			err = errors.New("interrupted")
		}
		fmt.Fprintf(stderr, "%s: %v\n", called.CommandPath(), err)
		return exitInterrupted
	case errors.Is(err, errReported):
		return exitFailure
	}
	fmt.Fprintf(stderr, "%s: %v\n", called.CommandPath(), err)
	if _, trouble := errors.AsType[troubleError](err); trouble {
		return exitUsage
	}
	if !began || errors.Is(err, errUsage) {
		fmt.Fprintf(stderr, "(%s --help tells how it is used)\n", called.CommandPath())
		return exitUsage
	}
	return exitFailure
}
