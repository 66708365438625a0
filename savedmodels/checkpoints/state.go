package checkpoints

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/sluice-ml/sluice/bridge"
)

// stateFile is what Python's latest_checkpoint reads in a folder.
const stateFile = "checkpoint"

// State is a folder's list of checkpoints: its file "checkpoint", Python's
// CheckpointState.
type State struct {
	Latest string      // the prefix of the newest
	All    []string    // all prefixes, oldest first
	Times  []time.Time // when each was written; may be shorter
}

// stateMessage describes the file's message, which the binding has no Go type
// for.
var stateMessage = func() protoreflect.MessageDescriptor {
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, label descriptorpb.FieldDescriptorProto_Label) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &kind, Label: &label}
	}
	const (
		text     = descriptorpb.FieldDescriptorProto_TYPE_STRING
		number   = descriptorpb.FieldDescriptorProto_TYPE_DOUBLE
		optional = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
		repeated = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	)
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("sluice/checkpoint_state.proto"), Package: new("sluice"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: new("CheckpointState"), Field: []*descriptorpb.FieldDescriptorProto{
			field("model_checkpoint_path", 1, text, optional),
			field("all_model_checkpoint_paths", 2, text, repeated),
			field("all_model_checkpoint_timestamps", 3, number, repeated),
			field("last_preserved_timestamp", 4, number, optional),
		}}},
	}, nil)
	if err != nil {
		return nil // never: the message is a constant
	}
	return file.Messages().Get(0)
}()

func stateField(name protoreflect.Name) protoreflect.FieldDescriptor {
	return stateMessage.Fields().ByName(name)
}

// ReadState reads a folder's list. Relative prefixes come with the folder before
// them. A folder without a list gives ErrNotFound.
func ReadState(dir string) (State, error) {
	name := filepath.Join(dir, stateFile)
	info, err := os.Stat(name)
	if err != nil {
		return State{}, fileError("checkpoints.ReadState", err)
	}
	if !info.Mode().IsRegular() {
		return State{}, damaged(name, "is not a file")
	}
	const most = 64 << 20
	if info.Size() > most {
		return State{}, damaged(name, "%d bytes are too many for a list of checkpoints", info.Size())
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return State{}, fileError("checkpoints.ReadState", err)
	}
	m := dynamicpb.NewMessage(stateMessage)
	if err := (prototext.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, m); err != nil {
		return State{}, damaged(name, "it is no list of checkpoints: %w", err)
	}
	within := func(prefix string) string {
		if prefix == "" || filepath.IsAbs(prefix) {
			return prefix
		}
		return filepath.Join(dir, prefix)
	}
	s := State{Latest: within(m.Get(stateField("model_checkpoint_path")).String())}
	paths := m.Get(stateField("all_model_checkpoint_paths")).List()
	for i := range paths.Len() {
		s.All = append(s.All, within(paths.Get(i).String()))
	}
	if s.Latest != "" && !slices.Contains(s.All, s.Latest) {
		s.All = append(s.All, s.Latest)
	}
	times := m.Get(stateField("all_model_checkpoint_timestamps")).List()
	for i := range times.Len() {
		seconds := times.Get(i).Float()
		s.Times = append(s.Times, time.UnixMicro(int64(seconds*1e6)))
	}
	return s, nil
}

// WriteState writes a folder's list, in one step. Prefixes in the folder are
// written relative to it, so that it can be moved.
func WriteState(dir string, s State) error {
	m := dynamicpb.NewMessage(stateMessage)
	within := func(prefix string) protoreflect.Value {
		if filepath.Dir(prefix) == filepath.Clean(dir) {
			prefix = filepath.Base(prefix)
		}
		return protoreflect.ValueOfString(prefix)
	}
	m.Set(stateField("model_checkpoint_path"), within(s.Latest))
	all := m.Mutable(stateField("all_model_checkpoint_paths")).List()
	for _, prefix := range s.All {
		all.Append(within(prefix))
	}
	times := m.Mutable(stateField("all_model_checkpoint_timestamps")).List()
	for _, t := range s.Times {
		times.Append(protoreflect.ValueOfFloat64(float64(t.UnixMicro()) / 1e6))
	}
	text, err := prototext.MarshalOptions{Multiline: true}.Marshal(proto.Message(m))
	if err != nil {
		return bridge.Errorf(bridge.InvalidArgument, "checkpoints.WriteState", "%w", err)
	}
	return replaceFile(filepath.Join(dir, stateFile), text)
}

