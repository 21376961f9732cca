package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
)

func TestNothingIsDoneWithoutAnIntent(t *testing.T) {
	t.Parallel()
	f := newFixture()
	require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
	requireEvents(t, f)
}

func TestACreateIsCarriedOutAndRecorded(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	require.NoError(t, f.Reconcile(t.Context(), "a1", 3))
	requireEvents(t, f, "ensure 1", "record succeeded of 1")
	o := f.records.outcome()
	require.Equal(t, &sandbox.State{ID: "a1", Status: sandbox.Running, PodUID: "pod-1", Generation: 1}, o.Sandbox)
	require.Equal(t, 3, o.Attempts)
	require.True(t, f.records.last().Living())
}

func TestADeleteIsCarriedOutAndRecorded(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	f.records.delete()
	require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
	requireEvents(t, f, "remove 2", "record succeeded of 2")
	require.Nil(t, f.records.outcome().Sandbox)
}

func TestTheClusterIsToldTheLineage(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
	f.records.delete()
	f.records.create()
	var got sandbox.Lineage
	f.cluster.ensure = func(_ context.Context, l sandbox.Lineage) error {
		got = l
		return failure(sandbox.ReasonRefused)
	}
	require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
	require.Equal(t, sandbox.Lineage{Generation: sandbox.Generation{Stream: stream, Seq: 3}, Fence: 2, Settled: 1}, got)

	f.cluster.undo = func(_ context.Context, l sandbox.Lineage) error { got = l; return nil }
	require.NoError(t, f.Reconcile(t.Context(), "a1", 2))
	require.Equal(t, sandbox.Lineage{Generation: sandbox.Generation{Stream: stream, Seq: 3}, Fence: 2, Settled: 1, Failed: 3}, got)
}

// The rows of the design's table of answers, as Ensure reports them.
func TestWhatBecomesOfACreate(t *testing.T) {
	t.Parallel()
	const soon = 100 * time.Millisecond
	for name, test := range map[string]struct {
		err    error
		final  bool
		tries  int
		noted  bool
		reason sandbox.Reason
	}{
		"the Pod is terminating":         {err: retry(sandbox.ReasonTerminating, soon), tries: 1, reason: sandbox.ReasonTerminating},
		"a leftover was deleted":         {err: retry(sandbox.ReasonLeftover, soon), tries: 1, reason: sandbox.ReasonLeftover},
		"the server asks to wait":        {err: retry(sandbox.ReasonThrottled, 7*time.Second), tries: 1, noted: true, reason: sandbox.ReasonThrottled},
		"the object was changed":         {err: retry(sandbox.ReasonConflict, 0), tries: 3, noted: true, reason: sandbox.ReasonConflict},
		"the server has an error":        {err: retry(sandbox.ReasonServer, 0), tries: 3, noted: true, reason: sandbox.ReasonServer},
		"nobody answers":                 {err: retry(sandbox.ReasonUnavailable, 0), tries: 3, noted: true, reason: sandbox.ReasonUnavailable},
		"the ServiceAccount is not made": {err: retry(sandbox.ReasonNotReady, 0), tries: 3, noted: true, reason: sandbox.ReasonNotReady},
		"the Pod is too small":           {err: failure(sandbox.ReasonCapacity), final: true, tries: 1, reason: sandbox.ReasonCapacity},
		"the Pod has no broker":          {err: failure(sandbox.ReasonBroker), final: true, tries: 1, reason: sandbox.ReasonBroker},
		"the name is taken":              {err: failure(sandbox.ReasonNameTaken), final: true, tries: 1, reason: sandbox.ReasonNameTaken},
		"the quota is exceeded":          {err: failure(sandbox.ReasonQuota), final: true, tries: 1, reason: sandbox.ReasonQuota},
		"Kubernetes refuses":             {err: failure(sandbox.ReasonRefused), final: true, tries: 1, reason: sandbox.ReasonRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				f.records.create()
				f.cluster.ensure = fails(test.err)
				err := f.Reconcile(t.Context(), "a1", 1)
				var want []string
				for range test.tries {
					want = append(want, "ensure 1")
				}
				if test.final {
					require.NoError(t, err, "the message is done with")
					// Condemned before it is undone: or else somebody might take for his own what is about to go.
					want = append(want, "record failed of 1, undoing", "undo 1", "record failed of 1")
					requireEvents(t, f, want...)
					o := f.records.outcome()
					require.Equal(t, test.reason, o.Reason)
					require.Equal(t, "for good: "+string(test.reason), o.Message)
					return
				}
				var again *sandbox.Retry
				require.ErrorAs(t, err, &again)
				require.Equal(t, test.reason, again.Reason)
				if test.noted {
					want = append(want, "record retrying of 1")
				}
				requireEvents(t, f, want...)
				if test.noted {
					require.Equal(t, test.reason, f.records.outcome().Reason)
				}
				require.False(t, f.records.last().Finished())
			})
		})
	}
}

