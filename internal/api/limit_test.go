package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

// A meter sends requests to a handler with a rate limit.
type meter struct {
	t        *testing.T
	handler  http.Handler
	registry *prometheus.Registry
}

func newMeter(t *testing.T, rps float64, burst int) meter {
	s := living()
	m := meter{t: t, registry: prometheus.NewRegistry()}
	s.keys = &Config{Key: testKey, Keys: Keys{{"other", "k2"}}, RateLimit: rps, RateBurst: burst}
	s.metrics = NewMetrics(m.registry)
	m.handler = s.handler()
	return m
}

func (m meter) ask(path, key string) *httptest.ResponseRecorder {
	m.t.Helper()
	req := httptest.NewRequestWithContext(m.t.Context(), http.MethodGet, path, nil)
	if key != "" {
		req.Header.Set(headerAPIKey, key)
	}
	w := httptest.NewRecorder()
	m.handler.ServeHTTP(w, req)
	return w
}

// limits are the three headers, and the one about when to come again.
func limits(w *httptest.ResponseRecorder) [4]string {
	h := w.Header()
	return [4]string{h.Get("RateLimit-Limit"), h.Get("RateLimit-Remaining"), h.Get("RateLimit-Reset"), h.Get("Retry-After")}
}

func TestAKeyThatAsksTooOftenIsToldWhenToComeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(t, 0.5, 3)
		for _, want := range [][4]string{{"3", "2", "2", ""}, {"3", "1", "4", ""}, {"3", "0", "6", ""}} {
			w := m.ask("/api/capabilities", testKey)
			require.Equal(t, 200, w.Code)
			require.Equal(t, want, limits(w))
		}
		for range 2 { // who is refused loses nothing by it
			w := m.ask("/api/capabilities", testKey)
			require.Equal(t, 429, w.Code)
			require.Equal(t, `{"detail":"Too many requests with this key: at most 0.5 per second"}`, w.Body.String())
			require.Equal(t, [4]string{"3", "0", "6", "2"}, limits(w))
		}
		time.Sleep(1900 * time.Millisecond)
		w := m.ask("/api/sandboxes/a1", testKey)
		require.Equal(t, 429, w.Code)
		require.Equal(t, "1", w.Header().Get("Retry-After"), "at least a second")
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 200, m.ask("/api/sandboxes/a1", testKey).Code, "all routes share the limit")
		time.Sleep(time.Hour)
		require.Equal(t, [4]string{"3", "2", "2", ""}, limits(m.ask("/api/capabilities", testKey)), "a bucket is full some time")
		require.Equal(t, 3., telemetrytest.Read(t, m.registry)[`rate_limited_total{key="default"}`])
	})
}

func TestOnlyTheKeyThatAsksTooOftenIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(t, 1, 1)
		require.Equal(t, 200, m.ask("/api/capabilities", testKey).Code)
		require.Equal(t, 429, m.ask("/api/capabilities", testKey).Code)
		require.Equal(t, 200, m.ask("/api/capabilities", "k2").Code, "another key has a bucket of its own")
		for range 10 {
			w := m.ask("/api/capabilities", "wrong")
			require.Equal(t, 401, w.Code, "who has no key is no client of ours")
			require.Empty(t, w.Header().Get("RateLimit-Limit"))
			w = m.ask("/health", testKey)
			require.Equal(t, 200, w.Code, "what needs no key has no limit")
			require.Empty(t, w.Header().Get("RateLimit-Limit"))
		}
		require.Equal(t, 429, m.ask("/api/unknown", testKey).Code, "unknown paths count as well")
	})
}

func TestWithoutALimitNothingIsSaidOfIt(t *testing.T) {
	t.Parallel()
	m := newMeter(t, 0, 5)
	for range 100 {
		w := m.ask("/api/capabilities", testKey)
		require.Equal(t, 200, w.Code)
		require.Equal(t, [4]string{}, limits(w))
	}
}

func TestABucketHoldsASecondsWorthUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rps   float64
		burst int
		want  string
	}{{0.1, 0, "1"}, {1, 0, "1"}, {2.5, 0, "3"}, {10, 0, "10"}, {10, 25, "25"}, {10, 1, "1"}} {
		require.Equal(t, tc.want, newMeter(t, tc.rps, tc.burst).ask("/api/capabilities", testKey).Header().Get("RateLimit-Limit"))
	}
}
