package census

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// patience is how long a new Pod is waited for. One that takes longer shows in the counts.
	patience = 10 * time.Minute
	// maxAwaited bounds the Pods that are waited for at once. More are not timed.
	maxAwaited = 1 << 15
	// maxMissed is how many lists in a row a Pod may be missing from that is waited for.
	maxMissed = 1
)

// A wish is for a Pod to be ready.
type wish struct {
	accepted time.Time // from when it is measured
	since    time.Time // from when it is waited for
	missed   int       // lists in a row that it was missing from
}

// Made tells that a Pod was newly made for a request of that time.
func (c *Census) Made(podUID string, accepted time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prune()
	if len(c.awaited) < maxAwaited {
		c.awaited[types.UID(podUID)] = wish{accepted: accepted, since: c.now()}
		c.settle(types.UID(podUID))
	}
}

// prune stops waiting for Pods that take too long, or were deleted while nobody watched.
func (c *Census) prune() {
	if c.now().Sub(c.pruned) < time.Minute {
		return
	}
	c.pruned = c.now()
	for uid, w := range c.awaited {
		if c.now().Sub(w.since) >= patience {
			delete(c.awaited, uid)
		}
	}
}

// settle stops waiting for a Pod that is ready.
func (c *Census) settle(uid types.UID) {
	w, awaited := c.awaited[uid]
	if readyAt := c.pods[uid].readyAt; awaited && !readyAt.IsZero() {
		c.ready.Observe(max(0, readyAt.Sub(w.accepted)).Seconds())
		delete(c.awaited, uid)
	}
}
