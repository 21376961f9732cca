package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

const (
	labelIndex    = "label"
	selectorIndex = "selector"
)

func (n *Node) serviceChanged(before, after *corev1.Service) {
	service := after
	if service == nil {
		service = before
	}
	n.serviceQueue.add(nameOf(service))
	n.serviceChangedForQuotas(before, after)
}

// reconcileService opens and closes the Service's node ports and writes its EndpointSlice.
func (n *Node) reconcileService(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	service, err := n.services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		n.ports.assign(key, nil)
		return 0, n.slices.remove(ctx, n.client, key)
	}
	if err != nil {
		return 0, err
	}
	if !selects(service) {
		return 0, nil
	}
	n.ports.assign(key, nodePorts(service))
	return 0, n.slices.write(ctx, n.client, service, n.podsOf(service))
}

// selects: Services without a selector, such as the API server's own, are somebody else's.
func selects(service *corev1.Service) bool {
	return len(service.Spec.Selector) > 0 && service.Spec.Type != corev1.ServiceTypeExternalName
}

func nodePorts(service *corev1.Service) []int32 {
	var ports []int32
	for _, port := range service.Spec.Ports {
		if port.NodePort != 0 && port.Protocol == corev1.ProtocolTCP {
			ports = append(ports, port.NodePort)
		}
	}
	return ports
}

// podsOf returns the Pods that a Service selects.
func (n *Node) podsOf(service *corev1.Service) []*corev1.Pod {
	if !selects(service) {
		return nil
	}
	selector := labels.SelectorFromSet(service.Spec.Selector)
	var pods []*corev1.Pod
	for _, obj := range candidates(n.pods, labelIndex, indexKeys(service.Namespace, service.Spec.Selector)) {
		if pod, ok := obj.(*corev1.Pod); ok && selector.Matches(labels.Set(pod.Labels)) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// servicesOf returns the Services that select a Pod.
func (n *Node) servicesOf(pod *corev1.Pod) []*corev1.Service {
	var services []*corev1.Service
	for _, key := range indexKeys(pod.Namespace, pod.Labels) {
		objs, _ := n.selectors.ByIndex(selectorIndex, key)
		for _, obj := range objs {
			service, ok := obj.(*corev1.Service)
			if ok && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
				services = append(services, service)
			}
		}
	}
	return services
}

// candidates looks all keys up and returns the shortest answer: thousands of Pods may share one label, few share all.
func candidates(indexer cache.Indexer, index string, keys []string) []any {
	var fewest []any
	for i, key := range keys {
		objs, _ := indexer.ByIndex(index, key)
		if i == 0 || len(objs) < len(fewest) {
			fewest = objs
		}
	}
	return fewest
}

func indexByLabels(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	return indexKeys(pod.Namespace, pod.Labels), nil
}

// indexBySelector files a Service under one pair of its selector, which is enough to find it by a Pod's labels.
func indexBySelector(obj any) ([]string, error) {
	service, ok := obj.(*corev1.Service)
	if !ok || !selects(service) {
		return nil, nil
	}
	first := ""
	for _, key := range indexKeys(service.Namespace, service.Spec.Selector) {
		if first == "" || key < first {
			first = key
		}
	}
	return []string{first}, nil
}

func indexKeys(namespace string, pairs map[string]string) []string {
	keys := make([]string, 0, len(pairs))
	for name, value := range pairs {
		keys = append(keys, namespace+"/"+name+"="+value)
	}
	return keys
}
