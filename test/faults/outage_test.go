package faults_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

// Budgets of the contract, in which an answer must come whatever is down.
const (
	readBudget   = 8 * time.Second
	createBudget = 27 * time.Second
	deleteBudget = 13 * time.Second
	natsBudget   = 2 * time.Second
)

func TestAnOutageOfKubernetesDelaysAndLosesNothing(t *testing.T) {
	t.Parallel()
	for name, breakDown := range map[string]func(*testenv.FaultProxy){
		"that refuses connections": func(p *testenv.FaultProxy) { p.Cut() },
		"that never answers":       func(p *testenv.FaultProxy) { p.On(testenv.Match{}, testenv.Hang) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := testenv.Proxy(t, testenv.Cluster(t))
			d := testenv.Stack(t, testenv.ClusterIP(), testenv.Through(proxy))
			c := d.Client()
			c.Create(t.Context(), "deleted").Want(t, http.StatusOK)
			c.Create(t.Context(), "kept").Want(t, http.StatusOK)
			uid := d.WaitUntilRunning("kept")

			breakDown(proxy)
			for _, id := range []string{"made", "kept"} {
				r := c.Create(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
				require.Less(t, r.Took, natsBudget, "%v", r)
			}
			c.Delete(t.Context(), "deleted", testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
			answers := make(chan testenv.Response)
			go func() { answers <- c.Get(t.Context(), "kept") }()
			go func() { answers <- c.Get(t.Context(), "made") }()
			go func() { answers <- c.Presence(t.Context(), "kept") }()
			go func() { answers <- c.List(t.Context()) }()
			for range 4 {
				r := <-answers
				require.GreaterOrEqual(t, r.Code, 500, "%v", r)
				require.Less(t, r.Took, readBudget, "%v", r)
			}
			c.Do(t.Context(), http.MethodGet, "/health", nil).Want(t, http.StatusOK)
			down := c.Do(t.Context(), http.MethodGet, "/readyz", nil).Want(t, http.StatusServiceUnavailable)
			require.Contains(t, down.Detail(), "Kubernetes")

			proxy.Heal()
			require.NotEmpty(t, d.WaitUntilRunning("made"))
			d.WaitUntilGone("deleted", 20*time.Second)
			require.Equal(t, uid, d.WaitUntilRunning("kept"))
			d.NATS.WaitUntilQuiet(20 * time.Second)
			c.Get(t.Context(), "deleted").Want(t, http.StatusNotFound)
		})
	}
}

func TestEveryAnswerComesInTimeWhileKubernetesIsDown(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Stack(t, testenv.Through(proxy))
	c := d.Client()
	c.Create(t.Context(), "old").Want(t, http.StatusOK)
	proxy.On(testenv.Match{}, testenv.Hang)
	answers := make(chan testenv.Response)
	go func() { answers <- c.Create(t.Context(), "new", testenv.Prefer("wait=25")) }()
	go func() { answers <- c.Delete(t.Context(), "old") }()
	for range 2 {
		r := <-answers
		require.GreaterOrEqual(t, r.Code, 500, "%v", r)
		require.Less(t, r.Took, createBudget, "%v", r)
		if r.Code == http.StatusInternalServerError {
			require.Less(t, r.Took, deleteBudget, "%v", r)
			require.Contains(t, r.Detail(), "Partial cleanup")
		}
	}
	proxy.Heal()
	require.NotEmpty(t, d.WaitUntilRunning("new"))
	d.WaitUntilGone("old", 20*time.Second)
}

func TestAnOutageOfNATSIsSaidAtOnceAndReadsGoOn(t *testing.T) {
	t.Parallel()
	d := testenv.Stack(t, testenv.APIs(2), testenv.Workers(2))
	c := d.Client()
	c.Create(t.Context(), "old").Want(t, http.StatusOK)
	uid := d.WaitUntilRunning("old")
	d.NATS.WaitUntilQuiet(5 * time.Second)
	d.NATS.Stop()

	for _, ask := range []func() testenv.Response{
		func() testenv.Response { return c.Create(t.Context(), "new") },
		func() testenv.Response { return c.Create(t.Context(), "old") },
		func() testenv.Response { return c.Create(t.Context(), "new", testenv.Prefer("respond-async")) },
		func() testenv.Response { return c.Delete(t.Context(), "old") },
		func() testenv.Response { return c.Delete(t.Context(), "old", testenv.Prefer("respond-async")) },
	} {
		r := ask().Want(t, http.StatusServiceUnavailable)
		require.Less(t, r.Took, natsBudget, "%v", r)
		seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
		require.NoError(t, err, "%v", r)
		require.Positive(t, seconds)
	}
	require.Equal(t, "Running", c.Get(t.Context(), "old").Want(t, http.StatusOK).Body.Status)
	c.Get(t.Context(), "new").Want(t, http.StatusNotFound)
	require.Equal(t, 1, c.List(t.Context()).Want(t, http.StatusOK).Body.Count)
	require.Equal(t, uid, *c.Presence(t.Context(), "old").Want(t, http.StatusOK).Body.UID)
	c.Do(t.Context(), http.MethodGet, "/api/capabilities", nil).Want(t, http.StatusOK)
	down := c.Do(t.Context(), http.MethodGet, "/readyz", nil).Want(t, http.StatusServiceUnavailable)
	require.Contains(t, down.Detail(), "NATS")

	d.NATS.Start()
	for i, api := range d.APIs {
		id := "new-" + strconv.Itoa(i)
		waitUntilAnswered(t, 10*time.Second, func() testenv.Response { return api.Client().Create(t.Context(), id) }, http.StatusOK)
		d.WaitUntilRunning(id)
	}
	c.Delete(t.Context(), "old").Want(t, http.StatusOK)
	d.WaitUntilGone("old", 10*time.Second)
	c.Get(t.Context(), "new").Want(t, http.StatusNotFound) // what was refused is not carried out
}

func TestAcceptedJobsSurviveARestartOfNATS(t *testing.T) {
	t.Parallel()
	d := testenv.Stack(t, testenv.ClusterIP())
	c := d.Client()
	c.Create(t.Context(), "old").Want(t, http.StatusOK)
	d.StopWorkers()
	ids := names("new", 20)
	for _, id := range ids {
		c.Create(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	}
	c.Delete(t.Context(), "old", testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	d.NATS.Stop()
	d.NATS.Start()
	d.StartWorkers()
	waitUntilBoth(t, d, ids, 20*time.Second)
	d.WaitUntilGone("old", 20*time.Second)
	d.NATS.WaitUntilQuiet(20 * time.Second)
}
