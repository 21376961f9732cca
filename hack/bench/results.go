package main

import "slices"

// results are all that has been measured, in the order in which it came.
type results struct {
	values []value
	groups []*group
}

// A value is what one round has shown.
type value struct {
	Title, Contestant, Metric string
	Value                     float64
}

// A group is one load, carried by several contestants. The first of them is the baseline that the others are held against.
type group struct {
	title       string
	contestants []string
	metrics     []string
	values      map[series][]float64 // one value a round
}

type series struct{ metric, contestant string }

// add appends the value of one round.
func (r *results) add(title, contestant, metric string, v float64) {
	r.values = append(r.values, value{title, contestant, metric, v})
	g := r.group(title)
	if g == nil {
		g = &group{title: title, values: map[series][]float64{}}
		r.groups = append(r.groups, g)
	}
	if !slices.Contains(g.contestants, contestant) {
		g.contestants = append(g.contestants, contestant)
	}
	if !slices.Contains(g.metrics, metric) {
		g.metrics = append(g.metrics, metric)
	}
	s := series{metric, contestant}
	g.values[s] = append(g.values[s], v)
}

// group is nil when there is none of that title.
func (r *results) group(title string) *group {
	i := slices.IndexFunc(r.groups, func(g *group) bool { return g.title == title })
	if i < 0 {
		return nil
	}
	return r.groups[i]
}

// against are the values of a contestant as multiples of the baseline's; none for the baseline itself.
func (g *group) against(metric, contestant string) []float64 {
	if contestant == g.contestants[0] {
		return nil
	}
	return ratios(g.values[series{metric, contestant}], g.values[series{metric, g.contestants[0]}])
}
