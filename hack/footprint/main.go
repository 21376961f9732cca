// Command footprint measures what the programs cost when they have nothing to do: time from start to ready, and resident
// memory. It prints the table of docs/footprint.md.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"sandbox-provisioner/hack/stack"
	"sandbox-provisioner/internal/natsserver"
)

const rounds = 5

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "footprint:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	build := exec.CommandContext(ctx, "make", "build")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	addr, err := stack.FreeAddr()
	if err != nil {
		return err
	}
	s, err := stack.Start(ctx, stack.Options{Addr: addr, Log: io.Discard, Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer s.Stop()
	dir, err := os.MkdirTemp("", "footprint-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	nats, err := natsserver.Start(natsserver.Config{DataDir: dir + "/nats", SyncAlways: true, Listen: "127.0.0.1:0"},
		slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer nats.Shutdown()

	fmt.Printf("| program | start to ready, ms | resident, MB |\n|---|---|---|\n")
	for _, program := range []string{"api", "worker", "standalone"} {
		var ready, resident []float64
		for round := range rounds {
			r, m, err := measure(ctx, s, program, nats.ClientURL(), fmt.Sprintf("%s/%s-%d", dir, program, round))
			if err != nil {
				return err
			}
			ready, resident = append(ready, r), append(resident, m)
		}
		fmt.Printf("| %s | %s | %s |\n", program, spread(ready), spread(resident))
	}
	return nil
}

// measure starts a program and looks at it after a while of idleness.
func measure(ctx context.Context, s *stack.Stack, program, nats, dataDir string) (ready, resident float64, err error) {
	listen, err := stack.FreeAddr()
	if err != nil {
		return 0, 0, err
	}
	metrics, err := stack.FreeAddr()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	pid, err := s.Run(ctx, io.Discard, []string{
		"LISTEN_ADDR=" + listen, "METRICS_ADDR=" + metrics, "PROVISIONER_API_KEY=k", "KUBECONFIG_PATH=" + s.Kubeconfig,
		"NATS_URL=" + nats, "DATA_DIR=" + dataDir,
	}, program, "http://"+metrics+"/readyz")
	if err != nil {
		return 0, 0, err
	}
	ready = float64(time.Since(start).Milliseconds())
	time.Sleep(3 * time.Second)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kb float64
	_, err = fmt.Sscan(rest, &kb)
	return ready, kb / 1024, err
}

// spread is the median, with the smallest and the largest.
func spread(v []float64) string {
	slices.Sort(v)
	return fmt.Sprintf("%.0f (%.0f–%.0f)", v[len(v)/2], v[0], v[len(v)-1])
}
