package observe_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

// faster is by how much time runs faster for the rules: five minutes are fifteen seconds.
const faster = 20

// A site is api and workers under load, watched by a Prometheus.
type site struct {
	*testenv.Deployment[*testenv.Process]
	*testenv.PrometheusServer

	t     *testing.T
	proxy *testenv.FaultProxy
}

// observe starts a site whose programs reach Kubernetes through a proxy, and a load that lasts as long as the test.
func observe(t *testing.T, beside testenv.Targets, opts ...testenv.Option) *site {
	t.Helper()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	opts = append([]testenv.Option{testenv.Through(proxy), testenv.Env("CREATE_WAIT", "8s")}, opts...)
	s := &site{Deployment: testenv.Processes(t, opts...), t: t, proxy: proxy}
	targets := s.Targets()
	for job, addrs := range beside {
		targets[job] = append(targets[job], addrs...)
	}
	s.PrometheusServer = testenv.Prometheus(t, targets, fastRules(t)...)
	s.inBackground(gateway)
	s.until(60*time.Second, func() error { return s.gives("sandbox_provisioner:outcomes:rate5m > 0") })
	s.waitUntilQuiet(untilQuiet)
	s.Forget()
	return s
}

// fastRules are copies of our rules for the tests.
func fastRules(t *testing.T) []string {
	t.Helper()
	var fast []string
	for _, path := range ruleFiles(t) {
		fast = append(fast, testenv.Hasten(t, faster, path))
	}
	return fast
}

// inBackground repeats do, with a number that grows, once a second until the test ends.
func (s *site) inBackground(do func(s *site, n int)) {
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				do(s, n)
			}
		}
	})
	s.t.Cleanup(func() {
		close(stop)
		running.Wait()
	})
}

// gateway is what a gateway does all day, whether it succeeds or not.
func gateway(s *site, n int) {
	c, ctx, id := s.Client(), s.t.Context(), fmt.Sprint("day-", n)
	c.Create(ctx, id)
	c.Get(ctx, id)
	c.Presence(ctx, id)
	c.List(ctx)
	c.Delete(ctx, id)
}

// until is testenv.Until for what Prometheus knows: nothing new between two scrapes.
func (s *site) until(within time.Duration, condition func() error) {
	s.t.Helper()
	tick := time.NewTicker(testenv.ScrapeInterval / 2)
	defer tick.Stop()
	testenv.Until(s.t, within, func() error {
		<-tick.C
		return condition()
	})
}

// gives returns nil when an expression has given data at any time.
func (s *site) gives(expr string) error {
	seen, err := s.Seen(s.t.Context(), expr)
	if err == nil && len(seen) == 0 {
		err = fmt.Errorf("%s gives no data", expr)
	}
	return err
}

// fired are the alerts that have fired at any time.
func (s *site) fired() []string {
	s.t.Helper()
	seen, err := s.Seen(s.t.Context(), `count by (alertname) (ALERTS{alertstate="firing"})`)
	require.NoError(s.t, err)
	return alertNames(seen)
}

// firing are those that fire now.
func (s *site) firing() ([]string, error) {
	value, _, _, err := s.Query(s.t.Context(), `count by (alertname) (ALERTS{alertstate="firing"})`, time.Now())
	if err != nil {
		return nil, err
	}
	var seen model.Matrix
	for _, sample := range value.(model.Vector) {
		seen = append(seen, &model.SampleStream{Metric: sample.Metric})
	}
	return alertNames(seen), nil
}

func alertNames(m model.Matrix) []string {
	names := []string{}
	for _, series := range m {
		names = append(names, string(series.Metric["alertname"]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// waitUntilFiring waits until each of the alerts fires.
func (s *site) waitUntilFiring(within time.Duration, alerts ...string) {
	s.t.Helper()
	s.until(within, func() error {
		firing, err := s.firing()
		if err != nil {
			return err
		}
		for _, alert := range alerts {
			if !slices.Contains(firing, alert) {
				return fmt.Errorf("%s does not fire, but %v", alert, firing)
			}
		}
		return nil
	})
}

// waitUntilQuiet waits until no alert fires.
func (s *site) waitUntilQuiet(within time.Duration) {
	s.t.Helper()
	s.until(within, func() error {
		firing, err := s.firing()
		if err == nil && len(firing) > 0 {
			err = fmt.Errorf("%v fire", firing)
		}
		return err
	})
}

// requireSoundRules finds rules that could not be evaluated at some time: they would be missing when they are needed.
func (s *site) requireSoundRules() {
	s.t.Helper()
	seen, err := s.Seen(s.t.Context(), "prometheus_rule_evaluation_failures_total > 0")
	require.NoError(s.t, err)
	require.Empty(s.t, seen)
	for _, r := range s.rules() {
		require.Equal(s.t, "ok", r.health, "%s: %s", r.name, r.problem)
	}
}

// lastFor lets time pass. There is nothing else to wait for.
func lastFor(t *testing.T, long time.Duration) {
	t.Helper()
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		require.NoError(t, t.Context().Err())
	}
}

// queue has creates accepted without waiting for them.
func (s *site) queue(prefix string, n int) {
	s.t.Helper()
	for i := range n {
		s.Client().Create(s.t.Context(), fmt.Sprint(prefix, "-", i), testenv.Prefer("respond-async")).Want(s.t, http.StatusAccepted)
	}
}
