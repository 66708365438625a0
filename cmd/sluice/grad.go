package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/spf13/cobra"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/savedmodels"
)

// gradOptions are the flags of grad.
type gradOptions struct {
	model     modelFlags
	signature string
	ys, xs    []string
	feeds     []string
	init      []string
	out       string
	json      bool
	check     bool
	elements  int
	tolerance float64
}

func gradCommand() *cobra.Command {
	var o gradOptions
	command := &cobra.Command{
		Use:   "grad GRAPH|MODEL --y TENSOR --x TENSOR",
		Short: "The gradient of any tensor by any other, of a graph or a SavedModel",
		Long: `Differentiate the sum of the --y tensors by each of the --x tensors, and print or
save the gradients.

GRAPH is a GraphDef, binary (.pb) or text (.pbtxt); MODEL the folder of a SavedModel,
whose variables are restored. Tensors are "node:0", or "node" for its output 0;
sluice inspect lists them. For a MODEL the inputs and outputs of its signature go
by their own names too, and an --x may be a variable, by its name.

What the --y depend on must be fed. --feed takes

  ` + strings.ReplaceAll(feedHelp, "\n", "\n  ") + `

An --x that the --y do not depend on, or only through integers or operations
without a derivative, has no gradient: "none", which --out leaves out. --out saves
the gradients as one .npz, by the names of the --x, or a single one as .npy.

--check compares with central differences: x is moved by a little up and down, one
element at a time, and the change of the --y is measured, in the type of x: float64
gives some ten digits, float32 three. The worst element of each --x is shown, and
one beyond --tolerance is a failure. Where a function has a corner (relu at 0), or
draws random numbers, a difference means nothing.`,
		Example: `  sluice grad graph.pb --y loss:0 --x w:0 --feed x:0=x.npy --out g.npz
  sluice grad graph.pbtxt --y loss --x w,b --init init --feed batch.npz --check
  sluice grad exported/1 --y output_0 --x keras_tensor --feed keras_tensor=x.npy --json`,
		Args: oneArgument("GRAPH or MODEL"),
		RunE: func(command *cobra.Command, args []string) error {
			switch {
			case len(o.ys) == 0 || len(o.xs) == 0:
				return fmt.Errorf("%w: --y and --x are both needed: what to differentiate, and by what", errUsage)
			case o.elements < 1:
				return fmt.Errorf("%w: --elements is %d, expected 1 or more", errUsage, o.elements)
			case !(o.tolerance >= 0): // NaN too, which nothing is beyond
				return fmt.Errorf("%w: --tolerance is %v, expected a positive number", errUsage, o.tolerance)
			}
			if err := checkOut(o.out); err != nil {
				return err
			}
			return o.run(command, args[0])
		},
	}
	o.model.add(command)
	flags := command.Flags()
	flags.StringSliceVar(&o.ys, "y", nil, "what to differentiate; several, by commas or repeated, are summed")
	flags.StringSliceVar(&o.xs, "x", nil, "what to differentiate by; several by commas or repeated")
	flags.StringArrayVar(&o.feeds, "feed", nil, "the value of a tensor: "+feedHelp+"; may be repeated")
	flags.StringSliceVar(&o.init, "init", nil, "operations of GRAPH to run first, such as the initializer of its variables")
	flags.StringVar(&o.signature, "signature", "", "the signature of MODEL whose names are meant; by default serving_default, or the only one")
	flags.StringVar(&o.out, "out", "", "save the gradients as .npz, or a single one as .npy")
	flags.BoolVar(&o.json, "json", false, "print the gradients as JSON, all elements")
	flags.BoolVar(&o.check, "check", false, "compare with central differences")
	flags.IntVar(&o.elements, "elements", 100, "with --check: elements of each x to compare, spread over all")
	flags.Float64Var(&o.tolerance, "tolerance", 0, "with --check: the largest relative error; by default 1e-2 for float32, 1e-5 for float64")
	return command
}

// differentiated is a graph with gradients added, ready to run.
type differentiated struct {
	graph     *tf.Graph
	signature *savedmodels.Signature // of a model; may be nil
	variables map[string]tf.Output   // handles by name
	ys        []tf.Output
	xs        []by
	session   *bridge.Session
}

// by is one x.
type by struct {
	name     string
	tensor   tf.Output // where it is a variable, a read of it
	grad     tf.Output // the zero Output for none
	sparse   bool
	assign   *tf.Operation // of a variable, from value
	value    tf.Output     // placeholder
	variable bool
}

