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
// How a variable changes is a [Rule]. Which to take:
//
//	[NewGradientDescent]        nothing to remember; the yardstick
//	[Momentum]                  vision models, with a falling rate and patience
//	[Adam], [NewAdamW]          the first to try; AdamW where weights should decay
//	[Nadam], [Adamax]           Adam with Nesterov's step; with the largest gradient, for rare large ones
//	[RMSprop]                   recurrent nets and gradients that drift
//	[Adagrad], [Adadelta]       rare features; Adadelta needs no rate
//	[Ftrl], [AdagradDA]         sparse linear models, weights exactly 0
//	[Proximal]                  the same, after gradient descent or Adagrad
//	[Lion]                      one slot instead of two, a rate a tenth of Adam's
//	[Lamb]                      very large batches
//	[Adafactor]                 large matrices and little memory
//	[Muon]                      hidden layers of transformers; Adam for the rest
//	[ScheduleFreeAdamW]         no schedule, and no end known beforehand
//	[Signs]                     AddSign and PowerSign
//	[FloorMod]                  weights on a circle
//
// docs/paths.png shows ten of them on one surface; scripts/paths draws it.
//
// Defaults are Keras'; the last argument [V1] of a constructor makes them those
// of tf.compat.v1.train. Slots are called as in tf.compat.v1.train where it has
// the optimizer, else as in Keras. A formula over a large variable is compiled
// by XLA into one loop (see Optimizer.CompileFrom).
//
// One of your own needs only a formula:
//
//	rule := optimizers.Elementwise("floormod", func(u *optimizers.Update) tf.Output {
//		step := u.Sub(u.Var, u.Mul(u.Rate, u.Grad))
//		return u.FloorMod(u.Add(step, u.Normal(0, 0.01)), u.Constant(2*math.Pi))
//	})
//	rule.Rate = schedules.ExponentialDecay{Initial: 0.1, Steps: 1000, Rate: 0.96}
//
// The dense and the sparse update both follow from it.
//
// Settings are hyperparameters: a [Value], a schedule (package schedules), a
// tensor that each run feeds (ops.Fed), or a formula (ops.HyperparameterFunc).
//
// # Wrappers
//
// What goes around any rule, and around each other, read from the outside in:
//
//	[Clipped]        limits the gradients before the rule sees them
//	[Finite]         fails, or leaves the step out, where a gradient is not finite
//	[GradientNoise]  adds noise to the gradients
//	[L2Decay]        adds a part of the weights to the gradients
//	[WeightDecay]    takes a part off the weights before the rule moves them
//	[Accumulated]    takes one step with the gradients of several
//	[LossScaled]     scales the loss for half precision, and the gradients back
//	[Gated]          holds variables and slots still while a gate is closed
//	[Constrained]    puts a constraint in force after the step
//	[Lookahead]      sets the weights back towards a slow copy every k steps
//	[NewEMA]         keeps a moving average of the weights after the step
//	[NewSWA]         keeps the mean of the weights of some steps
//	[Grouped]        trains each group of variables by a rule of its own
//
// An order that makes no sense, such as clipping gradients that are still
// scaled, is an error that says so. A step that is left out moves nothing: no
// slot, no average, and not the count of steps.
//
// [Optimizer.State] lists all that an optimizer and its wrappers remember, and
// [Memory] takes it into the program's memory and back.
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
// these rows, and only their slots, where its documentation says nothing else;
// those with a field Lazy do so where it is set.
//
// Random numbers depend on the graph's seed, the variable's name and the step,
// so a training that goes on from saved variables and [Optimizer.State] is the
// uninterrupted one, bit for bit.
package optimizers
