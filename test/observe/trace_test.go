package observe_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"sandbox-provisioner/internal/testenv"
)

// A gallery is an OTLP collector that keeps what it gets.
type gallery struct {
	t      *testing.T
	server *httptest.Server

	mu    sync.Mutex
	raw   bytes.Buffer
	spans []picture
}

// A picture is a span, and the service that made it.
type picture struct {
	*otlp.Span
	service string
}

func newGallery(t *testing.T) *gallery {
	t.Helper()
	g := &gallery{t: t}
	g.server = httptest.NewServer(g)
	t.Cleanup(g.server.Close)
	return g
}

func (g *gallery) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request otlp.TracesData // the same on the wire as the request's own type
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(r.URL, ": ", err), http.StatusBadRequest)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.raw.Write(body)
	for _, resource := range request.GetResourceSpans() {
		service := ""
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				g.spans = append(g.spans, picture{span, service})
			}
		}
	}
}

// of are the spans of a trace with that name.
func (g *gallery) of(traceID, name string) (found []picture) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, span := range g.spans {
		if span.GetName() == name && hex.EncodeToString(span.GetTraceId()) == traceID {
			found = append(found, span)
		}
	}
	return found
}

// wait returns the spans of a trace with that name when there are n of them.
func (g *gallery) wait(traceID, name string, n int) []picture {
	g.t.Helper()
	testenv.Until(g.t, 15*time.Second, func() error {
		if found := g.of(traceID, name); len(found) < n {
			return fmt.Errorf("%d of %d spans %q have come", len(found), n, name)
		}
		return nil
	})
	return g.of(traceID, name)
}

func (g *gallery) env() testenv.Option {
	return testenv.Env("OTEL_EXPORTER_OTLP_ENDPOINT", g.server.URL)
}

// often lets programs export at once.
func often() testenv.Option { return testenv.Env("OTEL_BSP_SCHEDULE_DELAY", "100") }

// traceparent is the header with which a gateway hands on its own trace.
func traceparent(traceID string) testenv.RequestOption {
	return func(header http.Header, _ map[string]any) {
		header.Set("traceparent", "00-"+traceID+"-00000000000000aa-01")
	}
}

func TestATraceLeadsFromTheGatewayToTheWrites(t *testing.T) {
	t.Parallel()
	g := newGallery(t)
	d := testenv.Processes(t, testenv.ClusterIP(), g.env(), often())
	const created, deleted = "0af7651916cd43dd8448eb211c80319c", "0af7651916cd43dd8448eb211c80319d"
	d.Client().Create(t.Context(), "traced", traceparent(created)).Want(t, http.StatusOK)
	d.Client().Delete(t.Context(), "traced", traceparent(deleted)).Want(t, http.StatusOK)

	request := g.wait(created, "POST /api/sandboxes", 1)[0]
	require.Equal(t, "00000000000000aa", hex.EncodeToString(request.GetParentSpanId()))
	publish := g.wait(created, "publish intent", 1)[0]
	require.Equal(t, request.GetSpanId(), publish.GetParentSpanId())
	attempt := g.wait(created, "reconcile present", 1)[0]
	require.Equal(t, publish.GetSpanId(), attempt.GetParentSpanId())
	for _, name := range []string{"kubernetes create pods", "kubernetes create services", "record outcome"} {
		part := g.wait(created, name, 1)
		require.Len(t, part, 1, name)
		require.Equal(t, attempt.GetSpanId(), part[0].GetParentSpanId(), name)
		require.Equal(t, "sandbox-provisioner-worker", part[0].service)
	}
	require.Equal(t, "sandbox-provisioner-api", request.service)
	g.wait(deleted, "kubernetes delete pods", 1)
	g.wait(deleted, "kubernetes delete services", 1)
	require.Len(t, g.wait(deleted, "reconcile absent", 1), 1)

	d.APIs[0].Stop() // what is left is exported
	d.Workers[0].Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, span := range g.spans {
		traceID := hex.EncodeToString(span.GetTraceId())
		require.True(t, traceID == created || traceID == deleted, "probes, pings and watches are not traced: %v", span.GetName())
	}
	for what, secret := range map[string]string{"key": testenv.Key, "path of the kubeconfig": d.Cluster.Kubeconfig} {
		require.False(t, bytes.Contains(g.raw.Bytes(), []byte(secret)), "the %s is in a span", what)
	}
}

func TestARedeliveryIsLinkedAndInTheSameTrace(t *testing.T) {
	t.Parallel()
	g, proxy := newGallery(t), testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Processes(t, testenv.ClusterIP(), testenv.Through(proxy), g.env(), often())
	ill := proxy.On(testenv.Match{Verb: "create"},
		testenv.Refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "etcd is ill"))
	const traceID = "0af7651916cd43dd8448eb211c80319e"
	d.Client().Create(t.Context(), "again", traceparent(traceID), testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	g.wait(traceID, "reconcile present", 1)
	ill.Remove()
	d.WaitUntilRunning("again")
	testenv.Until(t, 15*time.Second, func() error {
		attempts := g.of(traceID, "reconcile present")
		if !slices.ContainsFunc(attempts, func(p picture) bool { return p.GetStatus().GetCode() != otlp.Status_STATUS_CODE_ERROR }) {
			return errors.New("the last attempt has not come")
		}
		publish := g.wait(traceID, "publish intent", 1)[0]
		for _, attempt := range attempts {
			require.Equal(t, publish.GetSpanId(), attempt.GetParentSpanId())
			if attempt.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR {
				require.Contains(t, attempt.GetStatus().GetMessage(), "etcd is ill")
				continue
			}
			require.Len(t, attempt.GetLinks(), 1)
			require.Equal(t, publish.GetSpanId(), attempt.GetLinks()[0].GetSpanId())
		}
		return nil
	})
	// An access line leads to its trace.
	require.Contains(t, d.APIs[0].Log(), "trace_id="+traceID)
	require.Contains(t, d.Workers[0].Log(), "trace_id="+traceID)
}

// A collector that is away costs nothing but its traces.
func TestACollectorThatIsDownDisturbsNobody(t *testing.T) {
	t.Parallel()
	d := testenv.Processes(t, testenv.ClusterIP(), testenv.Env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"), often())
	for i := range 5 {
		d.Client().Create(t.Context(), fmt.Sprint("untraced-", i)).Want(t, http.StatusOK)
	}
	d.APIs[0].Stop()
	d.Workers[0].Stop()
	require.LessOrEqual(t, strings.Count(d.APIs[0].Log(), "traces cannot be exported"), 3, "told once, not with every batch")
}
