"""Random graphs: programs of a seed, and the gradients that Python computes of them.

A program is a list of nodes in topological order: leaves, which are fed, and
steps, each of one entry of KINDS. It is grown eagerly, so that what an operation
may be given is decided by the values at hand: a step that Python refuses, or
whose values are not finite or large, is not taken. Then it is built as a graph
and differentiated. A program of 32- or 16-bit numbers is differentiated in
float64 too: how far its own gradients lie from these is what the other side may
differ by.

--shrink takes a failing program apart: it records the programs that lead to one
of its nodes from a few steps before, and those that lack one node, y or x.

(It is not called random.py, which would hide Python's own module of that name.)
"""

import json
import time
import warnings

import numpy as np
import tensorflow as tf
from graphcases import CONFIG, random_like
from recording import Recording, arguments, progress

v1, raw = tf.compat.v1, tf.raw_ops

LARGEST = 30.0  # magnitude of a value that a step may have
MOST = 300  # elements of one
PRECISION = {"float64": 1e-9, "float32": 2e-4, "bfloat16": 6e-2}

FLOOR = {"float64": 1e-3, "float32": 1e-2, "bfloat16": 1e-1}  # magnitudes below count as these: they are roundings
SHRUNK = 300  # parts of a failing program that are tried at a time

KINDS = {}  # name: (weight, pick, build)


def kind(name, pick, build, weight=1.0):
    """An operation: pick(pool) chooses its inputs and parameters, or gives None; build(*tensors, **parameters) makes it."""
    KINDS[name] = (weight, pick, build)


class Node:
    def __init__(self, name, ins=(), params=None, values=(), first=0):
        self.name, self.ins, self.params = name, list(ins), params or {}
        self.values, self.first = list(values), first

    def text(self):
        outs = ", ".join("t%d" % (self.first + k) for k in range(len(self.values)))
        if self.name == "leaf":
            return "%s = leaf %s%s" % (outs, self.values[0].dtype.name, list(self.values[0].shape))
        return "%s = %s(%s)" % (outs, self.name, ", ".join(["t%d" % i for i in self.ins] + ["%s=%s" % p for p in self.params.items()]))


class Pool:
    """The values so far, and the draws of a program."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.dtype = self.pick(["float64"] * 7 + ["float32"] * 2 + ["bfloat16"])
        self.nodes, self.values, self.uses = [], [], []

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def chance(self, p):
        return self.rng.random() < p

    def int(self, lo, hi):
        """One of lo … hi, both included."""
        return int(self.rng.integers(lo, hi + 1))

    def add(self, node):
        node.first = len(self.values)
        self.nodes.append(node)
        self.values += node.values
        self.uses += [0] * len(node.values)
        for i in node.ins:
            self.uses[i] += 1
        return node.first

    def leaf(self, shape, lo=-1.5, hi=1.5, dtype=None):
        value = np.asarray(self.rng.uniform(lo, hi, shape)).astype(tf.as_dtype(dtype or self.dtype).as_numpy_dtype)
        return self.add(Node("leaf", values=[value]))

    def shape(self, i):
        return list(self.values[i].shape)

    def size(self, i):
        return self.values[i].size

    def real(self, fits=lambda v: True, dtype=None):
        """A value of the program's type (or another) that fits; those that nothing uses yet are preferred."""
        fitting = [i for i, v in enumerate(self.values) if v.dtype.name == (dtype or self.dtype) and fits(v)]
        fresh = [i for i in fitting if self.uses[i] == 0]
        if not fitting:
            return None
        return self.pick(fresh if fresh and self.chance(0.6) else fitting)

    def axis(self, rank):
        return self.int(-rank, rank - 1)

    def axes(self, rank):
        if rank == 0 or self.chance(0.2):
            return None
        chosen = [a for a in range(rank) if self.chance(0.5)]
        return [a - rank if self.chance(0.4) else a for a in self.rng.permutation(chosen).astype(int).tolist()]


def within(v, lo, hi):
    return v.size > 0 and v.min() >= lo and v.max() <= hi


def one(fits=lambda v: True, **draws):
    """Any value that fits, and parameters drawn by functions of the pool and the value."""
    def pick(p):
        i = p.real(fits)
        if i is None:
            return None
        params = {name: draw(p, p.values[i]) for name, draw in draws.items()}
        return None if any(v is REFUSE for v in params.values()) else ([i], params)
    return pick


REFUSE = object()


def ranked(least, most=9):
    return lambda v: least <= v.ndim <= most and v.size > 0


def sized(least):
    return lambda v: v.ndim >= 1 and min(v.shape) >= least


# Elementwise.

for _name, _f, _lo, _hi in [
        ("tanh", tf.tanh, -9, 9), ("sin", tf.sin, -9, 9), ("cos", tf.cos, -9, 9), ("exp", tf.exp, -9, 2), ("sigmoid", tf.sigmoid, -9, 9),
        ("softplus", tf.math.softplus, -9, 9), ("elu", tf.nn.elu, -9, 9), ("selu", tf.nn.selu, -9, 9), ("gelu", tf.nn.gelu, -9, 9),
        ("relu", tf.nn.relu, -9, 9), ("leaky_relu", tf.nn.leaky_relu, -9, 9), ("relu6", tf.nn.relu6, -9, 9), ("softsign", tf.nn.softsign, -9, 9),
        ("silu", tf.nn.silu, -9, 9), ("square", tf.square, -4, 4), ("neg", tf.negative, -9, 9), ("abs", tf.abs, -9, 9), ("sign", tf.sign, -9, 9),
        ("erf", tf.math.erf, -3, 3), ("erfc", tf.math.erfc, -3, 3), ("log1p", tf.math.log1p, -.8, 9), ("log", tf.math.log, .1, 99),
        ("sqrt", tf.sqrt, .05, 99), ("rsqrt", tf.math.rsqrt, .1, 99), ("reciprocal", tf.math.reciprocal, .1, 99), ("asinh", tf.asinh, -9, 9),
        ("atan", tf.atan, -9, 9), ("sinh", tf.sinh, -3, 3), ("cosh", tf.cosh, -3, 3), ("tan", tf.tan, -1.2, 1.2), ("atanh", tf.atanh, -.8, .8),
        ("asin", tf.asin, -.8, .8), ("acos", tf.acos, -.8, .8), ("acosh", tf.acosh, 1.1, 99), ("expm1", tf.math.expm1, -9, 2),
        ("lgamma", tf.math.lgamma, .3, 9), ("digamma", tf.math.digamma, .3, 9), ("floor", tf.floor, -9, 9), ("round", tf.round, -9, 9),
        ("stop_gradient", tf.stop_gradient, -9, 9), ("identity", tf.identity, -9, 9), ("erfinv", tf.math.erfinv, -.8, .8),
        ("ndtri", tf.math.ndtri, .05, .95), ("bessel_i0e", tf.math.bessel_i0e, -9, 9), ("bessel_i1e", tf.math.bessel_i1e, .1, 9),
        ("dawsn", tf.math.special.dawsn, -9, 9), ("expint", tf.math.special.expint, .2, 9), ("spence", tf.math.special.spence, .2, .9),
        ("l2_loss", tf.nn.l2_loss, -4, 4), ("zeros_like", tf.zeros_like, -9, 9)]:
    kind(_name, one(lambda v, lo=_lo, hi=_hi: within(v, lo, hi)), _f, weight=0.35)

