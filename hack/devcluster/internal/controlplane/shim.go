package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
)

const (
	etcd      = "etcd"
	apiServer = "kube-apiserver"

	// assetsLink stands beside the shims and leads to the real programs.
	assetsLink = "assets"
)

// Shim must be the first call of a main (or TestMain) whose process starts a control plane. envtest cannot ask
// the kernel to kill its servers when their parent dies, nor does it tell their process ids. So it is given links to
// our own program under the servers' names; started under such a name, Shim arranges both and becomes the server.
func Shim() {
	dir, name := filepath.Split(os.Args[0])
	if name != etcd && name != apiServer {
		return
	}
	assets, err := os.Readlink(filepath.Join(dir, assetsLink))
	if err != nil {
		return
	}
	// The request to be killed belongs to the thread that makes it, and exec keeps only the calling thread.
	runtime.LockOSThread()
	err = become(filepath.Join(assets, name), pidFile(dir, name))
	fmt.Fprintln(os.Stderr, "devcluster: cannot start", name+":", err)
	os.Exit(1)
}

func become(program, pidFile string) error {
	if err := dieWithParent(syscall.SIGKILL); err != nil {
		return err
	}
	if !slices.Contains(os.Args, "--help") { // envtest asks for the flags first
		if err := os.WriteFile(pidFile, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			return err
		}
	}
	return syscall.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ())
}

func pidFile(dir, program string) string { return filepath.Join(dir, program+".pid") }

// linkShims fills dir with the links that Shim reacts to.
func linkShims(dir, assets string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	for name, target := range map[string]string{etcd: self, apiServer: self, assetsLink: assets} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
