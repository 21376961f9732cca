// Package asset finds, downloads or builds the programs of Kubernetes: the two of a control plane, or all of a node.
package asset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// Version is the Kubernetes release that the development cluster runs.
const Version = "v1.36.3"

const (
	apiServer         = "kube-apiserver"
	etcd              = "etcd"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	kubelet           = "kubelet"
	proxy             = "kube-proxy"
)

var (
	controlPlane = []string{etcd, apiServer}
	wholeNode    = []string{etcd, apiServer, scheduler, proxy, kubelet, controllerManager}
)

// EnvDir is the variable through which envtest users name a directory that holds both programs already.
const EnvDir = "KUBEBUILDER_ASSETS"

// Finder gets the programs from the first place that has them.
type Finder struct {
	// BinDir is where downloaded or built programs are kept. Empty: <repository>/bin/k8s-<Version>.
	BinDir string
	Log    *slog.Logger
}

// Dir returns the absolute path of a directory that holds kube-apiserver and etcd. It looks at
// KUBEBUILDER_ASSETS, then at BinDir, then asks envtest's download index, and at last builds both from their
// Go modules, which takes minutes once. It blocks until one of these succeeded or ctx ends. Concurrent
// callers, other processes included, wait for each other instead of building twice.
func (f Finder) Dir(ctx context.Context) (string, error) {
	if dir := os.Getenv(EnvDir); dir != "" {
		if complete(dir, controlPlane) {
			return filepath.Abs(dir)
		}
		f.Log.Warn("environment names a directory without kube-apiserver and etcd, looking elsewhere",
			slog.String("variable", EnvDir), slog.String("dir", dir))
	}
	return f.get(ctx, controlPlane, func(dir string) error {
		downloadErr := f.download(ctx, dir)
		if downloadErr == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.Log.Info("prebuilt programs cannot be downloaded, building from source", slog.Any("error", downloadErr))
		if err := f.build(ctx, dir, controlPlane); err != nil {
			return fmt.Errorf("no control plane programs: neither downloaded nor built: %w "+
				"(way out: set %s to a directory that holds kube-apiserver and etcd, for example the one that "+
				"`setup-envtest use 1.36.x -p path` prints on a machine with internet access)", err, EnvDir)
		}
		return nil
	})
}

// NodeDir returns the absolute path of a directory that holds every program of Kubernetes that runs on a node: BinDir, after
// building what is missing there. Nobody offers them for download in one piece.
func (f Finder) NodeDir(ctx context.Context) (string, error) {
	return f.get(ctx, wholeNode, func(dir string) error { return f.build(ctx, dir, wholeNode) })
}

// get returns BinDir once it holds the programs. What is missing is made by one caller at a time, other processes included.
func (f Finder) get(ctx context.Context, programs []string, fetch func(dir string) error) (string, error) {
	dir, err := f.binDir()
	if err != nil {
		return "", err
	}
	if complete(dir, programs) {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a directory for the programs of Kubernetes: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(dir, ".lock"), func() {
		f.Log.Info("waiting for another process that is fetching the same programs", slog.String("dir", dir))
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if complete(dir, programs) {
		return dir, nil
	}
	if err := fetch(dir); err != nil {
		return "", err
	}
	return dir, nil
}

func (f Finder) binDir() (string, error) {
	if f.BinDir != "" {
		return filepath.Abs(f.BinDir)
	}
	root, err := Root()
	if err != nil {
		return "", fmt.Errorf("choose a directory for the control plane's programs: %w", err)
	}
	return filepath.Join(root, "bin", "k8s-"+Version), nil
}

// buildModule is the module that pins the programs, relative to the repository.
var buildModule = filepath.Join("hack", "devcluster", "build", "kubernetes")

// Root returns the repository's directory: the nearest one above the working directory, or else above
// this program's own file, that holds the build module.
func Root() (string, error) {
	var starts []string
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	for _, dir := range starts {
		for {
			if _, err := os.Stat(filepath.Join(dir, buildModule, "go.mod")); err == nil {
				return dir, nil
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", errors.New("not inside the repository (no " + buildModule + "/go.mod above): " +
		"run devcluster from within it, or pass the paths as flags")
}

func complete(dir string, programs []string) bool {
	for _, name := range programs {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}
