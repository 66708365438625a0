package bridge_test

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/sluice-ml/sluice/bridge"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// doubler computes y = x + x for x of float32 [?,3], and s = sum(x).
type doubler struct {
	testGraph
	x, y, sum tf.Output
}

func newDoubler(t testing.TB) doubler {
	g := newGraph(t)
	x := g.placeholder("x", tf.Float, bridge.Shape{-1, 3})
	return doubler{g, x,
		g.op("AddV2", "y", []tf.Output{x, x}).Output(0),
		g.op("Sum", "s", []tf.Output{x, constant(g, "axes", bridge.Shape{2}, int32(0), 1)}).Output(0)}
}

func TestPrepareRefuses(t *testing.T) {
	d, other := newDoubler(t), newDoubler(t)
	handle, _ := d.variable("v", constant(d.testGraph, "v0", bridge.Shape{}, float32(0)))
	s := d.session(bridge.Config{})
	for _, c := range []struct {
		name string
		call bridge.Call
		want string // in the message
	}{
		{"nothing to run", bridge.Call{Feeds: []tf.Output{d.x}}, "nothing to run"},
		{"a zero feed", bridge.Call{Feeds: []tf.Output{{}}, Fetches: []tf.Output{d.y}}, "feed 0"},
		{"a zero fetch", bridge.Call{Fetches: []tf.Output{d.y, {}}}, "fetch 1"},
		{"a nil target", bridge.Call{Targets: []*tf.Operation{nil}}, "target 0"},
		{"a feed of another graph", bridge.Call{Feeds: []tf.Output{other.x}, Fetches: []tf.Output{d.y}}, "another graph"},
		{"a fetch of another graph", bridge.Call{Fetches: []tf.Output{other.y}}, "another graph"},
		{"a target of another graph", bridge.Call{Targets: []*tf.Operation{other.y.Op}}, "another graph"},
		{"a feed's index past the end", bridge.Call{Feeds: []tf.Output{d.x.Op.Output(1)}, Fetches: []tf.Output{d.y}}, "x:1"},
		{"a fetch's index below zero", bridge.Call{Fetches: []tf.Output{{Op: d.y.Op, Index: -1}}}, "y:-1"},
		{"a feed given twice", bridge.Call{Feeds: []tf.Output{d.x, d.x}, Fetches: []tf.Output{d.y}}, "feed 1, x:0, is given twice"},
		{"a fetch that is fed", bridge.Call{Feeds: []tf.Output{d.x}, Fetches: []tf.Output{d.y, d.x}}, "fetch 1, x:0, is fed as well"},
		{"a resource handle as feed", bridge.Call{Feeds: []tf.Output{handle}, Fetches: []tf.Output{d.sum}}, "resource handle"},
		{"an operation that was never made", bridge.Call{Targets: []*tf.Operation{{}}}, "target 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.Prepare(c.call)
			require.ErrorIs(t, err, bridge.ErrInvalidArgument)
			require.ErrorContains(t, err, c.want)
			_, err = s.Call(t.Context(), c.call)
			require.ErrorIs(t, err, bridge.ErrInvalidArgument)
		})
	}

	t.Run("no session, no step, no graph", func(t *testing.T) {
		for _, s := range []*bridge.Session{nil, {}} {
			_, err := s.Prepare(bridge.Call{Fetches: []tf.Output{d.y}})
			require.ErrorIs(t, err, bridge.ErrInvalidArgument)
			require.ErrorIs(t, s.Run(t.Context(), d.y.Op), bridge.ErrInvalidArgument)
			require.Nil(t, s.Graph())
		}
		for _, step := range []*bridge.Step{nil, {}} {
			require.ErrorIs(t, step.Run(t.Context(), nil, nil), bridge.ErrInvalidArgument)
			require.Nil(t, step.NewOutputs())
			require.False(t, step.Updates())
		}
		for _, g := range []*tf.Graph{nil, {}} {
			_, err := bridge.NewSession(g, bridge.Config{})
			require.ErrorIs(t, err, bridge.ErrInvalidArgument)
		}
	})
}

