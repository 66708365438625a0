"""Trains a small model by wrapped optimizers: the table is in wrappers.go, the rest as in optimizers.py."""

import keras as keras_package
import tensorflow as tf

import optimizers
from optimizers import SEED, Keras, keras
from training import noise, summed


def constrained(optimizer, constraint, names=None):
    """A Keras optimizer whose variables have a constraint."""
    optimizer.parity_constraint = constraint, names
    return optimizer


class Around:
    """What Keras has not: something before or after the step of one of its optimizers."""

    def __init__(self, optimizer):
        self.optimizer, self.made = optimizer, {}

    def begin(self, model):
        self.model = model
        for name, v in zip(model.names, model.variables):
            for slot, value in self.kept(v).items():
                self.made[name, slot] = tf.Variable(value)

    def kept(self, v):
        return {}

    def before(self, name, grad, v, i):
        return grad

    def after(self, i):
        pass


class Lookahead(Around):
    def __init__(self, optimizer, k, alpha):
        super().__init__(optimizer)
        self.k, self.alpha = k, alpha

    def kept(self, v):
        return {"slow": v}

    def after(self, i):
        for name, v in zip(self.model.names, self.model.variables):
            slow = self.made[name, "slow"]
            due = tf.equal((i + 1) % self.k, 0)
            slow.assign(tf.where(due, slow + tf.constant(self.alpha, v.dtype) * (v - slow), slow))
            v.assign(tf.where(due, slow, v))


class SWA(Around):
    def __init__(self, optimizer, start, every):
        super().__init__(optimizer)
        self.start, self.every = start, every

    def kept(self, v):
        return {"average": v}

    def after(self, i):
        since = i + 1 - self.start
        due = tf.logical_and(since >= 0, tf.equal(since % self.every, 0))
        for name, v in zip(self.model.names, self.model.variables):
            n, average = tf.cast(since // self.every, v.dtype), self.made[name, "average"]
            average.assign(tf.where(due, (average * n + v) / (n + 1), average))


class Averaged(Around):
    """tf.train.ExponentialMovingAverage."""

    def __init__(self, optimizer, decay):
        super().__init__(optimizer)
        self.decay = decay

    def begin(self, model):
        super().begin(model)
        self.average = tf.train.ExponentialMovingAverage(self.decay)
        self.average.apply(model.variables)  # which starts at the initial values
        for name, v in zip(model.names, model.variables):
            self.made[name, "average"] = self.average.average(v)

    def after(self, i):
        self.average.apply(self.model.variables)


class L2(Around):
    def __init__(self, optimizer, decay):
        super().__init__(optimizer)
        self.decay = decay

    def before(self, name, grad, v, i):
        return tf.convert_to_tensor(grad) + tf.constant(self.decay, v.dtype) * v


class Noise(Around):
    def __init__(self, optimizer, of, variance, decay):
        super().__init__(optimizer)
        self.of, self.variance, self.decay = of, variance, decay

    def before(self, name, grad, v, i):
        number = lambda x: tf.constant(x, v.dtype)
        stddev = tf.sqrt(number(self.variance) / tf.pow(number(1) + tf.cast(i, v.dtype), number(self.decay)))
        add = lambda g: g + stddev * noise(tf.shape(g), SEED, "%s/%s/noise" % (name, self.of), i, v.dtype)
        if isinstance(grad, tf.IndexedSlices):
            return tf.IndexedSlices(add(grad.values), grad.indices, grad.dense_shape)
        return add(grad)


class Groups:
    """Keras' MultiOptimizer does this by the paths of variables; here by hand."""

    def __init__(self, **of):
        self.of = of


class Wrapped(Keras):
    def __init__(self, text, names, model):
        self.model, self.around, made = model, [], eval(text, dict(globals(), **names))
        self.groups = None
        while isinstance(made, Around):
            self.around.append(made)
            made.begin(model)
            made = made.optimizer
        if isinstance(made, Groups):
            self.groups = []
            for group, optimizer in made.of.items():
                members = [k for k, name in enumerate(model.names) if name in group.split("_")]
                optimizer.build([model.given[k] for k in members])
                self.groups.append((optimizer, members))
            self.optimizer = self.groups[0][0]
            return
        constraint, only = getattr(made, "parity_constraint", (None, None))
        for name, v in zip(model.names, model.given):
            if constraint is not None and (only is None or name in only):
                v.constraint = constraint
        self.optimizer = made
        made.build(model.given)
        if hasattr(made, "scale_loss"):
            plain = model.loss
            model.loss = lambda ids: made.scale_loss(plain(ids))

    def step(self, i, grads):
        grads = [tf.IndexedSlices(*summed(g), g.dense_shape) if isinstance(g, tf.IndexedSlices) else g for g in grads]
        for around in self.around:
            grads = [around.before(*each, i) for each in zip(self.model.names, grads, self.model.variables)]
        for optimizer, members in self.groups or [(self.optimizer, range(len(grads)))]:
            optimizer.apply([grads[k] for k in members], [self.model.given[k] for k in members])
        for around in reversed(self.around):
            around.after(i)

    def slots(self):
        found = {} if self.groups else super().slots()
        for around in self.around:
            found.update(around.made)
        return found


optimizers.KINDS["keras"] = Wrapped

if __name__ == "__main__":
    optimizers.main()
