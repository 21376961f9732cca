package testenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// stateVariable names the state file of a devcluster that runs already. It saves the start, five seconds.
const stateVariable = "DEVCLUSTER_STATE"

// Limits of the start and the end of a devcluster. The start is long because it may have to build a control plane.
const (
	clusterStart = 20 * time.Minute
	clusterStop  = 15 * time.Second
)

// Kubernetes is a running devcluster.
type Kubernetes struct {
	// Config and Core connect as admin, without a limit of requests.
	Config *rest.Config
	Core   corev1client.CoreV1Interface
	// Kubeconfig is the path of a file for the same.
	Kubeconfig string

	control string // URL
}

// Cluster is the cluster of this test binary, started when the first test asks. It fails the test when there is none.
func Cluster(t testing.TB) *Kubernetes {
	t.Helper()
	cluster, err := shared.get()
	require.NoError(t, err, "tests need a devcluster")
	return cluster
}

// shared is the one cluster of the test binary.
var shared devcluster

// A devcluster is the process of a cluster, if it is ours.
type devcluster struct {
	mu      sync.Mutex
	tried   bool
	cluster *Kubernetes
	err     error
	process *exec.Cmd
	exited  chan struct{}
	dir     string
}

func (d *devcluster) get() (*Kubernetes, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.tried {
		d.tried = true
		d.cluster, d.err = d.start()
	}
	return d.cluster, d.err
}

func (d *devcluster) start() (*Kubernetes, error) {
	if path := os.Getenv(stateVariable); path != "" {
		return connect(path)
	}
	base, err := root()
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(base, "bin")
	if err := build(filepath.Join(base, "hack", "devcluster"), bin, "."); err != nil {
		return nil, err
	}
	if d.dir, err = os.MkdirTemp("", "testenv-"); err != nil {
		return nil, err
	}
	state, logPath := filepath.Join(d.dir, "state.json"), filepath.Join(d.dir, "devcluster.log")
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	d.process = exec.Command(filepath.Join(bin, "devcluster"), "start", "--die-with-parent", "--unsafe-no-fsync",
		"--state", state, "--kubeconfig", filepath.Join(d.dir, "kubeconfig"), "--ready-delay", "50ms", "--stop-delay", "50ms")
	d.process.Stdout, d.process.Stderr = log, log
	if err := d.process.Start(); err != nil {
		return nil, err
	}
	d.exited = make(chan struct{})
	go func() {
		_ = d.process.Wait()
		close(d.exited)
	}()
	return connectWhenReady(state, logPath, d.exited)
}

func connectWhenReady(state, logPath string, exited <-chan struct{}) (*Kubernetes, error) {
	deadline := time.NewTimer(clusterStart)
	defer deadline.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		var why string
		select {
		case <-tick.C:
			if _, err := os.Stat(state); err == nil {
				return connect(state)
			}
			continue
		case <-exited:
			why = "ended at its start"
		case <-deadline.C:
			why = "is not ready after " + clusterStart.String()
		}
		log, _ := os.ReadFile(logPath)
		return nil, fmt.Errorf("devcluster %s:\n%s", why, tail(string(log)))
	}
}

func connect(state string) (*Kubernetes, error) {
	var s struct {
		Kubeconfig string `json:"kubeconfig"`
		ControlURL string `json:"control_url"`
	}
	content, err := os.ReadFile(state)
	if err == nil {
		err = json.Unmarshal(content, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("state of the devcluster: %w", err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the devcluster: %w", err)
	}
	cfg.QPS = -1
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	c := &Kubernetes{Config: cfg, Core: core, Kubeconfig: s.Kubeconfig, control: s.ControlURL}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c, c.healthy(ctx)
}

// stop ends the cluster if it is ours, and closes the connections to it.
func (d *devcluster) stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cluster != nil {
		if transport, err := rest.TransportFor(d.cluster.Config); err == nil { // the same one: client-go keeps them
			closeIdle(transport)
		}
	}
	controlClient.CloseIdleConnections()
	if d.process == nil || d.exited == nil {
		return nil
	}
	_ = d.process.Process.Signal(syscall.SIGTERM)
	var err error
	select {
	case <-d.exited:
	case <-time.After(clusterStop):
		_ = d.process.Process.Kill()
		<-d.exited
		err = errors.New("the devcluster did not end and was killed")
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}