func TestRunChecksFeeds(t *testing.T) {
	g := newGraph(t)
	rows := g.placeholder("net/rows", tf.Float, bridge.Shape{-1, 3})
	scale := g.placeholder("scale", tf.Float, bridge.Shape{})
	free := g.placeholder("free", tf.Float, nil)
	y := g.op("Mul", "y", []tf.Output{rows, scale}).Output(0)
	z := g.op("Neg", "z", []tf.Output{free}).Output(0)
	s := g.session(bridge.Config{})
	step, out := prepare(t, s, bridge.Call{Feeds: []tf.Output{rows, scale, free}, Fetches: []tf.Output{y, z}})

	good := []*bridge.Tensor{
		flat(t, bridge.Shape{2, 3}, float32(1), 2, 3, 4, 5, 6),
		flat(t, bridge.Shape{}, float32(10)),
		flat(t, bridge.Shape{1, 1, 1}, float32(7)),
	}
	closed := flat(t, bridge.Shape{2, 3}, float32(1), 2, 3, 4, 5, 6)
	require.NoError(t, closed.Close())
	with := func(i int, v *bridge.Tensor) []*bridge.Tensor {
		feeds := append([]*bridge.Tensor(nil), good...)
		feeds[i] = v
		return feeds
	}
	for _, c := range []struct {
		name   string
		feeds  []*bridge.Tensor
		want   []string
		closed bool
	}{
		{"too few", good[:2], []string{"wanted 3 feeds (net/rows:0, scale:0, free:0), got 2"}, false},
		{"too many", append(with(0, good[0]), good[0]), []string{"got 4"}, false},
		{"nil", with(1, nil), []string{"feed scale:0: wanted float32 [], got nil"}, false},
		{"a zero tensor", with(1, &bridge.Tensor{}), []string{"feed scale:0: wanted float32 [], got nil"}, false},
		{"closed", with(0, closed), []string{"feed net/rows:0: wanted float32 [?,3], got a closed tensor"}, true},
		{"of another data type", with(0, flat(t, bridge.Shape{2, 3}, int32(1), 2, 3, 4, 5, 6)), []string{"feed net/rows:0: wanted float32 [?,3], got int32 [2,3]"}, false},
		{"of another rank", with(0, flat(t, bridge.Shape{3}, float32(1), 2, 3)), []string{"feed net/rows:0: wanted float32 [?,3], got float32 [3]"}, false},
		{"of another fixed dimension", with(0, flat(t, bridge.Shape{1, 2}, float32(1), 2)), []string{"feed net/rows:0: wanted float32 [?,3], got float32 [1,2]"}, false},
		{"a vector for a scalar", with(1, flat(t, bridge.Shape{1}, float32(1))), []string{"feed scale:0: wanted float32 [], got float32 [1]"}, false},
		{"of unknown rank, of another data type", with(2, flat(t, bridge.Shape{1}, 1.5)), []string{"feed free:0: wanted float32 <unknown>, got float64 [1]"}, false},
		{"several at once", []*bridge.Tensor{good[1], nil, good[2]}, []string{"feed net/rows:0: wanted float32 [?,3], got float32 []", "feed scale:0: wanted float32 [], got nil"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := step.Run(t.Context(), c.feeds, out)
			require.ErrorIs(t, err, bridge.ErrInvalidArgument)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			require.Equal(t, c.closed, strings.Contains(err.Error(), "closed"))
			if c.closed {
				require.ErrorIs(t, err, bridge.ErrClosed)
			}
			require.NotContains(t, err.Error(), "free:0: wanted float32 <unknown>, got float32", "what fits is not named")

			require.NoError(t, step.Run(t.Context(), good, out), "the step works as before")
			require.Equal(t, []float32{10, 20, 30, 40, 50, 60}, values[float32](t, out.Tensor(0)))
			require.Equal(t, []float32{-7}, values[float32](t, out.Tensor(1)))
		})
	}
	for _, v := range good {
		require.NoError(t, v.Close())
		require.Empty(t, v.Shape(), "nothing holds a feed after the run")
	}
}

