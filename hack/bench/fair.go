package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/sandbox"
)

// sameObjects has each contestant make a sandbox of one id, and fails unless what they have made is the same.
func (b *bench) sameObjects(ctx context.Context, all []contestant) error {
	id := b.ids(1)[0]
	var first *objects
	for _, c := range all {
		if err := c.create(ctx, id); err != nil {
			return err
		}
		m, err := b.plant.objects(ctx, c.namespace(), id)
		if err != nil {
			return err
		}
		if first == nil {
			first = m
		}
		if !equality.Semantic.DeepEqual(first, m) {
			return fmt.Errorf("%s does not write what %s writes:\n%+v\n%+v", c.name(), all[0].name(), m, first)
		}
		if err := b.plant.clear(ctx, c.namespace()); err != nil {
			return err
		}
	}
	return nil
}

// objects are what, of a sandbox, does not differ from one to the other.
type objects struct {
	Pod         corev1.PodSpec
	Service     corev1.ServiceSpec
	Labels      []map[string]string
	Annotations [][]string // their names
}

func (p *plant) objects(ctx context.Context, namespace, id string) (*objects, error) {
	pod, err := p.core.Pods(namespace).Get(ctx, sandbox.PodName(id), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	service, err := p.core.Services(namespace).Get(ctx, sandbox.ServiceName(id), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	m := &objects{
		Pod: pod.Spec, Service: service.Spec,
		Labels:      []map[string]string{pod.Labels, service.Labels},
		Annotations: [][]string{slices.Sorted(maps.Keys(pod.Annotations)), slices.Sorted(maps.Keys(service.Annotations))},
	}
	m.Pod.NodeName, m.Service.ClusterIP, m.Service.ClusterIPs = "", "", nil
	return m, nil
}
