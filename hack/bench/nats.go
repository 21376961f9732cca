package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"sandbox-provisioner/internal/natsserver"
)

// The program is its own NATS server when these are set, so that the processor time of NATS can be told from ours.
const (
	natsDir   = "BENCH_NATS_DIR"
	natsAddr  = "BENCH_NATS_ADDR"
	natsReady = "BENCH_NATS_READY" // where it answers over HTTP once it is up
)

// serveNATS syncs every write, as the product does wherever it configures NATS.
func serveNATS(ctx context.Context) error {
	server, err := natsserver.Start(natsserver.Config{
		DataDir: os.Getenv(natsDir), Listen: os.Getenv(natsAddr), SyncAlways: true,
	}, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	defer server.Shutdown()
	listener, err := net.Listen("tcp", os.Getenv(natsReady))
	if err != nil {
		return err
	}
	up := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Second}
	defer up.Close()
	go func() { _ = up.Serve(listener) }()
	<-ctx.Done()
	return nil
}