func TestOutputs(t *testing.T) {
	d := newDoubler(t)
	s := d.session(bridge.Config{})
	call := bridge.Call{Feeds: []tf.Output{d.x}, Fetches: []tf.Output{d.y, d.sum}}
	ones := []*bridge.Tensor{flat(t, bridge.Shape{1, 3}, float32(1), 1, 1)}
	twos := []*bridge.Tensor{flat(t, bridge.Shape{2, 3}, float32(2), 2, 2, 2, 2, 2)}
	ctx := t.Context()

	t.Run("hold the last run's results", func(t *testing.T) {
		step, out := prepare(t, s, call)
		require.Equal(t, 2, out.Len())
		_, err := bridge.Flat[float32](out.Tensor(0))
		require.ErrorIs(t, err, bridge.ErrClosed, "before the first run")
		require.NoError(t, step.Run(ctx, ones, out))
		require.Equal(t, bridge.Shape{1, 3}, out.Tensor(0).Shape())
		require.Equal(t, bridge.Shape{}, out.Tensor(1).Shape())
		require.NoError(t, step.Run(ctx, twos, out))
		require.Equal(t, bridge.Shape{2, 3}, out.Tensor(0).Shape())
		require.Equal(t, []float32{4, 4, 4, 4, 4, 4}, values[float32](t, out.Tensor(0)))
		require.Equal(t, []float32{12}, values[float32](t, out.Tensor(1)))
		require.Nil(t, out.Tensor(2))
		require.Nil(t, out.Tensor(-1))
		require.Nil(t, out.Take(2))
	})
	t.Run("what is taken outlives them", func(t *testing.T) {
		step, out := prepare(t, s, call)
		require.NoError(t, step.Run(ctx, ones, out))
		y := out.Take(0)
		defer y.Close()
		_, err := bridge.Values[float32](out.Tensor(0))
		require.ErrorIs(t, err, bridge.ErrClosed, "it is gone from the outputs")
		require.NoError(t, step.Run(ctx, twos, out))
		require.NoError(t, out.Close())
		require.Equal(t, []float32{2, 2, 2}, values[float32](t, y))
	})
	t.Run("are closed once", func(t *testing.T) {
		step, out := prepare(t, s, call)
		require.NoError(t, step.Run(ctx, ones, out))
		y := out.Tensor(0)
		require.NoError(t, out.Close())
		require.NoError(t, out.Close())
		_, err := bridge.Values[float32](y)
		require.ErrorIs(t, err, bridge.ErrClosed)
		_, err = bridge.Values[float32](out.Tensor(0))
		require.ErrorIs(t, err, bridge.ErrClosed)
		_, err = bridge.Values[float32](out.Take(0))
		require.ErrorIs(t, err, bridge.ErrClosed)
		require.ErrorIs(t, step.Run(ctx, ones, out), bridge.ErrClosed)
		require.ErrorIs(t, bridge.Bind(out, 0, []float32{0}), bridge.ErrClosed)
		require.NoError(t, (*bridge.Outputs)(nil).Close())
		require.NoError(t, new(bridge.Outputs).Close())
		require.Zero(t, new(bridge.Outputs).Len())
	})
	t.Run("closing one of their tensors is no harm", func(t *testing.T) {
		step, out := prepare(t, s, call)
		for range 3 {
			require.NoError(t, step.Run(ctx, ones, out))
			require.NoError(t, out.Tensor(0).Close())
			require.NoError(t, out.Tensor(0).Close())
		}
	})
	t.Run("a result is fed to the next run", func(t *testing.T) {
		step, out := prepare(t, s, call)
		require.NoError(t, step.Run(ctx, ones, out))
		for range 4 {
			require.NoError(t, step.Run(ctx, []*bridge.Tensor{out.Tensor(0)}, out))
		}
		require.Equal(t, []float32{32, 32, 32}, values[float32](t, out.Tensor(0)))
	})
	t.Run("hold nothing after a run that failed", func(t *testing.T) {
		step, out := prepare(t, s, call)
		require.NoError(t, step.Run(ctx, ones, out))
		y := out.Tensor(0)
		expired, cancel := context.WithCancel(ctx)
		cancel()
		require.Error(t, step.Run(expired, ones, out))
		require.Equal(t, []float32{2, 2, 2}, values[float32](t, y), "a run that did not begin changes nothing")

		g := newGraph(t)
		x := g.placeholder("x", tf.Int32, bridge.Shape{})
		checked := g.op("FloorDiv", "div", []tf.Output{constant(g, "one", bridge.Shape{}, int32(1)), x}).Output(0)
		step, out = prepare(t, g.session(bridge.Config{}), bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{checked}})
		require.NoError(t, step.Run(ctx, []*bridge.Tensor{flat(t, bridge.Shape{}, int32(1))}, out))
		err := step.Run(ctx, []*bridge.Tensor{flat(t, bridge.Shape{}, int32(0))}, out)
		require.ErrorIs(t, err, bridge.ErrInvalidArgument)
		require.ErrorContains(t, err, "div: ", "the node is named")
		require.NotContains(t, err.Error(), "{{node")
		_, err = bridge.Values[int32](out.Tensor(0))
		require.ErrorIs(t, err, bridge.ErrClosed)
	})
	t.Run("belong to one step", func(t *testing.T) {
		step, _ := prepare(t, s, call)
		_, other := prepare(t, s, call)
		require.ErrorIs(t, step.Run(ctx, ones, other), bridge.ErrInvalidArgument)
		require.ErrorContains(t, step.Run(ctx, ones, nil), "y:0, s:0")
		require.ErrorIs(t, step.Run(ctx, ones, &bridge.Outputs{}), bridge.ErrInvalidArgument)
	})
	t.Run("the same fetch twice", func(t *testing.T) {
		step, out := prepare(t, s, bridge.Call{Feeds: []tf.Output{d.x}, Fetches: []tf.Output{d.y, d.y}})
		require.NoError(t, step.Run(ctx, ones, out))
		require.Equal(t, []float32{2, 2, 2}, values[float32](t, out.Tensor(0)))
		require.Equal(t, []float32{2, 2, 2}, values[float32](t, out.Tensor(1)))
	})
	t.Run("a tensor of a high rank", func(t *testing.T) {
		g := newGraph(t)
		x := g.placeholder("x", tf.Float, nil)
		step, out := prepare(t, g.session(bridge.Config{}), bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{g.op("Identity", "y", []tf.Output{x}).Output(0)}})
		shape := bridge.Shape{1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 3, 1}
		require.NoError(t, step.Run(ctx, []*bridge.Tensor{flat(t, shape, float32(1), 2, 3, 4, 5, 6)}, out))
		require.Equal(t, shape, out.Tensor(0).Shape())
	})
	t.Run("two runs at once are an error for the second", func(t *testing.T) {
		c := newCounter(t)
		s := c.session(bridge.Config{})
		step, out := prepare(t, s, bridge.Call{Fetches: []tf.Output{c.dequeue("never").Output(0)}})
		first := make(chan error)
		go func() { first <- step.Run(context.Background(), nil, out) }()
		time.Sleep(50 * time.Millisecond)
		require.ErrorIs(t, step.Run(ctx, nil, out), bridge.ErrFailedPrecondition)
		require.ErrorIs(t, out.Close(), bridge.ErrFailedPrecondition)
		require.ErrorIs(t, bridge.Bind(out, 0, []int32{1}), bridge.ErrFailedPrecondition)
		_, err := bridge.Values[int32](out.Tensor(0))
		require.ErrorIs(t, err, bridge.ErrClosed)
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-first, bridge.ErrClosed)
	})
}

