package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"sandbox-provisioner/hack/stack"
	"sandbox-provisioner/internal/config"
	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
)

// Parts of which processor time is told.
const (
	partAPI        = "api"
	partWorker     = "worker"
	partStandalone = "standalone"
	partNATS       = "NATS"
	partAPIServer  = "kube-apiserver"
	partEtcd       = "etcd"
	partBench      = "this client"
	partElse       = "everything else" // the simulated node above all
)

// connections is how many HTTP/2 connections the product opens to Kubernetes by default; client-go gets as many.
const connections = 1

// A plant is what the contestants run on: one cluster, one NATS.
type plant struct {
	cluster *stack.Stack
	core    corev1client.CoreV1Interface // of ourselves, for cleaning up and watching
	natsURL string
	nats    *nats.Conn
	js      jetstream.JetStream
	// common are the processes that serve all contestants.
	common   map[string][]int
	products map[string]*product
}

func newPlant(ctx context.Context) (_ *plant, err error) {
	cluster, err := stack.StartCluster(ctx, stack.Options{Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	p := &plant{cluster: cluster, common: map[string][]int{partBench: {os.Getpid()}}, products: map[string]*product{}}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	cfg, err := p.rest()
	if err != nil {
		return nil, err
	}
	if p.core, err = corev1client.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if err := p.findServers(); err != nil {
		return nil, err
	}
	return p, p.startNATS(ctx)
}

func (p *plant) stop() {
	if p.nats != nil {
		p.nats.Close()
	}
	p.cluster.Stop()
}

// rest is client-go without a throttle, and with protobuf as the product has it.
func (p *plant) rest() (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", p.cluster.Kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return cfg, nil
}

func (p *plant) findServers() error {
	content, err := os.ReadFile(p.cluster.StateFile)
	if err != nil {
		return err
	}
	var state struct {
		APIServer int `json:"apiserver_pid"`
		Etcd      int `json:"etcd_pid"`
	}
	if err := json.Unmarshal(content, &state); err != nil {
		return err
	}
	p.common[partAPIServer], p.common[partEtcd] = []int{state.APIServer}, []int{state.Etcd}
	return nil
}

// etcdSyncs tells whether etcd syncs what it writes.
func (p *plant) etcdSyncs() (bool, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.common[partEtcd][0]))
	return !strings.Contains(string(line), "unsafe-no-fsync"), err
}

// dir is on the disk on which NATS keeps its streams; etcd's is beside it.
func (p *plant) dir() string { return filepath.Dir(p.cluster.StateFile) }

func (p *plant) startNATS(ctx context.Context) error {
	addrs, err := freeAddrs(2)
	if err != nil {
		return err
	}
	p.natsURL = "nats://" + addrs[0]
	pid, err := p.cluster.Run(ctx, os.Stderr, []string{
		natsDir + "=" + filepath.Join(p.dir(), "nats"), natsAddr + "=" + addrs[0], natsReady + "=" + addrs[1],
	}, "bench", "http://"+addrs[1])
	if err != nil {
		return err
	}
	p.common[partNATS] = []int{pid}
	p.nats, err = nats.Connect(p.natsURL, jobs.ConnectOptions("bench", slog.New(slog.DiscardHandler))...)
	if err != nil {
		return err
	}
	p.js, err = jetstream.New(p.nats)
	return err
}

// startCollector starts a collector of traces, and returns its URL.
func (p *plant) startCollector(ctx context.Context) (url string, err error) {
	addrs, err := freeAddrs(1)
	if err != nil {
		return "", err
	}
	url = "http://" + addrs[0]
	_, err = p.cluster.Run(ctx, os.Stderr, []string{collectorAddr + "=" + addrs[0]}, "bench", url)
	return url, err
}

func freeAddrs(n int) ([]string, error) {
	addrs := make([]string, n)
	for i := range addrs {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // after all are known, so that none is given twice
		addrs[i] = l.Addr().String()
	}
	return addrs, nil
}

// env is what the programs are told about one namespace, whose name is also that of the queue.
func (p *plant) env(namespace string) []string {
	return []string{
		"KUBECONFIG_PATH=" + p.cluster.Kubeconfig, "KUBECONFIG_WAIT=0s", "K8S_NAMESPACE=" + namespace,
		"NATS_URL=" + p.natsURL, "CLUSTER_NAME=" + namespace, "PROVISIONER_API_KEY=" + key,
		// There are too few node ports for the larger loads.
		"SANDBOX_SERVICE_TYPE=ClusterIP",
	}
}

