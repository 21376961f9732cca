package node_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"sandbox-provisioner/hack/devcluster/internal/fault"
	"sandbox-provisioner/hack/devcluster/internal/node"
)

func TestAPodIsScheduledFirstAndThenRunsWithAllThatAKubeletReports(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	always := corev1.ContainerRestartPolicyAlways
	pod := sandboxPod(ns, "a")
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "prepare", Image: "registry.example/prepare:1"},
		{Name: "sidecar", Image: "registry.example/sidecar:1", RestartPolicy: &always},
	}
	history := watchPod(t, createPod(t, pod), func(event watch.Event, pod *corev1.Pod) bool { return running(pod) })

	var scheduledPending bool
	for _, seen := range history {
		scheduledPending = scheduledPending || seen.Status.Phase == corev1.PodPending && seen.Spec.NodeName == node.Name &&
			condition(seen, corev1.PodScheduled).Status == corev1.ConditionTrue
		if seen.Status.Phase == corev1.PodRunning && !scheduledPending {
			t.Errorf("pod ran before it was seen scheduled and pending")
		}
	}
	got := history[len(history)-1]
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodScheduled} {
		if c := condition(got, kind); c.Status != corev1.ConditionTrue {
			t.Errorf("condition %s: wanted True, got %+v", kind, c)
		}
	}
	if got.Status.PodIP == "" || got.Status.HostIP != "127.0.0.1" || got.Status.StartTime == nil {
		t.Errorf("wanted pod IP, host IP and start time, got %+v", got.Status)
	}
	if c := container(got); !c.Ready || c.State.Running == nil || c.Started == nil || !*c.Started {
		t.Errorf("wanted a ready, running container, got %+v", c)
	}
	if end := got.Status.InitContainerStatuses[0].State.Terminated; end == nil || end.Reason != "Completed" {
		t.Errorf("wanted a completed init container, got %+v", got.Status.InitContainerStatuses[0])
	}
	if got.Status.InitContainerStatuses[1].State.Running == nil {
		t.Errorf("wanted a running sidecar, got %+v", got.Status.InitContainerStatuses[1])
	}
}

func TestADeletedPodShowsItsContainersTerminatedAndThenGoes(t *testing.T) {
	t.Parallel()
	pod := createPod(t, sandboxPod(newNamespace(t), "a"))
	eventuallyPod(t, pod, "running", running)
	deleted := time.Now()
	deletePod(t, pod)
	history := watchPod(t, pod, func(event watch.Event, _ *corev1.Pod) bool { return event.Type == watch.Deleted })
	if took := time.Since(deleted); took > 4*time.Second {
		t.Errorf("wanted the pod gone well within its grace period of 5 s, took %s", took)
	}
	last := history[len(history)-1]
	if container(last).State.Terminated == nil || isReady(last) {
		t.Errorf("wanted terminated containers before the end, got %+v", last.Status)
	}
}

func TestAPodThatWaitsForItsImageCanBeDeleted(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	faults.Put(ns, "a", fault.Fault{Kind: fault.ImagePullError})
	pod := createPod(t, sandboxPod(ns, "a"))
	eventuallyPod(t, pod, "waiting", func(pod *corev1.Pod) bool { return waitingReason(pod) != "" })
	deletePod(t, pod)
	eventuallyGone(t, pod)
}

func TestTheSuccessorOfADeletedPodIsLeftAlone(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	var last *corev1.Pod
	for range 5 {
		last = createPod(t, sandboxPod(ns, "a"))
		deletePod(t, last) // scheduled or not: both happen
		eventuallyGone(t, last)
	}
	last = createPod(t, sandboxPod(ns, "a"))
	if got := eventuallyPod(t, last, "running", running); got.UID != last.UID {
		t.Errorf("wanted UID %s to run, got %s", last.UID, got.UID)
	}
}

func TestAFinaliserHoldsADeletedPodUntilItIsTakenOff(t *testing.T) {
	t.Parallel()
	pod := sandboxPod(newNamespace(t), "a")
	pod.Finalizers = []string{"test.example/hold"}
	pod = createPod(t, pod)
	eventuallyPod(t, pod, "running", running)
	deletePod(t, pod)
	held := eventuallyPod(t, pod, "stopped and held", func(pod *corev1.Pod) bool {
		return container(pod).State.Terminated != nil && *pod.DeletionGracePeriodSeconds == 0
	})
	_, err := client.CoreV1().Pods(held.Namespace).Patch(t.Context(), held.Name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("take the finaliser off: %v", err)
	}
	eventuallyGone(t, pod)
}

func TestAGatedPodIsNotScheduled(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	gated := sandboxPod(ns, "gated")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "test.example/wait"}}
	gated = createPod(t, gated)
	eventuallyPod(t, createPod(t, sandboxPod(ns, "after")), "running", running)
	got, err := client.CoreV1().Pods(ns).Get(t.Context(), gated.Name, metav1.GetOptions{})
	if err != nil || got.Spec.NodeName != "" {
		t.Errorf("wanted the gated pod unscheduled, got node %q, error %v", got.Spec.NodeName, err)
	}
}

// Not parallel: it measures.
func TestFiveHundredPodsRunWithinTenSecondsUnderDifferentAddresses(t *testing.T) {
	const count = 500
	ns := newNamespace(t)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	names := make(chan string)
	var creating sync.WaitGroup
	for range 16 {
		creating.Go(func() {
			for name := range names {
				_, err := client.CoreV1().Pods(ns).Create(ctx, sandboxPod(ns, name), metav1.CreateOptions{})
				if err != nil {
					t.Errorf("create %s: %v", name, err)
				}
			}
		})
	}
	go func() {
		defer close(names)
		for i := range count {
			names <- fmt.Sprintf("p%d", i)
		}
	}()
	addresses := map[string]string{}
	source := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", ns, fields.Everything())
	_, err = watchtools.Until(ctx, start.ResourceVersion, source, func(event watch.Event) (bool, error) {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || !running(pod) {
			return false, nil
		}
		if other, taken := addresses[pod.Status.PodIP]; taken && other != pod.Name {
			return false, fmt.Errorf("pods %s and %s share %s", other, pod.Name, pod.Status.PodIP)
		}
		addresses[pod.Status.PodIP] = pod.Name
		return len(addresses) == count, nil
	})
	creating.Wait()
	if err != nil {
		t.Fatalf("wanted %d running pods, got %d: %v", count, len(addresses), err)
	}
	took := time.Since(began)
	t.Logf("%d pods created and running in %s", count, took)
	if took > 10*time.Second*slowdown {
		t.Errorf("wanted at most %s, took %s", 10*time.Second*slowdown, took)
	}
}

// watchPod returns all states of a Pod from now on until done says so.
func watchPod(t *testing.T, pod *corev1.Pod, done func(watch.Event, *corev1.Pod) bool) []*corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	only := func(options *metav1.ListOptions) { options.FieldSelector = "metadata.name=" + pod.Name }
	source := cache.NewFilteredListWatchFromClient(client.CoreV1().RESTClient(), "pods", pod.Namespace, only)
	var history []*corev1.Pod
	_, err := watchtools.Until(ctx, pod.ResourceVersion, source, func(event watch.Event) (bool, error) {
		seen, ok := event.Object.(*corev1.Pod)
		if !ok {
			return false, fmt.Errorf("unexpected event %v", event)
		}
		history = append(history, seen)
		return done(event, seen), nil
	})
	if err != nil {
		t.Fatalf("watch pod %s: %v", pod.Name, err)
	}
	return history
}
