package demo

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/digits"
	"github.com/sluice-ml/sluice/ops"
)

// ways are the three ways of training the pair in turn.
var ways = []struct {
	name  string // in the summary
	train func(*pair) error
}{
	{"scopes", byScopes},
	{"stop_gradient", byStopGradient},
	{"gates", byGates},
}

// witness holds the bytes of a net's variables and of all slots on them, and says after
// each run whether one bit of them is another.
type witness struct {
	read      prepared
	tensors   int
	last, now []byte
	stood     int // of the turns in which it was to stand still, those in which it did
	learned   int // of the turns in which it was to learn, those in which it changed
}

func newWitness(r *runner, g *ops.Graph, prefix string) *witness {
	var fetches []tf.Output
	for _, v := range g.Variables() {
		if strings.HasPrefix(v.Name(), prefix) {
			fetches = append(fetches, v.Value())
		}
	}
	return &witness{read: r.prepare(bridge.Call{Fetches: fetches}), tensors: len(fetches)}
}

// look reads everything and says whether it is, bit for bit, what it was at the last look.
func (w *witness) look(ctx context.Context) (same bool, err error) {
	if err := w.read.step.Run(ctx, nil, w.read.out); err != nil {
		return false, err
	}
	w.now = w.now[:0]
	for i := range w.tensors {
		raw, err := w.read.out.Tensor(i).Bytes()
		if err != nil {
			return false, err
		}
		w.now = append(w.now, raw...)
	}
	same = bytes.Equal(w.now, w.last)
	w.last, w.now = w.now, w.last
	return same, nil
}

// stays and moves are looks after a turn in which the net was to stand still, or to learn.
func (w *witness) stays(ctx context.Context) error {
	same, err := w.look(ctx)
	if same {
		w.stood++
	}
	return err
}

func (w *witness) moves(ctx context.Context) error {
	same, err := w.look(ctx)
	if !same {
		w.learned++
	}
	return err
}

// quality is what the judge says about images that G has drawn.
type quality struct {
	Recognized float64 `json:"recognized"` // share that the judge reads as the digit that was asked for
	Confidence float64 `json:"confidence"` // the judge's probability for that digit, on average
	Variety    float64 `json:"variety"`    // how much images of one digit differ, beside real ones
}

// played is what came of training a pair in one way.
type played struct {
	quality  []quality // before the first epoch and after each
	lossD    []float64 // on average over each epoch
	lossG    []float64
	sketches []tileRow // what G drew of each digit after some of the epochs
	steps    int       // turns of D, and as many of G
	g, d     *witness
	final    []byte // G and D as they are after training, slots included
}

// bitIdentical says that neither net ever moved by a bit in the other's turn, and that both
// learned in each of their own.
func (p played) bitIdentical() bool {
	for _, w := range []*witness{p.g, p.d} {
		if w.stood != p.steps || w.learned != p.steps {
			return false
		}
	}
	return p.steps > 0
}

