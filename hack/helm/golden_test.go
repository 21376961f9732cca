package helm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
)

// The golden files are for a person to read in review; make golden rewrites them. Rules and dashboards are left out: they are
// read where they are written.
func TestRendersAsReviewed(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	c.Files = nil
	for name, values := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := tryRender(t, c, values)
			require.NoError(t, err)
			if name == "empty-type" || name == "missing-type" {
				name = "default" // to the letter
			}
			golden(t, name+".yaml", r.manifest)
			golden(t, name+".notes.txt", r.notes)
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "run make golden")
	require.Equal(t, string(want), got, "run make golden, and read the difference")
}

func TestLintsWithoutAWarning(t *testing.T) {
	t.Parallel()
	for name, values := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lint := action.NewLint()
			lint.Strict, lint.KubeVersion = true, kubeVersion
			result := lint.Run([]string{chartDir}, parse(t, values))
			require.Equal(t, 1, result.TotalChartsLinted)
			require.Empty(t, result.Errors)
			require.False(t, action.HasWarningsOrErrors(result), "%v", result.Messages)
		})
	}
}

func TestRendersTheSameTwice(t *testing.T) {
	t.Parallel()
	eachScenario(t, func(t *testing.T, name string, r rendering) {
		again, err := tryRender(t, loadChart(t), scenarios[name])
		require.NoError(t, err)
		require.Equal(t, r.manifest, again.manifest)
	})
}