kind("scaled", one(by=lambda p, v: p.pick([0.5, -0.7, 1.3, 0.25])), lambda x, by: x * tf.constant(by, x.dtype))
kind("shifted", one(by=lambda p, v: p.pick([0.5, -1.0, 2.0])), lambda x, by: x + tf.constant(by, x.dtype))
kind("clip", one(), lambda x: tf.clip_by_value(x, -0.9, 1.1), weight=0.4)
kind("to_unit", one(lambda v: v.size > 0), lambda x: tf.tanh(x) * tf.constant(0.7, x.dtype), weight=0.5)
kind("to_positive", one(lambda v: v.size > 0), lambda x: tf.math.softplus(x) + tf.constant(0.3, x.dtype), weight=0.8)


def pair(first=lambda v: True, second=lambda v: True):
    """Two values that broadcast."""
    def pick(p):
        for _ in range(8):
            a, b = p.real(first), p.real(second)
            if a is None or b is None:
                return None
            try:
                shape = np.broadcast_shapes(tuple(p.shape(a)), tuple(p.shape(b)))
            except ValueError:
                continue
            if np.prod(shape) <= MOST:
                return [a, b], {}
        if a is not None and p.size(a) and p.chance(0.7):  # a new one, of sizes with ones and axes left out
            shape = [1 if p.chance(0.3) else n for n in p.shape(a)]
            return [a, p.leaf(shape[p.int(0, len(shape)) if p.chance(0.4) else 0:], 0.3, 1.4)], {}
        return None
    return pick


def far(v):
    return v.size > 0 and np.abs(v).min() > 0.2


def positive(v):
    return within(v, .1, 5)


for _name, _f, _first, _second, _weight in [
        ("add", tf.add, None, None, 2), ("sub", tf.subtract, None, None, 1.5), ("mul", tf.multiply, None, None, 3), ("div", tf.divide, None, far, 1.5),
        ("maximum", tf.maximum, None, None, 1), ("minimum", tf.minimum, None, None, 1), ("squared_difference", tf.math.squared_difference, None, None, 1),
        ("atan2", tf.atan2, far, None, .7), ("pow", tf.pow, positive, lambda v: within(v, -3, 3), 1), ("xlogy", tf.math.xlogy, None, positive, .5),
        ("xdivy", tf.math.xdivy, None, far, .5), ("xlog1py", tf.math.xlog1py, None, positive, .5), ("div_no_nan", tf.math.divide_no_nan, None, far, .5),
        ("floormod", tf.math.floormod, far, far, .4), ("igammac", tf.math.igammac, lambda v: within(v, .4, 3), lambda v: within(v, .3, 4), .2)]:
    kind(_name, pair(*[f or (lambda v: True) for f in (_first, _second)]), _f, weight=_weight)

kind("where", lambda p: pick_where(p), lambda x, y, z: tf.where(x > tf.constant(0.1, x.dtype), y, z), weight=1)
kind("select", lambda p: pick_same(p, 2), lambda x, y: raw.Select(condition=x > y, x=tf.sin(x), y=y * y), weight=.5)
kind("add_n", lambda p: pick_same(p, 3), lambda *xs: tf.add_n(xs), weight=.7)
kind("accumulate_mul", lambda p: pick_same(p, 2), lambda x, y: x * y + x, weight=.5)


def pick_same(p, n):
    """Values of one shape, perhaps the same value again."""
    a = p.real()
    same = [i for i, v in enumerate(p.values) if v.dtype.name == p.dtype and v.shape == p.values[a].shape] if a is not None else []
    return ([a] + [p.pick(same) for _ in range(n - 1)], {}) if same else None


def pick_where(p):
    found = pair()(p)
    if not found:
        return None
    (a, b), _ = found
    return [a, *(p.rng.permutation([a, b]).astype(int).tolist())], {}


# Reductions.

for _name, _f in [("sum", tf.reduce_sum), ("mean", tf.reduce_mean), ("max", tf.reduce_max), ("min", tf.reduce_min), ("prod", tf.reduce_prod),
                  ("logsumexp", tf.reduce_logsumexp), ("variance", tf.math.reduce_variance)]:
    kind("reduce_" + _name, one(lambda v: v.size > 0, axis=lambda p, v: p.axes(v.ndim), keepdims=lambda p, v: p.chance(0.4)), _f, weight=.9)
kind("euclidean_norm", one(far, axis=lambda p, v: p.axes(v.ndim), keepdims=lambda p, v: p.chance(0.4)), tf.math.reduce_euclidean_norm, weight=.6)


def along(fits=ranked(1), **more):
    return one(fits, axis=lambda p, v: p.axis(v.ndim), **more)


