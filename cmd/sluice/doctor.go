package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/spf13/cobra"

	"github.com/sluice-ml/sluice/bridge"
)

// surroundings are what a program of ours runs on.
type surroundings struct {
	Library   libraryFound  `json:"library"`
	Devices   []deviceFound `json:"devices"`
	Threads   threadsFound  `json:"threads"`
	Processor []string      `json:"processor"` // its extensions that TensorFlow makes use of
	GPU       gpuFacts      `json:"gpu"`

	// What went wrong while looking; not nil: wrong.
	binding, devices, run error

	requireGPU bool // having no GPU is wrong
}

type libraryFound struct {
	Path    string   `json:"path"`
	Version string   `json:"version"`
	Range   []string `json:"supported"` // the oldest and the newest
	wrong   error
}

type deviceFound struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Memory int64  `json:"memory_bytes"`
}

type threadsFound struct {
	Used  int      `json:"used"`  // by a session, unless it is told otherwise
	Cores int      `json:"cores"` // that the process may run on
	Quota *float64 `json:"quota"` // of its cgroup, in cores; null: none
}

// finding is a line of the doctor's answer.
type finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

func doctorCommand() *cobra.Command {
	var asJSON, requireGPU bool
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Say which libtensorflow, devices, threads and processor a program finds here",
		Long: `Look at what a program built with this module finds on this machine:

  library    the libtensorflow that was loaded, and its version against ` + bridge.SupportedVersions + `
  binding    that its Go binding is laid out as this program was compiled for
  devices    what TensorFlow can compute on
  gpu        its GPUs, or exactly why it has none: library, CUDA, driver, container
  threads    how many a session uses: the cores, or the container's CPU quota
  processor  the instructions that TensorFlow makes use of
  run        that a small graph computes what it should

Python is not needed for any of it. Exits with 1 when something is wrong. A program
whose libtensorflow is missing altogether does not start; for that there is

  go run github.com/sluice-ml/sluice/cmd/libtensorflow check`,
		Example: `  sluice doctor
  sluice doctor --require-gpu
  sluice doctor --json | jq .library.version`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			s := lookAround(command.Context())
			s.requireGPU = requireGPU
			return s.report(command.OutOrStdout(), asJSON)
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	command.Flags().BoolVar(&requireGPU, "require-gpu", false, "having no GPU is wrong")
	return command
}

func lookAround(ctx context.Context) surroundings {
	s := surroundings{
		Library: libraryFound{
			Path:    bridge.LibraryPath(),
			Version: bridge.Version(),
			Range:   []string{bridge.OldestVersion, bridge.NewestVersion},
			wrong:   bridge.CheckVersion(),
		},
		Threads:   threadsFound{Used: bridge.Threads(), Cores: runtime.NumCPU()},
		Processor: bridge.CPUFeatures(),
		binding:   bridge.SelfCheck(),
	}
	if quota, limited := bridge.CPUQuota(); limited {
		s.Threads.Quota = &quota
	}
	s.GPU = lookForGPUs("/", s.Library.Path)

	var devices []bridge.Device
	devices, s.devices = bridge.Devices()
	for _, d := range devices {
		s.Devices = append(s.Devices, deviceFound{d.Name, d.Type, d.MemoryBytes})
	}
	s.run = sum(ctx)
	return s
}

// sum has a session add up 1 to 4 and compares.
func sum(ctx context.Context) (err error) {
	g := tf.NewGraph()
	constant := func(name string, dt tf.DataType, value *bridge.Tensor, failed error) tf.Output {
		if err == nil {
			err = failed
		}
		if err != nil {
			return tf.Output{}
		}
		defer value.Close()
		var op *tf.Operation
		op, err = bridge.AddOperation(g, bridge.OpSpec{Type: "Const", Name: name,
			Attrs: []bridge.Attr{{Name: "dtype", Value: dt}, {Name: "value", Value: value}}})
		if err != nil {
			return tf.Output{}
		}
		return op.Output(0)
	}
	numbers, failed := bridge.FromFlat(bridge.Shape{4}, []float32{1, 2, 3, 4})
	x := constant("x", tf.Float, numbers, failed)
	zero, failed := bridge.Scalar(int32(0))
	axis := constant("axis", tf.Int32, zero, failed)
	if err != nil {
		return err
	}
	op, err := bridge.AddOperation(g, bridge.OpSpec{Type: "Sum", Name: "sum", Inputs: []tf.Input{x, axis}})
	if err != nil {
		return err
	}
	session, err := bridge.NewSession(g, bridge.Config{})
	if err != nil {
		return err
	}
	defer session.Close()
	out, err := session.Call(ctx, bridge.Call{Fetches: []tf.Output{op.Output(0)}})
	if err != nil {
		return err
	}
	defer out[0].Close()
	got, err := bridge.Flat[float32](out[0])
	if err != nil {
		return err
	}
	if len(got) != 1 || got[0] != 10 {
		return fmt.Errorf("1 + 2 + 3 + 4 came out as %v", got)
	}
	return nil
}

