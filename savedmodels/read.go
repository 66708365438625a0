package savedmodels

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	protos "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ml/sluice/bridge"
)

// The files of a SavedModel.
const (
	modelFile     = "saved_model.pb"
	variablesName = "variables"
	assetsName    = "assets"
)

// metaGraph is one of the graphs of a saved_model.pb. The graph itself stays as
// it is in the file, so that fields of a newer TensorFlow reach TensorFlow.
type metaGraph struct {
	*protos.MetaGraphDef        // without the graph
	graphDef             []byte // serialized
}

// Tags are the tags that a MetaGraph was saved with, sorted.
func (m *metaGraph) tags() []string {
	tags := slices.Clone(m.GetMetaInfoDef().GetTags())
	slices.Sort(tags)
	return tags
}

// Field numbers of SavedModel and MetaGraphDef.
const (
	schemaVersion, metaGraphs = 1, 2
	metaGraphDef              = 2
)

// maxModelBytes is where protobuf ends.
const maxModelBytes = 1<<31 - 1

// readModel reads the saved_model.pb of a folder.
func readModel(dir string) ([]*metaGraph, error) {
	path := filepath.Join(dir, modelFile)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, notAModel(dir)
	case !info.Mode().IsRegular():
		return nil, bridge.Errorf(bridge.InvalidArgument, path, "is not a file")
	case info.Size() > maxModelBytes:
		return nil, bridge.Errorf(bridge.InvalidArgument, path, "has %d bytes, and a saved_model.pb ends at 2 GiB", info.Size())
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, bridge.Errorf(bridge.InvalidArgument, "Load", "%w", err)
	}
	graphs, err := parseModel(content)
	if err != nil {
		return nil, bridge.Errorf(bridge.DataLoss, path, "%w", err)
	}
	return graphs, nil
}

// notAModel says what a folder without saved_model.pb seems to be.
func notAModel(dir string) error {
	info, err := os.Stat(dir)
	switch lower := strings.ToLower(dir); {
	case err == nil && info.Mode().IsRegular() && (strings.HasSuffix(lower, ".keras") || strings.HasSuffix(lower, ".h5")):
		return bridge.Errorf(bridge.Unimplemented, "Load", "%s is Keras's own file, which only Keras reads; in Python, keras.models.load_model(%q).export(\"folder\") makes a SavedModel of it", dir, dir)
	case err == nil && info.Mode().IsRegular():
		return bridge.Errorf(bridge.InvalidArgument, "Load", "%s is a file: wanted the folder that holds %s", dir, modelFile)
	case errors.Is(err, fs.ErrNotExist):
		return bridge.Errorf(bridge.NotFound, "Load", "there is no folder %s", dir)
	case err != nil:
		return bridge.Errorf(bridge.InvalidArgument, "Load", "%w", err)
	}
	hint := ""
	entries, err := os.ReadDir(dir)
	if err != nil {
		return bridge.Errorf(bridge.InvalidArgument, "Load", "%w", err)
	}
	var names, versions []string
	for _, entry := range entries {
		names = append(names, entry.Name())
		if _, err := os.Stat(filepath.Join(dir, entry.Name(), modelFile)); err == nil {
			versions = append(versions, entry.Name())
		}
	}
	switch has := func(name string) bool { return slices.Contains(names, name) }; {
	case len(versions) > 0:
		hint = fmt.Sprintf("; there is a model in each of %s: name one of them", strings.Join(versions, ", "))
	case has("saved_model.pbtxt"):
		hint = "; it holds saved_model.pbtxt, the text form, which is not read: save the model as binary"
	case has("saved_model.cpb"):
		hint = "; it holds saved_model.cpb, a graph of more than 2 GiB in parts, which is not read: keep large weights in variables"
	case has("checkpoint"), slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, ".index") }):
		hint = "; it seems to be a folder of checkpoints, which package checkpoints reads"
	case len(names) == 0:
		hint = "; it is empty"
	default:
		hint = "; it holds " + strings.Join(names[:min(len(names), 8)], ", ")
	}
	return bridge.Errorf(bridge.NotFound, "Load", "%s is not a SavedModel: there is no %s in it%s", dir, modelFile, hint)
}