_flags = dict(exclusive=lambda p, v: p.chance(0.5), reverse=lambda p, v: p.chance(0.5))
kind("cumsum", along(**_flags), tf.cumsum)
kind("cumprod", along(**_flags), tf.math.cumprod)
kind("cumulative_logsumexp", along(reverse=_flags["reverse"]), tf.math.cumulative_logsumexp, weight=.5)
kind("softmax", along(), tf.nn.softmax, weight=1.2)
kind("log_softmax", along(), tf.nn.log_softmax, weight=1.2)
kind("l2_normalize", along(lambda v: v.ndim and far(v)), tf.math.l2_normalize, weight=.5)
kind("sort", along(direction=lambda p, v: p.pick(["ASCENDING", "DESCENDING"])), tf.sort, weight=.5)
kind("top_k", one(ranked(1), k=lambda p, v: p.int(1, v.shape[-1])), lambda x, k: tf.math.top_k(x, k)[0], weight=.5)
kind("argmax_gather", one(ranked(2, 2)), lambda x: tf.gather(x, tf.argmax(x, axis=1), axis=1, batch_dims=1), weight=.5)
kind("through_integers", one(lambda v: within(v, -9, 9)), lambda x: tf.cast(tf.cast(x * tf.constant(3, x.dtype), tf.int32) % 4, x.dtype) * x, weight=.6)

# Shapes.


def factors(p, v):
    left, out = v.size, []
    if left == 0:
        return REFUSE
    while left > 1 and len(out) < 3:
        d = p.pick([d for d in range(1, left + 1) if left % d == 0])
        out.append(d)
        left //= d
    if left > 1 or p.chance(.2):
        out.append(left)
    out = p.rng.permutation(np.array(out, int)).tolist()
    if out and p.chance(0.3):
        out[p.int(0, len(out) - 1)] = -1
    return out


kind("reshape", one(lambda v: v.size > 0, shape=factors), lambda x, shape: tf.reshape(x, np.array(shape, np.int32)), weight=1.5)
kind("transpose", one(ranked(2), perm=lambda p, v: p.rng.permutation(v.ndim).tolist()), tf.transpose, weight=1.5)
kind("expand_dims", one(ranked(0, 3), axis=lambda p, v: p.int(-v.ndim - 1, v.ndim)), tf.expand_dims, weight=.7)
kind("squeeze", one(lambda v: 1 in v.shape, axis=lambda p, v: [p.pick([a for a, n in enumerate(v.shape) if n == 1])] if p.chance(.6) else None), tf.squeeze, weight=.7)
kind("reverse", one(ranked(1), axis=lambda p, v: p.rng.permutation(v.ndim)[:p.int(1, v.ndim)].tolist()), tf.reverse, weight=.6)
kind("roll", along(shift=lambda p, v: p.int(-3, 3)), tf.roll, weight=.6)
kind("tile", one(ranked(1), multiples=lambda p, v: [p.int(1, 2) for _ in v.shape]), tf.tile, weight=.8)
kind("broadcast_to", one(ranked(0, 3), shape=lambda p, v: [p.int(1, 2)] + [p.int(1, 3) if n == 1 else n for n in v.shape]), tf.broadcast_to, weight=.6)
kind("pad", one(ranked(1), paddings=lambda p, v: [[p.int(0, 2), p.int(0, 2)] for _ in v.shape], value=lambda p, v: p.pick([0, 0.5])),
     lambda x, paddings, value: tf.pad(x, paddings, constant_values=tf.constant(value, x.dtype)), weight=.8)
kind("mirror_pad", one(sized(2), paddings=lambda p, v: [[p.int(0, 1), p.int(0, 1)] for _ in v.shape], mode=lambda p, v: p.pick(["REFLECT", "SYMMETRIC"])), tf.pad, weight=.6)


def window(p, v):
    begin = [p.int(0, n - 1) for n in v.shape]
    return {"begin": begin, "size": [-1 if p.chance(.2) else p.int(1, n - b) for b, n in zip(begin, v.shape)]}


kind("slice", one(ranked(1), at=window), lambda x, at: tf.slice(x, at["begin"], at["size"]), weight=1)


def strides(p, v):
    out = []
    for n in v.shape:
        how = p.int(0, 6)
        if how == 0:
            out.append(p.int(-n, n - 1))
        elif how == 1:
            out += ["new", [None, None, 1]]
        elif how == 2:
            out.append([None, None, -p.int(1, 2)])
        elif how == 3:
            out.append([p.int(0, n - 1), None, p.int(1, 2)])
        elif how == 4 and n > 1:
            out.append([None, -1, 1])
        else:
            out.append([None, None, 1])
    if out and p.chance(.25):
        at = p.int(0, len(out) - 1)
        if out[at] != "new":
            out[at:] = ["rest"]
    return out


def strided(x, index):
    return x[tuple({"new": tf.newaxis, "rest": Ellipsis}[i] if isinstance(i, str) else slice(*i) if isinstance(i, list) else i for i in index)]


kind("strided_slice", one(ranked(1, 4), index=strides), strided, weight=1.5)


def pick_concat(p):
    a = p.real(ranked(1))
    if a is None:
        return None
    axis = p.int(0, len(p.shape(a)) - 1)
    def rest(v):
        return v.ndim == len(p.shape(a)) and list(v.shape[:axis]) + list(v.shape[axis + 1:]) == p.shape(a)[:axis] + p.shape(a)[axis + 1:]
    parts = [a] + [p.real(rest) for _ in range(p.int(0, 2))]
    return p.rng.permutation(parts).astype(int).tolist(), {"axis": axis - len(p.shape(a)) if p.chance(.4) else axis}


kind("concat", pick_concat, lambda *xs, axis: tf.concat(xs, axis), weight=1.5)
kind("stack", lambda p: (found := pick_same(p, p.int(1, 3))) and (found[0], {"axis": p.int(0, len(p.shape(found[0][0])))}), lambda *xs, axis: tf.stack(xs, axis))
kind("unstack", one(lambda v: v.ndim >= 1 and 0 < max(v.shape) <= 5, at=lambda p, v: (lambda a: {"axis": a, "n": v.shape[a]})(p.axis(v.ndim))), lambda x, at: tf.unstack(x, at["n"], at["axis"]), weight=.7)
kind("split", one(sized(2), at=lambda p, v: (lambda a: {"axis": a, "n": p.pick([d for d in range(1, v.shape[a] + 1) if v.shape[a] % d == 0 and d < 6])})(p.axis(v.ndim))),
     lambda x, at: tf.split(x, at["n"], at["axis"]), weight=1)
