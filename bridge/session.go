package bridge

// #include <stdlib.h>
// #include "run.h"
import "C"

import (
	"context"
	"encoding/binary"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// Session runs a graph and holds the values of its variables (TF_Session). It is
// safe from many goroutines, and sees operations that are added to the graph
// after it was made.
//
// Runs that update variables (assignments, train steps; also inside of
// functions and loops) take turns: one at a time in a session. All other runs
// go beside them and each other, and see a variable before or after an update.
type Session struct {
	*session
}

// session is what a Session refers to, so that the cleanup of a forgotten
// Session can still reach it.
type session struct {
	c       *C.TF_Session
	g       *tf.Graph
	config  Config
	calls   atomic.Int64  // 2 × calls in progress, +1 once closing
	turn    chan struct{} // holds a token while a run updates variables
	closing chan struct{} // closed when Close begins
	idle    chan struct{} // closed when the last call has left after that
	gone    chan struct{} // closed when the TF_Session is deleted
	err     error         // of Close
	effects effects
	seen    *C.size_t // how far runs have seen the graph, see HasRun

	steps struct {
		sync.Mutex
		known map[string]*preparedStep
	}
}

var liveSessions atomic.Int64

// LiveSessions is the number of sessions that are not closed yet.
func LiveSessions() int { return int(liveSessions.Load()) }

// NewSession makes a session of the graph on this process's devices. The zero
// Config is a good one.
func NewSession(g *tf.Graph, c Config) (*Session, error) {
	const op = "NewSession"
	if layoutError != nil {
		return nil, layoutError
	}
	if err := CheckVersion(); err != nil {
		return nil, err
	}
	graph := cGraph(g)
	if graph == nil {
		return nil, invalid(op, "the graph is nil")
	}
	configBytes, err := c.proto()
	if err != nil {
		return nil, err
	}
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	options := C.TF_NewSessionOptions()
	defer C.TF_DeleteSessionOptions(options)
	C.TF_SetConfig(options, unsafe.Pointer(unsafe.SliceData(configBytes)), C.size_t(len(configBytes)), status)
	if err := statusError(status, op); err != nil {
		return nil, err
	}
	made := C.TF_NewSession(graph, options, status)
	if err := statusError(status, op); err != nil {
		return nil, err
	}
	s := &session{
		c: made, g: g, config: c,
		turn:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		idle:    make(chan struct{}),
		gone:    make(chan struct{}),
		effects: effects{g: g, opTypes: map[string]opEffect{}, functions: map[string]bool{}},
	}
	s.seen = (*C.size_t)(C.calloc(1, C.sizeof_size_t))
	runtime.AddCleanup(s, func(seen *C.size_t) { C.free(unsafe.Pointer(seen)) }, s.seen)
	s.register()
	liveSessions.Add(1)
	if c.GPU.Require {
		if err := s.requireGPU(); err != nil {
			s.close()
			return nil, err
		}
	}
	outer := &Session{s}
	runtime.AddCleanup(outer, func(s *session) { s.close() }, s)
	return outer, nil
}

func (s *session) requireGPU() error {
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	list := C.TF_SessionListDevices(s.c, status)
	if err := statusError(status, "NewSession"); err != nil {
		return err
	}
	defer C.TF_DeleteDeviceList(list)
	var names []string
	for i := range C.TF_DeviceListCount(list) {
		if C.GoString(C.TF_DeviceListType(list, i, status)) == "GPU" {
			return nil
		}
		names = append(names, C.GoString(C.TF_DeviceListName(list, i, status)))
	}
	return Errorf(FailedPrecondition, "NewSession", "Config.GPU.Require is set, but TensorFlow has no GPU; have %s", strings.Join(names, ", "))
}

// Graph is the graph that the session runs.
func (s *Session) Graph() *tf.Graph {
	if s == nil || s.session == nil {
		return nil
	}
	return s.g
}

// enter counts a call, unless the session is closing.
func (s *session) enter() bool {
	for {
		n := s.calls.Load()
		if n&1 != 0 {
			return false
		}
		if s.calls.CompareAndSwap(n, n+2) {
			return true
		}
	}
}

func (s *session) leave() {
	if s.calls.Add(-2) == 1 {
		close(s.idle)
	}
}

// Close cancels the runs in progress (their error matches ErrClosed), waits
// until they have returned, and frees the session and its variables. Runs that
// are blocked in a queue return within milliseconds, loops at the end of the turn
// in progress; a straight stretch of kernels is waited for. It may be called more than once and from many goroutines;
// all return when the session is gone.
func (s *Session) Close() error {
	if s == nil || s.session == nil {
		return nil
	}
	return s.session.close()
}

func (s *session) close() error {
	for {
		n := s.calls.Load()
		if n&1 != 0 {
			<-s.gone
			return s.err
		}
		if s.calls.CompareAndSwap(n, n|1) {
			if n == 0 {
				close(s.idle)
			}
			break
		}
	}
	close(s.closing)
	s.unregister()
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	C.TF_CloseSession(s.c, status)
	s.err = statusError(status, "Session.Close")
	<-s.idle
	C.TF_DeleteSession(s.c, status)
	if s.err == nil {
		s.err = statusError(status, "Session.Close")
	}
	s.steps.Lock()
	s.steps.known = nil
	s.steps.Unlock()
	liveSessions.Add(-1)
	close(s.gone)
	return s.err
}

// takeTurn waits until no other run of the session updates variables; giveTurn
// ends the turn.
func (s *session) takeTurn(ctx context.Context, deadline time.Time) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	default:
	}
	var expired <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return contextError(ctx.Err(), "while it waited for another update of the session's variables")
	case <-expired:
		return contextError(context.DeadlineExceeded, "while it waited for another update of the session's variables")
	case <-s.closing:
		return closedError("Run", "session")
	}
}

