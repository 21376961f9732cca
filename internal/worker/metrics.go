package worker

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
)

// unknown is the op of a message that is no intent, or that could not be read.
const unknown = "unknown"

// Results of one attempt. The first two are also those of an intent.
const (
	succeeded  = "succeeded"
	failed     = "failed"
	retried    = "retried"    // handed back, to come again
	superseded = "superseded" // somebody asked for something else, or recorded something, meanwhile
)

// Reasons of retries that are not one of Kubernetes.
const (
	reasonNATS    = "NATS"      // the queue did not answer
	reasonDrained = "Drained"   // the worker was shutting down
	reasonLease   = "LeaseLost" // the job may have been somebody else's
)

// Metrics count what a worker does.
type Metrics struct {
	first, again prometheus.Counter // deliveries
	slots, busy  prometheus.Gauge
	duration     *prometheus.HistogramVec
	retries      *prometheus.CounterVec
	outcomes     *prometheus.CounterVec
	created      prometheus.Histogram
	findings     *prometheus.CounterVec
	runs         *prometheus.CounterVec
}

// NewMetrics registers them; a nil Registerer registers nothing.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	buckets := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	deliveries := f.NewCounterVec(prometheus.CounterOpts{
		Name: "sandbox_provisioner_worker_deliveries_total",
		Help: "Messages that NATS has delivered to this worker, for the first time or again.",
	}, []string{"redelivered"})
	m := &Metrics{
		first: deliveries.WithLabelValues("false"),
		again: deliveries.WithLabelValues("true"),
		slots: f.NewGauge(prometheus.GaugeOpts{
			Name: "sandbox_provisioner_worker_slots",
			Help: "Jobs that this worker may carry out at once; fewer than WORKER_CONCURRENCY after the cluster was slow.",
		}),
		busy: f.NewGauge(prometheus.GaugeOpts{
			Name: "sandbox_provisioner_worker_slots_busy",
			Help: "Jobs that this worker is carrying out.",
		}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sandbox_provisioner_reconcile_duration_seconds",
			Help:    "One attempt at an intent, with its tries in place and its record.",
			Buckets: buckets,
		}, []string{"op", "result"}),
		retries: f.NewCounterVec(prometheus.CounterOpts{
			Name: "sandbox_provisioner_retries_total",
			Help: "Jobs that were handed back, to come again.",
		}, []string{"op", "reason"}),
		outcomes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "sandbox_provisioner_outcomes_total",
			Help: "Intents that have ended; reason is that of a failure.",
		}, []string{"op", "result", "reason"}),
		created: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "sandbox_provisioner_accepted_to_created_seconds",
			Help:    "From the acceptance of a create until both objects were there and that was recorded.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 5, 10, 30, 60}, // 2 is the objective
		}),
		findings: f.NewCounterVec(prometheus.CounterOpts{
			Name: "sandbox_provisioner_sweep_findings_total",
			Help: "What the sweep found that should not be there, or not be missing, and what it had done about it.",
		}, []string{"kind", "action"}),
		runs: f.NewCounterVec(prometheus.CounterOpts{
			Name: "sandbox_provisioner_sweep_runs_total",
			Help: "Comparisons of all that exists with what was asked for.",
		}, []string{"result"}),
	}
	m.begin()
	return m
}

// begin lets the series exist before their first event, which an increase would not show otherwise.
func (m *Metrics) begin() {
	for _, op := range []string{string(jobs.Present), string(jobs.Absent)} {
		for _, result := range []string{succeeded, failed, retried, superseded} {
			m.duration.WithLabelValues(op, result)
		}
		for _, reason := range []string{
			string(sandbox.ReasonTerminating), string(sandbox.ReasonLeftover), string(sandbox.ReasonConflict),
			string(sandbox.ReasonThrottled), string(sandbox.ReasonServer), string(sandbox.ReasonUnavailable),
			string(sandbox.ReasonNotReady), reasonNATS, reasonDrained, reasonLease,
		} {
			m.retries.WithLabelValues(op, reason)
		}
		m.outcomes.WithLabelValues(op, succeeded, "")
	}
	for _, reason := range []sandbox.Reason{
		sandbox.ReasonCapacity, sandbox.ReasonBroker, sandbox.ReasonNameTaken, sandbox.ReasonQuota, sandbox.ReasonRefused,
		sandbox.ReasonDeadline,
	} {
		m.outcomes.WithLabelValues(string(jobs.Present), failed, string(reason))
	}
	m.outcomes.WithLabelValues(unknown, failed, string(sandbox.ReasonMalformed))
	for _, f := range findings {
		m.findings.WithLabelValues(f.kind, string(f.debt))
	}
	m.runs.WithLabelValues("ok")
	m.runs.WithLabelValues("error")
}

func (m *Metrics) delivered(d *jobs.Delivery) {
	if d.Attempt > 1 {
		m.again.Inc()
		return
	}
	m.first.Inc()
}

// An attempt is one try of one intent, from its beginning.
type attempt struct {
	m     *Metrics
	v     jobs.View
	start time.Time
}

func (m *Metrics) attempt(v jobs.View, now time.Time) attempt { return attempt{m, v, now} }

func (a attempt) ended(result string, now time.Time) {
	a.m.duration.WithLabelValues(op(a.v), result).Observe(now.Sub(a.start).Seconds())
}

// recorded is the end of an attempt whose outcome was recorded.
func (a attempt) recorded(o jobs.Outcome, now time.Time) {
	if o.State == jobs.Failed {
		a.ended(failed, now)
		a.m.outcomes.WithLabelValues(op(a.v), failed, string(o.Reason)).Inc()
		return
	}
	a.ended(succeeded, now)
	a.m.outcomes.WithLabelValues(op(a.v), succeeded, "").Inc()
	if o.Op == jobs.Present {
		a.m.created.Observe(max(0, now.Sub(o.AcceptedAt)).Seconds())
	}
}

// handedBack is the end of an attempt that is to be repeated.
func (a attempt) handedBack(ctx context.Context, err error, now time.Time) {
	a.ended(retried, now)
	a.m.retry(ctx, op(a.v), err)
}

// retry counts a job that is handed back because of err.
func (m *Metrics) retry(ctx context.Context, op string, err error) {
	if reason := retryReason(ctx, err); reason != "" {
		m.retries.WithLabelValues(op, reason).Inc()
	}
}

func retryReason(ctx context.Context, err error) string {
	var retry *sandbox.Retry
	var failure *sandbox.Failure
	switch cause := context.Cause(ctx); {
	case err == nil, errors.As(err, &failure): // not handed back
		return ""
	case errors.Is(cause, errDrained):
		return reasonDrained
	case errors.Is(cause, errLeaseLost):
		return reasonLease
	case errors.As(err, &retry):
		return string(retry.Reason)
	}
	return reasonNATS
}

func op(v jobs.View) string {
	if v.Intent == nil {
		return unknown
	}
	return string(v.Intent.Op)
}

func (m *Metrics) ranSweep(err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.runs.WithLabelValues(result).Inc()
}