kind("split_v", one(sized(2), at=lambda p, v: (lambda a: (lambda k: {"axis": a, "sizes": [k, v.shape[a] - k]})(p.int(0, v.shape[a])))(p.axis(v.ndim))),
     lambda x, at: tf.split(x, at["sizes"], at["axis"]), weight=.8)

# Indices.


def indices(p, n, shape):
    return p.rng.integers(0, n, shape).tolist()


def gathered(p, v):
    axis = p.int(0, v.ndim - 1)
    batch = p.int(0, axis) if p.chance(.4) else 0
    shape = list(v.shape[:batch]) + [p.int(1, 3) for _ in range(p.int(0, 2))]
    return {"indices": indices(p, v.shape[axis], shape), "axis": axis, "batch_dims": batch}


kind("gather", one(ranked(1, 4), at=gathered), lambda x, at: tf.gather(x, np.array(at["indices"], np.int32), axis=at["axis"], batch_dims=at["batch_dims"]), weight=1.5)
kind("gather_nd", one(ranked(1, 3), at=lambda p, v: (lambda k: [[p.int(0, n - 1) for n in v.shape[:k]] for _ in range(p.int(1, 4))])(p.int(1, v.ndim))),
     lambda x, at: tf.gather_nd(x, at), weight=.8)
kind("scatter_nd", one(ranked(1, 3), at=lambda p, v: [[p.int(0, 4)] for _ in range(v.shape[0])]),
     lambda x, at: tf.scatter_nd(at, x, [5, *x.shape[1:]]) if x.shape.is_fully_defined() else
     tf.scatter_nd(at, x, tf.concat([[5], tf.shape(x)[1:]], 0)), weight=.8)


def pick_scatter(p):
    a = p.real(ranked(1, 3))
    if a is None:
        return None
    n = p.shape(a)[0]
    k = p.int(1, n)
    return [a, p.leaf([k] + p.shape(a)[1:])], {"at": [[i] for i in p.rng.permutation(n)[:k].tolist()]}


for _name, _f in [("add", tf.tensor_scatter_nd_add), ("sub", tf.tensor_scatter_nd_sub), ("update", tf.tensor_scatter_nd_update),
                  ("max", tf.tensor_scatter_nd_max), ("min", tf.tensor_scatter_nd_min)]:
    kind("tensor_scatter_" + _name, pick_scatter, lambda x, u, at, f=_f: f(x, at, u), weight=.4)

for _name, _f in [("sum", tf.math.segment_sum), ("mean", tf.math.segment_mean), ("max", tf.math.segment_max), ("min", tf.math.segment_min), ("prod", tf.math.segment_prod)]:
    kind("segment_" + _name, one(lambda v: ranked(1, 3)(v) and np.abs(v).min() > .01, ids=lambda p, v: np.cumsum([0] + [p.int(0, 1) for _ in range(v.shape[0] - 1)]).tolist()),
         lambda x, ids, f=_f: f(x, np.array(ids, np.int32)), weight=.4)
for _name, _f in [("sum", tf.math.unsorted_segment_sum), ("mean", tf.math.unsorted_segment_mean), ("sqrt_n", tf.math.unsorted_segment_sqrt_n), ("prod", tf.math.unsorted_segment_prod)]:
    kind("unsorted_segment_" + _name, one(lambda v: ranked(1, 3)(v) and np.abs(v).min() > .01, ids=lambda p, v: [p.int(-1, 3) for _ in range(v.shape[0])]),
         lambda x, ids, f=_f: f(x, np.array(ids, np.int32), 4), weight=.4)
for _name, _f in [("max", tf.math.unsorted_segment_max), ("min", tf.math.unsorted_segment_min)]:  # an empty segment has the lowest number
    kind("unsorted_segment_" + _name, one(ranked(1, 3), ids=lambda p, v: p.rng.permutation([k % min(3, v.shape[0]) for k in range(v.shape[0])]).tolist()),
         lambda x, ids, f=_f: f(x, np.array(ids, np.int32), max(ids) + 1), weight=.4)
for _name, _f in [("sum", tf.sparse.segment_sum), ("mean", tf.sparse.segment_mean), ("sqrt_n", tf.sparse.segment_sqrt_n)]:
    kind("sparse_segment_" + _name, one(ranked(1, 3), at=lambda p, v: [indices(p, v.shape[0], 4), [0, 0, 1, 3]]),
         lambda x, at, f=_f: f(x, np.array(at[0], np.int32), np.array(at[1], np.int32)), weight=.3)


def pick_stitch(p):
    a = p.real(ranked(1, 3))
    return a if a is None else ([a], {"ids": [p.int(0, 2) for _ in range(p.shape(a)[0])]})


def partition(x, ids):
    parts = tf.dynamic_partition(x, np.array(ids, np.int32), 3)
    places = tf.dynamic_partition(np.arange(len(ids), dtype=np.int32), np.array(ids, np.int32), 3)
    return tf.dynamic_stitch(places, [parts[0] * 2, tf.sin(parts[1]), parts[2]])


kind("partition_stitch", pick_stitch, partition, weight=.5)

# Products.


def pick_matmul(p):
    a = p.real(lambda v: ranked(2, 4)(v) and max(v.shape) <= 12)
    if a is None:
        return None
    ta, tb = p.chance(.4), p.chance(.4)
    inner = p.shape(a)[-2 if ta else -1]
    b = p.real(lambda v: ranked(2, 4)(v) and v.shape[-1 if tb else -2] == inner)
    if b is None or p.chance(.4):
        n = p.int(1, 4)
        batch = [1 if p.chance(.3) else d for d in p.shape(a)[:-2]] if p.chance(.5) else []
        b = p.leaf(batch + ([n, inner] if tb else [inner, n]))
    return [a, b], {"transpose_a": ta, "transpose_b": tb}


kind("matmul", pick_matmul, tf.matmul, weight=3)


