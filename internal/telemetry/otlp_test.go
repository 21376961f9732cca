package telemetry

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

// A shelf is a collector that answers the nth request with the nth status, and the rest with 200.
type shelf struct {
	*httptest.Server
	statuses []int

	mu       sync.Mutex
	requests []*http.Request
	spans    []string
}

func newShelf(t *testing.T, secure bool, statuses ...int) *shelf {
	t.Helper()
	s := &shelf{statuses: statuses}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	if n := len(s.requests); n <= len(s.statuses) {
		w.WriteHeader(s.statuses[n-1])
		return
	}
	var data otlp.TracesData
	if proto.Unmarshal(body, &data) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, resource := range data.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.spans = append(s.spans, span.GetName())
			}
		}
	}
}

// export makes a span, and ends.
func export(t *testing.T, c TraceConfig) *telemetrytest.Log {
	t.Helper()
	log := &telemetrytest.Log{}
	if c.Timeout == 0 {
		c.Timeout = 10_000
	}
	require.NoError(t, c.Validate())
	tracing, stop, err := StartTracing(t.Context(), "test", c, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(t, err)
	_, span := tracing.Tracer("test").Start(context.Background(), "work")
	span.End()
	stop()
	return log
}

// These share the handler of errors that OpenTelemetry has one of.
func TestSpansAreExported(t *testing.T) {
	t.Run("to the collector", func(t *testing.T) {
		s := newShelf(t, false)
		export(t, TraceConfig{Endpoint: s.URL + "/", Headers: "Authorization=Bearer%20s3cret, x-tenant=a"})
		require.Equal(t, []string{"work"}, s.spans)
		r := s.requests[0]
		require.Equal(t, "POST /v1/traces", r.Method+" "+r.URL.Path)
		require.Equal(t, "application/x-protobuf", r.Header.Get("Content-Type"))
		require.Equal(t, "Bearer s3cret", r.Header.Get("Authorization"))
		require.Equal(t, "a", r.Header.Get("X-Tenant"))
	})
	t.Run("to that of traces", func(t *testing.T) {
		s := newShelf(t, false)
		export(t, TraceConfig{Endpoint: "http://127.0.0.1:1", TracesEndpoint: s.URL + "/elsewhere"})
		require.Equal(t, "/elsewhere", s.requests[0].URL.Path)
		require.Equal(t, []string{"work"}, s.spans)
	})
	t.Run("with a certificate", func(t *testing.T) {
		s := newShelf(t, true)
		path := filepath.Join(t.TempDir(), "ca.crt")
		content := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		require.NoError(t, os.WriteFile(path, content, 0o600))
		export(t, TraceConfig{Endpoint: s.URL, Certificate: path})
		require.Equal(t, []string{"work"}, s.spans)
	})
	t.Run("not to one that is not known", func(t *testing.T) {
		s := newShelf(t, true)
		log := export(t, TraceConfig{Endpoint: s.URL, Timeout: 1000})
		require.Empty(t, s.spans)
		require.Contains(t, log.String(), "certificate")
	})
	t.Run("once more, when that may help", func(t *testing.T) {
		s := newShelf(t, false, http.StatusServiceUnavailable)
		export(t, TraceConfig{Endpoint: s.URL})
		require.Equal(t, []string{"work"}, s.spans)
	})
	t.Run("and no more, when it does not", func(t *testing.T) {
		for _, status := range []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusFound} {
			s := newShelf(t, false, status)
			log := export(t, TraceConfig{Endpoint: s.URL})
			require.Len(t, s.requests, 1)
			require.Contains(t, log.String(), fmt.Sprint("the collector answers ", status))
		}
	})
}

func TestCollectorsThatCannotBeUsedAreRefused(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.crt")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, tc := range map[string]struct {
		cfg  TraceConfig
		want string
	}{
		"a certificate that is not there": {TraceConfig{Certificate: "/nowhere/ca.crt"}, "OTEL_EXPORTER_OTLP_CERTIFICATE"},
		"a certificate that is none":      {TraceConfig{Certificate: empty}, "holds no certificate"},
		"headers without a value":         {TraceConfig{Headers: "a=1,s3cret"}, "OTEL_EXPORTER_OTLP_HEADERS: must be name=value"},
		"headers without a name":          {TraceConfig{Headers: "=s3cret"}, "OTEL_EXPORTER_OTLP_HEADERS: must be name=value"},
		"headers with a bad escape":       {TraceConfig{Headers: "a=s3cret%zz"}, "OTEL_EXPORTER_OTLP_HEADERS: must be name=value"},
	} {
		_, err := newCollector(tc.cfg)
		require.ErrorContains(t, err, tc.want, name)
		require.NotContains(t, err.Error(), "s3cret")
	}
}
