package bridge

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	config "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"
)

// Threading says which thread computes a run that has no time limit.
type Threading int

const (
	// CallersThread computes in the thread that called Run: no hand-over, two to
	// four times as fast for a small step. Kernels still use the intra-op threads.
	// A run under a deadline goes to the pool, where alone TensorFlow can stop it.
	CallersThread Threading = iota
	// Pool hands each run to the inter-op threads, so that independent parts of a
	// large graph run beside each other.
	Pool
	// SingleThreaded uses TensorFlow's single-threaded executor: the least work a
	// node, one node after the other. Graphs with v1 control flow (Switch, Merge,
	// Enter …) are refused by TensorFlow.
	SingleThreaded
)

var threadingNames = [...]string{"CallersThread", "Pool", "SingleThreaded"}

// String is the constant's name.
func (t Threading) String() string {
	if t >= 0 && int(t) < len(threadingNames) {
		return threadingNames[t]
	}
	return "Threading(" + strconv.Itoa(int(t)) + ")"
}

// GPUConfig is how a session uses GPUs (Python: tf.config.experimental,
// tf.compat.v1.GPUOptions). The zero value lets TensorFlow take every GPU it
// sees and most of its memory, as it does by default.
type GPUConfig struct {
	// MemoryGrowth takes GPU memory as it is needed instead of all at once.
	MemoryGrowth bool
	// MemoryFraction is the part of each GPU's memory that the process may take,
	// above 0 and at most 1. 0: TensorFlow's own choice.
	MemoryFraction float64
	// VisibleDevices lists the GPUs to use by their CUDA numbers, such as "0,2",
	// in the order in which they become /device:GPU:0 and so on. "": all.
	VisibleDevices string
	// Require makes NewSession an error when there is no GPU, instead of falling
	// back to the CPU.
	Require bool
}

// Config is how a session runs (TensorFlow's ConfigProto). The zero value is a
// good one: as many threads as the process may use, runs in the caller's
// thread, soft placement, no time limit.
type Config struct {
	// IntraOpThreads is how many threads one kernel may use. 0: as many as the
	// process has cores, no more than its cgroup's CPU quota allows (Threads).
	// TensorFlow has one intra-op pool a process, made by the first session; later
	// sessions share it, whatever they ask for.
	IntraOpThreads int
	// InterOpThreads is how many kernels of the pool's runs go beside each other.
	// 0: as many as IntraOpThreads has by default, in a pool that all such
	// sessions share; otherwise the session has a pool of its own.
	InterOpThreads int
	// Threading is CallersThread by default.
	Threading Threading
	GPU       GPUConfig
	// NoSoftPlacement makes it an error when an op has no kernel on the device
	// that it was given, instead of using another device.
	NoSoftPlacement bool
	// XLA compiles clusters of ops just in time, on the CPU as well.
	XLA bool
	// LogPlacement makes TensorFlow log the device of every node.
	LogPlacement bool
	// Timeout is the time limit of runs whose context has no deadline. 0: none.
	// Such runs go to the pool (see Threading).
	Timeout time.Duration
}

var deviceNumbers = regexp.MustCompile(`^\d{1,4}(,\d{1,4})*$`)

func (c Config) check() error {
	const op = "Config"
	threads := func(name string, n int) error {
		if n < 0 || n > math.MaxInt16 {
			return invalid(op, "%s is %d; wanted 0 (the default) to %d", name, n, math.MaxInt16)
		}
		return nil
	}
	if err := threads("IntraOpThreads", c.IntraOpThreads); err != nil {
		return err
	}
	if err := threads("InterOpThreads", c.InterOpThreads); err != nil {
		return err
	}
	if c.Threading < 0 || int(c.Threading) >= len(threadingNames) {
		return invalid(op, "Threading is %d; have %s", int(c.Threading), strings.Join(threadingNames[:], ", "))
	}
	// Written so that NaN is refused as well.
	if f := c.GPU.MemoryFraction; f != 0 && !(f > 0 && f <= 1) {
		return invalid(op, "GPU.MemoryFraction is %v; wanted 0 (the default), or above 0 and at most 1", f)
	}
	if v := c.GPU.VisibleDevices; v != "" {
		if !deviceNumbers.MatchString(v) {
			return invalid(op, "GPU.VisibleDevices is %q; wanted CUDA device numbers such as \"0,2\"", v)
		}
		seen := map[string]bool{}
		for number := range strings.SplitSeq(v, ",") {
			if seen[number] {
				return invalid(op, "GPU.VisibleDevices is %q, which names device %s twice", v, number)
			}
			seen[number] = true
		}
	}
	if c.Timeout < 0 {
		return invalid(op, "Timeout is %v; wanted 0 (none) or more", c.Timeout)
	}
	return nil
}

