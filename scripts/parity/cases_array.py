"""Reshaping, slicing, gathering, scattering, variables, identities."""

import tensorflow as tf
from tensorflow.python.debug.lib import debug_gradients

from graphcases import F, I, In, N, V, Var, case

raw = tf.raw_ops


def mirror_pad_grad(g, mode):
    """MirrorPadGrad has no public wrapper: it comes as the gradient of MirrorPad."""
    x = tf.zeros([3, 4], g.dtype)
    return tf.gradients(raw.MirrorPad(input=x, paddings=PADS, mode=mode), x, grad_ys=g)[0]


# Identities and what only carries a value on.
case("Identity", lambda x: raw.Identity(input=x), F(3, 4), dtypes="fdhbc")
case("IdentityN", lambda x, y: list(raw.IdentityN(input=[x, y])), F(3, 4), F(2))
case("IdentityN", lambda x, y: raw.IdentityN(input=[x, y])[1], F(3, 4), F(2), name="one-used")
case("EnsureShape", lambda x: raw.EnsureShape(input=x, shape=[3, 4]), F(3, 4))
case("PlaceholderWithDefault", lambda x: raw.PlaceholderWithDefault(input=x, shape=[3, 4]), F(3, 4))
case("PreventGradient", lambda x: raw.PreventGradient(input=x, message="none here"), F(3, 4), refused=True)
case("Print", lambda x: raw.Print(input=x, data=[x], message="", first_n=0), F(3, 4))
case("DebugIdentityV2", lambda x: raw.DebugIdentityV2(input=x, debug_urls=[]), F(3, 4))
case("DebugGradientIdentity", lambda x: debug_gradients.GradientsDebugger().identify_gradient(x), F(3, 4))
case("RefIdentity", lambda v: raw.Square(x=raw.RefIdentity(input=v)), In((3, 4), ref=True), dtypes="fd", unknown=False)
case("DebugGradientRefIdentity", lambda v: raw.Square(x=debug_gradients.GradientsDebugger().identify_gradient(v)), In((3, 4), ref=True), dtypes="fd", unknown=False)
case("StopGradient", lambda x: raw.StopGradient(input=x) * x, F(3, 4), name="product")
case("StopGradient", lambda x, y: raw.StopGradient(input=x) + y, F(3, 4), F(3, 4), name="none")
case("ReadVariableOp", lambda v: raw.Square(x=raw.ReadVariableOp(resource=v.handle, dtype=v.dtype)), Var(3, 4), dtypes="fdh")
case("ReadVariableOp", lambda v: raw.ReadVariableOp(resource=v.handle, dtype=v.dtype) * raw.ReadVariableOp(resource=v.handle, dtype=v.dtype), Var(3, 4), name="twice")
for name, ids in [("", [2, 0, 2]), ("matrix", [[2, 0], [1, 2]]), ("scalar", 1), ("empty", [])]:
    for dtype in ["int32", "int64"]:
        case("ResourceGather", lambda v, i: raw.ResourceGather(resource=v.handle, indices=i, dtype=v.dtype), Var(4, 3), I(ids, dtype),
             name=(name + "-" + dtype).strip("-"), dtypes="fd" if not name else "f")
case("ResourceGather", lambda v, i: raw.ResourceGather(resource=v.handle, indices=i, dtype=v.dtype) * 2.0 + tf.reduce_sum(v), Var(4, 3), I([1, 1]), name="with-dense")
case("ResourceGather", lambda v, i, j: tf.concat([raw.ResourceGather(resource=v.handle, indices=i, dtype=v.dtype),
                                                  raw.ResourceGather(resource=v.handle, indices=j, dtype=v.dtype)], 0), Var(4, 3), I([1, 1]), I([0, 1], "int64"), name="two")
case("ResourceGatherNd", lambda v, i: raw.ResourceGatherNd(resource=v.handle, indices=i, dtype=v.dtype), Var(4, 3), I([[2, 0], [1, 2]]))
case("ResourceGatherNd", lambda v, i: raw.ResourceGatherNd(resource=v.handle, indices=i, dtype=v.dtype), Var(4, 3), I([[2], [1], [2]]), name="rows")

