package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"
)

const tellingTitle = "create, 32 at once, and what telling costs"

// scrapes is the time between two.
const scrapes = 5 * time.Second

// telling measures what metrics and traces cost: creates of a standalone that tells nobody anything, and of one that is scraped and exports
// every span.
func (b *bench) telling(ctx context.Context) error {
	var exported atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body) // what is cut off counts as far as it came
		exported.Add(n)
	}))
	defer collector.Close()

	silent, err := b.plant.standaloneAs(ctx, "neither", "bench-silent", "METRICS_ADDR=")
	if err != nil {
		return err
	}
	telling, err := b.plant.standaloneAs(ctx, "metrics and traces", "bench-telling", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL)
	if err != nil {
		return err
	}
	scraping, stop := context.WithCancel(ctx)
	scraped := make(chan int64, 1)
	go func() { scraped <- scrape(scraping, telling.metrics) }()
	// Short turns see the same weather. Were all of one length, a cycle of the API server's garbage collector could fall into every turn of
	// the one that leaves it a little more to collect, and after every turn of the other.
	var turn, creates int
	err = turns(ctx, b, []contestant{silent, telling}, func(ctx context.Context, c contestant) error {
		if turn++; turn%2 == 1 {
			creates = 100 + rand.IntN(200)
		}
		if err := b.createPass(ctx, tellingTitle, c, atOnce, creates); err != nil {
			return err
		}
		if err := b.plant.clear(ctx, c.namespace()); err != nil {
			return err
		}
		return b.plant.collectGarbage(ctx)
	})
	if err == nil {
		for _, metric := range []string{perSecond, cpuTogether} {
			mean, deviation := meanRatio(b.results.group(tellingTitle).against(metric, telling.name()))
			b.say("%s: ×%.3f of %s, geometric mean of %d pairs, standard error %.3f", telling.name(), mean, metric, b.rounds, deviation)
		}
	}
	stop()
	b.say("%d bytes of metrics and %d bytes of traces were taken", <-scraped, exported.Load())
	return err
}

// scrape reads metrics now and then until ctx ends, and returns how many bytes those were.
func scrape(ctx context.Context, url string) (bytes int64) {
	for pause(ctx, scrapes) == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return bytes
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		n, _ := io.Copy(io.Discard, resp.Body) // what is cut off counts as far as it came
		_ = resp.Body.Close()
		bytes += n
	}
	return bytes
}