func TestBind(t *testing.T) {
	d := newDoubler(t)
	whole := d.op("Reshape", "whole", []tf.Output{d.sum, constant(d.testGraph, "dims", bridge.Shape{1}, int32(1))}).Output(0)
	s := d.session(bridge.Config{})
	step, out := prepare(t, s, bridge.Call{Feeds: []tf.Output{d.x}, Fetches: []tf.Output{d.y, whole}})
	ones := []*bridge.Tensor{flat(t, bridge.Shape{1, 3}, float32(1), 1, 1)}
	twos := []*bridge.Tensor{flat(t, bridge.Shape{2, 3}, float32(2), 2, 2, 2, 2, 2)}
	none := []*bridge.Tensor{flat[float32](t, bridge.Shape{0, 3})}

	y := make([]float32, 3)
	require.NoError(t, bridge.Bind(out, 0, y))
	require.NoError(t, step.Run(t.Context(), ones, out))
	require.Equal(t, []float32{2, 2, 2}, y)
	_, err := bridge.Values[float32](out.Tensor(0))
	require.ErrorIs(t, err, bridge.ErrClosed, "the memory is the caller's alone")
	require.Equal(t, []float32{3}, values[float32](t, out.Tensor(1)), "other fetches are as ever")

	err = step.Run(t.Context(), twos, out)
	require.ErrorIs(t, err, bridge.ErrInvalidArgument)
	require.ErrorContains(t, err, "fetch y:0: got float32 [2,3], 24 bytes, but the bound memory has 12")
	require.Equal(t, []float32{2, 2, 2}, y, "nothing is written past it")

	require.ErrorContains(t, bridge.Bind(out, 0, []int32{1, 2, 3}), "float32, not int32")
	require.ErrorContains(t, bridge.Bind(out, 1, []float32{1, 2}), "[1] has 1 elements, the memory to bind 2")
	require.ErrorContains(t, bridge.Bind(out, 2, []float32{1}), "no fetch 2")
	require.ErrorIs(t, bridge.Bind[float32](nil, 0, nil), bridge.ErrInvalidArgument)

	require.NoError(t, bridge.Bind(out, 0, []float32{}))
	require.NoError(t, step.Run(t.Context(), none, out))
	require.ErrorIs(t, step.Run(t.Context(), ones, out), bridge.ErrInvalidArgument)

	require.NoError(t, bridge.Bind[float32](out, 0, nil))
	require.NoError(t, step.Run(t.Context(), twos, out))
	require.Equal(t, []float32{4, 4, 4, 4, 4, 4}, values[float32](t, out.Tensor(0)))
}