# Shapes.
case("Reshape", lambda x: raw.Reshape(tensor=x, shape=[4, -1]), F(3, 4), dtypes="fdhbc")
case("Reshape", lambda x: raw.Reshape(tensor=x, shape=[0]), F(0, 3), name="empty")
case("Reshape", lambda x, s: raw.Reshape(tensor=x, shape=s), F(3, 4), I([2, 6]), name="fed-shape")
case("ExpandDims", lambda x: raw.ExpandDims(input=x, axis=1), F(3, 4), dtypes="fd")
case("ExpandDims", lambda x: raw.ExpandDims(input=x, axis=-1), F(), name="scalar")
case("Squeeze", lambda x: raw.Squeeze(input=x), F(3, 1, 4, 1), name="all")
case("Squeeze", lambda x: raw.Squeeze(input=x, axis=[1]), F(3, 1, 4, 1), name="one")
case("Transpose", lambda x: raw.Transpose(x=x, perm=[2, 0, 1]), F(2, 3, 4), dtypes="fdhbc")
case("Transpose", lambda x, p: raw.Transpose(x=x, perm=p), F(2, 3, 4), I([1, 2, 0]), name="fed")
case("ConjugateTranspose", lambda x: raw.ConjugateTranspose(x=x, perm=[1, 0]), F(3, 4), dtypes="fcz")
case("BroadcastTo", lambda x: raw.BroadcastTo(input=x, shape=[2, 3, 4]), F(3, 1), dtypes="fd")
case("BroadcastTo", lambda x: raw.BroadcastTo(input=x, shape=[3, 4]), F(), name="scalar")
case("BroadcastTo", lambda x: raw.BroadcastTo(input=x, shape=[3, 4]), F(3, 4), name="same")
case("Fill", lambda x: raw.Fill(dims=[3, 4], value=x), F(), dtypes="fdc")
case("Tile", lambda x: raw.Tile(input=x, multiples=[2, 3]), F(3, 4), dtypes="fd")
case("Tile", lambda x, m: raw.Tile(input=x, multiples=m), F(3, 4), I([2, 1]), name="fed")
case("Roll", lambda x: raw.Roll(input=x, shift=[1, -2], axis=[0, 1]), F(3, 4), dtypes="fd")
case("Reverse", lambda x: raw.Reverse(tensor=x, dims=[True, False]), F(3, 4))
case("ReverseV2", lambda x: raw.ReverseV2(tensor=x, axis=[1]), F(3, 4), dtypes="fdc")
case("ReverseSequence", lambda x, n: raw.ReverseSequence(input=x, seq_lengths=n, seq_dim=1, batch_dim=0), F(3, 4), I([2, 4, 1]), dtypes="fd")
case("Diag", lambda x: raw.Diag(diagonal=x), F(3), dtypes="fdc")
case("Diag", lambda x: raw.Diag(diagonal=x), F(2, 3), name="rank-2")
case("DiagPart", lambda x: raw.DiagPart(input=x), F(3, 3), dtypes="fdc")

# Joining and splitting.
case("ConcatV2", lambda x, y: raw.ConcatV2(values=[x, y], axis=1), F(3, 4), F(3, 2), dtypes="fdhbc")
case("ConcatV2", lambda x, y: raw.ConcatV2(values=[x, y], axis=-2), F(3, 4), F(1, 4), name="negative")
case("ConcatV2", lambda x, y, a: raw.ConcatV2(values=[x, y], axis=a), F(3, 4), F(3, 4), I(0), name="fed-axis")
case("ConcatV2", lambda x, y: raw.ConcatV2(values=[x, y], axis=0), F(0, 4), F(2, 4), name="empty")
case("Concat", lambda x, y: raw.Concat(concat_dim=1, values=[x, y]), F(3, 4), F(3, 2))
for axis in [0, 1, -1]:
    case("Pack", lambda x, y, a=axis: raw.Pack(values=[x, y], axis=a), F(3, 4), F(3, 4), name="axis%d" % axis, dtypes="fd")
    case("Unpack", lambda x, a=axis: raw.Unpack(value=x, num=3, axis=a), F(3, 3), name="axis%d" % axis, dtypes="fd")
