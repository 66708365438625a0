package gradients

import (
	"errors"
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Operations of GPUs, TPUs and several devices at once. None of them has a
// kernel for the CPU.

func init() {
	// Collective operations of TPUs: each replica gets back what it gave.
	Register("AllToAll", func(c *Context) []Gradient {
		return dense(raw.AllToAll(c, c.Grad(0), c.Input(1), c.AttrInt("split_dimension"), c.AttrInt("concat_dimension"), c.AttrInt("split_count")))
	})
	Register("CollectivePermute", func(c *Context) []Gradient { // inputs: tensor, [n, 2] of source and target
		return dense(raw.CollectivePermute(c, c.Grad(0), raw.ReverseV2(c, c.Input(1), c.Ints(tf.Int32, 1))))
	})
	Register("CrossReplicaSum", func(c *Context) []Gradient {
		return dense(raw.CrossReplicaSum(c, c.Grad(0), c.Input(1)))
	})

	// Those of GPUs.
	Register("NcclAllReduce", func(c *Context) []Gradient {
		return dense(raw.NcclAllReduce(c, c.Grad(0), "sum", c.AttrInt("num_devices"), c.AttrString("shared_name")+"_grad"))
	})
	Register("NcclReduce", func(c *Context) []Gradient {
		g := c.Grad(0)
		sent := raw.NcclBroadcast(c, g, c.Static(g))
		grads := make([]Gradient, len(c.Inputs))
		for i := range grads {
			grads[i].Dense = sent
		}
		return grads
	})
	for _, name := range []string{"NcclAllReduce", "NcclReduce"} {
		RegisterCheck(name, onlySums)
	}
	// The parts of the gradient are on the devices that the value was sent to,
	// and are added up where it came from.
	Register("NcclBroadcast", func(c *Context) []Gradient {
		parts := []tf.Output{c.Grad(0)}
		if g := parts[0]; g.Op != nil && g.Op.Type() == "AddN" {
			parts = bridge.Inputs(g.Op)
		}
		return dense(raw.NcclReduce(c, parts, "sum"))
	})

	// A gradient is laid out over a mesh of devices as its tensor is.
	like := func(c *Context) []Gradient { return dense(raw.RelayoutLike(c, c.Grad(0), c.Input(0))) }
	Register("Relayout", like)
	Register("RelayoutLike", like, 1)
	copied := func(c *Context) []Gradient { return dense(raw.CopyToMeshGrad(c, c.Grad(0), c.Input(0))) }
	Register("CopyToMesh", copied)
	Register("CopyToMeshGrad", copied, 1)

	// cuDNN's recurrent networks. Inputs: input, h, c, parameters, and sequence
	// lengths in V3; outputs: output, h, c, and what is reserved for the gradient.
	attrs := []string{"rnn_mode", "input_mode", "direction", "dropout", "seed", "seed2"}
	for version, more := range map[string][]string{"": nil, "V2": nil, "V3": {"num_proj", "time_major"}} {
		Register("CudnnRNN"+version, func(c *Context) []Gradient {
			in := append([]tf.Output{}, c.Inputs...)
			in = append(in, c.Output(0), c.Output(1), c.Output(2), c.Grad(0), c.Grad(1), c.Grad(2))
			in = append(in, c.Outputs[3:]...)
			return dense(bridge.OutputsOf(c.sibling("CudnnRNNBackprop"+version, append(more, attrs...), in...))...)
		})
		RegisterCheck("CudnnRNN"+version, func(op *tf.Operation) error {
			if training, err := bridge.AttrBool(op, "is_training"); err != nil || training {
				return err
			}
			return errors.New("its is_training must be true")
		})
	}

	// Refused by Python too.
	for name, why := range map[string]string{
		"XlaClusterOutput":        "the gradient belongs inside of the compiled cluster",
		"TPUEmbeddingActivations": "a TPU keeps the gradients of its embeddings to itself",
		"EagerPyFunc":             "it calls a Python function, which does not come along with a graph",
	} {
		Register(name, func(*Context) []Gradient { return nil })
		RegisterCheck(name, func(*tf.Operation) error { return errors.New(why) })
	}
}

func onlySums(op *tf.Operation) error {
	how, err := bridge.AttrString(op, "reduction")
	if err == nil && how != "sum" {
		err = fmt.Errorf("its reduction is %q, only a sum can be differentiated", how)
	}
	return err
}
