// Command adversarial trains two nets in turn on one graph: G makes numbers out of noise, and
// D tells them from real ones, which are normal with mean 2 and standard deviation 0.5.
//
// While D learns, G must stand still. Three ways of saying so are shown: a var_list by scope,
// stop_gradient at the boundary noise → [G] → stop → [D], and a gate at that place. With each
// of them G learns to be ±0.5 z + 2, and never changes by a bit in D's turns.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tfgo"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
)

const (
	batch = 64
	turns = 2000 // of each
)

// gan is the pair: its inputs, both [batch], what opens the gate, and its variables.
type gan struct {
	*ops.Graph
	real, noise, open tf.Output
	g, d              *ops.Scope
	scale, shift      *ops.Variable    // of G
	weights           [3]*ops.Variable // of D
	fake              tf.Output
}

func newGAN() *gan {
	m := &gan{Graph: ops.NewGraph(ops.GraphOptions{Seed: 7})}
	m.real = m.Placeholder("real", tf.Float, ops.Shape{batch})
	m.noise = m.Placeholder("noise", tf.Float, ops.Shape{batch})
	m.open = m.Placeholder("open", tf.Float, ops.Shape{})
	m.g, m.d = m.Scope("gan/G"), m.Scope("gan/D")
	m.scale = m.g.Variable("scale", ops.Shape{}, ops.Ones())
	m.shift = m.g.Variable("shift", ops.Shape{}, ops.Zeros())
	m.fake = tfgo.NewTensor(m.g.Op(), m.noise).Mul(m.scale.Value()).Add(m.shift.Value()).Output
	for i, name := range []string{"constant", "linear", "square"} {
		m.weights[i] = m.d.Variable(name, ops.Shape{}, ops.Zeros())
	}
	return m
}

// cost is how far D is from the answer for the numbers x, 1 for real and 0 for fake, by its
// score a + b x + c x².
func (m *gan) cost(x tf.Output, answer float32) tf.Output {
	linear := tfgo.NewTensor(m.d.Op(), x).Mul(m.weights[1].Value()).Add(m.weights[0].Value())
	scores := tfgo.NewTensor(m.d.Op(), x).Mul(x).Mul(m.weights[2].Value()).Add(linear.Output)
	answers := raw.Fill(m.d, raw.Shape(m.d, x), m.d.Const(answer))
	return ops.BinaryCrossEntropy(m.d, answers, scores.Output, ops.LossOptions{FromLogits: true})
}

// lossOfD has a small penalty on D's weights, without which the two would circle.
func (m *gan) lossOfD(fake tf.Output) tf.Output {
	loss := tfgo.NewTensor(m.d.Op(), m.cost(m.real, 1)).Add(m.cost(fake, 0))
	for _, w := range m.weights {
		loss = loss.Add(tfgo.NewTensor(m.d.Op(), raw.L2Loss(m.d, w.Value())).Mul(m.d.Const(float32(0.1))).Output)
	}
	return loss.Output
}

// ways build the train op of D's turns.
var ways = []struct {
	name  string
	build func(m *gan) (*optimizers.TrainOp, error)
}{
	{"scopes", func(m *gan) (*optimizers.TrainOp, error) {
		return optimizers.NewGradientDescent(0.1).Minimize(m.lossOfD(m.fake), m.Trainable("gan/D/"))
	}},
	{"stop gradient", func(m *gan) (*optimizers.TrainOp, error) {
		// The var_list is all there is; G's variables are behind the stop and have no gradient.
		loss := m.lossOfD(ops.StopGradient(m.d, m.fake))
		return optimizers.NewGradientDescent(0.1).Minimize(loss, m.Trainable(), optimizers.GradientOptions{AllowMissing: true})
	}},
	{"gate", func(m *gan) (*optimizers.TrainOp, error) {
		// The gradient is multiplied by what is fed: 0 in D's turns, and so exactly zero.
		return optimizers.NewGradientDescent(0.1).Minimize(m.lossOfD(ops.Gate(m.d, m.open, m.fake)), m.Trainable())
	}},
}

// train takes the turns and returns G's scale and shift, and in how many of D's
// turns they stayed the same, bit for bit.
func train(ctx context.Context, build func(*gan) (*optimizers.TrainOp, error)) (g [2]float32, still int, err error) {
	m := newGAN()
	learnD, err := build(m)
	if err != nil {
		return g, 0, err
	}
	learnG, err := optimizers.NewGradientDescent(0.1).Minimize(m.cost(m.fake, 1), m.Trainable("gan/G/"))
	if err != nil {
		return g, 0, err
	}
	sess, err := bridge.NewSession(m.TF(), bridge.Config{})
	if err != nil {
		return g, 0, err
	}
	defer sess.Close()
	if err := sess.Run(ctx, m.Init()); err != nil {
		return g, 0, err
	}

	turnOfD, errD := sess.Prepare(bridge.Call{Feeds: []tf.Output{m.real, m.noise, m.open}, Targets: []*tf.Operation{learnD.Op}})
	turnOfG, errG := sess.Prepare(bridge.Call{Feeds: []tf.Output{m.noise}, Targets: []*tf.Operation{learnG.Op}})
	read, errR := sess.Prepare(bridge.Call{Fetches: []tf.Output{m.scale.Value(), m.shift.Value()}})
	real, err1 := bridge.NewTensor(tf.Float, ops.Shape{batch})
	noise, err2 := bridge.NewTensor(tf.Float, ops.Shape{batch})
	closed, err3 := bridge.Scalar[float32](0)
	reals, err4 := bridge.Flat[float32](real) // views: what is written there is what is fed
	noises, err5 := bridge.Flat[float32](noise)
	if err := errors.Join(errD, errG, errR, err1, err2, err3, err4, err5); err != nil {
		return g, 0, err
	}
	defer real.Close()
	defer noise.Close()
	defer closed.Close()
	var after [2]float32
	seen := read.NewOutputs()
	defer seen.Close()
	err = errors.Join(bridge.Bind(seen, 0, after[:1]), bridge.Bind(seen, 1, after[1:]), read.Run(ctx, nil, seen))
	if err != nil {
		return g, 0, err
	}
	g = after

	random := rand.New(rand.NewPCG(1, 2))
	for range turns {
		draw(random, reals, 2, 0.5)
		draw(random, noises, 0, 1)
		if err := turnOfD.Run(ctx, []*bridge.Tensor{real, noise, closed}, nil); err != nil {
			return g, 0, err
		}
		if err := read.Run(ctx, nil, seen); err != nil {
			return g, 0, err
		}
		if bits(after) == bits(g) {
			still++
		}
		draw(random, noises, 0, 1)
		if err := turnOfG.Run(ctx, []*bridge.Tensor{noise}, nil); err != nil {
			return g, 0, err
		}
		if err := read.Run(ctx, nil, seen); err != nil {
			return g, 0, err
		}
		g = after
	}
	return g, still, nil
}

func draw(random *rand.Rand, numbers []float32, mean, stddev float64) {
	for i := range numbers {
		numbers[i] = float32(mean + stddev*random.NormFloat64())
	}
}

func bits(g [2]float32) [2]uint32 { return [2]uint32{math.Float32bits(g[0]), math.Float32bits(g[1])} }

func run(ctx context.Context, w io.Writer) error {
	for _, way := range ways {
		g, still, err := train(ctx, way.build)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		fmt.Fprintf(w, "%-14s G(z) = %.2f z + %.2f   the same in %d of %d turns of D\n", way.name, g[0], g[1], still, turns)
	}
	return nil
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
