// Package worker carries out intents: it makes the cluster match the last intent of an id, whichever message made it look.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
)

// Records is where intents are read and outcomes are kept.
type Records interface {
	Look(ctx context.Context, id string) (jobs.View, error)
	Newest(ctx context.Context, id string) (sandbox.Generation, error)
	Record(ctx context.Context, v jobs.View, o jobs.Outcome) (jobs.View, error)
}

// Cluster is where sandboxes exist. Its errors are *sandbox.Failure, which is final, or *sandbox.Retry.
type Cluster interface {
	Ensure(ctx context.Context, id string, spec sandbox.Spec, l sandbox.Lineage) (sandbox.State, error)
	Remove(ctx context.Context, id string, l sandbox.Lineage) error
	Undo(ctx context.Context, id string, l sandbox.Lineage) error
}

// A Census is told of the Pods that were newly made, each once, and of when the request for it was accepted.
type Census interface {
	Made(podUID string, accepted time.Time)
}

// A Reconciler makes the cluster match the last intent of an id. It holds no state.
type Reconciler struct {
	records Records
	cluster Cluster
	metrics *Metrics
	census  Census
	log     *slog.Logger
	tracer  trace.Tracer
	now     func() time.Time
	// quick is the policy of the tries in place.
	quick func() backoff.BackOff
	// slow is how long an attempt takes before it is recorded as running; 0 never records that.
	slow time.Duration
}

// NewReconciler returns a Reconciler that tells nobody how it goes. Without a census, which may be nil, new Pods are told to nobody.
func NewReconciler(records Records, cluster Cluster, metrics *Metrics, census Census) *Reconciler {
	return &Reconciler{
		records: records, cluster: cluster, metrics: metrics, census: census, log: slog.New(slog.DiscardHandler), tracer: noop.Tracer{},
		now: time.Now, quick: quickTries, slow: time.Second,
	}
}

// Telling lets the Reconciler tell log of each job that has ended, and make spans of its attempts, unless tracing is nil.
func (r *Reconciler) Telling(log *slog.Logger, tracing trace.TracerProvider) *Reconciler {
	r.log = log
	if tracing != nil {
		r.tracer = tracing.Tracer(tracerName)
	}
	return r
}

// Reconcile carries out the last intent of id and records its outcome. It is level-triggered: what it does depends on the
// streams and the cluster alone, so that it may run for any reason, any number of times, anywhere. nil: nothing is left
// to do. *sandbox.Failure: the message can never be carried out, which is recorded. Any other error: try again.
func (r *Reconciler) Reconcile(ctx context.Context, id string, attempt int) error {
	return r.ReconcileFrom(ctx, nil, id, attempt)
}

// ReconcileFrom is Reconcile for somebody who knows already what the first look would show. A nil View is not known.
func (r *Reconciler) ReconcileFrom(ctx context.Context, known *jobs.View, id string, attempt int) error {
	for ; ; known = nil {
		v, err := r.look(ctx, known, id)
		switch {
		case err != nil:
			r.metrics.retry(ctx, unknown, err)
			return err
		case v.Seq == 0:
			return nil
		case v.Finished():
			return r.tidy(ctx, v)
		}
		again, err := r.once(ctx, v, attempt)
		if !again {
			return err
		}
	}
}

func (r *Reconciler) look(ctx context.Context, known *jobs.View, id string) (jobs.View, error) {
	if known != nil {
		return *known, ctx.Err()
	}
	return r.records.Look(ctx, id)
}

// once carries out the last intent of v and records its outcome. again tells that there is something else to look at by now.
func (r *Reconciler) once(ctx context.Context, v jobs.View, attempt int) (again bool, err error) {
	ctx, told := r.report(ctx, v, attempt)
	defer told.end()
	v, outcome, err := r.carryOut(ctx, v, attempt)
	if err != nil {
		told.handedBack(ctx, err)
		return false, err
	}
	// Look again after acting: a newer intent may have been carried out meanwhile, before what was just written.
	newest, err := r.records.Newest(ctx, v.ID)
	if err != nil {
		told.handedBack(ctx, err)
		return false, err
	}
	if newest != v.Generation() {
		told.superseded(ctx)
		return true, nil
	}
	v, err = r.records.Record(ctx, v, outcome)
	told.recorded(ctx, outcome, err)
	switch {
	case errors.Is(err, jobs.ErrConflict):
		return true, nil // somebody else recorded something since v was read: what was done may have been undone
	case err != nil:
		return false, err
	case outcome.State == jobs.Failed:
		return false, r.tidy(ctx, v)
	}
	r.announce(v)
	return false, nil
}

