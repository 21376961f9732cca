package cases_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/testenv"
)

// Case 1.
func TestACreateNeverAnswersWithTheDyingPod(t *testing.T) {
	t.Parallel()
	for name, held := range holds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothServiceTypes(t, func(t *testing.T, opts ...testenv.Option) {
				d := testenv.Stack(t, opts...)
				c, id := d.Client(), "a1"
				c.Create(t.Context(), id).Want(t, http.StatusOK)
				old := d.WaitUntilRunning(id)
				letGo := held(t, d, id)
				c.Delete(t.Context(), id).Want(t, http.StatusOK)
				c.Get(t.Context(), id).Want(t, http.StatusNotFound)

				inCluster := len(opts) > 0
				requirePending(t, c.Create(t.Context(), id, testenv.Prefer("wait=1")), inCluster)
				require.False(t, *c.Presence(t.Context(), id).Want(t, http.StatusOK).Body.Exists)
				if inCluster {
					require.Equal(t, "Pending", c.Get(t.Context(), id).Want(t, http.StatusOK).Body.Status)
				} else {
					c.Get(t.Context(), id).Want(t, http.StatusNotFound)
				}
				require.Equal(t, old, string(d.Pod(id).UID), "the Pod is still held")
				require.Nil(t, d.Service(id), "it would lead to the Pod that is still held")

				letGo()
				c.Create(t.Context(), id).Want(t, http.StatusOK)
				uid := d.WaitUntilRunning(id)
				require.NotEqual(t, old, uid)
				d.NATS.WaitUntilQuiet(10 * time.Second)
				requireOneOfEach(t, d, id, uid)
			})
		})
	}
}

// Case 1, when the client gives up.
func TestACreateThatWaitsForADyingPodCanBeDeleted(t *testing.T) {
	t.Parallel()
	for name, held := range holds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := testenv.Stack(t)
			c, id := d.Client(), "a1"
			c.Create(t.Context(), id).Want(t, http.StatusOK)
			letGo := held(t, d, id)
			c.Delete(t.Context(), id).Want(t, http.StatusOK)
			c.Create(t.Context(), id, testenv.Prefer("wait=1")).Want(t, http.StatusServiceUnavailable)

			c.Delete(t.Context(), id).Want(t, http.StatusOK)
			c.Get(t.Context(), id).Want(t, http.StatusNotFound)
			require.Nil(t, d.Service(id))
			letGo()
			requireNothing(t, d, 10*time.Second)
		})
	}
}

// holds keep a Pod in termination until the function that they return is called.
var holds = map[string]func(t *testing.T, d *site, id string) (letGo func()){
	"a Pod that does not stop": func(_ *testing.T, d *site, id string) func() {
		d.Misbehave(id, testenv.Fault{Kind: testenv.HangInTermination})
		return func() { d.Behave(id) }
	},
	"a Pod with a finaliser": func(t *testing.T, d *site, id string) func() {
		patch := func(finalizers string) {
			_, err := d.Cluster.Core.Pods(d.Namespace).Patch(t.Context(), sandbox.PodName(id), types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
			require.NoError(t, err)
		}
		patch(`["test.example/held"]`)
		return func() { patch("null") }
	},
}

// requirePending wants the answer to a create that is queued and not carried out.
func requirePending(t *testing.T, r testenv.Response, clusterIP bool) {
	t.Helper()
	if clusterIP {
		r.Want(t, http.StatusAccepted)
		require.Equal(t, "Pending", r.Body.Status)
		return
	}
	r.Want(t, http.StatusServiceUnavailable)
	require.NotEmpty(t, r.Header.Get("Retry-After"))
}

// Case 3.
func TestADeleteTakesEverythingFromEveryState(t *testing.T) {
	t.Parallel()
	for name, reach := range map[string]func(t *testing.T, d *site, id string){
		"while its image cannot be pulled": func(t *testing.T, d *site, id string) {
			d.Misbehave(id, testenv.Fault{Kind: testenv.ImagePullError})
			d.Client().Create(t.Context(), id).Want(t, http.StatusOK)
			testenv.Until(t, 10*time.Second, func() error {
				if r := d.Client().Get(t.Context(), id); r.Body.Status != "Pending" || r.Body.Reason != "ImagePullBackOff" {
					return errors.New(r.String())
				}
				return nil
			})
		},
		"while it cannot be scheduled": func(t *testing.T, d *site, id string) {
			d.Misbehave(id, testenv.Fault{Kind: testenv.Unschedulable})
			d.Client().Create(t.Context(), id).Want(t, http.StatusOK)
		},
		"while it runs": func(t *testing.T, d *site, id string) {
			d.Client().Create(t.Context(), id).Want(t, http.StatusOK)
			d.WaitUntilRunning(id)
		},
		"when it was just created": func(t *testing.T, d *site, id string) {
			d.Client().Create(t.Context(), id).Want(t, http.StatusOK)
		},
		"when nothing exists": func(*testing.T, *site, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := testenv.Stack(t)
			reach(t, d, "d4")
			d.Client().Delete(t.Context(), "d4").Want(t, http.StatusOK)
			d.Client().Get(t.Context(), "d4").Want(t, http.StatusNotFound)
			require.Empty(t, d.Client().List(t.Context()).Want(t, http.StatusOK).Body.Sandboxes)
			requireNothing(t, d, 5*time.Second)
		})
	}
}

