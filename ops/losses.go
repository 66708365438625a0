package ops

import (
	"fmt"
	"math"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
)

// Reduction is how the losses of the single samples become one number.
type Reduction int

// The reductions, by Keras' names.
const (
	// SumOverBatchSize is the sum divided by the number of losses, whatever
	// their weights: Keras' "sum_over_batch_size", the default. 0 for an empty
	// batch.
	SumOverBatchSize Reduction = iota
	// Sum is the sum.
	Sum
	// MeanWithSampleWeight is the sum divided by the sum of the weights; as
	// SumOverBatchSize where no weights are given. 0 where they sum to 0.
	MeanWithSampleWeight
	// NoReduction leaves one loss a sample.
	NoReduction
)

// LossOptions are the settings of a loss. The zero value is Keras' default.
type LossOptions struct {
	// Weights multiply the losses of the samples, and broadcast over them: a
	// scalar, [batch], or any shape of the unreduced losses; [batch, 1] and
	// [batch] are taken for each other. Keras' sample_weight.
	Weights tf.Output
	// Reduction is SumOverBatchSize by default.
	Reduction Reduction
	// FromLogits says that predictions are logits, not probabilities: the
	// numerically better way. Cross entropies only.
	FromLogits bool
	// LabelSmoothing, from 0 to 1, moves that much of each label's weight to
	// all classes alike. Categorical and binary cross entropy only.
	LabelSmoothing float64
	// Axis is the axis of the classes, and of the mean where a loss has one;
	// 0 stands for the last. Categorical and binary cross entropy and cosine
	// similarity only.
	Axis int
	// IgnoreClass, where it is not nil, is a label whose samples count neither
	// in the sum nor in the number of losses. Sparse categorical cross entropy
	// only; new(-1) ignores the label -1.
	IgnoreClass *int
	// Delta is where [Huber] goes from square to linear; 0 stands for 1.
	Delta float64
	// Collect adds the loss to the collection LOSSES.
	Collect bool
	// Name is the name scope of the loss; empty: the loss's own.
	Name string
}

// epsilon keeps logarithms and divisions finite, keras.config.epsilon().
const epsilon = 1e-7

// MeanSquaredError is mean((label - prediction)²) over the last axis:
// [batch, …, n] to [batch, …] before the reduction. keras.losses.MeanSquaredError.
//
// For this and every loss here: labels and predictions have one shape, except
// that a last dimension of 1 may be missing in one of them; labels are cast to
// the dtype of predictions, which is floating and also the dtype of the loss;
// the result is a scalar unless the reduction is NoReduction.
func MeanSquaredError(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "mean_squared_error", labels, predictions, options, func(l *loss) tf.Output {
		return l.mean(l.Square(l.Sub(l.labels, l.predictions)))
	})
}

// MeanAbsoluteError is mean(|label - prediction|) over the last axis.
// keras.losses.MeanAbsoluteError.
func MeanAbsoluteError(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "mean_absolute_error", labels, predictions, options, func(l *loss) tf.Output {
		return l.mean(l.Abs(l.Sub(l.labels, l.predictions)))
	})
}

// MeanAbsolutePercentageError is 100 · mean(|label - prediction| /
// max(|label|, 1e-7)) over the last axis. keras.losses.MeanAbsolutePercentageError.
func MeanAbsolutePercentageError(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "mean_absolute_percentage_error", labels, predictions, options, func(l *loss) tf.Output {
		scale := l.Maximum(l.Abs(l.labels), l.Constant(epsilon))
		return l.Mul(l.Constant(100), l.mean(l.Abs(l.Div(l.Sub(l.labels, l.predictions), scale))))
	})
}

// MeanSquaredLogarithmicError is mean((log(1 + label) - log(1 + prediction))²)
// over the last axis, with both at least 1e-7.
// keras.losses.MeanSquaredLogarithmicError.
func MeanSquaredLogarithmicError(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "mean_squared_logarithmic_error", labels, predictions, options, func(l *loss) tf.Output {
		log := func(x tf.Output) tf.Output {
			return l.Log(l.Add(l.Maximum(x, l.Constant(epsilon)), l.Constant(1)))
		}
		return l.mean(l.Square(l.Sub(log(l.predictions), log(l.labels))))
	})
}

