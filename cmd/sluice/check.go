package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// checked is how the gradient by one x compares with central differences.
type checked struct {
	X         string  `json:"x"`
	OK        bool    `json:"ok"`
	Compared  int     `json:"compared"` // elements
	Of        int64   `json:"of"`
	Worst     float64 `json:"worst"` // relative error
	Tolerance float64 `json:"tolerance"`
	At        []int64 `json:"at,omitempty"` // index of the worst element
	Gradient  float64 `json:"gradient"`     // there
	Numeric   float64 `json:"numeric"`      // there
	Skipped   string  `json:"skipped,omitempty"`
}

// String is the line at the shell.
func (c checked) String() string {
	if c.Skipped != "" {
		return fmt.Sprintf("check %s: skipped, %s", c.X, c.Skipped)
	}
	verdict := "ok"
	if !c.OK {
		verdict = "BAD"
	}
	return fmt.Sprintf("check %s: %s, %d of %d elements, worst relative error %.2g (at most %.2g) at %v: gradient %.8g, central difference %.8g",
		c.X, verdict, c.Compared, c.Of, c.Worst, c.Tolerance, c.At, c.Gradient, c.Numeric)
}

// check compares the gradient by every x with central differences.
func (d *differentiated) check(ctx context.Context, o *gradOptions, call bridge.Call, feeds, grads map[string]*bridge.Tensor) ([]checked, error) {
	first, err := d.sum(ctx, call, values(call, feeds))
	if err != nil {
		return nil, err
	}
	second, err := d.sum(ctx, call, values(call, feeds))
	if err != nil {
		return nil, err
	}
	if difference(second, first) != 0 {
		return nil, errors.New("--check: two runs on the same feeds give different values: the graph draws random numbers or updates variables, and differences mean nothing")
	}
	var all []checked
	for i := range d.xs {
		x := &d.xs[i]
		c, err := d.checkOne(ctx, o, x, call, feeds, grads[x.name])
		if err != nil {
			return nil, fmt.Errorf("--check %s: %w", x.name, err)
		}
		all = append(all, c)
	}
	return all, nil
}

// steps are how far x is moved, relative to its size: the cube root of the type's
// precision, at which the error of the difference and that of rounding are alike.
// The tolerance is some hundred times what is left of both.
var steps = map[tf.DataType]struct{ move, precision, tolerance float64 }{
	tf.Float:  {4.9e-3, 1.2e-7, 1e-2},
	tf.Double: {6.1e-6, 2.2e-16, 1e-5},
}

func (d *differentiated) checkOne(ctx context.Context, o *gradOptions, x *by, call bridge.Call, feeds map[string]*bridge.Tensor, grad *bridge.Tensor) (c checked, err error) {
	c = checked{X: x.name, OK: true}
	step, known := steps[bridge.BaseDType(x.tensor.DataType())]
	switch {
	case grad == nil:
		c.Skipped = "it has no gradient"
		return c, nil
	case !known:
		c.Skipped = "differences are taken in float32 and float64, and it is " + bridge.DTypeName(bridge.BaseDType(x.tensor.DataType()))
		return c, nil
	}
	if c.Tolerance = o.tolerance; c.Tolerance == 0 {
		c.Tolerance = step.tolerance
	}
	exact, err := bridge.ToFloat64(grad)
	if err != nil {
		return c, err
	}
	at, err := d.value(ctx, x, call, feeds)
	if err != nil {
		return c, err
	}
	defer at.Close()
	if x.variable {
		defer func() {
			if back := d.assign(ctx, x, at); err == nil {
				err = back
			}
		}()
	}
	c.Of = at.NumElements()
	if int64(len(exact)) != c.Of {
		return c, fmt.Errorf("the gradient has %d elements, x %d", len(exact), c.Of)
	}
	points, err := bridge.ToFloat64(at)
	if err != nil {
		return c, err
	}
	largest := 0.0
	for _, g := range exact {
		if !math.IsInf(g, 0) && !math.IsNaN(g) {
			largest = max(largest, math.Abs(g))
		}
	}
	chosen := min(c.Of, int64(o.elements))
	worst := -1.0
	for k := range chosen {
		i := k * c.Of / chosen
		h := step.move * max(1, math.Abs(points[i]))
		up, high, err := d.moved(ctx, x, call, feeds, at, i, points[i]+h)
		if err != nil {
			return c, err
		}
		down, low, err := d.moved(ctx, x, call, feeds, at, i, points[i]-h)
		if err != nil {
			return c, err
		}
		numeric := difference(up, down) / (high - low)
		noise := step.precision * magnitude(up) / (high - low)
		off := max(0, math.Abs(exact[i]-numeric)-2*noise)
		scale := max(math.Abs(exact[i]), math.Abs(numeric), largest/10)
		relative := 0.0
		switch {
		case math.IsNaN(exact[i]) || math.IsNaN(numeric) || math.IsInf(exact[i], 0) || math.IsInf(numeric, 0):
			if !(math.IsNaN(exact[i]) && math.IsNaN(numeric)) && exact[i] != numeric {
				relative = math.MaxFloat64
			}
		case off > 0:
			relative = off / scale
		}
		c.Compared++
		if relative > worst {
			worst = relative
			c.Worst, c.At, c.Gradient, c.Numeric = relative, place(i, at.Shape()), finite(exact[i]), finite(numeric)
		}
	}
	c.OK = c.Worst <= c.Tolerance
	return c, nil
}

