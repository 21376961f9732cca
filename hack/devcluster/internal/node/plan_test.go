package node

import (
	"testing"
	"time"
)

func TestACrashingContainerIsRestartedAtOnceFirstAndThenAfterGrowingBackOffs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		elapsed   time.Duration
		restarts  int32
		inBackOff bool
	}{
		{0, 0, false},
		{crashRun, 1, false},
		{2 * crashRun, 1, true},
		{2*crashRun + crashBackOff, 2, false},
		{3*crashRun + crashBackOff, 2, true},
		{3*crashRun + 3*crashBackOff - 1, 2, true},
		{3*crashRun + 3*crashBackOff, 3, false},
	} {
		restarts, inBackOff, left := crashes(c.elapsed)
		if restarts != c.restarts || inBackOff != c.inBackOff || left <= 0 {
			t.Errorf("after %s: wanted %d restarts, back-off %t and time left, got %d, %t, %s",
				c.elapsed, c.restarts, c.inBackOff, restarts, inBackOff, left)
		}
	}
}

func TestABackOffNeverGrowsBeyondItsLimit(t *testing.T) {
	t.Parallel()
	if _, inBackOff, left := crashes(time.Hour); inBackOff && left > maxCrashBackOff {
		t.Errorf("wanted at most %s left of a crash back-off, got %s", maxCrashBackOff, left)
	}
	asIs := func(realistic string) string { return realistic }
	if _, left := pullFails("image", asIs, time.Hour, false); left > maxPullBackOff {
		t.Errorf("wanted at most %s left of a pull back-off, got %s", maxPullBackOff, left)
	}
}
