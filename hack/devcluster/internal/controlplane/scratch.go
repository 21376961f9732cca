package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const scratchPrefix = "devcluster-"

// scratch is the temporary directory of one control plane: shims, certificates, etcd's data, logs. It is locked as long
// as its owner lives, so that a later run can tell the directory of a killed one, and remove it.
type scratch struct {
	dir                   string
	lock                  *os.File
	etcdLog, apiServerLog *os.File
}

func newScratch(assets string, log *slog.Logger) (_ *scratch, err error) {
	removeAbandoned(log)
	dir, err := os.MkdirTemp("", scratchPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w", err)
	}
	s := &scratch{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.remove())
		}
	}()
	if err = s.own(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err = os.Mkdir(s.shim(""), 0o700); err != nil {
		return nil, err
	}
	if err = linkShims(s.shim(""), assets); err != nil {
		return nil, err
	}
	if s.etcdLog, err = os.Create(s.log(etcd)); err != nil {
		return nil, err
	}
	s.apiServerLog, err = os.Create(s.log(apiServer))
	return s, err
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

func (s *scratch) shim(program string) string { return filepath.Join(s.dir, "shim", program) }
func (s *scratch) log(program string) string  { return filepath.Join(s.dir, program+".log") }

// removeAbandoned deletes what processes left that were killed before they could clean up.
func removeAbandoned(log *slog.Logger) {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*", "lock"))
	for _, path := range locks {
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			dir := filepath.Dir(path)
			log.Info("removing what a killed devcluster left behind", slog.String("dir", dir))
			_ = os.RemoveAll(dir)
		}
		_ = file.Close()
	}
}

func (s *scratch) pid(program string) int {
	content, err := os.ReadFile(pidFile(s.shim(""), program))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(content)))
	return pid
}

// logTail returns the last lines of both servers' logs, for an error message.
func (s *scratch) logTail() string {
	var tail strings.Builder
	for _, name := range []string{etcd, apiServer} {
		content, err := os.ReadFile(s.log(name))
		if err != nil || len(content) == 0 {
			continue
		}
		lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
		lines = lines[max(0, len(lines)-10):]
		fmt.Fprintf(&tail, "--- last lines of %s\n%s\n", name, bytes.Join(lines, []byte("\n")))
	}
	return tail.String()
}

func (s *scratch) remove() error {
	for _, file := range []*os.File{s.etcdLog, s.apiServerLog, s.lock} {
		if file != nil {
			_ = file.Close()
		}
	}
	return os.RemoveAll(s.dir)
}
