// Package stack starts the product for people and scripts: a cluster, the user's or a development cluster, and the
// standalone program in front of it, all as child processes that end with us.
package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Options say what to start.
type Options struct {
	// Kubeconfig is the cluster to use. Empty starts the development cluster.
	Kubeconfig string
	// Addr is where the API listens.
	Addr string
	// Key is the API key; empty makes one up.
	Key string
	// Env is added to the environment of the standalone program.
	Env []string
	// Log gets what the programs log; Progress says in sentences what goes on.
	Log, Progress io.Writer
}

// A Stack is running.
type Stack struct {
	// URL is the root of the API, Key opens it.
	URL, Key string
	// Kubeconfig opens the cluster behind it.
	Kubeconfig string
	// StateFile describes the development cluster, if it is one.
	StateFile string

	dir      string
	children []*child
}

// Start starts everything, with bin/standalone, and returns when the API is ready. Building the development cluster for
// the first time takes minutes; its progress is shown.
func Start(ctx context.Context, o Options) (*Stack, error) {
	s, err := StartCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.startStandalone(ctx, o); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// StartCluster is Start without the product.
func StartCluster(ctx context.Context, o Options) (*Stack, error) {
	s := &Stack{Key: o.Key, Kubeconfig: o.Kubeconfig}
	if s.Key == "" {
		s.Key = rand.Text()
	}
	var err error
	if s.dir, err = workDir(); err != nil {
		return nil, err
	}
	s.StateFile = filepath.Join(s.dir, "devcluster.json")
	if s.Kubeconfig == "" {
		if err := s.startCluster(ctx, o); err != nil {
			s.Stop()
			return nil, err
		}
	}
	return s, nil
}

const dirPrefix = "sandbox-provisioner-"

// workDir makes a directory for this process, and removes those of processes that were killed: they hold a kubeconfig.
func workDir() (string, error) {
	all, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	if err != nil {
		return "", err
	}
	for _, dir := range all {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(dir), dirPrefix+"%d-", &pid); err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(dir)
		}
	}
	return os.MkdirTemp("", fmt.Sprintf("%s%d-", dirPrefix, os.Getpid()))
}

// buildDevcluster compiles it into bin/. The flags are those of the Makefile, so that nothing is compiled twice.
func buildDevcluster(ctx context.Context, o Options) error {
	out, err := filepath.Abs("bin/devcluster")
	if err != nil {
		return err
	}
	fmt.Fprintln(o.Progress, "building devcluster")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", out, ".")
	cmd.Dir, cmd.Env = "hack/devcluster", append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = o.Progress, o.Progress
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build devcluster: %w", err)
	}
	return nil
}

func (s *Stack) startCluster(ctx context.Context, o Options) error {
	if err := buildDevcluster(ctx, o); err != nil {
		return err
	}
	fmt.Fprintln(o.Progress, "starting the development cluster: kube-apiserver, etcd and a simulated node")
	s.Kubeconfig = filepath.Join(s.dir, "kubeconfig")
	state := s.StateFile
	cluster, err := s.spawn(o.Progress, nil, "bin/devcluster", "start", "--die-with-parent",
		"--kubeconfig", s.Kubeconfig, "--state", state)
	if err != nil {
		return err
	}
	// The first start may compile for a quarter of an hour, with visible progress: only its end is an error.
	return cluster.until(ctx, func() bool {
		_, err := os.Stat(state)
		return err == nil
	})
}

func (s *Stack) startStandalone(ctx context.Context, o Options) error {
	metrics, err := FreeAddr()
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return err
	}
	s.URL = "http://127.0.0.1:" + port
	env := append([]string{
		"LISTEN_ADDR=" + o.Addr, "METRICS_ADDR=" + metrics, "PROVISIONER_API_KEY=" + s.Key, "LOG_FORMAT=text",
		"KUBECONFIG_PATH=" + s.Kubeconfig, "KUBECONFIG_WAIT=0s", "DATA_DIR=" + filepath.Join(s.dir, "jobs"), "NODE_HOST=127.0.0.1",
	}, o.Env...)
	fmt.Fprintln(o.Progress, "starting standalone")
	if _, err := s.Run(ctx, o.Log, env, "standalone", "http://"+metrics+"/readyz"); err != nil {
		return err
	}
	// Somebody else may serve at this address, and standalone be about to say so: only ours knows the key.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.children[len(s.children)-1].until(ctx, func() bool { return answers(ctx, s.URL+"/api/capabilities", s.Key) })
}

// Run starts a program of bin/ and returns its process id when ready answers with 200. It ends with the Stack.
func (s *Stack) Run(ctx context.Context, log io.Writer, env []string, program, ready string) (pid int, err error) {
	c, err := s.spawn(log, env, filepath.Join("bin", program))
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return c.cmd.Process.Pid, c.until(ctx, func() bool { return answers(ctx, ready, "") })
}

func answers(ctx context.Context, url, key string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	req.Header.Set("X-API-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// Wait returns when ctx ends, or with an error when a program ends by itself.
func (s *Stack) Wait(ctx context.Context) error {
	ended := make(chan error, len(s.children))
	for _, c := range s.children {
		go func() {
			<-c.done
			ended <- c.failure()
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// Stop ends everything, last started first, and removes what was left on disk.
func (s *Stack) Stop() {
	for i := len(s.children) - 1; i >= 0; i-- {
		s.children[i].stop()
	}
	_ = os.RemoveAll(s.dir)
}

// A child is a process that ends with us.
type child struct {
	name string
	cmd  *exec.Cmd
	tail tail
	done chan struct{}
	err  error
}

func (s *Stack) spawn(log io.Writer, env []string, name string, args ...string) (*child, error) {
	c := &child{name: filepath.Base(name), cmd: exec.Command(name, args...), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stdout = io.MultiWriter(log, &c.tail)
	c.cmd.Stderr = c.cmd.Stdout
	// In a group of its own, so that Ctrl-C reaches it through us, in order; and gone when we are killed.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error, 1)
	go func() {
		// Pdeathsig is about the thread that starts the child: it must live as long as we do.
		runtime.LockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	s.children = append(s.children, c)
	return c, nil
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-tailSize):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// until polls for ready, and gives up when the child or ctx ends.
func (c *child) until(ctx context.Context, ready func() bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-c.done:
			return c.failure()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", c.name, ctx.Err(), c.tail.String())
		case <-tick.C:
		}
	}
	return nil
}

func (c *child) failure() error {
	return errors.Join(fmt.Errorf("%s ended unexpectedly:\n%s", c.name, c.tail.String()), c.err)
}

// stop asks the child to end, and insists after a while.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(20 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// FreeAddr is an address on the loopback interface that nobody listened on a moment ago.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
