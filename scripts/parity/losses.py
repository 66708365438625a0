"""The losses of tf.keras and their gradients by the predictions, for losses.go."""

import itertools

import numpy as np
import tensorflow as tf

from recording import Recording, arguments, progress

K = tf.keras.losses
REDUCTIONS = ["sum_over_batch_size", "sum", "mean_with_sample_weight", "none"]
SHAPES = {"matrix": (5, 7), "vector": (6,), "cube": (3, 4, 5)}


def values(rng, kind, shape):
    """Predictions or labels of a kind; what a loss is defined for."""
    if kind == "real":
        return rng.normal(0, 1.5, shape)
    if kind == "positive":
        return rng.uniform(0.05, 3, shape)
    if kind == "probability":
        return rng.uniform(0.001, 0.999, shape)
    if kind == "distribution":
        x = rng.uniform(0.01, 1, shape)
        return x / x.sum(-1, keepdims=True)
    if kind == "binary":
        return (rng.random(shape) < 0.5).astype(float)
    if kind == "sign":
        return np.where(rng.random(shape) < 0.5, -1.0, 1.0)
    if kind == "index":
        return rng.integers(0, shape[-1], shape[:-1])
    raise ValueError(kind)


# loss, labels, predictions, Keras's arguments; the arguments are the names that losses.go knows too.
TABLE = [
    ("MeanSquaredError", "real", "real", {}),
    ("MeanAbsoluteError", "real", "real", {}),
    ("MeanAbsolutePercentageError", "positive", "real", {}),
    ("MeanSquaredLogarithmicError", "positive", "positive", {}),
    ("Huber", "real", "real", {}),
    ("Huber", "real", "real", {"delta": 0.4}),
    ("LogCosh", "real", "real", {}),
    ("CategoricalCrossentropy", "distribution", "distribution", {}),
    ("CategoricalCrossentropy", "distribution", "probability", {}),
    ("CategoricalCrossentropy", "distribution", "distribution", {"label_smoothing": 0.2}),
    ("CategoricalCrossentropy", "distribution", "real", {"from_logits": True}),
    ("CategoricalCrossentropy", "distribution", "real", {"from_logits": True, "label_smoothing": 0.1}),
    ("SparseCategoricalCrossentropy", "index", "distribution", {}),
    ("SparseCategoricalCrossentropy", "index", "real", {"from_logits": True}),
    ("BinaryCrossentropy", "binary", "probability", {}),
    ("BinaryCrossentropy", "binary", "probability", {"label_smoothing": 0.2}),
    ("BinaryCrossentropy", "binary", "real", {"from_logits": True}),
    ("Hinge", "sign", "real", {}),
    ("Hinge", "binary", "real", {}),
    ("SquaredHinge", "sign", "real", {}),
    ("CategoricalHinge", "binary", "real", {}),
    ("KLDivergence", "distribution", "distribution", {}),
    ("CosineSimilarity", "real", "real", {}),
    ("Poisson", "positive", "positive", {}),
]


def cases():
    for (loss, labels, predictions, arguments_), (shape_name, shape), dtype in itertools.product(
        TABLE, SHAPES.items(), ["float32", "float64"]
    ):
        if labels == "index" and len(shape) < 2:
            continue
        for reduction in REDUCTIONS:
            for weighted in [None, "rows", "scalar"]:
                if shape_name != "matrix" and (reduction != "sum_over_batch_size" or weighted == "scalar"):
                    continue
                if shape_name == "vector" and weighted:  # one loss: there are no rows to weigh
                    continue
                yield loss, labels, predictions, arguments_, shape_name, shape, dtype, reduction, weighted


def main():
    args = arguments()
    rec = Recording(args.out)
    every = list(cases())
    for i, (loss, labels, predictions, extra, shape_name, shape, dtype, reduction, weighted) in enumerate(every):
        settings = ",".join("%s=%s" % kv for kv in extra.items())
        name = "/".join(filter(None, [loss, labels, settings, shape_name, dtype, reduction, weighted]))
        if not args.run.search(name):
            continue
        rng = np.random.default_rng(i)
        y_true = values(rng, labels, shape)
        y_true = y_true.astype(np.int32 if labels == "index" else dtype)
        y_pred = values(rng, predictions, shape).astype(dtype)
        weights = None
        if weighted == "rows":
            weights = rng.uniform(0, 2, shape[:-1]).astype(dtype)
        elif weighted == "scalar":
            weights = np.array(1.7, dtype)
        call = getattr(K, loss)(reduction=None if reduction == "none" else reduction, dtype=dtype, **extra)
        p = tf.constant(y_pred)
        with tf.GradientTape() as tape:
            tape.watch(p)
            value = call(y_true, p, sample_weight=weights)
        gradient = tape.gradient(value, p)
        rec.cases.append({
            "name": name, "loss": loss, "reduction": reduction, "arguments": extra,
            "labels": rec.array(y_true), "predictions": rec.array(y_pred),
            "weights": None if weights is None else rec.array(weights),
            "value": rec.array(value), "gradient": rec.array(gradient),
        })
        if i % 50 == 0:
            progress(i, len(every), loss)
    rec.save()


if __name__ == "__main__":
    main()
