package optimizers

import (
	"path"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
)

// UpdateOps are the operations of the collection UPDATE_OPS, such as the
// moving averages of a batch normalization, that belong to a training of vars.
// Minimize runs them before the first variable changes; who calls
// ApplyGradients passes them to it.
//
// An update of a statistic that lies outside of what is trained is left out,
// so that a frozen part of a model stands still altogether. What a statistic
// belongs to is the nearest directory above it that holds other variables than
// statistics: gan/D/norm/moving_mean belongs to gan/D/norm if there is a
// gan/D/norm/gamma, else to gan/D, and it is updated if one of vars lies
// there. Operations that update no variable are always in.
func UpdateOps(g *ops.Graph, vars []*ops.Variable) []*tf.Operation {
	all, err := g.Collection(ops.UpdateOps, "")
	if err != nil || len(all) == 0 {
		return nil
	}
	type update struct {
		op         *tf.Operation
		statistics []string
	}
	var updates []update
	statistics := map[string]bool{}
	for _, item := range all {
		op, ok := item.(*tf.Operation)
		if out, isOutput := item.(tf.Output); isOutput {
			op, ok = out.Op, out.Op != nil
		}
		if !ok || op == nil {
			continue
		}
		names := updatedVariables(op)
		updates = append(updates, update{op, names})
		for _, name := range names {
			statistics[name] = true
		}
	}
	var trained, weights []string
	for _, v := range vars {
		trained = append(trained, v.Name())
	}
	for _, v := range g.Variables() {
		if !statistics[v.Name()] {
			weights = append(weights, v.Name())
		}
	}
	var found operations
	for _, u := range updates {
		belongs := len(u.statistics) == 0
		for _, name := range u.statistics {
			belongs = belongs || anyInScope(trained, home(name, weights))
		}
		if belongs {
			found.add(u.op)
		}
	}
	return found.list
}

// home is the nearest directory above a variable that holds one of the others.
func home(name string, others []string) string {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if anyInScope(others, dir) {
			return dir
		}
	}
	return ""
}

func anyInScope(names []string, dir string) bool {
	for _, name := range names {
		if ops.InScope(name, dir) {
			return true
		}
	}
	return false
}

// updatedVariables are the names of the variables that op updates itself or,
// for groups and reads after an update, that what runs before it updates.
func updatedVariables(op *tf.Operation) []string {
	var names []string
	seen := map[string]bool{}
	queue := []*tf.Operation{op}
	for len(queue) > 0 {
		op, queue = queue[0], queue[1:]
		if seen[op.Name()] {
			continue
		}
		seen[op.Name()] = true
		updates := false
		if !readsOnly[op.Type()] {
			for _, in := range bridge.Inputs(op) {
				if in.Op.Type() == "VarHandleOp" {
					names, updates = append(names, in.Op.Name()), true
				}
			}
		}
		if !updates {
			queue = append(queue, bridge.ControlInputs(op)...)
			if op.Type() == "Identity" {
				queue = append(queue, bridge.Input(op, 0).Op)
			}
		}
	}
	return names
}

// readsOnly are the operations on a variable's handle that don't change it.
var readsOnly = map[string]bool{
	"ReadVariableOp": true, "ResourceGather": true, "ResourceGatherNd": true,
	"VarIsInitializedOp": true, "VariableShape": true, "Identity": true,
}
