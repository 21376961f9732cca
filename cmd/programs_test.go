// Package cmd_test checks what holds for every program.
package cmd_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// client-go's typed clients bring all kinds of all APIs, which is 9 MB of every program.
func TestProgramsKnowOnlyTheCoreAPIOfKubernetes(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "./...").Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	require.Contains(t, packages, "k8s.io/api/core/v1")
	for _, name := range packages {
		api, found := strings.CutPrefix(name, "k8s.io/api/")
		require.True(t, !found || api == "core/v1", "%s is linked; who needs it?", name)
		require.False(t, strings.HasPrefix(name, "k8s.io/client-go/kubernetes"), "%s is linked; see k8s.NewCore", name)
	}
}