// proto is the serialized ConfigProto.
func (c Config) proto() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	threads := func(n int) int32 {
		if n == 0 {
			n = Threads()
		}
		return int32(n)
	}
	p := &config.ConfigProto{
		IntraOpParallelismThreads: threads(c.IntraOpThreads),
		InterOpParallelismThreads: threads(c.InterOpThreads),
		UsePerSessionThreads:      c.InterOpThreads != 0,
		AllowSoftPlacement:        !c.NoSoftPlacement,
		LogDevicePlacement:        c.LogPlacement,
		GpuOptions: &config.GPUOptions{
			AllowGrowth:                 c.GPU.MemoryGrowth,
			PerProcessGpuMemoryFraction: c.GPU.MemoryFraction,
			VisibleDeviceList:           c.GPU.VisibleDevices,
		},
	}
	if c.XLA {
		p.GraphOptions = &config.GraphOptions{OptimizerOptions: &config.OptimizerOptions{
			GlobalJitLevel: config.OptimizerOptions_ON_1,
			CpuGlobalJit:   true,
		}}
	}
	if c.Threading == SingleThreaded {
		p.Experimental = &config.ConfigProto_Experimental{ExecutorType: "SINGLE_THREADED_EXECUTOR"}
	}
	b, err := proto.Marshal(p)
	if err != nil {
		return nil, Errorf(Internal, "Config", "%w", err)
	}
	return b, nil
}

// Threads is how many threads TensorFlow gets by default: the cores that the
// process may run on, or its cgroup's CPU quota, rounded up, when that is less.
// TensorFlow itself does not look at the quota.
func Threads() int {
	n := runtime.NumCPU()
	if quota, ok := CPUQuota(); ok {
		n = min(n, max(1, int(math.Ceil(quota))))
	}
	return n
}

// CPUQuota is the CPU time, in cores, that the process's cgroup (v1 or v2) or
// one above it allows, as containers are given by docker's --cpus or a
// Kubernetes limit. ok is false where there is no limit.
func CPUQuota() (cores float64, ok bool) { return cpuQuota(os.DirFS("/")) }

// cpuQuota reads the cgroup files below root.
func cpuQuota(root fs.FS) (cores float64, ok bool) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return 0, false
	}
	for _, m := range cgroupMounts(mounts) {
		for _, line := range strings.Split(string(groups), "\n") {
			// "0::/path" is v2, "4:cpu,cpuacct:/path" v1.
			parts := strings.SplitN(line, ":", 3)
			if len(parts) != 3 || m.v2 != (parts[1] == "") {
				continue
			}
			if !m.v2 && !hasWord(parts[1], "cpu") {
				continue
			}
			if n, found := m.quota(root, parts[2]); found && (!ok || n < cores) {
				cores, ok = n, true
			}
		}
	}
	return cores, ok
}

// cgroupMount is a mounted hierarchy: what is at `shown` in the hierarchy is at
// `at` in the file system.
type cgroupMount struct {
	shown, at string
	v2        bool
}

func cgroupMounts(mountinfo []byte) []cgroupMount {
	var mounts []cgroupMount
	lines := bufio.NewScanner(bytes.NewReader(mountinfo))
	for lines.Scan() {
		// 36 35 98:0 /shown /at rw,noatime shared:1 - cgroup cgroup rw,cpu
		before, after, _ := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 5 || len(right) < 1 {
			continue
		}
		switch {
		case right[0] == "cgroup2":
			mounts = append(mounts, cgroupMount{left[3], left[4], true})
		case right[0] == "cgroup" && len(right) > 2 && hasWord(right[2], "cpu"):
			mounts = append(mounts, cgroupMount{left[3], left[4], false})
		}
	}
	return mounts
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// quota is the smallest limit of the group and those above it, as far as they
// are mounted.
func (m cgroupMount) quota(root fs.FS, group string) (cores float64, ok bool) {
	rest, inside := strings.CutPrefix(path.Clean(group), strings.TrimSuffix(m.shown, "/"))
	if !inside || strings.Contains(group, "..") {
		rest = "" // a namespace shows the process's own group at the mount
	}
	for dir := path.Join("/", rest); ; dir = path.Dir(dir) {
		if n, found := m.limit(root, path.Join(m.at, dir)); found && (!ok || n < cores) {
			cores, ok = n, true
		}
		if dir == "/" {
			return cores, ok
		}
	}
}

func (m cgroupMount) limit(root fs.FS, dir string) (cores float64, ok bool) {
	read := func(name string) []string {
		b, err := fs.ReadFile(root, strings.TrimPrefix(path.Join(dir, name), "/"))
		if err != nil {
			return nil
		}
		return strings.Fields(string(b))
	}
	var fields []string
	if m.v2 {
		fields = read("cpu.max") // "max 100000" or "150000 100000"
	} else {
		fields = append(read("cpu.cfs_quota_us"), read("cpu.cfs_period_us")...) // -1: none
	}
	if len(fields) != 2 {
		return 0, false
	}
	quota, err1 := strconv.ParseFloat(fields[0], 64)
	period, err2 := strconv.ParseFloat(fields[1], 64)
	if err1 != nil || err2 != nil || !(quota > 0) || !(period > 0) {
		return 0, false
	}
	return quota / period, true
}
