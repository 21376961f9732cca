package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"sandbox-provisioner/internal/sandbox"
)

// Parts of Retention: an intent is renewed when half of it is over, and looked for so often that several looks may fail.
const (
	renewAge   = 2
	renewEvery = 8
)

// KeepUnfinished lets no intent expire that has not ended, until ctx ends: it publishes those again that are halfway there. A
// deletion is never given up, and a create not before its remains are gone, however long Kubernetes does not answer. It is
// not left to the workers' attempts, because there are none while Kubernetes does not answer.
func (q *Queue) KeepUnfinished(ctx context.Context) {
	for {
		every := q.cfg.Retention / renewEvery
		timer := time.NewTimer(every/2 + rand.N(every)) //nolint:gosec // jitter, not a secret
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if err := q.renew(ctx); err != nil && ctx.Err() == nil {
			q.log.Warn("not all unfinished jobs could be renewed", slog.String(keyError, sandbox.Plain(err.Error())))
		}
	}
}

// renew looks once at all that is old and not acknowledged.
func (q *Queue) renew(ctx context.Context) error {
	msg, err := q.oldest(ctx)
	for err == nil && msg != nil && time.Since(msg.Time) > q.cfg.Retention/renewAge {
		if err = q.renewOne(ctx, idOf(msg.Subject), msg.Sequence); err == nil {
			msg, err = q.from(ctx, msg.Sequence+1)
		}
	}
	return err
}

// oldest is the first message that the workers have not acknowledged; nil when there is none.
func (q *Queue) oldest(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	info, err := q.consumerInfo(ctx)
	if err != nil {
		return nil, err
	}
	return q.from(ctx, info.AckFloor.Stream+1)
}

// consumerInfo is how far the workers have come; all zeros when none has ever looked.
func (q *Queue) consumerInfo(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, q.cfg.Timeout)
	defer cancel()
	s, err := q.current(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	cons, err := s.intents.Consumer(ctx, q.cfg.Cluster)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return &jetstream.ConsumerInfo{}, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return cons.CachedInfo(), nil
}

// from is the first message at or after a position; nil when there is none.
func (q *Queue) from(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, q.cfg.Timeout)
	defer cancel()
	s, err := q.current(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	msg, err := s.intents.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(q.subject(intentRoot, "*")))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return msg, unavailable(err)
}

// renewOne publishes the intent at seq again, if it is the last one of id and something is left to do.
func (q *Queue) renewOne(ctx context.Context, id string, seq uint64) error {
	v, err := q.Look(ctx, id)
	if err != nil || v.Seq != seq || v.Intent == nil || (v.Finished() && !v.Outcome.Undoing) {
		return err
	}
	_, err = q.Publish(trace.ContextWithRemoteSpanContext(ctx, v.Origin), v, v.again()) // it is still the same request
	switch {
	case errors.Is(err, ErrConflict):
		return nil // something newer was asked for
	case err != nil:
		return fmt.Errorf("renew: %w", err)
	}
	q.log.Info("unfinished job renewed", slog.String(keySandboxID, id), slog.String(keyOp, string(v.Intent.Op)))
	return nil
}

// again is the last intent of v as its own successor: what somebody would ask who asked for the same once more, but with the same
// deadline. A create that has failed must not come to life again; its successor is there to be undone, and late from the start.
func (v View) again() Intent {
	in := v.Intent
	switch {
	case in.Op == Absent:
		return v.Delete(in.RequestID, in.AcceptedAt)
	case v.Finished():
		return v.Create(*in.Spec, in.RequestID, in.AcceptedAt, 0)
	default:
		return v.Create(*in.Spec, in.RequestID, in.AcceptedAt, in.Deadline.Sub(in.AcceptedAt))
	}
}