def pick_einsum(p):
    equation = p.pick(["ij,jk->ik", "ij,ij->i", "ij,kj->ik", "i,j->ij", "ij->ji", "ij->i", "ii->i", "ii->", "bij,bjk->bik", "bij,jk->bik", "...i,ij->...j",
                       "bi,bj->bij", "ijk->k", "ij,j->i", "bhqd,bhkd->bhqk", "bij,bkj->ikb"])
    left = equation.split("->")[0].split(",")
    sizes, ins = {}, []
    for term in left:
        letters = term.replace("...", "")
        def fits(v):
            seen = dict(sizes)
            dims = v.shape[v.ndim - len(letters):]
            return (v.ndim >= len(letters) if "..." in term else v.ndim == len(letters)) and v.size > 0 and all(seen.setdefault(c, n) == n for c, n in zip(letters, dims))
        i = p.real(fits)
        if i is None or p.chance(.1):
            for c in letters:
                sizes.setdefault(c, p.int(1, 4))
            i = p.leaf([sizes[c] for c in letters])
        else:
            for c, n in zip(letters, p.values[i].shape[p.values[i].ndim - len(letters):]):
                sizes[c] = n
        ins.append(i)
    return ins, {"equation": equation}


kind("einsum", pick_einsum, lambda *xs, equation: tf.einsum(equation, *xs), weight=2)

# Layers.


def pick_conv(p):
    x = p.real(lambda v: v.ndim == 4 and v.size > 0 and v.shape[3] <= 6)
    if x is None:
        x = p.leaf([p.int(1, 2), p.int(3, 5), p.int(3, 5), p.int(1, 3)])
    h, w, c = p.shape(x)[1:]
    kernel = [p.int(1, min(3, h)), p.int(1, min(3, w))]
    stride, dilation = (p.int(1, 2), 1) if p.chance(.6) else (1, p.int(1, 2))
    return x, c, kernel, {"strides": stride, "padding": p.pick(["SAME", "VALID"]), "dilations": dilation}


def conv_kind(name, shape, build, weight=.7):
    def pick(p):
        x, c, kernel, params = pick_conv(p)
        return [x, p.leaf(kernel + shape(p, c), -.8, .8)], params
    kind(name, pick, build, weight)


conv_kind("conv2d", lambda p, c: [c, p.int(1, 3)], tf.nn.conv2d, 1)
conv_kind("depthwise_conv2d", lambda p, c: [c, p.int(1, 2)], lambda x, f, strides, padding, dilations: tf.nn.depthwise_conv2d(x, f, [1, strides, strides, 1], padding, dilations=[dilations] * 2))
conv_kind("conv3d", lambda p, c: [1, 1, 2], lambda x, f, strides, padding, dilations: tf.nn.conv3d(x[..., None], f, [1, strides, strides, 1, 1], padding), .5)
conv_kind("conv2d_transpose", lambda p, c: [2, c], lambda x, f, strides, padding, dilations: raw.Conv2DBackpropInput(
    input_sizes=tf.shape(tf.nn.conv2d_transpose(x, f, tf.stack([tf.shape(x)[0], tf.shape(x)[1] * strides, tf.shape(x)[2] * strides, 2]), strides, "SAME")),
    filter=f, out_backprop=x, strides=[1, strides, strides, 1], padding="SAME"), .5)


def pick_pool(p):
    x, _, kernel, params = pick_conv(p)
    return [x], {"ksize": kernel, "strides": params["strides"], "padding": params["padding"]}


for _name, _f in [("max_pool", tf.nn.max_pool2d), ("avg_pool", tf.nn.avg_pool2d)]:
    kind(_name, pick_pool, _f, weight=.5)


def pick_norm(p):
    x, c, _, _ = pick_conv(p)
    return [x, p.leaf([c], .5, 1.5), p.leaf([c])], {}


def fused_batch_norm(x, scale, offset, **given):
    """The kernel has no float64: there its formula measures the precision."""
    if x.dtype != tf.float64 or tf.executing_eagerly():
        return v1.nn.fused_batch_norm(x, scale, offset, epsilon=0.1, is_training=not given, **given)[0]
    mean, variance = (given["mean"], given["variance"]) if given else tf.nn.moments(x, [0, 1, 2])
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, 0.1)


def batch_norm(x, scale, offset):
    mean, variance = tf.nn.moments(x, [0, 1, 2])
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, 0.1)


kind("batch_norm", pick_norm, batch_norm, weight=.5)
kind("fused_batch_norm", pick_norm, fused_batch_norm, weight=.5)
kind("fused_batch_norm_inference", pick_norm, lambda x, s, o: fused_batch_norm(x, s, o, mean=o * tf.constant(0.1, o.dtype), variance=tf.square(s)), weight=.3)
kind("lrn", lambda p: ([pick_conv(p)[0]], {}), lambda x: tf.nn.local_response_normalization(x, 1, 1.0, 0.3, 0.5), weight=.3)
kind("space_to_depth", one(lambda v: v.ndim == 4 and v.size > 0 and v.shape[1] % 2 == v.shape[2] % 2 == 0), lambda x: tf.nn.space_to_depth(x, 2), weight=.5)
kind("resize", lambda p: ([pick_conv(p)[0]], {"size": [p.int(2, 6), p.int(2, 6)], "method": p.pick(["bilinear", "nearest", "bicubic"])}),
     lambda x, size, method: tf.cast(tf.image.resize(x, size, method), x.dtype), weight=.3)
kind("bias_add", lambda p: (lambda i: i if i is None else ([i, p.leaf([p.shape(i)[-1]])], {}))(p.real(ranked(2, 4))), tf.nn.bias_add, weight=.8)
kind("softmax_cross_entropy", lambda p: (lambda i: i if i is None else ([i, p.leaf(p.shape(i), .1, .6)], {}))(p.real(ranked(2, 3))),
     lambda x, labels: tf.nn.softmax_cross_entropy_with_logits(labels, x), weight=.7)
kind("sparse_cross_entropy", one(ranked(2, 2), labels=lambda p, v: indices(p, v.shape[1], v.shape[0])),
     lambda x, labels: tf.nn.sparse_softmax_cross_entropy_with_logits(np.array(labels, np.int32), x), weight=.7)
kind("sigmoid_cross_entropy", lambda p: pick_same(p, 2), lambda x, y: tf.nn.sigmoid_cross_entropy_with_logits(tf.sigmoid(y), x), weight=.7)

# Matrices.


def square(v):
    return ranked(2, 3)(v) and v.shape[-1] == v.shape[-2] <= 5


