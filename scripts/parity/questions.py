"""The two founding questions: the floormod rule, and training parts in turn."""

import numpy as np
import tensorflow as tf

from recording import Recording, arguments, progress
from training import floormod, gate, make, noise, summed

SEED = 7
STEPS = 200


def rate_at(c, step, dtype):
    rate = c["rate"]
    if c["rate_kind"] == "decay":  # falls by half every 100 steps
        schedule = tf.keras.optimizers.schedules.ExponentialDecay(dtype.as_numpy_dtype(rate), 100, 0.5)
        return tf.cast(schedule(tf.constant(step, tf.int64)), dtype)
    if c["rate_kind"] == "fed":
        rate = rate / (1 + step % 3)
    return tf.constant(rate, dtype)


def update(c, v, w, grad, step):
    """The rule of the question, on all of a variable or on some rows."""
    dtype = w.dtype
    w = w - rate_at(c, step, dtype) * grad
    if c["stddev"]:
        w = w + noise(tf.shape(w), SEED, c["variable"] + "/FloorMod/noise", step, dtype) * tf.constant(c["stddev"], dtype)
    if c["mean"]:
        w = w + tf.constant(c["mean"], dtype)
    b = c["modulus"]
    if c["modulus_kind"] == "fed" and step % 2:
        b *= 1.25
    return floormod(w, b)


def custom_updates(rec, wanted):
    random = np.random.default_rng(3)
    defaults = dict(sparse=False, shape=[4, 3], dtype="float32", modulus=5.0, rate=0.1, rate_kind="value",
                    mean=0.0, stddev=0.0, clip="", limit=0.0, phases=False, modulus_kind="value")
    cases = [
        dict(name="dense"),
        dict(name="dense, noise", stddev=0.01),
        dict(name="dense, noise with a mean, negative modulus", stddev=0.02, mean=-0.01, modulus=-3.0),
        dict(name="dense, decaying rate", stddev=0.01, rate_kind="decay", rate=0.15),
        dict(name="dense, fed rate and modulus", stddev=0.01, rate_kind="fed", modulus_kind="fed"),
        dict(name="dense, phases, capped global norm", stddev=0.005, modulus=2 * np.pi, phases=True, clip="global_norm", limit=0.5, rate=0.3),
        dict(name="dense, phases, capped norm", stddev=0.005, modulus=2 * np.pi, phases=True, clip="norm", limit=0.2, rate=0.3),
        dict(name="dense, phases, capped value", stddev=0.005, modulus=2 * np.pi, phases=True, clip="value", limit=0.05, rate=0.3),
        dict(name="dense, large", shape=[64, 32], stddev=0.05, modulus=2 * np.pi, phases=True, rate=1.0),
        dict(name="dense, large, float64", shape=[64, 32], stddev=0.05, modulus=2 * np.pi, phases=True, rate=1.0, dtype="float64"),
        dict(name="dense, float64", stddev=0.01, dtype="float64"),
        dict(name="sparse", sparse=True, shape=[10, 3]),
        dict(name="sparse, noise", sparse=True, shape=[10, 3], stddev=0.02, rate=0.5),
        dict(name="sparse, noise, negative modulus", sparse=True, shape=[10, 3], stddev=0.02, mean=0.03, modulus=-3.0),
        dict(name="sparse, decaying rate, capped global norm", sparse=True, shape=[10, 3], stddev=0.02, rate_kind="decay", clip="global_norm", limit=0.5),
        dict(name="sparse, fed rate and modulus, float64", sparse=True, shape=[10, 3], stddev=0.02, rate_kind="fed", modulus_kind="fed", dtype="float64"),
    ]
    for done, c in enumerate(cases):
        if not wanted.search(c["name"]):
            continue
        c = defaults | c | {"variable": "model/w", "steps": STEPS}
        progress(done, len(cases), c["name"].replace(" ", "-"))
        dtype, shape, b = c["dtype"], c["shape"], c["modulus"]
        start = (random.uniform(0.02, 0.98, shape) * b).astype(dtype)
        w = tf.Variable(start)
        if c["sparse"]:
            ids = random.integers(0, shape[0], (STEPS, 8)).astype(np.int32)
            ids[:, 5] = ids[:, 2]  # a duplicate in every step
            target = (random.uniform(0.1, 0.9, (8, shape[1])) * b).astype(dtype)
            c |= {"ids": rec.array(ids), "target": rec.array(target)}
        else:
            x = random.normal(size=(16, shape[0])).astype(dtype)
            there = random.uniform(-0.15, 1.15, shape) * b  # some weights have to wrap
            target = (x @ (np.cos(there) if c["phases"] else there)).astype(dtype)
            c |= {"x": rec.array(x), "target": rec.array(target)}

        @tf.function
        def gradient(rows):
            with tf.GradientTape() as tape:
                if c["sparse"]:
                    y = tf.gather(w, rows)
                elif c["phases"]:
                    y = tf.matmul(x, tf.cos(w))
                else:
                    y = tf.matmul(x, w)
                loss = tf.reduce_mean(tf.square(y - target)) * 4
            return tape.gradient(loss, w)

        history = []
        for step in range(STEPS):
            grad = gradient(tf.constant(ids[step]) if c["sparse"] else None)
            rows = None
            if c["sparse"]:
                grad, rows = summed(grad)
            if c["clip"] == "value":
                grad = tf.clip_by_value(grad, -c["limit"], c["limit"])
            elif c["clip"] == "norm":
                grad = tf.clip_by_norm(grad, c["limit"])
            elif c["clip"] == "global_norm":
                (grad,), _ = tf.clip_by_global_norm([grad], c["limit"])
            if rows is None:
                w.assign(update(c, w, w.value(), grad, step))
            else:
                w.scatter_update(tf.IndexedSlices(update(c, w, tf.gather(w, rows), grad, step), rows))
            history.append(w.numpy())
        rec.cases.append(c | {"question": "custom updates", "start": rec.array(start), "want": rec.array(np.stack(history))})


