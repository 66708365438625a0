package main

import (
	"cmp"
	"fmt"
	"html"
	"maps"
	"os"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"

	"github.com/sluice-ml/sluice/bridge"
)

// cell is a node as the picture of a graph needs it.
type cell struct {
	name, op string
	inputs   []string // names of cells
}

// cellsOf are the nodes that the outputs depend on. Where all work is done in one
// function, as in the models of TensorFlow 2, they are those of its body.
func cellsOf(g *tf.Graph, outputs []*tf.Operation) ([]cell, error) {
	var cells []cell
	seen := map[bridge.OutputKey]bool{}
	var calls []string
	for len(outputs) > 0 {
		op := outputs[0]
		outputs = outputs[1:]
		if seen[bridge.OpKey(op)] {
			continue
		}
		seen[bridge.OpKey(op)] = true
		c := cell{name: op.Name(), op: op.Type()}
		for _, in := range bridge.Inputs(op) {
			c.inputs = append(c.inputs, in.Op.Name())
			outputs = append(outputs, in.Op)
		}
		if f, err := bridge.AttrFunc(op, "f"); err == nil && strings.HasSuffix(op.Type(), "PartitionedCall") {
			calls = append(calls, f.Name)
		}
		cells = append(cells, c)
	}
	defs, err := bridge.Functions(g)
	if err != nil {
		return nil, err
	}
	library := map[string]*function.FunctionDef{}
	for _, def := range defs {
		library[def.GetSignature().GetName()] = def
	}
	for len(calls) == 1 && library[calls[0]] != nil {
		def := library[calls[0]]
		calls, cells = nil, nil
		for _, arg := range def.GetSignature().GetInputArg() {
			if tf.DataType(arg.GetType()) != bridge.Resource {
				cells = append(cells, cell{name: arg.GetName(), op: "Placeholder"})
			}
		}
		for _, node := range def.GetNodeDef() {
			c := cell{name: node.GetName(), op: node.GetOp()}
			for _, in := range node.GetInput() {
				if name, _, _ := strings.Cut(in, ":"); !strings.HasPrefix(in, "^") {
					c.inputs = append(c.inputs, name)
				}
			}
			if strings.HasSuffix(c.op, "PartitionedCall") {
				calls = append(calls, node.GetAttr()["f"].GetFunc().GetName())
			}
			cells = append(cells, c)
		}
		if len(cells) > 30 { // it does work of its own, and calls as well
			break
		}
	}
	return cells, nil
}

// block is a name scope of a graph, as one box.
type block struct {
	name      string
	ops       map[string]int
	variables bool // it holds some
	from      map[*block]bool
	layer     int
	x, y      float64
	width     float64
}

// unseen are op types that move tensors about and say nothing of a model.
var unseen = map[string]bool{"Identity": true, "NoOp": true, "Const": true, "ReadVariableOp": true, "VarHandleOp": true, "AssignVariableOp": true, "VarIsInitializedOp": true, "Pack": true, "Shape": true, "StridedSlice": true}

// blocksOf groups cells by scope, below the scope that all have in common.
func blocksOf(cells []cell) []*block {
	common := ""
	scopes := 0
	for _, c := range cells {
		scope := c.name[:strings.LastIndexByte(c.name, '/')+1]
		switch {
		case scope == "":
			continue
		case scopes == 0:
			common = scope
		default:
			common = commonPrefix(common, scope)
		}
		scopes++
	}
	isScope := map[string]bool{}
	for _, c := range cells {
		if name, _, scoped := strings.Cut(strings.TrimPrefix(c.name, common), "/"); scoped {
			isScope[name] = true
		}
	}
	byName, of := map[string]*block{}, map[string]*block{}
	at := map[string]cell{}
	var blocks []*block
	for _, c := range cells {
		at[c.name] = c
		rest := strings.TrimPrefix(c.name, common)
		name, _, scoped := strings.Cut(rest, "/")
		if !scoped && !isScope[name] && unseen[c.op] { // a variable is named as its scope
			continue
		}
		b := byName[name]
		if b == nil {
			b = &block{name: name, ops: map[string]int{}, from: map[*block]bool{}}
			byName[name] = b
			blocks = append(blocks, b)
		}
		of[c.name] = b
		b.variables = b.variables || c.op == "VarHandleOp" || c.op == "VariableV2"
		if !unseen[c.op] {
			b.ops[c.op]++
		}
	}
	// Edges lead past the cells that are in no block.
	for _, c := range cells {
		b := of[c.name]
		if b == nil {
			continue
		}
		todo, seen := slices.Clone(c.inputs), map[string]bool{}
		for len(todo) > 0 {
			name := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if seen[name] {
				continue
			}
			seen[name] = true
			if other := of[name]; other == nil {
				todo = append(todo, at[name].inputs...)
			} else if other != b {
				b.from[other] = true
			}
		}
	}
	// A block lies below those that it takes from; scopes that take from each other
	// are cut open somewhere.
	state := map[*block]int{}
	var place func(b *block) int
	place = func(b *block) int {
		switch state[b] {
		case 1:
			return -1
		case 2:
			return b.layer
		}
		state[b] = 1
		for _, other := range slices.SortedFunc(maps.Keys(b.from), func(a, c *block) int { return cmp.Compare(a.name, c.name) }) {
			b.layer = max(b.layer, place(other)+1)
		}
		state[b] = 2
		return b.layer
	}
	for _, b := range blocks {
		place(b)
	}
	return blocks
}

