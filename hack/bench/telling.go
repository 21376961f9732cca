package main

import (
	"context"
	"math/rand/v2"
	"time"
)

const tellingTitle = "create, 32 at once, and what telling costs"

const (
	// tellingPairs are in one round: two turns differ by more than what telling costs.
	tellingPairs = 20
	// scrapes is the time between two.
	scrapes = 5 * time.Second
)

// telling measures what metrics and traces cost: creates of a standalone that tells nobody anything, and of one that is scraped and exports
// every span. A second one that tells nothing shows what such a comparison is worth: it has to come out at 1.
func (b *bench) telling(ctx context.Context) error {
	collector, err := b.plant.startCollector(ctx)
	if err != nil {
		return err
	}
	silent, err := b.plant.standaloneAs(ctx, "neither", "bench-silent", "METRICS_ADDR=")
	if err != nil {
		return err
	}
	again, err := b.plant.standaloneAs(ctx, "neither, once more", "bench-silent-2", "METRICS_ADDR=")
	if err != nil {
		return err
	}
	telling, err := b.plant.standaloneAs(ctx, "metrics and traces", "bench-telling", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector)
	if err != nil {
		return err
	}
	scraping, stop := context.WithCancel(ctx)
	scraped := make(chan int64, 1)
	go func() { scraped <- scrape(scraping, telling.metrics) }()
	contestants := []contestant{silent, telling, again}
	// Short turns see the same weather. Were all of one length, a cycle of the API server's garbage collector could fall into every turn of
	// the one that leaves it a little more to collect, and after every turn of the other.
	var turn, creates int
	err = turnsIn(ctx, b.rounds*tellingPairs, contestants, func(ctx context.Context, c contestant) error {
		if turn++; turn%len(contestants) == 1 {
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
	stop()
	if err != nil {
		return err
	}
	for _, c := range contestants[1:] {
		b.sayRatio(tellingTitle, c, "creates a second", perSecond)
		b.sayRatio(tellingTitle, c, "processor time of all together", cpuTogether)
		b.sayRatio(tellingTitle, c, "processor time of the client", cpuPrefix+partBench)
		// The client does the same for all, so that its own processor time tells how fast the machine was in a turn. This is the figure
		// that counts, as long as the one that tells nothing either comes out at 1, here and in the time of the client.
		b.sayRatio(tellingTitle, c, "creates a second, at the same speed of the machine", perSecond, cpuPrefix+partBench)
	}
	exported, err := fetch(ctx, collector)
	if err != nil {
		return err
	}
	b.say("%d bytes of metrics were taken, and %s bytes of traces", <-scraped, exported)
	return nil
}

// sayRatio tells how a contestant compares to the first one, in the product of some metrics.
func (b *bench) sayRatio(title string, c contestant, what string, metrics ...string) {
	group := b.results.group(title)
	product := group.against(metrics[0], c.name())
	for _, metric := range metrics[1:] {
		for i, r := range group.against(metric, c.name()) {
			product[i] *= r
		}
	}
	mean, deviation := meanRatio(product)
	b.say("%s: ×%.3f of %s, geometric mean of %d pairs, standard error %.3f", c.name(), mean, what, len(product), deviation)
}

// scrape reads metrics now and then until ctx ends, and returns how many bytes those were.
func scrape(ctx context.Context, url string) (bytes int64) {
	for pause(ctx, scrapes) == nil {
		metrics, _ := fetch(ctx, url) // the next one counts
		bytes += int64(len(metrics))
	}
	return bytes
}
