package natsserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrInUse means that another server has the data directory. Two of them would destroy each other's streams.
var ErrInUse = errors.New("the data directory is in use by another process")

// lockDir makes dir when it is missing and locks it until the file is closed or the process ends, however it ends. The
// file stays behind: removing it would let a third server lock a new file while the second waits for the old one.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write to the data directory: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrInUse
	}
	return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), file.Close())
}
