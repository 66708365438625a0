package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-ml/sluice/internal/demo"
)

func demoCommand() *cobra.Command {
	var options demo.Options
	var asJSON bool
	command := &cobra.Command{
		Use:   "demo",
		Short: "Train on real handwritten digits: weights modulo 2π, and a pair that learns in turn",
		Long: `Train on the 1,797 handwritten digits of the UCI set, which this program carries with it.

  1. A classifier whose weights are angles learns by  w := (w - rate*grad + noise) mod 2π,
     with an annealed rate and capped gradients, all in one run per step. Beside it the
     same model learns by plain gradient descent. 359 digits are held out to test with.

  2. G learns to draw digits and D to tell them from real ones, in turn: by train ops over
     the variables of a scope, then by stop_gradient at a boundary, then by gates. After
     every step the variables and slots of the one that was not to learn are compared
     with what they were, bit for bit. A small classifier that has only seen real digits
     says how many of those that G draws it recognizes.

Into the output folder go pictures (accuracy, phases, generated, recognized and losses.png)
and, last, summary.json. A summary.json of an earlier run is removed at the start, so that
one that is there belongs to the pictures beside it. Other files are left alone.
The same seed and epochs give the same numbers on the same kind of processor.
Ctrl-C ends it within a second, says what was saved, and exits with 130.`,
		Example: `  sluice demo
  sluice demo --out /tmp/digits --seed 7
  sluice demo --json | jq .accuracy`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if options.Epochs < 1 {
				return fmt.Errorf("%w: --epochs is %d, expected 1 or more", errUsage, options.Epochs)
			}
			if options.Out == "" {
				return fmt.Errorf("%w: --out is empty, expected a folder", errUsage)
			}
			options.Log = command.ErrOrStderr()
			summary, err := demo.Run(command.Context(), options)
			if err != nil {
				return err
			}
			if asJSON {
				return summary.WriteJSON(command.OutOrStdout())
			}
			return summary.Print(command.OutOrStdout(), filepath.Clean(options.Out))
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.Out, "out", "sluice-demo", "folder for the pictures and the summary; made if it is not there")
	flags.Int64Var(&options.Seed, "seed", 7, "what the first weights, the noise and the order of the images are drawn from")
	flags.IntVar(&options.Epochs, "epochs", 60, "how often each training sees all 1,438 images")
	flags.BoolVar(&asJSON, "json", false, "print the summary as JSON instead of as tables")
	return command
}
