"""The Python peers of the benchmarks.

Each line read from standard input, `<form> <runs>`, is answered by nanoseconds per run. Every form is a
function made on first use, so that its tracing and warming up are not timed. A form is named
`<story>/<how>`; the caller keeps the fastest way of each story. The argument is the folder of the
graphs that the caller has written.
"""
import json
import os
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
RATE = 0.01
B = 5.0


def weights(sizes):
    rng = np.random.default_rng(1)
    return [(rng.uniform(0, 0.1, (m, n)).astype(np.float32), np.zeros(n, np.float32)) for m, n in zip(sizes, sizes[1:])]


def batch(sizes):
    rng = np.random.default_rng(2)
    return rng.random((32, sizes[0]), np.float32), rng.random((32, sizes[-1]), np.float32)


def loss_of(params, x, y):
    for i, (w, b) in enumerate(params):
        x = tf.matmul(x, w) + b
        if i + 1 < len(params):
            x = tf.nn.relu(x)
    return tf.reduce_mean(tf.math.squared_difference(x, y))


SMALL = [10, 64, 1]
DEEP = [64] * 11  # ten layers: twenty variables


class Graph:
    """A v1 training graph, and one floormod assignment per variable beside it."""

    def __init__(self, sizes):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.x = v1.placeholder(tf.float32, [None, sizes[0]])
            self.y = v1.placeholder(tf.float32, [None, sizes[-1]])
            params = [tuple(v1.Variable(a, use_resource=True) for a in pair) for pair in weights(sizes)]
            self.loss = loss_of(params, self.x, self.y)
            self.train = v1.train.GradientDescentOptimizer(RATE).minimize(self.loss)
            self.fixups = [v.assign(tf.math.floormod(v, B), read_value=False) for pair in params for v in pair]
            self.session = v1.Session()
            self.session.run(v1.global_variables_initializer())
        self.feed = dict(zip((self.x, self.y), batch(sizes)))

    def session_run(self):
        fetches = [self.train, self.loss]
        return lambda: self.session.run(fetches, self.feed)

    def callable(self):
        call = self.session.make_callable([self.train, self.loss], [self.x, self.y])
        x, y = self.feed.values()
        return lambda: call(x, y)

    def fixups_run(self):
        step = self.session_run()

        def run():
            step()
            for op in self.fixups:
                self.session.run(op)

        return run

    def fixups_callable(self):
        step = self.callable()
        calls = [self.session.make_callable(op) for op in self.fixups]

        def run():
            step()
            for call in calls:
                call()

        return run


def function(sizes, fix=None):
    params = [tuple(tf.Variable(a) for a in pair) for pair in weights(sizes)]
    variables = [v for pair in params for v in pair]
    x, y = map(tf.constant, batch(sizes))
    rate = tf.constant(RATE)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(params, x, y)
        for v, g in zip(variables, tape.gradient(loss, variables)):
            v.assign_sub(rate * g)
        return loss

    if fix is None:
        return lambda: step(x, y)

    modulus = tf.constant(B)

    def fixup_of(v):
        def fixup():
            v.assign(tf.math.floormod(v, modulus), read_value=False)

        return tf.function(fixup) if fix == "function" else fixup

    fixups = [fixup_of(v) for v in variables]

    def run():
        step(x, y)
        for fixup in fixups:
            fixup()

    return run


class Gradients:
    """Builds the gradients of the caller's graph, imported anew for each run; the import is not timed."""

    def __init__(self):
        prefix = os.path.join(sys.argv[1], "bench-gradients")
        with open(prefix + ".json") as f:
            self.names = json.load(f)
        with open(prefix + ".pb", "rb") as f:
            self.definition = v1.GraphDef.FromString(f.read())

    def nanoseconds(self):
        with tf.Graph().as_default() as graph:
            v1.import_graph_def(self.definition, name="")
            y = graph.get_tensor_by_name(self.names["y"])
            xs = [graph.get_tensor_by_name(x) for x in self.names["xs"]]
            begin = time.perf_counter_ns()
            tf.gradients(y, xs)
            return time.perf_counter_ns() - begin


class Served:
    """Runs the signature of the caller's SavedModel, by as many threads at once as there are callers."""

    def __init__(self, batch, callers):
        self.signature = tf.saved_model.load(os.path.join(sys.argv[1], "bench-model")).signatures["serving_default"]
        self.x = tf.zeros((batch, DEEP[0]))
        self.callers = callers
        for _ in range(20):
            self.signature(x=self.x)

    def work(self, runs):
        for _ in range(runs):
            self.signature(x=self.x)["y"].numpy()

    def total(self, runs):
        each = max(1, runs // self.callers)
        threads = [threading.Thread(target=self.work, args=(each,)) for _ in range(self.callers)]
        begin = time.perf_counter_ns()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return (time.perf_counter_ns() - begin) / (each * self.callers)


def load():
    path = os.path.join(sys.argv[1], "bench-model")
    x = tf.zeros((1, DEEP[0]))
    return lambda: tf.saved_model.load(path).signatures["serving_default"](x=x)["y"].numpy()


FORMS = {
    "model_load/saved_model": load,
    **{"model_run_%d_%d/signature" % (b, c): (lambda b=b, c=c: Served(b, c)) for b in (1, 32) for c in (1, 8, 64)},
    "gradients/tf_gradients": Gradients,
    "small/tf_function": lambda: function(SMALL),
    "small/session_run": lambda: Graph(SMALL).session_run(),
    "small/make_callable": lambda: Graph(SMALL).callable(),
    "fixup/session_run": lambda: Graph(DEEP).fixups_run(),
    "fixup/make_callable": lambda: Graph(DEEP).fixups_callable(),
    "fixup/eager": lambda: function(DEEP, "eager"),
    "fixup/tf_function": lambda: function(DEEP, "function"),
}


def main():
    made = {}
    for line in sys.stdin:
        name, runs = line.split()
        if name not in made:
            made[name] = FORMS[name]()
            if callable(made[name]):
                for _ in range(3 if name.startswith("model_load") else 20):
                    made[name]()
        run = made[name]
        if isinstance(run, Served):
            print(run.total(int(runs)), flush=True)
            continue
        if not callable(run):  # it times itself
            print(sum(run.nanoseconds() for _ in range(int(runs))) / int(runs), flush=True)
            continue
        begin = time.perf_counter_ns()
        for _ in range(int(runs)):
            run()
        print((time.perf_counter_ns() - begin) / int(runs), flush=True)


if __name__ == "__main__":
    main()