// Huber is e²/2 for errors e up to Delta and Delta·|e| - Delta²/2 beyond,
// averaged over the last axis. keras.losses.Huber.
func Huber(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "huber", labels, predictions, options, func(l *loss) tf.Output {
		delta := l.Constant(l.options.Delta)
		half := l.Constant(0.5)
		e := l.Sub(l.predictions, l.labels)
		size := l.Abs(e)
		square := l.Mul(half, l.Square(e))
		linear := l.Sub(l.Mul(delta, size), l.Mul(half, l.Square(delta)))
		return l.mean(l.Select(l.LessEqual(size, delta), square, linear))
	})
}

// LogCosh is log(cosh(prediction - label)), averaged over the last axis: half
// the square for small errors and |e| - log 2 for large ones.
// keras.losses.LogCosh.
func LogCosh(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "log_cosh", labels, predictions, options, func(l *loss) tf.Output {
		e := l.Sub(l.predictions, l.labels)
		return l.mean(l.Sub(l.Add(e, l.Softplus(l.Mul(e, l.Constant(-2)))), l.Constant(math.Ln2)))
	})
}

// Hinge is max(1 - label·prediction, 0), averaged over the last axis. Labels
// are -1 or 1; where all of them are 0 or 1, 0 stands for -1, as in Keras.
// keras.losses.Hinge.
func Hinge(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "hinge", labels, predictions, options, func(l *loss) tf.Output {
		return l.mean(l.hinge())
	})
}

// SquaredHinge is the square of [Hinge]'s loss, averaged over the last axis.
// keras.losses.SquaredHinge.
func SquaredHinge(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "squared_hinge", labels, predictions, options, func(l *loss) tf.Output {
		return l.mean(l.Square(l.hinge()))
	})
}

// CategoricalHinge is max(1 + neg - pos, 0), where pos is the prediction for
// the labelled class and neg the largest for another one: labels and
// predictions [batch, …, classes]. keras.losses.CategoricalHinge.
func CategoricalHinge(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "categorical_hinge", labels, predictions, options, func(l *loss) tf.Output {
		one := l.Constant(1)
		pos := l.sum(l.Mul(l.labels, l.predictions))
		neg := raw.Max(l.Scope, l.Mul(l.Sub(one, l.labels), l.predictions), l.axes(-1))
		return l.Maximum(l.Add(l.Sub(neg, pos), one), l.Constant(0))
	})
}

// KLDivergence is sum(label · log(label / prediction)) over the last axis, with
// both clipped to [1e-7, 1]. keras.losses.KLDivergence.
func KLDivergence(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "kl_divergence", labels, predictions, options, func(l *loss) tf.Output {
		low, one := l.Constant(epsilon), l.Constant(1)
		label, prediction := l.Clip(l.labels, low, one), l.Clip(l.predictions, low, one)
		return l.sum(l.Mul(label, l.Log(l.Div(label, prediction))))
	})
}

// Poisson is mean(prediction - label · log(prediction + 1e-7)) over the last
// axis. keras.losses.Poisson.
func Poisson(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "poisson", labels, predictions, options, func(l *loss) tf.Output {
		return l.mean(l.Sub(l.predictions, l.Mul(l.labels, l.Log(l.Add(l.predictions, l.Constant(epsilon))))))
	})
}

// CosineSimilarity is the negative cosine of the angle between label and
// prediction along Axis: -1 for the same direction. keras.losses.CosineSimilarity.
func CosineSimilarity(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "cosine_similarity", labels, predictions, options, func(l *loss) tf.Output {
		axis := l.axes(l.options.Axis)
		unit := func(x tf.Output) tf.Output {
			square := raw.Sum(l.Scope, l.Square(x), axis, raw.WithKeepDims(true))
			return l.Mul(x, l.Minimum(l.Rsqrt(square), l.Constant(1/epsilon)))
		}
		return l.Neg(raw.Sum(l.Scope, l.Mul(unit(l.labels), unit(l.predictions)), axis))
	})
}

// CategoricalCrossEntropy is -sum(label · log p) over the classes, with labels
// and predictions [batch, …, classes]. Probabilities are divided by their sum
// and clipped to [1e-7, 1 - 1e-7]; logits (FromLogits) need neither.
// keras.losses.CategoricalCrossentropy.
func CategoricalCrossEntropy(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "categorical_crossentropy", labels, predictions, options, func(l *loss) tf.Output {
		label := l.labels
		if smooth := l.options.LabelSmoothing; smooth != 0 {
			classes := l.Cast(l.dimension(label, -1))
			label = l.Add(l.Mul(label, l.Constant(1-smooth)), l.Div(l.Constant(smooth), classes))
		}
		if l.options.FromLogits {
			return l.softmaxCrossEntropy(label, l.predictions)
		}
		axis := l.axes(l.options.Axis)
		p := l.Div(l.predictions, raw.Sum(l.Scope, l.predictions, axis, raw.WithKeepDims(true)))
		return l.Neg(raw.Sum(l.Scope, l.Mul(label, l.Log(l.clipProbability(p))), axis))
	})
}

