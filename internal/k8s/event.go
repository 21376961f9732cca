package k8s

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"sandbox-provisioner/internal/sandbox"
)

const (
	// eventTimeout bounds the look at the Events: an explanation is not worth a slow answer.
	eventTimeout = time.Second
	// eventGrace is older than a Pod gets that starts as it should. Kubernetes has no index of Events by object, so that each
	// look costs it a walk over all Events of the namespace.
	eventGrace = 3 * time.Second
)

// EventClient is what this package uses of client-go's client of Events.
type EventClient interface {
	List(context.Context, metav1.ListOptions) (*corev1.EventList, error)
}

// Explain returns st with the newest Warning about its Pod, if neither the Pod nor its containers say why it is not ready. It
// makes at most one request, which takes at most a second; when that fails st is as it was.
func (c *Cluster) Explain(ctx context.Context, st sandbox.State) sandbox.State {
	if c.events == nil || st.PodUID == "" || st.Ready || !vague(st.Reason) || time.Since(st.CreatedAt) < eventGrace {
		return st
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	found, err := c.events.List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		"involvedObject.uid": st.PodUID, "type": corev1.EventTypeWarning,
	}.String()})
	if err != nil {
		return st
	}
	var newest *corev1.Event
	for i := range found.Items {
		if e := &found.Items[i]; newest == nil || !lastSeen(e).Before(lastSeen(newest)) {
			newest = e
		}
	}
	if newest != nil && newest.Reason != "" {
		st.Reason, st.Message = sandbox.Plain(newest.Reason), sandbox.Plain(newest.Message)
	}
	return st
}

// vague tells whether a reason says no more than that the Pod is not ready.
func vague(reason string) bool {
	switch reason {
	case "", "ContainersNotReady", "ContainersNotInitialized":
		return true
	}
	return false
}

// lastSeen is when an Event has happened last. Old and new writers of Events fill in different fields.
func lastSeen(e *corev1.Event) time.Time {
	last := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time} {
		if t.After(last) {
			last = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}
