"""Gradient cases: a forward graph, its inputs, and the gradients Python computes.

A case names the op under test, a function that builds y from placeholders, and
the placeholders' specs. `record` builds it for each dtype and static shape asked
for, and computes, in one session run,

    y                       the forward values
    g  = tf.gradients(y, xs, grad_ys=v)
    g2 = tf.gradients(g, xs, grad_ys=w)    that is, of sum(g*w)

with v and w random. Where Python gives None, None is recorded.
"""

import zlib

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2

v1 = tf.compat.v1

NAMES = {"f": "float32", "d": "float64", "h": "float16", "b": "bfloat16", "c": "complex64", "z": "complex128"}


# Operations whose gradient Sluice computes in other steps than Python, so that
# 32-bit results are equal to 1e-5, not 1e-6, and why.
OTHER_WAYS = {
    "Atan2": "one division for the two of Python",
    "BandedTriangularSolve": "batched products where Python multiplies matrices",
    "BesselI1": "terms of Bessel functions that almost cancel",
    "BesselJ1": "terms of Bessel functions that almost cancel",
    "CumulativeLogsumexp": "exponentials of differences of sums",
    "CropAndResize": "interpolation weights are rounded by another kernel",
    "Div": "-x/y/y in another order",
    "DivNoNan": "-x/y/y in another order",
    "FusedBatchNorm": "the second gradient by a closed formula, where Python differentiates a composed one",
    "FusedBatchNormV2": "the second gradient by a closed formula, where Python differentiates a composed one",
    "FusedBatchNormV3": "the second gradient by a closed formula, where Python differentiates a composed one",
    "FusedBatchNormGrad": "the second gradient by a closed formula, where Python differentiates a composed one",
    "FusedBatchNormGradV2": "the second gradient by a closed formula, where Python differentiates a composed one",
    "FusedBatchNormGradV3": "the second gradient by a closed formula, where Python differentiates a composed one",
    "Gather": "rows of the same index are summed in another order",
    "MatrixInverse": "batched products where Python multiplies matrices",
    "MatrixSolve": "batched products where Python multiplies matrices",
    "MatrixSolveLs": "batched products where Python multiplies matrices, of an inverse",
    "Qr": "batched products where Python multiplies matrices, of an inverse",
    "RFFT": "one complex transform, where Python adds correction terms to a real one",
    "RFFT2D": "one complex transform, where Python adds correction terms to a real one",
    "RGBToHSV": "one quotient rule for Python's fifteen cases; differences of almost equal colours",
    "ResourceGather": "rows of the same index are summed in another order",
    "SelfAdjointEigV2": "batched products where Python multiplies matrices",
    "SoftmaxCrossEntropyWithLogits": "a sum where Python multiplies matrices",
    "SparseMatMul": "transposes inside of the kernel",
    "SparseSoftmaxCrossEntropyWithLogits": "a sum where Python multiplies matrices",
    "SparseTensorDenseMatMul": "a sum where Python multiplies matrices",
    "SquaredDifference": "the factor 2 in another place",
    "StatelessParameterizedTruncatedNormal": "exponentials in another order",
    "Svd": "batched products where Python multiplies matrices, of an inverse",
    "TridiagonalSolve": "sums in another order",
    "Xdivy": "-x/y/y in another order",
    "Xlogy": "-x/y/y in another order",
}
# Kernels that split their sums over as many threads as the process happens to have.
for _op in ["BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3D",
            "Conv3DBackpropFilterV2", "Conv3DBackpropInputV2", "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropFilter",
            "DepthwiseConv2dNativeBackpropInput", "Einsum", "MatMul"]:
    OTHER_WAYS[_op] = "the kernels split their sums over threads"


