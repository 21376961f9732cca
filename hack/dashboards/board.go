package main

import (
	"errors"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// A board is one dashboard.
type board struct {
	name  string // of the file
	title string
	about string
	rows  []row
}

type row struct {
	title  string
	panels []panel
}

// tag is on all our dashboards: each has links to those that carry it.
const tag = "sandbox-provisioner"

// datasource is the variable with which the reader chooses a Prometheus.
const datasource = "datasource"

// build returns what is written as JSON, in the form that every version of Grafana imports. Its successor needs a new one.
func (b board) build() (any, error) {
	//nolint:staticcheck // see above
	builder := dashboard.NewDashboardBuilder(b.title).
		Uid(tag+"-"+b.name).
		Description(b.about).
		Tags([]string{tag}).
		Readonly().
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Time("now-1h", "now").
		Refresh("30s").
		Timezone("browser").
		WithVariable(dashboard.NewDatasourceVariableBuilder(datasource).Label("Prometheus").Type("prometheus")).
		Link(dashboard.NewDashboardLinkBuilder("Sandbox provisioner").
			Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{tag}).
			IncludeVars(true).
			KeepTime(true))
	id := uint32(0)
	for _, r := range b.rows {
		id++
		builder.WithRow(dashboard.NewRowBuilder(r.title).Id(id))
		for _, p := range r.panels {
			if err := p.check(); err != nil {
				return nil, fmt.Errorf("panel %q: %w", p.title, err)
			}
			id++
			builder.WithPanel(p.builder(id))
		}
	}
	return builder.Build()
}

// check holds every panel to what a reader needs in order to understand it.
func (p panel) check() error {
	switch {
	case p.title == "":
		return errors.New("it has no title")
	case p.about == "":
		return errors.New("it has no description")
	case p.unit == "":
		return errors.New("it has no unit")
	case len(p.queries) == 0:
		return errors.New("it asks nothing")
	}
	return nil
}

// source is the Prometheus that the reader has chosen.
func source() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${" + datasource + "}")}
}
