package testenv

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// ScrapeInterval is how often a Prometheus of the tests scrapes, and evaluates its rules. A scrape may take as long: on a busy machine
// a shorter one would take for stopped what is slow.
const ScrapeInterval = 2 * time.Second

// A PrometheusServer is a real Prometheus of a test.
type PrometheusServer struct {
	prometheus.API

	t     testing.TB
	since time.Time
}

// Targets are the addresses of metrics, by the job that scrapes them.
type Targets map[string][]string

// Targets are those of all programs, under the jobs that dashboards and rules expect.
func (d *Deployment[P]) Targets() Targets {
	targets := Targets{}
	for job, programs := range map[string][]P{"sandbox-provisioner-api": d.APIs, "sandbox-provisioner-worker": d.Workers} {
		for _, program := range programs {
			at, err := url.Parse(program.metrics())
			require.NoError(d.t, err)
			targets[job] = append(targets[job], at.Host)
		}
	}
	return targets
}

// Prometheus starts a Prometheus that ends with the test, and returns when it has scraped all targets and knows the rules.
func Prometheus(t testing.TB, targets Targets, rules ...string) *PrometheusServer {
	t.Helper()
	tool := PrometheusTool(t, "prometheus")
	dir, addr := t.TempDir(), FreeAddr(t)
	config := filepath.Join(dir, "prometheus.yaml")
	require.NoError(t, os.WriteFile(config, prometheusConfig(t, targets, nil), 0o600))

	log := newLogBook(t, "Prometheus")
	cmd := exec.Command(tool, "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", addr, "--log.level", "warn")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	require.NoError(t, cmd.Start())
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(stopTimeout):
			t.Error("Prometheus did not end and was killed")
			_ = cmd.Process.Kill()
			<-exited
		}
	})
	client, err := api.NewClient(api.Config{Address: "http://" + addr, Client: httpClient})
	require.NoError(t, err)
	Until(t, startTimeout, func() error {
		select {
		case <-exited:
			t.Fatalf("Prometheus ended at its start:\n%s", log)
		default:
		}
		return answers("http://" + addr + "/-/ready")
	})
	p := &PrometheusServer{API: prometheus.NewAPI(client), t: t, since: time.Now()}
	// Before the first scrape everything seems to be away, and some rules remember that for long.
	Until(t, startTimeout, func() error { return p.reaches(targets) })
	require.NoError(t, os.WriteFile(config, prometheusConfig(t, targets, rules), 0o600))
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	Until(t, startTimeout, func() error { return p.knows(rules) })
	return p
}

// reaches returns nil when all targets have answered.
func (p *PrometheusServer) reaches(targets Targets) error {
	all := 0
	for _, addrs := range targets {
		all += len(addrs)
	}
	value, _, _, err := p.Query(p.t.Context(), "up == 1", time.Now())
	if err != nil {
		return err
	}
	if up := len(value.(model.Vector)); up < all {
		return fmt.Errorf("Prometheus has reached %d of %d targets", up, all)
	}
	return nil
}

// knows returns nil when all files of rules have been read.
func (p *PrometheusServer) knows(rules []string) error {
	known, err := p.Rules(p.t.Context(), nil)
	if err != nil {
		return err
	}
	for _, path := range rules {
		if !slices.ContainsFunc(known.Groups, func(g prometheus.RuleGroup) bool { return g.File == path }) {
			return fmt.Errorf("Prometheus does not know the rules of %s", path)
		}
	}
	return nil
}

// prometheusConfig is JSON, which is YAML too.
func prometheusConfig(t testing.TB, targets Targets, rules []string) []byte {
	t.Helper()
	type static struct {
		Targets []string `json:"targets"`
	}
	type job struct {
		Name    string   `json:"job_name"`
		Configs []static `json:"static_configs"`
	}
	var jobs []job
	for name, addrs := range targets {
		jobs = append(jobs, job{name, []static{{addrs}}})
	}
	content, err := json.Marshal(map[string]any{
		"global":         map[string]any{"scrape_interval": ScrapeInterval.String(), "scrape_timeout": ScrapeInterval.String(), "evaluation_interval": ScrapeInterval.String()},
		"rule_files":     rules,
		"scrape_configs": jobs,
	})
	require.NoError(t, err)
	return content
}

// Forget lets Seen begin now.
func (p *PrometheusServer) Forget() { p.since = time.Now() }

// Seen is what an expression gave at any time since the start, without what is not a number.
func (p *PrometheusServer) Seen(ctx context.Context, expr string) (model.Matrix, error) {
	value, warnings, infos, err := p.QueryRange(ctx, expr, prometheus.Range{Start: p.since, End: time.Now(), Step: ScrapeInterval})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	if len(warnings)+len(infos) > 0 { // such as a rate of what is no counter
		return nil, fmt.Errorf("%s: Prometheus warns: %v %v", expr, warnings, infos)
	}
	var seen model.Matrix
	for _, series := range value.(model.Matrix) {
		var numbers []model.SamplePair
		for _, pair := range series.Values {
			if pair.Value == pair.Value { // NaN is not
				numbers = append(numbers, pair)
			}
		}
		if len(numbers) > 0 {
			seen = append(seen, &model.SampleStream{Metric: series.Metric, Values: numbers})
		}
	}
	return seen, nil
}

// PrometheusTool is the path of one of the programs in hack/prometheus: prometheus, promtool or hasten.
func PrometheusTool(t testing.TB, name string) string {
	t.Helper()
	dir, err := prometheusTools()
	require.NoError(t, err, "build Prometheus")
	return filepath.Join(dir, name)
}

// prometheusTools builds them, once for this process. The first time on a machine takes minutes.
var prometheusTools = sync.OnceValues(func() (string, error) {
	base, err := root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "bin", "prometheus")
	// Without the clients of all clouds, in which Prometheus would look for targets.
	return dir, build(filepath.Join(base, "hack", "prometheus"), dir, "-tags=remove_all_sd",
		"github.com/prometheus/prometheus/cmd/prometheus", "github.com/prometheus/prometheus/cmd/promtool", "./hasten")
})

// Hasten makes a copy of Prometheus rules in which time runs faster by a factor, and returns its path.
func Hasten(t testing.TB, factor int, rules string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(rules))
	output, err := exec.Command(PrometheusTool(t, "hasten"), strconv.Itoa(factor), rules, out).CombinedOutput()
	require.NoError(t, err, "%s", output)
	return out
}
