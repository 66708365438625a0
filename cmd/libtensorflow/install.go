package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// installation is what install answers.
type installation struct {
	Root string `json:"root"`
	receipt
	Changed bool `json:"changed"` // false: all was there
}

func install(ctx context.Context, o options) error {
	if err := checkHost(); err != nil {
		return err
	}
	with, err := readRequirements(o.with)
	if err != nil {
		return err
	}
	t := tree(o.root)
	if err := t.foreign(); err != nil {
		return &problem{err.Error(), "name another directory with --dir, or empty this one"}
	}
	if r := t.satisfied(o.variant, with); r != nil {
		return o.report(*r, false)
	}
	if err := os.MkdirAll(o.root, 0o755); err != nil {
		return &problem{err.Error(), "name a directory that you may write to with --dir or SLUICE_LIBTENSORFLOW"}
	}
	lock, err := t.lock(ctx, o)
	if err != nil {
		return err
	}
	defer lock.Close()
	if r := t.satisfied(o.variant, with); r != nil { // another one did it meanwhile
		return o.report(*r, false)
	}

	w := work{options: o, tree: t, lock: lock}
	r := t.complete(o.variant)
	python, healthy := t.healthy(ctx, o.variant)
	if r == nil || !healthy {
		if r, err = w.library(ctx, python, healthy); err != nil {
			return err
		}
	}
	if with.hash != "" && r.With != with.hash {
		if err := w.requirements(ctx, r, with); err != nil {
			return err
		}
	}
	return o.report(*r, true)
}

func (o options) report(r receipt, changed bool) error {
	if o.json {
		return printJSON(o.out, installation{Root: o.root, receipt: r, Changed: changed})
	}
	how := "is there already"
	if changed {
		how = "is ready"
	}
	fmt.Fprintf(o.log, "libtensorflow %s %s in %s\n", r.Version, how, o.root)
	return nil
}

// requirementFiles are the ones named by --with, and one hash of all they say.
type requirementFiles struct {
	paths []string
	hash  string
}

func readRequirements(paths []string) (requirementFiles, error) {
	files := requirementFiles{}
	var texts []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return files, fmt.Errorf("--with: %w", err)
		}
		if path, err = filepath.Abs(path); err != nil {
			return files, err
		}
		files.paths = append(files.paths, path)
		texts = append(texts, string(text))
	}
	if len(texts) > 0 {
		files.hash = digest(texts...)
	}
	return files, nil
}

// satisfied is the receipt when there is nothing to do, or nil.
func (t tree) satisfied(v variant, with requirementFiles) *receipt {
	r := t.complete(v)
	if r == nil || with.hash == "" {
		return r
	}
	if _, err := os.Stat(t.python()); err != nil || r.With != with.hash {
		return nil
	}
	return r
}

