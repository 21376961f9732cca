package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"sandbox-provisioner/internal/api"
	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
)

// A recorder keeps all spans in memory.
type recorder struct {
	t *testing.T
	*sdk.TracerProvider
	memory *tracetest.InMemoryExporter
}

func newRecorder(t *testing.T) recorder {
	memory := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(memory))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.WithoutCancel(t.Context()))) })
	return recorder{t, provider, memory}
}

// of are the spans of that name, in the order in which they have ended.
func (r recorder) of(name string) (found tracetest.SpanStubs) {
	for _, span := range r.memory.GetSpans() {
		if span.Name == name {
			found = append(found, span)
		}
	}
	return found
}

// one is the span of that name, of which there must be one.
func (r recorder) one(name string) tracetest.SpanStub {
	r.t.Helper()
	found := r.of(name)
	require.Len(r.t, found, 1, name)
	return found[0]
}

func attributes(span tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range span.Attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// provisioner is the REST side on the same queue.
func (d *desk) provisioner() *api.Provisioner {
	d.t.Helper()
	stop, err := d.Announce()
	require.NoError(d.t, err)
	d.t.Cleanup(stop)
	return api.NewProvisioner(d.Queue, nil, k8s.Settings{}, d.cfg, api.NewMetrics(nil))
}

// traced starts a worker whose attempts are traced, until the test ends.
func (d *desk) traced(c Cluster, tracing trace.TracerProvider) {
	d.t.Helper()
	reconciler := NewReconciler(d.Queue, c, NewMetrics(nil), nil).Telling(quiet(), tracing)
	w := New(d.Consumer(), reconciler, reachable, d.cfg.AckWait, usual(5), NewMetrics(nil), quiet())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	d.t.Cleanup(func() { cancel(); <-done })
}

func order(id string) api.Order {
	return api.Order{ID: id, Spec: sandbox.Spec{ThreadID: id, UserID: "u"}, Wait: soon}
}

func TestOneTraceLeadsFromTheRequestToTheOutcome(t *testing.T) {
	t.Parallel()
	d, spans := newDesk(t, 15*time.Second), newRecorder(t)
	d.traced(&scripted{journal: &journal{}, ensure: func(ctx context.Context, _ sandbox.Lineage) error {
		_, write := trace.SpanFromContext(ctx).TracerProvider().Tracer("test").Start(ctx, "write")
		write.End()
		return nil
	}}, spans)
	ctx, request := spans.Tracer("test").Start(t.Context(), "request")
	_, err := d.provisioner().Create(ctx, order("a1"))
	require.NoError(t, err)
	request.End()
	require.Eventually(t, func() bool { return len(spans.of("reconcile present")) == 1 }, soon, time.Millisecond)

	publish, attempt := spans.one("publish intent"), spans.one("reconcile present")
	require.Equal(t, request.SpanContext().SpanID(), publish.Parent.SpanID())
	require.Equal(t, publish.SpanContext.SpanID(), attempt.Parent.SpanID())
	for _, name := range []string{"write", "record outcome"} {
		require.Equal(t, attempt.SpanContext.SpanID(), spans.one(name).Parent.SpanID(), name)
	}
	for _, span := range spans.memory.GetSpans() {
		require.Equal(t, request.SpanContext().TraceID(), span.SpanContext.TraceID(), span.Name)
	}
	require.Empty(t, attempt.Links)
	require.Equal(t, map[string]string{
		"sandbox_id": "a1", "generation": "1", "op": "present", "attempt": "1", "result": "succeeded", "reason": "",
	}, attributes(attempt))
	require.Equal(t, trace.SpanKindConsumer, attempt.SpanKind)
	require.Equal(t, trace.SpanKindProducer, publish.SpanKind)
	require.Equal(t, "SANDBOX_JOBS", attributes(publish)["messaging.destination.name"])
}

func TestARedeliveryIsLinkedToTheMessage(t *testing.T) {
	t.Parallel()
	d, spans := newDesk(t, 15*time.Second), newRecorder(t)
	d.traced(&scripted{journal: &journal{}, ensure: fails(
		&sandbox.Retry{Reason: sandbox.ReasonServer, After: time.Millisecond, Err: errors.New("https://bob:s3cret@host is ill")}, nil,
	)}, spans)
	ctx, request := spans.Tracer("test").Start(t.Context(), "request")
	_, err := d.provisioner().Create(ctx, order("a1"))
	require.NoError(t, err)
	request.End()
	require.Eventually(t, func() bool { return len(spans.of("reconcile present")) == 2 }, soon, time.Millisecond)

	publish, attempts := spans.one("publish intent"), spans.of("reconcile present")
	for _, attempt := range attempts {
		require.Equal(t, publish.SpanContext.SpanID(), attempt.Parent.SpanID(), "all of it is one trace")
	}
	require.Empty(t, attempts[0].Links)
	require.Equal(t, codes.Error, attempts[0].Status.Code)
	require.Equal(t, "https://******@host is ill", attempts[0].Status.Description)
	require.Equal(t, "retried", attributes(attempts[0])["result"])
	require.Equal(t, "ServerError", attributes(attempts[0])["reason"])

	require.Len(t, attempts[1].Links, 1)
	require.Equal(t, publish.SpanContext.SpanID(), attempts[1].Links[0].SpanContext.SpanID())
	require.Equal(t, []attribute.KeyValue{attribute.Int("attempt", 2)}, attempts[1].Links[0].Attributes)
	require.Equal(t, codes.Unset, attempts[1].Status.Code)
	require.Equal(t, "2", attributes(attempts[1])["attempt"])
}

// What a message makes a worker do may have been asked for by somebody else, later.
func TestAnAttemptBelongsToTheTraceOfTheIntentThatItCarriesOut(t *testing.T) {
	t.Parallel()
	d, spans := newDesk(t, 15*time.Second), newRecorder(t)
	publish := func(next func(jobs.View) jobs.Intent) trace.SpanContext {
		ctx, request := spans.Tracer("test").Start(t.Context(), "request")
		defer request.End()
		v, err := d.Look(ctx, "a1")
		require.NoError(t, err)
		v, err = d.Publish(ctx, v, next(v))
		require.NoError(t, err)
		return v.Origin
	}
	first := publish(func(v jobs.View) jobs.Intent { return v.Create(sandbox.Spec{}, "r1", time.Now(), time.Hour) })
	second := publish(func(v jobs.View) jobs.Intent { return v.Delete("r2", time.Now()) })
	delivery := d.take()
	require.True(t, first.WithRemote(true).Equal(delivery.Origin))

	reconciler := NewReconciler(d.Queue, &scripted{journal: &journal{}}, NewMetrics(nil), nil).Telling(quiet(), spans)
	ctx := trace.ContextWithRemoteSpanContext(t.Context(), delivery.Origin)
	require.NoError(t, reconciler.Reconcile(ctx, "a1", 1))
	attempt := spans.one("reconcile absent")
	require.Equal(t, second.SpanID(), attempt.Parent.SpanID())
	require.Len(t, attempt.Links, 1)
	require.Equal(t, first.SpanID(), attempt.Links[0].SpanContext.SpanID())
}

func TestWhoJoinsAJobIsLinkedToIt(t *testing.T) {
	t.Parallel()
	d, spans := newDesk(t, 15*time.Second), newRecorder(t)
	p := d.provisioner()
	ask := func(name string) {
		ctx, request := spans.Tracer("test").Start(t.Context(), name)
		defer request.End()
		o := order("a1")
		o.Wait, o.Async = 0, true
		_, err := p.Create(ctx, o)
		require.Error(t, err, "nobody carries it out")
	}
	ask("first")
	ask("second")
	publish := spans.of("publish intent")[0]
	require.Empty(t, spans.one("first").Links)
	require.Len(t, spans.one("second").Links, 1)
	require.Equal(t, publish.SpanContext.SpanID(), spans.one("second").Links[0].SpanContext.SpanID())
}

// A worker that does not trace hands on what it was handed, and an api that does not leaves nothing behind.
func TestWithoutTracingNothingIsTraced(t *testing.T) {
	t.Parallel()
	d, spans := newDesk(t, 15*time.Second), newRecorder(t)
	d.traced(&scripted{journal: &journal{}}, spans)
	_, err := d.provisioner().Create(t.Context(), order("a1"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(spans.of("reconcile present")) == 1 }, soon, time.Millisecond)
	require.False(t, spans.one("reconcile present").Parent.IsValid())
	require.Empty(t, spans.of("publish intent"))

	quietly := newDesk(t, 15*time.Second)
	quietly.traced(&scripted{journal: &journal{}}, nil)
	ctx, request := spans.Tracer("test").Start(t.Context(), "request")
	defer request.End()
	_, err = quietly.provisioner().Create(ctx, order("a2"))
	require.NoError(t, err)
	require.Len(t, spans.of("reconcile present"), 1, "only that of the other worker")
	require.Len(t, spans.of("record outcome"), 1)
}
