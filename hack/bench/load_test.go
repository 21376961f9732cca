package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAClosedLoopNeverHasMoreRequestsThanClients(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	var mu sync.Mutex
	done := map[int]int{}
	p, err := closedLoop(t.Context(), 3, 50, func(_ context.Context, i int) error {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		mu.Lock()
		defer mu.Unlock()
		done[i]++
		return nil
	})
	require.NoError(t, err)
	require.Len(t, p.latencies, 50)
	require.LessOrEqual(t, most.Load(), int64(3))
	require.Len(t, done, 50, "each is carried out")
	for i, n := range done {
		require.Equal(t, 1, n, "%d is carried out once", i)
	}
}

func TestALoopEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fail := func(_ context.Context, i int) error {
		if i == 5 {
			return broken
		}
		return nil
	}
	_, err := closedLoop(t.Context(), 2, 1_000_000_000, fail)
	require.ErrorIs(t, err, broken)
	_, err = openLoop(t.Context(), 1000, time.Hour, fail)
	require.ErrorIs(t, err, broken)
}

func TestALoopEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	stop := func(_ context.Context, i int) error {
		if i == 5 {
			cancel()
		}
		return nil
	}
	_, err := closedLoop(ctx, 2, 1_000_000_000, stop)
	require.ErrorIs(t, err, context.Canceled)
	_, err = openLoop(ctx, 1000, time.Hour, stop)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAnOpenLoopDoesNotWaitForAnswers(t *testing.T) {
	t.Parallel()
	limit, cancelLimit := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancelLimit()
	ctx, cancel := context.WithCancel(limit)
	var waiting atomic.Int64
	_, err := openLoop(ctx, 1000, time.Hour, func(ctx context.Context, _ int) error {
		if waiting.Add(1) == 20 {
			cancel()
		}
		<-ctx.Done() // nobody gets an answer before that
		return ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.GreaterOrEqual(t, waiting.Load(), int64(20))
}
