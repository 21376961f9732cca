package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const document = "../../docs/configuration.md"

// The table of docs/configuration.md is what the tags say; make golden writes it.
func TestTheDocumentListsEveryVariable(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(document)
	require.NoError(t, err)
	begin, rest, found := strings.Cut(string(content), "<!-- settings: written by \"make golden\" -->\n")
	require.True(t, found)
	_, end, found := strings.Cut(rest, "<!-- end of settings -->\n")
	require.True(t, found)

	want := begin + "<!-- settings: written by \"make golden\" -->\n" + tables(t) + "<!-- end of settings -->\n" + end
	if *update {
		require.NoError(t, os.WriteFile(document, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(content), "run make golden")
}

// tables has one table a group, each variable with the programs that know it.
func tables(t *testing.T) string {
	t.Helper()
	type row struct {
		setting
		programs []string
	}
	var rows []*row
	known := map[string]*row{}
	for _, p := range []struct {
		name string
		cfg  any
	}{{"api", &API{}}, {"worker", &Worker{}}, {"standalone", &Standalone{}}} {
		all, err := settings(p.cfg)
		require.NoError(t, err)
		for _, s := range all {
			if known[s.name] == nil {
				known[s.name] = &row{setting: s}
				rows = append(rows, known[s.name])
			}
			known[s.name].programs = append(known[s.name].programs, p.name)
		}
	}
	var out strings.Builder
	var groups []string
	of := map[string][]*row{}
	for _, r := range rows {
		if of[r.group] == nil {
			groups = append(groups, r.group)
		}
		of[r.group] = append(of[r.group], r)
	}
	for _, group := range groups {
		fmt.Fprintf(&out, "\n### %s\n\n| variable | default | meaning | programs |\n|---|---|---|---|\n", group)
		for _, r := range of[group] {
			preset := "empty"
			if r.preset != "" {
				preset = "`" + r.preset + "`"
			}
			programs := strings.Join(r.programs, ", ")
			if len(r.programs) == 3 {
				programs = "all"
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", r.name, preset, r.help, programs)
		}
	}
	return out.String() + "\n"
}
