package api

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParsePrefer(t *testing.T) {
	t.Parallel()
	async := preference{Async: true}
	wait := func(d time.Duration) preference { return preference{Wait: d, HasWait: true} }
	for name, tc := range map[string]struct {
		headers []string
		want    preference
	}{
		"no header is no preference":           {nil, preference{}},
		"an empty header neither":              {[]string{""}, preference{}},
		"respond-async":                        {[]string{"respond-async"}, async},
		"names are not case-sensitive":         {[]string{"Respond-ASYNC, WAIT=5"}, preference{true, 5 * time.Second, true}},
		"several headers count as one":         {[]string{"respond-async", "wait=5"}, preference{true, 5 * time.Second, true}},
		"spaces are allowed everywhere":        {[]string{" wait = 5 \t, respond-async "}, preference{true, 5 * time.Second, true}},
		"empty elements are skipped":           {[]string{",,respond-async,"}, async},
		"a value may be quoted":                {[]string{`wait="5"`}, wait(5 * time.Second)},
		"parameters are ignored":               {[]string{`respond-async; x="a,b;c"; y, wait=5; z=1`}, preference{true, 5 * time.Second, true}},
		"unknown preferences are ignored":      {[]string{`return=minimal, respond-async`}, async},
		"quoted text is not a preference":      {[]string{`x="\", respond-async, wait=9", wait=5`}, wait(5 * time.Second)},
		"an unfinished quote swallows rest":    {[]string{`wait=5, x=", respond-async`}, wait(5 * time.Second)},
		"a backslash at the end is harmless":   {[]string{`wait=5, x="\`}, wait(5 * time.Second)},
		"the first of several counts":          {[]string{"wait=5, wait=6", "wait=7"}, wait(5 * time.Second)},
		"no wait at all is a wait":             {[]string{"wait=0"}, wait(0)},
		"more than we can count is very long":  {[]string{"wait=99999999999999999999"}, wait(math.MaxInt32 * time.Second)},
		"a wait without a value is ignored":    {[]string{"wait"}, preference{}},
		"an empty wait is ignored":             {[]string{"wait=, wait=\"\""}, preference{}},
		"a negative wait is ignored":           {[]string{"wait=-1"}, preference{}},
		"a fraction is ignored":                {[]string{"wait=1.5"}, preference{}},
		"a sign is ignored":                    {[]string{"wait=+1"}, preference{}},
		"a unit is ignored":                    {[]string{"wait=5s"}, preference{}},
		"a bad wait does not hide a good one":  {[]string{"wait=soon, wait=5"}, wait(5 * time.Second)},
		"respond-async takes no value":         {[]string{"respond-async=false"}, preference{}},
		"what only begins like it is not it":   {[]string{"respond-asynchronously, waits=5"}, preference{}},
		"a semicolon at the start is harmless": {[]string{"; wait=5"}, preference{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, parsePrefer(http.Header{"Prefer": tc.headers}))
		})
	}
}

// The scene has jobs that are done at once, or never.
func TestWhatAClientPrefersDecidesAboutTheAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prefer  string
		done    bool
		status  map[string]int // by method
		applied string
	}{
		"nothing":                             {"", true, map[string]int{"POST": 200, "DELETE": 200}, ""},
		"nothing, and it takes long":          {"", false, map[string]int{"POST": 503, "DELETE": 500}, ""},
		"not to wait":                         {"respond-async", false, map[string]int{"POST": 202, "DELETE": 202}, "respond-async"},
		"not to wait for what is there":       {"respond-async", true, map[string]int{"POST": 200, "DELETE": 200}, ""},
		"to wait for no time":                 {"wait=0", false, map[string]int{"POST": 202, "DELETE": 202}, "wait=0"},
		"to wait for no time, twice over":     {"wait=0, respond-async", false, map[string]int{"POST": 202, "DELETE": 202}, "respond-async, wait=0"},
		"to wait a little":                    {"wait=1", true, map[string]int{"POST": 200, "DELETE": 200}, "wait=1"},
		"to wait a little, and it takes long": {"wait=1", false, map[string]int{"POST": 503, "DELETE": 500}, ""},
		"to wait a little, or no longer":      {"wait=1, respond-async", false, map[string]int{"POST": 202, "DELETE": 202}, "respond-async, wait=1"},
		"something that we do not know":       {"return=minimal", true, map[string]int{"POST": 200, "DELETE": 200}, ""},
		"something malformed":                 {"wait=soon", true, map[string]int{"POST": 200, "DELETE": 200}, ""},
	} {
		for method, want := range tc.status {
			t.Run(name+", "+method, func(t *testing.T) {
				t.Parallel()
				path := map[string]string{"POST": "/api/sandboxes", "DELETE": "/api/sandboxes/a1"}[method]
				req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(`{"sandbox_id":"a1"}`))
				req.Header.Set(headerAPIKey, testKey)
				req.Header.Set("Prefer", tc.prefer)
				w := httptest.NewRecorder()
				s := scene{done: tc.done, checked: &sceneState, deleteWait: 3 * time.Second}
				s.handler().ServeHTTP(w, req)
				require.Equal(t, want, w.Code, w.Body)
				require.Equal(t, tc.applied, w.Header().Get("Preference-Applied"))
			})
		}
	}
}

func TestAWaitIsNoLongerThanOurs(t *testing.T) {
	t.Parallel()
	for sent, want := range map[int]string{1: "wait=1", 3: "wait=3", 4: "wait=3", 99: "wait=3"} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "/api/sandboxes/a1", nil)
		req.Header.Set(headerAPIKey, testKey)
		req.Header.Set("Prefer", fmt.Sprint("wait=", sent))
		w := httptest.NewRecorder()
		s := scene{done: true, deleteWait: 3 * time.Second}
		s.handler().ServeHTTP(w, req)
		require.Equal(t, 200, w.Code)
		require.Equal(t, want, w.Header().Get("Preference-Applied"), "what has counted")
	}
}
