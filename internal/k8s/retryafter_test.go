package k8s

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// newTestCore is a client made the real way, except that it is told where the server is.
func newTestCore(t *testing.T, handler http.Handler) *Core {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	cfg, err := surroundings{
		inCluster:   func() (*rest.Config, error) { return &rest.Config{Host: server.URL}, nil },
		inContainer: func() bool { return false },
	}.connect(t.Context(), Connection{RequestTimeout: 10 * time.Second}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	core, err := NewCore(cfg)
	require.NoError(t, err)
	return core
}

func encode(t *testing.T, mediaType string, obj runtime.Object) string {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	require.True(t, ok)
	obj = obj.DeepCopyObject() // it is written to while it is encoded, and handlers share it
	b, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, schema.GroupVersion{Version: "v1"}), obj)
	require.NoError(t, err)
	return string(b)
}

func TestAServerThatAsksToWaitIsAskedOnce(t *testing.T) {
	t.Parallel()
	status := func(code int32, reason metav1.StatusReason, message string, after int32) *metav1.Status {
		s := &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
		if after != 0 {
			s.Details = &metav1.StatusDetails{Kind: "pods", RetryAfterSeconds: after}
		}
		return s
	}
	text := func(*testing.T) (string, string) {
		return "text/plain; charset=utf-8", "Too many requests, please try again later."
	}
	as := func(mediaType string, s *metav1.Status) func(*testing.T) (string, string) {
		return func(t *testing.T) (string, string) { return mediaType, encode(t, mediaType, s) }
	}
	is := func(reason metav1.StatusReason) func(error) bool {
		return func(err error) bool { return apierrors.ReasonForError(err) == reason }
	}
	for _, tt := range []struct {
		name    string
		code    int
		header  string
		body    func(*testing.T) (mediaType, body string)
		is      func(error) bool
		message string
		delay   int
		delayed bool
	}{
		{"Priority and Fairness, in plain text", 429, "7", text, apierrors.IsTooManyRequests, "too many requests", 7, true},
		{"a JSON Status", 429, "7", as(runtime.ContentTypeJSON, status(429, metav1.StatusReasonTooManyRequests, "budget", 0)),
			apierrors.IsTooManyRequests, "budget", 7, true},
		{"a protobuf Status", 429, "7", as(runtime.ContentTypeProtobuf, status(429, metav1.StatusReasonTooManyRequests, "budget", 0)),
			apierrors.IsTooManyRequests, "budget", 7, true},
		{"a Status that has a delay of its own", 500, "1", as(runtime.ContentTypeProtobuf, status(500, metav1.StatusReasonServerTimeout, "slow", 3)),
			apierrors.IsServerTimeout, "slow", 3, true},
		{"unavailable, in plain text", 503, "30", text, apierrors.IsServiceUnavailable, "", 30, true},
		{"unavailable, without a body", 503, "30", func(*testing.T) (string, string) { return "", "" }, apierrors.IsServiceUnavailable, "", 30, true},
		{"a gateway that is broken, in HTML", 502, "2", func(*testing.T) (string, string) { return "text/html", "<html>bad gateway" },
			func(err error) bool { return is(metav1.StatusReasonUnknown)(err) || apierrors.IsInternalError(err) }, "", 2, true},
		{"JSON that is no Status", 500, "2", func(*testing.T) (string, string) { return "application/json", `{"kind":"Pod","apiVersion":"v1"}` },
			apierrors.IsInternalError, "", 2, true},
		{"at once", 429, "0", text, apierrors.IsTooManyRequests, "", 0, false},
		{"a delay beyond reason", 429, "99999999999", text, apierrors.IsTooManyRequests, "", 1<<31 - 1, true},
		{"a date, which client-go does not act on", 429, "Wed, 21 Oct 2026 07:28:00 GMT", text, apierrors.IsTooManyRequests, "", 0, false},
		{"no delay", 429, "", text, apierrors.IsTooManyRequests, "", 0, false},
		{"a refusal is none of this", 403, "7", as(runtime.ContentTypeJSON, status(403, metav1.StatusReasonForbidden, "exceeded quota", 0)),
			apierrors.IsForbidden, "exceeded quota", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			mediaType, body := tt.body(t)
			pods := newTestCore(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				if tt.header != "" {
					w.Header().Set("Retry-After", tt.header)
				}
				w.Header().Set("Content-Type", mediaType)
				w.WriteHeader(tt.code)
				_, _ = w.Write([]byte(body))
			})).Pods("deer-flow")

			// A client that waits would do so for longer than anybody can.
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, getErr := pods.Get(ctx, "sandbox-a1", metav1.GetOptions{})
			_, createErr := pods.Create(ctx, &corev1.Pod{}, metav1.CreateOptions{})
			_, listErr := pods.List(ctx, metav1.ListOptions{})
			_, watchErr := pods.Watch(ctx, metav1.ListOptions{})
			deleteErr := pods.Delete(ctx, "sandbox-a1", metav1.DeleteOptions{})
			for _, err := range []error{getErr, createErr, listErr, watchErr, deleteErr} {
				require.True(t, tt.is(err), "%v has the reason %q", err, apierrors.ReasonForError(err))
				delay, delayed := apierrors.SuggestsClientDelay(err)
				require.Equal(t, tt.delayed, delayed, err)
				require.Equal(t, tt.delay, delay, err)
			}
			require.ErrorContains(t, getErr, tt.message)
			require.EqualValues(t, 5, requests.Load(), "a request was sent again")
		})
	}
}

func TestAnAnswerThatIsNoErrorIsLeftAlone(t *testing.T) {
	t.Parallel()
	body := encode(t, runtime.ContentTypeProtobuf, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "sandbox-a1"}})
	pods := newTestCore(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "application/vnd.kubernetes.protobuf,application/json", r.Header.Get("Accept"))
		assert.True(t, strings.HasPrefix(r.Header.Get("User-Agent"), "sandbox-provisioner/"), r.Header.Get("User-Agent"))
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = w.Write([]byte(body))
	})).Pods("deer-flow")
	pod, err := pods.Get(t.Context(), "sandbox-a1", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "sandbox-a1", pod.Name)
}

func TestObjectsAreSentAsProtobuf(t *testing.T) {
	t.Parallel()
	body := encode(t, runtime.ContentTypeJSON, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "sandbox-a1"}})
	pods := newTestCore(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, runtime.ContentTypeProtobuf, r.Header.Get("Content-Type"))
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_, _ = w.Write([]byte(body))
	})).Pods("deer-flow")
	pod, err := pods.Create(t.Context(), stock().Pod("a1", ask(), goldenGeneration), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "sandbox-a1", pod.Name, "an answer in JSON is understood")
}
