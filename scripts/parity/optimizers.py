"""Trains a small model by each optimizer that the Go side asks for.

The table is in optimizers.go: a case names its optimizer as Python text, which is
evaluated here. Each case is one tf.function around one loop of all steps.
"""

import functools
import json
import os

import keras as keras_package
import numpy as np
import tensorflow as tf

from recording import Recording, arguments, progress
from training import floormod, noise, summed

SEED = 7
STEPS = 200
IDS = 6  # rows looked up in a step, with duplicates
SHAPES = {"table": (8, 4), "cube": (2, 2, 4), "w": (4, 5), "b": (5,), "gain": ()}

keras, v1, raw = keras_package.optimizers, tf.compat.v1.train, tf.raw_ops


class Model:
    """A table of rows that is looked up, two layers and a scalar: [ids] → [ids, 5], not convex."""

    def __init__(self, start, targets, scale, variable):
        self.given = [variable(a, name) for name, a in start.items()]
        self.variables = [getattr(v, "value", v) if isinstance(v, keras_package.Variable) else v for v in self.given]
        self.names = list(start)
        self.targets, self.scale = tf.constant(targets), tf.constant(scale, targets.dtype)

    def loss(self, ids):
        table, cube, w, b, gain = self.variables
        h = tf.tanh(tf.matmul(tf.gather(table, ids), tf.reshape(cube, [4, 4])))
        out = gain * (tf.tanh(tf.matmul(h, w)) + b)
        return self.scale * tf.reduce_mean(tf.math.squared_difference(out, tf.gather(self.targets, ids)))

    def gradients(self, ids):
        with tf.GradientTape() as tape:
            loss = self.loss(ids)
        return tape.gradient(loss, self.variables)


def settings(case):
    """What a case's text may name: the hyperparameters that Go has chosen, and the rate."""
    rate = float(case["rate"])
    if case["scheduled"]:
        number = np.float64 if case["dtype"] == "float64" else np.float32
        rate = keras.schedules.ExponentialDecay(number(rate), 128, number(0.25))
    return {"rate": rate, "number": tf.as_dtype(case["dtype"]).as_numpy_dtype, **case["numbers"]}


class Keras:
    """Keras does not sum rows with the same index first; here that has been done."""

    def __init__(self, text, names, model):
        self.optimizer = eval(text, dict(globals(), **names))
        self.optimizer.build(model.given)
        self.model = model

    @staticmethod
    def variable(array, name):
        return keras_package.Variable(array, dtype=array.dtype.name, name=name)

    def step(self, i, grads):
        if not getattr(self.optimizer, "parity_unsummed", False):
            grads = [tf.IndexedSlices(*summed(g), g.dense_shape) if isinstance(g, tf.IndexedSlices) else g for g in grads]
        self.optimizer.apply(grads, self.model.given)

    def slots(self):
        found = {}
        for slot in everything(self.optimizer):
            for name in self.model.names:
                if slot.name.startswith(name + "_"):
                    found[name, slot.name[len(name) + 1:]] = slot.value
        if isinstance(self.optimizer, keras.Adafactor):  # its r and c are named like the variable; v follows from them
            for name, v, r, c in zip(self.model.names, self.model.variables, self.optimizer._r, self.optimizer._c):
                if v.shape.rank > 1:
                    found[name, "r"], found[name, "c"] = r.value, c.value
                    del found[name, "velocity"]
        return found


def unsummed(optimizer):
    """A Keras optimizer that gets sparse gradients as they come."""
    optimizer.parity_unsummed = True
    return optimizer