// SparseCategoricalCrossEntropy is the cross entropy with integer labels:
// -log p[label]. Labels are [batch, …] of an integer dtype, or [batch, …, 1];
// predictions are [batch, …, classes], probabilities clipped to
// [1e-7, 1 - 1e-7] or logits (FromLogits). A label that is no class is an
// error of the run. keras.losses.SparseCategoricalCrossentropy.
func SparseCategoricalCrossEntropy(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return sparseLoss(s, "sparse_categorical_crossentropy", labels, predictions, options, func(l *loss) tf.Output {
		labels, logits := l.labels, l.predictions
		if ignore := l.options.IgnoreClass; ignore != nil {
			class := l.Of(labels.DataType())
			l.counted = l.NotEqual(labels, class.Constant(float64(*ignore)))
			labels = l.Select(l.counted, labels, class.Constant(0))
			logits = l.Select(raw.ExpandDims(l.Scope, l.counted, l.scalar(-1)), logits, l.Constant(0))
		}
		if !l.options.FromLogits {
			logits = l.Log(l.clipProbability(logits))
		}
		entropy := l.sparseSoftmaxCrossEntropy(labels, logits)
		if l.counted.Op != nil {
			entropy = l.Select(l.counted, entropy, l.Constant(0))
		}
		return entropy
	})
}

// BinaryCrossEntropy is -(label·log p + (1 - label)·log(1 - p)), averaged over
// Axis; p is clipped to [1e-7, 1 - 1e-7], or the sigmoid of a logit
// (FromLogits). keras.losses.BinaryCrossentropy.
func BinaryCrossEntropy(s *Scope, labels, predictions tf.Output, options ...LossOptions) tf.Output {
	return lossOf(s, "binary_crossentropy", labels, predictions, options, func(l *loss) tf.Output {
		label, one, zero := l.labels, l.Constant(1), l.Constant(0)
		if smooth := l.options.LabelSmoothing; smooth != 0 {
			label = l.Add(l.Mul(label, l.Constant(1-smooth)), l.Constant(smooth/2))
		}
		var entropy tf.Output
		if l.options.FromLogits {
			// max(x, 0) - x·label + log(1 + exp(-|x|)), finite for every x
			x := l.predictions
			positive := l.GreaterEqual(x, zero)
			size := l.Select(positive, l.Neg(x), x)
			entropy = l.Add(l.Sub(l.Select(positive, x, raw.ZerosLike(l.Scope, x)), l.Mul(x, label)), l.Log1p(l.Exp(size)))
		} else {
			p := l.clipProbability(l.predictions)
			entropy = l.Neg(l.Add(l.Mul(label, l.Log(p)), l.Mul(l.Sub(one, label), l.Log(l.Sub(one, p)))))
		}
		return raw.Mean(l.Scope, entropy, l.axes(l.options.Axis))
	})
}

// SparseSoftmaxCrossEntropy is the mean cross entropy of logits
// [batch, …, classes] and integer labels [batch, …], a scalar: what a
// classifier minimizes. It is NaN for an empty batch; a label that is no class
// is an error of the run. Python's
// tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)).
func SparseSoftmaxCrossEntropy(s *Scope, logits, labels tf.Output) tf.Output {
	return sparseLoss(s, "sparse_softmax_cross_entropy", labels, logits, []LossOptions{{Reduction: NoReduction}}, func(l *loss) tf.Output {
		each := l.sparseSoftmaxCrossEntropy(l.labels, l.predictions)
		return raw.Mean(l.Scope, each, l.allAxes(each))
	})
}

// loss is one loss under construction.
type loss struct {
	Formula
	labels, predictions tf.Output
	options             LossOptions
	counted             tf.Output // bool, which losses count; zero: all
}

