package demo

import (
	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tfgo"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/digits"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
)

const (
	noiseSize  = 32
	hiddenSize = 128
	perDigit   = 20 // images that G draws of each digit when it is judged
)

// net is two dense layers over an input and the digit that it is about, [batch, 10] one-hot.
type net struct {
	scope                                 *ops.Scope
	fromInput, fromDigit, bias, out, last *ops.Variable
}

func newNet(s *ops.Scope, in, hidden, out int64) net {
	return net{
		scope:     s,
		fromInput: s.Variable("from_input", ops.Shape{in, hidden}, ops.GlorotUniform()),
		fromDigit: s.Variable("from_digit", ops.Shape{digits.Classes, hidden}, ops.GlorotUniform()),
		bias:      s.Variable("bias", ops.Shape{hidden}, ops.Zeros()),
		out:       s.Variable("out", ops.Shape{hidden, out}, ops.GlorotUniform()),
		last:      s.Variable("last", ops.Shape{out}, ops.Zeros()),
	}
}

// hold says how a weight enters the forward graph: as it is, through stop_gradient, or through a gate.
type hold func(s *ops.Scope, weight tf.Output) tf.Output

func free(_ *ops.Scope, weight tf.Output) tf.Output { return weight }

// of is the net's output for an input, [batch, out].
func (n net) of(input, digit tf.Output, h hold) tf.Output {
	weight := func(v *ops.Variable) tf.Output { return h(n.scope, v.Value()) }
	byDigit := tfgo.NewTensor(n.scope.Op(), digit).MatMul(weight(n.fromDigit))
	hidden := tfgo.NewTensor(n.scope.Op(), input).MatMul(weight(n.fromInput)).Add(byDigit.Output).Add(weight(n.bias))
	active := raw.LeakyRelu(n.scope, hidden.Output)
	return tfgo.NewTensor(n.scope.Op(), active).MatMul(weight(n.out)).Add(weight(n.last)).Output
}

// pair is G, which draws a digit from noise, and D, which tells drawn digits from real ones.
type pair struct {
	graph                     *ops.Graph
	image, digit, noise, turn tf.Output // [batch, 64], [batch, 10], [batch, 32], and a scalar that only gates look at
	gan                       *ops.Scope
	g, d                      net
	drawn                     tf.Output // [batch, 64]
	turnD, turnG              bridge.Call
}

func newPair(seed int64, train func(*pair) error) (*pair, error) {
	p := &pair{graph: ops.NewGraph(ops.GraphOptions{Seed: seed})}
	return p, p.graph.Build(func() error {
		p.image = p.graph.Placeholder("image", tf.Float, ops.Shape{-1, digits.Pixels})
		p.digit = p.graph.Placeholder("digit", tf.Float, ops.Shape{-1, digits.Classes})
		p.noise = p.graph.Placeholder("noise", tf.Float, ops.Shape{-1, noiseSize})
		p.turn = p.graph.Placeholder("turn", tf.Float, ops.Shape{})
		p.gan = p.graph.Scope("gan")
		p.g = newNet(p.gan.Scope("G"), noiseSize, hiddenSize, digits.Pixels)
		p.d = newNet(p.gan.Scope("D"), digits.Pixels, hiddenSize, 1)
		p.drawn = raw.Sigmoid(p.g.scope, p.g.of(p.noise, p.digit, free))
		return train(p)
	})
}

// lossOfD is high when D takes a real digit for a drawn one or the reverse.
func (p *pair) lossOfD(drawn tf.Output, h hold) tf.Output {
	s := p.d.scope
	real, fake := p.d.of(p.image, p.digit, h), p.d.of(drawn, p.digit, h)
	return raw.AddV2(s, said(s, real, true), said(s, fake, false))
}

// lossOfG is high when D is not taken in.
func (p *pair) lossOfG(drawn tf.Output, h hold) tf.Output {
	return said(p.g.scope, p.d.of(drawn, p.digit, h), true)
}

// said is the cross entropy between D's scores and what it should have said of all of them.
func said(s *ops.Scope, scores tf.Output, real bool) tf.Output {
	wanted := raw.ZerosLike(s, scores)
	if real {
		wanted = raw.OnesLike(s, scores)
	}
	return ops.BinaryCrossEntropy(s, wanted, scores, ops.LossOptions{FromLogits: true})
}

