package k8s

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sandbox-provisioner/internal/sandbox"
)

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

// said is an error of Kubernetes in words that may be shown.
type said struct{ err error }

func (e said) Error() string { return sandbox.Plain(e.err.Error()) }

func (e said) Unwrap() error { return e.err }

// classify is the one place that says what an error of Kubernetes means: a *sandbox.Failure is final, a *sandbox.Retry
// passes. nil stays nil.
func classify(kind string, err error) error {
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return &sandbox.Retry{Reason: sandbox.ReasonUnavailable, Object: kind, Err: said{err}}
	}
	final := func(reason sandbox.Reason) error {
		return &sandbox.Failure{Reason: reason, Object: kind, Message: sandbox.Plain(err.Error())}
	}
	passing := func(reason sandbox.Reason, after time.Duration) error {
		return &sandbox.Retry{Reason: reason, Object: kind, After: after, Err: said{err}}
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	suggested := time.Duration(seconds) * time.Second
	switch code := status.Status().Code; {
	case code == http.StatusForbidden && strings.Contains(err.Error(), "exceeded quota"):
		return final(sandbox.ReasonQuota)
	case code == http.StatusForbidden && isServiceAccountMissing(err):
		return passing(sandbox.ReasonNotReady, 0)
	case code == http.StatusConflict:
		return passing(sandbox.ReasonConflict, 0)
	case code == http.StatusTooManyRequests:
		return passing(sandbox.ReasonThrottled, suggested)
	case code == http.StatusUnauthorized, code == http.StatusNotFound, code == http.StatusRequestTimeout:
		// Credentials that are being rotated, a namespace that is being made: both pass, or end at the deadline.
		return passing(sandbox.ReasonNotReady, 0)
	case code >= http.StatusInternalServerError:
		return passing(sandbox.ReasonServer, suggested)
	default:
		return final(sandbox.ReasonRefused)
	}
}

// isServiceAccountMissing recognises the refusal of a Pod in a namespace whose ServiceAccount has not been made yet.
func isServiceAccountMissing(err error) bool {
	return strings.Contains(err.Error(), "serviceaccount") && strings.Contains(err.Error(), "not found")
}

// both joins the errors of the two halves of a sandbox. A failure outweighs a retry, unless nobody knows whether the other
// half has been written: it would arrive after the failure was undone. Of two retries, the later one counts.
func both(podErr, serviceErr error) error {
	if podErr == nil || serviceErr == nil {
		return errors.Join(podErr, serviceErr)
	}
	var pod, service *sandbox.Retry
	podPasses, servicePasses := errors.As(podErr, &pod), errors.As(serviceErr, &service)
	switch {
	case podPasses && !servicePasses && pod.Reason == sandbox.ReasonUnavailable:
		return pod
	case servicePasses && !podPasses && service.Reason == sandbox.ReasonUnavailable:
		return service
	case !podPasses:
		return podErr
	case !servicePasses:
		return serviceErr
	}
	later := pod
	if service.After > pod.After {
		later = service
	}
	return &sandbox.Retry{
		Reason: later.Reason, Object: later.Object, After: later.After,
		Err: fmt.Errorf("service: %w, pod: %w", service.Err, pod.Err),
	}
}

// Unreachable tells whether err came from no answer at all, rather than from one of Kubernetes.
func Unreachable(err error) bool {
	var retry *sandbox.Retry
	return errors.As(classify("", err), &retry) && retry.Reason == sandbox.ReasonUnavailable
}
