package gradients_test

import (
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/gradients"
	"github.com/sluice-ml/sluice/ops/raw"
)

// apart is n values in a shuffled order, no two of them near each other, so
// that a small step changes no maximum.
func apart(dims ...int64) input {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	values := make([]float64, n)
	for i := range values {
		values[i] = float64((int64(i)*7919)%n)/4 - float64(n)/8 + 0.1
	}
	return input{shape: dims, values: values}
}

// shaped gives x a shape that is known before a run, whatever x's is.
func shaped(s *scope, x tf.Output, dims ...int32) tf.Output {
	return raw.Reshape(s, x, ints(s, dims...))
}

// Activations and losses.
var _ = func() bool {
	away := exactly(-2, -0.3, 0.4, 1.7, 7) // from every corner
	for op, f := range map[string]struct {
		f   unaryFunc
		opt caseOptions
	}{
		"Relu": {raw.Relu, linear}, "Relu6": {raw.Relu6, linear}, "Elu": {raw.Elu, caseOptions{}},
		"Selu": {raw.Selu, caseOptions{}}, "Softplus": {raw.Softplus, caseOptions{}}, "Softsign": {raw.Softsign, firstOnly},
		"Softmax": {raw.Softmax, caseOptions{}}, "LogSoftmax": {raw.LogSoftmax, caseOptions{}}, "L2Loss": {raw.L2Loss, caseOptions{}},
		"LeakyRelu": {raw.LeakyRelu, linear},
	} {
		cases(numericCase{op, []input{away}, of1(f.f), f.opt})
	}
	for op, f := range map[string]struct {
		f   binaryFunc
		opt caseOptions
	}{
		"ReluGrad": {raw.ReluGrad, caseOptions{}}, "Relu6Grad": {raw.Relu6Grad, caseOptions{}},
		"LeakyReluGrad": {raw.LeakyReluGrad, caseOptions{}}, "SoftplusGrad": {raw.SoftplusGrad, caseOptions{}},
		"EluGrad": {raw.EluGrad, caseOptions{}}, "SeluGrad": {raw.SeluGrad, caseOptions{}},
	} {
		at := away
		if op == "EluGrad" || op == "SeluGrad" { // the output of the activation
			at = exactly(-0.8, -0.3, 0.4, 1.7, 7)
		}
		cases(numericCase{op, []input{normal(5), at}, of2(f.f), f.opt})
	}
	labels := func(s *scope) tf.Output { return ints(s, 2, 0, 1) }
	return cases(
		numericCase{"SparseSoftmaxCrossEntropyWithLogits", []input{normal(3, 4)}, one(func(s *scope, x outs) tf.Output {
			loss, _ := raw.SparseSoftmaxCrossEntropyWithLogits(s, x[0], labels(s))
			return loss
		}), caseOptions{}},
		numericCase{"SparseSoftmaxCrossEntropyWithLogits both_outputs", []input{normal(3, 4)}, func(s *scope, x outs) outs {
			loss, backprop := raw.SparseSoftmaxCrossEntropyWithLogits(s, x[0], labels(s))
			return outs{loss, backprop}
		}, caseOptions{}},
		numericCase{"SoftmaxCrossEntropyWithLogits", []input{normal(3, 4)}, one(func(s *scope, x outs) tf.Output {
			labels := raw.Softmax(s, constant(s, bridge.Shape{3, 4}, 1, 2, 3, 4, 0, 2, 0, 1, -1, 0, 1, 0.5))
			loss, _ := raw.SoftmaxCrossEntropyWithLogits(s, x[0], labels)
			return loss
		}), caseOptions{}},
		numericCase{"SoftmaxCrossEntropyWithLogits by_labels", []input{normal(3, 4), normal(3, 4)}, one(func(s *scope, x outs) tf.Output {
			loss, _ := raw.SoftmaxCrossEntropyWithLogits(s, x[0], raw.Softmax(s, x[1]))
			return loss
		}), firstOnly},
		numericCase{"BiasAdd", []input{normal(2, 3, 4), normal(4)}, of2(raw.BiasAdd), linear},
		numericCase{"BiasAdd channels_second", []input{normal(2, 4, 3), normal(4)}, one(func(s *scope, x outs) tf.Output {
			return raw.BiasAdd(s, raw.Square(s, x[0]), raw.Square(s, x[1]), raw.WithDataFormat("NCHW"))
		}), caseOptions{}},
		numericCase{"BiasAddV1", []input{normal(2, 3, 4), normal(4)}, of2(raw.BiasAddV1), linear},
		numericCase{"BiasAddGrad", []input{normal(2, 3, 4)}, of1(raw.BiasAddGrad), linear},
		numericCase{"BiasAddGrad channels_second", []input{normal(2, 4, 3)}, one(func(s *scope, x outs) tf.Output {
			return raw.BiasAddGrad(s, raw.Square(s, x[0]), raw.WithDataFormat("NCHW"))
		}), caseOptions{}},
	)
}()

