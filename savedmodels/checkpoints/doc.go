// Package checkpoints reads and writes TensorFlow's checkpoints, without Python
// and, but for giving the values to variables, without a session.
//
// A [Saver] saves a training from time to time and resumes it bit for bit: all
// variables of the graph, the slots and steps of optimizers included.
//
//	saver, err := checkpoints.NewSaver(g, "run", checkpoints.SaverOptions{Keep: 3})
//	err = sess.Run(ctx, g.Init())
//	begin, _, err := saver.Restore(ctx, sess)       // ErrNotFound the first time
//	for step := begin; step < 10_000; step++ {
//		err = sess.Run(ctx, train.Op)
//		if step%500 == 0 {
//			_, err = saver.Start(ctx, sess, step, checkpoints.SaveOptions{})
//		}
//	}
//	err = saver.Close()
//
// [Restore] takes values from any checkpoint, also under other names and in
// part, and reports what matched, what was missing and what was unused. [Open]
// reads single tensors; [Write] writes them.
//
// # The files
//
// A checkpoint is what its prefix says: run/model-100.index, a sorted table of
// names, data types, shapes and places, and run/model-100.data-00000-of-00001,
// the values. Both have checksums, which are checked when they are read: a file
// that was damaged, cut short or lost is an error that says which and where. The
// folder's file "checkpoint" names the newest, for Python's
// tf.train.latest_checkpoint and for [Latest].
//
// Files are written beside their places, synchronized to the disk and renamed,
// the index last. A process may be killed at any moment: the newest complete
// checkpoint is found again, and is whole.
//
// # Python
//
// What is written here is name-based, as tf.compat.v1.train.Saver writes.
// Python reads it with tf.train.load_checkpoint, tf.compat.v1.train.Saver,
// init_from_checkpoint and, by the names of variables, tf.train.Checkpoint.
// Both name-based and object-based checkpoints are read, partitioned variables
// and SavedModels' variables as well. Keras' own .keras and .h5 files are not:
// the error says how to get from there to here.
package checkpoints
