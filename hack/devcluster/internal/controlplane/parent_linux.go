package controlplane

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent asks the kernel for a signal to this thread's process when its parent is gone.
func dieWithParent(signal syscall.Signal) error {
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(signal), 0, 0, 0)
}

// NotifyParentDeath returns a channel that wakes its reader when the parent process may be gone. It is for good:
// without a reader the signal would end the process in the middle of its cleaning up.
func NotifyParentDeath() (<-chan os.Signal, error) {
	wake := make(chan os.Signal, 1)
	signal.Notify(wake, syscall.SIGUSR1)
	runtime.LockOSThread() // the request must not be lost with its thread
	return wake, dieWithParent(syscall.SIGUSR1)
}
