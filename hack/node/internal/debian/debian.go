// Package debian finds the programs that a node takes from the distribution, and installs those that are missing.
package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// needs are programs, and the packages that bring them.
var needs = []struct{ program, pkg string }{
	{"containerd", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"nft", "nftables"},
	{"conntrack", "conntrack"},
}

const cniPackage = "containernetworking-plugins"

// cniDirs are where distributions put the network plugins.
var cniDirs = []string{"/usr/lib/cni", "/opt/cni/bin"}

// Ensure installs what is missing, and returns the directory of the network plugins. It needs root when it has to install.
func Ensure(ctx context.Context, log *slog.Logger) (cniDir string, err error) {
	if packages := missing(); len(packages) > 0 {
		if err := install(ctx, packages, log); err != nil {
			return "", fmt.Errorf("install %s: %w", strings.Join(packages, " "), err)
		}
		if still := missing(); len(still) > 0 {
			return "", fmt.Errorf("installed %s, and yet something of it is not there", strings.Join(still, " "))
		}
	}
	return plugins(), nil
}

func missing() []string {
	var packages []string
	for _, need := range needs {
		if _, err := exec.LookPath(need.program); err != nil && !slices.Contains(packages, need.pkg) {
			packages = append(packages, need.pkg)
		}
	}
	if plugins() == "" {
		packages = append(packages, cniPackage)
	}
	return packages
}

func plugins() string {
	for _, dir := range cniDirs {
		if _, err := os.Stat(filepath.Join(dir, "ptp")); err == nil {
			return dir
		}
	}
	return ""
}

func install(ctx context.Context, packages []string, log *slog.Logger) error {
	if os.Getuid() != 0 {
		return errors.New("this needs root")
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("there is no apt-get; install them by hand")
	}
	log.Info("installing packages", slog.String("packages", strings.Join(packages, " ")))
	wait := []string{"-qq", "-o", "DPkg::Lock::Timeout=120"}
	if err := aptGet(ctx, append(wait, "update")); err != nil {
		return err
	}
	return aptGet(ctx, append(append(wait, "install", "-y", "--no-install-recommends"), packages...))
}

func aptGet(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
