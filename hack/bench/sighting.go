package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"sandbox-provisioner/internal/sandbox"
)

// A lookout watches a few ids of a namespace, and notes when both objects of each could be seen. It watches no more than a
// sample, so that it costs the API server little.
type lookout struct {
	watches []watch.Interface
	running sync.WaitGroup

	mu      sync.Mutex
	missing map[string]int // objects that have not been seen yet
	seen    map[string]time.Time
	all     chan struct{} // closed when nothing is missing
}

func (p *plant) lookOut(ctx context.Context, namespace string, ids []string) (*lookout, error) {
	l := &lookout{missing: map[string]int{}, seen: map[string]time.Time{}, all: make(chan struct{})}
	for _, id := range ids {
		l.missing[id] = 2
	}
	ours := sandbox.LabelID + " in (" + strings.Join(ids, ",") + ")"
	now, err := p.core.Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: ours})
	if err != nil {
		return nil, err
	}
	for _, open := range []cache.WatchFuncWithContext{p.core.Pods(namespace).Watch, p.core.Services(namespace).Watch} {
		// A busy API server ends watches that take what it sends too slowly.
		w, err := toolswatch.NewRetryWatcherWithContext(ctx, now.ResourceVersion, &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				opts.LabelSelector = ours
				return open(ctx, opts)
			},
		})
		if err != nil {
			l.close()
			return nil, err
		}
		l.watches = append(l.watches, w)
	}
	for _, w := range l.watches {
		l.running.Go(func() { l.follow(w) })
	}
	return l, nil
}

func (l *lookout) follow(w watch.Interface) {
	for event := range w.ResultChan() {
		if obj, ok := event.Object.(metav1.Object); ok && event.Type == watch.Added {
			l.note(obj.GetLabels()[sandbox.LabelID], time.Now())
		}
	}
}

func (l *lookout) note(id string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missing[id]--; l.missing[id] > 0 {
		return
	}
	delete(l.missing, id)
	l.seen[id] = at
	if len(l.missing) == 0 {
		close(l.all)
	}
}

// await returns when each id could be seen.
func (l *lookout) await(ctx context.Context) (map[string]time.Time, error) {
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return nil, errors.New("an object that was created could not be seen within 10 s")
	case <-l.all:
		return l.seen, nil
	}
}

func (l *lookout) close() {
	for _, w := range l.watches {
		w.Stop()
	}
	l.running.Wait()
}
