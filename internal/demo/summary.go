package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

const summaryFile = "summary.json"

// Summary is what summary.json holds. The same seed and number of epochs give the same,
// but for Seconds.
type Summary struct {
	Seed          int64  `json:"seed"`
	Epochs        int    `json:"epochs"`
	TrainImages   int    `json:"train_images"`
	TestImages    int    `json:"test_images"`
	Libtensorflow string `json:"libtensorflow"`

	// The classifier. Accuracies are shares of the held-out images.
	Accuracy                      float64 `json:"accuracy"`                  // trained by floormod
	AccuracyGradientDescent       float64 `json:"accuracy_gradient_descent"` // the same model, plainly
	Weights                       int     `json:"weights"`                   // how many there are
	WeightsInRange                bool    `json:"weights_in_range"`          // all are in [0, 2π)
	WeightsOutside                int     `json:"weights_outside"`           // how many are not
	WeightsOutsideGradientDescent int     `json:"weights_outside_gradient_descent"`

	// The pair, per way of freezing the one that is not to learn.
	AccuracyJudge      float64            `json:"accuracy_judge"` // of who judges G's images, on real ones
	GeneratedBefore    quality            `json:"generated_before"`
	Generated          map[string]quality `json:"generated"`
	FrozenBitIdentical map[string]bool    `json:"frozen_bit_identical"` // no bit of a net or its slots changed in the other's turns
	FrozenSteps        map[string]int     `json:"frozen_steps"`         // in how many turns that was looked at: in all
	SameBitsAsScopes   map[string]bool    `json:"same_bits_as_scopes"`  // both nets ended, slots included, as those trained by scopes

	Files   []string `json:"files"` // beside the summary
	Seconds float64  `json:"seconds"`
}

// WriteJSON writes the summary as an indented JSON object.
func (s *Summary) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}

// Print writes the summary as tables. out is the folder where the files are.
func (s *Summary) Print(w io.Writer, out string) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

	row("\nweights modulo 2π\ttest accuracy\tin [0, 2π)")
	phases := func(how string, accuracy float64, outside int) {
		row("  %s\t%.1f %%\t%d of %d", how, 100*accuracy, s.Weights-outside, s.Weights)
	}
	phases("floormod", s.Accuracy, s.WeightsOutside)
	phases("gradient descent", s.AccuracyGradientDescent, s.WeightsOutsideGradientDescent)

	row("\nG and D in turn\trecognized\tconfidence\tvariety\tfrozen bit for bit")
	images := func(way string, q quality, frozen string) {
		row("  %s\t%.1f %%\t%.1f %%\t%.2f\t%s", way, 100*q.Recognized, 100*q.Confidence, q.Variety, frozen)
	}
	images("before training", s.GeneratedBefore, "")
	for _, way := range ways {
		frozen := fmt.Sprintf("in all %d turns", s.FrozenSteps[way.name])
		if !s.FrozenBitIdentical[way.name] {
			frozen = "NO"
		}
		images(way.name, s.Generated[way.name], frozen)
	}
	end := "the same bits"
	for _, same := range s.SameBitsAsScopes {
		if !same {
			end = "other bits than each other"
		}
	}
	row("\nBy the three ways both nets and their slots ended with %s.", end)
	row("The classifier that recognizes them knows %.1f %% of the real held-out digits; their variety is 1.", 100*s.AccuracyJudge)
	row("%s and %s are in %s. It took %.1f s.", strings.Join(s.Files, ", "), summaryFile, out, s.Seconds)
	return t.Flush()
}
