package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDelaysGrowUpToTheirLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := time.Duration(rapid.Int64Range(1000, int64(time.Hour)).Draw(t, "limit"))
		attempt := rapid.IntRange(1, 1<<30).Draw(t, "attempt")
		d := delay(attempt, limit)
		require.Positive(t, d)
		require.LessOrEqual(t, d, limit)
		require.GreaterOrEqual(t, d, time.Duration(float64(min(firstDelay, limit))/2))
	})
}

func TestADelayIsAboutHalfOfWhatHasBeenWaited(t *testing.T) {
	t.Parallel()
	for range 100 {
		waited := time.Duration(0)
		for attempt := 1; attempt <= 20; attempt++ {
			d := delay(attempt, time.Hour)
			if attempt == 1 {
				require.InDelta(t, 100*time.Millisecond, d, float64(20*time.Millisecond))
			}
			if attempt > 10 {
				require.InDelta(t, 0.5, float64(d)/float64(waited), 0.26, "attempt %d waits %s after %s", attempt, d, waited)
			}
			waited += d
		}
	}
}

// Jobs that failed together must not come back together.
func TestDelaysAreSpread(t *testing.T) {
	t.Parallel()
	for _, attempt := range []int{1, 5, 100} {
		shortest, longest := time.Hour, time.Duration(0)
		for range 1000 {
			d := delay(attempt, 30*time.Second)
			shortest, longest = min(shortest, d), max(longest, d)
		}
		require.Less(t, float64(shortest)/float64(longest), 0.9, "attempt %d", attempt)
	}
}

func TestAJobIsNeverForgotten(t *testing.T) {
	t.Parallel()
	require.Positive(t, delay(0, 30*time.Second))
	require.LessOrEqual(t, delay(1<<30, 30*time.Second), 30*time.Second)
}
