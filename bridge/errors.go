package bridge

// #include "tensorflow/c/c_api.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Code is TensorFlow's canonical error code (TF_Code), the same numbers that
// gRPC and Python's tf.errors use.
type Code int

// The codes, by TensorFlow's numbers.
const (
	OK                 Code = 0
	Canceled           Code = 1
	Unknown            Code = 2
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	AlreadyExists      Code = 6
	PermissionDenied   Code = 7
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	Aborted            Code = 10
	OutOfRange         Code = 11
	Unimplemented      Code = 12
	Internal           Code = 13
	Unavailable        Code = 14
	DataLoss           Code = 15
	Unauthenticated    Code = 16
)

var codeNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
	"ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
	"ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
	"UNAUTHENTICATED",
}

// String is the code's name as TensorFlow prints it, such as
// "INVALID_ARGUMENT"; "CODE(n)" for a number that TensorFlow does not define.
func (c Code) String() string {
	if c >= 0 && int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "CODE(" + strconv.Itoa(int(c)) + ")"
}

// Error is what every failing call of this module returns, or wraps.
//
// errors.Is finds it by code (errors.Is(err, bridge.ErrInvalidArgument)), by
// kind (ErrClosed, ErrUninitialized), and, for runs that were stopped, by
// context.DeadlineExceeded and context.Canceled.
type Error struct {
	Code    Code   // TensorFlow's code
	Op      string // the node that failed where TensorFlow names it, else the call
	Message string // what was wrong, what was wanted, what exists
	Err     error  // the cause, for errors.Is and errors.As; may be nil
}

// Error is "Op: Message (CODE)".
func (e *Error) Error() string {
	message := e.Message
	if message == "" && e.Err != nil {
		message = e.Err.Error()
	}
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Op != "" && message != "" {
		b.WriteString(": ")
	}
	b.WriteString(message)
	if b.Len() == 0 {
		return e.Code.String()
	}
	fmt.Fprintf(&b, " (%s)", e.Code)
	return b.String()
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error that has nothing but a code, and the
// code is this error's. So errors.Is(err, &Error{Code: NotFound}) asks for a
// code; the Err… values of this package are such errors.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Op == "" && t.Message == "" && t.Err == nil && t.Code == e.Code
}

// Errors by code: errors.Is(err, ErrNotFound) holds for every *Error with that
// code, wherever in the chain it is.
var (
	ErrCanceled           error = &Error{Code: Canceled}
	ErrUnknown            error = &Error{Code: Unknown}
	ErrInvalidArgument    error = &Error{Code: InvalidArgument}
	ErrDeadlineExceeded   error = &Error{Code: DeadlineExceeded}
	ErrNotFound           error = &Error{Code: NotFound}
	ErrAlreadyExists      error = &Error{Code: AlreadyExists}
	ErrPermissionDenied   error = &Error{Code: PermissionDenied}
	ErrResourceExhausted  error = &Error{Code: ResourceExhausted}
	ErrFailedPrecondition error = &Error{Code: FailedPrecondition}
	ErrAborted            error = &Error{Code: Aborted}
	ErrOutOfRange         error = &Error{Code: OutOfRange}
	ErrUnimplemented      error = &Error{Code: Unimplemented}
	ErrInternal           error = &Error{Code: Internal}
	ErrUnavailable        error = &Error{Code: Unavailable}
	ErrDataLoss           error = &Error{Code: DataLoss}
	ErrUnauthenticated    error = &Error{Code: Unauthenticated}
)

// Errors by kind. Both come with the code FailedPrecondition.
var (
	// ErrClosed: a tensor, a session, a step or outputs were used after Close.
	ErrClosed = errors.New("used after Close")
	// ErrUninitialized: a variable was read before it had a value.
	ErrUninitialized = errors.New("variable has no value yet")
)