class In:
    """One input: values of a shape and range, or given ones.

    dtype None follows the case's dtype; "real" is the real type of a complex
    case. wrt False feeds the input without differentiating by it; const makes it
    a constant of the graph (axes, shapes), var a resource variable that starts
    with them; its handle is what is differentiated by. ref is a variable of
    TensorFlow 1, a tensor of reference type.
    """

    def __init__(self, shape=(), lo=-2.0, hi=2.0, dtype=None, value=None, wrt=True, const=False, transform=None, var=False, ref=False):
        self.var, self.ref = var, ref
        self.shape, self.lo, self.hi = tuple(shape), lo, hi
        self.dtype, self.value, self.wrt, self.const, self.transform = dtype, value, wrt, const, transform

    def make(self, dtype, rng):
        name = self.dtype or dtype
        if name == "real":
            name = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
        np_dtype = tf.as_dtype(name).as_numpy_dtype
        if self.value is not None:
            value = np.array(self.value)
            if tf.as_dtype(name) == tf.string:
                return value.astype(object)
            return value.astype(np_dtype)
        draw = rng.uniform(self.lo, self.hi, self.shape)
        if tf.as_dtype(name).is_complex:
            draw = draw + 1j * rng.uniform(self.lo, self.hi, self.shape)
        if self.transform:
            draw = self.transform(draw)
        return np.asarray(draw).astype(np_dtype)


def F(*shape, **kw):
    """A differentiable input."""
    return In(shape, **kw)


def V(value, dtype=None):
    """A differentiable input of given values."""
    return In(value=value, dtype=dtype)


def Var(*shape, **kw):
    """A resource variable."""
    return In(shape, var=True, **kw)


def N(*shape, **kw):
    """An input that is fed and not differentiated by."""
    return In(shape, wrt=False, **kw)


def I(value, dtype="int32", const=False):
    """Given integers (or other given values that carry no gradient)."""
    return In(value=value, dtype=dtype, wrt=False, const=const)


def K(value, dtype="int32"):
    """A constant of the graph."""
    return I(value, dtype, const=True)


CASES = []


# Operations whose gradient is by definition not the slope of their values, or
# whose values have none, and why.
THROUGH = "the gradient goes straight through the rounding"
INVERSE = "Python transforms by the inverse, which is not the adjoint where pixels are interpolated"
REJECTION = "drawn by rejection; Python's gradient is the implicit one of the distribution"
ROUGH = {
    "FakeQuantWithMinMaxArgs": THROUGH, "FakeQuantWithMinMaxVars": THROUGH, "FakeQuantWithMinMaxVarsPerChannel": THROUGH,
    "QuantizeAndDequantizeV2": THROUGH, "QuantizeAndDequantizeV3": THROUGH, "QuantizeAndDequantizeV4": THROUGH,
    "ImageProjectiveTransformV2": INVERSE, "ImageProjectiveTransformV3": INVERSE,
    "RandomGamma": REJECTION, "StatelessRandomGammaV2": REJECTION, "StatelessRandomGammaV3": REJECTION,
    "StatelessParameterizedTruncatedNormal": REJECTION,
    "StopGradient": "gradients stop on purpose",
}
# Names of cases that say as much.
ROUGH_NAMES = {"at-zero": "a pole, a jump or a corner", "ties": "a corner", "at-the-corners": "a corner", "stopped": "gradients stop on purpose",
               "negative-base": "the power is NaN beside whole exponents"}


def rough_name(name):
    words = "-%s-" % name.replace("/", "-")
    return next((why for part, why in ROUGH_NAMES.items() if "-%s-" % part in words), "")


def case(op, build, *inputs, name="", dtypes="f", unknown=True, second="", refused=False, numeric="", rough="", tf1=False):
    """Adds a case.

    dtypes     one letter a dtype: f d h b (half, bfloat16) c z (complex)
    unknown    also with unknown static shapes (of the first dtype); "rank": the
               rank is known, the sizes are not
    second     why the gradient of the gradient is not compared, although Python has one
    refused    Python registers a gradient that raises an error when asked: ours
               must be an error too
    numeric    why Python's own gradient is wrong here: ours is held against
               central differences of Python's forward values instead
    rough      why the gradient is not the slope of the values here; else it is
               held against central differences too. A dictionary tells it for
               some of the dtypes
    tf1        with TensorFlow 1's control flow and TensorArrays
    """
    CASES.append(dict(op=op, build=build, inputs=inputs, name=name, dtypes=dtypes, unknown=unknown,
                      second=second, refused=refused, numeric=numeric, rough=rough or ROUGH.get(op, "") or rough_name(name), tf1=tf1))


