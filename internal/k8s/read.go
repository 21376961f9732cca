package k8s

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/sandbox"
)

const selector = sandbox.LabelApp + "=" + sandbox.App

// A Sighting is what one read of the cluster found of a sandbox. Objects that are being deleted do not count.
type Sighting struct {
	State        sandbox.State
	Pod, Service bool
	// The generations of the intents that made them.
	PodGeneration, ServiceGeneration sandbox.Generation
}

// Get reads the Pod and the Service of id, at the same time and never from a cache. An error never means absence.
func (c *Cluster) Get(ctx context.Context, id string) (Sighting, error) {
	pod, service, err := c.read(ctx, id)
	if err != nil {
		return Sighting{}, err
	}
	return c.sighting(id, pod, service), nil
}

func (c *Cluster) sighting(id string, pod *corev1.Pod, service *corev1.Service) Sighting {
	s := Sighting{State: c.set.state(id, pod, service), Pod: pod != nil, Service: service != nil}
	if s.Pod {
		s.PodGeneration = generation(pod)
	}
	if s.Service {
		s.ServiceGeneration = generation(service)
	}
	return s
}

// read returns the objects of id that exist, are ours and stay; nil stands for one that does not.
func (c *Cluster) read(ctx context.Context, id string) (*corev1.Pod, *corev1.Service, error) {
	var pod *corev1.Pod
	podDone := make(chan error, 1)
	go func() {
		found, ok, err := c.pods.get(ctx, sandbox.PodName(id))
		if ok && ours(found, id) && !terminating(found) {
			pod = found
		}
		podDone <- err
	}()
	service, ok, err := c.services.get(ctx, sandbox.ServiceName(id))
	if podErr := <-podDone; podErr != nil {
		return nil, nil, podErr
	}
	if err != nil {
		return nil, nil, err
	}
	if !ok || !ours(service, id) || terminating(service) {
		service = nil
	}
	return pod, service, nil
}

// Check tells whether what exists of id serves an intent, without changing anything. It returns nil, and no error, when
// it does not but could be made to; a *sandbox.Failure when it never will while it exists.
func (c *Cluster) Check(ctx context.Context, id string, spec sandbox.Spec, l sandbox.Lineage) (*sandbox.State, error) {
	pod, service, err := c.read(ctx, id)
	if err != nil || pod == nil || service == nil {
		return nil, err
	}
	if verdict, err := judgePod(pod, id, spec, l); err != nil || verdict != keep {
		return nil, err
	}
	if verdict, err := c.judgeService(service, id, l); err != nil || verdict != keep {
		return nil, err
	}
	state := c.set.state(id, pod, service)
	return &state, nil
}

// Gone tells whether nothing of id is left that was made before the intent of l.
func (c *Cluster) Gone(ctx context.Context, id string, l sandbox.Lineage) (bool, error) {
	pod, service, err := c.read(ctx, id)
	if err != nil {
		return false, err
	}
	return (pod == nil || !l.Precedes(generation(pod))) && (service == nil || !l.Precedes(generation(service))), nil
}

// PodUID reads the Pod of id alone; it is empty when there is none.
func (c *Cluster) PodUID(ctx context.Context, id string) (string, error) {
	pod, ok, err := c.pods.get(ctx, sandbox.PodName(id))
	if err != nil || !ok || !ours(pod, id) || terminating(pod) {
		return "", err
	}
	return string(pod.UID), nil
}

// List reads all sandboxes, sorted by id: each Service, with its Pod or without, and each Pod that has no Service.
func (c *Cluster) List(ctx context.Context) ([]Sighting, error) {
	var pods *corev1.PodList
	podDone := make(chan error, 1)
	go func() {
		var err error
		pods, err = c.pods.list(ctx, metav1.ListOptions{LabelSelector: selector})
		podDone <- err
	}()
	services, err := c.services.list(ctx, metav1.ListOptions{LabelSelector: selector})
	if podErr := <-podDone; podErr != nil {
		return nil, podErr
	}
	if err != nil {
		return nil, err
	}
	podOf := make(map[string]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		if pod := &pods.Items[i]; !terminating(pod) && pod.Name == sandbox.PodName(pod.Labels[sandbox.LabelID]) {
			podOf[pod.Labels[sandbox.LabelID]] = pod
		}
	}
	found := make([]Sighting, 0, max(len(pods.Items), len(services.Items)))
	for i := range services.Items {
		service := &services.Items[i]
		id := service.Labels[sandbox.LabelID]
		if terminating(service) || service.Name != sandbox.ServiceName(id) {
			continue
		}
		found = append(found, c.sighting(id, podOf[id], service))
		delete(podOf, id)
	}
	for id, pod := range podOf {
		found = append(found, c.sighting(id, pod, nil))
	}
	slices.SortFunc(found, func(a, b Sighting) int { return strings.Compare(a.State.ID, b.State.ID) })
	return found, nil
}
