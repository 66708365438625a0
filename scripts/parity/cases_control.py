"""Control flow and function calls: If, Case, While, calls, and TensorFlow 1's Switch and Merge."""

import tensorflow as tf
from graphcases import F, I, Var, case

v1, raw = tf.compat.v1, tf.raw_ops


# Calls.

@tf.function
def inner(x, y):
    return tf.sin(x) * y + tf.exp(0.3 * y)


@tf.function
def outer(x, y):
    return inner(x * y, tf.tanh(y)) * x


def call(x, y):
    return outer(x, y)


def with_variable(x, v):
    @tf.function
    def f(x):
        noise = tf.random.stateless_uniform(tf.shape(x), [3, 4], dtype=x.dtype)
        return tf.sin(x * noise) * v.read_value() * x
    return f(x)


case("PartitionedCall", call, F(3, 2), F(3, 2), dtypes="fd", unknown="rank")
case("PartitionedCall", lambda x: inner(x, x)[0], F(4), name="shared")
case("StatefulPartitionedCall", with_variable, F(3), Var(3), dtypes="fd", unknown="rank")


# Branches.

def branches(x, y, p):
    return tf.cond(p, lambda: tf.sin(x) * tf.exp(y), lambda: tf.square(x) + x * tf.tanh(y))


for p in [True, False]:
    tag = str(p).lower()
    case("StatelessIf", branches, F(3, 2), F(3, 2), I(p, "bool"), name=tag, dtypes="fd", unknown="rank")


for p in [True, False]:
    tag = str(p).lower()
    case("If", lambda x, v, p: tf.cond(p, lambda: tf.sin(x) * v.read_value(), lambda: x * x), F(3), Var(3), I(p, "bool"), name=tag, dtypes="fd", unknown="rank")
    case("StatelessIf", lambda x, y, p: tf.cond(p, lambda: x * y, lambda: tf.exp(x)), F(3), F(3), I(p, "bool"), name="one-branch/" + tag)
    case("StatelessIf", lambda x, y, p: tf.cond(p, lambda: x * x, lambda: tf.stop_gradient(y) * x), F(3), F(3), I(p, "bool"), name="stopped/" + tag)
    case("StatelessIf", lambda x, p, q: tf.cond(p, lambda: tf.cond(q, lambda: tf.sin(x) * x, lambda: tf.exp(x)), lambda: x ** 3),
         F(3), I(p, "bool"), I(not p, "bool"), name="nested/" + tag, dtypes="fd", unknown="rank")
    case("StatelessIf", lambda x, i, p: tf.cond(p, lambda: tf.gather(x, i) * 2.0, lambda: tf.gather(x, i + 1)), F(4, 2), I([1, 2, 1]), I(p, "bool"),
         name="sparse/" + tag, unknown="rank")
    case("StatelessIf", lambda x, i, p: tf.cond(p, lambda: tf.gather(x, i) * 2.0, lambda: tf.square(x)[:3]), F(4, 2), I([1, 2, 1]), I(p, "bool"),
         name="half-sparse/" + tag, unknown="rank")
    case("StatelessIf", lambda x, y, p: inner(tf.cond(p, lambda: inner(x, y), lambda: tf.sin(x)), y), F(3), F(3), I(p, "bool"), name="calls/" + tag)
for k in [-1, 0, 1, 2, 3]:
    case("StatelessCase", lambda x, y, k: tf.switch_case(k, [lambda: tf.sin(x) * y, lambda: x * x, lambda: tf.exp(y) * y]),
         F(3, 2), F(3, 2), I(k), name="branch%d" % k, dtypes="fd", unknown="rank")
for k in [0, 2]:
    case("Case", lambda x, v, k: tf.switch_case(k, [lambda: tf.sin(x) * v.read_value(), lambda: x * x, lambda: tf.gather(v, [0, 0, 2]) * x]),
         F(3), Var(3), I(k), name="branch%d" % k, dtypes="fd", unknown="rank")


# Loops.

def power(x, n, **options):
    return tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, tf.sin(y) * x), (0, x * 1.0), **options)[1]


