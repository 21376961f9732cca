package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// sliceWriter writes one EndpointSlice a Service, as soon as there is an endpoint to put into it. It remembers what it wrote
// instead of watching: nobody else writes these.
type sliceWriter struct {
	mu      sync.Mutex
	written map[cache.ObjectName]*discoveryv1.EndpointSlice // by Service
}

func newSliceWriter() sliceWriter {
	return sliceWriter{written: map[cache.ObjectName]*discoveryv1.EndpointSlice{}}
}

// load finds what an earlier run left in a kept data directory.
func (s *sliceWriter) load(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelManagedBy + "=" + Name,
	})
	if err != nil {
		return fmt.Errorf("list the simulated node's EndpointSlices: %w", err)
	}
	for i := range list.Items {
		slice := &list.Items[i]
		s.remember(cache.NewObjectName(slice.Namespace, slice.Labels[discoveryv1.LabelServiceName]), slice)
	}
	return nil
}

func (s *sliceWriter) known(key cache.ObjectName) *discoveryv1.EndpointSlice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written[key]
}

func (s *sliceWriter) remember(key cache.ObjectName, slice *discoveryv1.EndpointSlice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slice == nil {
		delete(s.written, key)
		return
	}
	s.written[key] = slice
}

func (s *sliceWriter) write(ctx context.Context, client kubernetes.Interface, service *corev1.Service,
	pods []*corev1.Pod,
) error {
	key := nameOf(service)
	known, want := s.known(key), sliceOf(service, pods)
	if known == nil && len(want.Endpoints) == 0 {
		return nil
	}
	if known != nil && equality.Semantic.DeepEqual(known.Endpoints, want.Endpoints) &&
		equality.Semantic.DeepEqual(known.Ports, want.Ports) &&
		equality.Semantic.DeepEqual(known.OwnerReferences, want.OwnerReferences) {
		return nil
	}
	api := client.DiscoveryV1().EndpointSlices(service.Namespace)
	var err error
	if known == nil {
		_, err = api.Create(ctx, want, metav1.CreateOptions{})
	} else {
		_, err = api.Update(ctx, want, metav1.UpdateOptions{})
	}
	switch {
	case err == nil:
		s.remember(key, want)
	case apierrors.IsAlreadyExists(err):
		s.remember(key, &discoveryv1.EndpointSlice{}) // somebody put it there; the next try overwrites it
	case apierrors.IsNotFound(err):
		s.remember(key, nil) // somebody removed it; the next try creates it
	}
	return err
}

func (s *sliceWriter) remove(ctx context.Context, client kubernetes.Interface, service cache.ObjectName) error {
	if s.known(service) == nil {
		return nil
	}
	err := client.DiscoveryV1().EndpointSlices(service.Namespace).
		Delete(ctx, sliceName(service.Name), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.remember(service, nil)
	return nil
}

func sliceName(service string) string { return service + "-simulated" }

func sliceOf(service *corev1.Service, pods []*corev1.Pod) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: sliceName(service.Name),
			Labels: map[string]string{
				discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: Name,
			},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(service, corev1.SchemeGroupVersion.WithKind("Service")),
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, pod := range pods {
		if pod.Status.PodIP == "" || finished(pod) {
			continue
		}
		isReady, isServing, isTerminating := serving(pod), ready(pod), pod.DeletionTimestamp != nil
		nodeName := pod.Spec.NodeName
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{pod.Status.PodIP}, NodeName: &nodeName,
			Conditions: discoveryv1.EndpointConditions{
				Ready: &isReady, Serving: &isServing, Terminating: &isTerminating,
			},
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			},
		})
	}
	slices.SortFunc(slice.Endpoints, func(a, b discoveryv1.Endpoint) int {
		return cmp.Compare(a.Addresses[0], b.Addresses[0])
	})
	for _, port := range service.Spec.Ports {
		number := targetPort(port, pods)
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: &port.Name, Port: &number, Protocol: &port.Protocol,
		})
	}
	return slice
}

// targetPort resolves a named port with the first Pod that has it.
func targetPort(port corev1.ServicePort, pods []*corev1.Pod) int32 {
	if port.TargetPort.Type == intstr.Int && port.TargetPort.IntVal != 0 {
		return port.TargetPort.IntVal
	}
	for _, pod := range pods {
		for _, container := range pod.Spec.Containers {
			for _, candidate := range container.Ports {
				if candidate.Name == port.TargetPort.StrVal {
					return candidate.ContainerPort
				}
			}
		}
	}
	return port.Port
}
