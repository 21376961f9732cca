// Package controlplane runs etcd and kube-apiserver through envtest.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	startTimeout = 60 * time.Second
	// stopTimeout is generous for a healthy server (well under a second) and short for one that a test has stopped
	// with SIGSTOP; after it comes SIGKILL.
	stopTimeout = 5 * time.Second
	// attempts covers a port that somebody else took between choosing and listening.
	attempts = 3
)

// Config says how to run the control plane.
type Config struct {
	// Assets holds kube-apiserver and etcd.
	Assets string
	// DataDir keeps etcd's data across runs. Empty: a temporary directory that Stop removes.
	DataDir string
	// UnsafeNoFsync makes etcd faster and benchmarks meaningless. Off by default.
	UnsafeNoFsync bool
	// ServiceAccountAdmission makes Pods need their ServiceAccount, as in a real cluster. Off by default, as in envtest.
	ServiceAccountAdmission bool
	Log                     *slog.Logger
}

// Plane is a running control plane.
type Plane struct {
	// REST connects as admin (system:masters), without client-side rate limits.
	REST *rest.Config
	// Kubeconfig is the same as a file's content.
	Kubeconfig []byte
	// APIServerPID and EtcdPID are for tests that stop or kill a server.
	APIServerPID, EtcdPID int

	plane   *envtest.ControlPlane
	scratch *scratch
}

// Start blocks until the API server is healthy and has its default namespace, about three seconds. When ctx ends
// meanwhile it gives up as soon as envtest returns, and leaves nothing behind.
func Start(ctx context.Context, cfg Config) (_ *Plane, err error) {
	scratch, err := newScratch(cfg.Assets, cfg.Log)
	if err != nil {
		return nil, err
	}
	p := &Plane{scratch: scratch}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
		}
	}()
	for try := 1; ; try++ {
		err = p.launch(cfg)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if try == attempts {
			return nil, fmt.Errorf("start the control plane: %w\n%s", err, scratch.logTail())
		}
		cfg.Log.Warn("control plane did not start, trying again", slog.Int("attempt", try), slog.Any("error", err))
		_ = p.plane.Stop()
	}
	if err := p.identify(); err != nil {
		return nil, err
	}
	if err := p.waitForDefaultNamespace(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Plane) launch(cfg Config) error {
	etcdData := filepath.Join(p.scratch.dir, "etcd")
	if cfg.DataDir != "" {
		etcdData = filepath.Join(cfg.DataDir, "etcd")
	}
	certs := filepath.Join(p.scratch.dir, "certs")
	// Left-overs of a failed attempt: envtest takes existing certificates for its own but does not load their CA.
	if err := os.RemoveAll(certs); err != nil {
		return err
	}
	for _, dir := range []string{etcdData, certs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}

	store := &envtest.Etcd{
		Path: p.scratch.shim(etcd), DataDir: etcdData,
		StartTimeout: startTimeout, StopTimeout: stopTimeout,
		Out: p.scratch.etcdLog, Err: p.scratch.etcdLog,
	}
	if !cfg.UnsafeNoFsync {
		store.Configure().Disable("unsafe-no-fsync") // envtest's default is on
	}
	store.Configure().Set("log-level", "warn")

	server := &envtest.APIServer{
		Path: p.scratch.shim(apiServer), CertDir: certs,
		StartTimeout: startTimeout, StopTimeout: stopTimeout,
		Out: p.scratch.apiServerLog, Err: p.scratch.apiServerLog,
	}
	// envtest's /24 would be full after 254 Services. The node port range stays Kubernetes' default.
	server.Configure().Set("service-cluster-ip-range", "10.96.0.0/16")
	if cfg.ServiceAccountAdmission {
		server.Configure().Disable("disable-admission-plugins")
	}

	p.plane = &envtest.ControlPlane{Etcd: store, APIServer: server}
	return p.plane.Start()
}

// identify fills in who the admin is and which processes run.
func (p *Plane) identify() error {
	admin, err := p.plane.AddUser(
		envtest.User{Name: "admin", Groups: []string{"system:masters"}}, &rest.Config{QPS: -1})
	if err != nil {
		return fmt.Errorf("issue the admin's certificate: %w", err)
	}
	p.REST = admin.Config()
	if p.Kubeconfig, err = admin.KubeConfig(); err != nil {
		return fmt.Errorf("render the kubeconfig: %w", err)
	}
	p.APIServerPID, p.EtcdPID = p.scratch.pid(apiServer), p.scratch.pid(etcd)
	return nil
}

func (p *Plane) waitForDefaultNamespace(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(p.REST)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 10*time.Second, true,
		func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		})
	if err != nil {
		return fmt.Errorf("wait for the default namespace: %w", err)
	}
	return nil
}

// Stop ends both servers and removes everything that Start made, except DataDir. It may be called on a Plane that did
// not start completely.
func (p *Plane) Stop() error {
	var err error
	if p.plane != nil {
		err = p.plane.Stop()
	}
	return errors.Join(err, p.scratch.remove())
}

// Server returns the API server's URL.
func (p *Plane) Server() string { return strings.TrimSuffix(p.REST.Host, "/") }
