package main

import (
	"math"
	"slices"
	"time"
)

// percentile is the smallest of the values that p percent of them do not exceed (nearest rank).
func percentile(values []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	rank := (p*len(sorted) + 99) / 100
	return sorted[max(rank, 1)-1]
}

// A spread is what several rounds have shown.
type spread struct{ median, min, max float64 }

// spreadOf is zero when there is nothing to sum up. The median of an even number of values is the mean of the two in the middle.
func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return spread{}
	}
	return spread{median: (sorted[(n-1)/2] + sorted[n/2]) / 2, min: sorted[0], max: sorted[n-1]}
}

// ratios divides round by round: what two contestants did under the same weather.
func ratios(values, baseline []float64) []float64 {
	out := make([]float64, 0, len(values))
	for i := range min(len(values), len(baseline)) {
		if baseline[i] != 0 {
			out = append(out, values[i]/baseline[i])
		}
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// meanRatio is the geometric mean of ratios, and its standard error.
func meanRatio(ratios []float64) (mean, standardError float64) {
	n, sum, squares := float64(len(ratios)), 0.0, 0.0
	for _, r := range ratios {
		sum += math.Log(r)
	}
	for _, r := range ratios {
		squares += (math.Log(r) - sum/n) * (math.Log(r) - sum/n)
	}
	mean = math.Exp(sum / n)
	return mean, mean * math.Sqrt(squares/(n-1)/n)
}
