package compose_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsMissingIsSaidInASentence(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	closed, missing := p.kubeconfig(), filepath.Join(t.TempDir(), "missing")
	require.NoError(t, os.Chown(closed, 0, 0))
	for name, test := range map[string]struct {
		env  map[string]string
		want string
	}{
		"no key": {
			map[string]string{"PROVISIONER_API_KEY": ""},
			`is not set. Clients send it as X-API-Key. Put it into .env, made by "openssl rand -hex 32" for instance`,
		},
		"no kubeconfig": {
			map[string]string{"KUBECONFIG": missing},
			`bind source path does not exist`,
		},
		"a kubeconfig that Docker has made a directory": {
			map[string]string{"KUBECONFIG": t.TempDir()},
			`is a directory; mount a file there (Docker makes a directory when the file to mount does not exist)`,
		},
		"a kubeconfig of another user": {
			map[string]string{"KUBECONFIG": closed},
			`cannot be read: permission denied; make it readable for this user`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := p.try(test.env, "run", "--rm", "--no-deps", "-T", "api")
			require.Error(t, err)
			require.Contains(t, out, test.want)
			for _, mark := range []string{"Traceback", "goroutine ", "panic"} {
				require.NotContains(t, out, mark)
			}
		})
	}
	require.NoFileExists(t, missing)
	require.NoDirExists(t, missing, "a directory that kubectl would stumble over")
}
