package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"sandbox-provisioner/hack/stack"
)

// A plant is everything that runs, and can be made to suffer.
type plant struct {
	dir   string
	core  corev1client.CoreV1Interface
	proxy *proxy
	nats  *process
	apis  []*process
	works []*process
	urls  []string
	// apiserver is the process id of kube-apiserver.
	apiserver int
	kills     atomic.Int64
}

// namespace of the sandboxes.
const namespace = "chaos"

func newPlant(ctx context.Context, cluster *stack.Stack, dir string) (*plant, error) {
	p := &plant{dir: dir}
	state, err := os.ReadFile(cluster.StateFile)
	if err != nil {
		return nil, err
	}
	var pids struct {
		APIServer int `json:"apiserver_pid"`
	}
	if err := json.Unmarshal(state, &pids); err != nil {
		return nil, err
	}
	p.apiserver = pids.APIServer
	cfg, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	if p.core, err = corev1client.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if p.proxy, err = newProxy(cfg); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addr, err := stack.FreeAddr()
	if err != nil {
		return nil, err
	}
	p.nats = &process{name: "nats", dir: dir, path: self, env: []string{natsDir + "=" + dir + "/nats", natsAddr + "=" + addr}}
	env := []string{
		"KUBECONFIG_PATH=" + cluster.Kubeconfig, "K8S_API_SERVER=" + p.proxy.url, "K8S_NAMESPACE=" + namespace,
		"NATS_URL=nats://" + addr, fmt.Sprint("ACK_WAIT=", ackWait), "SWEEP_INTERVAL=" + sweepInterval(), "NODE_HOST=127.0.0.1",
		"PROVISIONER_API_KEY=chaos", "SANDBOX_SERVICE_TYPE=ClusterIP", "K8S_REQUEST_TIMEOUT=2s", "LOG_LEVEL=debug",
	}
	if err := p.nats.start(); err != nil {
		return nil, err
	}
	for _, kind := range []struct {
		program string
		count   int
		into    *[]*process
	}{{"api", apis, &p.apis}, {"worker", workers, &p.works}} {
		for n := range kind.count {
			listen, err := stack.FreeAddr()
			if err != nil {
				return nil, err
			}
			metrics, err := stack.FreeAddr()
			if err != nil {
				return nil, err
			}
			one := &process{name: fmt.Sprintf("%s-%d", kind.program, n), dir: dir, path: "bin/" + kind.program,
				ready: "http://" + metrics + "/livez",
				env:   append([]string{"LISTEN_ADDR=" + listen, "METRICS_ADDR=" + metrics}, env...)}
			if kind.program == "api" {
				p.urls = append(p.urls, "http://"+listen)
			}
			*kind.into = append(*kind.into, one)
			if err := one.start(); err != nil {
				return nil, err
			}
			if err := one.awaitReady(ctx); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// sweepInterval is off, so that the backstop hides nothing, unless CHAOS_SWEEP says otherwise.
func sweepInterval() string {
	if v := os.Getenv("CHAOS_SWEEP"); v != "" {
		return v
	}
	return "0s"
}

// torment lets bad things happen, one after the other, until ctx ends.
func (p *plant) torment(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(300+r.IntN(1500))*time.Millisecond)
		all := append(append([]*process{}, p.works...), p.apis...)
		victim := all[r.IntN(len(all))]
		long := time.Duration(500+r.IntN(2500)) * time.Millisecond
		p.kills.Add(1)
		switch r.IntN(10) {
		case 0, 1, 2:
			victim.kill(syscall.SIGKILL)
			pause(ctx, long/4)
			victim.restart()
		case 3:
			victim.kill(syscall.SIGTERM)
			victim.restart()
		case 4, 5:
			victim.signal(syscall.SIGSTOP)
			pause(ctx, ackWait+long)
			victim.signal(syscall.SIGCONT)
		case 6:
			p.nats.kill(syscall.SIGKILL)
			pause(ctx, long)
			p.nats.restart()
		case 7:
			p.proxy.set(faulty(1 + r.IntN(30)))
			pause(ctx, 2*long)
			p.proxy.set(faultless)
		case 8:
			p.proxy.set(cut)
			pause(ctx, long)
			p.proxy.set(faultless)
		case 9:
			_ = syscall.Kill(p.apiserver, syscall.SIGSTOP)
			pause(ctx, long)
			_ = syscall.Kill(p.apiserver, syscall.SIGCONT)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// heal ends all faults and waits until every process is there.
func (p *plant) heal(ctx context.Context) error {
	p.proxy.set(faultless)
	_ = syscall.Kill(p.apiserver, syscall.SIGCONT)
	for _, one := range append(append([]*process{p.nats}, p.apis...), p.works...) {
		one.signal(syscall.SIGCONT)
		one.restart()
		if err := one.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *plant) stop() {
	for _, one := range append(append([]*process{p.nats}, p.apis...), p.works...) {
		one.kill(syscall.SIGKILL)
	}
	p.proxy.close()
}

// residents prints the resident memory of every api and worker.
func (p *plant) residents(when string) {
	fmt.Printf("chaos: resident memory %s:", when)
	for _, one := range append(append([]*process{}, p.apis...), p.works...) {
		fmt.Printf(" %s %s", one.name, one.resident())
	}
	fmt.Println()
}

// A process is one of ours, and may be dead.
type process struct {
	name, dir, path, ready string
	env                    []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := logFile(p.dir, p.name)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.path)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	done, started := make(chan struct{}), make(chan error)
	go func() {
		defer close(done)
		defer func() { _ = log.Close() }()
		runtime.LockOSThread() // Pdeathsig is about this thread
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, done
	return nil
}

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(s)
}

// kill ends the process and waits for it: on SIGTERM as long as it may take to drain.
func (p *process) kill(s syscall.Signal) {
	p.signal(s)
	select {
	case <-p.done:
	case <-time.After(25 * time.Second):
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}

// restart starts a process that has ended.
func (p *process) restart() {
	select {
	case <-p.done:
		if err := p.start(); err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
		}
	default:
	}
}

func (p *process) awaitReady(ctx context.Context) error {
	for range 600 {
		if p.ready == "" {
			return nil
		}
		res, err := http.Get(p.ready)
		if err == nil {
			_ = res.Body.Close()
			return nil
		}
		p.restart() // it may have given up on what was down
		pause(ctx, 100*time.Millisecond)
	}
	return fmt.Errorf("%s is not ready", p.name)
}

func (p *process) resident() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return "–"
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kb int
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		return "–"
	}
	return fmt.Sprintf("%d MB", kb/1024)
}
