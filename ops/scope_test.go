package ops_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tensorflow/tensorflow/go/op"
	"github.com/galeone/tfgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

func noOp(s *ops.Scope, name string) string {
	o := s.Add(bridge.OpSpec{Type: "NoOp", Name: name})
	if o == nil {
		return fmt.Sprintf("error: %v", s.Err())
	}
	return o.Name()
}

// The expected names are those that Python 2.21's Graph.unique_name gives.
func TestNamesAreUniqueAsInPython(t *testing.T) {
	type step struct {
		scope bool // NameScope instead of a node
		name  string
		want  string
	}
	for name, steps := range map[string][]step{
		"repeated, other case, and composed names": {
			{name: "foo", want: "foo"}, {name: "foo", want: "foo_1"}, {name: "Foo", want: "Foo_2"},
			{name: "foo_1", want: "foo_1_1"}, {name: "foo", want: "foo_3"}, {scope: true, name: "foo", want: "foo_4"},
		},
		"a name scope reserves its name": {
			{scope: true, name: "a", want: "a"}, {name: "a", want: "a_1"}, {scope: true, name: "A", want: "A_2"},
		},
		"names with slashes": {
			{name: "a/b", want: "a/b"}, {name: "a/b", want: "a/b_1"}, {name: "a", want: "a"}, {name: "A/B", want: "A/B_2"},
		},
		"a suffix that is taken is passed over": {
			{name: "x_1", want: "x_1"}, {name: "x_2", want: "x_2"}, {name: "x", want: "x"}, {name: "x", want: "x_3"},
		},
		"a full name is taken as it is": {
			{scope: true, name: "n", want: "n"}, {name: "n/", want: "n"}, {name: "n", want: "n_1"}, {scope: true, name: "n/", want: "n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // deterministic
				g := ops.NewGraph(ops.GraphOptions{})
				for i, step := range steps {
					got := ""
					if step.scope {
						got = g.NameScope(step.name).Path()
					} else {
						got = noOp(g.Root(), step.name)
					}
					assert.Equal(t, step.want, got, "step %d: %q", i, step.name)
				}
				require.NoError(t, g.Err())
			}
		})
	}
}

func TestScopeIsADirectory(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	net := g.Scope("net")
	assert.Equal(t, "net", net.Path())
	assert.Equal(t, "net/x", noOp(net, "x"))
	assert.Equal(t, "net/x_1", noOp(g.Scope("net"), "x"), "opening it again goes on in it")
	assert.Equal(t, "net/a/b", net.Scope("a/b/").Path())
	assert.Equal(t, "net/a/b", g.Scope("net/a").Scope("b").Path())
	assert.Equal(t, "net_1", g.NameScope("net").Path(), "a name scope is a new one")
	assert.Equal(t, "net_2", noOp(g.Root(), "net"))
	require.NoError(t, g.Err())
}

func TestNamesAvoidImportedNodes(t *testing.T) {
	source := ops.NewGraph(ops.GraphOptions{})
	source.Scope("a").Const(float32(1))
	source.Scope("net").Scope("op").Const(float32(1))
	require.NoError(t, source.Err())
	def, err := bridge.GraphDef(source.TF())
	require.NoError(t, err)

	for name, prepare := range map[string]func(*testing.T) *ops.Graph{
		"imported before": func(t *testing.T) *ops.Graph {
			g := tf.NewGraph()
			require.NoError(t, g.Import(def, ""))
			return ops.FromTF(g, ops.GraphOptions{})
		},
		"imported while building": func(t *testing.T) *ops.Graph {
			g := ops.NewGraph(ops.GraphOptions{})
			noOp(g.Root(), "first")
			require.NoError(t, g.TF().Import(def, ""))
			return g
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := prepare(t)
			assert.Equal(t, "a/Const_1", g.Scope("a").Const(float32(2)).Op.Name())
			assert.Equal(t, "a/CONST_2", noOp(g.Scope("a"), "CONST"))
			assert.Equal(t, "net/op_1/Const", op.Const(g.Scope("net").Op(), float32(2)).Op.Name())
			require.NoError(t, g.Err())
		})
	}
}

