package bridge

// #include <stdlib.h>
// #include "tensorflow/c/c_api.h"
import "C"

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	opdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/op_def_go_proto"
	"google.golang.org/protobuf/proto"
)

var libraries = struct {
	sync.Mutex
	ops map[string][]string // by the file's own path, links resolved
}{ops: make(map[string][]string)}

// LoadLibrary loads a library of custom ops and kernels and returns the ops that
// it registers, by name (TF_LoadLibrary). To load one again does nothing and gives the
// same list. A library can't be unloaded.
//
// Errors: ErrNotFound when there is no such file, ErrInvalidArgument when it is
// no shared library for this machine, ErrFailedPrecondition when it does not fit
// this libtensorflow or a library that it needs is missing.
func LoadLibrary(path string) ([]string, error) {
	if layoutError != nil {
		return nil, layoutError
	}
	op := "library " + path
	if strings.IndexByte(path, 0) >= 0 {
		return nil, invalid("LoadLibrary", "the path %q holds a NUL", path)
	}
	file, err := filepath.EvalSymlinks(path)
	if err == nil {
		file, err = filepath.Abs(file)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Errorf(NotFound, op, "there is no such file")
	}
	if err != nil {
		return nil, Errorf(InvalidArgument, op, "%w", err)
	}
	libraries.Lock()
	defer libraries.Unlock()
	if ops, ok := libraries.ops[file]; ok {
		return slices.Clone(ops), nil
	}
	if err := checkLibrary(op, file); err != nil {
		return nil, err
	}
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	library := C.TF_LoadLibrary(name, status)
	if code := Code(C.TF_GetCode(status)); code != OK {
		return nil, loadError(op, file, code, C.GoString(C.TF_Message(status)))
	}
	defer C.TF_DeleteLibraryHandle(library)
	buffer := C.TF_GetOpList(library)
	var list opdef.OpList
	if err := proto.Unmarshal(bufferBytes(&buffer), &list); err != nil {
		return nil, Errorf(Internal, op, "its op list can't be read: %w", err)
	}
	ops := make([]string, len(list.Op))
	for i, def := range list.Op {
		ops[i] = def.Name
	}
	slices.Sort(ops)
	libraries.ops[file] = ops
	forgetNames()
	return slices.Clone(ops), nil
}

// checkLibrary tells what the dynamic linker tells, in words.
func checkLibrary(op, file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return Errorf(InvalidArgument, op, "%w", err)
	}
	if !info.Mode().IsRegular() {
		return invalid(op, "is not a file: wanted a shared library (.so)")
	}
	library, err := elf.Open(file)
	if errors.Is(err, fs.ErrPermission) {
		return Errorf(PermissionDenied, op, "%w", err)
	}
	if err != nil {
		return invalid(op, "is not a shared library (ELF): %w", err)
	}
	defer library.Close()
	if library.Type != elf.ET_DYN || library.Class != elf.ELFCLASS64 || library.Machine != elf.EM_X86_64 {
		return invalid(op, "is %v for %v: wanted a shared library for %s", library.Type, library.Machine, runtime.GOARCH)
	}
	return nil
}

func loadError(op, file string, code Code, message string) error {
	message = strings.TrimPrefix(strings.TrimSpace(message), file+": ")
	if symbol, ok := strings.CutPrefix(message, "undefined symbol: "); ok {
		return Errorf(FailedPrecondition, op, "it needs the symbol %s, which libtensorflow %s does not have: it was built for another version", symbol, Version())
	}
	if missing, _, ok := strings.Cut(message, ": cannot open shared object file"); ok {
		return Errorf(FailedPrecondition, op, "it needs the library %s, which was not found", missing)
	}
	return &Error{Code: code, Op: op, Message: message}
}