func TestAFaultThatPassesAtOnceIsTriedInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.records.create()
		f.cluster.ensure = fails(retry(sandbox.ReasonServer, 0), retry(sandbox.ReasonConflict, 0), nil)
		start := time.Now()
		require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
		requireEvents(t, f, "ensure 1", "ensure 1", "ensure 1", "record succeeded of 1")
		require.Positive(t, time.Since(start), "there is a pause between the tries")
		require.Less(t, time.Since(start), time.Second)
	})
}

func TestASlowFaultIsNotTriedInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.records.create()
		f.cluster.ensure = func(context.Context, sandbox.Lineage) error {
			time.Sleep(5 * time.Second) // of the bubble: the request's time is up
			return retry(sandbox.ReasonUnavailable, 0)
		}
		start := time.Now()
		require.Error(t, f.Reconcile(t.Context(), "a1", 1))
		require.Equal(t, 5*time.Second, time.Since(start), "a second try would hold the slot for as long again")
	})
}

func TestQuickWaitsAreNotedOnlyWhenThereAreManyOfThem(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	f.cluster.ensure = fails(retry(sandbox.ReasonTerminating, 100*time.Millisecond))
	require.Error(t, f.Reconcile(t.Context(), "a1", 3))
	require.Nil(t, f.records.outcome())
	require.Error(t, f.Reconcile(t.Context(), "a1", 4))
	require.Equal(t, jobs.Retrying, f.records.outcome().State)
	require.Equal(t, 4, f.records.outcome().Attempts)
}

// A message of an older intent is as good a reason as any to carry out the newest.
func TestANewerIntentThatAppearsDuringTheActIsCarriedOutBeforeReturning(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first, second func(*memory)
		want          []string
	}{
		"a delete during a create": {(*memory).create, (*memory).delete, []string{"ensure 1", "remove 2", "record succeeded of 2"}},
		"a create during a delete": {(*memory).delete, (*memory).create, []string{"remove 1", "ensure 2", "record succeeded of 2"}},
		"a create during a create": {(*memory).create, (*memory).create, []string{"ensure 1", "ensure 2", "record succeeded of 2"}},
		"a message that cannot be read": {(*memory).create, (*memory).garble, []string{
			"ensure 1", "record failed of 2, undoing", "undo 2", "record failed of 2",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			test.first(f.records)
			publish := during(func() { test.second(f.records) })
			f.cluster.ensure, f.cluster.remove = publish, publish
			err := f.Reconcile(t.Context(), "a1", 1)
			requireEvents(t, f, test.want...)
			var unreadable *sandbox.Failure
			require.Equal(t, f.records.last().Intent == nil, errors.As(err, &unreadable))
		})
	}
}

func TestAFailureThatWasOvertakenIsNotRecorded(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	f.cluster.ensure = func(context.Context, sandbox.Lineage) error {
		f.records.delete()
		return failure(sandbox.ReasonQuota)
	}
	require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
	requireEvents(t, f, "ensure 1", "remove 2", "record succeeded of 2")
}

// Another worker has carried out a newer intent while ours was writing: what it removed may have come back by our hand.
func TestWhoeverWasOvertakenCleansUpAfterANewerDelete(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	f.cluster.ensure = during(func() {
		f.records.delete()
		v := f.records.last()
		_, err := f.records.store(v, v.Success(nil, 1, time.Now()))
		require.NoError(t, err)
	})
	require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
	requireEvents(t, f, "ensure 1", "record succeeded of 2", "remove 2")
}

func TestAConflictOnTheOutcomeMakesTheWorkerActAgain(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	f.cluster.ensure = during(func() {
		v := f.records.last()
		_, err := f.records.store(v, v.Progress(jobs.Running, nil, 1, time.Now()))
		require.NoError(t, err)
	})
	require.NoError(t, f.Reconcile(t.Context(), "a1", 2))
	requireEvents(t, f, "ensure 1", "record running of 1", "conflict", "ensure 1", "record succeeded of 1")
}

// What a message tells by itself knows of no outcome. There may be one, of what has been forgotten.
func TestWhoeverTrustedAMessageLooksAgainWhenThereIsAnOutcome(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	told := f.records.last()
	_, err := f.records.store(told, told.Success(&sandbox.State{ID: "a1", PodUID: "pod-0"}, 1, time.Now()))
	require.NoError(t, err)
	require.NoError(t, f.ReconcileFrom(t.Context(), &told, "a1", 1))
	requireEvents(t, f, "record succeeded of 1", "ensure 1", "conflict")
	require.Equal(t, "pod-0", f.records.outcome().Sandbox.PodUID)
	require.Equal(t, 2, f.records.looks, "after the act, and after the refusal")
}

