"""Linear algebra, Fourier transforms, images, sparse tensors."""

import numpy as np
import tensorflow as tf

from graphcases import F, I, K, N, V, case

raw = tf.raw_ops


def well(shape, seed=1):
    """Well-conditioned square matrices: noise around a scaled identity."""
    n = shape[-1]
    return np.random.default_rng(seed).uniform(-1, 1, shape) + 2.0 * n * np.eye(n)


def dominant(draw):
    """Makes a draw well-conditioned."""
    n = min(draw.shape[-2:])
    return draw + 3.0 * n * np.eye(draw.shape[-2], draw.shape[-1])


def spread(draw):
    """Symmetric with well separated eigenvalues."""
    n = draw.shape[-1]
    return 0.1 * (draw + np.conj(np.swapaxes(draw, -1, -2))) + np.diag(np.arange(1, n + 1) * 2.0)


def symmetric(x):
    return (x + tf.linalg.adjoint(x)) / 2


ALL = "fdcz"
UNCONJUGATED = {"z": "Python leaves out a conjugate"}
PHASES = {"z": "vectors are free in their phase"}
for name, shape in [("", (3, 3)), ("batch", (2, 3, 3)), ("one", (1, 1))]:
    d = ALL if not name else "d"
    for adjoint in [False, True]:
        n = name + ("-adjoint" if adjoint else "")
        n = n.strip("-")
        case("MatrixInverse", lambda x, a=adjoint: raw.MatrixInverse(input=x, adjoint=a), F(*shape, transform=dominant), name=n, dtypes=d)
        rhs = shape[:-1] + (2,)
        case("MatrixSolve", lambda x, y, a=adjoint: raw.MatrixSolve(matrix=x, rhs=y, adjoint=a), F(*shape, transform=dominant), F(*rhs),
             name=n, dtypes=d)
        for lower in [False, True]:
            case("MatrixTriangularSolve", lambda x, y, a=adjoint, l=lower: raw.MatrixTriangularSolve(matrix=x, rhs=y, adjoint=a, lower=l),
                 F(*shape, transform=dominant), F(*rhs), name=(n + ("-lower" if lower else "")).strip("-"), dtypes=d)
    case("MatrixDeterminant", lambda x: raw.MatrixDeterminant(input=x), F(*shape, transform=dominant), name=name, dtypes=d,
         rough=UNCONJUGATED)
    case("LogMatrixDeterminant", lambda x: raw.LogMatrixDeterminant(input=x)[1], F(*shape, transform=dominant), name=name, dtypes=d,
         rough={"z": "the logarithm is real and of complex type; Python takes the imaginary part of its gradient along"})
    case("Cholesky", lambda x: raw.Cholesky(input=symmetric(x)), F(*shape, lo=-0.5, hi=0.5, transform=dominant), name=name, dtypes=d)
    case("MatrixSquareRoot", lambda x: raw.MatrixSquareRoot(input=x), F(*shape, transform=dominant), name=name, dtypes=d,
         rough=UNCONJUGATED)
case("MatrixTriangularSolve", lambda x, y: raw.MatrixTriangularSolve(matrix=x, rhs=y), F(3, 3, transform=dominant), F(2, 3, 2), name="broadcast",
     dtypes="d")
for v in [True, False]:
    n = "" if v else "values-only"
    case("SelfAdjointEigV2", lambda x, v=v: list(raw.SelfAdjointEigV2(input=symmetric(x), compute_v=v))[:2 if v else 1],
         F(3, 3, transform=spread), name=n, dtypes="fd")
    case("Eig", lambda x, v=v: list(raw.Eig(input=x, compute_v=v, Tout=tf.complex128))[:2 if v else 1],
         F(3, 3, transform=spread), name=n, dtypes="z", rough=PHASES if v else "")
for name, shape, full in [("", (3, 3), False), ("tall", (4, 3), False), ("wide", (3, 4), False), ("batch", (2, 3, 3), False),
                          ("full", (4, 3), True), ("full-wide", (3, 4), True)]:
    case("Qr", lambda x, f=full: list(raw.Qr(input=x, full_matrices=f)), F(*shape, transform=dominant), name=name,
         dtypes="fd" + ("cz" if not name else ""), unknown=False, refused=name == "full")
    case("Svd", lambda x, f=full: list(raw.Svd(input=x, full_matrices=f)), F(*shape, lo=-4, hi=4), name=name, dtypes="fd", unknown=False)
