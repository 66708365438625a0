package main

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// writeStub makes the libtensorflow.so that programs are linked against. It has
// the name of every function of the C API and none of the code, and says that
// it is libtensorflow_cc.so.2, which a program therefore loads when it starts,
// and with it the framework library that has the other half of the API. Linked
// against the two themselves, of whose half a million symbols a linker reads
// each, every program and every test would take some five seconds longer.
func writeStub(ctx context.Context, path string, libraries ...string) error {
	var names []string
	for _, library := range libraries {
		exported, err := exportedAPI(library)
		if err != nil {
			return fmt.Errorf("reading %s: %w", library, err)
		}
		names = append(names, exported...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if !slices.Contains(names, "TF_Version") {
		return fmt.Errorf("%s do not export TensorFlow's C API", strings.Join(libraries, " and "))
	}
	var source strings.Builder
	for _, name := range names {
		// Whoever loads the stub in the library's place learns it at the first call.
		fmt.Fprintf(&source, "void %s(void) { __builtin_trap(); }\n", name)
	}
	cc, err := compiler()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "libtensorflow-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "stub.c")
	if err := os.WriteFile(file, []byte(source.String()), 0o644); err != nil {
		return err
	}
	args := append(slices.Clone(cc[1:]), "-shared", "-fPIC", "-nostdlib", "-w", "-Wl,-soname,libtensorflow_cc.so.2", "-o", path, file)
	if out, err := exec.CommandContext(ctx, cc[0], args...).CombinedOutput(); err != nil {
		return compileError(cc[0], "the stub of the library", err, out)
	}
	return nil
}

// exportedAPI lists the functions of TensorFlow's C API that a library has.
func exportedAPI(library string) ([]string, error) {
	file, err := elf.Open(library)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, symbol := range symbols {
		prefix, _, _ := strings.Cut(symbol.Name, "_")
		if symbol.Section != elf.SHN_UNDEF && (prefix == "TF" || prefix == "TFE" || prefix == "TSL") {
			names = append(names, symbol.Name)
		}
	}
	return names, nil
}
