package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/spf13/cobra"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/npy"
	"github.com/sluice-ml/sluice/savedmodels"
)

// modelFlags are what every verb that loads a model takes.
type modelFlags struct {
	tags      string
	libraries []string
}

func (f *modelFlags) add(command *cobra.Command) {
	command.Flags().StringVar(&f.tags, "tags", "", `the MetaGraph with these tags, by commas ("" with --tags= for none); by default serve, or the only one`)
	command.Flags().StringArrayVar(&f.libraries, "library", nil, "library of custom ops (.so) that the model needs; may be repeated")
}

// options are those of savedmodels.Load.
func (f *modelFlags) options(command *cobra.Command) savedmodels.Options {
	o := savedmodels.Options{Libraries: f.libraries}
	if command.Flags().Changed("tags") {
		o.Tags = []string{}
		for tag := range strings.SplitSeq(f.tags, ",") {
			if tag = strings.TrimSpace(tag); tag != "" {
				o.Tags = append(o.Tags, tag)
			}
		}
	}
	return o
}

// oneArgument is the check of a verb that takes a file or folder.
func oneArgument(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return fmt.Errorf("%s is missing", what)
		case 1:
			return nil
		}
		return fmt.Errorf("takes one %s, got %q", what, args)
	}
}

func runCommand() *cobra.Command {
	var (
		flags     modelFlags
		signature string
		inputs    []string
		out       string
		asJSON    bool
	)
	command := &cobra.Command{
		Use:   "run MODEL",
		Short: "Run a signature of a SavedModel on arrays, as saved_model_cli run does",
		Long: `Load a SavedModel, run one of its signatures, and print or save what it gives.

MODEL is the folder with saved_model.pb. Inputs and outputs go by the names of the
signature, which sluice inspect MODEL lists. --input takes

  ` + strings.ReplaceAll(feedHelp, "\n", "\n  ") + `

Names, data types and shapes are checked before anything runs. With --out the
outputs are saved as one .npz, or, if there is but one, as .npy if the file's
name ends so. A model is a program: run those that you trust.`,
		Example: `  sluice run exported/1 --input image=digits.npy
  sluice run exported/1 --signature classify --input 'text:=["a good film"]' --json
  sluice run exported/1 --input batch.npz --out scores.npz`,
		Args: oneArgument("MODEL"),
		RunE: func(command *cobra.Command, args []string) error {
			if err := checkOut(out); err != nil {
				return err
			}
			m, err := savedmodels.LoadContext(command.Context(), args[0], flags.options(command))
			if err != nil {
				return err
			}
			defer m.Close()
			s, err := m.Signature(signature)
			if err != nil {
				return err
			}
			in, err := readFeeds("input", inputs, func(name string) tf.DataType {
				for _, p := range s.Inputs {
					if p.Name == name {
						return p.DType
					}
				}
				return 0
			})
			if err != nil {
				return err
			}
			defer closeAll(in)
			// A context stops no loop that has no deadline; that the session closes does.
			ctx := command.Context()
			defer context.AfterFunc(ctx, func() { _ = m.Shutdown(ctx) })()
			begin := time.Now()
			results, err := m.Run(ctx, s.Name, in)
			if err != nil && ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				return err
			}
			defer results.Close()
			took := time.Since(begin)
			if out != "" {
				if err := saveArrays(out, results); err != nil {
					return err
				}
			}
			return printRun(command, s, results, out, asJSON, took)
		},
	}
	flags.add(command)
	command.Flags().StringVar(&signature, "signature", "", "the signature to run; by default serving_default, or the only one")
	command.Flags().StringArrayVar(&inputs, "input", nil, "an input: "+feedHelp+"; may be repeated")
	command.Flags().StringVar(&out, "out", "", "save the outputs as .npz, or a single one as .npy")
	command.Flags().BoolVar(&asJSON, "json", false, "print the outputs as JSON, all elements")
	return command
}

// saveArrays writes tensors by name.
func saveArrays(path string, tensors map[string]*bridge.Tensor) error {
	names := slices.Sorted(maps.Keys(tensors))
	switch strings.ToLower(filepath.Ext(path)) {
	case ".npz":
		var arrays []npy.Named
		for _, name := range names {
			arrays = append(arrays, npy.Named{Name: name, Tensor: tensors[name]})
		}
		return npy.WriteArchive(path, arrays)
	case ".npy":
		if len(names) != 1 {
			return fmt.Errorf("%w: --out %s holds one array, and there are %d (%s); wanted a .npz", errUsage, path, len(names), strings.Join(names, ", "))
		}
		return npy.WriteFile(path, tensors[names[0]])
	}
	return fmt.Errorf("%w: --out %s: wanted a name that ends in .npz or .npy", errUsage, path)
}

// checkOut finds before any work what saveArrays would find after it.
func checkOut(path string) error {
	if path == "" {
		return nil
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".npz", ".npy":
	default:
		return fmt.Errorf("%w: --out %s: wanted a name that ends in .npz or .npy", errUsage, path)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return fmt.Errorf("%w: --out %s: there is no folder %s", errUsage, path, filepath.Dir(path))
	}
	return nil
}

func printRun(command *cobra.Command, s *savedmodels.Signature, results savedmodels.Tensors, out string, asJSON bool, took time.Duration) error {
	w := command.OutOrStdout()
	if asJSON {
		outputs := map[string]array{}
		for name, t := range results {
			a, err := arrayOf(t)
			if err != nil {
				return fmt.Errorf("output %s: %w", name, err)
			}
			outputs[name] = a
		}
		return printJSON(command, struct {
			Signature string           `json:"signature"`
			Seconds   float64          `json:"seconds"`
			Outputs   map[string]array `json:"outputs"`
			Saved     string           `json:"saved,omitempty"`
		}{s.Name, took.Seconds(), outputs, out})
	}
	for _, port := range s.Outputs {
		t := results[port.Name]
		if _, err := fmt.Fprintf(w, "%s: %s  %s\n", port.Name, t, brief(t)); err != nil {
			return err
		}
	}
	if out != "" {
		fmt.Fprintf(command.ErrOrStderr(), "saved in %s\n", out)
	}
	return nil
}

// printJSON prints a document in one line: arrays can be long.
func printJSON(command *cobra.Command, value any) error {
	encoder := json.NewEncoder(command.OutOrStdout())
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
