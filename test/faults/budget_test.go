package faults_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

func TestACreateTakesTwoWritesAndADeleteTwoReadsMore(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Stack(t, testenv.Through(proxy))
	c := d.Client()
	for range 3 {
		proxy.ResetCounts()
		c.Create(t.Context(), "one").Want(t, http.StatusOK)
		d.NATS.WaitUntilQuiet(5 * time.Second)
		require.Equal(t, map[string]int{"create pods": 1, "create services": 1}, proxy.Counts())

		proxy.ResetCounts()
		c.Delete(t.Context(), "one").Want(t, http.StatusOK)
		d.NATS.WaitUntilQuiet(5 * time.Second)
		require.Equal(t, map[string]int{"get pods": 1, "get services": 1, "delete pods": 1, "delete services": 1}, proxy.Counts())
		d.WaitUntilGone("one", 10*time.Second)
	}
}

func TestAStatusReadTakesOneReadOfEachKind(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Stack(t, testenv.Through(proxy))
	c := d.Client()
	for _, id := range names("one", 5) {
		c.Create(t.Context(), id).Want(t, http.StatusOK)
	}
	for name, test := range map[string]struct {
		ask  func() testenv.Response
		want map[string]int
	}{
		"a sandbox":          {func() testenv.Response { return c.Get(t.Context(), "one-0") }, map[string]int{"get pods": 1, "get services": 1}},
		"the list":           {func() testenv.Response { return c.List(t.Context()) }, map[string]int{"list pods": 1, "list services": 1}},
		"the presence":       {func() testenv.Response { return c.Presence(t.Context(), "one-0") }, map[string]int{"get pods": 1}},
		"a job":              {func() testenv.Response { return c.Job(t.Context(), "one-0") }, map[string]int{}},
		"the capabilities":   {func() testenv.Response { return c.Do(t.Context(), http.MethodGet, "/api/capabilities", nil) }, map[string]int{}},
		"a create once more": {func() testenv.Response { return c.Create(t.Context(), "one-0") }, map[string]int{"get pods": 1, "get services": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			proxy.ResetCounts()
			test.ask().Want(t, http.StatusOK)
			require.Equal(t, test.want, proxy.Counts())
		})
	}
}
