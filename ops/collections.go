package ops

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// The keys of tf.compat.v1.GraphKeys that something here fills or reads. A
// collection may have any other key as well.
const (
	GlobalVariables      = "variables"             // every variable, unless its options say otherwise
	TrainableVariables   = "trainable_variables"   // what an optimizer trains by default
	LocalVariables       = "local_variables"       // variables that no checkpoint holds
	UpdateOps            = "update_ops"            // run by every train op, such as moving averages
	Losses               = "losses"                // losses, with LossOptions.Collect
	RegularizationLosses = "regularization_losses" // penalties on weights
	GlobalStepKey        = "global_step"           // Python's GLOBAL_STEP
	TrainOp              = "train_op"              // train ops, by optimizers
)

// AddToCollection appends an item to a collection; it may be in it already, as
// in Python. Items with a name are found by scope: variables, tensors,
// operations, and whatever has a method Name() string.
func (g *Graph) AddToCollection(key string, item any) {
	if g == nil {
		return
	}
	if key == "" || item == nil {
		g.fail("AddToCollection", fmt.Errorf("a key and an item are needed, got %q and %v", key, item))
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.collections == nil {
		return // a zero Graph, which Err tells of
	}
	g.collections[key] = append(g.collections[key], item)
}

// Collection is the items of a collection, in the order they were added: all
// of them for an empty scope, else those whose name the regular expression
// matches from its beginning. It has the meaning of Python's
// get_collection(key, scope): the name of a variable or tensor includes ":0",
// and "net" matches net/w and network/w alike. "net/" is the safe form, and
// [Graph.Trainable] and [InScope] do not take expressions at all. The
// expressions are Go's (no look-ahead, no back-references); a bad one is an
// error. An unknown key is an empty collection.
func (g *Graph) Collection(key, scope string) ([]any, error) {
	if g == nil {
		return nil, fmt.Errorf("the graph is nil")
	}
	g.mu.Lock()
	items := slices.Clone(g.collections[key])
	g.mu.Unlock()
	if scope == "" {
		return items, nil
	}
	prefix, err := regexp.Compile(`^(?:` + scope + `)`)
	if err == nil {
		_, err = regexp.Compile(scope) // "a)(b" is not an expression either
	}
	if err != nil {
		return nil, bridge.Errorf(bridge.InvalidArgument, "Collection", "scope of collection %q: %w", key, err)
	}
	return slices.DeleteFunc(items, func(item any) bool {
		name, named := itemName(item)
		return !named || !prefix.MatchString(name)
	}), nil
}

// CollectionOf is [Graph.Collection] of the items of one type, such as
// *Variable, tf.Output or *tf.Operation.
func CollectionOf[T any](g *Graph, key, scope string) ([]T, error) {
	items, err := g.Collection(key, scope)
	if err != nil {
		return nil, err
	}
	var found []T
	for _, item := range items {
		if t, ok := item.(T); ok {
			found = append(found, t)
		}
	}
	return found, nil
}

// CollectionKeys are the keys of the collections that hold something, sorted.
func (g *Graph) CollectionKeys() []string {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	keys := make([]string, 0, len(g.collections))
	for key, items := range g.collections {
		if len(items) > 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Trainable are the variables of TRAINABLE_VARIABLES below any of the given
// paths, in the order they were made; all of them when no path is given. "net"
// and "net/" both mean the variable net and everything below net/, and never
// network/w.
func (g *Graph) Trainable(paths ...string) []*Variable {
	variables, err := CollectionOf[*Variable](g, TrainableVariables, "")
	if err != nil || len(paths) == 0 {
		return variables
	}
	return slices.DeleteFunc(variables, func(v *Variable) bool { return !InScope(v.Name(), paths...) })
}

// InScope reports whether a name lies below one of the paths: it is the path
// itself or continues it after a slash. A slash at a path's end changes
// nothing; the empty path holds everything.
func InScope(name string, paths ...string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		path = strings.TrimSuffix(path, "/")
		rest, inside := strings.CutPrefix(name, path)
		return inside && (path == "" || rest == "" || rest[0] == '/')
	})
}

// itemName is the name that a collection's item is matched by.
func itemName(item any) (string, bool) {
	switch item := item.(type) {
	case *Variable:
		return item.Name() + ":0", item != nil
	case tf.Output:
		if item.Op == nil {
			return "", false
		}
		return item.Op.Name() + ":" + strconv.Itoa(item.Index), true
	case *tf.Operation:
		if item == nil {
			return "", false
		}
		return item.Name(), true
	case interface{ Name() string }:
		return item.Name(), true
	}
	return "", false
}
