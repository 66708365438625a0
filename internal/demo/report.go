package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
)

// folder is where the demo's files go, and remembers which of them are there.
type folder struct {
	path  string
	saved []string
}

// openFolder makes the folder. A summary of an earlier run goes, because the files that it
// describes are about to be replaced.
func openFolder(path string) (*folder, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("the output folder can't be made: %w", err)
	}
	if err := os.Remove(filepath.Join(path, summaryFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the summary of an earlier run can't be removed: %w", err)
	}
	return &folder{path: path}, nil
}

// save writes a file under a temporary name and renames it: whoever looks sees it whole or not at all.
func (f *folder) save(name string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(f.path, "."+name+".*")
	if err != nil {
		return fmt.Errorf("%s can't be written: %w", name, err)
	}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(file.Name())
			err = fmt.Errorf("%s can't be written: %w", name, err)
		}
	}()
	if err := write(file); err != nil {
		return err
	}
	if err := file.Chmod(0o644); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), filepath.Join(f.path, name)); err != nil {
		return err
	}
	f.saved = append(f.saved, name)
	return nil
}

// told says what has been saved, for somebody who interrupted.
func (f *folder) told() string {
	if len(f.saved) == 0 {
		return "nothing was saved in " + f.path
	}
	return fmt.Sprintf("%s had been saved in %s", strings.Join(f.saved, ", "), f.path)
}

// progress tells somebody who waits how far a training is: bars on a terminal, elsewhere a
// line at every fifth of the way.
type progress struct {
	w        io.Writer
	terminal bool
}

func newProgress(w io.Writer) *progress {
	file, ok := w.(*os.File)
	if !ok {
		return &progress{w: w}
	}
	info, err := file.Stat()
	return &progress{w: w, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// run calls epoch for 1 to epochs and shows the note that each returns. It ends at the
// first error, or when the context does.
func (p *progress) run(ctx context.Context, what string, epochs int, epoch func(number int) (note string, err error)) error {
	var bar *progressbar.ProgressBar
	if p.terminal {
		bar = progressbar.NewOptions(epochs,
			progressbar.OptionSetWriter(p.w),
			progressbar.OptionSetWidth(24),
			progressbar.OptionSetElapsedTime(false),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionThrottle(60*time.Millisecond),
			progressbar.OptionShowCount(),
			progressbar.OptionSetTheme(progressbar.Theme{Saucer: "━", SaucerHead: "╸", SaucerPadding: " ", BarStart: "│", BarEnd: "│"}),
		)
		// The bar ends where the training does; the next line starts on a line of its own.
		defer fmt.Fprintln(p.w)
	}
	for number := 1; number <= epochs; number++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		note, err := epoch(number)
		if err != nil {
			return err
		}
		switch {
		case bar != nil:
			bar.Describe(fmt.Sprintf("%-34s %s", what, note))
			if err := bar.Add(1); err != nil {
				return err
			}
		case number*5/epochs > (number-1)*5/epochs:
			fmt.Fprintf(p.w, "%-34s epoch %*d of %d  %s\n", what, len(fmt.Sprint(epochs)), number, epochs, note)
		}
	}
	return nil
}
