package cases_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

// Case 21.
func TestNobodyGetsInWithoutTheKey(t *testing.T) {
	t.Parallel()
	locked := testenv.Stack(t, testenv.Workers(0), testenv.Env("PROVISIONER_API_KEY", ""))
	open := testenv.Stack(t, testenv.Workers(0))
	for name, test := range map[string]struct {
		url, key, path string
		code           int
	}{
		"no key":                            {open.Client().URL, "", "/api/sandboxes", http.StatusUnauthorized},
		"a wrong key":                       {open.Client().URL, "test-secreT", "/api/sandboxes", http.StatusUnauthorized},
		"a key that is not ASCII":           {open.Client().URL, "test-secr\xe9t", "/api/sandboxes", http.StatusUnauthorized},
		"the right key, but none is set":    {locked.Client().URL, testenv.Key, "/api/sandboxes", http.StatusUnauthorized},
		"no key at all, and none is set":    {locked.Client().URL, "", "/api/sandboxes", http.StatusUnauthorized},
		"an unknown path without a key":     {open.Client().URL, "", "/api/unknown", http.StatusUnauthorized},
		"an unknown path with the key":      {open.Client().URL, testenv.Key, "/api/unknown", http.StatusNotFound},
		"the right key":                     {open.Client().URL, testenv.Key, "/api/sandboxes", http.StatusOK},
		"the health, which is for everyone": {locked.Client().URL, "", "/health", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testenv.Client{URL: test.url, Key: test.key}.Do(t.Context(), http.MethodGet, test.path, nil).Want(t, test.code)
			if test.code == http.StatusUnauthorized {
				require.Equal(t, "Unauthorized", r.Raw)
			}
		})
	}
}
