package telemetry

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
)

// ServeProfiles answers Go's profiles below /debug/pprof/ on addr until ctx ends; with an empty addr it does nothing. It is not
// part of Serve: a profile tells more than a metric, and costs more. An addr without a host is one of the loopback interface.
func ServeProfiles(ctx context.Context, addr string, log *slog.Logger) error {
	if addr == "" {
		return nil
	}
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "" {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	return serve(ctx, "PPROF_ADDR", addr, mux, func(at slog.Attr) { log.Info("serving profiles", at) })
}