func (s *session) giveTurn() { <-s.turn }

func contextError(cause error, when string) error {
	code, what := Canceled, "the run was cancelled "
	if cause == context.DeadlineExceeded {
		code, what = DeadlineExceeded, "the run's time was over "
	}
	return &Error{Code: code, Op: "Run", Message: what + when, Err: cause}
}

// Call names what a run is given, what it gives, and what it does.
type Call struct {
	Feeds   []tf.Output     // replaced by the tensors of a run, in this order
	Fetches []tf.Output     // computed and returned, in this order
	Targets []*tf.Operation // run for what they do

	// Exclusive makes the run take its turn among those that update variables,
	// also if it only reads: what it fetches is then the state between two
	// updates, of all variables at one moment.
	Exclusive bool
}

// Run runs the operations, such as g.Init(), and returns when they are done. For
// what the context does see Step.Run. Steps are prepared once and remembered, so
// that this is good in a loop as well.
func (s *Session) Run(ctx context.Context, targets ...*tf.Operation) error {
	step, err := s.remembered(Call{Targets: targets})
	if err != nil {
		return err
	}
	return step.Run(ctx, nil, nil)
}

// Call prepares and runs in one: feeds are the tensors for call.Feeds, in their
// order, and the tensors that come back those of call.Fetches. The caller closes
// them.
func (s *Session) Call(ctx context.Context, call Call, feeds ...*Tensor) ([]*Tensor, error) {
	step, err := s.remembered(call)
	if err != nil {
		return nil, err
	}
	out := step.NewOutputs()
	defer out.Close()
	if err := step.Run(ctx, feeds, out); err != nil {
		return nil, err
	}
	results := make([]*Tensor, len(call.Fetches))
	for i := range results {
		results[i] = out.Take(i)
	}
	return results, nil
}

// maxRemembered bounds the steps that a session keeps for Run and Call.
const maxRemembered = 256

// remembered is Prepare for calls that are made again and again.
func (s *Session) remembered(call Call) (*Step, error) {
	if s == nil || s.session == nil {
		return nil, invalid("Session.Run", "the session is nil")
	}
	key := make([]byte, 0, 16*(len(call.Feeds)+len(call.Fetches)+len(call.Targets)+2))
	outputs := func(list []tf.Output) {
		key = binary.AppendUvarint(key, uint64(len(list)))
		for _, o := range list {
			key = binary.LittleEndian.AppendUint64(key, uint64(uintptr(unsafe.Pointer(cOp(o.Op)))))
			key = binary.AppendVarint(key, int64(o.Index))
		}
	}
	outputs(call.Feeds)
	outputs(call.Fetches)
	for _, op := range call.Targets {
		key = binary.LittleEndian.AppendUint64(key, uint64(uintptr(unsafe.Pointer(cOp(op)))))
	}
	if call.Exclusive {
		key = append(key, 1)
	}
	s.steps.Lock()
	step := s.steps.known[string(key)]
	s.steps.Unlock()
	if step != nil {
		return &Step{step, s}, nil
	}
	made, err := s.Prepare(call)
	if err != nil {
		return nil, err
	}
	s.steps.Lock()
	defer s.steps.Unlock()
	if len(s.steps.known) >= maxRemembered {
		clear(s.steps.known)
	}
	if s.steps.known == nil {
		s.steps.known = map[string]*preparedStep{}
	}
	s.steps.known[string(key)] = made.preparedStep
	return made, nil
}
