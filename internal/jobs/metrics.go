package jobs

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	// readingAge is for how long a reading of the queue serves, so that many who scrape cost no more than one.
	readingAge = time.Second
	// readingTimeout bounds a reading: whoever scrapes waits for it.
	readingTimeout = time.Second
)

var (
	jobsWaiting = prometheus.NewDesc("sandbox_provisioner_queue_jobs_waiting",
		"Jobs that no worker has been given yet. Absent while NATS does not answer.", nil, nil)
	jobsUnacknowledged = prometheus.NewDesc("sandbox_provisioner_queue_jobs_unacknowledged",
		"Jobs that a worker works on, or that wait to be tried again. Absent while NATS does not answer.", nil, nil)
	jobsRedelivered = prometheus.NewDesc("sandbox_provisioner_queue_jobs_redelivered",
		"Unacknowledged jobs that were delivered more than once. Absent while NATS does not answer.", nil, nil)
	oldestUnfinished = prometheus.NewDesc("sandbox_provisioner_queue_oldest_unfinished_age_seconds",
		"How long ago the oldest job that is not acknowledged was accepted; 0 when there is none. Absent while NATS does not answer.",
		nil, nil)
)

// RegisterMetrics registers what is known of the queue and of the connection to it.
func RegisterMetrics(r prometheus.Registerer, q *Queue) {
	f := promauto.With(r)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sandbox_provisioner_nats_connected",
		Help: "Whether there is a connection to NATS.",
	}, func() float64 {
		if q.nc.IsConnected() {
			return 1
		}
		return 0
	})
	f.NewCounterFunc(prometheus.CounterOpts{
		Name: "sandbox_provisioner_nats_reconnects_total",
		Help: "How often a lost connection to NATS was opened again, also to a server that closed it at once.",
	}, func() float64 { return float64(q.nc.Stats().Reconnects) })
	r.MustRegister(newGauges(q.Depth))
}

// gauges are the state of the queue. It is read when somebody scrapes.
type gauges struct {
	depth      func(context.Context) (Depth, error)
	readings   *prometheus.CounterVec
	ok, failed prometheus.Counter

	mu   sync.Mutex
	at   time.Time
	last Depth
	err  error
}

func newGauges(depth func(context.Context) (Depth, error)) *gauges {
	readings := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandbox_provisioner_queue_readings_total",
		Help: "How often NATS was asked for the state of the queue.",
	}, []string{"result"})
	return &gauges{
		depth: depth, readings: readings, ok: readings.WithLabelValues("ok"), failed: readings.WithLabelValues("error"),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	g.readings.Describe(out)
	out <- jobsWaiting
	out <- jobsUnacknowledged
	out <- jobsRedelivered
	out <- oldestUnfinished
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	d, err := g.read()
	g.readings.Collect(out) // with the one that was just made
	if err != nil {
		return // no number is better than an old one
	}
	gauge := func(desc *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	gauge(jobsWaiting, float64(d.Waiting))
	gauge(jobsUnacknowledged, float64(d.Unacknowledged))
	gauge(jobsRedelivered, float64(d.Redelivered))
	var age time.Duration
	if !d.Oldest.IsZero() {
		age = max(0, time.Since(d.Oldest))
	}
	gauge(oldestUnfinished, age.Seconds())
}

// read returns a reading that is a second old at most.
func (g *gauges) read() (Depth, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) < readingAge {
		return g.last, g.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), readingTimeout)
	defer cancel()
	g.last, g.err = g.depth(ctx)
	g.at = time.Now()
	if g.err != nil {
		g.failed.Inc()
	} else {
		g.ok.Inc()
	}
	return g.last, g.err
}
