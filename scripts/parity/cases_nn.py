"""Activations, losses, convolutions, pooling, normalization."""

import numpy as np
import tensorflow as tf

from graphcases import F, I, K, N, V, case

raw = tf.raw_ops

# Activations: each by its op, and the op of its gradient directly.
for op in ["Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign"]:
    f = getattr(raw, op)
    for name, shape in [("", (3, 4)), ("scalar", ()), ("empty", (0, 3))]:
        case(op, lambda x, f=f: f(features=x), F(*shape, lo=-3, hi=8), name=name, dtypes="fdhb" if not name else "f")
case("Relu", lambda x: raw.Relu(features=x), V([-1.0, 0.0, -0.0, 2.0, 6.0]), name="at-zero")
case("Relu6", lambda x: raw.Relu6(features=x), V([-1.0, 0.0, 2.0, 6.0, 7.0]), name="at-the-corners")
case("Relu", lambda x: raw.Relu(features=raw.Relu(features=x) * x), F(3, 4), name="twice")
case("Softplus", lambda x: raw.Softplus(features=x), V([-100.0, -30.0, -1.0, 0.0, 30.0, 80.0]), name="far-out")
for alpha in [0.2, 0.0, 1.5]:
    case("LeakyRelu", lambda x, a=alpha: raw.LeakyRelu(features=x, alpha=a), F(3, 4), name="alpha-%g" % alpha, dtypes="fdhb")
for op, output in [("ReluGrad", False), ("Relu6Grad", False), ("SoftplusGrad", False),
                   ("EluGrad", True), ("SeluGrad", True)]:
    f = getattr(raw, op)
    if output:
        case(op, lambda g, x, f=f: f(gradients=g, outputs=x), F(3, 4), F(3, 4, lo=-0.9, hi=3), dtypes="fd")
    else:
        case(op, lambda g, x, f=f: f(gradients=g, features=x), F(3, 4), F(3, 4, lo=-3, hi=8), dtypes="fd")
case("LeakyReluGrad", lambda g, x: raw.LeakyReluGrad(gradients=g, features=x, alpha=0.3), F(3, 4), F(3, 4), dtypes="fd")

# Softmax and the cross entropies.
SUM = "the kernel's gradient takes it for granted that labels sum to 1"
for name, shape in [("", (3, 5)), ("vector", (5,)), ("rank-3", (2, 3, 4)), ("empty", (0, 4))]:
    d = "fdhb" if not name else "f"
    case("Softmax", lambda x: raw.Softmax(logits=x), F(*shape), name=name, dtypes=d)
    case("LogSoftmax", lambda x: raw.LogSoftmax(logits=x), F(*shape), name=name, dtypes=d)
for dtype in ["int32", "int64"]:
    case("SparseSoftmaxCrossEntropyWithLogits",
         lambda x, l: raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=l)[0],
         F(4, 6), I([0, 5, 2, 2], dtype), name=dtype, dtypes="fdhb")
case("SparseSoftmaxCrossEntropyWithLogits",
     lambda x, l: raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=l)[0],
     F(0, 6), I(np.zeros([0])), name="empty")
case("SparseSoftmaxCrossEntropyWithLogits",
     lambda x, l: list(raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=l)),
     F(4, 6), I([0, 5, 2, 2]), name="both-outputs")
case("SparseSoftmaxCrossEntropyWithLogits",
     lambda x, l: tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=l, logits=x)),
     F(2, 3, 5), I([[0, 4, 2], [1, 1, 3]]), name="as-a-loss")
case("SoftmaxCrossEntropyWithLogits",
     lambda x, l: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=l)[0],
     F(4, 6), F(4, 6, lo=0, hi=1), dtypes="fdhb", rough=SUM)
case("SoftmaxCrossEntropyWithLogits",
     lambda x, l: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=tf.nn.softmax(l))[0],
     F(4, 6), F(4, 6), name="probabilities", dtypes="fd")
case("SoftmaxCrossEntropyWithLogits",
     lambda x, l: list(raw.SoftmaxCrossEntropyWithLogits(features=x, labels=l)),
     F(4, 6), F(4, 6, lo=0, hi=1), name="both-outputs", rough=SUM)
