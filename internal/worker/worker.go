package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
)

// Source hands out jobs.
type Source interface {
	Fetch(ctx context.Context, n int) (<-chan *jobs.Delivery, error)
}

// A Worker takes jobs from its source and has them reconciled, several ids at once.
type Worker struct {
	source     Source
	reconciler *Reconciler
	gate       *gate
	slots      *slots
	cfg        Config
	heartbeat  time.Duration
	metrics    *Metrics
	log        *slog.Logger
}

// New returns a Worker. ping tells whether the cluster answers; ackWait is that of the source.
func New(
	source Source, reconciler *Reconciler, ping func(context.Context) error, ackWait time.Duration, cfg Config, metrics *Metrics,
	log *slog.Logger,
) *Worker {
	metrics.slots.Set(float64(cfg.Concurrency))
	return &Worker{
		source: source, reconciler: reconciler, gate: newGate(ping, log), slots: newSlots(cfg.Concurrency), cfg: cfg,
		heartbeat: ackWait / 3, metrics: metrics, log: log,
	}
}

// Run works until ctx ends, and then drains: it takes no new job, lets the running ones finish for as long as DrainWait,
// and hands back the rest. It returns when none is left.
func (w *Worker) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	jobCtx, handBack := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(w.cfg.DrainWait, func() { handBack(errDrained) })
	})()

	for w.gate.wait(ctx) == nil {
		free, err := w.slots.acquire(ctx)
		if err != nil {
			return
		}
		deliveries, err := w.source.Fetch(ctx, free)
		if err != nil {
			w.slots.release(free)
			w.gate.pause(ctx, err)
			continue
		}
		w.gate.fetched()
		for d := range deliveries {
			w.metrics.delivered(d)
			if ctx.Err() != nil {
				_ = d.Nak(handBackDelay)
				continue
			}
			free--
			running.Go(func() {
				defer w.slots.release(1)
				w.handle(jobCtx, d)
			})
		}
		w.slots.release(free)
	}
}

// handBackDelay keeps a job that comes while the worker drains from coming back to it at once: its request stays open.
const handBackDelay = 250 * time.Millisecond

var (
	errDrained   = errors.New("the worker is shutting down")
	errLeaseLost = errors.New("the job may be somebody else's by now")
)

// handle has one job reconciled while it is surely ours, and tells the source how it went.
func (w *Worker) handle(ctx context.Context, d *jobs.Delivery) {
	w.metrics.busy.Inc()
	defer w.metrics.busy.Dec()
	ctx, release := w.lease(ctx, d)
	start := time.Now()
	err := w.reconciler.ReconcileFrom(trace.ContextWithRemoteSpanContext(ctx, d.Origin), d.View, d.ID, d.Attempt)
	cause := context.Cause(ctx)
	release()
	w.settle(d, err, cause)
	attrs := []slog.Attr{
		slog.String(keySandboxID, d.ID), slog.Int(keyAttempt, d.Attempt), slog.Duration(keyDuration, time.Since(start)),
	}
	if err != nil {
		attrs = append(attrs, plain(err))
	}
	w.log.LogAttrs(ctx, slog.LevelDebug, "delivery settled", attrs...)
}

// settle is the one place where the end of an attempt becomes an answer to NATS. An answer that is lost makes the job
// come again, which is harmless.
func (w *Worker) settle(d *jobs.Delivery, err, cause error) {
	defer func() { w.metrics.slots.Set(float64(w.slots.allowed())) }()
	var retry *sandbox.Retry
	var failure *sandbox.Failure
	switch {
	case errors.Is(cause, errLeaseLost):
		// An answer would count all the same, even one that ends the job for him who has it now.
		w.log.Debug("job given up, it may be somebody else's by now", slog.String(keySandboxID, d.ID))
	case err == nil:
		w.slots.grow()
		_ = d.Ack()
	case errors.Is(cause, errDrained):
		_ = d.Nak(0)
	case errors.As(err, &failure):
		w.log.Error("job cannot be read and is dropped", slog.String(keySandboxID, d.ID), plain(err))
		_ = d.Term(string(failure.Reason))
	case errors.As(err, &retry):
		if retry.Reason == sandbox.ReasonUnavailable {
			w.gate.shut(err)
			w.slots.shrink()
		}
		_ = d.Nak(max(retry.After, delay(d.Attempt, w.cfg.RetryMax)))
	default: // NATS
		_ = d.Nak(delay(d.Attempt, w.cfg.RetryMax))
	}
}

// lease returns a context that ends before NATS may hand the job to somebody else. Heartbeats push that end away, but only
// those that NATS has confirmed, so that a worker that was frozen or cut off does not write when it comes back.
func (w *Worker) lease(ctx context.Context, d *jobs.Delivery) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if !time.Now().Before(d.Until) {
		cancel(errLeaseLost) // now: a timer would let the first write slip by
	}
	end := time.AfterFunc(time.Until(d.Until), func() { cancel(errLeaseLost) })
	var beat *time.Timer
	var mu sync.Mutex // beat is set while it may fire
	mu.Lock()
	defer mu.Unlock()
	beat = time.AfterFunc(w.heartbeat, func() {
		until, err := d.Extend(ctx)
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			end.Reset(time.Until(until))
		}
		beat.Reset(w.heartbeat)
	})
	return ctx, func() {
		cancel(nil)
		mu.Lock()
		defer mu.Unlock()
		beat.Stop()
		end.Stop()
	}
}
