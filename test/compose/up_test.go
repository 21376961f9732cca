package compose_test

import (
	"errors"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

func TestNATSAPIAndThreeWorkersComeUpAndComeBack(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.run("up", "--detach", "--no-build", "--scale", "worker=3")
	nats, api, workers := p.containers("nats"), p.containers("api"), p.containers("worker")
	require.Len(t, nats, 1)
	require.Len(t, api, 1)
	require.Len(t, workers, 3)
	all := append(append(workers, nats...), api...)
	p.waitUntilHealthy(all...)
	for _, id := range all {
		require.Equal(t, "true [ALL] [no-new-privileges:true] unless-stopped",
			p.inspect(id, "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.SecurityOpt}} {{.HostConfig.RestartPolicy.Name}}"))
	}
	require.Equal(t, p.name+"_jobs", p.inspect(nats[0], "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}"))
	require.Equal(t, "true", p.inspect(p.name+"_jobs", "{{.Internal}}"), "a gateway reaches NATS")

	p.createAndDelete("first")

	p.crash(workers[0], "worker")
	p.waitUntilHealthy(workers...)
	p.createAndDelete("after-worker")

	p.client().Create(t.Context(), "kept").Want(t, http.StatusOK)
	generation := p.client().Job(t.Context(), "kept").Want(t, http.StatusOK).Body.Generation
	p.crash(nats[0], "nats-server")
	p.waitUntilHealthy(nats...)
	p.createAndDelete("after-nats")
	require.Equal(t, generation, p.client().Job(t.Context(), "kept").Want(t, http.StatusOK).Body.Generation, "NATS has forgotten a job")
}

func TestStandaloneComesUpAloneAndKeepsItsJobs(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	// Also as another user, who owns the kubeconfig.
	require.NoError(t, os.Chown(p.env["KUBECONFIG"], 4711, 4711))
	p.env["PROVISIONER_USER"] = "4711:4711"
	p.run("up", "--detach", "--no-build", "standalone")
	require.Empty(t, p.containers("nats"))
	require.Empty(t, p.containers("api"))
	standalone := p.containers("standalone")
	require.Len(t, standalone, 1)
	p.waitUntilHealthy(standalone...)
	p.createAndDelete("first")

	p.client().Create(t.Context(), "kept").Want(t, http.StatusOK)
	generation := p.client().Job(t.Context(), "kept").Want(t, http.StatusOK).Body.Generation
	p.run("up", "--detach", "--no-build", "--force-recreate", "standalone")
	p.waitUntilHealthy(p.containers("standalone")...)
	require.Equal(t, generation, p.client().Job(t.Context(), "kept").Want(t, http.StatusOK).Body.Generation, "it has forgotten a job")
	p.createAndDelete("again")
}

// createAndDelete plays a gateway: a sandbox is created, used and deleted.
func (p *project) createAndDelete(id string) {
	p.t.Helper()
	var created testenv.Response
	p.untilOK(func() testenv.Response {
		created = p.client().Create(p.t.Context(), id)
		return created
	})
	require.NotNil(p.t, created.Body.URL, "%v", created)
	sandbox := testenv.Client{URL: *created.Body.URL}
	p.untilOK(func() testenv.Response { return sandbox.Do(p.t.Context(), http.MethodGet, "/v1/sandbox", nil) })

	p.untilOK(func() testenv.Response { return p.client().Delete(p.t.Context(), id) })
	p.client().Get(p.t.Context(), id).Want(p.t, http.StatusNotFound)
}

// untilOK repeats what a gateway would: what was killed may not be back yet.
func (p *project) untilOK(ask func() testenv.Response) {
	p.t.Helper()
	testenv.Until(p.t, time.Minute, func() error {
		if r := ask(); r.Code != http.StatusOK {
			return errors.New(r.String())
		}
		return nil
	})
}
