package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/sandbox"
)

func TestAllSlotsThatAreFreeAreTakenTogether(t *testing.T) {
	t.Parallel()
	s := newSlots(8)
	free, err := s.acquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, 8, free)
	s.release(3)
	free, err = s.acquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, free)
}

func TestWhoeverWaitsForASlotGetsTheNextOneOrGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		_, err := s.acquire(t.Context())
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { s.release(1) })
		start := time.Now()
		free, err := s.acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, free)
		require.Equal(t, time.Second, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestSlotsFollowWhatTheClusterTakes(t *testing.T) {
	t.Parallel()
	s := newSlots(8)
	limits := func(n int, change func()) (seen []int) {
		for range n {
			change()
			seen = append(seen, s.limit)
		}
		return seen
	}
	require.Equal(t, []int{8}, limits(1, s.grow), "never more than there are")
	require.Equal(t, []int{4, 2, 1, 1}, limits(4, s.shrink), "never none")
	require.Equal(t, []int{2, 3, 4}, limits(3, s.grow))
}

// A cluster that answers the later the more it is asked: with all slots in use, none is answered in time. Without the adaption
// every job would be tried again for ever.
func TestAWorkerComesOutOfACollapseThatItsOwnLoadKeepsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const jobs, each, timeout = 500, 100 * time.Millisecond, 2 * time.Second
		var asking atomic.Int64
		try := func() error {
			took := time.Duration(asking.Add(1)) * each
			defer asking.Add(-1)
			time.Sleep(min(took, timeout))
			if took > timeout {
				return retry(sandbox.ReasonUnavailable, 0)
			}
			return nil
		}
		s := newSlots(64)
		var running sync.WaitGroup
		var done atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		for done.Load() < jobs {
			free, err := s.acquire(ctx)
			require.NoError(t, err, "%d of %d jobs are done", done.Load(), jobs)
			for range free {
				running.Go(func() {
					defer s.release(1)
					if try() != nil {
						s.shrink()
						return
					}
					s.grow()
					done.Add(1)
				})
			}
		}
		running.Wait()
	})
}
