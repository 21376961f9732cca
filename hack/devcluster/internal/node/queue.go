package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// queue calls reconcile for every key, never twice at once for the same one. reconcile returns when it wants to be
// called again without an event (0: not at all); an error brings it back with a growing delay.
type queue struct {
	name      string
	workers   int
	reconcile func(ctx context.Context, key cache.ObjectName) (again time.Duration, err error)
	log       *slog.Logger
	work      workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

func newQueue(name string, workers int,
	reconcile func(context.Context, cache.ObjectName) (time.Duration, error), log *slog.Logger,
) *queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](10*time.Millisecond, 5*time.Second)
	return &queue{
		name: name, workers: workers, reconcile: reconcile, log: log,
		work: workqueue.NewTypedRateLimitingQueue(limiter),
	}
}

func (q *queue) add(key cache.ObjectName) { q.work.Add(key) }

func (q *queue) addAfter(key cache.ObjectName, delay time.Duration) { q.work.AddAfter(key, delay) }

// run blocks until ctx ends and all workers have returned.
func (q *queue) run(ctx context.Context) {
	defer context.AfterFunc(ctx, q.work.ShutDown)()
	var workers sync.WaitGroup
	for range q.workers {
		workers.Go(func() {
			for q.next(ctx) {
			}
		})
	}
	workers.Wait()
}

func (q *queue) next(ctx context.Context) bool {
	key, quit := q.work.Get()
	if quit {
		return false
	}
	defer q.work.Done(key)
	again, err := q.reconcile(ctx, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		// A conflict says that our cache was behind: ordinary.
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			q.log.Warn("simulated node will try again", slog.String("kind", q.name),
				slog.String("key", key.String()), slog.Any("error", err))
		}
		q.work.AddRateLimited(key)
	default:
		q.work.Forget(key)
		if again > 0 {
			q.work.AddAfter(key, again)
		}
	}
	return true
}