for n in [0, 1, 5]:
    case("StatelessWhile", power, F(), I(n), name="scalar%d" % n, dtypes="fd", unknown=False)
case("StatelessWhile", power, F(3, 2), I(4), dtypes="fd", unknown="rank")
case("StatelessWhile", lambda x, n: power(x, n, maximum_iterations=3), F(3), I(7), name="maximum-iterations")
case("StatelessWhile", lambda x, n: power(x, n, parallel_iterations=1), F(3), I(3), name="parallel-iterations")
case("StatelessWhile", lambda x, w: tf.while_loop(lambda i, h: i < 4, lambda i, h: (i + 1, tf.tanh(h @ w + x)), (0, tf.zeros_like(x)))[1],
     F(2, 3), F(3, 3), name="captured", dtypes="fd", unknown="rank")
case("StatelessWhile", lambda x: tf.while_loop(lambda y: tf.reduce_sum(y) < 50.0, lambda y: (y * y + 0.5,), (tf.abs(x) + 1.0,))[0],
     F(3), name="no-counter", unknown="rank")
case("StatelessWhile", lambda x: tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 2.0 + tf.cast(i, y.dtype)), (0, x))[1], F(3), name="linear")
case("StatelessWhile", lambda x, n: tf.while_loop(lambda i, a, b: i < n, lambda i, a, b: (i + 1, b * 1.5, tf.sin(a)), (0, x, x * 2.0))[1:],
     F(3), I(3), name="swapped")
case("StatelessWhile", lambda x: tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.concat([y, y[:1] * x[0]], 0)), (0, x),
                                               shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])))[1], F(2), name="growing",
     unknown="rank", second="TensorFlow's graph optimizer takes the first shape for that of all iterations, in Python's second gradient too")
case("StatelessWhile", lambda x, y: tf.while_loop(lambda i, a, b: i < 3, lambda i, a, b: (i + 1, a * a, tf.stop_gradient(b) * 2.0), (0, x, y))[1:],
     F(2), F(2), name="stopped")


def double(x, n):
    def body(i, y):
        z = tf.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, tf.sin(z) * y + x), (0, y))[1]
        return i + 1, z * tf.exp(-y)
    return tf.while_loop(lambda i, y: i < n, body, (1, x))[1]


case("StatelessWhile", double, F(2), I(3), name="nested", dtypes="fd", unknown="rank")


def if_in_while(x, n):
    def body(i, y):
        return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: tf.sin(y) * x, lambda: y * y + inner(x, y))
    return tf.while_loop(lambda i, y: i < n, body, (0, x))[1]


def while_in_if(x, p):
    return tf.cond(p, lambda: power(x, 3), lambda: power(x * 2.0, 2))


case("StatelessWhile", if_in_while, F(2), I(4), name="if-in-while", dtypes="fd", unknown="rank")
for p in [True, False]:
    case("StatelessIf", while_in_if, F(2), I(p, "bool"), name="while-in-if/" + str(p).lower(), dtypes="fd", unknown="rank")
case("PartitionedCall", lambda x: tf.function(lambda x: power(x, 3) * x)(x), F(2), name="while-in-call", dtypes="fd", unknown="rank")
case("StatelessWhile", lambda x: tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, outer(y, x)), (0, x))[1], F(2), name="call-in-while", unknown="rank")


def collected(x, n):
    """A TensorArray that the loop writes and reads."""
    ta = tf.TensorArray(x.dtype, size=n + 1, element_shape=[2]).write(0, x)
    def body(i, ta):
        return i + 1, ta.write(i + 1, tf.sin(ta.read(i)) * x)
    return tf.while_loop(lambda i, _: i < n, body, (0, ta))[1].stack()


case("StatelessWhile", collected, F(2), I(3), name="tensor-array", dtypes="fd")
case("StatelessWhile", lambda xs, w: tf.scan(lambda h, x: tf.tanh(h * w + x), xs, tf.zeros_like(w)), F(4, 3), F(3), name="scan", dtypes="fd")
case("StatelessWhile", lambda xs, w: tf.map_fn(lambda x: tf.sin(x) * w, xs), F(4, 3), F(3), name="map", dtypes="fd")


