package node

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/hack/devcluster/internal/fault"
)

// render returns the status that shows what is wanted. What does not change keeps its times, so that comparing it with
// the present status tells whether there is anything to write.
func (n *Node) render(pod *corev1.Pod, w want, now time.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.Phase, status.Reason, status.Message = w.phase, w.reason, w.message
	status.HostIP, status.HostIPs = address, []corev1.HostIP{{IP: address}}
	if status.PodIP == "" {
		status.PodIP = n.addresses.of(pod.UID)
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
	if status.StartTime == nil {
		at := metav1.NewTime(now)
		status.StartTime = &at
	}
	status.InitContainerStatuses = make([]corev1.ContainerStatus, len(pod.Spec.InitContainers))
	for i, container := range pod.Spec.InitContainers {
		previous := statusOf(pod.Status.InitContainerStatuses, container.Name)
		status.InitContainerStatuses[i] = renderContainer(pod, container, previous, initWant(container), now)
	}
	status.ContainerStatuses = make([]corev1.ContainerStatus, len(pod.Spec.Containers))
	for i, container := range pod.Spec.Containers {
		cw := w.container
		if container.Name != misbehaving(pod).Name {
			cw = containerWant{running: true, ready: true}
			if w.phase == corev1.PodFailed || w.phase == corev1.PodSucceeded {
				cw = containerWant{ended: w.container.ended}
			}
		}
		previous := statusOf(pod.Status.ContainerStatuses, container.Name)
		status.ContainerStatuses[i] = renderContainer(pod, container, previous, cw, now)
	}
	setReadiness(&status, now)
	return status
}

// stopped returns the status of a Pod whose containers have ended because it was deleted.
func stopped(pod *corev1.Pod, now time.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	if finished(pod) {
		return status
	}
	ran := false
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range list {
			if list[i].State.Running == nil {
				continue
			}
			ran = true
			list[i].State = ended(list[i], exit{"Completed", 0}, now)
			list[i].Ready, list[i].Started = false, new(bool)
		}
	}
	if ran {
		status.Phase = corev1.PodSucceeded
		setReadiness(&status, now)
	}
	return status
}

// initWant: an init container has completed, unless it is a sidecar (restartPolicy Always), which runs on.
func initWant(container corev1.Container) containerWant {
	if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		return containerWant{running: true, ready: true}
	}
	return containerWant{ended: &exit{"Completed", 0}, ready: true}
}

func renderContainer(pod *corev1.Pod, container corev1.Container, previous corev1.ContainerStatus, w containerWant,
	now time.Time,
) corev1.ContainerStatus {
	next := previous
	next.Name, next.Image = container.Name, container.Image
	next.Ready = w.ready
	isRunning := w.running && (w.ready || w.last == nil)
	next.Started = &isRunning
	switch {
	case w.restarts != nil:
		next.RestartCount = *w.restarts
	case w.running && previous.State.Running == nil && hasStarted(previous):
		next.RestartCount++
	}
	restarted := next.RestartCount != previous.RestartCount

	if known := previous.LastTerminationState.Terminated; w.last != nil &&
		(known == nil || known.Reason != w.last.reason || restarted) {
		next.LastTerminationState = ended(previous, *w.last, now)
	} else if w.running && previous.State.Terminated != nil {
		next.LastTerminationState = previous.State
	}

	switch {
	case w.waiting != nil:
		next.State = corev1.ContainerState{Waiting: w.waiting}
	case w.ended != nil:
		if known := previous.State.Terminated; known == nil || known.Reason != w.ended.reason {
			next.State = ended(previous, *w.ended, now)
		}
	case previous.State.Running == nil || restarted:
		next.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}}
	}
	if w.waiting == nil {
		next.ImageID = "simulated://" + container.Image
		next.ContainerID = "simulated://" + string(pod.UID) + "/" + container.Name
	}
	return next
}

// ended is the end of the run that previous shows.
func ended(previous corev1.ContainerStatus, why exit, now time.Time) corev1.ContainerState {
	started := metav1.NewTime(now)
	if previous.State.Running != nil {
		started = previous.State.Running.StartedAt
	}
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: why.reason, ExitCode: why.code, StartedAt: started, FinishedAt: metav1.NewTime(now),
		ContainerID: previous.ContainerID,
	}}
}

// setReadiness derives the conditions from phase and containers.
func setReadiness(status *corev1.PodStatus, now time.Time) {
	var unready []string
	for _, container := range status.ContainerStatuses {
		if !container.Ready {
			unready = append(unready, container.Name)
		}
	}
	isReady, reason, message := len(unready) == 0, "", ""
	switch {
	case status.Phase == corev1.PodSucceeded:
		isReady, reason = false, "PodCompleted"
	case status.Phase == corev1.PodFailed:
		isReady, reason = false, "PodFailed"
	case !isReady:
		reason, message = "ContainersNotReady", "containers with unready status: ["+strings.Join(unready, " ")+"]"
	}
	setCondition(status, corev1.PodReadyToStartContainers, status.Phase == corev1.PodRunning || status.Phase == corev1.PodPending,
		"", "", now)
	setCondition(status, corev1.PodInitialized, true, "", "", now)
	setCondition(status, corev1.ContainersReady, isReady, reason, message, now)
	setCondition(status, corev1.PodReady, isReady, reason, message, now)
}

func setCondition(status *corev1.PodStatus, kind corev1.PodConditionType, is bool, reason, message string, now time.Time) {
	value := corev1.ConditionFalse
	if is {
		value = corev1.ConditionTrue
	}
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		i = len(status.Conditions)
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind})
	}
	condition := &status.Conditions[i]
	if condition.Status != value {
		condition.LastTransitionTime = metav1.NewTime(now)
	}
	condition.Status, condition.Reason, condition.Message = value, reason, message
}

// misbehaving returns the container that faults are about.
func misbehaving(pod *corev1.Pod) corev1.Container {
	for _, container := range pod.Spec.Containers {
		if container.Name == fault.Container {
			return container
		}
	}
	return pod.Spec.Containers[0] // the API server refuses a Pod without containers
}

func misbehavingStatus(pod *corev1.Pod) corev1.ContainerStatus {
	return statusOf(pod.Status.ContainerStatuses, misbehaving(pod).Name)
}

func statusOf(list []corev1.ContainerStatus, name string) corev1.ContainerStatus {
	for _, status := range list {
		if status.Name == name {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

func hasStarted(status corev1.ContainerStatus) bool {
	return status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
}

// alreadyWaits reports whether the Pod shows the state already that an event would be about.
func alreadyWaits(pod *corev1.Pod, w containerWant) bool {
	shown := misbehavingStatus(pod).State.Waiting
	return w.waiting != nil && shown != nil && shown.Reason == w.waiting.Reason
}
