package main

import (
	"context"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/optimizers"
)

func init() { register("optimizers", optimizerSection) }

// optimizerCase is a case of optimizers.py: a variable trained by recorded
// gradients.
type optimizerCase struct {
	Optimizer, Rule, Name, DType string
	Sparse                       bool
	Rate, Modulus, Stddev        float64
	Start, Grads, IDs, Want      Array
	Slots                        map[string]Array // every step
}

func optimizerSection(ctx context.Context, h *Harness) (Result, error) {
	rec, err := h.Python(ctx, "optimizers")
	if err != nil {
		return Result{}, err
	}
	defer rec.Close()
	var cases []optimizerCase
	if err := rec.Document(&cases); err != nil {
		return Result{}, err
	}
	reports := newTrainReports()
	for i, c := range cases {
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		h.Progress.At("Go", i, len(cases))
		worst, err := trainAsRecorded(ctx, rec, c)
		bound := tolerance(c.DType, 0)
		if c.Rule == "v1 adam" {
			// v1 keeps its powers of beta in float32, whatever the variable's
			// dtype, and multiplies them up; its fused operation computes
			// 1-0.999 in float32, which leaves four digits of it.
			bound = 5e-5
		}
		reports.add(c.Optimizer, c.Name, worst, bound, err)
	}
	return reports.finish(), nil
}

func trainAsRecorded(ctx context.Context, rec *Recording, c optimizerCase) (float64, error) {
	const seed = 7 // as in optimizers.py
	dt, err := bridge.ParseDType(c.DType)
	if err != nil {
		return 0, err
	}
	l := newLab(rec, seed)
	defer l.close()
	w := l.variable("w", c.Start, dt, true)
	shape := w.Shape()
	gradShape := ops.Shape(c.Grads.Shape[1:])
	fed := l.Placeholder("grad", dt, gradShape)
	ids := l.Placeholder("ids", tf.Int32, ops.Shape{c.IDs.Shape[1]})
	grad := optimizers.Grad{Variable: w, Gradient: gradients.Gradient{Dense: fed}}
	if c.Sparse {
		grad.Gradient = gradients.Gradient{Slices: &gradients.IndexedSlices{
			Values: fed, Indices: ids, DenseShape: ops.Const(l.Root(), ops.Shape{int64(len(shape))}, []int64(shape))}}
	}
	var o optimizer
	if c.Optimizer == "FloorMod" {
		f := optimizers.NewFloorMod(c.Rate, c.Modulus)
		f.Stddev = optimizers.Value(c.Stddev)
		o = f
	} else if o, err = makeOptimizer(c.Rule, optimizers.Value(c.Rate), dt); err != nil {
		return 0, err
	}
	train, err := o.ApplyGradients([]optimizers.Grad{grad})
	if err != nil {
		return 0, err
	}
	if err := l.start(ctx); err != nil {
		return 0, err
	}

	tracked, want := []*ops.Variable{w}, map[string][][]complex128{}
	if want["w"], err = steps(rec, c.Want); err != nil {
		return 0, err
	}
	for name, array := range c.Slots {
		slot, ok := o.Slot(w, name)
		if !ok {
			return 0, fmt.Errorf("no slot %s", name)
		}
		tracked = append(tracked, slot)
		if want[slot.Name()], err = steps(rec, array); err != nil {
			return 0, err
		}
	}
	gradBytes, err := rec.Bytes(c.Grads)
	if err != nil {
		return 0, err
	}
	idBytes, err := rec.Bytes(c.IDs)
	if err != nil {
		return 0, err
	}
	n := int(c.Grads.Shape[0])
	part := func(all []byte, step int) []byte { return all[step*len(all)/n : (step+1)*len(all)/n] }
	worst := 0.0
	for step := range n {
		value, err := bridge.FromBytes(dt, gradShape, part(gradBytes, step))
		if err != nil {
			return 0, err
		}
		feeds := []feed{{fed, value}}
		if c.Sparse {
			value, err := bridge.FromBytes(tf.Int32, ops.Shape{c.IDs.Shape[1]}, part(idBytes, step))
			if err != nil {
				return 0, err
			}
			feeds = append(feeds, feed{ids, value})
		}
		if err := l.run(ctx, train.Op, feeds...); err != nil {
			return 0, err
		}
		bits, err := l.bits(ctx, tracked...)
		if err != nil {
			return 0, err
		}
		for _, v := range tracked {
			got, err := numbers(c.DType, bits[v.Name()])
			if err != nil {
				return 0, err
			}
			if c.Modulus != 0 && v == w {
				worst = max(worst, onCircle(got, want[v.Name()][step], c.Modulus))
			} else {
				worst = max(worst, difference(got, want[v.Name()][step]))
			}
		}
	}
	return worst, nil
}