func TestTfgoTheBindingAndOursMixWithoutCollision(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	net := g.Scope("net")
	x := g.Placeholder("x", tf.Float, ops.Shape{-1, 3})
	err := g.Build(func() error {
		for i := range 3 {
			w := net.Const([][]float32{{1, 2}, {3, 4}, {5, 6}})
			y := tfgo.NewTensor(net.Op(), x).MatMul(w).Square().Output
			y = op.Square(net.Op(), y)
			y = op.Square(net.Op(), y)
			y = ops.NewFormula(net, tf.Float).Square(y)
			y = tfgo.NewTensor(g.Op(), y).Add(op.Const(g.Op(), float32(i))).Output
			x = op.MatMul(net.Scope("back").Op(), y, op.Const(net.Op(), [][]float32{{1, 2, 3}, {4, 5, 6}}))
		}
		return nil
	})
	require.NoError(t, err)
	names := map[string]bool{}
	for o := range bridge.Operations(g.TF()) {
		assert.False(t, names[o.Name()], o.Name())
		names[o.Name()] = true
	}
	for _, name := range []string{"x", "net/Square", "net/op_1/Square", "net/back/op/MatMul"} {
		assert.Contains(t, names, name)
	}
}

func TestTheBindingsDirectoriesAreClosed(t *testing.T) {
	for name, use := range map[string]func(*ops.Graph){
		"Scope":     func(g *ops.Graph) { g.Scope("net").Scope("op") },
		"NameScope": func(g *ops.Graph) { g.NameScope("net/op/in") },
		"Add":       func(g *ops.Graph) { noOp(g.Root(), "net/op/Square") },
		"Variable":  func(g *ops.Graph) { g.Variable("net/op/w", ops.Shape{}, ops.Zeros()) },
	} {
		t.Run(name, func(t *testing.T) {
			g := ops.NewGraph(ops.GraphOptions{})
			op.Const(g.Scope("net").Op(), float32(1))
			use(g)
			require.ErrorContains(t, g.Err(), `"net/op" belongs to a scope that Op() gave`)
		})
	}
}

func TestScopeHandsOnDeviceAndControl(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	before := g.Group("before")
	s := g.Scope("s").WithDevice("/device:CPU:0").WithControl(before)
	x := s.Const(float32(1))
	ours := ops.NewFormula(s, tf.Float).Square(x)
	theirs := op.Square(s.Op(), x)
	require.NoError(t, g.Err())
	for _, out := range []tf.Output{ours, theirs} {
		assert.Equal(t, "/device:CPU:0", out.Op.Device())
		controls := bridge.ControlInputs(out.Op)
		require.Len(t, controls, 1)
		assert.Equal(t, "before", controls[0].Name())
	}
	assert.Empty(t, bridge.ControlInputs(x.Op), "a constant waits for nothing")
	free := ops.NewFormula(s.WithoutControl().WithDevice(""), tf.Float).Square(x)
	assert.Empty(t, bridge.ControlInputs(free.Op))
	assert.Empty(t, free.Op.Device())
}

func TestErrorsStickAndNameTheCallersLine(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	net := g.Scope("net")
	f := ops.NewFormula(net, tf.Float)
	a, b := net.Const([]float32{1, 2}), net.Const([]float32{1, 2, 3})
	bad := f.Add(a, b)
	require.Nil(t, bad.Op)
	later := f.Square(bad)
	require.Nil(t, later.Op)
	nodes := bridge.NumOperations(g.TF())
	f.Square(a)
	assert.Equal(t, nodes, bridge.NumOperations(g.TF()), "nothing is added after an error")

	err := g.Err()
	var build *ops.BuildError
	require.ErrorAs(t, err, &build)
	assert.Equal(t, "AddV2", build.Op)
	assert.Equal(t, "net", build.Scope)
	assert.Equal(t, "ops/scope_test.go", build.File)
	assert.Positive(t, build.Line)
	assert.Equal(t, 1, strings.Count(err.Error(), "scope_test.go"))
	assert.Equal(t, 1, strings.Count(err.Error(), "net/AddV2 (AddV2): "), "the operation is named once: %v", err)
	assert.Same(t, err, g.Err())
	require.ErrorIs(t, err, bridge.ErrInvalidArgument)
}

