// Package ops builds TensorFlow graphs: what Python's tf.Graph, variable_scope,
// get_variable, collections, tf.gradients and tf.keras.losses give, in Go.
//
// A [Graph] has scopes, which are directories that names begin with. Tensors
// are the binding's tf.Output, so that tfgo, the binding's op package, ops/raw
// and this package mix on one graph in any order:
//
//	g := ops.NewGraph(ops.GraphOptions{Seed: 7})
//	x := g.Placeholder("x", tf.Float, ops.Shape{-1, 64})
//	net := g.Scope("net")
//	w := net.Variable("w", ops.Shape{64, 10}, ops.GlorotUniform())
//	logits := raw.MatMul(net, x, w.Value())                              // ours
//	logits = tfgo.NewTensor(net.Op(), x).MatMul(w.Value()).Output        // or tfgo's
//
// # Names
//
// Nodes that are built here have the names that Python gives: the first use of
// a name as it is, then name_1, name_2, where case does not count, and never
// one that an imported node or the binding has. Names depend on nothing but
// the order of the calls. What tfgo and the binding add lies in directories of
// their own, net/op, net/op_1 …, one for each call of [Scope.Op]; tfgo numbers
// some of its nodes by a counter of the process, so their names are not
// deterministic, and nothing that is saved depends on them. A variable's name
// is never changed: a second one is an error.
//
// # Errors
//
// Building code reads as formulas: the first error sticks to the graph, with
// the line of the caller, and surfaces at [Graph.Err] or at the next call that
// returns an error, such as one of package optimizers. Nothing here panics.
// Functions of tfgo and the binding do; [Graph.Build] makes errors of that.
//
// # Gradients
//
// [Gradients] is tf.gradients, [VariableGradients] the same by variables; their
// results can be differentiated again. [Jacobian], [BatchJacobian], [Hessians]
// and [HessianVectorProduct] are built on them. A part of a graph is given
// another gradient by [CustomGradient], by [Gate], which multiplies it, by
// [StopGradient], or, for each operation of a type, by [Scope.WithGradients];
// [Recompute] trades memory for time. Package gradients has the gradients of
// single operations, and takes those of yours.
//
// # Randomness
//
// Initial values, noise and random gates are drawn by stateless operations
// from the graph's seed, a name and a step ([Draw]), so that a program run
// again, or resumed, computes the same numbers bit for bit.
package ops
