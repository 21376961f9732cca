// Command chaos runs the product as processes on a real API server and a real NATS, under load, and kills, freezes and cuts off
// everything there is. Then it ends all faults, waits until all is quiet, and holds what is in the cluster against what the
// clients were told: see make chaos.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if os.Getenv(natsDir) != "" {
		if err := serveNATS(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "nats:", err)
			os.Exit(1)
		}
		return
	}
	ok, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}
