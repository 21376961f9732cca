package main

import (
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
)

type prometheusQuery = variants.Dataquery

// prefix of all our metrics.
const prefix = "sandbox_provisioner_"

// ask is one query.
func ask(expr, legend string) []query { return []query{{expr, legend}} }

// perSecond is how fast a counter grows, by labels. selector is the inside of the braces, or empty.
func perSecond(counter, selector string, by ...string) string {
	return fmt.Sprintf("sum%s (rate(%s[$__rate_interval]))", clause(by), series(counter, selector))
}

// rates is perSecond, with a line for each combination of the labels.
func rates(counter, selector string, by ...string) []query {
	legend := make([]string, len(by))
	for i, label := range by {
		legend[i] = "{{" + label + "}}"
	}
	return ask(perSecond(counter, selector, by...), strings.Join(legend, " "))
}

// share is which part of a counter's growth is of a kind.
func share(counter, of, in string, by ...string) string {
	// A series of the first kind may not exist yet.
	part := fmt.Sprintf("(%s or 0 * %s)", perSecond(counter, of, by...), perSecond(counter, in, by...))
	return part + " / " + perSecond(counter, in, by...)
}

// quantiles are the median, the 95th and the 99th percentile of a histogram.
func quantiles(histogram, selector string) []query {
	var queries []query
	for _, q := range []struct{ value, name string }{{"0.5", "half"}, {"0.95", "95 %"}, {"0.99", "99 %"}} {
		queries = append(queries, query{quantile(q.value, histogram, selector), q.name + " within"})
	}
	return queries
}

func quantile(q, histogram, selector string, by ...string) string {
	return fmt.Sprintf("histogram_quantile(%s, %s)", q, perSecond(histogram+"_bucket", selector, append([]string{"le"}, by...)...))
}

func series(name, selector string) string {
	if selector == "" {
		return prefix + name
	}
	return prefix + name + "{" + selector + "}"
}

func clause(by []string) string {
	if len(by) == 0 {
		return ""
	}
	return " by (" + strings.Join(by, ", ") + ")"
}