func TestWhoeverTrustedAMessageLooksAgainAfterActing(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	told := f.records.last()
	f.records.delete()
	require.NoError(t, f.ReconcileFrom(t.Context(), &told, "a1", 1))
	requireEvents(t, f, "ensure 1", "remove 2", "record succeeded of 2")
}

func TestASuccessThatSomebodyElseRecordedAsFailedIsUndone(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	f.cluster.ensure = during(func() {
		v := f.records.last()
		_, err := f.records.store(v, v.Failure(failure(sandbox.ReasonDeadline), 1, time.Now()))
		require.NoError(t, err)
	})
	require.NoError(t, f.Reconcile(t.Context(), "a1", 2))
	requireEvents(t, f, "ensure 1", "record failed of 1, undoing", "conflict", "undo 1", "record failed of 1")
	require.Equal(t, sandbox.ReasonDeadline, f.records.outcome().Reason)
}

func TestAFailureThatSomebodyElseRecordedAsASuccessIsDropped(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	f.cluster.ensure = func(context.Context, sandbox.Lineage) error {
		v := f.records.last()
		_, err := f.records.store(v, v.Success(&sandbox.State{PodUID: "promised"}, 1, time.Now()))
		require.NoError(t, err)
		return failure(sandbox.ReasonQuota)
	}
	require.NoError(t, f.Reconcile(t.Context(), "a1", 2))
	requireEvents(t, f, "ensure 1", "record succeeded of 1", "conflict")
	require.Equal(t, "promised", f.records.outcome().Sandbox.PodUID)
}

func TestAMessageAboutAnIntentThatHasEnded(t *testing.T) {
	t.Parallel()
	finish := func(f *fixture) {
		require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
		f.lines = nil
	}
	for name, test := range map[string]struct {
		prepare func(*fixture)
		want    []string
	}{
		"a create that succeeded is left alone": {func(f *fixture) { f.records.create(); finish(f) }, nil},
		"a delete that succeeded removes again": {func(f *fixture) { f.records.delete(); finish(f) }, []string{"remove 1"}},
		"a create that failed is undone again": {func(f *fixture) {
			f.records.create()
			f.cluster.ensure = fails(failure(sandbox.ReasonQuota))
			finish(f)
		}, []string{"undo 1"}},
		"an undo that was not completed is completed": {func(f *fixture) {
			f.records.create()
			f.cluster.ensure = fails(failure(sandbox.ReasonQuota))
			f.cluster.undo = fails(retry(sandbox.ReasonServer, 0), nil)
			require.Error(t, f.Reconcile(t.Context(), "a1", 1))
			require.True(t, f.records.outcome().Undoing)
			f.lines = nil
		}, []string{"undo 1", "record failed of 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			test.prepare(f)
			require.NoError(t, f.Reconcile(t.Context(), "a1", 2))
			requireEvents(t, f, test.want...)
			require.False(t, f.records.outcome().Undoing)
		})
	}
}

func TestAnUndoThatDoesNotSucceedIsTriedAgainLater(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	f.cluster.ensure = fails(failure(sandbox.ReasonQuota))
	f.cluster.undo = fails(retry(sandbox.ReasonServer, 0))
	var again *sandbox.Retry
	require.ErrorAs(t, f.Reconcile(t.Context(), "a1", 1), &again)
	requireEvents(t, f, "ensure 1", "record failed of 1, undoing", "undo 1")
	require.True(t, f.records.outcome().Undoing)
}

func TestARemovalThatEndedIsTriedAgainWhenItFailsTheSecondTime(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.delete()
	f.cluster.remove = fails(nil, retry(sandbox.ReasonServer, 0))
	require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
	var again *sandbox.Retry
	require.ErrorAs(t, f.Reconcile(t.Context(), "a1", 2), &again)
}

func TestACreateIsGivenUpAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.records.create()
		f.cluster.ensure = fails(retry(sandbox.ReasonServer, 0))
		require.Error(t, f.Reconcile(t.Context(), "a1", 1))
		f.lines = nil
		time.Sleep(15*time.Minute - time.Since(f.records.last().Intent.AcceptedAt) - 1)
		require.Error(t, f.Reconcile(t.Context(), "a1", 40), "a moment before")
		require.NotEqual(t, jobs.Failed, f.records.outcome().State)
		f.lines = nil

		time.Sleep(time.Second)
		require.NoError(t, f.Reconcile(t.Context(), "a1", 41))
		requireEvents(t, f, "record failed of 1, undoing", "undo 1", "record failed of 1")
		o := f.records.outcome()
		require.Equal(t, sandbox.ReasonDeadline, o.Reason)
		require.Contains(t, o.Message, "not carried out by 2000-01-01T00:15:00Z")
		require.Contains(t, o.Message, "for now: ServerError", "it says what stood in the way")
		require.Equal(t, 41, o.Attempts)
	})
}

func TestADeleteIsNeverGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.records.delete()
		f.cluster.remove = fails(retry(sandbox.ReasonServer, time.Second), nil)
		require.Error(t, f.Reconcile(t.Context(), "a1", 1))
		time.Sleep(24 * time.Hour)
		require.NoError(t, f.Reconcile(t.Context(), "a1", 1000))
		require.Equal(t, jobs.Succeeded, f.records.outcome().State)
	})
}

func TestAMessageThatCannotBeReadIsAFailureForGood(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	f.records.garble()
	for range 2 {
		var unreadable *sandbox.Failure
		require.ErrorAs(t, f.Reconcile(t.Context(), "a1", 1), &unreadable)
		require.Equal(t, sandbox.ReasonMalformed, unreadable.Reason)
	}
	requireEvents(t, f, "record failed of 2, undoing", "undo 2", "record failed of 2", "undo 2")
	require.Equal(t, "not an intent", f.records.outcome().Message)

	f.records.create()
	require.NoError(t, f.Reconcile(t.Context(), "a1", 1), "life goes on after it")
}

func TestTroubleWithNATSEndsTheAttempt(t *testing.T) {
	t.Parallel()
	at := func(n int) func(*fixture) {
		return func(f *fixture) {
			f.records.afterLook = func(look int) error {
				if look == n {
					return jobs.ErrUnavailable
				}
				return nil
			}
		}
	}
	for name, test := range map[string]struct {
		fault func(*fixture)
		want  []string
	}{
		"at the first look":  {at(1), nil},
		"at the second look": {at(2), []string{"ensure 1"}},
		"at the record": {func(f *fixture) {
			f.records.beforeRecord = func(jobs.Outcome) error { return jobs.ErrUnavailable }
		}, []string{"ensure 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			f.records.create()
			test.fault(f)
			require.ErrorIs(t, f.Reconcile(t.Context(), "a1", 1), jobs.ErrUnavailable)
			requireEvents(t, f, test.want...)
		})
	}
}

func TestAFailureWhoseUndoneCannotBeRecordedComesAgain(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.create()
	f.cluster.ensure = fails(failure(sandbox.ReasonQuota))
	f.records.beforeRecord = func(o jobs.Outcome) error {
		if !o.Undoing {
			return jobs.ErrUnavailable
		}
		return nil
	}
	require.ErrorIs(t, f.Reconcile(t.Context(), "a1", 1), jobs.ErrUnavailable)
	f.records.beforeRecord = nil
	require.NoError(t, f.Reconcile(t.Context(), "a1", 2))
	require.False(t, f.records.outcome().Undoing)
}

func TestASlowAttemptIsRecordedAsRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.records.create()
		finish := make(chan struct{})
		f.cluster.ensure = func(context.Context, sandbox.Lineage) error { <-finish; return nil }
		done := make(chan error)
		go func() { done <- f.Reconcile(t.Context(), "a1", 4) }()

		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		require.Nil(t, f.records.outcome(), "most attempts are over by then")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, jobs.Running, f.records.outcome().State)
		require.Equal(t, 4, f.records.outcome().Attempts)

		close(finish)
		require.NoError(t, <-done)
		requireEvents(t, f, "ensure 1", "record running of 1", "record succeeded of 1")
	})
}

func TestASlowAttemptThatCannotBeNotedStillEndsWell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.records.create()
		f.cluster.ensure = func(context.Context, sandbox.Lineage) error { time.Sleep(2 * time.Second); return nil }
		f.records.beforeRecord = func(o jobs.Outcome) error {
			if o.State == jobs.Running {
				return jobs.ErrUnavailable
			}
			return nil
		}
		require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
		requireEvents(t, f, "ensure 1", "record succeeded of 1")
	})
}

func TestAnAttemptEndsWithItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.records.create()
		f.cluster.ensure = func(ctx context.Context, _ sandbox.Lineage) error {
			<-ctx.Done()
			return retry(sandbox.ReasonUnavailable, 0)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		require.Error(t, f.Reconcile(ctx, "a1", 1))
		require.Equal(t, 500*time.Millisecond, time.Since(start))
		requireEvents(t, f, "ensure 1") // and nothing is written afterwards
	})
}
