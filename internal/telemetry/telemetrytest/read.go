// Package telemetrytest lets tests read what has been counted.
package telemetrytest

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

const prefix = "sandbox_provisioner_"

// Read returns the product's own series that are not zero, in the form name{label="value",…} and without what all names begin
// with. Of a histogram it is the number of observations.
func Read(t testing.TB, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	each(t, g, func(series string, m *dto.Metric) {
		value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		if value != 0 {
			all[series] = value
		}
	})
	return all
}

// Sum is the sum of the observations of a histogram.
func Sum(t testing.TB, g prometheus.Gatherer, series string) (sum float64) {
	t.Helper()
	each(t, g, func(name string, m *dto.Metric) {
		if name == series {
			sum = m.GetHistogram().GetSampleSum()
		}
	})
	return sum
}

// Has tells whether a series exists, whatever its value is.
func Has(t testing.TB, g prometheus.Gatherer, series string) (found bool) {
	t.Helper()
	each(t, g, func(name string, _ *dto.Metric) { found = found || name == series })
	return found
}

func each(t testing.TB, g prometheus.Gatherer, do func(series string, m *dto.Metric)) {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	for _, family := range families {
		name, ours := strings.CutPrefix(family.GetName(), prefix)
		if !ours {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, pair := range m.GetLabel() {
				labels = append(labels, pair.GetName()+`="`+pair.GetValue()+`"`)
			}
			series := name
			if len(labels) > 0 {
				series += "{" + strings.Join(labels, ",") + "}"
			}
			do(series, m)
		}
	}
}