// settings are the product's own in one namespace.
func (p *plant) settings(namespace string) (k8s.Settings, error) {
	env := map[string]string{}
	for _, e := range p.env(namespace) {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	cfg, err := config.Load[config.Worker](func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	return cfg.Sandbox, err
}

func (p *plant) ensureNamespace(ctx context.Context, name string) error {
	_, err := p.core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// raw returns client-go, at work in a namespace.
func (p *plant) raw(ctx context.Context, namespace string) (*raw, error) {
	if err := p.ensureNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	set, err := p.settings(namespace)
	if err != nil {
		return nil, err
	}
	r := &raw{set: set}
	for range connections {
		cfg, err := p.rest()
		if err != nil {
			return nil, err
		}
		cfg.Dial = (&net.Dialer{Timeout: 5 * time.Second}).DialContext // client-go shares connections unless this differs
		core, err := corev1client.NewForConfig(cfg)
		if err != nil {
			return nil, err
		}
		r.cores = append(r.cores, core)
	}
	return r, nil
}

// standalone starts the program of that name, once for each namespace.
func (p *plant) standalone(ctx context.Context, namespace string) (*product, error) {
	return p.standaloneAs(ctx, "standalone", namespace)
}

// standaloneAs is standalone under another name, with more settings.
func (p *plant) standaloneAs(ctx context.Context, label, namespace string, env ...string) (*product, error) {
	if made := p.products[namespace]; made != nil {
		return made, nil
	}
	if err := p.ensureNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	running, err := p.start(ctx, "standalone", namespace, append(env, "DATA_DIR="+filepath.Join(p.dir(), namespace))...)
	if err != nil {
		return nil, err
	}
	made := newProduct(label, namespace, running.url)
	made.metrics = running.metrics
	made.add(partStandalone, running)
	p.products[namespace] = made
	return made, nil
}

// split starts an api and some workers, once for each namespace.
func (p *plant) split(ctx context.Context, namespace, label string, workers int) (*product, error) {
	if made := p.products[namespace]; made != nil {
		return made, nil
	}
	if err := p.ensureNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	running, err := p.start(ctx, "api", namespace)
	if err != nil {
		return nil, err
	}
	made := newProduct(label, namespace, running.url)
	made.add(partAPI, running)
	made.processes[partNATS] = p.common[partNATS]
	for range workers {
		running, err := p.start(ctx, "worker", namespace)
		if err != nil {
			return nil, err
		}
		made.add(partWorker, running)
	}
	p.products[namespace] = made
	return made, nil
}

// A program of the product, as it runs.
type program struct {
	pid                   int
	url, metrics, profile string
}

// start starts a program and returns when it is ready.
func (p *plant) start(ctx context.Context, name, namespace string, env ...string) (program, error) {
	addrs, err := freeAddrs(3)
	if err != nil {
		return program{}, err
	}
	env = append(append(p.env(namespace), "LISTEN_ADDR="+addrs[0], "METRICS_ADDR="+addrs[1], "PPROF_ADDR="+addrs[2]), env...)
	probes := addrs[0]
	if name == "worker" {
		probes = addrs[1]
	}
	pid, err := p.cluster.Run(ctx, io.Discard, env, name, "http://"+probes+"/readyz")
	return program{
		pid: pid, url: "http://" + addrs[0], metrics: "http://" + addrs[1] + "/metrics", profile: "http://" + addrs[2] + "/debug/pprof/",
	}, err
}

// end tells a program to end.
func (p program) end() error { return syscall.Kill(p.pid, syscall.SIGTERM) }

// usage is the processor time of the contestant's processes and of those that serve all.
func (p *plant) usage(c contestant) (usage, error) {
	parts := map[string][]int{}
	for _, of := range []map[string][]int{p.common, c.parts()} {
		for part, pids := range of {
			parts[part] = pids
		}
	}
	return usageOf(parts)
}

// maxClears is how often the removal of everything may fail.
const maxClears = 5

// clear removes everything from a namespace, or only the given ids, and returns when it is gone, so that the next to come finds
// what everybody finds.
func (p *plant) clear(ctx context.Context, namespace string, ids ...string) error {
	which := metav1.ListOptions{}
	if len(ids) > 0 {
		which.LabelSelector = sandbox.LabelID + " in (" + strings.Join(ids, ",") + ")"
	}
	// The typed client of Services cannot delete many at once.
	removeAll := func(resource string) func() error {
		return func() error {
			return p.core.RESTClient().Delete().Namespace(namespace).Resource(resource).VersionedParams(&which, scheme.ParameterCodec).
				Body(&metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}).Do(ctx).Error()
		}
	}
	failures := 0
	for {
		// The server gives up after a minute, in one way or another; what is left is for the next time.
		if err := both(removeAll("pods"), removeAll("services")); err != nil {
			if failures++; ctx.Err() != nil || failures > maxClears {
				return fmt.Errorf("clear %s: %w", namespace, err)
			}
		}
		// Services that are left would make every create slower that comes after.
		pods, err := p.core.Pods(namespace).List(ctx, which)
		if err != nil {
			return err
		}
		services, err := p.core.Services(namespace).List(ctx, which)
		if err != nil {
			return err
		}
		if len(pods.Items) == 0 && len(services.Items) == 0 {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// collectGarbage lets the API server begin anew with its heap, so that it is no chance into whose turn a cycle falls: the ratios of pairs of
// 150 creates had a standard deviation of 0.32 without it, and of 0.07 with it.
func (p *plant) collectGarbage(ctx context.Context) error {
	return p.core.RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").Do(ctx).Error()
}

// awaitRunning returns when no Pod of a namespace is on its way to run.
func (p *plant) awaitRunning(ctx context.Context, namespace string) error {
	pending := metav1.ListOptions{FieldSelector: "status.phase=" + string(corev1.PodPending)}
	for {
		starting, err := p.core.Pods(namespace).List(ctx, pending)
		if err != nil || len(starting.Items) == 0 {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
