package cli

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/config"
)

func TestHealthcheckSaysInOneLineWhatTheProgramAnswers(t *testing.T) {
	t.Parallel()
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/livez":
			fmt.Fprintln(w, "ok")
		case "/readyz":
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"detail":"NATS: no answer; Kubernetes: refused"}`)
		}
	})
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		args           []string
		listen         string
		code           int
		stdout, stderr string
	}{
		"alive": {
			listen: addr, code: ExitOK, stdout: "api: /livez at " + addr + " is ok\n",
		},
		"not ready": {
			args: []string{"--ready"}, listen: addr, code: ExitFailure,
			stderr: "api: /readyz at " + addr + " answers 503: NATS: no answer; Kubernetes: refused\n",
		},
		"listening everywhere": {
			listen: "0.0.0.0:" + port, code: ExitOK, stdout: "api: /livez at 0.0.0.0:" + port + " is ok\n",
		},
		"listening everywhere, without saying so": {
			listen: ":" + port, code: ExitOK, stdout: "api: /livez at :" + port + " is ok\n",
		},
		"not running": {
			listen: "127.0.0.1:1", code: ExitFailure,
			stderr: "api: /livez at 127.0.0.1:1 does not answer: dial tcp 127.0.0.1:1: connect: connection refused\n",
		},
		"wrong settings": {
			listen: "8002", code: ExitFailure,
			stderr: "api: LISTEN_ADDR=\"8002\": must be host:port or :port, with a port of 1 to 65535\n",
		},
		"an unknown flag": {
			args: []string{"--live"}, listen: addr, code: ExitUsage,
			stderr: "api: flag provided but not defined: -live; see api --help\n",
		},
		"an argument": {
			args: []string{"ready"}, listen: addr, code: ExitUsage,
			stderr: "api: unexpected argument \"ready\"; see api --help\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := start(append([]string{"healthcheck"}, test.args...), map[string]string{"LISTEN_ADDR": test.listen}, nil)
			require.Equal(t, test.stdout, stdout)
			require.Equal(t, test.stderr, stderr)
			require.Equal(t, test.code, code)
		})
	}
}

func TestHealthcheckOfAWorkerAsksWhereItsMetricsAre(t *testing.T) {
	t.Parallel()
	addr := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "NATS: no answer\nKubernetes: refused", http.StatusServiceUnavailable)
	})
	var stderr bytes.Buffer
	worker := Program[config.Worker]{Name: "worker", Run: func(context.Context, config.Worker, *slog.Logger) error { panic("it must not run") }}
	code := worker.Main(Process{
		Args: []string{"healthcheck", "--ready"},
		Lookup: func(name string) (string, bool) {
			return addr, name == "METRICS_ADDR"
		},
		Stdout: os.Stdout,
		Stderr: &stderr,
	})
	require.Equal(t, ExitFailure, code)
	require.Equal(t, "worker: /readyz at "+addr+" answers 503: NATS: no answer; Kubernetes: refused\n", stderr.String())
}

func TestHealthcheckOfAProgramThatHangsEnds(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	addr := serve(t, func(http.ResponseWriter, *http.Request) { <-ended })
	defer close(ended)
	begin := time.Now()
	code, _, stderr := start([]string{"healthcheck"}, map[string]string{"LISTEN_ADDR": addr}, nil)
	require.Equal(t, ExitFailure, code)
	require.Equal(t, "api: /livez at "+addr+" does not answer within 4s\n", stderr)
	require.Less(t, time.Since(begin), 2*healthcheckTimeout)
}

func serve(t *testing.T, handler http.HandlerFunc) (addr string) {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
