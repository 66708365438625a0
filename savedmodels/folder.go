package savedmodels

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-ml/sluice/bridge"
)

// unfinished is how the folder begins in which a model is written before it is
// renamed. Servers that look for version numbers don't take it for a model.
const unfinished = ".unfinished-"

// NextVersion is the folder of the next version number in base, "base/8" where
// the highest there is 7, and "base/1" in an empty or missing one: what model
// servers look for.
func NextVersion(base string) (string, error) {
	entries, err := os.ReadDir(base)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", bridge.Errorf(bridge.InvalidArgument, "NextVersion", "%w", err)
	}
	highest := int64(0)
	for _, e := range entries {
		if n, err := strconv.ParseInt(e.Name(), 10, 64); err == nil && e.IsDir() {
			highest = max(highest, n)
		}
	}
	if highest == math.MaxInt64 {
		return "", bridge.Errorf(bridge.ResourceExhausted, "NextVersion", "%s holds version %d, after which there is none", base, highest)
	}
	return filepath.Join(base, strconv.FormatInt(highest+1, 10)), nil
}

// modelFiles are what loaders look for in a model's folder, and the writers of
// TensorFlow and Keras leave there.
var modelFiles = []string{modelFile, variablesName, assetsName, "assets.extra", "debug", "fingerprint.pb", "keras_metadata.pb", "saved_model.pbtxt", "saved_model.cpb"}

// checkTarget says why a model can't be written to a folder.
func checkTarget(dir string, overwrite bool) error {
	const op = "Save"
	switch lower := strings.ToLower(dir); {
	case dir == "":
		return bridge.Errorf(bridge.InvalidArgument, op, "the folder's name is empty")
	case strings.HasSuffix(lower, ".keras"), strings.HasSuffix(lower, ".h5"), strings.HasSuffix(lower, ".hdf5"):
		return bridge.Errorf(bridge.Unimplemented, op, "%s is the name of Keras's own file, which is not written here: save a SavedModel in a folder, which Keras loads by keras.layers.TFSMLayer(folder, call_endpoint=\"serving_default\")", dir)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if _, err := os.Lstat(dir); err == nil {
			return bridge.Errorf(bridge.AlreadyExists, op, "%s is a symbolic link to what does not exist", dir)
		}
		return nil
	case err != nil:
		return bridge.Errorf(bridge.InvalidArgument, op, "%w", err)
	case !info.IsDir():
		return bridge.Errorf(bridge.AlreadyExists, op, "%s is a file: wanted the name of a folder", dir)
	}
	// A folder takes its place: what is in the old one then is nowhere.
	if here, err := os.Stat("."); err == nil && os.SameFile(here, info) {
		return bridge.Errorf(bridge.InvalidArgument, op, "%s is the working directory, whose place no other can take: name a folder in it", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return bridge.Errorf(bridge.InvalidArgument, op, "%w", err)
	}
	if len(entries) == 0 {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, modelFile)); err != nil {
		return bridge.Errorf(bridge.AlreadyExists, op, "%s holds %s and no model: nothing is written over it", dir, entries[0].Name())
	}
	if !overwrite {
		return bridge.Errorf(bridge.AlreadyExists, op, "there is a model in %s; SaveOptions.Overwrite replaces it, and NextVersion finds a new folder", dir)
	}
	for _, e := range entries {
		if !slices.Contains(modelFiles, e.Name()) {
			return bridge.Errorf(bridge.AlreadyExists, op, "%s holds %s beside a model, which would be lost with it: nothing is written over it", dir, e.Name())
		}
	}
	return nil
}

// inFolder has write fill a folder beside dir, which takes dir's place when all of
// it is on the disk. What is there before stays whole until then.
func inFolder(dir string, overwrite bool, write func(temporary string) error) (err error) {
	if err := checkTarget(dir, overwrite); err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real // a link stays, and what it leads to is replaced
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return bridge.Errorf(bridge.InvalidArgument, "Save", "%w", err)
	}
	temporary, err := os.MkdirTemp(parent, unfinished+filepath.Base(dir)+"-")
	if err != nil {
		return bridge.Errorf(bridge.InvalidArgument, "Save", "%w", err)
	}
	defer func() {
		_ = os.RemoveAll(temporary) // after an exchange it is the old model
		var coded *bridge.Error
		if err != nil && !errors.As(err, &coded) {
			err = bridge.Errorf(bridge.Unknown, "Save", "%w", err)
		}
	}()
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	if err := write(temporary); err != nil {
		return err
	}
	if err := syncTree(temporary); err != nil {
		return err
	}
	if err := checkTarget(dir, overwrite); err != nil {
		return err // somebody was faster
	}
	// Not os.Rename, which refuses an empty folder.
	if err = unix.Rename(temporary, dir); err != nil {
		err = &os.LinkError{Op: "rename", Old: temporary, New: dir, Err: err}
	}
	if err != nil && overwrite {
		err = exchange(temporary, dir)
	}
	if err != nil {
		return err
	}
	return syncFile(parent)
}

// exchange swaps two folders at one moment, where the file system can, and else
// one after the other.
func exchange(a, b string) error {
	if unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) == nil {
		return nil
	}
	aside := a + "-old"
	if err := os.Rename(b, aside); err != nil {
		return err
	}
	if err := os.Rename(a, b); err != nil {
		return errors.Join(err, os.Rename(aside, b))
	}
	return os.Rename(aside, a)
}

// syncTree brings a folder and all in it to the disk.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncFile(path)
	})
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// copyFile copies a regular file.
func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", from)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
