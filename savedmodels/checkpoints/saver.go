package checkpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

// SaverOptions are the settings of a [Saver].
type SaverOptions struct {
	// Name is what checkpoints are called, before a dash and the step; "" is
	// "model".
	Name string
	// Variables are those that are saved; nil: all that the graph has when it
	// is saved, slots and steps of optimizers included, but those in
	// LOCAL_VARIABLES.
	Variables []*ops.Variable
	// Keep is how many of the last checkpoints stay; 0 is 5, as in Python, and
	// a negative number keeps all.
	Keep int
	// KeepBest is how many of the best stay beside the last, by the metric that
	// they were saved with.
	KeepBest int
	// LowerIsBetter says that a small metric is a good one, as a loss is.
	LowerIsBetter bool
	// Shards is the number of data files of each; 0 is 1.
	Shards int
}

// SaveOptions are what one save knows beside the step.
type SaveOptions struct {
	// Metric is how good the model is, for KeepBest; nil: unknown. So is one
	// that is not finite.
	Metric *float64
}

// Saver saves a graph's variables in a folder from time to time, keeps the last
// and the best of these checkpoints, and lists them in the folder's file
// "checkpoint", as Python's tf.train.CheckpointManager does. Only one Saver may
// write to a folder at a time. It is safe from many goroutines.
//
// Variables are named as in the graph, slots ("net/w/Adam") and steps included,
// so that Python reads the files by these names and a training that is resumed
// goes on bit for bit.
type Saver struct {
	g   *ops.Graph
	dir string
	o   SaverOptions

	mu      sync.Mutex // held while a save begins
	pending *Pending   // the last one that was started
	closed  bool
}

// Pending is a save in progress.
type Pending struct {
	prefix string
	done   chan struct{}
	err    error
	mu     sync.Mutex
	asked  bool // err was given to somebody
}

const metricsFile = "checkpoint.metrics"

// NewSaver makes a saver of g's variables in the folder dir, which is made where
// it is missing. Checkpoints that are there already are kept and counted; files
// that a killed process left half-written are removed.
func NewSaver(g *ops.Graph, dir string, o SaverOptions) (*Saver, error) {
	const op = "checkpoints.NewSaver"
	if err := g.Err(); err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "model"
	}
	switch {
	case dir == "":
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "the folder's name is empty; \".\" is the current one")
	case strings.ContainsAny(o.Name, "/\x00"):
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "Name %q is not the beginning of a file's name", o.Name)
	case o.KeepBest < 0 || o.Shards < 0:
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "KeepBest %d, Shards %d: neither can be negative", o.KeepBest, o.Shards)
	}
	if o.Keep == 0 {
		o.Keep = 5
	}
	if o.Variables != nil {
		variables, err := chosen(g, o.Variables)
		if err != nil {
			return nil, err
		}
		o.Variables = slices.Clone(variables)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fileError(op, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fileError(op, err)
	}
	for _, e := range entries {
		ours := strings.HasPrefix(e.Name(), o.Name+"-") || strings.HasPrefix(e.Name(), stateFile)
		if ours && strings.Contains(e.Name(), temporaryMark) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return &Saver{g: g, dir: dir, o: o}, nil
}

// Dir is the folder.
func (s *Saver) Dir() string {
	if s == nil {
		return ""
	}
	return s.dir
}

// Save saves the variables as they are in the session and returns the prefix,
// "dir/model-100" for step 100, when everything is on the disk. A checkpoint of
// the same step is replaced, in one step.
//
// The variables are taken at one moment, between two updates, also while other
// goroutines train.
func (s *Saver) Save(ctx context.Context, sess *bridge.Session, step int64, o SaveOptions) (string, error) {
	p, err := s.Start(ctx, sess, step, o)
	if err != nil {
		return "", err
	}
	return p.Wait(ctx)
}

// Start is [Saver.Save] that returns when the variables are taken, which costs no
// copy of them but of those that training changes meanwhile in place; what is
// left, the writing, goes on beside it. One save is written at a time: Start
// waits for the one before. The error of one that nobody waited for comes from
// the next Start, or from Close.
//
// ctx ends the waiting and the taking, not the writing.
func (s *Saver) Start(ctx context.Context, sess *bridge.Session, step int64, o SaveOptions) (*Pending, error) {
	const op = "checkpoints.Save"
	if s == nil {
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "the saver is nil")
	}
	if step < 0 {
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "step %d is negative", step)
	}
	if err := checkPair(s.g, sess); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, &bridge.Error{Code: bridge.FailedPrecondition, Op: op, Message: "saver used after Close", Err: bridge.ErrClosed}
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	values, err := Snapshot(ctx, s.g, sess, s.o.Variables)
	if err != nil {
		return nil, err
	}
	p := &Pending{prefix: filepath.Join(s.dir, s.o.Name+"-"+strconv.FormatInt(step, 10)), done: make(chan struct{})}
	s.pending = p
	go func() {
		defer close(p.done)
		p.err = Write(p.prefix, values, WriteOptions{Shards: s.o.Shards, Overwrite: true})
		for _, t := range values {
			_ = t.Close()
		}
		if p.err == nil {
			p.err = s.list(p.prefix, o)
		}
	}()
	return p, nil
}

