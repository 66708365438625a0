package ops

import (
	"fmt"
	"strconv"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
)

// checkPath says why a full name, without a trailing slash, can't be one. The
// C API accepts anything, but Python can't import such a graph again.
func checkPath(path string) error {
	if strings.Contains(path, "//") || strings.HasSuffix(path, "/") {
		return fmt.Errorf("%q is not a name: it has an empty part beside a slash", path)
	}
	return bridge.CheckName(path)
}

// join puts a name under a directory; the root directory is "".
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "/" + name
}

// namer gives out node names as Python's Graph.unique_name does. What others
// put into the graph (an import, the binding) counts as taken too: the graph
// is read on from where the last look at it stopped.
type namer struct {
	graph  *tf.Graph
	cursor bridge.Cursor
	// taken is Python's _names_in_use: by lower-case name, the next suffix to try.
	taken map[string]int
	// dirs are the directories that hold at least one node.
	dirs map[string]struct{}
	// closed are the directories that belong to the binding (Scope.Op).
	closed map[string]struct{}
}

func newNamer(g *tf.Graph) *namer {
	return &namer{graph: g, taken: map[string]int{}, dirs: map[string]struct{}{}, closed: map[string]struct{}{}}
}

// sync learns the names of nodes added since the last call.
func (n *namer) sync() {
	for op := n.cursor.Next(n.graph); op != nil; op = n.cursor.Next(n.graph) {
		name := op.Name()
		n.reserve(name)
		for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
			dir := name[:i]
			if _, known := n.dirs[dir]; known {
				break // and so are the directories above it
			}
			n.dirs[dir] = struct{}{}
		}
	}
}

// reserve marks a name as taken, if it is not yet.
func (n *namer) reserve(name string) {
	if key := strings.ToLower(name); n.taken[key] == 0 {
		n.taken[key] = 1
	}
}

// unique returns name, or name with the first suffix _1, _2 … that is free,
// and reserves it. Names that differ only in case are one name.
func (n *namer) unique(name string) string {
	n.sync()
	base := strings.ToLower(name)
	i := n.taken[base]
	n.taken[base] = i + 1
	if i == 0 {
		return name
	}
	for key := base; ; i++ {
		if _, used := n.taken[key]; !used {
			n.taken[key] = 1
			return name + "_" + strconv.Itoa(i-1)
		}
		key = base + "_" + strconv.Itoa(i)
	}
}

// close gives out a directory below which there is no node and never will be
// one of ours, so that whoever names nodes without asking can't collide.
func (n *namer) close(name string) string {
	for {
		dir := n.unique(name)
		if _, used := n.dirs[dir]; !used {
			n.closed[dir] = struct{}{}
			return dir
		}
	}
}

// checkOpen says whether name lies in a directory that belongs to the binding.
func (n *namer) checkOpen(name string) error {
	if len(n.closed) == 0 {
		return nil
	}
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		if _, closed := n.closed[name[:i]]; closed {
			return fmt.Errorf("%q belongs to a scope that Op() gave to the binding, which names its nodes itself; choose another name", name[:i])
		}
	}
	return nil
}
