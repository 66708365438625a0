"""Elementwise functions, reductions, products, segments, random."""

import numpy as np
import tensorflow as tf

from graphcases import F, I, K, N, V, case

raw = tf.raw_ops

# Elementwise, one input: op, lower and upper bound, dtypes.
UNARY = [
    ("Abs", -2, 2, "fdhb"), ("Acos", -0.9, 0.9, "fd"), ("Acosh", 1.2, 4, "fdcz"), ("Asin", -0.9, 0.9, "fd"),
    ("Asinh", -2, 2, "fdcz"), ("Atan", -2, 2, "fd"), ("Atanh", -0.9, 0.9, "fdcz"),
    ("BesselI0", -2, 2, "fd"), ("BesselI0e", -2, 2, "fd"), ("BesselI1", 0.2, 2, "fd"), ("BesselI1e", 0.2, 2, "fd"),
    ("BesselJ0", 0.2, 3, "fd"), ("BesselJ1", 0.2, 3, "fd"), ("BesselK0", 0.3, 3, "fd"), ("BesselK0e", 0.3, 3, "fd"),
    ("BesselK1", 0.3, 3, "fd"), ("BesselK1e", 0.3, 3, "fd"), ("BesselY0", 0.3, 3, "fd"), ("BesselY1", 0.3, 3, "fd"),
    ("Ceil", -2, 2, "fd"), ("Cos", -2, 2, "fdhbcz"), ("Cosh", -2, 2, "fdcz"), ("Dawsn", -2, 2, "fd"),
    ("Digamma", 0.3, 4, "fd"), ("Erf", -2, 2, "fdhb"), ("Erfc", -2, 2, "fd"), ("Erfinv", -0.9, 0.9, "fd"),
    ("Exp", -2, 2, "fdhbcz"), ("Expint", 0.3, 3, "fd"), ("Expm1", -2, 2, "fdcz"), ("Floor", -2, 2, "fd"),
    ("FresnelCos", -2, 2, "fd"), ("FresnelSin", -2, 2, "fd"), ("Inv", 0.4, 2, "fdc"), ("Lgamma", 0.3, 4, "fd"),
    ("Log", 0.3, 3, "fdhbcz"), ("Log1p", -0.5, 3, "fdcz"), ("Ndtri", 0.1, 0.9, "fd"), ("Neg", -2, 2, "fdhbcz"),
    ("Reciprocal", 0.4, 2, "fdhbcz"), ("Rint", -2, 2, "fd"), ("Round", -2, 2, "fd"), ("Rsqrt", 0.3, 3, "fdhbcz"),
    ("Sigmoid", -3, 3, "fdhbcz"), ("Sign", -2, 2, "fdc"), ("Sin", -2, 2, "fdhbcz"), ("Sinh", -2, 2, "fdcz"),
    ("Spence", 0.3, 3, "fd"), ("Sqrt", 0.3, 3, "fdhbcz"), ("Square", -2, 2, "fdhbcz"), ("Tan", -1.2, 1.2, "fdcz"),
    ("Tanh", -2, 2, "fdhbcz"),
]
for op, lo, hi, dtypes in UNARY:
    f = getattr(raw, op)
    case(op, lambda x, f=f: f(x=x), F(3, 4, lo=lo, hi=hi), dtypes=dtypes,
         rough={"c": "Python takes the sign of a complex number for a step"} if op == "Sign" else "")
    case(op, lambda x, f=f: f(x=x), F(lo=lo, hi=hi), name="scalar", unknown=False)
    case(op, lambda x, f=f: f(x=x), F(0, 2, lo=lo, hi=hi), name="empty", unknown=False)
for op in ["Conj", "Real", "Imag", "Angle"]:
    f = getattr(raw, op)
    double = {} if op == "Conj" else {"Tout": tf.float64}
    case(op, lambda x, f=f: f(input=x), F(3, 4), dtypes="c")
    case(op, lambda x, f=f, d=double: f(input=x, **d), F(3, 4), dtypes="z", name="double", unknown=False)
