package observe_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/testenv"
)

const (
	document = "../../docs/metrics.md"
	prefix   = "sandbox_provisioner_"
)

// A metric is what is said, or seen, of one name.
type metric struct {
	kind     string
	labels   string // sorted, separated by commas
	programs string
	moved    bool
}

// The document, what programs serve, and what happens to them, agree.
func TestTheDocumentListsEveryMetric(t *testing.T) {
	t.Parallel()
	documented := readDocument(t)
	d := newDiary(t)
	d.live()
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		t.Run(name, func(t *testing.T) {
			want := documented[name]
			want.moved = true
			require.Contains(t, d.seen, name, "no program serves it")
			require.Equal(t, want, *d.seen[name])
		})
	}
	t.Run("and no other", func(t *testing.T) {
		for name := range d.seen {
			require.Contains(t, documented, name)
		}
	})
}

// readDocument reads the rows of the tables.
func readDocument(t *testing.T) map[string]metric {
	t.Helper()
	content, err := os.ReadFile(document)
	require.NoError(t, err)
	all := map[string]metric{}
	for line := range strings.Lines(string(content)) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.HasPrefix(cells[1], " `"+prefix) {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		name := strings.TrimPrefix(strings.Trim(cells[1], "`"), prefix)
		require.NotContains(t, all, name, "listed twice")
		var labels []string
		for label := range strings.SplitSeq(cells[3], ",") {
			if label = strings.Trim(label, " `"); label != "" {
				labels = append(labels, label)
			}
		}
		slices.Sort(labels)
		all[name] = metric{kind: cells[2], labels: strings.Join(labels, ","), programs: cells[4]}
	}
	require.NotEmpty(t, all)
	return all
}

// A diary is a stack, and what has been seen of its metrics.
type diary struct {
	*testenv.Deployment[*testenv.Process]
	t     *testing.T
	proxy *testenv.FaultProxy
	seen  map[string]*metric
}

func newDiary(t *testing.T) *diary {
	t.Helper()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	return &diary{t: t, proxy: proxy, seen: map[string]*metric{}, Deployment: testenv.Processes(t, testenv.Through(proxy),
		// Limits that are not reached, and a sweep that has little patience.
		testenv.Env("K8S_QPS", "1000"), testenv.Env("SWEEP_INTERVAL", "1s"), testenv.Env("ORPHAN_GRACE", "0s"),
		testenv.Env("CREATE_WAIT", "3s"), testenv.Env("PROVISIONER_API_KEYS", "greedy:greedy-secret"),
		testenv.Env("RATE_LIMIT_RPS", "20"), testenv.Env("RATE_LIMIT_BURST", "40"))}
}

// scrape reads the metrics of one program, and takes note of them.
func (d *diary) scrape(name string, p *testenv.Process) (map[string]float64, error) {
	families, err := testenv.Scrape(d.t.Context(), p)
	values := map[string]float64{}
	for full, family := range families {
		short, ours := strings.CutPrefix(full, prefix)
		if !ours {
			continue
		}
		m := d.seen[short]
		if m == nil {
			m = &metric{kind: strings.ToLower(family.GetType().String()), programs: name}
			d.seen[short] = m
		}
		if !strings.Contains(m.programs, name) {
			m.programs = "api, worker"
		}
		for _, series := range family.GetMetric() {
			labels, key := labelsOf(series)
			m.labels = labels
			value := series.GetCounter().GetValue() + series.GetGauge().GetValue() + float64(series.GetHistogram().GetSampleCount())
			m.moved = m.moved || value != 0
			values[short+key] = value
			values[short] += value
		}
	}
	return values, err
}

func labelsOf(series *dto.Metric) (names, key string) {
	var all, pairs []string
	for _, pair := range series.GetLabel() {
		all = append(all, pair.GetName())
		pairs = append(pairs, pair.GetName()+"="+pair.GetValue())
	}
	slices.Sort(all)
	slices.Sort(pairs)
	return strings.Join(all, ","), "{" + strings.Join(pairs, ",") + "}"
}

// until scrapes until all is as wanted.
func (d *diary) until(program string, what string, holds func(map[string]float64) bool) {
	d.t.Helper()
	p := d.APIs[0]
	if program == "worker" {
		p = d.Workers[0]
	}
	testenv.Until(d.t, 30*time.Second, func() error {
		values, err := d.scrape(program, p)
		if err == nil && !holds(values) {
			err = fmt.Errorf("%s does not show %s: %v", program, what, values)
		}
		return err
	})
}

