package jobs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

func askAt(t *testing.T, q *Queue, id string, accepted time.Time) {
	t.Helper()
	v, err := q.Look(t.Context(), id)
	require.NoError(t, err)
	_, err = q.Publish(t.Context(), v, v.Create(sandbox.Spec{ThreadID: id}, "r-"+id, accepted, time.Hour))
	require.NoError(t, err)
}

func TestTheDepthOfTheQueue(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	// NATS tells its consumers of a message a moment after it has acknowledged it.
	requireDepth := func(want Depth, why string) {
		t.Helper()
		var d Depth
		require.Eventually(t, func() bool {
			var err error
			d, err = q.Depth(t.Context())
			require.NoError(t, err)
			d.Oldest = d.Oldest.UTC().Truncate(time.Second)
			return d == want
		}, soon, time.Millisecond, "%s: want %+v, got %+v", why, want, &d)
	}
	requireDepth(Depth{}, "nobody has asked for anything")

	first := time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	askAt(t, q, "a1", first)
	askAt(t, q, "a2", first.Add(time.Minute))
	requireDepth(Depth{Waiting: 2, Oldest: first}, "no worker has ever looked")

	c := q.Consumer()
	d := receive(t, c, 1)
	require.Equal(t, "a1", d.ID)
	requireDepth(Depth{Waiting: 1, Unacknowledged: 1, Oldest: first}, "one is being worked on")

	require.NoError(t, d.Nak(0))
	taken := map[string]*Delivery{}
	for len(taken) < 2 {
		d := receive(t, c, 1)
		taken[d.ID] = d
	}
	require.Equal(t, 2, taken["a1"].Attempt)
	requireDepth(Depth{Unacknowledged: 2, Redelivered: 1, Oldest: first}, "one has come again")

	require.NoError(t, taken["a2"].Ack())
	requireDepth(Depth{Unacknowledged: 1, Redelivered: 1, Oldest: first}, "the older one is not acknowledged yet")
	require.NoError(t, taken["a1"].Ack())
	requireDepth(Depth{}, "all is done")

	askAt(t, q, "a3", first.Add(time.Hour))
	requireDepth(Depth{Waiting: 1, Oldest: first.Add(time.Hour)}, "nobody has to work for it to be seen")
}

func TestTheDepthIsThatOfOneCluster(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	ours, others := b.queue(), b.queue(func(c *Config) { c.Cluster = "other" })
	askAt(t, others, "a1", time.Now())
	d, err := ours.Depth(t.Context())
	require.NoError(t, err)
	require.Equal(t, Depth{}, d)
	ask(t, ours, "a2")
	receive(t, ours.Consumer(), 1)
	require.Eventually(t, func() bool {
		d, err = others.Depth(t.Context())
		return err == nil && d.Waiting == 1 && d.Unacknowledged == 0
	}, soon, time.Millisecond)
}

func TestTheQueueIsSeenWhileNATSAnswersAndNotOtherwise(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	registry := prometheus.NewRegistry()
	RegisterMetrics(registry, q)
	askAt(t, q, "a1", time.Now().Add(-time.Hour))
	read := telemetrytest.Read(t, registry)
	require.Equal(t, 1., read["nats_connected"])
	require.Equal(t, 1., read["queue_jobs_waiting"])
	require.InDelta(t, 3600, read["queue_oldest_unfinished_age_seconds"], 30)
	require.Equal(t, 1., read[`queue_readings_total{result="ok"}`])
	require.True(t, telemetrytest.Has(t, registry, "queue_jobs_unacknowledged"), "0 is a number too")

	b.stop()
	require.Eventually(t, func() bool {
		read := telemetrytest.Read(t, registry)
		return read["nats_connected"] == 0 && read[`queue_readings_total{result="error"}`] > 0 &&
			!telemetrytest.Has(t, registry, "queue_jobs_waiting")
	}, soon, 50*time.Millisecond, "an old number would be wrong")

	b.start()
	require.Eventually(t, func() bool {
		read := telemetrytest.Read(t, registry)
		return read["nats_connected"] == 1 && read["nats_reconnects_total"] > 0 && read["queue_jobs_waiting"] == 1
	}, soon, 50*time.Millisecond)
}

func TestManyScrapesCostOneReadingASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		readings := 0
		g := newGauges(func(context.Context) (Depth, error) { readings++; return Depth{}, errors.New("slow") })
		for range 30 {
			_, err := g.read()
			require.Error(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, 3, readings, "a failed one counts as well")
	})
}

// Whoever scrapes waits for it, and gives up after ten seconds.
func TestAQueueThatIsSilentDelaysAScrapeByASecond(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue(func(c *Config) { c.Timeout = time.Minute })
	require.NoError(t, q.Ping(t.Context()))
	registry := prometheus.NewRegistry()
	RegisterMetrics(registry, q)
	b.silence()
	start := time.Now()
	require.False(t, telemetrytest.Has(t, registry, "queue_jobs_waiting"))
	require.Less(t, time.Since(start), 3*time.Second)
}
