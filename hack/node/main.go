// Command node runs a real Kubernetes cluster of one node on this machine, in namespaces of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once; the kernel then takes the node along.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintf(os.Stderr, "node: %v (see node --help)\n", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}