// Convolutions, pooling and images.
var _ = func() bool {
	strides := []int64{1, 2, 1, 1}
	x, w := normal(1, 4, 3, 2), normal(2, 2, 2, 3)
	box := []int64{1, 2, 2, 1}
	cube := []int64{1, 2, 2, 2, 1}
	unit := []int64{1, 1, 1, 1, 1}
	pool := func(f func(b raw.Builder, x tf.Output, ksize, strides []int64, padding string, attrs ...raw.Attr) tf.Output, ksize []int64) func(*scope, outs) outs {
		return one(func(s *scope, x outs) tf.Output { return f(s, x[0], ksize, ksize, "SAME") })
	}
	image := normal(1, 3, 4, 2)
	return cases(
		numericCase{"Conv2D", []input{x, w}, one(func(s *scope, x outs) tf.Output {
			return raw.Conv2D(s, x[0], x[1], strides, "SAME")
		}), caseOptions{}},
		numericCase{"Conv2D explicit_padding", []input{x, w}, one(func(s *scope, x outs) tf.Output {
			return raw.Conv2D(s, x[0], x[1], strides, "EXPLICIT", raw.WithExplicitPaddings([]int64{0, 0, 1, 0, 0, 2, 0, 0}))
		}), caseOptions{}},
		numericCase{"DepthwiseConv2dNative", []input{x, w}, one(func(s *scope, x outs) tf.Output {
			return raw.DepthwiseConv2dNative(s, x[0], x[1], []int64{1, 1, 1, 1}, "VALID")
		}), caseOptions{}},
		numericCase{"Conv3D", []input{normal(1, 2, 3, 2, 2), normal(1, 2, 2, 2, 2)}, one(func(s *scope, x outs) tf.Output {
			return raw.Conv3D(s, x[0], x[1], unit, "SAME")
		}), caseOptions{}},
		numericCase{"Dilation2D", []input{apart(1, 4, 3, 2), between(-0.05, 0.05, 2, 2, 2)}, one(func(s *scope, x outs) tf.Output {
			return raw.Dilation2D(s, x[0], x[1], []int64{1, 1, 1, 1}, []int64{1, 1, 1, 1}, "VALID")
		}), firstOnly},
		numericCase{"MaxPool", []input{apart(1, 4, 4, 2)}, pool(raw.MaxPool, box), linear},
		numericCase{"MaxPoolV2", []input{apart(1, 4, 4, 2)}, one(func(s *scope, x outs) tf.Output {
			k := ints(s, 1, 2, 2, 1)
			return raw.MaxPoolV2(s, x[0], k, k, "SAME")
		}), firstOnly},
		numericCase{"AvgPool", []input{normal(1, 4, 3, 2)}, pool(raw.AvgPool, box), linear},
		numericCase{"AvgPool of_squares", []input{normal(1, 4, 3, 2)}, one(func(s *scope, x outs) tf.Output {
			return raw.AvgPool(s, raw.Square(s, x[0]), box, []int64{1, 1, 1, 1}, "VALID")
		}), caseOptions{}},
		numericCase{"FractionalAvgPool", []input{normal(1, 5, 5, 1)}, one(func(s *scope, x outs) tf.Output {
			y, _, _ := raw.FractionalAvgPool(s, x[0], []float32{1, 1.5, 1.5, 1}, raw.WithDeterministicBool(true), raw.WithSeed(3), raw.WithSeed2(4))
			return y
		}), firstOnly},
		numericCase{"FractionalMaxPool", []input{apart(1, 5, 5, 1)}, one(func(s *scope, x outs) tf.Output {
			y, _, _ := raw.FractionalMaxPool(s, x[0], []float32{1, 1.5, 1.5, 1}, raw.WithDeterministicBool(true), raw.WithSeed(3), raw.WithSeed2(4), raw.WithOverlapping(true))
			return y
		}), firstOnly},
		numericCase{"ExtractImagePatches", []input{image}, one(func(s *scope, x outs) tf.Output {
			return raw.ExtractImagePatches(s, x[0], box, []int64{1, 1, 2, 1}, []int64{1, 1, 1, 1}, "SAME")
		}), linear},
		numericCase{"ExtractVolumePatches", []input{normal(2, 2, 3, 2, 2)}, one(func(s *scope, x outs) tf.Output {
			return raw.ExtractVolumePatches(s, x[0], cube, unit, "VALID")
		}), linear},
		numericCase{"RGBToHSV", []input{exactly(0.8, 0.3, 0.5, 0.2, 0.7, 0.4, 0.1, 0.3, 0.9).reshaped(3, 3)}, of1(raw.RGBToHSV), caseOptions{}},
	)
}()