def definite(x):
    n = tf.shape(x)[-1]
    return tf.matmul(x, x, adjoint_b=True) + tf.eye(n, dtype=x.dtype) * tf.constant(1.5, x.dtype)


def pick_square(more=None):
    def pick(p):
        i = p.real(square)
        if i is None or p.chance(.1):
            n = p.int(1, 4)
            i = p.leaf(([p.int(1, 2)] if p.chance(.4) else []) + [n, n])
        return [i] + ([p.leaf(p.shape(i)[:-1] + [p.int(1, 3)])] if more else []), {k: p.chance(.5) for k in more or []}
    return pick


kind("cholesky", pick_square(), lambda x: tf.linalg.cholesky(definite(x)), weight=.5)
kind("inverse", pick_square(), lambda x: tf.linalg.inv(definite(x)), weight=.5)
kind("determinant", pick_square(), lambda x: tf.linalg.det(definite(x) * tf.constant(.3, x.dtype)), weight=.4)
kind("logdet", pick_square(), lambda x: tf.linalg.slogdet(definite(x))[1], weight=.5)
kind("solve", pick_square(["adjoint"]), lambda x, y, adjoint: tf.linalg.solve(definite(x), y, adjoint=adjoint), weight=.5)
kind("triangular_solve", pick_square(["lower", "adjoint"]),
     lambda x, y, lower, adjoint: tf.linalg.triangular_solve(definite(x), y, lower=lower, adjoint=adjoint), weight=.5)
kind("eigenvalues", pick_square(), lambda x: tf.linalg.eigvalsh(definite(x) + tf.linalg.diag(tf.range(1, tf.cast(tf.shape(x)[-1], x.dtype) + 1, dtype=x.dtype))), weight=.3)
kind("singular_values", pick_square(), lambda x: tf.linalg.svd(definite(x), compute_uv=False), weight=.3)
kind("band_part", one(ranked(2, 3), lower=lambda p, v: p.int(-1, 2), upper=lambda p, v: p.int(-1, 2)), lambda x, lower, upper: tf.linalg.band_part(x, lower, upper), weight=.5)
kind("matrix_diag", one(ranked(1, 2), at=lambda p, v: (lambda k: {"k": k, "n": v.shape[-1] + abs(k)})(p.int(-1, 1))),
     lambda x, at: tf.linalg.diag(x, k=at["k"], num_rows=at["n"], num_cols=at["n"]), weight=.5)  # sizes left to TensorFlow are inferred wrong
kind("matrix_diag_part", one(lambda v: ranked(2, 3)(v) and min(v.shape[-2:]) >= 2, k=lambda p, v: p.int(-1, 1)), lambda x, k: tf.linalg.diag_part(x, k=k), weight=.5)
kind("set_diag", pick_square(), lambda x: tf.linalg.set_diag(x, tf.reduce_sum(x * x, -1)), weight=.4)
kind("trace", pick_square(), tf.linalg.trace, weight=.4)
kind("spectrum", one(ranked(1, 2)), lambda x: tf.square(tf.abs(tf.signal.fft(tf.cast(x, tf.complex128 if x.dtype == tf.float64 else tf.complex64)))) * tf.constant(.1, x.dtype)
     if x.dtype in (tf.float32, tf.float64) else tf.identity(x), weight=.4)
kind("rotated", one(lambda v: v.size > 0), lambda x: tf.math.real(tf.complex(x, tf.sin(x)) * tf.complex(tf.cos(x), x)), weight=.4)

# Control flow and functions.

STEPS = {"tanh": tf.tanh, "sin": tf.sin, "half": lambda x: x * tf.constant(0.5, x.dtype), "square": lambda x: tf.tanh(x) * tf.tanh(x), "softplus": tf.math.softplus,
         "mean": lambda x: x - tf.reduce_mean(x), "sigmoid": tf.sigmoid, "stop": lambda x: x + tf.stop_gradient(x) * tf.constant(0.1, x.dtype)}


def chain(p, v=None):
    return [p.pick(sorted(STEPS)) for _ in range(p.int(0, 3))]


def apply(names, x):
    for name in names:
        x = STEPS[name](x)
    return x


def same_with(**draws):
    def pick(p):
        found = pick_same(p, 2)
        return found and (found[0], {k: d(p) for k, d in draws.items()})
    return pick


def call(x, y, body):
    def f(x, y):
        return apply(body, x * y) + apply(body[1:], y)
    return f(x, y) if tf.executing_eagerly() else tf.function(f, autograph=False)(x, y)


def twice(x, y, body):
    def f(a, b):
        return apply(body, a) * tf.sin(b)
    g = f if tf.executing_eagerly() else tf.function(f, autograph=False)
    return g(g(x, y), x)


def condition(x, y, body, other, nested):
    def yes():
        inner = apply(body, x)
        return tf.cond(tf.reduce_sum(y) > 0, lambda: inner * y, lambda: inner + tf.sin(x)) if nested else inner * y
    return tf.cond(tf.reduce_mean(x) > tf.reduce_mean(y) * tf.constant(0.5, x.dtype), yes, lambda: apply(other, x) + tf.constant(1, x.dtype))


def loop(x, y, body, steps, limit):
    def step(i, a, b):
        return i + 1, apply(body, a) * tf.cos(y) + tf.constant(0.1, x.dtype) * b, tf.sin(b) + tf.cast(i, x.dtype) * tf.constant(0.1, x.dtype)
    return tf.while_loop(lambda i, a, b: i < steps, step, [tf.constant(0), x, y], maximum_iterations=limit)[1:]


def choose(x, y, body, branch):
    return tf.switch_case(tf.constant(branch), [lambda: apply(body, x) * y, lambda: tf.sin(y), lambda: x + apply(body, y)])


