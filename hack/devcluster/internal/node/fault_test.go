package node_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"sandbox-provisioner/hack/devcluster/internal/fault"
)

// shows says what each fault looks like from outside.
var shows = map[fault.Kind]func(*corev1.Pod) bool{
	fault.ImagePullError: func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodPending && waitingReason(pod) == "ImagePullBackOff"
	},
	fault.Unschedulable: func(pod *corev1.Pod) bool {
		c := condition(pod, corev1.PodScheduled)
		return pod.Spec.NodeName == "" && c.Status == corev1.ConditionFalse && c.Reason == "Unschedulable" &&
			strings.HasPrefix(c.Message, "0/1 nodes are available")
	},
	fault.CrashLoop: func(pod *corev1.Pod) bool {
		c := container(pod)
		return waitingReason(pod) == "CrashLoopBackOff" && c.RestartCount > 0 && !isReady(pod) &&
			c.LastTerminationState.Terminated != nil && c.LastTerminationState.Terminated.ExitCode == 1
	},
	fault.ConfigError: func(pod *corev1.Pod) bool { return waitingReason(pod) == "CreateContainerConfigError" },
	fault.Evicted: func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted" && pod.Status.Message != "" &&
			!isReady(pod)
	},
	fault.OOM: func(pod *corev1.Pod) bool {
		last := container(pod).LastTerminationState.Terminated
		return running(pod) && last != nil && last.Reason == "OOMKilled" && container(pod).RestartCount == 1
	},
	fault.Succeeded: func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded && container(pod).State.Terminated != nil && !isReady(pod)
	},
	fault.NotReady: func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodRunning && container(pod).State.Running != nil && !isReady(pod)
	},
}

func TestAFaultShowsWhicheverWayItIsAskedFor(t *testing.T) {
	t.Parallel()
	ways := map[string]func(pod *corev1.Pod, kind fault.Kind){
		"by annotation": func(pod *corev1.Pod, kind fault.Kind) {
			pod.Annotations = map[string]string{fault.AnnotationFault: string(kind)}
		},
		"by image": func(pod *corev1.Pod, kind fault.Kind) {
			pod.Spec.Containers[0].Image = "registry.example/simulated-fault-" + string(kind) + ":1"
		},
		"by order for a pod that does not exist yet": func(pod *corev1.Pod, kind fault.Kind) {
			faults.Put(pod.Namespace, pod.Name, fault.Fault{Kind: kind})
		},
		"by order for every pod of the namespace": func(pod *corev1.Pod, kind fault.Kind) {
			faults.Put(pod.Namespace, fault.Every, fault.Fault{Kind: kind})
		},
	}
	for way, ask := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			for kind, shown := range shows {
				t.Run(string(kind), func(t *testing.T) {
					t.Parallel()
					pod := sandboxPod(newNamespace(t), "a")
					ask(pod, kind)
					eventuallyPod(t, createPod(t, pod), "showing "+string(kind), shown)
				})
			}
		})
	}
}

func TestAFaultPutOnARunningPodTakesEffectAtOnce(t *testing.T) {
	t.Parallel()
	for kind, shown := range shows {
		if kind == fault.Unschedulable {
			continue // it is scheduled
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			pod := createPod(t, sandboxPod(ns, "a"))
			eventuallyPod(t, pod, "running", running)
			faults.Put(ns, "a", fault.Fault{Kind: kind})
			eventuallyPod(t, pod, "showing "+string(kind), func(pod *corev1.Pod) bool {
				// A container that ran before does not make its Pod pending again.
				return shown(pod) || kind == fault.ImagePullError && waitingReason(pod) == "ImagePullBackOff"
			})
		})
	}
}

func TestAClearedFaultLetsThePodProceed(t *testing.T) {
	t.Parallel()
	kinds := []fault.Kind{
		fault.ImagePullError, fault.Unschedulable, fault.CrashLoop, fault.ConfigError, fault.NotReady, fault.SlowStart,
	}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			order := fault.Fault{Kind: kind}
			if kind == fault.SlowStart {
				order.Delay = time.Hour
			}
			faults.Put(ns, "a", order)
			pod := createPod(t, sandboxPod(ns, "a"))
			if shown := shows[kind]; shown != nil {
				eventuallyPod(t, pod, "showing "+string(kind), shown)
			}
			faults.Clear(ns, "a")
			eventuallyPod(t, pod, "running", running)
		})
	}
}

func TestAFaultWithADurationEndsByItself(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	faults.Put(ns, "a", fault.Fault{Kind: fault.ImagePullError, Duration: 700 * time.Millisecond})
	faults.Put(ns, "b", fault.Fault{Kind: fault.Unschedulable, Duration: 700 * time.Millisecond})
	for _, name := range []string{"a", "b"} {
		history := watchPod(t, createPod(t, sandboxPod(ns, name)),
			func(_ watch.Event, pod *corev1.Pod) bool { return running(pod) })
		misbehaved := false
		for _, seen := range history {
			misbehaved = misbehaved || waitingReason(seen) != "" ||
				condition(seen, corev1.PodScheduled).Reason == "Unschedulable"
		}
		if !misbehaved {
			t.Errorf("wanted pod %s to misbehave before it ran, got %d states without", name, len(history))
		}
	}
}