// lock waits until no other install works in this tree. What install starts
// inherits the lock, so that it is held for as long as a pip is at work, even
// one whose install was killed.
func (t tree) lock(ctx context.Context, o options) (*os.File, error) {
	file, err := os.OpenFile(t.path("lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, &problem{err.Error(), "name a directory that you may write to with --dir or SLUICE_LIBTENSORFLOW"}
	}
	told := false
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			file.Close()
			return nil, fmt.Errorf("locking %s: %w", file.Name(), err)
		}
		if !told {
			fmt.Fprintf(o.log, "another install is at work in %s; waiting for it\n", t)
			told = true
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// work is an install that holds the lock.
type work struct {
	options
	tree tree
	lock *os.File
}

// library makes the tree complete, from nothing or from wherever an earlier
// install was interrupted. The receipt is written last.
func (w work) library(ctx context.Context, python interpreter, healthy bool) (*receipt, error) {
	t := w.tree
	if err := os.Remove(t.marker()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if !healthy {
		found, err := findPython(ctx, w.python, w.variant)
		if err != nil {
			return nil, err
		}
		if err := checkSpace(w.root, w.variant.space); err != nil {
			return nil, err
		}
		w.say("making a Python %s environment in %s", found.version(), t.path("venv"))
		if err := w.command(ctx, found.Path, "-m", "venv", "--clear", t.path("venv")); err != nil {
			return nil, w.explain(ctx, err, found.Path+" could not make a virtual environment", installPackages(needVenv(fmt.Sprintf("%d.%d", found.Major, found.Minor))))
		}
		if python, healthy = t.healthy(ctx, w.variant); !healthy {
			return nil, w.explain(ctx, errors.New("its pip does not run"), "the environment made by "+found.Path+" is not usable", "name another Python with --python")
		}
	}
	site, err := t.sitePackages()
	if err != nil {
		return nil, err
	}
	if err := w.forgetBroken(site); err != nil {
		return nil, err
	}
	if err := w.wheels(ctx, site); err != nil {
		return nil, err
	}
	if err := w.link(ctx, site); err != nil {
		return nil, err
	}
	version, err := probe(ctx, t)
	if err != nil {
		return nil, err
	}
	if version != w.variant.version {
		return nil, fmt.Errorf("the library in %s says it is TensorFlow %s, not %s", w.root, version, w.variant.version)
	}
	r := receipt{Layout: layout, Wheel: w.variant.wheel + " " + w.variant.version, Version: version, Python: python.version(), Requirements: digest(w.variant.requirements)}
	if err := t.write(r); err != nil {
		return nil, err
	}
	return &r, os.RemoveAll(t.path("wheels"))
}

// wheels has pip fetch the pinned wheels into the tree, then install them from
// there: an install that breaks off between the two need not fetch them again.
func (w work) wheels(ctx context.Context, site string) error {
	if installed(site, w.variant.requirements) {
		return nil
	}
	if err := checkSpace(w.root, w.variant.space); err != nil {
		return err
	}
	list := w.tree.path("wheels", "requirements.txt")
	if err := replace(list, func(temporary string) error {
		return os.WriteFile(temporary, []byte(w.variant.requirements), 0o644)
	}); err != nil {
		return err
	}
	wheels := w.tree.path("wheels")
	pinnedOnly := []string{"--no-deps", "--require-hashes", "--only-binary=:all:", "-r", list}
	w.say("fetching %s %s", w.variant.wheel, w.variant.version)
	if err := w.pip(ctx, append([]string{"download", "-d", wheels}, pinnedOnly...)...); err != nil {
		return w.explain(ctx, err, "pip could not fetch the library",
			"check the network and pip's settings (python3 -m pip config list), then  "+self("install", w.options))
	}
	w.say("installing %s %s", w.variant.wheel, w.variant.version)
	if err := w.pip(ctx, append([]string{"install", "--no-index", "--find-links", wheels}, pinnedOnly...)...); err != nil {
		return w.explain(ctx, err, "pip could not install the library", "rm -rf "+shellQuote(w.root)+" && "+self("install", w.options))
	}
	return nil
}

// link puts the library and its headers where the build flags point. Links are
// relative, so that the tree can be copied into an image.
func (w work) link(ctx context.Context, site string) error {
	for name, target := range links(w.variant) {
		target = filepath.Join(site, target)
		if _, err := os.Stat(target); err != nil {
			return &problem{"the wheel lacks " + target, "rm -rf " + shellQuote(w.root) + " && " + self("install", w.options)}
		}
		path := w.tree.path(name)
		if relative, err := filepath.Rel(filepath.Dir(path), target); err == nil {
			target = relative
		}
		if err := replace(path, func(temporary string) error { return os.Symlink(target, temporary) }); err != nil {
			return err
		}
	}
	return replace(w.tree.path("lib", "libtensorflow.so"), func(temporary string) error {
		return writeStub(ctx, temporary, w.tree.path("lib", "libtensorflow_cc.so.2"), w.tree.path("lib", "libtensorflow_framework.so.2"))
	})
}

// requirements has pip install the --with files beside the library.
func (w work) requirements(ctx context.Context, r *receipt, with requirementFiles) error {
	r.With, r.WithFiles = "", ""
	if err := w.tree.write(*r); err != nil {
		return err
	}
	site, err := w.tree.sitePackages()
	if err != nil {
		return err
	}
	if err := w.forgetBroken(site); err != nil {
		return err
	}
	args := []string{"install", "--require-hashes", "--only-binary=:all:"}
	for _, path := range with.paths {
		args = append(args, "-r", path)
	}
	w.say("installing %s", strings.Join(w.with, " and "))
	if err := w.pip(ctx, args...); err != nil {
		return w.explain(ctx, err, "pip could not install "+strings.Join(w.with, " and "),
			"check the network, pip's settings (python3 -m pip config list) and the file, then run this again")
	}
	// pip may have replaced what the library came with.
	if missing := w.tree.missing(w.variant); len(missing) > 0 || !installed(site, w.variant.requirements) {
		os.Remove(w.tree.marker())
		return &problem{fmt.Sprintf("%s replaced the library by another version", strings.Join(w.with, " and ")),
			"take tensorflow out of it, then  " + self("install", w.options)}
	}
	r.With, r.WithFiles = with.hash, strings.Join(w.with, " ")
	return w.tree.write(*r)
}

func (w work) forgetBroken(site string) error {
	broken, err := forgetBroken(site)
	if len(broken) > 0 {
		w.say("an earlier install was interrupted; doing again: %s", strings.Join(broken, ", "))
	}
	return err
}

func (w work) pip(ctx context.Context, args ...string) error {
	return w.command(ctx, w.tree.python(), append([]string{"-m", "pip", "--disable-pip-version-check", "--no-input"}, args...)...)
}

// command runs a program that shows its progress to the user and holds the lock.
func (w work) command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = w.log, w.log
	cmd.ExtraFiles = []*os.File{w.lock}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.Run()
}

func (w work) say(format string, args ...any) { fmt.Fprintf(w.log, format+"\n", args...) }

// explain turns the failure of a program into a problem, unless it was ours to stop.
func (w work) explain(ctx context.Context, err error, what, mend string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &problem{fmt.Sprintf("%s (%v)", what, err), mend}
}
