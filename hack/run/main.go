// Command run starts the product on this machine, for somebody who wants to try it: see make run.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"sandbox-provisioner/hack/stack"
)

func main() {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	addr := os.Getenv("LISTEN_ADDR")
	if addr == "" {
		addr = "127.0.0.1:8002"
	}
	s, err := stack.Start(ctx, stack.Options{
		Kubeconfig: os.Getenv("KUBECONFIG"),
		Addr:       addr,
		Key:        os.Getenv("PROVISIONER_API_KEY"),
		Env:        overrides("NODE_HOST", "DATA_DIR", "METRICS_ADDR", "LOG_FORMAT"),
		Log:        os.Stderr,
		Progress:   os.Stderr,
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer s.Stop()
	fmt.Printf(banner, s.URL, s.Key, s.Kubeconfig)
	return s.Wait(ctx)
}

// overrides are the variables that the user has set himself.
func overrides(names ...string) []string {
	var env []string
	for _, name := range names {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

const banner = `
ready: %[1]s
  API key     %[2]s
  kubeconfig  %[3]s

  curl -sw '\n' -H 'X-API-Key: %[2]s' -d '{"sandbox_id":"demo"}' %[1]s/api/sandboxes
  curl -sw '\n' -H 'X-API-Key: %[2]s' %[1]s/api/sandboxes/demo
  curl -sw '\n' -H 'X-API-Key: %[2]s' -X DELETE %[1]s/api/sandboxes/demo

Ctrl-C stops everything.

`
