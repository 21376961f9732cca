package observe_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"sandbox-provisioner/internal/testenv"
)

const prometheusDir = "../../deploy/prometheus"

// A rule is one of ours, as a Prometheus tells it.
type rule struct {
	name, expr      string
	alert           bool
	health, problem string
}

func (s *site) rules() []rule {
	s.t.Helper()
	result, err := s.Rules(s.t.Context(), nil)
	require.NoError(s.t, err)
	var rules []rule
	for _, group := range result.Groups {
		for _, r := range group.Rules {
			switch r := r.(type) {
			case prometheus.AlertingRule:
				rules = append(rules, rule{r.Name, r.Query, true, string(r.Health), r.LastError})
			case prometheus.RecordingRule:
				rules = append(rules, rule{r.Name, r.Query, false, string(r.Health), r.LastError})
			}
		}
	}
	require.NotEmpty(s.t, rules)
	return rules
}

func ruleFiles(t *testing.T) []string {
	t.Helper()
	return files(t, prometheusDir+"/rules/*.yaml")
}

func files(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, found, pattern)
	for i := range found {
		found[i], err = filepath.Abs(found[i])
		require.NoError(t, err)
	}
	return found
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), testenv.PrometheusTool(t, "promtool"), args...).CombinedOutput()
	require.NoError(t, err, "%s", output)
}

func TestRulesAreWellFormed(t *testing.T) {
	t.Parallel()
	for _, path := range ruleFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			promtool(t, "check", "rules", "--lint=all", "--lint-fatal", path)
		})
	}
}

func TestRulesPassTheirUnitTests(t *testing.T) {
	t.Parallel()
	for _, path := range files(t, prometheusDir+"/tests/*.yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			promtool(t, "test", "rules", path)
		})
	}
}

// An alert that does not say what it means and what to do wakes somebody for nothing.
func TestEveryAlertLeadsToItsSectionOfTheRunbook(t *testing.T) {
	t.Parallel()
	anchors := map[string]bool{}
	runbook, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(runbook), -1) {
		anchors[strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")] = true
	}
	for name, alert := range alertsInFiles(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, []string{"critical", "warning"}, alert.Labels["severity"])
			require.NotEmpty(t, alert.Annotations["summary"])
			require.NotEmpty(t, alert.Annotations["description"])
			link, err := url.Parse(alert.Annotations["runbook_url"])
			require.NoError(t, err)
			require.Equal(t, "docs/operations.md", link.Path)
			require.Contains(t, anchors, link.Fragment, "docs/operations.md has no such heading")
		})
	}
}

// An alertRule is what the files say of an alert.
type alertRule struct {
	Alert       string            `json:"alert"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alertsInFiles(t *testing.T) map[string]alertRule {
	t.Helper()
	alerts := map[string]alertRule{}
	for _, path := range ruleFiles(t) {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		var file struct {
			Groups []struct {
				Rules []alertRule `json:"rules"`
			} `json:"groups"`
		}
		require.NoError(t, yaml.Unmarshal(content, &file))
		for _, group := range file.Groups {
			for _, r := range group.Rules {
				if r.Alert != "" {
					require.NotContains(t, alerts, r.Alert, "two alerts of one name")
					alerts[r.Alert] = r
				}
			}
		}
	}
	require.NotEmpty(t, alerts)
	return alerts
}
