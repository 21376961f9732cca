package k8s

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/sandbox"
)

// comeBack is the delay after which an object that is on its way out is looked at again.
const comeBack = 100 * time.Millisecond

// Ensure makes the Pod and the Service of id exist, and returns them as the API server does. On a free name that takes
// two writes and no read. A *sandbox.Failure says that it can never succeed, a *sandbox.Retry that it may later. What
// it has made until then is left to Undo.
func (c *Cluster) Ensure(ctx context.Context, id string, spec sandbox.Spec, l sandbox.Lineage) (sandbox.State, error) {
	var pod *corev1.Pod
	var service *corev1.Service
	var podErr, serviceErr error
	ensurePod := func() {
		pod, podErr = ensure(ctx, c.pods, c.set.Pod(id, spec, l.Generation), func(found *corev1.Pod) (verdict, error) {
			return judgePod(found, id, spec, l)
		})
	}
	ensureService := func() {
		service, serviceErr = ensure(ctx, c.services, c.set.Service(id, l.Generation), func(found *corev1.Service) (verdict, error) {
			return c.judgeService(found, id, l)
		})
	}
	switch {
	case l.Fence == 0:
		var podDone sync.WaitGroup
		podDone.Go(ensurePod)
		ensureService()
		podDone.Wait()
	default: // A Pod of an earlier life may still be on its way out, and a Service would lead to it.
		if ensurePod(); podErr == nil {
			ensureService()
		} else {
			serviceErr = remove(ctx, c.services, sandbox.ServiceName(id), id, l.Rejects)
		}
	}
	if err := both(podErr, serviceErr); err != nil {
		return sandbox.State{}, err
	}
	return c.set.state(id, pod, service), nil
}

// A verdict is what is to be done about an object that holds the name of one that is wanted.
type verdict int

const (
	keep    verdict = iota // it serves
	wait                   // it is on its way out
	replace                // it must go first
)

// judgePod decides whether an existing Pod serves an intent. A *sandbox.Failure says that it is to stay and does not serve.
func judgePod(pod *corev1.Pod, id string, spec sandbox.Spec, l sandbox.Lineage) (verdict, error) {
	switch {
	case terminating(pod):
		return wait, nil
	case !ours(pod, id):
		return keep, nameTaken(sandbox.Pod, pod)
	case !l.Accepts(generation(pod)), pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		return replace, nil
	}
	capacity, err := Capacity(pod)
	switch {
	case err != nil:
		return keep, &sandbox.Failure{Reason: sandbox.ReasonRefused, Object: sandbox.Pod, Message: err.Error()}
	case capacity < spec.MaxShellSessions:
		return keep, &sandbox.Failure{Reason: sandbox.ReasonCapacity, Object: sandbox.Pod, Message: fmt.Sprintf(
			"existing sandbox has a capacity of %d shell sessions, %d were requested", capacity, spec.MaxShellSessions)}
	case spec.LarkBroker && !HasBroker(pod):
		return keep, &sandbox.Failure{Reason: sandbox.ReasonBroker, Object: sandbox.Pod,
			Message: "existing sandbox has no Lark broker; delete it first"}
	}
	return keep, nil
}

// judgeService decides whether an existing Service serves an intent.
func (c *Cluster) judgeService(service *corev1.Service, id string, l sandbox.Lineage) (verdict, error) {
	switch {
	case terminating(service):
		return wait, nil
	case !ours(service, id):
		return keep, nameTaken(sandbox.Service, service)
	case !l.Accepts(generation(service)), string(service.Spec.Type) != string(c.set.ServiceType):
		return replace, nil
	}
	return keep, nil
}

func nameTaken(kind string, obj metav1.Object) error {
	return &sandbox.Failure{Reason: sandbox.ReasonNameTaken, Object: kind,
		Message: fmt.Sprintf("%q exists and is not a sandbox", obj.GetName())}
}

// ensure creates want, or finds an object of its name that judge keeps.
func ensure[Object metav1.Object, List any](
	ctx context.Context, h half[Object, List], want Object, judge func(Object) (verdict, error),
) (Object, error) {
	created, err := h.create(ctx, want)
	if err == nil {
		return created, nil
	}
	// At full quota an existing object answers 403 and not 409.
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return created, classify(h.kind, err)
	}
	found, ok, readErr := h.get(ctx, want.GetName())
	switch {
	case readErr != nil:
		return found, readErr
	case !ok && apierrors.IsForbidden(err):
		return found, classify(h.kind, err)
	case !ok:
		return found, later(h.kind, sandbox.ReasonConflict, "went away while it was looked at")
	}
	switch verdict, err := judge(found); {
	case err != nil:
		return found, err
	case verdict == wait:
		return found, later(h.kind, sandbox.ReasonTerminating, "its predecessor is still terminating")
	case verdict == replace:
		if err := h.delete(ctx, found); err != nil {
			return found, err
		}
		return found, later(h.kind, sandbox.ReasonLeftover, "its predecessor has been deleted")
	}
	return found, nil
}

func later(kind string, reason sandbox.Reason, why string) error {
	return &sandbox.Retry{Reason: reason, Object: kind, After: comeBack, Err: errors.New(why)}
}

// Remove deletes what was made of id before the intent of l. It returns nil when Kubernetes has accepted the deletions;
// the Pod may still be terminating. The text of its error tells of each half that is left.
func (c *Cluster) Remove(ctx context.Context, id string, l sandbox.Lineage) error {
	return c.removeIf(ctx, id, l.Precedes)
}

// Undo deletes what failed intents made of id, and what a deletion before them was to take: the intents that follow a
// deletion carry it out, and one that fails has perhaps not come that far.
func (c *Cluster) Undo(ctx context.Context, id string, l sandbox.Lineage) error {
	return c.removeIf(ctx, id, l.Rejects)
}

func (c *Cluster) removeIf(ctx context.Context, id string, match func(sandbox.Generation) bool) error {
	podDone := make(chan error, 1)
	go func() { podDone <- remove(ctx, c.pods, sandbox.PodName(id), id, match) }()
	serviceErr := remove(ctx, c.services, sandbox.ServiceName(id), id, match)
	podErr := <-podDone
	if podErr == nil && serviceErr == nil {
		return nil
	}
	return partial(podErr, serviceErr)
}

// remove deletes the object of that name if it is ours and of a generation that matches.
func remove[Object metav1.Object, List any](
	ctx context.Context, h half[Object, List], name, id string, match func(sandbox.Generation) bool,
) error {
	found, ok, err := h.get(ctx, name)
	if err != nil || !ok || terminating(found) || !ours(found, id) || !match(generation(found)) {
		return err
	}
	return h.delete(ctx, found)
}

// partial is the error of a removal that left something. It always passes: a removal is never given up.
func partial(podErr, serviceErr error) error {
	out := &sandbox.Retry{}
	var parts []error
	for _, half := range []struct {
		name string
		err  error
	}{{"service", serviceErr}, {"pod", podErr}} {
		var retry *sandbox.Retry
		var failure *sandbox.Failure
		switch {
		case half.err == nil:
			continue
		case errors.As(half.err, &retry):
			out.Reason, out.Object, out.After = retry.Reason, retry.Object, max(out.After, retry.After)
		case errors.As(half.err, &failure):
			out.Reason, out.Object = failure.Reason, failure.Object
		}
		// Not wrapped: a failure inside would be found by errors.As, and the removal be given up.
		parts = append(parts, errors.New(half.name+": "+half.err.Error()))
	}
	out.Err = parts[0]
	if len(parts) == 2 {
		out.Err = fmt.Errorf("%w, %w", parts[0], parts[1])
	}
	return out
}