kind("call", same_with(body=chain), call, weight=.6)
kind("call_twice", same_with(body=chain), twice, weight=.4)
kind("cond", same_with(body=chain, other=chain, nested=lambda p: p.chance(.3)), condition, weight=.7)
kind("while", same_with(body=chain, steps=lambda p: p.int(0, 3), limit=lambda p: p.pick([None, 2, 5])), loop, weight=.7)
kind("switch_case", same_with(body=chain, branch=lambda p: p.int(-1, 3)), choose, weight=.4)
kind("map_rows", one(ranked(1, 3), body=lambda p, v: chain(p)), lambda x, body: tf.map_fn(lambda row: apply(body, row) * tf.reduce_sum(row), x), weight=.4)
kind("cast_around", one(), lambda x: tf.cast(tf.sin(tf.cast(x, tf.float64)), x.dtype), weight=.4)


class Program:
    """Nodes, and what is differentiated by what."""

    def __init__(self, dtype, nodes, ys, xs, stops, seeded, shapes):
        self.dtype, self.nodes, self.ys, self.xs, self.stops = dtype, nodes, ys, xs, stops
        self.seeded = seeded  # whether ys have gradients given
        self.shapes = shapes  # of the placeholders: "known", "rank" or "unknown"

    def text(self):
        lines = [n.text() for n in self.nodes]
        lines.append("d(%s) by (%s)%s%s, shapes %s" % (", ".join("t%d" % y for y in self.ys), ", ".join("t%d" % x for x in self.xs),
                     " stopped at " + ", ".join("t%d" % s for s in self.stops) if self.stops else "", ", given gradients" if self.seeded else "", self.shapes))
        return lines

    def steps(self):
        return [n for n in self.nodes if n.name != "leaf"]

    def owner(self, i):
        return next(n for n in self.nodes if n.first <= i < n.first + len(n.values))

    def value(self, i):
        n = self.owner(i)
        return n.values[i - n.first]

    def cut(self, ys, xs, leaves):
        """The program of these ys, in which these nodes (by their first value) are leaves."""
        wanted, nodes = set(ys) | set(xs), []
        for n in reversed(self.nodes):
            outs = range(n.first, n.first + len(n.values))
            if not wanted & set(outs):
                continue
            if n.name == "leaf" or n.first in leaves:
                nodes += [Node("leaf", values=[self.value(i)], first=i) for i in reversed(outs) if i in wanted]
            else:
                wanted |= set(n.ins)
                nodes.append(n)
        return Program(self.dtype, nodes[::-1], ys, xs, [s for s in self.stops if s in wanted], self.seeded, self.shapes)


def grow(seed):
    """The program of a seed."""
    p = Pool(seed)
    length = p.int(5, 14) if p.dtype == "bfloat16" else p.int(5, 60) if p.chance(.6) else p.int(5, 20)
    for _ in range(p.int(2, 4)):
        p.leaf([p.int(1, 4) for _ in range(p.pick([0, 1, 2, 2, 2, 3, 3, 4]))])
    names = sorted(KINDS)
    weights = np.array([KINDS[n][0] for n in names])
    weights /= weights.sum()
    taken = 0
    for _ in range(length * 6):
        if taken == length:
            break
        name = names[int(p.rng.choice(len(names), p=weights))]
        _, pick, build = KINDS[name]
        mark = len(p.nodes), len(p.values)
        found = pick(p)
        if found is None:
            continue
        ins, params = found
        try:
            outs = build(*[tf.constant(p.values[i]) for i in ins], **params)
        except (tf.errors.OpError, ValueError, TypeError, NotImplementedError):
            outs = None
        outs = [o.numpy() for o in (outs if isinstance(outs, (list, tuple)) else [outs])] if outs is not None else []
        if not outs or not all(o.dtype.name == p.dtype and o.size <= MOST and o.ndim <= 6 and (o.size == 0 or np.abs(o.astype(float)).max() <= LARGEST) for o in outs):
            del p.nodes[mark[0]:], p.values[mark[1]:], p.uses[mark[1]:]
            continue
        p.add(Node(name, ins, params, outs))
        taken += 1
    made = [i for n in p.nodes if n.name != "leaf" for i in range(n.first, n.first + len(n.values))]
    if not made:
        return None
    ends = [i for i in made if p.uses[i] == 0]
    ys = sorted({p.pick(ends) if ends and p.chance(.8) else p.pick(made) for _ in range(p.int(1, 4))} | {made[-1]})
    leaves = [n.first for n in p.nodes if n.name == "leaf"]
    xs = [i for i in leaves if p.chance(.8)] or leaves[:1]
    xs += [p.pick(made) for _ in range(p.int(0, 2)) if p.chance(.4)]
    if p.chance(.2):
        xs.append(p.leaf([2]))  # which nothing uses
    stops = [p.pick(made)] if p.chance(.15) else []
    return Program(p.dtype, p.nodes, ys, xs, stops, p.chance(.6), p.pick(["known"] * 3 + ["rank", "unknown"]))


class Discarded(Exception):
    """This program is not compared, and why."""


def differentiate(program, seed, dtype=None):
    """Builds the graph and its gradients; what Go needs, and numbers."""
    rng = np.random.default_rng(seed)
    graph = tf.Graph()
    with graph.as_default():
        tensors, feeds = {}, {}
        for n in program.nodes:
            if n.name == "leaf":
                value = n.values[0] if dtype is None else n.values[0].astype(dtype)
                shape = {"known": value.shape, "rank": [None] * value.ndim, "unknown": None}[program.shapes]
                tensors[n.first] = v1.placeholder(value.dtype, shape, name="t%d" % n.first)
                feeds[tensors[n.first]] = value
                continue
            with tf.name_scope("s%d_%s" % (n.first, n.name)):
                outs = KINDS[n.name][2](*[tensors[i] for i in n.ins], **n.params)
            for k, o in enumerate(outs if isinstance(outs, (list, tuple)) else [outs]):
                tensors[n.first + k] = o
        ys, xs, stops = ([tensors[i] for i in ids] for ids in (program.ys, program.xs, program.stops))
        # Python stops at operations, not at tensors, and does not stop at a call.
        stops = [s for s in stops if len(s.op.outputs) == 1 and "Call" not in s.op.type]
        vs = None
        if program.seeded:
            vs = []
            for i, y in zip(program.ys, ys):
                vs.append(v1.placeholder(y.dtype, program.value(i).shape, name="v%d" % i))
                feeds[vs[-1]] = random_like(rng, y.dtype, program.value(i).shape)
        forward = graph.as_graph_def().SerializeToString()
        gs = [None if g is None else tf.convert_to_tensor(g) for g in tf.gradients(ys, xs, grad_ys=vs, stop_gradients=stops or None)]
        with v1.Session(graph=graph, config=CONFIG) as session:
            got_y, got_g = session.run([[tf.identity(y) for y in ys], [tf.identity(g) for g in gs if g is not None]], feeds)
    values = iter(got_g)
    return {"forward": forward, "feeds": [(p.name, v) for p, v in feeds.items()], "xs": [x.name for x in xs], "ys": [y.name for y in ys],
            "vs": [v.name for v in vs or []], "stops": [s.name for s in stops], "y": got_y, "g": [None if g is None else next(values) for g in gs]}