// Linear algebra.
var _ = func() bool {
	// Diagonally dominant, so that inverses are tame.
	tame := func(s *scope, x tf.Output) tf.Output {
		eye := raw.MatrixDiag(s, raw.OnesLike(s, raw.MatrixDiagPart(s, x)))
		return raw.AddV2(s, x, raw.Mul(s, eye, scalar(s, 5.0)))
	}
	symmetric := func(s *scope, x tf.Output) tf.Output { // positive definite
		return raw.AddV2(s, raw.BatchMatMulV2(s, x, x, raw.WithAdjY(true)), tame(s, raw.ZerosLike(s, x)))
	}
	matrix, batch := between(-1, 1, 3, 3), between(-1, 1, 2, 3, 3)
	rhs := normal(2, 3, 2)
	known := func(f func(s *scope, x outs) outs, dims ...int32) func(*scope, outs) outs {
		return func(s *scope, x outs) outs { return f(s, append(outs{shaped(s, x[0], dims...)}, x[1:]...)) }
	}
	for _, adjoint := range []bool{false, true} {
		name := map[bool]string{true: " adjoint"}[adjoint]
		cases(
			numericCase{"MatrixInverse" + name, []input{batch}, one(func(s *scope, x outs) tf.Output {
				return raw.MatrixInverse(s, tame(s, x[0]), raw.WithAdjoint(adjoint))
			}), caseOptions{}},
			numericCase{"MatrixSolve" + name, []input{batch, rhs}, one(func(s *scope, x outs) tf.Output {
				return raw.MatrixSolve(s, tame(s, x[0]), x[1], raw.WithAdjoint(adjoint))
			}), caseOptions{}},
			numericCase{"MatrixTriangularSolve" + name, []input{matrix, rhs}, one(func(s *scope, x outs) tf.Output {
				return raw.MatrixTriangularSolve(s, tame(s, x[0]), x[1], raw.WithAdjoint(adjoint), raw.WithLower(!adjoint))
			}), caseOptions{}},
			numericCase{"BandedTriangularSolve" + name, []input{between(2, 3, 2, 4), normal(4, 2)}, one(func(s *scope, x outs) tf.Output {
				return raw.BandedTriangularSolve(s, x[0], x[1], raw.WithAdjoint(adjoint), raw.WithLower(!adjoint))
			}), firstOnly},
		)
	}
	return cases(
		numericCase{"MatrixDeterminant", []input{batch}, of1(raw.MatrixDeterminant), caseOptions{}},
		numericCase{"LogMatrixDeterminant", []input{batch}, one(func(s *scope, x outs) tf.Output {
			_, log := raw.LogMatrixDeterminant(s, tame(s, x[0]))
			return log
		}), caseOptions{}},
		numericCase{"Cholesky", []input{batch}, one(func(s *scope, x outs) tf.Output {
			return raw.Cholesky(s, symmetric(s, x[0]))
		}), caseOptions{}},
		numericCase{"MatrixSquareRoot", []input{batch}, one(func(s *scope, x outs) tf.Output {
			return raw.MatrixSquareRoot(s, tame(s, x[0]))
		}), firstOnly},
		numericCase{"SelfAdjointEigV2", []input{matrix}, func(s *scope, x outs) outs {
			// Vectors have no sign of their own: their squares do.
			e, v := raw.SelfAdjointEigV2(s, symmetric(s, x[0]))
			return outs{e, raw.Square(s, v)}
		}, firstOnly},
		numericCase{"SelfAdjointEigV2 values_only", []input{matrix}, one(func(s *scope, x outs) tf.Output {
			e, _ := raw.SelfAdjointEigV2(s, symmetric(s, x[0]), raw.WithComputeV(false))
			return e
		}), firstOnly},
		numericCase{"Qr tall", []input{between(-1, 1, 4, 3)}, known(func(s *scope, x outs) outs {
			q, r := raw.Qr(s, x[0])
			return outs{q, r}
		}, 4, 3), firstOnly},
		numericCase{"Qr wide", []input{between(-1, 1, 2, 4)}, known(func(s *scope, x outs) outs {
			q, r := raw.Qr(s, x[0], raw.WithFullMatrices(true))
			return outs{q, r}
		}, 2, 4), firstOnly},
		numericCase{"Svd wide", []input{between(-1, 1, 2, 3)}, known(func(s *scope, x outs) outs {
			e, u, v := raw.Svd(s, x[0])
			return outs{e, raw.Square(s, u), raw.Square(s, v)}
		}, 2, 3), firstOnly},
		numericCase{"Svd tall_full", []input{between(-1, 1, 3, 2)}, known(func(s *scope, x outs) outs {
			e, u, v := raw.Svd(s, x[0], raw.WithFullMatrices(true))
			return outs{e, raw.Square(s, u), raw.Square(s, v)}
		}, 3, 2), firstOnly},
		numericCase{"Svd values_only", []input{between(-1, 1, 3, 2)}, one(func(s *scope, x outs) tf.Output {
			e, _, _ := raw.Svd(s, x[0], raw.WithComputeUV(false))
			return e
		}), firstOnly},
		numericCase{"MatrixSolveLs tall", []input{between(-1, 1, 4, 2), normal(4, 2)}, known(func(s *scope, x outs) outs {
			return outs{raw.MatrixSolveLs(s, x[0], x[1], scalar(s, 0.2))}
		}, 4, 2), firstOnly},
		numericCase{"MatrixSolveLs wide", []input{between(-1, 1, 2, 4), normal(2, 2)}, known(func(s *scope, x outs) outs {
			return outs{raw.MatrixSolveLs(s, x[0], x[1], scalar(s, 0.2))}
		}, 2, 4), firstOnly},
		numericCase{"TridiagonalMatMul", []input{exactly(1, -2, 3, 0).reshaped(1, 4), normal(1, 4), exactly(0, 2, -1, 1).reshaped(1, 4), normal(4, 2)},
			one(func(s *scope, x outs) tf.Output { return raw.TridiagonalMatMul(s, x[0], x[1], x[2], x[3]) }), caseOptions{}},
		numericCase{"TridiagonalSolve", []input{exactly(0.5, -0.7, 0.9, 0, 3, 4, 5, 4, 0, 0.3, -0.8, 0.6).reshaped(3, 4), normal(4, 2)},
			one(func(s *scope, x outs) tf.Output { return raw.TridiagonalSolve(s, x[0], x[1]) }), caseOptions{}},
		numericCase{"MatrixBandPart", []input{normal(2, 3, 4)}, one(func(s *scope, x outs) tf.Output {
			return raw.MatrixBandPart(s, x[0], scalar[int64](s, 1), scalar[int64](s, 0))
		}), linear},
		numericCase{"MatrixDiag", []input{normal(2, 3)}, of1(raw.MatrixDiag), linear},
		numericCase{"MatrixDiagPart", []input{normal(2, 3, 4)}, of1(raw.MatrixDiagPart), linear},
		numericCase{"MatrixSetDiag", []input{normal(2, 3, 4), normal(2, 3)}, of2(raw.MatrixSetDiag), linear},
		// Python differentiates the V2 forms in V3's alignment, which is wrong.
		numericCase{"MatrixDiagV2", []input{normal(2, 3, 3)}, one(func(s *scope, x outs) tf.Output {
			n := scalar[int32](s, 3)
			return raw.MatrixDiagV2(s, shaped(s, x[0], 2, 3, 3), ints(s, -1, 1), n, n, scalar(s, 0.0))
		}), linear},
		numericCase{"MatrixDiagPartV2", []input{normal(2, 3, 4)}, one(func(s *scope, x outs) tf.Output {
			return raw.MatrixDiagPartV2(s, x[0], ints(s, -1, 1), scalar(s, 0.0))
		}), linear},
		numericCase{"MatrixSetDiagV2", []input{normal(2, 3, 3), normal(2, 3, 3)}, one(func(s *scope, x outs) tf.Output {
			return raw.MatrixSetDiagV2(s, shaped(s, x[0], 2, 3, 3), shaped(s, x[1], 2, 3, 3), ints(s, -1, 1))
		}), linear},
		numericCase{"MatrixDiagPartV3", []input{normal(2, 3, 4)}, one(func(s *scope, x outs) tf.Output {
			return raw.MatrixDiagPartV3(s, x[0], ints(s, -1, 1), scalar(s, 0.0), raw.WithAlign("LEFT_RIGHT"))
		}), linear},
	)
}()

