package k8s

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sandbox-provisioner/internal/sandbox"
)

// A storable is an object that memory can keep.
type storable[Object any] interface {
	metav1.Object
	DeepCopy() Object
}

// memory keeps the objects of one kind as an API server does: it gives out uids, refuses what exists, minds the
// preconditions of a deletion, and lets Pods linger when they are deleted.
type memory[Object storable[Object]] struct {
	resource schema.GroupResource
	lingers  bool
	admit    func(Object) // fills in what the API server would

	mu      sync.Mutex
	objects map[string]Object
	calls   []string
	// full refuses every creation with an exceeded quota, before it looks whether the object exists.
	full bool
	// fault is asked before each request: "create", "get", "delete" or "list".
	fault func(ctx context.Context, verb string) error
}

func (m *memory[Object]) begin(ctx context.Context, verb, name string) error {
	m.mu.Lock()
	m.calls = append(m.calls, verb+" "+name)
	fault := m.fault
	m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if fault == nil {
		return nil
	}
	return fault(ctx, verb)
}

func (m *memory[Object]) Create(ctx context.Context, obj Object, _ metav1.CreateOptions) (none Object, err error) {
	if err := m.begin(ctx, "create", obj.GetName()); err != nil {
		return none, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full {
		return none, quotaError(m.resource, obj.GetName())
	}
	if _, taken := m.objects[obj.GetName()]; taken {
		return none, apierrors.NewAlreadyExists(m.resource, obj.GetName())
	}
	return m.putLocked(obj.DeepCopy()).DeepCopy(), nil
}

func (m *memory[Object]) putLocked(obj Object) Object {
	obj.SetUID(uuid.NewUUID())
	obj.SetCreationTimestamp(metav1.NewTime(time.Now()))
	m.admit(obj)
	m.objects[obj.GetName()] = obj
	return obj
}

func (m *memory[Object]) Get(ctx context.Context, name string, _ metav1.GetOptions) (none Object, err error) {
	if err := m.begin(ctx, "get", name); err != nil {
		return none, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	obj, ok := m.objects[name]
	if !ok {
		return none, apierrors.NewNotFound(m.resource, name)
	}
	return obj.DeepCopy(), nil
}

func (m *memory[Object]) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	if err := m.begin(ctx, "delete", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	obj, ok := m.objects[name]
	switch {
	case !ok:
		return apierrors.NewNotFound(m.resource, name)
	case opts.Preconditions == nil || opts.Preconditions.UID == nil:
		return apierrors.NewBadRequest("a deletion without a precondition could hit a successor")
	case *opts.Preconditions.UID != obj.GetUID():
		return apierrors.NewConflict(m.resource, name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s)",
			*opts.Preconditions.UID, obj.GetUID()))
	case !m.lingers:
		delete(m.objects, name)
	case obj.GetDeletionTimestamp() == nil:
		now := metav1.NewTime(time.Now())
		obj.SetDeletionTimestamp(&now)
	}
	return nil
}

func (m *memory[Object]) list(ctx context.Context, opts metav1.ListOptions) ([]Object, error) {
	if err := m.begin(ctx, "list", opts.LabelSelector); err != nil {
		return nil, err
	}
	selector, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []Object
	for _, obj := range m.objects {
		if selector.Matches(labels.Set(obj.GetLabels())) {
			found = append(found, obj.DeepCopy())
		}
	}
	return found, nil
}

// put stores obj in whatever state it is in, and replaces one of its name.
func (m *memory[Object]) put(obj Object) types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.putLocked(obj.DeepCopy()).GetUID()
}

// vanish is the end of a termination, or a deletion by somebody else.
func (m *memory[Object]) vanish(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
}

// peek returns what is stored under name.
func (m *memory[Object]) peek(name string) (obj Object, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if obj, ok = m.objects[name]; ok {
		obj = obj.DeepCopy()
	}
	return obj, ok
}

// requests are the requests so far.
func (m *memory[Object]) requests() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string{}, m.calls...)
}

type memoryPods struct{ memory[*corev1.Pod] }

func (m *memoryPods) List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	found, err := m.list(ctx, opts)
	if err != nil {
		return nil, err
	}
	l := &corev1.PodList{}
	for _, pod := range found {
		l.Items = append(l.Items, *pod)
	}
	return l, nil
}

type memoryServices struct{ memory[*corev1.Service] }

func (m *memoryServices) List(ctx context.Context, opts metav1.ListOptions) (*corev1.ServiceList, error) {
	found, err := m.list(ctx, opts)
	if err != nil {
		return nil, err
	}
	l := &corev1.ServiceList{}
	for _, service := range found {
		l.Items = append(l.Items, *service)
	}
	return l, nil
}

