package ops

import (
	"fmt"
	"sync"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/galeone/tensorflow/tensorflow/go/op"

	"github.com/sluice-ml/sluice/bridge"
)

// Shape is a static shape, [bridge.Shape]: nil for unknown rank, Shape{} for a
// scalar, -1 for a dimension known only in a run.
type Shape = bridge.Shape

// GraphOptions are the settings of a new graph.
type GraphOptions struct {
	// Seed is what all random numbers of the graph are made from: initial
	// values, noise, random gates. The same seed gives the same numbers, also
	// in another process. Zero is a seed like any other.
	Seed int64
}

// rootScope lets Graph embed its root scope without an exported field.
type rootScope = Scope

// Graph is a TensorFlow graph under construction, with what Python's tf.Graph
// keeps beside the nodes: unique names, variables, collections, and the first
// error.
//
// All methods of its root [Scope] are methods of the graph: g.Placeholder,
// g.Scope("net"), g.Add and so on.
//
// Errors stick: after the first one nothing more is added, results are zero
// values that every function here accepts, and the error surfaces at the first
// call that returns one, or from Err.
//
// A Graph can be built from several goroutines at once. The names are
// deterministic only if the order of the calls is.
type Graph struct {
	*rootScope
	tf   *tf.Graph
	seed int64
	body *bodyGraph // of a function under construction; nil else

	mu          sync.Mutex // guards all below, and the adding of nodes
	names       *namer
	err         error
	handed      []handedScope
	variables   []*Variable
	byName      map[string]*Variable
	byHandle    map[bridge.OutputKey]*Variable
	collections map[string][]any
	inits       map[int]*tf.Operation // by how many variables they set

	marks *marks // gradients of single nodes, shared with the graphs of bodies

	stepOnce   sync.Once
	globalStep *Variable
}

// handedScope is an op.Scope that Op gave away, asked for its error later.
type handedScope struct {
	path  string
	scope *op.Scope
}

// NewGraph makes an empty graph.
func NewGraph(o GraphOptions) *Graph { return FromTF(tf.NewGraph(), o) }

// FromTF makes a Graph of one that exists, such as an imported one. The names
// of its nodes count as taken. A nil graph is an error that sticks.
func FromTF(existing *tf.Graph, o GraphOptions) *Graph {
	g := &Graph{
		tf: existing, seed: o.Seed, marks: &marks{},
		byName: map[string]*Variable{}, byHandle: map[bridge.OutputKey]*Variable{}, collections: map[string][]any{}, inits: map[int]*tf.Operation{},
	}
	g.rootScope = &Scope{graph: g}
	if existing == nil {
		g.tf = tf.NewGraph()
		g.rootScope.fail("FromTF", fmt.Errorf("the graph is nil"))
	}
	if err := bridge.SelfCheck(); err != nil {
		g.rootScope.fail("NewGraph", err)
	}
	g.names = newNamer(g.tf)
	return g
}

// Root is the graph's root scope, whose path is "".
func (g *Graph) Root() *Scope {
	if g == nil {
		return nil
	}
	return g.rootScope
}

// TF is the binding's graph, for sessions, imports and the binding's own
// functions. Nodes added there are seen, and their names count as taken.
func (g *Graph) TF() *tf.Graph {
	if g == nil {
		return nil
	}
	return g.tf
}

// Seed is the seed that the graph was made with.
func (g *Graph) Seed() int64 {
	if g == nil {
		return 0
	}
	return g.seed
}

// Err is the first error met while the graph was built, nil when there is
// none. It also finds what went wrong in the scopes that Op handed out to tfgo
// and the binding. It is a [*BuildError].
func (g *Graph) Err() error {
	if g == nil || g.rootScope == nil {
		return fmt.Errorf("the graph is nil, or was not made by NewGraph or FromTF")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.errLocked()
}

func (g *Graph) errLocked() error {
	if g.err != nil {
		return g.err
	}
	for _, h := range g.handed {
		if err := h.scope.Err(); err != nil {
			g.err = bindingError(h.path, err)
			break
		}
	}
	return g.err
}

// Build runs f and returns its error, or the error that stuck to the graph. A
// panic in f, as tfgo and the binding raise on errors, becomes the error too:
// the graph's own first error where there is one, since that is what caused
// the panic.
//
//	err := g.Build(func() error {
//		logits = tfgo.NewTensor(net.Op(), x).MatMul(w.Value()).Output
//		return nil
//	})
func (g *Graph) Build(f func() error) (err error) {
	if g == nil {
		return fmt.Errorf("the graph is nil")
	}
	if f == nil {
		g.rootScope.fail("Build", fmt.Errorf("the function is nil"))
		return g.Err()
	}
	defer func() {
		if p := recover(); p != nil {
			cause, isError := p.(error)
			if !isError {
				cause = fmt.Errorf("%v", p)
			}
			g.rootScope.fail("Build", fmt.Errorf("panic: %w", cause))
			err = g.Err()
		}
	}()
	if err := f(); err != nil {
		return err
	}
	return g.Err()
}
