package demo

import (
	"context"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tfgo"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/digits"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
)

// judge is a small classifier that has only ever seen real digits. It says what G's look like.
type judge struct {
	run      *runner
	read     prepared
	images   feed[float32] // as many as G is asked to draw
	accuracy float64       // on held-out real digits
}

const judgeEpochs = 20

func newJudge(ctx context.Context, j *job) (_ *judge, err error) {
	g := ops.NewGraph(ops.GraphOptions{Seed: j.Seed})
	var images, labels, loss, answer tf.Output
	var train *optimizers.TrainOp
	err = g.Build(func() (err error) {
		images = g.Placeholder("images", tf.Float, ops.Shape{-1, digits.Pixels})
		labels = g.Placeholder("labels", tf.Int32, ops.Shape{-1})
		s := g.Scope("judge")
		hidden := s.Variable("hidden", ops.Shape{digits.Pixels, 64}, ops.GlorotUniform())
		bias := s.Variable("bias", ops.Shape{64}, ops.Zeros())
		out := s.Variable("out", ops.Shape{64, digits.Classes}, ops.GlorotUniform())
		active := raw.Relu(s, tfgo.NewTensor(s.Op(), images).MatMul(hidden.Value()).Add(bias.Value()).Output)
		logits := tfgo.NewTensor(s.Op(), active).MatMul(out.Value()).Output
		answer = raw.Softmax(s, logits)
		loss = ops.SparseSoftmaxCrossEntropy(s, logits, labels)
		train, err = optimizers.NewAdam(2e-3).Minimize(loss, g.Trainable("judge/"))
		return err
	})
	if err != nil {
		return nil, err
	}
	run, err := newRunner(ctx, g)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			run.close(&err)
		}
	}()
	learn := run.prepare(bridge.Call{Feeds: []tf.Output{images, labels}, Fetches: []tf.Output{loss}, Targets: []*tf.Operation{train.Op}})
	judge := &judge{
		run:    run,
		read:   run.prepare(bridge.Call{Feeds: []tf.Output{images}, Fetches: []tf.Output{answer}}),
		images: newFeed[float32](run, tf.Float, perDigit*digits.Classes, digits.Pixels),
	}
	image := newFeed[float32](run, tf.Float, batchSize, digits.Pixels)
	label := newFeed[int32](run, tf.Int32, batchSize)
	tests := newFeed[float32](run, tf.Float, int64(j.test.Len()), digits.Pixels)
	if run.err != nil {
		return nil, run.err
	}
	copy(tests.values, j.test.Images)

	random := j.random(forJudge)
	err = j.progress.run(ctx, "judge, on real digits", judgeEpochs, func(int) (string, error) {
		for batch := range batches(random, j.train.Len()) {
			fill(image.values, label.values, j.train, batch)
			if _, err := learn.run(ctx, image.tensor, label.tensor); err != nil {
				return "", err
			}
		}
		answers, err := judge.read.run(ctx, tests.tensor)
		if err != nil {
			return "", err
		}
		judge.accuracy = share(answers, j.test.Labels)
		return fmt.Sprintf("test accuracy %.1f %%", 100*judge.accuracy), nil
	})
	if err != nil {
		return nil, err
	}
	return judge, nil
}

// judge reads images, [200, 64], of which each was meant to show the digit of its label.
func (j *judge) judge(ctx context.Context, images []float32, labels []int32) (quality, error) {
	copy(j.images.values, images)
	answers, err := j.read.run(ctx, j.images.tensor)
	if err != nil {
		return quality{}, err
	}
	confidence := 0.0
	for i, label := range labels {
		confidence += float64(answers[i*digits.Classes+int(label)])
	}
	return quality{Recognized: share(answers, labels), Confidence: confidence / float64(len(labels))}, nil
}
