package observe_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

// ordinary is a load of requests that succeed, that are wrong, and that fail because of what is asked for.
func ordinary(s *site, n int) {
	c, ctx, id := s.Client(), s.t.Context(), fmt.Sprint("ordinary-", n)
	c.Create(ctx, id)
	c.Create(ctx, id)                                          // once more
	c.Create(ctx, id, testenv.Field("max_shell_sessions", 90)) // has less capacity
	c.Job(ctx, id)
	c.Delete(ctx, id)
	c.Create(ctx, id) // while its predecessor goes
	c.Delete(ctx, id, testenv.Prefer("respond-async"))
	c.Create(ctx, "Not A Name")
	c.Get(ctx, "nobody")
	c.Do(ctx, http.MethodGet, "/api/nowhere", nil)
	c.Do(ctx, http.MethodPut, "/api/sandboxes", nil)
	testenv.Client{URL: c.URL}.List(ctx)
	testenv.Client{URL: c.URL, Key: "wrong"}.List(ctx)
}

func TestEveryExpressionGivesDataAndNoAlertFiresWhileAllIsWell(t *testing.T) {
	t.Parallel()
	s := observe(t, nil, testenv.APIs(2), testenv.Workers(2))
	s.Misbehave("nowhere", testenv.Fault{Kind: testenv.Unschedulable})
	s.Client().Create(t.Context(), "nowhere").Want(t, http.StatusOK)
	s.inBackground(ordinary)
	lastFor(t, 30*time.Second)

	t.Run("alerts", func(t *testing.T) { require.Empty(t, s.fired()) })
	t.Run("rules", func(t *testing.T) { s.requireSoundRules() })
	for _, r := range s.rules() {
		t.Run(r.name, func(t *testing.T) { requireData(t, s, r.name, r.expr, r.alert) })
	}
	for _, q := range boardQueries(t) {
		t.Run(q.name, func(t *testing.T) { requireData(t, s, q.name, q.expr, false) })
	}
}

// requireData wants a query or a recording rule to give data, and an alert not to fire: it is empty when all is well. That it is not
// when something is wrong is for the tests of faults.
func requireData(t *testing.T, s *site, name, expr string, alert bool) {
	t.Helper()
	if alert {
		expr = fmt.Sprintf("ALERTS{alertname=%q, alertstate=\"firing\"}", name)
	}
	seen, err := s.Seen(t.Context(), expr)
	require.NoError(t, err)
	if alert {
		require.Empty(t, seen)
	} else {
		require.NotEmpty(t, seen, expr)
	}
}