case("L2Loss", lambda x: raw.L2Loss(t=x), F(3, 4), dtypes="fdhb")
case("L2Loss", lambda x: raw.L2Loss(t=x), F(), name="scalar")
case("L2Loss", lambda x: raw.L2Loss(t=x), F(0, 2), name="empty")

# Bias.
for fmt, shape, channels in [("NHWC", (2, 3, 3, 4), 4), ("NCHW", (2, 4, 3, 3), 4), ("NHWC", (3, 5), 5),
                             ("NCHW", (2, 5, 3), 5), ("NHWC", (2, 2, 2, 2, 3), 3), ("NHWC", (0, 5), 5)]:
    name = fmt + "-" + "x".join(map(str, shape))
    case("BiasAdd", lambda x, b, f=fmt: raw.BiasAdd(value=x, bias=b, data_format=f), F(*shape), F(channels),
         name=name, dtypes="fdhb" if len(shape) == 4 and fmt == "NHWC" else "f")
    case("BiasAddGrad", lambda g, f=fmt: raw.BiasAddGrad(out_backprop=g, data_format=f), F(*shape), name=name,
         dtypes="fd")
case("BiasAddV1", lambda x, b: raw.BiasAddV1(value=x, bias=b), F(3, 2, 5), F(5), dtypes="fd")

# Convolutions. Kernels sum in another order for another layout of threads.
CONVS = [  # name, input, filter, attributes
    ("same", (2, 5, 6, 3), (3, 3, 3, 4), dict(strides=[1, 1, 1, 1], padding="SAME")),
    ("valid-strides", (2, 7, 6, 3), (3, 2, 3, 4), dict(strides=[1, 2, 2, 1], padding="VALID")),
    ("dilated", (1, 9, 9, 2), (3, 3, 2, 2), dict(strides=[1, 1, 1, 1], padding="VALID", dilations=[1, 2, 2, 1])),
    ("explicit", (1, 5, 5, 2), (3, 3, 2, 2),
     dict(strides=[1, 1, 1, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 1, 0, 0])),
    ("1x1", (2, 4, 4, 3), (1, 1, 3, 2), dict(strides=[1, 1, 1, 1], padding="SAME")),
]
for name, x, w, attrs in CONVS:
    d = "fdhb" if name == "same" else "f"
    case("Conv2D", lambda x, w, a=attrs: raw.Conv2D(input=x, filter=w, **a), F(*x), F(*w), name=name, dtypes=d)
    if name == "dilated":
        continue  # Python's own gradient of the dilated depthwise kernel aborts on a CPU
    depth = (w[0], w[1], x[3], 2)
    case("DepthwiseConv2dNative", lambda x, w, a=attrs: raw.DepthwiseConv2dNative(
        input=x, filter=w, **a), F(*x), F(*depth), name=name, dtypes="fd" if name == "same" else "f")
case("Conv2D", lambda x, w: raw.Conv2D(input=x, filter=w, strides=[1, 1, 1, 1], padding="SAME"),
     F(0, 5, 5, 2), F(3, 3, 2, 2), name="empty-batch")
case("Conv2DBackpropInput",
     lambda w, g: raw.Conv2DBackpropInput(input_sizes=[2, 5, 6, 3], filter=w, out_backprop=g, strides=[1, 1, 1, 1], padding="SAME"),
     F(3, 3, 3, 4), F(2, 5, 6, 4), dtypes="fd")
case("Conv2DBackpropInput",
     lambda w, g: tf.nn.conv2d_transpose(g, w, [2, 7, 7, 2], strides=2, padding="VALID"),
     F(3, 3, 2, 4), F(2, 3, 3, 4), name="transposed-convolution")
case("Conv2DBackpropFilter",
     lambda x, g: raw.Conv2DBackpropFilter(input=x, filter_sizes=[3, 3, 3, 4], out_backprop=g, strides=[1, 1, 1, 1], padding="SAME"),
     F(2, 5, 6, 3), F(2, 5, 6, 4), dtypes="fd")
case("DepthwiseConv2dNativeBackpropInput",
     lambda w, g: raw.DepthwiseConv2dNativeBackpropInput(input_sizes=[2, 5, 6, 3], filter=w, out_backprop=g, strides=[1, 1, 1, 1], padding="SAME"),
     F(3, 3, 3, 2), F(2, 5, 6, 6), dtypes="fd")
