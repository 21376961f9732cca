package jobs

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

func TestTheLogIsToldOnceWhenTheConnectionComesAndGoes(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stop()
	log := &telemetrytest.Log{}
	nc, err := nats.Connect("nats://me:s3cret@"+b.ln.Addr().String(), ConnectOptions("test", slog.New(slog.NewTextHandler(log, nil)))...)
	require.NoError(t, err)
	defer nc.Close()
	wait := func(up, down int) {
		t.Helper()
		require.Eventually(t, func() bool {
			return log.Count("part answers") == up && log.Count("part does not answer") == down
		}, soon, 10*time.Millisecond, "wanted %d times up and %d times down: %s", up, down, log)
	}
	wait(0, 1)
	b.start()
	wait(1, 1)
	b.stop()
	wait(1, 2)
	require.Eventually(t, nc.IsReconnecting, soon, 10*time.Millisecond)
	b.start()
	wait(2, 2)
	require.Contains(t, log.String(), "part=NATS")
	require.NotContains(t, log.String(), "s3cret")
}

func TestAnErrorThatComesAgainIsToldOnce(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	report := reportErrors(slog.New(slog.NewTextHandler(&text, nil)))
	for _, err := range []string{"no right to publish", "no right to publish", "slow consumer", "no right to publish"} {
		report(nil, nil, errors.New(err))
	}
	require.Equal(t, 2, strings.Count(text.String(), "no right to publish"))
	require.Equal(t, 1, strings.Count(text.String(), "slow consumer"))
}
