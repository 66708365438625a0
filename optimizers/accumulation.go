package optimizers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Combine is what [Accumulated] makes of the gradients of its steps.
type Combine int

const (
	Mean Combine = iota // their mean
	Sum                 // their sum
)

// Accumulated is rule, which takes one step with the mean, or the sum, of the
// gradients of every n steps: with n batches it does what it would do with one n
// times as large. In between nothing at all moves: neither variables nor slots,
// nor the count of steps that schedules see, nor averages around it. (Keras lets
// schedules and averages go on.)
//
// The gradients are kept in the slot "accumulation". Those of a sparse gradient
// stay sparse: the step touches the rows that any of the n had. Train ops over
// the same variables fill the same n; train ops over other sets count for
// themselves, so between two that share a variable, finish the n first.
func Accumulated(rule Rule, n int64, as Combine) *Optimizer {
	return around(rule, &accumulated{wrapper: wrapper{rule}, n: n, as: as})
}

type accumulated struct {
	wrapper
	n    int64
	as   Combine
	sets []string // of variables that have been trained together
}

func (c *accumulated) holds() string { return "gradient accumulation" }

func (c *accumulated) Check([]*ops.Variable) error {
	if c.n <= 0 {
		return fmt.Errorf("gradient accumulation: n is %d, wanted above 0", c.n)
	}
	if c.as != Mean && c.as != Sum {
		return errors.New("gradient accumulation: what to make of the gradients is neither Mean nor Sum")
	}
	if _, twice := inside[*accumulated](c.inner); twice {
		return errors.New("gradient accumulation around gradient accumulation: multiply the numbers of steps")
	}
	return nil
}

// window is where a train op stands in its n steps.
type window struct {
	*gate
	count              *ops.Variable
	number             tf.Output // from 0
	first, last, more  tf.Output // more: not the last
	sum                []tf.Output
	accumulators, rows []*ops.Variable // rows: which rows are in it, for sparse gradients
}

// countOf is the count of the steps over these variables.
func (c *accumulated) countOf(a *Apply) *ops.Variable {
	names := make([]string, len(a.Variables))
	for i, v := range a.Variables {
		names[i] = v.Name()
	}
	slices.Sort(names)
	set := strings.Join(names, "\n")
	i := slices.Index(c.sets, set)
	if i < 0 {
		i = len(c.sets)
		c.sets = append(c.sets, set)
	}
	return a.newCount(c, i, "accumulated_steps")
}

func (c *accumulated) Together(a *Apply, all []*Update) {
	s := a.Scope.NameScope("accumulate")
	w := &window{count: c.countOf(a)}
	f := ops.NewFormula(s, tf.Int64)
	w.number = w.count.Value()
	w.first = f.Equal(w.number, f.Constant(0))
	w.last = f.GreaterEqual(w.number, ops.Const(s, ops.Shape{}, []int64{c.n - 1}))
	w.more = f.Not(w.last)
	w.gate = newGate(a, s, w.last)
	a.Keep(c, func() any { return w })
	if w.gate.apply == nil {
		return
	}
	part := 1.0
	if c.as == Mean {
		part = float64(c.n)
	}
	w.sum = make([]tf.Output, len(all))
	w.accumulators, w.rows = make([]*ops.Variable, len(all)), make([]*ops.Variable, len(all))
	for i, u := range all {
		v := u.Variable
		w.accumulators[i] = a.optimizer.slotOf(slotKey{of: v, name: "accumulation"}, "Accumulation", v.Shape(), ops.Zeros())
		if u.sparse() {
			w.rows[i] = a.optimizer.slotOf(slotKey{of: v, name: "accumulated_rows"}, "Accumulation", v.Shape()[:1], ops.Zeros())
			continue
		}
		// At the first of the n what is left of the last n counts no more.
		old := w.accumulators[i].Value()
		w.sum[i] = u.Select(w.first, u.Grad, u.Add(old, u.Grad))
	}
	w.run(c.inner, all, func(i int, nested *Update) {
		u := all[i]
		mean := func(x tf.Output) tf.Output {
			if part == 1 {
				return x
			}
			return nested.Div(x, nested.Constant(part))
		}
		if !u.sparse() {
			nested.setGrad(mean(w.sum[i]))
			return
		}
		before := nested.Select(w.first, nested.Constant(0), w.rows[i].Read(nested.Scope))
		rows := ops.Cast(nested.Scope, rowsOf(nested.Scope, before), u.Indices.DataType())
		zero := ops.Number(nested.Scope, tf.Int32, 0)
		values, indices := sumDuplicates(nested.Scope, &gradients.IndexedSlices{
			Values:  raw.ConcatV2(nested.Scope, []tf.Output{w.accumulators[i].Gather(nested.Scope, rows), u.Grad}, zero),
			Indices: raw.ConcatV2(nested.Scope, []tf.Output{rows, u.Indices}, zero),
		})
		nested.Indices = indices
		nested.setGrad(mean(values))
		nested.Var = u.Variable.Gather(nested.Scope, indices)
	})
	for i, u := range all {
		u.Do(func(s *ops.Scope) *tf.Operation {
			// What is behind the gate has read the sums by then.
			return when(s.WithControl(w.gate.done), w.more, func(s *ops.Scope) []*tf.Operation { return w.keep(s, u, i) })
		}, w.more, w.first, w.sum[i], u.Grad, u.Indices)
	}
}

// rowsOf are the indices at which a vector is not 0, int64.
func rowsOf(s *ops.Scope, marks tf.Output) tf.Output {
	return raw.Reshape(s, raw.Where(s, marks), ops.Const(s, ops.Shape{1}, []int32{-1}))
}

// keep adds the gradient of a step to the sum.
func (w *window) keep(s *ops.Scope, u *Update, i int) []*tf.Operation {
	sum, rows := w.accumulators[i], w.rows[i]
	if rows == nil {
		return []*tf.Operation{sum.Assign(s, w.sum[i])}
	}
	f := ops.NewFormula(s, u.DType)
	emptied := when(s, w.first, func(s *ops.Scope) []*tf.Operation {
		old := rowsOf(s, rows.Read(s))
		zero := f.Constant(0)
		return []*tf.Operation{sum.Scatter(s, ops.ScatterUpdate, old, zero), rows.Scatter(s, ops.ScatterUpdate, old, zero)}
	})
	if emptied == nil {
		return nil
	}
	s = s.WithControl(emptied)
	return []*tf.Operation{
		sum.Scatter(s, ops.ScatterAdd, u.Indices, u.Grad),
		rows.Scatter(s, ops.ScatterUpdate, u.Indices, f.Constant(1)),
	}
}

func (c *accumulated) Finish(a *Apply) []*tf.Operation {
	w, made := a.Keep(c, func() any { return nil }).(*window)
	if !made {
		return nil
	}
	all := w.finish(c.inner, a, true, nil)
	if a.Scope.Err() != nil {
		return nil
	}
	s := a.Scope.WithControl(all...)
	f := ops.NewFormula(s, tf.Int64)
	next := f.Select(w.last, f.Constant(0), f.Add(w.number, f.Constant(1)))
	return append(all, w.count.Assign(s, next))
}
