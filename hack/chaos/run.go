package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"sandbox-provisioner/hack/stack"
)

// run is one run; ok is false when a promise was broken.
func run(ctx context.Context) (ok bool, err error) {
	o, err := readOptions()
	if err != nil {
		return false, err
	}
	fmt.Printf("chaos: seed %d, %s; the same with SEED=%d\n", o.seed, o.length, o.seed)
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		return false, err
	}
	defer func() {
		switch {
		case ok, ctx.Err() != nil:
			_ = os.RemoveAll(dir)
		case err != nil:
			err = fmt.Errorf("%w; logs are kept in %s", err, dir)
		}
	}()
	progress := &valve{to: os.Stderr}
	cluster, err := stack.StartCluster(ctx, stack.Options{Progress: progress, Log: io.Discard})
	if err != nil {
		return false, err
	}
	defer cluster.Stop()
	progress.shut() // from here on the simulated node has much to complain about
	p, err := newPlant(ctx, cluster, dir, o)
	if err != nil {
		return false, err
	}
	defer p.stop()
	b, err := newBook(p.natsURL)
	if err != nil {
		return false, err
	}
	defer b.nc.Close()

	p.residents("at the start")
	torment(ctx, p, b, o)
	if ctx.Err() != nil {
		return false, errors.New("interrupted")
	}
	fmt.Println("chaos: all faults have ended, waiting until all is quiet")
	if err := p.awaitReady(ctx); err != nil {
		return false, err
	}
	if err := judge(ctx, p, b); err != nil {
		return false, err
	}
	p.residents("at the end")
	return summary(p, b, dir), nil
}

// torment lets clients ask and bad things happen for as long as the options say. When it returns, all faults have ended and all
// requests have been answered.
func torment(ctx context.Context, p *plant, b *book, o options) {
	ctx, cancel := context.WithTimeout(ctx, o.length)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	for n := range clients {
		all.Go(func() { newClient(p, b, o, n).work(ctx) })
	}
	for n, l := range p.lanes() {
		all.Go(func() { l.run(ctx, o.stream(faultStream+n)) })
	}
	const every = 5 * time.Second
	middle := (o.length / 2).Truncate(every)
	for at := every; at < o.length; at += every {
		pause(ctx, every)
		if ctx.Err() != nil {
			return
		}
		fmt.Printf("chaos: %4.0f s, %6d operations; creates and deletes: %d carried out, %d accepted, %d refused, %d without a clear answer; %d faults, %d kills\n",
			at.Seconds(), b.ops.Load(), b.classes[fulfilled].Load(), b.classes[accepted].Load(), b.classes[refused].Load(),
			b.classes[unsure].Load(), p.faults.Load(), p.kills.Load())
		if at == middle {
			p.residents("half-way")
		}
	}
}

// summary prints what counts.
func summary(p *plant, b *book, dir string) (ok bool) {
	ok = !b.broken()
	for _, text := range p.crashes() {
		ok = false
		fmt.Println("VIOLATION a program has crashed:", text)
	}
	if n := b.breaches[untrue].Load(); n > 0 {
		fmt.Printf("chaos: untrue=%d\n", n)
	}
	if !ok {
		fmt.Println("chaos: logs are kept in", dir)
	}
	fmt.Printf("chaos: ops=%d kills=%d", b.ops.Load(), p.kills.Load())
	for _, kind := range []breach{lost, resurrected, killedByFriend, duplicated, orphaned} {
		fmt.Printf(" %s=%d", kind, b.breaches[kind].Load())
	}
	fmt.Println()
	return ok
}

// A valve passes on what is written to it until it is shut.
type valve struct {
	mu sync.Mutex
	to io.Writer
}

func (v *valve) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.to == nil {
		return len(p), nil
	}
	return v.to.Write(p)
}

func (v *valve) shut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.to = nil
}
