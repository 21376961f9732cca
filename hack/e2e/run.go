package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

// limit is for everything after the programs are built.
const limit = 15 * time.Minute

func run(ctx context.Context, state string, r *report) (err error) {
	switch {
	case runtime.GOOS != "linux":
		return errors.New("this needs Linux: containers and the rules of their network are Linux'")
	case os.Getuid() != 0:
		return errors.New("this needs root: it makes namespaces, mounts and network devices")
	}
	if err := buildPrograms(ctx); err != nil {
		return err
	}
	n, err := startNode(ctx, state)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, n.stop())
		if n.ours() {
			r.succeeds("the node is stopped and leaves nothing", n.left())
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %s", limit))
	defer cancel()
	if err := n.load(ctx); err != nil {
		return err
	}
	s, err := newSuite(ctx, n, r)
	if err != nil {
		return err
	}
	err = s.day()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil || r.failed > 0 {
		s.showLogs()
	}
	return err
}
