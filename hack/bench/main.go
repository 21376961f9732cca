// Command bench measures the product against plain client-go, which writes the same Pods and Services to the same API server,
// and against bare JetStream publishes; contestants take turns within every round, so that all meet the same weather. A whole
// run writes docs/benchmarks.md: see make bench.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	main := run
	switch {
	case os.Getenv(natsDir) != "":
		main = serveNATS
	case os.Getenv(collectorAddr) != "":
		main = serveCollector
	}
	err := main(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		fmt.Fprintln(os.Stderr, "bench: stopped")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

const document = "docs/benchmarks.md"

func run(ctx context.Context) error {
	o, err := readOptions(os.LookupEnv)
	if err != nil {
		return err
	}
	p, err := newPlant(ctx)
	if err != nil {
		return err
	}
	defer p.stop()
	about, err := describe(ctx, p)
	if err != nil {
		return err
	}
	b := &bench{options: o, plant: p, progress: progress{Surroundings: about}}
	if o.whole() {
		if b.progress, err = loadProgress(progressFile, about, o.rounds, samePrograms); err != nil {
			return err
		}
	}
	err = b.run(ctx)
	page := b.progress.Surroundings.page(&b.results, o, b.progress.Commits)
	fmt.Print(page) // also of a run that was broken off
	if err != nil {
		return err
	}
	if o.whole() {
		if err := errors.Join(os.WriteFile(document, []byte(page), 0o644), os.Remove(progressFile)); err != nil {
			return err
		}
	}
	fmt.Println(lastLine(&b.results))
	return nil
}
