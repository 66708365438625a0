"""The values of learning-rate schedules over the first 1,000 steps and at some far ones.

The table is in schedules.go: a case names its schedule as Python text.
"""

import json
import math
import os
import types

import keras as keras_package
import numpy as np
import tensorflow as tf

from recording import Recording, arguments, progress
from training import noise

STEPS = np.concatenate([np.arange(1000), [9999, 10**6, 2**24 - 1, 2**24, 2**31, 2**40]]).astype(np.int64)


def names(dtype):
    """What a text may use: n makes a number of the dtype, s is the step."""
    numpy_type = np.dtype(dtype).type
    return {
        "keras": keras_package.optimizers.schedules, "v1": tf.compat.v1.train, "tf": tf, "np": np, "math": math,
        "n": numpy_type, "cast": lambda x: tf.cast(x, dtype),
        "drawn": lambda name, s: noise([], 0, name, s, dtype), "plateau": plateau,
    }


def plateau(measured, rate, **settings):
    """Keras' callback: the rate after each measurement."""
    model = types.SimpleNamespace(optimizer=types.SimpleNamespace(learning_rate=keras_package.Variable(rate)))
    callback = keras_package.callbacks.ReduceLROnPlateau(monitor="loss", **settings)
    callback.set_model(model)
    callback.on_train_begin()
    rates = []
    for epoch, loss in enumerate(measured):
        callback.on_epoch_end(epoch, {"loss": loss})
        rates.append(float(model.optimizer.learning_rate))
    return np.array(rates)


def values(case, dtype):
    """What a case's schedule is at all steps, or after all measurements."""
    if "measured" in case:
        return eval(case["python"], names(dtype) | {"measured": case["measured"]})
    text = case["python"] if case["python"].startswith("keras.") else "lambda s: " + case["python"]
    f = eval(text, names(dtype))
    # In a graph, as training runs them: the graph optimizer makes a product of
    # the division by a constant, there as here.
    return tf.function(lambda: tf.map_fn(f, tf.constant(STEPS), fn_output_signature=dtype), autograph=False)().numpy()


def main():
    args = arguments()
    rec = Recording(args.out)
    with open(os.path.join(args.out, "table.json")) as f:
        table = json.load(f)
    for done, case in enumerate(table):
        progress(done, len(table), case["python"].split("(")[0].replace(" ", ""))
        dtype = case["dtype"]
        try:
            rec.cases.append({"want": rec.array(values(case, dtype))})
        except Exception as e:
            rec.cases.append({"error": "%s: %s" % (type(e).__name__, str(e)[-400:])})
    rec.save({"steps": rec.array(STEPS), "cases": rec.cases})


if __name__ == "__main__":
    main()
