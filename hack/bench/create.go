package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// loads are how many clients create at once, and how many sandboxes.
func (b *bench) loads() [][2]int {
	if b.quick {
		return [][2]int{{1, 60}, {atOnce, 250}}
	}
	return [][2]int{{1, 200}, {8, 200}, {atOnce, 400}, {128, 500}}
}

func createTitle(clients int) string { return fmt.Sprintf("create, %d at once", clients) }

// create measures creates that wait for both objects to exist.
func (b *bench) create(ctx context.Context) error {
	var workers []int
	if !b.quick {
		workers = []int{1, 2, 4}
	}
	all, err := b.contestants(ctx, workers...)
	if err != nil {
		return err
	}
	for _, load := range b.loads() {
		err := turns(ctx, b, all, func(ctx context.Context, c contestant) error {
			if err := b.createPass(ctx, createTitle(load[0]), c, load[0], load[1]); err != nil {
				return err
			}
			if b.quick { // deleting takes as long as creating
				return b.plant.awaitRunning(ctx, c.namespace())
			}
			return b.plant.clear(ctx, c.namespace())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sample is of how many sandboxes a pass is told when they could be seen.
const sample = 100

func (b *bench) createPass(ctx context.Context, title string, c contestant, clients, n int) error {
	warmUp, ids := b.ids(warm(clients, n)), b.ids(n)
	create := func(ids []string) func(context.Context, int) error {
		return func(ctx context.Context, i int) error { return c.create(ctx, ids[i]) }
	}
	if _, err := closedLoop(ctx, clients, len(warmUp), create(warmUp)); err != nil {
		return err
	}
	asked := make([]time.Time, n)
	every := (n + sample - 1) / sample
	var watched []string
	for i := 0; i < n; i += every {
		watched = append(watched, ids[i])
	}
	lookout, err := b.plant.lookOut(ctx, c.namespace(), watched)
	if err != nil {
		return err
	}
	defer lookout.close()
	before, err := b.plant.usage(c)
	if err != nil {
		return err
	}
	p, err := closedLoop(ctx, clients, n, func(ctx context.Context, i int) error {
		asked[i] = time.Now()
		return c.create(ctx, ids[i])
	})
	if err != nil {
		return err
	}
	after, err := b.plant.usage(c)
	if err != nil {
		return err
	}
	seen, err := lookout.await(ctx)
	if err != nil {
		return err
	}
	var visible []time.Duration
	for i := 0; i < n; i += every {
		visible = append(visible, seen[ids[i]].Sub(asked[i]))
	}
	b.record(title, c.name(), p)
	b.latencies(title, c.name(), visible, "both visible, p50, ms", "both visible, p95, ms", "both visible, p99, ms")
	if clients == atOnce {
		used := after.since(before)
		b.recordUsage(title, c, used, n)
		b.say("%s: %s: everything else took %.0f %% of the processors", title, c.name(),
			100*used[partElse].Seconds()/p.took.Seconds()/float64(runtime.NumCPU()))
	}
	return nil
}

// cpuShare is what the product's own processes use of the processors for each second that Kubernetes' use.
const cpuShare = "CPU of the product / of kube-apiserver and etcd"

// cpuPrefix is before the name of a part.
const cpuPrefix = "CPU s per 1,000, "

// cpuTogether decides how many creates a second a machine reaches whose processors are all busy.
const cpuTogether = cpuPrefix + "all together"

func (b *bench) recordUsage(title string, c contestant, u usage, creates int) {
	var ours []string
	for part := range c.parts() {
		ours = append(ours, part)
	}
	slices.Sort(ours)
	all := slices.Concat([]string{partAPIServer, partEtcd, partElse, partBench}, ours)
	for _, part := range all {
		b.results.add(title, c.name(), cpuPrefix+part, u[part].Seconds()*1000/float64(creates))
	}
	b.results.add(title, c.name(), cpuTogether, u.sum(all...).Seconds()*1000/float64(creates))
	if len(ours) > 0 {
		b.results.add(title, c.name(), cpuShare, float64(u.sum(ours...))/float64(u.sum(partAPIServer, partEtcd)))
	}
}

// open measures creates that come at a fixed rate, whether or not the ones before have been answered: at a quarter, a half and
// three quarters of what the slowest contestant has reached in a closed loop.
func (b *bench) open(ctx context.Context) error {
	all, err := b.contestants(ctx, 1)
	if err != nil {
		return err
	}
	limit := 0.0
	for _, c := range all {
		ids := b.ids(b.few(600, 200))
		p, err := closedLoop(ctx, atOnce, len(ids), func(ctx context.Context, i int) error { return c.create(ctx, ids[i]) })
		if err != nil {
			return err
		}
		if err := b.plant.clear(ctx, c.namespace()); err != nil {
			return err
		}
		if limit == 0 || p.perSecond() < limit {
			limit = p.perSecond()
		}
	}
	length := time.Duration(b.few(6, 2)) * time.Second
	for _, percent := range []int{25, 50, 75} {
		rate := max(1, int(limit)*percent/100)
		title := fmt.Sprintf("create, open loop at %d %%, %d a second", percent, rate)
		err := turns(ctx, b, all, func(ctx context.Context, c contestant) error {
			if err := b.make(ctx, c, b.ids(atOnce)); err != nil {
				return err
			}
			ids := b.ids(2 * rate * int(length/time.Second))
			p, err := openLoop(ctx, rate, length, func(ctx context.Context, i int) error { return c.create(ctx, ids[i]) })
			if err != nil {
				return err
			}
			b.record(title, c.name(), p)
			return b.plant.clear(ctx, c.namespace())
		})
		if err != nil {
			return err
		}
	}
	return nil
}
