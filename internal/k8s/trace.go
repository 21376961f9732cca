package k8s

import (
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"

	"sandbox-provisioner/internal/sandbox"
)

const tracerName = "sandbox-provisioner/internal/k8s"

// Trace makes a span of each request of all clients that are made of cfg from now on, as part of what asks for it. Requests that
// nobody traces, such as pings and watches, have none. The API server is not told: it lets the spans of cluster administrators alone
// be parents of its own, and for those it allocates a twentieth more in a create, whether or not it traces.
func Trace(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return traced{next} })
}

// traced is a transport whose requests have spans, from sending one until its answer begins. otelhttp would do as well, but it also
// clones each request, counts what is read, and gathers what metrics would need: by a profile, half of what all traces cost.
type traced struct{ next http.RoundTripper }

// WrappedRoundTripper lets client-go find the transport inside.
func (t traced) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t traced) RoundTrip(req *http.Request) (*http.Response, error) {
	asker := trace.SpanFromContext(req.Context())
	if !asker.IsRecording() {
		return t.next.RoundTrip(req)
	}
	verb, resource := operation(req.Method, req.URL)
	_, span := asker.TracerProvider().Tracer(tracerName).Start(req.Context(), "kubernetes "+verb+" "+resource,
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			semconv.HTTPRequestMethodKey.String(req.Method), semconv.URLFull(req.URL.Redacted()), semconv.ServerAddress(req.URL.Hostname()),
		))
	defer span.End()
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		span.SetStatus(codes.Error, sandbox.Plain(err.Error()))
		span.SetAttributes(semconv.ErrorType(err))
		return resp, err
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(resp.StatusCode))
	if resp.StatusCode >= http.StatusBadRequest {
		span.SetStatus(codes.Error, "")
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(resp.StatusCode)))
	}
	return resp, nil
}
