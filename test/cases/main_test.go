// Package cases_test holds the cases that people met with provisioners of this kind: each a small input and the right answer.
// The numbers in the comments are those of the collection.
package cases_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// site is what nearly all tests run on.
type site = testenv.Deployment[*testenv.Instance]

// bothServiceTypes runs a test in NodePort and in ClusterIP mode.
func bothServiceTypes(t *testing.T, test func(t *testing.T, opts ...testenv.Option)) {
	t.Helper()
	t.Run("with node ports", func(t *testing.T) {
		t.Parallel()
		test(t)
	})
	t.Run("with cluster IPs", func(t *testing.T) {
		t.Parallel()
		test(t, testenv.ClusterIP())
	})
}

// requireOneOfEach wants exactly one Pod and one Service in the namespace, those of id, and the Pod to have that UID.
func requireOneOfEach(t *testing.T, d *site, id, uid string) {
	t.Helper()
	require.Len(t, d.Pods(), 1)
	require.Len(t, d.Services(), 1)
	pod := d.Pod(id)
	require.NotNil(t, pod, "Pod of %s", id)
	require.NotNil(t, d.Service(id), "Service of %s", id)
	require.Equal(t, uid, string(pod.UID))
}

// requireNothing wants no Pod and no Service in the namespace once all jobs are done, and no job that could bring one back.
func requireNothing(t *testing.T, d *site, within time.Duration) {
	t.Helper()
	testenv.Until(t, within, func() error {
		if pods, services := len(d.Pods()), len(d.Services()); pods+services > 0 {
			return fmt.Errorf("%d Pods and %d Services are left", pods, services)
		}
		return nil
	})
	d.NATS.WaitUntilQuiet(within)
	require.Empty(t, d.Pods(), "came back")
	require.Empty(t, d.Services(), "came back")
}

// uidOf is what the API says of the Pod that exists.
func uidOf(t *testing.T, c testenv.Client, id string) string {
	t.Helper()
	r := c.Presence(t.Context(), id).Want(t, http.StatusOK)
	require.NotNil(t, r.Body.UID, "%v", r)
	return *r.Body.UID
}

// urlOf is the address in an answer, which must have one.
func urlOf(t *testing.T, r testenv.Response) string {
	t.Helper()
	require.NotNil(t, r.Body.URL, "%v", r)
	return *r.Body.URL
}