func TestErrorsOfTheBindingAreFoundAndCleaned(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	s := g.Scope("net").Op()
	op.MatMul(s, op.Const(s.SubScope("a"), []float32{1}), op.Const(s.SubScope("b"), []float32{2})) // this line is named
	err := g.Err()
	var build *ops.BuildError
	require.ErrorAs(t, err, &build)
	assert.Equal(t, "MatMul", build.Op)
	assert.Equal(t, "ops/scope_test.go", build.File)
	assert.NotContains(t, err.Error(), "goroutine")
	assert.NotContains(t, err.Error(), "Stacktrace")

	t.Run("and are the cause of what follows from them", func(t *testing.T) {
		g := ops.NewGraph(ops.GraphOptions{})
		s := g.Op()
		empty := op.MatMul(s, op.Const(s.SubScope("a"), []float32{1}), op.Const(s.SubScope("b"), []float32{2}))
		ops.NewFormula(g.Root(), tf.Float).Square(empty)
		require.ErrorAs(t, g.Err(), &build)
		assert.Equal(t, "MatMul", build.Op)
	})
}

func TestBuildTurnsPanicsIntoErrors(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		f    func(*ops.Graph) error
		want string
	}{
		"of tfgo": {func(g *ops.Graph) error {
			tfgo.NewTensor(g.Op(), g.Const([]float32{1})).MatMul(g.Const([]float32{1}))
			return nil
		}, "MatMul"},
		"of a nil output": {func(g *ops.Graph) error { _ = tf.Output{}.DataType(); return nil }, "panic"},
		"of the user":     {func(*ops.Graph) error { panic(boom) }, "boom"},
		"an error":        {func(*ops.Graph) error { return boom }, "boom"},
		"a sticky error": {func(g *ops.Graph) error {
			g.Fail(boom)
			return nil
		}, "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			g := ops.NewGraph(ops.GraphOptions{})
			err := g.Build(func() error { return c.f(g) })
			require.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "goroutine")
			require.Error(t, g.Build(nil))
		})
	}
	require.NoError(t, ops.NewGraph(ops.GraphOptions{}).Build(func() error { return nil }))
	g := ops.NewGraph(ops.GraphOptions{})
	require.ErrorIs(t, g.Build(func() error { panic(boom) }), boom)
}

func TestBuildingFromManyGoroutines(t *testing.T) {
	g := ops.NewGraph(ops.GraphOptions{})
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for range 25 {
				s := g.Scope("s")
				x := s.Const([]float32{1, 2})
				ops.NewFormula(s, tf.Float).Square(x)
				op.Square(s.Op(), x)
			}
			g.Scope("s").Variable(fmt.Sprintf("w%d", i), ops.Shape{3}, ops.GlorotUniform())
			g.GlobalStep()
			g.Init()
		})
	}
	wait.Wait()
	require.NoError(t, g.Err())
	assert.Len(t, g.Variables(), 9)
}

func TestWhatDoesNotFitIsAnError(t *testing.T) {
	other := ops.NewGraph(ops.GraphOptions{})
	foreign := other.Const(float32(1))
	for name, use := range map[string]func(*ops.Graph){
		"an empty name scope":         func(g *ops.Graph) { g.NameScope("") },
		"an empty scope":              func(g *ops.Graph) { g.Scope("") },
		"a space in a name":           func(g *ops.Graph) { noOp(g.Root(), "a b") },
		"a NUL in a name":             func(g *ops.Graph) { noOp(g.Root(), "a\x00b") },
		"an underscore first":         func(g *ops.Graph) { noOp(g.Root(), "_a") },
		"an empty part":               func(g *ops.Graph) { noOp(g.Root(), "a//b") },
		"a slash first":               func(g *ops.Graph) { noOp(g.Root(), "/a") },
		"a full name that is taken":   func(g *ops.Graph) { noOp(g.Root(), "a"); noOp(g.Root(), "a/") },
		"a zero output":               func(g *ops.Graph) { ops.NewFormula(g.Root(), tf.Float).Square(tf.Output{}) },
		"a tensor of another graph":   func(g *ops.Graph) { ops.NewFormula(g.Root(), tf.Float).Square(foreign) },
		"an unknown operation":        func(g *ops.Graph) { g.Add(bridge.OpSpec{Type: "Nonsense"}) },
		"no operation type":           func(g *ops.Graph) { g.Add(bridge.OpSpec{}) },
		"a nil control operation":     func(g *ops.Graph) { g.WithControl(nil) },
		"a foreign control operation": func(g *ops.Graph) { g.Group("all", foreign.Op) },
		"a bad device":                func(g *ops.Graph) { noOp(g.WithDevice("nowhere"), "a") },
		"a nil constant":              func(g *ops.Graph) { g.Const(nil) },
		"a nil tensor":                func(g *ops.Graph) { g.Const((*bridge.Tensor)(nil)) },
		"a nil binding tensor":        func(g *ops.Graph) { g.Const((*tf.Tensor)(nil)) },
		"a ragged constant":           func(g *ops.Graph) { g.Const([][]float32{{1}, {1, 2}}) },
		"a struct":                    func(g *ops.Graph) { g.Const(struct{}{}) },
		"too few elements":            func(g *ops.Graph) { ops.Const(g.Root(), ops.Shape{3}, []float32{1}) },
		"half an integer":             func(g *ops.Graph) { ops.Number(g.Root(), tf.Int32, 0.5) },
		"a placeholder of a bad size": func(g *ops.Graph) { g.Placeholder("x", tf.Float, ops.Shape{-7}) },
		"a dtype that is none":        func(g *ops.Graph) { g.Placeholder("x", tf.DataType(99), nil) },
		"the zero hyperparameter":     func(g *ops.Graph) { ops.At(g.Root(), nil, tf.Float) },
		"nothing fed":                 func(g *ops.Graph) { ops.At(g.Root(), ops.Fed(tf.Output{}), tf.Float) },
		"a nil collection item":       func(g *ops.Graph) { g.AddToCollection("k", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			g := ops.NewGraph(ops.GraphOptions{})
			use(g)
			err := g.Err()
			require.Error(t, err)
			assert.Contains(t, err.Error(), "ops/scope_test.go:", "the caller's line")
		})
	}
	require.Error(t, ops.FromTF(nil, ops.GraphOptions{}).Err())
}

