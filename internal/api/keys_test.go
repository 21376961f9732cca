package api

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

func TestNamedKeysAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Keys{
		"":                                nil,
		"  ":                              nil,
		"gateway:k1":                      {{"gateway", "k1"}},
		"gateway:k1,gateway-2026.08:k2":   {{"gateway", "k1"}, {"gateway-2026.08", "k2"}},
		" a:k1 ,\n\tb:k:with:colons ":     {{"a", "k1"}, {"b", "k:with:colons"}},
		strings.Repeat("a", 63) + ":clé$": {{strings.Repeat("a", 63), "clé$"}},
	} {
		var keys Keys
		require.NoError(t, keys.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, keys)

		var again Keys
		written, err := keys.MarshalText()
		require.NoError(t, err)
		require.NoError(t, again.UnmarshalText(written))
		require.Equal(t, keys, again)
	}
}

func TestNamedKeysThatCannotBeToldApartAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"s3cret":                             "entry 1 is not name:key",
		"a:k1,s3cret":                        "entry 2 is not name:key",
		"a:k1,":                              "entry 2 is not name:key",
		":s3cret":                            "entry 1 has a bad name",
		"Gateway:s3cret":                     "entry 1 has a bad name",
		"a b:s3cret":                         "entry 1 has a bad name",
		"-a:s3cret":                          "entry 1 has a bad name",
		strings.Repeat("a", 64) + ":s3cret":  "entry 1 has a bad name",
		"a:k1,b:":                            "entry 2 has an empty key",
		"a:s3cret1,b:k2,a:s3cret3":           "entries 1 and 3 have the same name",
		"a:s3cret,b:k2,c:k3,d:k2":            "entries 2 and 4 have the same key",
		"https://user:s3cret@somewhere,a:k1": "entry 1 has an empty key",
	} {
		var keys Keys
		err := keys.UnmarshalText([]byte(text))
		if strings.HasPrefix(text, "https:") {
			require.NoError(t, err, "a key may be anything")
			continue
		}
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

func TestTheSingleKeyMustNotBeGivenTwice(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg  Config
		want string
	}{
		"beside another one":         {Config{Key: "s3cret", Keys: Keys{{"a", "k1"}}}, ""},
		"alone":                      {Config{Key: "s3cret"}, ""},
		"its name without it":        {Config{Keys: Keys{{"default", "s3cret"}}}, ""},
		"its name for another one":   {Config{Key: "s3cret", Keys: Keys{{"default", "k1"}}}, "the name default belongs to PROVISIONER_API_KEY"},
		"once more, under that name": {Config{Key: "s3cret", Keys: Keys{{"a", "s3cret"}}}, "holds the key of PROVISIONER_API_KEY"},
	} {
		err := tc.cfg.checkKeys()
		if tc.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, "PROVISIONER_API_KEYS=******: ", name)
		require.ErrorContains(t, err, tc.want, name)
		require.NotContains(t, err.Error(), "s3cret", name)
	}
}

func TestEachKeyOpensAndIsToldApart(t *testing.T) {
	t.Parallel()
	both := Config{Key: "k0", Keys: Keys{{"old", "k1"}, {"new", "k2"}}}
	for name, tc := range map[string]struct {
		cfg  Config
		sent string
		who  string
	}{
		"the single one":          {both, "k0", "default"},
		"the first named":         {both, "k1", "old"},
		"the last named":          {both, "k2", "new"},
		"none of them":            {both, "k3", ""},
		"a name":                  {both, "old", ""},
		"a name and its key":      {both, "old:k1", ""},
		"nothing":                 {both, "", ""},
		"named ones alone":        {Config{Keys: both.Keys}, "k1", "old"},
		"nothing, with no key":    {Config{}, "", ""},
		"anything, with no key":   {Config{}, "k1", ""},
		"nothing, with no single": {Config{Keys: both.Keys}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.who, tc.cfg.keyring().find(tc.sent))

			s := living()
			s.keys = &tc.cfg
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/capabilities", nil)
			req.Header.Set(headerAPIKey, tc.sent)
			w := httptest.NewRecorder()
			s.handler().ServeHTTP(w, req)
			require.Equal(t, tc.who == "", w.Code == http.StatusUnauthorized)
		})
	}
}

func TestTheAuditSaysWhoseKeyItWas(t *testing.T) {
	t.Parallel()
	s := living()
	s.keys = &Config{Key: testKey, Keys: Keys{{"gateway-2", "k2"}}}
	for key, who := range map[string]string{testKey: "default", "k2": "gateway-2", "k3": ""} {
		lines := audited(t, s, "DELETE", "/api/sandboxes/a1", "", headerAPIKey, key)
		require.Len(t, lines, 1)
		require.Equal(t, who, lines[0]["who"])
	}
}

// No program hands a key to Kubernetes, but somebody may have put it into an image's address or a label.
func TestOurKeysAreHiddenWhereKubernetesRepeatsThem(t *testing.T) {
	t.Parallel()
	const named = "named-s3cret"
	words := "denied: " + testKey + " and " + named + " and abc"
	s := living()
	s.keys = &Config{Key: testKey, Keys: Keys{{"a", named}, {"short", "abc"}}}
	s.sighting.State.Message = words
	s.view.Outcome.Message = words
	troubled := s
	troubled.checkErr = &sandbox.Failure{Reason: sandbox.ReasonRefused, Message: words}
	log := &telemetrytest.Log{}
	troubled.log = slog.New(slog.NewTextHandler(log, nil))
	for request, scene := range map[string]scene{
		"GET /api/sandboxes": s, "GET /api/sandboxes/a1": s, "GET /api/sandboxes/a1/job": s, "POST /api/sandboxes": troubled,
	} {
		method, path, _ := strings.Cut(request, " ")
		req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(`{"sandbox_id":"a1"}`))
		req.Header.Set(headerAPIKey, testKey)
		w := httptest.NewRecorder()
		scene.handler().ServeHTTP(w, req)
		require.Contains(t, w.Body.String(), "denied: ****** and ****** and abc", request)
	}
	require.Contains(t, log.String(), "denied: ****** and ****** and abc")
}
