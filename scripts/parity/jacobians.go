package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

func init() { register("jacobians", jacobianSection) }

// A jacobianCase is one function of jacobians.py.
type jacobianCase struct {
	Name, Graph, Y    string
	Feeds             []namedArray
	Jacobian          []*expectedGradient // nil: Python gives None
	Batch             *expectedGradient   // nil: not asked
	Hessians, Product []*expectedGradient
	Vector            []Array
}

// jacobianSection holds ops.Jacobian, BatchJacobian, Hessians and
// HessianVectorProduct against GradientTape.
func jacobianSection(ctx context.Context, h *Harness) (Result, error) {
	var result Result
	rec, err := h.Python(ctx, "jacobians")
	if err != nil {
		return result, err
	}
	defer rec.Close()
	var cases []jacobianCase
	if err := rec.Document(&cases); err != nil {
		return result, err
	}
	report := map[string]*opReport{}
	for i, c := range cases {
		h.Progress.At("jacobians", i, len(cases))
		err := c.check(ctx, rec, func(what string, rel float64) {
			result.Cases++
			r := report[what]
			if r == nil {
				r = &opReport{OK: true}
				report[what] = r
			}
			r.Cases++
			r.Worst = max(r.Worst, min(rel, math.MaxFloat32))
			r.OK = r.OK && rel <= 1e-5
		})
		if err != nil {
			result.Failures = append(result.Failures, c.Name+": "+err.Error())
		}
	}
	result.Report = report
	return result, nil
}

func (c *jacobianCase) check(ctx context.Context, rec *Recording, compared func(what string, rel float64)) error {
	def, err := rec.File(c.Graph)
	if err != nil {
		return err
	}
	graph := tf.NewGraph()
	if err := graph.Import(def, ""); err != nil {
		return fmt.Errorf("importing: %w", err)
	}
	g := ops.FromTF(graph, ops.GraphOptions{})
	xs, err := outputs(graph, names(c.Feeds))
	if err != nil {
		return err
	}
	ys, err := outputs(graph, []string{c.Y})
	if err != nil {
		return err
	}
	vs := make([]tf.Output, len(xs))
	for i, v := range c.Vector {
		t, err := rec.Tensor(v)
		if err != nil {
			return err
		}
		vs[i] = g.Const(t)
		t.Close()
	}

	type expectation struct {
		what string
		want Array
	}
	var fetches []tf.Output
	var expected []expectation
	expect := func(what string, got []ops.Gradient, err error, want ...*expectedGradient) error {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		for i, w := range want {
			if (w == nil) != got[i].IsNone() {
				return fmt.Errorf("%s by %s: none is %t, Python's None is %t", what, c.Feeds[i].Name, got[i].IsNone(), w == nil)
			}
			if w != nil {
				fetches = append(fetches, ops.Densify(g.Root(), got[i]))
				expected = append(expected, expectation{what: what, want: w.Array})
			}
		}
		return nil
	}
	j, err := ops.Jacobian(g.Root(), ys[0], xs)
	if err := expect("jacobian", j, err, c.Jacobian...); err != nil {
		return err
	}
	if c.Batch != nil {
		b, err := ops.BatchJacobian(g.Root(), ys[0], xs[0])
		if err := expect("batch_jacobian", []ops.Gradient{b}, err, c.Batch); err != nil {
			return err
		}
	}
	hs, err := ops.Hessians(g.Root(), ys, xs)
	if err := expect("hessians", hs, err, c.Hessians...); err != nil {
		return err
	}
	p, err := ops.HessianVectorProduct(g.Root(), ys, xs, vs)
	if err := expect("hessian_vector_product", p, err, c.Product...); err != nil {
		return err
	}

	session, err := bridge.NewSession(graph, bridge.Config{IntraOpThreads: 1, InterOpThreads: 1})
	if err != nil {
		return err
	}
	defer session.Close()
	call := bridge.Call{Feeds: xs, Fetches: fetches}
	var feeds []*bridge.Tensor
	defer func() {
		for _, t := range feeds {
			t.Close()
		}
	}()
	for _, f := range c.Feeds {
		t, err := rec.Tensor(f.Array)
		if err != nil {
			return err
		}
		feeds = append(feeds, t)
	}
	got, err := session.Call(ctx, call, feeds...)
	if err != nil {
		return fmt.Errorf("running: %w", err)
	}
	var wrong []string
	for i, t := range got {
		rel, err := rec.Compare(t, expected[i].want)
		t.Close()
		if err != nil {
			wrong = append(wrong, expected[i].what+": "+err.Error())
		} else if bound := tolerance(expected[i].want.DType, 1e-5); rel > bound {
			wrong = append(wrong, fmt.Sprintf("%s: relative error %.2g, at most %.2g", expected[i].what, rel, bound))
		}
		compared(expected[i].what, rel)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return nil
}
