package worker

import (
	"context"
	"errors"
	"log/slog"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
)

// Keys of log fields.
const (
	keyAction     = "action"
	keyAttempt    = "attempt"
	keyDuration   = "duration"
	keyError      = "error"
	keyGeneration = "generation"
	keyKind       = "kind"
	keyOp         = "op"
	keyReason     = "reason"
	keyResult     = "result"
	keySandboxID  = "sandbox_id"
)

// A report follows one attempt at one intent, and tells the metrics and the log how it ended: one line for each intent that
// has ended, and at debug level one for each attempt that has not brought it to its end.
type report struct {
	measured attempt
	number   int
	r        *Reconciler
}

func (r *Reconciler) report(v jobs.View, number int) report {
	return report{measured: r.metrics.attempt(v, r.now()), number: number, r: r}
}

// superseded is the end of an attempt at what nobody wants any more.
func (t report) superseded(ctx context.Context) {
	t.measured.ended(superseded, t.r.now())
	t.tell(ctx, slog.LevelDebug, superseded, "", "")
}

// handedBack is the end of an attempt that is to be repeated because of err.
func (t report) handedBack(ctx context.Context, err error) {
	t.measured.handedBack(ctx, err, t.r.now())
	t.tell(ctx, slog.LevelDebug, retried, retryReason(ctx, err), err.Error())
}

// recorded is the end of an attempt whose outcome was, or was not, recorded.
func (t report) recorded(ctx context.Context, o jobs.Outcome, err error) {
	switch {
	case errors.Is(err, jobs.ErrConflict):
		t.superseded(ctx)
		return
	case err != nil:
		t.handedBack(ctx, err)
		return
	}
	t.measured.recorded(o, t.r.now())
	if o.State == jobs.Failed {
		t.tell(ctx, slog.LevelInfo, failed, string(o.Reason), o.Message)
		return
	}
	t.tell(ctx, slog.LevelInfo, succeeded, "", "")
}

func (t report) tell(ctx context.Context, level slog.Level, result, reason, message string) {
	if !t.r.log.Enabled(ctx, level) {
		return
	}
	v := t.measured.v
	attrs := []slog.Attr{
		slog.String(keySandboxID, v.ID),
		slog.Uint64(keyGeneration, v.Seq),
		slog.String(keyOp, op(v)),
		slog.Int(keyAttempt, t.number),
		slog.String(keyResult, result),
		slog.Duration(keyDuration, t.r.now().Sub(t.measured.start)),
	}
	if reason != "" {
		attrs = append(attrs, slog.String(keyReason, reason))
	}
	if message != "" {
		attrs = append(attrs, slog.String(keyError, sandbox.Plain(message)))
	}
	if level == slog.LevelDebug {
		t.r.log.LogAttrs(ctx, level, "job not finished", attrs...)
		return
	}
	t.r.log.LogAttrs(ctx, level, "job finished", attrs...)
}

// plain is err as it may be logged.
func plain(err error) slog.Attr { return slog.String(keyError, sandbox.Plain(err.Error())) }
