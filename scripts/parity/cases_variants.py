"""Tensors inside of variants: compressed sparse rows, optionals; ragged tensors; XLA."""

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.compiler.xla import jit
from tensorflow.python.ops import composite_tensor_ops
from tensorflow.python.ops import gen_optional_ops
from tensorflow.python.ops.linalg.sparse import sparse_csr_matrix_ops as csr

from graphcases import F, I, case

raw = tf.raw_ops

PLACES = I([[0, 1], [1, 0], [1, 3], [2, 2]], "int64")


def from_dense(x, places):
    matrix = csr.dense_to_csr_sparse_matrix(x * x, places)
    return csr.csr_sparse_matrix_to_dense(matrix, type=x.dtype)


def from_sparse(values, places):
    matrix = csr.sparse_tensor_to_csr_sparse_matrix(indices=places, values=values * values, dense_shape=tf.constant([3, 4], tf.int64))
    return csr.csr_sparse_matrix_to_sparse_tensor(matrix, type=values.dtype).values


def transposed(x, places):
    matrix = csr.dense_to_csr_sparse_matrix(x * x, places)
    return csr.csr_sparse_matrix_to_dense(csr.sparse_matrix_transpose(matrix, type=x.dtype, conjugate=True), type=x.dtype)


def optional(x, y):
    held = gen_optional_ops.optional_from_value([x * x, y * 2.0])
    return gen_optional_ops.optional_get_value(held, [x.dtype, y.dtype], [x.shape, y.shape])


for op in ["DenseToCSRSparseMatrix", "CSRSparseMatrixToDense"]:
    case(op, from_dense, F(3, 4), PLACES, dtypes="fdc", unknown=False)
for op in ["SparseTensorToCSRSparseMatrix", "CSRSparseMatrixToSparseTensor"]:
    case(op, from_sparse, F(4), PLACES, dtypes="fdc", unknown=False)
case("SparseMatrixTranspose", transposed, F(3, 4), PLACES, dtypes="fdc", unknown=False)

def product(x, y, places, **attrs):
    matrix = csr.dense_to_csr_sparse_matrix(x, places)
    return csr.sparse_matrix_mat_mul(matrix, y, **attrs)


for name, a, b, attrs in [
        ("", (3, 4), (4, 2), {}), ("transposed-a", (3, 4), (3, 2), dict(transpose_a=True)), ("adjoint-a", (3, 4), (3, 2), dict(adjoint_a=True)),
        ("transposed-b", (3, 4), (2, 4), dict(transpose_b=True)), ("adjoint-b", (3, 4), (2, 4), dict(adjoint_b=True)),
        ("both-transposed", (3, 4), (2, 3), dict(transpose_a=True, transpose_b=True)), ("both-adjoint", (3, 4), (2, 3), dict(adjoint_a=True, adjoint_b=True)),
        ("output-transposed", (3, 4), (4, 2), dict(transpose_output=True)), ("output-conjugated", (3, 4), (4, 2), dict(conjugate_output=True))]:
    case("SparseMatrixMatMul", lambda x, y, p, a=attrs: product(x, y, p, **a), F(*a), F(*b), PLACES, name=name, dtypes="fdc", unknown=False)
case("SparseMatrixMatMul", product, F(2, 3, 4), F(2, 4, 2), I([[0, 0, 1], [0, 1, 0], [1, 1, 3], [1, 2, 2]], "int64"), name="batch", unknown=False)
for op in ["OptionalFromValue", "OptionalGetValue"]:
    case(op, optional, F(3, 4), F(2), dtypes="fd")
    case(op, lambda x, y: optional(x, y)[0], F(3, 4), F(2), name="one-used")
case("RaggedTensorToSparse", lambda x, s: raw.RaggedTensorToSparse(rt_nested_splits=[s], rt_dense_values=x * x)[1], F(4), I([0, 1, 1, 4], "int64"), dtypes="fd")

# Sparse times sparse.
def sparse_product(x, y, p, q, **attrs):
    a, b = csr.dense_to_csr_sparse_matrix(x, p), csr.dense_to_csr_sparse_matrix(y, q)
    return csr.csr_sparse_matrix_to_dense(csr.sparse_matrix_sparse_mat_mul(a, b, type=x.dtype, **attrs), type=x.dtype)


