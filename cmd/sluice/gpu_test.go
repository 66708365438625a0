package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDoctorSaysTheFirstReasonForHavingNoGPU(t *testing.T) {
	module := "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
	all := map[string]string{
		"proc/driver/nvidia/version":                module,
		"dev/nvidia0":                               "",
		"usr/lib/x86_64-linux-gnu/libcuda.so.1":     "",
		"lib/nvidia/cuda_runtime/lib/libcudart.so1": "",
	}
	library := "lib/tensorflow/libtensorflow_cc.so.2"
	for name, c := range map[string]struct {
		without []string
		with    map[string]string
		built   bool
		visible string
		says    string
	}{
		"the library is for CPUs":  {built: false, says: "driver (550.54.15), but this libtensorflow is the one for CPUs"},
		"there is nothing at all":  {built: false, without: []string{"proc/driver/nvidia/version"}, says: "none, and this libtensorflow"},
		"CUDA is missing":          {built: true, without: []string{"lib/nvidia/cuda_runtime/lib/libcudart.so1"}, says: "CUDA's libraries are neither"},
		"no driver":                {built: true, without: []string{"proc/driver/nvidia/version", "dev/nvidia0"}, says: "no NVIDIA driver (no /proc/driver/nvidia, no /dev/nvidia0); start it where"},
		"no driver in a container": {built: true, without: []string{"proc/driver/nvidia/version", "dev/nvidia0"}, with: map[string]string{".dockerenv": ""}, says: "docker run --gpus all"},
		"no device":                {built: true, without: []string{"dev/nvidia0"}, says: "driver (550.54.15), but no /dev/nvidia0"},
		"no libcuda":               {built: true, without: []string{"usr/lib/x86_64-linux-gnu/libcuda.so.1"}, says: "libcuda.so.1 is not"},
		"an old driver":            {built: true, with: map[string]string{"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  x\n"}, says: "470.82.01, and CUDA 12 needs 525"},
		"a driver that won't say":  {built: true, with: map[string]string{"proc/driver/nvidia/version": "?"}, says: "of unknown version"},
		"hidden GPUs":              {built: true, visible: "-1", says: `CUDA_VISIBLE_DEVICES="-1" hides`},
		"something else":           {built: true, says: "TF_CPP_MIN_LOG_LEVEL=0"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			files := map[string]string{}
			for path, text := range all {
				files[path] = text
			}
			for path, text := range c.with {
				files[path] = text
			}
			for _, path := range c.without {
				delete(files, path)
			}
			for path, text := range files {
				path = filepath.Join(root, path)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			}
			t.Setenv("LD_LIBRARY_PATH", "")
			t.Setenv("CUDA_VISIBLE_DEVICES", c.visible)
			if c.visible == "" {
				os.Unsetenv("CUDA_VISIBLE_DEVICES")
			}
			f := lookForGPUs(root, filepath.Join(root, library))
			assert.False(t, f.Built, "the library here is the one for CPUs")
			f.Built = c.built
			assert.Contains(t, f.why(), c.says)
		})
	}
}
