package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"sandbox-provisioner/hack/stack"
)

// A plant is everything that runs, and can be made to suffer.
type plant struct {
	dir       string
	core      corev1client.CoreV1Interface // past the proxy
	proxy     *proxy
	nats      *process
	apiserver *process
	// victims are the apis, then the workers.
	victims []*process
	urls    []string
	natsURL string

	diary         diary // of faults
	faults, kills atomic.Int64

	mu       sync.Mutex
	problems []string
}

// namespace of the sandboxes, key of the API.
const (
	namespace = "chaos"
	key       = "chaos"
)

func newPlant(ctx context.Context, cluster *stack.Stack, dir string, o options) (_ *plant, err error) {
	p := &plant{dir: dir}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	cfg, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Timeout = -1, 5*time.Second
	if p.core, err = corev1client.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if err := p.adoptAPIServer(ctx, cluster.StateFile); err != nil {
		return nil, err
	}
	cfg.Timeout = 0
	if p.proxy, err = newProxy(cfg, o.stream(proxyStream)); err != nil {
		return nil, err
	}
	if err := p.startNATS(); err != nil {
		return nil, err
	}
	if err := p.startPrograms(cluster.Kubeconfig, o); err != nil {
		return nil, err
	}
	return p, p.awaitReady(ctx)
}

// adoptAPIServer ends the API server of the development cluster and starts it again as a process of ours, with the same
// arguments, so that it can be killed and started again.
func (p *plant) adoptAPIServer(ctx context.Context, stateFile string) error {
	state, err := os.ReadFile(stateFile)
	if err != nil {
		return err
	}
	var pids struct {
		APIServer int `json:"apiserver_pid"`
	}
	if err := json.Unmarshal(state, &pids); err != nil {
		return err
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pids.APIServer))
	if err != nil {
		return err
	}
	if err := syscall.Kill(pids.APIServer, syscall.SIGKILL); err != nil {
		return err
	}
	p.apiserver = &process{name: "kube-apiserver", dir: p.dir, args: strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00")}
	if err := p.apiserver.start(); err != nil {
		return err
	}
	return until(ctx, time.Minute, "kube-apiserver", func() bool { return p.answers(ctx) })
}

// answers tells whether the API server does.
func (p *plant) answers(ctx context.Context) bool {
	_, err := p.core.Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
	return err == nil
}

func (p *plant) startNATS() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	addr, err := freeAddr(10000 + rand.IntN(3000))
	if err != nil {
		return err
	}
	p.natsURL = "nats://" + addr
	p.nats = &process{name: "nats", dir: p.dir, args: []string{self},
		env: []string{natsDir + "=" + p.dir + "/nats", natsAddr + "=" + addr}}
	return p.nats.start()
}

func (p *plant) startPrograms(kubeconfig string, o options) error {
	env := []string{
		"KUBECONFIG_PATH=" + kubeconfig, "K8S_API_SERVER=" + p.proxy.url, "K8S_NAMESPACE=" + namespace,
		"NATS_URL=" + p.natsURL, fmt.Sprint("ACK_WAIT=", ackWait), "SWEEP_INTERVAL=" + o.sweep, "NODE_HOST=127.0.0.1",
		"PROVISIONER_API_KEY=" + key, "SANDBOX_SERVICE_TYPE=ClusterIP", "K8S_REQUEST_TIMEOUT=2s", "RETRY_MAX=5s", "LOG_LEVEL=debug",
	}
	for n := range apis + workers {
		listen, err := freeAddr(14000 + 1000*n + rand.IntN(500))
		if err != nil {
			return err
		}
		metrics, err := freeAddr(20000 + 1000*n + rand.IntN(500))
		if err != nil {
			return err
		}
		v := &process{dir: p.dir, env: append([]string{"LISTEN_ADDR=" + listen, "METRICS_ADDR=" + metrics}, env...)}
		if n < apis {
			v.name, v.kept, v.args = fmt.Sprint("api-", n), n == 0, []string{"bin/api"}
			p.urls = append(p.urls, "http://"+listen)
		} else {
			v.name, v.kept, v.args = fmt.Sprint("worker-", n-apis), n == apis, []string{"bin/worker"}
		}
		p.victims = append(p.victims, v)
		if err := v.start(); err != nil {
			return err
		}
	}
	return nil
}

func (p *plant) awaitReady(ctx context.Context) error {
	for _, url := range p.urls {
		if err := until(ctx, time.Minute, url+"/readyz", func() bool {
			res, err := http.Get(url + "/readyz")
			if err != nil {
				return false
			}
			defer res.Body.Close()
			return res.StatusCode == http.StatusOK
		}); err != nil {
			return err
		}
	}
	return nil
}

// problem notes what a run must not hide, whatever the promises.
func (p *plant) problem(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, err.Error())
}

// crashes finds programs that have ended by a fault of their own.
func (p *plant) crashes() []string {
	p.mu.Lock()
	found := p.problems
	p.mu.Unlock()
	for _, v := range append([]*process{p.nats}, p.victims...) {
		log, err := os.ReadFile(v.logFile())
		if err != nil {
			found = append(found, err.Error())
		}
		for _, sign := range []string{"panic: ", "panic recovered", "fatal error: ", "unexpected fault address"} {
			if at := bytes.Index(log, []byte(sign)); at >= 0 {
				found = append(found, fmt.Sprintf("%s: %s", v.name, log[at:min(len(log), at+500)]))
			}
		}
	}
	return found
}

func (p *plant) stop() {
	for _, v := range append(append([]*process{}, p.victims...), p.nats, p.apiserver) {
		if v != nil {
			v.kill(syscall.SIGKILL)
		}
	}
	if p.proxy != nil {
		p.proxy.close()
	}
}

// residents prints the memory of every api and worker.
func (p *plant) residents(when string) {
	fmt.Printf("chaos: resident memory %s, MB:", when)
	for _, v := range p.victims {
		fmt.Printf(" %s %d", v.name, v.resident())
		if v.kept {
			fmt.Print(" (never killed)")
		}
	}
	fmt.Println()
}
