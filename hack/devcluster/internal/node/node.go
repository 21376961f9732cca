// Package node simulates the parts of a cluster that run Pods: scheduler, kubelet, kube-proxy, and those controllers
// without which a test cannot see what it needs. One Node takes all Pods and runs none of them.
package node

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"sandbox-provisioner/hack/devcluster/internal/fault"
)

// Name is the Node object's.
const Name = "simulated-node"

// address is the node's: NodePorts are served there.
const address = "127.0.0.1"

// Config says how the node behaves when no fault is asked for.
type Config struct {
	// ReadyDelay is the time from a Pod's binding to its being Running and Ready. Default 0; devcluster passes 300 ms.
	ReadyDelay time.Duration
	// StopDelay is the time that containers take to stop, never longer than the Pod's grace period. Default 0;
	// devcluster passes 100 ms.
	StopDelay time.Duration
	// ServiceAccounts makes the node create the default ServiceAccount of every namespace.
	ServiceAccounts bool
	Faults          *fault.Registry
	Log             *slog.Logger
}

// Node is the simulated node. Make it with New, then Run it.
type Node struct {
	cfg    Config
	log    *slog.Logger
	client kubernetes.Interface

	informers informers.SharedInformerFactory
	pods      cache.Indexer
	services  corelisters.ServiceLister
	selectors cache.Indexer // the Services' store
	quotas    corelisters.ResourceQuotaLister

	podQueue     *queue
	serviceQueue *queue
	quotaQueue   *queue
	accountQueue *queue

	memories  memories
	addresses addresses
	ports     *ports
	slices    sliceWriter
	synced    chan struct{}
}

// New connects a node to a cluster. Nothing happens before Run.
func New(config *rest.Config, cfg Config) (*Node, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.UserAgent = Name
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the simulated node: %w", err)
	}
	n := &Node{
		cfg: cfg, log: cfg.Log.With(slog.String("component", Name)), client: client,
		memories: newMemories(), addresses: newAddresses(), slices: newSliceWriter(), synced: make(chan struct{}),
	}
	n.ports = newPorts(n.serveNodePort, n.log)
	// Binding and status writes are short waits for etcd's disk: more workers than cores pay off.
	n.podQueue = newQueue("pod", 24, n.reconcilePod, n.log)
	n.serviceQueue = newQueue("service", 8, n.reconcileService, n.log)
	n.quotaQueue = newQueue("resourcequota", 2, n.reconcileQuota, n.log)
	n.accountQueue = newQueue("serviceaccount", 2, n.createServiceAccount, n.log)
	return n, n.watch()
}

// Synced is closed when the node has seen the cluster and works.
func (n *Node) Synced() <-chan struct{} { return n.synced }

// Run works until ctx ends, and returns when all its goroutines have ended.
func (n *Node) Run(ctx context.Context) error {
	if err := n.register(ctx); err != nil {
		return err
	}
	if err := n.slices.load(ctx, n.client); err != nil {
		return err
	}
	n.cfg.Faults.OnChange(n.faultChanged)
	defer n.cfg.Faults.OnChange(func(string, string) {})
	defer n.ports.close()

	n.informers.Start(ctx.Done())
	defer n.informers.Shutdown()
	for kind, ok := range n.informers.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("the simulated node cannot read %v: %w", kind, context.Cause(ctx))
		}
	}
	n.adoptAddresses()

	var working sync.WaitGroup
	for _, q := range []*queue{n.podQueue, n.serviceQueue, n.quotaQueue, n.accountQueue} {
		working.Go(func() { q.run(ctx) })
	}
	close(n.synced)
	working.Wait()
	return nil
}

// watch connects events to queues.
func (n *Node) watch() error {
	n.informers = informers.NewSharedInformerFactoryWithOptions(n.client, 0,
		informers.WithTransform(dropManagedFields))
	core := n.informers.Core().V1()

	pods := core.Pods().Informer()
	if err := pods.AddIndexers(cache.Indexers{labelIndex: indexByLabels}); err != nil {
		return err
	}
	services := core.Services().Informer()
	if err := services.AddIndexers(cache.Indexers{selectorIndex: indexBySelector}); err != nil {
		return err
	}
	n.pods, n.selectors = pods.GetIndexer(), services.GetIndexer()
	n.services, n.quotas = core.Services().Lister(), core.ResourceQuotas().Lister()

	if err := handle(pods, n.podChanged); err != nil {
		return err
	}
	if err := handle(services, n.serviceChanged); err != nil {
		return err
	}
	if err := handle(core.ResourceQuotas().Informer(), n.quotaChanged); err != nil {
		return err
	}
	if !n.cfg.ServiceAccounts {
		return nil
	}
	return handle(core.Namespaces().Informer(), n.namespaceChanged)
}

// dropManagedFields halves what thousands of cached Pods weigh. The API server keeps its own when an update has none.
func dropManagedFields(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// handle calls changed for every event: before is nil for a new object, after for one that is gone.
func handle[T any](informer cache.SharedIndexInformer, changed func(before, after *T)) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if after, ok := obj.(*T); ok {
				changed(nil, after)
			}
		},
		UpdateFunc: func(old, obj any) {
			before, ok1 := old.(*T)
			after, ok2 := obj.(*T)
			if ok1 && ok2 {
				changed(before, after)
			}
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if before, ok := obj.(*T); ok {
				changed(before, nil)
			}
		},
	})
	return err
}

// register creates the Node object. Its capacity is far beyond what is asked of it: Pods are bound without counting.
func (n *Node) register(ctx context.Context) error {
	nodes := n.client.CoreV1().Nodes()
	node, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: Name,
		Labels: map[string]string{
			corev1.LabelHostname: Name, corev1.LabelOSStable: "linux", "simulated": "true",
		},
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = nodes.Get(ctx, Name, metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("register %s: %w", Name, err)
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("100k"),
		corev1.ResourceMemory:           resource.MustParse("100Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
		corev1.ResourcePods:             resource.MustParse("100k"),
	}
	now := metav1.Now()
	node.Status = corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: Name},
		},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "SimulatedNodeReady",
			Message: "simulated node takes Pods", LastHeartbeatTime: now, LastTransitionTime: now,
		}},
		NodeInfo: corev1.NodeSystemInfo{
			OperatingSystem: "linux", ContainerRuntimeVersion: "simulated://1", KubeletVersion: "simulated",
		},
	}
	if _, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("report %s ready: %w", Name, err)
	}
	return nil
}
