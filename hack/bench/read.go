package main

import (
	"context"
	"fmt"
)

// readable is how many sandboxes there are where single ones are read.
const readable = 1000

// get measures status reads against the two reads that they consist of.
func (b *bench) get(ctx context.Context) error {
	p, err := b.settled(ctx, readable)
	if err != nil {
		return err
	}
	n := b.few(4000, 800)
	return turns(ctx, b, p.contestants(), func(ctx context.Context, c contestant) error {
		get := func(ctx context.Context, i int) error { return c.get(ctx, p.ids[i%len(p.ids)]) }
		if _, err := closedLoop(ctx, atOnce, warm(atOnce, n), get); err != nil {
			return err
		}
		load, err := closedLoop(ctx, atOnce, n, get)
		if err != nil {
			return err
		}
		b.record(getTitle, c.name(), load)
		return nil
	})
}

const getTitle = "get, 32 at once"

func listTitle(n int) string { return "list of " + thousands(n) }

// list measures lists, one at a time, against the two lists that they consist of.
func (b *bench) list(ctx context.Context) error {
	sizes := []int{100, readable, crowd}
	if b.quick {
		sizes = []int{readable}
	}
	for _, size := range sizes {
		p, err := b.settled(ctx, size)
		if err != nil {
			return err
		}
		n := b.few(max(10, 20_000/size), 11)
		err = turns(ctx, b, p.contestants(), func(ctx context.Context, c contestant) error {
			list := func(ctx context.Context, _ int) error { return c.list(ctx, size) }
			if _, err := closedLoop(ctx, 1, warm(2, n), list); err != nil {
				return err
			}
			load, err := closedLoop(ctx, 1, n, list)
			if err != nil {
				return err
			}
			b.record(listTitle(size), c.name(), load)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// repeat measures a storm of creates of sandboxes that exist, against the two reads that it takes to find that out.
func (b *bench) repeat(ctx context.Context) error {
	all, err := b.contestants(ctx, 1)
	if err != nil {
		return err
	}
	n := b.few(4000, 400)
	return turns(ctx, b, all, func(ctx context.Context, c contestant) error {
		ids := b.ids(2 * atOnce)
		if err := b.make(ctx, c, ids); err != nil {
			return err
		}
		repeat := func(ctx context.Context, i int) error { return c.repeat(ctx, ids[i%len(ids)]) }
		if _, err := closedLoop(ctx, atOnce, warm(atOnce, n), repeat); err != nil {
			return err
		}
		load, err := closedLoop(ctx, atOnce, n, repeat)
		if err != nil {
			return err
		}
		b.record(fmt.Sprintf("create of one that exists, %d at once", atOnce), c.name(), load)
		return b.plant.clear(ctx, c.namespace())
	})
}
