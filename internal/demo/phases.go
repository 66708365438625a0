package demo

import (
	"context"
	"fmt"
	"math"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tfgo"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/digits"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/optimizers/schedules"
)

const batchSize = 32

// phases is a classifier of one layer, logits = 4 x·sin W. Its weights are angles: W and
// W + 2π say the same, so it is at home on the circle [0, 2π).
type phases struct {
	graph          *ops.Graph
	images, labels tf.Output // [batch, 64] and [batch]
	weights        *ops.Variable
	logits, loss   tf.Output // [batch, 10] and a scalar
}

func newPhases(seed int64) (*phases, error) {
	c := &phases{graph: ops.NewGraph(ops.GraphOptions{Seed: seed})}
	return c, c.graph.Build(func() error {
		c.images = c.graph.Placeholder("images", tf.Float, ops.Shape{-1, digits.Pixels})
		c.labels = c.graph.Placeholder("labels", tf.Int32, ops.Shape{-1})
		net := c.graph.Scope("phases")
		// All phases begin just above zero, where the sine is nearly silent. Training pushes
		// about half of them below it: floormod brings those round to just under 2π.
		c.weights = net.Variable("w", ops.Shape{digits.Pixels, digits.Classes}, ops.Uniform(0, 0.2))
		c.logits = tfgo.NewTensor(net.Op(), c.images).
			MatMul(raw.Sin(net, c.weights.Value())).
			Mul(net.Const(float32(4))).Output
		c.loss = ops.SparseSoftmaxCrossEntropy(net, c.logits, c.labels)
		return nil
	})
}

// annealed is the rate of both trainings: 0.3, and 4 % less after each epoch.
func annealed(batches int) ops.Hyperparameter {
	return schedules.ExponentialDecay{Initial: 0.3, Steps: int64(batches), Rate: 0.96, Staircase: true}
}

// byFloormod trains by w := (w - rate*grad + noise) mod 2π, its gradients capped together.
func (c *phases) byFloormod(batches int) (*optimizers.TrainOp, error) {
	rule := optimizers.NewFloorMod(0, 2*math.Pi)
	rule.Rate = annealed(batches)
	rule.Stddev = optimizers.Value(0.002)
	grads, err := optimizers.ComputeGradients(c.loss, c.graph.Trainable("phases/"))
	if err != nil {
		return nil, err
	}
	grads, err = optimizers.ClipByGlobalNorm(grads, 5)
	if err != nil {
		return nil, err
	}
	return rule.ApplyGradients(grads)
}

// byDescent trains by w := w - rate*grad.
func (c *phases) byDescent(batches int) (*optimizers.TrainOp, error) {
	descent := optimizers.NewGradientDescent(0)
	descent.Rate = annealed(batches)
	return descent.Minimize(c.loss, c.graph.Trainable("phases/"))
}

// trained is what came of a classifier.
type trained struct {
	accuracy []float64 // of the held-out images, before the first epoch and after each
	weights  []float32 // [64, 10]
}

// outside counts the weights that are not in [0, 2π).
func (t trained) outside() (n int) {
	for _, w := range t.weights {
		if !(w >= 0 && float64(w) < 2*math.Pi) {
			n++
		}
	}
	return n
}

// ofClass gives the 64 weights of a digit, each through f.
func (t trained) ofClass(class int, f func(float64) float64) []float32 {
	column := make([]float32, digits.Pixels)
	for i := range column {
		column[i] = float32(f(float64(t.weights[i*digits.Classes+class])))
	}
	return column
}

// train runs the epochs. Two classifiers of one seed see the same batches in the same order.
func (c *phases) train(ctx context.Context, j *job, what string, by func(*phases, int) (*optimizers.TrainOp, error)) (result trained, err error) {
	op, err := by(c, j.train.Len()/batchSize)
	if err != nil {
		return trained{}, err
	}
	run, err := newRunner(ctx, c.graph)
	if err != nil {
		return trained{}, err
	}
	defer run.close(&err)

	learn := run.prepare(bridge.Call{Feeds: []tf.Output{c.images, c.labels}, Fetches: []tf.Output{c.loss}, Targets: []*tf.Operation{op.Op}})
	answer := run.prepare(bridge.Call{Feeds: []tf.Output{c.images}, Fetches: []tf.Output{c.logits}})
	read := run.prepare(bridge.Call{Fetches: []tf.Output{c.weights.Value()}})
	images := newFeed[float32](run, tf.Float, batchSize, digits.Pixels)
	labels := newFeed[int32](run, tf.Int32, batchSize)
	tests := newFeed[float32](run, tf.Float, int64(j.test.Len()), digits.Pixels)
	if run.err != nil {
		return trained{}, run.err
	}
	copy(tests.values, j.test.Images)

	measure := func() (float64, error) {
		logits, err := answer.run(ctx, tests.tensor)
		if err != nil {
			return 0, err
		}
		return share(logits, j.test.Labels), nil
	}
	accuracy, err := measure()
	if err != nil {
		return trained{}, err
	}
	result.accuracy = append(result.accuracy, accuracy)

	shuffled := j.random(forPhases)
	err = j.progress.run(ctx, what, j.Epochs, func(int) (string, error) {
		for batch := range batches(shuffled, j.train.Len()) {
			fill(images.values, labels.values, j.train, batch)
			if _, err := learn.run(ctx, images.tensor, labels.tensor); err != nil {
				return "", err
			}
		}
		accuracy, err := measure()
		if err != nil {
			return "", err
		}
		result.accuracy = append(result.accuracy, accuracy)
		return fmt.Sprintf("test accuracy %.1f %%", 100*accuracy), nil
	})
	if err != nil {
		return trained{}, err
	}
	weights, err := read.run(ctx)
	if err != nil {
		return trained{}, err
	}
	result.weights = slices.Clone(weights)
	return result, nil
}

// share is how many of the rows of scores, [n, 10], are highest at their label.
func share(scores []float32, labels []int32) float64 {
	hits := 0
	for i, label := range labels {
		if best(scores[i*digits.Classes:(i+1)*digits.Classes]) == int(label) {
			hits++
		}
	}
	return float64(hits) / float64(len(labels))
}

func best(scores []float32) (at int) {
	for i, score := range scores {
		if score > scores[at] {
			at = i
		}
	}
	return at
}
