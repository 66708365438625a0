"""Whole models with their weights as inputs, and the gradients of their losses, for models.go."""

import keras
import numpy as np
import tensorflow as tf

from recording import Recording, arguments, progress

MODELS = []


def model(*shapes, dtype="float64"):
    return lambda f: MODELS.append((f.__name__, f, shapes, dtype))


def square(x):
    return tf.reduce_mean(x ** 2)


RESIDUAL = (3, 7, 5, 2), (3, 3, 2, 4), (4,), (4,), (3, 3, 4, 4), (4,), (4,), (1, 1, 2, 4)


def fused(x, gain, bias):
    return tf.compat.v1.nn.fused_batch_norm(x, gain, bias, is_training=True)[0]


def by_moments(x, gain, bias):
    return tf.nn.batch_normalization(x, *tf.nn.moments(x, [0, 1, 2]), bias, gain, .001)


def residual(normalized, x, k1, g1, b1, k2, g2, b2, skip):
    y = tf.nn.softplus(normalized(tf.nn.conv2d(x, k1, 1, "SAME"), g1 + 1, b1))
    y = normalized(tf.nn.conv2d(y, k2, 1, "SAME"), g2 + 1, b2)
    y = tf.reduce_mean(tf.tanh(y + tf.nn.conv2d(x, skip, 1, "SAME")), [1, 2])
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(np.int32([0, 3, 1]), y))


@model(*RESIDUAL, dtype="float32")
def residual_cnn(*xs):
    return residual(fused, *xs)


@model(*RESIDUAL)
def residual_cnn_in_float64(*xs):
    return residual(by_moments, *xs)


# Held to less than 1e-5, and why.
LOOSE = {"residual_cnn": (3e-5, "cause not found: ours is 2e-5 from Python's float32, which is 8e-6 from its float64; without the fused batch normalization, in float64, both agree")}


def recurrent(name, layer):
    layer.build((3, 5, 4))
    shapes = [(3, 5, 4)] + [tuple(v.shape) for v in layer.trainable_variables]
    rest = [v.numpy() for v in layer.non_trainable_variables]
    MODELS.append((name, lambda x, *w: square(layer.stateless_call(list(w), rest, x)[0]), shapes, "float32"))


recurrent("keras_lstm", keras.layers.LSTM(3, return_sequences=True))
recurrent("keras_gru", keras.layers.GRU(3, return_sequences=True))
recurrent("keras_bidirectional", keras.layers.Bidirectional(keras.layers.LSTM(3)))


@model((2, 5, 6), (6, 18), (6, 6), (6,), (6,), (6, 11), (11, 6))
def transformer_block(x, qkv, out, gain, bias, up, down):
    def normalized(x):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-3) * (1 + gain) + bias
    mask = np.random.default_rng(1).binomial(1, .8, (2, 5, 6)) / .8
    q, k, v = [tf.transpose(tf.reshape(t, (2, 5, 2, 3)), (0, 2, 1, 3)) for t in tf.split(tf.einsum("btd,de->bte", x, qkv), 3, -1)]
    a = tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 3 ** .5), v)
    x = normalized(x + mask * tf.matmul(tf.reshape(tf.transpose(a, (0, 2, 1, 3)), (2, 5, 6)), out))
    return square(normalized(x + tf.matmul(tf.nn.gelu(tf.matmul(x, up)), down)) - .5)


@model((11, 4), (4, 3))
def embedding_classifier(table, w):
    pooled = tf.reduce_mean(tf.gather(table, np.int32([[1, 2, 10], [5, 5, 0]])), 1)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(np.int32([2, 0]), pooled @ w))


@model((2, 5, 4, 3, 2), (3, 2, 2, 2, 3), (3,), dtype="float32")
def conv3d(x, k, b):
    return square(tf.tanh(tf.nn.conv3d(x, k, [1, 1, 1, 1, 1], "SAME") + b))


@model((7, 2, 3), (3, 5), dtype="float32")
def ctc_speech(x, w):
    labels = tf.SparseTensor(np.int64([[0, 0], [0, 1], [1, 0]]), np.int32([1, 2, 3]), np.int64([2, 2]))
    return tf.reduce_mean(tf.compat.v1.nn.ctc_loss(labels, tf.tensordot(x, w, 1), np.int32([7, 5])))


@model((5, 3), (3, 7), (7,), (7, 1))
def wasserstein_critic(x, w1, b1, w2):
    return tf.reduce_sum(tf.tanh(x @ w1 + b1) @ w2)


