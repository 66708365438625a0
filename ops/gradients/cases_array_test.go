package gradients_test

import (
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// squared makes the gradient depend on x, so that second order says something.
func squared(f func(s *scope, x outs) tf.Output) func(*scope, outs) outs {
	return one(func(s *scope, x outs) tf.Output { return raw.Square(s, f(s, x)) })
}

// arrayCase is a case of an operation that moves elements, squared afterwards.
func arrayCase(op string, f func(s *scope, x outs) tf.Output, in ...input) numericCase {
	return numericCase{op: op, in: in, ys: squared(f)}
}

// computed hides a constant from static evaluation.
func computed(s *scope, t tf.Output) tf.Output { return raw.Add(s, t, raw.ZerosLike(s, t)) }

// pairs is an int32 constant of shape [n, 2].
func pairs(s *scope, v ...int32) tf.Output {
	return constant(s, bridge.Shape{int64(len(v) / 2), 2}, v...)
}

// either runs a case with an argument known before a run, and computed in it.
func either(op string, f func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output, in ...input) {
	cases(
		arrayCase(op, func(s *scope, x outs) tf.Output {
			return f(s, x, func(t tf.Output) tf.Output { return t })
		}, in...),
		arrayCase(op+" computed", func(s *scope, x outs) tf.Output {
			return f(s, x, func(t tf.Output) tf.Output { return computed(s, t) })
		}, in...),
	)
}

var _ = func() bool {
	either("Reshape", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.Reshape(s, x[0], hide(ints(s, 3, -1)))
	}, normal(2, 3))
	either("Transpose", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.Transpose(s, x[0], hide(ints(s, 2, 0, 1)))
	}, normal(2, 3, 2))
	either("Tile", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.Mul(s, raw.Tile(s, x[0], hide(ints(s, 2, 3))), raw.Reshape(s, raw.Range(s, scalar(s, 0.0), scalar(s, 24.0), scalar(s, 1.0)), ints(s, 4, 6)))
	}, normal(2, 2))
	either("BroadcastTo", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.BroadcastTo(s, x[0], hide(ints(s, 2, 3, 2)))
	}, normal(3, 1))
	either("Fill", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.Fill(s, hide(ints(s, 2, 3)), x[0])
	}, normal())
	either("ReverseV2", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.ReverseV2(s, x[0], hide(ints(s, 1)))
	}, normal(2, 3))
	either("Roll", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.Roll(s, x[0], hide(ints(s, 1, -2)), ints(s, 0, 1))
	}, normal(2, 3))
	either("Pad", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.Pad(s, x[0], hide(pairs(s, 1, 0, 2, 1)))
	}, normal(2, 2))
	either("MirrorPad", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.MirrorPad(s, x[0], hide(pairs(s, 1, 0, 1, 1)), "REFLECT")
	}, normal(2, 3))
	either("MirrorPad symmetric", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.MirrorPad(s, x[0], hide(pairs(s, 2, 1, 1, 1)), "SYMMETRIC")
	}, normal(2, 3))
	either("Slice", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.Slice(s, x[0], hide(ints(s, 1, 0)), ints(s, -1, 2))
	}, normal(3, 3))
	either("StridedSlice", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.StridedSlice(s, x[0], hide(ints(s, 2, 0)), ints(s, 0, 0), ints(s, -1, 1),
			raw.WithEndMask(2), raw.WithShrinkAxisMask(2))
	}, normal(3, 3))
	either("StridedSlice masks", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.StridedSlice(s, x[0], hide(ints(s, 1, 0, 0)), ints(s, 2, 0, 0), ints(s, 1, 1, 1),
			raw.WithEllipsisMask(2), raw.WithNewAxisMask(4))
	}, normal(3, 3))
	either("TensorStridedSliceUpdate", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.TensorStridedSliceUpdate(s, x[0], hide(ints(s, 1)), ints(s, 3), ints(s, 1), x[1])
	}, normal(4, 2), normal(2, 2))
	for _, n := range []int{1, 2, 3} {
		in := []input{normal(2, 1, 2), normal(2, 3, 2), normal(2, 2, 2)}[:n]
		either(fmt.Sprint("ConcatV2 of ", n), func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
			if n == 1 { // ConcatV2 takes two and more
				return raw.ConcatV2(s, outs{x[0], x[0]}, hide(scalar(s, int32(-2))))
			}
			return raw.ConcatV2(s, x, hide(scalar(s, int32(-2))))
		}, in...)
	}
	either("GatherV2", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.GatherV2(s, x[0], ints(s, 2, 0, 2), hide(scalar(s, int32(0))))
	}, normal(3, 2))
	either("GatherV2 matrix_of_indices", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.GatherV2(s, x[0], pairs(s, 2, 0, 2, 1), hide(scalar(s, int32(0))))
	}, normal(3, 2))
	either("GatherV2 inner_axis", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.GatherV2(s, x[0], pairs(s, 2, 0, 2, 1), hide(scalar(s, int32(-2))))
	}, normal(2, 3, 2))
	either("GatherV2 scalar_index", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.GatherV2(s, x[0], scalar(s, int32(1)), hide(scalar(s, int32(1))))
	}, normal(2, 3))
	either("GatherV2 batch", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.GatherV2(s, x[0], pairs(s, 2, 0, 1, 1), hide(scalar(s, int32(1))), raw.WithBatchDims(1))
	}, normal(2, 3, 2))
	either("GatherV2 batch_inner_axis", func(s *scope, x outs, hide func(tf.Output) tf.Output) tf.Output {
		return raw.GatherV2(s, x[0], pairs(s, 2, 0, 1, 1), hide(scalar(s, int32(2))), raw.WithBatchDims(-1))
	}, normal(2, 2, 3, 2))

	return cases(
		arrayCase("ExpandDims", func(s *scope, x outs) tf.Output { return raw.ExpandDims(s, x[0], scalar(s, int32(1))) }, normal(2, 3)),
		arrayCase("Squeeze", func(s *scope, x outs) tf.Output { return raw.Squeeze(s, x[0]) }, normal(2, 1, 3)),
		arrayCase("Squeeze dims", func(s *scope, x outs) tf.Output {
			return raw.Squeeze(s, x[0], raw.WithSqueezeDims([]int64{-2}))
		}, normal(2, 1, 3)),
		arrayCase("Reverse", func(s *scope, x outs) tf.Output {
			return raw.Reverse(s, x[0], constant(s, bridge.Shape{2}, true, false))
		}, normal(2, 3)),
		arrayCase("ReverseSequence", func(s *scope, x outs) tf.Output {
			return raw.ReverseSequence(s, x[0], constant[int64](s, bridge.Shape{2}, 3, 2), 0, raw.WithBatchDim(1))
		}, normal(3, 2, 2)),
		arrayCase("PadV2", func(s *scope, x outs) tf.Output {
			return raw.PadV2(s, x[0], pairs(s, 1, 0, 2, 1), scalar(s, 3.0))
		}, normal(2, 2)),
		arrayCase("StridedSliceGrad", func(s *scope, x outs) tf.Output {
			return raw.StridedSliceGrad(s, ints(s, 3, 3), ints(s, 1), ints(s, 3), ints(s, 1), x[0])
		}, normal(2, 3)),
		arrayCase("MirrorPadGrad", func(s *scope, x outs) tf.Output {
			return raw.MirrorPadGrad(s, x[0], pairs(s, 1, 1), "REFLECT")
		}, normal(5)),
		arrayCase("SpaceToBatch", func(s *scope, x outs) tf.Output {
			return raw.SpaceToBatch(s, x[0], pairs(s, 0, 1, 1, 0), 2)
		}, normal(1, 3, 3, 1)),
		arrayCase("BatchToSpace", func(s *scope, x outs) tf.Output {
			return raw.BatchToSpace(s, x[0], pairs(s, 0, 1, 1, 0), 2)
		}, normal(4, 2, 2, 1)),
		arrayCase("SpaceToBatchND", func(s *scope, x outs) tf.Output {
			return raw.SpaceToBatchND(s, x[0], ints(s, 2, 3), pairs(s, 0, 1, 0, 0))
		}, normal(1, 3, 3)),
		arrayCase("BatchToSpaceND", func(s *scope, x outs) tf.Output {
			return raw.BatchToSpaceND(s, x[0], ints(s, 2, 1), pairs(s, 0, 1, 0, 0))
		}, normal(2, 2, 3)),
		arrayCase("SpaceToDepth", func(s *scope, x outs) tf.Output { return raw.SpaceToDepth(s, x[0], 2) }, normal(1, 2, 4, 1)),
		arrayCase("DepthToSpace", func(s *scope, x outs) tf.Output { return raw.DepthToSpace(s, x[0], 2) }, normal(1, 1, 2, 4)),

		numericCase{"Pack", []input{normal(2, 2), normal(2, 2)}, squared(func(s *scope, x outs) tf.Output {
			return raw.Pack(s, x, raw.WithAxis(-1))
		}), caseOptions{}},
		numericCase{"Unpack", []input{normal(2, 3)}, func(s *scope, x outs) outs {
			return raw.Unpack(s, raw.Square(s, x[0]), 3, raw.WithAxis(1))
		}, caseOptions{}},
		numericCase{"Unpack one_output_used", []input{normal(2, 3)}, func(s *scope, x outs) outs {
			return outs{raw.Square(s, raw.Unpack(s, x[0], 3, raw.WithAxis(1))[1])}
		}, caseOptions{}},
		numericCase{"Split", []input{normal(2, 4)}, func(s *scope, x outs) outs {
			return raw.Split(s, scalar(s, int32(1)), raw.Square(s, x[0]), 2)
		}, caseOptions{}},
		numericCase{"Split one_output_used", []input{normal(2, 4)}, func(s *scope, x outs) outs {
			return outs{raw.Square(s, raw.Split(s, scalar(s, int32(1)), x[0], 2)[1])}
		}, caseOptions{}},
		numericCase{"SplitV", []input{normal(2, 4)}, func(s *scope, x outs) outs {
			return raw.SplitV(s, raw.Square(s, x[0]), ints(s, 1, -1), scalar(s, int32(1)), 2)
		}, caseOptions{}},
		arrayCase("Concat", func(s *scope, x outs) tf.Output { return raw.Concat(s, scalar(s, int32(1)), x) }, normal(2, 1), normal(2, 3)),
		numericCase{"DynamicPartition", []input{normal(4, 2)}, func(s *scope, x outs) outs {
			return raw.DynamicPartition(s, raw.Square(s, x[0]), ints(s, 1, 0, 1, 2), 3)
		}, caseOptions{}},
		arrayCase("DynamicStitch", func(s *scope, x outs) tf.Output {
			return raw.DynamicStitch(s, outs{ints(s, 0, 3), ints(s, 2, 1)}, x)
		}, normal(2, 2), normal(2, 2)),
		arrayCase("ParallelDynamicStitch", func(s *scope, x outs) tf.Output {
			return raw.ParallelDynamicStitch(s, outs{ints(s, 0, 3), ints(s, 2, 1)}, x)
		}, normal(2, 2), normal(2, 2)),

		arrayCase("Gather", func(s *scope, x outs) tf.Output { return raw.Gather(s, x[0], pairs(s, 2, 0, 2, 1)) }, normal(3, 2)),
		arrayCase("GatherNd", func(s *scope, x outs) tf.Output { return raw.GatherNd(s, x[0], pairs(s, 2, 0, 2, 1, 2, 0)) }, normal(3, 2)),
		arrayCase("GatherNd rows", func(s *scope, x outs) tf.Output {
			return raw.GatherNd(s, x[0], constant[int32](s, bridge.Shape{3, 1}, 2, 0, 2))
		}, normal(3, 2)),
		arrayCase("ScatterNd", func(s *scope, x outs) tf.Output {
			return raw.ScatterNd(s, constant[int32](s, bridge.Shape{3, 1}, 2, 0, 2), x[0], ints(s, 4, 2))
		}, normal(3, 2)),
		arrayCase("ScatterNdNonAliasingAdd", func(s *scope, x outs) tf.Output {
			return raw.ScatterNdNonAliasingAdd(s, x[0], constant[int32](s, bridge.Shape{2, 1}, 2, 0), x[1])
		}, normal(3, 2), normal(2, 2)),
		arrayCase("TensorScatterUpdate", func(s *scope, x outs) tf.Output {
			return raw.TensorScatterUpdate(s, x[0], constant[int32](s, bridge.Shape{2, 1}, 2, 0), x[1])
		}, normal(3, 2), normal(2, 2)),
		arrayCase("TensorScatterAdd", func(s *scope, x outs) tf.Output {
			return raw.TensorScatterAdd(s, x[0], constant[int32](s, bridge.Shape{2, 1}, 2, 2), x[1])
		}, normal(3, 2), normal(2, 2)),
		arrayCase("TensorScatterSub", func(s *scope, x outs) tf.Output {
			return raw.TensorScatterSub(s, x[0], constant[int32](s, bridge.Shape{2, 1}, 2, 2), x[1])
		}, normal(3, 2), normal(2, 2)),
		arrayCase("TensorScatterMax", func(s *scope, x outs) tf.Output {
			return raw.TensorScatterMax(s, x[0], constant[int32](s, bridge.Shape{3, 1}, 2, 2, 0), x[1])
		}, normal(3, 2), normal(3, 2)),
		arrayCase("TensorScatterMin", func(s *scope, x outs) tf.Output {
			return raw.TensorScatterMin(s, x[0], constant[int32](s, bridge.Shape{3, 1}, 2, 2, 0), x[1])
		}, normal(3, 2), normal(3, 2)),
		arrayCase("TopKV2", func(s *scope, x outs) tf.Output {
			values, _ := raw.TopKV2(s, x[0], scalar(s, int32(2)))
			return values
		}, normal(2, 2, 4)),
		arrayCase("TopKV2 of_a_vector", func(s *scope, x outs) tf.Output {
			values, _ := raw.TopKV2(s, x[0], scalar(s, int32(2)))
			return values
		}, normal(4)),
		arrayCase("NthElement", func(s *scope, x outs) tf.Output {
			return raw.NthElement(s, x[0], scalar(s, int32(1)))
		}, normal(2, 4)),

		arrayCase("EnsureShape", func(s *scope, x outs) tf.Output { return raw.EnsureShape(s, x[0], bridge.Shape{-1, 2}) }, normal(2, 2)),
		arrayCase("PlaceholderWithDefault", func(s *scope, x outs) tf.Output {
			return raw.PlaceholderWithDefault(s, x[0], nil)
		}, normal(2, 2)),
		numericCase{"IdentityN", []input{normal(2), normal(3)}, func(s *scope, x outs) outs {
			return raw.IdentityN(s, outs{raw.Square(s, x[0]), x[1]})
		}, caseOptions{}},
		arrayCase("CheckNumerics", func(s *scope, x outs) tf.Output { return raw.CheckNumerics(s, x[0], "x") }, normal(2)),
		arrayCase("CheckNumericsV2", func(s *scope, x outs) tf.Output { return raw.CheckNumericsV2(s, x[0], "x") }, normal(2)),
		arrayCase("Print", func(s *scope, x outs) tf.Output {
			return raw.Print(s, x[0], outs{x[0]}, raw.WithFirstN(0))
		}, normal(2)),
		arrayCase("DebugIdentityV2", func(s *scope, x outs) tf.Output { return raw.DebugIdentityV2(s, x[0]) }, normal(2)),

		arrayCase("SegmentSum", segmentCase(raw.SegmentSum), normal(4, 2)),
		arrayCase("SegmentMean", segmentCase(raw.SegmentMean), normal(4, 2)),
		arrayCase("SegmentMax", segmentCase(raw.SegmentMax), normal(4, 2)),
		arrayCase("SegmentMin", segmentCase(raw.SegmentMin), normal(4, 2)),
		arrayCase("SegmentProd", segmentCase(raw.SegmentProd), normal(4, 2)),
		numericCase{"SegmentProd with_zeros", []input{exactly(2, 0, 3, 0, 0, 1.5, 1, 2).reshaped(4, 2)}, one(segmentCase(raw.SegmentProd)), firstOnly},
		arrayCase("UnsortedSegmentSum", unsortedCase(raw.UnsortedSegmentSum), normal(4, 2)),
		arrayCase("UnsortedSegmentMax", unsortedCase(raw.UnsortedSegmentMax), normal(4, 2)),
		arrayCase("UnsortedSegmentMin", unsortedCase(raw.UnsortedSegmentMin), normal(4, 2)),
		arrayCase("UnsortedSegmentProd", unsortedCase(raw.UnsortedSegmentProd), normal(4, 2)),
		numericCase{"UnsortedSegmentProd with_zeros", []input{exactly(2, 0, 3, 0, 0, 1.5, 1, 2).reshaped(4, 2)}, one(unsortedCase(raw.UnsortedSegmentProd)), firstOnly},
		arrayCase("UnsortedSegmentSum ids_of_rank_2", func(s *scope, x outs) tf.Output {
			return raw.UnsortedSegmentSum(s, x[0], pairs(s, 1, 0, 1, -1), scalar(s, int32(2)))
		}, normal(2, 2, 2)),
		arrayCase("SegmentSum complex", func(s *scope, x outs) tf.Output {
			return realPart(s, raw.Square(s, raw.SegmentSum(s, toComplex(s, x[0], x[1]), ints(s, 0, 0, 1))))
		}, normal(3), normal(3)),

		numericCase{"SparseSegmentSum", []input{normal(3, 2)}, one(sparseSegmentCase(raw.SparseSegmentSum)), linear},
		numericCase{"SparseSegmentMean", []input{normal(3, 2)}, one(sparseSegmentCase(raw.SparseSegmentMean)), linear},
		numericCase{"SparseSegmentSqrtN", []input{normal(3, 2)}, one(sparseSegmentCase(raw.SparseSegmentSqrtN)), linear},
		numericCase{"SparseSegmentSumWithNumSegments", []input{normal(3, 2)}, one(func(s *scope, x outs) tf.Output {
			return raw.SparseSegmentSumWithNumSegments(s, x[0], ints(s, 0, 2, 0), ints(s, 0, 0, 1), scalar(s, int32(4)))
		}), linear},
		numericCase{"SparseSegmentMeanWithNumSegments", []input{normal(3, 2)}, one(func(s *scope, x outs) tf.Output {
			return raw.SparseSegmentMeanWithNumSegments(s, x[0], ints(s, 0, 2, 0), ints(s, 0, 0, 1), scalar(s, int32(4)))
		}), linear},
		numericCase{"SparseSegmentSqrtNWithNumSegments", []input{normal(3, 2)}, one(func(s *scope, x outs) tf.Output {
			return raw.SparseSegmentSqrtNWithNumSegments(s, x[0], ints(s, 0, 2, 0), ints(s, 0, 0, 1), scalar(s, int32(4)))
		}), linear},
	)
}()

func segmentCase(f binaryFunc) func(*scope, outs) tf.Output {
	return func(s *scope, x outs) tf.Output { return f(s, x[0], ints(s, 0, 0, 1, 1)) }
}

type ternaryFunc = func(raw.Builder, tf.Output, tf.Output, tf.Output, ...raw.Attr) tf.Output

// unsortedCase has a dropped row (id -1) and a segment without rows, whose
// extreme is left out: it is not finite.
func unsortedCase(f ternaryFunc) func(*scope, outs) tf.Output {
	return func(s *scope, x outs) tf.Output {
		y := f(s, x[0], ints(s, 1, 0, -1, 1), scalar(s, int32(3)))
		return raw.Slice(s, y, ints(s, 0, 0), ints(s, 2, 2))
	}
}

func sparseSegmentCase(f ternaryFunc) func(*scope, outs) tf.Output {
	return func(s *scope, x outs) tf.Output { return f(s, x[0], ints(s, 0, 2, 0), ints(s, 0, 0, 1)) }
}