// findings judges what was seen.
func (s surroundings) findings() []finding {
	var all []finding
	add := func(name string, wrong error, detail string) {
		if wrong != nil {
			detail = wrong.Error()
		}
		all = append(all, finding{name, wrong == nil, detail})
	}

	path := s.Library.Path
	if path == "" {
		path = "(the process does not tell its file)"
	}
	add("library", s.Library.wrong, fmt.Sprintf("TensorFlow %s, of %s that are supported; %s", s.Library.Version, strings.Join(s.Library.Range, "–"), path))
	if s.Library.wrong == nil { // SelfCheck says the same about a version
		add("binding", s.binding, "as it was compiled for")
	}

	devices := s.devices
	if devices == nil && len(s.Devices) == 0 {
		devices = fmt.Errorf("TensorFlow finds no device, not even the CPU")
	}
	names, gpus := make([]string, len(s.Devices)), 0
	for i, d := range s.Devices {
		names[i] = d.Name[strings.LastIndexByte(d.Name, '/')+1:]
		if d.Type != "CPU" { // what TensorFlow tells of a CPU's memory means nothing
			names[i] += fmt.Sprintf(" (%.1f GiB)", float64(d.Memory)/(1<<30))
		}
		if d.Type == "GPU" {
			gpus++
		}
	}
	detail := strings.Join(names, ", ")
	add("devices", devices, detail)
	switch {
	case gpus > 0:
		add("gpu", nil, fmt.Sprintf("%d, by NVIDIA driver %s", gpus, cmp.Or(s.GPU.Driver, "of unknown version")))
	case s.requireGPU:
		add("gpu", errors.New(s.GPU.why()), "")
	default:
		add("gpu", nil, s.GPU.why())
	}

	quota := "no CPU quota"
	if s.Threads.Quota != nil {
		quota = fmt.Sprintf("a CPU quota of %.3g", *s.Threads.Quota)
	}
	add("threads", nil, fmt.Sprintf("%d a session; %d cores, %s", s.Threads.Used, s.Threads.Cores, quota))

	var processor error
	detail = strings.Join(s.Processor, " ")
	switch has := func(feature string) bool { return slices.Contains(s.Processor, feature) }; {
	case len(s.Processor) == 0:
		detail = "(the system does not tell)"
	case !has("AVX"):
		processor = fmt.Errorf("no AVX, which libtensorflow is compiled for; there is %s", detail)
	case !has("AVX2") || !has("FMA"):
		detail += "; without AVX2 and FMA, TensorFlow is slower here than it can be"
	}
	add("processor", processor, detail)
	add("run", s.run, "a small graph computes what it should")
	return all
}

// report prints the findings; errReported says that one of them is bad.
func (s surroundings) report(w io.Writer, asJSON bool) error {
	findings := s.findings()
	ok := !slices.ContainsFunc(findings, func(f finding) bool { return !f.OK })
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(struct {
			OK bool `json:"ok"`
			surroundings
			Findings []finding `json:"findings"`
		}{ok, s, findings}); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			mark := "ok "
			if !f.OK {
				mark = "BAD"
			}
			if _, err := fmt.Fprintf(w, "%s  %-10s %s\n", mark, f.Name, f.Detail); err != nil {
				return err
			}
		}
	}
	if !ok {
		return errReported
	}
	return nil
}