func TestNilScopesGiveNothing(t *testing.T) {
	for name, s := range map[string]*ops.Scope{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, s.Err())
			s.Fail(errors.New("x"))
			assert.Empty(t, s.Path())
			assert.Empty(t, s.Device())
			assert.Nil(t, s.Graph())
			assert.Nil(t, s.TF())
			assert.Nil(t, s.Scope("a").NameScope("b").WithDevice("/cpu:0").WithControl(nil).WithoutControl().Add(bridge.OpSpec{Type: "NoOp"}))
			assert.Nil(t, s.Group("a"))
			assert.Nil(t, s.Placeholder("x", tf.Float, nil).Op)
			assert.Nil(t, s.PlaceholderWithDefault("x", tf.Output{}, nil).Op)
			assert.Nil(t, s.Const(1).Op)
			assert.Nil(t, ops.Const(s, nil, []float32{1}).Op)
			assert.Nil(t, ops.Number(s, tf.Float, 1).Op)
			assert.Nil(t, ops.Cast(s, tf.Output{}, tf.Float).Op)
			assert.Nil(t, ops.At(s, ops.Fixed(1), tf.Float).Op)
			assert.Nil(t, ops.StatelessNormal(s, ops.Shape{1}, tf.Float, ops.Draw{}).Op)
			assert.Nil(t, ops.NewFormula(s, tf.Float).Constant(1).Op)
			assert.Nil(t, ops.Formula{}.Square(tf.Output{}).Op)
			assert.Nil(t, ops.HeNormal()(s, "w", ops.Shape{1}, tf.Float).Op)
			v := s.Variable("w", ops.Shape{}, ops.Zeros())
			assert.Nil(t, v.Value().Op)
			assert.Nil(t, v.Read(s).Op)
			require.Error(t, s.Op().Err())
		})
	}
}

func FuzzNames(f *testing.F) {
	for _, seed := range []string{"", "a", "a/b", "a//b", "/", "_x", "a b", "\x00", "foo_1", "é", "net/", ".", "a>b", `a\b`, "-", strings.Repeat("x", 300)} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, scope, name string) {
		g := ops.NewGraph(ops.GraphOptions{})
		s := g.Scope(scope)
		first, second := s.Add(bridge.OpSpec{Type: "NoOp", Name: name}), s.Add(bridge.OpSpec{Type: "NoOp", Name: name})
		s.NameScope(name)
		s.Variable(name, ops.Shape{2}, ops.Ones())
		s.Op()
		if first == nil || second == nil {
			require.Error(t, g.Err())
			return
		}
		assert.NotEqual(t, first.Name(), second.Name())
		assert.NoError(t, bridge.CheckName(first.Name()))
		assert.NoError(t, bridge.CheckName(second.Name()))
	})
}
