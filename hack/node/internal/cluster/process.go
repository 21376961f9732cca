package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// start runs a program for as long as the node lives. Its end is the node's.
func (n *node) start(program string, args ...string) error {
	name := filepath.Base(program)
	log, err := os.Create(n.path("log", name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		err := cmd.Wait()
		n.fail(fmt.Errorf("%s ended: %w\n%s", name, err, tail(log.Name())))
	}()
	return nil
}

// tail is the end of a log, for an error message.
func tail(file string) []byte {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-15):], []byte("\n"))
}

func (n *node) etcd() error {
	return n.start(filepath.Join(n.Bin, "etcd"),
		"--data-dir="+n.path("etcd"), "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380")
}

func (n *node) apiServer() error {
	return n.start(filepath.Join(n.Bin, "kube-apiserver"),
		"--etcd-servers=http://127.0.0.1:2379",
		"--secure-port="+apiPort, "--advertise-address="+n.Address,
		"--service-cluster-ip-range="+serviceCIDR,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--client-ca-file="+n.path("pki", "ca.crt"),
		"--tls-cert-file="+n.path("pki", "server.crt"), "--tls-private-key-file="+n.path("pki", "server.key"),
		"--kubelet-client-certificate="+n.path("pki", "kubelet-client.crt"),
		"--kubelet-client-key="+n.path("pki", "kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc."+domain,
		"--service-account-key-file="+n.path("pki", "ca.key"), "--service-account-signing-key-file="+n.path("pki", "ca.key"))
}

func (n *node) containerd() error {
	program, err := exec.LookPath("containerd")
	if err != nil {
		return err
	}
	return n.start(program, "--config", n.path("conf", "containerd.toml"))
}

func (n *node) controllerManager() error {
	return n.start(filepath.Join(n.Bin, "kube-controller-manager"),
		"--kubeconfig="+n.path("conf", "controller-manager.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1",
		"--root-ca-file="+n.path("pki", "ca.crt"), "--service-account-private-key-file="+n.path("pki", "ca.key"),
		"--use-service-account-credentials")
}

func (n *node) scheduler() error {
	return n.start(filepath.Join(n.Bin, "kube-scheduler"),
		"--kubeconfig="+n.path("conf", "scheduler.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1")
}

func (n *node) kubelet() error {
	return n.start(filepath.Join(n.Bin, "kubelet"),
		"--config="+n.path("conf", "kubelet.yaml"), "--kubeconfig="+n.path("conf", "kubelet.kubeconfig"),
		"--root-dir="+n.path("kubelet"), "--node-ip="+n.Address)
}

func (n *node) proxy() error {
	return n.start(filepath.Join(n.Bin, "kube-proxy"), "--config="+n.path("conf", "proxy.yaml"))
}