// commonPrefix is what two scopes have in common, in whole names.
func commonPrefix(a, b string) string {
	n := 0
	for i := 0; i < min(len(a), len(b)) && a[i] == b[i]; i++ {
		if a[i] == '/' {
			n = i + 1
		}
	}
	return a[:n]
}

// title is what a block does most, in a line.
func (b *block) title() string {
	if len(b.ops) == 0 && b.variables {
		return "variables"
	}
	names := slices.SortedFunc(maps.Keys(b.ops), func(a, c string) int { return cmp.Or(b.ops[c]-b.ops[a], cmp.Compare(a, c)) })
	var parts []string
	for _, name := range names[:min(len(names), 4)] {
		if n := b.ops[name]; n > 1 {
			name += fmt.Sprintf(" ×%d", n)
		}
		parts = append(parts, name)
	}
	if len(names) > 4 {
		parts = append(parts, "…")
	}
	return strings.Join(parts, ", ")
}

// drawBlocks writes a picture of a graph's blocks, top to bottom, as SVG.
func drawBlocks(path string, g *tf.Graph, outputs []*tf.Operation) error {
	cells, err := cellsOf(g, outputs)
	if err != nil {
		return err
	}
	blocks := blocksOf(cells)
	if len(blocks) == 0 {
		return fmt.Errorf("there is nothing to draw: the graph has no outputs")
	}
	const (
		height, gapX, gapY, margin = 44.0, 24.0, 36.0, 20.0
		letter                     = 7.2 // width, about
	)
	layers := map[int][]*block{}
	widest, deepest := 0.0, 0
	for _, b := range blocks {
		b.width = max(float64(len(b.name))*letter*1.1, float64(len(b.title()))*letter*0.9) + 24
		layers[b.layer] = append(layers[b.layer], b)
		deepest = max(deepest, b.layer)
	}
	total := func(layer []*block) float64 {
		sum := -gapX
		for _, b := range layer {
			sum += b.width + gapX
		}
		return sum
	}
	for _, layer := range layers {
		widest = max(widest, total(layer))
	}
	for n, layer := range layers {
		x := margin + (widest-total(layer))/2
		for _, b := range layer {
			b.x, b.y = x, margin+float64(n)*(height+gapY)
			x += b.width + gapX
		}
	}
	var svg strings.Builder
	// An edge past other layers goes round them on the right.
	right := func(from, to *block) float64 {
		edge := 0.0
		for n := from.layer + 1; n < to.layer; n++ {
			for _, b := range layers[n] {
				edge = max(edge, b.x+b.width)
			}
		}
		return edge + gapX/2
	}
	w, h := widest+2*margin, float64(deepest+1)*(height+gapY)-gapY+2*margin
	for _, b := range blocks {
		for from := range b.from {
			if b.layer-from.layer > 1 {
				w = max(w, right(from, b)+margin)
			}
		}
	}
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="sans-serif">`+"\n", w, h, w, h)
	svg.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	svg.WriteString(`<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker>` + "\n")
	for _, b := range blocks {
		for _, from := range slices.SortedFunc(maps.Keys(b.from), func(a, c *block) int { return cmp.Compare(a.name, c.name) }) {
			x1, y1, x2, y2 := from.x+from.width/2, from.y+height, b.x+b.width/2, b.y
			middle := ""
			if b.layer-from.layer > 1 {
				r := right(from, b)
				middle = fmt.Sprintf("C%.1f %.1f %.1f %.1f %.1f %.1fL%.1f %.1f", x1, y1+gapY/2, r, y1+gapY/4, r, y1+gapY, r, y2-gapY)
				x1, y1 = r, y2-gapY
			}
			fmt.Fprintf(&svg, `<path d="M%.1f %.1f%sC%.1f %.1f %.1f %.1f %.1f %.1f" fill="none" stroke="#667" marker-end="url(#a)"/>`+"\n",
				from.x+from.width/2, from.y+height, middle, x1, y1+gapY/2, x2, y2-gapY/2, x2, y2)
		}
	}
	for _, b := range blocks {
		fill := "#dfe9f7"
		if b.ops["Placeholder"] > 0 {
			fill = "#e6f4e0"
		}
		fmt.Fprintf(&svg, `<g><rect x="%.1f" y="%.1f" width="%.1f" height="%.0f" rx="6" fill="%s" stroke="#456"/>`, b.x, b.y, b.width, height, fill)
		fmt.Fprintf(&svg, `<text x="%.1f" y="%.1f" text-anchor="middle" font-size="13" font-weight="bold">%s</text>`, b.x+b.width/2, b.y+18, html.EscapeString(b.name))
		fmt.Fprintf(&svg, `<text x="%.1f" y="%.1f" text-anchor="middle" font-size="11" fill="#345">%s</text></g>`+"\n", b.x+b.width/2, b.y+35, html.EscapeString(b.title()))
	}
	svg.WriteString("</svg>\n")
	return os.WriteFile(path, []byte(svg.String()), 0o644)
}