case("Unpack", lambda x: raw.Unpack(value=x, num=3, axis=0)[1], F(3, 4), name="one-used")
case("Split", lambda x: raw.Split(axis=1, value=x, num_split=2), F(3, 4), dtypes="fd")
case("Split", lambda x: raw.Split(axis=0, value=x, num_split=3)[2], F(3, 4), name="one-used")
case("Split", lambda x: raw.Split(axis=1, value=x, num_split=1)[0] * x, F(3, 4), name="whole")
case("SplitV", lambda x: raw.SplitV(value=x, size_splits=[4], axis=1, num_split=1)[0] * x, F(3, 4), name="whole")
case("SplitV", lambda x: raw.SplitV(value=x, size_splits=[1, 3], axis=1, num_split=2), F(3, 4), dtypes="fd")
case("SplitV", lambda x: raw.SplitV(value=x, size_splits=[1, -1], axis=0, num_split=2)[0], F(3, 4), name="one-used")

# Slices.
case("Slice", lambda x: raw.Slice(input=x, begin=[1, 0], size=[2, 3]), F(3, 4), dtypes="fdhb")
case("Slice", lambda x: raw.Slice(input=x, begin=[1, 1], size=[-1, 2]), F(3, 4), name="to-the-end")
case("Slice", lambda x, b, s: raw.Slice(input=x, begin=b, size=s), F(3, 4), I([0, 1]), I([2, 2]), name="fed")
SLICES = [("plain", lambda x: x[1:, :3]), ("strides", lambda x: x[::2, ::-1]), ("shrink", lambda x: x[1]), ("new-axis", lambda x: x[:, tf.newaxis, 1:]),
          ("ellipsis", lambda x: x[..., 0]), ("negative", lambda x: x[-2:, -1])]
for name, f in SLICES:
    case("StridedSlice", f, F(3, 4), name=name, dtypes="fdh" if name == "plain" else "f")
case("StridedSlice", lambda x, b: x[b[0]:b[1]], F(3, 4), I([1, 3]), name="fed")
case("StridedSliceGrad", lambda g: raw.StridedSliceGrad(shape=[3, 4], begin=[1, 0], end=[3, 4], strides=[1, 2], dy=g), F(2, 2), dtypes="fd")
case("StridedSliceGrad", lambda g: raw.StridedSliceGrad(shape=[3, 4], begin=[1, 0], end=[2, 0], strides=[1, 1], dy=g, shrink_axis_mask=1, end_mask=2), F(4), name="masks")
case("TensorStridedSliceUpdate", lambda x, v: raw.TensorStridedSliceUpdate(input=x, begin=[1, 0], end=[3, 2], strides=[1, 1], value=v), F(3, 4), F(2, 2), dtypes="fd")
case("TensorStridedSliceUpdate", lambda x, v: raw.TensorStridedSliceUpdate(input=x, begin=[1, 0], end=[3, 2], strides=[1, 1], value=v), F(3, 4), F(2), name="broadcast")
PADS = [[1, 2], [0, 1]]
case("Pad", lambda x: raw.Pad(input=x, paddings=PADS), F(3, 4), dtypes="fdhbc")
case("Pad", lambda x, p: raw.Pad(input=x, paddings=p), F(3, 4), I(PADS, "int64"), name="fed")
case("PadV2", lambda x, c: raw.PadV2(input=x, paddings=PADS, constant_values=c), F(3, 4), V(0.5), dtypes="fd", rough="Python has no gradient by the constant")
case("PadV2", lambda x: raw.PadV2(input=x, paddings=PADS, constant_values=tf.constant(0.5, x.dtype)), F(3, 4), name="constant", dtypes="fd")
for mode in ["REFLECT", "SYMMETRIC"]:
    case("MirrorPad", lambda x, m=mode: raw.MirrorPad(input=x, paddings=PADS, mode=m), F(3, 4), name=mode, dtypes="fd")
    case("MirrorPadGrad", lambda g, m=mode: mirror_pad_grad(g, m), F(6, 5), name=mode)

