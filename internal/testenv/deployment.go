package testenv

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/sandbox"
)

// startTimeout is how long a program may take until it serves, and until it is ready. Several start at once on few cores.
const startTimeout = 30 * time.Second

// A Deployment is some apis and some workers on one NATS and in one namespace of one cluster.
type Deployment[P Program] struct {
	Cluster   *Kubernetes
	NATS      *NATSServer
	Namespace string
	APIs      []P
	Workers   []P

	t testing.TB
}

// A Program is one api or one worker. It is started again with the settings that it had.
type Program interface {
	Start()
	// Stop ends it in good order, and waits for the end.
	Stop()
	// Client talks to the REST API of an api.
	Client() Client
	// Log is what it has logged so far, over all its starts.
	Log() string

	// end stops it without asking whether it ends well.
	end()
	metrics() string // URL
}

// An Option changes a Deployment before it is started.
type Option func(*plan)

// APIs sets the number of apis; one by default.
func APIs(n int) Option { return func(p *plan) { p.apis = n } }

// Workers sets the number of workers; one by default.
func Workers(n int) Option { return func(p *plan) { p.workers = n } }

// Env sets an environment variable of all programs.
func Env(name, value string) Option { return func(p *plan) { p.env[name] = value } }

// Through lets all programs reach Kubernetes through a proxy.
func Through(proxy *FaultProxy) Option { return Env("KUBECONFIG_PATH", proxy.Kubeconfig) }

// APIThrough lets one api reach Kubernetes through a proxy.
func APIThrough(index int, proxy *FaultProxy) Option {
	return func(p *plan) { p.apiEnv[index] = map[string]string{"KUBECONFIG_PATH": proxy.Kubeconfig} }
}

// WorkerThrough lets one worker reach Kubernetes through a proxy.
func WorkerThrough(index int, proxy *FaultProxy) Option {
	return func(p *plan) { p.workerEnv[index] = map[string]string{"KUBECONFIG_PATH": proxy.Kubeconfig} }
}

// On puts the Deployment beside another one: on its NATS and in its namespace.
func On[P Program](other *Deployment[P]) Option {
	return func(p *plan) { p.nats, p.namespace = other.NATS, other.Namespace }
}

// NATSAt lets all programs use a NATS that somebody else has started. The Deployment has none of its own then.
func NATSAt(url string) Option { return func(p *plan) { p.natsURL = url } }

// ClusterIP gives sandboxes Services of that type. Otherwise they have node ports, which are few.
func ClusterIP() Option { return Env("SANDBOX_SERVICE_TYPE", "ClusterIP") }

// plan is what a Deployment is to become.
type plan struct {
	apis, workers int
	env           map[string]string
	apiEnv        map[int]map[string]string
	workerEnv     map[int]map[string]string
	nats          *NATSServer
	natsURL       string
	namespace     string
}

func deploy[P Program](t testing.TB, opts []Option, newProgram func(kind kind, name string, env map[string]string) P) *Deployment[P] {
	t.Helper()
	cluster := Cluster(t)
	p := plan{apis: 1, workers: 1, apiEnv: map[int]map[string]string{}, workerEnv: map[int]map[string]string{}, env: map[string]string{
		"PROVISIONER_API_KEY": Key,
		"KUBECONFIG_PATH":     cluster.Kubeconfig,
		"NODE_HOST":           "127.0.0.1",
		"SANDBOX_IMAGE":       "sandbox.example/image:1",
		"LOG_LEVEL":           "debug",
		"LOG_FORMAT":          "text",
		"SHUTDOWN_WAIT":       "1s",
		"DRAIN_WAIT":          "1s",
	}}
	for _, opt := range opts {
		opt(&p)
	}
	if p.natsURL == "" {
		if p.nats == nil {
			p.nats = NATS(t)
		}
		p.natsURL = p.nats.URL()
	}
	if p.namespace == "" {
		p.namespace = cluster.Namespace(t)
	}
	p.env["NATS_URL"], p.env["K8S_NAMESPACE"] = p.natsURL, p.namespace

	d := &Deployment[P]{Cluster: cluster, NATS: p.nats, Namespace: p.namespace, t: t}
	environment := func(more map[string]string) map[string]string {
		env := maps.Clone(p.env)
		maps.Copy(env, map[string]string{"LISTEN_ADDR": FreeAddr(t), "METRICS_ADDR": FreeAddr(t)})
		maps.Copy(env, more)
		return env
	}
	for i := range p.apis {
		d.APIs = append(d.APIs, newProgram(kindAPI, fmt.Sprintf("api %d", i), environment(p.apiEnv[i])))
	}
	for i := range p.workers {
		d.Workers = append(d.Workers, newProgram(kindWorker, fmt.Sprintf("worker %d", i), environment(p.workerEnv[i])))
	}
	all := append(d.APIs[:len(d.APIs):len(d.APIs)], d.Workers...)
	t.Cleanup(func() { together(all, P.end) })
	for _, program := range all {
		program.Start()
	}
	for _, program := range all {
		Until(t, startTimeout, func() error { return answers(program.metrics() + "/readyz") })
	}
	return d
}

