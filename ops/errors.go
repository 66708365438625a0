package ops

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/sluice-ml/sluice/bridge"
)

// BuildError is the first thing that went wrong while a graph was built: what
// was being added, in which scope, and the line of the program that asked for
// it. errors.As finds it, and the *bridge.Error below it.
type BuildError struct {
	Op    string // operation type or call, such as "MatMul" or "Variable"
	Scope string // path of the scope, "" for the root
	File  string // the caller's file, with its folder: "train/model.go"
	Line  int
	Err   error
}

// Error is "folder/file.go:12: Variable in scope net: cause", or, where the
// cause names the operation, "folder/file.go:12: net/MatMul (MatMul): cause".
func (e *BuildError) Error() string {
	var b strings.Builder
	if e.File != "" {
		fmt.Fprintf(&b, "%s:%d: ", e.File, e.Line)
	}
	switch {
	case labelled(e.Err, e.Op):
	case e.Op != "" && e.Scope != "":
		fmt.Fprintf(&b, "%s in scope %s: ", e.Op, e.Scope)
	case e.Op != "":
		fmt.Fprintf(&b, "%s: ", e.Op)
	case e.Scope != "":
		fmt.Fprintf(&b, "in scope %s: ", e.Scope)
	}
	if e.Err != nil {
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// labelled reports whether an error says by itself which operation it is of.
func labelled(err error, op string) bool {
	var e *bridge.Error
	return errors.As(err, &e) && op != "" && (e.Op == op || strings.HasSuffix(e.Op, "("+op+")"))
}

// Unwrap is the cause.
func (e *BuildError) Unwrap() error { return e.Err }

// What is ours and not the caller's: frames of these packages, by function
// name, and files in the library's folders, which tell the closures that the
// compiler has moved into the caller's functions.
var (
	libraryPackages = []string{
		"github.com/galeone/tfgo", "github.com/galeone/tensorflow/tensorflow/go",
		"runtime", "reflect", "iter", "slices", "maps", "sync",
	}
	libraryFolders = func() (folders []string) {
		_, file, _, _ := runtime.Caller(0)
		root := filepath.Dir(filepath.Dir(file))
		for _, name := range []string{"bridge", "ops", "optimizers", "savedmodels"} {
			folders = append(folders, root+"/"+name+"/")
		}
		return folders
	}()
)

// ours reports whether a frame belongs to the library and not to its caller;
// tests of the library are callers.
func ours(function, file string) bool {
	if strings.HasSuffix(file, "_test.go") {
		return false
	}
	for _, folder := range libraryFolders {
		if strings.HasPrefix(file, folder) {
			return true
		}
	}
	for _, p := range libraryPackages {
		// "p.F", "p.(*T).M", "p/sub.F"
		if rest, ok := strings.CutPrefix(function, p); ok && rest != "" && (rest[0] == '.' || rest[0] == '/') {
			return true
		}
	}
	return false
}

// caller is the first frame above this one that is not the library's.
func caller() (file string, line int) {
	pcs := make([]uintptr, 64)
	pcs = pcs[:runtime.Callers(2, pcs)]
	frames := runtime.CallersFrames(pcs)
	for {
		frame, more := frames.Next()
		if frame.File != "" && !ours(frame.Function, frame.File) {
			return shortFile(frame.File), frame.Line
		}
		if !more {
			return "", 0
		}
	}
}

// shortFile keeps a file's name and its folder.
func shortFile(file string) string {
	return filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file)
}

var (
	// What the binding's Scope.UpdateErr makes of an error.
	bindingMessage = regexp.MustCompile(`(?s)^failed to add operation "(.*?)": (.*?) \(Stacktrace: (.*)\)$`)
	// Two lines of a stack trace: the function and where it stands.
	traceFrame = regexp.MustCompile(`(?m)^([^\s].*)\(.*\)\n\t(.+\.go):(\d+)`)
)

// bindingError makes a BuildError of an error that the binding's op.Scope
// holds: its goroutine stack trace becomes the caller's file and line.
func bindingError(scope string, err error) error {
	m := bindingMessage.FindStringSubmatch(err.Error())
	if m == nil {
		return &BuildError{Scope: scope, Err: err}
	}
	e := &BuildError{Op: m[1], Scope: scope, Err: errors.New(m[2])}
	for _, frame := range traceFrame.FindAllStringSubmatch(m[3], -1) {
		if !ours(frame[1], frame[2]) && !strings.HasPrefix(frame[1], "panic") {
			e.File = shortFile(frame[2])
			e.Line, _ = strconv.Atoi(frame[3])
			break
		}
	}
	return e
}
