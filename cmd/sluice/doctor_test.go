package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if tensors, bytes := bridge.Live(); tensors != 0 || bytes != 0 || bridge.LiveSessions() != 0 {
		fmt.Fprintf(os.Stderr, "left alive: %d tensors (%d bytes), %d sessions\n", tensors, bytes, bridge.LiveSessions())
		code = max(code, 1)
	}
	os.Exit(code)
}

func TestDoctorOnThisMachine(t *testing.T) {
	var stdout, stderr strings.Builder
	require.Equal(t, exitOK, run(t.Context(), []*cobra.Command{doctorCommand()}, []string{"doctor", "--json"}, &stdout, &stderr), stdout.String())
	assert.Empty(t, stderr.String())
	var answer struct {
		OK      bool
		Library struct{ Path, Version string }
		Devices []struct{ Name, Type string }
		Threads struct{ Used, Cores int }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout.String()), &answer))
	assert.True(t, answer.OK)
	assert.Equal(t, bridge.Version(), answer.Library.Version)
	assert.FileExists(t, answer.Library.Path)
	assert.Contains(t, filepath.Base(answer.Library.Path), "libtensorflow")
	require.NotEmpty(t, answer.Devices)
	assert.Equal(t, "CPU", answer.Devices[0].Type)
	assert.Equal(t, runtime.NumCPU(), answer.Threads.Cores)
	assert.LessOrEqual(t, answer.Threads.Used, answer.Threads.Cores)

	stdout.Reset()
	require.Equal(t, exitOK, run(t.Context(), []*cobra.Command{doctorCommand()}, []string{"doctor"}, &stdout, &stderr))
	for _, name := range []string{"library", "binding", "devices", "gpu", "threads", "processor", "run"} {
		assert.Regexp(t, "(?m)^ok   "+name, stdout.String())
	}
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	half := 0.5
	well := func() surroundings {
		return surroundings{
			Library:   libraryFound{Path: "/lib/libtensorflow_cc.so.2", Version: "2.21.0", Range: []string{"2.16", "2.21"}},
			Devices:   []deviceFound{{"/job:localhost/replica:0/task:0/device:CPU:0", "CPU", 1 << 28}},
			Threads:   threadsFound{Used: 8, Cores: 8},
			Processor: []string{"AVX", "FMA", "AVX2"},
		}
	}
	for name, c := range map[string]struct {
		change func(*surroundings)
		bad    string // the one finding that is not ok; "": none
		says   string
	}{
		"all is well":             {func(s *surroundings) {}, "", "TensorFlow 2.21.0, of 2.16–2.21 that are supported; /lib/libtensorflow_cc.so.2"},
		"a version not supported": {func(s *surroundings) { s.Library.wrong = errors.New("linked to 2.15.0"); s.binding = s.Library.wrong }, "library", "2.15.0"},
		"another binding":         {func(s *surroundings) { s.binding = errors.New("not laid out") }, "binding", "not laid out"},
		"no device":               {func(s *surroundings) { s.Devices = nil }, "devices", "not even the CPU"},
		"devices that fail":       {func(s *surroundings) { s.devices = errors.New("CUDA_ERROR") }, "devices", "CUDA_ERROR"},
		"a GPU": {func(s *surroundings) {
			s.GPU.Driver = "550.54.15"
			s.Devices = append(s.Devices, deviceFound{"/device:GPU:0", "GPU", 3 << 29})
		}, "", "device:CPU:0, device:GPU:0 (1.5 GiB)\n"},
		"no GPU":                 {func(s *surroundings) {}, "", "gpu        none, and this libtensorflow is the one for CPUs"},
		"no GPU, and one needed": {func(s *surroundings) { s.requireGPU = true }, "gpu", "the one for CPUs"},
		"a container's quota":    {func(s *surroundings) { s.Threads = threadsFound{1, 8, &half} }, "", "1 a session; 8 cores, a CPU quota of 0.5"},
		"no AVX":                 {func(s *surroundings) { s.Processor = []string{"SSE3"} }, "processor", "no AVX"},
		"AVX without AVX2":       {func(s *surroundings) { s.Processor = []string{"AVX"} }, "", "slower"},
		"an unknown processor":   {func(s *surroundings) { s.Processor = nil }, "", "does not tell"},
		"a wrong sum":            {func(s *surroundings) { s.run = errors.New("came out as [11]") }, "run", "[11]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := well()
			c.change(&s)
			var out strings.Builder
			err := s.report(&out, false)
			assert.Contains(t, out.String(), c.says)
			if c.bad == "" {
				assert.NoError(t, err)
				assert.NotContains(t, out.String(), "BAD")
				return
			}
			assert.ErrorIs(t, err, errReported)
			assert.Regexp(t, "(?m)^BAD  "+c.bad, out.String())
			assert.Equal(t, 1, strings.Count(out.String(), "BAD"))

			out.Reset()
			assert.ErrorIs(t, s.report(&out, true), errReported)
			assert.Contains(t, out.String(), `"ok": false`)
		})
	}
}
