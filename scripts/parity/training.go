package main

import (
	"context"
	"fmt"
	"math"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
)

// trainReport is an entry of the sections about training.
type trainReport struct {
	Cases int     `json:"cases"`
	Worst float64 `json:"worst"` // relative error
	OK    bool    `json:"ok"`
	// ByDType is the worst of each dtype, where there are several.
	ByDType map[string]float64 `json:"by_dtype,omitempty"`
	// Loose says why a bound is wider than that of the dtype.
	Loose string `json:"loose,omitempty"`
	// Refused are the cases that Python doesn't run.
	Refused []string `json:"refused_by_python,omitempty"`
}

// trainReports collects the entries by name.
type trainReports struct {
	result  Result
	entries map[string]*trainReport
}

func newTrainReports() *trainReports { return &trainReports{entries: map[string]*trainReport{}} }

// add counts a case of an entry. The case fails with err, or where worst is
// above the bound.
func (r *trainReports) add(entry, name string, worst, bound float64, err error) {
	e := r.entries[entry]
	if e == nil {
		e = &trainReport{OK: true}
		r.entries[entry] = e
	}
	e.Cases++
	r.result.Cases++
	if !math.IsInf(worst, 0) {
		e.Worst = max(e.Worst, worst)
	}
	if err == nil && !(worst <= bound) {
		err = fmt.Errorf("relative error %.2g, allowed %.2g", worst, bound)
	}
	if err != nil {
		e.OK = false
		r.result.Failures = append(r.result.Failures, entry+", "+name+": "+err.Error())
	}
}

// refused notes a case that Python does not run.
func (r *trainReports) refused(entry, name, why string) {
	e := r.entries[entry]
	if e == nil {
		e = &trainReport{OK: true}
		r.entries[entry] = e
	}
	e.Refused = append(e.Refused, name+": "+why)
}

func (r *trainReports) finish() Result {
	r.result.Report = r.entries
	return r.result
}

// optimizer is any optimizer of package optimizers.
type optimizer interface {
	optimizers.Rule
	ApplyGradients(grads []optimizers.Grad, before ...*tf.Operation) (*optimizers.TrainOp, error)
	Minimize(loss tf.Output, vars []*ops.Variable, opts ...optimizers.GradientOptions) (*optimizers.TrainOp, error)
	Slot(v *ops.Variable, name string) (*ops.Variable, bool)
}

// makeOptimizer is training.py's make.
func makeOptimizer(rule string, rate ops.Hyperparameter, dt tf.DataType) (optimizer, error) {
	mu, weightDecay, beta1, beta2 := 0.9, 0.1, 0.9, 0.999
	if dt == tf.Double {
		mu, weightDecay, beta1, beta2 = 0.875, 0.125, 0.875, 1-0x1p-10
	}
	descent := optimizers.NewGradientDescent(0)
	descent.Rate = rate
	momentum := optimizers.NewMomentum(0, mu, optimizers.V1)
	momentum.Rate = rate
	adam := optimizers.NewAdam(0)
	adam.Rate, adam.Beta1, adam.Beta2 = rate, optimizers.Value(beta1), optimizers.Value(beta2)
	switch rule {
	case "descent":
		return descent, nil
	case "momentum":
		return momentum, nil
	case "adam":
		return adam, nil
	case "decay":
		return optimizers.WeightDecay(adam, optimizers.Value(weightDecay)), nil
	}
	return nil, fmt.Errorf("no rule %q", rule)
}

// lab is a graph with a session, for sections that run one.
type lab struct {
	*ops.Graph
	rec     *Recording
	session *bridge.Session
}

func newLab(rec *Recording, seed int64) *lab {
	return &lab{Graph: ops.NewGraph(ops.GraphOptions{Seed: seed}), rec: rec}
}

// start opens the session and initializes the variables.
func (l *lab) start(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	session, err := bridge.NewSession(l.TF(), bridge.Config{})
	if err != nil {
		return err
	}
	l.session = session
	return session.Run(ctx, l.Init())
}

func (l *lab) close() {
	if l.session != nil {
		_ = l.session.Close()
	}
}

// constant is a recorded array as a constant, in another dtype where one is
// given.
func (l *lab) constant(a Array, dt tf.DataType) tf.Output {
	t, err := l.rec.Tensor(a)
	if err != nil {
		l.Fail(err)
		return tf.Output{}
	}
	defer func() { _ = t.Close() }()
	return ops.Cast(l.Root(), l.Const(t), dt)
}

// variable is a variable that starts as a recorded array.
func (l *lab) variable(name string, start Array, dt tf.DataType, trainable bool) *ops.Variable {
	return l.Variable(name, start.Shape, func(*ops.Scope, string, ops.Shape, tf.DataType) tf.Output {
		return l.constant(start, dt)
	}, ops.VariableOptions{DType: dt, NonTrainable: !trainable})
}

// bits are the values of variables as bytes, by name.
func (l *lab) bits(ctx context.Context, vars ...*ops.Variable) (map[string][]byte, error) {
	bits := map[string][]byte{}
	if len(vars) == 0 {
		return bits, nil
	}
	outs := make([]tf.Output, len(vars))
	for i, v := range vars {
		outs[i] = v.Value()
	}
	results, err := l.session.Call(ctx, bridge.Call{Fetches: outs})
	if err != nil {
		return nil, err
	}
	for i, t := range results {
		view, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		bits[vars[i].Name()] = append([]byte(nil), view...)
		_ = t.Close()
	}
	return bits, nil
}

// feed is a value for a placeholder.
type feed struct {
	to    tf.Output
	value *bridge.Tensor
}

// run runs one target with feeds, which it closes.
func (l *lab) run(ctx context.Context, target *tf.Operation, feeds ...feed) error {
	call := bridge.Call{Targets: []*tf.Operation{target}}
	var values []*bridge.Tensor
	for _, f := range feeds {
		call.Feeds, values = append(call.Feeds, f.to), append(values, f.value)
		defer func() { _ = f.value.Close() }()
	}
	_, err := l.session.Call(ctx, call, values...)
	return err
}

// scalar feeds a number.
func scalar(to tf.Output, v float64) (feed, error) {
	value, err := bridge.Scalar(v)
	return feed{to, value}, err
}

// placeholder is a float64 scalar that every run feeds.
func (l *lab) placeholder(name string) tf.Output {
	return l.Placeholder(name, tf.Double, ops.Shape{})
}

// sum is the sum of all elements of a matrix, mean their mean.
func sum(s *ops.Scope, t tf.Output) tf.Output {
	return raw.Sum(s, t, ops.Const(s, ops.Shape{2}, []int32{0, 1}))
}

func mean(s *ops.Scope, t tf.Output) tf.Output {
	return raw.Mean(s, t, ops.Const(s, ops.Shape{2}, []int32{0, 1}))
}
