package api

import (
	"log/slog"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/contrib/instrumentation/github.com/gin-gonic/gin/otelgin"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// newEngine returns a router with everything that holds for all requests, and the probes that need nothing else. Routes
// that are registered on it below /api/ are authenticated, and traced unless tracing is nil.
func newEngine(cfg Config, metrics *Metrics, tracing trace.TracerProvider, log *slog.Logger) *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	// No redirects: a client that follows one drops the body or the key.
	e.RedirectTrailingSlash = false
	e.RedirectFixedPath = false
	e.HandleMethodNotAllowed = true
	// Route on the path as it was sent: "..%2fx" is one id, though an impossible one. unescapeParams does the rest.
	e.UseEscapedPath = true
	e.UnescapePathValues = false
	// Only the audit shows the caller's address; nothing is decided by it.
	e.ForwardedByClientIP = len(cfg.TrustedProxies) > 0
	e.RemoteIPHeaders = []string{"X-Forwarded-For"}
	if err := e.SetTrustedProxies(cfg.TrustedProxies); err != nil {
		e.ForwardedByClientIP = false // believe nobody; the settings have been checked, so that this cannot happen
	}

	ring := cfg.keyring()
	e.Use(metrics.observe(len(ring) > 0))
	if tracing != nil {
		e.Use(otelgin.Middleware("", otelgin.WithTracerProvider(tracing), otelgin.WithPropagators(propagation.TraceContext{}),
			otelgin.WithMeterProvider(noop.NewMeterProvider()), otelgin.WithGinFilter(guarded)))
	}
	e.Use(identify, logAccess(log), audit(log), recoverPanic(log), authenticate(ring, cfg.hider()), limitRate(cfg, ring, metrics.rateLimited),
		limitBody, unescapeParams)
	e.NoRoute(replyNotFound)
	e.NoMethod(replyMethodNotAllowed)
	registerHealth(e)

	for _, key := range ring {
		metrics.limited.WithLabelValues(key.name) // a series that begins with its first event does not show it as an increase
	}
	if len(ring) == 0 {
		log.Warn("no API key is set: every request below /api/ is refused")
	}
	return e
}