def apart(a, b, floor):
    """The relative error that Go's comparison measures."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    if b.size == 0:
        return 0.0
    return float(np.max(np.abs(a - b) / np.maximum(np.maximum(np.abs(a), np.abs(b)), max(np.abs(b).max() / 10, floor))))


def record(rec, seed, name, program):
    got = differentiate(program, seed)
    numbers = [*got["y"], *(g for g in got["g"] if g is not None)]
    if not all(np.all(np.isfinite(a.astype(np.float64))) for a in numbers):
        raise Discarded("a gradient is not finite")
    if any(a.size and np.abs(a.astype(np.float64)).max() > 1e6 for a in numbers):
        raise Discarded("a gradient is large")
    floor = FLOOR[program.dtype]
    bounds = [PRECISION[program.dtype]] * len(program.xs)
    noise = 0.0
    if program.dtype != "float64":
        try:
            exact = differentiate(program, seed, np.float64)
        except Exception:
            raise Discarded("no float64 to measure its precision by")
        noise = max([apart(a, b, floor) for a, b in zip(got["y"], exact["y"])] + [0.0])
        bounds = [PRECISION[program.dtype] if a is None or b is None else max(PRECISION[program.dtype], 8 * apart(a, b, floor), 8 * noise) for a, b in zip(got["g"], exact["g"])]
        if max(bounds) > 0.5:
            raise Discarded("its rounding errors are as large as its gradients")
    rec.cases.append({
        "name": name, "seed": seed, "program": program.text(), "kinds": [n.name for n in program.steps()],
        "graph": rec.file("%05d.pb" % len(rec.cases), got["forward"]),
        "feeds": [{"name": n, "array": rec.array(v)} for n, v in got["feeds"]],
        "xs": got["xs"], "vs": got["vs"], "stops": got["stops"], "floor": floor, "bounds": bounds, "noise": 8 * noise,
        "ys": [{"name": n, "array": rec.array(v)} for n, v in zip(got["ys"], got["y"])],
        "g": [None if g is None else {"array": rec.array(g)} for g in got["g"]],
        "size": len(program.steps()), "cut": {"ys": program.ys, "xs": program.xs, "leaves": []}})


def attempt(rec, discarded, seed, name, program):
    """Records a program, or why not."""
    try:
        record(rec, seed, name, program)
        return True
    except Discarded as e:
        why = str(e)
    except Exception as e:  # Python has no gradient of it, or cannot build it with unknown shapes
        if program.shapes != "known":
            program.shapes = "known"
            return attempt(rec, discarded, seed, name, program)
        why = "Python: %s: %s" % (type(e).__name__, str(e).split("\n")[0][:120])
    discarded.append({"seed": seed, "why": why})
    return False


def parts(program):
    """(ys, xs, leaves) of the smaller programs to try."""
    tried = set()

    def offer(ys, xs, leaves):
        xs = [x for x in xs]
        key = (tuple(ys), tuple(xs), tuple(sorted(leaves)))
        if ys and xs and key not in tried:
            tried.add(key)
            yield list(ys), list(xs), sorted(leaves)

    steps = program.steps()
    first = {n.first: n for n in steps}
    for node in steps:  # a node from a few steps before
        inside, edge = {node.first}, {node.first}
        for _ in range(4):
            sources = {program.owner(i).first for f in edge for i in first[f].ins}
            borders = {i for f in inside for i in first[f].ins if program.owner(i).first not in inside}
            yield from offer([node.first], sorted(borders), {f for f in first if f not in inside})
            edge = {s for s in sources if s in first} - inside
            if not edge:
                break
            inside |= edge
    for y in program.ys:
        yield from offer([y], program.xs, set())
    for x in program.xs:
        yield from offer(program.ys, [x], set())
        for y in program.ys:
            yield from offer([y], [x], set())
    for node in steps:
        yield from offer(program.ys, sorted(set(program.xs) | {node.first}), {node.first})
        yield from offer(program.ys, program.xs, {node.first})
        if program.owner(program.ys[0]) is not node:
            yield from offer([node.first], program.xs, set())


def main():
    args = arguments(lambda parser: (
        parser.add_argument("--seed", type=int, default=1, help="the first one"),
        parser.add_argument("--graphs", type=int, default=1, help="how many seeds"),
        parser.add_argument("--seconds", type=float, default=1e9, help="stop after"),
        parser.add_argument("--shrink", help="a file: {seed, cuts}; records smaller programs")))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    rec, discarded = Recording(args.out), []
    begin, seed = time.monotonic(), args.seed
    if args.shrink:
        with open(args.shrink) as f:
            ask = json.load(f)
        program = grow(ask["seed"])
        for cut in ask["cuts"]:
            program = program.cut(cut["ys"], cut["xs"], set(cut["leaves"]))
        smaller = [(program.cut(ys, xs, set(leaves)), leaves) for ys, xs, leaves in parts(program)]
        for smaller, leaves in sorted(smaller, key=lambda part: len(part[0].nodes))[:SHRUNK]:
            if attempt(rec, discarded, ask["seed"], "part", smaller):
                rec.cases[-1]["cut"]["leaves"] = leaves
    else:
        while seed < args.seed + args.graphs and time.monotonic() - begin < args.seconds:
            progress(seed - args.seed, args.graphs, "seed-%d" % seed)
            program = grow(seed)
            if program is not None:
                attempt(rec, discarded, seed, "seed %d" % seed, program)
            seed += 1
    rec.save({"cases": rec.cases, "discarded": discarded, "next": seed})


if __name__ == "__main__":
    main()
