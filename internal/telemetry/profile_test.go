package telemetry_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/telemetry"
)

func TestNoProfilesAreServedWithoutAnAddress(t *testing.T) {
	t.Parallel()
	require.NoError(t, telemetry.ServeProfiles(t.Context(), "", slog.New(slog.DiscardHandler)))
}

func TestProfilesWithoutAHostAreServedOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, l.Close())

	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	lines := make(chan string, 1)
	go func() {
		served <- telemetry.ServeProfiles(ctx, ":"+port, slog.New(addrHandler{slog.DiscardHandler, lines}))
	}()
	select {
	case addr := <-lines:
		require.Equal(t, "127.0.0.1:"+port, addr)
	case err := <-served:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("nothing is served")
	}
	res, err := http.Get("http://127.0.0.1:" + port + "/debug/pprof/goroutine?debug=1")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
	cancel()
	require.NoError(t, <-served)
}

// addrHandler tells the addresses that are logged.
type addrHandler struct {
	slog.Handler
	addrs chan<- string
}

func (h addrHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h addrHandler) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "addr" {
			h.addrs <- a.Value.String()
		}
		return true
	})
	return nil
}