def everything(optimizer):
    """The variables of a Keras optimizer, also of one that another wraps."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return list(optimizer.variables) + (everything(inner) if inner is not None else [])


class V1:
    """tf.compat.v1.train."""

    def __init__(self, text, names, model):
        self.rate, self.model = names["rate"], model
        self.global_step = tf.Variable(0, dtype=tf.int64)
        constant = 1.0 if callable(self.rate) else self.rate
        self.optimizer = eval(text, dict(globals(), **names, global_step=self.global_step), {"rate": constant})
        self.optimizer._create_slots(model.variables)

    @staticmethod
    def variable(array, name):
        return tf.Variable(array, name=name)

    def step(self, i, grads):
        if callable(self.rate):  # not all of these optimizers take a function
            setattr(self.optimizer, "_lr" if hasattr(self.optimizer, "_lr") else "_learning_rate", self.rate(i))
        self.optimizer.apply_gradients(zip(grads, self.model.variables), global_step=self.global_step)

    def slots(self):
        return {(name, slot): self.optimizer.get_slot(v, slot)
                for slot in self.optimizer.get_slot_names() for name, v in zip(self.model.names, self.model.variables)}


class Own:
    """What Python has no optimizer for: a Rule, below."""

    def __init__(self, text, names, model):
        self.rule = eval(text, dict(globals(), **names))
        self.rate, self.model, self.made = names["rate"], model, {}

    variable = V1.variable

    def slot(self, name, slot, v, value, dtype):
        if (name, slot) not in self.made:
            with tf.init_scope():
                self.made[name, slot] = tf.Variable(tf.zeros(v.shape, dtype or v.dtype) if value is None else value.read_value())
        return self.made[name, slot]

    def step(self, i, grads):
        rate = self.rate(i) if callable(self.rate) else self.rate
        for name, grad, v in zip(self.model.names, grads, self.model.variables):
            self.rule.step(functools.partial(self.own, name, v), name, i, tf.cast(rate, v.dtype), grad, v)

    def own(self, name, v, slot, value=None, dtype=None):
        return self.slot(name, slot, v, value, dtype)

    def slots(self):
        return {key: s for key, s in self.made.items() if s.dtype == self.model.variables[0].dtype}


class AddSign:
    """TensorFlow's own kernels, for which Python has no class; they have no sparse form."""

    def __init__(self, alpha, sign_decay, beta):
        self.numbers = alpha, sign_decay, beta

    def step(self, slot, name, i, rate, grad, v):
        alpha, sign_decay, beta = (tf.constant(x, v.dtype) for x in self.numbers)
        raw.ResourceApplyAddSign(var=v.handle, m=slot("m").handle, lr=rate, alpha=alpha, sign_decay=sign_decay,
                                 beta=beta, grad=tf.convert_to_tensor(grad))


class PowerSign(AddSign):
    def step(self, slot, name, i, rate, grad, v):
        logbase, sign_decay, beta = (tf.constant(x, v.dtype) for x in self.numbers)
        raw.ResourceApplyPowerSign(var=v.handle, m=slot("m").handle, lr=rate, logbase=logbase, sign_decay=sign_decay,
                                   beta=beta, grad=tf.convert_to_tensor(grad))


class ScheduleFreeAdamW:
    """After the paper, with all three sequences: the gradient is that at y, the variable."""

    def __init__(self, beta_1, beta_2, epsilon, decay=0.0, warmup=0):
        self.beta_1, self.beta_2, self.epsilon, self.decay, self.warmup = beta_1, beta_2, epsilon, decay, warmup

    def step(self, slot, name, i, rate, grad, v):
        number = lambda x: tf.cast(tf.constant(x, tf.float64), v.dtype)
        grad, t = tf.convert_to_tensor(grad), tf.cast(i + 1, tf.float64)
        z, x, velocity, weights = slot("z", v), slot("x", v), slot("velocity"), slot("weights", dtype=tf.float64)
        wide = tf.cast(rate, tf.float64)
        if self.warmup:
            wide *= tf.minimum(t / self.warmup, 1)
        weights.assign_add(tf.broadcast_to(wide * wide, weights.shape))
        c = tf.cast(wide * wide / tf.reshape(weights, [-1])[0], v.dtype)
        velocity.assign_add((grad * grad - velocity) * number(1 - self.beta_2))
        direction = grad / (tf.sqrt(velocity / tf.cast(1 - self.beta_2 ** t, v.dtype)) + number(self.epsilon))
        z.assign_sub(tf.cast(wide, v.dtype) * (direction + number(self.decay) * v))
        x.assign((1 - c) * x + c * z)
        v.assign(number(1 - self.beta_1) * z + number(self.beta_1) * x)


