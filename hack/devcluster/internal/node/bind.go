package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/hack/devcluster/internal/fault"
)

// unschedulableMessage reads like the scheduler's on a full cluster of one node.
const unschedulableMessage = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, " +
	"preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."

// schedule binds a Pod to the node, or says why not.
func (n *Node) schedule(ctx context.Context, pod *corev1.Pod, known *memory, now time.Time) (time.Duration, error) {
	if pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 || finished(pod) {
		return 0, nil
	}
	if known.fault.Kind == fault.Unschedulable {
		left := time.Duration(0)
		if known.fault.Duration > 0 {
			left = known.faultAt.Add(known.fault.Duration).Sub(now)
		}
		if known.fault.Duration == 0 || left > 0 {
			return left, n.refuse(ctx, pod, known, now)
		}
	}
	err := n.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: Name},
	}, metav1.CreateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return 0, nil // bound, deleted or replaced meanwhile: an event will tell
	}
	if err != nil {
		return 0, fmt.Errorf("bind: %w", err)
	}
	n.log.Debug("pod bound", podAttrs(pod))
	return 0, nil
}

func (n *Node) refuse(ctx context.Context, pod *corev1.Pod, known *memory, now time.Time) error {
	message := known.fault.Message
	if message == "" {
		message = unschedulableMessage
	}
	status := *pod.Status.DeepCopy()
	status.Phase = corev1.PodPending
	setCondition(&status, corev1.PodScheduled, false, corev1.PodReasonUnschedulable, message, now)
	if equality.Semantic.DeepEqual(status, pod.Status) {
		return nil
	}
	if err := n.writeStatus(ctx, pod, status); err != nil {
		return err
	}
	n.emit(ctx, pod, event{reason: "FailedScheduling", message: message, from: "default-scheduler"})
	return nil
}
