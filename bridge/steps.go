package bridge

// #include <stdlib.h>
// #include "run.h"
import "C"

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	tf "github.com/galeone/tensorflow/tensorflow/go"
)

// Step is a Call that was resolved and checked once, to be run many times: a run
// is one call into C, and allocates nothing in Go. It is safe from many
// goroutines, each with Outputs of its own, and needs no Close.
type Step struct {
	*preparedStep
	session *Session // kept alive
}

// preparedStep does not refer to the Session, so that a session which remembers
// it can still be collected.
type preparedStep struct {
	s       *session
	c       *C.sluice_step
	feeds   []feedSpec
	fetches []fetchSpec
	updates bool
	spare   struct { // outputs for runs that fetch nothing
		sync.Mutex
		free []*Outputs
	}
}

type feedSpec struct {
	name string
	dt   tf.DataType
	dims Shape
}

type fetchSpec struct {
	name string
	dt   tf.DataType
	dims Shape
}

func nameOf(out tf.Output) string { return fmt.Sprintf("%s:%d", out.Op.Name(), out.Index) }

// Prepare resolves and checks a call: that every feed, fetch and target is one
// of the session's graph, that no feed is given twice, and that none is fetched
// as well. The first run of a signature takes TensorFlow some 25 ms more, in
// which it prunes, optimizes and places the graph.
func (s *Session) Prepare(call Call) (*Step, error) {
	const op = "Prepare"
	if s == nil || s.session == nil {
		return nil, invalid(op, "the session is nil")
	}
	if !s.enter() {
		return nil, closedError(op, "session")
	}
	defer s.leave()
	if len(call.Fetches) == 0 && len(call.Targets) == 0 {
		return nil, invalid(op, "the call has neither a fetch nor a target: there is nothing to run")
	}
	p := &preparedStep{s: s.session}
	fed := make(map[C.TF_Output]bool, len(call.Feeds))
	for i, f := range call.Feeds {
		if problem := checkOutput(s.g, f); problem != "" {
			return nil, invalid(op, "feed %d %s", i, problem)
		}
		spec := feedSpec{nameOf(f), BaseDType(f.DataType()), ShapeOf(f)}
		if fed[cOutput(f)] {
			return nil, invalid(op, "feed %d, %s, is given twice", i, spec.name)
		}
		if spec.dt == Resource {
			return nil, invalid(op, "feed %d, %s, is a resource handle, which can't be fed", i, spec.name)
		}
		fed[cOutput(f)] = true
		p.feeds = append(p.feeds, spec)
	}
	var roots []*C.TF_Operation
	for i, f := range call.Fetches {
		if problem := checkOutput(s.g, f); problem != "" {
			return nil, invalid(op, "fetch %d %s", i, problem)
		}
		spec := fetchSpec{nameOf(f), BaseDType(f.DataType()), ShapeOf(f)}
		if fed[cOutput(f)] {
			return nil, invalid(op, "fetch %d, %s, is fed as well: its value would be the tensor that was fed", i, spec.name)
		}
		p.fetches = append(p.fetches, spec)
		roots = append(roots, cOp(f.Op))
	}
	for i, t := range call.Targets {
		if problem := checkOp(s.g, t); problem != "" {
			return nil, invalid(op, "target %d %s", i, problem)
		}
		roots = append(roots, cOp(t))
	}
	var err error
	if p.updates, err = s.effects.updates(roots, fed); err != nil {
		return nil, err
	}
	p.updates = p.updates || call.Exclusive
	inCaller := C.int(0)
	if s.config.Threading != Pool {
		inCaller = 1
	}
	p.c = C.sluice_new_step(s.c, cGraph(s.g), s.seen, inCaller, C.int(len(call.Feeds)), C.int(len(call.Fetches)), C.int(len(call.Targets)))
	runtime.AddCleanup(p, func(c *C.sluice_step) { C.sluice_delete_step(c) }, p.c)
	feeds, fetches := unsafe.Slice(p.c.feeds, len(call.Feeds)), unsafe.Slice(p.c.fetches, len(call.Fetches))
	targets := unsafe.Slice(p.c.targets, len(call.Targets))
	for i, f := range call.Feeds {
		feeds[i] = cOutput(f)
	}
	for i, f := range call.Fetches {
		fetches[i] = cOutput(f)
	}
	for i, t := range call.Targets {
		targets[i] = cOp(t)
	}
	return &Step{p, s}, nil
}

