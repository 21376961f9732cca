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

// listTimeout bounds one list of all Pods, which may be many thousand.
const listTimeout = time.Minute

// PodWatch lists and watches the Pods of all sandboxes. It is for counting only: what a watch says may be old.
func PodWatch(cfg *rest.Config, set Settings) (*cache.ListWatch, error) {
	long := rest.CopyConfig(cfg)
	long.Timeout = 0 // it would end every watch
	core, err := NewCore(long)
	if err != nil {
		return nil, err
	}
	pods := core.Pods(set.Namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			opts.LabelSelector = selector
			return pods.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.LabelSelector = selector
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
	}, nil
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