// play trains the pair in turn. After each turn it looks at both nets, and after each epoch
// the judge looks at what G draws.
func (p *pair) play(ctx context.Context, j *job, what string, judge *judge) (result played, err error) {
	run, err := newRunner(ctx, p.graph)
	if err != nil {
		return played{}, err
	}
	defer run.close(&err)

	turnD, turnG := run.prepare(p.turnD), run.prepare(p.turnG)
	draw := run.prepare(bridge.Call{Feeds: []tf.Output{p.noise, p.digit}, Fetches: []tf.Output{p.drawn}})
	result.g = newWitness(run, p.graph, "gan/G/")
	result.d = newWitness(run, p.graph, "gan/D/")
	image := newFeed[float32](run, tf.Float, batchSize, digits.Pixels)
	digit := newFeed[float32](run, tf.Float, batchSize, digits.Classes)
	noise := newFeed[float32](run, tf.Float, batchSize, noiseSize)
	turn := newFeed[float32](run, tf.Float)
	askedDigit := newFeed[float32](run, tf.Float, perDigit*digits.Classes, digits.Classes)
	askedNoise := newFeed[float32](run, tf.Float, perDigit*digits.Classes, noiseSize)
	if run.err != nil {
		return played{}, run.err
	}

	// The same noise each time, so that the pictures show how G changes and nothing else.
	gaussian(j.random(forPictures), askedNoise.values)
	asked := make([]int32, perDigit*digits.Classes)
	for i := range asked {
		asked[i] = int32(i % digits.Classes)
	}
	oneHot(askedDigit.values, asked)

	ofReal := spread(j.train.Images, j.train.Labels)
	measure := func(epoch int) error {
		images, err := draw.run(ctx, askedNoise.tensor, askedDigit.tensor)
		if err != nil {
			return err
		}
		q, err := judge.judge(ctx, images, asked)
		if err != nil {
			return err
		}
		q.Variety = spread(images, asked) / ofReal
		result.quality = append(result.quality, q)
		if slices.Contains([]int{0, j.Epochs / 6, j.Epochs / 4, j.Epochs / 3, j.Epochs}, epoch) {
			caption := fmt.Sprintf("epoch %d", epoch)
			samples := 1
			if epoch == j.Epochs {
				samples = 3
			}
			for sample := range samples {
				row := tileRow{caption: caption}
				for class := range digits.Classes { // what is asked for repeats 0 to 9
					at := (sample*digits.Classes + class) * digits.Pixels
					row.tiles = append(row.tiles, greyTile(slices.Clone(images[at:at+digits.Pixels])))
				}
				result.sketches = append(result.sketches, row)
				caption = ""
			}
		}
		return nil
	}

	if _, err := result.g.look(ctx); err != nil {
		return played{}, err
	}
	if _, err := result.d.look(ctx); err != nil {
		return played{}, err
	}
	if err := measure(0); err != nil {
		return played{}, err
	}
	random := j.random(forPair)
	labels := make([]int32, batchSize)
	take := func(step prepared, whose float32, learns, stands *witness) (loss float64, err error) {
		gaussian(random, noise.values)
		turn.values[0] = whose
		losses, err := step.run(ctx, image.tensor, digit.tensor, noise.tensor, turn.tensor)
		if err != nil {
			return 0, err
		}
		loss = float64(losses[0])
		if err := stands.stays(ctx); err != nil {
			return 0, err
		}
		return loss, learns.moves(ctx)
	}
	err = j.progress.run(ctx, what, j.Epochs, func(epoch int) (string, error) {
		var lossD, lossG, turns float64
		for batch := range batches(random, j.train.Len()) {
			fill(image.values, labels, j.train, batch)
			oneHot(digit.values, labels)
			d, err := take(turnD, 1, result.d, result.g)
			if err != nil {
				return "", err
			}
			g, err := take(turnG, 0, result.g, result.d)
			if err != nil {
				return "", err
			}
			lossD, lossG, turns = lossD+d, lossG+g, turns+1
			result.steps++
		}
		result.lossD = append(result.lossD, lossD/turns)
		result.lossG = append(result.lossG, lossG/turns)
		if err := measure(epoch); err != nil {
			return "", err
		}
		return fmt.Sprintf("recognized %.1f %%", 100*result.quality[epoch].Recognized), nil
	})
	if err != nil {
		return played{}, err
	}
	result.final = slices.Concat(result.g.last, result.d.last)
	return result, nil
}

// proof says what stood still, and that the same look sees what does not.
func (p played) proof() string {
	line := func(learner, other string, held, moved *witness) string {
		return fmt.Sprintf("  in %d turns of %s its own %d tensors changed in %d; all %d bytes of %s, slots included, stayed bit for bit in %d\n",
			p.steps, learner, moved.tensors, moved.learned, len(held.last), other, held.stood)
	}
	return line("D", "G", p.g, p.d) + line("G", "D", p.d, p.g)
}

func gaussian(random *rand.Rand, values []float32) {
	for i := range values {
		values[i] = float32(random.NormFloat64())
	}
}

// oneHot writes [n, 10] with a one at each label.
func oneHot(rows []float32, labels []int32) {
	clear(rows)
	for i, label := range labels {
		rows[i*digits.Classes+int(label)] = 1
	}
}

// spread is the standard deviation of a pixel among images of one digit, on average over
// pixels and digits.
func spread(images []float32, labels []int32) float64 {
	var count [digits.Classes]float64
	var sum, squares [digits.Classes][digits.Pixels]float64
	for i, label := range labels {
		count[label]++
		for pixel, ink := range images[i*digits.Pixels : (i+1)*digits.Pixels] {
			sum[label][pixel] += float64(ink)
			squares[label][pixel] += float64(ink) * float64(ink)
		}
	}
	total := 0.0
	for class, n := range count {
		for pixel := range digits.Pixels {
			mean := sum[class][pixel] / n
			total += math.Sqrt(max(0, squares[class][pixel]/n-mean*mean))
		}
	}
	return total / (digits.Classes * digits.Pixels)
}