// settle waits for the save in progress and gives its error, if nobody had it.
func (s *Saver) settle(ctx context.Context) error {
	if s.pending == nil {
		return nil
	}
	select {
	case <-s.pending.done:
	case <-ctx.Done():
		return bridge.Errorf(bridge.Canceled, "checkpoints.Save", "stopped while the save before is written: %w", ctx.Err())
	}
	err := s.pending.result(false)
	s.pending = nil
	return err
}

// result is the error, once only for those who don't ask on purpose.
func (p *Pending) result(asked bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked && !asked {
		return nil
	}
	p.asked = true
	return p.err
}

// Prefix is where the checkpoint will be.
func (p *Pending) Prefix() string {
	if p == nil {
		return ""
	}
	return p.prefix
}

// Done is closed when the save is over.
func (p *Pending) Done() <-chan struct{} {
	if p == nil {
		over := make(chan struct{})
		close(over)
		return over
	}
	return p.done
}

// Wait waits until everything is on the disk, and returns the prefix.
func (p *Pending) Wait(ctx context.Context) (string, error) {
	if p == nil {
		return "", bridge.Errorf(bridge.InvalidArgument, "checkpoints.Wait", "there is no save to wait for")
	}
	select {
	case <-p.done:
		return p.prefix, p.result(true)
	case <-ctx.Done():
		return "", bridge.Errorf(bridge.Canceled, "checkpoints.Wait", "the save goes on: %w", ctx.Err())
	}
}

// Close waits for the save in progress and returns its error if nobody did. What
// was saved stays.
func (s *Saver) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.settle(context.Background())
}

// Snapshot takes the values of variables of g (nil: all but those in
// LOCAL_VARIABLES) at one moment between two updates, by name. What is taken does
// not change when the variables do: TensorFlow copies a variable that is updated
// in place while somebody holds its value. The caller closes the tensors.
func Snapshot(ctx context.Context, g *ops.Graph, sess *bridge.Session, variables []*ops.Variable) (map[string]*bridge.Tensor, error) {
	if err := checkPair(g, sess); err != nil {
		return nil, err
	}
	variables, err := chosen(g, variables)
	if err != nil {
		return nil, err
	}
	if len(variables) == 0 {
		return nil, bridge.Errorf(bridge.FailedPrecondition, "checkpoints.Snapshot", "there is no variable to save")
	}
	fetches := make([]tf.Output, len(variables))
	for i, v := range variables {
		fetches[i] = v.Value()
	}
	taken, err := sess.Call(ctx, bridge.Call{Fetches: fetches, Exclusive: true})
	if err != nil {
		return nil, err
	}
	values := make(map[string]*bridge.Tensor, len(variables))
	for i, v := range variables {
		values[v.Name()] = taken[i]
	}
	return values, nil
}

