package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/spf13/cobra"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/savedmodels"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

func inspectCommand() *cobra.Command {
	var asJSON, nodes bool
	var picture string
	command := &cobra.Command{
		Use:   "inspect MODEL|CHECKPOINT|GRAPH",
		Short: "Say what is in a SavedModel, a checkpoint or a graph",
		Long: `Say what there is, without running anything:

  MODEL       a SavedModel's folder: for each MetaGraph its tags, signatures with names,
              data types and shapes, variables with sizes, assets, and op types, also
              those that no gradient goes through
  CHECKPOINT  its prefix, or a folder of checkpoints for the newest: tensors and sizes
  GRAPH       a GraphDef, .pb or .pbtxt: what it is fed, what nothing in it uses (its
              outputs), variables and op types

--nodes also lists the nodes of a graph, with the tensors that they give. --graph draws
its blocks, which are its name scopes, and what flows between them: of a MODEL those of
serving_default, or of the first signature.`,
		Example: `  sluice inspect exported/1
  sluice inspect exported/1 --json | jq '.metagraphs[0].signatures'
  sluice inspect exported/1 --graph model.svg
  sluice inspect run/model-1000`,
		Args: oneArgument("MODEL, CHECKPOINT or GRAPH"),
		RunE: func(command *cobra.Command, args []string) error {
			if picture != "" && !strings.EqualFold(filepath.Ext(picture), ".svg") {
				return fmt.Errorf("%w: --graph %s: wanted a name that ends in .svg", errUsage, picture)
			}
			found, err := inspect(args[0], nodes, picture)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(command, found)
			}
			return found.print(command.OutOrStdout())
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	command.Flags().StringVar(&picture, "graph", "", "draw the blocks of the model or graph, as SVG")
	command.Flags().BoolVar(&nodes, "nodes", false, "list the nodes of the graph too")
	return command
}

// inspected is what inspect found: one of its fields is set.
type inspected struct {
	Kind       string           `json:"kind"` // model, checkpoint or graph
	Path       string           `json:"path"`
	MetaGraphs []metaGraphFound `json:"metagraphs,omitempty"`
	Checkpoint *checkpointFound `json:"checkpoint,omitempty"`
	Graph      *graphFound      `json:"graph,omitempty"`
}

type metaGraphFound struct {
	Tags        []string         `json:"tags"`
	TensorFlow  string           `json:"tensorflow"`
	Signatures  []signatureFound `json:"signatures"`
	Variables   []variableFound  `json:"variables"`
	Bytes       int64            `json:"bytes"` // of the variables
	Assets      []string         `json:"assets,omitempty"`
	Initializer string           `json:"initializer,omitempty"`
	Graph       graphFound       `json:"graph"`
}

type signatureFound struct {
	Name    string      `json:"name"`
	Method  string      `json:"method,omitempty"`
	Inputs  []portFound `json:"inputs"`
	Outputs []portFound `json:"outputs"`
}

type portFound struct {
	Name     string  `json:"name"`
	DType    string  `json:"dtype"`
	Shape    []int64 `json:"shape"` // null: of unknown rank; -1: any size
	Tensor   string  `json:"tensor"`
	Part     string  `json:"part,omitempty"`
	Optional bool    `json:"optional,omitempty"`
}

type variableFound struct {
	Name      string  `json:"name"`
	DType     string  `json:"dtype"`
	Shape     []int64 `json:"shape"`
	Bytes     int64   `json:"bytes"`
	Trainable bool    `json:"trainable"`
}

type checkpointFound struct {
	Prefix      string        `json:"prefix"`
	ObjectBased bool          `json:"object_based"`
	Shards      int           `json:"shards"`
	Bytes       int64         `json:"bytes"`
	Tensors     []tensorFound `json:"tensors"`
}

type tensorFound struct {
	Name  string  `json:"name"`
	Key   string  `json:"key,omitempty"` // in the file, where it is another
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
	Bytes int64   `json:"bytes"`
}

type graphFound struct {
	Nodes      int             `json:"nodes"`
	Functions  int             `json:"functions"`
	Ops        map[string]int  `json:"ops"`
	NoGradient []string        `json:"no_gradient"`
	Inputs     []portFound     `json:"inputs,omitempty"`
	Outputs    []portFound     `json:"outputs,omitempty"`
	Variables  []variableFound `json:"variables,omitempty"`
	List       []nodeFound     `json:"list,omitempty"`
}

type nodeFound struct {
	Name    string      `json:"name"`
	Op      string      `json:"op"`
	Outputs []portFound `json:"outputs,omitempty"`
}

// inspect finds out what path is, and what is in it.
func inspect(path string, nodes bool, picture string) (*inspected, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() && filepath.Base(path) == "saved_model.pb" {
		path = filepath.Dir(path)
		info, err = os.Stat(path)
	}
	is := func(name string) bool {
		_, err := os.Stat(name)
		return err == nil
	}
	switch {
	case is(path+".index") || strings.HasSuffix(path, ".index") && is(path),
		err == nil && info.IsDir() && is(filepath.Join(path, "checkpoint")) && !is(filepath.Join(path, "saved_model.pb")):
		if picture != "" {
			return nil, fmt.Errorf("%w: --graph draws a MODEL or a GRAPH, and %s is a checkpoint", errUsage, path)
		}
		return inspectCheckpoint(path)
	case err != nil:
		return nil, err
	case info.IsDir(), strings.HasSuffix(path, ".keras"), strings.HasSuffix(path, ".h5"):
		return inspectModel(path, nodes, picture)
	}
	return inspectGraph(path, nodes, picture)
}

func inspectModel(dir string, nodes bool, picture string) (*inspected, error) {
	all, err := savedmodels.Describe(dir)
	if err != nil {
		return nil, err
	}
	if picture != "" {
		if err := drawModel(picture, all); err != nil {
			return nil, err
		}
	}
	found := &inspected{Kind: "model", Path: dir}
	for _, d := range all {
		m := metaGraphFound{Tags: append([]string{}, d.Tags...), TensorFlow: d.TensorFlow, Assets: d.Assets, Initializer: d.Initializer,
			Signatures: []signatureFound{}, Variables: variablesFound(d.Variables), Graph: graphOf(d.Graph)}
		for _, s := range d.Signatures {
			m.Signatures = append(m.Signatures, signatureFound{s.Name, s.Method, portsFound(s.Inputs), portsFound(s.Outputs)})
		}
		for _, v := range m.Variables {
			m.Bytes += v.Bytes
		}
		if nodes {
			m.Graph.List = nodesOf(d.TF)
		}
		found.MetaGraphs = append(found.MetaGraphs, m)
	}
	return found, nil
}

// drawModel draws the signature that is served, of the first MetaGraph that has one.
func drawModel(picture string, all []savedmodels.Description) error {
	for _, d := range all {
		if len(d.Signatures) == 0 {
			continue
		}
		served := d.Signatures[0]
		for _, s := range d.Signatures {
			if s.Name == "serving_default" {
				served = s
			}
		}
		var outputs []*tf.Operation
		for _, p := range served.Outputs {
			node, _, _ := strings.Cut(p.Tensor, ":")
			outputs = append(outputs, bridge.OperationByName(d.TF, node))
		}
		return drawBlocks(picture, d.TF, outputs)
	}
	return fmt.Errorf("there is nothing to draw: the model has no signatures")
}

func inspectCheckpoint(path string) (*inspected, error) {
	r, err := checkpoints.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	c := &checkpointFound{Prefix: r.Prefix(), ObjectBased: r.ObjectBased(), Shards: r.Shards(), Tensors: []tensorFound{}}
	for _, e := range r.Entries() {
		t := tensorFound{Name: cmp.Or(e.FullName, e.Name), DType: bridge.DTypeName(e.DType), Shape: e.Shape, Bytes: e.Bytes}
		if e.Key != t.Name {
			t.Key = e.Key
		}
		c.Tensors = append(c.Tensors, t)
		c.Bytes += e.Bytes
	}
	return &inspected{Kind: "checkpoint", Path: path, Checkpoint: c}, nil
}

func inspectGraph(path string, nodes bool, picture string) (*inspected, error) {
	def, err := bridge.ReadGraphDef(path)
	if err != nil {
		return nil, err
	}
	g := tf.NewGraph()
	if _, err := bridge.Import(g, def, bridge.ImportOptions{}); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var inputs, outputs []portFound
	var ends []*tf.Operation
	for op := range bridge.Operations(g) {
		used := slices.ContainsFunc(bridge.OutputsOf(op), func(out tf.Output) bool { return len(bridge.Consumers(out)) > 0 })
		switch {
		case used && strings.HasPrefix(op.Type(), "Placeholder"):
			p := tensorPort(op, 0)
			p.Optional = op.Type() != "Placeholder"
			inputs = append(inputs, p)
		case !used && !noOutput[op.Type()]:
			for i := range op.NumOutputs() {
				outputs = append(outputs, tensorPort(op, i))
			}
			ends = append(ends, op)
		}
	}
	d, err := savedmodels.DescribeGraph(g, ends)
	if err != nil {
		return nil, err
	}
	if picture != "" {
		if err := drawBlocks(picture, g, ends); err != nil {
			return nil, err
		}
	}
	found := graphOf(d)
	found.Inputs, found.Outputs, found.Variables = inputs, outputs, variablesFound(savedmodels.GraphVariables(g))
	if nodes {
		found.List = nodesOf(g)
	}
	return &inspected{Kind: "graph", Path: path, Graph: &found}, nil
}

// noOutput are op types that nobody needs to use: what they give is no result of
// the graph.
var noOutput = map[string]bool{"Placeholder": true, "PlaceholderWithDefault": true, "Const": true, "VarHandleOp": true, "VarIsInitializedOp": true,
	"Enter": true, "Exit": true, "Merge": true, "Switch": true}

func tensorPort(op *tf.Operation, i int) portFound {
	out := op.Output(i)
	name := fmt.Sprintf("%s:%d", op.Name(), i)
	return portFound{Name: name, Tensor: name, DType: bridge.DTypeName(out.DataType()), Shape: bridge.ShapeOf(out)}
}

func nodesOf(g *tf.Graph) []nodeFound {
	var list []nodeFound
	for op := range bridge.Operations(g) {
		n := nodeFound{Name: op.Name(), Op: op.Type()}
		for i := range op.NumOutputs() {
			n.Outputs = append(n.Outputs, tensorPort(op, i))
		}
		list = append(list, n)
	}
	return list
}

func graphOf(d savedmodels.GraphDescription) graphFound {
	return graphFound{Nodes: d.Nodes, Functions: d.Functions, Ops: d.Ops, NoGradient: append([]string{}, d.NoGradient...)}
}

func portsFound(ports []savedmodels.Port) []portFound {
	found := []portFound{}
	for _, p := range ports {
		found = append(found, portFound{p.Name, bridge.DTypeName(p.DType), p.Shape, p.Tensor, p.Part, p.Optional})
	}
	return found
}

func variablesFound(variables []savedmodels.Variable) []variableFound {
	found := []variableFound{}
	for _, v := range variables {
		found = append(found, variableFound{v.Name, bridge.DTypeName(v.DType), v.Shape, v.Bytes(), v.Trainable})
	}
	return found
}

// print writes it for people.
func (f *inspected) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	p := printer{table}
	switch {
	case f.Checkpoint != nil:
		c := f.Checkpoint
		kind := "by names"
		if c.ObjectBased {
			kind = "by objects"
		}
		p.line("checkpoint %s, %s, %d tensors, %s in %d files", c.Prefix, kind, len(c.Tensors), size(c.Bytes), c.Shards)
		for _, t := range c.Tensors {
			p.line("  %s\t%s\t%s\t%s\t%s", t.Name, t.DType, shape(t.Shape), size(t.Bytes), t.Key)
		}
	case f.Graph != nil:
		p.line("graph %s", f.Path)
		p.ports("must be fed", "", f.Graph.Inputs)
		p.ports("outputs", "", f.Graph.Outputs)
		p.variables(f.Graph.Variables, false)
		p.graph(f.Graph)
	}
	for _, m := range f.MetaGraphs {
		p.line("model %s, tags %s, saved by TensorFlow %s", f.Path, "{"+strings.Join(m.Tags, ",")+"}", cmp.Or(m.TensorFlow, "of unknown version"))
		for _, s := range m.Signatures {
			p.line("signature %s", s.Name)
			p.ports("", "in", s.Inputs)
			p.ports("", "out", s.Outputs)
		}
		if len(m.Signatures) == 0 {
			p.line("no signatures")
		}
		p.variables(m.Variables, true)
		if len(m.Assets) > 0 {
			p.line("assets\t%s", strings.Join(m.Assets, ", "))
		}
		if m.Initializer != "" {
			p.line("initializer\t%s", m.Initializer)
		}
		p.graph(&m.Graph)
	}
	return table.Flush()
}

