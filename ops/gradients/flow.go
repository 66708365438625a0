package gradients

import (
	"fmt"
	"slices"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Operations that hand their inputs on, and those that stop a gradient.
func init() {
	same := func(c *Context) []Gradient { return c.Grads }
	for _, name := range []string{
		"Identity", "RefIdentity", "EnsureShape", "PlaceholderWithDefault", "Snapshot",
		"DebugGradientIdentity", "DebugGradientRefIdentity", "DebugIdentity", "DebugIdentityV2",
	} {
		Register(name, same)
	}
	// An output of IdentityN that nothing depends on has a gradient of zeros, as
	// in Python, not none.
	Register("IdentityN", func(c *Context) []Gradient {
		grads := slices.Clone(c.Grads)
		for i, g := range grads {
			dt := bridge.BaseDType(c.Output(i).DataType())
			if g.IsNone() && c.Wants(i) && (bridge.IsFloating(dt) || bridge.IsComplex(dt)) {
				grads[i].Dense = c.ZerosLike(c.Output(i))
			}
		}
		return grads
	})
	// Print hands its first input on and looks at the others.
	Register("Print", func(c *Context) []Gradient { return c.Grads[:1] })

	const message = "Not a number (NaN) or infinity (Inf) values detected in gradient. "
	Register("CheckNumerics", func(c *Context) []Gradient {
		return dense(raw.CheckNumerics(c, c.Grad(0), message+c.AttrString("message")))
	})
	Register("CheckNumericsV2", func(c *Context) []Gradient {
		return dense(raw.CheckNumericsV2(c, c.Grad(0), message+c.AttrString("message")))
	})

	// A gradient that arrives at PreventGradient is an error, found before
	// anything is built.
	Register("PreventGradient", same)
	RegisterCheck("PreventGradient", func(op *tf.Operation) error {
		why, err := bridge.AttrString(op, "message")
		if err != nil {
			return err
		}
		return fmt.Errorf("its gradient was disabled where it was made: %q", why)
	})

	RegisterNone(notDifferentiable...)
}

// notDifferentiable are the types that Python registers so, but for those that
// have a reason of their own beside their family.
var notDifferentiable = []string{
	"ApproximateEqual", "AsString", "Assert", "Assign", "AssignAdd", "AssignSub", "AudioMicrofrontend",
	"AudioSummary", "AudioSummaryV2", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BroadcastGradientArgs",
	"CTCBeamSearchDecoder", "CTCGreedyDecoder", "ConcatOffset", "Const", "DecodeBase64", "DecodePaddedRaw",
	"DecodeProtoV2", "DecodeRaw", "DeleteSessionTensor", "DenseToDenseSetOperation", "DenseToSparseSetOperation",
	"DrawBoundingBoxes", "EditDistance", "EncodeBase64", "EncodeProto", "Equal", "ExtractGlimpse",
	"FakeQuantWithMinMaxArgsGradient", "FakeQuantWithMinMaxVarsGradient", "FakeQuantWithMinMaxVarsPerChannelGradient",
	"FixedLengthRecordReader", "GenerateBoundingBoxProposals", "GenerateVocabRemapping", "GetSessionHandle",
	"GetSessionHandleV2", "GetSessionTensor", "Greater", "GreaterEqual", "HSVToRGB", "HashTable", "HashTableV2",
	"HistogramSummary", "IdentityReader", "ImageSummary", "InitializeTable", "InitializeTableFromTextFile",
	"InitializeTableFromTextFileV2", "InitializeTableV2", "Invert", "InvertPermutation", "LMDBReader", "LeftShift",
	"Less", "LessEqual", "LinSpace", "LoadAndRemapMatrix", "LogicalAnd", "LogicalNot", "LogicalOr", "LookupTableFind",
	"LookupTableFindV2", "LookupTableInsert", "LookupTableInsertV2", "LookupTableSize", "LookupTableSizeV2",
	"MergeSummary", "Multinomial", "MutableDenseHashTable", "MutableDenseHashTableV2", "MutableHashTable",
	"MutableHashTableOfTensors", "MutableHashTableOfTensorsV2", "MutableHashTableV2", "NonMaxSuppression",
	"NonMaxSuppressionV2", "NonMaxSuppressionWithOverlaps", "NotEqual", "OneHot", "OnesLike",
	"ParameterizedTruncatedNormal", "ParseTensor", "PopulationCount", "PyFunc", "PyFuncStateless", "QueueClose",
	"QueueDequeue", "QueueDequeueMany", "QueueDequeueUpTo", "QueueEnqueue", "QueueEnqueueMany", "QueueSize",
	"RaggedRange", "RandomCrop", "RandomIndexShuffle", "RandomShuffle", "RandomStandardNormal", "RandomUniform",
	"Range", "Rank", "ReaderNumRecordsProduced", "ReaderNumWorkUnitsCompleted", "ReaderRead", "ReaderReadUpTo",
	"ReaderReset", "ReaderRestoreState", "ReaderSerializeState", "ReduceDataset", "ReduceJoin", "RegexReplace",
	"ResizeBilinearGrad", "RightShift", "SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2", "ScalarSummary",
	"ScatterAdd", "ScatterDiv", "ScatterMul", "ScatterNdAdd", "ScatterNdSub", "ScatterNdUpdate", "ScatterSub",
	"SdcaFprint", "SdcaOptimizer", "SdcaOptimizerV2", "SdcaShrinkL1", "SerializeTensor", "SetSize", "Shape", "ShapeN",
	"Size", "SparseAddGrad", "SparseConcat", "SparseMatrixNNZ", "SparseMatrixZeros", "SparseToSparseSetOperation",
	"Stack", "StackClose", "StackPop", "StackPush", "StatelessMultinomial", "StatelessRandomBinomial",
	"StatelessRandomNormal", "StatelessRandomNormalV2", "StatelessRandomPoisson", "StatelessRandomUniform",
	"StatelessRandomUniformFullInt", "StatelessRandomUniformFullIntV2", "StatelessRandomUniformInt",
	"StatelessRandomUniformIntV2", "StatelessRandomUniformV2", "StatelessTruncatedNormal",
	"StatelessTruncatedNormalV2", "StopGradient", "StringJoin", "StringSplit", "StringToHashBucket",
	"StringToHashBucketFast", "StringToHashBucketStrong", "StringToNumber", "TFRecordReader", "TPUReplicatedInput",
	"TensorArray", "TensorArrayClose", "TensorArrayCloseV2", "TensorArrayCloseV3", "TensorArrayGrad",
	"TensorArrayGradV2", "TensorArrayGradV3", "TensorArrayGradWithShape", "TensorArraySize", "TensorArraySizeV2",
	"TensorArraySizeV3", "TensorArrayV2", "TensorArrayV3", "TensorListConcatLists", "TensorListElementShape",
	"TensorListLength", "TensorListPushBackBatch", "TensorSummary", "TensorSummaryV2", "TextLineReader", "Timestamp",
	"TruncatedNormal", "VarIsInitializedOp", "VariableShape", "WholeFileReader", "XlaVariadicReduce", "ZerosLike",
}