// Errorf makes an *Error. The verb %w in format works as in fmt.Errorf and
// becomes the cause.
func Errorf(code Code, op, format string, args ...any) error {
	wrapped := fmt.Errorf(format, args...)
	e := &Error{Code: code, Op: op, Message: wrapped.Error(), Err: errors.Unwrap(wrapped)}
	if many, ok := wrapped.(interface{ Unwrap() []error }); ok {
		e.Err = errors.Join(many.Unwrap()...)
	}
	return e
}

func invalid(op, format string, args ...any) error {
	return Errorf(InvalidArgument, op, format, args...)
}

func closedError(op, what string) error {
	return &Error{Code: FailedPrecondition, Op: op, Message: what + " used after Close", Err: ErrClosed}
}

// statusError is the error in a TF_Status, nil for OK. op names the call and is
// replaced by the node's name where the message tells it.
func statusError(status *C.TF_Status, op string) error {
	code := Code(C.TF_GetCode(status))
	if code == OK {
		return nil
	}
	return errorFromTensorFlow(code, op, C.GoString(C.TF_Message(status)))
}

var (
	rootErrors   = regexp.MustCompile(`(?s)^\d+ root error\(s\) found\.\s*\(0\) (?:[A-Za-z_ ]+: )?(.*?)(?:\n\s*\(1\) .*)?$`)
	tallies      = regexp.MustCompile(`\n\d+ (?:successful operations|derived errors ignored)\.`)
	nodeMark     = regexp.MustCompile(`\{\{node ([^}]+)\}\}`)
	nodeLine     = regexp.MustCompile(`\n?\s*\[\[[^\n]*\]\]`)
	functionNode = regexp.MustCompile(`\{\{function_node [^}]*\}\}\s*`)

	uninitialized = []*regexp.Regexp{
		regexp.MustCompile(`Could not find variable (\S+?)\. `),
		regexp.MustCompile(`Error while reading resource variable (\S+) from Container`),
		regexp.MustCompile(`Attempting to use uninitialized value (\S+)`),
		regexp.MustCompile(`Resource [^/\s]+/(\S+)/N10tensorflow3VarE does not exist`),
		regexp.MustCompile(`Could not find resource: [^/\s]+/(\S+?)\)?(?:\s|$)`),
		regexp.MustCompile(`variable (?:handle )?'?(\S+?)'? (?:is|was) uninitialized`),
	}
)

// errorFromTensorFlow makes a TensorFlow message readable: the first root error
// only, its node as Op, no "[[{{node …}}]]" trailers.
func errorFromTensorFlow(code Code, op, message string) error {
	if m := rootErrors.FindStringSubmatch(message); m != nil {
		message = m[1]
	}
	message = tallies.ReplaceAllString(message, "")
	// "_retval_…" is a node of TensorFlow's own, not one of the graph.
	if m := nodeMark.FindStringSubmatch(message); m != nil && !strings.HasPrefix(m[1], "_retval_") {
		op = m[1]
	}
	message = functionNode.ReplaceAllString(message, "")
	message = strings.TrimSpace(nodeLine.ReplaceAllString(message, ""))
	e := &Error{Code: code, Op: op, Message: message}
	switch code {
	case DeadlineExceeded:
		e.Err = context.DeadlineExceeded
	case FailedPrecondition, NotFound:
		for _, re := range uninitialized {
			if m := re.FindStringSubmatch(message); m != nil {
				return uninitializedError(op, m[1])
			}
		}
	}
	return e
}

// uninitializedError says that the variable, or at least one of those named, has
// no value.
func uninitializedError(op string, variables ...string) error {
	which := fmt.Sprintf("variable %q", variables[0])
	if len(variables) > 1 {
		which = fmt.Sprintf("one of the variables %q", variables)
	}
	return &Error{
		Code: FailedPrecondition,
		Op:   op,
		Message: which + " has no value yet in this session; run the graph's Init() first, " +
			"or InitOf that variable, or restore it from a checkpoint",
		Err: ErrUninitialized,
	}
}