func (o *gradOptions) run(command *cobra.Command, path string) error {
	ctx := command.Context()
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	d := &differentiated{variables: map[string]tf.Output{}}
	if info.IsDir() {
		if len(o.init) > 0 {
			return fmt.Errorf("%w: --init is for a GRAPH; a MODEL brings its variables' values", errUsage)
		}
		m, err := o.loadModel(command, path, d)
		if err != nil {
			return err
		}
		defer m.Close()
		d.session = m.Session()
	} else {
		if err := o.loadGraph(path, d); err != nil {
			return err
		}
		if d.session, err = bridge.NewSession(d.graph, bridge.Config{}); err != nil {
			return err
		}
		defer d.session.Close()
		for _, name := range o.init {
			op := bridge.OperationByName(d.graph, name)
			if op == nil {
				return d.unknown("operation", name, func(op *tf.Operation) []string { return []string{op.Name()} })
			}
			if err := d.session.Run(ctx, op); err != nil {
				return fmt.Errorf("--init %s: %w", name, err)
			}
		}
	}
	call, feeds, err := d.feed(o.feeds)
	if err != nil {
		return err
	}
	defer closeAll(feeds)
	grads, err := d.gradients(ctx, call, feeds)
	if err != nil {
		return err
	}
	defer closeAll(grads)
	if o.out != "" {
		if len(grads) == 0 {
			return errors.New("none of the --x has a gradient: there is nothing to save")
		}
		if err := saveArrays(o.out, grads); err != nil {
			return err
		}
	}
	var checks []checked
	if o.check {
		if checks, err = d.check(ctx, o, call, feeds, grads); err != nil {
			return err
		}
	}
	return o.report(command, d, grads, checks)
}

func (o *gradOptions) loadModel(command *cobra.Command, path string, d *differentiated) (*savedmodels.Model, error) {
	options := o.model.options(command)
	options.Build = func(m *savedmodels.Model) error {
		d.graph = m.Graph()
		s, err := m.Signature(o.signature)
		if err != nil && (o.signature != "" || len(m.Signatures()) == 1) {
			return err
		}
		d.signature = s
		for _, v := range m.Variables() {
			d.variables[v.Name] = v.Handle
		}
		return o.differentiate(d)
	}
	return savedmodels.LoadContext(command.Context(), path, options)
}

func (o *gradOptions) loadGraph(path string, d *differentiated) error {
	def, err := bridge.ReadGraphDef(path)
	if err != nil {
		return err
	}
	d.graph = tf.NewGraph()
	if _, err := bridge.Import(d.graph, def, bridge.ImportOptions{}); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, v := range savedmodels.GraphVariables(d.graph) {
		d.variables[v.Name] = v.Handle
	}
	return o.differentiate(d)
}

// differentiate adds the gradients to the graph.
func (o *gradOptions) differentiate(d *differentiated) error {
	for _, name := range o.ys {
		y, err := d.find("y", name)
		if err != nil {
			return err
		}
		d.ys = append(d.ys, y)
	}
	g := ops.FromTF(d.graph, ops.GraphOptions{})
	var xs []tf.Output
	for _, name := range o.xs {
		if slices.ContainsFunc(d.xs, func(x by) bool { return x.name == name }) {
			return fmt.Errorf("%w: --x %s is given twice", errUsage, name)
		}
		x, err := d.find("x", name)
		if err != nil {
			return err
		}
		xs = append(xs, x)
		d.xs = append(d.xs, by{name: name, tensor: x, variable: x.DataType() == bridge.Resource})
	}
	root := g.Root()
	grads, err := ops.Gradients(root, d.ys, xs)
	var missing *gradients.MissingGradientError
	if errors.As(err, &missing) && slices.ContainsFunc(missing.Ops, func(op gradients.MissingOp) bool { return op.Type == "Enter" }) {
		return fmt.Errorf("%w; a graph that was frozen in Python keeps its loops whole with convert_variables_to_constants_v2(f, lower_control_flow=False)", err)
	}
	if err != nil {
		return err
	}
	helper := root.NameScope("sluice_grad")
	for i, grad := range grads {
		x := &d.xs[i]
		if x.variable {
			if err := x.readVariable(helper); err != nil {
				return err
			}
		}
		if grad.IsNone() {
			continue
		}
		x.sparse = grad.IsSparse()
		// A gradient may be a tensor that is fed, which a session does not fetch.
		x.grad = raw.Identity(helper, ops.Densify(helper, grad))
	}
	return g.Err()
}