// Fourier transforms: what is differentiated stays real.
var _ = func() bool {
	spectrum := func(f func(s *scope, z tf.Output) tf.Output) func(*scope, outs) outs {
		return complexOf(func(s *scope, z tf.Output) tf.Output { return raw.Square(s, f(s, z)) })
	}
	length := func(n ...int32) func(s *scope) tf.Output { return func(s *scope) tf.Output { return ints(s, n...) } }
	cases(
		numericCase{"FFT", []input{normal(2, 3), normal(2, 3)}, spectrum(func(s *scope, z tf.Output) tf.Output { return raw.FFT(s, z) }), caseOptions{}},
		numericCase{"IFFT2D", []input{normal(2, 3), normal(2, 3)}, spectrum(func(s *scope, z tf.Output) tf.Output { return raw.IFFT2D(s, z) }), caseOptions{}},
		numericCase{"FFT3D", []input{normal(2, 1, 3), normal(2, 1, 3)}, spectrum(func(s *scope, z tf.Output) tf.Output { return raw.FFT3D(s, z) }), firstOnly},
	)
	// A transform shorter than its input leaves out the rest, whose gradient is
	// zero; Python's gradient fails there.
	for name, n := range map[string]int32{"": 4, " odd": 5, " shorter": 3} {
		width := int64(n)
		if name == " shorter" {
			width = 5
		}
		cases(
			numericCase{"RFFT" + name, []input{normal(2, width)}, func(s *scope, x outs) outs {
				z := raw.RFFT(s, x[0], length(n)(s), raw.WithTcomplex(tf.Complex128))
				return outs{raw.Square(s, realPart(s, z)), raw.Square(s, imagPart(s, z))}
			}, caseOptions{}},
			numericCase{"RFFT2D" + name, []input{normal(3, width)}, func(s *scope, x outs) outs {
				z := raw.RFFT2D(s, x[0], length(3, n)(s), raw.WithTcomplex(tf.Complex128))
				return outs{realPart(s, z), imagPart(s, z)}
			}, linear},
			numericCase{"IRFFT" + name, []input{normal(2, width/2+1), normal(2, width/2+1)}, one(func(s *scope, x outs) tf.Output {
				return raw.Square(s, raw.IRFFT(s, toComplex(s, x[0], x[1]), length(n)(s), raw.WithTreal(tf.Double)))
			}), firstOnly},
		)
	}
	return true
}()

