package optimizers

import (
	"fmt"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// ClipKind is what of the gradients is limited.
type ClipKind int

const (
	// ByValue limits each element to [-Limit, Limit], as [ClipByValue].
	ByValue ClipKind = iota + 1
	// ByNorm limits the L2 norm of each gradient, as [ClipByNorm].
	ByNorm
	// ByGlobalNorm limits the L2 norm of all gradients together, as
	// [ClipByGlobalNorm].
	ByGlobalNorm
)

// Clip are the settings of [Clipped].
type Clip struct {
	By    ClipKind
	Limit ops.Hyperparameter // above 0
	// NonFinite is what becomes of a gradient, or of a norm, that is NaN or
	// infinite. Propagate: a norm that is not finite makes NaN of what it
	// limits, and a value that is infinite is cut to the limit.
	NonFinite NonFinite
}

// Clipped is rule with the gradients of each step limited before it sees them:
// Keras' clipvalue, clipnorm and global_clipnorm. In a sparse gradient rows with
// the same index are summed first.
//
//	optimizers.Clipped(adam, optimizers.Clip{By: optimizers.ByGlobalNorm, Limit: optimizers.Value(5)})
func Clipped(rule Rule, c Clip) *Optimizer {
	if missing(rule) {
		return &Optimizer{}
	}
	if c.NonFinite == Propagate {
		return around(rule, &clipped{wrapper{rule}, c})
	}
	if c.By == ByValue { // seen only before it is cut
		return Finite(around(rule, &clipped{wrapper{rule}, c}), c.NonFinite)
	}
	rule = Finite(rule, c.NonFinite)
	return around(rule, &clipped{wrapper{rule}, c})
}

type clipped struct {
	wrapper
	clip Clip
}

var clipNames = map[ClipKind]string{ByValue: "clip_by_value", ByNorm: "clip_by_norm", ByGlobalNorm: "clip_by_global_norm"}

func (c *clipped) Check([]*ops.Variable) error {
	const what = "clipping"
	if clipNames[c.clip.By] == "" {
		return fmt.Errorf("%s: By is %d; wanted ByValue, ByNorm or ByGlobalNorm", what, c.clip.By)
	}
	if c.clip.Limit == nil {
		return fmt.Errorf("%s: the Limit is nil; wanted a value, a schedule or ops.Fed(tensor)", what)
	}
	if limit, constant := c.clip.Limit.(ops.Fixed); constant {
		if err := checkLimit(what, float64(limit)); err != nil {
			return err
		}
	}
	if err := checkHyperparameter(what, c.clip.Limit); err != nil {
		return err
	}
	return aroundScaled(what, c.inner)
}

func (c *clipped) Together(a *Apply, all []*Update) {
	list := make([]Grad, len(all))
	for i, u := range all {
		list[i] = u.gradient()
	}
	s := a.Scope.NameScope(clipNames[c.clip.By])
	key := fmt.Sprintf("%s/limit", s.Path()) // of this wrapper, not of one like it
	limit := func(f ops.Formula) tf.Output {
		return a.Once(key, f.DType, func(f ops.Formula) tf.Output { return c.clip.Limit.At(s, a.Step, f.DType) })
	}
	switch c.clip.By {
	case ByValue:
		clipValues(s, list, func(f ops.Formula) tf.Output { return f.Neg(limit(f)) }, limit)
	case ByNorm:
		clipNorms(s, list, limit)
	case ByGlobalNorm:
		clipGlobalNorm(s, list, limit)
	}
	nested := c.nest(a, all)
	for i, n := range nested {
		n.setGrad(list[i].outputs()[0])
	}
	a.Run(c.inner, nested)
	include(all, nested)
}
