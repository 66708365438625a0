"""Checkpoints and models, both ways: what Python writes for Go (the first call), and
what Python makes of what Go wrote (--read, the second).

The training is one of three legs, five steps each: Python, Go, Python; the whole
is held against Python's fifteen steps in one go.
"""

import argparse
import os
import re
import sys

import numpy as np
import tensorflow as tf

from recording import Recording, progress

v1 = tf.compat.v1

DTYPES = ["float32", "float64", "half", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "bool", "complex64", "complex128"]


def values(dtype, shape, seed):
    random = np.random.default_rng(seed)
    dt = tf.as_dtype(dtype).as_numpy_dtype
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(dt)
    if np.dtype(dt).kind in "iu":
        info = np.iinfo(dt)
        return random.integers(info.min, info.max, shape, dtype=dt, endpoint=True)
    parts = random.normal(size=shape)
    if dtype.startswith("complex"):
        parts = parts + 1j * random.normal(size=shape)
    return np.asarray(parts).astype(dt)


class Writer:
    """Checkpoints for Go, each with the values that Go must find."""

    def __init__(self, rec):
        self.rec = rec

    def case(self, name, path, found, error=""):
        self.rec.cases.append({"name": name, "path": path, "error": error, "tensors": [
            {"name": key, "value": self.rec.array(value)} for key, value in found.items()]})

    def path(self, *parts):
        full = os.path.join(self.rec.out, "theirs", *parts)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        return full

    def saver(self, name, sharded, partitions):
        """tf.compat.v1.train.Saver over every dtype, strings and partitioned variables."""
        with tf.Graph().as_default(), v1.Session() as sess:
            want = {}
            for i, dtype in enumerate(DTYPES):
                for shape in [(), (3, 2)]:
                    key = "net/%s_%d" % (dtype, len(shape))
                    want[key] = values(dtype, shape, i)
                    v1.get_variable(key, initializer=tf.constant(want[key], dtype=dtype), use_resource=True)
            want["net/text"] = np.array([b"", b"a\x00b", b"long" * 5000], dtype=object)
            v1.get_variable("net/text", initializer=tf.constant(want["net/text"]), use_resource=True)
            want["ref"] = values("float32", (4,), 99)
            v1.get_variable("ref", initializer=tf.constant(want["ref"]), use_resource=False)
            if partitions:
                with v1.variable_scope("parts", partitioner=v1.fixed_size_partitioner(partitions)):
                    want["parts/table"] = values("float32", (70, 3), 5)
                    v1.get_variable("table", shape=(70, 3), initializer=lambda shape, dtype=None, partition_info=None:
                                    tf.constant(want["parts/table"][partition_info.var_offset[0]:][:shape[0]]))
            sess.run(v1.global_variables_initializer())
            prefix = v1.train.Saver(sharded=sharded).save(sess, self.path(name, "model"), global_step=7)
        self.case(name, prefix, want)

    def objects(self):
        class Net(tf.Module):
            def __init__(self):
                self.w = tf.Variable(values("float32", (3, 2), 1), name="kernel")
                self.parts = {"a/b.c": tf.Variable(values("bfloat16", (2,), 2), name="odd")}
                self.list = [tf.Variable(values("int64", (), 3), name="counter")]
        net = Net()
        step = tf.Variable(5, dtype=tf.int64, name="step")
        prefix = tf.train.Checkpoint(net=net, also=net, step=step).save(self.path("objects", "ckpt"))
        self.case("objects", prefix, {
            "net/w": net.w.numpy(), "also/w": net.w.numpy(), "kernel": net.w.numpy(), "net/parts/a.Sb..c": net.parts["a/b.c"].numpy(),
            "odd": net.parts["a/b.c"].numpy(), "net/list/0": net.list[0].numpy(), "step": step.numpy(), "save_counter": np.int64(1)})
        self.case("objects by their folder", os.path.dirname(prefix), {"step": step.numpy()})

    def keras(self):
        keras = tf.keras
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="hidden"), keras.layers.BatchNormalization(name="norm"), keras.layers.Dense(2, name="out")])
        model.compile(keras.optimizers.Adam(0.01), "mse")
        model.fit(values("float32", (8, 4), 1), values("float32", (8, 2), 2), verbose=0)
        prefix = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(self.path("keras", "ckpt"))
        everything = model.variables + model.optimizer.variables
        self.case("keras, by the variables' names", prefix, {v.path: v.numpy() for v in everything if "seed" not in v.path})
        self.case("keras, by the objects' paths", prefix, {
            "model/_functional/_operations/2/moving_variance": model.layers[1].moving_variance.numpy(),
            "model/_functional/_operations/1/_kernel": model.layers[0].kernel.numpy()})
        export = self.path("export", "1")
        model.export(export, verbose=False)
        reader = tf.train.load_checkpoint(os.path.join(export, "variables", "variables"))
        self.case("a SavedModel's variables", export, {k: reader.get_tensor(k) for k in reader.get_variable_to_shape_map() if not k.startswith("_CHECK")})
        weights = self.path("weights", "k.weights.h5")
        model.save_weights(weights)
        self.case("Keras's HDF5 weights", weights, {}, error="HDF5")
        whole = self.path("weights", "k.keras")
        model.save(whole)
        self.case("Keras's own file", whole, {}, error=".keras")

    def training(self):
        with training_graph() as (sess, train, _):
            sess.run(v1.global_variables_initializer())
            for _ in range(5):
                sess.run(train)
            self.case("training", v1.train.Saver().save(sess, self.path("training", "model"), global_step=5), {})


