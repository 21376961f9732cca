package cases_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/config"
	"sandbox-provisioner/internal/testenv"
)

// Case 16.
func TestOnlyIDsThatCanBeNamesReachKubernetes(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Stack(t, testenv.Through(proxy))
	c := d.Client()
	for _, id := range []string{"19fa7291c0de4b1f", strings.Repeat("a", 51)} {
		c.Create(t.Context(), id).Want(t, http.StatusOK)
		d.WaitUntilRunning(id)
		c.Delete(t.Context(), id).Want(t, http.StatusOK)
		c.Get(t.Context(), id).Want(t, http.StatusNotFound)
	}
	d.NATS.WaitUntilQuiet(5 * time.Second)
	proxy.ResetCounts()
	for _, id := range []string{"A_b", "-x", "x-", "a.b", "", strings.Repeat("a", 52), "../x", "é", "abc\n"} {
		r := c.Create(t.Context(), id).Want(t, http.StatusUnprocessableEntity)
		require.Contains(t, r.Raw, `"loc":["body","sandbox_id"]`)
		c.Get(t.Context(), id).Want(t, http.StatusNotFound)
		if id != "" {
			require.True(t, c.Delete(t.Context(), id).Want(t, http.StatusOK).Body.OK)
			require.False(t, *c.Presence(t.Context(), id).Want(t, http.StatusOK).Body.Exists)
		}
	}
	require.Empty(t, proxy.Counts())
}

// Case 14.
func TestAFullQuotaIsReportedAndPasses(t *testing.T) {
	t.Parallel()
	d := testenv.Stack(t)
	c := d.Client()
	limitPods(t, d, "1")
	c.Create(t.Context(), "m13").Want(t, http.StatusOK)
	r := c.Create(t.Context(), "m14").Want(t, http.StatusTooManyRequests)
	require.Less(t, r.Took, 2*time.Second, "%v", r)
	require.Contains(t, r.Detail(), "exceeded quota")
	require.NotEmpty(t, r.Header.Get("Retry-After"))
	require.Nil(t, d.Pod("m14"))
	require.Nil(t, d.Service("m14"))
	c.Get(t.Context(), "m14").Want(t, http.StatusNotFound)

	c.Delete(t.Context(), "m13").Want(t, http.StatusOK)
	testenv.Until(t, 10*time.Second, func() error { // Kubernetes needs a moment to see that there is room
		if r := c.Create(t.Context(), "m14"); r.Code != http.StatusOK {
			return errors.New(r.String())
		}
		return nil
	})
	requireOneOfEach(t, d, "m14", d.WaitUntilRunning("m14"))
}

// Case 15.
func TestAFullQuotaDoesNotHideWhatExists(t *testing.T) {
	t.Parallel()
	d := testenv.Stack(t)
	c := d.Client()
	limitPods(t, d, "1")
	c.Create(t.Context(), "n15").Want(t, http.StatusOK)
	uid := d.WaitUntilRunning("n15")
	d.DeleteService("n15")
	c.Create(t.Context(), "n15").Want(t, http.StatusOK)
	requireOneOfEach(t, d, "n15", uid)
	require.Equal(t, uid, d.WaitUntilRunning("n15"))
}

