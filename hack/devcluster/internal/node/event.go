package node

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// event is a Warning about a Pod.
type event struct{ reason, message, from string }

const kubelet = "kubelet"

// emit writes an Event. A lost one changes nothing else, hence only a log line.
func (n *Node) emit(ctx context.Context, pod *corev1.Pod, e event) {
	now := time.Now()
	_, err := n.client.CoreV1().Events(pod.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: fmt.Sprintf("%s.%x", pod.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			ResourceVersion: pod.ResourceVersion,
		},
		Type: corev1.EventTypeWarning, Reason: e.reason, Message: e.message,
		Source:         corev1.EventSource{Component: e.from, Host: Name},
		FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now), Count: 1,
		ReportingController: e.from, ReportingInstance: Name,
	}, metav1.CreateOptions{})
	if err != nil && ctx.Err() == nil {
		n.log.Warn("event not written", podAttrs(pod), slog.Any("error", err))
	}
}
