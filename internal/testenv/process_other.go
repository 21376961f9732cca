//go:build !linux

package testenv

import "syscall"

// dieWithParent is beyond this system: a program whose test was killed stays.
func dieWithParent() *syscall.SysProcAttr { return nil }
