// Package demo is the main job of the sluice command, on real handwritten digits: a
// classifier whose weights are angles modulo 2π, and a pair of nets that learn in turn,
// with a proof of what stood still.
package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/digits"
	"github.com/sluice-ml/sluice/optimizers"
)

// Options are what a run is told.
type Options struct {
	Out    string    // folder for the pictures and the summary; made if it is not there
	Seed   int64     // what initial weights, noise and the order of the images are drawn from
	Epochs int       // how often each training sees all images, 1 or more
	Log    io.Writer // where progress goes
}

// job is a run of the demo.
type job struct {
	Options
	train, test digits.Set
	out         *folder
	progress    *progress
	summary     *Summary
}

// Run trains everything and returns what it has also written as summary.json. When the
// context is cancelled it ends within a second; the error matches the context's and says
// which files were saved.
func Run(ctx context.Context, o Options) (*Summary, error) {
	start := time.Now()
	j, err := newJob(o)
	if err != nil {
		return nil, err
	}
	for _, part := range []func(context.Context) error{j.classify, j.takeTurns} {
		err := part(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, &interrupted{j.out.told(), ctx.Err()}
		case err != nil:
			return nil, err
		}
	}
	s := j.summary
	s.Files = slices.Clone(j.out.saved)
	s.Seconds = math.Round(time.Since(start).Seconds()*10) / 10
	return s, j.out.save(summaryFile, s.WriteJSON)
}

// interrupted is the error of a run that was told to end.
type interrupted struct {
	told  string // what was saved
	cause error
}

func (i *interrupted) Error() string { return "interrupted, " + i.told }
func (i *interrupted) Unwrap() error { return i.cause }

func newJob(o Options) (*job, error) {
	if o.Epochs < 1 {
		return nil, fmt.Errorf("%d epochs, expected 1 or more", o.Epochs)
	}
	train, test, err := digits.Load()
	if err != nil {
		return nil, err
	}
	out, err := openFolder(o.Out)
	if err != nil {
		return nil, err
	}
	return &job{Options: o, train: train, test: test, out: out, progress: newProgress(o.Log), summary: &Summary{
		Seed: o.Seed, Epochs: o.Epochs, TrainImages: train.Len(), TestImages: test.Len(), Libtensorflow: bridge.Version(),
	}}, nil
}

// classify is part one: a classifier that lives on a circle.
func (j *job) classify(ctx context.Context) error {
	train := func(what string, by func(*phases, int) (*optimizers.TrainOp, error)) (trained, error) {
		c, err := newPhases(j.Seed)
		if err != nil {
			return trained{}, err
		}
		return c.train(ctx, j, what, by)
	}
	floormod, err := train("phases by floormod", (*phases).byFloormod)
	if err != nil {
		return err
	}
	descent, err := train("phases by gradient descent", (*phases).byDescent)
	if err != nil {
		return err
	}
	s := j.summary
	s.Accuracy = floormod.accuracy[j.Epochs]
	s.AccuracyGradientDescent = descent.accuracy[j.Epochs]
	s.Weights = len(floormod.weights)
	s.WeightsOutside = floormod.outside()
	s.WeightsInRange = s.WeightsOutside == 0
	s.WeightsOutsideGradientDescent = descent.outside()

	err = j.out.save("accuracy.png", func(w io.Writer) error {
		return drawCurves(w, "Held-out digits that are recognized", "share", 0.8, 1,
			curve{"floormod", 0, floormod.accuracy}, curve{"gradient descent", 0, descent.accuracy})
	})
	if err != nil {
		return err
	}
	angles, votes := tileRow{caption: "phase"}, tileRow{caption: "its sine"}
	for class := range digits.Classes {
		angles.tiles = append(angles.tiles, hueTile(floormod.ofClass(class, func(phase float64) float64 { return phase })))
		votes.tiles = append(votes.tiles, voteTile(floormod.ofClass(class, math.Sin)))
	}
	return j.out.save("phases.png", func(w io.Writer) error {
		return drawGrid(w, "A phase for each pixel and digit; ink speaks for (orange) or against (blue)", []tileRow{angles, votes})
	})
}

// takeTurns is part two: a pair of nets of which one learns and the other stands still.
func (j *job) takeTurns(ctx context.Context) (err error) {
	judge, err := newJudge(ctx, j)
	if err != nil {
		return err
	}
	defer judge.run.close(&err)
	s := j.summary
	s.AccuracyJudge = judge.accuracy
	s.Generated = map[string]quality{}
	s.FrozenBitIdentical, s.FrozenSteps, s.SameBitsAsScopes = map[string]bool{}, map[string]int{}, map[string]bool{}

	results := map[string]played{}
	var curves []curve
	for _, way := range ways {
		p, err := newPair(j.Seed, way.train)
		if err != nil {
			return err
		}
		result, err := p.play(ctx, j, "G and D by "+way.name, judge)
		if err != nil {
			return err
		}
		fmt.Fprint(j.Log, result.proof())
		results[way.name] = result
		s.Generated[way.name] = result.quality[j.Epochs]
		s.FrozenBitIdentical[way.name] = result.bitIdentical()
		s.FrozenSteps[way.name] = 2 * result.steps
		s.SameBitsAsScopes[way.name] = bytes.Equal(result.final, results["scopes"].final)
		recognized := curve{name: way.name}
		for _, q := range result.quality {
			recognized.values = append(recognized.values, q.Recognized)
		}
		curves = append(curves, recognized)
	}
	scopes := results["scopes"]
	s.GeneratedBefore = scopes.quality[0]

	real := tileRow{caption: "real"}
	for class := range int32(digits.Classes) {
		real.tiles = append(real.tiles, greyTile(j.test.Image(slices.Index(j.test.Labels, class))))
	}
	err = j.out.save("generated.png", func(w io.Writer) error {
		return drawGrid(w, "What G draws when it is asked for each digit", append(scopes.sketches, real))
	})
	if err != nil {
		return err
	}
	err = j.out.save("recognized.png", func(w io.Writer) error {
		return drawCurves(w, "Digits drawn by G that a classifier of real ones recognizes", "share", 0, 1, curves...)
	})
	if err != nil {
		return err
	}
	return j.out.save("losses.png", func(w io.Writer) error {
		return drawCurves(w, "G and D in turn: the mean loss of an epoch", "cross entropy", 0, 1.5,
			curve{"D", 1, scopes.lossD}, curve{"G", 1, scopes.lossG})
	})
}
