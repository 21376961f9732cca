package main

import (
	"strconv"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// A panel answers one question.
type panel struct {
	title string // a question, or a fact
	about string // how to read it, and what to do
	unit  string
	look  look
	// bad is from where on the value is bad, or up to where if lowIsBad; 0 is nowhere.
	bad      float64
	lowIsBad bool
	queries  []query
}

// A look is how the answer is drawn.
type look int

const (
	lines  look = iota // over time
	stack              // parts of a whole over time
	number             // the newest value alone
	onOff              // yes or no over time, one line each
)

// A query is an expression, and what its series are called.
type query struct {
	expr, legend string
}

// Sizes, in the 24 columns of Grafana.
const (
	wide, narrow = 8, 6
	high, low    = 8, 4
)

func (p panel) builder(id uint32) cog.Builder[dashboard.Panel] {
	legend := common.NewVizLegendOptionsBuilder().ShowLegend(true).
		DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)
	tooltip := common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)
	switch p.look {
	case number:
		return stat.NewPanelBuilder().Id(id).Title(p.title).Description(p.about).Unit(p.unit).Datasource(source()).
			Span(narrow).Height(low).Targets(p.targets()).Thresholds(p.thresholds()).
			ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
			GraphMode(common.BigValueGraphModeNone).Orientation(common.VizOrientationAuto).ColorMode(common.BigValueColorModeValue)
	case onOff:
		return statetimeline.NewPanelBuilder().Id(id).Title(p.title).Description(p.about).Unit(p.unit).Datasource(source()).
			Span(wide).Height(high).Targets(p.targets()).Thresholds(p.thresholds()).
			ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds)).
			ShowValue(common.VisibilityModeNever).MergeValues(true).Legend(legend).Tooltip(tooltip)
	case lines, stack:
	}
	b := timeseries.NewPanelBuilder().Id(id).Title(p.title).Description(p.about).Unit(p.unit).Datasource(source()).
		Span(wide).Height(high).Targets(p.targets()).Min(0).
		ShowPoints(common.VisibilityModeNever).LineWidth(1).FillOpacity(10).Legend(legend).Tooltip(tooltip)
	if p.look == stack {
		b.Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal)).FillOpacity(30)
	}
	if p.bad != 0 {
		b.Thresholds(p.thresholds()).
			ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
	}
	return b
}

func (p panel) targets() []cog.Builder[prometheusQuery] {
	var targets []cog.Builder[prometheusQuery]
	for i, q := range p.queries {
		b := prometheus.NewDataqueryBuilder().RefId(refID(i)).Datasource(source()).Expr(q.expr).LegendFormat(q.legend)
		if p.look == number {
			b.Instant()
		} else {
			b.Range()
		}
		targets = append(targets, b)
	}
	return targets
}

func refID(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return "Q" + strconv.Itoa(i)
}

func (p panel) thresholds() cog.Builder[dashboard.ThresholdsConfig] {
	const green, red = "green", "red"
	steps := []dashboard.Threshold{{Color: green}}
	switch {
	case p.bad == 0:
	case p.lowIsBad:
		steps = []dashboard.Threshold{{Color: red}, {Color: green, Value: cog.ToPtr(p.bad)}}
	default:
		steps = append(steps, dashboard.Threshold{Color: red, Value: cog.ToPtr(p.bad)})
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)
}