// limitPods puts a quota on the namespace and waits until it holds.
func limitPods(t *testing.T, d *site, pods string) {
	t.Helper()
	quotas := d.Cluster.Core.ResourceQuotas(d.Namespace)
	limit := corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.ResourceQuotaSpec{Hard: limit},
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

// Case 17.
func TestWhatARealGatewaySendsMountsEveryPathOnce(t *testing.T) {
	t.Parallel()
	d := testenv.Stack(t)
	c, id := d.Client(), "19fa7291c0de4b1f"
	c.Create(t.Context(), id, testenv.Field("thread_id", nil), testenv.Field("user_id", "alice"),
		testenv.Field("extra_mounts", []any{mount("/.deer-flow/users/alice/skills_view/custom", "/mnt/skills/custom")}),
	).Want(t, http.StatusOK)
	d.WaitUntilRunning(id)
	seen := map[string]bool{}
	for _, m := range d.Pod(id).Spec.Containers[0].VolumeMounts {
		require.False(t, seen[m.MountPath], "%s is mounted twice", m.MountPath)
		seen[m.MountPath] = true
	}
	require.True(t, seen["/mnt/skills/custom"])
}

// mount is a read-only extra mount.
func mount(host, container string) map[string]any {
	return map[string]any{"host_path": host, "container_path": container, "read_only": true}
}

// Case 18.
func TestUsersDoNotShareTheirDataInAClaim(t *testing.T) {
	t.Parallel()
	d := testenv.Stack(t, testenv.Env("USERDATA_PVC_NAME", "user-data"))
	c := d.Client()
	paths := map[string]bool{}
	for _, user := range []string{"u1", "u2"} {
		c.Create(t.Context(), "of-"+user, testenv.Field("thread_id", "same"), testenv.Field("user_id", user)).Want(t, http.StatusOK)
		for _, m := range d.Pod("of-" + user).Spec.Containers[0].VolumeMounts {
			if m.MountPath == "/mnt/user-data" {
				require.Equal(t, "deer-flow/users/"+user+"/threads/same/user-data", m.SubPath)
				paths[m.SubPath] = true
			}
		}
	}
	require.Len(t, paths, 2)
	c.Create(t.Context(), "of-ab", testenv.Field("user_id", "a/b")).Want(t, http.StatusUnprocessableEntity)
}

// Case 19.
func TestMountsThatAreNotAllowedAreRefused(t *testing.T) {
	t.Parallel()
	d := testenv.Stack(t)
	const inside, target = "/.deer-flow/users/alice/acp", "/mnt/acp-workspace"
	var many []any
	for range 11 {
		many = append(many, mount(inside, target))
	}
	for name, test := range map[string]struct {
		mounts []any
		detail string
	}{
		"from outside":            {[]any{mount("/etc", target)}, "Extra mount host path is outside DeerFlow state: /etc"},
		"from outside, with ..":   {[]any{mount("/.deer-flow/../etc", target)}, "Extra mount host path is outside DeerFlow state: /.deer-flow/../etc"},
		"from a sibling":          {[]any{mount("/.deer-flowful/x", target)}, "Extra mount host path is outside DeerFlow state: /.deer-flowful/x"},
		"too many":                {many, "Too many extra mounts; max is 10"},
		"twice, with a slash":     {[]any{mount(inside, target), mount(inside, target+"/")}, "Duplicate extra mount path: /mnt/acp-workspace"},
		"not absolute":            {[]any{mount("users/alice", target)}, "Extra mount host path must be absolute: users/alice"},
		"to where nothing may be": {[]any{mount(inside, "/etc")}, "Unsupported extra mount path: /etc"},
	} {
		t.Run(name, func(t *testing.T) {
			r := d.Client().Create(t.Context(), "p17", testenv.Field("extra_mounts", test.mounts)).Want(t, http.StatusBadRequest)
			require.Equal(t, test.detail, r.Detail())
			require.Nil(t, d.Pod("p17"))
			require.Nil(t, d.Service("p17"))
		})
	}
}

// Case 20.
func TestTheCapacityOfAPodIsWhatItWasMadeWith(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Stack(t, testenv.Through(proxy))
	c, id := d.Client(), "q18"
	larger := testenv.Field("max_shell_sessions", 13)
	r := c.Create(t.Context(), id).Want(t, http.StatusOK)
	require.Equal(t, 10, *r.Body.MaxShellSessions)
	uid := d.WaitUntilRunning(id)

	r = c.Create(t.Context(), id, larger).Want(t, http.StatusConflict)
	require.Contains(t, r.Detail(), "capacity")
	d.NATS.WaitUntilQuiet(5 * time.Second)
	requireOneOfEach(t, d, id, uid)

	d.DeletePod(id)
	r = c.Create(t.Context(), id, larger).Want(t, http.StatusOK)
	require.Equal(t, 13, *r.Body.MaxShellSessions)
	require.Equal(t, 13, *c.Get(t.Context(), id).Want(t, http.StatusOK).Body.MaxShellSessions)
	uid = d.WaitUntilRunning(id)
	d.NATS.WaitUntilQuiet(5 * time.Second)

	proxy.ResetCounts()
	proxy.On(testenv.Match{Verb: "get", Resource: "pods"}, testenv.Refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "etcd is ill"))
	r = c.Create(t.Context(), id, testenv.Field("max_shell_sessions", 14), testenv.Prefer("wait=2"))
	require.GreaterOrEqual(t, r.Code, 500, "%v", r)
	proxy.Heal()
	d.NATS.WaitUntilQuiet(20 * time.Second)
	requireOneOfEach(t, d, id, uid)
	require.Equal(t, uid, d.WaitUntilRunning(id))
}

