package optimizers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

// Memory takes what variables are in a session into the program's memory, and
// puts it back. With the trained variables and [Optimizer.State] it is all that
// a training consists of: one that goes on from there is the uninterrupted one,
// bit for bit.
//
//	memory, err := optimizers.NewMemory(append(g.Trainable(), adam.State(g)...)...)
//	best, err := memory.Save(ctx, sess)
//	…
//	err = memory.Restore(ctx, sess, best)
type Memory struct {
	vars   []*ops.Variable
	values []tf.Output // placeholders
	set    *tf.Operation
	init   *tf.Operation
}

// Snapshot is what the variables of a [Memory] were at one moment, by name. It
// is to be closed.
type Snapshot struct{ tensors map[string]*bridge.Tensor }

// NewMemory is a [Memory] of variables of one graph, to which it adds what
// assigns them.
func NewMemory(vars ...*ops.Variable) (*Memory, error) {
	if len(vars) == 0 {
		return nil, errors.New("memory: there are no variables")
	}
	g := vars[0].Graph()
	seen := map[*ops.Variable]bool{}
	for i, v := range vars {
		switch {
		case v == nil || v.Graph() == nil || v.Handle().Op == nil:
			return nil, fmt.Errorf("memory: variable %d of %d is nil, or in no graph", i, len(vars))
		case v.Graph() != g:
			return nil, fmt.Errorf("memory: variables %q and %q are in different graphs", vars[0].Name(), v.Name())
		case seen[v]:
			return nil, fmt.Errorf("memory: variable %q is listed twice", v.Name())
		}
		seen[v] = true
	}
	m := &Memory{vars: append([]*ops.Variable(nil), vars...)}
	err := g.Build(func() error {
		s := g.Root().NameScope("memory")
		var set, init operations
		for _, v := range vars {
			value := s.Placeholder("value", v.DType(), v.Shape())
			m.values = append(m.values, value)
			set.add(v.Assign(s, value))
			init.add(v.Initializer())
		}
		m.set, m.init = s.Group("set", set.list...), s.Group("reset", init.list...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Save reads all variables, as they are between two updates.
func (m *Memory) Save(ctx context.Context, sess *bridge.Session) (*Snapshot, error) {
	call := bridge.Call{Exclusive: true}
	for _, v := range m.vars {
		call.Fetches = append(call.Fetches, v.Value())
	}
	tensors, err := sess.Call(ctx, call)
	if err != nil {
		return nil, err
	}
	snapshot := &Snapshot{tensors: map[string]*bridge.Tensor{}}
	for i, v := range m.vars {
		snapshot.tensors[v.Name()] = tensors[i]
	}
	return snapshot, nil
}

// Restore sets all variables to what they were, in this session or another, of
// this graph or one with variables of the same names. Variables that the
// snapshot does not have, or has of another dtype or shape, are an error that
// lists them, before any is changed; what it has beyond them is left out.
func (m *Memory) Restore(ctx context.Context, sess *bridge.Session, from *Snapshot) error {
	if from == nil {
		return errors.New("restore: the snapshot is nil")
	}
	var wrong []string
	values := make([]*bridge.Tensor, len(m.vars))
	for i, v := range m.vars {
		t := from.tensors[v.Name()]
		switch {
		case t == nil:
			wrong = append(wrong, fmt.Sprintf("%q is not in it", v.Name()))
		case t.DType() != v.DType() || !t.Shape().Equal(v.Shape()):
			wrong = append(wrong, fmt.Sprintf("%q is %s %v in it, wanted %s %v", v.Name(),
				bridge.DTypeName(t.DType()), t.Shape(), bridge.DTypeName(v.DType()), v.Shape()))
		}
		values[i] = t
	}
	if len(wrong) > 0 {
		return fmt.Errorf("restore: the snapshot does not fit: %s", strings.Join(wrong, "; "))
	}
	_, err := sess.Call(ctx, bridge.Call{Feeds: m.values, Targets: []*tf.Operation{m.set}}, values...)
	return err
}

// Reset gives all variables their initial values: of [Optimizer.State] alone, it
// lets the optimizer forget all that it remembers.
func (m *Memory) Reset(ctx context.Context, sess *bridge.Session) error { return sess.Run(ctx, m.init) }

// Tensor is the value of a variable in the snapshot, which stays the snapshot's,
// and whether there is one.
func (s *Snapshot) Tensor(name string) (*bridge.Tensor, bool) {
	t, ok := s.tensors[name]
	return t, ok
}

// Close gives back the memory. It may be called again.
func (s *Snapshot) Close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for name, t := range s.tensors {
		errs = append(errs, t.Close())
		delete(s.tensors, name)
	}
	return errors.Join(errs...)
}