func newAdam() *optimizers.Adam {
	adam := optimizers.NewAdam(2e-3)
	adam.Beta1 = optimizers.Value(0.5)
	return adam
}

// byScopes: each train op is given the variables under one scope.
func byScopes(p *pair) error {
	return p.trainOver(p.graph.Trainable("gan/D/"), p.graph.Trainable("gan/G/"))
}

// trainOver takes turns with one train op for each loss, each over its own variables.
func (p *pair) trainOver(ofD, ofG []*ops.Variable) error {
	lossD, lossG := p.lossOfD(p.drawn, free), p.lossOfG(p.drawn, free)
	trainD, err := newAdam().Minimize(lossD, ofD)
	if err != nil {
		return err
	}
	trainG, err := newAdam().Minimize(lossG, ofG)
	if err != nil {
		return err
	}
	p.turns(lossD, trainD.Op, lossG, trainG.Op)
	return nil
}

// byStopGradient: both train ops are given every variable, and the gradient stops at a
// boundary. Noise → [G] → stop → [D] in D's turns; in G's it goes through D, but not into
// D's weights.
func byStopGradient(p *pair) error {
	lossD := p.lossOfD(ops.StopGradient(p.d.scope, p.drawn), free)
	lossG := p.lossOfG(p.drawn, ops.StopGradient)
	all := p.graph.Trainable("gan/")
	// The variables behind the boundary have no gradient. That is the point, so it is allowed.
	some := optimizers.GradientOptions{AllowMissing: true}
	trainD, err := newAdam().Minimize(lossD, all, some)
	if err != nil {
		return err
	}
	trainG, err := newAdam().Minimize(lossG, all, some)
	if err != nil {
		return err
	}
	p.turns(lossD, trainD.Op, lossG, trainG.Op)
	return nil
}

// byGates: one loss for both, and what is fed as turn, 1 for D and 0 for G, opens the gates
// before the one and closes those before the other. A gate multiplies gradients, and Adam
// moves a weight also by a gradient of zero: so the optimizers are gated as well.
func byGates(p *pair) error { return p.trainGated(gatedAdam) }

func gatedAdam(open tf.Output) optimizer { return optimizers.Gated(newAdam(), ops.Fed(open)) }

// optimizer is what Adam and a gated Adam have in common.
type optimizer interface {
	Minimize(tf.Output, []*ops.Variable, ...optimizers.GradientOptions) (*optimizers.TrainOp, error)
}

func (p *pair) trainGated(gated func(open tf.Output) optimizer) error {
	s := p.gan
	turnOfD, turnOfG := p.turn, raw.Sub(s, s.Const(float32(1)), p.turn)
	drawn := ops.Gate(p.g.scope, turnOfG, p.drawn)
	weight := func(s *ops.Scope, weight tf.Output) tf.Output { return ops.Gate(s, turnOfD, weight) }
	lossD, lossG := p.lossOfD(drawn, weight), p.lossOfG(drawn, weight)
	loss := raw.AddV2(s, raw.Mul(s, turnOfD, lossD), raw.Mul(s, turnOfG, lossG))

	trainD, err := gated(turnOfD).Minimize(loss, p.graph.Trainable("gan/D/"))
	if err != nil {
		return err
	}
	trainG, err := gated(turnOfG).Minimize(loss, p.graph.Trainable("gan/G/"))
	if err != nil {
		return err
	}
	both := s.Group("both", trainD.Op, trainG.Op)
	p.turns(lossD, both, lossG, both)
	return nil
}

// turns says what is run in D's turns and in G's.
func (p *pair) turns(lossD tf.Output, trainD *tf.Operation, lossG tf.Output, trainG *tf.Operation) {
	call := func(loss tf.Output, train *tf.Operation) bridge.Call {
		return bridge.Call{
			Feeds:   []tf.Output{p.image, p.digit, p.noise, p.turn},
			Fetches: []tf.Output{loss},
			Targets: []*tf.Operation{train},
		}
	}
	p.turnD, p.turnG = call(lossD, trainD), call(lossG, trainG)
}
