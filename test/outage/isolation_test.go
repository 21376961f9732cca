package outage_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/testenv"
)

// Case 23, by what a client feels. It measures, and so runs alone.
func TestIDsThatCanNeverStartSlowNobodyDown(t *testing.T) {
	const stuck, free = 50, 450
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Stack(t, testenv.ClusterIP(), testenv.APIs(2), testenv.Workers(2), testenv.Through(proxy), testenv.Env("LOG_LEVEL", "info"))

	// Some wait for a Pod that hangs in its termination, some for a Kubernetes that never answers about them.
	ids := names("stuck", stuck)
	for i, id := range ids {
		if i%2 == 0 {
			proxy.On(testenv.Match{Verb: "create", Name: sandbox.PodName(id)}, testenv.Hang)
			continue
		}
		d.Misbehave(id, testenv.Fault{Kind: testenv.HangInTermination})
		d.Client().Create(t.Context(), id).Want(t, http.StatusOK)
		d.WaitUntilRunning(id)
		d.Client().Delete(t.Context(), id).Want(t, http.StatusOK)
	}
	alone := median(t, d, names("alone", free))
	queue(t, d.Client(), ids)
	beside := median(t, d, names("beside", free))
	t.Logf("median of %d creates at once: %s alone, %s beside %d that cannot start", free, alone, beside, stuck)
	require.Less(t, beside, 2*alone+time.Second)
	for _, id := range ids {
		r := d.Client().Job(t.Context(), id).Want(t, http.StatusOK)
		require.NotEqual(t, "succeeded", r.Body.State, "%v", r)
	}
}

// median creates sandboxes, all at once, and returns the median of how long the answers took.
func median(t *testing.T, d *site, ids []string) time.Duration {
	t.Helper()
	answers := forAll(ids, len(ids), func(id string) testenv.Response {
		return d.APIs[int(id[len(id)-1])%len(d.APIs)].Client().Create(t.Context(), id, testenv.Prefer("wait=25"))
	})
	took := make([]time.Duration, len(answers))
	for i, r := range answers {
		took[i] = r.Want(t, http.StatusOK).Took
	}
	slices.Sort(took)
	return took[len(took)/2]
}

