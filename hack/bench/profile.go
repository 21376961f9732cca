package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

const (
	profileDir     = "bin/profiles"
	profileSeconds = 10
	// profileRequests are more than any of the loads can send meanwhile.
	profileRequests = 10_000 * profileSeconds
)

// profile takes profiles of every program under three loads, for go tool pprof.
func (b *bench) profile(ctx context.Context) error {
	if err := os.MkdirAll(profileDir, 0o755); err != nil {
		return err
	}
	standalone, err := b.plant.standalone(ctx, "bench-standalone")
	if err != nil {
		return err
	}
	split, err := b.plant.split(ctx, "bench-split-1", "api + 1 worker", 1)
	if err != nil {
		return err
	}
	acceptor, err := b.plant.split(ctx, "bench-accept", "api", 0)
	if err != nil {
		return err
	}
	living := b.ids(200)
	if err := b.make(ctx, standalone, living); err != nil {
		return err
	}
	fresh := b.ids(profileRequests)
	for _, load := range []load{
		{"get", standalone, atOnce, func(ctx context.Context, i int) error { return standalone.get(ctx, living[i%len(living)]) }},
		{"accept", acceptor, publishers, func(ctx context.Context, i int) error { return acceptor.accept(ctx, fresh[i]) }},
		{"create", standalone, atOnce, func(ctx context.Context, i int) error { return standalone.create(ctx, fresh[i]) }},
		{"create", split, atOnce, func(ctx context.Context, i int) error { return split.create(ctx, fresh[i]) }},
	} {
		if err := b.profileUnder(ctx, load); err != nil {
			return fmt.Errorf("%s: %w", load.what, err)
		}
	}
	return nil
}

// A load is what a product is profiled under.
type load struct {
	what    string
	of      *product
	clients int
	op      func(ctx context.Context, i int) error
}

func (b *bench) profileUnder(ctx context.Context, l load) error {
	loadCtx, stop := context.WithCancel(ctx)
	defer stop()
	loaded := make(chan error, 1)
	go func() {
		_, err := closedLoop(loadCtx, l.clients, profileRequests, l.op)
		loaded <- err
	}()
	err := b.takeProfiles(ctx, l)
	stop()
	if loadErr := <-loaded; !errors.Is(loadErr, context.Canceled) {
		err = errors.Join(err, loadErr)
	}
	return err
}

// takeProfiles takes those of all parts at the same time: where processor time went, and what was allocated since the start.
func (b *bench) takeProfiles(ctx context.Context, l load) error {
	g, ctx := errgroup.WithContext(ctx)
	for part, url := range l.of.profiles {
		g.Go(func() error {
			file := filepath.Join(profileDir, l.what+"-"+part)
			if err := download(ctx, fmt.Sprint(url, "profile?seconds=", profileSeconds), file+".cpu"); err != nil {
				return err
			}
			b.say("go tool pprof -top bin/%s %s.cpu", part, file)
			return download(ctx, url+"allocs", file+".allocs")
		})
	}
	return g.Wait()
}

func download(ctx context.Context, url, file string) error {
	content, err := fetch(ctx, url)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}

// fetch is what is answered with 200.
func fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, res.Status)
	}
	return io.ReadAll(res.Body)
}