def sparse_product_of_values(x, y, p, q):
    a = csr.sparse_tensor_to_csr_sparse_matrix(indices=p, values=x, dense_shape=tf.constant([3, 4], tf.int64))
    b = csr.sparse_tensor_to_csr_sparse_matrix(indices=q, values=y, dense_shape=tf.constant([4, 2], tf.int64))
    return csr.csr_sparse_matrix_to_dense(csr.sparse_matrix_sparse_mat_mul(a, b, type=x.dtype), type=x.dtype)


# The last element belongs to every pattern: Python's gradient looks a little
# beyond the end of the product where it does not. It does not conjugate a
# transposed factor either, so complex numbers are left to the others.
PATTERNS = {shape: I(places, "int64") for shape, places in {
    (3, 4): [[0, 1], [1, 0], [2, 0], [2, 3]], (4, 3): [[0, 1], [1, 0], [3, 0], [3, 2]],
    (4, 2): [[0, 0], [1, 1], [2, 0], [3, 1]], (2, 4): [[0, 0], [0, 3], [1, 2], [1, 3]]}.items()}
for name, a, b, attrs in [
        ("", (3, 4), (4, 2), {}), ("transposed-a", (4, 3), (4, 2), dict(transpose_a=True)), ("adjoint-a", (4, 3), (4, 2), dict(adjoint_a=True)),
        ("transposed-b", (3, 4), (2, 4), dict(transpose_b=True)), ("adjoint-b", (3, 4), (2, 4), dict(adjoint_b=True)),
        ("both-transposed", (4, 3), (2, 4), dict(transpose_a=True, transpose_b=True)), ("both-adjoint", (4, 3), (2, 4), dict(adjoint_a=True, adjoint_b=True)),
        ("adjoint-transposed", (4, 3), (2, 4), dict(adjoint_a=True, transpose_b=True))]:
    case("SparseMatrixSparseMatMul", lambda x, y, p, q, a=attrs: sparse_product(x, y, p, q, **a), F(*a), F(*b), PATTERNS[a], PATTERNS[b], name=name,
         dtypes="fd" if any(k.startswith("transpose") for k in attrs) else "fdc", unknown=False)
BEYOND = "Python drops elements of the gradient that the product of the others does not have"
case("SparseMatrixSparseMatMul", sparse_product, F(2, 3, 4), F(2, 4, 2), I([[0, 0, 1], [0, 1, 0], [1, 1, 3], [1, 2, 2]], "int64"),
     I([[0, 1, 1], [0, 0, 0], [1, 3, 0], [1, 2, 1]], "int64"), name="batch", unknown=False, rough=BEYOND)
case("SparseMatrixSparseMatMul", sparse_product_of_values, F(4), F(5), PLACES, I([[0, 0], [0, 1], [1, 1], [2, 0], [3, 1]], "int64"), name="values", dtypes="d", unknown=False, numeric=BEYOND)

# Ragged tensors.
SPLITS, INNER = I([0, 2, 2, 5], "int64"), I([0, 1, 3, 3, 4, 6], "int64")


def ragged_dense(x, default, *splits, shape=(-1, -1)):
    return raw.RaggedTensorToTensor(shape=tf.constant(shape, tf.int64), values=x * x, default_value=default,
                                    row_partition_tensors=splits, row_partition_types=["ROW_SPLITS"] * len(splits))


case("RaggedTensorToTensor", ragged_dense, F(5), F(), SPLITS, dtypes="fd", unknown="rank")
case("RaggedTensorToTensor", lambda x, d, s, t: ragged_dense(x, d, s, t, shape=(-1, -1, -1)), F(6), F(), SPLITS, INNER, name="two", unknown="rank")
case("RaggedTensorToTensor", lambda x, d, s: ragged_dense(x, d, s, shape=(-1, -1, 2)), F(5, 2), F(2), SPLITS, name="inner", unknown="rank")
case("RaggedTensorToTensor", lambda x, d, s: ragged_dense(x, d, s, shape=(-1, -1, 2)), F(5, 2), F(1), SPLITS, name="inner-broadcast", unknown="rank")
case("RaggedTensorToTensor", lambda x, d, s: ragged_dense(x, d, s, shape=(2, 2)), F(5), F(), SPLITS, name="cut", unknown="rank")
case("RaggedTensorToTensor", lambda x, d, s: ragged_dense(x, d, s, shape=(4, 6)), F(5), F(), SPLITS, name="padded", unknown="rank")
case("RaggedTensorToTensor", lambda x, d, n, i: raw.RaggedTensorToTensor(
    shape=tf.constant([-1, -1], tf.int64), values=x * x, default_value=d, row_partition_tensors=[n, i], row_partition_types=["FIRST_DIM_SIZE", "VALUE_ROWIDS"]),
     F(5), F(), I(3, "int64"), I([0, 0, 2, 2, 2], "int64"), name="row-ids", unknown="rank")


