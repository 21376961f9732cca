package k8s

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Metrics count what is asked of the API server, and what it answers.
type Metrics struct {
	requests  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	throttled prometheus.Histogram
	reachable prometheus.Gauge
}

// NewMetrics registers them; a nil Registerer registers nothing.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	return &Metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "sandbox_provisioner_kubernetes_requests_total",
			Help: `Requests to the API server; code is "error" when no answer came.`,
		}, []string{"verb", "resource", "code"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sandbox_provisioner_kubernetes_request_duration_seconds",
			Help:    "From sending a request to the API server until its answer begins.",
			Buckets: buckets,
		}, []string{"verb", "resource"}),
		throttled: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "sandbox_provisioner_kubernetes_client_throttle_seconds",
			Help:    "How long requests waited for K8S_QPS before they were sent; nothing when it is off.",
			Buckets: buckets,
		}),
		reachable: f.NewGauge(prometheus.GaugeOpts{
			Name: "sandbox_provisioner_kubernetes_reachable",
			Help: "Whether the API server answered the last request; there is one every ten seconds at least.",
		}),
	}
}

// Instrument lets all clients that are made of cfg from now on be counted. They also share one limit of requests, whose waits
// are measured here and not by the hook of client-go, which is one for the whole process.
func (m *Metrics) Instrument(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return measured{next, m} })
	if cfg.QPS > 0 && cfg.RateLimiter == nil {
		cfg.RateLimiter = throttle{flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, cfg.Burst), m.throttled}
	}
}

// measured is a transport whose requests are counted.
type measured struct {
	next http.RoundTripper
	m    *Metrics
}

// WrappedRoundTripper lets client-go find the transport inside.
func (t measured) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t measured) RoundTrip(req *http.Request) (*http.Response, error) {
	start := time.Now()
	resp, err := t.next.RoundTrip(req)
	verb, resource := operation(req.Method, req.URL)
	t.m.duration.WithLabelValues(verb, resource).Observe(time.Since(start).Seconds())
	code := "error"
	switch {
	case err == nil:
		code = strconv.Itoa(resp.StatusCode)
		t.m.reachable.Set(1)
	case !errors.Is(req.Context().Err(), context.Canceled): // one that we gave up says nothing about the server
		t.m.reachable.Set(0)
	}
	t.m.requests.WithLabelValues(verb, resource, code).Inc()
	return resp, err
}

// operation names a request as Kubernetes does. Only our own code makes the paths, so that there are few; none of the names
// in them gets into the result.
func operation(method string, u *url.URL) (verb, resource string) {
	_, path, core := strings.Cut(u.Path, "/api/v1/")
	if !core {
		return strings.ToLower(method), "other"
	}
	resource, name, named := strings.Cut(path, "/")
	if resource == "namespaces" {
		if _, inside, ok := strings.Cut(name, "/"); ok {
			resource, _, named = strings.Cut(inside, "/")
		}
	}
	switch {
	case method == http.MethodGet && strings.Contains(u.RawQuery, "watch=true"):
		verb = "watch"
	case method == http.MethodGet && !named:
		verb = "list"
	case method == http.MethodPost:
		verb = "create"
	case method == http.MethodPut:
		verb = "update"
	default:
		verb = strings.ToLower(method)
	}
	return verb, resource
}

// throttle measures the waits of a limit.
type throttle struct {
	flowcontrol.RateLimiter
	waits prometheus.Observer
}

func (t throttle) Wait(ctx context.Context) error {
	start := time.Now()
	err := t.RateLimiter.Wait(ctx)
	t.waits.Observe(time.Since(start).Seconds())
	return err
}

// pingInterval is how old the word of the API server may be on which the metrics report it as reachable.
const pingInterval = 10 * time.Second

// KeepPinging pings the cluster now and then until ctx ends, when nobody else does, so that the metrics tell whether it answers. note
// is told of each answer. During an outage others ping all the time.
func (c *Cluster) KeepPinging(ctx context.Context, note func(error)) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		if time.Since(time.Unix(0, c.pinged.Load())) >= pingInterval/2 {
			note(c.Ping(ctx))
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