@model((7, 2), (7, 1), ())
def gaussian_process(x, y, scale):
    d = tf.reduce_sum((x[:, None] - x[None]) ** 2, -1)
    c = tf.linalg.cholesky(tf.exp(-d * tf.exp(scale)) + .5 * np.eye(7))
    z = tf.linalg.triangular_solve(c, y)
    return .5 * tf.reduce_sum(z ** 2) + tf.reduce_sum(tf.math.log(tf.linalg.diag_part(c)))


@model((2, 30), (5, 3))
def spectrogram(x, w):
    frames = tf.stack([x[:, i:i + 9] for i in (0, 7, 14, 21)], 1)
    return square(tf.math.log1p(tf.abs(tf.signal.rfft(frames)) ** 2) @ w)


@model((5, 3), (3, 4), (3, 4))
def graph_network(x, w, own):
    source, target = np.int32([0, 1, 2, 4, 3, 0]), np.int32([1, 0, 0, 2, 4, 4])
    return square(tf.tanh(x @ own + tf.math.unsorted_segment_mean(tf.gather(x @ w, source), target, 5)))


@model((4,), (5, 3))
def sparse_dense(values, w):
    s = tf.SparseTensor(np.int64([[0, 1], [1, 4], [2, 0], [2, 3]]), values, np.int64([3, 5]))
    return square(tf.sparse.sparse_dense_matmul(s, w))


@model((11, 3), (3, 2))
def ragged_text(table, w):
    words = tf.RaggedTensor.from_row_splits(np.int32([1, 5, 5, 9, 10]), np.int64([0, 2, 2, 5]), validate=False)
    return square(tf.tanh(tf.reduce_sum(tf.gather(table, words), 1) @ w))


@model((2, 7, 9, 2), (3, 3, 2, 2), dtype="float32")
def augmentation(x, k):
    y = tf.image.resize(x, (11, 8))[:, 1:10, 2:]
    y = tf.raw_ops.ImageProjectiveTransformV3(images=y, transforms=np.float32([[.9, .1, .3, -.1, 1.1, .2, 0, 0]]), output_shape=np.int32([7, 5]),
                                              fill_value=np.float32(0), interpolation="BILINEAR", fill_mode="CONSTANT")
    boxes = np.float32([[.1, 0, .9, .8], [.2, .1, 1, .9]])
    return square(tf.nn.conv2d(tf.image.crop_and_resize(y, boxes, np.int32([0, 1]), (4, 3)), k, 1, "SAME"))


def record(rec, name, f, shapes, dtype):
    rng = np.random.default_rng(len(name))
    values = [.5 * rng.standard_normal(s).astype(dtype) if s else np.array(.3, dtype) for s in shapes]
    xnames = ["x%d" % i for i in range(len(values))]
    feeds = values + [np.ones((), dtype)] + values
    specs = [tf.TensorSpec(v.shape, dtype, n) for n, v in zip(xnames + ["v"] + ["w" + n for n in xnames], feeds)]
    n = len(values)
    concrete = tf.function(lambda *a: f(*a[:n])).get_concrete_function(*specs)
    assert not concrete.captured_inputs, name
    graph = rec.file(name + ".pb", concrete.graph.as_graph_def().SerializeToString())
    tensors = [tf.constant(v) for v in values]
    loose, why = LOOSE.get(name, (1e-5, "whole models add roundings up"))
    penalty = name == "wasserstein_critic"
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(tensors)
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = f(*tensors)
        gs = tape.gradient(y, tensors)
        if penalty:
            slope = tf.identity(gs[0])
            loss = tf.reduce_mean((tf.norm(slope, axis=1) - 1) ** 2)

    def described(g):
        return None if g is None else {"sparse": isinstance(g, tf.IndexedSlices), "array": rec.array(tf.convert_to_tensor(g).numpy())}

    def named(names, arrays):
        return [{"name": k + ":0", "array": rec.array(v)} for k, v in zip(names, arrays)]

    case = {"name": name, "op": name, "graph": graph, "loose": loose, "why": why,
            "feeds": named(xnames + ["v"], feeds), "xs": [k + ":0" for k in xnames], "vs": ["v:0"],
            "ys": [{"name": concrete.outputs[0].name, "array": rec.array(y.numpy())}], "g": [described(g) for g in gs]}
    if penalty:
        # The penalty's gradient by the weights is that of the slope times the penalty's gradient by it.
        ws = [outer.gradient(loss, slope).numpy()] + [np.zeros_like(v) for v in values[1:]]
        case["ws"] = named(["w" + k for k in xnames], ws)
        case["g2"] = [described(g) for g in outer.gradient(loss, tensors)]
    rec.cases.append(case)


def main():
    args = arguments()
    rec = Recording(args.out)
    todo = [m for m in MODELS if args.run.search(m[0])]
    for done, m in enumerate(todo):
        progress(done, len(todo), m[0])
        record(rec, *m)
    rec.save()


if __name__ == "__main__":
    main()