// list adds a checkpoint to the folder's list, the newest, and deletes those that
// are no longer to be kept.
func (s *Saver) list(prefix string, o SaveOptions) error {
	state, err := ReadState(s.dir)
	if err != nil && !errors.Is(err, bridge.ErrNotFound) && !errors.Is(err, bridge.ErrDataLoss) {
		return err
	}
	for len(state.Times) < len(state.All) { // a list of another writer, without times
		state.Times = append(state.Times, time.Now())
	}
	state.Times = state.Times[:len(state.All)]
	if i := slices.Index(state.All, prefix); i >= 0 {
		state.All, state.Times = slices.Delete(state.All, i, i+1), slices.Delete(state.Times, i, i+1)
	}
	state.Latest, state.All, state.Times = prefix, append(state.All, prefix), append(state.Times, time.Now())

	metrics := s.metrics()
	delete(metrics, filepath.Base(prefix))
	if o.Metric != nil && !math.IsNaN(*o.Metric) && !math.IsInf(*o.Metric, 0) {
		metrics[filepath.Base(prefix)] = *o.Metric
	}
	best := s.best(state.All, metrics)
	var kept State
	var gone []string
	for i, each := range state.All {
		if s.o.Keep >= 0 && i < len(state.All)-s.o.Keep && !slices.Contains(best, each) {
			gone = append(gone, each)
			delete(metrics, filepath.Base(each))
			continue
		}
		kept.All, kept.Times = append(kept.All, each), append(kept.Times, state.Times[i])
	}
	kept.Latest = prefix
	if err := WriteState(s.dir, kept); err != nil {
		return err
	}
	if s.o.KeepBest > 0 || len(metrics) > 0 {
		text, err := json.Marshal(metrics)
		if err == nil {
			err = replaceFile(filepath.Join(s.dir, metricsFile), append(text, '\n'))
		}
		if err != nil {
			return err
		}
	}
	for _, each := range gone {
		if filepath.Dir(each) != filepath.Clean(s.dir) {
			continue // a list that names what lies elsewhere gives nobody the right to delete it
		}
		if err := remove(each); err != nil {
			return err
		}
	}
	return nil
}

// metrics are the known metrics, by the last part of the prefix. A file that
// can't be read counts as none: it only tells which checkpoints to keep.
func (s *Saver) metrics() map[string]float64 {
	known := map[string]float64{}
	if text, err := os.ReadFile(filepath.Join(s.dir, metricsFile)); err == nil {
		if json.Unmarshal(text, &known) != nil || known == nil {
			known = map[string]float64{}
		}
	}
	return known
}

// best are the prefixes with the best metrics, the best first; of equals the
// newer.
func (s *Saver) best(all []string, metrics map[string]float64) []string {
	var best []string
	for _, prefix := range slices.Backward(all) {
		if _, known := metrics[filepath.Base(prefix)]; known {
			best = append(best, prefix)
		}
	}
	slices.SortStableFunc(best, func(a, b string) int {
		x, y := metrics[filepath.Base(a)], metrics[filepath.Base(b)]
		if s.o.LowerIsBetter {
			x, y = y, x
		}
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return best[:min(len(best), s.o.KeepBest)]
}

// Best is the prefix of the best checkpoint by its metric. It needs a KeepBest of
// at least 1. ErrNotFound when none was saved with a metric.
func (s *Saver) Best() (string, error) {
	if s == nil {
		return "", bridge.Errorf(bridge.InvalidArgument, "checkpoints.Best", "the saver is nil")
	}
	state, err := ReadState(s.dir)
	if err != nil {
		return "", err
	}
	best := s.best(state.All, s.metrics())
	if len(best) == 0 {
		return "", bridge.Errorf(bridge.NotFound, "checkpoints.Best", "no checkpoint in %s was saved with a metric, or KeepBest is 0", s.dir)
	}
	return best[0], nil
}

// Latest is the newest complete checkpoint in the folder, see [Latest].
func (s *Saver) Latest() (string, error) { return Latest(s.Dir()) }

// Restore gives the variables the values of the newest complete checkpoint and
// returns its step; ErrNotFound when there is none, with which a first run
// begins. When a value is found damaged nothing is changed, and the error names
// it; [Restore] takes an older checkpoint by its prefix.
func (s *Saver) Restore(ctx context.Context, sess *bridge.Session) (int64, Report, error) {
	if s == nil {
		return 0, Report{}, bridge.Errorf(bridge.InvalidArgument, "checkpoints.Restore", "the saver is nil")
	}
	prefix, err := s.Latest()
	if err != nil {
		return 0, Report{}, err
	}
	report, err := Restore(ctx, s.g, sess, prefix, RestoreOptions{Variables: s.o.Variables})
	if err != nil {
		return 0, Report{}, err
	}
	step, err := StepOf(prefix)
	return step, report, err
}

// StepOf is the step that a prefix ends in: 100 for "run/model-100".
func StepOf(prefix string) (int64, error) {
	base := filepath.Base(prefix)
	step, err := strconv.ParseInt(base[strings.LastIndexByte(base, '-')+1:], 10, 64)
	if err != nil || step < 0 {
		return 0, bridge.Errorf(bridge.InvalidArgument, "checkpoints.StepOf", "%s", fmt.Sprintf("%q does not end in a dash and a step", prefix))
	}
	return step, nil
}
