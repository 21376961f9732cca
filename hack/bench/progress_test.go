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
	left := progress{Surroundings: here, Rounds: 5, Goes: 1, Done: []string{"create"}, Values: measured().values}

	beginning, err := loadProgress(file, here, 5)
	require.NoError(t, err)
	require.Equal(t, progress{Surroundings: here, Rounds: 5}, beginning)

	require.NoError(t, left.save(file))
	later := here
	later.Load, later.Date = "0.20", "2026-01-02"
	loaded, err := loadProgress(file, later, 5)
	require.NoError(t, err)
	require.Equal(t, left, loaded)

	other, dirty := here, here
	other.Commit, dirty.Commit = "def", "abc-dirty"
	for name, now := range map[string]surroundings{"another commit": other, "another machine": {CPU: "y", Commit: "abc"}} {
		loaded, err := loadProgress(file, now, 5)
		require.NoError(t, err)
		require.Equal(t, progress{Surroundings: now, Rounds: 5}, loaded, name)
	}
	loaded, err = loadProgress(file, here, 7)
	require.NoError(t, err)
	require.Empty(t, loaded.Done, "another number of rounds")

	left.Surroundings = dirty
	require.NoError(t, left.save(file))
	loaded, err = loadProgress(file, dirty, 5)
	require.NoError(t, err)
	require.Empty(t, loaded.Done, "a tree with changes may be another one by now")

	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err = loadProgress(file, here, 5)
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
