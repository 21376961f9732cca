package sandbox

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Paths in the container, apart from the skills.
const (
	UserDataPath    = "/mnt/user-data"
	WorkspacePath   = "/mnt/acp-workspace"
	LarkPath        = "/mnt/integrations/lark-cli"
	LarkRuntimePath = LarkPath + "/runtime"
	LarkConfigPath  = LarkPath + "/config"
	LarkLocksPath   = LarkConfigPath + "/locks"
	LarkDataPath    = LarkPath + "/data"
)

// MaxExtraMounts is the number of extra mounts that one sandbox may have.
const MaxExtraMounts = 10

// StateDir is the root of DeerFlow's state on the nodes, outside which no extra mount may lie: baseDir, or else the parent
// of threadsPath if that is called "threads" and does not lie in the root directory, which would let requests mount
// anything. Otherwise the result is not absolute, and contains nothing.
func StateDir(baseDir, threadsPath string) HostPath {
	if baseDir != "" {
		return ParseHostPath(baseDir)
	}
	if dir, name := ParseHostPath(threadsPath).parent(); name == "threads" && !dir.IsRoot() {
		return dir
	}
	return HostPath{}
}

// MountRules decide which extra mounts a request may have.
type MountRules struct {
	// Base is the StateDir.
	Base HostPath
	// Claim tells that mounts come out of a claim, of which Base is not a subdirectory that could be mounted.
	Claim bool
	// LarkInit and LarkBroker tell whether there is an image for pattern A and for pattern B.
	LarkInit, LarkBroker bool
}

// A MountError says why a mount is refused, in the words that the client gets to see.
type MountError struct{ Detail string }

func (e *MountError) Error() string { return e.Detail }

// Check returns the extra mounts of spec, normalised, or the *MountError of the first that is refused. spec's SkillsPath
// must have been checked.
//
// Pattern A supersedes a mount at the runtime path, which is therefore neither counted nor checked nor returned. Pattern B
// takes mounts away from the sandbox too, but for the broker's sake: those are checked like any other, and sorted out when
// the Pod is built.
func (r MountRules) Check(spec Spec) ([]Mount, error) {
	patternB := r.LarkBroker && spec.LarkBroker
	patternA := r.LarkInit && spec.LarkRuntime && !patternB
	superseded := func(m Mount) bool { return patternA && path.Clean(m.ContainerPath) == LarkRuntimePath }

	left := len(spec.ExtraMounts)
	for _, m := range spec.ExtraMounts {
		if superseded(m) {
			left--
		}
	}
	if left > MaxExtraMounts {
		return nil, refuse("Too many extra mounts; max is %d", MaxExtraMounts)
	}
	var checked []Mount
	for _, raw := range spec.ExtraMounts {
		if superseded(raw) {
			continue
		}
		m, err := r.check(raw, checked, spec.SkillsPath)
		if err != nil {
			return nil, err
		}
		checked = append(checked, m)
	}
	return checked, nil
}

func (r MountRules) check(raw Mount, before []Mount, skillsPath string) (Mount, error) {
	host := ParseHostPath(raw.HostPath)
	m := Mount{HostPath: host.String(), ContainerPath: path.Clean(raw.ContainerPath), ReadOnly: raw.ReadOnly}
	if !host.IsAbs() {
		return m, refuse("Extra mount host path must be absolute: %s", raw.HostPath)
	}
	rel, inside := host.Within(r.Base)
	switch {
	case !inside:
		return m, refuse("Extra mount host path is outside DeerFlow state: %s", raw.HostPath)
	case !strings.HasPrefix(m.ContainerPath, "/"):
		return m, refuse("Extra mount path must be absolute: %s", raw.ContainerPath)
	case !mayMountAt(m.ContainerPath, skillsPath):
		return m, refuse("Unsupported extra mount path: %s", raw.ContainerPath)
	case slices.ContainsFunc(before, func(b Mount) bool { return b.ContainerPath == m.ContainerPath }):
		return m, refuse("Duplicate extra mount path: %s", m.ContainerPath)
	case r.Claim && rel == "":
		return m, refuse("Invalid extra mount host path: %s", m.HostPath)
	}
	return m, nil
}

func mayMountAt(containerPath, skillsPath string) bool {
	switch containerPath {
	case WorkspacePath, LarkConfigPath, LarkLocksPath, LarkDataPath, LarkRuntimePath:
		return true
	}
	_, ok := SkillCategory(containerPath, skillsPath)
	return ok
}

func refuse(format string, args ...any) error {
	return &MountError{Detail: fmt.Sprintf(format, args...)}
}
