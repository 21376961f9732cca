package box

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// hidden are the directories whose content the programs inside take for their own: sockets of other engines, state of another
// kubelet, network name spaces. They get empty ones that lie in the box's directory.
var hidden = []string{"/run", "/var/lib", "/var/log"}

// tunables are what a kubelet insists on, for the whole machine. Inside it finds them so, and leaves the machine alone.
var tunables = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// Init is the first process in a box. It arranges the mounts, starts the program proper, and waits for it and for every process
// that has lost its parent; when the program ends, so does the box.
func Init(args []string) error {
	if len(args) != 1 || os.Getpid() != 1 {
		return errors.New("init is for the program itself")
	}
	if err := arrange(args[0]); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	syscall.CloseOnExec(lockFD)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, InsideCommand)
	cmd.ExtraFiles = []*os.File{os.NewFile(ordersFD, "orders"), os.NewFile(reportsFD, "reports")}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	for _, file := range cmd.ExtraFiles {
		_ = file.Close() // the outer process waits for the end of the reports
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("wait for processes: %w", err)
		case pid == cmd.Process.Pid:
			os.Exit(status.ExitStatus())
		}
	}
}

// Hostname is the host name inside.
const Hostname = "node"

// arrange gives the mount namespace its own face. Nothing of it reaches the machine.
func arrange(dir string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	// Volumes that are mounted later have to show in containers.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the mounts: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, path := range hidden {
		own := Own(dir, path)
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		if err := bind(own, path); err != nil {
			return err
		}
	}
	for name, value := range tunables {
		file := filepath.Join(dir, "sysctl", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := bind(file, filepath.Join("/proc/sys", name)); err != nil {
			return err
		}
	}
	return nil
}

// Own is where a path below a hidden directory lies outside of the box.
func Own(dir, path string) string { return filepath.Join(dir, "root", path) }

func bind(source, target string) error {
	if err := syscall.Mount(source, target, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}