func TestSteadyStepAllocatesNothing(t *testing.T) {
	d := newDoubler(t)
	v, initialize := d.variable("v", constant(d.testGraph, "v0", bridge.Shape{}, float32(0)))
	train := d.op("AssignAddVariableOp", "train", []tf.Output{v, d.sum})
	s := d.session(bridge.Config{})
	limited := d.session(bridge.Config{Timeout: time.Hour})
	require.NoError(t, s.Run(t.Context(), initialize))
	require.NoError(t, limited.Run(t.Context(), initialize))
	deadline, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	feeds := []*bridge.Tensor{flat(t, bridge.Shape{1, 3}, float32(1), 1, 1)}
	bound := make([]float32, 3)

	for _, c := range []struct {
		name    string
		s       *bridge.Session
		ctx     context.Context
		fetches []tf.Output
		targets []*tf.Operation
		bind    bool
	}{
		{"a train step without fetches", s, context.Background(), nil, []*tf.Operation{train}, false},
		{"a train step with two fetches", s, context.Background(), []tf.Output{d.y, d.sum}, []*tf.Operation{train}, false},
		{"fetches alone", s, context.Background(), []tf.Output{d.y, d.sum}, nil, false},
		{"into the caller's memory", s, context.Background(), []tf.Output{d.y, d.sum}, []*tf.Operation{train}, true},
		{"under a deadline", s, deadline, []tf.Output{d.y, d.sum}, []*tf.Operation{train}, false},
		{"under a context that can be cancelled", s, cancellable, []tf.Output{d.y, d.sum}, []*tf.Operation{train}, true},
		{"under the session's own limit", limited, context.Background(), []tf.Output{d.y, d.sum}, []*tf.Operation{train}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			step, out := prepare(t, c.s, bridge.Call{Feeds: []tf.Output{d.x}, Fetches: c.fetches, Targets: c.targets})
			if c.bind {
				require.NoError(t, bridge.Bind(out, 0, bound))
			}
			if c.fetches == nil {
				out = nil
			}
			var failed error
			allocs := testing.AllocsPerRun(200, func() {
				if err := step.Run(c.ctx, feeds, out); err != nil {
					failed = err
				}
				if c.fetches != nil {
					if sum, err := bridge.Item[float32](out.Tensor(1)); err != nil || sum != 3 {
						failed = err
					}
				}
			})
			require.NoError(t, failed)
			require.Zero(t, allocs)
		})
	}
}

