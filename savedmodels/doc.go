// Package savedmodels loads, runs and writes TensorFlow's SavedModels. It runs those
// of TensorFlow 1 and 2 and of Keras alike, by signature and by name:
//
//	m, err := savedmodels.Load("exported/1", savedmodels.Options{})
//	defer m.Close()
//	out, err := m.Run(ctx, "serving_default", savedmodels.Tensors{"image": t})
//	defer out.Close()
//
// Nothing is guessed: names, data types and shapes are those of the model's
// signatures ([Model.Signatures]), and what does not fit them is refused before
// anything runs, with a message that lists what exists.
//
// A [Model] is shared by many goroutines, and Close waits for their calls. A
// [Holder] goes over to a newer version without a failed request. What is to be
// added to a model, such as gradients, is added in Options.Build. [Describe] tells
// what a model has without running anything. [Save] and [Freeze] write graphs of
// package ops for Python, servers and Load.
//
// [Save] writes a graph of package ops and the values of its variables as a model
// that Python, TensorFlow Serving and [Load] take, as TensorFlow 1 or with
// SaveOptions.Objects as TensorFlow 2 writes it, [Freeze] as a graph without variables.
// [Model.Convert] and [Model.Freeze] write what was loaded. What only training needs
// belongs into package checkpoints.
//
// A model is a program. Reading one is safe whatever its bytes are: damaged or
// hostile files give an error, and take no more memory than their size warrants.
// Running one does what it says, which may be to read and write files; run
// models of people you trust, or in a container.
package savedmodels
