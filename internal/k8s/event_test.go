package k8s

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/sandbox"
)

// silent is a Pod that does not say why it is not ready, older than one that starts as it should.
func silent() sandbox.State {
	return sandbox.State{ID: "a1", PodUID: "u1", Status: sandbox.Pending, CreatedAt: time.Now().Add(-time.Minute)}
}

func TestEventsAreReadOnlyWhereNothingElseSaysWhy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*sandbox.State)
		asks   bool
	}{
		"a Pod that says nothing":          {func(*sandbox.State) {}, true},
		"one whose containers are made":    {func(st *sandbox.State) { st.Reason = "ContainersNotReady" }, true},
		"one that is being initialized":    {func(st *sandbox.State) { st.Reason = "ContainersNotInitialized" }, true},
		"one that says why":                {func(st *sandbox.State) { st.Reason = "ImagePullBackOff" }, false},
		"one that is ready":                {func(st *sandbox.State) { st.Ready = true }, false},
		"one that has just been made":      {func(st *sandbox.State) { st.CreatedAt = time.Now().Add(-time.Second) }, false},
		"a Service that has lost its Pod":  {func(st *sandbox.State) { st.PodUID = "" }, false},
		"a Pod that waits for its Service": {func(st *sandbox.State) { st.URL = "" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				f.events.items = []corev1.Event{{Reason: "FailedMount", Message: "no\nsuch https://bob:s3cret@directory"}}
				st := silent()
				test.change(&st)
				want := st
				if test.asks {
					want.Reason, want.Message = "FailedMount", "no such https://******@directory"
				}
				require.Equal(t, want, f.Explain(t.Context(), st))
				require.Equal(t, test.asks, len(f.events.selectors) == 1)
			})
		})
	}
}

func TestOnlyWarningsAboutThisVeryPodAreAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.Explain(t.Context(), silent())
		require.Equal(t, []string{"involvedObject.uid=u1,type=Warning"}, f.events.selectors)
	})
}

func TestTheNewestWarningCounts(t *testing.T) {
	t.Parallel()
	at := func(minute int) metav1.Time { return metav1.NewTime(time.Date(2026, 8, 1, 14, minute, 0, 0, time.UTC)) }
	micro := func(minute int) metav1.MicroTime { return metav1.NewMicroTime(at(minute).Time) }
	for name, newest := range map[string]corev1.Event{
		"by when it was made":       {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(5)}},
		"by its first time":         {FirstTimestamp: at(5)},
		"by its last time":          {FirstTimestamp: at(1), LastTimestamp: at(5)},
		"by its time":               {EventTime: micro(5)},
		"by the last of its series": {EventTime: micro(1), Series: &corev1.EventSeries{LastObservedTime: micro(5)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				newest.Reason = "Newest"
				older := corev1.Event{Reason: "Older", FirstTimestamp: at(2), LastTimestamp: at(4)}
				for _, items := range [][]corev1.Event{{newest, older}, {older, newest}} {
					f := newFixture()
					f.events.items = items
					require.Equal(t, "Newest", f.Explain(t.Context(), silent()).Reason)
				}
			})
		})
	}
}

func TestEventsThatCannotBeReadChangeNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, st := newFixture(), silent()
		st.Reason, st.Message = "ContainersNotReady", "containers with unready status: [sandbox]"
		require.Equal(t, st, f.Explain(t.Context(), st), "none is there")

		f.events.fault = func(context.Context) error {
			return apierrors.NewForbidden(corev1.Resource("events"), "", nil)
		}
		require.Equal(t, st, f.Explain(t.Context(), st))

		f.events.fault = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		start := time.Now()
		require.Equal(t, st, f.Explain(t.Context(), st))
		require.Equal(t, eventTimeout, time.Since(start))

		f.Cluster.events = nil
		require.Equal(t, st, f.Explain(t.Context(), st))
	})
}