// memoryEvents answers every request with the Events that it holds.
type memoryEvents struct {
	items     []corev1.Event
	fault     func(ctx context.Context) error
	selectors []string
}

func (m *memoryEvents) List(ctx context.Context, opts metav1.ListOptions) (*corev1.EventList, error) {
	m.selectors = append(m.selectors, opts.FieldSelector)
	if m.fault != nil {
		return nil, m.fault(ctx)
	}
	return &corev1.EventList{Items: m.items}, nil
}

// A fixture is a Cluster in memory.
type fixture struct {
	*Cluster
	pods     *memoryPods
	services *memoryServices
	events   *memoryEvents
}

const requestTimeout = 5 * time.Second

func newFixture(change ...func(*Settings)) *fixture {
	set := stock()
	for _, c := range change {
		c(&set)
	}
	port := int32(30000)
	f := &fixture{
		pods: &memoryPods{memory[*corev1.Pod]{
			resource: corev1.Resource("pods"), lingers: true, objects: map[string]*corev1.Pod{},
			admit: func(pod *corev1.Pod) {
				if pod.Status.Phase == "" {
					pod.Status.Phase = corev1.PodPending
				}
			},
		}},
		services: &memoryServices{memory[*corev1.Service]{
			resource: corev1.Resource("services"), objects: map[string]*corev1.Service{},
			admit: func(service *corev1.Service) {
				if service.Spec.Type == corev1.ServiceTypeNodePort && service.Spec.Ports[0].NodePort == 0 {
					service.Spec.Ports[0].NodePort = port
					port++
				}
			},
		}},
	}
	f.Cluster = NewWithClients(f.pods, f.services, set, requestTimeout)
	f.events = &memoryEvents{}
	f.Cluster.events = f.events
	return f
}

func clusterIP(s *Settings) { s.ServiceType = ClusterIP }

const stream = 100

// by is the generation of the intent at seq.
func by(seq uint64) sandbox.Generation { return sandbox.Generation{Stream: stream, Seq: seq} }

// putPod stores the Pod of a1 as the intent at seq made it, changed.
func (f *fixture) putPod(seq uint64, change ...func(*corev1.Pod)) types.UID {
	pod := f.set.Pod("a1", ask(), by(seq))
	pod.Status.Phase = corev1.PodRunning
	for _, c := range change {
		c(pod)
	}
	return f.pods.put(pod)
}

func (f *fixture) putService(seq uint64, change ...func(*corev1.Service)) types.UID {
	service := f.set.Service("a1", by(seq))
	for _, c := range change {
		c(service)
	}
	return f.services.put(service)
}

// uids of the Pod and the Service of a1; "" stands for one that is not there, or on its way out.
func (f *fixture) uids() (pod, service types.UID) {
	if p, ok := f.pods.peek("sandbox-a1"); ok && p.DeletionTimestamp == nil {
		pod = p.UID
	}
	if s, ok := f.services.peek("sandbox-a1-svc"); ok && s.DeletionTimestamp == nil {
		service = s.UID
	}
	return pod, service
}

func dying(obj metav1.Object) {
	now := metav1.NewTime(time.Now())
	obj.SetDeletionTimestamp(&now)
}

func unstamped(obj metav1.Object) { obj.SetAnnotations(nil) }

func foreign(obj metav1.Object) { obj.SetLabels(map[string]string{"app": "something-else"}) }

func quotaError(resource schema.GroupResource, name string) error {
	return apierrors.NewForbidden(resource, name,
		fmt.Errorf("exceeded quota: sandboxes, requested: %s=1, used: %s=1, limited: %s=1", resource.Resource, resource.Resource, resource.Resource))
}

// failing makes every request of that verb fail.
func failing(verb string, err error) func(context.Context, string) error {
	return func(_ context.Context, v string) error {
		if v == verb {
			return err
		}
		return nil
	}
}

// hanging makes requests of that verb hang until their time is up.
func hanging(verb string) func(context.Context, string) error {
	return func(ctx context.Context, v string) error {
		if v == verb {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
}

func requireRetry(t *testing.T, err error, reason sandbox.Reason) *sandbox.Retry {
	t.Helper()
	var retry *sandbox.Retry
	require.ErrorAs(t, err, &retry)
	require.Equal(t, reason, retry.Reason, err)
	return retry
}

func requireFailure(t *testing.T, err error, reason sandbox.Reason) *sandbox.Failure {
	t.Helper()
	var failure *sandbox.Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, reason, failure.Reason, err)
	return failure
}
