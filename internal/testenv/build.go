package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// root is the directory of this module's go.mod. Tests run in the directory of their package, which is below it.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(content), "module sandbox-provisioner\n") {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("the working directory is not below the module's go.mod")
		}
		dir = up
	}
}

// build makes the programs of packages, relative to dir, in the directory out. It costs a second when nothing has changed.
// Test binaries that run at the same time build one after the other: they share out.
func build(dir, out string, packages ...string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(out, ".testenv.lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // closing is unlocking
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	args := append([]string{"build", "-buildvcs=false", "-o", out + string(filepath.Separator)}, packages...)
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), dir, err, output)
	}
	return nil
}
