// Command chaos runs the product as processes on a real API server and a real NATS, under load, and kills, freezes and cuts off
// everything there is. Then it heals all faults, waits until all is quiet, and holds what is in the cluster against what the
// clients were told: see make chaos. SEED replays the schedule of faults and the choices of the clients.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"sandbox-provisioner/hack/stack"
	"sandbox-provisioner/internal/natsserver"
)

const (
	apis    = 2
	workers = 3
	ids     = 300
	clients = 12
	ackWait = 3 * time.Second
)

func main() {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	if dir := os.Getenv(natsDir); dir != "" {
		serveNATS(ctx, dir, os.Getenv(natsAddr))
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

// The program is its own NATS server when these are set.
const (
	natsDir  = "CHAOS_NATS_DIR"
	natsAddr = "CHAOS_NATS_ADDR"
)

func serveNATS(ctx context.Context, dir, addr string) {
	server, err := natsserver.Start(natsserver.Config{DataDir: dir, SyncAlways: true, Listen: addr}, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Fprintln(os.Stderr, "nats:", err)
		os.Exit(1)
	}
	defer server.Shutdown()
	<-ctx.Done()
}

// number is a variable of the environment.
func number(name string, preset uint64) (uint64, error) {
	value := os.Getenv(name)
	if value == "" {
		return preset, nil
	}
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s=%q: must be a whole number", name, value)
	}
	return n, nil
}

func run(ctx context.Context) (ok bool, err error) {
	seconds, err := number("CHAOS_SECONDS", 60)
	if err != nil {
		return false, err
	}
	seed, err := number("SEED", rand.Uint64()>>32)
	if err != nil {
		return false, err
	}
	fmt.Printf("chaos: seed %d, %d s\n", seed, seconds)

	cluster, err := stack.StartCluster(ctx, stack.Options{Progress: os.Stderr, Log: io.Discard, Key: "chaos"})
	if err != nil {
		return false, err
	}
	defer cluster.Stop()
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		return false, err
	}
	p, err := newPlant(ctx, cluster, dir)
	if err != nil {
		return false, err
	}
	defer func() {
		p.stop()
		if ok {
			_ = os.RemoveAll(dir)
		} else {
			fmt.Fprintln(os.Stderr, "chaos: logs are kept in", dir)
		}
	}()

	load, stopLoad := context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
	defer stopLoad()
	h := newHistory()
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() { newClient(p, h, seed, n).work(load) })
	}
	all.Go(func() { p.torment(load, rand.New(rand.NewPCG(seed, 0))) })
	all.Go(func() { progress(load, p, h) })
	all.Wait()
	if ctx.Err() != nil {
		return false, errors.New("interrupted")
	}
	fmt.Println("chaos: healing, and waiting until all is quiet")
	if err := p.heal(ctx); err != nil {
		return false, err
	}
	v, err := judge(ctx, p, h)
	if err != nil {
		return false, err
	}
	p.residents("at the end")
	fmt.Printf("chaos: ops=%d kills=%d lost=%d resurrected=%d killed_by_friend=%d duplicated=%d orphaned=%d\n",
		h.ops.Load(), p.kills.Load(), v.lost, v.resurrected, h.friendly.Load(), v.duplicated, v.orphaned)
	return v == verdict{} && h.friendly.Load() == 0, nil
}

func progress(ctx context.Context, p *plant, h *history) {
	p.residents("at the start")
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		fmt.Printf("chaos: %4d s, %6d operations, %3d faults\n", n*5, h.ops.Load(), p.kills.Load())
		if n%12 == 0 {
			p.residents("so far")
		}
	}
}

// logFile is where a process logs.
func logFile(dir, name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}
