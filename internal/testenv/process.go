package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Processes starts programs as their own processes, which can be killed and frozen.
func Processes(t testing.TB, opts ...Option) *Deployment[*Process] {
	t.Helper()
	dir, err := programs()
	require.NoError(t, err, "build the programs")
	return deploy(t, opts, func(kind kind, name string, env map[string]string) *Process {
		return &Process{t: t, kind: kind, path: filepath.Join(dir, string(kind)), env: env, log: newLogBook(t, name)}
	})
}

// programs builds what Processes starts, once for this process.
var programs = sync.OnceValues(func() (string, error) {
	base, err := root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "bin", "test")
	return dir, build(base, dir, "./cmd/"+string(kindAPI), "./cmd/"+string(kindWorker))
})

// A Process is a program in its own process. It does not outlive this one.
type Process struct {
	t      testing.TB
	kind   kind
	path   string
	env    map[string]string
	log    *logBook
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts it and returns when it serves.
func (p *Process) Start() {
	p.t.Helper()
	require.Nil(p.t, p.cmd, "it runs already")
	cmd, exited := exec.Command(p.path), make(chan struct{})
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
	for name, value := range p.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.SysProcAttr = dieWithParent()
	require.NoError(p.t, cmd.Start())
	p.cmd, p.exited = cmd, exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	Until(p.t, startTimeout, func() error {
		select {
		case <-exited:
			p.t.Fatalf("%s ended at its start: %v", p.kind, cmd.ProcessState)
		default:
		}
		return serves(p.kind, p.env)
	})
}

// Stop implements Program: it sends SIGTERM, and wants exit code 0.
func (p *Process) Stop() {
	p.t.Helper()
	if p.cmd == nil {
		return
	}
	p.signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		if !p.cmd.ProcessState.Success() {
			p.t.Errorf("%s ended with %v", p.kind, p.cmd.ProcessState)
		}
		p.cmd = nil
	case <-time.After(stopTimeout):
		p.t.Errorf("%s did not end within %s", p.kind, stopTimeout)
		p.Kill()
	}
}

// Kill ends it at once, as a lost node or the out-of-memory killer would. Killing it again is harmless.
func (p *Process) Kill() {
	if p.cmd == nil {
		return
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
	p.cmd = nil
}

// Freeze stops it in its tracks; Thaw lets it go on.
func (p *Process) Freeze() { p.signal(syscall.SIGSTOP) }

// Thaw is the end of Freeze.
func (p *Process) Thaw() { p.signal(syscall.SIGCONT) }

// PID is that of the process while it runs.
func (p *Process) PID() int { return p.cmd.Process.Pid }

func (p *Process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("%s to %s: %v", s, p.kind, err)
	}
}

// Client implements Program.
func (p *Process) Client() Client { return Client{URL: "http://" + p.env["LISTEN_ADDR"], Key: Key} }

// Log implements Program.
func (p *Process) Log() string { return p.log.String() }

func (p *Process) end() { p.Kill() }

func (p *Process) metrics() string { return "http://" + p.env["METRICS_ADDR"] }
