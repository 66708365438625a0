package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/spf13/cobra"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/savedmodels"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

func convertCommand() *cobra.Command {
	var (
		flags     modelFlags
		to        string
		weights   string
		overwrite bool
		asJSON    bool
	)
	command := &cobra.Command{
		Use:   "convert FROM TO",
		Short: "Write a model, graph or checkpoint in another form",
		Long: `Read what there is, and write it in another form:

  FROM         --to          TO
  GRAPH        graph         the other of .pb and .pbtxt
  MODEL        graph         .pb or .pbtxt without variables, as sluice freeze writes it
  MODEL        metagraph     a SavedModel as TensorFlow 1 writes it, which every loader takes
  MODEL        objects       a SavedModel as TensorFlow 2 writes it: Python calls it, and finds
                             its variables to train and save it again
  MODEL        checkpoint    its variables, by their names
  CHECKPOINT   checkpoint    by names, of one that Python or Keras wrote by objects

--to is graph where TO ends in .pb or .pbtxt, and checkpoint where FROM is one. --weights
stores float32 variables as float16 or bfloat16 on the way. All is written beside TO and
renamed when it is complete. TO is replaced only with --overwrite.`,
		Example: `  sluice convert exported/1 v1/1 --to metagraph
  sluice convert exported/1 half/1 --to objects --weights float16
  sluice convert graph.pbtxt graph.pb
  sluice convert keras/ckpt-7 byname/model-7`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("takes FROM and TO, got %q", args)
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			from, into := args[0], args[1]
			dt, err := weightsType(weights)
			if err != nil {
				return err
			}
			kind := kindOf(from)
			if to == "" {
				switch {
				case isGraphFile(into):
					to = "graph"
				case kind == "checkpoint":
					to = "checkpoint"
				default:
					return fmt.Errorf("%w: --to is missing: graph, metagraph, objects or checkpoint", errUsage)
				}
			}
			done := converted{From: from, Kind: kind, To: to, Saved: into}
			switch kind + " to " + to {
			case "graph to graph":
				if dt != 0 {
					return fmt.Errorf("%w: --weights is for variables, and %s is a graph", errUsage, from)
				}
				if err = checkGraphFile(into, overwrite); err == nil {
					var def []byte
					if def, err = bridge.ReadGraphDef(from); err == nil {
						_, err = writeGraphDef(command, into, def)
					}
				}
			case "model to graph":
				if err = checkGraphFile(into, overwrite); err == nil {
					var frozen *frozenGraph
					if frozen, err = freeze(command, from, flags, nil, dt); err == nil {
						_, err = writeGraphDef(command, into, frozen.def)
					}
				}
			case "model to metagraph", "model to objects":
				err = convertModel(command, from, into, flags, savedmodels.ConvertOptions{Objects: to == "objects", Weights: dt, Overwrite: overwrite})
			case "model to checkpoint", "checkpoint to checkpoint":
				done.Tensors, err = convertCheckpoint(from, into, dt, overwrite)
			default:
				return fmt.Errorf("%w: %s is a %s, which can't become a %q", errUsage, from, kind, to)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(command, done)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s written as %s %s\n", from, to, into)
			return err
		},
	}
	flags.add(command)
	command.Flags().StringVar(&to, "to", "", "the form to write: graph, metagraph, objects or checkpoint")
	command.Flags().StringVar(&weights, "weights", "", "store float32 variables as float16 or bfloat16, half the size")
	command.Flags().BoolVar(&overwrite, "overwrite", false, "replace what is there")
	command.Flags().BoolVar(&asJSON, "json", false, "print what was written as JSON")
	return command
}

// converted is what convert did.
type converted struct {
	From    string   `json:"from"`
	Kind    string   `json:"kind"`
	To      string   `json:"to"`
	Saved   string   `json:"saved"`
	Tensors []string `json:"tensors,omitempty"` // of a checkpoint
}

// kindOf is what a path seems to be: a model, a checkpoint or a graph. What it is not
// is said when it is read.
func kindOf(path string) string {
	is := func(name string) bool {
		_, err := os.Stat(name)
		return err == nil
	}
	switch {
	case is(filepath.Join(path, "saved_model.pb")), filepath.Base(path) == "saved_model.pb":
		return "model"
	case is(path + ".index"), strings.HasSuffix(path, ".index"), is(filepath.Join(path, "checkpoint")):
		return "checkpoint"
	case isGraphFile(path):
		return "graph"
	}
	return "model"
}

func convertModel(command *cobra.Command, from, into string, flags modelFlags, o savedmodels.ConvertOptions) error {
	if filepath.Base(from) == "saved_model.pb" {
		from = filepath.Dir(from)
	}
	m, err := savedmodels.LoadContext(command.Context(), from, flags.options(command))
	if err != nil {
		return err
	}
	defer m.Close()
	return m.Convert(command.Context(), into, o)
}

// convertCheckpoint writes the tensors of a checkpoint or model by Python's names, and
// returns these.
func convertCheckpoint(from, into string, weights tf.DataType, overwrite bool) (names []string, err error) {
	if filepath.Base(from) == "saved_model.pb" {
		from = filepath.Dir(from)
	}
	s, err := openSide(from)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if s.reader == nil {
		return nil, fmt.Errorf("%s has no variables", from)
	}
	tensors := map[string]*bridge.Tensor{}
	defer func() { closeAll(tensors) }()
	for name, e := range s.entries {
		t, err := s.reader.Read(e.Key)
		if err != nil {
			return nil, err
		}
		tensors[name] = t
		if weights != 0 && t.DType() == tf.Float {
			narrow, err := savedmodels.Narrow(t, weights)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			_ = t.Close()
			tensors[name] = narrow
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, checkpoints.Write(into, tensors, checkpoints.WriteOptions{Overwrite: overwrite})
}