// Case 22.
func TestASwitchOfTheServiceTypeIsHealedByTheNextCreate(t *testing.T) {
	t.Parallel()
	const id = "s20"
	d := testenv.Stack(t, testenv.ClusterIP())
	clusterURL := urlOf(t, d.Client().Create(t.Context(), id).Want(t, http.StatusOK))
	uid := d.WaitUntilRunning(id)
	require.Zero(t, d.Service(id).Spec.Ports[0].NodePort)
	d.StopWorkers()

	ported := testenv.Stack(t, testenv.On(d))
	ported.Client().Get(t.Context(), id).Want(t, http.StatusNotFound)
	url := urlOf(t, ported.Client().Create(t.Context(), id).Want(t, http.StatusOK))
	service := ported.Service(id)
	require.Equal(t, corev1.ServiceTypeNodePort, service.Spec.Type)
	require.Equal(t, fmt.Sprint("http://127.0.0.1:", service.Spec.Ports[0].NodePort), url)
	require.Equal(t, uid, ported.WaitUntilRunning(id))
	ported.StopWorkers()

	d.StartWorkers()
	require.Equal(t, clusterURL, urlOf(t, d.Client().Create(t.Context(), id).Want(t, http.StatusOK)))
	require.Equal(t, corev1.ServiceTypeClusterIP, d.Service(id).Spec.Type)
	require.Equal(t, uid, d.WaitUntilRunning(id))
}

// Case 22, the values that refuse to start.
func TestAnUnknownServiceTypeRefusesToStart(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", "LoadBalancer"} {
		_, err := config.Load[config.API](func(name string) (string, bool) {
			return value, name == "SANDBOX_SERVICE_TYPE"
		})
		require.ErrorContains(t, err, "SANDBOX_SERVICE_TYPE")
	}
}

// Case 23. It measures, and so runs alone.
func TestIDsThatCannotStartDelayNoOthers(t *testing.T) {
	const stuck, free = 50, 450
	d := testenv.Stack(t, testenv.ClusterIP(), testenv.APIs(2), testenv.Workers(2))
	id := func(kind string, i int) string { return fmt.Sprint(kind, "-", i) }

	// A Pod that hangs in termination keeps its successor waiting for ever.
	for i := range stuck {
		d.Misbehave(id("stuck", i), testenv.Fault{Kind: testenv.HangInTermination})
	}
	burst(t, d, stuck, func(i int) string { return id("stuck", i) })
	for i := range stuck {
		d.WaitUntilRunning(id("stuck", i))
		d.Client().Delete(t.Context(), id("stuck", i)).Want(t, http.StatusOK)
	}
	alone := burst(t, d, free, func(i int) string { return id("alone", i) })

	for i := range stuck {
		d.Client().Create(t.Context(), id("stuck", i), testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	}
	beside := burst(t, d, free, func(i int) string { return id("beside", i) })
	t.Logf("%d creates: %s alone, %s beside %d that cannot start", free, alone, beside, stuck)
	require.Less(t, beside, 2*alone+2*time.Second)
	require.NotNil(t, d.Pod(id("stuck", 0)).DeletionTimestamp)
}

// burst creates n sandboxes at once, all of which must succeed, and returns how long that took.
func burst(t *testing.T, d *site, n int, id func(int) string) time.Duration {
	t.Helper()
	start := time.Now()
	answers := make(chan testenv.Response)
	for i := range n {
		go func() { answers <- d.APIs[i%2].Client().Create(t.Context(), id(i), testenv.Prefer("wait=25")) }()
	}
	for range n {
		(<-answers).Want(t, http.StatusOK)
	}
	return time.Since(start)
}
