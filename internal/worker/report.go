package worker

import (
	"context"
	"errors"
	"log/slog"
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

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
	keyTraceID    = "trace_id"
)

const tracerName = "sandbox-provisioner/internal/worker"

// A report follows one attempt at one intent, and tells the metrics, the log and the trace how it ended. The log gets one line for
// each intent that has ended, and at debug level one for each attempt that has not brought it to its end.
type report struct {
	measured attempt
	number   int
	span     trace.Span
	r        *Reconciler
}

// report begins one. The attempt is a part of the trace of the request whose intent it carries out. That may be another one than
// what has brought us here, which is the span of ctx: a message of an older intent, or the same one once more; it is linked.
func (r *Reconciler) report(ctx context.Context, v jobs.View, number int) (context.Context, report) {
	cause := trace.SpanContextFromContext(ctx)
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String(keySandboxID, v.ID), attribute.Int64(keyGeneration, int64(min(v.Seq, math.MaxInt64))),
			attribute.String(keyOp, op(v)), attribute.Int(keyAttempt, number),
		),
	}
	if cause.IsValid() && (number > 1 || !cause.Equal(v.Origin)) {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: cause, Attributes: []attribute.KeyValue{attribute.Int(keyAttempt, number)}}))
	}
	ctx, span := r.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, v.Origin), "reconcile "+op(v), opts...)
	return ctx, report{measured: r.metrics.attempt(v, r.now()), number: number, span: span, r: r}
}

// end comes after all that was done because of the attempt.
func (t report) end() { t.span.End() }

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
	t.span.SetAttributes(attribute.String(keyResult, result), attribute.String(keyReason, reason))
	if message != "" {
		t.span.SetStatus(codes.Error, sandbox.Plain(message))
	}
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
	if of := t.span.SpanContext(); of.IsValid() {
		attrs = append(attrs, slog.String(keyTraceID, of.TraceID().String()))
	}
	if level == slog.LevelDebug {
		t.r.log.LogAttrs(ctx, level, "job not finished", attrs...)
		return
	}
	t.r.log.LogAttrs(ctx, level, "job finished", attrs...)
}

// plain is err as it may be logged.
func plain(err error) slog.Attr { return slog.String(keyError, sandbox.Plain(err.Error())) }