// announce tells the census of a Pod that the last intent of v has made, and not found.
func (r *Reconciler) announce(v jobs.View) {
	if found := v.Outcome.Sandbox; r.census != nil && found != nil && found.Generation == v.Seq {
		r.census.Made(found.PodUID, v.Intent.AcceptedAt)
	}
}

// carryOut does what the last intent of v asks for, and returns what is to be recorded, on which view.
func (r *Reconciler) carryOut(ctx context.Context, v jobs.View, attempt int) (jobs.View, jobs.Outcome, error) {
	fail := func(f *sandbox.Failure) (jobs.View, jobs.Outcome, error) {
		return v, v.Failure(f, attempt, r.now()), nil
	}
	switch in := v.Intent; {
	case in == nil:
		return fail(&sandbox.Failure{Reason: sandbox.ReasonMalformed, Message: v.Malformed.Error()})
	case in.Op == jobs.Present && !r.now().Before(in.Deadline):
		return fail(&sandbox.Failure{Reason: sandbox.ReasonDeadline, Message: overdue(v)})
	}
	var found *sandbox.State
	v, err := r.watched(ctx, v, attempt, func() error {
		return r.inPlace(ctx, func() (err error) {
			found, err = r.act(ctx, v)
			return err
		})
	})
	var failure *sandbox.Failure
	if errors.As(err, &failure) {
		return fail(failure)
	}
	if err != nil {
		r.noteRetry(ctx, v, err, attempt)
		return v, jobs.Outcome{}, err
	}
	return v, v.Success(found, attempt, r.now()), nil
}

// act is one try of the last intent of v.
func (r *Reconciler) act(ctx context.Context, v jobs.View) (*sandbox.State, error) {
	if v.Intent.Op == jobs.Absent {
		return nil, r.cluster.Remove(ctx, v.ID, v.Lineage())
	}
	found, err := r.cluster.Ensure(ctx, v.ID, *v.Intent.Spec, v.Lineage())
	return &found, err
}

// tidy looks after an intent that has ended. A worker that was overtaken may have written after the end, and died before
// it looked again; its message brings us here.
func (r *Reconciler) tidy(ctx context.Context, v jobs.View) (err error) {
	defer func() { r.metrics.retry(ctx, op(v), err) }()
	switch {
	case v.Outcome.State == jobs.Failed:
		if err := r.cluster.Undo(ctx, v.ID, v.Lineage()); err != nil {
			return err
		}
		if v.Outcome.Undoing {
			if _, err := r.records.Record(ctx, v, v.Undone(r.now())); err != nil && !errors.Is(err, jobs.ErrConflict) {
				return err
			}
		}
		if v.Intent == nil {
			return &sandbox.Failure{Reason: v.Outcome.Reason, Message: v.Outcome.Message}
		}
	case v.Intent != nil && v.Intent.Op == jobs.Absent:
		return r.cluster.Remove(ctx, v.ID, v.Lineage())
	}
	return nil
}

// watched runs try, and records that it is running if it takes long. It returns the view that holds afterwards.
func (r *Reconciler) watched(ctx context.Context, v jobs.View, attempt int, try func() error) (jobs.View, error) {
	if r.slow == 0 {
		return v, try()
	}
	done := make(chan error, 1)
	go func() { done <- try() }()
	timer := time.NewTimer(r.slow)
	defer timer.Stop()
	select {
	case err := <-done:
		return v, err
	case <-timer.C:
	}
	// A failure to record is found when the outcome is recorded.
	if noted, err := r.records.Record(ctx, v, v.Progress(jobs.Running, nil, attempt, r.now())); err == nil {
		v = noted
	}
	return v, <-done
}

// quickWaits are attempts that are over within a second; recording that they wait is not worth a write each.
const quickWaits = 3

// noteRetry records why an intent is not carried out yet, for those who ask.
func (r *Reconciler) noteRetry(ctx context.Context, v jobs.View, err error, attempt int) {
	var retry *sandbox.Retry
	if !errors.As(err, &retry) || (retry.After > 0 && retry.After < time.Second && attempt <= quickWaits) {
		return
	}
	_, _ = r.records.Record(ctx, v, v.Progress(jobs.Retrying, retry, attempt, r.now()))
}

func overdue(v jobs.View) string {
	text := "not carried out by " + v.Intent.Deadline.UTC().Format(time.RFC3339)
	if v.Outcome != nil && v.Outcome.Message != "" && v.Outcome.Generation == v.Generation() {
		text += ": " + v.Outcome.Message
	}
	return text
}
