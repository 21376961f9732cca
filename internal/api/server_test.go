package api

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAServerThatLeavesStillServesAndSendsClientsElsewhere(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	go func() {
		served <- Serve(ctx, Config{Addr: addr, ShutdownDelay: 5 * time.Second, ShutdownWait: time.Second}, h, slog.New(slog.DiscardHandler))
	}()
	c := &http.Client{Transport: &http.Transport{}}
	ask := func(path string) (code int, last bool, err error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
		require.NoError(t, err)
		res, err := c.Do(req)
		if err != nil {
			return 0, false, err
		}
		defer func() { _ = res.Body.Close() }()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode, res.Close, nil
	}
	require.Eventually(t, func() bool { code, _, _ := ask("/readyz"); return code == http.StatusOK }, 5*time.Second, 5*time.Millisecond)

	stop()
	code, last, err := ask("/api/sandboxes")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code)
	require.True(t, last, "the next request goes to somebody else")
	code, _, err = ask("/readyz")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, code)

	require.NoError(t, <-served)
	_, _, err = ask("/livez")
	require.Error(t, err, "it has left")
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
