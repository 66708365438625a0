package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// A child is a peer in a process of its own.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(ctx context.Context, name string, args ...string) (*child, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &child{cmd, in, bufio.NewReader(out)}, nil
}

// form asks the child to run one of its forms.
func (c *child) form(peer, name string) form {
	return form{peer + " " + name, func(ctx context.Context, n int) (float64, error) {
		if _, err := fmt.Fprintf(c.in, "%s %d\n", name, n); err != nil {
			return 0, err
		}
		line, err := c.out.ReadString('\n')
		if err != nil {
			return 0, errors.Join(ctx.Err(), fmt.Errorf("the process gave no answer: %w", err))
		}
		return strconv.ParseFloat(strings.TrimSpace(line), 64)
	}}
}

// Close ends the child, which stops at the end of its input.
func (c *child) Close() error {
	return errors.Join(c.in.Close(), c.cmd.Wait())
}

// compile builds the C peer with the flags that cgo uses.
func compile(ctx context.Context, source, binary string) error {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	args := append(strings.Fields(os.Getenv("CGO_CFLAGS")), "-O2", source, "-o", binary)
	args = append(args, strings.Fields(os.Getenv("CGO_LDFLAGS"))...)
	if out, err := exec.CommandContext(ctx, cc, append(args, "-ltensorflow")...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cc, err, out)
	}
	return nil
}