// absent tells whether a program serves nothing of that name.
func absent(values map[string]float64, name string) bool {
	_, found := values[name]
	return !found
}

// live is a day with everything in it.
func (d *diary) live() {
	d.t.Helper()
	d.goodAndBadRequests()
	d.trouble()
	d.aJobUnderWay()
	d.noWorkers()
	d.noNATS()
	d.noKubernetes()
	d.until("worker", "a sandbox that cannot start", func(v map[string]float64) bool {
		return v["sandboxes_not_ready{reason=ImagePullBackOff}"]+v["sandboxes_not_ready{reason=ErrImagePull}"] == 1
	})
	_, err := d.scrape("api", d.APIs[0])
	require.NoError(d.t, err)
}

func (d *diary) goodAndBadRequests() {
	t, c := d.t, d.Client()
	for i := range 5 {
		c.Create(t.Context(), fmt.Sprint("good-", i)).Want(t, http.StatusOK)
	}
	c.Create(t.Context(), "good-0").Want(t, http.StatusOK)
	c.Create(t.Context(), "good-0", testenv.Field("max_shell_sessions", 99)).Want(t, http.StatusConflict)
	c.Create(t.Context(), "later", testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	c.Delete(t.Context(), "good-1").Want(t, http.StatusOK)
	c.Create(t.Context(), "Not A Name").Want(t, http.StatusUnprocessableEntity)
	c.Do(t.Context(), http.MethodGet, "/api/nothing", nil).Want(t, http.StatusNotFound)
	testenv.Client{URL: c.URL, Key: "guess"}.List(t.Context()).Want(t, http.StatusUnauthorized)
	testenv.Client{URL: c.URL}.List(t.Context()).Want(t, http.StatusUnauthorized)
	greedy := testenv.Client{URL: c.URL, Key: "greedy-secret"}
	testenv.Until(t, 10*time.Second, func() error { // a request takes far less than a 20th of a second
		if r := greedy.Do(t.Context(), http.MethodGet, "/api/capabilities", nil); r.Code != http.StatusTooManyRequests {
			return errors.New(r.String())
		}
		return nil
	})
	d.until("api", "the requests", func(v map[string]float64) bool {
		return v["http_requests_total{code=200,method=POST,route=/api/sandboxes}"] == 6 &&
			v["http_requests_total{code=202,method=POST,route=/api/sandboxes}"] == 1 &&
			v["http_requests_total{code=404,method=GET,route=unmatched}"] == 1 &&
			v["auth_refusals_total{reason=wrong}"] == 1 && v["auth_refusals_total{reason=missing}"] == 1 &&
			v["rate_limited_total{key=greedy}"] == 1 && v["rate_limited_total{key=default}"] == 0 &&
			v["intents_published_total{op=present,result=new}"] == 6 && v["intents_published_total{op=present,result=answered}"] == 2 &&
			v["intents_published_total{op=absent,result=new}"] == 1 && v["kubernetes_reachable"] == 1
	})
	d.until("worker", "the sandboxes", func(v map[string]float64) bool {
		return v["outcomes_total{op=present,reason=,result=succeeded}"] == 6 && v["outcomes_total{op=absent,reason=,result=succeeded}"] == 1 &&
			v["accepted_to_created_seconds"] == 6 && v["accepted_to_ready_seconds"] >= 5 && v["sandboxes{phase=Running}"] == 5 &&
			v["kubernetes_requests_total{code=201,resource=pods,verb=create}"] == 6
	})
}

// trouble is a full quota, an image that is not there, a Pod that does not go, and one that is deleted from outside.
func (d *diary) trouble() {
	t, c := d.t, d.Client()
	d.limitPods("0", func() { c.Create(t.Context(), "too-much").Want(t, http.StatusTooManyRequests) })
	d.Misbehave("no-image", testenv.Fault{Kind: testenv.ImagePullError})
	c.Create(t.Context(), "no-image").Want(t, http.StatusOK)
	d.Misbehave("stuck", testenv.Fault{Kind: testenv.HangInTermination})
	c.Create(t.Context(), "stuck").Want(t, http.StatusOK)
	d.WaitUntilRunning("stuck")
	c.Delete(t.Context(), "stuck").Want(t, http.StatusOK)
	c.Create(t.Context(), "stuck", testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	d.DeletePod("good-2")
	d.until("worker", "the trouble", func(v map[string]float64) bool {
		return v["outcomes_total{op=present,reason=QuotaExceeded,result=failed}"] == 1 &&
			v["retries_total{op=present,reason=Terminating}"] > 0 && v["queue_jobs_redelivered"] == 1 &&
			v["worker_deliveries_total{redelivered=true}"] > 0 && v["sandboxes{phase=Terminating}"] == 1 &&
			v["sweep_findings_total{action=remove,kind=orphaned_service}"] == 1 && v["sweep_runs_total{result=ok}"] > 0
	})
	d.Behave("stuck")
	d.NATS.WaitUntilQuiet(40 * time.Second)
}

// limitPods does something under a quota.
func (d *diary) limitPods(pods string, do func()) {
	t, quotas := d.t, d.Cluster.Core.ResourceQuotas(d.Namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	testenv.Until(t, 10*time.Second, func() error {
		quota, err := quotas.Get(t.Context(), "pods", metav1.GetOptions{})
		if err == nil && len(quota.Status.Hard) == 0 {
			err = errors.New("the quota does not hold yet")
		}
		return err
	})
	do()
	require.NoError(t, quotas.Delete(t.Context(), "pods", metav1.DeleteOptions{}))
}

func (d *diary) aJobUnderWay() {
	held := d.proxy.On(testenv.Match{Verb: "create", Resource: "pods"}, testenv.Hold)
	answer := make(chan testenv.Response)
	go func() { answer <- d.Client().Create(d.t.Context(), "held", testenv.Prefer("wait=20")) }()
	d.until("worker", "the job", func(v map[string]float64) bool {
		return v["worker_slots_busy"] == 1 && v["worker_slots"] == 64 && v["queue_jobs_unacknowledged"] == 1
	})
	d.until("api", "the request", func(v map[string]float64) bool {
		return v["http_requests_in_flight"] == 1 && v["queue_jobs_unacknowledged"] == 1 && v["queue_oldest_unfinished_age_seconds"] > 0
	})
	held.Remove()
	(<-answer).Want(d.t, http.StatusOK)
	d.until("worker", "that it is done", func(v map[string]float64) bool {
		return v["worker_slots_busy"] == 0 && v["queue_jobs_unacknowledged"] == 0 && v["queue_oldest_unfinished_age_seconds"] == 0
	})
}

// Without workers, the api tells of the queue.
func (d *diary) noWorkers() {
	d.StopWorkers()
	for i := range 3 {
		d.Client().Create(d.t.Context(), fmt.Sprint("queued-", i), testenv.Prefer("respond-async")).Want(d.t, http.StatusAccepted)
	}
	d.until("api", "the queue", func(v map[string]float64) bool {
		return v["queue_jobs_waiting"] == 3 && v["queue_oldest_unfinished_age_seconds"] > 2
	})
	d.StartWorkers()
	d.until("api", "that it is empty", func(v map[string]float64) bool {
		return v["queue_jobs_waiting"] == 0 && v["queue_jobs_unacknowledged"] == 0
	})
}

func (d *diary) noNATS() {
	d.NATS.Stop()
	for _, program := range []string{"api", "worker"} {
		d.until(program, "that NATS is down", func(v map[string]float64) bool {
			return v["nats_connected"] == 0 && absent(v, "queue_jobs_waiting") && v["queue_readings_total{result=error}"] > 0
		})
	}
	d.Client().Create(d.t.Context(), "lost").Want(d.t, http.StatusServiceUnavailable)
	d.NATS.Start()
	for _, program := range []string{"api", "worker"} {
		d.until(program, "that NATS is back", func(v map[string]float64) bool {
			return v["nats_connected"] == 1 && v["nats_reconnects_total"] > 0 && !absent(v, "queue_jobs_waiting")
		})
	}
	d.until("api", "the request that was refused", func(v map[string]float64) bool {
		return v["intents_published_total{op=present,result=error}"] == 1
	})
}

func (d *diary) noKubernetes() {
	d.proxy.Cut()
	for _, program := range []string{"api", "worker"} {
		d.until(program, "that Kubernetes is down", func(v map[string]float64) bool {
			return v["kubernetes_reachable"] == 0 && absent(v, "sandboxes") && v["kubernetes_requests_total{code=error,resource=pods,verb=list}"] > 0
		})
	}
	d.proxy.Heal()
	for _, program := range []string{"api", "worker"} {
		d.until(program, "that Kubernetes is back", func(v map[string]float64) bool { return v["kubernetes_reachable"] == 1 })
	}
	d.until("worker", "the sandboxes again", func(v map[string]float64) bool { return v["sandboxes{phase=Running}"] > 0 })
}
