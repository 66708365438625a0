package gradients

import (
	"errors"
	"fmt"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Operations that XLA and its partitioner read.

func init() {
	// The gradient by an operand is the einsum of g and the conjugate of the
	// other one to the operand's labels.
	Register("XlaEinsum", func(c *Context) []Gradient {
		a, b, g := c.Input(0), c.Input(1), c.Grad(0)
		e, err := parseEinsum(c.AttrString("equation"))
		if err != nil {
			c.Fail(err)
			return nil
		}
		product := func(other tf.Output, labels, result string) tf.Output {
			eq := fmt.Sprintf("%s,%s->%s", e.out, labels, result)
			return raw.XlaEinsum(c, g, c.Conj(other), strings.ReplaceAll(eq, ".", "..."))
		}
		return dense(product(b, e.in[1], e.in[0]), product(a, e.in[0], e.in[1]))
	})
	RegisterCheck("XlaEinsum", xlaEinsumCheck)

	// A gradient is laid out over devices as its tensor is.
	Register("XlaSharding", func(c *Context) []Gradient {
		sharding := c.AttrString("sharding")
		return dense(firstOf(c.Add(bridge.OpSpec{Type: "XlaSharding", Inputs: []tf.Input{c.Grad(0)}, Attrs: []bridge.Attr{
			{Name: "sharding", Value: sharding},
			{Name: "unspecified_dims", Value: c.AttrInts("unspecified_dims")},
			{Name: "_XlaSharding", Value: sharding},
		}})))
	})
	manual := []string{"manual_sharding", "dim", "unspecified_dims"}
	Register("XlaSpmdShardToFullShape", func(c *Context) []Gradient {
		return dense(firstOf(c.sibling("XlaSpmdFullToShardShape", manual, c.Grad(0))))
	})
	Register("XlaSpmdFullToShardShape", func(c *Context) []Gradient {
		return dense(raw.XlaSpmdShardToFullShape(c, c.Grad(0), c.AttrString("manual_sharding"), c.Static(c.Input(0)),
			raw.WithDim(c.AttrInt("dim")), raw.WithUnspecifiedDims(c.AttrInts("unspecified_dims"))))
	})
	RegisterCheck("XlaSpmdFullToShardShape", func(op *tf.Operation) error {
		if s := bridge.ShapeOf(bridge.Input(op, 0)); !s.FullyDefined() {
			return fmt.Errorf("the shape %s of its input must be known", s)
		}
		return nil
	})
}

// xlaEinsumCheck: an operand's label that neither the other operand nor the
// result has was summed over alone, which XLA's einsum can't undo.
func xlaEinsumCheck(op *tf.Operation) error {
	equation, err := bridge.AttrString(op, "equation")
	if err != nil {
		return err
	}
	e, err := parseEinsum(equation)
	if err != nil {
		return err
	}
	if len(e.in) != 2 {
		return fmt.Errorf("equation %q has %d operands, wanted 2", equation, len(e.in))
	}
	for i, labels := range e.in {
		for _, l := range labels {
			if strings.Count(labels, string(l)) > 1 {
				return fmt.Errorf("equation %q repeats the label %c in one operand", equation, l)
			}
			if !strings.ContainsRune(e.out, l) && !strings.ContainsRune(e.in[1-i], l) {
				return errors.New("equation " + equation + " sums over a label that only one operand has; use Einsum")
			}
		}
	}
	return nil
}
