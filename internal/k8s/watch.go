package k8s

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"sandbox-provisioner/internal/sandbox"
)

// listTimeout bounds the list of the Pods that run, which may be many thousand.
const listTimeout = time.Minute

// A PodSource is where the Pods of all sandboxes are seen, for counting only: what it says may be old. A Pod has several events on its way to run and
// few afterwards, and each costs as much as a read, here and in the API server; so only those that run are watched.
type PodSource struct {
	// Running lists and watches the Pods that run.
	Running *cache.ListWatch
	// Others lists the Pods that do not: not yet, or no more. Its context is all that bounds it.
	Others func(context.Context) ([]corev1.Pod, error)
}

const (
	whichRun   = "status.phase=" + string(corev1.PodRunning)
	whichDoNot = "status.phase!=" + string(corev1.PodRunning)
)

// NewPodSource returns that of a namespace.
func NewPodSource(cfg *rest.Config, set Settings) (*PodSource, error) {
	long := rest.CopyConfig(cfg)
	long.Timeout = 0 // it would end every watch
	core, err := NewCore(long)
	if err != nil {
		return nil, err
	}
	pods := core.Pods(set.Namespace)
	return &PodSource{Running: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			opts.LabelSelector, opts.FieldSelector = selector, whichRun
			return pods.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.LabelSelector, opts.FieldSelector = selector, whichRun
			// A server that takes the request and does not answer would keep it for ever; one that answers may take its time.
			ctx, cancel := context.WithCancel(ctx)
			overdue := time.AfterFunc(cfg.Timeout, cancel)
			w, err := pods.Watch(ctx, opts)
			overdue.Stop()
			if err != nil {
				cancel()
				return nil, err
			}
			return watching{w, cancel}, nil
		},
	}, Others: func(ctx context.Context) ([]corev1.Pod, error) {
		fromCache := metav1.ListOptions{LabelSelector: selector, FieldSelector: whichDoNot, ResourceVersion: "0"}
		found, err := core.listPodsOnce(ctx, set.Namespace, fromCache)
		if err != nil {
			return nil, err
		}
		return found.Items, nil
	}}, nil
}

// watching gives up the request of a watch with it.
type watching struct {
	watch.Interface
	cancel context.CancelFunc
}

func (w watching) Stop() {
	w.cancel()
	w.Interface.Stop()
}

// A Standing is what counts of one Pod.
type Standing struct {
	Phase sandbox.Status
	// Terminating is a Pod that is being deleted. Nothing else counts of it.
	Terminating bool
	Ready       bool
	// ReadySince is when the Pod says that it became ready, in whole seconds of the node's clock.
	ReadySince time.Time
	// Reason is why it is not ready, in a word of Kubernetes; empty when nothing is wrong yet.
	Reason string
}

// Stand tells how a Pod stands.
func Stand(pod *corev1.Pod) Standing {
	if terminating(pod) {
		return Standing{Terminating: true}
	}
	s := Standing{Phase: phase(pod)}
	if c := condition(pod, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		s.Ready, s.ReadySince = true, c.LastTransitionTime.Time
		return s
	}
	s.Reason, _ = explain(pod)
	return s
}
