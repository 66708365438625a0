package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// oldest and newest bound the C libraries that this module works with. Both
// ends are tested.
const (
	oldest = "2.16"
	newest = "2.21"
)

//go:embed requirements-cpu.txt
var requirementsCPU string

//go:embed requirements-gpu.txt
var requirementsGPU string

//go:embed requirements-oldest.txt
var requirementsOldest string

// variant is one of the wheels that carry the library.
type variant struct {
	gpu          bool
	wheel        string // the package's name
	version      string
	lastMinor    int    // it is built for CPython 3.10 to 3.lastMinor
	requirements string // what pip installs, with hashes
	space        uint64 // bytes that must be free while it is installed
}

var (
	cpu        = variant{wheel: "tensorflow-cpu", version: "2.21.0", lastMinor: 13, requirements: requirementsCPU, space: 2 << 30}
	gpuVariant = variant{gpu: true, wheel: "tensorflow", version: "2.21.0", lastMinor: 13, requirements: requirementsGPU, space: 14 << 30}
	// The other end of the supported range: the library alone, its Python can't import it.
	oldestCPU = variant{wheel: "tensorflow-cpu", version: "2.16.2", lastMinor: 12, requirements: requirementsOldest, space: 2 << 30}
)

// choose finds the wheel of a version; "" is the newest.
func choose(version string, gpu bool) (variant, error) {
	var have []string
	for _, v := range []variant{cpu, gpuVariant, oldestCPU} {
		if v.gpu != gpu {
			continue
		}
		if version == "" || version == v.version {
			return v, nil
		}
		have = append(have, v.version)
	}
	kind := "processors"
	if gpu {
		kind = "GPUs"
	}
	return variant{}, fmt.Errorf("--version: no %q is pinned for %s; there is %s", version, kind, strings.Join(have, " and "))
}

// name is the directory's, and tells one library from another.
func (v variant) name() string {
	if v.gpu {
		return "tensorflow-gpu-" + v.version
	}
	return "tensorflow-cpu-" + v.version
}

// defaultRoot is "" on a machine without a home.
func defaultRoot(v variant) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "sluice", v.name())
}

// place settles where the library is.
func (o *options) place() error {
	if o.root == "" {
		o.root = os.Getenv("SLUICE_LIBTENSORFLOW")
	}
	if o.root == "" {
		o.root = defaultRoot(o.variant)
	}
	if o.root == "" {
		return &problem{"there is no home directory to keep the library in", "export SLUICE_LIBTENSORFLOW=/some/directory"}
	}
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	// The linker splits an rpath at colons, gcc splits -Wl at commas, the loader
	// expands dollars, and a flag with both quotes has no spelling that Go reads.
	if strings.ContainsAny(root, ":,$\n\r") || strings.Contains(root, `"`) && strings.Contains(root, "'") {
		return &problem{fmt.Sprintf("the path %q can't be given to a linker: it may hold no colon, comma, dollar or line break, nor both kinds of quotes", root),
			"export SLUICE_LIBTENSORFLOW=/some/other/directory"}
	}
	o.root = root
	return nil
}

// tree is a directory that holds the library:
//
//	include -> venv/…/tensorflow/include
//	lib/libtensorflow_cc.so.2, lib/libtensorflow_framework.so.2 -> venv/…/tensorflow/…
//	lib/libtensorflow.so   what programs are linked against in their place (stub.go)
//	nvidia -> venv/…/nvidia   (GPU) where the library's own rpath, $ORIGIN/../nvidia, looks
//	venv/                  the Python environment that pip installs into
//	wheels/                what pip has fetched, while it installs
//	complete.json          written last; what is there
//	lock                   held by the one that installs
type tree string

func (t tree) path(elements ...string) string {
	return filepath.Join(append([]string{string(t)}, elements...)...)
}

func (t tree) python() string { return t.path("venv", "bin", "python") }

func (t tree) marker() string { return t.path("complete.json") }

// links are the names in the tree and what each points to below site-packages.
func links(v variant) map[string]string {
	all := map[string]string{
		"include":                          "tensorflow/include",
		"lib/libtensorflow_cc.so.2":        "tensorflow/libtensorflow_cc.so.2",
		"lib/libtensorflow_framework.so.2": "tensorflow/libtensorflow_framework.so.2",
	}
	if v.gpu {
		all["nvidia"] = "nvidia"
	}
	return all
}

// layout numbers what install puts beside the wheel. A tree that an older one
// made is linked anew, without fetching anything.
const layout = 2

// receipt is what complete.json holds.
type receipt struct {
	Layout       int    `json:"layout"`
	Wheel        string `json:"wheel"`                // "tensorflow-cpu 2.21.0"
	Version      string `json:"version"`              // what TF_Version() answered
	Python       string `json:"python"`               // the environment's
	Requirements string `json:"requirements"`         // hash of the pinned list it was installed from
	With         string `json:"with,omitempty"`       // hash of the --with files it was installed from
	WithFiles    string `json:"with_files,omitempty"` // their names, for people
}

// receipt reads complete.json, and is nil when there is none that can be read.
func (t tree) receipt() *receipt {
	data, err := os.ReadFile(t.marker())
	if err != nil {
		return nil
	}
	var r receipt
	if json.Unmarshal(data, &r) != nil {
		return nil
	}
	return &r
}

func (t tree) write(r receipt) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return replace(t.marker(), func(temporary string) error {
		return os.WriteFile(temporary, append(data, '\n'), 0o644)
	})
}

// complete is the receipt of a tree that has all that the variant needs, or nil.
func (t tree) complete(v variant) *receipt {
	r := t.receipt()
	if r == nil || r.Layout != layout || r.Requirements != digest(v.requirements) || len(t.missing(v)) > 0 {
		return nil
	}
	return r
}

// missing lists what a build looks for and does not find.
func (t tree) missing(v variant) []string {
	wanted := []string{"include/tensorflow/c/c_api.h", "lib/libtensorflow.so"}
	if t.foreign() == nil {
		for name := range links(v) {
			wanted = append(wanted, name)
		}
	}
	var missing []string
	for _, name := range wanted {
		if _, err := os.Stat(t.path(name)); err != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// foreign is an error when the directory holds something that install did not make.
func (t tree) foreign() error {
	entries, err := os.ReadDir(string(t))
	if err != nil || len(entries) == 0 {
		return nil
	}
	for _, entry := range entries {
		switch entry.Name() {
		case "venv", "lock", "complete.json":
			return nil
		}
	}
	return fmt.Errorf("%s holds something that libtensorflow install did not put there", string(t))
}

// replace writes a file or link under another name and moves it into place, so
// that nobody who builds meanwhile sees it half made.
func replace(path string, write func(temporary string) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".new"
	if err := os.RemoveAll(temporary); err != nil {
		return err
	}
	if err := write(temporary); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}