def variations(c):
    """(name, dtype, unknown) of each graph that a case makes; unknown is "", "unknown" or "rank"."""
    base = c["op"] + ("/" + c["name"] if c["name"] else "")
    for i, letter in enumerate(c["dtypes"]):
        dtype = NAMES[letter]
        yield "%s/%s" % (base, dtype), dtype, ""
        if c["unknown"] and i == 0:
            kind = "rank" if c["unknown"] == "rank" else "unknown"
            yield "%s/%s/%s" % (base, dtype, kind), dtype, kind


def config():
    c = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    rewrite = c.graph_options.rewrite_options
    rewrite.disable_meta_optimizer = True
    rewrite.constant_folding = rewriter_config_pb2.RewriterConfig.OFF
    c.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    return c


CONFIG = config()


def trainable(t):
    d = t.dtype.base_dtype
    return d.is_floating or d.is_complex


def flat(value):
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in flat(v)]
    return [value]


def random_like(rng, dtype, shape):
    d = tf.as_dtype(dtype)
    draw = rng.uniform(0.25, 1.0, shape) * rng.choice([-1.0, 1.0], shape)
    if d.is_complex:
        draw = draw + 1j * rng.uniform(0.25, 1.0, shape)
    return np.asarray(draw).astype(d.as_numpy_dtype)