// replaceFile writes a small file in one step.
func replaceFile(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+temporaryMark+"*")
	if err != nil {
		return fileError("checkpoints", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fileError("checkpoints", err)
	}
	return syncFolder(filepath.Dir(name))
}

// Latest is the prefix of the newest complete checkpoint in a folder: the one
// that its file "checkpoint" names, unless a newer one was finished after that
// was written, or that one is not there or not whole. ErrNotFound when there is
// none at all.
//
// Complete means that the index is whole and the data files are there and long
// enough; their checksums are checked when they are read.
func Latest(dir string) (string, error) {
	const op = "checkpoints.Latest"
	if _, err := os.ReadDir(dir); err != nil {
		return "", fileError(op, err)
	}
	var problems []error
	for _, prefix := range newestFirst(dir) {
		r, err := openPrefix(prefix)
		if err == nil {
			_ = r.Close()
			return prefix, nil
		}
		problems = append(problems, err)
	}
	if len(problems) > 0 {
		return "", bridge.Errorf(bridge.DataLoss, op, "none of the %d checkpoints in %s is whole: %w", len(problems), dir, errors.Join(problems...))
	}
	return "", bridge.Errorf(bridge.NotFound, op, "there is no checkpoint in %s", dir)
}

// newestFirst are the prefixes to try: those finished after the list was written,
// those on the list, the rest.
func newestFirst(dir string) []string {
	var order []string
	state, _ := ReadState(dir) // an unreadable list is as good as none
	listed := time.Time{}
	if info, err := os.Stat(filepath.Join(dir, stateFile)); err == nil {
		listed = info.ModTime()
	}
	known := func(prefix string) bool { return slices.Contains(state.All, prefix) }
	var after, rest []string
	for _, prefix := range prefixesIn(dir) {
		info, err := os.Stat(indexName(prefix))
		switch {
		case known(prefix) || err != nil:
		case len(state.All) > 0 && !info.ModTime().Before(listed):
			after = append(after, prefix)
		default:
			rest = append(rest, prefix)
		}
	}
	order = append(order, after...)
	if state.Latest != "" {
		order = append(order, state.Latest)
	}
	for _, prefix := range slices.Backward(state.All) {
		if prefix != state.Latest {
			order = append(order, prefix)
		}
	}
	return append(order, rest...)
}

// prefixesIn are the checkpoints that have an index in a folder, the newest
// first, by the time of the index and then by the number that the name ends in.
func prefixesIn(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	type found struct {
		prefix string
		when   time.Time
		step   int64
	}
	var all []found
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), ".index")
		if !is || name == "" || e.IsDir() {
			continue
		}
		f := found{prefix: filepath.Join(dir, name), step: -1}
		if info, err := e.Info(); err == nil {
			f.when = info.ModTime()
		}
		if step, err := strconv.ParseInt(name[strings.LastIndexByte(name, '-')+1:], 10, 64); err == nil {
			f.step = step
		}
		all = append(all, f)
	}
	slices.SortStableFunc(all, func(a, b found) int {
		if c := b.when.Compare(a.when); c != 0 {
			return c
		}
		return int(min(max(b.step-a.step, -1), 1))
	})
	prefixes := make([]string, len(all))
	for i, f := range all {
		prefixes[i] = f.prefix
	}
	return prefixes
}

// remove deletes a checkpoint's files, the index first, so that it is gone at
// one moment.
func remove(prefix string) error {
	err := os.Remove(indexName(prefix))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fileError("checkpoints", err)
	}
	for _, file := range dataFiles(prefix) {
		if err := os.Remove(file.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fileError("checkpoints", err)
		}
	}
	if err := os.Remove(prefix + ".meta"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fileError("checkpoints", fmt.Errorf("%s.meta: %w", prefix, err))
	}
	return nil
}