# Blocks.
case("SpaceToBatchND", lambda x: raw.SpaceToBatchND(input=x, block_shape=[2, 2], paddings=[[0, 0], [1, 1]]), F(1, 4, 4, 2), dtypes="fd")
case("BatchToSpaceND", lambda x: raw.BatchToSpaceND(input=x, block_shape=[2, 2], crops=[[0, 0], [1, 0]]), F(4, 2, 3, 2), dtypes="fd")
case("SpaceToBatch", lambda x: raw.SpaceToBatch(input=x, paddings=[[0, 0], [1, 1]], block_size=2), F(1, 4, 4, 2))
case("BatchToSpace", lambda x: raw.BatchToSpace(input=x, crops=[[0, 0], [1, 0]], block_size=2), F(4, 2, 3, 2))
case("SpaceToDepth", lambda x: raw.SpaceToDepth(input=x, block_size=2), F(1, 4, 4, 2), dtypes="fd")
case("DepthToSpace", lambda x: raw.DepthToSpace(input=x, block_size=2), F(1, 2, 2, 8), dtypes="fd")

# Gathering.
for name, ids in [("", [2, 0, 2]), ("matrix", [[2, 0], [1, 2]]), ("scalar", 1), ("empty", [])]:
    case("Gather", lambda x, i: raw.Gather(params=x, indices=i), F(4, 3), I(ids), name=name)
    for axis in [0, 1, -1]:
        case("GatherV2", lambda x, i, a=axis: raw.GatherV2(params=x, indices=i, axis=a), F(4, 3), I(ids), name=(name + "-axis%d" % axis).strip("-"),
             dtypes="fd" if not name else "f")
case("GatherV2", lambda x, i: raw.GatherV2(params=x, indices=i, axis=1, batch_dims=1), F(2, 4, 3), I([[2, 0], [1, 1]]), name="batch")
case("GatherV2", lambda x, i: raw.GatherV2(params=x, indices=i, axis=2, batch_dims=1), F(2, 3, 4), I([[2, 0], [1, 1]]), name="batch-inner")
case("GatherNd", lambda x, i: raw.GatherNd(params=x, indices=i), F(4, 3), I([[2, 0], [1, 2], [2, 0]]), dtypes="fd")
case("GatherNd", lambda x, i: raw.GatherNd(params=x, indices=i), F(4, 3), I([[2], [1], [2]]), name="rows")
case("GatherNd", lambda x, i: raw.GatherNd(params=x, indices=i), F(2, 3, 4), I([[[0, 1]], [[1, 2]]]), name="slices")
case("DynamicPartition", lambda x, p: list(raw.DynamicPartition(data=x, partitions=p, num_partitions=3)), F(4, 3), I([0, 2, 0, 1]), dtypes="fd")
case("DynamicPartition", lambda x, p: raw.DynamicPartition(data=x, partitions=p, num_partitions=2)[1], F(2, 2, 3), I([[0, 1], [1, 0]]), name="one-used")
for op in ["DynamicStitch", "ParallelDynamicStitch"]:
    f = getattr(raw, op)
    case(op, lambda i, j, x, y, f=f: f(indices=[i, j], data=[x, y]), I([0, 3]), I([[2, 1]]), F(2, 3), F(1, 2, 3), dtypes="fd")

