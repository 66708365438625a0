package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// wantedOps lists the operations whose gradient Sluice aims at: those that
// Python differentiates, that have a CPU kernel, and that a graph of today can
// hold.
//
//go:embed wanted.txt
var wantedOps string

func init() { register("gradients", gradientSection) }

// A gradientCase is one graph of graphcases.py.
type gradientCase struct {
	Name, Op, Graph string
	Why             string  // why ours is computed in other steps than Python's
	Loose           float64 // how far it may be from Python's for that; 0: 1e-5
	Init            []string
	Numeric         string // why central differences are expected, not Python's gradient
	Refused         string // Python's error, where asking for this gradient is one
	Feeds, Ws       []namedArray
	Xs, Vs          []string
	Ys              []namedArray
	G, G2           []*expectedGradient // nil: Python gives None
	SecondMissing   string              `json:"second_missing"`
	// Python's gradient beside a central difference in a random direction: its
	// relative error, and how large that may be. Rough is why there is none.
	Slope      *float64
	SlopeBound float64 `json:"slope_bound"`
	Rough      string
}

// hasSecond is whether Python gives any second gradient.
func (c *gradientCase) hasSecond() bool {
	return slices.ContainsFunc(c.G2, func(g *expectedGradient) bool { return g != nil })
}

type namedArray struct {
	Name  string
	Array Array
}

type expectedGradient struct {
	Sparse bool // Python gives IndexedSlices
	Array  Array
}

// opReport is an operation's entry in the report.
type opReport struct {
	Cases int     `json:"cases"`
	Worst float64 `json:"worst"` // relative error of the 32- and 64-bit cases
	// ByDType is the worst relative error of each dtype compared.
	ByDType map[string]float64 `json:"worst_by_dtype,omitempty"`
	OK      bool               `json:"ok"`
	// Refused counts the cases in which Python's gradient is an error, and ours.
	Refused int `json:"refused,omitempty"`
	// Second is "yes" where second gradients were compared, "none" where
	// Python's are all None, "no" where Python can't.
	Second      string `json:"second_order,omitempty"`
	SecondCases int    `json:"second_order_cases,omitempty"`
	// Slopes is how many cases were held against central differences, Slope the
	// worst relative error of these; Rough is why some were not.
	Slopes int     `json:"numeric_cases,omitempty"`
	Slope  float64 `json:"numeric_worst,omitempty"`
	Rough  string  `json:"numeric_left_out,omitempty"`
	// Loose is why 32-bit results are held to 1e-5: ours takes other steps.
	Loose string `json:"loose,omitempty"`
	// Differs is where Python's gradient is wrong, and central differences of
	// its forward values are what ours was held against.
	Differs string `json:"differs,omitempty"`
}

func gradientSection(ctx context.Context, h *Harness) (Result, error) {
	var result Result
	rec, err := h.Python(ctx, "gradients")
	if err != nil {
		return result, err
	}
	defer rec.Close()
	var doc struct {
		Cases  []gradientCase
		Errors []struct{ Name, Op, Error string }
	}
	if err := rec.Document(&doc); err != nil {
		return result, err
	}
	ops := map[string]*opReport{}
	unregistered := map[string]bool{}
	for i, c := range doc.Cases {
		if ctx.Err() != nil {
			return result, ctx.Err()
		}
		h.Progress.At("cases", i, len(doc.Cases))
		if _, known := gradients.Lookup(c.Op); !known && c.Refused == "" {
			unregistered[c.Op] = true
			continue
		}
		report := ops[c.Op]
		if report == nil {
			report = &opReport{OK: true, ByDType: map[string]float64{}}
			ops[c.Op] = report
		}
		result.Cases++
		report.Cases++
		worst, second, err := c.check(ctx, rec)
		switch {
		case second && c.hasSecond():
			report.Second = "yes"
			report.SecondCases++
		case second && report.Second != "yes":
			report.Second = "none"
		case c.SecondMissing != "" && report.Second == "":
			report.Second = "no"
		}
		if c.Refused != "" {
			report.Refused++
		}
		if c.Rough != "" {
			report.Rough = c.Rough
		}
		if c.Slope != nil {
			report.Slopes++
			report.Slope = max(report.Slope, *c.Slope)
			if !(*c.Slope <= c.SlopeBound) {
				err = errors.Join(err, fmt.Errorf("central differences are a relative %.2g away, at most %.2g", *c.Slope, c.SlopeBound))
			}
		}
		for dtype, rel := range worst {
			if math.IsInf(rel, 0) || math.IsNaN(rel) {
				rel = math.MaxFloat32 // JSON has no infinity
			}
			report.ByDType[dtype] = max(report.ByDType[dtype], rel)
			if tolerances[dtype] <= 1e-6 {
				report.Worst = max(report.Worst, rel)
			}
		}
		if c.Why != "" {
			report.Loose = c.Why
		}
		if c.Numeric != "" {
			report.Differs = c.Numeric
		}
		if err != nil {
			report.OK = false
			result.Failures = append(result.Failures, c.Name+": "+err.Error())
		}
	}
	for _, e := range doc.Errors {
		result.Failures = append(result.Failures, e.Name+": "+e.Error)
		if report := ops[e.Op]; report != nil {
			report.OK = false
		}
	}

	wanted := strings.Fields(wantedOps)
	failing, untested, verified := []string{}, []string{}, 0
	for name, report := range ops {
		switch {
		case !report.OK:
			failing = append(failing, name)
		case slices.Contains(wanted, name):
			verified++
		}
	}
	for _, name := range gradients.Registered() {
		if ops[name] == nil {
			untested = append(untested, name)
		}
	}
	var missing []string
	for _, name := range wanted {
		if ops[name] == nil {
			missing = append(missing, name)
		}
	}
	slices.Sort(failing)
	result.Report = map[string]any{
		"wanted": len(wanted), "verified": verified, "failing": failing,
		"missing": missing, "ops": ops,
	}
	if h.Filter == nil {
		result.Notes = append(result.Notes, fmt.Sprintf("%d of %d wanted operations verified", verified, len(wanted)))
		// A gradient that nothing checks is not trusted. What Python can't
		// differentiate, or a graph of today can't hold, is left to the tests
		// beside the gradients.
		var beyond []string
		for name, report := range ops {
			if report.Slopes == 0 && report.Rough == "" && report.Differs == "" && report.Cases > report.Refused {
				result.Failures = append(result.Failures, name+": nothing was held against central differences, and no case says why")
			}
		}
		for _, name := range untested {
			if slices.Contains(wanted, name) {
				result.Failures = append(result.Failures, name+": registered, but it has no case")
			} else {
				beyond = append(beyond, name)
			}
		}
		if len(beyond) > 0 {
			result.Notes = append(result.Notes, "registered beyond Python's: "+strings.Join(beyond, " "))
		}
	}
	return result, nil
}

