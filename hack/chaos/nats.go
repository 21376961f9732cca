package main

import (
	"context"
	"log/slog"
	"os"

	"sandbox-provisioner/internal/natsserver"
)

// The program is its own NATS server when these are set, so that NATS can be killed without us.
const (
	natsDir  = "CHAOS_NATS_DIR"
	natsAddr = "CHAOS_NATS_ADDR"
)

func serveNATS(ctx context.Context) error {
	server, err := natsserver.Start(natsserver.Config{
		DataDir: os.Getenv(natsDir), Listen: os.Getenv(natsAddr), SyncAlways: true,
	}, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	defer server.Shutdown()
	<-ctx.Done()
	return nil
}
