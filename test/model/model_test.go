package model_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"testing/synctest"
)

var (
	runs = flag.Int("runs", 20_000, "runs of each kind of weather")
	seed = flag.Uint64("seed", 0, "the one run to play, as a failure names it")
)

// weathers are what may go wrong, from nothing to everything.
var weathers = map[string]faults{
	"calm":          {gone: 20},
	"workers die":   {gone: 20, crash: 3, redeliver: 2},
	"answers lost":  {gone: 20, lost: 8, crash: 1, redeliver: 1, apiCrash: 1},
	"refusals":      {gone: 20, lost: 8, crash: 2, redeliver: 1, final: 40, quota: true},
	"disturbed":     {gone: 20, lost: 3, crash: 1, redeliver: 1, disturb: 2},
	"outcomes lost": {gone: 20, lost: 2, crash: 2, redeliver: 2, outcomeLost: 1},
	"forgotten":     {gone: 20, lost: 3, crash: 1, redeliver: 1, expire: 20, final: 40, quota: true},
	"streams lost":  {gone: 20, lost: 2, crash: 1, redeliver: 1, streamLost: 1},
	"all at once":   {gone: 5, lost: 5, crash: 2, redeliver: 2, disturb: 1, apiCrash: 1, final: 20, quota: true},
	"frozen":        {gone: 20, crash: 1, freeze: 3, lost: 2},
	"slow to go":    {gone: 1, crash: 1, redeliver: 1},
}

func TestTheInvariantsHoldInEveryWeather(t *testing.T) {
	t.Parallel()
	for name, f := range weathers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, last := uint64(1), uint64(*runs)
			if *seed != 0 {
				first, last = *seed, *seed
			}
			for n := first; n <= last; n++ {
				if problem, history := playOnce(t, n, f); problem != "" {
					t.Fatalf("%s\nreplay: go test ./test/model -run '%s' -seed %d\n%s", problem, t.Name(), n, history)
				}
			}
		})
	}
}

func playOnce(t *testing.T, n uint64, f faults) (problem, history string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		source := rand.New(rand.NewPCG(n, 0))
		r := newRun(source.IntN, f)
		r.play(t.Context())
		problem, history = r.check(), r.history()
	})
	return problem, history
}