# Variables in loops.

def recurrent(x, v):
    return tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, tf.tanh(h @ v.read_value() + x)), (0, tf.zeros_like(x)))[1]


def looked_up(v, i):
    return tf.while_loop(lambda k, h: k < 3, lambda k, h: (k + 1, h * 0.5 + tf.reduce_sum(tf.sin(tf.nn.embedding_lookup(v, i + k)), 0)), (0, tf.zeros([2], v.dtype)))[1]


case("While", recurrent, F(2, 3), Var(3, 3), dtypes="fd", unknown="rank")
case("While", looked_up, Var(6, 2), I([0, 2, 2]), name="embedding", dtypes="fd", unknown=False)


# TensorFlow 1.

def switched(build):
    """Builds with Switch and Merge in the place of If, and with v1 loops."""
    def built(*args):
        v2 = v1.control_flow_v2_enabled()
        v1.disable_control_flow_v2()
        try:
            return build(*args)
        finally:
            if v2:
                v1.enable_control_flow_v2()
    return built


for p in [True, False]:
    tag = str(p).lower()
    for op in ["Switch", "Merge"]:
        case(op, switched(branches), F(3, 2), F(3, 2), I(p, "bool"), name=tag, dtypes="fd", unknown="rank")
        case(op, switched(lambda x, y, p: v1.cond(p, lambda: x * y, lambda: tf.exp(x))), F(3), F(3), I(p, "bool"), name="one-branch/" + tag)
        case(op, switched(lambda x, y, p: [v1.cond(p, lambda: x * x, lambda: tf.stop_gradient(y) * x), y * 2.0]), F(3), F(3), I(p, "bool"), name="stopped/" + tag)
        case(op, switched(lambda x, p, q: v1.cond(p, lambda: v1.cond(q, lambda: tf.sin(x) * x, lambda: tf.exp(x)), lambda: x ** 3) * x),
             F(3), I(p, "bool"), I(not p, "bool"), name="nested/" + tag, dtypes="fd", unknown="rank")
        case(op, switched(lambda x, v, p: v1.cond(p, lambda: tf.sin(x) * v.read_value(), lambda: x * x)), F(3), Var(3), I(p, "bool"), name="variable/" + tag)
        case(op, switched(lambda x, i, p: v1.cond(p, lambda: tf.gather(x, i) * 2.0, lambda: tf.gather(x, i + 1))), F(4, 2), I([1, 2, 1]), I(p, "bool"), name="sparse/" + tag)
        case(op, switched(lambda x, p: v1.cond(p, lambda: [x * 2.0, tf.zeros_like(x)], lambda: [tf.ones_like(x), x * x])), F(3), I(p, "bool"), name="two/" + tag)
    for op in ["RefSwitch", "RefMerge"]:
        case(op, lambda v, p: raw.RefMerge(inputs=list(raw.RefSwitch(data=v, pred=p)))[0] * 2.0, F(3, ref=True), I(p, "bool"), name=tag, unknown=False)


# Keras' recurrent layers.

def lstm(x, w, u, mask=None, **options):
    from keras.src.backend.tensorflow.rnn import rnn

    def step(xt, states):
        h, c = states
        i, f, g, o = tf.split(xt @ w + h @ u, 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
        return h, [h, c]
    start = tf.zeros([2, 3], x.dtype)
    last, outputs, states = rnn(step, x, [start, start], mask=mask, **options)
    return [last, outputs, *states]


case("StatelessWhile", lstm, F(2, 5, 4), F(4, 12), F(3, 12), name="keras-lstm", unknown=False)
case("StatelessWhile", lambda x, w, u: lstm(x, w, u, go_backwards=True)[0], F(2, 5, 4), F(4, 12), F(3, 12), name="keras-lstm/backwards", unknown=False)
case("StatelessWhile", lambda x, w, u, m: lstm(x, w, u, mask=m), F(2, 5, 4), F(4, 12), F(3, 12), I([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "bool"),
     name="keras-lstm/mask", unknown=False)
