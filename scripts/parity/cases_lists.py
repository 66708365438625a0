"""Tensor lists: what loops keep their values in."""

import tensorflow as tf

from graphcases import F, I, case

raw = tf.raw_ops


def empty(dtype, shape=(3,)):
    return raw.EmptyTensorList(element_shape=tf.constant(shape, tf.int32), max_num_elements=10, element_dtype=dtype)


def stack(handle, dtype, shape=(3,), n=-1):
    return raw.TensorListStack(input_handle=handle, element_shape=tf.constant(shape, tf.int32), element_dtype=dtype, num_elements=n)


def from_tensor(x, shape=(3,)):
    return raw.TensorListFromTensor(tensor=x, element_shape=tf.constant(shape, tf.int32))


def push_pop(x, y):
    """Pushes three, pops one: the popped one and the stack of the rest."""
    handle = empty(x.dtype)
    for item in [x, y, x * y]:
        handle = raw.TensorListPushBack(input_handle=handle, tensor=item)
    handle, last = raw.TensorListPopBack(input_handle=handle, element_shape=[3], element_dtype=x.dtype)
    return [last, stack(handle, x.dtype)]


def popped_only(x, y):
    return push_pop(x, y)[0]


def set_get(x, i):
    handle = raw.TensorListSetItem(input_handle=from_tensor(x), index=i, item=x[0] * x[1])
    return [raw.TensorListGetItem(input_handle=handle, index=i, element_shape=[3], element_dtype=x.dtype),
            raw.TensorListGetItem(input_handle=handle, index=0, element_shape=[3], element_dtype=x.dtype), stack(handle, x.dtype)]


def scatter(x, i, op):
    more = {"num_elements": 4} if op is raw.TensorListScatterV2 else {}
    handle = op(tensor=x * x, indices=i, element_shape=tf.constant([3], tf.int32), **more)
    return stack(handle, x.dtype)


def scatter_existing(x, y, i):
    handle = raw.TensorListScatterIntoExistingList(input_handle=from_tensor(x), tensor=y, indices=i)
    return stack(handle, x.dtype)


def split(x, concat):
    handle = raw.TensorListSplit(tensor=x, element_shape=tf.constant([-1, 3], tf.int32), lengths=tf.constant([1, 3], tf.int64))
    if concat is raw.TensorListConcatV2:
        return concat(input_handle=handle, element_shape=tf.constant([-1, 3], tf.int32), leading_dims=tf.constant([], tf.int64), element_dtype=x.dtype)[0]
    return concat(input_handle=handle, element_dtype=x.dtype, element_shape=[None, 3])[0]


for op in ["TensorListPushBack", "TensorListPopBack"]:
    case(op, push_pop, F(3), F(3), dtypes="fd", unknown=False)
    case(op, popped_only, F(3), F(3), name="popped-only", unknown=False)
for op in ["TensorListFromTensor", "TensorListStack"]:
    case(op, lambda x: stack(from_tensor(x * x), x.dtype), F(4, 3), dtypes="fd", unknown="rank")
for op in ["TensorListSetItem", "TensorListGetItem"]:
    case(op, set_get, F(4, 3), I(2), dtypes="fd", unknown="rank")
case("TensorListResize", lambda x: stack(raw.TensorListResize(input_handle=from_tensor(x * x), size=3), x.dtype), F(4, 3), unknown="rank")
case("TensorListGather", lambda x, i: raw.TensorListGather(input_handle=from_tensor(x * x), indices=i, element_shape=[3], element_dtype=x.dtype),
     F(4, 3), I([2, 0]), dtypes="fd", unknown="rank")
for op in ["TensorListScatter", "TensorListScatterV2"]:
    case(op, lambda x, i, f=getattr(raw, op): scatter(x, i, f), F(3, 3), I([2, 0, 1]), unknown="rank")
case("TensorListScatterIntoExistingList", scatter_existing, F(4, 3), F(2, 3), I([2, 0]), unknown="rank")
for op in ["TensorListSplit", "TensorListConcatV2", "TensorListConcat"]:
    case(op, lambda x, f=getattr(raw, op if op != "TensorListSplit" else "TensorListConcatV2"): split(x, f), F(4, 3), unknown="rank")


# TensorArrays with a handle and a flow.
def array(x, size=4, **more):
    return tf.compat.v1.TensorArray(x.dtype, size, clear_after_read=False, **more)


def write_read(x, y):
    """Writes two elements; reads one of them twice, the other once, and one that is not differentiated."""
    a = array(x, 3).write(0, x * y).write(2, tf.sin(y)).write(1, tf.zeros_like(x))
    return [a.read(0) * a.read(2), a.read(0), a.read(1) + x]


def scatter_gather(x, i, j):
    a = array(x).scatter(i, x * x)
    return [a.gather(j), a.read(1) * 2.0]


def write_stack(x):
    a = array(x, 0, dynamic_size=True)
    for k in range(3):
        a = a.write(k, x[k] * float(k + 1))
    return a.stack() * x


def split_concat(x, n):
    a = array(x, 3, infer_shape=False).split(x * x, n)
    return [a.concat(), a.read(1) * 3.0]


def write_concat(x, y):
    return array(x, 2, infer_shape=False).write(0, x * x).write(1, y).concat()


def concat_v2(handle, flow):
    value, _ = raw.TensorArrayConcatV2(handle=handle, flow_in=flow, dtype=tf.float32)
    value.set_shape([3])
    return value


for op in ["TensorArrayWriteV3", "TensorArrayReadV3"]:
    case(op, write_read, F(3), F(3), dtypes="fdhc", tf1=True)
    case(op, lambda x, y: write_read(x, y)[1], F(3), F(3), name="one-used", tf1=True)
for op in ["TensorArrayScatterV3", "TensorArrayGatherV3"]:
    case(op, scatter_gather, F(4, 3), I([3, 0, 2, 1]), I([1, 1, 3]), dtypes="fd", unknown="rank", tf1=True)
    case(op, lambda x, i: array(x, 4).unstack(x).gather(i), F(4), I([2]), name="scalars", unknown="rank", tf1=True)
case("TensorArrayGatherV3", write_stack, F(3, 2), name="stack", unknown="rank", tf1=True)
case("TensorArrayWriteV3", write_stack, F(3, 2), name="stack", unknown="rank", tf1=True)
for op in ["TensorArraySplitV3", "TensorArrayConcatV3"]:
    case(op, split_concat, F(6, 2), I([1, 3, 2], "int64"), dtypes="fd", unknown="rank", tf1=True)
case("TensorArrayConcatV3", write_concat, F(2, 3), F(4, 3), name="written", unknown="rank", tf1=True)
case("TensorArrayConcatV2", concat_v2, I(["a", "b"], "string"), F(), refused=True, tf1=True)
