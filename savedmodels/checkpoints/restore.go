package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

// RestoreOptions are the settings of [Restore].
type RestoreOptions struct {
	// Variables are those to restore; nil: all of the graph but those in
	// LOCAL_VARIABLES.
	Variables []*ops.Variable
	// Map tells which of the checkpoint's names become which of the graph's, as
	// the assignment map of Python's init_from_checkpoint: "old/w": "net/w" is
	// one tensor for one variable, "old/": "net/" everything below a scope, and
	// "/" is the root. The longest scope counts, and a name before a scope.
	// Variables that nothing of the map speaks of are not restored. nil: each
	// variable under its own name.
	Map map[string]string
	// AllowMissing leaves variables that the checkpoint does not have as they
	// are, and reports them; otherwise they are an error.
	AllowMissing bool
}

// Report tells what a restore did.
type Report struct {
	Prefix  string   // of the checkpoint
	Matched []Match  // in the order of the variables
	Missing []string // names of variables that the checkpoint does not have
	Unused  []string // names in the checkpoint that no variable took, sorted
}

// Match is a variable and the key of the tensor that it was given.
type Match struct {
	Variable *ops.Variable
	Key      string
}

// String is "3 of 4 variables restored from run/model-100; missing: …; unused: …".
func (r Report) String() string {
	s := fmt.Sprintf("%d of %d variables restored from %s", len(r.Matched), len(r.Matched)+len(r.Missing), r.Prefix)
	if len(r.Missing) > 0 {
		s += "; missing: " + someOf(r.Missing)
	}
	if len(r.Unused) > 0 {
		s += "; unused: " + someOf(r.Unused)
	}
	return s
}

// Restore gives variables of the session's graph the values that a checkpoint
// has. path is what [Open] takes. Names are found as [Reader.Find] does, so that
// checkpoints of tf.train.Checkpoint and Keras can be read by Python's names of
// the variables, or by the paths of objects with a Map.
//
// Everything is read and checked before the first variable changes, and all
// change in one run: after an error none has. Variables of other data types or
// shapes than the checkpoint's are all named in one error. That takes memory for
// a second copy of the values until it is done, and nothing limits their size: a
// variable of more than 2 GB is restored like any other.
//
// The graph gets two operations a variable, the first time. sess must be a
// session of g.
func Restore(ctx context.Context, g *ops.Graph, sess *bridge.Session, path string, o RestoreOptions) (Report, error) {
	if err := checkPair(g, sess); err != nil {
		return Report{}, err
	}
	r, err := Open(path)
	if err != nil {
		return Report{}, err
	}
	defer r.Close()
	return r.restore(ctx, g, sess, o)
}

func checkPair(g *ops.Graph, sess *bridge.Session) error {
	if err := g.Err(); err != nil {
		return err
	}
	if sess == nil || sess.Graph() != g.TF() {
		return bridge.Errorf(bridge.InvalidArgument, "checkpoints", "the session is not one of the graph")
	}
	return nil
}

// plan is what a restore will do.
type plan struct {
	report  Report
	entries []*Entry // of report.Matched
}

func (r *Reader) restore(ctx context.Context, g *ops.Graph, sess *bridge.Session, o RestoreOptions) (Report, error) {
	p, err := r.plan(g, o)
	if err != nil {
		return Report{}, err
	}
	if len(p.entries) == 0 {
		return p.report, nil
	}
	call := bridge.Call{}
	values := make([]*bridge.Tensor, 0, len(p.entries))
	defer func() {
		for _, t := range values {
			_ = t.Close()
		}
	}()
	for _, e := range p.entries {
		if ctx.Err() != nil {
			return Report{}, bridge.Errorf(bridge.Canceled, "checkpoints.Restore", "stopped: %w", ctx.Err())
		}
		t, err := r.read(e)
		if err != nil {
			return Report{}, err
		}
		values = append(values, t)
	}
	for _, m := range p.report.Matched {
		value, assign, err := assignment(m.Variable)
		if err != nil {
			return Report{}, err
		}
		call.Feeds, call.Targets = append(call.Feeds, value), append(call.Targets, assign)
	}
	if _, err := sess.Call(ctx, call, values...); err != nil {
		return Report{}, err
	}
	return p.report, nil
}

// plan finds each variable's tensor and checks that it fits.
func (r *Reader) plan(g *ops.Graph, o RestoreOptions) (*plan, error) {
	const op = "checkpoints.Restore"
	variables, err := chosen(g, o.Variables)
	if err != nil {
		return nil, err
	}
	wanted, err := mapped(variables, o.Map)
	if err != nil {
		return nil, err
	}
	p := &plan{report: Report{Prefix: r.prefix}}
	used := map[string]bool{}
	var misfits []string
	var hints []string
	for i, v := range variables {
		if wanted[i] == "" {
			continue
		}
		e, err := r.find(wanted[i])
		if errors.Is(err, bridge.ErrNotFound) {
			p.report.Missing = append(p.report.Missing, v.Name())
			hints = append(hints, wanted[i])
			continue
		}
		if err != nil {
			return nil, err
		}
		used[e.Key] = true
		if e.DType != v.DType() || !e.Shape.Equal(v.Shape()) {
			misfits = append(misfits, fmt.Sprintf("%v: the checkpoint's %s is %s %v", v, e.Name, bridge.DTypeName(e.DType), e.Shape))
			continue
		}
		p.report.Matched = append(p.report.Matched, Match{v, e.Key})
		p.entries = append(p.entries, e)
	}
	if len(misfits) > 0 {
		return nil, bridge.Errorf(bridge.InvalidArgument, op, "%s: %d variables don't fit: %s", r.prefix, len(misfits), strings.Join(misfits, "; "))
	}
	if len(p.report.Missing) > 0 && !o.AllowMissing {
		return nil, bridge.Errorf(bridge.NotFound, op, "%s does not have %d of %d variables: %s; %s; RestoreOptions.AllowMissing leaves them as they are",
			r.prefix, len(p.report.Missing), len(p.report.Missing)+len(p.entries), someOf(p.report.Missing), nearest(hints[0], r.allNames()))
	}
	for _, e := range r.entries {
		if !used[e.Key] && e.Key != objectGraphKey {
			p.report.Unused = append(p.report.Unused, e.Name)
		}
	}
	return p, nil
}

