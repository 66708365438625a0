package bridge

// #include <stdlib.h>
// #include "tensorflow/c/c_api.h"
import "C"

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	kerneldef "github.com/galeone/tensorflow/tensorflow/go/core/framework/kernel_def_go_proto"
	"google.golang.org/protobuf/proto"
)

// The versions of libtensorflow that this package is made for and tested with,
// as "major.minor".
const (
	OldestVersion = "2.16"
	NewestVersion = "2.21"
)

// SupportedVersions reads as "2.16–2.21".
const SupportedVersions = OldestVersion + "–" + NewestVersion

// Version is the linked libtensorflow's version, such as "2.21.0" (TF_Version).
func Version() string { return C.GoString(C.TF_Version()) }

// CheckVersion is an error when the linked libtensorflow is none of
// SupportedVersions. SelfCheck includes it, so that a session or a graph
// operation is refused with this error and not by a crash.
func CheckVersion() error { return checkVersion(Version()) }

func checkVersion(version string) error {
	minor := func(v string) int {
		major, rest, _ := strings.Cut(v, ".")
		second, _, _ := strings.Cut(rest, ".")
		a, errA := strconv.Atoi(major)
		b, errB := strconv.Atoi(second)
		if errA != nil || errB != nil {
			return -1
		}
		return a*1000 + b
	}
	if m := minor(version); m < minor(OldestVersion) || m > minor(NewestVersion) {
		return Errorf(Unimplemented, "self-check", "this program is linked to libtensorflow %s, wanted one of %s; `go run github.com/sluice-ml/sluice/cmd/libtensorflow install` gets the right one", version, SupportedVersions)
	}
	return nil
}

// LibraryPath is the file that libtensorflow was loaded from; "" when the
// program's memory map does not tell.
func LibraryPath() string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	return libraryPath(string(maps))
}

func libraryPath(maps string) string {
	framework := ""
	for line := range strings.Lines(maps) {
		// address perms offset dev inode path
		i := strings.IndexByte(line, '/')
		if i < 0 {
			continue
		}
		path := strings.TrimSuffix(strings.TrimSuffix(line[i:], "\n"), " (deleted)")
		switch base := filepath.Base(path); {
		case strings.HasPrefix(base, "libtensorflow_framework"):
			framework = path
		case strings.HasPrefix(base, "libtensorflow"):
			return path
		}
	}
	return framework
}

// Device is something that TensorFlow can run operations on.
type Device struct {
	Name        string // such as "/job:localhost/replica:0/task:0/device:CPU:0"
	Type        string // such as "CPU" and "GPU"
	MemoryBytes int64  // that TensorFlow may use
	Incarnation uint64 // another number each time the device is set up
}

// Devices lists the devices that a new session would have
// (TF_SessionListDevices). GPU memory is not taken, apart from what the driver
// takes for any program that looks.
func Devices() ([]Device, error) {
	if layoutError != nil {
		return nil, layoutError
	}
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	options := C.TF_NewSessionOptions()
	defer C.TF_DeleteSessionOptions(options)
	growth := []byte{0x32, 0x02, 0x20, 0x01} // ConfigProto{gpu_options: {allow_growth: true}}
	C.TF_SetConfig(options, unsafe.Pointer(&growth[0]), C.size_t(len(growth)), status)
	if err := statusError(status, "Devices"); err != nil {
		return nil, err
	}
	graph := C.TF_NewGraph()
	defer C.TF_DeleteGraph(graph)
	session := C.TF_NewSession(graph, options, status)
	if err := statusError(status, "Devices"); err != nil {
		return nil, err
	}
	// The list is read before the session goes; a failure to close an unused
	// session has nobody to tell.
	defer func() {
		ignored := C.TF_NewStatus()
		C.TF_DeleteSession(session, ignored)
		C.TF_DeleteStatus(ignored)
	}()
	list := C.TF_SessionListDevices(session, status)
	if err := statusError(status, "Devices"); err != nil {
		return nil, err
	}
	defer C.TF_DeleteDeviceList(list)
	devices := make([]Device, C.TF_DeviceListCount(list))
	for i := range devices {
		at := C.int(i)
		devices[i] = Device{
			Name:        C.GoString(C.TF_DeviceListName(list, at, status)),
			Type:        C.GoString(C.TF_DeviceListType(list, at, status)),
			MemoryBytes: int64(C.TF_DeviceListMemoryBytes(list, at, status)),
			Incarnation: uint64(C.TF_DeviceListIncarnation(list, at, status)),
		}
	}
	return devices, statusError(status, "Devices")
}

