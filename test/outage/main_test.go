// Package outage_test looks at the manners of the programs while something is down for long, or full, or sends nonsense: they
// wait without haste, remember everything, and say what became of it.
package outage_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// site is what most tests run on.
type site = testenv.Deployment[*testenv.Instance]

// atOnce is how many requests the tests send at the same time, where they send many.
const atOnce = 32

// names are n ids.
func names(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(prefix, "-", i)
	}
	return ids
}

// forAll asks about each id, some at once, and returns the answers in the order of ids.
func forAll(ids []string, limit int, ask func(id string) testenv.Response) []testenv.Response {
	answers := make([]testenv.Response, len(ids))
	slots := make(chan struct{}, limit)
	var asking sync.WaitGroup
	for i, id := range ids {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			answers[i] = ask(id)
		})
	}
	asking.Wait()
	return answers
}

// queue has creates accepted without waiting for them.
func queue(t *testing.T, c testenv.Client, ids []string) {
	t.Helper()
	for _, r := range forAll(ids, atOnce, func(id string) testenv.Response {
		return c.Create(t.Context(), id, testenv.Prefer("respond-async"))
	}) {
		r.Want(t, http.StatusAccepted)
	}
}

// requireExactly waits until one Pod and one Service of each of ids are there, and nothing else.
func requireExactly[P testenv.Program](t *testing.T, d *testenv.Deployment[P], within time.Duration, ids ...string) {
	t.Helper()
	slices.Sort(ids)
	testenv.Until(t, within, func() error {
		var pods, services []string
		for _, pod := range d.Pods() {
			if pod.DeletionTimestamp == nil {
				pods = append(pods, pod.Labels[sandbox.LabelID])
			}
		}
		for _, service := range d.Services() {
			services = append(services, service.Labels[sandbox.LabelID])
		}
		slices.Sort(pods)
		slices.Sort(services)
		if !slices.Equal(pods, ids) || !slices.Equal(services, ids) {
			return fmt.Errorf("wanted %d sandboxes, there are %d Pods and %d Services", len(ids), len(pods), len(services))
		}
		return nil
	})
}

// lastFor lets a fault last. There is nothing to wait for but time.
func lastFor(t *testing.T, long time.Duration) {
	t.Helper()
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		require.NoError(t, t.Context().Err())
	}
}
