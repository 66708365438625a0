package ops

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// Draw says which random numbers are drawn. All random numbers here come from
// TensorFlow's stateless operations, so they depend on nothing but the seed
// pair [RandomKey(name), step]: a resumed run draws what the uninterrupted one
// would have, and Python draws the same by
//
//	tf.random.stateless_normal(shape, seed=[key, step])
type Draw struct {
	// Name tells this draw from the others of the graph. Empty: the name of
	// the node, which is as stable as the program that builds the graph.
	Name string
	// Step is an integer scalar; the same step draws the same numbers. The
	// zero Output stands for step 0: the same numbers in every run.
	Step tf.Output
}

// RandomKey is the first half of the seed of whatever is drawn under name:
// the FNV-1a hash, 64 bits, of the graph's seed (8 bytes, little-endian)
// followed by the name. The second half is the step, 0 for initial values,
// whose name is the variable's.
func (g *Graph) RandomKey(name string) int64 {
	h := fnv.New64a()
	var seed [8]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(g.Seed()))
	h.Write(seed[:])
	h.Write([]byte(name))
	return int64(h.Sum64())
}

// StatelessNormal is normal numbers of mean 0 and standard deviation 1, in
// half, bfloat16, float32 or float64. shape is a static [Shape] or an integer
// vector.
func StatelessNormal[S Shape | tf.Output](s *Scope, shape S, dt tf.DataType, d Draw) tf.Output {
	return stateless(s, "StatelessRandomNormal", any(shape), dt, d)
}

// StatelessTruncatedNormal is as StatelessNormal, with numbers beyond two
// standard deviations drawn again.
func StatelessTruncatedNormal[S Shape | tf.Output](s *Scope, shape S, dt tf.DataType, d Draw) tf.Output {
	return stateless(s, "StatelessTruncatedNormal", any(shape), dt, d)
}

// StatelessUniform is uniform numbers in [0, 1), in half, bfloat16, float32 or
// float64. shape is a static [Shape] or an integer vector.
func StatelessUniform[S Shape | tf.Output](s *Scope, shape S, dt tf.DataType, d Draw) tf.Output {
	return stateless(s, "StatelessRandomUniform", any(shape), dt, d)
}

func stateless(s *Scope, opType string, shape any, dt tf.DataType, d Draw) tf.Output {
	if !s.ok() {
		return tf.Output{}
	}
	if !bridge.IsFloating(dt) {
		s.fail(opType, fmt.Errorf("random numbers are of a floating dtype, not %s", bridge.DTypeName(dt)))
		return tf.Output{}
	}
	in := s.NameScope(opType)
	if d.Name == "" {
		d.Name = in.path
	}
	return statelessIn(in, opType, shape, dt, d)
}

// statelessIn adds a stateless operation in a name scope of its own, and gives
// it the scope's name.
func statelessIn(in *Scope, opType string, shape any, dt tf.DataType, d Draw) tf.Output {
	dims, dynamic := shape.(tf.Output)
	if !dynamic {
		static := shape.(Shape)
		if !static.FullyDefined() {
			in.fail(opType, fmt.Errorf("shape %v is not fully defined", static))
			return tf.Output{}
		}
		dims = in.ints("shape", static...)
	}
	return first(in.Add(bridge.OpSpec{Type: opType, Inputs: []tf.Input{dims, d.seed(in)},
		Attrs: []bridge.Attr{{Name: "dtype", Value: dt}}}))
}

// seed is the seed pair, int64 [2].
func (d Draw) seed(s *Scope) tf.Output {
	key := s.Graph().RandomKey(d.Name)
	if d.Step.Op == nil {
		t, err := bridge.FromFlat(Shape{2}, []int64{key, 0})
		return s.constTensor("seed", t, err)
	}
	t, err := bridge.Scalar(key)
	pair := tf.OutputList{s.constTensor("key", t, err), Cast(s, d.Step, tf.Int64)}
	return first(s.Add(bridge.OpSpec{Type: "Pack", Name: "seed", Inputs: []tf.Input{pair}}))
}