case("Svd", lambda x: raw.Svd(input=x, compute_uv=False)[0], F(4, 3, lo=-4, hi=4), name="values-only", dtypes="fd")
case("Svd", lambda x: list(raw.Svd(input=x))[0], F(3, 3, lo=-4, hi=4), name="complex", dtypes="z", unknown=False, rough=PHASES)
for name, a, b in [("over", (4, 3), (4, 2)), ("under", (3, 4), (3, 2)), ("batch", (2, 4, 3), (2, 4, 1))]:
    case("MatrixSolveLs", lambda x, y: raw.MatrixSolveLs(matrix=x, rhs=y, l2_regularizer=tf.constant(0.3, tf.float64)),
         F(*a, transform=dominant), F(*b), name=name, dtypes="fd", unknown=False)
for lower in [True, False]:
    for adjoint in [True, False]:
        case("BandedTriangularSolve", lambda x, y, l=lower, a=adjoint: raw.BandedTriangularSolve(matrix=x, rhs=y, lower=l, adjoint=a),
             F(2, 4, lo=1, hi=3), F(4, 2), name="%s%s" % ("lower" if lower else "upper", "-adjoint" if adjoint else ""), dtypes="fd")
case("TridiagonalMatMul", lambda a, b, c, d: raw.TridiagonalMatMul(superdiag=a, maindiag=b, subdiag=c, rhs=d),
     F(1, 4), F(1, 4), F(1, 4), F(4, 3), dtypes=ALL)
case("TridiagonalMatMul", lambda a, b, c, d: raw.TridiagonalMatMul(superdiag=a, maindiag=b, subdiag=c, rhs=d),
     F(2, 1, 4), F(2, 1, 4), F(2, 1, 4), F(2, 4, 3), name="batch")
for name, shape, rhs in [("", (3, 4), (4, 2)), ("batch", (2, 3, 4), (2, 4, 2))]:
    case("TridiagonalSolve", lambda a, b: raw.TridiagonalSolve(diagonals=a, rhs=b), F(*shape, lo=1, hi=2, transform=lambda d: d + np.array([[0.0], [4.0], [0.0]])),
         F(*rhs), name=name, dtypes=ALL if not name else "d", rough=UNCONJUGATED)

# Diagonals and bands.
case("MatrixDiag", lambda x: raw.MatrixDiag(diagonal=x), F(2, 3), dtypes="fdhb")
case("MatrixDiagPart", lambda x: raw.MatrixDiagPart(input=x), F(2, 3, 3), name="square")
case("MatrixDiagPart", lambda x: raw.MatrixDiagPart(input=x), F(2, 3, 4), name="wide")
case("MatrixSetDiag", lambda x, y: raw.MatrixSetDiag(input=x, diagonal=y), F(2, 3, 4), F(2, 3))
case("MatrixBandPart", lambda x: raw.MatrixBandPart(input=x, num_lower=1, num_upper=0), F(2, 4, 4), dtypes="fdc")
for align in ["RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT"]:
    for k, diag in [([0], (2, 3)), ([-1, 1], (2, 3, 3)), ([1], (2, 3))]:
        n = "%s%s" % (",".join(map(str, k)), "" if align == "RIGHT_LEFT" else "-" + align)
        kk = k[0] if len(k) == 1 else k
        rows = 4 if kk == 1 else 3
        case("MatrixDiagV3", lambda x, k=kk, a=align, r=rows: raw.MatrixDiagV3(diagonal=x, k=k, num_rows=r, num_cols=r, padding_value=0.0, align=a),
             F(*diag), name=n)
        case("MatrixDiagPartV3", lambda x, k=kk, a=align: raw.MatrixDiagPartV3(input=x, k=k, padding_value=0.0, align=a),
             F(2, rows, rows), name=n)
        case("MatrixSetDiagV3", lambda x, y, k=kk, a=align: raw.MatrixSetDiagV3(input=x, diagonal=y, k=k, align=a),
             F(2, rows, rows), F(*diag), name=n)
        if align == "LEFT_LEFT":
            # Python differentiates V2, whose bands start at the left, with V3's default alignment.
            wrong = dict(dtypes="d", unknown=False,
                         numeric="Python reads V2's diagonals in V3's default alignment") if kk == [-1, 1] else {}
            case("MatrixDiagV2", lambda x, k=kk, r=rows: raw.MatrixDiagV2(diagonal=x, k=k, num_rows=r, num_cols=r, padding_value=tf.constant(0.0, x.dtype)),
                 F(*diag), name=n, **wrong)
            case("MatrixDiagPartV2", lambda x, k=kk: raw.MatrixDiagPartV2(input=x, k=k, padding_value=tf.constant(0.0, x.dtype)), F(2, rows, rows), name=n, **wrong)
            case("MatrixSetDiagV2", lambda x, y, k=kk: raw.MatrixSetDiagV2(input=x, diagonal=y, k=k), F(2, rows, rows), F(*diag), name=n, **wrong)

