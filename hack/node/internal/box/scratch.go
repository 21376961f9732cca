package box

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const scratchPrefix = "sandbox-node-"

// scratch is the temporary directory of one box. It is locked as long as anybody who belongs to it lives, so that a later run
// can tell the directory of a killed one, and remove what it has left.
type scratch struct {
	dir  string
	lock *os.File
}

func newScratch(log *slog.Logger) (_ *scratch, err error) {
	if err := removeAbandoned(log); err != nil {
		log.Warn("cannot remove what a killed node left behind", slog.Any("error", err))
	}
	dir, err := os.MkdirTemp("", scratchPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w", err)
	}
	s := &scratch{dir: dir}
	for _, path := range hidden {
		if strings.HasPrefix(dir, path+"/") {
			return nil, errors.Join(fmt.Errorf("the temporary directory must not lie below %s: set TMPDIR", path), s.remove())
		}
	}
	if err := s.own(); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), s.remove())
	}
	return s, nil
}

// own locks the file before it gets the name that removeAbandoned looks for.
func (s *scratch) own() (err error) {
	fresh := filepath.Join(s.dir, "lock.fresh")
	if s.lock, err = os.Create(fresh); err != nil {
		return err
	}
	if err := syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(s.dir, "lock"))
}

// name marks everything of the box that lies elsewhere.
func (s *scratch) name() string { return filepath.Base(s.dir) }

func removeAbandoned(log *slog.Logger) (err error) {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*", "lock"))
	for _, path := range locks {
		file, openErr := os.Open(path)
		if openErr != nil {
			continue
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			abandoned := scratch{dir: filepath.Dir(path)}
			log.Info("removing what a killed node left behind", slog.String("dir", abandoned.dir))
			err = errors.Join(err, abandoned.remove())
		}
		_ = file.Close()
	}
	return err
}

func (s *scratch) remove() error {
	err := errors.Join(removeLink(s.name()), removeCgroups(s.name()))
	if s.lock != nil {
		_ = s.lock.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
