package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
)

// A shelf is what exists of a1: the generations of its Pod and of its Service, 0 for one that is not there.
type shelf struct {
	pod, service uint64
	lists        int
	// afterList runs when the list has been made.
	afterList func()
	err       error
}

func (s *shelf) List(context.Context) ([]k8s.Sighting, error) {
	s.lists++
	seen, err := s.Get(context.Background(), "a1")
	if s.afterList != nil {
		s.afterList()
	}
	if !seen.Pod && !seen.Service {
		return nil, err
	}
	return []k8s.Sighting{seen}, err
}

func (s *shelf) Get(context.Context, string) (k8s.Sighting, error) {
	by := func(seq uint64) sandbox.Generation {
		if seq == 0 {
			return sandbox.Generation{}
		}
		return sandbox.Generation{Stream: stream, Seq: seq}
	}
	return k8s.Sighting{
		State: sandbox.State{ID: "a1"}, Pod: s.pod != 0, Service: s.service != 0,
		PodGeneration: by(s.pod), ServiceGeneration: by(s.service),
	}, s.err
}

const grace = time.Minute

func (f *fixture) sweep(s *shelf) *Sweep {
	return NewSweep(f.records, s, f.Reconciler, jobs.Config{AckWait: 15 * time.Second, Deadline: time.Hour},
		Config{SweepInterval: 2 * time.Minute, OrphanGrace: grace}, f.metrics, quiet())
}

// finish has the last intent carried out, and forgets how.
func (f *fixture) finish(t *testing.T) {
	t.Helper()
	require.NoError(t, f.Reconcile(t.Context(), "a1", 1))
	f.lines = nil
}

func TestWhatASweepFindsOwed(t *testing.T) {
	t.Parallel()
	created := func(t *testing.T, f *fixture) { f.records.create(); f.finish(t) }
	deleted := func(t *testing.T, f *fixture) { created(t, f); f.records.delete(); f.finish(t) }
	recreated := func(t *testing.T, f *fixture) { deleted(t, f); f.records.create(); f.finish(t) }
	failed := func(t *testing.T, f *fixture) {
		deleted(t, f)
		f.records.create()
		f.cluster.ensure = fails(failure(sandbox.ReasonQuota))
		f.finish(t)
		f.cluster.ensure = nil
	}
	for name, test := range map[string]struct {
		prepare func(*testing.T, *fixture)
		exists  shelf
		after   time.Duration // between two sweeps; the second one counts
		want    []string
	}{
		"nothing for a sandbox that is whole":             {created, shelf{pod: 1, service: 1}, grace, nil},
		"nothing for one of nobody's making":              {func(*testing.T, *fixture) {}, shelf{pod: 9, service: 9}, grace, nil},
		"nothing for a half that is young":                {created, shelf{service: 1}, grace - 1, nil},
		"a removal for a Service without a Pod":           {created, shelf{service: 1}, grace, []string{"publish absent"}},
		"a creation, for a promised Pod without Service":  {created, shelf{pod: 1}, grace, []string{"publish present"}},
		"a removal for a half of nobody's making":         {func(*testing.T, *fixture) {}, shelf{pod: 9}, grace, []string{"publish absent"}},
		"the deletion, for what came after it":            {deleted, shelf{pod: 1}, 0, []string{"remove 2", "remove 2"}},
		"a creation, for what is behind the fence":        {recreated, shelf{pod: 1, service: 3}, 0, []string{"publish present"}},
		"nothing for the life after the deletion":         {recreated, shelf{pod: 3, service: 3}, grace, nil},
		"the undoing, for what a failed create has left":  {failed, shelf{pod: 3, service: 3}, 0, []string{"undo 3", "undo 3"}},
		"the undoing, for what was to be deleted before":  {failed, shelf{pod: 1, service: 1}, 0, []string{"undo 3", "undo 3"}},
		"nothing for a create that is young":              {func(_ *testing.T, f *fixture) { f.records.create() }, shelf{pod: 1}, grace - 1, nil},
		"the create itself, when its message may be lost": {func(_ *testing.T, f *fixture) { f.records.create() }, shelf{pod: 1}, 61 * time.Second, []string{"ensure 1", "record succeeded of 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				test.prepare(t, f)
				s := f.sweep(&test.exists)
				require.NoError(t, s.Once(t.Context()))
				if test.after > 0 {
					time.Sleep(test.after)
				}
				require.NoError(t, s.Once(t.Context()))
				require.Equal(t, test.want, f.read())
			})
		})
	}
}

// A list takes its time. A removal because of what it did not show would take what has been promised since.
func TestASweepLeavesAloneWhatWasMadeWhileItListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.records.create()
		f.finish(t)
		exists := &shelf{service: 1} // its Pod was evicted
		s := f.sweep(exists)
		require.NoError(t, s.Once(t.Context()))
		time.Sleep(grace)
		exists.afterList = func() {
			f.records.create()
			f.finish(t)
			exists.pod = 2
		}
		require.NoError(t, s.Once(t.Context()))
		requireEvents(t, f)
	})
}

// And what is made after the sweep has looked needs an intent, which makes that of the sweep come too late.
func TestASweepIsOvertakenByWhoeverAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.records.create()
		f.finish(t)
		exists := &shelf{service: 1}
		s := f.sweep(exists)
		require.NoError(t, s.Once(t.Context()))
		time.Sleep(grace)
		s.inventory = &late{shelf: exists, before: func() { f.records.create() }}
		require.NoError(t, s.Once(t.Context()))
		requireEvents(t, f)
		require.Equal(t, jobs.Present, f.records.last().Intent.Op)
	})
}

// late is a shelf on which something happens when it is looked at the second time.
type late struct {
	*shelf
	before func()
}

func (l *late) Get(ctx context.Context, id string) (k8s.Sighting, error) {
	l.before()
	return l.shelf.Get(ctx, id)
}

func TestASweepThatCannotReadDoesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.records.delete()
	f.finish(t)
	exists := &shelf{err: errors.New("connection refused")}
	require.Error(t, f.sweep(exists).Once(t.Context()))
	requireEvents(t, f)

	f.records.afterLook = func(int) error { return jobs.ErrUnavailable }
	require.ErrorIs(t, f.sweep(&shelf{pod: 1}).Once(t.Context()), jobs.ErrUnavailable)
	requireEvents(t, f)
}

func TestSweepsComeNowAndThenAndEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		exists := &shelf{}
		s := f.sweep(exists)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		s.Run(ctx)
		require.Equal(t, time.Hour, time.Since(start))
		require.InDelta(t, 30, exists.lists, 12, "every two minutes, give or take one")

		s.cfg.SweepInterval = 0
		s.Run(t.Context()) // it is switched off
	})
}
