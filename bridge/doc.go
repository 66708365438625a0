// Package bridge is TensorFlow's C API for Go: sessions and prepared steps,
// tensors, the building and reading of graphs, functions, devices, errors. It is
// the one package of this module that imports "C", has as few opinions as it can,
// and works on the binding's own *tf.Graph, tf.Output and *tf.Operation, so that
// tfgo, the binding's wrappers and this module mix on one graph.
//
// # Running
//
// A [Session] runs a graph. [Session.Run] and [Session.Call] are for the one-off;
// what runs often is prepared:
//
//	step, err := sess.Prepare(bridge.Call{Feeds: []tf.Output{x}, Fetches: []tf.Output{loss}, Targets: []*tf.Operation{train}})
//	out := step.NewOutputs()
//	defer out.Close()
//	for batch := range batches {
//		err := step.Run(ctx, batch, out)
//		value, err := bridge.Item[float32](out.Tensor(0))
//	}
//
// Everything that can be checked is checked when the step is prepared, a run is
// one call into C, and a loop that reuses its tensors and outputs allocates
// nothing. A session is safe from many goroutines, each with outputs of its own;
// runs that update variables take turns. [Step.Run] tells what a context's end
// can stop, and how soon.
//
// # Memory
//
// A [Tensor] has memory of its own outside of Go's heap, which the collector
// doesn't see: close what you make and what you take. [Flat] is a typed view of
// it without a copy, [Values] a copy, [Borrow] a tensor on Go's memory. [Live]
// counts what is not closed; a process started with SLUICE_VERIFY=all in its
// environment knows by [Leaks] who made it, and makes a NaN or an infinity among
// a run's results an error.
//
// # Errors
//
// Every error is, or wraps, an [*Error] with TensorFlow's code. Ask errors.Is for
// a code ([ErrInvalidArgument] …), for [ErrClosed], [ErrUninitialized],
// context.DeadlineExceeded or context.Canceled. Nothing that is passed to this
// package makes it panic.
//
// TensorFlow's own log goes to standard error; the environment variable
// TF_CPP_MIN_LOG_LEVEL, read when the program starts, sets what it says (2:
// errors alone). Two lines on oneDNN come before TensorFlow has read it; only
// TF_ENABLE_ONEDNN_OPTS=0 stops them, which uses other kernels and so changes
// the last digits of results.
package bridge