case("ComplexAbs", lambda x: raw.ComplexAbs(x=x), F(3, 4), dtypes="c")
case("Complex", lambda x, y: raw.Complex(real=x, imag=y), F(3, 4), F(3, 4))
case("Complex", lambda x, y: raw.Complex(real=x, imag=y), F(3, 4), F(4), name="broadcast")
case("Complex", lambda x, y: raw.Complex(real=x, imag=y, Tout=tf.complex128), F(3, 4), F(3, 1), name="double", dtypes="d")
case("Abs", lambda x: raw.Abs(x=x), V([-1.0, 0.0, 2.0]), name="at-zero")
case("Sqrt", lambda x: raw.Sqrt(x=x), V([0.0, 1.0]), name="at-zero")

# The gradient ops: y or x, then dy.
for op, lo, hi, dtypes in [("InvGrad", 0.4, 2, "fdc"), ("ReciprocalGrad", 0.4, 2, "fdc"), ("RsqrtGrad", 0.4, 2, "fdc"),
                           ("SigmoidGrad", 0.1, 0.9, "fdc"), ("SqrtGrad", 0.4, 2, "fdc"), ("TanhGrad", -0.9, 0.9, "fdc")]:
    f = getattr(raw, op)
    case(op, lambda y, dy, f=f: f(y=y, dy=dy), F(3, 4, lo=lo, hi=hi), F(3, 4), dtypes=dtypes)

# Elementwise, two inputs: op, bounds of each, dtypes. Each with broadcasting both ways.
BINARY = [
    ("Add", (-2, 2), (-2, 2), "fdhbc"), ("AddV2", (-2, 2), (-2, 2), "fdhbcz"), ("Atan2", (-2, 2), (0.3, 2), "fd"),
    ("Div", (-2, 2), (0.4, 2), "fdc"), ("DivNoNan", (-2, 2), (0.4, 2), "fdc"), ("FloorDiv", (-2, 2), (0.4, 2), "fd"),
    ("FloorMod", (-5, 5), (0.7, 2), "fdhb"), ("Maximum", (-2, 2), (-2, 2), "fdhb"), ("Minimum", (-2, 2), (-2, 2), "fdhb"),
    ("Mul", (-2, 2), (-2, 2), "fdhbcz"), ("MulNoNan", (-2, 2), (0.4, 2), "fdc"), ("Pow", (0.4, 2), (-2, 2), "fdhcz"),
    ("RealDiv", (-2, 2), (0.4, 2), "fdhbcz"), ("SquaredDifference", (-2, 2), (-2, 2), "fdhbc"), ("Sub", (-2, 2), (-2, 2), "fdhbcz"),
    ("Xdivy", (0.3, 2), (0.4, 2), "fdc"), ("Xlogy", (0.3, 2), (0.4, 2), "fdc"), ("Xlog1py", (0.3, 2), (0.4, 2), "fd"),
]
SHAPES = [("", (3, 4), (3, 4)), ("scalar-right", (3, 4), ()), ("scalar-left", (), (3, 4)), ("row", (3, 4), (4,)),
          ("column", (3, 1), (3, 4)), ("outer", (3, 1), (1, 4)), ("ranks", (4,), (2, 3, 4)), ("scalars", (), ()),
          ("empty", (0, 4), (1, 4))]
UNCONJUGATED = {"MulNoNan": "Python leaves out a conjugate", "SquaredDifference": "Python leaves out a conjugate",
                "Xdivy": "Python leaves out a conjugate", "Xlogy": "Python leaves out a conjugate"}
for op, a, b, dtypes in BINARY:
    f = getattr(raw, op)
    for name, left, right in SHAPES:
        case(op, lambda x, y, f=f: f(x=x, y=y), F(*left, lo=a[0], hi=a[1]), F(*right, lo=b[0], hi=b[1]),
             name=name, dtypes=dtypes if not name else "f", unknown=name in ("", "row", "outer", "ranks"),
             rough={"c": UNCONJUGATED[op]} if op in UNCONJUGATED else "")
