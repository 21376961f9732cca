package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// measured is two rounds of two contestants, the second of them in reverse order.
func measured() *results {
	r := &results{}
	title := createTitle(atOnce)
	for _, v := range []struct {
		contestant string
		rate       float64
	}{{"client-go", 200}, {"standalone", 180}, {"standalone", 140}, {"client-go", 100}} {
		r.add(title, v.contestant, perSecond, v.rate)
	}
	r.add(title, "standalone", cpuShare, 0.31)
	r.add(createTitle(1), "client-go", p50, 8)
	r.add(createTitle(1), "standalone", p50, 10)
	return r
}

func TestTheLastLineHasTheMediansOfTheRatiosThatWereMeasured(t *testing.T) {
	t.Parallel()
	require.Equal(t, "bench: create_ratio=1.15 create_p50_ratio=1.25 cpu_share=0.31", lastLine(measured()))
	require.Equal(t, "bench:", lastLine(&results{}))
}

func TestTheTableOfGoalsSaysWhichHold(t *testing.T) {
	t.Parallel()
	require.Equal(t, `| figure | of | median | smallest–largest | goal | |
|---|---|---|---|---|---|
| creates a second, 32 at once | standalone | 1.15 | 0.90–1.40 | ≥ 0.80 | holds |
| create p50, one at a time | standalone | 1.25 | 1.25–1.25 | ≤ 1.35 | holds |
| CPU of the product / of kube-apiserver and etcd | standalone | 0.31 | 0.31–0.31 | ≤ 0.30 | **missed** |
`, goalTable(measured()))
}

func TestATableHasMediansExtremesAndRatios(t *testing.T) {
	t.Parallel()
	require.Equal(t, `| create, 32 at once | client-go | standalone |
|---|---|---|
| per second | 150 (100–200) | 160 (140–180) ×1.15 |
| CPU of the product / of kube-apiserver and etcd | – | 0.31 |
`, measured().group(createTitle(atOnce)).table())
}

func TestEachGoalIsNamedOnceInTheLastLine(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, g := range goals {
		require.False(t, g.key != "" && seen[g.key], g.key)
		seen[g.key] = true
	}
	for _, key := range []string{"create_ratio", "create_p50_ratio", "accept_ratio", "get_ratio", "list_ratio", "cpu_share"} {
		require.True(t, seen[key], key)
	}
}

func TestOptionsChooseWhatRuns(t *testing.T) {
	t.Parallel()
	read := func(env map[string]string) (options, error) {
		return readOptions(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	}
	names := func(o options) (names []string) {
		for _, s := range sections() {
			if o.includes(s) {
				names = append(names, s.name)
			}
		}
		return names
	}
	whole, err := read(nil)
	require.NoError(t, err)
	require.True(t, whole.whole())
	require.GreaterOrEqual(t, whole.rounds, 5)
	require.Equal(t, append(names(whole), "telling", "profile"), sectionNames(), "those are on demand")

	quick, err := read(map[string]string{"BENCH_QUICK": "1"})
	require.NoError(t, err)
	require.False(t, quick.whole())
	require.Equal(t, []string{"create", "accept", "get", "list"}, names(quick))

	some, err := read(map[string]string{"BENCH_ONLY": "drain,get", "BENCH_ROUNDS": "7"})
	require.NoError(t, err)
	require.False(t, some.whole(), "the document is about everything")
	require.Equal(t, []string{"drain", "get"}, names(some))
	require.Equal(t, 7, some.rounds)

	_, err = read(map[string]string{"BENCH_ONLY": "drain,gte"})
	require.ErrorContains(t, err, `no section "gte"`)
	_, err = read(map[string]string{"BENCH_ROUNDS": "0"})
	require.Error(t, err)
}

func TestThousandsAreSeparated(t *testing.T) {
	t.Parallel()
	require.Equal(t, "100", thousands(100))
	require.Equal(t, "1,000", thousands(1000))
	require.Equal(t, "1,234,567", thousands(1_234_567))
}