// Kernel is one implementation of an op.
type Kernel struct {
	Device      string                   // the device type that it runs on, such as "CPU" and "GPU"
	Types       map[string][]tf.DataType // attributes and the types it takes for them; not limited for others
	HostMemory  []string                 // arguments that are in the host's memory whatever the device
	Label       string                   // asked for by the attribute _kernel; as a rule empty
	Priority    int                      // of several that fit the highest is taken
	Constraints string                   // what else it is limited to, as TensorFlow prints it; as a rule empty
}

// Kernels lists the implementations of an op (TF_GetRegisteredKernelsForOp), by
// device. An op without one exists, but can't be run; an unknown op is
// ErrNotFound.
func Kernels(opType string) ([]Kernel, error) {
	if registered(opType) == nil {
		return nil, unknownOp(opType, "")
	}
	name := C.CString(opType)
	defer C.free(unsafe.Pointer(name))
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	buffer := C.TF_GetRegisteredKernelsForOp(name, status)
	if err := statusError(status, opType); err != nil {
		return nil, err
	}
	defer C.TF_DeleteBuffer(buffer)
	var list kerneldef.KernelList
	if err := proto.Unmarshal(bufferBytes(buffer), &list); err != nil {
		return nil, Errorf(Internal, opType, "libtensorflow's kernel list can't be read: %w", err)
	}
	kernels := make([]Kernel, len(list.Kernel))
	for i, def := range list.Kernel {
		kernel := Kernel{Device: def.DeviceType, HostMemory: def.HostMemoryArg, Label: def.Label, Priority: int(def.Priority)}
		for _, constraint := range def.Constraint {
			types := constraint.AllowedValues.GetList().GetType()
			if len(types) == 0 {
				if kernel.Constraints != "" {
					kernel.Constraints += "; "
				}
				kernel.Constraints += constraint.Name + " in " + constraint.AllowedValues.String()
				continue
			}
			if kernel.Types == nil {
				kernel.Types = make(map[string][]tf.DataType)
			}
			for _, t := range types {
				kernel.Types[constraint.Name] = append(kernel.Types[constraint.Name], tf.DataType(t))
			}
		}
		kernels[i] = kernel
	}
	slices.SortStableFunc(kernels, func(a, b Kernel) int { return strings.Compare(a.Device, b.Device) })
	return kernels, nil
}

// CPUFeatures lists the processor's extensions that TensorFlow makes use of,
// such as "AVX2" and "FMA", the oldest first; none where /proc/cpuinfo does not
// tell. libtensorflow does not start without AVX.
func CPUFeatures() []string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return nil
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if key, flags, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(key) == "flags" {
			return cpuFeatures(strings.Fields(flags))
		}
	}
	return nil
}

func cpuFeatures(flags []string) []string {
	var found []string
	for _, flag := range []string{
		"sse3", "ssse3", "sse4_1", "sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512_vnni",
		"avx512_bf16", "avx512_fp16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16",
	} {
		// The kernel calls SSE3 "pni".
		if slices.Contains(flags, flag) || flag == "sse3" && slices.Contains(flags, "pni") {
			found = append(found, strings.ToUpper(flag))
		}
	}
	return found
}