ORDER = "Python has no gradient by the order"
for op, lo, hi in [("Igamma", 0.5, 3), ("Igammac", 0.5, 3), ("Zeta", 2.2, 4), ("Polygamma", 1, 3), ("NextAfter", -2, 2)]:
    f = getattr(raw, op)
    key = {"Igamma": ("a", "x"), "Igammac": ("a", "x"), "Zeta": ("x", "q"), "Polygamma": ("a", "x"), "NextAfter": ("x1", "x2")}[op]
    first = V([[1.0, 2.0, 3.0]] * 2) if op == "Polygamma" else F(2, 3, lo=lo, hi=hi)
    for name, shape in [("", (2, 3)), ("row", (3,)), ("scalar", ())]:
        case(op, lambda x, y, f=f, k=key: f(**{k[0]: x, k[1]: y}), first, F(*shape, lo=0.5, hi=3), name=name,
             dtypes="fd" if not name else "d", rough=ORDER if op in ("Zeta", "Polygamma") else "")
for op, first, second in [("Zeta", "x", "q"), ("Polygamma", "a", "x")]:
    case(op, lambda x, y, f=getattr(raw, op), a=first, b=second: f(**{a: x, b: y}), I([[2.0, 3.0, 4.0]] * 2, "float64"), F(2, 3, lo=0.5, hi=3), name="by-" + second, dtypes="d")
case("Betainc", lambda a, b, x: raw.Betainc(a=a, b=b, x=x), F(2, 3, lo=1, hi=3), F(2, 3, lo=1, hi=3), F(2, 3, lo=0.2, hi=0.8), dtypes="fd",
     rough="Python has no gradient by a and b")
case("Betainc", lambda a, b, x: raw.Betainc(a=a, b=b, x=x), N(2, 3, lo=1, hi=3), N(2, 3, lo=1, hi=3), F(2, 3, lo=0.2, hi=0.8), name="by-x", dtypes="fd")
for op in ["TruncateDiv"]:
    case(op, lambda x, y: tf.cast(raw.TruncateDiv(x=tf.cast(x, tf.int32), y=tf.cast(y, tf.int32)), tf.float32) + x, F(3, 4, lo=0.2, hi=0.8), F(3, 4, lo=1.2, hi=1.8))
# Division at zero, powers at and below zero, ties, infinities: what Python answers there.
ZERO = [[0.0, 1.0, -1.0], [2.0, 0.0, 0.5]]
case("DivNoNan", lambda x, y: raw.DivNoNan(x=x, y=y), V(ZERO), V([[0.0, 0.0, 2.0], [1.0, 3.0, 0.0]]), name="at-zero", rough="a jump")
case("MulNoNan", lambda x, y: raw.MulNoNan(x=x, y=y), V([[np.inf, 1.0, np.nan], [2.0, 0.0, 0.5]]), V([[0.0, 0.0, 0.0], [1.0, 3.0, 0.0]]), name="at-zero")
case("Xlogy", lambda x, y: raw.Xlogy(x=x, y=y), V(ZERO), V([[0.0, 1.0, 2.0], [1.0, 3.0, 0.5]]), name="at-zero")
case("Xlog1py", lambda x, y: raw.Xlog1py(x=x, y=y), V(ZERO), V([[0.0, 1.0, 2.0], [1.0, -0.5, 0.5]]), name="at-zero")
case("Xdivy", lambda x, y: raw.Xdivy(x=x, y=y), V(ZERO), V([[0.0, 1.0, 2.0], [1.0, 0.0, 0.5]]), name="at-zero")
case("Pow", lambda x, y: raw.Pow(x=x, y=y), V([[0.0, 1.0, 2.0], [0.0, 0.5, 3.0]]), V([[2.0, 0.0, -1.0], [1.0, 3.0, 0.5]]), name="at-zero")
case("Pow", lambda x, y: raw.Pow(x=x, y=y), V([[-1.0, -2.0, 2.0]]), V([[2.0, 3.0, -1.0]]), name="negative-base")
case("Pow", lambda x: raw.Pow(x=x, y=tf.constant(3.0)), F(3, 4), name="constant-exponent")
case("Maximum", lambda x, y: raw.Maximum(x=x, y=y), V([1.0, 2.0, 3.0]), V([1.0, 3.0, 2.0]), name="ties")
case("Minimum", lambda x, y: raw.Minimum(x=x, y=y), V([1.0, 2.0, 3.0]), V([1.0, 3.0, 2.0]), name="ties")
case("FloorMod", lambda x, y: raw.FloorMod(x=x, y=y), V([5.0, -5.0, 5.5, -5.5]), V([3.0, 3.0, -2.0, -2.0]), name="signs")