// printer writes lines with columns. A tabwriter's errors come when it is flushed.
type printer struct{ w *tabwriter.Writer }

func (p printer) line(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

func (p printer) ports(title, direction string, ports []portFound) {
	if title != "" && len(ports) > 0 {
		p.line("%s", title)
	}
	for _, port := range ports {
		note := port.Part
		if port.Optional {
			note = strings.TrimSpace(note + " optional")
		}
		tensor := port.Tensor
		if tensor == port.Name {
			tensor = ""
		}
		p.line("  %s", strings.TrimRight(strings.Join(slices.DeleteFunc([]string{direction, port.Name, port.DType, shape(port.Shape), tensor, note},
			func(s string) bool { return s == "" }), "\t"), "\t"))
	}
}

func (p printer) variables(variables []variableFound, known bool) {
	total, trainable := int64(0), 0
	for _, v := range variables {
		total += v.Bytes
		if v.Trainable {
			trainable++
		}
	}
	summary := fmt.Sprintf("%d variables, %s", len(variables), size(total))
	if known {
		summary += fmt.Sprintf(", %d trainable", trainable)
	}
	p.line("%s", summary)
	for _, v := range variables {
		note := ""
		if known && !v.Trainable {
			note = "not trainable"
		}
		p.line("  %s\t%s\t%s\t%s\t%s", v.Name, v.DType, shape(v.Shape), size(v.Bytes), note)
	}
}

func (p printer) graph(g *graphFound) {
	p.line("%d nodes, %d functions", g.Nodes, g.Functions)
	names := slices.SortedFunc(maps.Keys(g.Ops), func(a, b string) int { return cmp.Or(g.Ops[b]-g.Ops[a], cmp.Compare(a, b)) })
	var counts []string
	for _, name := range names {
		counts = append(counts, fmt.Sprintf("%s %d", name, g.Ops[name]))
	}
	p.line("  ops: %s", strings.Join(counts, ", "))
	if len(g.NoGradient) > 0 {
		p.line("  no gradient goes through %s", strings.Join(g.NoGradient, ", "))
	}
	for _, n := range g.List {
		var outputs []string
		for _, out := range n.Outputs {
			outputs = append(outputs, out.DType+" "+shape(out.Shape))
		}
		p.line("  %s\t%s\t%s", n.Name, n.Op, strings.Join(outputs, ", "))
	}
}

func shape(dims []int64) string { return bridge.Shape(dims).String() }

// size is a number of bytes for people.
func size(bytes int64) string {
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if bytes >= unit.bytes {
			return fmt.Sprintf("%.1f %s", float64(bytes)/float64(unit.bytes), unit.name)
		}
	}
	return fmt.Sprintf("%d B", bytes)
}
