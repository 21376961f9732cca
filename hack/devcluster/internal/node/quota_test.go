package node_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/hack/devcluster/internal/fault"
)

func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func createQuota(t *testing.T, ns string, hard corev1.ResourceList) {
	t.Helper()
	_, err := client.CoreV1().ResourceQuotas(ns).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func eventuallyUsed(t *testing.T, ns string, used corev1.ResourceList) {
	t.Helper()
	eventually(t, "the quota used as expected", func() (bool, any) {
		quota, err := client.CoreV1().ResourceQuotas(ns).Get(t.Context(), "quota", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return equality.Semantic.DeepEqual(quota.Status.Hard, quota.Spec.Hard) &&
			equality.Semantic.DeepEqual(quota.Status.Used, used), quota.Status
	})
}

func TestAFullQuotaRefusesThePodAndADeletionMakesRoom(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	createQuota(t, ns, amounts("pods", "1"))
	eventuallyUsed(t, ns, amounts("pods", "0"))
	pod := createPod(t, sandboxPod(ns, "a"))
	_, err := client.CoreV1().Pods(ns).Create(t.Context(), sandboxPod(ns, "b"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("wanted the second pod to be forbidden, got %v", err)
	}
	eventuallyPod(t, pod, "running", running)
	deletePod(t, pod)
	eventuallyGone(t, pod)
	eventuallyUsed(t, ns, amounts("pods", "0"))
	createPod(t, sandboxPod(ns, "b"))
}

func TestAQuotaCountsWhatTheQuotaControllerCounts(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	pod := sandboxPod(ns, "a")
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: amounts("cpu", "100m", "memory", "256Mi"), Limits: amounts("cpu", "1", "memory", "1Gi"),
	}
	pod.Spec.InitContainers = []corev1.Container{{
		Name: "prepare", Image: "registry.example/prepare:1", Resources: corev1.ResourceRequirements{
			Requests: amounts("cpu", "300m", "memory", "1Mi"), Limits: amounts("cpu", "1", "memory", "1Mi"),
		},
	}}
	createPod(t, pod)
	createService(t, sandboxService(ns, "a", corev1.ServiceTypeNodePort))
	createService(t, sandboxService(ns, "b", corev1.ServiceTypeClusterIP))
	// The objects are there before the quota: nothing but a count can know of them.
	createQuota(t, ns, amounts("pods", "9", "count/pods", "9", "services", "9", "services.nodeports", "9",
		"count/services", "9", "requests.cpu", "9", "requests.memory", "9Gi", "limits.cpu", "9"))
	used := func(pods, countPods, cpu, memory, limit string) corev1.ResourceList {
		return amounts("pods", pods, "count/pods", countPods, "services", "2", "services.nodeports", "1",
			"count/services", "2", "requests.cpu", cpu, "requests.memory", memory, "limits.cpu", limit)
	}
	eventuallyUsed(t, ns, used("1", "1", "300m", "256Mi", "1"))
	faults.Put(ns, "a", fault.Fault{Kind: fault.Evicted})
	eventuallyUsed(t, ns, used("0", "1", "0", "0", "0"))
}

func TestAQuotaForgetsWhatAdmissionCountedButNobodyStored(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	createQuota(t, ns, amounts("pods", "5"))
	eventuallyUsed(t, ns, amounts("pods", "0"))
	createPod(t, sandboxPod(ns, "a"))
	for range 3 { // each is admitted, counted, and then refused because the name exists
		_, err := client.CoreV1().Pods(ns).Create(t.Context(), sandboxPod(ns, "a"), metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			t.Fatalf("wanted AlreadyExists, got %v", err)
		}
	}
	eventuallyUsed(t, ns, amounts("pods", "1"))
}