# Selection.
C = I([[True, False, True], [False, True, False]], "bool")
case("Select", lambda c, x, y: raw.Select(condition=c, x=x, y=y), C, F(2, 3), F(2, 3), dtypes="fdhbc")
case("Select", lambda c, x, y: raw.Select(condition=c, x=x, y=y), I([True, False], "bool"), F(2, 3), F(2, 3), name="rows")
case("SelectV2", lambda c, x, y: raw.SelectV2(condition=c, t=x, e=y), C, F(2, 3), F(2, 3), dtypes="fdhbc")
for name, x, y in [("scalar-t", (), (2, 3)), ("row-e", (2, 3), (3,)), ("column-t", (2, 1), (2, 3)), ("scalars", (), ())]:
    case("SelectV2", lambda c, x, y: raw.SelectV2(condition=c, t=x, e=y), C, F(*x), F(*y), name=name)
case("SelectV2", lambda c, x, y: raw.SelectV2(condition=c, t=x, e=y), I([True, False, True], "bool"), F(2, 3), F(2, 3), name="row-condition")
case("ClipByValue", lambda x, a, b: raw.ClipByValue(t=x, clip_value_min=a, clip_value_max=b), F(3, 4), V(-0.5), V(0.7), dtypes="fd")
case("ClipByValue", lambda x, a, b: raw.ClipByValue(t=x, clip_value_min=a, clip_value_max=b), F(3, 4), F(3, 4, lo=-1, hi=-0.1), F(3, 4, lo=0.1, hi=1), name="full")

# Sums and products.
case("AddN", lambda *x: raw.AddN(inputs=list(x)), F(3, 4), F(3, 4), F(3, 4), dtypes="fdhbc")
case("AddN", lambda x: raw.AddN(inputs=[x]), F(3, 4), name="one")
case("AddN", lambda x: raw.AddN(inputs=[x, x]), F(3, 4), name="twice")
case("AccumulateNV2", lambda *x: raw.AccumulateNV2(inputs=list(x), shape=[3, 4]), F(3, 4), F(3, 4), unknown=False)
case("Cross", lambda x, y: raw.Cross(a=x, b=y), F(2, 3), F(2, 3), dtypes="fd")
for ta in [False, True]:
    for tb in [False, True]:
        a, b = (4, 3) if ta else (3, 4), (2, 4) if tb else (4, 2)
        n = "%d%d" % (ta, tb)
        case("MatMul", lambda x, y, ta=ta, tb=tb: raw.MatMul(a=x, b=y, transpose_a=ta, transpose_b=tb), F(*a), F(*b), name=n,
             dtypes="fdhbcz")
        for op in ["BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"]:
            f = getattr(raw, op)

            def build(x, y, f=f, ta=ta, tb=tb, v3=op.endswith("V3")):
                return f(x=x, y=y, adj_x=ta, adj_y=tb, **({"Tout": x.dtype} if v3 else {}))
            case(op, build, F(2, *a), F(2, *b), name=n, dtypes="fdc")
            if op != "BatchMatMul":
                case(op, build, F(2, 1, *a), F(3, *b), name=n + "-broadcast")
                case(op, build, F(*a), F(3, *b), name=n + "-broadcast-matrix")