// readVariable adds what reads the variable and sets it.
func (x *by) readVariable(s *ops.Scope) error {
	handle := x.tensor
	if handle.Op.Type() != "VarHandleOp" {
		return fmt.Errorf("--x %s is a resource that is no variable (%s): wanted a tensor of numbers or a variable", x.name, handle.Op.Type())
	}
	dt, err := bridge.AttrType(handle.Op, "dtype")
	if err != nil {
		return err
	}
	x.tensor = raw.ReadVariableOp(s, handle, dt)
	x.value = s.Placeholder("value", dt, nil)
	x.assign = raw.AssignVariableOp(s, handle, x.value)
	return s.Err()
}

// find is the tensor that a name means: of the signature, of a variable, of the
// graph.
func (d *differentiated) find(flag, name string) (tf.Output, error) {
	if d.signature != nil {
		ports := slices.Concat(d.signature.Outputs, d.signature.Inputs)
		if flag != "y" {
			ports = slices.Concat(d.signature.Inputs, d.signature.Outputs)
		}
		for _, p := range ports {
			if p.Name == name {
				name = p.Tensor
				break
			}
		}
	}
	if handle, ok := d.variables[strings.TrimSuffix(name, ":0")]; ok {
		return handle, nil
	}
	node, number, given := strings.Cut(name, ":")
	op := bridge.OperationByName(d.graph, node)
	if op == nil {
		return tf.Output{}, fmt.Errorf("--%s: %w", flag, d.unknown("tensor", name, tensorNames))
	}
	index := 0
	if _, err := fmt.Sscanf(number, "%d", &index); given && err != nil {
		return tf.Output{}, fmt.Errorf("--%s %s: wanted a tensor such as %s:0", flag, name, node)
	}
	if index < 0 || index >= op.NumOutputs() {
		return tf.Output{}, fmt.Errorf("--%s %s: %s is a %s, which has %d outputs", flag, name, node, op.Type(), op.NumOutputs())
	}
	return op.Output(index), nil
}

func tensorNames(op *tf.Operation) []string {
	var names []string
	for i := range op.NumOutputs() {
		if i == 0 {
			names = append(names, op.Name())
			continue
		}
		names = append(names, fmt.Sprintf("%s:%d", op.Name(), i))
	}
	return names
}

// unknown says what exists where a name does not: what is written like it, or the
// names there are.
func (d *differentiated) unknown(what, name string, namesOf func(*tf.Operation) []string) error {
	var names []string
	if d.signature != nil {
		for _, p := range slices.Concat(d.signature.Inputs, d.signature.Outputs) {
			names = append(names, p.Name)
		}
	}
	names = append(names, slices.Sorted(maps.Keys(d.variables))...)
	for op := range bridge.Operations(d.graph) {
		names = append(names, namesOf(op)...)
	}
	seen := map[string]bool{}
	names = slices.DeleteFunc(names, func(n string) bool {
		again := seen[n]
		seen[n] = true
		return again
	})
	if near := bridge.Nearest(name, names); near != nil {
		return fmt.Errorf("there is no %s %q; did you mean %s?", what, name, strings.Join(near, ", "))
	}
	const most = 20
	have := strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most {
		have += fmt.Sprintf(" and %d more; sluice inspect lists them", len(names)-most)
	}
	return fmt.Errorf("there is no %s %q; there are %s", what, name, have)
}

// feed reads what is fed, and finds what is not although a y depends on it. The
// tensors are by the names of the graph, in the order of the call.
func (d *differentiated) feed(arguments []string) (call bridge.Call, feeds map[string]*bridge.Tensor, err error) {
	given, err := readFeeds("feed", arguments, func(name string) tf.DataType {
		if into, err := d.find("feed", name); err == nil {
			return into.DataType()
		}
		return 0
	})
	if err != nil {
		return call, nil, err
	}
	defer func() {
		if err != nil {
			closeAll(given)
		}
	}()
	feeds = map[string]*bridge.Tensor{}
	fed := map[bridge.OutputKey]bool{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		into, err := d.find("feed", name)
		if err != nil {
			return call, nil, err
		}
		if into.DataType() == bridge.Resource {
			return call, nil, fmt.Errorf("--feed %s: a variable can't be fed", name)
		}
		if fed[bridge.Key(into)] {
			return call, nil, fmt.Errorf("%w: --feed %s: the tensor is fed twice", errUsage, name)
		}
		fed[bridge.Key(into)] = true
		call.Feeds = append(call.Feeds, into)
		feeds[nameOf(into)] = given[name]
	}
	if missing := d.unfed(fed); missing != nil {
		return call, nil, fmt.Errorf("%s must be fed: --feed %s=FILE.npy", strings.Join(missing, ", "), strings.Fields(missing[0])[0])
	}
	return call, feeds, nil
}

