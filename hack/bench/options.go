package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// options of a run, from the environment.
type options struct {
	// quick, BENCH_QUICK=1, takes less than a minute and measures no more than the last line says.
	quick bool
	// only, BENCH_ONLY, are the sections to run; none is all that measure something.
	only []string
	// rounds, BENCH_ROUNDS, is how often each contestant has its turn.
	rounds int
}

const (
	wholeRounds = 5
	quickRounds = 2
)

func readOptions(lookup func(string) (string, bool)) (options, error) {
	o := options{rounds: wholeRounds}
	if v, _ := lookup("BENCH_QUICK"); v != "" && v != "0" {
		o.quick, o.rounds = true, quickRounds
	}
	if v, _ := lookup("BENCH_ROUNDS"); v != "" {
		var err error
		if o.rounds, err = strconv.Atoi(v); err != nil || o.rounds < 1 {
			return o, fmt.Errorf("BENCH_ROUNDS=%q: must be a whole number, 1 or more", v)
		}
	}
	if v, _ := lookup("BENCH_ONLY"); v != "" {
		o.only = strings.Split(v, ",")
	}
	for _, name := range o.only {
		if !slices.Contains(sectionNames(), name) {
			return o, fmt.Errorf("BENCH_ONLY: there is no section %q; there are %s", name, strings.Join(sectionNames(), ", "))
		}
	}
	return o, nil
}

// drainRounds are fewer, since each takes four minutes.
func (o options) drainRounds() int { return (o.rounds + 1) / 2 }

// whole tells whether the run measures everything, so that the document can be written from it.
func (o options) whole() bool { return !o.quick && len(o.only) == 0 && o.rounds >= wholeRounds }

// includes tells whether the section is to run.
func (o options) includes(s section) bool {
	switch {
	case len(o.only) > 0:
		return slices.Contains(o.only, s.name)
	case o.quick:
		return s.in == quickRun
	}
	return s.in != onDemand
}

// few is n in a whole run, less in a quick one.
func (o options) few(whole, quick int) int {
	if o.quick {
		return quick
	}
	return whole
}