func TestAFaultWithADelayBeginsLater(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	faults.Put(ns, "a", fault.Fault{Kind: fault.Evicted, Delay: 500 * time.Millisecond})
	pod := createPod(t, sandboxPod(ns, "a"))
	history := watchPod(t, pod, func(_ watch.Event, pod *corev1.Pod) bool { return shows[fault.Evicted](pod) })
	ran := false
	for _, seen := range history {
		ran = ran || running(seen)
	}
	if !ran {
		t.Errorf("wanted the pod to run before its eviction, got %d states without", len(history))
	}
}

func TestASlowStartTakesAsMuchLongerAsAskedFor(t *testing.T) {
	t.Parallel()
	const delay = 1500 * time.Millisecond
	ns := newNamespace(t)
	faults.Put(ns, "a", fault.Fault{Kind: fault.SlowStart, Delay: delay})
	began := time.Now()
	eventuallyPod(t, createPod(t, sandboxPod(ns, "a")), "running", running)
	if took := time.Since(began); took < readyDelay+delay {
		t.Errorf("wanted at least %s, took %s", readyDelay+delay, took)
	}
}

func TestAHangingPodOutlivesItsGracePeriodUntilTheFaultIsCleared(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	faults.Put(ns, "a", fault.Fault{Kind: fault.HangInTermination})
	pod := sandboxPod(ns, "a")
	pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	pod = createPod(t, pod)
	eventuallyPod(t, pod, "running", running)
	deletePod(t, pod)
	eventuallyPod(t, pod, "terminating past its grace period", func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp != nil && time.Now().After(pod.DeletionTimestamp.Add(1500*time.Millisecond))
	})
	faults.Clear(ns, "a")
	eventuallyGone(t, pod)
}

func TestAnImagePullErrorAlternatesBetweenItsTwoReasonsWithTheMessageGiven(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	const message = "registry.example refused: unauthorized"
	faults.Put(ns, "a", fault.Fault{Kind: fault.ImagePullError, Message: message})
	var reasons []string
	watchPod(t, createPod(t, sandboxPod(ns, "a")), func(_ watch.Event, pod *corev1.Pod) bool {
		reason := waitingReason(pod)
		if reason == "" {
			return false
		}
		if !strings.Contains(container(pod).State.Waiting.Message, message) {
			t.Errorf("wanted the message in %q", container(pod).State.Waiting.Message)
		}
		reasons = append(reasons, reason)
		return len(reasons) == 3
	})
	if got := strings.Join(reasons, " "); got != "ErrImagePull ImagePullBackOff ErrImagePull" {
		t.Errorf("wanted the reasons to alternate, got %s", got)
	}
}

func TestARealComponentsWarningEventGoesWithTheFault(t *testing.T) {
	t.Parallel()
	for kind, wanted := range map[fault.Kind][]string{
		fault.Unschedulable:  {"FailedScheduling"},
		fault.ImagePullError: {"Failed", "BackOff"},
		fault.CrashLoop:      {"BackOff"},
		fault.Evicted:        {"Evicted"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			faults.Put(ns, "a", fault.Fault{Kind: kind})
			pod := createPod(t, sandboxPod(ns, "a"))
			for _, reason := range wanted {
				eventually(t, "a warning "+reason, func() (bool, any) {
					events, err := client.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{
						FieldSelector: "type=Warning,reason=" + reason + ",involvedObject.uid=" + string(pod.UID),
					})
					return err == nil && len(events.Items) > 0, err
				})
			}
		})
	}
}

func TestAChangedAnnotationChangesTheFault(t *testing.T) {
	t.Parallel()
	pod := createPod(t, sandboxPod(newNamespace(t), "a"))
	eventuallyPod(t, pod, "running", running)
	annotate := func(value string) {
		_, err := client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"simulated-node/fault":`+value+`}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	annotate(`"not-ready"`)
	eventuallyPod(t, pod, "not ready", shows[fault.NotReady])
	annotate(`null`)
	eventuallyPod(t, pod, "running", running)
}

func TestAnOrderOfNoneMakesAFaultyImageHealthy(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	faults.Put(ns, "a", fault.Fault{Kind: fault.None})
	pod := sandboxPod(ns, "a")
	pod.Spec.Containers[0].Image = "registry.example/simulated-fault-image-pull-error:1"
	eventuallyPod(t, createPod(t, pod), "running", running)
}

func TestAnUnknownFaultInAnImageNameIsAWarningAndThePodRuns(t *testing.T) {
	t.Parallel()
	pod := sandboxPod(newNamespace(t), "a")
	pod.Spec.Containers[0].Image = "registry.example/simulated-fault-coffee:1"
	pod = createPod(t, pod)
	eventuallyPod(t, pod, "running", running)
	if !logs.contains("level=WARN", "coffee", string(pod.UID)) {
		t.Errorf("wanted a warning about the unknown fault")
	}
}

func TestOtherContainersRunOnWhileTheSandboxCrashes(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	faults.Put(ns, "a", fault.Fault{Kind: fault.CrashLoop})
	pod := sandboxPod(ns, "a")
	pod.Spec.Containers = append([]corev1.Container{{Name: "broker", Image: "registry.example/broker:1"}},
		pod.Spec.Containers...)
	got := eventuallyPod(t, createPod(t, pod), "crashing", shows[fault.CrashLoop])
	if broker := got.Status.ContainerStatuses[0]; broker.Name != "broker" || !broker.Ready {
		t.Errorf("wanted a ready broker, got %+v", broker)
	}
}