// parseModel reads a serialized SavedModel.
func parseModel(content []byte) ([]*metaGraph, error) {
	if len(content) == 0 {
		return nil, errors.New("the file is empty")
	}
	var graphs []*metaGraph
	version := uint64(1)
	for rest := content; len(rest) > 0; {
		number, wire, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return nil, damaged(content, rest)
		}
		value := rest[n:]
		length := protowire.ConsumeFieldValue(number, wire, value)
		if length < 0 {
			return nil, damaged(content, rest)
		}
		rest = value[length:]
		switch {
		case number == schemaVersion && wire == protowire.VarintType:
			version, _ = protowire.ConsumeVarint(value)
		case number == metaGraphs && wire == protowire.BytesType:
			encoded, _ := protowire.ConsumeBytes(value)
			g, err := parseMetaGraph(encoded)
			if err != nil {
				return nil, fmt.Errorf("MetaGraph %d: %w", len(graphs), err)
			}
			graphs = append(graphs, g)
		}
	}
	if version != 1 {
		return nil, fmt.Errorf("has schema version %d, and 1 is known: it comes from another TensorFlow", version)
	}
	if len(graphs) == 0 {
		return nil, errors.New("holds no MetaGraph: it is not a SavedModel, or was cut short")
	}
	return graphs, nil
}

func damaged(content, rest []byte) error {
	return fmt.Errorf("is damaged or cut short at byte %d of %d: not a serialized SavedModel", len(content)-len(rest), len(content))
}

func parseMetaGraph(encoded []byte) (*metaGraph, error) {
	g := &metaGraph{MetaGraphDef: new(protos.MetaGraphDef)}
	var others []byte
	found := false
	for rest := encoded; len(rest) > 0; {
		number, wire, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return nil, damaged(encoded, rest)
		}
		length := protowire.ConsumeFieldValue(number, wire, rest[n:])
		if length < 0 {
			return nil, damaged(encoded, rest)
		}
		if number == metaGraphDef && wire == protowire.BytesType {
			if found {
				return nil, errors.New("has two graphs")
			}
			found = true
			g.graphDef, _ = protowire.ConsumeBytes(rest[n:])
		} else {
			others = append(others, rest[:n+length]...)
		}
		rest = rest[n+length:]
	}
	if err := proto.Unmarshal(others, g.MetaGraphDef); err != nil {
		return nil, fmt.Errorf("is damaged: %w", err)
	}
	if len(g.graphDef) == 0 {
		return nil, errors.New("has no graph")
	}
	return g, nil
}

// choose finds the graph with just these tags; nil: the one for serving, or the
// only one.
func choose(graphs []*metaGraph, dir string, tags []string) (*metaGraph, error) {
	wanted := slices.Clone(tags)
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	var all []string
	for _, g := range graphs {
		have := g.tags()
		if tags != nil && slices.Equal(have, wanted) || tags == nil && slices.Equal(have, []string{"serve"}) {
			return g, nil
		}
		all = append(all, tagSet(have))
	}
	if tags == nil && len(graphs) == 1 {
		return graphs[0], nil
	}
	if tags == nil {
		return nil, bridge.Errorf(bridge.NotFound, "Load", "%s has %d MetaGraphs and none with the tag \"serve\" alone: Options.Tags chooses one of %s", dir, len(graphs), strings.Join(all, ", "))
	}
	return nil, bridge.Errorf(bridge.NotFound, "Load", "%s has no MetaGraph with the tags %s; it has %s", dir, tagSet(wanted), strings.Join(all, ", "))
}

// tagSet reads as {serve,gpu}; {} has no tags.
func tagSet(tags []string) string { return "{" + strings.Join(tags, ",") + "}" }
