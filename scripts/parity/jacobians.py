"""Small functions, with their Jacobians and second derivatives by GradientTape, for jacobians.go."""

import numpy as np
import tensorflow as tf

from recording import Recording, arguments, progress

v1 = tf.compat.v1


def layer(x, w, b):
    return tf.tanh(tf.matmul(x, w) + b)


def convolution(x, k):
    return tf.nn.max_pool2d(tf.nn.conv2d(x, k, 1, "SAME"), 2, 2, "VALID")


def looked_up(table):
    return tf.reduce_sum(tf.gather(table, [[0, 2], [2, 2]]) ** 2, 1)


def covariance(x):
    return tf.linalg.cholesky(tf.matmul(x, x, transpose_b=True) + 3.0 * tf.eye(3, dtype=x.dtype))


def power(x):
    """x to the fourth, in a loop."""
    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), [0, x])[1]


def branched(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: x * x, lambda: tf.sin(x))


# name, function, shapes of its inputs, dtype; rows: each row of y is made from the same row of the first input
CASES = [
    ("layer", layer, [(3, 4), (4, 2), (2,)], "float32", True),
    ("layer64", layer, [(3, 4), (4, 2), (2,)], "float64", True),
    ("scalar", lambda x: tf.reduce_sum(tf.exp(x)), [(2, 3)], "float32", False),
    ("softmax", tf.nn.softmax, [(2, 5)], "float64", True),
    ("convolution", convolution, [(2, 4, 4, 1), (3, 3, 1, 2)], "float64", True),
    ("lookup", looked_up, [(3, 2)], "float32", False),
    ("cholesky", covariance, [(3, 3)], "float64", False),
    ("loop", power, [(2, 2)], "float64", True),
    ("branch", branched, [(3,)], "float32", False),
    ("unused", lambda x, z: x * x, [(2,), (3,)], "float32", False),
    ("linear", lambda x: 2.0 * x, [(3, 2)], "float32", True),
]


def record(rec, name, f, shapes, dtype, rows, known):
    rng = np.random.default_rng(len(name))
    values = [rng.uniform(-1, 1, shape).astype(dtype) for shape in shapes]
    graph = tf.Graph()
    with graph.as_default():
        xs = [v1.placeholder(dtype, shape if known else [None] * len(shape), name="x%d" % i) for i, shape in enumerate(shapes)]
        y = tf.identity(f(*xs), "y")
    entry = {"name": name + ("" if known else "/unknown"), "graph": rec.file("%d.pb" % len(rec.cases), graph.as_graph_def().SerializeToString()),
             "feeds": [{"name": x.name, "array": rec.array(v)} for x, v in zip(xs, values)], "y": y.name}

    def described(gradient):
        return None if gradient is None else {"array": rec.array(tf.convert_to_tensor(gradient).numpy())}

    tensors = [tf.constant(v) for v in values]
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(tensors)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(tensors)
            result = f(*tensors)
        firsts = [None if g is None else tf.convert_to_tensor(g) for g in tape.gradient(result, tensors)]
        vs = [rng.uniform(-1, 1, shape).astype(dtype) for shape in shapes]
        product = tf.add_n([tf.reduce_sum(g * v) for g, v in zip(firsts, vs) if g is not None])
    pfor = "loop" not in name and "branch" not in name
    entry["jacobian"] = [described(g) for g in tape.jacobian(result, tensors, experimental_use_pfor=pfor)]
    if rows:
        entry["batch"] = described(tape.batch_jacobian(result, tensors[0], experimental_use_pfor=pfor))
    entry["hessians"] = [None if g is None else described(outer.jacobian(g, x, experimental_use_pfor=False)) for g, x in zip(firsts, tensors)]
    entry["vector"] = [rec.array(v) for v in vs]
    entry["product"] = [described(g) for g in outer.gradient(product, tensors)]
    rec.cases.append(entry)


def main():
    args = arguments()
    rec = Recording(args.out)
    todo = [(*c, known) for c in CASES for known in [True, False] if args.run.search(c[0])]
    for done, c in enumerate(todo):
        progress(done, len(todo), c[0])
        record(rec, *c)
    rec.save()


if __name__ == "__main__":
    main()
