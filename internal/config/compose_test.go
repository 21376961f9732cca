package config

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	composeFile = "../../docker-compose.yaml"
	exampleFile = "../../.env.example"
	exampleMark = "# The rest has its default in the programs. Written by \"make golden\".\n"
)

// fixedInCompose are the settings that docker-compose.yaml does not leave to the operator: its own parts depend on them, or, as with
// profiles, nobody outside of the container could make use of them.
var fixedInCompose = []string{
	"DATA_DIR", "KUBECONFIG_PATH", "LISTEN_ADDR", "METRICS_ADDR", "NATS_CREDS", "NATS_PASSWORD", "NATS_STREAM_REPLICAS", "NATS_TOKEN",
	"NATS_URL", "NATS_USER", "PPROF_ADDR",
}

func TestComposePassesEverySettingToTheProgramsThatKnowIt(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(composeFile)
	require.NoError(t, err)
	var file struct {
		Services map[string]struct{ Environment map[string]any }
	}
	require.NoError(t, yaml.Unmarshal(content, &file))
	for program, cfg := range map[string]any{"api": &API{}, "worker": &Worker{}, "standalone": &Standalone{}} {
		all, err := settings(cfg)
		require.NoError(t, err)
		var want, got []string
		for _, s := range all {
			if !slices.Contains(fixedInCompose, s.name) {
				want = append(want, s.name)
			}
		}
		for name := range file.Services[program].Environment {
			if !slices.Contains(fixedInCompose, name) {
				got = append(got, name)
			}
		}
		require.ElementsMatch(t, want, got, program)
	}
}

// The second half of .env.example is what the tags say; make golden writes it.
func TestTheExampleExplainsEveryVariableOfCompose(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	byHand, _, found := strings.Cut(string(content), exampleMark)
	require.True(t, found)
	explained := variablesOf(byHand, `(?m)^#?([A-Z][A-Z0-9_]*)=`)

	want := byHand + exampleMark + example(t, explained)
	if *update {
		require.NoError(t, os.WriteFile(exampleFile, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(content), "run make golden")

	compose, err := os.ReadFile(composeFile)
	require.NoError(t, err)
	used := variablesOf(string(compose), `\$\{([A-Z][A-Z0-9_]*)`)
	used["COMPOSE_PROJECT_NAME"], used["COMPOSE_PROFILES"] = true, true // compose itself uses them
	for name := range used {
		require.True(t, explained[name], "%s is in docker-compose.yaml and not in .env.example", name)
	}
	all, err := settings(&Standalone{})
	require.NoError(t, err)
	for _, s := range all {
		used[s.name] = true
	}
	for name := range explained {
		require.True(t, used[name], "%s is in .env.example, and nobody knows it", name)
	}
}

// example lists the settings that are not explained by hand, each with its default.
func example(t *testing.T, explained map[string]bool) string {
	t.Helper()
	all, err := settings(&Standalone{})
	require.NoError(t, err)
	var out strings.Builder
	group := ""
	for _, s := range all {
		if explained[s.name] || slices.Contains(fixedInCompose, s.name) {
			continue
		}
		if s.group != group {
			group = s.group
			fmt.Fprintf(&out, "\n## %s\n", group)
		}
		fmt.Fprintf(&out, "# %s\n#%s=%s\n", s.help, s.name, s.preset)
	}
	return out.String()
}

// variablesOf are the names that the first group of pattern matches.
func variablesOf(text, pattern string) map[string]bool {
	names := map[string]bool{}
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		names[match[1]] = true
	}
	return names
}
