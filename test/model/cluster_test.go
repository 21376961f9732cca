package model_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sandbox-provisioner/internal/sandbox"
)

// A kube is a Kubernetes API server as far as two objects need one.
type kube struct {
	s       *scheduler
	faults  faults
	pod     *corev1.Pod
	service *corev1.Service
	uids    int
	// deleted is when an object was deleted: how many intents had been accepted until then. outside are those that somebody
	// else deleted or broke.
	deleted map[types.UID]int
	outside map[types.UID]bool
	// clock is the number of accepted intents.
	clock func() int
	// quotaFull makes every create of a Service be refused.
	quotaFull bool
}

// object is a pointer to a Pod or a Service.
type object interface {
	comparable
	metav1.Object
}

// A half is a typed client of one of the two objects, in one process.
type half[Object object, List any] struct {
	k        *kube
	actor    string
	resource string
	get      func() Object
	set      func(Object)
	copy     func(Object) Object
	list     func(Object) List
}

func (k *kube) pods(actor string) half[*corev1.Pod, *corev1.PodList] {
	return half[*corev1.Pod, *corev1.PodList]{k, actor, "pods", func() *corev1.Pod { return k.pod },
		func(p *corev1.Pod) { k.pod = p }, (*corev1.Pod).DeepCopy, func(p *corev1.Pod) *corev1.PodList {
			list := &corev1.PodList{}
			if p != nil {
				list.Items = append(list.Items, *p.DeepCopy())
			}
			return list
		}}
}

func (k *kube) services(actor string) half[*corev1.Service, *corev1.ServiceList] {
	return half[*corev1.Service, *corev1.ServiceList]{k, actor, "services", func() *corev1.Service { return k.service },
		func(s *corev1.Service) { k.service = s }, (*corev1.Service).DeepCopy, func(s *corev1.Service) *corev1.ServiceList {
			list := &corev1.ServiceList{}
			if s != nil {
				list.Items = append(list.Items, *s.DeepCopy())
			}
			return list
		}}
}

func (h half[Object, List]) gr() schema.GroupResource {
	return schema.GroupResource{Resource: h.resource}
}

// request is one exchange: it may fail before or after it has taken effect.
func (h half[Object, List]) request(ctx context.Context, verb, name string, effect func() (Object, error)) (Object, error) {
	var none Object
	how, err := h.k.s.await(ctx, h.actor, verb+" "+h.resource, nil)
	switch {
	case err != nil:
		return none, err
	case how == loseCall:
		return none, h.k.faults.kubernetes(h.k.s.choose, verb, h.gr(), name)
	}
	obj, err := effect()
	if how == loseBack {
		return none, errLost
	}
	return obj, err
}

func (h half[Object, List]) Create(ctx context.Context, obj Object, _ metav1.CreateOptions) (Object, error) {
	return h.request(ctx, "create", obj.GetName(), func() (Object, error) {
		var none Object
		if h.k.quotaFull && h.resource == "services" {
			// At full quota the refusal comes before the conflict.
			return none, apierrors.NewForbidden(h.gr(), obj.GetName(), fmt.Errorf("exceeded quota: q, requested: services=1"))
		}
		if h.get() != none {
			return none, apierrors.NewAlreadyExists(h.gr(), obj.GetName())
		}
		made := h.copy(obj)
		h.k.uids++
		made.SetUID(types.UID(fmt.Sprintf("%s-%d", h.resource, h.k.uids)))
		h.set(made)
		h.k.s.note("%-10s creates %s of %s", h.actor, made.GetUID(), made.GetAnnotations()[sandbox.GenerationAnnotation])
		return h.copy(made), nil
	})
}

func (h half[Object, List]) Get(ctx context.Context, name string, _ metav1.GetOptions) (Object, error) {
	return h.request(ctx, "get", name, func() (Object, error) {
		var none Object
		if h.get() == none {
			return none, apierrors.NewNotFound(h.gr(), name)
		}
		return h.copy(h.get()), nil
	})
}

func (h half[Object, List]) List(ctx context.Context, _ metav1.ListOptions) (List, error) {
	var none Object
	var list List
	if _, err := h.request(ctx, "list", "", func() (Object, error) { return none, nil }); err != nil {
		return list, err
	}
	return h.list(h.get()), nil
}

func (h half[Object, List]) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	_, err := h.request(ctx, "delete", name, func() (Object, error) {
		var none Object
		found := h.get()
		switch {
		case found == none:
			return none, apierrors.NewNotFound(h.gr(), name)
		case opts.Preconditions != nil && opts.Preconditions.UID != nil && *opts.Preconditions.UID != found.GetUID():
			return none, apierrors.NewConflict(h.gr(), name, fmt.Errorf("UID in precondition is another"))
		case found.GetDeletionTimestamp() != nil:
			return none, nil
		}
		h.k.s.note("%-10s deletes %s", h.actor, found.GetUID())
		h.k.deleted[found.GetUID()] = h.k.clock()
		h.remove()
		return none, nil
	})
	return err
}

// remove takes a Service away at once; a Pod terminates first.
func (h half[Object, List]) remove() {
	var none Object
	if h.resource == "services" {
		h.set(none)
		return
	}
	now := metav1.Now()
	gone := h.copy(h.get())
	gone.SetDeletionTimestamp(&now)
	h.set(gone)
}

// podGone is the end of a terminating Pod.
func (k *kube) podGone() {
	k.s.note("%-10s %s is gone", "kubelet", k.pod.UID)
	k.pod = nil
}

// disturb is somebody else: he deletes an object, or a Pod fails.
func (k *kube) disturb(what int) {
	switch {
	case what == 0 && k.pod != nil && k.pod.DeletionTimestamp == nil:
		k.s.note("%-10s deletes %s", "somebody", k.pod.UID)
		k.outside[k.pod.UID] = true
		k.pods("somebody").remove()
	case what == 1 && k.pod != nil && k.pod.DeletionTimestamp == nil:
		k.s.note("%-10s %s is evicted", "kubelet", k.pod.UID)
		k.outside[k.pod.UID] = true
		k.pod = k.pod.DeepCopy()
		k.pod.Status.Phase, k.pod.Status.Reason = corev1.PodFailed, "Evicted"
	case what == 2 && k.service != nil:
		k.s.note("%-10s deletes %s", "somebody", k.service.UID)
		k.outside[k.service.UID] = true
		k.service = nil
	}
}
