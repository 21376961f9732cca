// Package cluster runs the programs of a Kubernetes cluster of one node. It is what runs inside the box.
package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"sandbox-provisioner/hack/node/internal/box"
)

const (
	// serviceCIDR and podCIDR exist inside the box only, and collide with nobody.
	serviceCIDR = "10.96.0.0/16"
	podCIDR     = "10.244.0.0/22"
	apiAddress  = "10.96.0.1"
	dnsAddress  = "10.96.0.10"
	apiPort     = "6443"
	domain      = "cluster.local"

	// ContainerdSocket is containerd's, below a directory that is the box's own.
	ContainerdSocket = "/run/containerd/containerd.sock"

	startTimeout = 3 * time.Minute
)

// PauseImage and DNSImage are the names of the images that the node itself needs.
const (
	PauseImage = "node.local/pause:1"
	DNSImage   = "node.local/coredns:1"
)

// Order says what to run.
type Order struct {
	box.Layout
	// Bin holds the programs of Kubernetes, CNI the network plugins.
	Bin, CNI string
	// Images are archives with PauseImage and DNSImage.
	Images []string
}

// Ready is reported once the node can take Pods and cluster DNS answers.
type Ready struct {
	// Kubeconfig is the admin's, for use outside of the box.
	Kubeconfig []byte
	Server     string
	// Error is why it did not become ready.
	Error string
}

// Inside receives an order, runs the node, reports when it is ready, and blocks until a program ends that should not. It does not
// clean up: the kernel does, when it returns.
func Inside(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var order Order
	if err := box.Receive(&order, func() { cancel(nil) }); err != nil {
		return err
	}
	n := &node{Order: order, log: log, fail: cancel}
	starting, done := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer done()
	if err := n.up(starting); err != nil {
		if cause := context.Cause(starting); cause != nil {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return box.Report(Ready{Error: err.Error()})
	}
	if err := box.Report(Ready{Kubeconfig: n.kubeconfig, Server: n.url(n.Address)}); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// A node is the programs, their files, and the way to the API server.
type node struct {
	Order
	log        *slog.Logger
	fail       context.CancelCauseFunc
	ca         *authority
	kubeconfig []byte
}

func (n *node) path(parts ...string) string {
	return filepath.Join(append([]string{n.Dir}, parts...)...)
}

func (n *node) url(host string) string { return "https://" + host + ":" + apiPort }

// up starts everything, in the order in which one needs the other.
func (n *node) up(ctx context.Context) error {
	for _, dir := range []string{"etcd", "log", "conf", "pki", "kubelet", "containerd"} {
		if err := os.MkdirAll(n.path(dir), 0o700); err != nil {
			return err
		}
	}
	if err := n.issue(); err != nil {
		return fmt.Errorf("issue certificates: %w", err)
	}
	if err := n.configure(); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	for _, start := range []func() error{n.etcd, n.apiServer, n.containerd} {
		if err := start(); err != nil {
			return err
		}
	}
	if err := n.importImages(ctx); err != nil {
		return err
	}
	api, err := n.connect()
	if err != nil {
		return err
	}
	if err := api.waitForServer(ctx); err != nil {
		return err
	}
	n.log.Info("the API server is ready")
	for _, start := range []func() error{n.controllerManager, n.scheduler, n.kubelet, n.proxy} {
		if err := start(); err != nil {
			return err
		}
	}
	if err := api.applyDNS(ctx); err != nil {
		return err
	}
	if err := api.waitForNode(ctx); err != nil {
		return err
	}
	n.log.Info("the node is ready")
	return api.waitForDNS(ctx)
}