def gathered(x, i, *splits):
    return raw.RaggedGather(params_nested_splits=splits, params_dense_values=x, indices=i, OUTPUT_RAGGED_RANK=len(splits) + len(i.shape) - 1)[1]


case("RaggedGather", gathered, F(5), I([2, 0, 2]), SPLITS, dtypes="fd", unknown="rank")
case("RaggedGather", gathered, F(6, 2), I([2, 0, 2]), SPLITS, INNER, name="two", unknown="rank")
case("RaggedGather", gathered, F(5), I([[2, 0], [1, 1]]), SPLITS, name="matrix", unknown="rank")
case("RaggedFillEmptyRows", lambda x, d, i: raw.RaggedFillEmptyRows(value_rowids=i, values=x * x, nrows=tf.constant(5, tf.int64), default_value=d)[1],
     F(4), F(), I([0, 2, 2, 3], "int64"), dtypes="fd", unknown="rank")


def through_variant(x, *splits, batched):
    packed = raw.RaggedTensorToVariant(rt_nested_splits=splits, rt_dense_values=x * x, batched_input=batched)
    if not batched:
        return raw.RaggedTensorFromVariant(encoded_ragged=packed, input_ragged_rank=len(splits), output_ragged_rank=len(splits), Tvalues=x.dtype, Tsplits=tf.int64)[1]
    return raw.RaggedTensorFromVariant(encoded_ragged=packed, input_ragged_rank=len(splits) - 1, output_ragged_rank=len(splits), Tvalues=x.dtype, Tsplits=tf.int64)[1]


for op in ["RaggedTensorToVariant", "RaggedTensorFromVariant"]:
    case(op, lambda x, s: through_variant(x, s, batched=True), F(5), SPLITS, dtypes="fd", unknown="rank")
    case(op, lambda x, s: through_variant(x, s, batched=True), F(5, 2), SPLITS, name="inner", unknown="rank")
    case(op, lambda x, s: through_variant(x, s, batched=False), F(5), SPLITS, name="unbatched", unknown="rank")
    case(op, lambda x: through_variant(x, batched=False), F(5), name="flat", unknown="rank")
    case(op, lambda x, s, t: through_variant(x, s, t, batched=True), F(6), SPLITS, INNER, name="two", unknown="rank")


def composite(x):
    """A ragged tensor packed into a variant, as tf.data and structured arguments do."""
    value = tf.RaggedTensor.from_row_splits(x * x, tf.constant([0, 2, 2, 5], tf.int64))
    packed = composite_tensor_ops.composite_tensor_to_variants(value)
    return composite_tensor_ops.composite_tensor_from_variant(packed, tf.RaggedTensorSpec([3, None], x.dtype, 1)).flat_values


for op in ["CompositeTensorVariantFromComponents", "CompositeTensorVariantToComponents"]:
    case(op, composite, F(5), dtypes="fd", unknown=False)


def compiled(f):
    """What only XLA has a kernel for."""
    def build(*args):
        with jit.experimental_jit_scope():
            return f(*args)
    return build


def xla_einsum(equation):
    return compiled(lambda x, y: gen_xla_ops.xla_einsum(x, y, equation=equation))


for name, equation, a, b in [("", "ab,bc->ac", (3, 4), (4, 2)), ("batch", "bij,bkj->bki", (2, 3, 4), (2, 5, 4)), ("outer", "a,b->ab", (3,), (4,))]:
    case("XlaEinsum", xla_einsum(equation), F(*a), F(*b), name=name, unknown=False)
case("XlaSharding", lambda x: raw.Square(x=gen_xla_ops.xla_sharding(x, sharding="", unspecified_dims=[])), F(3, 4), dtypes="fd")
# These have a kernel in compiled functions only.
for op, f in [("XlaSpmdShardToFullShape", lambda x: gen_xla_ops.xla_spmd_shard_to_full_shape(x, manual_sharding="", full_shape=[3, 4])),
              ("XlaSpmdFullToShardShape", lambda x: gen_xla_ops.xla_spmd_full_to_shard_shape(x, manual_sharding=""))]:
    case(op, tf.function(lambda x, f=f: tf.square(f(x)), jit_compile=True), F(3, 4), unknown=False)
