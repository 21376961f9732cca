package main

import (
	"context"
	"fmt"
)

// delete measures deletes that wait until Kubernetes has accepted both deletions.
func (b *bench) delete(ctx context.Context) error {
	return b.each(ctx, fmt.Sprintf("delete, %d at once", atOnce), atOnce, b.few(600, 100), contestant.remove)
}

// recreate measures deletes that are followed at once by a create of the same id. Most of it is waiting for the Pod to go.
func (b *bench) recreate(ctx context.Context) error {
	for _, clients := range []int{1, atOnce} {
		title := fmt.Sprintf("delete and create, %d at once", clients)
		if err := b.each(ctx, title, clients, b.few(10*clients+10, 2*clients), contestant.recreate); err != nil {
			return err
		}
	}
	return nil
}

// each measures what is done once to each of n sandboxes that exist.
func (b *bench) each(
	ctx context.Context, title string, clients, n int, do func(contestant, context.Context, string) error,
) error {
	all, err := b.contestants(ctx, 1)
	if err != nil {
		return err
	}
	return turns(ctx, b, all, func(ctx context.Context, c contestant) error {
		ids := b.ids(n + clients)
		if err := b.make(ctx, c, ids); err != nil {
			return err
		}
		warmUp, ids := ids[:clients], ids[clients:]
		if _, err := closedLoop(ctx, clients, clients, func(ctx context.Context, i int) error { return do(c, ctx, warmUp[i]) }); err != nil {
			return err
		}
		load, err := closedLoop(ctx, clients, n, func(ctx context.Context, i int) error { return do(c, ctx, ids[i]) })
		if err != nil {
			return err
		}
		b.record(title, c.name(), load)
		return b.plant.clear(ctx, c.namespace())
	})
}