# Scattering.
IDX = I([[2], [0]])
case("ScatterNd", lambda i, x: raw.ScatterNd(indices=i, updates=x, shape=[4, 3]), IDX, F(2, 3), dtypes="fd")
case("ScatterNdNonAliasingAdd", lambda x, i, u: raw.ScatterNdNonAliasingAdd(input=x, indices=i, updates=u), F(4, 3), IDX, F(2, 3), dtypes="fd")
for op in ["TensorScatterAdd", "TensorScatterSub", "TensorScatterUpdate", "TensorScatterMax", "TensorScatterMin"]:
    f = getattr(raw, op)
    case(op, lambda x, i, u, f=f: f(tensor=x, indices=i, updates=u), F(4, 3), IDX, F(2, 3), dtypes="fd")
case("TensorScatterMax", lambda x, i, u: raw.TensorScatterMax(tensor=x, indices=i, updates=u), V([1.0, 2.0, 3.0]), I([[0], [1]]), V([1.0, 5.0]), name="ties")

# Whole programs: what a chain of the above adds up to.
case("MatMul", lambda x, w, b: tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, w) + b))), N(5, 3), F(3, 4), F(4), name="layer", unknown=False)
case("Gather", lambda x, i: tf.reduce_sum(tf.square(raw.Gather(params=x, indices=i))) + tf.reduce_sum(raw.Gather(params=x, indices=i) * 3.0), F(5, 2), I([1, 1, 3]), name="sum-of-two")

# What is gathered from passes IndexedSlices on where Python does, and makes them dense where Python does.
GATHERED = {
    "Identity": lambda w, b: raw.Identity(input=w), "IdentityN": lambda w, b: raw.IdentityN(input=[w, b])[0],
    "Cast": lambda w, b: tf.cast(w, tf.float64), "Neg": lambda w, b: -w, "Mul": lambda w, b: w * 2.0,
    "AddV2": lambda w, b: w + b, "Add": lambda w, b: raw.Add(x=w, y=b), "Sub": lambda w, b: w - b, "AddN": lambda w, b: tf.add_n([w, b]),
    "AccumulateNV2": lambda w, b: raw.AccumulateNV2(inputs=[w, b], shape=[4, 3]), "BiasAdd": lambda w, b: tf.nn.bias_add(w, b[0]),
    "EnsureShape": lambda w, b: raw.EnsureShape(input=w, shape=[4, 3]), "PlaceholderWithDefault": lambda w, b: raw.PlaceholderWithDefault(input=w, shape=[4, 3]),
    "Print": lambda w, b: raw.Print(input=w, data=[w], message="", first_n=0), "CheckNumerics": lambda w, b: raw.CheckNumerics(tensor=w, message=""),
    "Select": lambda w, b: raw.Select(condition=w > 0, x=w, y=b), "Reshape": lambda w, b: tf.reshape(w, [4, 3, 1]), "Pack": lambda w, b: tf.stack([w, b]),
    "Gather": lambda w, b: raw.Gather(params=w, indices=[0, 1, 2, 2]), "StridedSlice": lambda w, b: w[0:3], "Tile": lambda w, b: tf.tile(w, [2, 1]),
    "Transpose": lambda w, b: tf.transpose(w), "Relu": lambda w, b: tf.nn.relu(w), "Real": lambda w, b: tf.math.real(tf.complex(w, b)),
}
for op, f in GATHERED.items():
    case(op, lambda w, b, i, f=f: raw.Gather(params=f(w, b), indices=i), F(4, 3), F(4, 3), I([0, 1, 1]), name="of-gathered", unknown=False)
for op, build in [("ConcatV2", lambda values, axis: raw.ConcatV2(values=values, axis=axis)), ("Concat", lambda values, axis: raw.Concat(values=values, concat_dim=axis))]:
    for axis in [0, 1] + [-2] * (op == "ConcatV2"):
        case(op, lambda w, b, i, f=build, a=axis: raw.Gather(params=f([w, b], a), indices=i), F(4, 3), F(4, 3), I([0, 1, 1] if axis == 1 else [0, 5, 1, 1, 7, 5]),
             name="of-gathered-axis%d" % axis, unknown="rank")