// Sparse tensors: the values are what is differentiated by.
var _ = func() bool {
	places := func(s *scope) tf.Output {
		return constant[int64](s, bridge.Shape{4, 2}, 0, 1, 1, 0, 1, 3, 2, 2)
	}
	shape := func(s *scope) tf.Output { return constant[int64](s, bridge.Shape{2}, 3, 4) }
	values := normal(4)
	for _, a := range []bool{false, true} {
		for _, b := range []bool{false, true} {
			dims := map[bool][]int64{false: {4, 2}, true: {3, 2}}[a]
			if b {
				dims[0], dims[1] = dims[1], dims[0]
			}
			name := map[bool]string{true: "_adjoint_a"}[a] + map[bool]string{true: "_adjoint_b"}[b]
			cases(numericCase{"SparseTensorDenseMatMul product" + name, []input{values, normal(dims...)}, one(func(s *scope, x outs) tf.Output {
				return raw.SparseTensorDenseMatMul(s, places(s), x[0], shape(s), x[1], raw.WithAdjointA(a), raw.WithAdjointB(b))
			}), caseOptions{}})
		}
	}
	return cases(
		numericCase{"SparseReorder", []input{values}, one(func(s *scope, x outs) tf.Output {
			_, v := raw.SparseReorder(s, raw.ReverseV2(s, places(s), ints(s, 0)), x[0], shape(s))
			return v
		}), linear},
		numericCase{"SparseAdd", []input{values, values}, one(func(s *scope, x outs) tf.Output {
			_, v, _ := raw.SparseAdd(s, places(s), x[0], shape(s), places(s), x[1], shape(s), scalar(s, 0.0))
			return v
		}), firstOnly},
		numericCase{"SparseTensorDenseAdd", []input{values, normal(3, 4)}, one(func(s *scope, x outs) tf.Output {
			return raw.SparseTensorDenseAdd(s, places(s), x[0], shape(s), x[1])
		}), linear},
		numericCase{"SparseReduceSum", []input{values}, one(func(s *scope, x outs) tf.Output {
			return raw.SparseReduceSum(s, places(s), x[0], shape(s), ints(s, -1))
		}), linear},
		numericCase{"SparseSoftmax", []input{values}, one(func(s *scope, x outs) tf.Output {
			return raw.SparseSoftmax(s, places(s), x[0], shape(s))
		}), firstOnly},
		numericCase{"SparseToDense", []input{values, normal()}, one(func(s *scope, x outs) tf.Output {
			return raw.SparseToDense(s, places(s), shape(s), x[0], x[1])
		}), linear},
		numericCase{"SparseToDense one_value", []input{normal(), normal()}, one(func(s *scope, x outs) tf.Output {
			return raw.SparseToDense(s, ints(s, 1, 3), ints(s, 5), shaped(s, x[0]), x[1])
		}), linear},
		numericCase{"SparseDenseCwiseMul", []input{values, normal(4)}, one(func(s *scope, x outs) tf.Output {
			return raw.SparseDenseCwiseMul(s, places(s), x[0], shape(s), x[1])
		}), firstOnly},
		numericCase{"SparseDenseCwiseDiv", []input{values, positive(3, 1)}, one(func(s *scope, x outs) tf.Output {
			return raw.SparseDenseCwiseDiv(s, places(s), x[0], shape(s), x[1])
		}), firstOnly},
	)
}()

