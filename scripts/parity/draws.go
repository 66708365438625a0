package main

import (
	"context"
	"fmt"
	"strconv"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

func init() { register("draws", drawSection) }

// A drawCase is one tensor of random numbers of draws.py.
type drawCase struct {
	Name, Kind, What string
	Seed, Key        string // int64
	Variable         string
	Step             int64
	DType            string
	Value            Array
}

// kerasInitializers are the initializers of draws.py, with its settings.
var kerasInitializers = map[string]ops.Initializer{
	"GlorotNormal":    ops.GlorotNormal(),
	"GlorotUniform":   ops.GlorotUniform(),
	"HeNormal":        ops.HeNormal(),
	"HeUniform":       ops.HeUniform(),
	"LecunNormal":     ops.LecunNormal(),
	"LecunUniform":    ops.LecunUniform(),
	"VarianceScaling": ops.VarianceScaling(3, ops.FanOut, ops.UntruncatedNormalNumbers),
	"RandomNormal":    ops.Normal(0.5, 0.2),
	"RandomUniform":   ops.Uniform(-0.25, 0.75),
	"TruncatedNormal": ops.TruncatedNormal(-0.5, 0.1),
}

// drawSection draws the random numbers that Python draws from the documented
// seed pair, and the initial values that Keras computes from such numbers.
func drawSection(ctx context.Context, h *Harness) (Result, error) {
	var result Result
	rec, err := h.Python(ctx, "draws")
	if err != nil {
		return result, err
	}
	defer rec.Close()
	var cases []drawCase
	if err := rec.Document(&cases); err != nil {
		return result, err
	}
	reports := map[string]*opReport{}
	for i, c := range cases {
		h.Progress.At("cases", i, len(cases))
		worst, err := c.check(ctx, rec)
		result.count(reports, c.What, c.Name, worst, err)
	}
	result.Report = reports
	return result, nil
}

func (c *drawCase) check(ctx context.Context, rec *Recording) (float64, error) {
	seed, err := strconv.ParseInt(c.Seed, 10, 64)
	if err != nil {
		return 0, err
	}
	g := ops.NewGraph(ops.GraphOptions{Seed: seed})
	if got := strconv.FormatInt(g.RandomKey(c.Variable), 10); got != c.Key {
		return 0, fmt.Errorf("key %s, Python has %s", got, c.Key)
	}
	dt, err := bridge.ParseDType(c.DType)
	if err != nil {
		return 0, err
	}
	shape := append(ops.Shape{}, c.Value.Shape...)
	draw := ops.Draw{Name: c.Variable, Step: g.Const(c.Step)}
	var out tf.Output
	bound := 0.0 // the same kernel on the same seed: the same bits
	switch {
	case c.Kind == "initializer":
		out = g.Variable("v", shape, func(s *ops.Scope, _ string, shape ops.Shape, dt tf.DataType) tf.Output {
			return kerasInitializers[c.What](s, c.Variable, shape, dt)
		}, ops.VariableOptions{DType: dt}).InitialValue()
		bound = tolerance(c.DType, 0)
	case c.What == "normal":
		out = ops.StatelessNormal(g.Root(), shape, dt, draw)
	case c.What == "truncated_normal":
		out = ops.StatelessTruncatedNormal(g.Root(), shape, dt, draw)
	case c.What == "uniform":
		out = ops.StatelessUniform(g.Root(), shape, dt, draw)
	}
	if err := g.Err(); err != nil {
		return 0, err
	}
	session, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		return 0, err
	}
	defer session.Close()
	got, err := session.Call(ctx, bridge.Call{Fetches: []tf.Output{out}})
	if err != nil {
		return 0, err
	}
	defer got[0].Close()
	d, err := rec.Compare(got[0], c.Value)
	if err == nil && d > bound {
		err = fmt.Errorf("relative error %.2g", d)
	}
	return d, err
}
