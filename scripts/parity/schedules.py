"""The values of learning-rate schedules over the first 1,000 steps and at some far ones."""

import numpy as np
import tensorflow as tf

from recording import Recording, arguments, progress

STEPS = np.concatenate([np.arange(1000), [9999, 10**6, 2**24 - 1, 2**24, 2**31, 2**40]]).astype(np.int64)


def cases(number):
    """Name, our settings, Python's schedule; number makes settings of the dtype."""
    keras, v1 = tf.keras.optimizers.schedules, tf.compat.v1.train
    exponential = [(0.1, 100, 0.96), (1.0, 10, 0.5), (3e-4, 333, 0.9), (2.0, 1000, 1.0)]
    for initial, steps, rate in exponential:
        for staircase in (False, True):
            settings = {"initial": initial, "steps": steps, "rate": rate, "staircase": staircase}
            name = "%g·%g^(s/%d)%s" % (initial, rate, steps, ", staircase" if staircase else "")
            yield ("ExponentialDecay", name + ", Keras", settings,
                   keras.ExponentialDecay(number(initial), steps, number(rate), staircase=staircase))
            yield ("ExponentialDecay", name + ", v1", settings,
                   lambda s, a=(initial, steps, rate, staircase): v1.exponential_decay(number(a[0]), s, a[1], number(a[2]), staircase=a[3]))
    for boundaries, values in [([100, 500], [1.0, 0.5, 0.1]), ([0, 1, 2, 999], [5.0, 4.0, 3.0, 2.0, 1.0]), ([10**6], [0.25, 0.125])]:
        settings = {"boundaries": boundaries, "values": values}
        numbers = [number(v) for v in values]
        yield ("PiecewiseConstant", "%s, Keras" % boundaries, settings, keras.PiecewiseConstantDecay(boundaries, numbers))
        yield ("PiecewiseConstant", "%s, v1" % boundaries, settings,
               lambda s, b=boundaries, n=numbers: v1.piecewise_constant(s, [np.int64(x) for x in b], n))


def main():
    args = arguments()
    rec = Recording(args.out)
    steps = rec.array(STEPS)
    for dtype in ("float32", "float64"):
        for schedule, name, settings, f in cases(np.dtype(dtype).type):
            name += ", " + dtype
            if not args.run.search(name):
                continue
            progress(len(rec.cases), 44, schedule)
            # In a graph, as training runs them: the graph optimizer makes a
            # product of the division by a constant, there as here.
            values = tf.function(lambda: tf.map_fn(f, tf.constant(STEPS), fn_output_signature=dtype))().numpy()
            rec.cases.append({"schedule": schedule, "name": name, "dtype": dtype, "settings": settings, "steps": steps, "want": rec.array(values)})
    rec.save()


if __name__ == "__main__":
    main()