func TestManyGoroutinesShareAStep(t *testing.T) {
	d := newDoubler(t)
	s := d.session(bridge.Config{})
	step, err := s.Prepare(bridge.Call{Feeds: []tf.Output{d.x}, Fetches: []tf.Output{d.y}})
	require.NoError(t, err)
	shared := flat(t, bridge.Shape{1, 3}, float32(100), 100, 100)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			out := step.NewOutputs()
			defer out.Close()
			for range 100 {
				own, err := bridge.FromFlat(bridge.Shape{1, 3}, []float32{float32(i), float32(i), float32(i)})
				assert.NoError(t, err)
				assert.NoError(t, step.Run(context.Background(), []*bridge.Tensor{own}, out))
				assert.NoError(t, own.Close())
				got, err := bridge.Values[float32](out.Tensor(0))
				assert.NoError(t, err)
				assert.Equal(t, []float32{2 * float32(i), 2 * float32(i), 2 * float32(i)}, got)
				assert.NoError(t, step.Run(context.Background(), []*bridge.Tensor{shared}, out))
			}
		})
	}
	all.Wait()
}

func TestFeedClosedDuringARun(t *testing.T) {
	// The run waits in a queue while its feed is closed; then an element comes.
	g := newGraph(t)
	x := g.placeholder("x", tf.Float, bridge.Shape{3})
	queue := g.op("FIFOQueueV2", "queue", nil, bridge.Attr{Name: "component_types", Value: []tf.DataType{tf.Float}}).Output(0)
	enqueue, err := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "QueueEnqueueV2", Name: "enqueue",
		Inputs: []tf.Input{queue, tf.OutputList{constant(g, "ten", bridge.Shape{}, float32(10))}}})
	require.NoError(t, err)
	element := g.op("QueueDequeueV2", "dequeue", []tf.Output{queue}, bridge.Attr{Name: "component_types", Value: []tf.DataType{tf.Float}}).Output(0)
	y := g.op("Mul", "y", []tf.Output{x, element}).Output(0)
	s := g.session(bridge.Config{})
	step, out := prepare(t, s, bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{y}})
	feed := flat(t, bridge.Shape{3}, float32(1), 2, 3)
	result := make(chan error)
	before, _ := bridge.Live()
	go func() { result <- step.Run(context.Background(), []*bridge.Tensor{feed}, out) }()
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, feed.Close())
	_, err = bridge.Values[float32](feed)
	require.ErrorIs(t, err, bridge.ErrClosed)
	now, _ := bridge.Live()
	require.Equal(t, before, now, "the run keeps it alive")
	require.NoError(t, s.Run(t.Context(), enqueue))
	require.NoError(t, <-result)
	require.Equal(t, []float32{10, 20, 30}, values[float32](t, out.Tensor(0)))
	now, _ = bridge.Live()
	require.Equal(t, before, now, "the result in its place")
}

// residentBytes is the process's resident memory.
func residentBytes(t *testing.T) int64 {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	require.NoError(t, err)
	return pages * int64(os.Getpagesize())
}

