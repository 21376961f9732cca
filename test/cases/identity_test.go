package cases_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/testenv"
)

// Case 2.
func TestARepeatedCreateFindsWhatACutOneMade(t *testing.T) {
	t.Parallel()
	const id = "c3"
	for name, broken := range map[string]struct {
		match  testenv.Match
		action testenv.Action
	}{
		"while the Service is being made":        {testenv.Match{Verb: "create", Resource: "services"}, testenv.Hang},
		"while the answer about the Pod is lost": {testenv.Match{Verb: "create", Resource: "pods"}, testenv.LoseResponse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := testenv.Proxy(t, testenv.Cluster(t))
			d := testenv.Stack(t, testenv.APIs(2), testenv.Workers(2), testenv.Through(proxy))
			rule := proxy.On(broken.match, broken.action)

			ctx, cut := context.WithCancel(t.Context())
			gone := make(chan testenv.Response, 1)
			go func() { gone <- d.Client().Create(ctx, id) }()
			testenv.Until(t, 5*time.Second, func() error {
				if d.Pod(id) == nil {
					return errors.New("no Pod yet")
				}
				return nil
			})
			cut()
			require.ErrorIs(t, (<-gone).Err, context.Canceled)
			rule.Remove()

			answers := make(chan testenv.Response)
			for _, api := range []int{0, 0, 1} {
				go func() { answers <- d.APIs[api].Client().Create(t.Context(), id) }()
			}
			url := urlOf(t, (<-answers).Want(t, http.StatusOK))
			require.Equal(t, url, urlOf(t, (<-answers).Want(t, http.StatusOK)))
			require.Equal(t, url, urlOf(t, (<-answers).Want(t, http.StatusOK)))
			d.NATS.WaitUntilQuiet(20 * time.Second)
			requireOneOfEach(t, d, id, d.WaitUntilRunning(id))
		})
	}
}

// Case 5.
func TestACreateReplacesAPodThatIsGoneAndKeepsItsAddress(t *testing.T) {
	t.Parallel()
	bothServiceTypes(t, func(t *testing.T, opts ...testenv.Option) {
		d := testenv.Stack(t, opts...)
		c, id := d.Client(), "h8"
		url := urlOf(t, c.Create(t.Context(), id).Want(t, http.StatusOK))
		old, service := d.WaitUntilRunning(id), d.Service(id)
		d.DeletePod(id)

		require.Equal(t, url, urlOf(t, c.Create(t.Context(), id).Want(t, http.StatusOK)))
		uid := d.WaitUntilRunning(id)
		require.NotEqual(t, old, uid)
		requireOneOfEach(t, d, id, uid)
		require.Equal(t, service.UID, d.Service(id).UID)
		require.Equal(t, service.Spec, d.Service(id).Spec)
	})
}

// Case 6.
func TestAnEvictedPodIsReportedAndReplaced(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"by a create alone": false, "by a delete and a create": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := testenv.Stack(t)
			c, id := d.Client(), "i9"
			c.Create(t.Context(), id).Want(t, http.StatusOK)
			old := d.WaitUntilRunning(id)
			d.Misbehave(id, testenv.Fault{Kind: testenv.Evicted})
			testenv.Until(t, 5*time.Second, func() error {
				if r := c.Get(t.Context(), id); r.Code != http.StatusOK || r.Body.Status != "Failed" || r.Body.Reason != "Evicted" {
					return errors.New(r.String())
				}
				return nil
			})
			d.Behave(id)
			if deleted {
				c.Delete(t.Context(), id).Want(t, http.StatusOK)
				c.Get(t.Context(), id).Want(t, http.StatusNotFound)
			}
			c.Create(t.Context(), id).Want(t, http.StatusOK)
			uid := d.WaitUntilRunning(id)
			require.NotEqual(t, old, uid)
			requireOneOfEach(t, d, id, uid)
		})
	}
}