def record(rec, c, name, dtype, unknown):
    """Builds one graph, computes its gradients, and stores both."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    entry = {"name": name, "op": c["op"]}
    if c["op"] in OTHER_WAYS:
        entry["why"] = OTHER_WAYS[c["op"]]
    (v1.disable_control_flow_v2 if c["tf1"] else v1.enable_control_flow_v2)()
    graph = tf.Graph()
    with graph.as_default():
        args, feeds, xs = [], [], []
        owners = {}  # by place in xs: the variable that holds it
        for i, spec in enumerate(c["inputs"]):
            value = spec.make(dtype, rng)
            if spec.const:
                args.append(tf.constant(value, name="const%d" % i))
                continue
            if spec.ref:
                v = v1.get_variable("var%d" % i, initializer=tf.constant(value), use_resource=False)
                args.append(v._ref())
                owners[len(xs)] = v
                xs.append((v._ref(), value))
                entry.setdefault("init", []).append(v.initializer.name)
                continue
            if spec.var:
                v = v1.get_variable("var%d" % i, initializer=tf.constant(value), use_resource=True)
                args.append(v)
                owners[len(xs)] = v
                xs.append((v, value))
                entry.setdefault("init", []).append(v.initializer.name)
                continue
            d = tf.string if value.dtype == object else tf.as_dtype(value.dtype)
            shape = {"unknown": None, "rank": [None] * value.ndim}.get(unknown, value.shape)
            p = v1.placeholder(d, shape, name="x%d" % i)
            args.append(p)
            feeds.append((p, value))
            if spec.wrt and trainable(p):
                xs.append((p, value))
        ys = [y for y in flat(c["build"](*args)) if trainable(y)]
        if not ys:
            raise ValueError("no differentiable output")
        with v1.Session(graph=graph, config=CONFIG) as session:
            sizes = None
            if not all(y.shape.is_fully_defined() for y in ys):
                # In a session of its own: a random op draws once from its seed.
                with v1.Session(graph=graph, config=CONFIG) as other:
                    if "init" in entry:
                        other.run([graph.get_operation_by_name(n) for n in entry["init"]])
                    sizes = [v.shape for v in other.run(ys, dict(feeds))]
            vs = []
            for k, y in enumerate(ys):
                shape = tuple(y.shape.as_list()) if sizes is None else sizes[k]
                p = v1.placeholder(y.dtype.base_dtype, y.shape, name="v%d" % k)
                vs.append(p)
                feeds.append((p, random_like(rng, y.dtype.base_dtype, shape)))
            ws = []
            for k, (x, value) in enumerate(xs):
                p = v1.placeholder(x.dtype.base_dtype, x.shape, name="w%d" % k)
                ws.append((p, random_like(rng, x.dtype.base_dtype, value.shape)))
            definition = graph.as_graph_def()
            forward = definition.SerializeToString()
            if not any(n.op == c["op"] for part in [definition.node, *(f.node_def for f in definition.library.function)] for n in part):
                raise ValueError("the graph has no %s" % c["op"])

            if c["refused"]:
                try:
                    tf.gradients(ys, [x for x, _ in xs], grad_ys=vs)
                except Exception as e:
                    entry["refused"] = type(e).__name__ + ": " + str(e)[:200]
                    entry["graph"] = rec.file("%04d.pb" % len(rec.cases), forward)
                    entry |= {"xs": [x.name for x, _ in xs], "ys": [{"name": y.name} for y in ys], "vs": [v.name for v in vs]}
                    rec.cases.append(entry)
                    return
                raise ValueError("Python does not refuse it")
            gs = tf.gradients(ys, [x for x, _ in xs], grad_ys=vs)
            sparse = [isinstance(g, tf.IndexedSlices) for g in gs]
            dense = [None if g is None else tf.convert_to_tensor(g) for g in gs]
            g2 = None
            pairs = [(g, w) for g, w in zip(dense, ws) if g is not None]
            if not c["second"] and pairs:
                try:
                    g2 = tf.gradients([g for g, _ in pairs], [x for x, _ in xs], grad_ys=[w for _, (w, _) in pairs])
                    g2 = [None if g is None else tf.convert_to_tensor(g) for g in g2]
                except Exception as e:  # Python has no second gradient here
                    entry["second_missing"] = type(e).__name__ + ": " + str(e)[:200]
                    g2 = None
            all_feeds = dict(feeds) | {w: value for w, value in ws}
            # Only now: gradients of control flow change the graph, which a session
            # that has run it does not see.
            if "init" in entry:
                session.run([graph.get_operation_by_name(n) for n in entry["init"]])
            fetches = {"y": ys, "g": [g for g in dense if g is not None],
                       "g2": [g for g in g2 or [] if g is not None]}
            try:
                got = session.run(fetches, all_feeds)
            except tf.errors.OpError as e:
                if g2 is None:
                    raise
                entry["second_missing"] = type(e).__name__ + ": " + str(e)[:200]
                g2, fetches["g2"] = None, []
                got = session.run(fetches, all_feeds)
            if c["numeric"]:
                precision = SINGLE if dtype == "float32" else DOUBLE
                entry["numeric"], entry["slope_bound"] = c["numeric"], precision.bound
                got["g"] = differences(session, ys, vs, dict(feeds), xs, precision.steps[0])
            elif not unknown:
                precision = numerical(c, dtype, [*ys, *(v for v, _ in xs)], owners)
                rough = c["rough"]
                if isinstance(rough, dict):
                    rough = rough.get(next(letter for letter, d in NAMES.items() if d == dtype), "")
                if precision and rough:
                    entry["rough"] = rough
                elif precision:
                    values = iter(got["g"])
                    grads = [None if g is None else next(values) for g in dense]
                    entry["slope"] = slope_error(session, ys, vs, dict(feeds), xs, owners, grads, rng, precision)
                    entry["slope_bound"] = precision.bound
        first, second = iter(got["g"]), iter(got["g2"])
        entry["graph"] = rec.file("%04d.pb" % len(rec.cases), forward)
        entry["feeds"] = [{"name": p.name, "array": rec.array(v)} for p, v in feeds]
        entry["ws"] = [{"name": w.name, "array": rec.array(v)} for w, v in ws]
        entry["xs"] = [getattr(x, "handle", x).name for x, _ in xs]
        entry["ys"] = [{"name": y.name, "array": rec.array(v)} for y, v in zip(ys, got["y"])]
        entry["vs"] = [v.name for v in vs]
        entry["g"] = [None if g is None else {"sparse": s, "array": rec.array(next(first))}
                      for g, s in zip(dense, sparse)]
        if g2 is not None:
            entry["g2"] = [None if g is None else {"array": rec.array(next(second))} for g in g2]
    rec.cases.append(entry)


class Precision:
    """Steps of central differences, tried until one agrees, and how far a gradient may lie from them, relatively."""

    def __init__(self, bound, *steps):
        self.bound, self.steps = bound, steps


DOUBLE = Precision(1e-6, 1e-6)
SINGLE = Precision(5e-3, 1e-2, 1e-3)


def numerical(c, dtype, tensors, owners):
    """The precision to which this variation of a case is held against central differences; None for not at all.

    It is done for each case's widest types, real and complex.
    """
    families = ["dfhb", "zc"]
    family = next(f for f in families if any(NAMES[letter] == dtype for letter in f))
    if NAMES[next(letter for letter in family if letter in c["dtypes"])] != dtype:
        return None
    types = {t.dtype.base_dtype for t in tensors} | {v.dtype.base_dtype for v in owners.values()}
    real = {t.real_dtype for t in types if t != tf.resource}
    if real == {tf.float64}:
        return DOUBLE
    return SINGLE if real <= {tf.float32, tf.float64} else None


def slope_error(session, ys, vs, feeds, xs, owners, grads, rng, precision):
    """How far the gradients are from the slope of Re(sum(conj(v)*y)) in a random direction of all xs.

    It is relative to what the slope would be were its terms independent, so that
    one wrong element of a gradient is seen.
    """
    directions = [random_like(rng, (owners[k] if k in owners else x).dtype.base_dtype, value.shape) for k, (x, value) in enumerate(xs)]

    def value(distance):
        moved = {}
        for k, ((x, at), d) in enumerate(zip(xs, directions)):
            there = np.asarray(at + distance * d).astype(at.dtype)
            if k in owners:
                v = owners[k]
                session.run(v.initializer, {v.initializer.inputs[1]: there})
            else:
                moved[x] = there
        results = session.run(ys, feeds | moved)
        return sum(np.sum(np.conj(feeds[v]).astype(np.complex128) * y).real for y, v in zip(results, vs))

    with np.errstate(all="ignore"):  # what is not finite is told by its error
        terms = [np.real(np.conj(g).astype(np.complex128) * d).ravel() for g, d in zip(grads, directions) if g is not None]
        terms = np.concatenate(terms) if terms else np.zeros(1)
        least = 1e30
        for h in precision.steps:
            measured = float(value(h) - value(-h)) / (2 * h)
            scale = max(float(np.linalg.norm(terms)), abs(measured))
            error = abs(measured - float(terms.sum())) / scale if scale else 0.0
            least = min(least, error if np.isfinite(error) else 1e30)
            if least <= precision.bound:
                break
    return least


def differences(session, ys, vs, feeds, xs, h):
    """Central differences of sum(y*v) by each x."""
    def value(changed):
        return sum(float(np.sum(y.astype(np.float64) * feeds[v])) for y, v in zip(session.run(ys, feeds | changed), vs))

    grads = []
    for x, at in xs:
        grad = np.zeros_like(at)
        for i in np.ndindex(at.shape):
            moved = np.zeros_like(at)
            moved[i] = h
            grad[i] = (value({x: at + moved}) - value({x: at - moved})) / (2 * h)
        grads.append(grad)
    return grads