case("DepthwiseConv2dNativeBackpropFilter",
     lambda x, g: raw.DepthwiseConv2dNativeBackpropFilter(input=x, filter_sizes=[3, 3, 3, 2], out_backprop=g, strides=[1, 1, 1, 1], padding="SAME"),
     F(2, 5, 6, 3), F(2, 5, 6, 6), dtypes="fd")
for name, padding, strides, out in [("same", "SAME", [1, 1, 1, 1, 1], (1, 4, 4, 5, 3)),
                                    ("valid-strides", "VALID", [1, 2, 1, 2, 1], (1, 2, 3, 2, 3))]:
    a = dict(strides=strides, padding=padding)
    case("Conv3D", lambda x, w, a=a: raw.Conv3D(input=x, filter=w, **a), F(1, 4, 4, 5, 2), F(2, 2, 2, 2, 3),
         name=name, dtypes="fd")
    case("Conv3DBackpropInputV2", lambda w, g, a=a: raw.Conv3DBackpropInputV2(
        input_sizes=[1, 4, 4, 5, 2], filter=w, out_backprop=g, **a), F(2, 2, 2, 2, 3), F(*out), name=name)
    case("Conv3DBackpropFilterV2", lambda x, g, a=a: raw.Conv3DBackpropFilterV2(
        input=x, filter_sizes=[2, 2, 2, 2, 3], out_backprop=g, **a), F(1, 4, 4, 5, 2), F(*out), name=name)
for name, a in [("same", dict(strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="SAME")),
                ("rates", dict(strides=[1, 1, 1, 1], rates=[1, 2, 2, 1], padding="VALID"))]:
    case("Dilation2D", lambda x, w, a=a: raw.Dilation2D(input=x, filter=w, **a), F(2, 6, 6, 2), F(2, 3, 2), name=name, dtypes="fd")