# Fourier transforms.
for op in ["FFT", "IFFT", "FFT2D", "IFFT2D", "FFT3D", "IFFT3D"]:
    f = getattr(raw, op)
    case(op, lambda x, f=f: f(input=x), F(2, 3, 4, 5) if "3D" in op else F(3, 4, 5), dtypes="cz")
for length in [6, 5]:
    n = "even" if length % 2 == 0 else "odd"
    case("RFFT", lambda x, l=length: raw.RFFT(input=x, fft_length=[l]), F(2, length), name=n)
    case("RFFT", lambda x, l=length: raw.RFFT(input=x, fft_length=[l], Tcomplex=tf.complex128), F(2, length), name=n + "-double", dtypes="d")
    case("IRFFT", lambda x, l=length: raw.IRFFT(input=x, fft_length=[l]), F(2, length // 2 + 1), name=n, dtypes="c")
    case("IRFFT", lambda x, l=length: raw.IRFFT(input=x, fft_length=[l], Treal=tf.float64), F(2, length // 2 + 1), name=n + "-double", dtypes="z")
    case("RFFT2D", lambda x, l=length: raw.RFFT2D(input=x, fft_length=[4, l]), F(2, 4, length), name=n, dtypes="f")
    case("RFFT2D", lambda x, l=length: raw.RFFT2D(input=x, fft_length=[4, l], Tcomplex=tf.complex128), F(2, 4, length), name=n + "-double", dtypes="d")
    case("IRFFT2D", lambda x, l=length: raw.IRFFT2D(input=x, fft_length=[4, l]), F(2, 4, length // 2 + 1), name=n, dtypes="c")

# Images.
for op in ["ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"]:
    f = getattr(raw, op)
    for name, a in [("", {}), ("align", dict(align_corners=True)), ("half-pixel", dict(half_pixel_centers=True))]:
        case(op, lambda x, f=f, a=a: f(images=x, size=[5, 7], **a), F(2, 3, 4, 2), name=name, dtypes="fd")
case("ScaleAndTranslate", lambda x: raw.ScaleAndTranslate(images=x, size=[5, 7], scale=[1.5, 1.25], translation=[0.3, 0.2], kernel_type="triangle"),
     F(2, 3, 4, 2))
for method in ["bilinear", "nearest"]:
    case("CropAndResize", lambda x, b, m=method: raw.CropAndResize(image=x, boxes=b, box_ind=[0, 1], crop_size=[3, 3], method=m),
         F(2, 5, 6, 2), V([[0.1, 0.1, 0.8, 0.9], [0.2, 0.05, 0.9, 0.7]], "float32"), name=method,
         rough="the boxes' gradient is that of the bilinear method" if method == "nearest" else "")
case("RGBToHSV", lambda x: raw.RGBToHSV(images=x), F(2, 3, 3, lo=0.05, hi=1), dtypes="fd")
for op, f in [("ImageProjectiveTransformV2", raw.ImageProjectiveTransformV2), ("ImageProjectiveTransformV3", raw.ImageProjectiveTransformV3)]:
    extra = {"fill_value": 0.0} if op.endswith("3") else {}
    case(op, lambda x, f=f, e=extra: f(images=x, transforms=[[0.9, 0.1, 0.2, -0.1, 1.1, 0.3, 0.0, 0.0]], output_shape=[4, 5], interpolation="BILINEAR", **e),
         F(2, 4, 5, 2))
case("ExtractImagePatches", lambda x: raw.ExtractImagePatches(images=x, ksizes=[1, 2, 2, 1], strides=[1, 2, 1, 1], rates=[1, 1, 1, 1], padding="VALID"),
     F(2, 4, 5, 2), dtypes="fd", unknown=False)
case("ExtractImagePatches", lambda x: raw.ExtractImagePatches(images=x, ksizes=[1, 3, 3, 1], strides=[1, 1, 1, 1], rates=[1, 2, 1, 1], padding="SAME"),
     F(2, 4, 5, 2), name="same", unknown="rank")
case("ExtractVolumePatches", lambda x: raw.ExtractVolumePatches(input=x, ksizes=[1, 2, 2, 2, 1], strides=[1, 1, 1, 1, 1], padding="VALID"),
     F(1, 3, 3, 3, 2), unknown=False)

# Sparse tensors: indices, values, dense shape.
IDX = I([[0, 1], [1, 0], [1, 3], [2, 2]], "int64")
SHAPE = K([3, 4], "int64")
for a in [False, True]:
    for b in [False, True]:
        dense = (4, 2) if not a else (3, 2)
        case("SparseTensorDenseMatMul", lambda i, v, y, a=a, b=b: raw.SparseTensorDenseMatMul(
            a_indices=i, a_values=v, a_shape=tf.constant([3, 4], tf.int64), b=y, adjoint_a=a, adjoint_b=b),
            IDX, F(4), F(*(dense[::-1] if b else dense)), name="%d%d" % (a, b), dtypes="fd" + ("cz" if not b else ""))
        m, n = (3, 4) if not a else (4, 3)
        case("SparseMatMul", lambda x, y, a=a, b=b: raw.SparseMatMul(a=x, b=y, transpose_a=a, transpose_b=b, a_is_sparse=True),
             F(m, n), F(*((2, 4) if b else (4, 2))), name="%d%d" % (a, b))
case("SparseMatMul", lambda x, y: raw.SparseMatMul(a=x, b=y), F(3, 4, dtype="bfloat16"), F(4, 2), name="bfloat16", unknown=False)
UNORDERED = I([[2, 2], [0, 1], [1, 3], [1, 0]], "int64")
case("SparseReorder", lambda i, v: raw.SparseReorder(input_indices=i, input_values=v, input_shape=tf.constant([3, 4], tf.int64))[1], UNORDERED, F(4))
case("SparseAdd", lambda i, v, j, w: raw.SparseAdd(a_indices=i, a_values=v, a_shape=tf.constant([3, 4], tf.int64), b_indices=j, b_values=w,
                                                   b_shape=tf.constant([3, 4], tf.int64), thresh=0.0)[1],
     IDX, F(4), I([[0, 0], [1, 3]], "int64"), F(2))
case("SparseTensorDenseAdd", lambda i, v, y: raw.SparseTensorDenseAdd(a_indices=i, a_values=v, a_shape=tf.constant([3, 4], tf.int64), b=y), IDX, F(4), F(3, 4))
for keep in [False, True]:
    case("SparseReduceSum", lambda i, v, k=keep: raw.SparseReduceSum(input_indices=i, input_values=v, input_shape=tf.constant([3, 4], tf.int64),
                                                                     reduction_axes=[1], keep_dims=k), IDX, F(4), name="keep" if keep else "")
case("SparseSlice", lambda i, v: raw.SparseSlice(indices=i, values=v, shape=tf.constant([3, 4], tf.int64), start=tf.constant([1, 0], tf.int64),
                                                 size=tf.constant([2, 4], tf.int64))[1], IDX, F(4))
for op in ["SparseDenseCwiseMul", "SparseDenseCwiseDiv", "SparseDenseCwiseAdd"]:
    f = getattr(raw, op)
    refused = op.endswith("Add")
    case(op, lambda i, v, y, f=f: f(sp_indices=i, sp_values=v, sp_shape=tf.constant([3, 4], tf.int64), dense=y), IDX, F(4), F(3, 4, lo=0.5, hi=2),
         refused=refused)
    if not refused:
        case(op, lambda i, v, y, f=f: f(sp_indices=i, sp_values=v, sp_shape=tf.constant([3, 4], tf.int64), dense=y), IDX, F(4), F(4, lo=0.5, hi=2),
             name="broadcast")
case("SparseSoftmax", lambda i, v: raw.SparseSoftmax(sp_indices=i, sp_values=v, sp_shape=tf.constant([3, 4], tf.int64)), IDX, F(4), dtypes="fd")
case("SparseFillEmptyRows", lambda i, v, d: raw.SparseFillEmptyRows(indices=i, values=v, dense_shape=tf.constant([4, 4], tf.int64), default_value=d)[1],
     IDX, F(4), F())
case("SparseToDense", lambda i, v, d: raw.SparseToDense(sparse_indices=i, output_shape=tf.constant([3, 4], tf.int64), sparse_values=v, default_value=d),
     IDX, F(4), F())
for op in ["SparseSparseMaximum", "SparseSparseMinimum"]:
    f = getattr(raw, op)
    case(op, lambda i, v, j, w, f=f: f(a_indices=i, a_values=v, a_shape=tf.constant([3, 4], tf.int64), b_indices=j, b_values=w,
                                       b_shape=tf.constant([3, 4], tf.int64))[1], IDX, F(4), I([[0, 0], [1, 3]], "int64"), F(2), refused=True)