func TestMemoryIsFlat(t *testing.T) {
	const runs, size = 10_000, 1 << 20 // elements: 4 MiB of float32
	g := newGraph(t)
	x := g.placeholder("x", tf.Float, bridge.Shape{size})
	y := g.op("Identity", "y", []tf.Output{x}).Output(0)
	s := g.session(bridge.Config{})
	step, out := prepare(t, s, bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{y}})
	data := make([]float32, size)

	for _, collector := range []int{100, -1} {
		t.Run("GOGC="+strconv.Itoa(collector), func(t *testing.T) {
			defer debug.SetGCPercent(debug.SetGCPercent(collector))
			var first, most int64
			for i := range runs {
				data[0] = float32(i)
				in, err := bridge.FromFlat(bridge.Shape{size}, data)
				require.NoError(t, err)
				if err := step.Run(context.Background(), []*bridge.Tensor{in}, out); err != nil {
					t.Fatal(err)
				}
				in.Close()
				if got, err := bridge.Flat[float32](out.Tensor(0)); err != nil || got[0] != float32(i) {
					t.Fatal(got[0], err)
				}
				switch {
				case i == 100:
					first = residentBytes(t)
				case i > 100 && i%500 == 0 || i == runs-1:
					most = max(most, residentBytes(t))
				}
			}
			require.Less(t, most-first, int64(64<<20), "resident memory grew from %d to %d bytes", first, most)
		})
	}
}

func TestSliceOfRunsLeavesNothing(t *testing.T) {
	d := newDoubler(t)
	s := d.session(bridge.Config{})
	tensors, bytes := bridge.Live()
	for range 20 {
		in := flat(t, bridge.Shape{1, 3}, float32(1), 2, float32(math.Pi))
		got, err := s.Call(t.Context(), bridge.Call{Feeds: []tf.Output{d.x}, Fetches: []tf.Output{d.y, d.sum}}, in)
		require.NoError(t, err)
		for _, v := range append(got, in) {
			require.NoError(t, v.Close())
		}
	}
	afterTensors, afterBytes := bridge.Live()
	require.Equal(t, tensors, afterTensors)
	require.Equal(t, bytes, afterBytes)
}

func FuzzFeeds(f *testing.F) {
	f.Add(uint8(1), []byte{2, 3}, uint8(1), false)
	f.Add(uint8(1), []byte{3, 2}, uint8(1), false)
	f.Add(uint8(3), []byte{2, 3}, uint8(1), false)
	f.Add(uint8(7), []byte{1, 3}, uint8(2), true)
	f.Add(uint8(1), []byte{}, uint8(0), false)
	f.Add(uint8(1), []byte{0, 3}, uint8(1), false)
	f.Add(uint8(1), []byte{1, 3}, uint8(1), true)
	d := newDoubler(f)
	s := d.session(bridge.Config{})
	step, out := prepare(f, s, bridge.Call{Feeds: []tf.Output{d.x}, Fetches: []tf.Output{d.y}})
	f.Fuzz(func(t *testing.T, dtype uint8, dims []byte, count uint8, closed bool) {
		if len(dims) > 4 {
			dims = dims[:4]
		}
		shape := bridge.Shape{}
		for _, b := range dims {
			shape = append(shape, int64(b%8))
		}
		in, err := bridge.NewTensor(tf.DataType(dtype%40), shape)
		if err != nil {
			require.ErrorIs(t, err, bridge.ErrInvalidArgument)
			in = nil
		}
		defer in.Close()
		if closed {
			in.Close()
		}
		feeds := make([]*bridge.Tensor, count%4)
		for i := range feeds {
			feeds[i] = in
		}
		fits := count%4 == 1 && in != nil && !closed && in.DType() == tf.Float && shape.CompatibleWith(bridge.Shape{-1, 3})
		err = step.Run(t.Context(), feeds, out)
		if !fits {
			require.ErrorIs(t, err, bridge.ErrInvalidArgument)
			return
		}
		require.NoError(t, err)
		require.Equal(t, shape, out.Tensor(0).Shape())
	})
}
