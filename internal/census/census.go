// Package census counts the sandboxes that exist, and times how long new ones take until they are ready. It watches those that run
// and asks for the others now and then. What it knows may be old, so that it never answers a request.
package census

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
)

// Keys of log fields.
const (
	keyError  = "error"
	keyMaxAge = "max_age"
)

const (
	// othersInterval is how often those that do not run are asked for, and how long that may take.
	othersInterval = 10 * time.Second
	// othersAge is for how long their last list counts while no newer one can be had: a gap would end what an alert waits for.
	othersAge = 3*othersInterval + othersInterval/2
)

// A Census is what exists, as of the last word of the cluster.
type Census struct {
	source *k8s.PodSource
	ready  prometheus.Histogram
	log    *slog.Logger
	now    func() time.Time

	// begun is told when a watch has begun.
	begun chan struct{}

	mu sync.Mutex
	// pods run; the others do not, or did not when they were listed, at othersAt. Those are nil when they are not known.
	pods     map[types.UID]record
	others   map[types.UID]k8s.Standing
	othersAt time.Time
	// awaited are the Pods whose readiness is of interest.
	awaited map[types.UID]wish
	pruned  time.Time
	// known is whether pods is complete.
	known bool
}

// A record is what is kept of a Pod.
type record struct {
	k8s.Standing
	// readyAt is when it was first seen ready.
	readyAt time.Time
}

// New returns a Census of the Pods behind a source, and registers its metrics. It knows nothing until it runs.
func New(source *k8s.PodSource, r prometheus.Registerer, log *slog.Logger) *Census {
	c := &Census{
		ready: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "sandbox_provisioner_accepted_to_ready_seconds",
			Help:    "From the acceptance of a create until the Pod that this worker made for it was ready.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600},
		}),
		source: source, log: log, now: time.Now, begun: make(chan struct{}, 1), pods: map[types.UID]record{}, awaited: map[types.UID]wish{},
	}
	r.MustRegister(c.ready, counts{c})
	return c
}

// Run watches until ctx ends. A cluster that does not answer, or does not let us watch, is asked again and again.
func (c *Census) Run(ctx context.Context) {
	ctx = logr.NewContext(ctx, logr.Discard()) // what goes wrong is told here, once
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { c.keepAsking(ctx) })
	policy := backoff.WithContext(backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(500*time.Millisecond),
		backoff.WithMaxInterval(30*time.Second),
		backoff.WithMaxElapsedTime(0),
	), ctx)
	quiet := false
	_ = backoff.RetryNotify(func() error { // ends with ctx
		err := c.follow(ctx)
		if c.complete() {
			policy.Reset()
			quiet = false
		}
		c.forget()
		return err
	}, policy, func(err error, _ time.Duration) {
		if !quiet && ctx.Err() == nil {
			c.log.Warn("sandboxes cannot be watched and are not counted", slog.String(keyError, sandbox.Plain(err.Error())))
		}
		quiet = true
	})
}

// follow lists the Pods that run and then watches them until that cannot go on. It never returns nil.
func (c *Census) follow(ctx context.Context) error {
	reflector := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := c.source.Running.ListWithContext(ctx, opts)
			return list, nameless(err)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := c.source.Running.WatchWithContext(ctx, opts)
			return w, nameless(err)
		},
	}, &corev1.Pod{}, store{c}, cache.ReflectorOptions{Name: "census"})
	if err := reflector.ListAndWatchWithContext(ctx); err != nil {
		return err
	}
	return errors.New("the watch has ended")
}

// nameless is an error that the reflector does not know. It would try again by itself after those that it knows, and then neither
// obey the context nor let us know that nothing is seen meanwhile.
func nameless(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(err.Error())
}

// keepAsking asks for the Pods that do not run, while the others are watched, until ctx ends.
func (c *Census) keepAsking(ctx context.Context) {
	quiet := false
	tick := time.NewTicker(othersInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.begun:
		case <-tick.C:
		}
		if !c.complete() {
			continue
		}
		err := c.askOthers(ctx)
		if err != nil && !quiet && ctx.Err() == nil {
			c.log.Warn("sandboxes that do not run cannot be listed; none are counted once their last list is too old",
				slog.Duration(keyMaxAge, othersAge), slog.String(keyError, sandbox.Plain(err.Error())))
		}
		quiet = err != nil
	}
}

func (c *Census) askOthers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, othersInterval)
	defer cancel()
	pods, err := c.source.Others(ctx)
	if err == nil {
		c.seeOthers(pods)
	}
	return err
}

func (c *Census) complete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// forget ends the counts: nobody watches any more.
func (c *Census) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.others = false, nil
}
