package main

import (
	"context"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

func init() { register("losses", lossSection) }

// lossFunctions are the losses of package ops by Keras's names.
var lossFunctions = map[string]func(*ops.Scope, tf.Output, tf.Output, ...ops.LossOptions) tf.Output{
	"BinaryCrossentropy":            ops.BinaryCrossEntropy,
	"CategoricalCrossentropy":       ops.CategoricalCrossEntropy,
	"CategoricalHinge":              ops.CategoricalHinge,
	"CosineSimilarity":              ops.CosineSimilarity,
	"Hinge":                         ops.Hinge,
	"Huber":                         ops.Huber,
	"KLDivergence":                  ops.KLDivergence,
	"LogCosh":                       ops.LogCosh,
	"MeanAbsoluteError":             ops.MeanAbsoluteError,
	"MeanAbsolutePercentageError":   ops.MeanAbsolutePercentageError,
	"MeanSquaredError":              ops.MeanSquaredError,
	"MeanSquaredLogarithmicError":   ops.MeanSquaredLogarithmicError,
	"Poisson":                       ops.Poisson,
	"SparseCategoricalCrossentropy": ops.SparseCategoricalCrossEntropy,
	"SquaredHinge":                  ops.SquaredHinge,
}

var reductions = map[string]ops.Reduction{
	"sum_over_batch_size": ops.SumOverBatchSize, "sum": ops.Sum,
	"mean_with_sample_weight": ops.MeanWithSampleWeight, "none": ops.NoReduction,
}

// A lossCase is one call of losses.py.
type lossCase struct {
	Name, Loss, Reduction string
	Arguments             struct {
		Delta          float64 `json:"delta"`
		FromLogits     bool    `json:"from_logits"`
		LabelSmoothing float64 `json:"label_smoothing"`
	}
	Labels, Predictions Array
	Weights             *Array
	Value, Gradient     Array
}

// lossTolerance is the bound for a loss and why it is not the dtype's own.
// Keras and the graph here sum in different orders.
func lossTolerance(loss, dtype string) (float64, string) {
	if loss == "LogCosh" && dtype == "float64" {
		return 1e-8, "Keras subtracts log 2 rounded to float32 also from float64"
	}
	return tolerance(dtype, 1e-5), "sums in another order"
}

func lossSection(ctx context.Context, h *Harness) (Result, error) {
	var result Result
	rec, err := h.Python(ctx, "losses")
	if err != nil {
		return result, err
	}
	defer rec.Close()
	var cases []lossCase
	if err := rec.Document(&cases); err != nil {
		return result, err
	}
	losses := map[string]*opReport{}
	for i, c := range cases {
		h.Progress.At("cases", i, len(cases))
		worst, err := c.check(ctx, rec)
		entry := result.count(losses, c.Loss, c.Name, worst, err)
		_, entry.Loose = lossTolerance(c.Loss, c.Value.DType)
	}
	result.Report = losses
	return result, nil
}

// check builds the loss and its gradient, runs both, and returns their larger
// relative error.
func (c *lossCase) check(ctx context.Context, rec *Recording) (float64, error) {
	function, known := lossFunctions[c.Loss]
	if !known {
		return 0, fmt.Errorf("package ops has no loss for keras.losses.%s", c.Loss)
	}
	g := ops.NewGraph(ops.GraphOptions{})
	options := ops.LossOptions{
		Reduction: reductions[c.Reduction], Delta: c.Arguments.Delta,
		FromLogits: c.Arguments.FromLogits, LabelSmoothing: c.Arguments.LabelSmoothing,
	}
	var call bridge.Call
	var feeds []*bridge.Tensor
	defer func() {
		for _, t := range feeds {
			t.Close()
		}
	}()
	feed := func(name string, a Array) (tf.Output, error) {
		t, err := rec.Tensor(a)
		if err != nil {
			return tf.Output{}, err
		}
		feeds = append(feeds, t)
		// Rows are unknown until the run, as in training.
		shape := t.Shape()
		if len(shape) > 1 {
			shape[0] = -1
		}
		x := g.Placeholder(name, t.DType(), shape)
		call.Feeds = append(call.Feeds, x)
		return x, nil
	}
	labels, err := feed("labels", c.Labels)
	if err != nil {
		return 0, err
	}
	predictions, err := feed("predictions", c.Predictions)
	if err != nil {
		return 0, err
	}
	if c.Weights != nil {
		if options.Weights, err = feed("weights", *c.Weights); err != nil {
			return 0, err
		}
	}
	value := function(g.Root(), labels, predictions, options)
	if err := g.Err(); err != nil {
		return 0, err
	}
	grads, err := ops.Gradients(g.Root(), []tf.Output{value}, []tf.Output{predictions})
	if err != nil {
		return 0, err
	}
	call.Fetches = []tf.Output{value, grads[0].Dense}
	session, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		return 0, err
	}
	defer session.Close()
	got, err := session.Call(ctx, call, feeds...)
	if err != nil {
		return 0, err
	}
	worst := 0.0
	for i, want := range []Array{c.Value, c.Gradient} {
		defer got[i].Close()
		d, err := rec.Compare(got[i], want)
		if bound, _ := lossTolerance(c.Loss, want.DType); err == nil && d > bound {
			err = fmt.Errorf("%s: relative error %.2g", []string{"value", "gradient"}[i], d)
		}
		if err != nil {
			return d, err
		}
		worst = max(worst, d)
	}
	return worst, nil
}
