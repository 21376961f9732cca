package testenv

import "syscall"

// dieWithParent lets the kernel end a program whose test was killed. It does so already when the thread that started the
// program ends; the Go runtime ends no threads but those of locked goroutines, of which tests have none.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
