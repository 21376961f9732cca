package outage_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

// Case 23, by what a client feels, and with fewer slots than ids that are stuck; test/cases has it in its full size. It measures, and
// so runs alone.
func TestIDsThatCanNeverStartSlowNobodyDown(t *testing.T) {
	const stuck, free = 50, 200
	d := testenv.Stack(t, testenv.ClusterIP(), testenv.APIs(2), testenv.Workers(2),
		testenv.Env("WORKER_CONCURRENCY", "24"), testenv.Env("LOG_LEVEL", "info"))

	// A Pod that hangs in its termination keeps its successor waiting for ever.
	ids := names("stuck", stuck)
	for _, id := range ids {
		d.Misbehave(id, testenv.Fault{Kind: testenv.HangInTermination})
	}
	for _, ask := range []func(id string) testenv.Response{
		func(id string) testenv.Response { return d.Client().Create(t.Context(), id, testenv.Prefer("wait=25")) },
		func(id string) testenv.Response { return d.Client().Delete(t.Context(), id) },
	} {
		for _, r := range forAll(ids, atOnce, ask) {
			r.Want(t, http.StatusOK)
		}
	}
	alone := median(t, d, names("alone", free))
	queue(t, d.Client(), ids)
	beside := median(t, d, names("beside", free))
	t.Logf("median of %d creates at once: %s alone, %s beside %d that cannot start", free, alone, beside, stuck)
	// Generous: the early tries of those that are stuck cost a busy API server something.
	require.Less(t, beside, 3*alone+2*time.Second)
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
