package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// A section measures one thing.
type section struct {
	name string
	in   kind
	run  func(*bench, context.Context) error
}

// A kind of run.
type kind int

const (
	quickRun kind = iota // and in whole ones
	wholeRun
	onDemand // only when it is named
)

// sections in the order in which they run: those that need many living sandboxes come last, so that the others do without.
func sections() []section {
	return []section{
		{"create", quickRun, (*bench).create},
		{"accept", quickRun, (*bench).accept},
		{"depth", wholeRun, (*bench).depth},
		{"repeat", wholeRun, (*bench).repeat},
		{"delete", wholeRun, (*bench).delete},
		{"recreate", wholeRun, (*bench).recreate},
		{"open", wholeRun, (*bench).open},
		{"drain", wholeRun, (*bench).drain},
		{"memory", wholeRun, (*bench).memory},
		{"get", quickRun, (*bench).get},
		{"living", wholeRun, (*bench).living},
		{"list", quickRun, (*bench).list},
		{"telling", onDemand, (*bench).telling},
		{"profile", onDemand, (*bench).profile},
	}
}

func sectionNames() []string {
	var names []string
	for _, s := range sections() {
		names = append(names, s.name)
	}
	return names
}

// A bench runs the sections and keeps what they find.
type bench struct {
	options
	plant    *plant
	results  results
	progress progress

	lastID atomic.Uint64
	// populations are the namespaces that are full of sandboxes, by how many these are.
	populations map[int]*population
}

func (b *bench) run(ctx context.Context) error {
	b.populations = map[int]*population{}
	if b.quick && len(b.only) == 0 {
		// Made now, they have settled when their turn comes.
		if _, err := b.populate(ctx, readable); err != nil {
			return err
		}
	}
	for _, v := range b.progress.Values {
		b.results.add(v.Title, v.Contestant, v.Metric, v.Value)
	}
	for _, s := range sections() {
		if !b.includes(s) {
			continue
		}
		if slices.Contains(b.progress.Done, s.name) {
			b.say("section %s has been measured; remove %s to begin anew", s.name, progressFile)
			continue
		}
		b.say("section %s", s.name)
		if err := s.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		b.progress.Done, b.progress.Values = append(b.progress.Done, s.name), b.results.values
		if b.whole() {
			if err := b.progress.save(progressFile); err != nil {
				return err
			}
		}
	}
	return nil
}

// say tells whoever waits what goes on.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: %s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

// turns gives each of the contestants its turn in every round, in reverse order in every other one. The first of them is the
// baseline.
func turns[C any](ctx context.Context, b *bench, contestants []C, turn func(ctx context.Context, c C) error) error {
	return turnsIn(ctx, b.rounds, contestants, turn)
}

// turnsIn is turns in so many rounds.
func turnsIn[C any](ctx context.Context, rounds int, contestants []C, turn func(ctx context.Context, c C) error) error {
	for round := range rounds {
		for i := range contestants {
			if round%2 == 1 {
				i = len(contestants) - 1 - i
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := turn(ctx, contestants[i]); err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
		}
	}
	return nil
}

// ids are so many that have not been used before, of the shape that the gateway's have.
func (b *bench) ids(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%016x", b.lastID.Add(1))
	}
	return ids
}

// Metrics of all loads.
const (
	perSecond = "per second"
	p50       = "p50, ms"
	p95       = "p95, ms"
	p99       = "p99, ms"
)

// record keeps what one pass has shown.
func (b *bench) record(title, contestant string, p pass) {
	b.results.add(title, contestant, perSecond, p.perSecond())
	b.latencies(title, contestant, p.latencies, p50, p95, p99)
	b.say("%s: %s: %.0f per second, p50 %.1f ms", title, contestant, p.perSecond(), milliseconds(percentile(p.latencies, 50)))
}

// latencies keeps the percentiles 50, 95 and 99 under three names.
func (b *bench) latencies(title, contestant string, latencies []time.Duration, names ...string) {
	for i, p := range []int{50, 95, 99} {
		b.results.add(title, contestant, names[i], milliseconds(percentile(latencies, p)))
	}
}

// warm is how many requests go before those that are measured.
func warm(clients, n int) int { return max(clients, n/10) }

// atOnce is how many clients the loads have that are not about their number.
const atOnce = 32

// contestants are client-go, as the baseline, and the product in several forms.
func (b *bench) contestants(ctx context.Context, workers ...int) ([]contestant, error) {
	raw, err := b.plant.raw(ctx, "bench-raw")
	if err != nil {
		return nil, err
	}
	standalone, err := b.plant.standalone(ctx, "bench-standalone")
	if err != nil {
		return nil, err
	}
	all := []contestant{raw, standalone}
	for _, n := range workers {
		label := fmt.Sprintf("api + %d worker", n)
		if n > 1 {
			label += "s"
		}
		split, err := b.plant.split(ctx, fmt.Sprint("bench-split-", n), label, n)
		if err != nil {
			return nil, err
		}
		all = append(all, split)
	}
	return all, b.sameObjects(ctx, all)
}

// make creates sandboxes that are not measured.
func (b *bench) make(ctx context.Context, c contestant, ids []string) error {
	_, err := closedLoop(ctx, atOnce, len(ids), func(ctx context.Context, i int) error { return c.create(ctx, ids[i]) })
	return err
}

// thousands writes a number as one reads it.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
