package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestARunThatWasBrokenOffGoesOnWhereItEnded(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "bench.json")
	here := surroundings{CPU: "x", Cores: 2, MemoryGB: 23.5, Commit: "abc", Load: "0.10", Date: "2026-01-01"}
	left := progress{Surroundings: here, Rounds: 5, Commits: []string{"abc"}, Done: []string{"create"}, Values: measured().values}
	same := func(commit, other string) bool { return commit != "other" && other != "other" }
	load := func(now surroundings, rounds int) progress {
		p, err := loadProgress(file, now, rounds, same)
		require.NoError(t, err)
		return p
	}
	begun := func(now surroundings) progress {
		return progress{Surroundings: now, Rounds: 5, Commits: []string{now.Commit}}
	}
	require.Equal(t, begun(here), load(here, 5))

	require.NoError(t, left.save(file))
	later := here
	later.Load, later.Date, later.Commit = "0.20", "2026-01-02", "def"
	want := left
	want.Commits = []string{"abc", "def"}
	require.Equal(t, want, load(later, 5))

	other, elsewhere := here, here
	other.Commit, elsewhere.CPU = "other", "y"
	require.Equal(t, begun(other), load(other, 5))
	require.Equal(t, begun(elsewhere), load(elsewhere, 5))
	require.Empty(t, load(here, 7).Done, "another number of rounds")

	require.False(t, samePrograms("HEAD-dirty", "HEAD-dirty"), "there may be other changes by now")
	require.True(t, samePrograms("HEAD", "HEAD"))
	require.False(t, samePrograms("HEAD", "no such commit"))

	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err := loadProgress(file, here, 5, same)
	require.ErrorContains(t, err, "remove it to begin anew")
}

func TestWhatIsKeptIsTheSameTable(t *testing.T) {
	t.Parallel()
	before, after := measured(), &results{}
	for _, v := range before.values {
		after.add(v.Title, v.Contestant, v.Metric, v.Value)
	}
	require.Equal(t, before, after)
}
