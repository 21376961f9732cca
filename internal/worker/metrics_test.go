package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

// count lets the fixture count into a registry of its own from now on.
func (f *fixture) count() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	f.metrics = NewMetrics(registry)
	return registry
}

func TestWhatIsCountedOfAnAttempt(t *testing.T) {
	t.Parallel()
	const soon = 100 * time.Millisecond
	type counts = map[string]float64
	create, remove := (*memory).create, (*memory).delete
	for name, test := range map[string]struct {
		ask    func(*memory)
		script func(*fixture)
		want   counts
	}{
		"a create": {create, func(*fixture) {}, counts{
			`reconcile_duration_seconds{op="present",result="succeeded"}`: 1,
			`outcomes_total{op="present",reason="",result="succeeded"}`:   1,
			`accepted_to_created_seconds`:                                 1,
		}},
		"a delete": {remove, func(*fixture) {}, counts{
			`reconcile_duration_seconds{op="absent",result="succeeded"}`: 1,
			`outcomes_total{op="absent",reason="",result="succeeded"}`:   1,
		}},
		"a create that waits": {create, func(f *fixture) { f.cluster.ensure = fails(retry(sandbox.ReasonTerminating, soon)) }, counts{
			`reconcile_duration_seconds{op="present",result="retried"}`: 1,
			`retries_total{op="present",reason="Terminating"}`:          1,
		}},
		"a delete that nobody answers": {remove, func(f *fixture) { f.cluster.remove = fails(retry(sandbox.ReasonUnavailable, soon)) }, counts{
			`reconcile_duration_seconds{op="absent",result="retried"}`: 1,
			`retries_total{op="absent",reason="Unavailable"}`:          1,
		}},
		"a create that passes in place is no retry": {create, func(f *fixture) { f.cluster.ensure = fails(retry(sandbox.ReasonConflict, 0), nil) }, counts{
			`reconcile_duration_seconds{op="present",result="succeeded"}`: 1,
			`outcomes_total{op="present",reason="",result="succeeded"}`:   1,
			`accepted_to_created_seconds`:                                 1,
		}},
		"a create that fails": {create, func(f *fixture) { f.cluster.ensure = fails(failure(sandbox.ReasonQuota)) }, counts{
			`reconcile_duration_seconds{op="present",result="failed"}`:            1,
			`outcomes_total{op="present",reason="QuotaExceeded",result="failed"}`: 1,
		}},
		"a create that fails and cannot be undone yet": {create, func(f *fixture) {
			f.cluster.ensure, f.cluster.undo = fails(failure(sandbox.ReasonRefused)), fails(retry(sandbox.ReasonServer, soon))
		}, counts{
			`reconcile_duration_seconds{op="present",result="failed"}`:      1,
			`outcomes_total{op="present",reason="Refused",result="failed"}`: 1,
			`retries_total{op="present",reason="ServerError"}`:              1,
		}},
		"a create that a delete overtakes": {create, func(f *fixture) { f.cluster.ensure = during(f.records.delete) }, counts{
			`reconcile_duration_seconds{op="present",result="superseded"}`: 1,
			`reconcile_duration_seconds{op="absent",result="succeeded"}`:   1,
			`outcomes_total{op="absent",reason="",result="succeeded"}`:     1,
		}},
		"a message that is no intent": {(*memory).garble, func(*fixture) {}, counts{
			`reconcile_duration_seconds{op="unknown",result="failed"}`:              1,
			`outcomes_total{op="unknown",reason="MalformedIntent",result="failed"}`: 1,
		}},
		"a queue that does not answer": {create, func(f *fixture) {
			f.records.afterLook = func(int) error { return jobs.ErrUnavailable }
		}, counts{`retries_total{op="unknown",reason="NATS"}`: 1}},
		"a queue that does not answer afterwards": {create, func(f *fixture) {
			f.records.beforeRecord = func(jobs.Outcome) error { return jobs.ErrUnavailable }
		}, counts{
			`reconcile_duration_seconds{op="present",result="retried"}`: 1,
			`retries_total{op="present",reason="NATS"}`:                 1,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				registry := f.count()
				test.ask(f.records)
				test.script(f)
				_ = f.Reconcile(t.Context(), "a1", 1)
				require.Equal(t, test.want, telemetrytest.Read(t, registry))
			})
		})
	}
}

