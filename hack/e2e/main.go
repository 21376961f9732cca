// Command e2e installs the chart on a real Kubernetes node and does what an operator and a gateway do: see make e2e. Its last
// line is "e2e: N passed, M failed"; it exits with 1 if anything failed. It needs Linux and root.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	state := flag.String("state", "", "use the node that `node start --state FILE` runs, and do not start one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	var r report
	err := run(ctx, *state, &r)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		r.failed++
	}
	fmt.Printf("e2e: %d passed, %d failed\n", r.passed, r.failed)
	if r.failed > 0 {
		os.Exit(1)
	}
}
