package main

import (
	"context"
	"time"
)

const memoryTitle = "resident memory, MB"

// memory measures whether the programs grow while sandboxes come and go.
func (b *bench) memory(ctx context.Context) error {
	c, err := b.plant.split(ctx, "bench-memory", "api + 1 worker", 1)
	if err != nil {
		return err
	}
	done := 0
	for _, goal := range []int{b.few(1000, 100), b.few(20_000, 400)} {
		for done < goal {
			ids := b.ids(min(goal-done, 1000))
			_, err := closedLoop(ctx, atOnce, len(ids), func(ctx context.Context, i int) error {
				if err := c.create(ctx, ids[i]); err != nil {
					return err
				}
				return c.remove(ctx, ids[i])
			})
			if err != nil {
				return err
			}
			done += len(ids)
			b.say("memory: %s creates and deletes", thousands(done))
		}
		// Go gives memory back to the system some time after it has become free.
		if err := pause(ctx, 5*time.Second); err != nil {
			return err
		}
		for _, part := range []string{partAPI, partWorker} {
			mb, err := resident(c.processes[part][0])
			if err != nil {
				return err
			}
			b.results.add(memoryTitle, "after "+thousands(goal), part, mb)
			b.say("memory: %s: %.1f MB after %s", part, mb, thousands(goal))
		}
	}
	return b.plant.clear(ctx, c.namespace())
}
