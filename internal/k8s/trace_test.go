package k8s

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
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
