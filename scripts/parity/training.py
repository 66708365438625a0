"""What the modules about training have in common: seeds, gates, rules in eager TensorFlow."""

import struct

import numpy as np
import tensorflow as tf


def random_key(seed, name):
    """Go's Graph.RandomKey: FNV-1a, 64 bits, of the seed (little-endian) and the name."""
    h = 0xCBF29CE484222325
    for byte in struct.pack("<q", seed) + name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h - 2**64 if h >= 2**63 else h


def noise(shape, seed, name, step, dtype):
    return tf.random.stateless_normal(shape, seed=[random_key(seed, name), step], dtype=dtype)


def floormod(w, b):
    """w mod b in [0, b), or (b, 0] for a negative b."""
    dtype = w.dtype.as_numpy_dtype
    edge = tf.constant(np.nextafter(dtype(b), dtype(0)), w.dtype)
    r = tf.math.floormod(w, tf.constant(b, w.dtype))
    return tf.minimum(r, edge) if b > 0 else tf.maximum(r, edge)


def summed(grad):
    """IndexedSlices with each index once: values and indices."""
    indices, position = tf.unique(grad.indices)
    return tf.math.unsorted_segment_sum(grad.values, position, tf.size(indices)), indices


@tf.custom_gradient
def gate(x, is_open):
    def grad(dy):
        return tf.where(tf.equal(is_open, 0), tf.zeros_like(dy), dy * is_open), None
    return tf.identity(x), grad


class Descent:
    def __init__(self, rate):
        self.optimizer = tf.compat.v1.train.GradientDescentOptimizer(rate)

    def apply(self, grads_and_vars):
        self.optimizer.apply_gradients(grads_and_vars)

    def slots(self, v):
        return {}


class Momentum(Descent):
    def __init__(self, rate, mu):
        self.optimizer = tf.compat.v1.train.MomentumOptimizer(rate, mu)

    def slots(self, v):
        s = self.optimizer.get_slot(v, "momentum")
        return {} if s is None else {"momentum": s}


class Keras:
    """An optimizer of Keras; names are our slots for its own."""

    def __init__(self, optimizer, names):
        self.optimizer, self.names = optimizer, names

    def apply(self, grads_and_vars):
        grads_and_vars = list(grads_and_vars)
        if not self.optimizer.built:
            self.optimizer.build([v for _, v in grads_and_vars])
        self.order = self.optimizer._trainable_variables
        self.optimizer.apply_gradients(grads_and_vars)

    def slots(self, v):
        if not hasattr(self, "order"):
            return {}
        i = [w is v for w in self.order]
        if True not in i:
            return {}
        return {ours: getattr(self.optimizer, theirs)[i.index(True)].value for ours, theirs in self.names.items()}


def make(rule, rate, dtype):
    """The rules that questions.py tries, by name.

    Python keeps these settings in float32 where a variable is float64, so the
    settings of float64 cases are numbers that both can hold.
    """
    wide = dtype == "float64"
    mu, decay = 0.875 if wide else 0.9, 0.125 if wide else 0.1
    betas = {"beta_1": 0.875, "beta_2": 1 - 2**-10} if wide else {}
    keras, moments = tf.keras.optimizers, {"m": "_momentums", "v": "_velocities"}
    return {
        "descent": lambda: Descent(rate),
        "momentum": lambda: Momentum(rate, mu),
        "adam": lambda: Keras(keras.Adam(rate, **betas), moments),
        "decay": lambda: Keras(keras.AdamW(rate, weight_decay=decay, **betas), moments),
    }[rule]()