case("ConcatV2", lambda w, b, c, i: raw.Gather(params=tf.concat([w, b, c], 0), indices=i), F(4, 3), F(1, 3), F(2, 3), I([6, 0, 6], "int64"), name="of-gathered-three")
case("AddV2", lambda w, b, i: raw.Gather(params=w + b, indices=i), F(4, 3), F(3), I([0, 1, 1]), name="of-gathered-broadcast", unknown=False)
case("Sub", lambda w, b, i: raw.Gather(params=w - b, indices=i), F(4, 3), F(), I([0, 1, 1]), name="of-gathered-scalar", unknown=False)
case("AddV2", lambda w, b, i: raw.Gather(params=w + b, indices=i), F(4, 3), F(4, 3), I([0, 1, 1]), name="of-gathered-unknown", unknown="rank")
case("AddN", lambda w, i, j: tf.add_n([raw.Gather(params=w, indices=i), raw.Gather(params=w, indices=j)]) + w[:3], F(4, 3), I([0, 1, 1]), I([3, 1, 1]), name="sparse-and-dense", unknown=False)
for op, f in [("SparseSegmentSum", raw.SparseSegmentSum), ("SparseSegmentMean", raw.SparseSegmentMean), ("SparseSegmentSqrtN", raw.SparseSegmentSqrtN)]:
    case(op, lambda x, i, s, f=f: f(data=x, indices=i, segment_ids=s, sparse_gradient=True), F(5, 3), I([3, 0, 3, 1]), I([0, 0, 1, 2]), name="sparse-gradient", dtypes="fd", unknown="rank")
for op, f in [("SparseSegmentSumWithNumSegments", raw.SparseSegmentSumWithNumSegments), ("SparseSegmentMeanWithNumSegments", raw.SparseSegmentMeanWithNumSegments),
              ("SparseSegmentSqrtNWithNumSegments", raw.SparseSegmentSqrtNWithNumSegments)]:
    case(op, lambda x, i, s, f=f: f(data=x, indices=i, segment_ids=s, num_segments=4, sparse_gradient=True), F(5, 3), I([3, 0, 3, 1]), I([0, 0, 1, 2]), name="sparse-gradient", unknown="rank")


# Embedding lookups, whole.
def sparse_ids(ids):
    return tf.SparseTensor([[0, 0], [0, 1], [1, 0], [3, 0]], ids, [4, 2])


case("ResourceGather", lambda v, i: tf.nn.embedding_lookup(v, i), Var(5, 3), I([[4, 0], [4, 2]]), name="embedding")
case("ResourceGather", lambda v, i: tf.nn.embedding_lookup(v, i, max_norm=1.0), Var(5, 3), I([4, 0, 4]), name="embedding-max-norm")
for strategy in ["mod", "div"]:
    case("ResourceGather", lambda v, w, i, s=strategy: tf.compat.v1.nn.embedding_lookup([v, w], i, partition_strategy=s), Var(3, 2), Var(2, 2), I([4, 0, 4, 1]),
         name="partitioned-" + strategy)
for combiner in ["sum", "mean", "sqrtn"]:
    case("ResourceGather", lambda v, i, c=combiner: tf.nn.embedding_lookup_sparse(v, sparse_ids(i), None, combiner=c), Var(5, 3), I([4, 0, 4, 2]),
         name="embedding-" + combiner, unknown=False)
    case("ResourceGather", lambda v, i, w, c=combiner: tf.nn.embedding_lookup_sparse(v, sparse_ids(i), tf.SparseTensor([[0, 0], [0, 1], [1, 0], [3, 0]], w, [4, 2]), combiner=c),
         Var(5, 3), I([4, 0, 4, 2]), F(4, lo=0.5), name="embedding-weighted-" + combiner, unknown=False)
case("ResourceGather", lambda v, i: tf.nn.safe_embedding_lookup_sparse(v, sparse_ids(i)), Var(5, 3), I([4, 0, 4, 2], "int64"), name="embedding-safe", unknown=False)
