package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/sandbox"
)

// retention is short enough to wait for.
const retention = 2 * time.Second

func TestAnUnfinishedIntentDoesNotExpire(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(v View, now time.Time) Intent{
		"a deletion": func(v View, now time.Time) Intent { return v.Delete("request", now) },
		"a creation": func(v View, now time.Time) Intent {
			return v.Create(sandbox.Spec{UserID: "u"}, "request", now, time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newBroker(t).queue(func(c *Config) { c.Retention = retention })
			before, err := q.Look(t.Context(), "a1")
			require.NoError(t, err)
			first, err := q.Publish(t.Context(), before, make(before, time.Now()))
			require.NoError(t, err)

			keepUnfinished(t, q)
			time.Sleep(2 * retention) // it is about nothing but time
			last, err := q.Look(t.Context(), "a1")
			require.NoError(t, err)
			require.Greater(t, last.Seq, first.Seq)
			require.Equal(t, first.Intent.Op, last.Intent.Op)
			require.Equal(t, first.Intent.SpecHash, last.Intent.SpecHash)
			require.Equal(t, "request", last.Intent.RequestID)
			require.True(t, first.Intent.AcceptedAt.Equal(last.Intent.AcceptedAt))
			require.True(t, first.Intent.Deadline.Equal(last.Intent.Deadline))
			require.Equal(t, first.Lineage().Fence, last.Lineage().Fence)
		})
	}
}

func TestWhatHasEndedExpires(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue(func(c *Config) { c.Retention = retention })
	before, err := q.Look(t.Context(), "a1")
	require.NoError(t, err)
	v, err := q.Publish(t.Context(), before, before.Delete("request", time.Now()))
	require.NoError(t, err)
	_, err = q.Record(t.Context(), v, v.Success(nil, 1, time.Now()))
	require.NoError(t, err)

	keepUnfinished(t, q)
	require.Eventually(t, func() bool {
		v, err := q.Look(t.Context(), "a1")
		return err == nil && v.Seq == 0
	}, soon, 50*time.Millisecond)
}

// A create that has failed is kept until its remains are gone, and is not tried again for that.
func TestAFailedCreateIsRenewedToBeUndoneOnly(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	v, err := q.Look(t.Context(), "a1")
	require.NoError(t, err)
	v, err = q.Publish(t.Context(), v, v.Create(sandbox.Spec{}, "request", time.Now(), time.Hour))
	require.NoError(t, err)
	failed, err := q.Record(t.Context(), v, v.Failure(&sandbox.Failure{Reason: sandbox.ReasonQuota}, 1, time.Now()))
	require.NoError(t, err)

	require.NoError(t, q.renewOne(t.Context(), "a1", v.Seq))
	again, err := q.Look(t.Context(), "a1")
	require.NoError(t, err)
	require.Greater(t, again.Seq, v.Seq)
	require.False(t, again.Finished())
	require.False(t, time.Now().Before(again.Intent.Deadline), "it would be tried again")
	require.Equal(t, failed.Lineage().Settled, again.Lineage().Settled)

	v, err = q.Record(t.Context(), again, again.Failure(&sandbox.Failure{Reason: sandbox.ReasonDeadline}, 1, time.Now()))
	require.NoError(t, err)
	_, err = q.Record(t.Context(), v, v.Undone(time.Now()))
	require.NoError(t, err)
	require.NoError(t, q.renewOne(t.Context(), "a1", again.Seq))
	now, err := q.Look(t.Context(), "a1")
	require.NoError(t, err)
	require.Equal(t, again.Seq, now.Seq, "nothing is left to do")
}

func TestOnlyTheLastIntentOfAnIDIsRenewed(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue(func(c *Config) { c.Retention = time.Hour })
	v, err := q.Look(t.Context(), "a1")
	require.NoError(t, err)
	old, err := q.Publish(t.Context(), v, v.Create(sandbox.Spec{}, "old", time.Now(), time.Minute))
	require.NoError(t, err)
	v, err = q.Publish(t.Context(), old, old.Delete("new", time.Now()))
	require.NoError(t, err)

	require.NoError(t, q.renewOne(t.Context(), "a1", old.Seq))
	require.NoError(t, q.renew(t.Context()), "all are young")
	now, err := q.Look(t.Context(), "a1")
	require.NoError(t, err)
	require.Equal(t, v.Seq, now.Seq)
}

// keepUnfinished runs KeepUnfinished until the test ends.
func keepUnfinished(t *testing.T, q *Queue) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.KeepUnfinished(t.Context())
	}()
	t.Cleanup(func() { <-done })
}
