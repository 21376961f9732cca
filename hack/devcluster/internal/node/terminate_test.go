package node

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// An API server that is killed between the two writes of a removal leaves a Pod without a grace period, for ever.
func TestAPodWhoseRemovalWasCutShortIsRemovedAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		finalizers []string
		removals   int
	}{
		"nobody holds it":      {nil, 1},
		"a finaliser holds it": {[]string{"test.example/held"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "a", UID: "1", Finalizers: test.finalizers,
				DeletionTimestamp: &metav1.Time{Time: now}, DeletionGracePeriodSeconds: new(int64),
			}}
			client := fake.NewClientset(pod)
			n := &Node{client: client, log: slog.New(slog.DiscardHandler)}
			known := &memory{stoppingAt: now}
			for _, at := range []time.Time{now, now.Add(time.Second)} {
				if _, err := n.terminate(t.Context(), pod, known, at); err != nil {
					t.Fatal(err)
				}
			}
			removals := 0
			for _, action := range client.Actions() {
				if action.GetVerb() == "delete" {
					removals++
				}
			}
			if removals != test.removals {
				t.Errorf("wanted %d removals, got %d: %v", test.removals, removals, client.Actions())
			}
		})
	}
}
