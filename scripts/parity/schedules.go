package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/optimizers/schedules"
)

func init() { register("schedules", scheduleSection) }

// scheduleCase is a case of schedules.py. Settings are the fields of ours.
type scheduleCase struct {
	Schedule, Name, DType string
	Settings              json.RawMessage
	Steps, Want           Array
}

// made is our schedule of a case.
func (c scheduleCase) made() (ops.Hyperparameter, error) {
	switch c.Schedule {
	case "ExponentialDecay":
		var s schedules.ExponentialDecay
		err := json.Unmarshal(c.Settings, &s)
		return s, err
	case "PiecewiseConstant":
		var s schedules.PiecewiseConstant
		err := json.Unmarshal(c.Settings, &s)
		return s, err
	}
	return nil, fmt.Errorf("no schedule %q", c.Schedule)
}

func scheduleSection(ctx context.Context, h *Harness) (Result, error) {
	rec, err := h.Python(ctx, "schedules")
	if err != nil {
		return Result{}, err
	}
	defer rec.Close()
	var cases []scheduleCase
	if err := rec.Document(&cases); err != nil {
		return Result{}, err
	}
	reports := newTrainReports()
	for i, c := range cases {
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		h.Progress.At("Go", i, len(cases))
		worst, err := scheduled(ctx, rec, c)
		reports.add(c.Schedule, c.Name, worst, tolerance(c.DType, 0), err)
	}
	return reports.finish(), nil
}

// scheduled computes a schedule at every recorded step.
func scheduled(ctx context.Context, rec *Recording, c scheduleCase) (float64, error) {
	dt, err := bridge.ParseDType(c.DType)
	if err != nil {
		return 0, err
	}
	schedule, err := c.made()
	if err != nil {
		return 0, err
	}
	l := newLab(rec, 0)
	defer l.close()
	step := l.Placeholder("step", tf.Int64, ops.Shape{})
	value := schedule.At(l.Root(), step, dt)
	if err := l.start(ctx); err != nil {
		return 0, err
	}
	prepared, err := l.session.Prepare(bridge.Call{Feeds: []tf.Output{step}, Fetches: []tf.Output{value}})
	if err != nil {
		return 0, err
	}
	out := prepared.NewOutputs()
	defer out.Close()
	steps, err := rec.Bytes(c.Steps)
	if err != nil {
		return 0, err
	}
	var got []byte
	for at := 0; at < len(steps); at += 8 {
		fed, err := bridge.Scalar(int64(binary.LittleEndian.Uint64(steps[at:])))
		if err != nil {
			return 0, err
		}
		err = prepared.Run(ctx, []*bridge.Tensor{fed}, out)
		_ = fed.Close()
		if err != nil {
			return 0, err
		}
		view, err := out.Tensor(0).Bytes()
		if err != nil {
			return 0, err
		}
		got = append(got, view...)
	}
	// By element: far along, a schedule has fallen by orders of magnitude.
	ours, err := numbers(c.DType, got)
	if err != nil {
		return 0, err
	}
	expected, err := rec.Bytes(c.Want)
	if err != nil {
		return 0, err
	}
	theirs, err := numbers(c.DType, expected)
	if err != nil {
		return 0, err
	}
	if len(ours) != len(theirs) {
		return 0, fmt.Errorf("%d values, Python has %d", len(ours), len(theirs))
	}
	worst := 0.0
	for i := range ours {
		worst = max(worst, relative(ours[i], theirs[i], 1e-30))
	}
	return worst, nil
}
