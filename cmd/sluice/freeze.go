package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	graphdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sluice-ml/sluice/savedmodels"
)

func freezeCommand() *cobra.Command {
	var (
		flags      modelFlags
		signatures []string
		out        string
		weights    string
		overwrite  bool
		asJSON     bool
	)
	command := &cobra.Command{
		Use:   "freeze MODEL --out FILE",
		Short: "Write a SavedModel as one graph without variables",
		Long: `Write what a SavedModel's signatures compute as one GraphDef, in which the variables
are constants: a single file that needs no restoring. Python's tf.import_graph_def,
the other verbs and bridge.Import read it.

The names stay: --json lists which tensors are fed and which are the outputs. Loops,
conditionals and functions stay too, and are given values where they were given
variables. A signature that updates variables can't be frozen. Tables are no
variables: who imports the graph fills them.`,
		Example: `  sluice freeze exported/1 --out model.pb
  sluice freeze exported/1 --signature serving_default --weights bfloat16 --out small.pb
  sluice inspect model.pb`,
		Args: oneArgument("MODEL"),
		RunE: func(command *cobra.Command, args []string) error {
			dt, err := weightsType(weights)
			if err != nil {
				return err
			}
			if err := checkGraphFile(out, overwrite); err != nil {
				return err
			}
			frozen, err := freeze(command, args[0], flags, signatures, dt)
			if err != nil {
				return err
			}
			written, err := writeGraphDef(command, out, frozen.def)
			if err != nil {
				return err
			}
			frozen.Saved, frozen.Bytes = out, written
			if asJSON {
				return printJSON(command, frozen)
			}
			return frozen.print(command.OutOrStdout())
		},
	}
	flags.add(command)
	command.Flags().StringSliceVar(&signatures, "signature", nil, "the signatures that it computes, by commas; by default all")
	command.Flags().StringVar(&out, "out", "", "the file to write, .pb or .pbtxt")
	command.Flags().StringVar(&weights, "weights", "", "store float32 variables as float16 or bfloat16, half the size")
	command.Flags().BoolVar(&overwrite, "overwrite", false, "replace a file that is there")
	command.Flags().BoolVar(&asJSON, "json", false, "print what was written as JSON")
	_ = command.MarkFlagRequired("out")
	return command
}

// frozenGraph is what freeze wrote.
type frozenGraph struct {
	Saved      string           `json:"saved"`
	Bytes      int              `json:"bytes"`
	Signatures []signatureFound `json:"signatures"`
	Functions  int              `json:"functions"`
	def        []byte
}

func freeze(command *cobra.Command, dir string, flags modelFlags, signatures []string, weights tf.DataType) (*frozenGraph, error) {
	m, err := savedmodels.LoadContext(command.Context(), dir, flags.options(command))
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if signatures == nil {
		signatures = m.Signatures()
	}
	frozen := new(frozenGraph)
	for _, name := range signatures {
		s, err := m.Signature(name)
		if err != nil {
			return nil, err
		}
		frozen.Signatures = append(frozen.Signatures, signatureFound{s.Name, s.Method, portsFound(s.Inputs), portsFound(s.Outputs)})
	}
	frozen.def, err = m.Freeze(command.Context(), signatures, savedmodels.FreezeOptions{Weights: weights})
	if err != nil {
		return nil, err
	}
	def := new(graphdef.GraphDef)
	if err := proto.Unmarshal(frozen.def, def); err != nil {
		return nil, err
	}
	frozen.Functions = len(def.GetLibrary().GetFunction())
	return frozen, nil
}

func (f *frozenGraph) print(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s, %s\n", f.Saved, size(int64(f.Bytes))); err != nil {
		return err
	}
	for _, s := range f.Signatures {
		if _, err := fmt.Fprintf(w, "%s\n", s.Name); err != nil {
			return err
		}
		if err := printPorts(w, "feed", s.Inputs); err != nil {
			return err
		}
		if err := printPorts(w, "fetch", s.Outputs); err != nil {
			return err
		}
	}
	return nil
}

func printPorts(w io.Writer, verb string, ports []portFound) error {
	for _, p := range ports {
		if _, err := fmt.Fprintf(w, "  %-5s %s, which is %s %s of %s\n", verb, p.Tensor, p.Name, p.DType, shape(p.Shape)); err != nil {
			return err
		}
	}
	return nil
}

// weightsType is what --weights says.
func weightsType(name string) (tf.DataType, error) {
	switch name {
	case "":
		return 0, nil
	case "float16", "half":
		return tf.Half, nil
	case "bfloat16":
		return tf.Bfloat16, nil
	}
	return 0, fmt.Errorf("%w: --weights %s: wanted float16 or bfloat16", errUsage, name)
}

// isGraphFile tells by its name whether a file holds a GraphDef.
func isGraphFile(path string) bool {
	return strings.EqualFold(filepath.Ext(path), ".pb") || strings.EqualFold(filepath.Ext(path), ".pbtxt")
}

// checkGraphFile finds before any work what writeGraphDef would find after it.
func checkGraphFile(path string, overwrite bool) error {
	if !isGraphFile(path) {
		return fmt.Errorf("%w: --out %s: wanted a name that ends in .pb or .pbtxt", errUsage, path)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return fmt.Errorf("%w: --out %s: there is no folder %s", errUsage, path, filepath.Dir(path))
	}
	if _, err := os.Stat(path); err == nil && !overwrite {
		return fmt.Errorf("%s is there already; --overwrite replaces it", path)
	}
	return nil
}

// writeGraphDef writes a serialized GraphDef, as text where the name ends so, and tells
// how many bytes that took.
func writeGraphDef(command *cobra.Command, path string, def []byte) (int, error) {
	if strings.EqualFold(filepath.Ext(path), ".pbtxt") {
		parsed := new(graphdef.GraphDef)
		if err := proto.Unmarshal(def, parsed); err != nil {
			return 0, fmt.Errorf("the graph can't be read: %w", err)
		}
		if n := unknownBytes(parsed.ProtoReflect()); n > 0 {
			fmt.Fprintf(command.ErrOrStderr(), "%d bytes of fields that a newer TensorFlow added, as a rule hints on types and origins, have no text and are left out\n", n)
		}
		text, err := prototext.MarshalOptions{Multiline: true}.Marshal(parsed)
		if err != nil {
			return 0, err
		}
		def = text
	}
	return len(def), writeWhole(path, def)
}

// unknownBytes counts what a message has in fields that are not known here.
func unknownBytes(m protoreflect.Message) int {
	n := len(m.GetUnknown())
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					n += unknownBytes(v.Message())
					return true
				})
			}
		case field.Message() == nil:
		case field.IsList():
			for i := range value.List().Len() {
				n += unknownBytes(value.List().Get(i).Message())
			}
		default:
			n += unknownBytes(value.Message())
		}
		return true
	})
	return n
}

// writeWhole puts a file in place whole or not at all.
func writeWhole(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
