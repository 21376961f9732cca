package helm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart"
	corev1 "k8s.io/api/core/v1"
)

// copies are the files that the chart needs inside its own directory, because Helm reads none outside.
var copies = []struct{ from, pattern, to string }{
	{"../../deploy/prometheus/rules", "*.yaml", "rules"},
	{"../../deploy/grafana/dashboards", "*.json", "dashboards"},
}

func TestChartHasTheRulesAndDashboardsOfTheRepository(t *testing.T) {
	t.Parallel()
	for _, c := range copies {
		t.Run(c.to, func(t *testing.T) {
			t.Parallel()
			to := filepath.Join(chartDir, "files", c.to)
			want := contents(t, c.from, c.pattern)
			if *update {
				require.NoError(t, os.RemoveAll(to))
				for name, content := range want {
					require.NoError(t, os.MkdirAll(to, 0o755))
					require.NoError(t, os.WriteFile(filepath.Join(to, name), []byte(content), 0o644))
				}
			}
			require.Equal(t, want, contents(t, to, "*"), "run make golden")
		})
	}
}

func contents(t *testing.T, dir, pattern string) map[string]string {
	t.Helper()
	files := map[string]string{}
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	for _, path := range paths {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		files[filepath.Base(path)] = string(content)
	}
	return files
}

const monitored = `
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboards: {enabled: true}
`

func TestRulesAndDashboardsAreRenderedAsTheyAre(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	c.Files = []*chart.File{
		{Name: "files/rules/alerts.yaml", Data: []byte("groups:\n  - name: a\n    rules:\n      - alert: A\n        expr: up == 0\n        annotations: {summary: '{{ $labels.instance }} is down'}\n")},
		{Name: "files/dashboards/overview.json", Data: []byte("{\n  \"title\": \"{{ instance }}\"\n}\n")},
	}
	r, err := tryRender(t, c, monitored)
	require.NoError(t, err)

	rule := r.find("PrometheusRule", "-alerts")
	require.NotNil(t, rule)
	require.Equal(t, "prometheus", rule.GetLabels()["release"])
	group := rule.Object["spec"].(map[string]any)["groups"].([]any)[0].(map[string]any)
	alert := group["rules"].([]any)[0].(map[string]any)
	require.Equal(t, "{{ $labels.instance }} is down", alert["annotations"].(map[string]any)["summary"])

	dashboard := get[corev1.ConfigMap](t, r, "ConfigMap", "-dashboard-overview")
	require.Equal(t, "1", dashboard.Labels["grafana_dashboard"])
	require.JSONEq(t, `{"title": "{{ instance }}"}`, dashboard.Data["overview.json"])
}

func TestMonitoringIsOffUnlessAskedFor(t *testing.T) {
	t.Parallel()
	kinds := render(t, "").kinds()
	for _, kind := range []string{"ServiceMonitor", "PrometheusRule", "ScaledObject", "HorizontalPodAutoscaler", "ClusterRole", "ClusterRoleBinding"} {
		require.Zero(t, kinds[kind], kind)
	}
	require.Equal(t, 2, kinds["ConfigMap"], "no dashboards")
}

func TestWithoutFilesThereIsNothingToRender(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	c.Files = nil
	r, err := tryRender(t, c, monitored)
	require.NoError(t, err)
	require.Equal(t, 0, r.kinds()["PrometheusRule"])
	require.Equal(t, 2, r.kinds()["ConfigMap"])
}

func TestPrometheusFindsThePodsOfBothPrograms(t *testing.T) {
	t.Parallel()
	r := render(t, "serviceMonitor: {enabled: true}")
	service := get[corev1.Service](t, r, "Service", "-metrics")
	monitor := r.find("ServiceMonitor", "")
	require.NotNil(t, monitor)
	spec := monitor.Object["spec"].(map[string]any)
	for key, value := range spec["selector"].(map[string]any)["matchLabels"].(map[string]any) {
		require.Equal(t, value, service.Labels[key], key)
	}
	endpoint := spec["endpoints"].([]any)[0].(map[string]any)
	require.Equal(t, service.Spec.Ports[0].Name, endpoint["port"])
	require.Equal(t, []any{map[string]any{
		"sourceLabels": []any{"__meta_kubernetes_pod_label_app_kubernetes_io_component"},
		"targetLabel":  "job", "replacement": "sandbox-provisioner-$1",
	}}, endpoint["relabelings"])
	require.Subset(t, r.workload(t, "api").Spec.Template.Labels, service.Spec.Selector)
	require.Subset(t, r.workload(t, "worker").Spec.Template.Labels, service.Spec.Selector)
	require.NotSubset(t, r.workload(t, "nats").Spec.Template.Labels, service.Spec.Selector)
	for _, component := range []string{"api", "worker"} {
		require.Contains(t, r.workload(t, component).container().Ports, corev1.ContainerPort{Name: "metrics", ContainerPort: 9090})
	}
}
