package k8s

import (
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	metrics "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"
)

// Trace makes a span of each request of all clients that are made of cfg from now on, as part of what asks for it. Requests that
// nobody traces, such as pings and watches, have none. The API server is not told: it lets the spans of cluster administrators alone
// be parents of its own, and for those it allocates a twentieth more in a create, whether or not it traces.
func Trace(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return otelhttp.NewTransport(next,
			otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator()), // none
			otelhttp.WithMeterProvider(metrics.NewMeterProvider()),
			otelhttp.WithFilter(func(r *http.Request) bool { return trace.SpanFromContext(r.Context()).IsRecording() }),
			otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
				verb, resource := operation(r.Method, r.URL)
				return "kubernetes " + verb + " " + resource
			}),
		)
	})
}
