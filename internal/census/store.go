package census

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"sandbox-provisioner/internal/k8s"
)

// blindness is how late a watch may be. What it shows later than that has happened while it was broken.
const blindness = 5 * time.Second

// A store is where client-go puts what it sees.
type store struct{ *Census }

// Add implements cache.ReflectorStore.
func (s store) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s store) Update(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.see(obj.(*corev1.Pod))
	return nil
}

// Delete implements cache.ReflectorStore.
func (s store) Delete(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := obj.(*corev1.Pod).UID
	delete(s.pods, uid)
	delete(s.awaited, uid)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s store) Replace(all []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	exists := make(map[types.UID]bool, len(all))
	for _, obj := range all {
		pod := obj.(*corev1.Pod)
		exists[pod.UID] = true
		s.see(pod)
	}
	for uid := range s.pods {
		if !exists[uid] {
			delete(s.pods, uid)
			delete(s.awaited, uid)
		}
	}
	s.known = true
	select {
	case s.begun <- struct{}{}:
	default:
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (store) Resync() error { return nil }

// Transformer implements cache.TransformingStore: the first answer, which holds all that run, is stripped while it comes in.
func (store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return obj, nil
		}
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
				DeletionTimestamp: pod.DeletionTimestamp,
			},
			Status: pod.Status,
		}, nil
	}
}

// seeOthers takes note of all Pods that do not run.
func (c *Census) seeOthers(pods []corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return
	}
	c.others, c.othersAt = make(map[types.UID]k8s.Standing, len(pods)), c.now()
	for i := range pods {
		if _, runs := c.pods[pods[i].UID]; !runs { // by now
			c.others[pods[i].UID] = k8s.Stand(&pods[i])
		}
	}
	for uid, w := range c.awaited {
		_, runs := c.pods[uid]
		_, exists := c.others[uid]
		switch {
		case runs || exists:
			w.missed = 0
		case w.missed == maxMissed:
			delete(c.awaited, uid) // it was deleted before it ran
			continue
		default: // it may have begun to run, or to exist, just now
			w.missed++
		}
		c.awaited[uid] = w
	}
}

// see takes note of how a Pod stands.
func (c *Census) see(pod *corev1.Pod) {
	r := record{Standing: k8s.Stand(pod), readyAt: c.pods[pod.UID].readyAt}
	if r.Ready && r.readyAt.IsZero() {
		r.readyAt = c.now()
		// Our own clock is finer, and the one that the acceptance was measured with. But it says nothing of what we missed.
		if r.readyAt.Sub(r.ReadySince) > blindness {
			r.readyAt = r.ReadySince
		}
	}
	c.pods[pod.UID] = r
	delete(c.others, pod.UID)
	c.settle(pod.UID)
}
