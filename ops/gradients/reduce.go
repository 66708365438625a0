package gradients

import (
	"fmt"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// reduction is an operation that reduces x over axes.
type reduction struct {
	c       *Context
	x, axes tf.Output
	keep    bool // the output keeps the reduced dimensions
	// static holds the reduced axes, not negative and sorted, when the rank
	// of x and the axes are known.
	static []int64
	known  bool
}

func newReduction(c *Context) reduction {
	r := reduction{c: c, x: c.Input(0), axes: c.Input(1), keep: c.AttrBool("keep_dims")}
	shape := c.Static(r.x)
	if axes, ok := c.ConstInts(r.axes); ok && shape != nil {
		r.known = true
		for _, a := range axes {
			if a < 0 {
				a += int64(len(shape))
			}
			if a < 0 || a >= int64(len(shape)) {
				r.known = false
				break
			}
			r.static = append(r.static, a)
		}
		slices.Sort(r.static)
		r.static = slices.Compact(r.static)
	}
	return r
}

// positive is the axes tensor as a vector without negative entries.
func (r reduction) positive() tf.Output {
	c := r.c
	axes := c.Cast(c.Flat(r.axes), tf.Int32)
	if r.known {
		return c.Ints(tf.Int32, r.static...)
	}
	return raw.FloorMod(c, axes, c.Rank(r.x))
}

// keptShape is x's shape with 1 in the reduced dimensions.
func (r reduction) keptShape() tf.Output {
	c := r.c
	if shape := c.Static(r.x); r.known {
		kept := slices.Clone(shape)
		unknown := 0
		for _, a := range r.static {
			kept[a] = 1
		}
		for _, d := range kept {
			if d < 0 {
				unknown++
			}
		}
		// A single unknown dimension is left to Reshape.
		if unknown == 0 || unknown == 1 && !slices.Contains(kept, 0) {
			return c.Ints(tf.Int32, kept...)
		}
	}
	axes := r.positive()
	all := raw.Range(c, c.Int(tf.Int32, 0), c.Rank(r.x), c.Int(tf.Int32, 1))
	ones := raw.Fill(c, c.Shape(axes), c.Int(tf.Int32, 1))
	return raw.DynamicStitch(c, []tf.Output{all, axes}, []tf.Output{c.Shape(r.x), ones})
}

// expand gives a tensor of the reduced shape one that broadcasts against x.
func (r reduction) expand(t tf.Output) tf.Output {
	if r.keep || r.leading() {
		return t
	}
	return r.c.Reshape(t, r.keptShape())
}

// leading reports whether the reduced axes are the first ones: what is left
// then lines up with x as it is.
func (r reduction) leading() bool {
	if !r.known {
		return false
	}
	for i, a := range r.static {
		if a != int64(i) {
			return false
		}
	}
	return true
}

// spread repeats t, which broadcasts against x, to x's shape.
func (r reduction) spread(t tf.Output) tf.Output {
	if r.c.SameShape(t, r.x) {
		return t
	}
	return raw.BroadcastTo(r.c, t, r.c.Shape(r.x))
}

// count is how many elements of x make one of the output, in dtype dt.
func (r reduction) count(dt tf.DataType) tf.Output {
	c := r.c
	if r.known {
		n, fixed := int64(1), true
		for _, a := range r.static {
			d := c.Static(r.x)[a]
			n, fixed = n*d, fixed && d >= 0
		}
		if fixed {
			return c.Number(dt, float64(n))
		}
		if len(r.static) == len(c.Static(r.x)) {
			return c.Cast(c.Size(r.x), dt)
		}
	}
	sizes := raw.GatherV2(c, c.Shape(r.x), r.positive(), c.Int(tf.Int32, 0))
	return c.Cast(raw.Prod(c, sizes, c.Ints(tf.Int32, 0)), dt)
}

func init() {
	Register("Sum", func(c *Context) []Gradient {
		r := newReduction(c)
		return dense(r.spread(r.expand(c.Grad(0))))
	})
	Register("Mean", func(c *Context) []Gradient {
		r, g := newReduction(c), c.Grad(0)
		return dense(r.spread(c.Div(r.expand(g), r.count(c.Input(0).DataType()))))
	})
	// All elements that equal the extreme share its gradient.
	extreme := func(c *Context) []Gradient {
		r := newReduction(c)
		g, y := r.expand(c.Grad(0)), r.expand(c.Output(0))
		selected := c.Cast(raw.Equal(c, y, r.x), r.x.DataType())
		count := raw.Sum(c, selected, r.axes, raw.WithKeepDims(true))
		return dense(c.Mul(c.Div(selected, count), g))
	}
	Register("Max", extreme)
	Register("Min", extreme)
	Register("Prod", prodGrad)
	// √Σ|x|²: x / y
	Register("EuclideanNorm", func(c *Context) []Gradient {
		r := newReduction(c)
		return dense(c.Div(r.x, c.Div(r.expand(c.Output(0)), r.expand(c.Grad(0)))))
	})

	// Σ_{i≤j} x_i: each x_i counts in all later sums.
	Register("Cumsum", func(c *Context) []Gradient {
		return dense(raw.Cumsum(c, c.Grad(0), c.Input(1),
			raw.WithExclusive(c.AttrBool("exclusive")), raw.WithReverse(!c.AttrBool("reverse"))))
	})
	// The sum of g·y over the products that x_i is in, divided by x_i; 0 where
	// x_i is 0, as in Python.
	Register("Cumprod", func(c *Context) []Gradient {
		x, axis := c.Input(0), c.Input(1)
		exclusive, reverse := c.AttrBool("exclusive"), c.AttrBool("reverse")
		sums := raw.Cumsum(c, c.Mul(c.Output(0), c.Grad(0)), axis,
			raw.WithExclusive(exclusive), raw.WithReverse(!reverse))
		return dense(raw.DivNoNan(c, sums, x))
	})
	// e^x Σ g e^{-y} over the later sums, the positive and the negative part
	// of g apart, each in logarithms.
	Register("CumulativeLogsumexp", func(c *Context) []Gradient {
		x, axis, y, g := c.Input(0), c.Input(1), c.Output(0), c.Grad(0)
		exclusive, reverse := c.AttrBool("exclusive"), c.AttrBool("reverse")
		lowest := c.Number(g.DataType(), lowestOf(g.DataType()))
		part := func(g tf.Output) tf.Output {
			log := c.Where(raw.Greater(c, g, c.NumberLike(0, g)), c.Log(g), lowest)
			sums := raw.CumulativeLogsumexp(c, c.Minus(log, y), axis,
				raw.WithExclusive(exclusive), raw.WithReverse(!reverse))
			return c.Exp(c.Plus(sums, x))
		}
		return dense(c.Minus(part(g), part(c.Neg(g))))
	})

	Register("Einsum", einsumGrad)
	RegisterCheck("Einsum", func(op *tf.Operation) error {
		eq, err := bridge.AttrString(op, "equation")
		if err == nil {
			_, err = parseEinsum(eq)
		}
		return err
	})
}

// lowestOf is the most negative finite number of a floating dtype.
func lowestOf(dt tf.DataType) float64 {
	switch dt {
	case tf.Half:
		return -65504
	case tf.Bfloat16:
		return -3.3895313892515355e38
	case tf.Float:
		return -3.4028234663852886e38
	}
	return -1.7976931348623157e308
}

// prodGrad: the derivative by an element is the product of all others, built
// from the products before and after it, so that zeros need no division.
func prodGrad(c *Context) []Gradient {
	r := newReduction(c)
	g := r.expand(c.Grad(0))
	others := func(t, axis tf.Output) tf.Output {
		before := raw.Cumprod(c, t, axis, raw.WithExclusive(true))
		after := raw.Cumprod(c, t, axis, raw.WithExclusive(true), raw.WithReverse(true))
		return c.Mul(c.Conj(before), c.Conj(after))
	}
	if r.known && len(r.static) == 0 {
		return dense(g)
	}
	if r.known && len(r.static) == 1 {
		return dense(c.Mul(g, others(r.x, c.Int(tf.Int32, r.static[0]))))
	}
	// Several axes become one: they go to the front and are flattened.
	var perm, inverse tf.Output
	if r.known {
		order := slices.Clone(r.static)
		for a := range int64(len(c.Static(r.x))) {
			if !slices.Contains(r.static, a) {
				order = append(order, a)
			}
		}
		perm, inverse = c.Ints(tf.Int32, order...), c.Ints(tf.Int32, invert(order)...)
	} else {
		reduced := r.positive()
		all := raw.Range(c, c.Int(tf.Int32, 0), c.Rank(r.x), c.Int(tf.Int32, 1))
		rest, _ := raw.ListDiff(c, all, reduced)
		perm = c.Join(reduced, rest)
		inverse = raw.InvertPermutation(c, perm)
	}
	front := raw.Transpose(c, r.x, perm)
	n := c.Reshape(r.count(tf.Int32), c.Ints(tf.Int32, 1))
	rest := raw.Div(c, c.Size(r.x), raw.Maximum(c, r.count(tf.Int32), c.Int(tf.Int32, 1)))
	flat := raw.Reshape(c, front, c.Join(n, c.Reshape(rest, c.Ints(tf.Int32, 1))))
	y := raw.Transpose(c, c.Reshape(others(flat, c.Int(tf.Int32, 0)), c.Shape(front)), inverse)
	return dense(c.ReshapeLike(c.Mul(g, y), r.x))
}

// invert is the inverse of a permutation.
func invert(perm []int64) []int64 {
	out := make([]int64, len(perm))
	for i, p := range perm {
		out[p] = int64(i)
	}
	return out
}

// einsum is a parsed equation: the labels of each operand and of the output,
// with an ellipsis as '.'.
type einsum struct {
	in  []string
	out string
}

func parseEinsum(equation string) (einsum, error) {
	eq := strings.ReplaceAll(strings.ReplaceAll(equation, " ", ""), "...", ".")
	in, out, ok := strings.Cut(eq, "->")
	if !ok {
		return einsum{}, fmt.Errorf("equation %q has no ->", equation)
	}
	e := einsum{in: strings.Split(in, ","), out: out}
	if len(e.in) > 2 {
		return einsum{}, fmt.Errorf("equation %q has %d operands, 1 or 2 can be differentiated", equation, len(e.in))
	}
	for _, s := range e.in {
		if strings.Contains(s, ".") && !strings.Contains(out, ".") {
			return einsum{}, fmt.Errorf("equation %q sums over an ellipsis", equation)
		}
	}
	return e, nil
}

// einsumGrad: the gradient by one operand is the einsum of g and the conjugate
// of the other one to the operand's labels. Labels that only the operand has
// were summed over, so their gradient is repeated, as an outer product with
// ones; and dimensions of an ellipsis that were broadcast are summed.
func einsumGrad(c *Context) []Gradient {
	e, err := parseEinsum(c.AttrString("equation"))
	if err != nil {
		c.Fail(err)
		return nil
	}
	apply := func(in []string, out string, operands ...tf.Output) tf.Output {
		eq := strings.ReplaceAll(strings.Join(in, ",")+"->"+out, ".", "...")
		return raw.Einsum(c, operands, eq)
	}
	g := c.Grad(0)
	grads := make([]tf.Output, len(e.in))
	for k, labels := range e.in {
		if !c.Wants(k) {
			continue
		}
		x := c.Input(k)
		// The ellipsis first: then a broadcast lines up from the last dimension.
		bare := strings.ReplaceAll(labels, ".", "")
		target := bare
		hasEllipsis := strings.Contains(labels, ".")
		if hasEllipsis || strings.Contains(e.out, ".") {
			target = "." + bare
		}
		operands, subs := []tf.Output{g}, []string{e.out}
		available := e.out
		if len(e.in) == 2 {
			operands, subs = append(operands, c.Conj(c.Input(1-k))), append(subs, e.in[1-k])
			available += e.in[1-k]
		}
		summed := ""
		for _, l := range bare {
			if !strings.ContainsRune(available, l) && !strings.ContainsRune(summed, l) {
				summed += string(l)
			}
		}
		var t tf.Output
		if summed == "" {
			t = apply(subs, target, operands...)
		} else {
			t = g
			from := e.out
			if len(e.in) == 2 {
				from = ""
				for _, l := range target {
					if !strings.ContainsRune(summed, l) && !strings.ContainsRune(from, l) {
						from += string(l)
					}
				}
				t = apply(subs, from, operands...)
			}
			var dims []tf.Output
			for _, l := range summed {
				axis := int64(strings.IndexRune(labels, l))
				if dot := int64(strings.Index(labels, ".")); dot >= 0 && axis > dot {
					axis -= int64(len(labels))
				}
				dims = append(dims, c.Reshape(c.Dim(c.Shape(x), axis), c.Ints(tf.Int32, 1)))
			}
			ones := raw.Fill(c, c.Join(dims...), c.NumberLike(1, x))
			t = apply([]string{from, summed}, target, t, ones)
		}
		if target != bare || hasEllipsis {
			t = c.unbroadcastEllipsis(t, x, labels)
			from := bare
			if hasEllipsis {
				from = "." + bare
			}
			if from != labels {
				t = apply([]string{from}, labels, t)
			}
		}
		grads[k] = t
	}
	return dense(grads...)
}

// unbroadcastEllipsis reduces t, whose labels are the ellipsis and then those
// of x, to x's dimensions in that order.
func (c *Context) unbroadcastEllipsis(t, x tf.Output, labels string) tf.Output {
	before, after, ok := strings.Cut(labels, ".")
	if !ok {
		before, after = labels, ""
	}
	if s := c.Static(x); s.FullyDefined() && before == "" && c.SameShape(t, x) {
		return t
	}
	shape := c.Shape(x)
	order := []tf.Output{}
	if ok {
		order = append(order, c.Part(shape, int64(len(before)), -int64(len(after))))
	}
	if before != "" {
		order = append(order, c.Part(shape, 0, int64(len(before))))
	}
	if after != "" {
		order = append(order, c.Part(shape, -int64(len(after)), 0))
	}
	if len(order) == 0 {
		return c.Reshape(raw.Sum(c, t, c.allAxes(t)), shape)
	}
	want := c.Join(order...)
	if dims, known := c.ConstInts(want); known {
		if have := c.Static(t); have.FullyDefined() && slices.Equal(have, bridge.Shape(dims)) {
			return t
		}
	}
	axes, _ := raw.BroadcastGradientArgs(c, want, c.Shape(t))
	return c.Reshape(raw.Sum(c, t, axes, raw.WithKeepDims(true)), want)
}

// allAxes lists all axes of t.
func (c *Context) allAxes(t tf.Output) tf.Output {
	if s := c.Static(t); s != nil {
		axes := make([]int64, len(s))
		for i := range axes {
			axes[i] = int64(i)
		}
		return c.Ints(tf.Int32, axes...)
	}
	return raw.Range(c, c.Int(tf.Int32, 0), c.Rank(t), c.Int(tf.Int32, 1))
}
