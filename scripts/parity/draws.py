"""Random numbers by seed, name and step, and the initial values of Keras's initializers, for draws.go."""

import struct

import numpy as np
import tensorflow as tf
from keras.src.initializers import random_initializers

from recording import Recording, arguments

DISTRIBUTIONS = {
    "normal": tf.random.stateless_normal,
    "truncated_normal": tf.random.stateless_truncated_normal,
    "uniform": tf.random.stateless_uniform,
}
INITIALIZERS = {
    "GlorotNormal": {}, "GlorotUniform": {}, "HeNormal": {}, "HeUniform": {}, "LecunNormal": {}, "LecunUniform": {},
    "VarianceScaling": {"scale": 3.0, "mode": "fan_out", "distribution": "untruncated_normal"},
    "RandomNormal": {"mean": 0.5, "stddev": 0.2},
    "RandomUniform": {"minval": -0.25, "maxval": 0.75},
    "TruncatedNormal": {"mean": -0.5, "stddev": 0.1},
}
SHAPES = [[], [7], [5, 4], [3, 5, 4], [2, 3, 5, 4]]


def key(seed, name):
    """ops.Graph.RandomKey as its documentation gives it: FNV-1a of the seed's eight bytes and the name."""
    h = 0xCBF29CE484222325
    for byte in struct.pack("<q", seed) + name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h - 2**64 if h >= 2**63 else h


class Drawn:
    """Stands for keras.random: the same numbers as Keras asks for, from a stateless seed."""

    pair = None
    SeedGenerator = ()  # what a seed may be besides an integer

    def normal(self, shape, mean, stddev, dtype, seed):
        return tf.random.stateless_normal(shape, self.pair, mean, stddev, dtype)

    def truncated_normal(self, shape, mean, stddev, dtype, seed):
        return tf.random.stateless_truncated_normal(shape, self.pair, mean, stddev, dtype)

    def uniform(self, shape, minval, maxval, dtype, seed):
        return tf.random.stateless_uniform(shape, self.pair, minval, maxval, dtype)


def main():
    args = arguments()
    rec = Recording(args.out)

    def record(name, kind, what, seed, variable, step, dtype, value):
        rec.cases.append({
            "name": name, "kind": kind, "what": what, "seed": str(seed), "variable": variable, "step": step,
            "key": str(key(seed, variable)), "dtype": dtype, "value": rec.array(value),
        })

    for what, draw in DISTRIBUTIONS.items():
        for dtype in ["float32", "float64", "float16", "bfloat16"]:
            for i, (seed, variable, step) in enumerate([(0, "w", 0), (-7, "net/w", 12), (2**62, "\u00fc", 2**40)]):
                name = "%s/%s/%d" % (what, dtype, i)
                if args.run.search(name):
                    record(name, "draw", what, seed, variable, step, dtype, draw([6, 5], [key(seed, variable), step], dtype=dtype))

    drawn = random_initializers.random = Drawn()
    for what, settings in INITIALIZERS.items():
        for shape in SHAPES:
            for dtype in ["float32", "float64"]:
                name = "%s/%s/%s" % (what, "x".join(map(str, shape)) or "scalar", dtype)
                if not args.run.search(name):
                    continue
                drawn.pair = [key(5, name), 0]
                initializer = getattr(random_initializers, what)(seed=1, **settings)
                value = np.reshape(initializer(tuple(shape), dtype=dtype), shape)
                record(name, "initializer", what, 5, name, 0, dtype, value)
    rec.save()


if __name__ == "__main__":
    main()
