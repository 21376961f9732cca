package k8s

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/sandbox"
)

func TestStateOfASandbox(t *testing.T) {
	t.Parallel()
	s := stock()
	made := metav1.NewTime(time.Date(2026, 8, 1, 14, 0, 0, 0, time.FixedZone("", 7200)))
	pod := func(change ...func(*corev1.Pod)) *corev1.Pod {
		p := s.Pod("a1", ask(), by(7))
		p.UID, p.CreationTimestamp, p.Status.Phase, p.Spec.NodeName = "u1", made, corev1.PodRunning, "node-1"
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		for _, c := range change {
			c(p)
		}
		return p
	}
	service := func(change ...func(*corev1.Service)) *corev1.Service {
		v := s.Service("a1", by(6))
		v.CreationTimestamp, v.Spec.Ports[0].NodePort = made, 30007
		for _, c := range change {
			c(v)
		}
		return v
	}
	utc := made.UTC()
	whole := sandbox.State{
		ID: "a1", URL: "http://host.docker.internal:30007", Status: sandbox.Running, Capacity: 10, PodUID: "u1", Ready: true,
		Node: "node-1", CreatedAt: utc, Generation: 7,
	}
	with := func(change func(*sandbox.State)) sandbox.State {
		st := whole
		change(&st)
		return st
	}
	for name, test := range map[string]struct {
		pod     *corev1.Pod
		service *corev1.Service
		want    sandbox.State
	}{
		"whole":   {pod(), service(), whole},
		"nothing": {nil, nil, sandbox.State{ID: "a1", Status: sandbox.NotFound}},
		"a Service without a Pod": {nil, service(), sandbox.State{
			ID: "a1", Status: sandbox.NotFound, URL: whole.URL, CreatedAt: utc, Generation: 6,
		}},
		"a Pod without a Service": {pod(), nil, with(func(st *sandbox.State) { st.URL = "" })},
		"without a nodePort yet": {pod(), service(func(v *corev1.Service) { v.Spec.Ports[0].NodePort = 0 }),
			with(func(st *sandbox.State) { st.URL = "" })},
		"without a port at all": {pod(), service(func(v *corev1.Service) { v.Spec.Ports = nil }),
			with(func(st *sandbox.State) { st.URL = "" })},
		"without a phase": {pod(func(p *corev1.Pod) { p.Status.Phase = "" }), service(),
			with(func(st *sandbox.State) { st.Status = sandbox.Unknown })},
		"of another provisioner": {pod(func(p *corev1.Pod) { unstamped(p) }), service(),
			with(func(st *sandbox.State) { st.Generation = 0 })},
		"of a capacity that cannot be read": {
			pod(func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: capacityEnv, Value: "many"}} }), service(),
			with(func(st *sandbox.State) { st.Capacity = 0 }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, s.state("a1", test.pod, test.service))
		})
	}
}

func TestThePhaseOfThePodIsTheStatus(t *testing.T) {
	t.Parallel()
	for phase, want := range map[corev1.PodPhase]sandbox.Status{
		corev1.PodPending: sandbox.Pending, corev1.PodRunning: sandbox.Running, corev1.PodSucceeded: sandbox.Succeeded,
		corev1.PodFailed: sandbox.Failed, corev1.PodUnknown: sandbox.Unknown, "": sandbox.Unknown,
	} {
		require.Equal(t, want, statusIn(phase), "%q", phase)
	}
}

func statusIn(p corev1.PodPhase) sandbox.Status {
	return phase(&corev1.Pod{Status: corev1.PodStatus{Phase: p}})
}

func TestAPodThatIsNotReadySaysWhy(t *testing.T) {
	t.Parallel()
	waiting := func(reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	ended := func(code int32, reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: "ended"},
		}}
	}
	running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	after := func(s corev1.ContainerStatus, reason string) corev1.ContainerStatus {
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: reason, Message: "before"}
		return s
	}
	is := func(kind corev1.PodConditionType, reason, message string) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message}}
	}
	of := func(statuses ...corev1.ContainerStatus) corev1.PodStatus {
		return corev1.PodStatus{
			ContainerStatuses: statuses, Conditions: is(corev1.ContainersReady, "ContainersNotReady", "containers with unready status"),
		}
	}
	for name, test := range map[string]struct {
		status          corev1.PodStatus
		reason, message string
	}{
		"nothing is known":                {corev1.PodStatus{}, "", ""},
		"evicted":                         {corev1.PodStatus{Reason: "Evicted", Message: "disk pressure"}, "Evicted", "disk pressure"},
		"no room":                         {corev1.PodStatus{Conditions: is(corev1.PodScheduled, "Unschedulable", "0/1 nodes")}, "Unschedulable", "0/1 nodes"},
		"a bad image":                     {of(waiting("ImagePullBackOff", "Back-off pulling")), "ImagePullBackOff", "Back-off pulling"},
		"a crash loop":                    {of(after(waiting("CrashLoopBackOff", "back-off"), "Error")), "CrashLoopBackOff", "back-off"},
		"a crash loop for want of memory": {of(after(waiting("CrashLoopBackOff", "back-off"), "OOMKilled")), "OOMKilled", "back-off"},
		"restarting for want of memory":   {of(after(waiting("ContainerCreating", ""), "OOMKilled")), "OOMKilled", "before"},
		"running again after a kill":      {of(after(running, "OOMKilled")), "OOMKilled", "before"},
		"a mount that is not there":       {of(waiting("CreateContainerConfigError", "no such file")), "CreateContainerConfigError", "no such file"},
		"ended with an error":             {of(ended(1, "Error")), "Error", "ended"},
		"ended well":                      {of(ended(0, "Completed")), "ContainersNotReady", "containers with unready status"},
		"being made":                      {of(waiting("ContainerCreating", "")), "ContainersNotReady", "containers with unready status"},
		"the second one is in trouble":    {of(running, waiting("ErrImagePull", "denied")), "ErrImagePull", "denied"},
		"an init container is in trouble": {
			corev1.PodStatus{
				InitContainerStatuses: []corev1.ContainerStatus{waiting("ErrImagePull", "denied")},
				ContainerStatuses:     []corev1.ContainerStatus{waiting("PodInitializing", "")},
			}, "ErrImagePull", "denied",
		},
		"a condition without a reason": {corev1.PodStatus{Conditions: is(corev1.PodReady, "", "hm")}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := stock().Pod("a1", ask(), by(7))
			pod.Status = test.status
			st := stock().state("a1", pod, nil)
			require.Equal(t, test.reason, st.Reason)
			require.Equal(t, test.message, st.Message)

			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{})
			for i := range pod.Status.Conditions {
				pod.Status.Conditions[i] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
			}
			require.Empty(t, stock().state("a1", pod, nil).Reason, "a Pod that is ready has nothing to explain")
		})
	}
}

func TestExplanationsAreBounded(t *testing.T) {
	t.Parallel()
	pod := stock().Pod("a1", ask(), by(7))
	pod.Status = corev1.PodStatus{Reason: "Evicted", Message: strings.Repeat("x", 5000)}
	require.Len(t, stock().state("a1", pod, nil).Message, sandbox.MaxPlain)
}

func TestExplanationsHoldNoCredentials(t *testing.T) {
	t.Parallel()
	pod := stock().Pod("a1", ask(), by(7))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "ErrImagePull", Message: "failed to pull \"https://bob:s3cret@registry.example/a\":\n unauthorized",
	}}}}
	require.Equal(t, `failed to pull "https://******@registry.example/a": unauthorized`, stock().state("a1", pod, nil).Message)
}
