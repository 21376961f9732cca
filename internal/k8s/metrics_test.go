package k8s

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

func TestARequestIsNamedAsKubernetesDoes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ method, url, verb, resource string }{
		{"GET", "/api/v1/namespaces/ns/pods/sandbox-a", "get", "pods"},
		{"GET", "/api/v1/namespaces/ns/pods?labelSelector=app%3Dx", "list", "pods"},
		{"GET", "/api/v1/namespaces/ns/pods?allowWatchBookmarks=true&watch=true", "watch", "pods"},
		{"GET", "/api/v1/namespaces/ns/pods?allowWatchBookmarks=true", "list", "pods"},
		{"POST", "/api/v1/namespaces/ns/services", "create", "services"},
		{"DELETE", "/api/v1/namespaces/ns/services/sandbox-a-svc", "delete", "services"},
		{"PUT", "/api/v1/namespaces/ns/pods/p", "update", "pods"},
		{"GET", "/api/v1/namespaces/ns", "get", "namespaces"},
		{"GET", "/api/v1/namespaces", "list", "namespaces"},
		{"POST", "/api/v1/namespaces", "create", "namespaces"},
		{"GET", "/k8s/clusters/c1/api/v1/namespaces/ns/events?limit=5", "list", "events"},
		{"GET", "/version", "get", "other"},
	} {
		u, err := url.Parse(test.url)
		require.NoError(t, err)
		verb, resource := operation(test.method, u)
		require.Equal(t, [2]string{test.verb, test.resource}, [2]string{verb, resource}, "%s %s", test.method, test.url)
	}
}

// instrumented is a Cluster whose requests are counted, in front of a server.
func instrumented(t *testing.T, handler http.HandlerFunc, change ...func(*rest.Config)) (*Cluster, *prometheus.Registry) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	cfg, err := surroundings{
		inCluster:   func() (*rest.Config, error) { return &rest.Config{Host: server.URL}, nil },
		inContainer: func() bool { return false },
	}.connect(t.Context(), Connection{RequestTimeout: 5 * time.Second}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for _, c := range change {
		c(cfg)
	}
	registry := prometheus.NewRegistry()
	NewMetrics(registry).Instrument(cfg)
	core, err := NewCore(cfg)
	require.NoError(t, err)
	return New(core, stock(), requestTimeout), registry
}

func podList(t *testing.T, w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, encode(t, "application/json", &corev1.PodList{}))
}

func TestRequestsAreCountedByWhatCameBack(t *testing.T) {
	t.Parallel()
	c, registry := instrumented(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/services"):
			panic(http.ErrAbortHandler) // the connection breaks
		case strings.HasSuffix(r.URL.Path, "/pods"):
			podList(t, w)
		default:
			http.NotFound(w, r)
		}
	})
	_, err := c.List(t.Context())
	require.Error(t, err)
	uid, err := c.PodUID(t.Context(), "a1")
	require.NoError(t, err)
	require.Empty(t, uid)
	read := telemetrytest.Read(t, registry)
	require.Equal(t, 1., read[`kubernetes_requests_total{code="200",resource="pods",verb="list"}`])
	require.Equal(t, 1., read[`kubernetes_requests_total{code="404",resource="pods",verb="get"}`])
	require.Positive(t, read[`kubernetes_requests_total{code="error",resource="services",verb="list"}`])
	require.Equal(t, 1., read[`kubernetes_request_duration_seconds{resource="pods",verb="get"}`])
}

func TestAClusterIsReachableWhenItHasAnsweredLast(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	c, registry := instrumented(t, func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler)
		}
		http.Error(w, "busy", http.StatusInternalServerError)
	})
	reachable := func() float64 { return telemetrytest.Read(t, registry)["kubernetes_reachable"] }
	require.Zero(t, reachable(), "nobody has asked")
	require.Error(t, c.Ping(t.Context()))
	require.Equal(t, 1., reachable(), "an error is an answer")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, c.Ping(gone))
	require.Equal(t, 1., reachable(), "a request that we gave up says nothing")
	down.Store(true)
	require.Error(t, c.Ping(t.Context()))
	require.Zero(t, reachable())
	down.Store(false)
	require.Error(t, c.Ping(t.Context()))
	require.Equal(t, 1., reachable())
}

