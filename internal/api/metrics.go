package api

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
)

// Values of labels for what anybody may send.
const (
	unmatched   = "unmatched" // no route
	otherMethod = "other"
)

// What became of a request for a sandbox, or for its end, in the queue.
const (
	publishedNew      = "new"
	publishedJoined   = "joined"   // somebody asked for the same, and that is not finished
	publishedAnswered = "answered" // the cluster alone decided
	publishedConflict = "conflict" // somebody was faster: decided again
	publishedError    = "error"    // NATS, or the cluster, did not answer
)

// Metrics count requests, and what is published because of them.
type Metrics struct {
	requests  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	inFlight  prometheus.Gauge
	refusals  *prometheus.CounterVec
	limited   *prometheus.CounterVec
	published *prometheus.CounterVec
	publish   *prometheus.HistogramVec
}

// NewMetrics registers them; a nil Registerer registers nothing.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	request := []string{"route", "method", "code"}
	m := &Metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "sandbox_provisioner_http_requests_total",
			Help: "Requests that have been answered.",
		}, request),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sandbox_provisioner_http_request_duration_seconds",
			Help:    "From the header of a request to the end of its answer.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30},
		}, request),
		inFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "sandbox_provisioner_http_requests_in_flight",
			Help: "Requests that have not been answered yet.",
		}),
		refusals: f.NewCounterVec(prometheus.CounterOpts{
			Name: "sandbox_provisioner_auth_refusals_total",
			Help: "Requests that were answered with 401.",
		}, []string{"reason"}),
		limited: f.NewCounterVec(prometheus.CounterOpts{
			Name: "sandbox_provisioner_rate_limited_total",
			Help: "Requests that were answered with 429 because their key had sent too many; key is its name.",
		}, []string{"key"}),
		published: f.NewCounterVec(prometheus.CounterOpts{
			Name: "sandbox_provisioner_intents_published_total",
			Help: "Requests for a sandbox or for its end, by what became of them in the queue, and the races that they lost there.",
		}, []string{"op", "result"}),
		publish: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sandbox_provisioner_intent_publish_duration_seconds",
			Help:    "From publishing an intent until NATS has stored it.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}, []string{"op"}),
	}
	// A series that begins with its first event does not show it as an increase.
	for _, reason := range []string{refusedMissing, refusedWrong, refusedAll} {
		m.refusals.WithLabelValues(reason)
	}
	for _, op := range []jobs.Op{jobs.Present, jobs.Absent} {
		m.publish.WithLabelValues(string(op))
		for _, result := range []string{publishedNew, publishedJoined, publishedAnswered, publishedConflict, publishedError} {
			m.published.WithLabelValues(string(op), result)
		}
	}
	return m
}

// observe measures every request. keyed tells whether there is a key at all.
func (m *Metrics) observe(keyed bool) gin.HandlerFunc {
	return func(c *gin.Context) {
		start := time.Now()
		m.inFlight.Inc()
		defer func() { // also when a panic cuts the answer off
			m.inFlight.Dec()
			route, method, code := routeLabel(c), methodLabel(c.Request.Method), c.Writer.Status()
			status := strconv.Itoa(code)
			m.requests.WithLabelValues(route, method, status).Inc()
			m.duration.WithLabelValues(route, method, status).Observe(time.Since(start).Seconds())
			if code == http.StatusUnauthorized {
				m.refusals.WithLabelValues(refusal(c, keyed)).Inc()
			}
		}()
		c.Next()
	}
}

// Reasons of a 401, which nothing but authenticate answers.
const (
	refusedMissing = "missing"
	refusedWrong   = "wrong"
	refusedAll     = "no_key_set"
)

func refusal(c *gin.Context, keyed bool) string {
	switch {
	case !keyed:
		return refusedAll
	case c.GetHeader(headerAPIKey) == "":
		return refusedMissing
	}
	return refusedWrong
}

// rateLimited counts a refusal by the limit of a key of that name.
func (m *Metrics) rateLimited(key string) { m.limited.WithLabelValues(key).Inc() }

func routeLabel(c *gin.Context) string {
	if route := c.FullPath(); route != "" {
		return route
	}
	return unmatched
}

func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return otherMethod
}

// publishedIn notes how long NATS took to store an intent.
func (m *Metrics) publishedIn(op jobs.Op, took time.Duration) {
	m.publish.WithLabelValues(string(op)).Observe(took.Seconds())
}

// decided counts what became of a request in the queue.
func (m *Metrics) decided(op jobs.Op, result string) {
	m.published.WithLabelValues(string(op), result).Inc()
}

// decision is what became of a request that ended without a publish, or with err.
func decision(err error) string {
	var failure *sandbox.Failure
	if err == nil || errors.As(err, &failure) {
		return publishedAnswered
	}
	return publishedError
}
