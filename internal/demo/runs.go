package demo

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/digits"
	"github.com/sluice-ml/sluice/ops"
)

// runner is a session over a graph with what was prepared and allocated for it. Its first
// error sticks, so that preparing reads as a list.
type runner struct {
	session *bridge.Session
	closers []func() error
	err     error
}

// newRunner opens a session and initializes every variable of the graph.
func newRunner(ctx context.Context, g *ops.Graph) (*runner, error) {
	initialize := g.Init()
	if err := g.Err(); err != nil {
		return nil, err
	}
	// One thread each: the graphs are so small that more would only wait for each other, and
	// sums come out the same on every machine.
	session, err := bridge.NewSession(g.TF(), bridge.Config{IntraOpThreads: 1, InterOpThreads: 1})
	if err != nil {
		return nil, err
	}
	r := &runner{session: session, closers: []func() error{session.Close}}
	if err := session.Run(ctx, initialize); err != nil {
		return nil, errors.Join(err, session.Close())
	}
	return r, nil
}

// close gives everything back, last things first, and adds what goes wrong to err.
func (r *runner) close(err *error) {
	for _, closer := range slices.Backward(r.closers) {
		*err = errors.Join(*err, closer())
	}
}

// prepared is a step that fetches float32 tensors into outputs that are used again and again.
type prepared struct {
	step *bridge.Step
	out  *bridge.Outputs
}

func (r *runner) prepare(call bridge.Call) prepared {
	if r.err != nil {
		return prepared{}
	}
	step, err := r.session.Prepare(call)
	if err != nil {
		r.err = err
		return prepared{}
	}
	out := step.NewOutputs()
	r.closers = append(r.closers, out.Close)
	return prepared{step, out}
}

// run gives the elements of the first thing fetched, until the next run.
func (p prepared) run(ctx context.Context, feeds ...*bridge.Tensor) ([]float32, error) {
	if err := p.step.Run(ctx, feeds, p.out); err != nil {
		return nil, err
	}
	return bridge.Flat[float32](p.out.Tensor(0))
}

// feed is a tensor and its elements, to be filled before a run.
type feed[T bridge.Element] struct {
	tensor *bridge.Tensor
	values []T
}

func newFeed[T bridge.Element](r *runner, dt tf.DataType, shape ...int64) (f feed[T]) {
	if r.err != nil {
		return f
	}
	f.tensor, r.err = bridge.NewTensor(dt, shape)
	if r.err != nil {
		return f
	}
	r.closers = append(r.closers, f.tensor.Close)
	f.values, r.err = bridge.Flat[T](f.tensor)
	return f
}

// Each part of the demo draws from a stream of its own, so that one more number drawn in
// one part changes nothing in another.
const (
	forPhases = iota + 1
	forJudge
	forPair
	forPictures
)

func (j *job) random(stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(j.Seed), stream))
}

// batches is a new order of n images, cut into batches of 32. The few left over are other ones each time.
func batches(random *rand.Rand, n int) iter.Seq[[]int] {
	order := random.Perm(n)
	return slices.Chunk(order[:n-n%batchSize], batchSize)
}

// fill copies the images and labels of a batch.
func fill(images []float32, labels []int32, from digits.Set, batch []int) {
	for i, at := range batch {
		copy(images[i*digits.Pixels:], from.Image(at))
		labels[i] = from.Labels[at]
	}
}