case("MatMul", lambda x, y: raw.MatMul(a=x, b=y), F(0, 4), F(4, 2), name="empty")
case("MatMul", lambda x: raw.MatMul(a=x, b=x), F(3, 3), name="square")
for eq, shapes in [("ij,jk->ik", [(2, 3), (3, 4)]), ("ij->ji", [(2, 3)]), ("ij->i", [(2, 3)]), ("ij->", [(2, 3)]), ("bij,bjk->bik", [(2, 2, 3), (2, 3, 2)]),
                   ("...ij,...jk->...ik", [(2, 1, 2, 3), (3, 3, 2)]), ("ii->i", [(3, 3)]), ("ij,ij->ij", [(2, 3), (2, 3)]), ("i,j->ij", [(2,), (3,)]),
                   ("ijk,k->ij", [(2, 3, 4), (4,)]), ("ijk,k->", [(2, 3, 4), (4,)]), ("aabbcd->ca", [(2, 2, 3, 3, 4, 2)])]:
    n = eq.replace("->", "_").replace(",", "-").replace("...", "_")
    case("Einsum", lambda *x, e=eq: raw.Einsum(inputs=list(x), equation=e), *[F(*s) for s in shapes], name=n, dtypes="fd" + ("c" if len(shapes) == 2 else ""), unknown=eq != "aabbcd->ca")

# Reductions.
AXES = [("all", [0, 1]), ("first", [0]), ("last", [1]), ("scalar-axis", 1), ("none", []), ("negative", [-1])]
for op, dtypes in [("Sum", "fdhbcz"), ("Mean", "fdhbcz"), ("Prod", "fdc"), ("Max", "fdhb"), ("Min", "fdhb"), ("EuclideanNorm", "fd")]:
    f = getattr(raw, op)
    for name, axes in AXES:
        for keep in [False, True]:
            case(op, lambda x, f=f, a=axes, k=keep: f(input=x, axis=tf.constant(a, tf.int32), keep_dims=k), F(3, 4, lo=0.3, hi=2),
                 name=name + ("-keep" if keep else ""), dtypes=dtypes if name == "last" and not keep else "f",
                 unknown=name in ("all", "last"))
    case(op, lambda x, a, f=f: f(input=x, axis=a), F(2, 3, 4, lo=0.3, hi=2), I([2, 0]), name="fed-axes")
    case(op, lambda x, f=f: f(input=x, axis=tf.constant([], tf.int32)), F(), name="scalar")
    if op in ("Sum", "Mean", "Prod"):
        case(op, lambda x, f=f: f(input=x, axis=[0]), F(0, 3), name="empty")
case("Max", lambda x: raw.Max(input=x, axis=[1]), V([[1.0, 3.0, 3.0], [2.0, 2.0, 1.0]]), name="ties")
case("Min", lambda x: raw.Min(input=x, axis=[1]), V([[3.0, 1.0, 1.0], [2.0, 2.0, 3.0]]), name="ties")
case("Prod", lambda x: raw.Prod(input=x, axis=[1]), V([[1.0, 0.0, 3.0], [0.0, 0.0, 1.0]]), name="zeros")
for op in ["ArgMax", "ArgMin"]:
    f = getattr(raw, op)
    case(op, lambda x, f=f: tf.cast(f(input=x, dimension=1), x.dtype) + tf.reduce_sum(x), F(3, 4), dtypes="fd")
