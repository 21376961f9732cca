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
	// starved tells whether the last request for jobs has failed.
	starved bool
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
		g.log.Debug("jobs wait until Kubernetes answers", plain(err))
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
	return nil
}

// pause waits a moment after jobs could not be fetched. Only the first time is worth a line.
func (g *gate) pause(ctx context.Context, err error) {
	g.mu.Lock()
	level := slog.LevelWarn
	if g.starved {
		level = slog.LevelDebug
	}
	g.starved = true
	g.mu.Unlock()
	g.log.LogAttrs(ctx, level, "jobs cannot be fetched", plain(err))
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// fetched is the end of pauses.
func (g *gate) fetched() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.starved {
		g.log.Info("jobs are fetched again")
	}
	g.starved = false
}
