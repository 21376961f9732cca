package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/config"
	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

// Both programs start without NATS and without Kubernetes. Whoever looks at the log must see why nothing happens.
func TestNATSThatIsDownAtTheStartIsToldOnce(t *testing.T) {
	t.Parallel()
	log := &telemetrytest.Log{}
	nc, err := connectNATS(config.NATS{URL: "nats://me:s3cret@127.0.0.1:1"}, "test", slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	defer nc.Close()
	require.Eventually(t, func() bool { return log.Count("part does not answer") > 0 && nc.Stats().Reconnects == 0 },
		10*time.Second, 10*time.Millisecond)
	require.Eventually(t, nc.IsReconnecting, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, 1, log.Count("part=NATS"))
	require.NotContains(t, log.String(), "s3cret")
}

const userJWT = `-----BEGIN NATS USER JWT-----
eyJ0eXAiOiJKV1QifQ.e30.c2ln
------END NATS USER JWT------
`

func TestNATSCredentialsThatCannotBeUsedAreReportedAsSuch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	withSeed := "-----BEGIN USER NKEY SEED-----\n" + string(seed) + "\n------END USER NKEY SEED------\n"
	for name, tc := range map[string]struct{ path, want string }{
		"a file that is not there": {filepath.Join(dir, "gone"), "cannot be read: no such file or directory"},
		"a directory":              {dir, "cannot be read: is a directory"},
		"an empty file":            {file("empty", ""), "holds no seed of a user"},
		"a file of something else": {file("other", "s3cret"), "holds no seed of a user"},
		"a file without a seed":    {file("half", userJWT), "holds no seed of a user"},
		"good credentials":         {file("good", userJWT+withSeed), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, err := connectNATS(config.NATS{URL: "nats://127.0.0.1:1", Creds: tc.path}, "test", slog.New(slog.DiscardHandler))
			if tc.want == "" {
				require.NoError(t, err)
				nc.Close()
				return
			}
			require.EqualError(t, err, "NATS_CREDS="+tc.path+": "+tc.want)
		})
	}
}
