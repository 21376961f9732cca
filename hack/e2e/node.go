package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A node is a real Kubernetes node of hack/node.
type node struct {
	Kubeconfig string `json:"kubeconfig"`
	// Address is the node's, as this machine reaches it.
	Address string `json:"address"`
	// Root is where the node's /var/lib lies on this machine.
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
	if n.dir, err = os.MkdirTemp("", "sandbox-e2e-"); err != nil {
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
	return n, json.Unmarshal(content, n)
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

// stop ends the node, if it is ours, and waits until it has cleaned up.
func (n *node) stop() error {
	if n.cmd != nil && n.cmd.Process != nil {
		_ = n.cmd.Process.Signal(syscall.SIGTERM)
		<-n.ended
	}
	return os.RemoveAll(n.dir)
}