// together does something to all programs at once, and returns when it is done.
func together[P Program](programs []P, do func(P)) {
	var doing sync.WaitGroup
	for _, program := range programs {
		doing.Go(func() { do(program) })
	}
	doing.Wait()
}

// answers asks a probe.
func answers(probe string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, probe, nil)
	if err != nil {
		return err
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", probe, resp.Status)
	}
	return nil
}

// Client talks to the first api.
func (d *Deployment[P]) Client() Client { return d.APIs[0].Client() }

// StopWorkers stops all workers, so that jobs pile up.
func (d *Deployment[P]) StopWorkers() {
	d.t.Helper()
	together(d.Workers, P.Stop)
}

// StartWorkers starts all workers.
func (d *Deployment[P]) StartWorkers() {
	d.t.Helper()
	for _, w := range d.Workers {
		w.Start()
	}
}

// Pod reads the Pod of a sandbox, past all proxies; nil when there is none.
func (d *Deployment[P]) Pod(id string) *corev1.Pod {
	d.t.Helper()
	pod, err := d.Cluster.Core.Pods(d.Namespace).Get(d.t.Context(), sandbox.PodName(id), metav1.GetOptions{})
	return found(d.t, pod, err)
}

// Service reads the Service of a sandbox, past all proxies; nil when there is none.
func (d *Deployment[P]) Service(id string) *corev1.Service {
	d.t.Helper()
	service, err := d.Cluster.Core.Services(d.Namespace).Get(d.t.Context(), sandbox.ServiceName(id), metav1.GetOptions{})
	return found(d.t, service, err)
}

// Pods reads all Pods of the namespace.
func (d *Deployment[P]) Pods() []corev1.Pod {
	d.t.Helper()
	list, err := d.Cluster.Core.Pods(d.Namespace).List(d.t.Context(), metav1.ListOptions{})
	require.NoError(d.t, err)
	return list.Items
}

// Services reads all Services of the namespace.
func (d *Deployment[P]) Services() []corev1.Service {
	d.t.Helper()
	list, err := d.Cluster.Core.Services(d.Namespace).List(d.t.Context(), metav1.ListOptions{})
	require.NoError(d.t, err)
	return list.Items
}

// DeletePod deletes the Pod of a sandbox from outside, and waits until it is gone.
func (d *Deployment[P]) DeletePod(id string) {
	d.t.Helper()
	require.NoError(d.t, d.Cluster.Core.Pods(d.Namespace).Delete(d.t.Context(), sandbox.PodName(id), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	Until(d.t, 10*time.Second, func() error {
		if d.Pod(id) != nil {
			return fmt.Errorf("the Pod of %s is still there", id)
		}
		return nil
	})
}

// DeleteService deletes the Service of a sandbox from outside.
func (d *Deployment[P]) DeleteService(id string) {
	d.t.Helper()
	require.NoError(d.t, d.Cluster.Core.Services(d.Namespace).Delete(d.t.Context(), sandbox.ServiceName(id), metav1.DeleteOptions{}))
}

// Misbehave gives a fault to the Pod of a sandbox, which need not exist yet.
func (d *Deployment[P]) Misbehave(id string, f Fault) {
	d.t.Helper()
	d.Cluster.Misbehave(d.t, d.Namespace, sandbox.PodName(id), f)
}

// Behave takes the fault of a sandbox back.
func (d *Deployment[P]) Behave(id string) {
	d.t.Helper()
	d.Cluster.Behave(d.t, d.Namespace, sandbox.PodName(id))
}

// WaitUntilRunning waits until the API calls a sandbox ready and its Service leads to its Pod. It returns the UID of the Pod.
func (d *Deployment[P]) WaitUntilRunning(id string) string {
	d.t.Helper()
	var uid string
	Until(d.t, 20*time.Second, func() error {
		r := d.Client().Get(d.t.Context(), id)
		if r.Code != http.StatusOK || r.Body.Status != string(sandbox.Running) || !r.Body.Ready {
			return fmt.Errorf("%s is not running: %v", id, r)
		}
		var err error
		uid, err = d.Cluster.reach(d.t.Context(), d.Namespace, sandbox.ServiceName(id))
		return err
	})
	return uid
}

// WaitUntilGone waits until nothing of a sandbox is left in the cluster.
func (d *Deployment[P]) WaitUntilGone(id string, within time.Duration) {
	d.t.Helper()
	Until(d.t, within, func() error {
		if pod, service := d.Pod(id) != nil, d.Service(id) != nil; pod || service {
			return fmt.Errorf("of %s there is left: Pod %v, Service %v", id, pod, service)
		}
		return nil
	})
}
