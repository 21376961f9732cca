package version

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheVersionIsTheBestThatIsKnown(t *testing.T) {
	t.Parallel()
	recorded := &debug.BuildInfo{
		Main: debug.Module{Version: "v0.1.0"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc123"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	for name, test := range map[string]struct {
		version, commit string
		build           *debug.BuildInfo
		want            string
	}{
		"what the build set comes first":  {"v1.2.3", "def456", recorded, "v1.2.3 (commit def456, "},
		"else what Go recorded":           {"", "", recorded, "v0.1.0 (commit abc123 with changes, "},
		"else it says that it is unknown": {"", "", &debug.BuildInfo{}, "(devel) (commit unknown, "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want+runtime.Version()+")", get(test.version, test.commit, test.build).String())
		})
	}
}
