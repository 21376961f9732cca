package k8s

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestARequestThatSomebodyTracesHasASpanOfWhichTheAPIServerIsNotTold(t *testing.T) {
	var told http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told = r.Header
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, err := w.Write([]byte(`{"kind":"Pod","apiVersion":"v1"}`))
		assert.NoError(t, err)
	}))
	t.Cleanup(server.Close)
	cfg := &rest.Config{Host: server.URL}
	Trace(cfg)
	core, err := NewCore(cfg)
	require.NoError(t, err)
	create := func(ctx context.Context) {
		_, err := core.Pods("sandboxes").Create(ctx, &corev1.Pod{}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	spans := tracetest.NewSpanRecorder()
	asker := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test")

	create(t.Context())
	require.Empty(t, spans.Ended(), "nobody traces")

	ctx, parent := asker.Start(t.Context(), "reconcile")
	create(ctx)
	require.Len(t, spans.Ended(), 1)
	require.Equal(t, "kubernetes create pods", spans.Ended()[0].Name())
	require.Equal(t, parent.SpanContext().SpanID(), spans.Ended()[0].Parent().SpanID())
	require.NotEmpty(t, told)
	require.Empty(t, told.Get("traceparent"), "it would cost the API server something and join no spans")
}

func TestASpanTellsHowItsRequestEnded(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	ctx, asker := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "reconcile")
	defer asker.End()
	for name, c := range map[string]struct {
		answer     int
		err        error
		code       codes.Code
		attributes []attribute.KeyValue
	}{
		"well": {answer: http.StatusCreated, attributes: []attribute.KeyValue{semconv.HTTPResponseStatusCode(201)}},
		"refused": {answer: http.StatusConflict, code: codes.Error, attributes: []attribute.KeyValue{
			semconv.HTTPResponseStatusCode(409), semconv.ErrorTypeKey.String("409"),
		}},
		"not at all": {err: errors.New("connection refused"), code: codes.Error, attributes: []attribute.KeyValue{
			semconv.ErrorTypeKey.String("*errors.errorString"),
		}},
	} {
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "https://someone:secret@cluster:6443/api/v1/namespaces/sandboxes/services", nil)
		_, err := traced{roundTrip(func(r *http.Request) (*http.Response, error) {
			require.Same(t, req, r)
			return &http.Response{StatusCode: c.answer}, c.err
		})}.RoundTrip(req)
		require.ErrorIs(t, err, c.err, name)
		span := spans.Ended()[len(spans.Ended())-1]
		require.Equal(t, "kubernetes create services", span.Name(), name)
		require.Equal(t, trace.SpanKindClient, span.SpanKind(), name)
		require.Equal(t, c.code, span.Status().Code, name)
		require.ElementsMatch(t, append(c.attributes,
			semconv.HTTPRequestMethodPost, semconv.ServerAddress("cluster"),
			semconv.URLFull("https://someone:xxxxx@cluster:6443/api/v1/namespaces/sandboxes/services"),
		), span.Attributes(), name)
	}
}
