package schedules

import (
	"math"
)

// Plateau lowers a rate when a measurement, such as the loss on data held back,
// has stopped to get better. The program tells it each measurement and feeds
// the rate to its steps:
//
//	rate := g.Placeholder("rate", tf.Float, ops.Shape{})
//	adam.Rate = ops.Fed(rate)
//	…
//	plateau := schedules.NewPlateau(1e-3)
//	for epoch := range epochs {
//		… // train with plateau.Rate fed, and measure
//		plateau.Observe(loss)
//	}
//
// It is Keras' ReduceLROnPlateau callback, whose defaults [NewPlateau] has, with
// an epoch for each call of Observe. To go on after a restart, save the struct
// (as JSON, for one): it holds all there is.
type Plateau struct {
	Rate     float64 // now
	Factor   float64 // of the rate when it is lowered, above 0 and below 1
	Patience int     // how many measurements in a row without progress lower it
	MinDelta float64 // how much better is progress
	Cooldown int     // how many measurements after a lowering don't count
	MinRate  float64 // it is not lowered below
	Rising   bool    // larger measurements are better, as of an accuracy

	Seen    bool    // whether there is a Best
	Best    float64 // measurement so far
	Waited  int     // measurements without progress
	Cooling int     // measurements left of the cool-down
}

// NewPlateau is a [Plateau] that starts at rate and lowers it to a tenth after
// ten measurements that are not better by 0.0001.
func NewPlateau(rate float64) *Plateau {
	return &Plateau{Rate: rate, Factor: 0.1, Patience: 10, MinDelta: 1e-4}
}

// Check says what is wrong with the settings.
func (p *Plateau) Check() error {
	const what = "plateau"
	if err := check(what, atLeast(0, "Rate", p.Rate), above(0, "Factor", p.Factor), atLeast(0, "MinDelta", p.MinDelta),
		atLeast(0, "MinRate", p.MinRate), atLeast(0, "Patience", float64(p.Patience)), atLeast(0, "Cooldown", float64(p.Cooldown))); err != nil {
		return err
	}
	return check(what, below(1, "Factor", p.Factor))
}

// Observe takes the next measurement and says whether the rate has changed. A
// NaN is no progress. An error is what Check says.
func (p *Plateau) Observe(measured float64) (changed bool, err error) {
	if err := p.Check(); err != nil {
		return false, err
	}
	if p.Cooling > 0 {
		p.Cooling--
		p.Waited = 0
	}
	if p.better(measured) {
		p.Seen, p.Best, p.Waited = true, measured, 0
		return false, nil
	}
	if p.Cooling > 0 {
		return false, nil
	}
	p.Waited++
	if p.Waited < p.Patience || p.Rate <= p.MinRate {
		return false, nil
	}
	p.Rate = max(p.Rate*p.Factor, p.MinRate)
	p.Cooling, p.Waited = p.Cooldown, 0
	return true, nil
}

func (p *Plateau) better(measured float64) bool {
	switch {
	case !p.Seen:
		return !math.IsNaN(measured)
	case p.Rising:
		return measured > p.Best+p.MinDelta
	}
	return measured < p.Best-p.MinDelta
}
