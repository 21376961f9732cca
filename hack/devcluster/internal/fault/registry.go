package fault

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Every in place of a Pod's name stands for all Pods of the namespace.
const Every = "*"

// Order is a fault put on a Pod, which need not exist yet.
type Order struct {
	Namespace, Pod string
	Fault          Fault
}

// MarshalJSON writes one flat object.
func (o Order) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Namespace string `json:"namespace"`
		Pod       string `json:"pod"`
		wire
	}{o.Namespace, o.Pod, o.Fault.wire()})
}

// Registry holds the faults given from outside. An order for one Pod goes before one for every Pod, and both
// before what the Pod itself asks for. Safe for concurrent use.
type Registry struct {
	mu      sync.Mutex
	orders  map[key]Fault
	last    uint64
	changed func(namespace, pod string)
}

type key struct{ namespace, pod string }

// NewRegistry returns an empty one.
func NewRegistry() *Registry {
	return &Registry{orders: map[key]Fault{}, changed: func(string, string) {}}
}

// OnChange sets the one function that is told which Pod, or Every, has to be looked at again.
func (r *Registry) OnChange(changed func(namespace, pod string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
}

// Put gives an order; it replaces an earlier one for the same Pod.
func (r *Registry) Put(namespace, pod string, fault Fault) {
	r.mu.Lock()
	r.last++
	fault.order = r.last
	r.orders[key{namespace, pod}] = fault
	changed := r.changed
	r.mu.Unlock()
	changed(namespace, pod)
}

// Clear takes an order back. There need not be one.
func (r *Registry) Clear(namespace, pod string) {
	r.mu.Lock()
	delete(r.orders, key{namespace, pod})
	changed := r.changed
	r.mu.Unlock()
	changed(namespace, pod)
}

// List returns all orders, sorted.
func (r *Registry) List() []Order {
	r.mu.Lock()
	defer r.mu.Unlock()
	orders := make([]Order, 0, len(r.orders))
	for k, fault := range r.orders {
		orders = append(orders, Order{Namespace: k.namespace, Pod: k.pod, Fault: fault})
	}
	slices.SortFunc(orders, func(a, b Order) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return orders
}

// Of returns the fault that holds for a Pod. The error tells of an annotation or image name that cannot be understood;
// such a Pod is healthy.
func (r *Registry) Of(pod *corev1.Pod) (Fault, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range []string{pod.Name, Every} {
		if fault, ok := r.orders[key{pod.Namespace, name}]; ok {
			return fault, nil
		}
	}
	return ofPod(pod)
}