func TestTheWaitForOurOwnLimitIsMeasured(t *testing.T) {
	t.Parallel()
	c, registry := instrumented(t, func(w http.ResponseWriter, _ *http.Request) { podList(t, w) },
		func(cfg *rest.Config) { cfg.QPS, cfg.Burst = 10, 1 })
	for range 3 {
		require.NoError(t, c.Ping(t.Context()))
	}
	require.Equal(t, 3., telemetrytest.Read(t, registry)["kubernetes_client_throttle_seconds"])
	require.InDelta(t, .2, telemetrytest.Sum(t, registry, "kubernetes_client_throttle_seconds"), .1)

	c, registry = instrumented(t, func(w http.ResponseWriter, _ *http.Request) { podList(t, w) })
	require.NoError(t, c.Ping(t.Context()))
	require.Zero(t, telemetrytest.Read(t, registry)["kubernetes_client_throttle_seconds"], "there is no limit")
}

func TestTheClusterIsPingedWhenNobodyElseAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		pings := 0
		f.pods.fault = func(context.Context, string) error { pings++; return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		noted := 0
		f.KeepPinging(ctx, func(error) { noted++ })
		require.InDelta(t, 6, pings, 1)
		require.Equal(t, pings, noted)

		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var others sync.WaitGroup
		others.Go(func() {
			for ctx.Err() == nil {
				_ = f.Ping(ctx)
				time.Sleep(4 * time.Second)
			}
		})
		defer others.Wait()
		synctest.Wait()
		noted = 0
		f.KeepPinging(ctx, func(error) { noted++ })
		require.Zero(t, noted, "somebody else asks")
	})
}

// A server that honours limits sends one Pod, whatever there is: at resource version 0 it would not.
func TestAPingAsksForLittle(t *testing.T) {
	t.Parallel()
	var query url.Values
	c, _ := instrumented(t, func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.Query()
		podList(t, w)
	})
	require.NoError(t, c.Ping(t.Context()))
	require.Equal(t, "1", query.Get("limit"))
	require.Empty(t, query.Get("resourceVersion"))
}

func TestAWatchOutlivesTheTimeoutOfRequestsAndASilentServerDoesNot(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	defer close(silent)
	var quiet bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if quiet {
			select {
			case <-silent:
			case <-r.Context().Done():
			}
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		time.Sleep(300 * time.Millisecond) // longer than the timeout
		_, _ = io.WriteString(w, `{"type":"ADDED","object":`+encode(t, "application/json", &corev1.Pod{})+"}\n")
	}))
	defer server.Close()
	source, err := NewPodSource(&rest.Config{Host: server.URL, Timeout: 200 * time.Millisecond}, stock())
	require.NoError(t, err)
	w, err := source.Running.WatchWithContext(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	_, open := <-w.ResultChan()
	require.True(t, open)
	w.Stop()

	quiet = true
	_, err = source.Running.WatchWithContext(t.Context(), metav1.ListOptions{})
	require.Error(t, err)
	require.ErrorIs(t, err, context.Canceled)
}

func TestHowAPodStands(t *testing.T) {
	t.Parallel()
	since := metav1.NewTime(time.Unix(100, 0))
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
		change(p)
		return p
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want Standing
	}{
		"new": {pod(func(*corev1.Pod) {}), Standing{Phase: sandbox.Pending}},
		"ready": {pod(func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since}}
		}), Standing{Phase: sandbox.Running, Ready: true, ReadySince: since.Time}},
		"without an image": {pod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
		}), Standing{Phase: sandbox.Pending, Reason: "ImagePullBackOff"}},
		"going": {pod(func(p *corev1.Pod) { p.DeletionTimestamp = &since }), Standing{Terminating: true}},
	} {
		require.Equal(t, test.want, Stand(test.pod), name)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	m := NewMetrics(prometheus.NewRegistry())
	answer := &http.Response{StatusCode: http.StatusCreated}
	transport := measured{roundTrip(func(*http.Request) (*http.Response, error) { return answer, nil }), m}
	req := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/ns/pods", nil)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = transport.RoundTrip(req)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// By itself client-go repeats a GET whose connection broke, once a second, for as long as it may take: no way to treat a cluster that
// is down.
func TestTheCensusAsksOnceAtATime(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	source, err := NewPodSource(&rest.Config{Host: server.URL}, stock())
	require.NoError(t, err)
	_, err = source.Others(t.Context())
	require.Error(t, err)
	require.EqualValues(t, 1, asked.Load())
}