// check makes the comparison: the worst relative error by dtype, whether the
// second gradient was compared too, and what is wrong.
func (c *gradientCase) check(ctx context.Context, rec *Recording) (worst map[string]float64, second bool, err error) {
	worst = map[string]float64{}
	graph := tf.NewGraph()
	def, err := rec.File(c.Graph)
	if err != nil {
		return nil, false, err
	}
	if err := graph.Import(def, ""); err != nil {
		return nil, false, fmt.Errorf("importing: %w", err)
	}
	xs, err := outputs(graph, c.Xs)
	if err != nil {
		return nil, false, err
	}
	ys, err := outputs(graph, names(c.Ys))
	if err != nil {
		return nil, false, err
	}
	vs, err := outputs(graph, c.Vs)
	if err != nil {
		return nil, false, err
	}
	gradYs := make([]gradients.Gradient, len(vs))
	for i, v := range vs {
		gradYs[i].Dense = v
	}
	before := bridge.NumOperations(graph)
	s := &scope{graph: graph}
	got, err := gradients.Compute(s, ys, gradYs, xs, gradients.Options{})
	if c.Refused != "" {
		switch {
		case err == nil:
			return nil, false, fmt.Errorf("gave a gradient where Python refuses (%s)", c.Refused)
		case bridge.NumOperations(graph) != before:
			return nil, false, fmt.Errorf("added %d nodes before it refused", bridge.NumOperations(graph)-before)
		}
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}

	fetches := slices.Clone(ys)
	type expectation struct {
		what   string
		want   Array
		second bool
	}
	var expected []expectation
	for i, y := range c.Ys {
		expected = append(expected, expectation{"y" + strconv.Itoa(i), y.Array, false})
	}
	compare := func(order string, got []gradients.Gradient, want []*expectedGradient, kind bool) error {
		for i, w := range want {
			what := fmt.Sprintf("%s gradient by %s", order, c.Xs[i])
			switch g := got[i]; {
			case w == nil && !g.IsNone():
				return fmt.Errorf("%s: Python gives None, ours is a value", what)
			case w == nil:
			case g.IsNone() && order == "second" && rec.zeros(w.Array):
				// Zeros that Python works out, where ours knows that there is
				// nothing.
			case g.IsNone():
				return fmt.Errorf("%s: none, Python gives a value", what)
			case kind && g.IsSparse() != w.Sparse:
				return fmt.Errorf("%s: IndexedSlices is %t, Python's is %t", what, g.IsSparse(), w.Sparse)
			default:
				// A gradient may be the fed gradient of y itself, and a
				// session does not fetch what it is fed.
				fetches = append(fetches, raw.Identity(s, gradients.Densify(s, g)))
				expected = append(expected, expectation{what, w.Array, order == "second"})
			}
		}
		return s.err
	}
	if err := compare("first", got, c.G, true); err != nil {
		return nil, false, err
	}
	if c.G2 != nil {
		second = true
		ws, err := outputs(graph, names(c.Ws))
		if err != nil {
			return nil, second, err
		}
		var firsts []tf.Output
		var gradFirsts []gradients.Gradient
		for i, g := range got {
			if !g.IsNone() {
				firsts = append(firsts, gradients.Densify(s, g))
				gradFirsts = append(gradFirsts, gradients.Gradient{Dense: ws[i]})
			}
		}
		got2, err := gradients.Compute(s, firsts, gradFirsts, xs, gradients.Options{})
		if err != nil {
			return nil, second, fmt.Errorf("second gradient: %w", err)
		}
		if err := compare("second", got2, c.G2, false); err != nil {
			return nil, second, err
		}
	}

	session, err := bridge.NewSession(graph, bridge.Config{IntraOpThreads: 1, InterOpThreads: 1})
	if err != nil {
		return nil, second, err
	}
	defer session.Close()
	for _, name := range c.Init {
		if err := session.Run(ctx, graph.Operation(name)); err != nil {
			return nil, second, fmt.Errorf("initializing: %w", err)
		}
	}
	call := bridge.Call{Fetches: fetches}
	var feeds []*bridge.Tensor
	defer func() {
		for _, t := range feeds {
			t.Close()
		}
	}()
	for _, f := range append(slices.Clone(c.Feeds), c.Ws...) {
		out, err := outputs(graph, []string{f.Name})
		if err != nil {
			return nil, second, err
		}
		t, err := rec.Tensor(f.Array)
		if err != nil {
			return nil, second, fmt.Errorf("feed %s: %w", f.Name, err)
		}
		call.Feeds = append(call.Feeds, out...)
		feeds = append(feeds, t)
	}
	results, err := session.Call(ctx, call, feeds...)
	if err != nil {
		return nil, second, fmt.Errorf("running: %w", err)
	}
	defer func() {
		for _, t := range results {
			t.Close()
		}
	}()
	loose := 0.0
	if c.Why != "" {
		loose = cmp.Or(c.Loose, 1e-5)
	}
	var wrong []string
	for i, e := range expected {
		rel, err := rec.Compare(results[i], e.want)
		worst[e.want.DType] = max(worst[e.want.DType], rel)
		bound := tolerance(e.want.DType, loose)
		if c.Numeric != "" {
			bound = c.SlopeBound // the precision of central differences
		}
		if e.second && bridge.DTypeSize(results[i].DType()) == 2 {
			bound *= 3 // 16-bit roundings add up over twice the operations
		}
		switch {
		case err != nil:
			wrong = append(wrong, e.what+": "+err.Error())
		case !(rel <= bound):
			wrong = append(wrong, fmt.Sprintf("%s: relative error %.2g, at most %.2g", e.what, rel, bound))
		}
	}
	if len(wrong) > 0 {
		return worst, second, fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return worst, second, nil
}

func names(list []namedArray) []string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = n.Name
	}
	return out
}

