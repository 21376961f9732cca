package jobs

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"sandbox-provisioner/internal/sandbox"
)

// The trace of a request goes on in the headers of its intent (W3C Trace Context). No tracer is handed in: whoever traces has put
// a span into the context, and without one all of this does nothing.
const tracerName = "sandbox-provisioner/internal/jobs"

var propagator = propagation.TraceContext{}

// startWrite begins the span of a write to a stream, if somebody traces it.
func startWrite(ctx context.Context, root, id string) (context.Context, trace.Span) {
	name, stream := "publish intent", intentStream
	if root == outcomeRoot {
		name, stream = "record outcome", outcomeStream
	}
	return trace.SpanFromContext(ctx).TracerProvider().Tracer(tracerName).Start(ctx, name,
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(
			attribute.String("messaging.system", "nats"),
			attribute.String("messaging.destination.name", stream),
			attribute.String(keySandboxID, id),
		))
}

// endWrite ends the span of a write with its error. That somebody was faster is none.
func endWrite(span trace.Span, err error) {
	if errors.Is(err, ErrConflict) {
		span.SetAttributes(attribute.String(keyResult, "conflict"))
	} else if err != nil {
		span.SetStatus(codes.Error, sandbox.Plain(err.Error()))
	}
	span.End()
}

// carry puts the span of ctx into the headers of msg.
func carry(ctx context.Context, msg *nats.Msg) {
	propagator.Inject(ctx, propagation.HeaderCarrier(msg.Header))
}

// carried is the span in the headers of a message; it is not valid when there is none.
func carried(header nats.Header) trace.SpanContext {
	if len(header) == 0 {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagator.Extract(context.Background(), propagation.HeaderCarrier(header)))
}
