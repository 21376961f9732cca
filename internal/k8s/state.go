package k8s

import (
	corev1 "k8s.io/api/core/v1"

	"sandbox-provisioner/internal/sandbox"
)

// state says what the two objects amount to; nil stands for one that does not exist.
func (s Settings) state(id string, pod *corev1.Pod, service *corev1.Service) sandbox.State {
	st := sandbox.State{ID: id, Status: sandbox.NotFound}
	if service != nil {
		st.URL = s.URL(id, nodePort(service))
		st.CreatedAt = service.CreationTimestamp.UTC()
		st.Generation = generation(service).Seq
	}
	if pod == nil {
		return st
	}
	st.Status = phase(pod)
	st.Capacity, _ = Capacity(pod) // 0 when it cannot be read: a create says why
	st.PodUID = string(pod.UID)
	st.Broker = HasBroker(pod)
	st.Node = pod.Spec.NodeName
	st.CreatedAt = pod.CreationTimestamp.UTC()
	st.Generation = generation(pod).Seq
	st.Ready = isReady(pod)
	if !st.Ready {
		reason, message := explain(pod)
		st.Reason, st.Message = sandbox.Plain(reason), sandbox.Plain(message)
	}
	return st
}

func nodePort(service *corev1.Service) int32 {
	if len(service.Spec.Ports) == 0 {
		return 0
	}
	return service.Spec.Ports[0].NodePort
}

func phase(pod *corev1.Pod) sandbox.Status {
	if pod.Status.Phase == "" {
		return sandbox.Unknown
	}
	return sandbox.Status(pod.Status.Phase)
}

func isReady(pod *corev1.Pod) bool {
	c := condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// explain says why a Pod is not ready: what its Pod says of itself, else its containers, else its conditions.
func explain(pod *corev1.Pod) (reason, message string) {
	if pod.Status.Reason != "" {
		return pod.Status.Reason, pod.Status.Message
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if reason, message = explainContainer(&statuses[i]); reason != "" {
				return reason, message
			}
		}
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		if c := condition(pod, kind); c != nil && c.Status == corev1.ConditionFalse && c.Reason != "" {
			return c.Reason, c.Message
		}
	}
	return "", ""
}

// explainContainer is empty for a container that runs, has done its work, or is merely being made.
func explainContainer(s *corev1.ContainerStatus) (reason, message string) {
	last := s.LastTerminationState.Terminated
	switch waiting, ended := s.State.Waiting, s.State.Terminated; {
	case ended != nil && ended.ExitCode != 0:
		return ended.Reason, ended.Message
	case waiting == nil || waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing":
		if last != nil && last.Reason == "OOMKilled" {
			return last.Reason, last.Message
		}
		return "", ""
	case last != nil && last.Reason == "OOMKilled":
		return last.Reason, waiting.Message
	default:
		return waiting.Reason, waiting.Message
	}
}
