"""Tensors inside of variants: compressed sparse rows, optionals; ragged tensors."""

import tensorflow as tf
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
    case("SparseMatrixMatMul", lambda x, y, p, a=attrs: product(x, y, p, **a), F(*a), F(*b), PLACES, name=name, dtypes="fdc", unknown=False, second=False)
case("SparseMatrixMatMul", product, F(2, 3, 4), F(2, 4, 2), I([[0, 0, 1], [0, 1, 0], [1, 1, 3], [1, 2, 2]], "int64"), name="batch", unknown=False, second=False)
for op in ["OptionalFromValue", "OptionalGetValue"]:
    case(op, optional, F(3, 4), F(2), dtypes="fd")
    case(op, lambda x, y: optional(x, y)[0], F(3, 4), F(2), name="one-used")
case("RaggedTensorToSparse", lambda x, s: raw.RaggedTensorToSparse(rt_nested_splits=[s], rt_dense_values=x * x)[1], F(4), I([0, 1, 1, 4], "int64"), dtypes="fd")