func nameOf(out tf.Output) string { return fmt.Sprintf("%s:%d", out.Op.Name(), out.Index) }

// unfed are the placeholders that the ys depend on and nobody feeds.
func (d *differentiated) unfed(fed map[bridge.OutputKey]bool) []string {
	var missing []string
	seen := map[bridge.OutputKey]bool{}
	todo := slices.Clone(d.ys)
	for len(todo) > 0 {
		out := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if fed[bridge.Key(out)] || seen[bridge.OpKey(out.Op)] {
			continue
		}
		seen[bridge.OpKey(out.Op)] = true
		if out.Op.Type() == "Placeholder" {
			name := nameOf(out)
			if d.signature != nil {
				for _, p := range d.signature.Inputs {
					if p.Tensor == name {
						name = p.Name
					}
				}
			}
			missing = append(missing, fmt.Sprintf("%s (%s %s)", name, bridge.DTypeName(out.DataType()), bridge.ShapeOf(out)))
		}
		todo = append(todo, bridge.Inputs(out.Op)...)
		for _, op := range bridge.ControlInputs(out.Op) {
			if op.NumOutputs() > 0 {
				todo = append(todo, op.Output(0))
			} else {
				todo = append(todo, bridge.Inputs(op)...)
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// values are the tensors of a call's feeds, in order.
func values(call bridge.Call, feeds map[string]*bridge.Tensor) []*bridge.Tensor {
	list := make([]*bridge.Tensor, len(call.Feeds))
	for i, into := range call.Feeds {
		list[i] = feeds[nameOf(into)]
	}
	return list
}

// gradients runs them, by the names of the xs; those that there are none of are
// left out.
func (d *differentiated) gradients(ctx context.Context, call bridge.Call, feeds map[string]*bridge.Tensor) (map[string]*bridge.Tensor, error) {
	grads := map[string]*bridge.Tensor{}
	var names []string
	for _, x := range d.xs {
		if x.grad.Op != nil {
			call.Fetches = append(call.Fetches, x.grad)
			names = append(names, x.name)
		}
	}
	if names == nil {
		return grads, nil
	}
	results, err := d.session.Call(ctx, call, values(call, feeds)...)
	if errors.Is(err, bridge.ErrUninitialized) {
		return nil, fmt.Errorf("%w; --init NAME runs an operation of the graph first", err)
	}
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		grads[name] = results[i]
	}
	return grads, nil
}

// report prints the gradients, and how they compare.
func (o *gradOptions) report(command *cobra.Command, d *differentiated, grads map[string]*bridge.Tensor, checks []checked) error {
	bad := slices.ContainsFunc(checks, func(c checked) bool { return !c.OK })
	type gradient struct {
		X      string `json:"x"`
		None   bool   `json:"none,omitempty"`
		Sparse bool   `json:"sparse,omitempty"`
		*array
	}
	if o.json {
		document := struct {
			Gradients []gradient `json:"gradients"`
			Checks    []checked  `json:"check,omitempty"`
			Saved     string     `json:"saved,omitempty"`
		}{Checks: checks, Saved: o.out}
		for _, x := range d.xs {
			g := gradient{X: x.name, None: true, Sparse: x.sparse}
			if t := grads[x.name]; t != nil {
				a, err := arrayOf(t)
				if err != nil {
					return err
				}
				g.None, g.array = false, &a
			}
			document.Gradients = append(document.Gradients, g)
		}
		if err := printJSON(command, document); err != nil {
			return err
		}
	} else {
		for _, x := range d.xs {
			line := "none"
			if t := grads[x.name]; t != nil {
				line = fmt.Sprintf("%s  %s", t, brief(t))
			}
			if _, err := fmt.Fprintf(command.OutOrStdout(), "%s: %s\n", x.name, line); err != nil {
				return err
			}
		}
		for _, c := range checks {
			if _, err := fmt.Fprintln(command.OutOrStdout(), c); err != nil {
				return err
			}
		}
		if o.out != "" {
			fmt.Fprintf(command.ErrOrStderr(), "saved in %s\n", o.out)
		}
	}
	if bad {
		return errReported
	}
	return nil
}
