package outage_test

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/natsserver"
	"sandbox-provisioner/internal/testenv"
)

// A request that NATS has no room for is refused. What was accepted before is carried out all the same, and all goes on when
// there is room again.
func TestAFullDiskOfNATSIsSaidAndPasses(t *testing.T) {
	t.Parallel()
	server, err := natsserver.Start(natsserver.Config{
		DataDir: t.TempDir(), Listen: "127.0.0.1:0", MaxStore: 256 << 10,
	}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(server.Shutdown)
	url := server.ClientURL()
	d := testenv.Stack(t, testenv.NATSAt(url), testenv.ClusterIP(), testenv.Workers(2))
	c := d.Client()
	c.Create(t.Context(), "old").Want(t, http.StatusOK)
	d.StopWorkers()
	queued := names("queued", 5)
	queue(t, c, queued)

	nc, err := nats.Connect(url)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	fill(t, js)

	for _, r := range []testenv.Response{
		c.Create(t.Context(), "new"),
		c.Create(t.Context(), "new", testenv.Prefer("respond-async")),
		c.Delete(t.Context(), "old"),
	} {
		r.Want(t, http.StatusServiceUnavailable)
		require.NotEmpty(t, r.Header.Get("Retry-After"))
	}
	c.Get(t.Context(), "old").Want(t, http.StatusOK)
	d.StartWorkers()
	requireExactly(t, d, 20*time.Second, append(queued, "old")...)

	require.NoError(t, js.DeleteStream(t.Context(), "OTHER"))
	c.Create(t.Context(), "new").Want(t, http.StatusOK)
	c.Delete(t.Context(), "old").Want(t, http.StatusOK)
	// The outcomes that could not be kept are, now.
	for _, id := range queued {
		testenv.Until(t, 40*time.Second, func() error {
			if r := c.Job(t.Context(), id); r.Body.State != "succeeded" {
				return errors.New(r.String())
			}
			return nil
		})
	}
	requireExactly(t, d, time.Second, append(queued, "new")...)
}

// fill takes what is left of the disk with a stream that is not ours, down to the last bytes.
func fill(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}, Storage: jetstream.FileStorage})
	require.NoError(t, err)
	for size := 64 << 10; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = js.Publish(t.Context(), "other", make([]byte, size))
		}
		var full *jetstream.APIError
		require.ErrorAs(t, err, &full)
	}
}
