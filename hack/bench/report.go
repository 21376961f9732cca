package main

import (
	"fmt"
	"strings"
)

// A goal is a figure that a change must not spoil.
type goal struct {
	key        string // in the last line; only one contestant's has one
	text       string
	title      string
	contestant string
	metric     string
	// ofBaseline: the figure is a multiple of the baseline's, round by round. Else the metric is a ratio already.
	ofBaseline bool
	atLeast    bool // else at most
	limit      float64
}

var goals = []goal{
	{"create_ratio", "creates a second, 32 at once", createTitle(atOnce), "standalone", perSecond, true, true, 0.80},
	{"", "creates a second, 32 at once", createTitle(atOnce), "api + 1 worker", perSecond, true, true, 0.80},
	{"create_p50_ratio", "create p50, one at a time", createTitle(1), "standalone", p50, true, false, 1.35},
	{"", "create p50, one at a time", createTitle(1), "api + 1 worker", p50, true, false, 1.35},
	{"accept_ratio", "accepts a second, 64 at once, synced to disk", acceptTitle, "api", perSecond, true, true, 0.70},
	{"get_ratio", "GETs a second, 32 at once", getTitle, "standalone", perSecond, true, true, 0.80},
	{"list_ratio", "list of 1,000, p50", listTitle(readable), "standalone", p50, true, false, 1.40},
	{"cpu_share", "CPU of the product / of kube-apiserver and etcd", createTitle(atOnce), "standalone", cpuShare, false, false, 0.30},
	{"", "CPU of the product / of kube-apiserver and etcd", createTitle(atOnce), "api + 1 worker", cpuShare, false, false, 0.30},
	{"", "create p50, with 5,000 living / with none", livingTitle, "5,000 living", "standalone, " + p50, true, false, 1.25},
	{"", "draining 5,000 queued creates, a second", drainTitle, "1 worker", perSecond, true, true, 0.80},
	{"", "memory of api, after 20,000 creates and deletes / after 1,000", memoryTitle, "after 20,000", partAPI, true, false, 1.15},
	{"", "memory of worker, after 20,000 creates and deletes / after 1,000", memoryTitle, "after 20,000", partWorker, true, false, 1.15},
}

// reached is what the rounds have shown of the goal; false when it was not measured.
func (g goal) reached(r *results) (spread, bool) {
	of := r.group(g.title)
	if of == nil {
		return spread{}, false
	}
	values := of.values[series{g.metric, g.contestant}]
	if g.ofBaseline {
		values = of.against(g.metric, g.contestant)
	}
	return spreadOf(values), len(values) > 0
}

func (g goal) held(s spread) bool {
	if g.atLeast {
		return s.median >= g.limit
	}
	return s.median <= g.limit
}

func (g goal) bound() string {
	if g.atLeast {
		return fmt.Sprintf("≥ %.2f", g.limit)
	}
	return fmt.Sprintf("≤ %.2f", g.limit)
}

// lastLine is for programs that read the output.
func lastLine(r *results) string {
	line := "bench:"
	for _, g := range goals {
		if s, ok := g.reached(r); ok && g.key != "" {
			line += fmt.Sprintf(" %s=%.2f", g.key, s.median)
		}
	}
	return line
}

// goalTable holds what was measured against what is wanted.
func goalTable(r *results) string {
	var out strings.Builder
	out.WriteString("| figure | of | median | smallest–largest | goal | |\n|---|---|---|---|---|---|\n")
	for _, g := range goals {
		s, ok := g.reached(r)
		if !ok {
			continue
		}
		verdict := "holds"
		if !g.held(s) {
			verdict = "**missed**"
		}
		fmt.Fprintf(&out, "| %s | %s | %.2f | %.2f–%.2f | %s | %s |\n", g.text, g.contestant, s.median, s.min, s.max, g.bound(), verdict)
	}
	return out.String()
}

// table has one row a metric and one column a contestant.
func (g *group) table() string {
	var out strings.Builder
	fmt.Fprintf(&out, "| %s | %s |\n|%s\n", g.title, strings.Join(g.contestants, " | "), strings.Repeat("---|", len(g.contestants)+1))
	for _, metric := range g.metrics {
		fmt.Fprintf(&out, "| %s |", metric)
		for _, c := range g.contestants {
			fmt.Fprintf(&out, " %s |", g.cell(metric, c))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// cell is the median with the extremes, and the ratio to the baseline's.
func (g *group) cell(metric, contestant string) string {
	values := g.values[series{metric, contestant}]
	if len(values) == 0 {
		return "–"
	}
	s := spreadOf(values)
	cell := number(s.median)
	if len(values) > 1 {
		cell += fmt.Sprintf(" (%s–%s)", number(s.min), number(s.max))
	}
	if against := g.against(metric, contestant); len(against) > 0 {
		cell += fmt.Sprintf(" ×%.2f", spreadOf(against).median)
	}
	return cell
}

// number has as many digits as are worth reading.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
