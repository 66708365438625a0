"""Trains variables by recorded gradients with each optimizer, dense and sparse."""

import numpy as np
import tensorflow as tf

from recording import Recording, arguments, progress
from training import floormod, make, noise, summed

SEED = 7
STEPS = 25
SHAPE = (6, 3)

# Our optimizer, the rule, whether its sparse form can be compared: Keras does
# not sum duplicates first, so its rules are compared on dense gradients.
RULES = [
    ("GradientDescent", "descent", True),
    ("GradientDescent", "decay of descent", False),
    ("Momentum", "momentum", True),
    ("Momentum", "nesterov", True),
    ("Momentum", "keras momentum", False),
    ("Momentum", "keras nesterov", False),
    ("Momentum", "decay of momentum", False),
    ("Adam", "adam", False),
    ("Adam", "v1 adam", True),
    ("Adam", "decay", False),
    ("FloorMod", "floormod", True),
    ("FloorMod", "floormod, negative", True),
    ("FloorMod", "floormod, noise", True),
]
FLOORMOD = {"floormod": (3.0, 0.0), "floormod, negative": (-3.0, 0.0), "floormod, noise": (3.0, 0.125)}


class FloorMod:
    def __init__(self, rate, modulus, stddev):
        self.rate, self.modulus, self.stddev, self.step = rate, modulus, stddev, 0

    def apply(self, grads_and_vars):
        for grad, v in grads_and_vars:
            w, rows = v.value(), None
            if isinstance(grad, tf.IndexedSlices):
                grad, rows = summed(grad)
                w = tf.gather(v, rows)
            w = w - tf.constant(self.rate, w.dtype) * grad
            if self.stddev:
                w = w + noise(tf.shape(w), SEED, "w/FloorMod/noise", self.step, w.dtype) * tf.constant(self.stddev, w.dtype)
            w = floormod(w, self.modulus)
            if rows is None:
                v.assign(w)
            else:
                v.scatter_update(tf.IndexedSlices(w, rows))
        self.step += 1

    def slots(self, v):
        return {}


def main():
    args = arguments()
    rec = Recording(args.out)
    random = np.random.default_rng(9)
    todo = [(o, r, sparse, dt) for o, r, both in RULES for sparse in ((False, True) if both else (False,)) for dt in ("float32", "float64")]
    for done, (optimizer, rule, sparse, dtype) in enumerate(todo):
        name = "%s, %s, %s" % (rule, "sparse" if sparse else "dense", dtype)
        if not args.run.search(name):
            continue
        progress(done, len(todo), rule.replace(" ", "-"))
        rate = 1 / 16
        start = random.uniform(0.1, 0.9, SHAPE).astype(dtype) * (-1 if "negative" in rule else 1)
        grads = random.normal(size=(STEPS, 4 if sparse else SHAPE[0], SHAPE[1])).astype(dtype)
        ids = random.integers(0, SHAPE[0], (STEPS, 4)).astype(np.int32)
        ids[::2, 3] = ids[::2, 0]  # duplicates in every other step
        trainer = FloorMod(rate, *FLOORMOD[rule]) if rule in FLOORMOD else make(rule, rate, dtype)
        v = tf.Variable(start)
        history, slots = [], []
        for step in range(STEPS):
            grad = tf.constant(grads[step])
            if sparse:
                grad = tf.IndexedSlices(grad, tf.constant(ids[step]), tf.constant(SHAPE))
            trainer.apply([(grad, v)])
            history.append(v.numpy())
            slots.append({k: np.array(s) for k, s in trainer.slots(v).items()})
        modulus, stddev = FLOORMOD.get(rule, (0.0, 0.0))
        rec.cases.append({
            "optimizer": optimizer, "rule": rule, "name": name, "sparse": sparse, "dtype": dtype, "rate": rate,
            "modulus": modulus, "stddev": stddev, "start": rec.array(start), "grads": rec.array(grads), "ids": rec.array(ids),
            "want": rec.array(np.stack(history)), "slots": {k: rec.array(np.stack([s[k] for s in slots])) for k in slots[-1]}})
    rec.save()


if __name__ == "__main__":
    main()
