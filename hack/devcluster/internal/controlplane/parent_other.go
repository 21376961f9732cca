//go:build !linux

package controlplane

import (
	"os"
	"syscall"
)

// dieWithParent is Linux's; elsewhere a killed devcluster leaves its servers running.
func dieWithParent(syscall.Signal) error { return nil }

// NotifyParentDeath returns a channel on which nothing comes: the caller has to look now and then.
func NotifyParentDeath() (<-chan os.Signal, error) { return nil, nil }