# Pooling. Distinct values, so that no maximum is tied.
POOLS = [("valid", dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")),
         ("same-overlapping", dict(ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME")),
         ("rows", dict(ksize=[1, 2, 1, 1], strides=[1, 1, 1, 1], padding="SAME"))]
OUT = {"valid": (2, 3, 3, 2), "same-overlapping": (2, 3, 3, 2), "rows": (2, 6, 6, 2)}


def distinct(shape):
    n = int(np.prod(shape))
    return (np.random.default_rng(3).permutation(n).reshape(shape) - n / 2) / 8.0


X = distinct((2, 6, 6, 2))
for name, a in POOLS:
    d = "fdhb" if name == "valid" else "f"
    case("MaxPool", lambda x, a=a: raw.MaxPool(input=x, **a), V(X), name=name, dtypes=d)
    case("MaxPoolV2", lambda x, a=a: raw.MaxPoolV2(input=x, **a), V(X), name=name)
    case("AvgPool", lambda x, a=a: raw.AvgPool(value=x, **a), V(X), name=name, dtypes=d)
    case("AvgPoolGrad", lambda g, a=a: raw.AvgPoolGrad(orig_input_shape=[2, 6, 6, 2], grad=g, **a), F(*OUT[name]), name=name)
    case("MaxPoolGrad", lambda x, g, a=a: raw.MaxPoolGrad(orig_input=x, orig_output=raw.MaxPool(input=x, **a), grad=g, **a),
         V(X), F(*OUT[name]), name=name)
    case("MaxPoolGradV2", lambda x, g, a=a: raw.MaxPoolGradV2(orig_input=x, orig_output=raw.MaxPool(input=x, **a), grad=g, **a),
         V(X), F(*OUT[name]), name=name)
    case("MaxPoolGradGrad", lambda x, g, a=a: raw.MaxPoolGradGrad(orig_input=x, orig_output=raw.MaxPool(input=x, **a), grad=g, **a),
         V(X), F(2, 6, 6, 2), name=name)
    for batch in [False, True]:
        case("MaxPoolWithArgmax", lambda x, a=a, b=batch: raw.MaxPoolWithArgmax(input=x, include_batch_in_index=b, **a)[0],
             V(X), name=name + ("-batch" if batch else ""))
case("MaxPool", lambda x: raw.MaxPool(input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="EXPLICIT",
                                      explicit_paddings=[0, 0, 1, 1, 1, 1, 0, 0]), V(X), name="explicit")
P3 = dict(ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID")
X3 = distinct((1, 4, 4, 4, 2))
case("MaxPool3D", lambda x: raw.MaxPool3D(input=x, **P3), V(X3))
case("AvgPool3D", lambda x: raw.AvgPool3D(input=x, **P3), V(X3))
case("AvgPool3DGrad", lambda g: raw.AvgPool3DGrad(orig_input_shape=[1, 4, 4, 4, 2], grad=g, **P3), F(1, 2, 2, 2, 2))
case("MaxPool3DGrad", lambda x, g: raw.MaxPool3DGrad(orig_input=x, orig_output=raw.MaxPool3D(input=x, **P3), grad=g, **P3),
     V(X3), F(1, 2, 2, 2, 2))
case("MaxPool3DGradGrad", lambda x, g: raw.MaxPool3DGradGrad(orig_input=x, orig_output=raw.MaxPool3D(input=x, **P3), grad=g, **P3),
     V(X3), F(1, 4, 4, 4, 2))
for overlapping in [False, True]:
    a = dict(pooling_ratio=[1.0, 1.4, 1.7, 1.0], pseudo_random=True, overlapping=overlapping, deterministic=True, seed=5, seed2=7)
    name = "overlapping" if overlapping else ""
    case("FractionalMaxPool", lambda x, a=a: raw.FractionalMaxPool(value=x, **a)[0], V(X), name=name, dtypes="fd")
    case("FractionalAvgPool", lambda x, a=a: raw.FractionalAvgPool(value=x, **a)[0], V(X), name=name, dtypes="fd", unknown=False)

# Normalization.
case("LRN", lambda x: raw.LRN(input=x, depth_radius=2, bias=1.0, alpha=0.3, beta=0.6), F(1, 2, 2, 7))
POSITIVE = dict(lo=0.5, hi=2.0)
for op, ndim in [("FusedBatchNorm", 4), ("FusedBatchNormV2", 4), ("FusedBatchNormV3", 4), ("FusedBatchNormV3", 5)]:
    f = getattr(raw, op)
    for training in [True, False]:
        shape, fmt = ((3, 4, 4, 2), "NHWC") if ndim == 4 else ((2, 2, 3, 3, 2), "NDHWC")
        name = ("training" if training else "inference") + ("-3d" if ndim == 5 else "")
        stats = [K(np.zeros([0]), "float32")] * 2 if training else [N(2, dtype="float32"), N(2, dtype="float32", **POSITIVE)]
        for letters in ["f"] + (["h", "b"] if op != "FusedBatchNorm" else []):
            case(op, lambda x, s, o, m, v, f=f, t=training, fmt=fmt: f(
                x=x, scale=s, offset=o, mean=m, variance=v, epsilon=0.01, data_format=fmt, is_training=t)[0],
                F(*shape), F(2, dtype="float32", **POSITIVE), F(2, dtype="float32"), *stats, name=name, dtypes=letters,
                unknown=not training or ndim == 4)
    if ndim == 4:
        grad = {"FusedBatchNorm": "FusedBatchNormGrad", "FusedBatchNormV2": "FusedBatchNormGradV2",
                "FusedBatchNormV3": "FusedBatchNormGradV3"}[op]
        g = getattr(raw, grad)
        for training in [True, False]:
            def build(dy, x, s, m, v, f=f, g=g, t=training, grad=grad):
                extra = {"reserve_space_3": tf.zeros([0])} if grad.endswith("V3") else {}
                if t:
                    out = f(x=x, scale=s, offset=tf.zeros([2]), mean=tf.zeros([0]), variance=tf.zeros([0]), epsilon=0.01, is_training=True)
                    m, v = tf.stop_gradient(out[3]), tf.stop_gradient(out[4])
                return list(g(y_backprop=dy, x=x, scale=s, reserve_space_1=m, reserve_space_2=v, epsilon=0.01, is_training=t, **extra))[:3]
            # In training Python's gradient of this gradient leaves out how the mean moves the
            # variance: its formula for the first stops the gradient there.
            case(grad, build, F(3, 4, 4, 2), F(3, 4, 4, 2), F(2, dtype="float32", **POSITIVE), N(2, dtype="float32"),
                 N(2, dtype="float32", **POSITIVE), name="training" if training else "inference",
                 second="Python holds the mean still that the variance depends on" if training else "")
case("CTCLoss",
     lambda x, i, v, n: raw.CTCLoss(inputs=x, labels_indices=i, labels_values=v, sequence_length=n,
                                    preprocess_collapse_repeated=False, ctc_merge_repeated=True)[0],
     F(5, 2, 4), I([[0, 0], [0, 1], [1, 0]], "int64"), I([1, 2, 0]), I([5, 4]), dtypes="fd",
     rough="the kernel's gradient, which it returns beside the loss, is 4e-3 away from the loss's slope")
for op, f in [("BlockLSTM", raw.BlockLSTM), ("BlockLSTMV2", raw.BlockLSTMV2)]:
    for peephole in [True, False]:
        # seq_len_max, x [time, batch, inputs], cs_prev, h_prev, w [inputs+cells, 4*cells], wci, wcf, wco, b
        case(op, lambda x, cs, h, w, ci, cf, co, b, f=f, p=peephole: [t for k, t in enumerate(f(
            seq_len_max=tf.constant(3, tf.int64), x=x, cs_prev=cs, h_prev=h, w=w, wci=ci, wcf=cf, wco=co, b=b, cell_clip=0.0,
            use_peephole=p)) if k in (1, 6)],
            F(3, 2, 4), F(2, 3), F(2, 3), F(7, 12, lo=-1, hi=1), F(3), F(3), F(3), F(12), name="peephole" if peephole else "", unknown=False,
            numeric="Python takes the gradient kernel of the first version, whose gates stand in another order" if op == "BlockLSTMV2" else "")
for n in [1, 2, 4]:
    case("TopKV2", lambda x, n=n: raw.TopKV2(input=x, k=n)[0], F(3, 4), name="k-%d" % n, dtypes="fdhb")
case("TopKV2", lambda x: raw.TopKV2(input=x, k=2)[0], F(5), name="vector")
case("TopKV2", lambda x: raw.TopKV2(input=x, k=2)[0], F(2, 3, 4), name="rank-3")
case("ApproxTopK", lambda x: raw.ApproxTopK(input=x, k=2, reduction_dimension=-1)[0], F(3, 4), unknown=False)
for reverse in [False, True]:
    case("NthElement", lambda x, r=reverse: raw.NthElement(input=x, n=1, reverse=r), F(3, 4), name="reverse" if reverse else "", dtypes="fd")
case("IsotonicRegression", lambda x: raw.IsotonicRegression(input=x)[0], F(3, 5), unknown=False)
case("QuantizeAndDequantizeV2", lambda x: raw.QuantizeAndDequantizeV2(input=x, input_min=-1.0, input_max=1.0, range_given=True), F(3, 4))
case("QuantizeAndDequantizeV3", lambda x: raw.QuantizeAndDequantizeV3(input=x, input_min=-1.0, input_max=1.0, num_bits=8, range_given=True), F(3, 4))
case("QuantizeAndDequantizeV4", lambda x: raw.QuantizeAndDequantizeV4(input=x, input_min=-1.0, input_max=1.0, range_given=True), F(3, 4))
case("QuantizeAndDequantizeV4Grad", lambda g, x: raw.QuantizeAndDequantizeV4Grad(gradients=g, input=x, input_min=-1.0, input_max=1.0)[0], F(3, 4), F(3, 4), refused=True)
case("FakeQuantWithMinMaxArgs", lambda x: raw.FakeQuantWithMinMaxArgs(inputs=x, min=-1.0, max=1.5, num_bits=6), F(3, 4))
case("FakeQuantWithMinMaxVars", lambda x, a, b: raw.FakeQuantWithMinMaxVars(inputs=x, min=a, max=b), F(3, 4), V(-1.1), V(1.3))
case("FakeQuantWithMinMaxVarsPerChannel", lambda x, a, b: raw.FakeQuantWithMinMaxVarsPerChannel(inputs=x, min=a, max=b),
     F(3, 4), V([-1.1] * 4), V([1.3, 1.0, 0.5, 1.9]))