// Case 3, in the same instant.
func TestADeleteAndACreateInTheSameInstantLeaveNothingHalfMade(t *testing.T) {
	t.Parallel()
	d := testenv.Stack(t, testenv.APIs(2), testenv.Workers(2))
	const id = "d4"
	for range 15 {
		created := make(chan testenv.Response, 1)
		go func() { created <- d.APIs[0].Client().Create(t.Context(), id) }()
		d.APIs[1].Client().Delete(t.Context(), id).Want(t, http.StatusOK)
		r := <-created
		require.Contains(t, []int{http.StatusOK, http.StatusConflict}, r.Code, "%v", r)
		d.NATS.WaitUntilQuiet(10 * time.Second)
		pod, service := d.Pod(id), d.Service(id)
		lives := pod != nil && pod.DeletionTimestamp == nil
		require.Equal(t, lives, service != nil, "Pod %v, Service %v, create answered %v", pod, service, r)
		if r.Code == http.StatusConflict {
			require.False(t, lives, "a create that was deleted left something")
		}
	}
	d.Client().Delete(t.Context(), id).Want(t, http.StatusOK)
	requireNothing(t, d, 5*time.Second)
}

// Case 3, with the create still queued.
func TestAQueuedCreateDoesNotBringBackWhatWasDeleted(t *testing.T) {
	t.Parallel()
	d := testenv.Stack(t)
	c := d.Client()
	d.StopWorkers()
	c.Create(t.Context(), "d4", testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	c.Delete(t.Context(), "d4", testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	c.Get(t.Context(), "d4").Want(t, http.StatusNotFound)
	d.StartWorkers()
	c.Delete(t.Context(), "d4").Want(t, http.StatusOK)
	requireNothing(t, d, 5*time.Second)
}

// Case 3, with the create under way: what it has sent to Kubernetes cannot be called back.
func TestACreateThatIsUnderWayIsNeverSeenAfterItsDelete(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Stack(t, testenv.Through(proxy))
	c, id := d.Client(), "d4"
	creates := proxy.On(testenv.Match{Verb: "create"}, testenv.Hold)
	c.Create(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	testenv.Until(t, 5*time.Second, func() error {
		if n := creates.Hits(); n < 2 {
			return fmt.Errorf("%d creates are under way", n)
		}
		return nil
	})
	deletes := proxy.On(testenv.Match{Verb: "delete"}, testenv.Hold) // so that there is time to look
	deleted := make(chan testenv.Response, 1)
	go func() { deleted <- c.Delete(t.Context(), id) }()
	select {
	case r := <-deleted:
		deleted <- r.Want(t, http.StatusOK)
	case <-time.After(time.Second): // waiting for the create is as good
	}
	creates.Remove()
	testenv.Until(t, 5*time.Second, func() error {
		if d.Pod(id) == nil || d.Service(id) == nil {
			return errors.New("not created yet")
		}
		return nil
	})
	select {
	case r := <-deleted:
		deleted <- r
		c.Get(t.Context(), id).Want(t, http.StatusNotFound)
		require.Empty(t, c.List(t.Context()).Want(t, http.StatusOK).Body.Sandboxes)
	default:
	}
	deletes.Remove()
	(<-deleted).Want(t, http.StatusOK)
	c.Get(t.Context(), id).Want(t, http.StatusNotFound)
	requireNothing(t, d, 5*time.Second)
}

// Case 4.
func TestARedeliveredDeleteDoesNotHitTheSuccessor(t *testing.T) {
	t.Parallel()
	d := testenv.Stack(t, testenv.Env("ACK_WAIT", "2s"))
	c, id := d.Client(), "f6"
	c.Create(t.Context(), id).Want(t, http.StatusOK)
	old := d.WaitUntilRunning(id)
	d.NATS.WaitUntilQuiet(5 * time.Second)
	d.StopWorkers()
	c.Delete(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	d.NATS.Steal()
	c.Create(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)

	d.StartWorkers()
	c.Create(t.Context(), id).Want(t, http.StatusOK)
	uid := d.WaitUntilRunning(id)
	require.NotEqual(t, old, uid)
	d.NATS.WaitUntilQuiet(10 * time.Second) // the delete has come again
	requireOneOfEach(t, d, id, uid)
	require.Equal(t, uid, d.WaitUntilRunning(id))
}
