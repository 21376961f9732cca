// Package telemetry shows the operator what happens inside: metrics, and whether the process lives and is ready.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sandbox-provisioner/internal/version"
)

// A Check is a part that must answer before this process is ready.
type Check struct {
	Name string
	Ping func(context.Context) error
}

// checkTimeout bounds all checks together.
const checkTimeout = 3 * time.Second

// Down asks all checks at once, for at most three seconds, and returns what is down, one text a part.
func Down(ctx context.Context, checks []Check) []string {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	errs := make([]error, len(checks))
	done := make(chan struct{})
	for i, check := range checks {
		go func() {
			errs[i] = check.Ping(ctx)
			done <- struct{}{}
		}()
	}
	for range checks {
		<-done
	}
	var down []string
	for i, err := range errs {
		if err != nil {
			down = append(down, checks[i].Name+": "+err.Error())
		}
	}
	return down
}

// Serve answers /metrics, /livez and /readyz on addr until ctx ends.
func Serve(ctx context.Context, addr string, metrics prometheus.Gatherer, log *slog.Logger, checks ...Check) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if down := Down(r.Context(), checks); len(down) > 0 {
			http.Error(w, strings.Join(down, "\n"), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return serve(ctx, "METRICS_ADDR", addr, mux, func(at slog.Attr) { log.Info("serving metrics", at) })
}

// serve answers with h on addr, the value of setting, until ctx ends. tell is told where it listens.
func serve(ctx context.Context, setting, addr string, h http.Handler, tell func(at slog.Attr)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("%s: %w", setting, err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(stopped)
		_ = server.Close()
	})()
	tell(slog.String(keyAddr, listener.Addr().String()))
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", setting, err)
	}
	<-stopped
	return nil
}

// NewRegistry returns the registry of one program. It knows the build, the Go runtime and the process; each part of the program
// adds its own.
func NewRegistry() *prometheus.Registry {
	info := version.Get()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "sandbox_provisioner_build_info",
		Help:        "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": info.Version, "commit": info.Commit},
	})
	build.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)
	return r
}
