package optimizers

import (
	"fmt"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/ops"
)

// Group is a part of the variables and the rule that trains it, see [Grouped].
type Group struct {
	// Scopes are the paths of the variables, as for Graph.Trainable. None: all
	// that no other group has.
	Scopes []string
	// Rule trains them; an optimizer, with its rate, settings and wrappers.
	Rule Rule
}

// Grouped is one optimizer that trains each group of variables by a rule and a
// rate of its own, in one step with one count. A formula without a rate takes
// that of the whole.
//
//	optimizers.Grouped(
//		optimizers.Group{Scopes: []string{"net/head"}, Rule: optimizers.NewAdam(1e-3)},
//		optimizers.Group{Rule: optimizers.NewMomentum(1e-4, 0.9)},
//	)
//
// A variable to train that is in no group or in two is an error, as is a scope
// without a variable. What leaves whole steps out ([Accumulated], [Finite],
// [LossScaled]) goes around the groups, not into one.
func Grouped(groups ...Group) *Optimizer {
	g := &grouped{groups: groups}
	for _, each := range groups {
		g.members = append(g.members, around(each.Rule, each.Rule))
	}
	return &Optimizer{Rule: g}
}

type grouped struct {
	groups  []Group
	members []*Optimizer // one for each group
}

func (g *grouped) Name() string   { return "Groups" }
func (g *grouped) Prepare(*Apply) {}
func (g *grouped) Dense(u *Update) {
	wrapper{g}.Dense(u)
}
func (g *grouped) Sparse(u *Update) { g.Dense(u) }

// groupOf is the index of the group that a variable is in.
func (g *grouped) groupOf(v *ops.Variable) (int, error) {
	found, rest := -1, -1
	for i, group := range g.groups {
		switch {
		case len(group.Scopes) == 0:
			rest = i
		case !ops.InScope(v.Name(), group.Scopes...):
		case found >= 0:
			return 0, fmt.Errorf("variable %q is in two groups, %s and %s", v.Name(), g.describe(found), g.describe(i))
		default:
			found = i
		}
	}
	if found < 0 {
		found = rest
	}
	if found < 0 {
		all := make([]string, len(g.groups))
		for i := range g.groups {
			all[i] = g.describe(i)
		}
		return 0, fmt.Errorf("variable %q is in no group; there are %s", v.Name(), strings.Join(all, ", "))
	}
	return found, nil
}

func (g *grouped) describe(i int) string { return fmt.Sprintf("%d %q", i, g.groups[i].Scopes) }

// Check finds the group of each variable and asks the groups.
func (g *grouped) Check(vars []*ops.Variable) error {
	if len(g.groups) == 0 {
		return fmt.Errorf("there are no groups")
	}
	rest := -1
	for i, group := range g.groups {
		what := "group " + g.describe(i)
		if len(group.Scopes) == 0 {
			if rest >= 0 {
				return fmt.Errorf("groups %d and %d both have no Scopes; only one can have what the others leave", rest, i)
			}
			rest = i
		}
		if err := checkScopes(what, group.Scopes, vars); err != nil {
			return err
		}
		member := g.members[i]
		if member.Rule == nil {
			return fmt.Errorf("%s: %w", what, errNoRule)
		}
		if h, ok := inside[holder](member); ok {
			return fmt.Errorf("%s: %s leaves out steps of the group alone, but they are counted together; wrap it around the groups", what, h.holds())
		}
		if _, ok := inside[*grouped](member); ok {
			return fmt.Errorf("%s has groups again; list them in one", what)
		}
		if member.stepVariable() != nil {
			return fmt.Errorf("%s has a Step of its own, but steps are counted together; set it outside", what)
		}
		for k, other := range g.members[:i] {
			if other.base() == member.base() && member.base() != member {
				return fmt.Errorf("groups %d and %d have the same optimizer; list their scopes in one group", k, i)
			}
		}
	}
	parts := make([][]*ops.Variable, len(g.groups))
	for _, v := range vars {
		i, err := g.groupOf(v)
		if err != nil {
			return err
		}
		parts[i] = append(parts[i], v)
	}
	for i, part := range parts {
		if len(part) == 0 {
			continue
		}
		if err := g.members[i].check(part); err != nil {
			return fmt.Errorf("group %s: %w", g.describe(i), err)
		}
	}
	return nil
}

// applies are the parts of a train op, nil where it has none of a group.
func (g *grouped) applies(a *Apply) []*Apply {
	return a.Keep(g, func() any {
		parts := make([]*Apply, len(g.groups))
		for _, v := range a.Variables {
			i, err := g.groupOf(v)
			if err != nil {
				a.Scope.Fail(err)
				break
			}
			if parts[i] == nil {
				member := g.members[i]
				part := a.Nested()
				part.Scope = a.Scope.NameScope(member.name())
				part.optimizer, part.Variables, part.advance = member.base(), nil, new(tf.Output)
				if rate := member.LearningRate(); rate != nil {
					part.rate = rate
				}
				parts[i] = part
			}
			parts[i].Variables = append(parts[i].Variables, v)
		}
		return parts
	}).([]*Apply)
}

func (g *grouped) Together(a *Apply, all []*Update) {
	parts := g.applies(a)
	for i, part := range parts {
		if part == nil || a.Scope.Err() != nil {
			continue
		}
		var mine, nested []*Update
		for _, u := range all {
			if slices.Contains(part.Variables, u.Variable) {
				mine, nested = append(mine, u), append(nested, u.Nested(part))
			}
		}
		part.Run(g.members[i], nested)
		include(mine, nested)
	}
}

func (g *grouped) Finish(a *Apply) []*tf.Operation {
	var all []*tf.Operation
	for i, part := range g.applies(a) {
		if part == nil {
			continue
		}
		last := *part
		last.Scope = a.Scope
		all = append(all, g.members[i].Rule.Finish(&last)...)
	}
	return all
}