// outputs finds tensors by Python's names, "node:0".
func outputs(g *tf.Graph, names []string) ([]tf.Output, error) {
	out := make([]tf.Output, len(names))
	for i, name := range names {
		node, index, _ := strings.Cut(name, ":")
		n, err := strconv.Atoi(index)
		if err != nil {
			return nil, fmt.Errorf("%q is no tensor's name", name)
		}
		op := g.Operation(node)
		if op == nil {
			return nil, fmt.Errorf("the graph has no node %q", node)
		}
		out[i] = op.Output(n)
	}
	return out, nil
}

// scope is the least that gradients.Compute needs: a name prefix in a graph.
type scope struct {
	graph  *tf.Graph
	prefix string
	device string
	err    error
	parent *scope
	counts map[string]int
}

func (s *scope) root() *scope {
	for s.parent != nil {
		s = s.parent
	}
	if s.counts == nil {
		s.counts = map[string]int{}
	}
	return s
}

func (s *scope) unique(name string) string {
	counts := s.root().counts
	full := s.prefix + name
	for n := counts[full]; ; n++ {
		candidate := full
		if n > 0 {
			candidate = fmt.Sprintf("%s_%d", full, n)
		}
		if s.graph.Operation(candidate) == nil && (n > 0 || counts[full] == 0) {
			counts[full] = n + 1
			return candidate
		}
	}
}

func (s *scope) Add(spec bridge.OpSpec) *tf.Operation {
	if s.root().err != nil {
		return nil
	}
	name := spec.Name
	if name == "" {
		name = spec.Type
	}
	spec.Name = s.unique(name)
	if spec.Device == "" {
		spec.Device = s.device
	}
	op, err := bridge.AddOperation(s.graph, spec)
	if err != nil {
		s.Fail(err)
		return nil
	}
	return op
}

func (s *scope) Err() error { return s.root().err }
func (s *scope) Fail(err error) {
	if root := s.root(); root.err == nil {
		root.err = err
	}
}
func (s *scope) TF() *tf.Graph { return s.graph }
func (s *scope) Sub(name string) gradients.Scope {
	return &scope{graph: s.graph, prefix: s.unique(name) + "/", device: s.device, parent: s.root()}
}
func (s *scope) On(device string) gradients.Scope {
	if device == "" {
		return s
	}
	return &scope{graph: s.graph, prefix: s.prefix, device: device, parent: s.root()}
}
