package node

import (
	"context"
	"log/slog"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"sandbox-provisioner/hack/devcluster/internal/fault"
)

func (n *Node) podChanged(before, after *corev1.Pod) {
	pod := after
	if pod == nil {
		pod = before
		n.addresses.release(pod.UID)
	}
	n.podQueue.add(nameOf(pod))
	n.podChangedForServices(before, after)
	n.podChangedForQuotas(before, after)
}

// faultChanged looks at the Pods again that an order is about.
func (n *Node) faultChanged(namespace, pod string) {
	if pod != fault.Every {
		n.podQueue.add(cache.NewObjectName(namespace, pod))
		return
	}
	for _, key := range n.pods.ListKeys() {
		name, err := cache.ParseObjectName(key)
		if err == nil && name.Namespace == namespace {
			n.podQueue.add(name)
		}
	}
}

func (n *Node) adoptAddresses() {
	for _, obj := range n.pods.List() {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Status.PodIP != "" {
			n.addresses.adopt(pod.UID, pod.Status.PodIP)
		}
	}
}

// reconcilePod moves a Pod one step towards what it should be now.
func (n *Node) reconcilePod(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	obj, exists, err := n.pods.GetByKey(key.String())
	if err != nil {
		return 0, err
	}
	pod, ok := obj.(*corev1.Pod)
	if !exists || !ok {
		n.memories.forget(key)
		return 0, nil
	}
	now := time.Now()
	known := n.memories.of(key, pod.UID)
	n.recall(known, pod, now)
	switch {
	case pod.Spec.NodeName == "":
		return n.schedule(ctx, pod, known, now)
	case pod.Spec.NodeName != Name:
		return 0, nil
	case pod.DeletionTimestamp != nil:
		return n.terminate(ctx, pod, known, now)
	case finished(pod):
		return 0, nil
	default:
		return n.keepRunning(ctx, pod, known, now)
	}
}

// recall brings the memory up to date with the Pod and the faults.
func (n *Node) recall(known *memory, pod *corev1.Pod, now time.Time) {
	current, err := n.cfg.Faults.Of(pod)
	if current != known.fault || known.faultAt.IsZero() {
		if err != nil {
			n.log.Warn("pod asks for a fault that does not exist, it stays healthy", podAttrs(pod), slog.Any("error", err))
		}
		known.fault, known.faultAt = current, now
		known.restarts = misbehavingStatus(pod).RestartCount
	}
	if known.boundAt.IsZero() && pod.Spec.NodeName != "" {
		known.boundAt = now
	}
	if known.startedAt.IsZero() && hasStarted(misbehavingStatus(pod)) {
		known.startedAt = now
	}
	if known.stoppingAt.IsZero() && pod.DeletionTimestamp != nil {
		known.stoppingAt = now
	}
}

// keepRunning writes the status that a bound Pod should have now.
func (n *Node) keepRunning(ctx context.Context, pod *corev1.Pod, known *memory, now time.Time) (time.Duration, error) {
	want, again := n.plan(pod, known, now)
	if want == nil {
		return again, nil
	}
	status := n.render(pod, *want, now)
	if equality.Semantic.DeepEqual(status, pod.Status) {
		return again, nil
	}
	if err := n.writeStatus(ctx, pod, status); err != nil {
		return 0, err
	}
	if want.event != nil && !alreadyWaits(pod, want.container) {
		n.emit(ctx, pod, *want.event)
	}
	return again, nil
}

// terminate lets the containers of a deleted Pod stop, and then lets the API server remove it. The UID keeps it from
// hitting a successor of the same name.
func (n *Node) terminate(ctx context.Context, pod *corev1.Pod, known *memory, now time.Time) (time.Duration, error) {
	grace := gracePeriod(pod)
	switch {
	case grace == 0 && len(pod.Finalizers) > 0:
		return 0, nil // nothing is left to do here
	case grace == 0 && known.removedAt.IsZero():
		// The API server is about to remove it, in a second write. If it was killed between the two, nobody else does.
		known.removedAt = now
		return time.Second, nil
	}
	if known.fault.Kind == fault.HangInTermination {
		hanging := known.fault.Duration
		if hanging == 0 {
			return 0, nil
		}
		if left := known.stoppingAt.Add(hanging).Sub(now); left > 0 {
			return left, nil
		}
	}
	if left := known.stoppingAt.Add(min(n.cfg.StopDelay, grace)).Sub(now); left > 0 {
		return left, nil
	}
	status := stopped(pod, now)
	if !equality.Semantic.DeepEqual(status, pod.Status) {
		if err := n.writeStatus(ctx, pod, status); err != nil {
			return 0, err
		}
	}
	err := n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil // gone already, or replaced
	}
	if err == nil {
		n.log.Debug("pod finalised", podAttrs(pod))
	}
	return 0, err
}

// writeStatus carries the resource version of our cached Pod: if the cache is behind, the API server says so.
func (n *Node) writeStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	written := *pod
	written.Status = status
	_, err := n.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, &written, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		n.log.Debug("pod status written", podAttrs(pod), slog.String("phase", string(status.Phase)))
	}
	return err
}

func gracePeriod(pod *corev1.Pod) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if pod.DeletionGracePeriodSeconds != nil {
		seconds = *pod.DeletionGracePeriodSeconds
	}
	return time.Duration(seconds) * time.Second
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// serving is what kube-proxy sends traffic to.
func serving(pod *corev1.Pod) bool {
	return ready(pod) && pod.DeletionTimestamp == nil && pod.Status.PodIP != "" && !finished(pod)
}

func nameOf(obj metav1.Object) cache.ObjectName { return cache.MetaObjectToName(obj) }

func podAttrs(pod *corev1.Pod) slog.Attr {
	return slog.Group("pod", slog.String("namespace", pod.Namespace), slog.String("name", pod.Name),
		slog.String("uid", string(pod.UID)))
}

// podChangedForServices looks at the Services again whose endpoints may differ now.
func (n *Node) podChangedForServices(before, after *corev1.Pod) {
	if before != nil && after != nil && maps.Equal(before.Labels, after.Labels) &&
		ready(before) == ready(after) && before.Status.PodIP == after.Status.PodIP &&
		(before.DeletionTimestamp == nil) == (after.DeletionTimestamp == nil) && finished(before) == finished(after) {
		return
	}
	for _, pod := range []*corev1.Pod{before, after} {
		if pod == nil {
			continue
		}
		for _, service := range n.servicesOf(pod) {
			n.serviceQueue.add(nameOf(service))
		}
	}
}