// lossOf builds a loss whose labels have the dtype and rank of predictions.
func lossOf(s *Scope, name string, labels, predictions tf.Output, options []LossOptions, values func(*loss) tf.Output) tf.Output {
	return buildLoss(s, name, labels, predictions, options, func(l *loss) tf.Output {
		l.labels = l.Cast(l.labels)
		l.labels, l.predictions = l.sameRank(l.labels, l.predictions)
		have, want := bridge.ShapeOf(l.labels), bridge.ShapeOf(l.predictions)
		if bridge.Valid(l.labels) && !have.CompatibleWith(want) {
			l.Scope.fail(name, fmt.Errorf("labels have shape %v and predictions %v: wanted the same", have, want))
			return tf.Output{}
		}
		if want.Rank() == 0 {
			l.Scope.fail(name, fmt.Errorf("predictions are a scalar: wanted [batch, …]"))
			return tf.Output{}
		}
		return values(l)
	})
}

// sparseLoss builds a loss whose labels are class numbers.
func sparseLoss(s *Scope, name string, labels, predictions tf.Output, options []LossOptions, values func(*loss) tf.Output) tf.Output {
	return buildLoss(s, name, labels, predictions, options, func(l *loss) tf.Output {
		switch dt := l.labels.DataType(); {
		case dt == tf.Int32 || dt == tf.Int64:
		case bridge.IsInteger(dt) || bridge.IsFloating(dt): // Keras takes floats too
			l.labels = Cast(l.Scope, l.labels, tf.Int64)
		default:
			l.Scope.fail(name, fmt.Errorf("labels are class numbers of an integer dtype, not %s", bridge.DTypeName(dt)))
			return tf.Output{}
		}
		classes, label := bridge.ShapeOf(l.predictions), bridge.ShapeOf(l.labels)
		if n := label.Rank(); n > 0 && n == classes.Rank() && label[n-1] == 1 {
			l.labels = raw.Squeeze(l.Scope, l.labels, raw.WithSqueezeDims([]int64{-1}))
			label = label[:n-1]
		}
		switch {
		case classes.Rank() == 0:
			l.Scope.fail(name, fmt.Errorf("predictions are a scalar: wanted [batch, …, classes]"))
		case classes != nil && !label.CompatibleWith(classes[:len(classes)-1]):
			l.Scope.fail(name, fmt.Errorf("labels have shape %v, predictions %v: wanted labels of shape %v", label, classes, classes[:len(classes)-1]))
		case l.options.Axis != -1 && l.options.Axis != classes.Rank()-1:
			l.Scope.fail(name, fmt.Errorf("axis %d: the classes are on the last axis", l.options.Axis))
		default:
			return values(l)
		}
		return tf.Output{}
	})
}

func buildLoss(s *Scope, name string, labels, predictions tf.Output, options []LossOptions, values func(*loss) tf.Output) tf.Output {
	if !s.ok() {
		return tf.Output{}
	}
	l := &loss{labels: labels, predictions: predictions}
	if len(options) == 1 {
		l.options = options[0]
	}
	if l.options.Axis == 0 {
		l.options.Axis = -1
	}
	if l.options.Delta == 0 {
		l.options.Delta = 1
	}
	if err := l.check(len(options)); err != nil {
		s.fail(name, err)
		return tf.Output{}
	}
	if l.options.Name != "" {
		name = l.options.Name
	}
	l.Formula = NewFormula(s.NameScope(name), predictions.DataType())
	result := l.reduce(values(l))
	if l.options.Collect && bridge.Valid(result) {
		s.graph.AddToCollection(Losses, result)
	}
	return result
}

func (l *loss) check(options int) error {
	o := l.options
	switch {
	case options > 1:
		return fmt.Errorf("%d LossOptions given, wanted at most one", options)
	case !bridge.Valid(l.labels):
		return fmt.Errorf("labels are the zero tf.Output")
	case !bridge.Valid(l.predictions):
		return fmt.Errorf("predictions are the zero tf.Output")
	case !bridge.IsFloating(l.predictions.DataType()):
		return fmt.Errorf("predictions are %s: wanted a floating dtype", bridge.DTypeName(l.predictions.DataType()))
	case o.Weights.Op != nil && !bridge.Valid(o.Weights):
		return fmt.Errorf("weights are not a tensor")
	case o.Reduction < SumOverBatchSize || o.Reduction > NoReduction:
		return fmt.Errorf("reduction %d is none", o.Reduction)
	case !(o.LabelSmoothing >= 0 && o.LabelSmoothing <= 1):
		return fmt.Errorf("label smoothing %v: wanted 0 to 1", o.LabelSmoothing)
	case o.IgnoreClass != nil && !bridge.IsInteger(l.labels.DataType()) && !bridge.IsFloating(l.labels.DataType()):
		return fmt.Errorf("labels are %s: only class numbers can be ignored", bridge.DTypeName(l.labels.DataType()))
	case !(o.Delta > 0):
		return fmt.Errorf("delta %v: wanted a positive number", o.Delta)
	}
	if rank := bridge.ShapeOf(l.predictions).Rank(); rank > 0 && (o.Axis < -rank || o.Axis >= rank) {
		return fmt.Errorf("axis %d: predictions have %d axes", o.Axis, rank)
	}
	return nil
}

