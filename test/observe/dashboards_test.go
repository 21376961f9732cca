package observe_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A boardQuery is one expression of a dashboard.
type boardQuery struct {
	// name is where it stands: dashboard, panel, letter.
	name, expr string
}

// A boardPanel is what a dashboard's file says of a panel.
type boardPanel struct {
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Datasource struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	Targets []struct {
		Expr  string `json:"expr"`
		RefID string `json:"refId"`
	} `json:"targets"`
}

// boardPanels are the panels of all dashboards, by dashboard.
func boardPanels(t *testing.T) map[string][]boardPanel {
	t.Helper()
	all := map[string][]boardPanel{}
	for _, path := range files(t, "../../deploy/grafana/dashboards/*.json") {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		var board struct {
			Panels []boardPanel `json:"panels"`
		}
		require.NoError(t, json.Unmarshal(content, &board))
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		for _, p := range board.Panels {
			if p.Type != "row" {
				all[name] = append(all[name], p)
			}
		}
		require.NotEmpty(t, all[name], name)
	}
	return all
}

func boardQueries(t *testing.T) []boardQuery {
	t.Helper()
	// What Grafana puts in: at least four scrapes.
	variables := strings.NewReplacer("$__rate_interval", "10s")
	var queries []boardQuery
	for board, panels := range boardPanels(t) {
		for _, p := range panels {
			for _, target := range p.Targets {
				queries = append(queries, boardQuery{fmt.Sprintf("%s: %s (%s)", board, p.Title, target.RefID), variables.Replace(target.Expr)})
			}
		}
	}
	return queries
}

func TestEveryPanelSaysWhatItShows(t *testing.T) {
	t.Parallel()
	for board, panels := range boardPanels(t) {
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			titles := map[string]bool{}
			for _, p := range panels {
				require.False(t, titles[p.Title], "two panels are called %q", p.Title)
				titles[p.Title] = true
				require.NotEmpty(t, p.Title)
				require.NotEmpty(t, p.Description, p.Title)
				require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
				require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
				require.NotEmpty(t, p.Targets, p.Title)
			}
		})
	}
}
