package bridge_test

import (
	"math"
	"runtime"
	"testing"
	"testing/fstest"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	config "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
	"github.com/sluice-ml/sluice/bridge"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

func TestConfigRefuses(t *testing.T) {
	g := newGraph(t)
	for _, c := range []struct {
		name   string
		config bridge.Config
		want   string
	}{
		{"negative intra-op threads", bridge.Config{IntraOpThreads: -1}, "IntraOpThreads is -1"},
		{"negative inter-op threads", bridge.Config{InterOpThreads: -2}, "InterOpThreads is -2"},
		{"more threads than any machine has", bridge.Config{IntraOpThreads: 1 << 20}, "IntraOpThreads is 1048576"},
		{"a threading that does not exist", bridge.Config{Threading: 7}, "have CallersThread, Pool, SingleThreaded"},
		{"a negative threading", bridge.Config{Threading: -1}, "Threading is -1"},
		{"a negative memory fraction", bridge.Config{GPU: bridge.GPUConfig{MemoryFraction: -0.1}}, "MemoryFraction is -0.1"},
		{"a memory fraction above one", bridge.Config{GPU: bridge.GPUConfig{MemoryFraction: 1.5}}, "MemoryFraction is 1.5"},
		{"a memory fraction that is no number", bridge.Config{GPU: bridge.GPUConfig{MemoryFraction: math.NaN()}}, "MemoryFraction is NaN"},
		{"devices by name", bridge.Config{GPU: bridge.GPUConfig{VisibleDevices: "GPU:0"}}, `VisibleDevices is "GPU:0"`},
		{"an unfinished device list", bridge.Config{GPU: bridge.GPUConfig{VisibleDevices: "0,"}}, `VisibleDevices is "0,"`},
		{"a negative device", bridge.Config{GPU: bridge.GPUConfig{VisibleDevices: "-1"}}, `VisibleDevices is "-1"`},
		{"a device twice", bridge.Config{GPU: bridge.GPUConfig{VisibleDevices: "0,1,0"}}, "device 0 twice"},
		{"a negative time limit", bridge.Config{Timeout: -time.Second}, "Timeout is -1s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := bridge.NewSession(g.Graph, c.config)
			require.Nil(t, s)
			require.ErrorIs(t, err, bridge.ErrInvalidArgument)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestConfigProto(t *testing.T) {
	read := func(c bridge.Config) *config.ConfigProto {
		b, err := bridge.ConfigProto(c)
		require.NoError(t, err)
		p := new(config.ConfigProto)
		require.NoError(t, proto.Unmarshal(b, p))
		return p
	}
	p := read(bridge.Config{})
	require.EqualValues(t, bridge.Threads(), p.IntraOpParallelismThreads)
	require.EqualValues(t, bridge.Threads(), p.InterOpParallelismThreads)
	require.False(t, p.UsePerSessionThreads)
	require.True(t, p.AllowSoftPlacement)
	require.Zero(t, p.GetGraphOptions().GetOptimizerOptions().GetGlobalJitLevel())

	p = read(bridge.Config{IntraOpThreads: 3, InterOpThreads: 5, NoSoftPlacement: true, LogPlacement: true, XLA: true, Threading: bridge.SingleThreaded,
		GPU: bridge.GPUConfig{MemoryGrowth: true, MemoryFraction: 0.25, VisibleDevices: "1,0"}})
	require.EqualValues(t, 3, p.IntraOpParallelismThreads)
	require.EqualValues(t, 5, p.InterOpParallelismThreads)
	require.True(t, p.UsePerSessionThreads)
	require.False(t, p.AllowSoftPlacement)
	require.True(t, p.LogDevicePlacement)
	require.Equal(t, config.OptimizerOptions_ON_1, p.GraphOptions.OptimizerOptions.GlobalJitLevel)
	require.True(t, p.GraphOptions.OptimizerOptions.CpuGlobalJit)
	require.Equal(t, "SINGLE_THREADED_EXECUTOR", p.Experimental.ExecutorType)
	require.True(t, p.GpuOptions.AllowGrowth)
	require.Equal(t, 0.25, p.GpuOptions.PerProcessGpuMemoryFraction)
	require.Equal(t, "1,0", p.GpuOptions.VisibleDeviceList)
}

func TestEveryConfigComputesTheSame(t *testing.T) {
	for _, c := range []bridge.Config{
		{},
		{Threading: bridge.Pool},
		{Threading: bridge.SingleThreaded},
		{InterOpThreads: 1, IntraOpThreads: 1},
		{XLA: true},
		{GPU: bridge.GPUConfig{MemoryGrowth: true, MemoryFraction: 0.5}},
		{NoSoftPlacement: true},
		{Timeout: time.Hour},
	} {
		d := newDoubler(t)
		got, err := d.session(c).Call(t.Context(), bridge.Call{Feeds: []tf.Output{d.x}, Fetches: []tf.Output{d.y}}, flat(t, bridge.Shape{1, 3}, float32(1), 2, 3))
		require.NoError(t, err)
		require.Equal(t, []float32{2, 4, 6}, values[float32](t, got[0]))
		require.NoError(t, got[0].Close())
	}
	require.Equal(t, "Pool", bridge.Pool.String())
	require.Equal(t, "Threading(9)", bridge.Threading(9).String())
}

func TestRequiredGPU(t *testing.T) {
	devices, err := bridge.Devices()
	require.NoError(t, err)
	hasGPU := false
	for _, d := range devices {
		hasGPU = hasGPU || d.Type == "GPU"
	}
	before := bridge.LiveSessions()
	s, err := bridge.NewSession(newGraph(t).Graph, bridge.Config{GPU: bridge.GPUConfig{Require: true}})
	if hasGPU {
		require.NoError(t, err)
		require.NoError(t, s.Close())
		return
	}
	require.ErrorIs(t, err, bridge.ErrFailedPrecondition)
	require.ErrorContains(t, err, "no GPU; have /job:localhost/replica:0/task:0/device:CPU:0")
	require.Equal(t, before, bridge.LiveSessions())
}

func TestSoftPlacement(t *testing.T) {
	g := newGraph(t)
	x, err := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "NoOp", Name: "x", Device: "/device:GPU:31"})
	require.NoError(t, err)
	require.NoError(t, g.session(bridge.Config{}).Run(t.Context(), x))
	require.ErrorIs(t, g.session(bridge.Config{NoSoftPlacement: true}).Run(t.Context(), x), bridge.ErrInvalidArgument)
}

func TestCPUQuota(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const (
		v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		v1 = "32 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
			"33 25 0:29 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n"
		docker1 = "601 590 0:28 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
	)
	for _, c := range []struct {
		name  string
		files fstest.MapFS
		cores float64
		ok    bool
	}{
		{"no cgroups", fstest.MapFS{}, 0, false},
		{"v2 without a limit", fstest.MapFS{"proc/self/cgroup": file("0::/user.slice\n"), "proc/self/mountinfo": file(v2),
			"sys/fs/cgroup/user.slice/cpu.max": file("max 100000\n")}, 0, false},
		{"v2, a limit of the group", fstest.MapFS{"proc/self/cgroup": file("0::/a/b\n"), "proc/self/mountinfo": file(v2),
			"sys/fs/cgroup/a/b/cpu.max": file("150000 100000\n"), "sys/fs/cgroup/a/cpu.max": file("max 100000\n")}, 1.5, true},
		{"v2, a smaller limit above", fstest.MapFS{"proc/self/cgroup": file("0::/a/b\n"), "proc/self/mountinfo": file(v2),
			"sys/fs/cgroup/a/b/cpu.max": file("400000 100000\n"), "sys/fs/cgroup/a/cpu.max": file("50000 100000\n")}, 0.5, true},
		{"v2 in a container, whose own group is the mount", fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "proc/self/mountinfo": file(v2),
			"sys/fs/cgroup/cpu.max": file("200000 100000\n")}, 2, true},
		{"v2, a group outside of the namespace", fstest.MapFS{"proc/self/cgroup": file("0::/../x\n"), "proc/self/mountinfo": file(v2),
			"sys/fs/cgroup/cpu.max": file("200000 100000\n")}, 2, true},
		{"v1 without a limit", fstest.MapFS{"proc/self/cgroup": file("5:memory:/a\n4:cpu,cpuacct:/a\n"), "proc/self/mountinfo": file(v1),
			"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": file("-1\n"), "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": file("100000\n")}, 0, false},
		{"v1, a limit of the group", fstest.MapFS{"proc/self/cgroup": file("5:memory:/m\n4:cpu,cpuacct:/a\n"), "proc/self/mountinfo": file(v1),
			"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": file("250000\n"), "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": file("100000\n")}, 2.5, true},
		{"v1 in docker, which mounts the group alone", fstest.MapFS{"proc/self/cgroup": file("4:cpu,cpuacct:/docker/abc\n"), "proc/self/mountinfo": file(docker1),
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": file("300000\n"), "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": file("100000\n")}, 3, true},
		{"nonsense in the files", fstest.MapFS{"proc/self/cgroup": file("garbage\n0::/a\n"), "proc/self/mountinfo": file("x\n- -\n" + v2),
			"sys/fs/cgroup/a/cpu.max": file("many few\n"), "sys/fs/cgroup/cpu.max": file("")}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cores, ok := bridge.CPUQuotaIn(c.files)
			require.Equal(t, c.ok, ok)
			require.Equal(t, c.cores, cores)
		})
	}
	n := bridge.Threads()
	require.GreaterOrEqual(t, n, 1)
	require.LessOrEqual(t, n, runtime.NumCPU())
	if cores, ok := bridge.CPUQuota(); ok {
		require.LessOrEqual(t, n, int(math.Ceil(max(cores, 1))))
	}
}
