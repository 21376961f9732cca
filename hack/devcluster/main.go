// Command devcluster runs a local Kubernetes control plane with one simulated node, for development and tests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"sandbox-provisioner/hack/devcluster/internal/controlplane"
)

func main() {
	controlplane.Shim()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once; the kernel then takes the servers along.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintf(os.Stderr, "devcluster: %v (see devcluster --help)\n", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		os.Exit(1)
	}
}
