// Package optimizers trains variables: it adds to a graph the gradients of a
// loss and the operations that change variables by them, as one train op that
// a run targets.
//
//	adam := optimizers.NewAdam(1e-3)
//	train, err := adam.Minimize(loss, g.Trainable("net/"))
//	…
//	step, err := sess.Prepare(bridge.Call{Feeds: inputs, Fetches: []tf.Output{loss}, Targets: []*tf.Operation{train.Op}})
//
// Minimize is three steps, between which a program can stand:
//
//	grads, err := optimizers.ComputeGradients(loss, g.Trainable("net/"))
//	grads, err = optimizers.ClipByGlobalNorm(grads, 5)
//	train, err := adam.ApplyGradients(grads)
//
// # Rules
//
// How a variable changes is a [Rule]: [NewGradientDescent], [Momentum], [Adam],
// [FloorMod], or one of your own, for which a formula is enough:
//
//	rule := optimizers.Elementwise("floormod", func(u *optimizers.Update) tf.Output {
//		step := u.Sub(u.Var, u.Mul(u.Rate, u.Grad))
//		return u.FloorMod(u.Add(step, u.Normal(0, 0.01)), u.Constant(2*math.Pi))
//	})
//	rule.Rate = schedules.ExponentialDecay{Initial: 0.1, Steps: 1000, Rate: 0.96}
//
// The dense and the sparse update both follow from it. [Gated] and [WeightDecay]
// wrap any rule.
//
// Settings are hyperparameters: a [Value], a schedule (package schedules), a
// tensor that each run feeds (ops.Fed), or a formula (ops.HyperparameterFunc).
//
// # What holds for every rule
//
// All updates of a step see all variables as they were before it.
//
// A variable that is not given to Minimize or ApplyGradients, or that has no
// gradient, is left alone altogether: it and its slots stay bit-identical.
// Being trainable only decides what Graph.Trainable lists.
//
// Sparse gradients, which variables get that are only gathered from, have rows
// with the same index summed before a rule sees them. A rule changes only
// these rows, and only their slots, where its documentation says nothing else.
//
// Random numbers depend on the graph's seed, the variable's name and the step,
// so a training that goes on from saved variables and [Optimizer.State] is the
// uninterrupted one, bit for bit.
package optimizers