for exclusive in [False, True]:
    for reverse in [False, True]:
        n = "%d%d" % (exclusive, reverse)
        for op in ["Cumsum", "Cumprod", "CumulativeLogsumexp"]:
            f = getattr(raw, op)
            case(op, lambda x, f=f, e=exclusive, r=reverse: f(x=x, axis=1, exclusive=e, reverse=r), F(3, 4, lo=0.4, hi=2), name=n,
                 dtypes="fd", rough="the sum of nothing is -inf" if exclusive and op == "CumulativeLogsumexp" else "")
case("Cumsum", lambda x, a: raw.Cumsum(x=x, axis=a), F(3, 4), I(0), name="fed-axis")

# Segments.
IDS = I([0, 0, 1, 3], "int32")
for op in ["SegmentSum", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin"]:
    f = getattr(raw, op)
    for dtype in ["int32", "int64"]:
        case(op, lambda x, i, f=f: f(data=x, segment_ids=i), F(4, 3, lo=0.3, hi=2), I([0, 0, 1, 3], dtype), name=dtype, dtypes="fd")
for op in ["UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin"]:
    f = getattr(raw, op)
    for name, ids, shape in [("", [2, 0, 2, -1], (4, 3)), ("rank-2-ids", [[0, 1], [1, 1]], (2, 2, 3)), ("vector", [1, 0, 1, 2], (4,)), ("full", [3, 0, 2, 1], (4, 3))]:
        case(op, lambda x, i, f=f: f(data=x, segment_ids=i, num_segments=4), F(*shape, lo=0.3, hi=2), I(ids), name=name, dtypes="fd" if name in ("", "full") else "f",
             rough="an empty segment is the lowest or highest number" if op.endswith(("Max", "Min")) and name != "full" else "")
for op in ["SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"]:
    for suffix, extra in [("", {}), ("WithNumSegments", {"num_segments": 5})]:
        f = getattr(raw, op + suffix)
        case(op + suffix, lambda x, i, s, f=f, e=extra: f(data=x, indices=i, segment_ids=s, **e), F(5, 3), I([0, 2, 2, 4]), I([0, 0, 1, 2]), dtypes="fd")

# Conversions and checks.
for to in ["float64", "float16", "complex64", "bfloat16"]:
    case("Cast", lambda x, t=to: raw.Cast(x=x, DstT=tf.as_dtype(t)), F(3, 4), name="to-" + to)
case("Cast", lambda x: raw.Cast(x=x, DstT=tf.float32), F(3, 4), name="from-double", dtypes="d")
case("Cast", lambda x: tf.cast(raw.Cast(x=x, DstT=tf.int32), tf.float32) + x, F(3, 4), name="through-int")
case("CheckNumerics", lambda x: raw.CheckNumerics(tensor=x, message="x"), F(3, 4), dtypes="fd")
case("CheckNumericsV2", lambda x: raw.CheckNumericsV2(tensor=x, message="x"), F(3, 4), dtypes="fd")

# Random draws that are differentiable by their parameters; the seeds are fixed.
case("RandomGamma", lambda a: raw.RandomGamma(shape=[3], alpha=a, seed=3, seed2=4), F(2, lo=1, hi=3), dtypes="fd")
case("StatelessRandomGammaV2", lambda a: raw.StatelessRandomGammaV2(shape=[3, 2], seed=[1, 2], alpha=a), F(2, lo=1, hi=3), dtypes="fd")
case("StatelessRandomGammaV3", lambda a: raw.StatelessRandomGammaV3(shape=[3, 2], key=tf.constant([5], tf.uint64), counter=tf.constant([1, 2], tf.uint64), alg=1, alpha=a),
     F(2, lo=1, hi=3))
case("StatelessParameterizedTruncatedNormal", lambda m, s, a, b: raw.StatelessParameterizedTruncatedNormal(
    shape=[3, 2], seed=[1, 2], means=m, stddevs=s, minvals=a, maxvals=b), F(2), F(2, lo=0.5, hi=1), F(2, lo=-3, hi=-2), F(2, lo=2, hi=3),
    dtypes="fd")