// What can't be differentiated is said before a node is added.
func TestGradientsThatTensorFlowLacksAreRefused(t *testing.T) {
	places := func(s *scope) tf.Output { return constant[int64](s, bridge.Shape{1, 2}, 0, 1) }
	for name, build := range map[string]func(s *scope, x tf.Output) tf.Output{
		"SparseDenseCwiseAdd": func(s *scope, x tf.Output) tf.Output {
			return raw.SparseDenseCwiseAdd(s, places(s), raw.Reshape(s, x, ints(s, -1)), constant[int64](s, bridge.Shape{2}, 2, 2), constant(s, bridge.Shape{2}, 1.0, 2.0))
		},
		"Qr of unknown shape": func(s *scope, x tf.Output) tf.Output {
			q, _ := raw.Qr(s, x)
			return q
		},
		"Svd of unknown shape": func(s *scope, x tf.Output) tf.Output {
			_, u, _ := raw.Svd(s, x)
			return u
		},
		"MatrixSolveLs without fast": func(s *scope, x tf.Output) tf.Output {
			return raw.MatrixSolveLs(s, shaped(s, x, 1, 1), constant(s, bridge.Shape{1, 1}, 1.0), scalar(s, 0.1), raw.WithFast(false))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			x := s.placeholder(tf.Double, nil)
			y := build(s, x)
			require.NoError(t, s.err)
			before := bridge.NumOperations(s.g)
			_, err := gradients.Compute(s, outs{y}, nil, outs{x}, gradients.Options{})
			var missing *gradients.MissingGradientError
			require.ErrorAs(t, err, &missing)
			require.NotEmpty(t, missing.Ops[0].Reason, "the error says why")
			require.Equal(t, before, bridge.NumOperations(s.g), "nothing was added")
		})
	}
}