WAYS = ["scope", "variables", "trainable", "gate", "gated", "stop_gradient"]
RULES = {"descent": 1 / 8, "momentum": 1 / 64, "adam": 1 / 128, "decay": 1 / 128}
NAMES = ["gan/G/w", "gan/G/b", "gan/D/w", "gan/D/b"]
TURNS = 100


def freezing(rec, wanted):
    random = np.random.default_rng(5)
    dtype = "float64"
    z = random.normal(size=(6, 3)).astype(dtype)
    real = random.normal(size=(6, 2)).astype(dtype)
    start = {n: random.uniform(-0.6, 0.6, s).astype(dtype) for n, s in zip(NAMES, [(3, 2), (2,), (2, 2), (2,)])}
    # Which turns the gates are open in: 0, a fraction, 1, 2.
    opens = np.resize(np.array([1, 0, 0, 0.5, 2, 0, 1], dtype), TURNS)
    shared = {"z": rec.array(z), "real": rec.array(real), "opens": rec.array(opens),
              "starts": {n: rec.array(v) for n, v in start.items()}}
    todo = [(way, rule, dt) for way in WAYS for rule in RULES for dt in ("float64", "float32") if dt == "float32" or way == "scope"]
    for done, (way, rule, dt) in enumerate(todo):
        name = "%s, %s, %s" % (way, rule, dt)
        if not wanted.search(name):
            continue
        progress(done, len(todo), way + "-" + rule)
        v = {n: tf.Variable(start[n].astype(dt)) for n in NAMES}
        zz, rr = z.astype(dt), real.astype(dt)
        optimizer, second = make(rule, RULES[rule], dt), make(rule, RULES[rule], dt)

        def layer(x, name):
            return tf.tanh(tf.matmul(x, v[name + "/w"]) + v[name + "/b"])

        def losses(is_open):
            fake = layer(zz, "gan/G")
            if way == "gate":
                fake = gate(fake, is_open)
            if way == "stop_gradient":
                fake = tf.stop_gradient(fake)
            score_fake, score_real = layer(fake, "gan/D"), layer(rr, "gan/D")
            return (tf.reduce_sum(tf.square(score_fake)) - tf.reduce_sum(score_real),
                    -tf.reduce_sum(score_fake))

        @tf.function
        def gradients(of_g, is_open):
            with tf.GradientTape() as tape:
                loss = losses(is_open)[1 if of_g else 0]
            names = NAMES[:2] if of_g else trained
            return tape.gradient(loss, [v[n] for n in names])

        trained = {"scope": NAMES[2:], "variables": [NAMES[2]], "trainable": NAMES[2:]}.get(way, NAMES)
        history = []
        for turn in range(TURNS):
            # D and G in turn, each by its own optimizer; else only D's loss.
            of_g = way == "scope" and turn % 2 == 1
            names, used = (NAMES[:2], second) if of_g else (trained, optimizer)
            grads = gradients(of_g, tf.constant(opens[turn], dt))
            pairs = [(g, v[n]) for g, n in zip(grads, names) if g is not None]
            if way == "gated":  # G by an optimizer behind a gate, D by one that is free
                optimizer.apply(pairs[2:])
                if opens[turn] != 0:
                    second.apply(pairs[:2])
            else:
                used.apply(pairs)
            now = {n: v[n].numpy() for n in NAMES}
            for n in NAMES:
                for o in (optimizer, second):
                    now |= {n + " " + k: np.asarray(s) for k, s in o.slots(v[n]).items()}
            history.append(now)
        last = history[-1]
        rec.cases.append(shared | {
            "question": "freezing", "name": name, "way": way, "rule": rule, "dtype": dt,
            "rate": RULES[rule], "steps": TURNS,
            "last": {k: rec.array(a) for k, a in last.items()},
            "history": {n: rec.array(np.stack([h[n] for h in history])) for n in NAMES}})


def main():
    args = arguments()
    rec = Recording(args.out)
    custom_updates(rec, args.run)
    freezing(rec, args.run)
    rec.save()


if __name__ == "__main__":
    main()