// Updates tells whether a run of the step updates variables, or is Exclusive, so
// that it waits for its turn.
func (step *Step) Updates() bool { return step != nil && step.preparedStep != nil && step.updates }

// Outputs holds the results of one run at a time of a step, and the memory for
// its arguments. Reused from run to run it makes a steady step allocate nothing.
// Two runs at once with the same Outputs are an error for the second.
type Outputs struct {
	step    *preparedStep
	session *Session // kept alive
	frame   *frame
	busy    atomic.Bool
	closed  bool      // guarded by busy
	tensors []*Tensor // guarded by busy; each has the frame's buffer of its number
}

// frame is what Outputs owns, for the cleanup of forgotten ones.
type frame struct {
	c       *C.sluice_frame
	feeds   []*C.TF_Tensor   // C's memory
	values  []C.sluice_value // C's memory
	bound   []C.sluice_target
	buffers []*buffer
	pins    []runtime.Pinner
}

func (p *preparedStep) borrowOutputs() *Outputs {
	p.spare.Lock()
	defer p.spare.Unlock()
	n := len(p.spare.free)
	if n == 0 {
		return p.newOutputs()
	}
	o := p.spare.free[n-1]
	p.spare.free = p.spare.free[:n-1]
	return o
}

func (p *preparedStep) returnOutputs(o *Outputs) {
	p.spare.Lock()
	p.spare.free = append(p.spare.free, o)
	p.spare.Unlock()
}

// bufferIdle is the state of a buffer that refers to no tensor, and that nobody
// but its outputs will touch.
const bufferIdle = math.MinInt64 | bufferClosed

func idleBuffer() *buffer {
	b := new(buffer)
	b.state.Store(bufferIdle)
	return b
}

// NewOutputs makes outputs for runs of the step. Close them.
func (step *Step) NewOutputs() *Outputs {
	if step == nil || step.preparedStep == nil {
		return nil
	}
	o := step.newOutputs()
	o.session = step.session
	return o
}

func (p *preparedStep) newOutputs() *Outputs {
	n := len(p.fetches)
	f := &frame{
		c:       C.sluice_new_frame(p.c),
		buffers: make([]*buffer, n),
		pins:    make([]runtime.Pinner, n),
	}
	f.feeds = unsafe.Slice(f.c.feeds, len(p.feeds))
	f.values = unsafe.Slice(f.c.values, n)
	f.bound = unsafe.Slice(f.c.bound, n)
	o := &Outputs{step: p, frame: f, tensors: make([]*Tensor, n)}
	for i := range n {
		o.renew(i)
	}
	runtime.AddCleanup(o, func(f *frame) { f.free(false) }, f)
	return o
}

// renew gives place i a tensor that nobody has seen yet.
func (o *Outputs) renew(i int) {
	o.frame.buffers[i] = idleBuffer()
	o.tensors[i] = &Tensor{b: o.frame.buffers[i], owner: o}
}

func (f *frame) free(viewed bool) {
	if f.c == nil {
		return
	}
	for i, b := range f.buffers {
		if viewed || !b.viewed.Load() {
			b.close()
		}
		f.pins[i].Unpin()
	}
	C.sluice_delete_frame(f.c)
	f.c = nil
}

func (o *Outputs) enter(op string) error {
	if o == nil || o.frame == nil {
		return invalid(op, "the outputs are nil")
	}
	if !o.busy.CompareAndSwap(false, true) {
		return Errorf(FailedPrecondition, op, "the outputs are in use by another run; give each goroutine outputs of its own")
	}
	if o.closed {
		o.busy.Store(false)
		return closedError(op, "outputs")
	}
	return nil
}

func (o *Outputs) leave() { o.busy.Store(false) }

// Len is how many outputs there are: the step's fetches.
func (o *Outputs) Len() int {
	if o == nil || o.step == nil {
		return 0
	}
	return len(o.step.fetches)
}

