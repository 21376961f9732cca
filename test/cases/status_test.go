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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/testenv"
)

// readBudget is how long a status read may take, whatever Kubernetes does.
const readBudget = 8 * time.Second

// Case 9.
func TestAReadErrorIsNeverReportedAsAbsence(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]testenv.Action{
		"forbidden":         testenv.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "pods is forbidden"),
		"too many requests": testenv.Refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "slow down"),
		"internal error":    testenv.Refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcd is ill"),
		"no answer":         testenv.Hang,
		"broken connection": testenv.Drop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := testenv.Proxy(t, testenv.Cluster(t))
			d := testenv.Stack(t, testenv.Through(proxy))
			c, id := d.Client(), "healthy"
			c.Create(t.Context(), id).Want(t, http.StatusOK)
			uid := d.WaitUntilRunning(id)

			for _, resource := range []string{"pods", "services"} {
				get := proxy.On(testenv.Match{Verb: "get", Resource: resource}, broken)
				list := proxy.On(testenv.Match{Verb: "list", Resource: resource}, broken)
				answers := make(chan testenv.Response)
				asked := 2
				go func() { answers <- c.Get(t.Context(), id) }()
				go func() { answers <- c.List(t.Context()) }()
				if resource == "pods" { // the presence is that of the Pod
					asked++
					go func() { answers <- c.Presence(t.Context(), id) }()
				}
				for range asked {
					r := <-answers
					require.GreaterOrEqual(t, r.Code, 500, "%s: %v", resource, r)
					require.Less(t, r.Took, readBudget, "%s: %v", resource, r)
					require.NotEmpty(t, r.Detail())
				}
				get.Remove()
				list.Remove()
			}
			require.Equal(t, "Running", c.Get(t.Context(), id).Want(t, http.StatusOK).Body.Status)
			require.Equal(t, uid, uidOf(t, c, id))
		})
	}
}

// Case 10.
func TestEitherHalfOfASandboxIsSeenAndDeleted(t *testing.T) {
	t.Parallel()
	bothServiceTypes(t, func(t *testing.T, opts ...testenv.Option) {
		for name, make := range map[string]func(t *testing.T, d *site, id string){
			"that we made": func(t *testing.T, d *site, id string) {
				d.Client().Create(t.Context(), id).Want(t, http.StatusOK)
				d.WaitUntilRunning(id)
				d.NATS.WaitUntilQuiet(5 * time.Second)
			},
			"that another provisioner made": func(t *testing.T, d *site, id string) { makeForeign(t, d, id, len(opts) > 0) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d := testenv.Stack(t, opts...)
				c := d.Client()
				make(t, d, "service")
				d.DeletePod("service")
				make(t, d, "pod")
				d.DeleteService("pod")

				lone := c.Get(t.Context(), "service").Want(t, http.StatusOK)
				require.Equal(t, "NotFound", lone.Body.Status)
				require.NotContains(t, lone.Raw, "max_shell_sessions")
				url := urlOf(t, lone)
				c.Get(t.Context(), "pod").Want(t, http.StatusNotFound)

				list := c.List(t.Context()).Want(t, http.StatusOK)
				require.Equal(t, 2, list.Body.Count, "%v", list)
				require.Equal(t, "pod", list.Body.Sandboxes[0].ID)
				require.Nil(t, list.Body.Sandboxes[0].URL)
				require.Contains(t, list.Raw, `"sandbox_url":null`)
				require.Equal(t, "service", list.Body.Sandboxes[1].ID)
				require.Equal(t, &url, list.Body.Sandboxes[1].URL)
				require.Equal(t, "NotFound", list.Body.Sandboxes[1].Status)

				for _, id := range []string{"service", "pod"} {
					c.Delete(t.Context(), id).Want(t, http.StatusOK)
				}
				require.Empty(t, c.List(t.Context()).Want(t, http.StatusOK).Body.Sandboxes)
				requireNothing(t, d, 5*time.Second)
			})
		}
	})
}

