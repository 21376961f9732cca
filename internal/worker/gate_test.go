package worker

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

func TestAnOpenGateAsksNobody(t *testing.T) {
	t.Parallel()
	g := newGate(func(context.Context) error { return errors.New("asked") }, quiet())
	require.NoError(t, g.wait(t.Context()))
}

func TestAClosedGateAsksNowAndThenAndOpensAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const outage = 10 * time.Minute
		start, asked := time.Now(), 0
		g := newGate(func(context.Context) error {
			asked++
			if time.Since(start) < outage {
				return errors.New("connection refused")
			}
			return nil
		}, quiet())
		g.shut(errors.New("connection refused"))
		require.NoError(t, g.wait(t.Context()))
		require.Less(t, asked, int(2*outage.Seconds()), "fewer than two times a second")
		require.Greater(t, asked, int(outage.Seconds()/8))
		require.WithinRange(t, time.Now(), start.Add(outage), start.Add(outage+8*time.Second))

		asked = 0
		require.NoError(t, g.wait(t.Context()))
		require.Zero(t, asked, "it stays open")
	})
}

func TestAGateThatIsShutForNothingOpensAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(func(context.Context) error { return nil }, quiet())
		g.shut(errors.New("one request timed out"))
		start := time.Now()
		require.NoError(t, g.wait(t.Context()))
		require.Zero(t, time.Since(start))
	})
}

func TestTheLogIsToldOnceThatJobsCannotBeFetched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &telemetrytest.Log{}
		g := newGate(nil, slog.New(slog.NewTextHandler(log, nil)))
		g.fetched()
		require.Empty(t, log.String(), "that jobs are fetched is nothing new")
		for range 100 {
			g.pause(t.Context(), errors.New("NATS is not available"))
		}
		require.Equal(t, 1, log.Count("jobs cannot be fetched"))
		g.fetched()
		g.fetched()
		require.Equal(t, 1, log.Count("jobs are fetched again"))
		g.pause(t.Context(), errors.New("NATS is not available"))
		require.Equal(t, 2, log.Count("jobs cannot be fetched"))
	})
}

func TestNobodyWaitsAtAGateAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := newGate(func(ctx context.Context) error { return errors.New("connection refused") }, quiet())
		g.shut(errors.New("connection refused"))
		time.AfterFunc(3*time.Second, cancel)
		start := time.Now()
		require.Error(t, g.wait(ctx))
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Error(t, newGate(nil, quiet()).wait(ctx), "an open one is closed too")
	})
}
