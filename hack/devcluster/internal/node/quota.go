package node

import (
	"context"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// quotaSettle is how long after the last admission a quota is counted again. Admission adds to status.used before the
// object is stored: a count at that moment would take it for unused.
const quotaSettle = time.Second

func (n *Node) quotaChanged(before, after *corev1.ResourceQuota) {
	switch {
	case after == nil:
	case before == nil || !equality.Semantic.DeepEqual(before.Spec, after.Spec):
		n.quotaQueue.add(nameOf(after))
	case !equality.Semantic.DeepEqual(before.Status.Used, after.Status.Used):
		n.quotaQueue.addAfter(nameOf(after), quotaSettle)
	}
}

// podChangedForQuotas recounts when a Pod has given something back.
func (n *Node) podChangedForQuotas(before, after *corev1.Pod) {
	if before != nil && (after == nil || finished(after) && !finished(before)) {
		n.recount(before.Namespace)
	}
}

func (n *Node) serviceChangedForQuotas(before, after *corev1.Service) {
	if before != nil && (after == nil || after.Spec.Type != before.Spec.Type) {
		n.recount(before.Namespace)
	}
}

func (n *Node) recount(namespace string) {
	quotas, _ := n.quotas.ResourceQuotas(namespace).List(labels.Everything())
	for _, quota := range quotas {
		n.quotaQueue.add(nameOf(quota))
	}
}

// reconcileQuota sets hard as specified and used as counted. The resource version makes it fail when admission was
// faster, and then it counts again.
func (n *Node) reconcileQuota(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	quota, err := n.quotas.ResourceQuotas(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
		n.log.Warn("quotas with scopes are not simulated", slog.String("quota", key.String()))
		return 0, nil
	}
	status := corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{}}
	counted := n.count(key.Namespace, time.Now())
	for name := range quota.Spec.Hard {
		switch used, ok := counted[name]; {
		case ok:
			status.Used[name] = used
		case countable(name):
			status.Used[name] = resource.Quantity{}
		default: // something that we do not watch: leave it to admission
			status.Used[name] = quota.Status.Used[name]
		}
	}
	if equality.Semantic.DeepEqual(status, quota.Status) {
		return 0, nil
	}
	quota = quota.DeepCopy()
	quota.Status = status
	_, err = n.client.CoreV1().ResourceQuotas(key.Namespace).UpdateStatus(ctx, quota, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	return 0, err
}

// countable names what count reports when there is any of it.
func countable(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourcePods, corev1.ResourceServices, corev1.ResourceServicesNodePorts,
		corev1.ResourceServicesLoadBalancers, "count/pods", "count/services",
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	default:
	}
	return strings.HasPrefix(string(name), "requests.") && name != corev1.ResourceRequestsStorage ||
		strings.HasPrefix(string(name), "limits.")
}

// count adds up what a namespace uses, by the rules of the quota controller: count/pods counts every Pod, everything
// else only those that have neither ended nor outlived their grace period.
func (n *Node) count(namespace string, now time.Time) corev1.ResourceList {
	used := corev1.ResourceList{}
	one := resource.MustParse("1")
	_ = cache.ListAllByNamespace(n.pods, namespace, labels.Everything(), func(obj any) {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return
		}
		add(used, "count/pods", one)
		if finished(pod) || overdue(pod, now) {
			return
		}
		add(used, corev1.ResourcePods, one)
		requests := effective(pod, func(c corev1.Container) corev1.ResourceList { return c.Resources.Requests })
		limits := effective(pod, func(c corev1.Container) corev1.ResourceList { return c.Resources.Limits })
		for name, quantity := range requests {
			add(used, "requests."+name, quantity)
			if name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
				add(used, name, quantity)
			}
		}
		for name, quantity := range limits {
			add(used, "limits."+name, quantity)
		}
	})
	services, _ := n.services.Services(namespace).List(labels.Everything())
	for _, service := range services {
		add(used, "count/services", one)
		add(used, corev1.ResourceServices, one)
		if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
			add(used, corev1.ResourceServicesLoadBalancers, one)
		}
		if service.Spec.Type == corev1.ServiceTypeNodePort || service.Spec.Type == corev1.ServiceTypeLoadBalancer {
			add(used, corev1.ResourceServicesNodePorts, *resource.NewQuantity(int64(len(service.Spec.Ports)), resource.DecimalSI))
		}
	}
	return used
}

// effective is what a Pod asks for: its containers and sidecars together, or its largest init container with the sidecars
// started before it, whichever is more.
func effective(pod *corev1.Pod, of func(corev1.Container) corev1.ResourceList) corev1.ResourceList {
	total, sidecars, initial := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for _, container := range pod.Spec.Containers {
		addAll(total, of(container))
	}
	for _, container := range pod.Spec.InitContainers {
		peak := sidecars.DeepCopy()
		addAll(peak, of(container))
		if initWant(container).running {
			addAll(sidecars, of(container))
			addAll(total, of(container))
		}
		for name, quantity := range peak {
			if known := initial[name]; quantity.Cmp(known) > 0 {
				initial[name] = quantity
			}
		}
	}
	for name, quantity := range initial {
		if known := total[name]; quantity.Cmp(known) > 0 {
			total[name] = quantity
		}
	}
	addAll(total, pod.Spec.Overhead)
	return total
}

func addAll(list, more corev1.ResourceList) {
	for name, quantity := range more {
		add(list, name, quantity)
	}
}

func add(list corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) {
	sum := list[name].DeepCopy()
	sum.Add(quantity)
	list[name] = sum
}

func overdue(pod *corev1.Pod, now time.Time) bool {
	// The deletion timestamp already includes the grace period; the controller adds it once more, and so do we.
	return pod.DeletionTimestamp != nil && now.After(pod.DeletionTimestamp.Add(gracePeriod(pod)))
}
