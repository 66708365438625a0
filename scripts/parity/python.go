package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-ml/sluice/bridge"
)

// Python runs scripts/parity/<module>.py with -out <Dir>/<module> and what else
// is given, and returns what it recorded. Lines of the form "@ done total what"
// on its standard output move the progress line; a non-zero exit is an error
// with the end of what it wrote.
func (h *Harness) Python(ctx context.Context, module string, args ...string) (*Recording, error) {
	dir := filepath.Join(h.Dir, module)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	script := filepath.Join(h.Root, "scripts", "parity", module+".py")
	full := append([]string{"-B", script, "--out", dir}, args...)
	if h.Filter != nil {
		full = append(full, "--run", h.Filter.String())
	}
	cmd := exec.CommandContext(ctx, h.python, full...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "TF_CPP_MIN_LOG_LEVEL=3", "CUDA_VISIBLE_DEVICES=-1", "PYTHONUNBUFFERED=1", "PYTHONHASHSEED=0")
	var errorText bytes.Buffer
	cmd.Stderr = &errorText
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var plain []string
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var done, total int
		var what string
		if n, _ := fmt.Sscanf(lines.Text(), "@ %d %d %s", &done, &total, &what); n == 3 {
			h.Progress.At("Python", done, total)
			continue
		}
		plain = append(plain, lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		text := strings.TrimSpace(strings.Join(plain, "\n") + "\n" + errorText.String())
		if len(text) > 4000 {
			text = "…" + text[len(text)-4000:]
		}
		return nil, fmt.Errorf("%s.py: %w\n%s", module, err, text)
	}
	return openRecording(dir)
}

// A Recording is what a Python module wrote with recording.py: a document
// (cases.json), arrays (arrays.npz) and files, graphs among them.
type Recording struct {
	Dir    string
	arrays map[string]*zip.File
	reader *zip.ReadCloser
}

func openRecording(dir string) (*Recording, error) {
	r := &Recording{Dir: dir, arrays: map[string]*zip.File{}}
	reader, err := zip.OpenReader(filepath.Join(dir, "arrays.npz"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	r.reader = reader
	for _, f := range reader.File {
		r.arrays[strings.TrimSuffix(f.Name, ".npy")] = f
	}
	return r, nil
}

// Close releases the file of arrays.
func (r *Recording) Close() error { return r.reader.Close() }

// Document decodes cases.json.
func (r *Recording) Document(into any) error {
	text, err := os.ReadFile(filepath.Join(r.Dir, "cases.json"))
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	return decoder.Decode(into)
}

// File reads a file that the module wrote beside its document.
func (r *Recording) File(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(r.Dir, name))
}

// Array names a recorded array: recording.py's array() returns this as JSON.
type Array struct {
	Key     string   `json:"key"`
	DType   string   `json:"dtype"` // TensorFlow's name
	Shape   []int64  `json:"shape"`
	Strings []string `json:"strings,omitempty"` // latin-1, of a string array, which has no key
}

// Bytes are the elements as TensorFlow lays them out.
func (r *Recording) Bytes(a Array) ([]byte, error) {
	f, ok := r.arrays[a.Key]
	if !ok {
		return nil, fmt.Errorf("arrays.npz has no %q", a.Key)
	}
	in, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	all, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	// A .npy of version 1: six bytes of magic, two of version, two of length.
	if len(all) < 10 || !bytes.HasPrefix(all, []byte("\x93NUMPY\x01")) {
		return nil, errors.New(f.Name + ": not a .npy of version 1")
	}
	start := 10 + int(binary.LittleEndian.Uint16(all[8:]))
	if start > len(all) {
		return nil, errors.New(f.Name + ": cut short")
	}
	return all[start:], nil
}

// Tensor makes a tensor of a recorded array; the caller closes it.
func (r *Recording) Tensor(a Array) (*bridge.Tensor, error) {
	if a.DType == "string" {
		values := make([]string, len(a.Strings))
		for i, s := range a.Strings {
			var b []byte
			for _, c := range s {
				b = append(b, byte(c))
			}
			values[i] = string(b)
		}
		return bridge.FromStrings(bridge.Shape(a.Shape), values)
	}
	dt, err := bridge.ParseDType(a.DType)
	if err != nil {
		return nil, err
	}
	data, err := r.Bytes(a)
	if err != nil {
		return nil, err
	}
	shape := bridge.Shape(a.Shape)
	if shape == nil {
		shape = bridge.Shape{}
	}
	return bridge.FromBytes(dt, shape, data)
}
