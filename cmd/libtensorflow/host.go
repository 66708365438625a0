package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// checkPlatform refuses what the wheel is not built for.
func checkPlatform(goos, goarch string, musl bool) error {
	const wanted = "TensorFlow's library is set up for linux/amd64 with glibc"
	if goos != "linux" || goarch != "amd64" {
		return &problem{fmt.Sprintf("%s; this is %s/%s", wanted, goos, goarch),
			"work in a container or machine of that kind, such as docker run --platform linux/amd64 -it golang"}
	}
	if musl {
		return &problem{wanted + "; this system has musl (Alpine)", "use a Debian image in its place, such as golang"}
	}
	return nil
}

// hasMusl tells Alpine and its like by the loader they have, and glibc's that they lack.
func hasMusl(root string) bool {
	musl, _ := filepath.Glob(filepath.Join(root, "lib", "ld-musl-*.so.1"))
	_, err := os.Stat(filepath.Join(root, "lib64", "ld-linux-x86-64.so.2"))
	return len(musl) > 0 && err != nil
}

// checkCPU reads /proc/cpuinfo: the wheel is compiled for AVX, and a processor
// without it kills the program at its first instruction of that kind.
func checkCPU(cpuinfo string) error {
	data, err := os.ReadFile(cpuinfo)
	if err != nil {
		return nil // not told: TensorFlow itself will say
	}
	for line := range strings.Lines(string(data)) {
		if name, flags, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			for _, flag := range strings.Fields(flags) {
				if flag == "avx" {
					return nil
				}
			}
			return &problem{"this processor has no AVX instructions, which TensorFlow is compiled for",
				"use another machine, or in a virtual machine the host's processor model (qemu: -cpu host)"}
		}
	}
	return nil
}

// compiler finds the C compiler that cgo will use.
func compiler() (words []string, err error) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
		if _, err := exec.LookPath(cc); err != nil {
			if set, err := exec.Command("go", "env", "CC").Output(); err == nil {
				cc = strings.TrimSpace(string(set))
			}
		}
	}
	words, err = splitFlags(cc)
	if err != nil || len(words) == 0 {
		return nil, &problem{fmt.Sprintf("CC=%q names no compiler", cc), "unset CC"}
	}
	if _, err := exec.LookPath(words[0]); err != nil {
		if _, err := exec.LookPath("clang"); err == nil && words[0] == "gcc" {
			return nil, &problem{"Go compiles C with gcc, and there is none; there is clang", "export CC=clang"}
		}
		return nil, &problem{fmt.Sprintf("there is no C compiler %q, which cgo needs", words[0]), installPackages(needCompiler)}
	}
	return words, nil
}

// checkHost is what can be known to be wrong before anything is fetched.
func checkHost() error {
	if err := checkPlatform(runtime.GOOS, runtime.GOARCH, hasMusl("/")); err != nil {
		return err
	}
	if err := checkCPU("/proc/cpuinfo"); err != nil {
		return err
	}
	_, err := compiler()
	return err
}

func checkSpace(dir string, wanted uint64) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return nil
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < wanted {
		return &problem{fmt.Sprintf("%s has %.1f GB free, and installing takes up to %.1f GB", dir, float64(free)/1e9, float64(wanted)/1e9),
			"export SLUICE_LIBTENSORFLOW=/a/directory/with/more/room"}
	}
	return nil
}

// need is something that a system's package manager installs, under its name there.
type need map[string]string

var (
	needCompiler = need{"apt-get": "gcc libc6-dev", "dnf": "gcc glibc-devel", "zypper": "gcc glibc-devel", "pacman": "gcc"}
	needPython   = need{"apt-get": "python3 python3-venv", "dnf": "python3", "zypper": "python3", "pacman": "python"}
)

func needVenv(version string) need {
	return need{"apt-get": "python" + version + "-venv", "dnf": "python3-libs", "zypper": "python3-base", "pacman": "python"}
}

// asRoot is the command as this user must give it.
func asRoot(command string) string {
	if os.Geteuid() == 0 {
		return command
	}
	if _, err := exec.LookPath("sudo"); err == nil {
		return "sudo " + command
	}
	return "su -c " + shellQuote(command)
}

// installPackages is the command that brings what is needed on this system.
func installPackages(what need) string {
	for _, manager := range []struct{ name, verb string }{
		{"apt-get", "install -y"}, {"dnf", "install -y"}, {"zypper", "install -y"}, {"pacman", "-S --noconfirm"},
	} {
		if _, err := exec.LookPath(manager.name); err == nil {
			return asRoot(manager.name + " " + manager.verb + " " + what[manager.name])
		}
	}
	return "install with your system's package manager: " + what["apt-get"]
}
