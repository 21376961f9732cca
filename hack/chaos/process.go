package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A process is one of ours. While it is wanted, it is started again whenever it ends, as a deployment would do.
type process struct {
	name, dir string
	args, env []string
	// kept processes are never killed, so that their memory tells something about a long time.
	kept bool
	// torment is held by the one fault that the process suffers.
	torment sync.Mutex

	mu     sync.Mutex
	wanted bool
	cmd    *exec.Cmd
	done   chan struct{}
}

// respawnDelay keeps a process that cannot start from trying all the time.
const respawnDelay = 300 * time.Millisecond

// start runs the process until it is killed.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = true
	return p.spawn()
}

func (p *process) spawn() error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	done, started := make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread that starts the process
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(done)
			time.AfterFunc(respawnDelay, func() { p.respawn(done) })
		}
		_ = log.Close()
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, done
	return nil
}

// respawn starts the process again if it was not told to end.
func (p *process) respawn(done chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted || p.done != done {
		return
	}
	if err := p.spawn(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
}

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

// drainWait is how long a process may take to end after SIGTERM.
const drainWait = 25 * time.Second

// kill ends the process and waits for that. It stays down until it is started.
func (p *process) kill(s syscall.Signal) {
	p.mu.Lock()
	p.wanted = false
	done := p.done
	p.mu.Unlock()
	if done == nil {
		return
	}
	p.signal(s)
	select {
	case <-done:
	case <-time.After(drainWait):
		p.signal(syscall.SIGKILL)
		<-done
	}
}

func (p *process) logFile() string { return filepath.Join(p.dir, p.name+".log") }

// resident is the memory of the process in MB, 0 when it is down.
func (p *process) resident() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kb int
	_, _ = fmt.Sscan(rest, &kb)
	return kb / 1024
}

// until polls for a condition.
func until(ctx context.Context, limit time.Duration, what string, holds func() bool) error {
	deadline := time.Now().Add(limit)
	for !holds() {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("%s: not within %s", what, limit)
		}
		pause(ctx, 100*time.Millisecond)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// freeAddr is an address that nobody listens on, and that the kernel gives to no outgoing connection while the process that
// listens there is down: ports from 10000 on, below those that Linux takes by itself and below Kubernetes' node ports.
func freeAddr(from int) (string, error) {
	for port := from; port < from+500; port++ {
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", fmt.Errorf("no free port from %d on", from)
}
