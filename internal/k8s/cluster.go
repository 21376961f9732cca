// Package k8s makes the objects of a sandbox exist, makes them go, and reads them. It holds no state: the cluster is the
// only record of what exists.
package k8s

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/sandbox"
)

// A client is what this package uses of Core's client of Pods, and of that of Services.
type client[Object, List any] interface {
	Create(context.Context, Object, metav1.CreateOptions) (Object, error)
	Get(context.Context, string, metav1.GetOptions) (Object, error)
	List(context.Context, metav1.ListOptions) (List, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// PodClient is satisfied by Core's client of Pods.
type PodClient = client[*corev1.Pod, *corev1.PodList]

// ServiceClient is satisfied by Core's client of Services.
type ServiceClient = client[*corev1.Service, *corev1.ServiceList]

// A Cluster reconciles and reads sandboxes in one namespace. It is safe for concurrent use.
type Cluster struct {
	set      Settings
	pods     half[*corev1.Pod, *corev1.PodList]
	services half[*corev1.Service, *corev1.ServiceList]
	// events may be nil: nothing but explanations comes from there.
	events EventClient
	// pinged is when Ping was last called or returned, in Unix nanoseconds.
	pinged atomic.Int64
}

// New returns the Cluster behind a client. No request takes longer than timeout.
func New(core *Core, set Settings, timeout time.Duration) *Cluster {
	c := NewWithClients(core.Pods(set.Namespace), core.Services(set.Namespace), set, timeout)
	c.events = core.Events(set.Namespace)
	return c
}

// NewWithClients is New for clients of another make, and without Events.
func NewWithClients(pods PodClient, services ServiceClient, set Settings, timeout time.Duration) *Cluster {
	return &Cluster{
		set:      set,
		pods:     half[*corev1.Pod, *corev1.PodList]{sandbox.Pod, pods, timeout},
		services: half[*corev1.Service, *corev1.ServiceList]{sandbox.Service, services, timeout},
	}
}

// Ping tells whether the cluster answers, and lets us read.
func (c *Cluster) Ping(ctx context.Context) error {
	note := func() { c.pinged.Store(time.Now().UnixNano()) }
	note()
	defer note()
	// From any version that is at hand, "0", the API server would send all sandboxes, whatever the limit.
	_, err := c.pods.list(ctx, metav1.ListOptions{Limit: 1, LabelSelector: selector})
	return err
}

// A half is one of the two objects of a sandbox: its requests are bounded in time, and their errors are classified.
type half[Object metav1.Object, List any] struct {
	kind    string
	client  client[Object, List]
	timeout time.Duration
}

func (h half[Object, List]) create(ctx context.Context, obj Object) (Object, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	return h.client.Create(ctx, obj, metav1.CreateOptions{})
}

// get reads an object; found is false when Kubernetes says that it does not exist, and only then.
func (h half[Object, List]) get(ctx context.Context, name string) (obj Object, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	obj, err = h.client.Get(ctx, name, metav1.GetOptions{})
	if isNotFound(err) {
		return obj, false, nil
	}
	return obj, err == nil, classify(h.kind, err)
}

func (h half[Object, List]) list(ctx context.Context, opts metav1.ListOptions) (List, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	l, err := h.client.List(ctx, opts)
	return l, classify(h.kind, err)
}

// delete removes exactly the object that was read: by name alone it could hit a successor. An object that is gone
// already is a success; one that has been replaced is a Retry.
func (h half[Object, List]) delete(ctx context.Context, obj Object) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	uid := obj.GetUID()
	err := h.client.Delete(ctx, obj.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if isNotFound(err) {
		return nil
	}
	return classify(h.kind, err)
}

// generation of the intent that made obj.
func generation(obj metav1.Object) sandbox.Generation {
	return sandbox.ParseGeneration(obj.GetAnnotations()[sandbox.GenerationAnnotation])
}

// ours tells whether obj is a sandbox's, whoever made it.
func ours(obj metav1.Object, id string) bool {
	labels := obj.GetLabels()
	return labels[sandbox.LabelApp] == sandbox.App && labels[sandbox.LabelID] == id
}

func terminating(obj metav1.Object) bool { return obj.GetDeletionTimestamp() != nil }
