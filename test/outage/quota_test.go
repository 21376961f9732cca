package outage_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/testenv"
)

// Case 14, with a crowd: as many as there is room for exist, the others are told, and nothing is half-made.
func TestACrowdAtAFullQuotaIsToldAndLeavesNothingHalfMade(t *testing.T) {
	t.Parallel()
	const room, crowd = 5, 30
	d := testenv.Stack(t, testenv.ClusterIP(), testenv.Workers(2))
	limitPods(t, d, fmt.Sprint(room))
	var exist []string
	for _, r := range forAll(names("crowd", crowd), crowd, func(id string) testenv.Response {
		r := d.Client().Create(t.Context(), id, testenv.Prefer("wait=25"))
		r.Body.ID = id
		return r
	}) {
		if r.Code == http.StatusOK {
			exist = append(exist, r.Body.ID)
			continue
		}
		r.Want(t, http.StatusTooManyRequests)
		require.Contains(t, r.Detail(), "exceeded quota")
		require.NotEmpty(t, r.Header.Get("Retry-After"))
		job := d.Client().Job(t.Context(), r.Body.ID).Want(t, http.StatusOK)
		require.Equal(t, "failed", job.Body.State)
		require.Equal(t, "QuotaExceeded", job.Body.Reason)
	}
	require.LessOrEqual(t, len(exist), room)
	require.NotEmpty(t, exist)
	d.NATS.WaitUntilQuiet(10 * time.Second)
	requireExactly(t, d, 10*time.Second, exist...)
}

// limitPods puts a quota on the namespace and waits until it holds.
func limitPods(t *testing.T, d *site, pods string) {
	t.Helper()
	quotas := d.Cluster.Core.ResourceQuotas(d.Namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	testenv.Until(t, 10*time.Second, func() error {
		quota, err := quotas.Get(t.Context(), "pods", metav1.GetOptions{})
		if err == nil && len(quota.Status.Hard) == 0 {
			err = errors.New("the quota does not hold yet")
		}
		return err
	})
}