// reduce weighs the losses of the samples and makes one number of them.
func (l *loss) reduce(values tf.Output) tf.Output {
	if !bridge.Valid(values) {
		return tf.Output{}
	}
	weights := l.options.Weights
	if weights.Op != nil {
		weights = l.Cast(weights)
	}
	if l.counted.Op != nil {
		counted := l.Cast(l.counted)
		if l.options.Reduction == SumOverBatchSize { // so that the sum is divided by how many count
			all := l.Cast(raw.Size(l.Scope, counted, raw.WithOutType(tf.Int64)))
			scale := l.DivNoNaN(all, raw.Sum(l.Scope, counted, l.allAxes(counted)))
			counted = l.Select(l.counted, scale, l.Constant(0))
		}
		if weights.Op != nil {
			counted, weights = l.sameRank(counted, weights)
			counted = l.Mul(weights, counted)
		}
		weights = counted
	}
	if weights.Op != nil {
		values, weights = l.sameRank(values, weights)
		values = l.Mul(values, weights)
	}
	shape := bridge.ShapeOf(values)
	if l.options.Reduction == NoReduction || shape.Rank() == 0 || shape.Equal(Shape{0}) {
		return values
	}
	sum := raw.Sum(l.Scope, values, l.allAxes(values))
	switch {
	case l.options.Reduction == Sum:
		return sum
	case l.options.Reduction == MeanWithSampleWeight && weights.Op != nil:
		return l.DivNoNaN(sum, raw.Sum(l.Scope, weights, l.allAxes(weights)))
	}
	if n, known := shape.NumElements(); known {
		return l.DivNoNaN(sum, l.Constant(float64(n)))
	}
	return l.DivNoNaN(sum, l.Cast(raw.Size(l.Scope, values, raw.WithOutType(tf.Int64))))
}

// sameRank drops, or adds, a last dimension of 1 where the ranks of a and b
// differ by it. Against a vector it is added.
func (l *loss) sameRank(a, b tf.Output) (tf.Output, tf.Output) {
	if !bridge.Valid(a) || !bridge.Valid(b) {
		return a, b
	}
	as, bs := bridge.ShapeOf(a), bridge.ShapeOf(b)
	switch {
	case as == nil || bs == nil:
	case len(as) == len(bs)+1 && as[len(as)-1] == 1:
		if len(bs) == 1 {
			return a, raw.ExpandDims(l.Scope, b, l.scalar(-1))
		}
		return raw.Squeeze(l.Scope, a, raw.WithSqueezeDims([]int64{-1})), b
	case len(bs) == len(as)+1 && bs[len(bs)-1] == 1:
		if len(as) == 1 {
			return raw.ExpandDims(l.Scope, a, l.scalar(-1)), b
		}
		return a, raw.Squeeze(l.Scope, b, raw.WithSqueezeDims([]int64{-1}))
	}
	return a, b
}

func (l *loss) scalar(v float64) tf.Output       { return Number(l.Scope, tf.Int32, v) }
func (l *loss) axes(axis int) tf.Output          { return l.Scope.ints("axis", int64(axis)) }
func (l *loss) mean(values tf.Output) tf.Output  { return raw.Mean(l.Scope, values, l.axes(-1)) }
func (l *loss) sum(values tf.Output) tf.Output   { return raw.Sum(l.Scope, values, l.axes(-1)) }
func (l *loss) shape(values tf.Output) tf.Output { return raw.Shape(l.Scope, values) }

// allAxes are the numbers of all axes.
func (l *loss) allAxes(values tf.Output) tf.Output {
	if !bridge.Valid(values) {
		return tf.Output{}
	}
	rank := bridge.ShapeOf(values).Rank()
	if rank < 0 {
		return raw.Range(l.Scope, l.scalar(0), raw.Rank(l.Scope, values), l.scalar(1))
	}
	axes := make([]int64, rank)
	for i := range axes {
		axes[i] = int64(i)
	}
	return l.Scope.ints("axes", axes...)
}

