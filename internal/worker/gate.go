package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A gate keeps a worker from taking jobs while the cluster does not answer: it asks now and then in place of trying every
// queued job in turn.
type gate struct {
	ping func(context.Context) error
	log  *slog.Logger

	mu     sync.Mutex
	closed bool
}

func newGate(ping func(context.Context) error, log *slog.Logger) *gate {
	return &gate{ping: ping, log: log}
}

// probes is the policy of asking: soon at first, every five seconds in the end, for ever.
func probes() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(250*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}

// shut closes the gate because of err.
func (g *gate) shut(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.log.Warn("Kubernetes does not answer, jobs wait", slog.Any("error", err))
	}
	g.closed = true
}

// wait returns when the gate is open, or with the error of ctx.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if !closed {
		return ctx.Err()
	}
	if err := backoff.Retry(func() error { return g.ping(ctx) }, backoff.WithContext(probes(), ctx)); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
	g.log.Info("Kubernetes answers")
	return nil
}

// pause waits a moment after jobs could not be fetched.
func (g *gate) pause(ctx context.Context, err error) {
	g.log.Warn("jobs cannot be fetched", slog.Any("error", err))
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
