// Package python finds the Python that has TensorFlow, for the programs that
// hold Sluice against it.
package python

import (
	"fmt"
	"os"
	"path/filepath"
)

// Interpreter is $SLUICE_PYTHON, or the interpreter of the environment that
// cmd/libtensorflow made.
func Interpreter() (string, error) {
	interpreter := os.Getenv("SLUICE_PYTHON")
	if interpreter == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		interpreter = filepath.Join(cache, "sluice", "tensorflow-cpu-2.21.0", "venv", "bin", "python")
	}
	if _, err := os.Stat(interpreter); err != nil {
		return "", fmt.Errorf("no Python at %s: run `go run ./cmd/libtensorflow install --with scripts/parity/requirements.txt`, or set SLUICE_PYTHON to one that has tensorflow 2.21", interpreter)
	}
	return interpreter, nil
}
