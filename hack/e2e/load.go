package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sandbox-provisioner/client"
)

// A load is what gateways do, over and over, until it is stopped: each request once, never repeated.
type load struct {
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu       sync.Mutex
	requests int
	failures []error
}

const (
	// Readers look at a sandbox that lives, writers make and delete others. The pauses leave some of two cores to the cluster.
	readers, writers = 3, 1
	readPause        = 50 * time.Millisecond
	writePause       = time.Second
)

func (s *suite) startLoad(live string) *load {
	ctx, cancel := context.WithCancel(s.ctx)
	l := &load{cancel: cancel}
	for range readers {
		l.repeat(ctx, readPause, func(int) {
			sandbox, err := s.provisioner.Get(s.ctx, live)
			if err == nil && sandbox.Status != client.Running {
				err = fmt.Errorf("it is %s", sandbox.Status)
			}
			l.count("get", err)
		})
	}
	for w := range writers {
		l.repeat(ctx, writePause, func(n int) {
			id := fmt.Sprintf("e2e-load-%d-%d", w, n)
			_, err := s.provisioner.Create(s.ctx, client.CreateRequest{SandboxID: id})
			l.count("create", err)
			_, err = s.provisioner.Get(s.ctx, id)
			l.count("get after create", err)
			l.count("delete", s.provisioner.Delete(s.ctx, id))
			if _, err = s.provisioner.Get(s.ctx, id); errors.Is(err, client.ErrNotFound) {
				err = nil
			} else if err == nil {
				err = errors.New("it is still found")
			}
			l.count("get after delete", err)
		})
	}
	return l
}

func (l *load) repeat(ctx context.Context, pause time.Duration, do func(n int)) {
	l.all.Go(func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for n := 0; ; n++ {
			do(n)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

func (l *load) count(what string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	if err != nil {
		l.failures = append(l.failures, fmt.Errorf("%s at %s: %w", what, time.Now().Format("15:04:05.000"), err))
	}
}

// stop ends it after the requests that are under way.
func (l *load) stop() (requests int, failures []error) {
	l.cancel()
	l.all.Wait()
	return l.requests, l.failures
}
