package api

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

// counted is an engine with a few routes, and what it counts.
func counted(key string) (*gin.Engine, *prometheus.Registry) {
	registry := prometheus.NewRegistry()
	e := newEngine(Config{Key: key}, NewMetrics(registry), nil, slog.New(slog.DiscardHandler))
	e.GET("/api/sandboxes/:id", func(c *gin.Context) { reply(c, http.StatusOK, nil) })
	e.GET("/api/panic", func(*gin.Context) { panic("oh") })
	e.GET("/api/abort", func(*gin.Context) { panic(http.ErrAbortHandler) })
	return e, registry
}

func TestRequestsAreCountedByRouteMethodAndCode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, path, want string
	}{
		"a route, without the id":   {"GET", "/api/sandboxes/a1", `{code="200",method="GET",route="/api/sandboxes/:id"}`},
		"no route":                  {"GET", "/api/a1/b2", `{code="404",method="GET",route="unmatched"}`},
		"another method":            {"PUT", "/api/sandboxes/a1", `{code="405",method="PUT",route="unmatched"}`},
		"a method of nobody's":      {"BREW", "/api/sandboxes/a1", `{code="405",method="other",route="unmatched"}`},
		"a panic":                   {"GET", "/api/panic", `{code="500",method="GET",route="/api/panic"}`},
		"an answer that is cut off": {"GET", "/api/abort", `{code="200",method="GET",route="/api/abort"}`},
		"a probe":                   {"GET", "/livez", `{code="200",method="GET",route="/livez"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, registry := counted(testKey)
			req := httptest.NewRequest(test.method, test.path, nil)
			req.Header.Set(headerAPIKey, testKey)
			func() {
				defer func() { _ = recover() }() // as the server does
				e.ServeHTTP(httptest.NewRecorder(), req)
			}()
			require.Equal(t, map[string]float64{
				"http_requests_total" + test.want:           1,
				"http_request_duration_seconds" + test.want: 1,
			}, telemetrytest.Read(t, registry))
		})
	}
}

func TestRefusalsAreCountedByReason(t *testing.T) {
	t.Parallel()
	for reason, test := range map[string]struct{ key, sent string }{
		"missing":    {testKey, ""},
		"wrong":      {testKey, "guess"},
		"no_key_set": {"", "guess"},
	} {
		e, registry := counted(test.key)
		req := httptest.NewRequest(http.MethodGet, "/api/sandboxes/a1", nil)
		req.Header.Set(headerAPIKey, test.sent)
		e.ServeHTTP(httptest.NewRecorder(), req)
		require.Equal(t, 1., telemetrytest.Read(t, registry)[`auth_refusals_total{reason="`+reason+`"}`], reason)
	}
}

func TestRequestsInFlightAreCounted(t *testing.T) {
	t.Parallel()
	e, registry := counted("")
	e.POST("/wait", func(c *gin.Context) {
		_, _ = io.ReadAll(c.Request.Body)
		require.Equal(t, 1., telemetrytest.Read(t, registry)["http_requests_in_flight"])
	})
	e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/wait", strings.NewReader("x")))
	require.Zero(t, telemetrytest.Read(t, registry)["http_requests_in_flight"])
}

func TestWhatBecomesOfARequestInTheQueueIsCounted(t *testing.T) {
	t.Parallel()
	lives := func(b *bench) {
		b.queue.create(small())
		b.queue.succeed()
		b.cluster.check = func(sandbox.Lineage) (*sandbox.State, error) { return made(1), nil }
	}
	create := func(t *testing.T, b *bench) { _, _ = b.Create(t.Context(), order(small())) }
	remove := func(t *testing.T, b *bench) { _ = b.Delete(t.Context(), "a1", 0) }
	const published = `intents_published_total{op="present",result="`
	for name, test := range map[string]struct {
		prepare func(*bench)
		do      func(*testing.T, *bench)
		want    map[string]float64
	}{
		"a create": {func(*bench) {}, create, map[string]float64{
			published + `new"}`: 1, `intent_publish_duration_seconds{op="present"}`: 1,
		}},
		"a delete": {func(*bench) {}, remove, map[string]float64{
			`intents_published_total{op="absent",result="new"}`: 1, `intent_publish_duration_seconds{op="absent"}`: 1,
		}},
		"one that is queued already": {func(b *bench) { b.queue.create(small()) }, create, map[string]float64{published + `joined"}`: 1}},
		"one that is there already":  {lives, create, map[string]float64{published + `answered"}`: 1}},
		"one that the cluster decides against": {func(b *bench) {
			lives(b)
			b.cluster.check = func(sandbox.Lineage) (*sandbox.State, error) {
				return nil, &sandbox.Failure{Reason: sandbox.ReasonCapacity}
			}
		}, create, map[string]float64{published + `answered"}`: 1}},
		"a cluster that cannot be read": {func(b *bench) {
			lives(b)
			b.cluster.check = func(sandbox.Lineage) (*sandbox.State, error) {
				return nil, &sandbox.Retry{Reason: sandbox.ReasonUnavailable, Err: errors.New("no answer")}
			}
		}, create, map[string]float64{published + `error"}`: 1}},
		"a race that is lost": {func(b *bench) {
			b.queue.create(big())
			tries := 0
			b.queue.onPublish = func(int) error {
				if tries++; tries == 2 { // the first was refused, because the id is known
					b.queue.onPublish = nil
					b.queue.delete()
				}
				return nil
			}
		}, create, map[string]float64{
			published + `new"}`: 1, published + `conflict"}`: 1, `intent_publish_duration_seconds{op="present"}`: 1,
		}},
		"an acknowledgement that is lost": {func(b *bench) { b.queue.late = unavailable() }, create, map[string]float64{published + `new"}`: 1}},
		"a queue that does not answer": {func(b *bench) {
			b.queue.onPublish = func(int) error { return jobs.ErrUnavailable }
		}, create, map[string]float64{published + `error"}`: 1}},
	} {
		bubbled(t, name, func(t *testing.T) {
			b := newBench(k8s.NodePort)
			registry := prometheus.NewRegistry()
			b.metrics = NewMetrics(registry)
			test.prepare(b)
			test.do(t, b)
			synctest.Wait()
			require.Equal(t, test.want, telemetrytest.Read(t, registry))
		})
	}
}
