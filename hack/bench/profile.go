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
)

// profile takes profiles of every program while 32 clients create, for go tool pprof.
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
	for _, c := range []*product{standalone, split} {
		if err := b.make(ctx, c, b.ids(200)); err != nil {
			return err
		}
		loadCtx, stop := context.WithCancel(ctx)
		loaded := make(chan error, 1)
		go func() {
			ids := b.ids(200 * profileSeconds * 10)
			_, err := closedLoop(loadCtx, atOnce, len(ids), func(ctx context.Context, i int) error { return c.create(ctx, ids[i]) })
			loaded <- err
		}()
		err := b.takeProfiles(ctx, c)
		stop()
		if loadErr := <-loaded; !errors.Is(loadErr, context.Canceled) {
			err = errors.Join(err, loadErr)
		}
		if err != nil {
			return err
		}
		if err := b.plant.clear(ctx, c.namespace()); err != nil {
			return err
		}
	}
	return nil
}

// takeProfiles takes those of all parts at the same time: where processor time went, and what was allocated since the start.
func (b *bench) takeProfiles(ctx context.Context, c *product) error {
	g, ctx := errgroup.WithContext(ctx)
	for part, url := range c.profiles {
		g.Go(func() error {
			if err := download(ctx, fmt.Sprint(url, "profile?seconds=", profileSeconds), filepath.Join(profileDir, part+".cpu")); err != nil {
				return err
			}
			b.say("go tool pprof -top %s/%s.cpu", profileDir, part)
			return download(ctx, url+"allocs", filepath.Join(profileDir, part+".allocs"))
		})
	}
	return g.Wait()
}

func download(ctx context.Context, url, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, res.Body)
	return err
}