// makeForeign makes the objects of a sandbox as another provisioner would: without a generation.
func makeForeign(t *testing.T, d *site, id string, clusterIP bool) {
	t.Helper()
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: sandbox.Labels(id)}
	}
	kind := corev1.ServiceTypeNodePort
	if clusterIP {
		kind = corev1.ServiceTypeClusterIP
	}
	_, err := d.Cluster.Core.Pods(d.Namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: meta(sandbox.PodName(id)),
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sandbox", Image: "sandbox.example/image:1"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = d.Cluster.Core.Services(d.Namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: meta(sandbox.ServiceName(id)),
		Spec: corev1.ServiceSpec{
			Type: kind, Selector: map[string]string{sandbox.LabelID: id}, Ports: []corev1.ServicePort{{Name: "http", Port: 8080}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	d.WaitUntilRunning(id)
}

// Case 11.
func TestReadsAreRightWhileWatchesAreDead(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	proxy.On(testenv.Match{Verb: "watch"}, testenv.Hang)
	d := testenv.Stack(t, testenv.Through(proxy))
	c := d.Client()
	ids := []string{"evicted", "gone", "kept"}
	for _, id := range ids {
		c.Create(t.Context(), id).Want(t, http.StatusOK)
		d.WaitUntilRunning(id)
	}
	d.DeletePod("gone")
	d.Misbehave("evicted", testenv.Fault{Kind: testenv.Evicted})
	testenv.Until(t, 5*time.Second, func() error {
		if phase := d.Pod("evicted").Status.Phase; phase != corev1.PodFailed {
			return fmt.Errorf("the Pod is %s", phase)
		}
		return nil
	})
	want := []string{"Failed", "NotFound", "Running"}
	list := c.List(t.Context()).Want(t, http.StatusOK)
	require.Len(t, list.Body.Sandboxes, len(ids))
	for i, id := range ids {
		require.Equal(t, want[i], c.Get(t.Context(), id).Want(t, http.StatusOK).Body.Status)
		require.Equal(t, id, list.Body.Sandboxes[i].ID)
		require.Equal(t, want[i], list.Body.Sandboxes[i].Status)
	}
}

// Case 12.
func TestAnAcceptedCreateIsVisibleAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("with cluster IPs as pending", func(t *testing.T) {
		t.Parallel()
		d := testenv.Stack(t, testenv.ClusterIP(), testenv.APIs(2))
		c := d.Client()
		want := "http://sandbox-k11-svc." + d.Namespace + ".svc.cluster.local:8080"
		d.StopWorkers()
		accepted := c.Create(t.Context(), "k11", testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
		require.Equal(t, "/api/sandboxes/k11", accepted.Header.Get("Location"))
		require.Equal(t, want, urlOf(t, accepted))
		seen := d.APIs[1].Client().Get(t.Context(), "k11").Want(t, http.StatusOK)
		require.Equal(t, "Pending", seen.Body.Status)
		require.Equal(t, want, urlOf(t, seen))
		require.Equal(t, "queued", c.Job(t.Context(), "k11").Want(t, http.StatusOK).Body.State)
	})
	t.Run("with node ports as a job", func(t *testing.T) {
		t.Parallel()
		d := testenv.Stack(t, testenv.APIs(2))
		d.StopWorkers()
		accepted := d.Client().Create(t.Context(), "k11", testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
		require.Contains(t, accepted.Raw, `"sandbox_url":null`)
		seen := d.APIs[1].Client().Get(t.Context(), "k11").Want(t, http.StatusNotFound)
		require.NotNil(t, seen.Body.Job, "%v", seen)
		require.Equal(t, "queued", seen.Body.Job.State)
	})
	t.Run("while workers carry it out", func(t *testing.T) {
		t.Parallel()
		d := testenv.Stack(t, testenv.ClusterIP(), testenv.APIs(2))
		for i := range 30 {
			id := fmt.Sprint("k", i)
			d.APIs[0].Client().Create(t.Context(), id, testenv.Prefer("respond-async"))
			for {
				r := d.APIs[1].Client().Get(t.Context(), id).Want(t, http.StatusOK)
				require.NotEqual(t, "NotFound", r.Body.Status)
				if r.Body.Generation > 0 {
					break
				}
			}
		}
	})
}

// Case 13.
func TestAFailingImagePullIsExplainedWhileItLasts(t *testing.T) {
	t.Parallel()
	d := testenv.Stack(t, testenv.ClusterIP())
	c, id := d.Client(), "l12"
	const words = "registry.example: 503 Service Unavailable"
	d.Misbehave(id, testenv.Fault{Kind: testenv.ImagePullError, Message: words})
	r := c.Create(t.Context(), id).Want(t, http.StatusOK)
	require.Less(t, r.Took, 3*time.Second, "%v", r)
	testenv.Until(t, 10*time.Second, func() error {
		r := c.Get(t.Context(), id).Want(t, http.StatusOK)
		require.Equal(t, "Pending", r.Body.Status, "%v", r)
		if r.Body.Reason != "ImagePullBackOff" || !strings.Contains(r.Body.Message, words) {
			return errors.New(r.String())
		}
		return nil
	})
	d.Behave(id)
	d.WaitUntilRunning(id)
}

// A Pod whose volume cannot be mounted, or whose probe fails, says no more than that it is not ready. The Events do.
func TestAPodThatSaysNothingIsExplainedByItsNewestWarning(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Stack(t, testenv.ClusterIP(), testenv.Through(proxy))
	c, id := d.Client(), "vague"
	d.Misbehave(id, testenv.Fault{Kind: testenv.NotReady})
	c.Create(t.Context(), id).Want(t, http.StatusOK)
	warn := func(uid types.UID, age time.Duration, kind, reason, message string) {
		t.Helper()
		seen := metav1.NewTime(time.Now().Add(-age))
		_, err := d.Cluster.Core.Events(d.Namespace).Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "warning-", Namespace: d.Namespace},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: d.Namespace, Name: sandbox.PodName(id), UID: uid},
			Type:           kind, Reason: reason, Message: message, FirstTimestamp: seen, LastTimestamp: seen,
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	uid := d.Pod(id).UID
	warn(uid, -time.Minute, corev1.EventTypeWarning, "FailedMount", "hostPath type check failed: /x is not a directory")
	warn(uid, time.Minute, corev1.EventTypeWarning, "FailedScheduling", "an old one")
	warn(uid, -time.Hour, corev1.EventTypeNormal, "Pulled", "not a warning")
	warn("of-its-predecessor", -time.Hour, corev1.EventTypeWarning, "Killing", "of another Pod")
	testenv.Until(t, 15*time.Second, func() error {
		r := c.Get(t.Context(), id).Want(t, http.StatusOK)
		if r.Body.Reason != "FailedMount" || r.Body.Message != "hostPath type check failed: /x is not a directory" {
			return errors.New(r.String())
		}
		require.False(t, r.Body.Ready)
		return nil
	})

	events := proxy.On(testenv.Match{Verb: "list", Resource: "events"}, testenv.Hang)
	r := c.Get(t.Context(), id).Want(t, http.StatusOK)
	require.Equal(t, "ContainersNotReady", r.Body.Reason, "what the Pod says itself is better than no answer: %v", r)
	require.Less(t, r.Took, 2*time.Second, "%v", r)
	require.Equal(t, 1, events.Hits())
	list := c.List(t.Context()).Want(t, http.StatusOK)
	require.Equal(t, "ContainersNotReady", list.Body.Sandboxes[0].Reason)
	require.Equal(t, 1, events.Hits(), "a list reads no Events")
}
