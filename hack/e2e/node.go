package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A node is a real Kubernetes node of hack/node.
type node struct {
	Kubeconfig string `json:"kubeconfig"`
	// Address is the node's, as this machine reaches it.
	Address string `json:"address"`
	// Dir is the node's directory, Root where its /var/lib lies on this machine.
	Dir  string `json:"dir"`
	Root string `json:"root"`

	stateFile string
	dir       string
	cmd       *exec.Cmd
	ended     chan struct{}
}

const (
	imagePrefix = "docker.io/library/"
	imageTag    = "e2e"
)

// startNode starts a node, unless stateFile names one that runs.
func startNode(ctx context.Context, stateFile string) (_ *node, err error) {
	n := &node{stateFile: stateFile}
	if n.dir, err = filepath.Abs(filepath.Join(outDir, "run")); err != nil {
		return nil, err
	}
	// A run that was killed has left its own.
	if err := errors.Join(os.RemoveAll(n.dir), os.Mkdir(n.dir, 0o700)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.stop())
		}
	}()
	if n.stateFile == "" {
		n.stateFile = filepath.Join(n.dir, "node.json")
		if err := n.launch(ctx); err != nil {
			return nil, err
		}
	}
	content, err := os.ReadFile(n.stateFile)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, n); err != nil {
		return nil, err
	}
	// The way to the node leads through no proxy, neither for us nor for Helm.
	return n, os.Setenv("NO_PROXY", os.Getenv("NO_PROXY")+","+n.Address)
}

func (n *node) launch(ctx context.Context) error {
	say("starting the node; the first start builds Kubernetes, which takes minutes")
	n.cmd = exec.Command("bin/node", "start", "--die-with-parent",
		"--state", n.stateFile, "--kubeconfig", filepath.Join(n.dir, "kubeconfig"))
	n.cmd.Stdout, n.cmd.Stderr = os.Stdout, os.Stderr
	// In a group of its own, so that Ctrl-C reaches it through us, when we have done with it.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.cmd.Start(); err != nil {
		return err
	}
	n.ended = make(chan struct{})
	go func() {
		_ = n.cmd.Wait()
		close(n.ended)
	}()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		if _, err := os.Stat(n.stateFile); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-n.ended:
			return errors.New("the node did not start")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// load gives the images to the node.
func (n *node) load(ctx context.Context) error {
	say("loading images")
	natsVersion, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "github.com/nats-io/nats-server/v2").Output()
	if err != nil {
		return fmt.Errorf("version of NATS: %w", err)
	}
	args := []string{"load", "--state", n.stateFile}
	for image, program := range map[string]string{
		"sandbox-provisioner-api:" + imageTag:    "api",
		"sandbox-provisioner-worker:" + imageTag: "worker",
		// The version that the chart asks for, by itself.
		"nats:" + strings.TrimPrefix(strings.TrimSpace(string(natsVersion)), "v"): "nats-server",
		sandboxImage: "sandbox",
		gatewayImage: "gateway",
	} {
		args = append(args, imagePrefix+image+"="+filepath.Join(outDir, program))
	}
	cmd := exec.CommandContext(ctx, "bin/node", args...)
	cmd.Stdout, cmd.Stderr = io.Discard, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	return nil
}

func (n *node) ours() bool { return n.ended != nil }

// stop ends the node, if it is ours, and waits until it has cleaned up.
func (n *node) stop() error {
	if n.ours() {
		_ = n.cmd.Process.Signal(syscall.SIGTERM)
		<-n.ended
	}
	return os.RemoveAll(n.dir)
}

// left is what is to be found of a node that was stopped.
func (n *node) left() error {
	var found error
	if _, err := os.Stat(n.Dir); !errors.Is(err, fs.ErrNotExist) {
		found = errors.Join(found, fmt.Errorf("its directory %s", n.Dir))
	}
	name := filepath.Base(n.Dir)
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		if groups, _ := filepath.Glob(pattern); len(groups) > 0 {
			found = errors.Join(found, fmt.Errorf("control groups %v", groups))
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), name) {
		found = errors.Join(found, errors.New("mounts"), err)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, process := range processes {
		if command, err := os.ReadFile(process); err == nil && strings.Contains(string(command), name) {
			found = errors.Join(found, fmt.Errorf("the process %s", strings.ReplaceAll(string(command), "\x00", " ")))
		}
	}
	devices, err := net.Interfaces()
	for _, device := range devices {
		if addresses, _ := device.Addrs(); slices.ContainsFunc(addresses, n.onLink) {
			found = errors.Join(found, fmt.Errorf("the device %s", device.Name))
		}
	}
	return errors.Join(found, err)
}

// onLink tells whether the node is behind the device with this address.
func (n *node) onLink(address net.Addr) bool {
	_, network, err := net.ParseCIDR(address.String())
	return err == nil && network.Contains(net.ParseIP(n.Address))
}
