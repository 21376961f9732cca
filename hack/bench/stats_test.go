package main

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAPercentileIsTheSmallestValueThatEnoughDoNotExceed(t *testing.T) {
	t.Parallel()
	var values []time.Duration
	for i := 100; i >= 1; i-- {
		values = append(values, time.Duration(i))
	}
	require.Equal(t, time.Duration(50), percentile(values, 50))
	require.Equal(t, time.Duration(95), percentile(values, 95))
	require.Equal(t, time.Duration(100), percentile(values, 100))
	require.Equal(t, time.Duration(100), values[0], "the values stay in their order")

	require.Equal(t, time.Duration(2), percentile([]time.Duration{3, 1, 2}, 50))
	require.Equal(t, time.Duration(3), percentile([]time.Duration{3, 1, 2}, 99))
	require.Equal(t, time.Duration(7), percentile([]time.Duration{7}, 1))
	require.Zero(t, percentile(nil, 50))
}

func TestASpreadHasTheMedianAndTheExtremes(t *testing.T) {
	t.Parallel()
	require.Equal(t, spread{median: 3, min: 1, max: 9}, spreadOf([]float64{9, 1, 3}))
	require.Equal(t, spread{median: 2.5, min: 1, max: 4}, spreadOf([]float64{4, 1, 3, 2}))
	require.Zero(t, spreadOf(nil))
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	t.Parallel()
	require.Equal(t, []float64{0.5, 2}, ratios([]float64{5, 40}, []float64{10, 20}))
	require.Equal(t, []float64{2}, ratios([]float64{1, 2}, []float64{0, 1}), "a round without a baseline says nothing")
	require.Equal(t, []float64{2}, ratios([]float64{2}, []float64{1, 1}), "a round that is not complete says nothing")
}

func TestLatenciesOfAnOpenLoopCountFromWhenTheRequestWasToBeSent(t *testing.T) {
	t.Parallel()
	start := time.Now()
	const period = 10 * time.Millisecond
	got := fromIntended([]hit{
		{seq: 0, sent: start.Add(3 * time.Millisecond), took: 5 * time.Millisecond},
		{seq: 1, sent: start.Add(10 * time.Millisecond), took: 5 * time.Millisecond},
		{seq: 2, sent: start.Add(45 * time.Millisecond), took: 5 * time.Millisecond},
	}, period)
	require.Equal(t, []time.Duration{8 * time.Millisecond, 5 * time.Millisecond, 30 * time.Millisecond}, got)
}

func TestProcessorTimeIsThatOfAnyProcess(t *testing.T) {
	t.Parallel()
	busy := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	require.NoError(t, busy.Start())
	defer func() {
		require.NoError(t, busy.Process.Kill())
		require.Error(t, busy.Wait(), "it was killed")
	}()
	before, err := cpuTime(busy.Process.Pid)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		after, err := cpuTime(busy.Process.Pid)
		return err == nil && after-before > 10*time.Millisecond
	}, time.Minute, time.Millisecond)
	own, err := cpuTime(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, own)
	_, err = cpuTime(1 << 22)
	require.Error(t, err, "no process has that number")
}

func TestProcessorTimeOfTheMachineLeavesOutIdling(t *testing.T) {
	t.Parallel()
	got, err := parseMachine("cpu  100 20 30 9999 9999 40 10 5 7 7\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, got)
	_, err = parseMachine("intr 1 2 3\n")
	require.Error(t, err)
}

func TestUsageIsTheDifferenceOfTwoLooks(t *testing.T) {
	t.Parallel()
	used := usage{"etcd": 5, "api": 4}.since(usage{"etcd": 2, "api": 3})
	require.Equal(t, usage{"etcd": 3, "api": 1}, used)
	require.Equal(t, time.Duration(4), used.sum("etcd", "api"))
}