class training_graph:
    """A dense layer and an embedding trained by v1's Adam, from fixed first values."""

    def __enter__(self):
        self.graph = tf.Graph()
        self.context = self.graph.as_default()
        self.context.__enter__()
        v1.set_random_seed(1)
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("net/w", initializer=tf.constant(np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)), use_resource=True)
        table = v1.get_variable("net/table", initializer=tf.constant(np.linspace(-2, 1, 24, dtype=np.float32).reshape(6, 4)), use_resource=True)
        rows = tf.gather(table, [0, 2, 2, 5])
        loss = tf.reduce_mean(v1.nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 1, 1, 0], logits=tf.matmul(rows, w)))
        self.adam = v1.train.AdamOptimizer(0.05)
        train = self.adam.minimize(loss, global_step=step)
        self.sess = v1.Session()
        return self.sess, train, {"net/w": w, "net/table": table}

    def __exit__(self, *error):
        self.sess.close()
        self.context.__exit__(*error)


class Reader:
    """What Python makes of Go's files."""

    def __init__(self, rec, theirs):
        self.rec, self.dir = rec, theirs

    def case(self, name, found):
        self.rec.cases.append({"name": name, "path": "", "error": "", "tensors": [
            {"name": key, "value": self.rec.array(value)} for key, value in found.items()]})

    def checkpoints(self):
        for name in ["one", "three"]:
            prefix = os.path.join(self.dir, name)
            reader = tf.train.load_checkpoint(prefix)
            self.case("load_checkpoint, " + name, {k: reader.get_tensor(k) for k, _ in tf.train.list_variables(prefix)})

    def folder(self):
        run = os.path.join(self.dir, "run")
        latest = tf.train.latest_checkpoint(run)
        state = tf.train.get_checkpoint_state(run)
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(), run, 10)
        self.case("the list of a folder", {
            "latest_checkpoint": np.array(latest.encode(), dtype=object),
            "all": np.array([p.encode() for p in state.all_model_checkpoint_paths], dtype=object),
            "CheckpointManager": np.array([p.encode() for p in manager.checkpoints], dtype=object)})
        with tf.Graph().as_default(), v1.Session() as sess:
            w = v1.get_variable("net/w", shape=(4, 2), use_resource=True)
            v1.train.Saver().restore(sess, latest)
            self.case("Saver.restore", {"net/w": sess.run(w)})
        with tf.Graph().as_default(), v1.Session() as sess:
            w = v1.get_variable("mine/w", shape=(4, 2), use_resource=True)
            v1.train.init_from_checkpoint(latest, {"net/": "mine/"})
            sess.run(v1.global_variables_initializer())
            self.case("init_from_checkpoint", {"net/w": sess.run(w)})
        w = tf.Variable(tf.zeros((4, 2)), name="net/w")
        tf.train.Checkpoint(anything=w).restore(latest).assert_consumed()
        self.case("tf.train.Checkpoint, by names", {"net/w": w.numpy()})

    def training(self):
        with training_graph() as (sess, train, variables):
            sess.run(v1.global_variables_initializer())
            for _ in range(15):
                sess.run(train)
            whole = sess.run(variables)
        with training_graph() as (sess, train, variables):
            powers = [v for v in v1.global_variables() if v.op.name in ("beta1_power", "beta2_power")]
            rest = [v for v in v1.global_variables() if v not in powers]
            v1.train.Saver(rest).restore(sess, tf.train.latest_checkpoint(os.path.join(self.dir, "training")))
            done = int(sess.run(v1.train.get_global_step()))
            for v, beta in zip(powers, (0.9, 0.999)):
                v.load(beta ** (done + 1), sess)
            for _ in range(5):
                sess.run(train)
            self.case("training in three legs", sess.run(variables) | {"global_step": sess.run(v1.train.get_global_step())})
        self.case("training in one", whole | {"global_step": np.int64(15)})

    def models(self):
        x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
        words = np.array([["go", "rust"], ["python", "go"]])
        for name in ["plain", "half", "bfloat16", "converted"]:
            path = os.path.join(self.dir, "models", name)
            loaded = tf.saved_model.load(path)
            f = loaded.signatures["serving_default"]
            self.case(name + ": tf.saved_model.load", {"y": f(x=tf.constant(x), words=tf.constant(words))["y"].numpy()})
            if name == "plain":
                self.case(name + ": variables", {
                    "names": np.array(sorted(v.name for v in loaded.variables), dtype=object),
                    "trainable": np.array(sorted(v.name for v in loaded.variables if v.trainable), dtype=object)})
                trained = [v for v in loaded.variables if v.trainable]
                with tf.GradientTape() as tape:
                    y = f(x=tf.constant(x), words=tf.constant(words))["y"]
                    loss = tf.reduce_sum(y * y)
                grads = tape.gradient(loss, trained)
                assert all(g is not None for g in grads)
                for v, g in zip(trained, grads):
                    v.assign_sub(0.001 * tf.convert_to_tensor(g))
                after = tf.reduce_sum(f(x=tf.constant(x), words=tf.constant(words))["y"] ** 2)
                assert after < loss, (after, loss)
                again = os.path.join(self.rec.out, "again")
                tf.saved_model.save(loaded, again, signatures=loaded.signatures)
                tuned = tf.saved_model.load(again).signatures["serving_default"](x=tf.constant(x), words=tf.constant(words))["y"].numpy()
                self.case(name + ": tuned and saved again", {"same": np.array(np.array_equal(tuned, f(x=tf.constant(x), words=tf.constant(words))["y"].numpy()))})
                # The layer takes signatures with one input, of whatever origin.
                layer = tf.keras.layers.TFSMLayer(path, call_endpoint="scores")
                self.case(name + ": TFSMLayer", {"scores": layer(tf.constant(x))["scores"].numpy(), "variables": np.int64(len(layer.trainable_weights))})
            with tf.Graph().as_default(), v1.Session() as sess:
                meta = v1.saved_model.load(sess, ["serve"], path)
                s = meta.signature_def["serving_default"]
                self.case(name + ": v1 loader", {"y": sess.run(s.outputs["y"].name, {s.inputs["x"].name: x, s.inputs["words"].name: words})})
            self.cli(name, path, "y", x, "--input_exprs", "words=%r" % words.tolist())
        self.objects("objects", x)
        self.objects("objects in half", x)
        self.objects("objects by way of a MetaGraph", x)
        with open(os.path.join(self.dir, "frozen.pb"), "rb") as f:
            def_ = v1.GraphDef.FromString(f.read())
        with tf.Graph().as_default(), v1.Session() as sess:
            y, = tf.import_graph_def(def_, return_elements=["net/scores:0"], name="")
            self.case("a frozen graph", {"y": sess.run(y, {"x:0": x})})

    def objects(self, name, x):
        """A model with Python's objects: called, tuned, saved again, and by all other loaders."""
        path = os.path.join(self.dir, "models", name)
        loaded, x = tf.saved_model.load(path), tf.constant(x)
        self.case(name + ": called", {"scores": loaded(x).numpy(), "by name": loaded(x=x).numpy(), "signature": loaded.signatures["serving_default"](x)["scores"].numpy(),
                                      "net": (tf.cast(x @ tf.cast(loaded.net.w, x.dtype), x.dtype) + tf.cast(loaded.net.b, x.dtype)).numpy()})
        self.case(name + ": variables", {
            "names": np.array([v.name for v in loaded.variables], dtype=object),
            "trainable": np.array([v.name for v in loaded.trainable_variables], dtype=object)})
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(loaded(x) ** 2)
        for v, g in zip(loaded.trainable_variables, tape.gradient(loss, loaded.trainable_variables)):
            v.assign_sub(tf.cast(0.01, v.dtype) * g)
        assert tf.reduce_sum(loaded(x) ** 2) < loss
        again = os.path.join(self.rec.out, name + " again")
        tf.saved_model.save(loaded, again, signatures=loaded.signatures)
        same = np.array_equal(tf.saved_model.load(again)(x).numpy(), loaded(x).numpy())
        self.case(name + ": tuned and saved again", {"same": np.array(same)})
        tf.train.Checkpoint(loaded).read(os.path.join(path, "variables", "variables")).assert_consumed()
        self.case(name + ": its checkpoint", {"scores": loaded(x).numpy()})
        layer = tf.keras.layers.TFSMLayer(path, call_endpoint="serving_default")
        self.case(name + ": TFSMLayer", {"scores": layer(x)["scores"].numpy(), "trainable": np.int64(len(layer.trainable_weights)), "other": np.int64(len(layer.non_trainable_weights))})
        with tf.Graph().as_default(), v1.Session() as sess:
            s = v1.saved_model.load(sess, ["serve"], path).signature_def["serving_default"]
            self.case(name + ": v1 loader", {"scores": sess.run(s.outputs["scores"].name, {s.inputs["x"].name: x.numpy()})})
        self.cli(name, path, "scores", x.numpy(), "--input_exprs", "")  # its flags outlive a call

    def cli(self, name, path, output, x, *arguments):
        from tensorflow.python.tools import saved_model_cli
        files = os.path.join(self.rec.out, name)
        os.makedirs(files)
        np.save(os.path.join(files, "x.npy"), x)
        argv, out = sys.argv, sys.stdout
        sys.argv = ["saved_model_cli", "run", "--dir", path, "--tag_set", "serve", "--signature_def", "serving_default",
                    "--inputs", "x=%s/x.npy" % files, *arguments, "--outdir", files, "--overwrite"]
        sys.stdout = sys.stderr
        try:
            saved_model_cli.main()
        except SystemExit as e:
            assert not e.code, e.code
        finally:
            sys.argv, sys.stdout = argv, out
        self.case(name + ": saved_model_cli run", {output: np.load(os.path.join(files, output + ".npy"))})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--read", default="")
    parser.add_argument("--run", type=re.compile, default=re.compile(""))
    args = parser.parse_args()
    rec = Recording(args.out)
    if args.read:
        reader = Reader(rec, args.read)
        jobs = [reader.checkpoints, reader.folder, reader.training, reader.models]
    else:
        writer = Writer(rec)
        jobs = [lambda: writer.saver("saver", False, 0), lambda: writer.saver("sharded, partitioned", True, 3), writer.objects, writer.keras, writer.training]
    for i, job in enumerate(jobs):
        progress(i, len(jobs), "checkpoints")
        job()
    rec.save()


if __name__ == "__main__":
    main()