// dimension is the size of an axis, an int32 scalar.
func (l *loss) dimension(x tf.Output, axis int64) tf.Output {
	if shape := bridge.ShapeOf(x); shape.Rank() > 0 && axis == -1 && shape[len(shape)-1] >= 0 {
		return l.scalar(float64(shape[len(shape)-1]))
	}
	return raw.Gather(l.Scope, l.shape(x), l.Sub(raw.Rank(l.Scope, x), l.scalar(float64(-axis))))
}

// hinge is max(1 - label·prediction, 0), labels of 0 and 1 taken for -1 and 1.
func (l *loss) hinge() tf.Output {
	one, zero := l.Constant(1), l.Constant(0)
	binary := raw.All(l.Scope, l.Or(l.Equal(l.labels, zero), l.Equal(l.labels, one)), l.allAxes(l.labels))
	label := l.Select(binary, l.Sub(l.Mul(l.Constant(2), l.labels), one), l.labels)
	return l.Maximum(l.Sub(one, l.Mul(label, l.predictions)), zero)
}

func (l *loss) clipProbability(p tf.Output) tf.Output {
	return l.Clip(p, l.Constant(epsilon), l.Constant(1-epsilon))
}

// precise is x in float32 where it is half or bfloat16, whose exponentials are
// too coarse, as in Python.
func (l *loss) precise(x tf.Output) tf.Output {
	if l.DType == tf.Half || l.DType == tf.Bfloat16 {
		return Cast(l.Scope, x, tf.Float)
	}
	return x
}

// softmaxCrossEntropy is the cross entropy of labels and logits
// [batch, …, classes], the classes on the options' axis.
func (l *loss) softmaxCrossEntropy(labels, logits tf.Output) tf.Output {
	labels, logits = l.precise(labels), l.precise(logits)
	rank := bridge.ShapeOf(logits).Rank()
	if axis := l.options.Axis; axis != -1 && axis != rank-1 {
		if rank < 0 {
			l.Scope.fail("softmax", fmt.Errorf("axis %d of predictions of unknown rank", axis))
			return tf.Output{}
		}
		order := make([]int64, 0, rank) // the class axis last
		for i := range rank {
			if i != (axis+rank)%rank {
				order = append(order, int64(i))
			}
		}
		perm := l.Scope.ints("perm", append(order, int64((axis+rank)%rank))...)
		labels, logits = raw.Transpose(l.Scope, labels, perm), raw.Transpose(l.Scope, logits, perm)
	}
	if rank == 2 {
		entropy, _ := raw.SoftmaxCrossEntropyWithLogits(l.Scope, logits, labels)
		return l.Cast(entropy)
	}
	shape := l.shape(logits)
	entropy, _ := raw.SoftmaxCrossEntropyWithLogits(l.Scope, l.flat(logits), l.flat(labels))
	return l.Cast(raw.Reshape(l.Scope, entropy, l.allButLast(shape)))
}

// sparseSoftmaxCrossEntropy is the cross entropy of class numbers [batch, …]
// and logits [batch, …, classes].
func (l *loss) sparseSoftmaxCrossEntropy(labels, logits tf.Output) tf.Output {
	logits = l.precise(logits)
	if bridge.ShapeOf(logits).Rank() == 2 && bridge.ShapeOf(labels).Rank() == 1 {
		entropy, _ := raw.SparseSoftmaxCrossEntropyWithLogits(l.Scope, logits, labels)
		return l.Cast(entropy)
	}
	entropy, _ := raw.SparseSoftmaxCrossEntropyWithLogits(l.Scope, l.flat(logits), raw.Reshape(l.Scope, labels, l.Scope.ints("all", -1)))
	return l.Cast(raw.Reshape(l.Scope, entropy, l.shape(labels)))
}

// flat is [batch, …, classes] as [n, classes].
func (l *loss) flat(x tf.Output) tf.Output {
	if shape := bridge.ShapeOf(x); shape.Rank() > 0 && shape[len(shape)-1] > 0 {
		return raw.Reshape(l.Scope, x, l.Scope.ints("rows", -1, shape[len(shape)-1]))
	}
	classes := raw.ExpandDims(l.Scope, l.dimension(x, -1), l.scalar(0))
	return raw.Reshape(l.Scope, x, raw.ConcatV2(l.Scope, []tf.Output{l.Scope.ints("rows", -1), classes}, l.scalar(0)))
}

// allButLast is a shape vector without its last element.
func (l *loss) allButLast(shape tf.Output) tf.Output {
	return raw.StridedSlice(l.Scope, shape, l.Scope.ints("from", 0), l.Scope.ints("to", -1), l.Scope.ints("by", 1))
}