// Case 7.
func TestTheLastOfManyCreatesAndDeletesHolds(t *testing.T) {
	t.Parallel()
	bothServiceTypes(t, func(t *testing.T, opts ...testenv.Option) {
		d := testenv.Stack(t, append(opts, testenv.APIs(2), testenv.Workers(2))...)
		const id = "7fa2"
		seen := map[string]bool{}
		last := ""
		create := func(api int) {
			d.APIs[api].Client().Create(t.Context(), id).Want(t, http.StatusOK)
			last = uidOf(t, d.APIs[1-api].Client(), id)
			require.False(t, seen[last], "Pod %s belongs to a life that was ended", last)
			seen[last] = true
		}
		for i := range 20 {
			create(i % 2)
			d.APIs[1-i%2].Client().Delete(t.Context(), id).Want(t, http.StatusOK)
		}
		create(0)
		d.NATS.WaitUntilQuiet(10 * time.Second)
		require.Equal(t, last, d.WaitUntilRunning(id))
		requireOneOfEach(t, d, id, last)
	})
}

// Case 8.
func TestAnEmptyNATSChangesNothingForWhatRuns(t *testing.T) {
	t.Parallel()
	d := testenv.Stack(t, testenv.APIs(2), testenv.Workers(2))
	c := d.Client()
	for i := range 5 { // so that the old stream counted further than the new one will
		id := "x" + strconv.Itoa(i)
		c.Create(t.Context(), id).Want(t, http.StatusOK)
		c.Delete(t.Context(), id).Want(t, http.StatusOK)
	}
	d.Misbehave("pending", testenv.Fault{Kind: testenv.Unschedulable})
	ids := []string{"kept", "pending", "renewed"}
	urls, uids := map[string]string{}, map[string]string{}
	for _, id := range ids {
		urls[id] = urlOf(t, c.Create(t.Context(), id).Want(t, http.StatusOK))
		uids[id] = uidOf(t, c, id)
	}
	d.WaitUntilRunning("kept")
	d.WaitUntilRunning("renewed")
	d.NATS.WaitUntilQuiet(5 * time.Second)

	d.NATS.Stop()
	d.NATS.Empty()
	d.NATS.Start()
	testenv.Until(t, 10*time.Second, func() error {
		for _, api := range d.APIs {
			if r := api.Client().Job(t.Context(), "kept"); r.Code != http.StatusNotFound {
				return errors.New(r.String())
			}
		}
		return nil
	})
	list := c.List(t.Context()).Want(t, http.StatusOK)
	require.Equal(t, 3, list.Body.Count, "%v", list)
	for i, id := range ids {
		require.Equal(t, id, list.Body.Sandboxes[i].ID)
		require.Equal(t, urls[id], urlOf(t, c.Get(t.Context(), id).Want(t, http.StatusOK)))
	}

	require.Equal(t, urls["kept"], urlOf(t, c.Create(t.Context(), "kept").Want(t, http.StatusOK)))
	require.Equal(t, uids["kept"], uidOf(t, c, "kept"))

	c.Delete(t.Context(), "renewed").Want(t, http.StatusOK)
	c.Get(t.Context(), "renewed").Want(t, http.StatusNotFound)
	c.Create(t.Context(), "renewed").Want(t, http.StatusOK)
	renewed := d.WaitUntilRunning("renewed")
	require.NotEqual(t, uids["renewed"], renewed)

	c.Delete(t.Context(), "pending").Want(t, http.StatusOK)
	c.Get(t.Context(), "pending").Want(t, http.StatusNotFound)
	d.WaitUntilGone("pending", 5*time.Second)

	d.NATS.WaitUntilQuiet(10 * time.Second)
	require.Equal(t, uids["kept"], string(d.Pod("kept").UID))
	require.Equal(t, renewed, string(d.Pod("renewed").UID))
	require.Len(t, d.Services(), 2)
	require.NotNil(t, d.Service("kept"))
	require.Equal(t, "kept", d.Service("kept").Labels[sandbox.LabelID])
}
