package api

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

// audited serves one request and returns the lines of the audit. The log itself is to keep errors only.
func audited(t *testing.T, s scene, method, path, body string, headers ...string) []map[string]any {
	t.Helper()
	log := &telemetrytest.Log{}
	s.log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))
	req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	req.Header.Set(headerAPIKey, testKey)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	s.handler().ServeHTTP(httptest.NewRecorder(), req)
	var lines []map[string]any
	for text := range strings.Lines(log.String()) {
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &line))
		if line["msg"] == "audit" {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestCreatesAndDeletesAreAudited(t *testing.T) {
	t.Parallel()
	const create, async = `{"sandbox_id":"a1"}`, "respond-async"
	refused := troubled(&sandbox.Failure{Reason: sandbox.ReasonRefused, Object: sandbox.Pod, Message: "no"})
	quota := troubled(&sandbox.Failure{Reason: sandbox.ReasonQuota, Object: sandbox.Pod, Message: "no"})
	noQueue := scene{lookErr: jobs.ErrUnavailable}
	type want struct {
		who, action, id string
		status          int
		result          string
	}
	for name, tc := range map[string]struct {
		scene              scene
		method, path, body string
		headers            []string
		want               *want
	}{
		"a create":                      {living(), "POST", "/api/sandboxes", create, nil, &want{"default", "create", "a1", 200, "done"}},
		"a create that is queued":       {scene{}, "POST", "/api/sandboxes", create, []string{"Prefer", async}, &want{"default", "create", "a1", 202, "accepted"}},
		"a create that takes long":      {scene{}, "POST", "/api/sandboxes", create, nil, &want{"default", "create", "a1", 503, "pending"}},
		"a create without the key":      {living(), "POST", "/api/sandboxes", create, []string{headerAPIKey, "s3cret"}, &want{"", "create", "", 401, "refused"}},
		"a create that is malformed":    {living(), "POST", "/api/sandboxes", `{"sandbox_id":"A"}`, nil, &want{"default", "create", "", 422, "refused"}},
		"a create beyond the quota":     {quota, "POST", "/api/sandboxes", create, nil, &want{"default", "create", "a1", 429, "refused"}},
		"a create that is refused":      {refused, "POST", "/api/sandboxes", create, nil, &want{"default", "create", "a1", 500, "failed"}},
		"a create without NATS":         {noQueue, "POST", "/api/sandboxes", create, nil, &want{"default", "create", "a1", 503, "failed"}},
		"a delete":                      {living(), "DELETE", "/api/sandboxes/a1", "", nil, &want{"default", "delete", "a1", 200, "done"}},
		"a delete that is queued":       {scene{}, "DELETE", "/api/sandboxes/a1", "", []string{"Prefer", async}, &want{"default", "delete", "a1", 202, "accepted"}},
		"a delete that takes long":      {scene{}, "DELETE", "/api/sandboxes/a1", "", nil, &want{"default", "delete", "a1", 500, "pending"}},
		"a delete of an impossible one": {living(), "DELETE", "/api/sandboxes/A%0a", "", nil, &want{"default", "delete", "", 200, "done"}},
		"a delete of the empty id":      {living(), "DELETE", "/api/sandboxes/", "", nil, &want{"default", "delete", "", 200, "done"}},
		"a look is not audited":         {living(), "GET", "/api/sandboxes/a1", "", nil, nil},
		"nor a list":                    {living(), "GET", "/api/sandboxes", "", nil, nil},
		"nor an unknown path":           {living(), "POST", "/api/elsewhere", "", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := audited(t, tc.scene, tc.method, tc.path, tc.body, append(tc.headers, "X-Request-Id", "theirs")...)
			if tc.want == nil {
				require.Empty(t, lines)
				return
			}
			require.Len(t, lines, 1)
			line := lines[0]
			require.Equal(t, *tc.want, want{
				line["who"].(string), line["action"].(string), line["sandbox_id"].(string), int(line["status"].(float64)), line["result"].(string),
			})
			require.Equal(t, "192.0.2.1", line["from"])
			require.NotEmpty(t, line["request_id"])
			require.Equal(t, "theirs", line["client_request_id"])
			require.Equal(t, "INFO", line["level"])
		})
	}
}

func TestAPanicIsAudited(t *testing.T) {
	t.Parallel()
	s := living()
	s.checkErr = errors.New("a fault")
	lines := audited(t, s, "POST", "/api/sandboxes", `{"sandbox_id":"a1"}`)
	require.Len(t, lines, 1)
	require.Equal(t, "failed", lines[0]["result"])
}

func TestOnlyTrustedProxiesAreBelievedAboutTheClient(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		trusted Proxies
		header  string
		want    string
	}{
		"nobody is trusted":                    {nil, "203.0.113.7", "192.0.2.1"},
		"somebody else is":                     {Proxies{"10.0.0.0/8"}, "203.0.113.7", "192.0.2.1"},
		"the proxy is":                         {Proxies{"192.0.2.1"}, "203.0.113.7", "203.0.113.7"},
		"its network is":                       {Proxies{"192.0.2.0/24"}, "203.0.113.7", "203.0.113.7"},
		"what the client made up is passed by": {Proxies{"192.0.2.1"}, "1.1.1.1, 203.0.113.7", "203.0.113.7"},
		"two proxies are":                      {Proxies{"192.0.2.1", "10.0.0.0/8"}, "203.0.113.7, 10.1.1.1", "203.0.113.7"},
		"the proxy says nothing":               {Proxies{"192.0.2.1"}, "", "192.0.2.1"},
		"the proxy says nonsense":              {Proxies{"192.0.2.1"}, "nobody\n", "192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := living()
			s.trusted = tc.trusted
			lines := audited(t, s, "DELETE", "/api/sandboxes/a1", "", "X-Forwarded-For", tc.header, "X-Real-Ip", "9.9.9.9")
			require.Equal(t, tc.want, lines[0]["from"])
		})
	}
}
