"""The steps of Python's optimizers, each in one tf.function.

The arguments are name=text. Each line read from standard input, `name|variables|dimensions runs`, is
answered by nanoseconds per run. Only the last form is kept: some have variables of ten million elements.
"""
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import keras as keras_package
import tensorflow as tf

keras, v1, raw = keras_package.optimizers, tf.compat.v1.train, tf.raw_ops
step = tf.Variable(0, dtype=tf.int64)


class AddSign:
    """What Python has a kernel for but no class."""

    kernel = staticmethod(lambda **inputs: raw.ResourceApplyAddSign(alpha=1.0, **inputs))

    def __init__(self, rate):
        self.rate, self.slots = rate, []

    def build(self, variables):
        self.slots = [tf.Variable(tf.zeros(v.shape)) for v in variables]

    def apply(self, grads, variables):
        for g, v, m in zip(grads, variables, self.slots):
            self.kernel(var=v.handle, m=m.handle, lr=self.rate, sign_decay=1.0, beta=0.9, grad=g)


class PowerSign(AddSign):
    kernel = staticmethod(lambda **inputs: raw.ResourceApplyPowerSign(logbase=1.0, **inputs))


class FloorMod:
    def __init__(self, rate, modulus):
        self.rate, self.modulus = rate, modulus

    def build(self, variables):
        pass

    def apply(self, grads, variables):
        for g, v in zip(grads, variables):
            v.assign(tf.math.floormod(v - self.rate * g, self.modulus), read_value=False)


def make(text, count, shape):
    is_keras = text.startswith("keras.")
    variables = [(keras_package.Variable if is_keras else tf.Variable)(tf.fill(shape, 0.5), name="w%d" % i) for i in range(count)]
    values = [tf.Variable(tf.fill(shape, 0.001)) for _ in range(count)]
    optimizer = eval(text)
    if text.startswith("v1."):
        optimizer._create_slots(variables)
        run = lambda: optimizer.apply_gradients(zip([g.read_value() for g in values], variables))
    else:
        optimizer.build(variables)
        run = lambda: optimizer.apply([g.read_value() for g in values], variables)

    @tf.function(autograph=False)
    def function():
        run()

    return function


def main():
    texts = dict(argument.split("=", 1) for argument in sys.argv[1:])
    made, function = None, None
    for line in sys.stdin:
        name, runs = line.split()
        if name != made:
            function = None
            which, count, shape = name.split("|")
            made, function = name, make(texts[which], int(count), [int(d) for d in shape.split(",")])
            function()
        begin = time.perf_counter_ns()
        for _ in range(int(runs)):
            function()
        print((time.perf_counter_ns() - begin) / int(runs), flush=True)


if __name__ == "__main__":
    main()
