package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// hierarchies are the mount points of control groups: one for each controller (version 1), or one for all (version 2).
func hierarchies() ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(mounts)) {
		// Fields before the dash: id, parent, device, root, mount point, options; after it: type, source, options.
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if kind, _, _ := strings.Cut(after, " "); (kind == "cgroup" || kind == "cgroup2") && len(fields) > 4 {
			points = append(points, fields[4])
		}
	}
	return points, nil
}

func makeCgroups(name string) error {
	points, err := hierarchies()
	if err != nil {
		return err
	}
	for _, point := range points {
		enableControllers(point)
		// A hierarchy may be mounted twice.
		if err := os.Mkdir(filepath.Join(point, name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// enableControllers lets groups below a hierarchy of version 2 have what the hierarchy has, as a kubelet that uses its root would.
// What cannot be enabled is not needed, or the kubelet says that it misses it.
func enableControllers(point string) {
	available, err := os.ReadFile(filepath.Join(point, "cgroup.controllers"))
	if err != nil {
		return // version 1
	}
	for _, controller := range strings.Fields(string(available)) {
		_ = os.WriteFile(filepath.Join(point, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
}

// removeCgroups waits a little for the last processes to leave.
func removeCgroups(name string) error {
	points, err := hierarchies()
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(cgroupPatience); ; time.Sleep(20 * time.Millisecond) {
		var left error
		for _, point := range points {
			left = errors.Join(left, removeTree(filepath.Join(point, name)))
		}
		if left == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove control groups: %w", left)
		}
	}
}

const cgroupPatience = 10 * time.Second

// removeTree removes directories from the leaves up; the files in them are the kernel's.
func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	slices.Reverse(dirs)
	for _, dir := range dirs {
		if e := os.Remove(dir); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