// Tensor is what the last run gave for the i-th fetch. It belongs to the outputs
// and is closed by their next run or Close: it may be read, and fed to other
// runs, until then. Before the first run, after a run that failed, for a bound
// fetch and while a run is in progress it is a closed tensor; nil if there is no
// i-th fetch.
func (o *Outputs) Tensor(i int) *Tensor {
	if i < 0 || i >= o.Len() {
		return nil
	}
	if o.enter("Outputs.Tensor") != nil {
		return &Tensor{b: idleBuffer()}
	}
	defer o.leave()
	return o.tensors[i]
}

// Take is Tensor(i), no longer of the outputs but of the caller, who closes it.
func (o *Outputs) Take(i int) *Tensor {
	if i < 0 || i >= o.Len() {
		return nil
	}
	if o.enter("Outputs.Take") != nil {
		return &Tensor{b: idleBuffer()}
	}
	defer o.leave()
	t := o.tensors[i]
	o.renew(i)
	t.adopt()
	return t
}

// Bind makes runs copy the i-th fetch to data, which holds its elements in
// row-major order and must be of its data type and just its size. The fetch's
// tensor is then not kept: Tensor(i) is closed. nil data ends it. data is pinned
// until then, or until the outputs are closed.
func Bind[T Element](o *Outputs, i int, data []T) error {
	const op = "Bind"
	if err := o.enter(op); err != nil {
		return err
	}
	defer o.leave()
	if i < 0 || i >= len(o.tensors) {
		return invalid(op, "there is no fetch %d; the step has %d", i, len(o.tensors))
	}
	fetch := &o.step.fetches[i]
	if data != nil && fetch.dt != DTypeOf[T]() {
		return invalid(op, "fetch %s: its elements are %s, not %s (%T)", fetch.name, DTypeName(fetch.dt), DTypeName(DTypeOf[T]()), *new(T))
	}
	if n, known := fetch.dims.NumElements(); data != nil && known && n != int64(len(data)) {
		return invalid(op, "fetch %s: its shape %s has %d elements, the memory to bind %d", fetch.name, fetch.dims, n, len(data))
	}
	o.frame.pins[i].Unpin()
	o.frame.bound[i] = C.sluice_target{}
	if data == nil {
		return nil
	}
	if len(data) == 0 {
		data = make([]T, 1)[:0] // an address, so that it counts as bound
	}
	at := unsafe.Pointer(unsafe.SliceData(data))
	o.frame.pins[i].Pin(at)
	o.frame.bound[i].into = at
	o.frame.bound[i].bytes = C.size_t(len(data)) * C.size_t(unsafe.Sizeof(*new(T)))
	return nil
}

// Close frees what the outputs hold; tensors that were taken live on. A second
// Close does nothing. While a run uses the outputs it is an error.
func (o *Outputs) Close() error {
	if o == nil || o.frame == nil {
		return nil
	}
	if !o.busy.CompareAndSwap(false, true) {
		return Errorf(FailedPrecondition, "Outputs.Close", "a run uses the outputs")
	}
	defer o.leave()
	if !o.closed {
		o.closed = true
		o.frame.free(true)
	}
	return nil
}

// arm makes the outputs ready to receive a run's results: what they hold is
// handed to C to be deleted, or let go of when somebody else still uses it. It
// returns how much less is alive then.
func (o *Outputs) arm() (tensors, bytes int64) {
	f := o.frame
	for i, b := range f.buffers {
		f.values[i].tensor = nil
		switch {
		case b.state.Load() == bufferIdle: // closed is not enough: it may be about to be freed
		case b.id == 0 && b.state.CompareAndSwap(bufferOpen, bufferIdle):
			f.values[i].tensor = b.c
			tensors++
			bytes += b.size
			b.c, b.data = nil, nil
			b.viewed.Store(false)
		default:
			b.close()
			o.renew(i)
		}
	}
	return tensors, bytes
}

