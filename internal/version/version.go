// Package version says which build this is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set at build time with -ldflags "-X sandbox-provisioner/internal/version.version=… -X ….commit=…".
var (
	version string
	commit  string
)

// Info identifies a build.
type Info struct {
	Version string
	Commit  string
	Go      string
}

// Get is what was set at build time; what was not is taken from the build information that Go records by itself.
func Get() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	return get(version, commit, build)
}

// String is the one line of --version.
func (i Info) String() string {
	return fmt.Sprintf("%s (commit %s, %s)", i.Version, i.Commit, i.Go)
}

func get(version, commit string, build *debug.BuildInfo) Info {
	info := Info{Version: version, Commit: commit, Go: runtime.Version()}
	if info.Version == "" {
		info.Version = build.Main.Version
	}
	if info.Version == "" {
		info.Version = "(devel)"
	}
	if info.Commit == "" {
		info.Commit = recordedCommit(build)
	}
	return info
}

func recordedCommit(build *debug.BuildInfo) string {
	revision, modified := "unknown", ""
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = " with changes"
		}
	}
	return revision + modified
}