// chosen are the given variables, or all that checkpoints are made of.
func chosen(g *ops.Graph, given []*ops.Variable) ([]*ops.Variable, error) {
	variables := given
	if variables == nil {
		local, err := ops.CollectionOf[*ops.Variable](g, ops.LocalVariables, "")
		if err != nil {
			return nil, err
		}
		variables = slices.DeleteFunc(g.Variables(), func(v *ops.Variable) bool { return slices.Contains(local, v) })
	}
	seen := map[*ops.Variable]bool{}
	for i, v := range variables {
		switch {
		case v == nil || v.Graph() != g:
			return nil, bridge.Errorf(bridge.InvalidArgument, "checkpoints", "variable %d of %d, %v, is not one of the graph", i, len(variables), v)
		case seen[v]:
			return nil, bridge.Errorf(bridge.InvalidArgument, "checkpoints", "variable %q is given twice", v.Name())
		}
		seen[v] = true
	}
	return variables, nil
}

// mapped is, for each variable, the name that it has in the checkpoint; "" for
// one that is not asked for.
func mapped(variables []*ops.Variable, assignments map[string]string) ([]string, error) {
	const op = "checkpoints.Restore"
	wanted := make([]string, len(variables))
	if assignments == nil {
		for i, v := range variables {
			wanted[i] = v.Name()
		}
		return wanted, nil
	}
	sources := map[string]string{} // by the graph's name
	for _, from := range slices.Sorted(maps.Keys(assignments)) {
		to := assignments[from]
		switch {
		case from == "" || to == "":
			return nil, bridge.Errorf(bridge.InvalidArgument, op, "Map has %q: %q; a name is missing (\"/\" is the root)", from, to)
		case strings.HasSuffix(from, "/") != strings.HasSuffix(to, "/"):
			return nil, bridge.Errorf(bridge.InvalidArgument, op, "Map has %q: %q; either both are scopes, which end in a slash, or neither is", from, to)
		case sources[to] != "":
			return nil, bridge.Errorf(bridge.InvalidArgument, op, "Map has two sources for %q: %q and %q", to, sources[to], from)
		}
		sources[to] = from
	}
	taken := map[string]bool{}
	for i, v := range variables {
		name := v.Name()
		if from := sources[name]; from != "" {
			wanted[i], taken[name] = from, true
			continue
		}
		for end := strings.LastIndexByte(name, '/'); ; end = strings.LastIndexByte(name[:end], '/') {
			scope := name[:end+1] // of the root: ""
			key := scope
			if scope == "" {
				key = "/"
			}
			if from := sources[key]; from != "" {
				wanted[i], taken[key] = strings.TrimPrefix(from, "/")+name[len(scope):], true
				break
			}
			if end < 0 {
				break
			}
		}
	}
	var idle []string
	for to, from := range sources {
		if !taken[to] {
			idle = append(idle, fmt.Sprintf("%q: %q", from, to))
		}
	}
	if len(idle) > 0 {
		slices.Sort(idle)
		names := make([]string, len(variables))
		for i, v := range variables {
			names[i] = v.Name()
		}
		return nil, bridge.Errorf(bridge.NotFound, op, "Map has %s, for which there is no variable; have %s", strings.Join(idle, ", "), someOf(names))
	}
	return wanted, nil
}

// assigning guards the look for a variable's assignment and the adding of it.
var assigning sync.Mutex

// assignment finds or adds the operation that sets a variable to what is fed.
func assignment(v *ops.Variable) (value tf.Output, assign *tf.Operation, err error) {
	assigning.Lock()
	defer assigning.Unlock()
	g := v.Graph()
	dir := "restore/" + v.Name()
	if made := bridge.OperationByName(g.TF(), dir+"/Assign"); made != nil {
		value := bridge.Input(made, 1)
		if made.Type() == "AssignVariableOp" && bridge.SameOutput(bridge.Input(made, 0), v.Handle()) && value.Op.Type() == "Placeholder" {
			return value, made, nil
		}
	}
	scope := g.Root().Scope(dir)
	value = scope.Placeholder("value", v.DType(), v.Shape())
	assign = scope.Add(bridge.OpSpec{Type: "AssignVariableOp", Name: "Assign", Inputs: []tf.Input{v.Handle(), value}})
	return value, assign, g.Err()
}
