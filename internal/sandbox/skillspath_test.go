package sandbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckSkillsPath(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"/mnt/skills", "/custom-skills", "/a/b/c", "/mnt/user-data2", "/mnt/integrations/other", "/mnt/acp-workspace-old",
	} {
		got, err := CheckSkillsPath(good)
		require.NoError(t, err, good)
		require.Equal(t, good, got)
	}
	for bad, why := range map[string]string{
		"":                              "absolute",
		"mnt/skills":                    "absolute",
		`C:\skills`:                     "absolute",
		"/":                             "root",
		"/mnt/skills/":                  "/mnt/skills",
		"/mnt//skills":                  "normalised",
		"/mnt/skills/../user-data":      "normalised",
		"//":                            "normalised",
		"/mnt/sk\x00ills":               "control",
		"/mnt/skills\n":                 "control",
		"/mnt":                          "/mnt/user-data",
		"/mnt/user-data":                "/mnt/user-data",
		"/mnt/user-data/skills":         "/mnt/user-data",
		"/mnt/acp-workspace":            "/mnt/acp-workspace",
		"/mnt/acp-workspace/x":          "/mnt/acp-workspace",
		"/mnt/integrations":             "/mnt/integrations/lark-cli",
		"/mnt/integrations/lark-cli":    "/mnt/integrations/lark-cli",
		"/mnt/integrations/lark-cli/xx": "/mnt/integrations/lark-cli",
	} {
		_, err := CheckSkillsPath(bad)
		require.ErrorContains(t, err, why, "%q", bad)
	}
}
