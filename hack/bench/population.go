package main

import (
	"context"
	"fmt"
	"time"
)

// A population is a namespace full of sandboxes that run, with client-go and a standalone to look at it.
type population struct {
	raw        *raw
	standalone *product
	ids        []string
	made       time.Time
}

func (p *population) contestants() []contestant { return []contestant{p.raw, p.standalone} }

// settle is after how long the product takes a sandbox for settled; until then its reads look at the queue, too.
const settle = 30 * time.Second

// habitat is the namespace of a population to be.
func (b *bench) habitat(ctx context.Context, n int) (*population, error) {
	if p := b.populations[n]; p != nil {
		return p, nil
	}
	namespace := fmt.Sprint("bench-living-", n)
	raw, err := b.plant.raw(ctx, namespace)
	if err != nil {
		return nil, err
	}
	standalone, err := b.plant.standalone(ctx, namespace)
	if err != nil {
		return nil, err
	}
	b.populations[n] = &population{raw: raw, standalone: standalone}
	return b.populations[n], nil
}

// populate returns when so many sandboxes run.
func (b *bench) populate(ctx context.Context, n int) (*population, error) {
	p, err := b.habitat(ctx, n)
	if err != nil || p.ids != nil {
		return p, err
	}
	b.say("making %s sandboxes", thousands(n))
	p.ids = b.ids(n)
	if err := b.make(ctx, p.raw, p.ids); err != nil {
		return nil, err
	}
	p.made = time.Now()
	return p, b.plant.awaitRunning(ctx, p.raw.namespace())
}

// settled is populate for readers.
func (b *bench) settled(ctx context.Context, n int) (*population, error) {
	p, err := b.populate(ctx, n)
	if err != nil {
		return nil, err
	}
	return p, pause(ctx, time.Until(p.made.Add(settle)))
}

// crowd is how many live while others are created.
const crowd = 5000

// living measures whether creates become slower when many sandboxes live. client-go shows what is the API server's part.
func (b *bench) living(ctx context.Context) error {
	p, err := b.habitat(ctx, crowd)
	if err != nil {
		return err
	}
	if p.ids != nil {
		return fmt.Errorf("the %s live already", thousands(crowd))
	}
	if err := b.createAmong(ctx, p, "none"); err != nil {
		return err
	}
	if _, err := b.settled(ctx, crowd); err != nil {
		return err
	}
	return b.createAmong(ctx, p, thousands(crowd))
}

const livingTitle = "create, one at a time, by how many live"

// A maker makes sandboxes, or halves of them.
type maker struct {
	name   string
	create func(ctx context.Context, id string) error
}

// createAmong has client-go make Pods and Services also alone, which shows whose number it is that makes creates slower.
func (b *bench) createAmong(ctx context.Context, p *population, living string) error {
	makers := []maker{
		{p.raw.name(), p.raw.create}, {p.raw.name() + ", Pods alone", p.raw.createPod},
		{p.raw.name() + ", Services alone", p.raw.createService}, {p.standalone.name(), p.standalone.create},
	}
	return turns(ctx, b, makers, func(ctx context.Context, m maker) error {
		ids := b.ids(110)
		create := func(ctx context.Context, i int) error { return m.create(ctx, ids[i]) }
		if _, err := closedLoop(ctx, 1, 10, create); err != nil {
			return err
		}
		load, err := closedLoop(ctx, 1, 100, func(ctx context.Context, i int) error { return create(ctx, 10+i) })
		if err != nil {
			return err
		}
		b.results.add(livingTitle, living+" living", m.name+", "+p50, milliseconds(percentile(load.latencies, 50)))
		b.say("%s living: %s: p50 %.1f ms", living, m.name, milliseconds(percentile(load.latencies, 50)))
		return b.plant.clear(ctx, p.raw.namespace(), ids...)
	})
}
