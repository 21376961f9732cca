package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Serve answers requests until ctx ends, says for as long as ShutdownDelay that it is leaving, and then lets running requests
// finish for as long as ShutdownWait.
func Serve(ctx context.Context, cfg Config, h http.Handler, log *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Addr)
	if err != nil {
		return fmt.Errorf("LISTEN_ADDR: %w", err)
	}
	server := &http.Server{
		Handler:           leaving(ctx, h),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second, // above the longest wait
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Info("serving", slog.String(logAddr, listener.Addr().String()))
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-time.After(cfg.ShutdownDelay):
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.ShutdownWait)
	defer cancel()
	if err := server.Shutdown(stopCtx); err != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// leaving sends clients elsewhere once ctx has ended: /readyz is 503, and an answer is the last one on its connection.
func leaving(ctx context.Context, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			w.Header().Set("Connection", "close")
			if r.URL.Path == "/readyz" {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = w.Write([]byte(`{"detail":"shutting down"}`))
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}