// finite is v for JSON, which has no infinity.
func finite(v float64) float64 {
	switch {
	case math.IsNaN(v):
		return 0
	case math.IsInf(v, 0):
		return math.Copysign(math.MaxFloat64, v)
	}
	return v
}

// place is the index of the i-th element.
func place(i int64, shape bridge.Shape) []int64 {
	index := make([]int64, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		index[d] = i % shape[d]
		i /= shape[d]
	}
	return index
}

// value is what x is with these feeds.
func (d *differentiated) value(ctx context.Context, x *by, call bridge.Call, feeds map[string]*bridge.Tensor) (*bridge.Tensor, error) {
	if fed := feeds[nameOf(x.tensor)]; fed != nil {
		return fed.Clone()
	}
	call.Fetches = []tf.Output{x.tensor}
	results, err := d.session.Call(ctx, call, values(call, feeds)...)
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

func (d *differentiated) assign(ctx context.Context, x *by, value *bridge.Tensor) error {
	_, err := d.session.Call(ctx, bridge.Call{Feeds: []tf.Output{x.value}, Targets: []*tf.Operation{x.assign}}, value)
	return err
}

// moved is the ys where element i of x is to, and what to is when rounded.
func (d *differentiated) moved(ctx context.Context, x *by, call bridge.Call, feeds map[string]*bridge.Tensor, at *bridge.Tensor, i int64, to float64) ([]float64, float64, error) {
	there, err := at.Clone()
	if err != nil {
		return nil, 0, err
	}
	defer there.Close()
	if there.DType() == tf.Float {
		elements, err := bridge.Flat[float32](there)
		if err != nil {
			return nil, 0, err
		}
		elements[i] = float32(to)
		to = float64(elements[i])
	} else {
		elements, err := bridge.Flat[float64](there)
		if err != nil {
			return nil, 0, err
		}
		elements[i] = to
	}
	given := values(call, feeds)
	switch {
	case x.variable:
		if err := d.assign(ctx, x, there); err != nil {
			return nil, 0, err
		}
	case feeds[nameOf(x.tensor)] != nil:
		for k, into := range call.Feeds {
			if bridge.SameOutput(into, x.tensor) {
				given[k] = there
			}
		}
	default:
		call.Feeds = append(append([]tf.Output{}, call.Feeds...), x.tensor)
		given = append(given, there)
	}
	ys, err := d.sum(ctx, call, given)
	return ys, to, err
}

// sum runs the ys and returns all their elements.
func (d *differentiated) sum(ctx context.Context, call bridge.Call, given []*bridge.Tensor) ([]float64, error) {
	var all []float64
	call.Fetches = nil
	for _, y := range d.ys {
		fed := false
		for k, into := range call.Feeds {
			if bridge.SameOutput(into, y) { // x itself
				fed = true
				part, err := bridge.ToFloat64(given[k])
				if err != nil {
					return nil, err
				}
				all = append(all, part...)
			}
		}
		if !fed {
			call.Fetches = append(call.Fetches, y)
		}
	}
	if len(call.Fetches) == 0 {
		return all, nil
	}
	results, err := d.session.Call(ctx, call, given...)
	if err != nil {
		return nil, err
	}
	for _, t := range results {
		defer t.Close()
		part, err := bridge.ToFloat64(t)
		if err != nil {
			return nil, fmt.Errorf("the ys: %w", err)
		}
		all = append(all, part...)
	}
	return all, nil
}

// difference sums what changed, element by element, so that what did not change
// takes no digits from what did.
func difference(a, b []float64) float64 {
	total := 0.0
	for i := range a {
		total += a[i] - b[i]
	}
	return total
}

func magnitude(a []float64) float64 {
	total := 0.0
	for _, v := range a {
		total += math.Abs(v)
	}
	return total
}