// What a worker breaks off is not the cluster's fault.
func TestAJobThatIsBrokenOffIsCountedAsThat(t *testing.T) {
	t.Parallel()
	for reason, cause := range map[string]error{"Drained": errDrained, "LeaseLost": errLeaseLost} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			registry := f.count()
			f.records.create()
			ctx, end := context.WithCancelCause(t.Context())
			f.cluster.ensure = func(context.Context, sandbox.Lineage) error {
				end(cause)
				return retry(sandbox.ReasonUnavailable, 0)
			}
			require.Error(t, f.Reconcile(ctx, "a1", 1))
			require.Equal(t, 1., telemetrytest.Read(t, registry)[`retries_total{op="present",reason="`+reason+`"}`])
		})
	}
}

func TestTheTimeToCreateCountsFromTheAcceptance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		registry := f.count()
		f.records.create()
		time.Sleep(7 * time.Second)
		require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
		require.InDelta(t, 7, telemetrytest.Sum(t, registry, "accepted_to_created_seconds"), .001)
		require.Less(t, telemetrytest.Sum(t, registry, `reconcile_duration_seconds{op="present",result="succeeded"}`), 1.)
	})
}

func TestTheCensusIsToldOfNewPodsOnly(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
	require.Equal(t, []string{"pod-1"}, f.made.made)
	require.NoError(t, f.Reconcile(t.Context(), "a1", 2))
	require.Len(t, f.made.made, 1, "the message came again")

	f.records.create()
	f.cluster.finds = 1
	require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
	require.Len(t, f.made.made, 1, "the Pod was there already")
}

func TestSlotsAndDeliveriesAreCounted(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 15*time.Second)
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	entered, leave := make(chan struct{}), make(chan struct{})
	c := &scripted{journal: &journal{}, ensure: func(context.Context, sandbox.Lineage) error {
		entered <- struct{}{}
		<-leave
		return nil
	}}
	d.create("a1")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		New(d.Consumer(), NewReconciler(d.Queue, c, metrics, nil), reachable, d.cfg.AckWait, usual(5), metrics, quiet()).Run(ctx)
	}()
	<-entered
	read := telemetrytest.Read(t, registry)
	require.Equal(t, 5., read["worker_slots"])
	require.Equal(t, 1., read["worker_slots_busy"])
	require.Equal(t, 1., read[`worker_deliveries_total{redelivered="false"}`])
	close(leave)
	stop()
	<-done
	require.Zero(t, telemetrytest.Read(t, registry)["worker_slots_busy"])

	metrics.delivered(&jobs.Delivery{Attempt: 2})
	require.Equal(t, 1., telemetrytest.Read(t, registry)[`worker_deliveries_total{redelivered="true"}`])
}

func TestSweepsAndTheirFindingsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		registry := f.count()
		exists := shelf{service: 9}
		s := f.sweep(&exists)
		require.NoError(t, s.Once(t.Context()))
		time.Sleep(grace)
		require.NoError(t, s.Once(t.Context()))
		exists.err = retry(sandbox.ReasonUnavailable, 0)
		require.Error(t, s.Once(t.Context()))
		require.Equal(t, map[string]float64{
			`sweep_findings_total{action="remove",kind="orphaned_service"}`: 1,
			`sweep_runs_total{result="ok"}`:                                 2,
			`sweep_runs_total{result="error"}`:                              1,
		}, telemetrytest.Read(t, registry))
	})
}

func TestTheSlotsAreThoseThatTheClusterTakes(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 15*time.Second)
	registry := prometheus.NewRegistry()
	w := New(nil, nil, nil, d.cfg.AckWait, usual(8), NewMetrics(registry), quiet())
	slots := func() float64 { return telemetrytest.Read(t, registry)["worker_slots"] }
	require.Equal(t, 8., slots())
	d.create("a1", "a2")
	w.settle(d.take(), retry(sandbox.ReasonUnavailable, 0), nil)
	require.Equal(t, 4., slots())
	w.settle(d.take(), nil, nil)
	require.Equal(t, 5., slots())
}

// A series that begins with its first event does not show it as an increase.
func TestWhatAlertsLookAtExistsBeforeItHappens(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	NewMetrics(registry)
	require.Empty(t, telemetrytest.Read(t, registry))
	for _, series := range []string{
		`outcomes_total{op="present",reason="QuotaExceeded",result="failed"}`,
		`retries_total{op="absent",reason="Unavailable"}`,
		`sweep_findings_total{action="remove",kind="orphaned_pod"}`,
		`sweep_runs_total{result="error"}`,
		`worker_deliveries_total{redelivered="true"}`,
	} {
		require.True(t, telemetrytest.Has(t, registry, series), series)
	}
}

func BenchmarkAttempt(b *testing.B) {
	f := newFixture()
	f.count()
	f.records.create()
	v := f.records.last()
	o := v.Success(&sandbox.State{}, 1, time.Now())
	b.ReportAllocs()
	for b.Loop() {
		now := time.Now()
		f.metrics.attempt(v, now).recorded(o, now)
	}
}
