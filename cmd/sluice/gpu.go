package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ml/sluice/bridge"
)

// gpuFacts are what decides whether TensorFlow has a GPU to compute on, from
// the library upwards to the processes' settings.
type gpuFacts struct {
	Built   bool   `json:"library_for_gpus"` // libtensorflow has kernels for GPUs
	CUDA    bool   `json:"cuda_libraries"`   // CUDA's own libraries are beside it
	Driver  string `json:"nvidia_driver"`    // the kernel module's version; "": none
	Devices bool   `json:"device_files"`     // /dev/nvidia0 and so on
	LibCUDA bool   `json:"libcuda"`          // the driver's library for programs
	Visible string `json:"cuda_visible_devices"`
	hidden  bool   // CUDA_VISIBLE_DEVICES is set, to no device

	container bool
}

// oldestDriver is the first that runs CUDA 12's libraries.
const oldestDriver = 525

// lookForGPUs gathers the facts. root is "/" but in tests.
func lookForGPUs(root, library string) gpuFacts {
	f := gpuFacts{Built: hasGPUKernels()}
	there := func(patterns ...string) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool {
			found, err := filepath.Glob(pattern)
			return err == nil && len(found) > 0
		})
	}
	beside := filepath.Join(filepath.Dir(library), "..", "nvidia")
	f.CUDA = there(filepath.Join(beside, "cuda_runtime", "lib", "libcudart.so*"),
		filepath.Join(root, "usr/local/cuda*/lib64/libcudart.so*"), filepath.Join(root, "usr/lib/x86_64-linux-gnu/libcudart.so*"))
	f.Driver = driverVersion(filepath.Join(root, "proc/driver/nvidia/version"))
	f.Devices = there(filepath.Join(root, "dev/nvidia[0-9]*"), filepath.Join(root, "dev/dxg"))
	places := []string{"usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64", "usr/lib/wsl/lib", "usr/local/cuda/compat"}
	for i, place := range places {
		places[i] = filepath.Join(root, place)
	}
	for _, place := range append(places, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...) {
		f.LibCUDA = f.LibCUDA || there(filepath.Join(place, "libcuda.so*"))
	}
	var set bool
	f.Visible, set = os.LookupEnv("CUDA_VISIBLE_DEVICES")
	f.hidden = set && (f.Visible == "" || strings.HasPrefix(f.Visible, "-"))
	f.container = there(filepath.Join(root, ".dockerenv"), filepath.Join(root, "run/.containerenv"))
	return f
}

// hasGPUKernels tells a libtensorflow that was compiled for GPUs from one that
// was not, on any machine.
func hasGPUKernels() bool {
	kernels, err := bridge.Kernels("MatMul")
	return err == nil && slices.ContainsFunc(kernels, func(k bridge.Kernel) bool { return k.Device == "GPU" })
}

var nvidiaVersion = regexp.MustCompile(`Kernel Module.*?\s(\d+\.[\d.]+)\s`)

// driverVersion reads what the NVIDIA kernel module says of itself.
func driverVersion(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	line, _ := bufio.NewReader(file).ReadString('\n')
	if found := nvidiaVersion.FindStringSubmatch(line + "\n"); found != nil {
		return found[1]
	}
	return "of unknown version"
}

// why says why TensorFlow has no GPU here, the first cause first, and what
// mends it.
func (f gpuFacts) why() string {
	var major int
	if head, _, dotted := strings.Cut(f.Driver, "."); dotted {
		major, _ = strconv.Atoi(head)
	}
	start := "start it where there is one"
	if f.container {
		start = "start the container with GPUs: docker run --gpus all … (NVIDIA's container toolkit)"
	}
	switch {
	case !f.Built && f.Driver == "":
		return "none, and this libtensorflow is the one for CPUs"
	case !f.Built:
		return fmt.Sprintf("none: there is an NVIDIA driver (%s), but this libtensorflow is the one for CPUs; "+
			"go run github.com/sluice-ml/sluice/cmd/libtensorflow install --gpu gets the other, and the image built with VARIANT=gpu has it", f.Driver)
	case !f.CUDA:
		return "none: CUDA's libraries are neither beside libtensorflow (../nvidia) nor in /usr/local/cuda; cmd/libtensorflow install --gpu brings them"
	case f.Driver == "" && !f.Devices:
		return "none: this machine runs no NVIDIA driver (no /proc/driver/nvidia, no /dev/nvidia0); " + start
	case !f.Devices:
		return fmt.Sprintf("none: there is an NVIDIA driver (%s), but no /dev/nvidia0 in reach; %s", f.Driver, start)
	case !f.LibCUDA:
		return fmt.Sprintf("none: the NVIDIA driver (%s) is there, its library libcuda.so.1 is not; %s, or install the driver's libraries", cmp.Or(f.Driver, "of unknown version"), start)
	case major != 0 && major < oldestDriver:
		return fmt.Sprintf("none: the NVIDIA driver is %s, and CUDA 12 needs %d or newer", f.Driver, oldestDriver)
	case f.hidden:
		return fmt.Sprintf("none: CUDA_VISIBLE_DEVICES=%q hides them all", f.Visible)
	}
	return fmt.Sprintf("none, though library, driver (%s) and devices are there; TensorFlow's own log says more: TF_CPP_MIN_LOG_LEVEL=0 sluice doctor", cmp.Or(f.Driver, "of unknown version"))
}
