package k8s

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sandbox-provisioner/internal/sandbox"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	pods := corev1.Resource("pods")
	refused := &url.Error{Op: "Post", URL: "https://10.0.0.7:6443", Err: syscall.ECONNREFUSED}
	for name, test := range map[string]struct {
		err   error
		final sandbox.Reason
		retry sandbox.Reason
		after time.Duration
	}{
		"400":                       {err: apierrors.NewBadRequest("bad"), final: sandbox.ReasonRefused},
		"401":                       {err: apierrors.NewUnauthorized("expired"), retry: sandbox.ReasonNotReady},
		"403 of a quota":            {err: quotaError(pods, "p"), final: sandbox.ReasonQuota},
		"403 of RBAC":               {err: errNoRight, final: sandbox.ReasonRefused},
		"404":                       {err: apierrors.NewNotFound(pods, "p"), retry: sandbox.ReasonNotReady},
		"405":                       {err: apierrors.NewMethodNotSupported(pods, "create"), final: sandbox.ReasonRefused},
		"408":                       {err: apierrors.NewGenericServerResponse(408, "create", pods, "p", "late", 0, true), retry: sandbox.ReasonNotReady},
		"409":                       {err: apierrors.NewConflict(pods, "p", errors.New("modified")), retry: sandbox.ReasonConflict},
		"410":                       {err: apierrors.NewResourceExpired("old"), final: sandbox.ReasonRefused},
		"413":                       {err: apierrors.NewRequestEntityTooLargeError("large"), final: sandbox.ReasonRefused},
		"422":                       {err: apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil), final: sandbox.ReasonRefused},
		"429":                       {err: apierrors.NewTooManyRequests("slow down", 7), retry: sandbox.ReasonThrottled, after: 7 * time.Second},
		"429 without a delay":       {err: apierrors.NewTooManyRequestsError("slow down"), retry: sandbox.ReasonThrottled},
		"500":                       {err: errInternal, retry: sandbox.ReasonServer},
		"500 with a delay":          {err: apierrors.NewServerTimeout(pods, "create", 2), retry: sandbox.ReasonServer, after: 2 * time.Second},
		"503":                       {err: apierrors.NewServiceUnavailable("starting"), retry: sandbox.ReasonServer},
		"504":                       {err: apierrors.NewTimeoutError("webhook", 0), retry: sandbox.ReasonServer},
		"a refused connection":      {err: refused, retry: sandbox.ReasonUnavailable},
		"a late answer":             {err: context.DeadlineExceeded, retry: sandbox.ReasonUnavailable},
		"an answer within an error": {err: fmt.Errorf("wrapped: %w", errInternal), retry: sandbox.ReasonServer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := classify(sandbox.Pod, test.err)
			if test.final != "" {
				failure := requireFailure(t, err, test.final)
				require.Equal(t, sandbox.Pod, failure.Object)
				require.Equal(t, test.err.Error(), failure.Message)
				return
			}
			retry := requireRetry(t, err, test.retry)
			require.Equal(t, sandbox.Pod, retry.Object)
			require.Equal(t, test.after, retry.After)
			require.ErrorIs(t, err, test.err)
		})
	}
	require.NoError(t, classify(sandbox.Pod, nil))
}

func TestOnlyNoAnswerAtAllIsUnreachable(t *testing.T) {
	t.Parallel()
	require.True(t, Unreachable(syscall.ECONNREFUSED))
	require.True(t, Unreachable(context.DeadlineExceeded))
	require.False(t, Unreachable(nil))
	require.False(t, Unreachable(errInternal))
	require.False(t, Unreachable(errNoRight))
	require.False(t, Unreachable(apierrors.NewNotFound(corev1.Resource("namespaces"), "deer-flow")))
}

func TestBothHalvesOfAnError(t *testing.T) {
	t.Parallel()
	retry := func(object string, after time.Duration) *sandbox.Retry {
		return &sandbox.Retry{Reason: sandbox.ReasonThrottled, Object: object, After: after, Err: errors.New("slow down")}
	}
	failure := &sandbox.Failure{Reason: sandbox.ReasonQuota, Object: sandbox.Service, Message: "exceeded quota"}
	podRetry, serviceRetry := retry(sandbox.Pod, time.Second), retry(sandbox.Service, 2*time.Second)

	require.NoError(t, both(nil, nil))
	require.ErrorIs(t, both(podRetry, nil), podRetry)
	require.ErrorIs(t, both(nil, serviceRetry), serviceRetry)
	require.Equal(t, failure, both(podRetry, failure))
	require.Equal(t, failure, both(failure, serviceRetry))

	var later *sandbox.Retry
	require.ErrorAs(t, both(podRetry, serviceRetry), &later)
	require.Equal(t, sandbox.Service, later.Object)
	require.Equal(t, 2*time.Second, later.After)
	require.EqualError(t, later, "service: slow down, pod: slow down")
	require.ErrorAs(t, both(retry(sandbox.Pod, 3*time.Second), serviceRetry), &later)
	require.Equal(t, 3*time.Second, later.After)
}

// A write that nobody has an answer to may arrive later than an undo.
func TestAFailureWaitsForTheOtherHalfsFate(t *testing.T) {
	t.Parallel()
	refused := &sandbox.Failure{Reason: sandbox.ReasonRefused, Object: sandbox.Pod, Message: "no"}
	unknown := &sandbox.Retry{Reason: sandbox.ReasonUnavailable, Object: sandbox.Service, Err: errors.New("timeout")}
	busy := &sandbox.Retry{Reason: sandbox.ReasonServer, Object: sandbox.Service, Err: errors.New("busy")}
	for name, tt := range map[string]struct{ pod, service, want error }{
		"nothing went wrong":                    {nil, nil, nil},
		"the other half exists":                 {refused, nil, refused},
		"the other half was not written":        {refused, busy, refused},
		"the other half may have been written":  {refused, unknown, unknown},
		"the same with the halves exchanged":    {unknown, refused, unknown},
		"the failure is that of the other half": {busy, refused, refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := both(tt.pod, tt.service)
			if tt.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, tt.want)
		})
	}
}

// Whoever looks for a failure would give the removal up.
func TestARefusedRemovalPasses(t *testing.T) {
	t.Parallel()
	refused := &sandbox.Failure{Reason: sandbox.ReasonRefused, Object: sandbox.Pod, Message: "no right to delete"}
	err := partial(refused, nil)
	var failure *sandbox.Failure
	require.NotErrorAs(t, err, &failure)
	var retry *sandbox.Retry
	require.ErrorAs(t, err, &retry)
	require.ErrorContains(t, err, "no right to delete")
}