// Run runs the step: feeds are the tensors for Call.Feeds in their order, and the
// results come into out. out may be nil for a step that fetches nothing. Feeds
// that don't fit (data type, rank, fixed dimensions) are all named in one error,
// before anything runs. They stay the caller's, and may be closed at once when
// Run has returned.
//
// A context that is done is the error which errors.Is finds
// (context.DeadlineExceeded, context.Canceled), also when the run completed
// just before; out then holds nothing, the session and its variables stay
// usable. How soon Run returns depends on what it is doing:
//
//   - Waiting for its turn to update variables: at once.
//   - Under a deadline (of the context, or Config.Timeout): blocked in a queue,
//     within milliseconds of the deadline; in a loop (While, also a v1 loop), at
//     the end of the turn in progress; in a straight stretch of kernels, at its
//     end, because TensorFlow looks for an order to stop only where it waits and
//     where it loops: a chain of a hundred large products is one such stretch.
//   - Under a context that can be cancelled but has no deadline: after the run in
//     progress, however long, since TensorFlow's C API can't stop one run. Give
//     runs that may block a deadline, or cut long loops in pieces.
//     Session.Close stops all runs of the session, as a deadline does.
//
// An update that was stopped half-way may have been made for some variables and
// not for others.
func (step *Step) Run(ctx context.Context, feeds []*Tensor, out *Outputs) error {
	if step == nil || step.preparedStep == nil {
		return invalid("Run", "the step is nil")
	}
	err := step.run(ctx, feeds, out)
	runtime.KeepAlive(step)
	return err
}

// longestLimit keeps a time limit, in milliseconds, from overflowing the clock
// that TensorFlow adds it to. It is some 34 years.
const longestLimit = 1 << 40

func (p *preparedStep) run(ctx context.Context, feeds []*Tensor, out *Outputs) error {
	const op = "Run"
	if ctx == nil {
		ctx = context.Background()
	}
	if !p.s.enter() {
		return closedError(op, "session")
	}
	defer p.s.leave()
	if out == nil {
		if len(p.fetches) > 0 {
			return invalid(op, "the step fetches %s: wanted outputs to put it in, got nil", p.fetchNames())
		}
		out = p.borrowOutputs()
		defer p.returnOutputs(out)
	}
	if err := out.enter(op); err != nil {
		return err
	}
	defer out.leave()
	if out.step != p {
		return invalid(op, "the outputs were made by another step")
	}
	if err := ctx.Err(); err != nil {
		return contextError(err, "before it began")
	}
	if err := p.feed(feeds, out.frame.feeds); err != nil {
		return err
	}
	defer release(feeds)

	deadline, limited := ctx.Deadline()
	var ownDeadline time.Time
	if !limited && p.s.config.Timeout > 0 {
		ownDeadline = time.Now().Add(p.s.config.Timeout)
		deadline, limited = ownDeadline, true
	}
	if p.updates {
		if err := p.s.takeTurn(ctx, ownDeadline); err != nil {
			return err
		}
		defer p.s.giveTurn()
	}
	var milliseconds int64
	if limited {
		// Rounded up: a run is not stopped before its time.
		left := time.Until(deadline)
		if left <= 0 {
			return contextError(context.DeadlineExceeded, "before it began")
		}
		milliseconds = min(int64((left-1)/time.Millisecond)+1, longestLimit)
	}
	tensors, bytes := out.arm()
	code := Code(C.sluice_run(out.frame.c, C.int64_t(milliseconds)))
	if err := ctx.Err(); code != OK || err != nil {
		err = p.runError(ctx, code, out)
		out.discard(code)
		liveTensors.Add(-tensors)
		liveBytes.Add(-bytes)
		return err
	}
	return out.collect(tensors, bytes)
}

// feed checks the tensors, and holds them and puts them into the frame if all are
// right.
func (p *preparedStep) feed(feeds []*Tensor, into []*C.TF_Tensor) error {
	if len(feeds) != len(p.feeds) {
		return invalid("Run", "wanted %d feeds (%s), got %d", len(p.feeds), p.feedNames(), len(feeds))
	}
	for i, t := range feeds {
		if t == nil || t.b == nil || !t.b.retain() {
			release(feeds[:i])
			return p.feedError(feeds)
		}
		if !p.feeds[i].fits(t.b) {
			release(feeds[:i+1])
			return p.feedError(feeds)
		}
		into[i] = t.b.c
	}
	return nil
}

func release(feeds []*Tensor) {
	for _, t := range feeds {
		t.b.release()
	}
}

func (f *feedSpec) fits(b *buffer) bool {
	if f.dt != b.dt {
		return false
	}
	if f.dims == nil {
		return true
	}
	if len(f.dims) != len(b.shape) {
		return false
	}
	for i, d := range f.dims {
		if d >= 0 && d != b.shape[i] {
			return false
		}
	}
	return true
}