class FloorMod:
    """w - rate·g + noise modulo a number, rows only where the gradient is sparse."""

    def __init__(self, modulus, stddev=0.0):
        self.modulus, self.stddev = modulus, stddev

    def step(self, slot, name, i, rate, grad, v):
        w, rows = v.read_value(), None
        if isinstance(grad, tf.IndexedSlices):
            grad, rows = summed(grad)
            w = tf.gather(v, rows)
        w = w - rate * grad
        if self.stddev:
            w = w + noise(tf.shape(w), SEED, name + "/FloorMod/noise", i, w.dtype) * tf.constant(self.stddev, w.dtype)
        w = floormod(w, self.modulus)
        if rows is None:
            v.assign(w)
        else:
            v.scatter_update(tf.IndexedSlices(w, rows))


KINDS = {"keras": Keras, "v1": V1, "own": Own}


def train(case, start, targets, ids):
    """The variables and slots after each step, by name."""
    kind = KINDS[case["kind"]]
    model = Model(start, targets, case["scale"], kind.variable)
    trainer = kind(case["python"], settings(case), model)
    names = []

    def everything_now():
        now = {name: v.read_value() for name, v in zip(model.names, model.variables)}
        return now | {"/".join(key): s.read_value() for key, s in trainer.slots().items()}

    @tf.function(autograph=False)
    def loop():
        def body(i, arrays):
            trainer.step(tf.cast(i, tf.int64), model.gradients(tf.constant(ids)[i]))
            now = everything_now()
            names[:] = now
            # The loop begins with arrays for more slots than there may be.
            written = [a.write(i, x) for a, x in zip(arrays, now.values())]
            return i + 1, written + arrays[len(written):]

        dtype = tf.as_dtype(case["dtype"])
        many = len(model.variables) * 6
        shapes = [tf.TensorArray(dtype, STEPS, element_shape=None, infer_shape=False) for _ in range(many)]
        _, arrays = tf.while_loop(lambda i, _: i < STEPS, body, (0, shapes), parallel_iterations=1)
        return [a.stack() for a in arrays[:len(names)]]

    return dict(zip(names, (a.numpy() for a in loop())))


def main():
    args = arguments()
    rec = Recording(args.out)
    with open(os.path.join(args.out, "table.json")) as f:
        table = json.load(f)
    random = np.random.default_rng(9)
    start = {name: random.uniform(0.2, 1.0, shape) for name, shape in SHAPES.items()}
    targets = random.uniform(-1, 1, (SHAPES["table"][0], 5))
    ids = random.integers(0, SHAPES["table"][0], (STEPS, IDS)).astype(np.int32)
    ids[:, 3] = ids[:, 0]
    for done, case in enumerate(table):
        progress(done, len(table), case["python"].split("(")[0])
        dtype = tf.as_dtype(case["dtype"]).as_numpy_dtype
        own = {k: v.astype(dtype) for k, v in start.items()}
        found = {"start": {k: rec.array(v) for k, v in own.items()}, "targets": rec.array(targets.astype(dtype))}
        try:
            found["want"] = {k: rec.array(v) for k, v in train(case, own, targets.astype(dtype), ids).items()}
        except Exception as e:  # Go decides whether that is to be
            found["error"] = "%s: %s" % (type(e).__name__, str(e)[:400])
        rec.cases.append(found)
    rec.save({"ids": rec.array(ids), "cases": rec.cases})


if __name__ == "__main__":
    main()