// feedError says what is wrong with each of the feeds.
func (p *preparedStep) feedError(feeds []*Tensor) error {
	var (
		problems []string
		cause    error
	)
	for i, t := range feeds {
		f := &p.feeds[i]
		wanted := DTypeName(f.dt) + " " + f.dims.String()
		b, err := t.acquire("Run")
		switch {
		case t == nil || t.b == nil:
			problems = append(problems, fmt.Sprintf("feed %s: wanted %s, got nil", f.name, wanted))
		case err != nil:
			problems = append(problems, fmt.Sprintf("feed %s: wanted %s, got a closed tensor", f.name, wanted))
			cause = ErrClosed
		default:
			if !f.fits(b) {
				problems = append(problems, fmt.Sprintf("feed %s: wanted %s, got %s %s", f.name, wanted, DTypeName(b.dt), b.shape))
			}
			b.release()
		}
	}
	return &Error{Code: InvalidArgument, Op: "Run", Message: strings.Join(problems, "; "), Err: cause}
}

func (p *preparedStep) feedNames() string {
	names := make([]string, len(p.feeds))
	for i, f := range p.feeds {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

func (p *preparedStep) fetchNames() string {
	names := make([]string, len(p.fetches))
	for i, f := range p.fetches {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// runError is why a run gave nothing: the session was closed, the context is
// done, or TensorFlow's own error, in this order.
func (p *preparedStep) runError(ctx context.Context, code Code, out *Outputs) error {
	err := p.nameVariables(statusError(out.frame.c.status, "Run"))
	if code != OK && p.s.calls.Load()&1 != 0 {
		return &Error{Code: FailedPrecondition, Op: "Run", Message: "the session was closed while the run was in progress", Err: ErrClosed}
	}
	cause := ctx.Err()
	switch {
	case cause == nil && code == DeadlineExceeded:
		return contextError(context.DeadlineExceeded, "while it was in progress")
	case cause == nil:
		return err
	case code == OK:
		return contextError(cause, "when it was complete: its updates are made, its results dropped")
	case code == Canceled || code == DeadlineExceeded:
		return contextError(cause, "while it was in progress")
	}
	return err
}

// nameVariables completes what the kernels of ResourceApply… say of a variable
// without a value: not which.
func (p *preparedStep) nameVariables(err error) error {
	e, ok := err.(*Error)
	if !ok || e.Message != "Invalid variable reference." {
		return err
	}
	var names []string
	for _, in := range Inputs(OperationByName(p.s.g, e.Op)) {
		if in.DataType() == Resource {
			names = append(names, in.Op.Name())
		}
	}
	if names == nil {
		return err
	}
	return uninitializedError(e.Op, names...)
}

// discard drops what a run gave that counts as failed.
func (o *Outputs) discard(code Code) {
	if code != OK {
		return // C has nothing
	}
	for i := range o.frame.values {
		C.TF_DeleteTensor(o.frame.values[i].tensor)
		o.frame.values[i].tensor = nil
	}
}

// collect makes the results readable. tensors and bytes is what the outputs held
// before.
func (o *Outputs) collect(tensors, bytes int64) error {
	f := o.frame
	var problems []string
	for i, b := range f.buffers {
		v := &f.values[i]
		if v.tensor == nil {
			if f.bound[i].mismatch != 0 {
				b.fill(v)
				problems = append(problems, fmt.Sprintf("fetch %s: got %s %s, %d bytes, but the bound memory has %d",
					o.step.fetches[i].name, DTypeName(b.dt), b.shape, b.size, int64(f.bound[i].bytes)))
			}
			continue
		}
		b.fill(v)
		v.tensor = nil
		tensors--
		bytes -= b.size
		if verifyNumbers {
			if problem := b.notFinite(); problem != "" {
				problems = append(problems, fmt.Sprintf("fetch %s: %s", o.step.fetches[i].name, problem))
			}
		}
		b.state.Store(bufferOpen)
	}
	if tensors != 0 {
		liveTensors.Add(-tensors)
	}
	if bytes != 0 {
		liveBytes.Add(-bytes)
	}
	if problems != nil {
		return invalid("Run", "%s", strings.Join(problems, "; "))
	}
	return nil
}
